#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests on a real OpenStack, where services and guests can be reached.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Built out here: inside there is no way to the registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --test it --no-run
tests/lab/openstack/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only on_openstack::
# What every backend promises, on the pretend compute; and that guests get what is promised to them on the real ones.
export OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD=demo OCPDEPLOY_CONTRACT_OPENSTACK_IMAGE=$PWD/target/images/helper.qcow2
promises() { tests/lab/openstack/lab.sh exec env "OCPDEPLOY_CONTRACT_OPENSTACK_ZONE=$1" cargo nextest run --offline "${@:3}" --test it --test-threads 2 "contract::openstack_named::$2"; }
promises fake '' "$@"
promises real a_machine_gets_the_address_held_for_it "$@"
