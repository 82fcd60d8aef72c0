#!/usr/bin/env bash
# with.sh CMD...: runs CMD with the OpenStack lab up. A lab that was started by this script is stopped afterwards; KEEP=1 keeps it.
set -euo pipefail
lab=$(dirname "$0")/lab.sh
if ! "$lab" status >/dev/null; then
    leave() { [ "${KEEP-}" = 1 ] || "$lab" down; }
    trap leave EXIT
fi
# A lab that is up must have the wanted shape.
"$lab" up
"$@"
