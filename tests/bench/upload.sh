#!/usr/bin/env bash
# upload.sh PLATFORM [ROUNDS]: runs upload.py where it can reach the platform; `with.sh` of the lab starts the lab.
set -euo pipefail
cd "$(dirname "$0")/../.."
within=()
case $1 in
    libvirt) within=(tests/lab/lab.sh exec) ;;
    openstack) within=(tests/lab/openstack/lab.sh exec) ;;
esac
"${within[@]}" python3 tests/bench/upload.py "$@" | tests/bench/record.py "upload-$1"
