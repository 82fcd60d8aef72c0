#!/usr/bin/env bash
# Both passes of a small cluster on the lab's libvirt, then away with it (KEEP=1: it stays).
# OCPDEPLOY_CLUSTER gives it another name.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OCPDEPLOY_HOME=${OCPDEPLOY_HOME:-$PWD/target/rehearsal}
cluster=${OCPDEPLOY_CLUSTER:-rehearsal}
in_lab() { tests/lab/lab.sh exec "$@"; }

images/build.sh target/images
remove() {
    [ "${KEEP-}" = 1 ] || in_lab target/release/ocpdeploy destroy "$cluster" --yes
}
trap remove EXIT
in_lab time -f 'rehearsal: %e s, peak memory of ocpdeploy %M KiB' \
    target/release/ocpdeploy deploy tests/lab/rehearse.env.sh --rehearse
