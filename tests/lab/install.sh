#!/usr/bin/env bash
# install.sh [LIST...]: installs the packages of these lists on Debian 12; default: all tests, the lab and the rehearsal's
# guests. A line `a | b` accepts either package and installs a if both are missing. Fast if nothing is missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- "$here/packages.txt" "$here/../packages.txt" "$here/../packages-build.txt" "$here/../../images/packages.txt"
mapfile -t lines < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$@" | sort -u)

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
wanted=()
missing=()
for line in "${lines[@]}"; do
    first=${line%%|*}
    other=${line#*|}
    if installed "$first"; then
        wanted+=("$first")
    elif installed "$other"; then
        wanted+=("$other")
    else
        wanted+=("$first")
        missing+=("$first")
    fi
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "install: all ${#wanted[@]} packages are installed"
    exit 0
fi

echo "install: missing: ${missing[*]}"
if [ "$(id -u)" != 0 ]; then
    echo "install: needs root for apt-get (try: sudo $0)" >&2
    exit 1
fi

# One installation at a time: a second one waits, then finds the packages.
mkdir -p "$here/../../target"
exec 8>"$here/../../target/install.lock"
flock 8

# The packages must not start these services: only the tests start them, each in a namespace.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\ncase "$1" in haproxy* | keepalived* | isc-dhcp-server* | ssh*) exit 101 ;; esac\n' >$policy
    chmod 755 $policy
fi

export DEBIAN_FRONTEND=noninteractive
apt-get -q -q update
# A newer backport of qemu-utils conflicts with the release's qemu-system,
# so it is pinned to the emulator's version.
qemu=$(apt-cache policy qemu-system-x86 | awk '/Candidate:/{print $2}')
apt-get -q -q -y -o Dpkg::Options::=--force-confold -o Dpkg::Use-Pty=0 \
    install --no-install-recommends --allow-downgrades "${wanted[@]/%qemu-utils/qemu-utils=$qemu}" >/dev/null 8>&-
echo "install: done"
