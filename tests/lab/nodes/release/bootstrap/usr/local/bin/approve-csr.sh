#!/bin/bash
# Approves all requests until bootkube.sh is done, as openshift/installer:
# data/data/bootstrap/files/usr/local/bin/approve-csr.sh does.
export KUBECONFIG=/opt/openshift/auth/kubeconfig-loopback
while [ ! -f /opt/openshift/.bootkube.done ]; do
    kubectl get csr --no-headers 2>/dev/null | awk '/Pending/ { print $1 }' | xargs --no-run-if-empty kubectl certificate approve
    sleep 20
done
