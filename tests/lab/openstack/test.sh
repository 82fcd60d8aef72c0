#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests on a real OpenStack, in the namespace that reaches services and guests.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Built outside: the lab has no route to the registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --test it --no-run
selected='test(on_openstack::)'
# 22 minutes, which `make test-labs` does not have: they repeat tests on libvirt, or on the fake, on a real cloud.
[ "${LAB_TESTS-}" = all ] || selected+=' and not test(/(three_clusters|services_that_ignore|killed_after_each|many_machines|an_upload_may_take|throwaway_machines|at_the_second_address|objects_of_other_projects)/)'
# Cinder, Swift, Octavia and a Nova that keeps deleted servers.
all=no
if tests/lab/openstack/lab.sh status | grep -q 'services all'; then all=yes; fi
[ $all = yes ] || selected+=' and not (test(/^openstack_(storage|balancers)::/) and not test(an_upload_may_take))'
tests/lab/openstack/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only -E "$selected"
# The contract of every backend on the fake compute node, which reads no image, and the guests' part of it on the real ones.
images=$PWD/target/images
qemu-img create -q -f qcow2 "$images/empty.qcow2" 1M
# promises ZONE IMAGE FILTER: each promise takes this cloud 5 to 100 s.
promises() {
    tests/lab/openstack/lab.sh exec env "OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD=$cloud" "OCPDEPLOY_CONTRACT_OPENSTACK_ZONE=$1" \
        "OCPDEPLOY_CONTRACT_OPENSTACK_IMAGE=$images/$2.qcow2" \
        cargo nextest run --offline "${flags[@]}" --test it --test-threads 2 -E "test(contract::openstack_named::) and $3"
}
flags=("$@") cloud=demo named='all()'
# Those that Nova, Neutron or Glance decide. The fake keeps all of them, and so do the whole runs above with most.
[ "${LAB_TESTS-}" = all ] || named='test(/::(a_cluster_that_only_holds|a_config_over|a_held_address|a_machine_is_stopped|a_machine_on_no_network|a_strangers_machine|an_image_is_brought|foreign_objects|holding_twice|one_machine_asked_for_twice|preflight_finds|releasing_|snapshots_are_saved|what_another_cluster_holds|what_does_not_exist)/)'
promises fake empty "$named"
if [ $all = yes ]; then cloud=keeps promises fake empty 'all()'; fi
promises real helper 'test(a_machine_gets_the_address_held_for_it)'
SMALL=1 PROGRAM=target/debug/ocpdeploy tests/bench/upload.sh openstack
