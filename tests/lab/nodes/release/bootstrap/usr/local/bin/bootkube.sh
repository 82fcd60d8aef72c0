#!/bin/bash
# The stages of openshift/installer: data/data/bootstrap/files/usr/local/bin/bootkube.sh.template, in their order.
set -euo pipefail
cd /opt/openshift
manifests=/etc/kubernetes/manifests
ip=$(cat /run/nodeip-configuration/primary-ip)
kubectl() { command kubectl --kubeconfig /opt/openshift/auth/kubeconfig-loopback "$@"; }
until_() { until "$@" >/dev/null 2>&1; do sleep 5; done; }
start() { # NAME: a static pod, whole from the kubelet's view
    sed -e "s/@ip@/$ip/g" -e 's/@member@/etcd-bootstrap/' -e "s|@cluster@|etcd-bootstrap=http://$ip:2380|" -e 's/@state@/new/' \
        static-pods/"$1".json >$manifests/."$1"
    mv $manifests/."$1" $manifests/"$1".json
}

# Where the control plane of the release runs, if not here.
native=@native@
mkdir -p $manifests
[ -n "$native" ] || { echo "Starting etcd..." && start etcd; }

echo "Starting the machine config server..."
echo POOLS=master >/etc/mcs/environment
systemctl start machine-config-server

[ -n "$native" ] || until_ env ETCDCTL_API=3 etcdctl --endpoints=http://127.0.0.1:2379 endpoint health
echo "Starting cluster-bootstrap..."
start kube-apiserver
# The installer starts a scheduler too; no pod of this release is created before the masters have theirs.
[ -n "$native" ] || start kube-controller-manager
until_ curl -kfs https://localhost:6443/readyz
# cluster-bootstrap creates the manifests again until each is there.
for folder in crds manifests openshift; do
    [ -d $folder ] || continue
    until kubectl apply --validate=false -f $folder; do sleep 5; done
done
sed -e "s/@ip@/$ip/" etcd-endpoints.json | kubectl apply -f -
# What the masters' machine config servers serve; there, the rendered MachineConfigs.
kubectl -n openshift-machine-config-operator create secret generic rendered-configs --from-file=/etc/mcs/master.json --from-file=/etc/mcs/worker.json
echo "Created the manifests"
# --required-pods
running() { kubectl -n "$1" get pods -l app="$2" -o 'jsonpath={range .items[*]}{.spec.nodeName} {.status.phase}{"\n"}{end}' | grep -q ' Running$'; }
until_ running openshift-kube-apiserver kube-apiserver
[ -n "$native" ] || until_ running openshift-kube-controller-manager kube-controller-manager
echo "Tearing down the temporary control plane..."
rm $manifests/kube-*.json
systemctl stop machine-config-server

echo "Waiting for CEO to finish..."
# openshift/cluster-etcd-operator: pkg/operator/bootstrapteardown/waitforceo.go
until_ bash -c "command kubectl --kubeconfig /opt/openshift/auth/kubeconfig get etcd cluster \
    -o 'jsonpath={.status.conditions[?(@.type==\"EtcdRunningInCluster\")].status}' | grep -qx True"
touch /opt/openshift/.bootkube.done
echo "bootkube.service complete"
