#!/usr/bin/env bash
# Installs oVirt's SDK and image daemon into target/ovirt-sdk, to verify the fake engine, and three versions of Ansible with
# oVirt's collection, to run the exported playbook. Requires no root and Python 3.11, the only one for which all three are
# made; fast if they are installed. Building them requires a C compiler and the headers of Python and libxml2.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../target/ovirt-sdk
wanted=$(cat "$here/requirements.txt" "$here/install.sh" | sha256sum)
is_installed() { [ "$wanted" = "$(cat "$venv/installed" 2>/dev/null)" ]; }
! is_installed || exit 0
# One installation at a time: a second one waits, then finds the result.
mkdir -p "$here/../../target"
exec 8>"$here/../../target/ovirt-sdk.lock"
flock 8
! is_installed || exit 0
pip() {
    "$1/bin/pip" --quiet --disable-pip-version-check "${@:2}"
}
packages() {
    "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}
rm -rf "$venv"
python3 -m venv "$venv"
pip "$venv" install --requirement "$here/requirements.txt"
# oVirt's collection is part of Ansible's community package; nothing else of the wheel is needed.
pip "$venv" download --no-deps --dest "$venv/wheel" ansible==9.13.0
"$venv/bin/python" - "$venv"/wheel/ansible-*.whl "$(packages "$venv")" <<'EOF'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
ours = [name for name in wheel.namelist() if name.startswith("ansible_collections/ovirt/")]
wheel.extractall(sys.argv[2], ours)
EOF
rm -r "$venv/wheel"
# Each Ansible has an environment of its own, as a user installs it, with the SDK and the collection of the first one.
for core in 2.14.18 2.16.14 2.19.14; do
    ansible=$venv/ansible-${core%.*}
    python3 -m venv "$ansible"
    packages "$venv" >"$(packages "$ansible")/ovirt.pth"
    pip "$ansible" install "ansible-core==$core"
done
echo "$wanted" >"$venv/installed"
echo "install: oVirt's SDK is in target/ovirt-sdk"
