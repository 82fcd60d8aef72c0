# Shape `ovn`: ML2/OVN on Open vSwitch. Sourced by sandbox.sh, whose functions and variables it uses.
# shellcheck shell=bash disable=SC2154

# The kernel has no module openvswitch, so all bridges use the datapath `netdev`: ovs-vswitchd itself forwards packets, with
# packet sockets on taps and veths. These do not support partial checksums, so the other ends must compute checksums:
# `ethtool -K … tx off` here, and QEMU without the feature `csum`. Tunnels use the bridge's own port, because ovs-vswitchd
# finds their route only there.
networks_ovn() {
    ip link add underlay type veth peer name underlay-1
    ip link set underlay-1 master br-underlay up
    ip link set underlay up
    printf '#!/bin/sh\nexec /usr/bin/qemu-system-x86_64 -global virtio-net-device.csum=off "$@"\n' >"$state/bin/qemu-system-x86_64"
    chmod 755 "$state/bin/qemu-system-x86_64"
    local n
    for ((n = 1; n <= COMPUTES; n++)); do
        ethtool -K "provider-$n" tx off >/dev/null
        ethtool -K "underlay-$n" tx off >/dev/null
        switch "$n"
    done
    central
    for ((n = 1; n <= COMPUTES; n++)); do
        start "$n" "ovn-controller$n" ovn-controller --log-file="$log/ovn-controller$n.log" unix:/run/openvswitch/db.sock
    done
}

# switch N: starts Open vSwitch on a compute node, and writes the settings that ovn-controller reads from its database.
switch() {
    local n=$1 db=$state/node$1/ovs.db
    ovsdb-tool create "$db" "$packages/usr/share/openvswitch/vswitch.ovsschema"
    start "$n" "ovsdb$n" ovsdb-server "$db" --remote=punix:/run/openvswitch/db.sock --log-file="$log/ovsdb$n.log"
    wait_for 20 "ovsdb$n" on "$n" ovs-vsctl --no-wait init
    start "$n" "vswitchd$n" "$packages/usr/lib/openvswitch-switch/ovs-vswitchd" --log-file="$log/vswitchd$n.log" unix:/run/openvswitch/db.sock
    local options=()
    # The gateway of the routers; two gateways would have to monitor each other.
    [ "$n" != 1 ] || options=(external_ids:ovn-cms-options=enable-chassis-as-gw)
    on "$n" ovs-vsctl --timeout=60 -- --id=@netdev create Datapath datapath_version=userspace -- set Open_vSwitch . datapaths:netdev=@netdev \
        -- set Open_vSwitch . "external_ids:system-id=6f637064-0000-4000-8000-00000000000$n" "external_ids:hostname=compute$n" \
        external_ids:ovn-remote=tcp:127.0.0.1:6642 external_ids:ovn-remote-probe-interval=0 external_ids:ovn-openflow-probe-interval=0 \
        external_ids:ovn-encap-type=geneve "external_ids:ovn-encap-ip=10.222.0.$n" \
        external_ids:ovn-bridge-datapath-type=netdev external_ids:ovn-bridge-mappings=provider:br-ex "${options[@]}" \
        -- add-br br-int -- set Bridge br-int datapath_type=netdev fail_mode=secure \
        -- add-br br-ex -- set Bridge br-ex datapath_type=netdev -- add-port br-ex provider \
        -- add-br br-tunnels -- set Bridge br-tunnels datapath_type=netdev -- add-port br-tunnels underlay >/dev/null
    # If the datapath supports it, OVN commits each connection with a source NAT to 0.0.0.0, which changes nothing. This makes
    # Open vSwitch 3.1 abort: its userspace connection tracker finds such a connection by the entry of either direction
    # (lib/conntrack.c: assertion in conn_update_state). ovn-controller reads the value only once (ovn: lib/features.c).
    local datapath
    datapath=$(on "$n" ovs-vsctl get Open_vSwitch . datapaths:netdev)
    wait_for 20 "vswitchd$n" on "$n" ovs-vsctl get Datapath "$datapath" capabilities:ct_zero_snat
    on "$n" ovs-vsctl set Datapath "$datapath" capabilities:ct_zero_snat=false
    on "$n" ip address add "10.222.0.$n/24" dev br-tunnels
    on "$n" ip link set br-tunnels up
}

# OVN's databases, and the daemon that translates the northbound database into the southbound one.
central() {
    local name port table
    for name in nb:6641:Northbound sb:6642:Southbound; do
        IFS=: read -r name port table <<<"$name"
        ovsdb-tool create "$state/ovn$name.db" "$packages/usr/share/ovn/ovn-$name.ovsschema"
        start 1 "ovn$name" ovsdb-server "$state/ovn$name.db" --remote="punix:/run/ovn/ovn${name}_db.sock" \
            --remote="db:OVN_$table,${name^^}_Global,connections" --unixctl="/run/ovn/ovn${name}_db.ctl" --log-file="$log/ovn$name.log"
        wait_for 20 "ovn$name" "ovn-${name}ctl" --no-leader-only --db="unix:/run/ovn/ovn${name}_db.sock" \
            set-connection "ptcp:$port:127.0.0.1" -- set connection . inactivity_probe=0
    done
    ovn-nbctl --db=unix:/run/ovn/ovnnb_db.sock set NB_Global . options:northd_probe_interval=0
    start 1 northd ovn-northd --ovnnb-db=unix:/run/ovn/ovnnb_db.sock --ovnsb-db=unix:/run/ovn/ovnsb_db.sock --log-file="$log/northd.log"
}

sb() { ovn-sbctl --db=unix:/run/ovn/ovnsb_db.sock "$@"; }

# chassis N: copies the settings that ovn-controller published of a compute node. OVN 23.03 writes them to other_config, but
# Neutron Zed reads external_ids (impl_idl_ovn.py: _get_chassis_physnets).
chassis() {
    local id=6f637064-0000-4000-8000-00000000000$1 said
    wait_for 60 "ovn-controller$1" sb get Chassis "$id" other_config:ovn-bridge-mappings
    said=$(sb get Chassis "$id" other_config)
    sb set Chassis "$id" "external_ids=$said"
}

# With OVN there are no Neutron agents. The second compute node reaches the southbound database as soon as forward.py runs.
agents_ovn() {
    local n
    for ((n = 1; n <= COMPUTES; n++)); do chassis "$n"; done
}

# A port on the private network, like that of a bastion host. From the provider network, guests cannot be reached at their own
# addresses: OVN does not track such connections, so it rewrites the source of responses to the router's NAT or the floating IP.
reach_ovn() {
    local id mac
    read -r id mac < <(python seed.py port "$PASSWORD" compute1 private 10.20.255.254)
    ovs-vsctl add-port br-int private -- set Interface private type=internal "mac=\"$mac\"" "external_ids:iface-id=$id" mtu_request=1442
    ip address add 10.20.255.254/16 dev private
    ip link set private up
}

plugin_ovn() {
    cat >"$etc/ml2.ini" <<EOF
[ml2]
type_drivers = flat,geneve,local
tenant_network_types = geneve
mechanism_drivers = userspace,ovn,fake_hosts
extension_drivers = port_security
[ml2_type_flat]
flat_networks = provider
[ml2_type_geneve]
vni_ranges = 1:1000
max_header_size = 38
[securitygroup]
enable_security_group = true
[ovn]
ovn_nb_connection = tcp:127.0.0.1:6641
ovn_sb_connection = tcp:127.0.0.1:6642
ovsdb_probe_interval = 0
# As in clouds, each network has a port network:distributed. Nothing responds there; guests use their config drive.
ovn_metadata_enabled = true
EOF
}
