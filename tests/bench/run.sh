#!/usr/bin/env bash
# The bench: ours against a plain parallel virsh loop (the floor) and kcli, on one libvirt with one image.
# run.sh [SIZE...]: numbers of machines [3 6 12]. ROUNDS=n repeats and takes medians. WITHOUT="kcli" leaves out.
# The table goes to stdout, all numbers to target/bench/result.json.
set -euo pipefail
cd "$(dirname "$0")/../.."
images/build.sh target/images
mkdir -p target/bench
if [[ " ${WITHOUT-} " != *" kcli "* && ! -x target/bench/venv/bin/kcli ]]; then
    # Optional: the bench goes on without it and says so.
    if ! { python3 -m venv target/bench/venv &&
        target/bench/venv/bin/pip install -q --disable-pip-version-check kcli libvirt-python==9.0.0; }; then
        rm -rf target/bench/venv
        echo "bench: kcli cannot be installed and is left out" >&2
    fi
fi
exec tests/lab/lab.sh exec python3 tests/bench/bench.py "$@"
