#!/usr/bin/env bash
# Installs oVirt's SDK and its image daemon, which verify the fake engine, into target/ovirt-sdk; requires no root.
# Fast if they are installed. Building them requires a C compiler and the headers of Python and libxml2.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../target/ovirt-sdk
if cmp -s "$here/requirements.txt" "$venv/installed"; then
    exit 0
fi
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
cp "$here/requirements.txt" "$venv/installed"
echo "install: oVirt's SDK is in target/ovirt-sdk"
