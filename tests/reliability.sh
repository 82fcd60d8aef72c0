#!/usr/bin/env bash
# reliability.sh [CARGO FLAGS]: tests all interruptions, faults, invalid inputs and canaries, and prints a table (root, 40
# minutes). KILLS=n sets the kills on the lab's libvirt [100], FUZZ_SECONDS=n the seconds of fuzzing [300], SEQUENCES=n the
# sequences of commands [2000].
set -euo pipefail
cd "$(dirname "$0")/.."
kills=${KILLS:-100} seconds=${FUZZ_SECONDS:-300} sequences=${SEQUENCES:-2000}
told=target/reliability.log
: >$told
tell() { grep -E '^(reliability|test |error)' | tee -a $told; }

tests=(crash kubevirt_cuts faults ovirt_client audit secrets security)
for test in "${tests[@]}"; do
    OCPDEPLOY_CUTS=all OCPDEPLOY_FAULTS=all OCPDEPLOY_CSRS=100000 JUDGES=required cargo test "$@" --test it "$test::" -- --nocapture --test-threads=2 | tell
done
cargo test "$@" --test it foreign_objects -- --nocapture --test-threads=2 | tell
OCPDEPLOY_SEQUENCES=$sequences cargo test "$@" --test it sequences:: -- --nocapture | tell
fuzz/run.sh "$seconds" | tell
if [ "$kills" -gt 0 ]; then
    images/build.sh target/images
    cargo test "$@" --test lab --no-run
    OCPDEPLOY_KILLS=$kills OCPDEPLOY_LAB_URI=qemu:///system tests/lab/with.sh tests/lab/lab.sh exec \
        cargo test --offline "$@" --test lab killed_at_random -- --ignored --nocapture | tell
fi

# Sums of the lines `reliability: NUMBER what`, by kind.
sum() { awk -v kind="$1" '/^reliability: [0-9]+ / && $0 ~ kind { n += $2; seen = 1 } END { print seen ? n : "-" }' $told; }
echo
printf '%-24s %s\n' \
    'cuts tried' "$(sum 'cuts|kills')" \
    'faults tried' "$(sum 'faults|full disks|guests')" \
    'bad inputs tried' "$(sum '(inputs|requests) tried')" \
    'sequences tried' "$(sum 'sequences of commands')" \
    'refusals with effect' "$(sum 'refusals that changed')" \
    'objects left' "$(sum 'objects left')" \
    'secrets found' "$(sum 'secrets found')" \
    'wrong deletions' "$(sum 'wrong deletions')" \
    'foreign objects offered' "$(sum 'foreign objects among')" \
    'foreign objects changed' "$(sum 'foreign objects changed')"
