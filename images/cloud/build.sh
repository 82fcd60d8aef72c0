#!/usr/bin/env bash
# build.sh OUTDIR: builds OUTDIR/cloud-VARIANT.qcow2, a Debian 12 cloud image with the real cloud-init, for each of its renderers
# `network-manager`, `eni` and `netplan`, and OUTDIR/cloud-packages, a package mirror with qemu-guest-agent, which the images
# do not have. Requires root, but no loop devices. Uses the mirrors of the machine's apt.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
guest=cloud
. "$here/../common/disk.sh"
. "$here/../common/debian.sh"
begin cloud-netplan.qcow2

say "guest"
root=$work/root
mkdir "$work/cloud-packages"
KERNEL=$kernel PACKAGES=$work/cloud-packages bootstrap minbase packages-guest.txt "$root" --customize-hook="$here/guest.sh"
trim "$root"
cp "$here/root/etc/apt/sources.list" "$root/etc/apt/"
rm -f "$root"/etc/apt/sources.list.d/*
: >"$root/etc/machine-id"

say "package mirror"
(
    cd "$work/cloud-packages"
    for package in *.deb; do
        dpkg-deb -f "$package"
        printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$package" "$(stat -c %s "$package")" "$(sha256sum "$package" | cut -d' ' -f1)"
    done >Packages
)

say "disks"
root_disk "$work/disk" "$root" "$work/initrd" "$(cat "$here/cmdline" "$here/../common/cmdline" | paste -sd' ')" 2048
# edit COMMAND...: changes the file system in the disk, without mounting it.
edit() { debugfs -w -R "$*" "$work/disk?offset=$root_offset" &>/dev/null; }
settings=/etc/cloud/cloud.cfg.d
renderers=(network-manager eni netplan)
for renderer in "${renderers[@]}"; do
    # The units of the other renderers' programs start only with their own file.
    printf 'system_info:\n  network:\n    renderers: [%s]\n    activators: [%s]\n' $renderer $renderer >"$work/settings"
    edit write "$work/settings" $settings/90-$renderer.cfg
    # As Debian's package of systemd-resolved does.
    if [ $renderer = netplan ]; then edit rm /etc/resolv.conf; edit symlink /etc/resolv.conf /run/systemd/resolve/stub-resolv.conf; fi
    qemu-img convert -c -o compression_type=zstd -O qcow2 "$work/disk" "$work/cloud-$renderer.qcow2"
    edit rm $settings/90-$renderer.cfg
done
disks=("${renderers[@]/#/cloud-}")
keep "${disks[@]/%/.qcow2}" cloud-packages
