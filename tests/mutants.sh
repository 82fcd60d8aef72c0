#!/usr/bin/env bash
# mutants.sh [FILE...]: mutates the decision modules, one place at a time, and runs their unit tests on each mutant.
# A mutant that no test detects is listed: add a test for it, or explain it in tests/mutants.txt.
#
# The modules are built as a small separate package (target/mutants), which takes seconds instead of a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD package=target/mutants/package
files=("$@")
[ ${#files[@]} -gt 0 ] || files=(
    src/openshift/csr/mod.rs src/openshift/csr/pkcs10.rs src/openshift/drain.rs src/openshift/wait/seen.rs
    src/plan/addresses.rs src/plan/harvest.rs src/plan/machines.rs
    src/ignition/merge.rs src/node/claims.rs src/node/budget.rs src/state/parameters.rs
)
rm -rf $package
mkdir -p $package
cp -r src profiles images env.sh.sample $package/
cat >$package/src/lib.rs <<'RUST'
#![allow(dead_code, unused_imports)]
pub const PROGRESS: &str = "ocpdeploy::progress";
pub mod artifacts {
    pub mod catalogue;
}
pub mod backend;
pub mod backoff;
pub mod cluster;
pub mod digest;
pub mod http_limits;
pub mod ignition;
pub mod node;
pub mod export;
pub mod openshift {
    pub mod api;
    pub mod csr;
    pub mod drain;
    pub mod wait;
}
pub mod plan;
pub mod printable;
pub mod settings;
pub mod state;
pub mod templates;
RUST
rm -f $package/src/main.rs
# Of the backends, only the trait and its values.
sed -i -E '/^(#\[cfg\(feature = "[a-z]+"\)\]|(pub )?mod (connect|filters|kubevirt|libvirt|openstack|ovirt|placement|plain_http|retry|sim);)$/d' $package/src/backend/mod.rs
sed -E '/^\[\[(example|bench)\]\]$/,/^$/d; s/^name = "ocpdeploy"$/&/' Cargo.toml >$package/Cargo.toml
echo '[workspace]' >>$package/Cargo.toml
cp Cargo.lock $package/
cd $package
export CARGO_TARGET_DIR=$root/target/mutants/target
arguments=()
for file in "${files[@]}"; do arguments+=(--file "$file"); done
cargo mutants --in-place --no-times --timeout 60 --output "$root/target/mutants" "${arguments[@]}" -- --no-default-features --lib || [ $? -eq 2 ]
