#!/usr/bin/env bash
# with.sh CMD...: runs CMD with the lab running. The last user stops a lab that this script started; KEEP=1 keeps it
# running. A lab or libvirtd that was running before is not stopped.
set -euo pipefail
lab=$(dirname "$0")/lab.sh
name=ocpdeploy-lab${OCPDEPLOY_LAB:+-$OCPDEPLOY_LAB}
started=/run/$name.started

# Users of the lab hold a shared lock. It is closed for child processes (8>&-), otherwise a daemon would hold it forever.
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
