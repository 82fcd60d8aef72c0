#!/usr/bin/env bash
# guest.sh ROOT: sets up the guest: settings, initramfs (KERNEL), and the packages of the mirror (to PACKAGES). mmdebstrap calls
# it after the packages are installed, with /proc, /sys and /dev mounted.
set -euo pipefail
root=$1 here=$(cd "$(dirname "$0")" && pwd)
umask 022
# systemd-resolved replaced it by a link.
rm -f "$root/etc/resolv.conf"
cp -L /etc/resolv.conf "$root/etc/"
chroot "$root" apt-get clean
chroot "$root" apt-get -q -q install --download-only --no-install-recommends qemu-guest-agent
mv "$root"/var/cache/apt/archives/*.deb "$PACKAGES"
# Of the settings, the package sources follow after mmdebstrap's last use of them.
mkdir -p "$root/etc/cloud"
(cd "$here/root" && find . -type f ! -name sources.list -print0 | cpio -0 -pdmu --quiet "$root")
mkdir -p "$root/lib/modules"
cp -r "/lib/modules/$KERNEL" "$root/lib/modules/"
# udev loads these modules for CPU features, and their self-tests take half a minute under emulation.
rm -r "$root/lib/modules/$KERNEL"/kernel/{arch/x86,drivers/cpufreq}
depmod -b "$root" "$KERNEL"
ln -sf multi-user.target "$root/usr/lib/systemd/system/default.target"
# No user sessions: an SSH login does not need to start a systemd user instance.
sed -i '/pam_systemd/d' "$root"/etc/pam.d/*
chroot "$root" systemctl -q enable systemd-networkd
printf 'virtio_pci\nvirtio_blk\next4\n' >"$root/etc/initramfs-tools/modules"
sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=gzip/' "$root/etc/initramfs-tools/initramfs.conf"
cp "/boot/config-$KERNEL" "$root/boot/"
chroot "$root" mkinitramfs -o /boot/initrd "$KERNEL"
