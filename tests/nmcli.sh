#!/usr/bin/env bash
# Puts nmcli of Debian's package, with its library, into target/nmcli: it reads the connections of nodes without
# NetworkManager, which is not installed, because it would configure the network of this computer. Requires no root.
set -euo pipefail

to=$(cd "$(dirname "$0")/.." && pwd)/target/nmcli
[ ! -x "$to/nmcli" ] || exit 0
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"
apt-get -q -q -o APT::Sandbox::User=root download network-manager libnm0
for package in *.deb; do dpkg -x "$package" all; done
mkdir -p "$to"
cp -P all/usr/lib/*/libnm.so* "$to"
mv all/usr/bin/nmcli "$to/nmcli"
echo "install: nmcli is in target/nmcli"
