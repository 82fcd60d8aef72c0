# Used by both guests; in the coreos guest also after the switch to the real root.

# Prints one line on the serial console, with the uptime.
say() {
    read -r up _ </proc/uptime
    echo "[$up] rehearsal: $*" >/dev/console
}

# Runs DHCP on the NIC $1 permanently. The client-id is 01:MAC, udhcpc's default. $2: host name to send, if known.
dhcp_on() {
    [ -e "/run/dhcp.$1.ip" ] || say "$1 mac $(cat "/sys/class/net/$1/address"), asking for an address"
    ip link set "$1" up
    udhcpc -f -i "$1" -p "/run/dhcp.$1.pid" -s /lib/dhcp.sh \
        -O mtu -t 1000000 -T 1 ${2:+-x hostname:"$2"} >/dev/null 2>&1 &
}

# Runs DHCP on every NIC.
dhcp_start() {
    for nic in /sys/class/net/e*; do
        nic=${nic##*/}
        [ -e "/sys/class/net/$nic" ] || { say "no NIC found"; return; }
        dhcp_on "$nic" "$1"
    done
}

# Ends the clients but keeps the addresses: the next client requests the same ones.
dhcp_stop() {
    for pid in /run/dhcp.*.pid; do
        [ ! -e "$pid" ] || kill "$(cat "$pid")" 2>/dev/null
    done
}
