#!/usr/bin/env bash
# cloud.sh [CARGO FLAGS]: runs the tests of pass one on real cloud images, on the lab's libvirt.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Build outside of the lab, which has no route to the crate registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --no-run
export OCPDEPLOY_LAB_URI=qemu:///system
# The others, with slow DHCP servers and other platforms' disks, take half an hour.
selected='test(/^cloud::harvest/)'
[ "${LAB_TESTS-}" != all ] || selected='test(/^cloud::/)'
tests/lab/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only -E "$selected"
