#!/usr/bin/env bash
# run.sh [SECONDS [TARGET...]]: fuzzes all parsers of external input, on stable Rust; divides the seconds among the targets.
# It fails and names the input if a parser panics, hangs for 5 s or uses 1 GiB of memory.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-300}
shift || true
targets=(ignition env profile parameters journal ovirt openstack kubevirt)
features=()
if pkg-config --exists libvirt 2>/dev/null; then
    targets+=(libvirt)
    features=(--features libvirt)
fi
[ $# = 0 ] || targets=("$@")

# The same versions as the program, so that crates that are already built are reused.
cp Cargo.lock fuzz/Cargo.lock
RUSTC_WRAPPER=$PWD/fuzz/rustc.sh cargo build --manifest-path fuzz/Cargo.toml --target-dir target "${features[@]}"

# Each target starts with the seeds next to this file and with other files of the repository; their tokens are its dictionary.
work=target/fuzz
mkdir -p $work/found
python3 - $work <<'PY'
import glob, json, os, re, sys

work = sys.argv[1]
def seed(target, name, text):
    os.makedirs(f"{work}/corpus/{target}", exist_ok=True)
    with open(f"{work}/corpus/{target}/{name}", "w") as file:
        file.write(text)

words = {}
def learn(target, text):
    found = re.findall(r'"[\w./:,-]+"|[\w.-]+(?==)|<[\w-]+|[\w-]+(?=:)', text)
    words.setdefault(target, {'true', 'false', 'null', '0', '-1', '1e9', '{}', '[]', '""'}).update(found)

for file in ("ignition-corpus", "ignition-merges"):
    for case in json.load(open(f"tests/fixtures/{file}.json"))["cases"]:
        configs = [json.dumps(config, separators=(",", ":")) for config in case["inputs"]]
        seed("ignition", case["name"], "\0".join(configs + case.get("raw_inputs", [])))
        learn("ignition", "".join(configs) + '"2.2.0" "3.0.0" "3.6.0"')
places = [("env", "tests/fixtures/env/*.sh"), ("env", "env.sh.sample"), ("profile", "profiles/*/profile.yaml")]
places += [(os.path.basename(folder), f"{folder}/*") for folder in glob.glob("fuzz/seeds/*")]
for target, pattern in places:
    for path in glob.glob(pattern):
        text = open(path).read()
        seed(target, path.replace("/", "-"), text)
        learn(target, text)
for target, all in words.items():
    with open(f"{work}/words-{target}", "w") as file:
        file.writelines(json.dumps(word) + "\n" for word in sorted(all) if len(word) < 60)
PY

share=$((seconds / ${#targets[@]}))
for target in "${targets[@]}"; do
    log=$work/log-$target
    if ! OCPDEPLOY_FUZZ=$target target/debug/ocpdeploy-fuzz -max_total_time=$((share > 0 ? share : 1)) -max_len=65536 \
        -len_control=0 -timeout=5 -rss_limit_mb=1024 -dict=$work/words-$target -artifact_prefix=$work/found/$target- \
        -print_final_stats=1 $work/corpus/$target >$log 2>&1; then
        tail -40 $log >&2
        exit 1
    fi
    echo "reliability: $(sed -n 's/^stat::number_of_executed_units: *//p' $log) inputs tried by fuzzing: $target"
done
