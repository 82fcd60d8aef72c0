# Cinder, Swift and Octavia, and a Nova API that retains deleted servers (OCPDEPLOY_OPENSTACK_SERVICES=all). Sourced by
# sandbox.sh, whose variables it uses.
# shellcheck shell=bash disable=SC2154

# One sparse file system for volumes and objects, with extended attributes. It is a separate mount, so that Nova and Cinder
# can detect whether a share is mounted.
disk_more() {
    truncate -s 400G "$state/disk.img"
    mkfs.ext4 -q -F -m 0 -O ^has_journal -E nodiscard,lazy_itable_init=1 "$state/disk.img"
    mkdir -p "$state/disk"
    mount -o loop "$state/disk.img" "$state/disk"
    mkdir -p "$state/disk"/{near,far,swift/one} "$etc/swift" "$state/cinder/conversion" /etc/swift
    # The path is hard-coded in Swift (swift/common/utils.py: SWIFT_CONF_FILE).
    mount --bind "$etc/swift" /etc/swift
    cp "$here/mount" "$here/mount.nfs" "$here/cinder-rootwrap" "$state/bin/"
}

cinder() {
    cat >"$etc/cinder.conf" <<CONF
[DEFAULT]
log_dir = $log
state_path = $state/cinder
$bus
auth_strategy = keystone
my_ip = 127.0.0.1
osapi_volume_listen = 127.0.0.1
osapi_volume_workers = 1
api_paste_config = $packages_more/usr/share/cinder-common/api-paste.ini
resource_query_filters_file = $packages_more/etc/cinder/resource_filters.json
rootwrap_config = $packages_more/etc/cinder/rootwrap.conf
glance_api_servers = http://127.0.0.1:9292
image_conversion_dir = $state/cinder/conversion
enabled_backends = near,far
default_availability_zone = near
storage_availability_zone = near
quota_volumes = -1
quota_snapshots = -1
quota_gigabytes = -1
[privsep_osbrick]
helper_command = sudo privsep-helper
[cinder_sys_admin]
helper_command = sudo privsep-helper
[nova]
$(identity cinder)
[service_user]
send_service_user_token = true
$(identity cinder)
$(common cinder)
service_token_roles = service
service_token_roles_required = true
$(share near)
$(share far)
CONF
}

# share NAME: a Cinder back end and zone whose NFS share is a local directory.
share() {
    echo "127.0.0.1:$state/disk/$1" >"$etc/share-$1"
    cat <<CONF
[$1]
volume_driver = cinder.volume.drivers.nfs.NfsDriver
volume_backend_name = $1
backend_availability_zone = $1
nfs_shares_config = $etc/share-$1
nfs_mount_point_base = $state/cinder/mnt
nas_secure_file_operations = false
nas_secure_file_permissions = false
CONF
}

swift() {
    printf '[swift-hash]\nswift_hash_path_suffix = lab\nswift_hash_path_prefix = lab\n[storage-policy:0]\nname = one\ndefault = yes\n' >"$etc/swift/swift.conf"
    local kind port=6200
    for kind in object container account; do
        cat >"$etc/swift/$kind-server.conf" <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $port
user = root
workers = 0
devices = $state/disk/swift
mount_check = false
disable_fallocate = true
[pipeline:main]
pipeline = $kind-server
[app:$kind-server]
use = egg:swift#$kind
CONF
        port=$((port + 1))
    done
    # The usual pipeline (openstack/swift: etc/proxy-server.conf-sample), with Keystone.
    cat >"$etc/swift/proxy-server.conf" <<CONF
[DEFAULT]
# Guests also download from it.
bind_ip = 0.0.0.0
bind_port = 8090
user = root
workers = 0
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache listing_formats bulk tempurl authtoken keystoneauth copy container-quotas account-quotas slo dlo versioned_writes symlink proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:11211
[filter:authtoken]
paste.filter_factory = keystonemiddleware.auth_token:filter_factory
www_authenticate_uri = http://127.0.0.1:5000
delay_auth_decision = true
cache = swift.cache
$(identity swift)
[filter:keystoneauth]
use = egg:swift#keystoneauth
operator_roles = admin, swiftoperator
[filter:tempurl]
use = egg:swift#tempurl
allowed_digests = sha256
$(printf '[filter:%s]\nuse = egg:swift#%s\n' catch_errors catch_errors gatekeeper gatekeeper healthcheck healthcheck \
        listing_formats listing_formats bulk bulk copy copy container-quotas container_quotas account-quotas account_quotas \
        slo slo dlo dlo versioned_writes versioned_writes symlink symlink)
CONF
}

# The API, the worker and the Neutron ports are real; no amphora runs (octavia_lab.py).
octavia() {
    # For the certificates of amphorae.
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=lab -keyout "$etc/octavia.key" -out "$etc/octavia.pem" 2>"$log/octavia-ca.out"
    cat >"$etc/octavia.conf" <<CONF
[DEFAULT]
$bus
[api_settings]
bind_host = 127.0.0.1
bind_port = 9876
enabled_provider_drivers = amphora:Amphorae that do not run
default_provider_driver = amphora
[controller_worker]
workers = 1
amphora_driver = amphora_noop_driver
compute_driver = compute_noop_driver
image_driver = image_noop_driver
network_driver = lab
loadbalancer_topology = SINGLE
client_ca = $etc/octavia.pem
[certificates]
ca_certificate = $etc/octavia.pem
ca_private_key = $etc/octavia.key
[health_manager]
heartbeat_key = lab
[oslo_messaging]
topic = octavia_prov
[service_auth]
$(identity octavia)
$(common octavia)
CONF
    local info=$state/python/ocpdeploy_lab-1.0.dist-info
    printf '[octavia.network.drivers]\nlab = octavia_lab:Ports\n' >>"$info/entry_points.txt"
    cp "$here/octavia_lab.py" "$state/python/"
}

configure_more() {
    cinder
    swift
    octavia
    # With this, the API retains deleted servers for a day. The compute services do not have it, so they never delete them.
    printf '[DEFAULT]\nosapi_compute_listen_port = 8784\nreclaim_instance_interval = 86400\n' >"$etc/nova-keeps.conf"
}

schemas_more() {
    local kind port=6200
    (
        set -e
        cinder-manage --config-file "$etc/cinder.conf" db sync
        octavia-db-manage --config-file "$etc/octavia.conf" upgrade head
        cd "$etc/swift"
        for kind in object container account; do
            # 16 partitions, one replica.
            swift-ring-builder $kind.builder create 4 1 1
            swift-ring-builder $kind.builder add r1z1-127.0.0.1:$port/one 1
            swift-ring-builder $kind.builder rebalance
            port=$((port + 1))
        done
    ) >"$log/schemas-more.out" 2>&1 || { tail "$log/schemas-more.out" >&2; die "cannot create the tables of Cinder, Swift or Octavia"; }
}

services_more() {
    local kind
    start 1 memcached memcached -u root -l 127.0.0.1 -m 16
    for kind in account container object proxy; do start 1 swift-$kind swift-$kind-server "$etc/swift/$kind-server.conf" -v; done
    for kind in api scheduler volume; do start 1 cinder-$kind cinder-$kind --config-file "$etc/cinder.conf"; done
    # It reads octavia.conf from its home directory.
    wsgi octavia-api 9876 "$packages_more/usr/bin/octavia-wsgi" 1 HOME="$etc"
    start 1 octavia-worker octavia-worker --config-file "$etc/octavia.conf"
    start 1 nova-api-keeps nova-api --config-file "$etc/nova-compute1.conf" --config-file "$etc/nova-keeps.conf"
    wait_for 120 swift-proxy answers 8090 /healthcheck
    wait_for 120 cinder-api answers 8776 /
    wait_for 120 octavia-api answers 9876 /
    wait_for 120 nova-api-keeps answers 8784 /
}
