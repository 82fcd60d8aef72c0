#!/usr/bin/env bash
# image.sh OUTDIR: writes a container image (OCI archive) of the .deb that build.sh created in OUTDIR, for `podman load -i`
# and `docker load -i`. Requires root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
deb=$(echo ./ocpdeploy_*.deb) name=$(basename "$(echo ./ocpdeploy-[0-9]*.tar.gz)" .tar.gz)
work=$(mktemp -d "$PWD/.image.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
"$here/root.sh" "$work/root" "$deb" --include=libvirt0,openssh-client
layout=$work/layout image=$work/layout:latest
umoci init --layout "$layout"
umoci new --image "$image"
umoci insert --image "$image" "$work/root" /
# As in Containerfile.
umoci config --image "$image" --config.env OCPDEPLOY_HOME=/state --config.env OCPDEPLOY_DOWNLOADS_DIR=/state/cache \
    --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin --config.volume /state --config.workingdir /work --config.entrypoint ocpdeploy
umoci gc --layout "$layout"
tar -C "$layout" -cf "$name.oci.tar" .
sha256sum "$name.oci.tar" | tee -a SHA256SUMS
