#!/usr/bin/env bash
# Extracts nmcli and its library from Debian's packages into target/nmcli: tests read the nodes' connections with it.
# NetworkManager itself is not installed, because it would configure this computer's network. Requires no root.
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
