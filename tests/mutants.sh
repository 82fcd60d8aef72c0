#!/usr/bin/env bash
# mutants.sh [FILE...]: mutates the decision modules, one place at a time, and runs their unit tests on each mutant.
# tests/mutants.txt must explain each mutant that no test detects.
#
# The modules are built as a small separate package (target/mutants), which takes seconds instead of a minute.
# `mutants.sh --check` only compiles this package and its tests; this fails if a module starts to use another module. It also
# fails if a module has changed since its mutants were last tested (tests/mutants.sum). `SINCE=REVISION` names the revision
# of that test: then only mutants of lines that have changed since are tested.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD package=target/mutants/package out=$PWD/target/mutants/mutants.out sums=$PWD/tests/mutants.sum check=
[ "${1-}" != --check ] || { check=1; shift; }
files=("$@")
[ ${#files[@]} -gt 0 ] || files=(
    src/openshift/csr/mod.rs src/openshift/csr/pkcs10.rs src/openshift/drain.rs src/openshift/wait/seen.rs
    src/plan/addresses.rs src/plan/harvest.rs src/plan/machines.rs src/plan/mismatch.rs src/plan/preview.rs
    src/ignition/merge.rs src/node/claims.rs src/node/budget.rs src/state/parameters.rs
)
judged=$(sha256sum "${files[@]}")
since=
[ -z "${SINCE-}" ] || { mkdir -p target/mutants; since=$PWD/target/mutants/since.diff; git diff "$SINCE" -- "${files[@]}" >"$since"; }

# The files that these modules and their tests need, without those that communicate with a platform or a cluster.
rm -rf $package
mkdir -p $package
cp -r --parents src/{digest.rs,found_file.rs,printable.rs,cluster,ignition,plan} src/backend/{mod,action,capabilities,error,findings,optional,snapshots}.rs \
    src/node/{budget,claims}.rs src/openshift/{csr,drain.rs} src/openshift/wait/{heartbeats,seen}.rs \
    src/state/{dir,home,parameters}.rs src/state/snapshots \
    tests/it/ignition_corpus.rs tests/fixtures/ignition-{corpus,merges}.json $package/
cat >$package/src/lib.rs <<'RUST'
#![allow(dead_code, unused_imports)]
extern crate self as ocpdeploy;
pub const PROGRESS: &str = "ocpdeploy::progress";
pub mod backend;
pub mod cluster;
pub mod digest;
pub mod found_file;
pub mod ignition;
pub mod node {
    pub mod budget;
    pub mod claims;
    /// As far as `plan` needs it to build.
    pub mod cloud_init {
        pub const ADDRESS_LINE: &str = "ocpdeploy-address";
        pub const EGRESS_LINE: &str = "ocpdeploy-egress";
    }
}
pub mod openshift {
    /// As far as `drain` needs it to build: no unit test has a cluster.
    pub mod api {
        use k8s_openapi::api::core::v1::{Node, Pod};

        #[derive(Debug, thiserror::Error)]
        #[error("")]
        pub struct ApiError;
        pub enum Eviction {
            Begun,
            Gone,
            NotNow(String),
        }
        pub struct ClusterApi;
        impl ClusterApi {
            pub async fn node(&self, _: &str) -> Result<Option<Node>, ApiError> {
                Err(ApiError)
            }
            pub async fn cordon(&self, _: &str) -> Result<(), ApiError> {
                Err(ApiError)
            }
            pub async fn pods_on(&self, _: &str) -> Result<Vec<Pod>, ApiError> {
                Err(ApiError)
            }
            pub async fn evict(&self, _: &str, _: &str) -> Result<Eviction, ApiError> {
                Err(ApiError)
            }
        }
    }
    pub mod csr;
    pub mod drain;
    pub mod wait {
        pub mod heartbeats;
        pub mod seen;
    }
}
pub mod plan;
pub mod printable;
/// As far as `plan` asks: of the platforms only oVirt cannot reserve addresses.
impl backend::Capabilities {
    pub fn of(backend: &cluster::BackendConfig) -> Self {
        Self {
            concurrency: 1,
            poll_interval: Default::default(),
            carrier: backend::Carrier::FW_CFG,
            reserves_addresses: !matches!(backend, cluster::BackendConfig::Ovirt(_)),
            leases_outlive_machines: true,
            host_is_here: true,
            simulated: false,
            guests_reachable: true,
            addresses_from_agent: false,
            image_artifact: "qemu",
            fetches_images: false,
            load_balancers: false,
            console_tail: true,
            snapshots: Ok(()),
            static_ipv6: true,
        }
    }
}
pub mod state {
    pub mod dir;
    pub mod home;
    pub mod parameters;
}
#[cfg(test)]
#[path = "../tests/it/ignition_corpus.rs"]
mod ignition_corpus;
#[cfg(test)]
mod support {
    pub mod clean;
}
RUST
mkdir $package/src/support
cp tests/support/clean.rs $package/src/support/
# Of the backends, only the trait and its types.
sed -i -E '/^#\[cfg\(.*feature = .*\)\]$/d; /^(pub )?mod (action|capabilities|error|findings|optional|snapshots);$/b; /^(pub )?mod [a-z_]+;$/d' $package/src/backend/mod.rs
# The module needs nmstate, and nothing here needs the module.
sed -i '/^pub mod connections;$/d' $package/src/plan/mod.rs
sed -i 's/kube::api::DynamicObject/kube::core::DynamicObject/' $package/src/openshift/wait/seen.rs

uses() { for crate in "$@"; do grep -m 1 "^$crate = " Cargo.toml; done; }
{
    sed -n '/^\[package\]$/,/^edition/p' Cargo.toml
    printf '[workspace]\n[profile.dev]\ndebug = false\n[dependencies]\n'
    uses async-trait base64 flate2 fs-err getrandom hmac ipnetwork jiff k8s-openapi rustix rustls secrecy serde serde-saphyr \
        serde_json sha2 strsim tempfile thiserror tokio tracing x509-parser
    # Only its types, without the client.
    uses kube | sed 's/, features = \[[^]]*\]//'
    echo '[dev-dependencies]'
    uses insta proptest rcgen
} >$package/Cargo.toml
cp Cargo.lock $package/
cd $package
export CARGO_TARGET_DIR=$root/target/mutants/target
if [ -n "$check" ]; then
    cargo check --lib --tests
    changed=$(comm -23 <(sort <<<"$judged") <(sort "$sums") | sed 's/^[^ ]*  //' | paste -sd' ')
    [ -z "$changed" ] || { echo "mutants: changed since their mutants were tested: run \`make mutants FILES=\"$changed\"\`" >&2; exit 1; }
    exit 0
fi

# Cases of each property: the first few detect most mutants, and each mutant takes the time of its tests.
export PROPTEST_CASES=64

# `drain`, `ask` and `leaving` communicate with a cluster: tests/it/drain.rs tests them; the unit tests have no cluster.
arguments=(--exclude-re 'src/openshift/drain\.rs:.* (in|replace) (drain|ask|leaving)\b')
for file in "${files[@]}"; do arguments+=(--file "$file"); done
[ -z "$since" ] || arguments+=(--in-diff "$since")
# 2: some mutants were missed; 3: some exceeded the time limit, which counts as detected.
cargo mutants --in-place --no-times --timeout 60 --output "${out%/*}" --cargo-arg=--lib "${arguments[@]}" \
    -- -- openshift plan:: ignition::merge ignition_corpus node:: state::parameters || [[ $? =~ ^[23]$ ]]

echo
echo '| module | changes | caught | time limit | do not build | explained |'
echo '|---|--:|--:|--:|--:|--:|'
count() { grep -c "^$1:" "$out/$2.txt" || :; }
for file in "${files[@]}"; do
    figures=("$(count "$file" caught)" "$(count "$file" timeout)" "$(count "$file" unviable)" "$(count "$file" missed)")
    echo "| \`${file#src/}\` | $((${figures[*]/%/+}0)) $(printf '| %s ' "${figures[@]}")|"
done

# A line is `FILE: CHANGE # REASON`, without line numbers, because these change. Only tested files are compared.
explained() { for file in "${files[@]}"; do grep "^$file:" "$root/tests/mutants.txt" || :; done; }
# With SINCE, explained mutants in unchanged lines were not tested.
[ -n "$since" ] && wrong='^>' || wrong='^[<>]'
if { diff <(explained | sed 's/ *#.*//' | sort) <(sed -E 's/:[0-9]+:[0-9]+:/:/' "$out/missed.txt" | sort) || :; } | grep "$wrong"; then
    echo "mutants: '>': no test detects this mutant: write a test, or explain it in tests/mutants.txt; '<': it is explained there, but is detected or no longer exists" >&2
    exit 1
fi

# The new line of each file comes first and replaces the old one.
sort -u -k2,2 <(cat - "$sums" <<<"$judged") >"$sums.new"
mv "$sums.new" "$sums"
