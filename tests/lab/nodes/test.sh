#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: runs the tests with real nodes as guests, on the lab's libvirt. LAB_TESTS=all adds the tests that
# are too long for `make test-labs`.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Build outside of the lab, which has no route to the crate registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --no-run
export OCPDEPLOY_LAB_URI=qemu:///system
selected='test(nodes::a_cluster_of_real_nodes)'
[ "${LAB_TESTS-}" != all ] || selected='test(/^nodes::/)'
tests/lab/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only -E "$selected"
