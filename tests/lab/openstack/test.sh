#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests on a real OpenStack, in the namespace that reaches services and guests.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Built outside: the lab has no route to the registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --test it --no-run
selected='test(on_openstack::)'
# 16 minutes, which `make test` does not have: they repeat tests on libvirt, or on the fake, on a real cloud.
[ "${LAB_TESTS-}" = all ] || selected+=' and not test(/(three_clusters|services_that_ignore|killed_after_each|many_machines|an_upload_may_take)/)'
# Cinder, Swift, Octavia and a Nova that keeps deleted servers.
all=no
if tests/lab/openstack/lab.sh status | grep -q 'services all'; then all=yes; fi
[ $all = yes ] || selected+=' and not (test(/^openstack_(storage|balancers)::/) and not test(an_upload_may_take))'
tests/lab/openstack/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only -E "$selected"
# The contract of every backend on the fake compute node, and the guests' part of it on the real ones.
export OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD=demo OCPDEPLOY_CONTRACT_OPENSTACK_IMAGE=$PWD/target/images/helper.qcow2
promises() { tests/lab/openstack/lab.sh exec env "OCPDEPLOY_CONTRACT_OPENSTACK_ZONE=$1" cargo nextest run --offline "${@:3}" --test it --test-threads 2 "contract::openstack_named::$2"; }
promises fake '' "$@"
if [ $all = yes ]; then OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD=keeps promises fake '' "$@"; fi
promises real a_machine_gets_the_address_held_for_it "$@"
SMALL=1 PROGRAM=target/debug/ocpdeploy tests/bench/upload.sh openstack
