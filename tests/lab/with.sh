#!/usr/bin/env bash
# with.sh CMD...: runs CMD with the lab up. A lab that was started by this script is stopped by its last user;
# KEEP=1 keeps it. A lab or libvirtd that was up before keeps running.
set -euo pipefail
lab=$(dirname "$0")/lab.sh
name=ocpdeploy-lab${OCPDEPLOY_LAB:+-$OCPDEPLOY_LAB}
started=/run/$name.started

# Users of the lab hold the lock, shared; children get it closed (8>&-), otherwise a daemon would hold it forever.
exec 8>"/run/$name.users"
flock -s -w 600 8
if ! "$lab" status >/dev/null 8>&-; then touch "$started"; fi
leave() {
    [ "${KEEP-}" != 1 ] || rm -f "$started"
    if [ -e "$started" ] && flock -n -x 8; then
        "$lab" down --force 8>&-
        rm -f "$started"
    fi
}
trap leave EXIT
"$lab" up 8>&-
"$@" 8>&-
