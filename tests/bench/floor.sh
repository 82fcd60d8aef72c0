#!/usr/bin/env bash
# floor.sh create|delete PARALLEL XML-FOLDER NETWORK: the lower bound with virsh: one process for each step, PARALLEL machines
# at a time. XML-FOLDER has NAME.xml for each machine, NAME.vol.xml for its disk, and NAME.host.xml to reserve its address.
set -euo pipefail
export LIBVIRT_DEFAULT_URI=qemu:///system
create() {
    [ ! -e "$1/$2.host.xml" ] || virsh -q net-update "$3" add ip-dhcp-host "$1/$2.host.xml" --live >/dev/null
    virsh -q vol-create default "$1/$2.vol.xml" >/dev/null
    virsh -q define "$1/$2.xml" >/dev/null
    virsh -q start "$2" >/dev/null
}
delete() {
    virsh -q destroy "$2" >/dev/null
    virsh -q undefine "$2" >/dev/null
    virsh -q vol-delete --pool default "$2.qcow2" >/dev/null
}
export -f create delete
case $1 in create | delete) ;; *) echo "usage: floor.sh create|delete PARALLEL XML-FOLDER NETWORK" >&2; exit 2 ;; esac
for file in "$3"/*.vol.xml; do basename "$file" .vol.xml; done |
    xargs -P "$2" -I NAME bash -euo pipefail -c "$1"' "$@"' bash "$3" NAME "$4"
