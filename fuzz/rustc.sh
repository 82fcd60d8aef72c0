#!/bin/sh
# Wrapper of the compiler that adds libFuzzer's coverage to the fuzzed crates, with an LLVM pass that stable Rust has.
# (cargo-fuzz requires nightly Rust for its sanitizers, which find nothing in code without `unsafe`.)
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
