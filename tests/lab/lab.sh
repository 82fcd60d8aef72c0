#!/usr/bin/env bash
# A real libvirtd in a network namespace: bridges, DHCP and taps stay inside it,
# while the socket in /run serves `virsh -c qemu:///system` from anywhere.
set -euo pipefail

# A named lab is a separate libvirt host with private directories, host name and rights. Several can run at the same time.
LAB=${OCPDEPLOY_LAB-}
NS=ocpdeploy-lab${LAB:+-$LAB}
RUN=/run/$NS
STATE=/var/lib/$NS
PRIVATE="/etc/libvirt /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt"
URI=qemu:///system
POOL_DIR=/var/lib/libvirt/images

usage() {
    cat <<EOF
usage: lab.sh up             start libvirtd in namespace $NS (or use the one that runs here)
       lab.sh down [--force] stop what 'up' started; --force also powers off running domains
       lab.sh exec CMD...    run CMD where the guests can be reached
       lab.sh crash          end a named lab's processes and namespace at once, as a power failure does; 'up' boots it
       lab.sh status         print the state (exit 0: up, 3: down)

OCPDEPLOY_LAB=NAME selects a lab of that name, which shares nothing with the others.
EOF
}

say() { echo "lab: $*"; }
die() { echo "lab: $*" >&2; exit 1; }

# Every call has a time limit: a dead libvirtd must cause an error, not a hang.
virsh_() { here_ timeout -k 2 "${T:-20}" virsh -q -c "$URI" "$@" </dev/null; }
# The first request takes seconds: libvirtd queries the capabilities of its QEMUs.
answers() { { [ -z "$LAB" ] || have_ns; } && T=10 virsh_ version >/dev/null 2>&1; }
# Each command of a named lab sees the lab's directories instead of this computer's.
in_ns() {
    [ -n "$LAB" ] || { ip netns exec "$NS" "$@"; return; }
    ip netns exec "$NS" unshare --uts -- bash -c '
        hostname "$1"
        for folder in $2; do mount --bind "$3$folder" "$folder"; done
        shift 3
        exec "$@"' bash "$LAB" "$PRIVATE" "$STATE" "$@"
}
here_() { if [ -n "$LAB" ]; then in_ns "$@"; else "$@"; fi; }
deserted() { [ -z "$(ip netns pids "$NS")" ]; }
have_ns() { [ -e "/run/netns/$NS" ]; }

# Prints the recorded pid of a daemon, if this process is still the daemon.
pid_of() {
    local pid exe
    pid=$(cat "$RUN/$1.pid" 2>/dev/null) && [ -n "$pid" ] || return 1
    { IFS= read -r -d '' exe <"/proc/$pid/cmdline"; } 2>/dev/null && [ "${exe##*/}" = "$1" ] || return 1
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
gone() { ! pid_of "$1" >/dev/null; }

need_root() { [ "$(id -u)" = 0 ] || die "'$1' needs root (try: sudo $0 $1)"; }

# Only one `up` or `down` runs at a time. The descriptor is closed for daemons (9>&-).
lock() {
    install -d -m 0700 "$RUN"
    exec 9>"$RUN/lock"
    flock -w 120 9 || die "another lab.sh holds $RUN/lock"
}

# Creates the directories of a named lab. Members of the group libvirt have all rights, as on hosts without polkit.
make_private() {
    local folder
    for folder in $PRIVATE; do install -d -m 0755 "$folder" "$STATE$folder"; done
    cat >"$STATE/etc/libvirt/libvirtd.conf" <<EOF
unix_sock_group = "libvirt"
unix_sock_rw_perms = "0770"
auth_unix_rw = "none"
host_uuid = "$(cat /proc/sys/kernel/random/uuid)"
EOF
}

start_daemons() {
    [ -z "$LAB" ] || [ -e "$STATE/etc/libvirt/libvirtd.conf" ] || make_private
    # A namespace that remains after its daemons ended has a bridge that libvirt does not recognize as its own.
    if have_ns && deserted; then ip netns del "$NS"; fi
    have_ns || ip netns add "$NS"
    ip -n "$NS" link set lo up
    # This computer's virtlogd may be running. A named lab has its own, even if it is started from another lab.
    if ! { [ -n "$LAB" ] || ss -xlH; in_ns ss -xlH; } | grep -qF /run/libvirt/virtlogd-sock; then
        in_ns virtlogd -d -p "$RUN/virtlogd.pid" 9>&- || die "cannot start virtlogd"
    fi
    if ! pid_of libvirtd >/dev/null; then
        rm -f "$RUN/libvirtd.pid"
        in_ns libvirtd -d -p "$RUN/libvirtd.pid" 9>&- || die "cannot start libvirtd"
    fi
    until_ 60 answers || die "libvirtd started but does not respond on $URI within 60 s"
}

# Prints the names in a virsh listing, one per line (virsh pads pool names with spaces).
names() { virsh_ "$@" --name | sed -e 's/[[:space:]]*$//' -e '/^$/d'; }
has() { local want=$1; shift; names "$@" | grep -xF "$want" >/dev/null; }

ensure_network() {
    if ! has default net-list --all; then
        local xml
        xml=$(mktemp)
        cat >"$xml" <<EOF
<network>
  <name>default</name>
  <bridge name='virbr0'/>
  <forward/>
  <ip address='192.168.122.1' netmask='255.255.255.0'>
    <dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp>
  </ip>
</network>
EOF
        virsh_ net-define "$xml" >/dev/null
        rm -f "$xml"
        say "network default: defined"
    fi
    if ! has default net-list; then
        virsh_ net-start default >/dev/null
        say "network default: started"
    fi
}

ensure_pool() {
    if ! has default pool-list --all; then
        here_ install -d -m 0711 "$POOL_DIR"
        virsh_ pool-define-as default dir --target "$POOL_DIR" >/dev/null
        say "pool default: defined ($POOL_DIR)"
    fi
    if ! has default pool-list; then
        virsh_ pool-start default >/dev/null
        say "pool default: started"
    fi
}

up() {
    need_root up
    command -v virsh >/dev/null || die "libvirt is not installed; run $(dirname "$0")/install.sh"
    lock
    if pid_of libvirtd >/dev/null || ! answers; then
        command -v libvirtd >/dev/null || die "libvirtd is not installed; run $(dirname "$0")/install.sh"
        start_daemons
        say "libvirtd $(pid_of libvirtd) is running on $URI, in namespace $NS"
    else
        say "using the libvirtd on $URI, which this lab did not start, without a namespace"
    fi
    ensure_network
    ensure_pool
}

stop() {
    local pid
    pid=$(pid_of "$1") || { rm -f "$RUN/$1.pid"; return 0; }
    kill "$pid" 2>/dev/null || true
    until_ 15 gone "$1" || { kill -9 "$pid" 2>/dev/null || true; until_ 5 gone "$1"; } \
        || die "$1 (pid $pid) does not end"
    rm -f "$RUN/$1.pid"
    say "$1 stopped"
}

down() {
    need_root down
    local force='' name running
    case "${1-}" in --force) force=1 ;; '') ;; *) usage >&2; exit 2 ;; esac
    lock
    if ! have_ns && ! pid_of libvirtd >/dev/null && ! pid_of virtlogd >/dev/null; then
        [ -z "$LAB" ] || rm -rf "$STATE"
        if answers; then say "this lab did not start the libvirtd on $URI: it keeps running"
        else say "already down"; fi
        return 0
    fi
    # Only a running libvirtd can list the running objects and remove its networks.
    if ! pid_of libvirtd >/dev/null || ! answers; then start_daemons; fi
    running=$(names list)
    if [ -n "$running" ] && [ -z "$force" ]; then
        die "these domains still run (delete them, or use 'down --force'):"$'\n'"${running//[[:cntrl:]]/ }"
    fi
    while read -r name; do
        [ -n "$name" ] || continue
        virsh_ destroy "$name" >/dev/null && say "domain $name: powered off"
    done <<<"$running"
    while read -r name; do
        virsh_ net-destroy "$name" >/dev/null && say "network $name: stopped"
    done < <(names net-list)
    stop libvirtd
    stop virtlogd
    if have_ns; then
        # The dnsmasq of a network ends shortly after the network, when dnsmasq's script has ended.
        until_ 30 deserted || true
        local left
        left=$(ip netns pids "$NS")
        [ -z "$left" ] || die "processes that this lab did not start are still in $NS:"$'\n'"$(ps -o pid=,args= -p "$(paste -sd, <<<"$left")")"
        ip netns del "$NS"
    fi
    [ -z "$LAB" ] || rm -rf "$STATE"
    say "down"
}

crash() {
    [ -n "$LAB" ] || die "only a named lab can crash (OCPDEPLOY_LAB)"
    need_root crash
    lock
    ip netns pids "$NS" | xargs -r kill -9
    until_ 10 deserted || die "processes are still in $NS"
    ip netns del "$NS"
    # State that a computer keeps only in memory.
    rm -f "$RUN"/*.pid
    find "$STATE/run/libvirt" -mindepth 1 -delete
    say "crashed"
}

exec_() {
    [ $# -gt 0 ] || { usage >&2; exit 2; }
    have_ns || exec "$@"
    need_root exec
    [ -n "$LAB" ] || exec ip netns exec "$NS" "$@"
    in_ns "$@"
}

status() {
    local pid where
    if pid=$(pid_of libvirtd); then where="pid $pid, namespace $NS"
    elif have_ns; then where="namespace $NS"
    else where="not started by this lab"; fi
    if ! answers; then say "down (nothing responds on $URI)"; return 3; fi
    say "libvirtd on $URI: $where"
    local what
    for what in net-list pool-list list; do
        say "$what: $(names $what --all | paste -sd' ') (active: $(names $what | paste -sd' '))"
    done
}

cmd=${1-}
[ $# -eq 0 ] || shift
case "$cmd" in
up) up ;;
down) down "$@" ;;
exec) exec_ "$@" ;;
crash) crash ;;
status) status ;;
-h | --help | help) usage ;;
*) usage >&2; exit 2 ;;
esac
