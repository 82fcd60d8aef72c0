#!/usr/bin/env bash
# install.sh DIR [SUFFIX]: installs the packages of the OpenStack lab on Debian 12, and unpacks the services into DIR.
# SUFFIX selects the lists packagesSUFFIX.txt and unpackedSUFFIX.txt. Fast if nothing is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 suffix=${2-}
"$here/../install.sh" "$here/packages$suffix.txt"

mapfile -t packages < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/unpacked$suffix.txt")
stamp=$(sha256sum <"$here/unpacked$suffix.txt")
[ "$(cat "$dir/.unpacked" 2>/dev/null)" != "$stamp" ] || exit 0
rm -rf "$dir"
mkdir -p "$dir/debs"
(
    cd "$dir/debs"
    # If nothing had to be installed, the package lists may be missing or old.
    apt-get download -q -q "${packages[@]}" 2>/dev/null || { apt-get -q -q update && apt-get download -q -q "${packages[@]}"; }
)
for deb in "$dir"/debs/*.deb; do dpkg-deb -x "$deb" "$dir"; done
rm -rf "$dir/debs"
echo "$stamp" >"$dir/.unpacked"
echo "install: unpacked ${#packages[@]} packages"
