#!/bin/sh
# The compiler, with libFuzzer's coverage in what is fuzzed: an LLVM pass that stable Rust has (cargo-fuzz asks for a
# nightly one for its sanitizers, and for code without `unsafe` those find nothing).
rustc=$1
shift
case " $* " in
*" --crate-name ocpdeploy "* | *" --crate-name ocpdeploy_fuzz "* | *" --crate-name serde_json "*)
    exec "$rustc" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
*) exec "$rustc" "$@" ;;
esac
