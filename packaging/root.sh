#!/usr/bin/env bash
# root.sh FOLDER DEB [MMDEBSTRAP FLAGS]: creates a bare Debian 12 with DEB installed in FOLDER. Requires root; uses the
# mirrors of this machine's apt.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 deb=$(realpath "$2")
mirrors() { "$here/../tests/lab/mirrors.sh" deb; }
[ -n "$(mirrors)" ] || apt-get -q -q update
# This machine's apt options for connections to the mirrors, such as proxies.
mapfile -t options < <(apt-config dump | sed -nE 's/^Acquire::(https?|Check|Retries)[^ ]* "[^"]+";$/--aptopt=&/p')
mirrors | mmdebstrap --quiet --mode=root --variant=apt --format=directory \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io "${options[@]}" \
    --customize-hook="mkdir \"\$1/tmp/deb\" && cp '$deb' \"\$1/tmp/deb/\"" \
    --customize-hook="chroot \"\$1\" sh -c 'apt-get -q -q -y install /tmp/deb/*.deb >/dev/null && rm -r /tmp/deb'" \
    "${@:3}" bookworm "$folder" -
