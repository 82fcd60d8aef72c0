# Shared by both guests; in the coreos guest also after the switch to the real root.

# One line on the serial console, with the uptime.
say() {
    read -r up _ </proc/uptime
    echo "[$up] rehearsal: $*" >/dev/console
}

# DHCP on every NIC, for ever. The client-id is 01:MAC, udhcpc's default. $1: host name to send, if known.
dhcp_start() {
    for nic in /sys/class/net/e*; do
        nic=${nic##*/}
        [ -e "/sys/class/net/$nic" ] || { say "no NIC found"; return; }
        [ -e "/run/dhcp.$nic.ip" ] || say "$nic mac $(cat "/sys/class/net/$nic/address"), asking for an address"
        ip link set "$nic" up
        udhcpc -f -i "$nic" -p "/run/dhcp.$nic.pid" -s /lib/dhcp.sh \
            -O mtu -t 1000000 -T 1 ${1:+-x hostname:"$1"} >/dev/null 2>&1 &
    done
}

# Ends the clients but keeps the addresses: the next client asks for the same ones.
dhcp_stop() {
    for pid in /run/dhcp.*.pid; do
        [ ! -e "$pid" ] || kill "$(cat "$pid")" 2>/dev/null
    done
}
