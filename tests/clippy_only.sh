#!/usr/bin/env bash
# Called by cargo as if it were rustc (RUSTC_WORKSPACE_WRAPPER): clippy checks our crate and generates no code. The crates of
# others are compiled as for the tests, where `cargo clippy` would check each of them once more.
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
# The library's code is what cargo looks for, and nothing here needs it.
[ -z "$code" ] || [ -e "$code" ] || touch "$code"
exec clippy-driver "${arguments[@]}"
