#!/usr/bin/env bash
# guest.sh ROOT: sets up the guest: settings, initramfs (KERNEL) and container image (IMAGE). mmdebstrap calls it after the
# packages are installed, with /proc, /sys and /dev mounted.
set -euo pipefail
root=$1 here=$(cd "$(dirname "$0")" && pwd)
umask 022
cp -r "$here/root/." "$root/"
# shellcheck disable=SC2086  # a list
install -m 755 $PROGRAMS "$root/usr/bin/"
mkdir -p "$root/lib/modules"
cp -r "/lib/modules/$KERNEL" "$root/lib/modules/"
# udev loads these modules for CPU features, and their self-tests take half a minute under emulation.
rm -r "$root/lib/modules/$KERNEL"/kernel/{arch/x86,drivers/cpufreq}
depmod -b "$root" "$KERNEL"
chroot "$root" groupadd -f -r wheel
ln -sf openvswitch-switch.service "$root/usr/lib/systemd/system/openvswitch.service"
# This unit needs the database of Open vSwitch, which starts only for br-ex.
ln -sf /dev/null "$root/etc/systemd/system/ovs-record-hostname.service"
ln -sf multi-user.target "$root/usr/lib/systemd/system/default.target"
# No user sessions: an SSH login does not need to start a systemd user instance.
sed -i '/pam_systemd/d' "$root"/etc/pam.d/*
chroot "$root" python3 -c 'import http.server, ssl'

cp -r "$here/dracut" "$root/usr/lib/dracut/modules.d/40lab"
mv "$root/usr/lib/dracut/modules.d/40lab/lab.conf" "$root/etc/dracut.conf.d/"
chroot "$root" dracut --quiet --force --kver "$KERNEL" /boot/initrd

# Unpack the image into containerd's store at build time: in the guest, this would take half a minute.
cp "$IMAGE" "$root/image.tar"
cp "$here/references" "$root/references"
chroot "$root" bash -euo pipefail -c '
    containerd --state /run/build --address /run/build.sock --log-level error &
    trap "kill $!; wait $! || true; rm /image.tar /references" EXIT
    ctr() { command ctr --address /run/build.sock --namespace k8s.io "$@"; }
    for _ in $(seq 100); do ! ctr version >/dev/null 2>&1 || break; sleep 0.2; done
    ctr images import /image.tar
    while read -r _ reference; do ctr images tag lab.invalid/tools:1 "$reference"; done </references'
