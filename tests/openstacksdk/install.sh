#!/usr/bin/env bash
# Installs OpenStack's SDK into target/openstacksdk, to compare how clouds.yaml and OS_* are read. Debian's package is older
# than its present rules of precedence. Requires no root; fast if it is installed.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../target/openstacksdk
is_installed() { cmp -s "$here/requirements.txt" "$venv/installed"; }
! is_installed || exit 0
# One installation at a time: a second one waits, then finds the result.
mkdir -p "$here/../../target"
exec 8>"$here/../../target/openstacksdk.lock"
flock 8
! is_installed || exit 0
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
cp "$here/requirements.txt" "$venv/installed"
echo "install: OpenStack's SDK is in target/openstacksdk"
