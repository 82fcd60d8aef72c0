#!/usr/bin/env bash
# test.sh [CARGO FLAGS]: the tests marked `#[ignore]`, on the lab's libvirt and where its guests can be reached.
set -euo pipefail
cd "$(dirname "$0")/../.."
images/build.sh target/images
# Built out here: inside there is no way to the registry.
cargo test "$@" --no-run
# One at a time: two cores emulate the guests.
export OCPDEPLOY_LAB_URI=qemu:///system
export OCPDEPLOY_LAB_URI=qemu:///system
tests/lab/lab.sh exec cargo test --offline "$@" -- --ignored --test-threads=1
