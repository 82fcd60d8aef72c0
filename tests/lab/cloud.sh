#!/usr/bin/env bash
# cloud.sh [CARGO FLAGS]: runs the tests of pass one on real cloud images, on the lab's libvirt.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Build outside of the lab, which has no route to the crate registry.
export NEXTEST_PROFILE=lab
cargo nextest run "$@" --test lab --no-run
export OCPDEPLOY_LAB_URI=qemu:///system
selected='test(/^cloud::harvest/)'
# The others, with slow DHCP servers and other platforms' disks, take 25 minutes. They print times of each boot.
[ "${LAB_TESTS-}" != all ] || { selected='test(/^cloud::/)'; export NEXTEST_SUCCESS_OUTPUT=final; }
tests/lab/lab.sh exec cargo nextest run --offline "$@" --test lab --run-ignored only -E "$selected"
