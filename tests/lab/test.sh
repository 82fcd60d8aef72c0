#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: runs the tests marked `#[ignore]` on the lab's libvirt, in the namespace that reaches its guests.
# Tests on OpenStack, on Kubernetes and with real nodes as guests have their own scripts in their directories, those with
# cloud images have cloud.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Each takes half a minute; no other test needs those of LAB_TESTS=all.
archs='x86_64 aarch64'
[ "${LAB_TESTS-}" != all ] || archs+=' ppc64le s390x'
for arch in $archs; do images/build.sh target/images "$arch"; done
# Build outside of the lab, which has no route to the crate registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --test it --no-run
export OCPDEPLOY_LAB_URI=qemu:///system
selected='not test(on_openstack::) and not test(/^kubernetes::/) and not test(/^(cloud|nodes)::/)'
# These tests take twenty minutes, which is too long for `make test-labs`. Most of them create their own hosts; other tests
# cover the rest. `make life` runs life.rs.
[ "${LAB_TESTS-}" = all ] || selected+=' and not test(/^other_hosts::(users_without_root|workers_on_a_second_host|a_host_over_ssh)/)
    and not test(/^(deployments|life|snapshots)::/) and not test(a_firewall_that_drops_forwarded_packets) and not test(three_clusters_at_once)
    and not test(/^static_addresses::a_rehearsal_/) and not test(a_machine_whose_console_cannot_be_logged)
    and not test(a_guest_is_seen_with_its_address) and not test(/both_passes_on_(ppc64le|s390x)/)'
flags=("$@")
run() { tests/lab/lab.sh exec nice -n "$1" cargo nextest run --offline "${flags[@]}" --test lab --test it --run-ignored only -E "($selected) and $2"; }
# In these tests, nodes are namespaces whose daemons must react within seconds: they run at a higher priority than guests.
seconds='test(/^(dns|leases|services)::/)'
run -15 "$seconds"
run 0 "not $seconds"
# The contract of every backend, on the real libvirt. One test needs a guest that boots; the machines of the others have an
# empty disk and use no CPU time.
export OCPDEPLOY_CONTRACT_LIBVIRT_URI=$OCPDEPLOY_LAB_URI
promises() { tests/lab/lab.sh exec "${@:2}" cargo nextest run --offline "${flags[@]}" --test it -E "test(contract::libvirt_named::) and $1"; }
booted='test(a_machine_gets_its_reserved_address)'
promises "not $booted"
promises "$booted" env "OCPDEPLOY_CONTRACT_LIBVIRT_IMAGE=$PWD/target/images/helper.qcow2"
