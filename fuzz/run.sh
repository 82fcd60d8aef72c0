#!/usr/bin/env bash
# Fuzzes the reading, checking and merging of Ignition configs on stable Rust: run.sh [SECONDS].
# It ends with an error, and names the input, when anything panics, hangs for 5 s or takes 1 GiB.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

# The program's own versions, so that crates built already are used.
cp Cargo.lock fuzz/Cargo.lock
RUSTC_WRAPPER=$PWD/fuzz/rustc.sh cargo build --manifest-path fuzz/Cargo.toml --target-dir target

# The cases of the corpus are where it starts, their words what it mixes in.
work=target/fuzz
mkdir -p $work/corpus $work/found
python3 - tests/fixtures/ignition-corpus.json tests/fixtures/ignition-merges.json $work <<'PY'
import json, re, sys

*files, work = sys.argv[1:]
words = {'true', 'false', 'null', '0', '-1', '1e9', '{}', '[]', '""', '"2.2.0"', '"3.0.0"', '"3.6.0"'}
for file in files:
    for case in json.load(open(file))["cases"]:
        configs = [json.dumps(config, separators=(",", ":")) for config in case["inputs"]]
        for config in configs:
            words.update(re.findall(r'"[\w./:,-]+"', config))
        with open(f"{work}/corpus/{case['name']}", "w") as seed:
            seed.write("\0".join(configs + case.get("raw_inputs", [])))
with open(f"{work}/words", "w") as file:
    file.writelines(json.dumps(word) + "\n" for word in sorted(words))
PY

log=$work/log
if ! target/debug/ocpdeploy-fuzz -max_total_time="$seconds" -max_len=65536 -len_control=0 -timeout=5 -rss_limit_mb=1024 \
    -dict=$work/words -artifact_prefix=$work/found/ -print_final_stats=1 $work/corpus >$log 2>&1; then
    cat $log >&2
    exit 1
fi
grep -E 'INITED|DONE|^Done|^stat::' $log
