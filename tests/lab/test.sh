#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests marked `#[ignore]`, on the lab's libvirt and where its guests can be reached.
# Those on OpenStack have a lab of their own (openstack/test.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
images/build.sh target/images
# Built out here: inside there is no way to the registry.
cargo test "$@" --no-run
# One at a time: two cores emulate the guests.
export OCPDEPLOY_LAB_URI=qemu:///system
tests/lab/lab.sh exec cargo test --offline "$@" -- --ignored --skip on_openstack:: --test-threads=1
# What every backend promises, on the real one too.
export OCPDEPLOY_CONTRACT_LIBVIRT_URI=$OCPDEPLOY_LAB_URI OCPDEPLOY_CONTRACT_LIBVIRT_IMAGE=$PWD/target/images/helper.qcow2
tests/lab/lab.sh exec cargo test --offline "$@" --test contract -- libvirt_named:: --test-threads=1
