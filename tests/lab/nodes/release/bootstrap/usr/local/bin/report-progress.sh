#!/bin/bash
# Says that the bootstrap is complete, as openshift/installer: data/data/bootstrap/files/usr/local/bin/report-progress.sh does.
set -u
until [ -e /opt/openshift/.bootkube.done ]; do sleep 5; done
until kubectl --kubeconfig /opt/openshift/auth/kubeconfig -n kube-system create configmap bootstrap --from-literal=status=complete; do
    sleep 5
done
