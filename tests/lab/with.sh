#!/usr/bin/env bash
# with.sh CMD...: runs CMD with the lab up; a lab that was down before is taken down again (KEEP=1: it stays).
set -euo pipefail
lab=$(dirname "$0")/lab.sh
if [ "${KEEP-}" != 1 ] && ! "$lab" status >/dev/null; then
    trap '"$lab" down --force' EXIT
fi
"$lab" up
"$@"
