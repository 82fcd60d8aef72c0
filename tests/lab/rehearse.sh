#!/usr/bin/env bash
# Runs both passes of a small cluster on the lab's libvirt, then removes it (KEEP=1 keeps it).
# OCPDEPLOY_CLUSTER sets another name, PROGRAM the program.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OCPDEPLOY_HOME=${OCPDEPLOY_HOME:-$PWD/target/rehearsal}
cluster=${OCPDEPLOY_CLUSTER:-rehearsal}
program=${PROGRAM:-target/release/ocpdeploy}
in_lab() { tests/lab/lab.sh exec "$@"; }

images/build.sh target/images
remove() {
    [ "${KEEP-}" = 1 ] || in_lab "$program" destroy "$cluster" --yes
}
trap remove EXIT
in_lab time -f 'rehearsal: %e s, peak memory of ocpdeploy %M KiB' \
    "$program" deploy tests/lab/rehearse.env.sh --rehearse
