//! The table of all settings. `env.sh.sample`, the reference, `ocpdeploy init` and all checks follow it.
//!
//! One entry is its help as a doc comment, then `name | alias: Kind = default;`. The help is plain text, not Markdown.
//! `Choice<T>` takes its choices from the enum `T`. `reached by` lists what a connection to the platform requires.

use super::choices::choices;
use super::entry::{Group, Kind, Variable};
use crate::cluster::{
    AccessMode, Affinity, Architecture, BackendConfig, CacheUse, Dhcp, DiskCache, Dns, Eviction, Expose, Harvest, Lb,
    Mcs, OsBoot, OsIgnition, Registry, Routes, VirtType, VolumeMode, WorkersWhen,
};

macro_rules! kind {
    (List $item:ident) => {
        Kind::List(&Kind::$item)
    };
    (PerPool $item:ident) => {
        Kind::PerPool(&Kind::$item)
    };
    (Choice $names:ident) => {
        Kind::Choice(choices::<$names>)
    };
    ($kind:ident) => {
        Kind::$kind
    };
}

macro_rules! platform {
    (all) => {
        None
    };
    ($name:ident) => {
        Some(stringify!($name))
    };
}

/// Generates `VARIABLES`, `GROUPS` and `CONNECTIONS`.
macro_rules! settings {
    (
        $($title:literal on $platform:ident $(reached by [$($connection:ident),+])? {
            $(
                $(#[doc = $help:literal])+
                $name:ident $(| $alias:ident)*: $kind:ident $(<$of:ident>)? $(= $default:literal)?;
            )*
        })*
    ) => {
        /// Every setting, in the order of `GROUPS`.
        pub const VARIABLES: &[Variable] = &[
            $($(Variable {
                name: stringify!($name),
                aliases: &[$(stringify!($alias)),*],
                group: Group { title: $title, platform: platform!($platform) },
                kind: kind!($kind $($of)?),
                default: concat!($($default)?),
                doc: concat!($($help),+).trim_ascii(),
            },)*)*
        ];

        /// Groups in the order of `env.sh.sample`.
        pub const GROUPS: &[Group] = &[
            $(Group { title: $title, platform: platform!($platform) },)*
        ];

        /// For each platform, the settings that a connection to it requires, in the order of the questions of
        /// `ocpdeploy init`.
        pub const CONNECTIONS: &[(&str, &[&str])] = &[
            $($((stringify!($platform), &[$(stringify!($connection)),+]),)?)*
        ];
    };
}

settings! {
    "cluster" on all {
        /// Cluster name, also the prefix of the machine names. Required.
        cluster: Text;
        /// Base domain. Host names end in <cluster>.<domain>. Required.
        domain: Text;
        /// Named set of defaults: base, laptop, compact, standard, rook, bridge, or the path of a profile directory.
        profile: Text = "standard";
        /// Number of masters (control plane nodes): 1, 3 or 5, or 2 with arbiter=1.
        masters: Count = 3;
        /// 1: add an arbiter, a small third member of etcd, to two masters. Requires masters=2 and OpenShift 4.22.
        arbiter: Count = 0;
        /// Number of workers. With 0, the masters also run user workloads.
        workers: Count = 2;
        /// Create a bridge on the first NIC of each node, to connect virtual machines that run on the nodes.
        /// With OVN-Kubernetes it is br-ex, otherwise br-node.
        use_br: Switch = false;
        /// Schedule user workloads on masters. Always on without workers.
        masters_schedulable: Switch = false;
        /// Storage of the internal image registry. emptydir: images are lost with the registry pod. removed: no
        /// registry.
        registry: Choice<Registry> = "emptydir";
        /// NTP servers of the nodes. Default: those of CoreOS.
        ntp_servers: List<Text>;
        /// Enable FIPS 140 mode on the nodes. From 4.16, this requires openshift-install-fips on a computer in FIPS mode.
        fips: Switch = false;
        /// Baseline capability set of OpenShift: None, vCurrent, or a version from v4.11 to v4.18.
        capabilities: Text;
        /// Capabilities to enable in addition to the baseline set, such as Console. From 4.16, None requires Ingress.
        additional_capabilities: List<Text>;
        /// Directory of additional manifests, added to those of the installer.
        manifests: Path;
        /// Additional Ignition configs for the nodes. The prefix worker:, master:, arbiter: or bootstrap: limits a file to
        /// one role.
        ignition_extra: List<Path>;
        /// Connections of the nodes, such as bonds and VLANs, as nmstate YAML. In these files, nic0 is the NIC in network,
        /// nic1 and so on those in extra_networks. The prefix worker:, master:, arbiter:, bootstrap: or that of one node,
        /// such as worker-0:, limits a file; the most specific file of a node is used.
        network_config: List<Path>;
    }
    "platform" on all {
        /// Platform to deploy on: libvirt, ovirt, openstack, kubevirt, or sim (simulated, stored in a file).
        backend: Choice<BackendConfig> = "libvirt";
        /// Architecture of the machines. Default: that of this computer if libvirt_uri is local, otherwise x86_64.
        arch: Choice<Architecture> = "x86_64";
        /// Network of the first NIC of every machine, in both passes.
        network: Text = "default";
        /// Platform of the workers, if different from backend. It must reach the same machine network.
        worker_backend: Choice<BackendConfig>;
        /// Name of the machine network on worker_backend or libvirt_worker_uri. Required with either.
        worker_network: Text;
        /// Names of the pools on worker_backend, and `worker` for the workers outside of pools. The others are on the
        /// masters' platform. Default: all workers are on worker_backend.
        worker_backend_for: List<Text>;
        /// Networks of additional NICs of the nodes.
        extra_networks: List<Text>;
        /// Start the nodes when their host starts. Not available on OpenStack.
        autostart: Switch = false;
        /// When to create the workers. now: with all other machines. ready: when the control plane is ready.
        workers_when: Choice<WorkersWhen> = "now";
        /// Keep the bootstrap machine after the installation, for debugging.
        /// The next deploy without this setting removes it.
        keep_bootstrap: Switch = false;
    }
    "libvirt" on libvirt reached by [libvirt_uri] {
        /// libvirt connection URI. Remote hosts: qemu+ssh://user@host/system.
        libvirt_uri: Text = "qemu:///system";
        /// Storage pool of all volumes.
        libvirt_storage_pool: Text = "default";
        /// libvirt connection URI of the workers' host, if different from libvirt_uri. Requires worker_network.
        libvirt_worker_uri: Text;
        /// Storage pool on the workers' host. Default: the value of libvirt_storage_pool.
        libvirt_worker_storage_pool: Text;
        /// Virtualization type. auto: KVM if available. kvm: require KVM. qemu: emulate the CPU.
        libvirt_virt_type: Choice<VirtType> = "auto";
        /// Cache of the machines' disks on the host. default: that of the hypervisor. none: no cache. unsafe: fast, because
        /// flushes are ignored; a crash of the host can destroy the disks.
        libvirt_disk_cache: Choice<DiskCache> = "default";
    }
    "OpenStack" on openstack reached by [os_cloud] {
        /// Cloud of clouds.yaml, which contains the credentials. Default: the OS_* environment variables.
        os_cloud: Text;
        /// Region. Default: the region of clouds.yaml or OS_REGION_NAME.
        os_region: Text;
        /// Allow plain http for auth_url and the services.
        /// Anyone on the network path can then read the password and the token.
        os_insecure: Switch = false;
        /// Boot disk of the servers. image: local disk of the host, as large as the flavor says. volume: block storage.
        os_boot: Choice<OsBoot> = "image";
        /// Volume type. Default: the default type of the cloud.
        os_volume_type: Text;
        /// Availability zones of the servers, separated by commas. Masters are distributed over them in turn, and so are
        /// workers.
        os_zone: Text;
        /// Availability zones of the volumes: one, or as many as in os_zone. Default: the default zone of block storage.
        os_volume_zone: Text;
        /// How long the creation of a volume may take. Block storage may copy the whole image.
        os_volume_timeout: Duration = "30m";
        /// Spread the masters and the arbiter over different hosts, and likewise the workers. soft: if possible. hard:
        /// required. off: not at all.
        os_affinity: Choice<Affinity> = "soft";
        /// Flavor of the bootstrap machine, by name or ID. Default: the smallest flavor that is large enough.
        os_bootstrap_flavor: Text;
        /// Flavor of the masters, by name or ID. Default: the smallest flavor that is large enough.
        os_master_flavor: Text;
        /// Flavor of the arbiter, by name or ID. Default: the smallest flavor that is large enough.
        os_arbiter_flavor: Text;
        /// Flavor of the workers, by name or ID. Default: the smallest flavor that is large enough.
        os_worker_flavor: Text;
        /// Flavors of pools, by name or ID. Default: the smallest flavor that is large enough.
        os_pool_flavors: PerPool<Text>;
        /// Flavor of the pass-one machines with harvest=boot, by name or ID.
        /// Default: the smallest flavor that is large enough.
        os_harvest_flavor: Text;
        /// External network on which to create floating IPs for api_ip and ingress_ip. Default: no floating IPs.
        os_external_network: Text;
        /// Existing floating IP of this project for api_ip, instead of a new one.
        os_api_floating_ip: Ipv4;
        /// Existing floating IP of this project for ingress_ip, instead of a new one.
        os_ingress_floating_ip: Ipv4;
        /// Octavia provider with lb=platform, e.g. amphora or ovn. Default: the default provider of the cloud.
        os_lb_provider: Text;
        /// Networks that may reach SSH and node ports of the nodes, besides the machine network and this computer.
        /// IPv6 networks require two address families.
        os_admit: List<Network>;
        /// Address from which the cloud sees this computer, if it is behind NAT. It may reach SSH, node ports and the
        /// machine config server of the nodes.
        os_client_ip: Ip;
        /// Where to store Ignition configs that machines fetch. glance: a private image. swift: an
        /// object. auto: the first of these that accepts it.
        os_ignition: Choice<OsIgnition> = "auto";
        /// Let Glance download an image that is given by URL. A #sha512=... at the end of the URL is verified.
        os_image_import: Switch = false;
    }
    "KubeVirt" on kubevirt reached by [kubevirt_kubeconfig, kubevirt_context] {
        /// Kubeconfig of the Kubernetes cluster that runs KubeVirt. Default: the one that kubectl uses.
        kubevirt_kubeconfig: Path;
        /// Kubeconfig context. Default: the current context.
        kubevirt_context: Text;
        /// Allow plain http and insecure-skip-tls-verify in the kubeconfig.
        /// Anyone on the network path can then read the token.
        kubevirt_insecure: Switch = false;
        /// Namespace of all machines. Default: the namespace of the context.
        kubevirt_namespace: Text;
        /// Storage class of all volumes. Default: the default storage class.
        kubevirt_storage_class: Text;
        /// Access mode of all volumes. Default: that of the storage class's StorageProfile.
        /// ReadWriteMany allows machines to move to another host while they run.
        kubevirt_access_mode: Choice<AccessMode>;
        /// Volume mode of all volumes. Default: that of the storage class's StorageProfile.
        kubevirt_volume_mode: Choice<VolumeMode>;
        /// URL of the CDI upload proxy. Required if you cannot read it from the CDI configuration.
        kubevirt_upload_proxy: Text;
        /// PEM file of the CA that signed the certificate of the upload proxy.
        kubevirt_upload_ca: Path;
        /// Spread the masters and the arbiter over different hosts, and likewise the workers. soft: if possible. hard:
        /// required. off: not at all.
        kubevirt_affinity: Choice<Affinity> = "soft";
        /// What happens to machines when their host is drained. LiveMigrateIfPossible: they move to another host if their
        /// volumes allow this, otherwise they shut down. LiveMigrate: a host cannot be drained while machines run on it that
        /// cannot move. None: they shut down.
        kubevirt_eviction_strategy: Choice<Eviction> = "LiveMigrateIfPossible";
        /// Create the namespace if it does not exist. It is deleted with the last cluster in it, unless it has other objects.
        kubevirt_make_namespace: Switch = false;
        /// With network=pod: how to expose the API and ingress outside the platform.
        /// auto: the first type that the platform supports.
        kubevirt_expose: Choice<Expose> = "auto";
        /// IP address of the platform's nodes for node ports. Required if you cannot list nodes.
        kubevirt_node_address: Ipv4;
        /// Pod networks of the platform; access from them is denied. Required if you cannot read them.
        kubevirt_pod_networks: List<Network>;
        /// With network=pod: networks outside the platform's pods that may access the API and ingress.
        kubevirt_admit: List<Network> = "0.0.0.0/0";
        /// With network=pod: Routes of the platform to the ingress. wildcard: one for all names. names: one for each of
        /// kubevirt_route_names. off: none.
        kubevirt_routes: Choice<Routes> = "auto";
        /// Names under apps that get a Route each if a wildcard Route is not allowed.
        kubevirt_route_names: List<Text> = "console-openshift-console,oauth-openshift";
    }
    "oVirt" on ovirt reached by [ovirt_url, ovirt_user, ovirt_password, ovirt_ca] {
        /// Engine URL with the host name of its certificate, such as https://engine.example.com/ovirt-engine.
        /// Required on oVirt.
        ovirt_url: Text;
        /// Engine user, with its authentication profile.
        ovirt_user: Text = "admin@internal";
        /// Password of the engine user. The state directory never has it: later commands read ovirt_password_file or
        /// OCPDEPLOY_OVIRT_PASSWORD.
        ovirt_password: Secret;
        /// PEM file of the engine's CA, the only CA to trust. Default: the CAs of this system.
        ovirt_ca: Path;
        /// oVirt cluster (of hosts) of all machines.
        ovirt_cluster: Text = "Default";
        /// Storage domain of images and additional disks. Default: the only one of the data center.
        ovirt_storage_domain: Text;
        /// vNIC profile for networks that have several. Default: the one with the name of the network.
        ovirt_vnic_profile: Text;
        /// Spread masters, with the arbiter, over different hosts. soft: if possible. hard: required. off: not at all.
        ovirt_affinity: Choice<Affinity> = "soft";
        /// Names of the hosts that may run the machines. Default: all hosts of the oVirt cluster.
        ovirt_hosts: List<Text>;
        /// Affinity label of the workers. They run on the hosts to which an administrator assigned this label. Clusters of
        /// compatibility 4.4 and later also require an affinity group of this label.
        ovirt_worker_label: Text;
        /// Create disks as full copies of the template, instead of thin layers on top of it.
        ovirt_clone: Switch = false;
    }
    "simulated platform" on sim reached by [sim_state] {
        /// File with the state of the simulated platform.
        sim_state: Path = "$OCPDEPLOY_HOME/sim.json";
    }
    "sizes" on all {
        /// Memory of each master in MiB.
        master_memory: Mib = 16384;
        /// Memory of the arbiter in MiB.
        arbiter_memory: Mib = 8192;
        /// Memory of each worker in MiB.
        worker_memory: Mib = 8192;
        /// Memory of the bootstrap machine in MiB.
        bootstrap_memory: Mib = 16384;
        /// Memory of each pass-one machine in MiB.
        harvest_memory: Mib = 2048;
        /// Virtual CPUs of each master and worker.
        numcpus: Count = 4;
        /// Virtual CPUs of each master. Default: the value of numcpus.
        master_numcpus: Count;
        /// Virtual CPUs of the arbiter.
        arbiter_numcpus: Count = 2;
        /// Virtual CPUs of each worker. Default: the value of numcpus.
        worker_numcpus: Count;
        /// Virtual CPUs of the bootstrap machine.
        bootstrap_numcpus: Count = 4;
        /// Virtual CPUs of each pass-one machine.
        harvest_numcpus: Count = 1;
        /// System disk of each node in GiB.
        disk_size: Gib = 100;
        /// System disk of each master in GiB. Default: the value of disk_size.
        master_disk_size: Gib;
        /// System disk of the arbiter in GiB.
        arbiter_disk_size: Gib = 50;
        /// System disk of each worker in GiB. Default: the value of disk_size.
        worker_disk_size: Gib;
        /// System disk of each pass-one machine in GiB.
        harvest_disk_size: Gib = 10;
        /// Sizes in GiB of empty disks to add to masters and workers.
        extra_disks: List<Gib>;
        /// Sizes in GiB of empty disks to add to workers. Default: those of extra_disks.
        worker_extra_disks: List<Gib>;
    }
    "node pools" on all {
        /// Groups of workers with their own names, sizes, labels and taints, as NAME:COUNT. For example, infra:2,gpu:1
        /// creates the nodes infra-0, infra-1 and gpu-0. A value that is not set for a pool is that of the other
        /// workers.
        pools: List<Text>;
        /// Architecture of a pool's nodes, such as arm:aarch64. Default: that of arch. Requires a release image for
        /// several architectures.
        pool_arch: PerPool<Text>;
        /// Memory of each node of a pool in MiB, such as infra:16384.
        pool_memory: PerPool<Mib>;
        /// Virtual CPUs of each node of a pool.
        pool_numcpus: PerPool<Count>;
        /// System disk of each node of a pool in GiB.
        pool_disk_size: PerPool<Gib>;
        /// Sizes in GiB of empty disks of a pool's nodes, such as infra:200,infra:200. 0: none.
        pool_extra_disks: PerPool<Gib>;
        /// Networks of additional NICs of a pool's nodes, in place of extra_networks.
        pool_extra_networks: PerPool<Text>;
        /// Labels of a pool's nodes as KEY=VALUE, besides node-role.kubernetes.io/POOL, which all of them have.
        pool_labels: PerPool<Text>;
        /// Taints of a pool's nodes as KEY=VALUE:EFFECT or KEY:EFFECT, such as
        /// infra:node-role.kubernetes.io/infra:NoSchedule.
        pool_taints: PerPool<Text>;
        /// Pools with a MachineConfigPool, so that a MachineConfig or KubeletConfig can apply to their nodes only.
        machine_config_pools: List<Text>;
        /// MAC addresses of a pool's nodes, in order.
        pool_macs: PerPool<Mac>;
        /// IP addresses of a pool's nodes, in order.
        pool_ips: PerPool<Ip>;
    }
    "addresses" on all {
        /// How pass one learns the IP addresses. boot: boot machines. reserve: the platform reserves addresses without a
        /// boot. static: the addresses in this file.
        harvest: Choice<Harvest> = "boot";
        /// Virtual IP of the API. Default: harvested. With two address families, its IPv6 address may follow.
        api_ip: Ips;
        /// Virtual IP of the ingress routers. Default: harvested. With two address families, its IPv6 address may follow.
        ingress_ip: Ips;
        /// Network of the nodes. Default: read from the platform. An IPv6 network after it, such as
        /// 192.168.122.0/24,fd00:1::/64, gives the cluster two address families. Requires libvirt or
        /// OpenStack. An IPv6 network alone requires libvirt and dhcp=none.
        machine_network: Networks;
        /// VRRP router ID of api_ip, 1 to 255. Default: an unused one.
        api_virtual_router_id: Count;
        /// DNS server on the nodes. dnsmasq: that of CoreOS. coredns: that of the release. user: your own DNS.
        dns: Choice<Dns> = "dnsmasq";
        /// Load balancer of api_ip and ingress_ip. keepalived: on the nodes. user: your own. platform: Octavia of
        /// OpenStack, or with network=pod Services of Kubernetes.
        lb: Choice<Lb> = "keepalived";
        /// Where addresses are reserved. platform: on the platform, if it supports reservations. user: on your own DHCP
        /// server, see `ocpdeploy export dhcp`. none: nowhere, because the network has no DHCP server; the nodes have
        /// static addresses.
        dhcp: Choice<Dhcp> = "platform";
        /// Gateway of the nodes with dhcp=none, and their IPv6 gateway with two address families. Default: read from the
        /// platform.
        gateway: Ips;
        /// DNS servers of the nodes' network with dhcp=none. Default: read from the platform.
        name_servers: List<Ip>;
        /// MTU of the nodes in network, such as 9000. The network must support it. With OVN-Kubernetes, the MTU of the pods
        /// is 100 less. Default: what the DHCP server or the platform offers, otherwise 1500.
        mtu: Count;
        /// DNS domains to search for short names on the nodes, besides that of the cluster. With dns=user, this requires
        /// dhcp=none.
        dns_search: List<Text>;
        /// Addresses to choose from, such as 10.0.0.20-10.0.0.60: those of api_ip and ingress_ip if they are not set, and
        /// with harvest=static or dhcp=none also those of the nodes.
        address_ranges: List<Range>;
        /// MAC address of the bootstrap machine.
        bootstrap_mac: Mac;
        /// IP address of the bootstrap machine.
        bootstrap_ip: Ip;
        /// MAC addresses of the masters, in order.
        master_macs: List<Mac>;
        /// IP addresses of the masters, in order.
        master_ips: List<Ip>;
        /// MAC address of the arbiter.
        arbiter_mac: Mac;
        /// IP address of the arbiter.
        arbiter_ip: Ip;
        /// MAC addresses of the workers, in order.
        worker_macs: List<Mac>;
        /// IP addresses of the workers, in order.
        worker_ips: List<Ip>;
    }
    "networks inside the cluster" on all {
        /// Network plugin.
        network_type: Text = "OVNKubernetes";
        /// Network that OVN-Kubernetes uses on every node in place of 100.64.0.0/16, if a network of yours overlaps with
        /// it. Requires 4.18.
        ovn_join_network: Network;
        /// Network of the pods. With two address families, the default is 10.128.0.0/14,fd01::/48;
        /// without IPv4 fd01::/48.
        cluster_network: Networks = "10.128.0.0/14";
        /// Prefix length of the subnet of cluster_network that each node gets. For IPv6 it is always 64.
        cluster_host_prefix: Count = 23;
        /// Network of the services. With two address families, the default is
        /// 172.30.0.0/16,fd02::/112; without IPv4 fd02::/112.
        service_network: Networks = "172.30.0.0/16";
    }
    "images and installer" on all {
        /// Directory of images. A rehearsal uses coreos.qcow2 and helper.qcow2 in it. The names of images for other
        /// architectures than x86_64 contain the architecture, such as rhcos-aarch64.qcow2.
        images_dir: Path = "$OCPDEPLOY_HOME/images";
        /// CoreOS image: a URL, a file (a path with a /), or the name of an image on the platform.
        /// auto: $images_dir/rhcos.qcow2 if it exists, otherwise the image of the release.
        image | template: Text = "auto";
        /// Cloud-init image of the pass-one machines: a value like that of image, or a name of `ocpdeploy image list`.
        /// auto: $images_dir/centos.qcow2 if it exists, otherwise centos9stream.
        harvest_image: Text = "auto";
        /// The same as image, for worker_backend.
        worker_image: Text = "auto";
        /// The same as harvest_image, for worker_backend.
        worker_harvest_image: Text = "auto";
        /// Path of openshift-install. Default: the one that the cluster already uses, otherwise the one downloaded for
        /// version, otherwise the one in PATH.
        installer: Path;
        /// Release of openshift-install and oc to download: stable, candidate, nightly, okd, okd-4.N, 4.N or
        /// 4.N.Z. Default: no download.
        version: Text;
        /// URL of a mirror of openshift-install: the directory that contains ocp/<version>/ with sha256sum.txt.
        /// For okd, the URL of the releases.
        installer_mirror: Text;
        /// OpenPGP public keys to verify the signature of the mirror's sha256sum.txt (.gpg or .asc).
        /// Also trusted for release images. Default: the keys of Red Hat.
        installer_mirror_key: Path;
        /// SHA-256 of the mirror's sha256sum.txt. With it, the mirror needs neither a signature nor https.
        installer_mirror_sha256: Text;
        /// Run programs from a mirror without a signature or without https.
        /// Anyone who can modify them on the mirror or on the network path can then run code on this computer.
        installer_mirror_insecure: Switch = false;
        /// URL with signatures of release images as sha256=<digest>/signature-1. Default: the vendor's.
        signature_store: Text;
        /// URL of a directory that contains images under their published file names.
        image_mirror: Text;
        /// Directory of downloaded files. It must belong to you, and only you may write to it.
        downloads_dir: Path = "${XDG_CACHE_HOME:-$HOME/.cache}/ocpdeploy";
        /// How nodes get their configuration from the machine config server. tls: requires a DNS that resolves api-int.
        /// embed: as part of their Ignition config. http: unencrypted. auto: tls or embed, never http.
        mcs: Choice<Mcs> = "auto";
    }
    "access and trust" on all {
        /// File of the pull secret, or the JSON text itself in quotes. OKD needs none.
        pull_secret | pullsecret: Secret = "openshift_pull.json";
        /// File of the SSH public key of the user core.
        pub_key | pubkey: Path = "~/.ssh/id_ed25519.pub";
        /// Files of additional SSH public keys.
        keys: List<Path>;
        /// PEM file of CA certificates that the cluster trusts.
        ca: Path;
        /// HTTP proxy of the nodes, such as http://proxy.example.com:3128.
        http_proxy: Text;
        /// HTTPS proxy of the nodes. Its own URL can begin with http.
        https_proxy: Text;
        /// Hosts, .domains and networks to access without a proxy, in addition to those of the cluster.
        no_proxy: List<Text>;
        /// Registry mirrors, each as SOURCE=MIRROR, as a file that oc-mirror wrote (idms-oc-mirror.yaml), or as its
        /// directory (working-dir/cluster-resources), whose mirrors of tags and signatures become manifests. A source
        /// can have several mirrors.
        registry_mirrors: List<Text>;
        /// Pull images through the registry cache of this computer. auto: if `ocpdeploy cache up` has started one; nodes
        /// pull from the source if it does not answer. off: never.
        registry_cache: Choice<CacheUse> = "auto";
        /// Stop after pass one if its machines cannot reach the registry, its mirrors or the proxy.
        egress_check: Switch = true;
    }
    "timeouts and retries" on all {
        /// Timeout until all pass-one machines have an address. On oVirt: 20m.
        harvest_timeout: Duration = "10m";
        /// Timeout until each node appears with its planned address.
        address_timeout: Duration = "15m";
        /// A machine that stops within this time after its start is started again while ocpdeploy waits for its address.
        /// While ocpdeploy waits for the cluster, a stopped machine is always started again.
        restart_window: Duration = "10m";
        /// Maximum number of such restarts of a machine in each wait, on another host if the platform supports it.
        restart_limit: Count = 2;
        /// Timeout until the bootstrap is complete.
        bootstrap_timeout: Duration = "60m";
        /// Timeout from then until the cluster is installed.
        install_timeout: Duration = "60m";
        /// How long to retry requests to a platform that does not respond. 0s: no retries.
        platform_timeout: Duration = "2m";
        /// How long to wait for a mirror that does not respond to a version query.
        installer_mirror_timeout: Duration = "20s";
    }
}
