#!/bin/bash
# DHCP by NetworkManager if Ignition must fetch something, as on CoreOS. The real root starts without this network.
if [ "$1" = up ]; then
    udevadm settle
    /usr/lib/NetworkManager/nm-initrd-generator -- ip=dhcp rd.neednet=1
    exec /usr/sbin/NetworkManager --configure-and-quit=initrd --no-daemon
fi
for link in /sys/class/net/*; do
    link=${link##*/}
    [ "$link" = lo ] || { ip addr flush dev "$link"; ip link set "$link" down; }
done
rm -rf /run/NetworkManager
