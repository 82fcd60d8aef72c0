#!/usr/bin/env bash
# check.sh CARGO-FLAGS...: compiles a build with fewer backends as far as errors and warnings need it; a warning is an error.
# RUSTFLAGS=-Dwarnings would compile all crates again, and clippy takes longer.
set -euo pipefail
said=$(mktemp)
trap 'rm -f "$said"' EXIT
cargo check --color never "$@" 2>&1 | tee "$said" >&2
! grep -E '^warning: .ocpdeploy. .*generated [0-9]+ warning' "$said"
