//! The one table of all variables of an env file; `env.sh.sample`, hints and checks follow it.

/// What one variable is.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub name: &'static str,
    /// Names of earlier generations that mean the same.
    pub aliases: &'static [&'static str],
    pub group: &'static str,
    /// As it would stand in an env file; empty when there is none.
    pub default: &'static str,
    pub doc: &'static str,
    pub kind: Kind,
    /// Never shown; may also be given as `<name>_file`.
    pub secret: bool,
    pub status: Status,
}

/// What a value must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// `true` or `false`.
    Switch,
    Count,
    /// Mebibytes, a plain number.
    Mib,
    /// Gibibytes, a plain number.
    Gib,
    Path,
    Ip,
    Mac,
    /// An IPv4 network such as `10.0.0.0/24`.
    Network,
    /// Such as `600` (seconds), `10m` or `1h30m`.
    Duration,
    Choice(&'static [&'static str]),
    /// Several, separated by commas or spaces.
    List(&'static Kind),
}

/// Whether a variable does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Used,
    /// Accepted from old env files; the reason in words is shown when it is set.
    NoEffect(&'static str),
}

/// Groups in the order of `env.sh.sample`.
pub const GROUPS: [&str; 9] = [
    CLUSTER,
    PLATFORM,
    SIZES,
    ADDRESSES,
    NETWORKS,
    IMAGES,
    ACCESS,
    WAITING,
    WITHOUT_EFFECT,
];

const CLUSTER: &str = "cluster";
const PLATFORM: &str = "platform";
const SIZES: &str = "sizes";
const ADDRESSES: &str = "addresses";
const NETWORKS: &str = "networks inside the cluster";
const IMAGES: &str = "images and installer";
const ACCESS: &str = "access and trust";
const WAITING: &str = "waiting";
const WITHOUT_EFFECT: &str = "accepted from old env files, without effect";

/// Settings with a flag of their own; all others are given by `--set`.
pub const OWN_FLAGS: [&str; 7] = [
    "backend",
    "cluster",
    "libvirt_uri",
    "masters",
    "network",
    "profile",
    "workers",
];

/// The variable of this name or alias. `<name>_file` leads to the secret `<name>`.
pub fn find(name: &str) -> Option<&'static Variable> {
    let named = |name: &str| VARIABLES.iter().find(|v| v.name == name || v.aliases.contains(&name));
    named(name).or_else(|| {
        name.strip_suffix("_file")
            .and_then(named)
            .filter(|variable| variable.secret)
    })
}

/// The known name that looks most like this one, when one does.
pub fn nearest(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    VARIABLES
        .iter()
        .flat_map(|variable| std::iter::once(&variable.name).chain(variable.aliases))
        .map(|known| (strsim::jaro_winkler(&lower, known), *known))
        .filter(|(likeness, _)| *likeness > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// A used variable with no alias; the struct update below changes the rest.
const fn used(
    group: &'static str,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Variable {
    Variable {
        name,
        aliases: &[],
        group,
        default,
        doc,
        kind,
        secret: false,
        status: Status::Used,
    }
}

const fn no_effect(name: &'static str, aliases: &'static [&'static str], reason: &'static str) -> Variable {
    Variable {
        aliases,
        status: Status::NoEffect(reason),
        ..used(WITHOUT_EFFECT, name, Kind::Text, "", reason)
    }
}

impl Variable {
    const fn or(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }
}

const BACKENDS: Kind = Kind::Choice(&["libvirt", "sim", "ovirt", "openstack", "kubevirt"]);

pub const VARIABLES: &[Variable] = &[
    used(
        CLUSTER,
        "cluster",
        Kind::Text,
        "",
        "Name of the cluster and prefix of its machines; required.",
    ),
    used(
        CLUSTER,
        "domain",
        Kind::Text,
        "",
        "Base domain; names end in <cluster>.<domain>; required.",
    ),
    used(
        CLUSTER,
        "profile",
        Kind::Text,
        "standard",
        "Named defaults: base, laptop, compact, standard, rook, bridge, or a folder of your own.",
    ),
    used(CLUSTER, "masters", Kind::Count, "3", "Number of masters: 1, 3 or 5."),
    used(
        CLUSTER,
        "workers",
        Kind::Count,
        "2",
        "Number of workers; 0 lets the masters do their work.",
    ),
    used(
        CLUSTER,
        "use_br",
        Kind::Switch,
        "false",
        "A bridge over the NIC of every node, for virtual machines on top: br-node; with OVN-Kubernetes its br-ex.",
    ),
    used(
        CLUSTER,
        "masters_schedulable",
        Kind::Switch,
        "false",
        "Pods of users run on masters too; without workers they always do.",
    )
    .or(&["ctlplane_schedulable"]),
    used(
        CLUSTER,
        "registry",
        Kind::Choice(&["emptydir", "removed"]),
        "emptydir",
        "Storage of the cluster's image registry: emptydir loses images with its pod, removed means no registry.",
    ),
    used(
        CLUSTER,
        "ntp_servers",
        Kind::List(&Kind::Text),
        "",
        "Time servers of the nodes, in place of CoreOS's own.",
    )
    .or(&["ntp_server"]),
    used(
        CLUSTER,
        "fips",
        Kind::Switch,
        "false",
        "Cryptography by FIPS 140 on the nodes; the computer that runs openshift-install must be in that mode, too.",
    ),
    used(
        CLUSTER,
        "capabilities",
        Kind::Text,
        "",
        "Set of optional parts to begin with: None, vCurrent, v4.19, …",
    ),
    used(
        CLUSTER,
        "additional_capabilities",
        Kind::List(&Kind::Text),
        "",
        "Optional parts besides that set, such as Console or marketplace.",
    ),
    used(
        CLUSTER,
        "manifests",
        Kind::Path,
        "",
        "Folder with manifests of your own, added to the installer's.",
    ),
    used(
        CLUSTER,
        "ignition_extra",
        Kind::List(&Kind::Path),
        "",
        "Ignition configs of your own for the nodes; worker:FILE is for workers only, likewise master: and bootstrap:.",
    ),
    // Platform.
    used(
        PLATFORM,
        "backend",
        BACKENDS,
        "libvirt",
        "The platform: libvirt, ovirt, openstack, kubevirt, or sim, a pretend one in a file.",
    )
    .or(&["master_backend"]),
    used(
        PLATFORM,
        "network",
        Kind::Text,
        "default",
        "Network of the first NIC of every machine, in both passes.",
    ),
    used(
        PLATFORM,
        "worker_backend",
        BACKENDS,
        "",
        "Platform of the workers, when not backend; both must reach the machine network.",
    ),
    used(
        PLATFORM,
        "worker_network",
        Kind::Text,
        "",
        "The machine network's name on worker_backend; required with it.",
    ),
    used(
        PLATFORM,
        "extra_networks",
        Kind::List(&Kind::Text),
        "",
        "Networks of further NICs of the nodes.",
    ),
    used(
        PLATFORM,
        "autostart",
        Kind::Switch,
        "false",
        "Nodes start with their host.",
    ),
    used(
        PLATFORM,
        "workers_when",
        Kind::Choice(&["now", "ready"]),
        "now",
        "When the workers' machines are made: now, with all others, or when the masters are ready.",
    ),
    used(
        PLATFORM,
        "keep_bootstrap",
        Kind::Switch,
        "false",
        "The bootstrap machine stays after its work, to be looked at; the next deploy without it removes it.",
    ),
    used(
        PLATFORM,
        "libvirt_uri",
        Kind::Text,
        "qemu:///system",
        "libvirt's URI; qemu+ssh://user@host/system works.",
    ),
    used(
        PLATFORM,
        "pool",
        Kind::Text,
        "default",
        "libvirt storage pool of all volumes.",
    ),
    used(
        PLATFORM,
        "virt_type",
        Kind::Choice(&["auto", "kvm", "qemu"]),
        "auto",
        "auto takes KVM where it works, kvm insists on it, qemu emulates.",
    ),
    used(
        PLATFORM,
        "os_cloud",
        Kind::Text,
        "",
        "OpenStack: a cloud of clouds.yaml, which holds who signs in; OS_* of the environment otherwise.",
    ),
    used(
        PLATFORM,
        "os_region",
        Kind::Text,
        "",
        "Its region; the one of clouds.yaml or OS_REGION_NAME when not given.",
    ),
    used(
        PLATFORM,
        "os_boot",
        Kind::Choice(&["image", "volume"]),
        "image",
        "Where servers' disks are: image, on the host, as large as the flavor says; volume, in block storage.",
    ),
    used(
        PLATFORM,
        "os_volume_type",
        Kind::Text,
        "",
        "Type of the volumes; the cloud's default when not given.",
    ),
    used(
        PLATFORM,
        "os_zone",
        Kind::Text,
        "",
        "Availability zone of the servers.",
    ),
    used(
        PLATFORM,
        "os_affinity",
        Kind::Choice(&["soft", "hard", "off"]),
        "soft",
        "Masters, and workers, on different hosts: soft where it can be, hard always, off not at all.",
    ),
    used(
        PLATFORM,
        "os_bootstrap_flavor",
        Kind::Text,
        "",
        "Flavor of the bootstrap, by name or id; the smallest that is large enough when not given.",
    ),
    used(
        PLATFORM,
        "os_master_flavor",
        Kind::Text,
        "",
        "Flavor of the masters, likewise.",
    ),
    used(
        PLATFORM,
        "os_worker_flavor",
        Kind::Text,
        "",
        "Flavor of the workers, likewise.",
    ),
    used(
        PLATFORM,
        "os_helper_flavor",
        Kind::Text,
        "",
        "Flavor of the pass-one machines of harvest=boot, likewise.",
    ),
    used(
        PLATFORM,
        "os_external_network",
        Kind::Text,
        "",
        "Network on which floating IPs for api_ip and ingress_ip are made; none are when not given.",
    ),
    used(
        PLATFORM,
        "os_api_floating_ip",
        Kind::Ip,
        "",
        "A floating IP of this project for api_ip, in place of a new one.",
    ),
    used(
        PLATFORM,
        "os_ingress_floating_ip",
        Kind::Ip,
        "",
        "A floating IP of this project for ingress_ip, in place of a new one.",
    ),
    used(
        PLATFORM,
        "os_ignition",
        Kind::Choice(&["auto", "glance", "swift"]),
        "auto",
        "Where the bootstrap fetches its config: glance, a private image; swift, an object; auto, the first that takes it.",
    ),
    used(
        PLATFORM,
        "os_image_import",
        Kind::Switch,
        "false",
        "true: Glance itself fetches an image that is given by URL, and #sha512=… behind it is compared.",
    ),
    used(
        PLATFORM,
        "kubeconfig",
        Kind::Path,
        "",
        "Kubeconfig of the Kubernetes with KubeVirt; what kubectl would use when not set.",
    ),
    used(
        PLATFORM,
        "kube_context",
        Kind::Text,
        "",
        "Context of the kubeconfig; its current one when not set.",
    ),
    used(
        PLATFORM,
        "kubevirt_insecure",
        Kind::Switch,
        "false",
        "Ask the API server also over http, or with insecure-skip-tls-verify in the kubeconfig: anybody on the way gets the token.",
    ),
    used(
        PLATFORM,
        "namespace",
        Kind::Text,
        "",
        "Namespace of all machines on KubeVirt; the context's when not set.",
    ),
    used(
        PLATFORM,
        "storage_class",
        Kind::Text,
        "",
        "Storage class of all volumes on KubeVirt; the default one when not set.",
    ),
    used(
        PLATFORM,
        "upload_proxy",
        Kind::Text,
        "",
        "URL of CDI's upload proxy on KubeVirt, where CDI does not tell it to you.",
    ),
    used(
        PLATFORM,
        "upload_ca",
        Kind::Path,
        "",
        "PEM file of what signed the upload proxy's certificate.",
    ),
    used(
        PLATFORM,
        "kubevirt_affinity",
        Kind::Choice(&["soft", "hard", "off"]),
        "soft",
        "Masters, and workers, on different hosts: soft where it can be, hard always, off not at all.",
    ),
    used(
        PLATFORM,
        "make_namespace",
        Kind::Switch,
        "false",
        "Makes `namespace` on KubeVirt where it is not there; it goes with the last cluster in it.",
    ),
    used(
        PLATFORM,
        "expose",
        Kind::Choice(&["auto", "loadbalancer", "nodeport", "clusterip"]),
        "auto",
        "With network=pod, how api and ingress are seen from outside: auto takes the first that the platform offers.",
    ),
    used(
        PLATFORM,
        "node_address",
        Kind::Ip,
        "",
        "An address of the platform's nodes, where its node ports are reached; needed where you may not list nodes.",
    ),
    used(
        PLATFORM,
        "pod_networks",
        Kind::List(&Kind::Network),
        "",
        "Ranges of the platform's pods, none of which are let in; needed where you may not read them.",
    ),
    used(
        PLATFORM,
        "admit",
        Kind::List(&Kind::Network),
        "0.0.0.0/0",
        "With network=pod, who outside of the platform's pods may come in to api and ingress.",
    ),
    used(
        PLATFORM,
        "routes",
        Kind::Choice(&["auto", "wildcard", "names", "off"]),
        "auto",
        "With network=pod, Routes of the platform to ingress: one for all names, one for each of route_names, or none.",
    ),
    used(
        PLATFORM,
        "route_names",
        Kind::List(&Kind::Text),
        "console-openshift-console,oauth-openshift",
        "Names beneath apps that have a Route each where none for all is allowed.",
    ),
    used(
        PLATFORM,
        "ovirt_url",
        Kind::Text,
        "",
        "oVirt's engine by the name in its certificate, such as https://engine.example.com/ovirt-engine; required on oVirt.",
    ),
    used(
        PLATFORM,
        "ovirt_user",
        Kind::Text,
        "admin@internal",
        "User of the engine, with its profile.",
    ),
    used(
        PLATFORM,
        "ovirt_password",
        Kind::Text,
        "",
        "Its password, never stored; later commands read ovirt_password_file again, or OCPDEPLOY_OVIRT_PASSWORD.",
    )
    .secret(),
    used(
        PLATFORM,
        "ovirt_ca",
        Kind::Path,
        "",
        "PEM file of the engine's CA; only what it signed is trusted. Without it the system's CAs are.",
    ),
    used(
        PLATFORM,
        "ovirt_cluster",
        Kind::Text,
        "Default",
        "oVirt's cluster of hosts for all machines.",
    ),
    used(
        PLATFORM,
        "ovirt_storage_domain",
        Kind::Text,
        "",
        "Storage domain of images and extra disks; the data center's only one when not given.",
    ),
    used(
        PLATFORM,
        "ovirt_vnic_profile",
        Kind::Text,
        "",
        "vNIC profile of networks that have several; the one named like the network when not given.",
    ),
    used(
        PLATFORM,
        "ovirt_affinity",
        Kind::Choice(&["soft", "hard", "off"]),
        "soft",
        "Masters on different hosts: soft where it can be, hard always, off for fewer hosts than that.",
    ),
    used(
        PLATFORM,
        "ovirt_hosts",
        Kind::List(&Kind::Text),
        "",
        "Names of the only hosts on which machines may run; all of the cluster's when not given.",
    ),
    used(
        PLATFORM,
        "ovirt_worker_label",
        Kind::Text,
        "",
        "Affinity label that workers get: they run on the hosts that an administrator gave it to.",
    ),
    used(
        PLATFORM,
        "ovirt_clone",
        Kind::Switch,
        "false",
        "Disks are full copies of the template's, rather than thin layers upon it.",
    ),
    used(
        PLATFORM,
        "ovirt_ignition",
        Kind::Choice(&["auto", "hook"]),
        "auto",
        "How Ignition reaches machines: auto from engine 4.3.4 on; hook for a hook on the hosts that reads `ignitiondata`.",
    ),
    used(
        PLATFORM,
        "sim_state",
        Kind::Path,
        "$OCPDEPLOY_HOME/sim.json",
        "File that holds the pretend platform of backend=sim.",
    ),
    // Sizes.
    used(
        SIZES,
        "master_memory",
        Kind::Mib,
        "16384",
        "Memory of each master, MiB.",
    ),
    used(SIZES, "worker_memory", Kind::Mib, "8192", "Memory of each worker, MiB."),
    used(
        SIZES,
        "bootstrap_memory",
        Kind::Mib,
        "16384",
        "Memory of the bootstrap, MiB.",
    ),
    used(
        SIZES,
        "helper_memory",
        Kind::Mib,
        "2048",
        "Memory of each pass-one machine, MiB.",
    )
    .or(&["haproxy_memory"]),
    used(
        SIZES,
        "numcpus",
        Kind::Count,
        "4",
        "Virtual CPUs of each master and worker.",
    ),
    used(
        SIZES,
        "bootstrap_numcpus",
        Kind::Count,
        "4",
        "Virtual CPUs of the bootstrap.",
    ),
    used(
        SIZES,
        "helper_numcpus",
        Kind::Count,
        "1",
        "Virtual CPUs of each pass-one machine.",
    ),
    used(SIZES, "disk_size", Kind::Gib, "100", "System disk of every node, GiB."),
    used(
        SIZES,
        "helper_disk_size",
        Kind::Gib,
        "10",
        "System disk of each pass-one machine, GiB.",
    ),
    used(
        SIZES,
        "extra_disk",
        Kind::Switch,
        "false",
        "A second, empty disk on masters and workers.",
    ),
    used(SIZES, "extra_disk_size", Kind::Gib, "10", "Size of that disk, GiB."),
    used(
        SIZES,
        "extra_disks",
        Kind::List(&Kind::Gib),
        "",
        "Sizes of any number of empty disks on masters and workers, GiB, in place of extra_disk.",
    ),
    // Addresses.
    used(
        ADDRESSES,
        "harvest",
        Kind::Choice(&["boot", "reserve", "static"]),
        "boot",
        "How pass one learns addresses: boot machines, let the platform reserve, or static from this file.",
    ),
    used(
        ADDRESSES,
        "api_ip",
        Kind::Ip,
        "",
        "VIP of the API; harvested when not given.",
    ),
    used(
        ADDRESSES,
        "ingress_ip",
        Kind::Ip,
        "",
        "VIP of the routers; harvested when not given.",
    ),
    used(
        ADDRESSES,
        "machine_network",
        Kind::Network,
        "",
        "The network of the nodes; read from the platform when not given.",
    ),
    used(
        ADDRESSES,
        "virtual_router_id",
        Kind::Count,
        "",
        "VRRP id of api_ip, 1 to 255; a free one is taken when not given.",
    ),
    used(
        ADDRESSES,
        "dns",
        Kind::Choice(&["dnsmasq", "coredns", "user"]),
        "dnsmasq",
        "Who answers for the cluster's names on the nodes: the host's dnsmasq, the release's coredns, or your own DNS.",
    ),
    used(
        ADDRESSES,
        "lb",
        Kind::Choice(&["keepalived", "user", "platform"]),
        "keepalived",
        "Who brings requests to the nodes: the nodes themselves, a load balancer of yours that has api_ip and ingress_ip, or the platform's own (network=pod).",
    ),
    used(
        ADDRESSES,
        "dhcp",
        Kind::Choice(&["platform", "user"]),
        "platform",
        "Who keeps the addresses: the platform where it can, or a DHCP server of yours, see `ocpdeploy export dhcp`.",
    ),
    used(ADDRESSES, "bootstrap_mac", Kind::Mac, "", "MAC of the bootstrap."),
    used(ADDRESSES, "bootstrap_ip", Kind::Ip, "", "Address of the bootstrap."),
    used(
        ADDRESSES,
        "master_macs",
        Kind::List(&Kind::Mac),
        "",
        "MACs of the masters, in order.",
    ),
    used(
        ADDRESSES,
        "master_ips",
        Kind::List(&Kind::Ip),
        "",
        "Addresses of the masters, in order.",
    ),
    used(
        ADDRESSES,
        "worker_macs",
        Kind::List(&Kind::Mac),
        "",
        "MACs of the workers, in order.",
    ),
    used(
        ADDRESSES,
        "worker_ips",
        Kind::List(&Kind::Ip),
        "",
        "Addresses of the workers, in order.",
    ),
    // Networks inside the cluster.
    used(
        NETWORKS,
        "network_type",
        Kind::Text,
        "OVNKubernetes",
        "The network plugin.",
    ),
    used(
        NETWORKS,
        "cluster_network",
        Kind::Network,
        "10.128.0.0/14",
        "Network of the pods.",
    ),
    used(
        NETWORKS,
        "cluster_host_prefix",
        Kind::Count,
        "23",
        "Prefix length of the part of it that one node gets.",
    ),
    used(
        NETWORKS,
        "service_network",
        Kind::Network,
        "172.30.0.0/16",
        "Network of the services.",
    ),
    // Images and installer.
    used(
        IMAGES,
        "images_dir",
        Kind::Path,
        "$OCPDEPLOY_HOME/images",
        "Folder of images, and of a rehearsal's coreos.qcow2 and helper.qcow2.",
    ),
    used(
        IMAGES,
        "image",
        Kind::Text,
        "auto",
        "CoreOS image: auto is $images_dir/rhcos.qcow2 if there, else the release's own; a URL, a file if it has a /, else a name on the platform.",
    )
    .or(&["template"]),
    used(
        IMAGES,
        "helper_image",
        Kind::Text,
        "auto",
        "Image of the pass-one machines with cloud-init: auto is $images_dir/centos.qcow2 or centos9stream, or as image, or a name that `ocpdeploy image list` shows.",
    )
    .or(&["helper_template"]),
    used(
        IMAGES,
        "worker_image",
        Kind::Text,
        "auto",
        "As image, on worker_backend.",
    ),
    used(
        IMAGES,
        "worker_helper_image",
        Kind::Text,
        "auto",
        "As helper_image, on worker_backend.",
    ),
    used(
        IMAGES,
        "installer",
        Kind::Path,
        "",
        "Path of openshift-install; when not given, the cluster's, one fetched for version, or the one in PATH.",
    ),
    used(
        IMAGES,
        "version",
        Kind::Text,
        "",
        "Release to fetch openshift-install and oc of: stable, candidate, nightly, okd, 4.N or 4.N.Z; not given, nothing is fetched.",
    ),
    used(
        IMAGES,
        "mirror",
        Kind::Text,
        "",
        "URL of your mirror of openshift-install: the folder that holds ocp/<version>/, with sha256sum.txt; for okd the releases' URL.",
    ),
    used(
        IMAGES,
        "mirror_key",
        Kind::Path,
        "",
        "Public keys (OpenPGP) of who signs the mirror's sha256sum.txt as sha256sum.txt.gpg or .asc; Red Hat's when not set.",
    ),
    used(
        IMAGES,
        "mirror_sha256",
        Kind::Text,
        "",
        "sha256 of the mirror's sha256sum.txt, which then needs neither a signature nor https.",
    ),
    used(
        IMAGES,
        "mirror_insecure",
        Kind::Switch,
        "false",
        "Runs programs of a mirror without signature or https: whoever can change them there, or on the way, runs them here.",
    ),
    used(
        IMAGES,
        "image_mirror",
        Kind::Text,
        "",
        "URL of a folder with images under the names that they are published by.",
    ),
    used(
        IMAGES,
        "cache",
        Kind::Path,
        "${XDG_CACHE_HOME:-$HOME/.cache}/ocpdeploy",
        "Folder of what was downloaded; one that several users may write is shared by them.",
    ),
    used(
        IMAGES,
        "mcs",
        Kind::Choice(&["auto", "tls", "embed", "http"]),
        "auto",
        "How nodes get their configuration: tls (needs a DNS that resolves api-int), embed (within Ignition), http (never by auto).",
    ),
    // Access and trust.
    used(
        ACCESS,
        "pull_secret",
        Kind::Text,
        "openshift_pull.json",
        "File of the pull secret, or the JSON itself in quotes.",
    )
    .or(&["pullsecret", "PULL_SECRET"])
    .secret(),
    used(
        ACCESS,
        "pub_key",
        Kind::Path,
        "~/.ssh/id_ed25519.pub",
        "File of the SSH public key of user core.",
    )
    .or(&["pubkey"]),
    used(
        ACCESS,
        "keys",
        Kind::List(&Kind::Path),
        "",
        "Files of further SSH public keys.",
    ),
    used(
        ACCESS,
        "ca",
        Kind::Path,
        "",
        "PEM file of certificates that the cluster shall trust.",
    ),
    used(
        ACCESS,
        "http_proxy",
        Kind::Text,
        "",
        "Proxy of the nodes for http, such as http://proxy.example.com:3128.",
    ),
    used(
        ACCESS,
        "https_proxy",
        Kind::Text,
        "",
        "Proxy of the nodes for https; its own URL may well begin with http.",
    ),
    used(
        ACCESS,
        "no_proxy",
        Kind::List(&Kind::Text),
        "",
        "Hosts, .domains and networks that the nodes reach without it, besides the cluster's own.",
    ),
    used(
        ACCESS,
        "registry_mirrors",
        Kind::List(&Kind::Text),
        "",
        "Mirrors of registries, SOURCE=MIRROR each; a source may stand several times.",
    ),
    // Waiting.
    used(
        WAITING,
        "harvest_timeout",
        Kind::Duration,
        "10m",
        "Until every pass-one machine has an address.",
    ),
    used(
        WAITING,
        "address_timeout",
        Kind::Duration,
        "15m",
        "Until each node is seen with its planned address.",
    ),
    used(
        WAITING,
        "launch_timeout",
        Kind::Duration,
        "10m",
        "A machine that goes down sooner after its start, while it is waited for, is started again.",
    ),
    used(
        WAITING,
        "launch_retries",
        Kind::Count,
        "2",
        "How often that is done, on another host where the platform allows.",
    ),
    used(
        WAITING,
        "bootstrap_timeout",
        Kind::Duration,
        "60m",
        "Until the bootstrap has done its work.",
    ),
    used(
        WAITING,
        "install_timeout",
        Kind::Duration,
        "60m",
        "From then until the cluster is installed.",
    ),
    used(
        WAITING,
        "platform_timeout",
        Kind::Duration,
        "2m",
        "For how long a platform that stops answering is asked again; 0s: never.",
    ),
    used(
        WAITING,
        "mirror_timeout",
        Kind::Duration,
        "20s",
        "For how long a mirror that does not answer is asked which version it has.",
    ),
    // Without effect.
    no_effect(
        "api_internal",
        &[],
        "there are no internal and external APIs apart; one VIP serves both",
    ),
    no_effect(
        "bootstrap_api_ip",
        &[],
        "floating IPs exist on OpenStack only, see os_api_floating_ip",
    ),
    no_effect("bootstrap_helper_ip", &[], "no helper serves the bootstrap"),
    no_effect("bootstrap_helper_mac", &[], "no helper serves the bootstrap"),
    no_effect("cpupinning", &[], "pinning is not in this version yet"),
    no_effect(
        "deploy_bootstrap",
        &[],
        "a cluster is never deployed without a bootstrap",
    ),
    no_effect("dhcp_dns", &[], "no DHCP server is made; the network's own is used"),
    no_effect("dhcp_gateway", &[], "no DHCP server is made; the network's own is used"),
    no_effect("dhcp_ip", &[], "no DHCP server is made; the network's own is used"),
    no_effect("dhcp_netmask", &[], "no DHCP server is made; the network's own is used"),
    no_effect("dns_ip", &[], "every node answers for the cluster's names itself"),
    no_effect(
        "force",
        &[],
        "the same command again continues",
    ),
    no_effect(
        "haproxy_bootstrap",
        &[],
        "the platform itself carries Ignition to the bootstrap",
    ),
    no_effect(
        "helper_dedicated",
        &["dedicated_helper"],
        "the nodes hold the VIPs; no helper stays",
    ),
    no_effect("helper_sleep", &[], "addresses are waited for, see harvest_timeout"),
    no_effect("macosx", &[], "openshift-install is for this computer, see installer"),
    no_effect("numa", &[], "NUMA placement is not in this version yet"),
    no_effect("numamode", &[], "NUMA placement is not in this version yet"),
    no_effect("pcidevices", &[], "PCI devices are not in this version yet"),
    no_effect("prefix", &[], "machines are named after cluster"),
    no_effect(
        "public_api_ip",
        &[],
        "floating IPs exist on OpenStack only, see os_api_floating_ip",
    ),
    no_effect("scale", &[], "`ocpdeploy scale` changes the number of workers"),
    no_effect(
        "tag",
        &[],
        "everything made is tagged with <cluster>.<domain>; for the release there is version",
    ),
    no_effect(
        "OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE",
        &["OPENSHIFT_RELEASE_IMAGE"],
        "openshift-install reads it from the environment of ocpdeploy, not from an env file",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_and_alias_stands_once() {
        let mut names: Vec<&str> = VARIABLES
            .iter()
            .flat_map(|variable| std::iter::once(&variable.name).chain(variable.aliases))
            .copied()
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn groups_are_whole_and_in_order() {
        let mut seen: Vec<&str> = VARIABLES.iter().map(|variable| variable.group).collect();
        seen.dedup();
        assert_eq!(seen, GROUPS);
    }

    #[test]
    fn a_typo_finds_its_neighbour_and_noise_finds_nothing() {
        for (typo, meant) in [
            ("workrs", Some("workers")),
            ("Masters", Some("masters")),
            ("master_memroy", Some("master_memory")),
            ("apiip", Some("api_ip")),
            ("xyzzy", None),
            ("PATH", None),
        ] {
            assert_eq!(nearest(typo), meant, "{typo}");
        }
    }

    #[test]
    fn only_a_secret_comes_from_a_file_by_suffix() {
        assert_eq!(
            find("pull_secret_file").map(|variable| variable.name),
            Some("pull_secret")
        );
        assert!(find("cluster_file").is_none());
    }
}
