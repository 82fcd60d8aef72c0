#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: starts a real API server, runs the tests of the KubeVirt backend on it, and stops it; KEEP=1 keeps
# it running. Left out without upstream's CRDs.
set -euo pipefail
cd "$(dirname "$0")/../../.."
lab=tests/lab/kubernetes/lab.sh
if [ ! -d "${OCPDEPLOY_TEST_CRDS-}" ]; then
    echo "LEFT OUT: tests on a real API server require upstream's CRDs in the directory OCPDEPLOY_TEST_CRDS" |
        tee -a "${TEST_LEFT_OUT:-/dev/null}"
    exit 0
fi
# Build outside of the lab, which has no route to the crate registry.
export NEXTEST_PROFILE=kubernetes
cargo build "$@" --example fake-kubevirt
cargo nextest run "$@" --test lab --test it --no-run
leave() { [ "${KEEP-}" = 1 ] || $lab down; }
trap leave EXIT
$lab up
# Tests of this lab: requests compared with the fake, faults during runs, two tenants.
inside() { $lab exec cargo nextest run --offline "$@"; }
inside "$@" --test lab --run-ignored only -E 'test(kubernetes::) and not test(only_documented_rights_were_used)'
# The contract of every backend, and whole runs.
$lab tenant named
export OCPDEPLOY_TEST_KUBECONFIG=$PWD/target/kubernetes/state/named.kubeconfig
export OCPDEPLOY_TEST_KUBECONFIG_IMAGE=pvc:rhcos OCPDEPLOY_TEST_KUBECONFIG_NETWORK=lan
export OCPDEPLOY_TEST_KUBECONFIG_SETTINGS=$'machine_network=10.7.0.0/16\nkubevirt_pod_networks=10.128.0.0/14'
inside "$@" --test it -E 'test(contract::kubevirt_named::) or test(on_the_named_server)'
# The audit log of all these tests.
inside "$@" --test lab --run-ignored only --no-capture -E 'test(only_documented_rights_were_used)'
