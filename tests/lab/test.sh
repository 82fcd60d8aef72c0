#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests marked `#[ignore]`, on the lab's libvirt, in the namespace that reaches its guests.
# Those on OpenStack and on Kubernetes, and those whose guests are real nodes, have scripts of their own in their folders.
set -euo pipefail
cd "$(dirname "$0")/../.."
images/build.sh target/images
# Built outside: the lab has no route to the registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --test it --no-run
export OCPDEPLOY_LAB_URI=qemu:///system
selected='not test(on_openstack::) and not test(/^kubernetes::/) and not test(/^nodes::/)'
# Twenty minutes, which `make test-labs` does not have; most of them make hosts of their own, and others keep the rest of what
# they do. `make life` runs life.rs.
[ "${LAB_TESTS-}" = all ] || selected+=' and not test(/^other_hosts::(users_without_root|workers_on_a_second_host|a_host_over_ssh)/)
    and not test(/^(deployments|life|snapshots)::/) and not test(a_firewall_that_drops_forwarded_packets) and not test(three_clusters_at_once)
    and not test(/^static_addresses::a_rehearsal_/) and not test(a_machine_whose_console_cannot_be_logged)
    and not test(a_guest_is_seen_with_its_address)'
flags=("$@")
run() { tests/lab/lab.sh exec nice -n "$1" cargo nextest run --offline "${flags[@]}" --test lab --test it --run-ignored only -E "($selected) and $2"; }
# Their nodes are namespaces, whose daemons must act within seconds: they go before the guests of all labs.
seconds='test(/^(dns|leases|services)::/)'
run -15 "$seconds"
run 0 "not $seconds"
# The contract of every backend, on the real one too. One promise is of a guest that boots; the machines of the others have
# an empty disk, and take no processor from each other.
export OCPDEPLOY_CONTRACT_LIBVIRT_URI=$OCPDEPLOY_LAB_URI
promises() { tests/lab/lab.sh exec "${@:2}" cargo nextest run --offline "${flags[@]}" --test it -E "test(contract::libvirt_named::) and $1"; }
booted='test(a_machine_gets_the_address_held_for_it)'
promises "not $booted"
promises "$booted" env "OCPDEPLOY_CONTRACT_LIBVIRT_IMAGE=$PWD/target/images/helper.qcow2"
