#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests on a real OpenStack, where services and guests can be reached.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Built out here: inside there is no way to the registry.
cargo test "$@" --test lab_openstack --test contract --no-run
# One at a time: two cores emulate the guests.
tests/lab/openstack/lab.sh exec cargo test --offline "$@" --test lab_openstack -- --ignored --test-threads=1
# What every backend promises, on the real one too.
export OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD=demo OCPDEPLOY_CONTRACT_OPENSTACK_IMAGE=$PWD/target/images/helper.qcow2
tests/lab/openstack/lab.sh exec cargo test --offline "$@" --test contract -- openstack_named:: --test-threads=1
