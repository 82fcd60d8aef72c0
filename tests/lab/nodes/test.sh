#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests whose guests are real nodes, on the lab's libvirt. LAB_TESTS=all includes those that take
# longer than `make test` allows. TEST_DEADLINE is when a run must end, in seconds since 1970.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Built outside: the lab has no route to the registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --no-run
# A cluster takes 9 minutes; on a computer with half the speed, beside the other labs, half an hour.
if [ -n "${TEST_DEADLINE-}" ] && [ $((TEST_DEADLINE - $(date +%s))) -lt 2000 ]; then
    echo "LEFT OUT: the cluster of real nodes: this computer is too slow to end it by TEST_DEADLINE" >&2
    exit 0
fi
export OCPDEPLOY_LAB_URI=qemu:///system
selected='test(nodes::a_cluster_of_real_nodes)'
[ "${LAB_TESTS-}" != all ] || selected='test(/^nodes::/)'
tests/lab/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only -E "$selected"
