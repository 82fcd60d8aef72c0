#!/bin/sh
# The hook of udhcpc. It never flushes the NIC, which may have VIPs.
. /lib/net.sh
first=$(cd /sys/class/net && echo e*) first=${first%% *}
# In the coreos guest's root, the config determines this.
[ ! -s /run/own.nic ] || read -r first </run/own.nic
case $1 in
bound | renew)
    read -r old 2>/dev/null <"/run/dhcp.$interface.ip"
    [ "$old" != "$ip/$mask" ] || [ "$1" = bound ] || exit 0
    # Tunnel networks send a smaller MTU. In the coreos guest's root, the config may set it.
    [ -z "$mtu" ] || [ -e "/run/mtu.$interface" ] || ip link set "$interface" mtu "$mtu"
    [ -z "$old" ] || [ "$old" = "$ip/$mask" ] || ip addr del "$old" dev "$interface"
    [ "$old" = "$ip/$mask" ] || {
        ip addr add "$ip/$mask" broadcast + dev "$interface"
        # Like CentOS in pass one, for platforms that report no address.
        say "ocpdeploy-address $(cat "/sys/class/net/$interface/address") $ip"
        say "$interface ip $ip/$mask from ${serverid:-?}${hostname:+, named $hostname}"
    }
    # The first NIC sets routes and name servers, like the lowest metric in NetworkManager.
    if [ "$interface" = "$first" ]; then
        [ -z "$router" ] || ip route replace default via "${router%% *}"
        {
            [ -z "$domain" ] || echo "search $domain"
            for s in $dns; do echo "nameserver $s"; done
        } >/run/resolv.conf
        echo "$hostname" >/run/dhcp.hostname
    fi
    echo "$ip/$mask" >"/run/dhcp.$interface.ip"
    ;;
leasefail | nak)
    say "$interface: no lease yet${message:+ ($message)}"
    ;;
esac
