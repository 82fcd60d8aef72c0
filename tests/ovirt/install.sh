#!/usr/bin/env bash
# Installs oVirt's SDK and image daemon into target/ovirt-sdk, to verify the fake engine. Requires no root; fast if they are
# installed. Building them requires a C compiler and the headers of Python and libxml2.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../target/ovirt-sdk
is_installed() { cmp -s "$here/requirements.txt" "$venv/installed"; }
! is_installed || exit 0
# One installation at a time: a second one waits, then finds the result.
mkdir -p "$here/../../target"
exec 8>"$here/../../target/ovirt-sdk.lock"
flock 8
! is_installed || exit 0
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
# oVirt's collection is part of Ansible's community package; nothing else of the wheel is needed.
"$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$venv/wheel" ansible==9.13.0
"$venv/bin/python" - "$venv"/wheel/ansible-*.whl <<'EOF'
import sys, sysconfig, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
ours = [name for name in wheel.namelist() if name.startswith("ansible_collections/ovirt/")]
wheel.extractall(sysconfig.get_path("purelib"), ours)
EOF
rm -r "$venv/wheel"
cp "$here/requirements.txt" "$venv/installed"
echo "install: oVirt's SDK is in target/ovirt-sdk"
