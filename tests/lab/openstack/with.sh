#!/usr/bin/env bash
# with.sh CMD...: runs CMD with the OpenStack lab running, then stops the lab if this script started it; KEEP=1 keeps it.
set -euo pipefail
lab=$(dirname "$0")/lab.sh
if ! "$lab" status >/dev/null; then
    leave() { [ "${KEEP-}" = 1 ] || "$lab" down; }
    trap leave EXIT
fi
# Fails if the running lab has another shape.
"$lab" up
"$@"
