#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests marked `#[ignore]`, on the lab's libvirt, in the namespace that reaches its guests.
# Those on OpenStack and on Kubernetes have labs of their own (openstack/test.sh, kubernetes/test.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
images/build.sh target/images
# Built outside: the lab has no route to the registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --test it --no-run
export OCPDEPLOY_LAB_URI=qemu:///system
tests/lab/lab.sh exec cargo nextest run --offline "$@" --test lab --test it --run-ignored only -E 'not test(on_openstack::) and not test(/^kubernetes::/)'
# The contract of every backend, on the real one too.
export OCPDEPLOY_CONTRACT_LIBVIRT_URI=$OCPDEPLOY_LAB_URI OCPDEPLOY_CONTRACT_LIBVIRT_IMAGE=$PWD/target/images/helper.qcow2
tests/lab/lab.sh exec cargo nextest run --offline "$@" --test it contract::libvirt_named::
