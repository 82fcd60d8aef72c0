#!/usr/bin/env bash
# run.sh [SIZE...]: compares ocpdeploy, a parallel virsh loop (the lower bound) and kcli, on one libvirt with one image.
# SIZE is a number of machines, 2 or more [3 6 12]. ROUNDS=n repeats the benchmark and uses medians. WITHOUT="kcli" skips
# kcli, WITHOUT="kcli:12 kcli:24" skips it only at these sizes. PROGRAM is the program [target/release/ocpdeploy].
# SMALL=1 only shows that the benchmark works: two machines, without kcli.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -z "${SMALL-}" ] || { export WITHOUT=kcli; set -- 2; }
images/build.sh target/images
mkdir -p target/bench
if [[ " ${WITHOUT-} " != *" kcli "* && ! -x target/bench/venv/bin/kcli ]]; then
    # Optional: without it the benchmark prints a message and continues.
    if ! { python3 -m venv target/bench/venv &&
        target/bench/venv/bin/pip install -q --disable-pip-version-check kcli libvirt-python==9.0.0; }; then
        rm -rf target/bench/venv
        echo "bench: cannot install kcli, skipping it" >&2
    fi
fi
tests/lab/lab.sh exec python3 tests/bench/bench.py "$@" | tests/bench/record.py libvirt
