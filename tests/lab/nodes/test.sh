#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests whose guests are real nodes, on the lab's libvirt. LAB_TESTS=all includes those that take
# longer than `make test-labs` allows.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Built outside: the lab has no route to the registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --no-run
export OCPDEPLOY_LAB_URI=qemu:///system
selected='test(nodes::a_cluster_of_real_nodes)'
[ "${LAB_TESTS-}" != all ] || selected='test(/^nodes::/)'
tests/lab/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only -E "$selected"
