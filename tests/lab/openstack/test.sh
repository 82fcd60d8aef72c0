#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests on a real OpenStack, in the namespace that reaches services and guests.
set -euo pipefail
cd "$(dirname "$0")/../../.."
images/build.sh target/images
# Built outside: the lab has no route to the registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --test it --no-run
selected='test(on_openstack::)'
# 18 minutes, which `make test` does not have: they repeat tests on libvirt, or on the fake, on a real cloud.
[ "${LAB_TESTS-}" = all ] || selected+=' and not test(/(three_clusters|services_that_ignore|killed_after_each|many_machines|an_upload_may_take|throwaway_machines)/)'
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
# The whole runs above keep these, too.
[ "${LAB_TESTS-}" = all ] || named='not test(/::(clusters_with_similar_names|creating_twice|deleting_removes_all|machines_can_be_made_side|preflight_accepts)/)'
promises fake empty "$named"
if [ $all = yes ]; then cloud=keeps promises fake empty 'all()'; fi
promises real helper 'test(a_machine_gets_the_address_held_for_it)'
SMALL=1 PROGRAM=target/debug/ocpdeploy tests/bench/upload.sh openstack
