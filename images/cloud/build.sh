#!/usr/bin/env bash
# build.sh OUTDIR: builds OUTDIR/cloud-VARIANT.qcow2, a Debian 12 cloud image with the real cloud-init, for each of its renderers
# `network-manager`, `eni` and `netplan`, and OUTDIR/cloud-packages, a package mirror with qemu-guest-agent, which the images
# do not have. Requires root, but no loop devices. Uses the mirrors of the machine's apt.
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: build.sh OUTDIR" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "cloud image: needs root" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
guest=cloud
. "$here/../common/disk.sh"
. "$here/../common/debian.sh"
# One build at a time: a second one waits, then finds the result.
exec 8>"$out/.cloud-lock"
flock 8

# Nothing to do if recipe and kernel have not changed since the last build.
stamp=$({ echo "$kernel"; cd "$here"; find . -printf '%m %p\n' | sort
          find . ../common/{cmdline,disk.sh,debian.sh,removed.txt} -type f -print0 | sort -z | xargs -0 sha256sum; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/.cloud-stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "cloud image: up to date in $out"
    exit 0
fi
rm -rf "$out"/.cloud-stamp "$out"/cloud-*
work=$(mktemp -d "$out/.cloud.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

say "guest"
root=$work/root
mkdir "$work/packages"
KERNEL=$kernel PACKAGES=$work/packages bootstrap minbase packages-guest.txt "$root" --customize-hook="$here/guest.sh"
mv "$root/boot/initrd" "$work/initrd"
remove "$root" ../common/removed.txt
cp "$here/root/etc/apt/sources.list" "$root/etc/apt/"
rm -f "$root"/etc/apt/sources.list.d/*
: >"$root/etc/machine-id"
rm -f "$root/etc/resolv.conf"
: >"$root/etc/resolv.conf"
find "$root/usr/lib/systemd/system" -xtype l ! -lname /dev/null -delete

say "package mirror"
(
    cd "$work/packages"
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
for renderer in network-manager eni netplan; do
    # The units of the other renderers' programs start only with their own file.
    printf 'system_info:\n  network:\n    renderers: [%s]\n    activators: [%s]\n' $renderer $renderer >"$work/settings"
    edit write "$work/settings" $settings/90-$renderer.cfg
    # As Debian's package of systemd-resolved does.
    if [ $renderer = netplan ]; then edit rm /etc/resolv.conf; edit symlink /etc/resolv.conf /run/systemd/resolve/stub-resolv.conf; fi
    qemu-img convert -c -o compression_type=zstd -O qcow2 "$work/disk" "$work/cloud-$renderer.qcow2"
    edit rm $settings/90-$renderer.cfg
done

mv "$work"/cloud-*.qcow2 "$out/"
mv "$work/packages" "$out/cloud-packages"
echo "$stamp" >"$out/.cloud-stamp"
say "cloud-*.qcow2, each $(($(stat -c %s "$out/cloud-netplan.qcow2") / 1048576)) MiB"
