# The services' configuration. Sourced by sandbox.sh, whose variables it uses.
# shellcheck shell=bash disable=SC2154

db() { echo "mysql+pymysql://root@localhost/$1?unix_socket=$mysql&charset=utf8"; }

# How a service authenticates to the others.
identity() {
    cat <<EOF
auth_url = http://127.0.0.1:5000/v3
auth_type = password
project_domain_id = default
user_domain_id = default
project_name = service
username = $1
password = $PASSWORD
region_name = RegionOne
EOF
}

# The type of a service in the catalog. Without it, a service rejects credentials with access rules (openstack/keystonemiddleware:
# keystonemiddleware/auth_token/__init__.py, validate_allowed_request).
type_of() {
    case $1 in
    glance) echo image ;; nova) echo compute ;; neutron) echo network ;;
    cinder) echo volumev3 ;; octavia) echo load-balancer ;; swift) echo object-store ;; *) echo "$1" ;;
    esac
}

# common SERVICE [DATABASE]: the common sections.
common() {
    cat <<EOF
[database]
connection = $(db "${2:-$1}")
max_pool_size = 5
max_overflow = 20
[oslo_concurrency]
lock_path = $state/lock
[oslo_messaging_rabbit]
heartbeat_timeout_threshold = 0
[keystone_authtoken]
www_authenticate_uri = http://127.0.0.1:5000
service_type = $(type_of "$1")
$(identity "$1")
EOF
}
bus=transport_url=rabbit://guest:guest@127.0.0.1:5672/

data_services() {
    # The data need not survive a crash: no syncs.
    cat >"$etc/my.cnf" <<EOF
[mysqld]
user = root
datadir = $state/mysql
socket = $mysql
pid-file = /run/mysql.pid
skip-networking
skip-log-bin
skip-name-resolve
max_connections = 800
character-set-server = utf8mb3
innodb_buffer_pool_size = 192M
innodb_log_file_size = 64M
innodb_flush_log_at_trx_commit = 0
innodb_doublewrite = 0
innodb_flush_method = nosync
performance_schema = off
EOF
    cat >"$etc/rabbitmq.conf" <<EOF
listeners.tcp.1 = 127.0.0.1:5672
log.console = false
vm_memory_high_watermark.absolute = 512MB
disk_free_limit.absolute = 50MB
EOF
    echo '[].' >"$etc/enabled_plugins"
}

keystone() {
    cat >"$etc/keystone.conf" <<EOF
[DEFAULT]
log_file = $log/keystone.log
[fernet_tokens]
key_repository = $state/keystone/fernet
[credential]
key_repository = $state/keystone/credential
[identity]
password_hash_rounds = 4
$(common keystone)
EOF
}

placement() {
    cat >"$etc/placement.conf" <<EOF
[DEFAULT]
log_file = $log/placement.log
[placement_database]
connection = $(db placement)
[api]
auth_strategy = keystone
$(common placement)
EOF
}

glance() {
    cat >"$etc/glance.conf" <<EOF
[DEFAULT]
log_file = $log/glance.log
# Guests also download from it.
bind_host = 0.0.0.0
bind_port = 9292
workers = 1
enabled_backends = fs:file
enabled_import_methods = [glance-direct,web-download]
node_staging_uri = file://$state/glance/tmp
[paste_deploy]
flavor = keystone
config_file = $packages/usr/share/glance-common/glance-api-paste.ini
[glance_store]
default_backend = fs
[fs]
filesystem_store_datadir = $state/glance/images
[os_glance_staging_store]
filesystem_store_datadir = $state/glance/tmp
[os_glance_tasks_store]
filesystem_store_datadir = $state/glance/tmp
$(common glance)
EOF
}

# nova HOST IP STATE DRIVER: a compute node; the first one also serves Nova's own services.
nova() {
    cat >"$etc/nova-$1.conf" <<EOF
[DEFAULT]
host = $1
my_ip = $2
log_dir = $log
state_path = $3
$bus
enabled_apis = osapi_compute
osapi_compute_listen = 127.0.0.1
osapi_compute_workers = 1
compute_driver = $4
mkisofs_cmd = genisoimage
vif_plugging_is_fatal = true
vif_plugging_timeout = 300
rpc_response_timeout = 180
service_down_time = 180
# The fake compute nodes are in the zone fake.
default_schedule_zone = real
reserved_host_memory_mb = 1024
initial_cpu_allocation_ratio = 32.0
initial_ram_allocation_ratio = 2.0
resume_guests_state_on_host_boot = false
running_deleted_instance_poll_interval = 0
shelved_poll_interval = -1
[api]
auth_strategy = keystone
[api_database]
connection = $(db nova_api)
max_pool_size = 5
[conductor]
workers = 1
[scheduler]
workers = 1
discover_hosts_in_cells_interval = 5
[wsgi]
api_paste_config = $packages/usr/share/nova-common/api-paste.ini
[quota]
instances = -1
cores = -1
ram = -1
server_groups = -1
server_group_members = -1
[glance]
region_name = RegionOne
[cinder]
os_region_name = RegionOne
$(identity nova)
[vnc]
enabled = false
[spice]
enabled = false
[workarounds]
disable_rootwrap = true
[privsep_osbrick]
helper_command = sudo privsep-helper
[vif_plug_linux_bridge_privileged]
helper_command = sudo privsep-helper
[os_vif_ovs]
ovsdb_connection = unix:/run/openvswitch/db.sock
[vif_plug_ovs_privileged]
helper_command = sudo privsep-helper
[libvirt]
virt_type = qemu
cpu_mode = none
connection_uri = qemu:///system
images_type = qcow2
inject_partition = -2
[neutron]
$(identity nova)
[placement]
$(identity nova)
[service_user]
send_service_user_token = true
$(identity nova)
$(common nova)
EOF
}

# libvirtd N: for one compute node, without a user or cgroup for guests.
libvirtd() {
    mkdir -p "$state/node$1/etc/libvirt"
    cat >"$state/node$1/etc/libvirt/libvirtd.conf" <<EOF
unix_sock_group = "root"
unix_sock_rw_perms = "0700"
auth_unix_rw = "none"
auth_unix_ro = "none"
host_uuid = "6f637064-0000-4000-8000-00000000000$1"
log_outputs = "3:stderr"
EOF
    cat >"$state/node$1/etc/libvirt/qemu.conf" <<EOF
user = "root"
group = "root"
security_driver = "none"
namespaces = []
cgroup_controllers = []
remember_owner = 0
stdio_handler = "file"
EOF
}

# neutron: common to both shapes; plugin_SHAPE writes ml2.ini.
neutron() {
    cat >"$etc/neutron.conf" <<EOF
[DEFAULT]
host = compute1
log_dir = $log
state_path = $state/node1/neutron
$bus
bind_host = 127.0.0.1
bind_port = 9696
auth_strategy = keystone
core_plugin = ml2
service_plugins = $([ "$shape" = ovn ] && echo ovn-router || echo router),segments
api_paste_config = $packages/usr/share/neutron-common/api-paste.ini
api_workers = 1
rpc_workers = 1
rpc_state_report_workers = 0
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
send_events_interval = 1
dhcp_agents_per_network = 1
agent_down_time = 120
rpc_response_timeout = 120
[experimental]
linuxbridge = true
[nova]
$(identity nova)
[placement]
$(identity nova)
[quotas]
default_quota = -1
quota_network = -1
quota_subnet = -1
quota_port = -1
quota_router = -1
quota_floatingip = -1
quota_security_group = -1
quota_security_group_rule = -1
[agent]
root_helper = sudo
report_interval = 20
$(common neutron)
EOF
    # Entry points by which Neutron finds the lab's drivers.
    local info=$state/python/ocpdeploy_lab-1.0.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: ocpdeploy-lab\nVersion: 1.0\n' >"$info/METADATA"
    printf '[neutron.ml2.mechanism_drivers]\nfake_hosts = fake_hosts:FakeHosts\nuserspace = fake_hosts:Userspace\n' >"$info/entry_points.txt"
    cp "$here/fake_hosts.py" "$state/python/"
}

# Neutron with an agent for guests on each compute node, one for DHCP and one for routers.
plugin_linuxbridge() {
    cat >"$etc/ml2.ini" <<EOF
[ml2]
type_drivers = flat,vxlan,local
tenant_network_types = vxlan
mechanism_drivers = linuxbridge,l2population,fake_hosts
extension_drivers = port_security
[ml2_type_flat]
flat_networks = provider
[ml2_type_vxlan]
vni_ranges = 1:1000
[securitygroup]
enable_security_group = true
enable_ipset = true
firewall_driver = iptables
EOF
    # No metadata service: guests use their config drive.
    cat >"$etc/dhcp.ini" <<EOF
[DEFAULT]
log_file = $log/dhcp-agent.log
interface_driver = linuxbridge
enable_isolated_metadata = false
dhcp_lease_duration = 86400
dnsmasq_local_resolv = false
resync_interval = 5
EOF
    cat >"$etc/l3.ini" <<EOF
[DEFAULT]
log_file = $log/l3-agent.log
interface_driver = linuxbridge
agent_mode = legacy
enable_metadata_proxy = false
EOF
    local n
    for ((n = 1; n <= COMPUTES; n++)); do linuxbridge "$n"; done
}

# linuxbridge N: the agent that connects the guests of a compute node.
linuxbridge() {
    cat >"$etc/linuxbridge$1.ini" <<EOF
[DEFAULT]
host = compute$1
state_path = $state/node$1/neutron
log_file = $log/linuxbridge$1.log
[oslo_concurrency]
lock_path = $state/node$1/lock
[linux_bridge]
physical_interface_mappings = provider:provider
[vxlan]
enable_vxlan = true
local_ip = 10.222.0.$1
l2_population = true
[agent]
prevent_arp_spoofing = true
polling_interval = 1
EOF
}

configure() {
    local n
    data_services
    keystone
    placement
    glance
    neutron
    "plugin_$shape"
    for ((n = 1; n <= COMPUTES; n++)); do
        nova "compute$n" "$([ "$n" = 1 ] && echo 127.0.0.1 || echo "10.222.0.$n")" "$state/node$n/nova" libvirt.LibvirtDriver
        libvirtd "$n"
    done
    for ((n = 1; n <= FAKES; n++)); do
        mkdir -p "$state/fake$n/instances"
        nova "fake$n" 127.0.0.1 "$state/fake$n" fake.FakeDriver
    done
}
