#!/usr/bin/env bash
# sandbox.sh hold DIR N: first process of the sandbox (N=1), or of the network and mounts of another compute node.
# sandbox.sh run DIR SHAPE SERVICES: starts the services in the sandbox and waits for them. Only lab.sh calls this.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
dir=$2
packages=$dir/packages packages_more=$dir/packages-all state=$dir/state
log=$state/log etc=$state/etc pids=$state/pids
# Sockets and locks: the sandbox's /run is its own, and its path is short enough for a socket.
mysql=/run/mysql.sock
# Number of compute nodes with QEMU, each in a network namespace, and of fake ones with capacity for a thousand servers.
COMPUTES=2 FAKES=1
# The password of all users; nothing outside can reach the services.
PASSWORD=lab-secret
# Loopback ports that compute nodes need: those of the services, of RabbitMQ, and of OVN's southbound database.
PORTS=5000,5672,6642,8774,8776,8778,9292,9696

die() { echo "openstack lab: $*" >&2; exit 1; }
say() { echo "openstack lab: $*, $SECONDS s"; }

# libvirtd requires its user, and directories that two compute nodes must not share.
hold() {
    local n=$1 mine=$state/node$1 what
    mount --make-rprivate /
    if [ "$n" = 1 ]; then
        # Still the host's view of processes.
        local pid
        read -r pid _ </proc/self/stat
        echo "$pid" >"$state/holder.pid"
        mount -t proc proc /proc
        mount -t tmpfs -o mode=755 tmpfs /run
        mkdir -p /run/netns /run/lock
        local user
        for what in passwd group; do
            user='libvirt-qemu:x:64055:'
            [ $what = group ] || user+='64055::/nonexistent:/usr/sbin/nologin'
            { grep -v '^libvirt-qemu:' /etc/$what; echo "$user"; } >"$state/$what"
            mount --bind "$state/$what" /etc/$what
        done
        {
            echo 127.0.0.1 localhost
            for ((i = 1; i <= COMPUTES; i++)); do echo "10.222.0.$i compute$i"; done
        } >"$state/hosts"
        mount --bind "$state/hosts" /etc/hosts
    fi
    hostname "compute$n"
    for what in /etc/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt /run/libvirt /run/openvswitch /run/ovn; do
        mkdir -p "$what" "$mine$what"
        mount --bind "$mine$what" $what
    done
    mkdir -p /etc/libvirt/qemu /var/lib/libvirt/qemu "$mine"/{nova/instances,neutron,lock}
    touch "$mine/held"
    # This process adopts orphaned processes of the services, and reaps them.
    trap : CHLD TERM INT HUP
    while :; do sleep 86400 & wait $! || true; done
}

if [ "$1" = hold ]; then hold "$3"; fi
[ "$1" = run ] || die "$1?"
shape=$3 services=$4

# shellcheck source=config.sh
. "$here/config.sh"
# shellcheck source=ovn.sh
. "$here/ovn.sh"
# shellcheck source=more.sh
. "$here/more.sh"

# enter NODE: sets `enter` to the command prefix for a compute node; the services run on the first one.
enter() {
    enter=()
    [ "$1" = 1 ] || enter=(nsenter -t "$(cat "$pids/node$1")" -m -u -n -r -w --)
}

# start NODE NAME CMD...: starts a daemon on a compute node.
start() {
    local name=$2 enter
    enter "$1"
    shift 2
    setsid "${enter[@]}" "$@" >>"$log/$name.out" 2>&1 </dev/null &
    echo $! >"$pids/$name"
}

# on NODE CMD...: runs CMD on a compute node.
on() {
    local enter
    enter "$1"
    shift
    "${enter[@]}" "$@"
}

# wait_for SECONDS NAME CMD...: waits until CMD succeeds; fails if the daemon NAME ends.
wait_for() {
    local end=$((SECONDS + $1)) name=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ -e "$pids/$name" ] && ! kill -0 "$(cat "$pids/$name")" 2>/dev/null || [ "$SECONDS" -ge "$end" ]; then
            tail -n 15 "$log/$name".* >&2 || true
            die "$name did not start"
        fi
        sleep 0.2
    done
    say "$name is up"
}
answers() { [ "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$1$2")" -lt 500 ]; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
sql() { mariadb --no-defaults -uroot -S $mysql <<<"$1"; }
python() { /usr/bin/python3 -W ignore "$here/$1" "${@:2}"; }

# wsgi NAME PORT FILE PROCESSES ENV...: starts a service under uwsgi.
wsgi() {
    local name=$1 port=$2 file=$3 processes=$4
    shift 4
    start 1 "$name" env "$@" uwsgi --plugin python3 --master --lazy-apps --die-on-term --no-orphans --need-app \
        --enable-threads --buffer-size 65535 --rem-header Content-Length --listen 100 --processes "$processes" \
        --threads 4 --http-socket "127.0.0.1:$port" --wsgi-file "$file" --disable-logging
}

# The provider network is a bridge with this namespace as gateway; compute nodes reach each other over another one.
networks() {
    local bridge n
    for bridge in provider underlay; do
        # A fixed MAC, because otherwise each new port may change it.
        ip link add br-$bridge address 02:00:00:00:00:01 type bridge
        ip link set br-$bridge up
    done
    ip address add 203.0.113.1/24 dev br-provider
    ip link add provider type veth peer name provider-1
    ip link set provider-1 master br-provider up
    ip link set provider up
    sysctl -qw net.ipv4.ip_forward=1
    for ((n = 2; n <= COMPUTES; n++)); do
        ip netns add "compute$n"
        for bridge in provider underlay; do
            ip link add $bridge netns "compute$n" type veth peer name "$bridge-$n"
            ip link set "$bridge-$n" master br-$bridge up
            ip -n "compute$n" link set $bridge up
        done
        ip -n "compute$n" link set lo up
        setsid ip netns exec "compute$n" unshare --mount --uts "$here/sandbox.sh" hold "$dir" "$n" \
            >"$log/node$n.out" 2>&1 </dev/null &
        echo $! >"$pids/node$n"
        wait_for 20 "node$n" test -e "$state/node$n/held"
    done
    "networks_$shape"
}

# Tunnels end on the underlay network itself.
networks_linuxbridge() {
    ip address add 10.222.0.1/24 dev br-underlay
    local n
    for ((n = 2; n <= COMPUTES; n++)); do ip -n "compute$n" address add "10.222.0.$n/24" dev underlay; done
}
agents_linuxbridge() {
    local n
    for ((n = 1; n <= COMPUTES; n++)); do
        start "$n" "linuxbridge$n" neutron-linuxbridge-agent --config-file "$etc/neutron.conf" --config-file "$etc/ml2.ini" --config-file "$etc/linuxbridge$n.ini"
    done
    for n in dhcp l3; do start 1 $n-agent neutron-$n-agent --config-file "$etc/neutron.conf" --config-file "$etc/$n.ini"; done
}

# Database and message bus, and the tables of all services.
schemas() {
    mariadb-install-db --no-defaults --user=root --datadir="$state/mysql" --auth-root-authentication-method=normal \
        --skip-test-db >"$log/mariadb-install.out" 2>&1 || { tail "$log/mariadb-install.out" >&2; die "mariadb-install-db failed"; }
    start 1 mariadb mariadbd --defaults-file="$etc/my.cnf"
    mkdir -p "$state/rabbit"
    start 1 rabbitmq env HOME="$state/rabbit" ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_CONF_ENV_FILE=/dev/null \
        RABBITMQ_NODENAME=rabbit@localhost RABBITMQ_CONFIG_FILE="$etc/rabbitmq.conf" \
        RABBITMQ_ENABLED_PLUGINS_FILE="$etc/enabled_plugins" RABBITMQ_MNESIA_BASE="$state/rabbit/mnesia" \
        RABBITMQ_LOG_BASE="$log" \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none" \
        "$packages"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server
    wait_for 60 mariadb sql 'select 1'
    local name
    for name in keystone glance placement nova_api nova nova_cell0 neutron cinder octavia; do
        sql "create database $name character set utf8mb3"
    done
    (
        set -e
        keystone-manage --config-file "$etc/keystone.conf" db_sync
        glance-manage --config-file "$etc/glance.conf" db_sync
        placement-manage --config-file "$etc/placement.conf" db sync
        neutron-db-manage --config-file "$etc/neutron.conf" --config-file "$etc/ml2.ini" upgrade heads
        keystone-manage --config-file "$etc/keystone.conf" fernet_setup --keystone-user root --keystone-group root
        keystone-manage --config-file "$etc/keystone.conf" credential_setup --keystone-user root --keystone-group root
        url=http://127.0.0.1:5000/v3
        keystone-manage --config-file "$etc/keystone.conf" bootstrap --bootstrap-password $PASSWORD \
            --bootstrap-region-id RegionOne --bootstrap-public-url $url --bootstrap-internal-url $url --bootstrap-admin-url $url
    ) >"$log/schemas.out" 2>&1 &
    local others=$! more
    if [ "$services" = all ]; then schemas_more & else true & fi
    more=$!
    (
        set -e
        nova=(nova-manage --config-file "$etc/nova-compute1.conf")
        "${nova[@]}" api_db sync
        "${nova[@]}" cell_v2 map_cell0 --database_connection "$(db nova_cell0)"
        "${nova[@]}" cell_v2 create_cell --name cell1
        "${nova[@]}" db sync
    ) >"$log/schemas-nova.out" 2>&1 &
    wait $! || { tail "$log/schemas-nova.out" >&2; die "cannot create Nova's tables"; }
    wait $others || { tail "$log/schemas.out" >&2; die "cannot create the services' tables"; }
    wait $more
    say "tables are created"
}

services() {
    local n
    wsgi keystone 5000 /usr/bin/keystone-wsgi-public 2 OS_KEYSTONE_CONFIG_FILES="$etc/keystone.conf" OS_KEYSTONE_CONFIG_DIR="$etc/none"
    wait_for 60 keystone answers 5000 /v3
    wait_for 60 rabbitmq listens 5672
    python seed.py catalog $PASSWORD "$services"
    local others=()
    for ((n = 2; n <= COMPUTES; n++)); do others+=("compute$n"); done
    start 1 forward /usr/bin/python3 "$here/forward.py" $PORTS "${others[@]}"
    wsgi placement 8778 /usr/bin/placement-api 1 OS_PLACEMENT_CONFIG_DIR="$etc"
    start 1 neutron neutron-server --config-file "$etc/neutron.conf" --config-file "$etc/ml2.ini"
    for n in api conductor scheduler; do start 1 nova-$n nova-$n --config-file "$etc/nova-compute1.conf"; done
    start 1 glance glance-api --config-file "$etc/glance.conf"
    for ((n = 1; n <= COMPUTES; n++)); do
        start "$n" "libvirtd$n" libvirtd --config /etc/libvirt/libvirtd.conf --pid-file /run/libvirt/libvirtd.pid
    done
    wait_for 120 placement answers 8778 /
    wait_for 120 neutron answers 9696 /
    wait_for 120 nova-api answers 8774 /
    wait_for 120 glance answers 9292 /
    [ "$services" != all ] || services_more
    "agents_$shape"
    for ((n = 1; n <= COMPUTES; n++)); do
        start "$n" "compute$n" nova-compute --config-file "$etc/nova-compute$n.conf"
    done
    for ((n = 1; n <= FAKES; n++)); do start 1 "fake$n" nova-compute --config-file "$etc/nova-fake$n.conf"; done
}

# Guests on the private network respond to this namespace from their own address. On `dual`, whose router has only one address
# family, the namespace has its own port, which the agent connects by the device's name.
reach_linuxbridge() {
    ip route add 10.20.0.0/16 via "$(python seed.py gateway $PASSWORD)"
    local id mac
    read -r id mac < <(python seed.py port "$PASSWORD" compute1 dual 10.22.0.250 fd00:22::250)
    # The tunnel header takes 50 bytes of each packet.
    ip link add dual mtu 1450 address "$mac" type veth peer name "tap${id:0:11}" mtu 1450
    ip address add 10.22.0.250/24 dev dual
    ip address add fd00:22::250/64 dev dual nodad
    ip link set "tap${id:0:11}" up
    ip link set dual up
}

mkdir -p "$log" "$etc" "$pids" "$state"/{bin,lock,glance/images,glance/tmp,keystone}
# Everything runs as root, so the services need no rootwrap. They use the lab's ebtables.
cp "$here/sudo" "$here/ebtables" "$state/bin/"
export PATH=$state/bin:$PATH
configure
export PYTHONPATH=$state/python
if [ "$services" = all ]; then
    # Before the other compute nodes start, because they inherit these mounts.
    disk_more
    configure_more
    export PYTHONPATH=$state/python:$packages_more/usr/lib/python3/dist-packages
fi
networks
schemas
services
python seed.py world $PASSWORD "$dir/clouds.yaml" "$services"
# Shape linuxbridge also has an agent for DHCP and one for routers.
agents=$COMPUTES
[ "$shape" = ovn ] || agents=$((agents + 2))
python seed.py wait $PASSWORD $((COMPUTES + FAKES)) $agents
"reach_$shape"
