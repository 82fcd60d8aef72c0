#!/usr/bin/env bash
# A real OpenStack: Keystone, Glance, Placement, Nova with two QEMU compute nodes and a fake one, Neutron.
# Everything runs in one sandbox with its own processes, mounts and network; every service listens on the
# sandbox's loopback. See README.md.
set -euo pipefail

NS=ocpdeploy-openstack
# How Neutron connects the guests: `linuxbridge`, or `ovn` (ML2/OVN).
shape=${OCPDEPLOY_OPENSTACK_SHAPE:-linuxbridge}
# `all` adds Cinder, Swift and Octavia.
services=${OCPDEPLOY_OPENSTACK_SERVICES:-base}
here=$(cd "$(dirname "$0")" && pwd)
dir=${OCPDEPLOY_OPENSTACK_LAB:-$(cd "$here/../../.." && pwd)/target/openstack}
state=$dir/state

usage() {
    cat <<EOF
usage: lab.sh up             start everything, or what is missing; installs packages first
       lab.sh down           stop everything and remove its state; packages stay in $dir
       lab.sh exec CMD...    run CMD where services and guests can be reached, with their clouds.yaml
       lab.sh status         print the state (exit 0: up, 3: down)
EOF
}

say() { echo "openstack lab: $*"; }
die() { echo "openstack lab: $*" >&2; exit 1; }
need_root() { [ "$(id -u)" = 0 ] || die "'$1' needs root (try: sudo $0 $1)"; }

# Prints the recorded pid of the sandbox's first process, if this process is still the holder.
holder() {
    local pid
    pid=$(cat "$state/holder.pid" 2>/dev/null) && [ -n "$pid" ] || return 1
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -F "$here/sandbox.sh hold " >/dev/null || return 1
    echo "$pid"
}

# until_ SECONDS CMD...: polls until CMD succeeds.
until_() {
    local end=$((SECONDS + $1)); shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}
is_up() { holder >/dev/null && [ -e "$state/ready" ]; }

# Only one `up` or `down` runs at a time. The descriptor is closed for daemons (9>&-).
lock() {
    mkdir -p "$dir"
    exec 9>"$dir/lock"
    flock -w 600 9 || die "another lab.sh holds $dir/lock"
}

up() {
    need_root up
    [[ $shape =~ ^(linuxbridge|ovn)$ ]] || die "OCPDEPLOY_OPENSTACK_SHAPE must be linuxbridge or ovn, not '$shape'"
    [[ $services =~ ^(base|all)$ ]] || die "OCPDEPLOY_OPENSTACK_SERVICES must be all or base, not '$services'"
    lock
    if is_up; then
        [ "$services" = base ] || [ "$(cat "$state/services")" = all ] || die "is running without Cinder, Swift and Octavia; first run: $0 down"
        [ "$(cat "$state/shape")" = "$shape" ] || die "is running in shape $(cat "$state/shape"), not $shape; first run: $0 down"
        say "is up"
        return
    fi
    "$here/install.sh" "$dir/packages" 9>&-
    [ "$services" = base ] || "$here/install.sh" "$dir/packages-all" -all 9>&-
    # Remove what an interrupted start left: it cannot be used.
    stop
    mkdir -p "$state"
    echo "$shape" >"$state/shape"
    echo "$services" >"$state/services"
    ip netns add "$NS"
    ip -n "$NS" link set lo up
    setsid ip netns exec "$NS" unshare --pid --fork --mount --uts "$here/sandbox.sh" hold "$dir" 1 \
        >"$state/holder.log" 2>&1 9>&- </dev/null &
    until_ 20 test -e "$state/node1/held" || { cat "$state/holder.log" >&2; die "the sandbox did not start"; }
    local pid
    pid=$(holder) || die "the sandbox's first process ended"
    if ! nsenter -t "$pid" -p -m -u -n -r -w -- env -i HOME="$state" LANG=C.UTF-8 \
        PATH="$dir/packages/usr/bin:$dir/packages/usr/sbin:$dir/packages-all/usr/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin" \
        "$here/sandbox.sh" run "$dir" "$shape" "$services" 9>&- </dev/null; then
        [ "${KEEP-}" = 1 ] || stop_keeping_logs
        die "startup failed; the logs are in $dir/log"
    fi
    touch "$state/ready"
    say "up in namespace $NS after $SECONDS s; clouds.yaml in $dir"
}

# When the sandbox's first process ends, the kernel ends all others.
stop() {
    local pid
    if pid=$(holder); then
        kill -KILL "$pid"
        until_ 20 test ! -d "/proc/$pid" || die "process $pid does not end"
    fi
    if [ -e "/run/netns/$NS" ]; then ip netns del "$NS"; fi
    rm -rf "$state"
}

stop_keeping_logs() {
    rm -rf "$dir/log"
    cp -r "$state/log" "$dir/log" 2>/dev/null || true
    stop
}

down() {
    need_root down
    lock
    if ! holder >/dev/null && [ ! -e "/run/netns/$NS" ] && [ ! -e "$state" ]; then
        say "already down"
        return
    fi
    stop_keeping_logs
    say "down"
}

exec_() {
    [ $# -gt 0 ] || { usage >&2; exit 2; }
    need_root exec
    is_up || die "is down"
    # Guests have the public endpoints at http://203.0.113.1.
    export OS_CLIENT_CONFIG_FILE=$dir/clouds.yaml OCPDEPLOY_OPENSTACK_LAB=$dir OCPDEPLOY_OS_INSECURE=true
    exec ip netns exec "$NS" "$@"
}

status() {
    if ! is_up; then say "down"; return 3; fi
    say "up in namespace $NS, shape $(cat "$state/shape"), services $(cat "$state/services"), first process $(holder), clouds.yaml in $dir"
}

cmd=${1-}
[ $# -eq 0 ] || shift
case "$cmd" in
up) up ;;
down) down ;;
exec) exec_ "$@" ;;
status) status ;;
-h | --help | help) usage ;;
*) usage >&2; exit 2 ;;
esac
