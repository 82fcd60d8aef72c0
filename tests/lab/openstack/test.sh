#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: runs the tests on a real OpenStack, in the namespace that reaches services and guests.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Build outside of the lab, which has no route to the crate registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --test it --no-run
selected='test(on_openstack::)'
# These tests take 22 minutes, too long for `make test-labs`: on a real cloud, they repeat tests on libvirt or on the fake.
[ "${LAB_TESTS-}" = all ] || selected+=' and not test(/(three_clusters|services_that_ignore|killed_after_each|many_machines|an_upload_may_take|throwaway_machines|at_the_second_address|objects_of_other_projects)/)'
# Cinder, Swift, Octavia and a Nova that keeps deleted servers.
all=no
if tests/lab/openstack/lab.sh status | grep -q 'services all'; then all=yes; fi
[ $all = yes ] || selected+=' and not (test(/^openstack_(storage|balancers)::/) and not test(an_upload_may_take))'
tests/lab/openstack/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only -E "$selected"
# The contract of every backend: on the fake compute node, which reads no image, and the tests with guests on the real ones.
images=$PWD/target/images
qemu-img create -q -f qcow2 "$images/empty.qcow2" 1M
# promises ZONE IMAGE FILTER: runs tests of the contract; each takes 5 to 100 s on this cloud.
promises() {
    tests/lab/openstack/lab.sh exec env "OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD=$cloud" "OCPDEPLOY_CONTRACT_OPENSTACK_ZONE=$1" \
        "OCPDEPLOY_CONTRACT_OPENSTACK_IMAGE=$images/$2.qcow2" \
        cargo nextest run --offline "${flags[@]}" --test it --test-threads 2 -E "test(contract::openstack_named::) and $3"
}
flags=("$@") cloud=demo named='all()'
# Only the tests that depend on Nova, Neutron or Glance. All of them run on the fake, and the runs above cover most.
[ "${LAB_TESTS-}" = all ] || named='test(/::(a_cluster_with_only_a_reservation|a_config_over|a_reserved_address|a_machine_is_stopped|a_machine_on_a_missing_network|a_machine_of_another_owner|an_image_is_uploaded|foreign_objects|reserving_an_address_twice|two_parallel_requests|preflight_reports|releasing_|snapshots_are_saved|a_reservation_of_another_cluster|missing_networks)/)'
promises fake empty "$named"
if [ $all = yes ]; then cloud=keeps promises fake empty 'all()'; fi
promises real helper 'test(a_machine_gets_its_reserved_address)'
SMALL=1 PROGRAM=target/debug/ocpdeploy tests/bench/upload.sh openstack
