#!/usr/bin/env bash
# Cargo calls this script instead of rustc for this crate (RUSTC_WORKSPACE_WRAPPER): clippy checks the crate and generates no
# code. Dependencies are compiled as for the tests and reused; `cargo clippy` would check each of them again.
set -euo pipefail
[[ " $* " != *" --crate-name build_script_build "* ]] || exec "$@"
arguments=() code=
for argument in "$@"; do
    case $argument in
        --emit=*) argument=--emit=dep-info,metadata ;;
        ocpdeploy=*.rlib) code=${argument#*=}; argument=${argument/%.rlib/.rmeta} ;;
    esac
    arguments+=("$argument")
done
# Cargo expects the compiled library, but nothing here uses it.
[ -z "$code" ] || [ -e "$code" ] || touch "$code"
exec clippy-driver "${arguments[@]}"
