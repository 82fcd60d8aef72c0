//! From env file, profile, environment and flags to one checked `ClusterConfig`.
//!
//! Precedence: flag, environment (`OCPDEPLOY_<NAME>`), env file, profile, default. All that is wrong is
//! reported at once, with its place. Files are read only through the functions that `Sources` brings.

mod access;
mod checks;
pub mod envfile;
mod libvirt_uri;
mod ovirt;
pub mod parse;
mod problem;
pub mod profile;
mod values;
pub mod variables;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::artifacts::catalogue;
use crate::cluster::{
    Affinity, BackendConfig, Capabilities, ClusterConfig, ClusterNetworks, Dhcp, Dns, Downloads, Expose,
    FragmentSource, GivenAddresses, Harvest, ImageSource, Insecure, InstallerChoice, KubevirtConfig, Launch, Lb,
    LibvirtConfig, Mcs, OpenStackConfig, OsBoot, OsFlavors, OsIgnition, PodNetwork, Registry, Routes, SimConfig, Size,
    Timeouts, VirtType, Wanted, WorkersOn, WorkersWhen,
};

pub use checks::image_url;
pub use problem::{Problem, SettingsError};
pub(crate) use values::ENVIRONMENT;
use values::Values;

/// All that settings are made of.
#[derive(Clone)]
pub struct Sources<'a> {
    /// The env file's path as the user wrote it, and its text.
    pub env_file: Option<(PathBuf, String)>,
    /// The whole environment of the process.
    pub environment: BTreeMap<String, String>,
    /// Values given on the command line, by the names of `variables`.
    pub flags: BTreeMap<String, String>,
    /// Where relative paths of flags and environment begin.
    pub current_dir: PathBuf,
    /// The state folder; `$OCPDEPLOY_HOME` in an env file.
    pub home: PathBuf,
    pub rehearse: bool,
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
    pub is_file: &'a dyn Fn(&Path) -> bool,
    pub is_dir: &'a dyn Fn(&Path) -> bool,
}

impl Sources<'_> {
    /// What `$name` is in an env file that does not set it.
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "OCPDEPLOY_HOME" => Some(self.home.display().to_string()),
            _ => self.environment.get(name).cloned(),
        }
    }

    /// The XDG cache folder; a relative one counts as not set. Without a home folder it is in the state folder.
    fn cache_folder(&self) -> PathBuf {
        let absolute = |name| Some(PathBuf::from(self.environment.get(name)?)).filter(|path| path.is_absolute());
        absolute("XDG_CACHE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".cache")))
            .unwrap_or_else(|| self.home.join("cache"))
    }

    /// Where relative paths of the env file begin.
    fn folder(&self) -> PathBuf {
        match &self.env_file {
            Some((path, _)) => self.current_dir.join(path.parent().unwrap_or(Path::new(""))),
            None => self.current_dir.clone(),
        }
    }
}

/// Settings that were understood and checked.
#[derive(Debug)]
pub struct Loaded {
    pub config: ClusterConfig,
    /// Every variable in the order of the table, and those that were set to no effect.
    pub values: Vec<ResolvedValue>,
    /// One line each, lower case, with the place.
    pub warnings: Vec<String>,
}

/// One variable's value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResolvedValue {
    pub name: String,
    /// Empty when there is none; `***` for a secret.
    pub value: String,
    /// Such as `env.sh:12`, `flag --workers`, `environment OCPDEPLOY_WORKERS`, `profile standard`, `default`.
    pub origin: String,
}

/// Reads and checks all settings. Touches nothing.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, SettingsError> {
    let mut values = Values::collect(sources)?;
    let config = build(&mut values);
    let finished = values.finish()?;
    match config {
        Some(config) => Ok(Loaded {
            config,
            values: finished.values,
            warnings: finished.warnings,
        }),
        None => unreachable!("a value is missing and nobody said so"),
    }
}

/// Which cluster it is, and where.
pub struct Whereabouts {
    pub cluster: String,
    pub domain: String,
    pub backend: BackendConfig,
    pub workers_on: Option<WorkersOn>,
    /// How long they may be silent.
    pub platform_timeout: Duration,
}

/// Reads only whereabouts: what `destroy` needs on a computer that lacks keys and images.
pub fn load_whereabouts(sources: &Sources<'_>) -> Result<Whereabouts, SettingsError> {
    let mut values = Values::collect(sources)?;
    let names = checks::names(&mut values);
    let backend = backend(&mut values);
    let workers_on = workers_on(&mut values, backend.as_ref());
    let patience = platform_timeout(&mut values);
    values.finish()?;
    match (names, backend, workers_on, patience) {
        (Some((cluster, domain)), Some(backend), Some(workers_on), Some(platform_timeout)) => Ok(Whereabouts {
            cluster,
            domain,
            backend,
            workers_on,
            platform_timeout,
        }),
        _ => unreachable!("a value is missing and nobody said so"),
    }
}

/// Reads only which platform it is and how it is reached.
pub fn load_platform(sources: &Sources<'_>) -> Result<BackendConfig, SettingsError> {
    let mut values = Values::collect(sources)?;
    let backend = backend(&mut values);
    values.finish()?;
    match backend {
        Some(backend) => Ok(backend),
        None => unreachable!("a value is missing and nobody said so"),
    }
}

/// Every variable as the layers have it, unchecked.
pub fn resolve(sources: &Sources<'_>) -> Result<Vec<ResolvedValue>, SettingsError> {
    Ok(Values::collect(sources)?.finish()?.values)
}

/// The whole configuration; `None` only when a problem was added.
fn build(values: &mut Values<'_>) -> Option<ClusterConfig> {
    if values.sources.rehearse {
        values.replace("mcs", "rehearsal", "http".to_owned());
        values.replace("installer", "rehearsal", "built-in".to_owned());
    }
    let names = checks::names(values);
    let backend = backend(values);
    let masters = checks::masters(values);
    let workers = checks::workers(values);
    let extra_disks = extra_disks(values);
    let bootstrap_size = size(
        values,
        "bootstrap_numcpus",
        "bootstrap_memory",
        "disk_size",
        Some(Vec::new()),
    );
    let master_size = size(values, "numcpus", "master_memory", "disk_size", extra_disks.clone());
    let worker_size = size(values, "numcpus", "worker_memory", "disk_size", extra_disks);
    let helper_size = size(
        values,
        "helper_numcpus",
        "helper_memory",
        "helper_disk_size",
        Some(Vec::new()),
    );
    checks::sizes(values, workers);
    if matches!(backend, Some(BackendConfig::Ovirt(_)))
        && !values.value("network").is_some_and(|value| value.is_given())
    {
        values.replace("network", "backend ovirt", "ovirtmgmt".to_owned());
    }
    let network = values.text("network");
    let workers_on = workers_on(values, backend.as_ref());
    let extra_networks = values.list("extra_networks", |text| Ok::<_, String>(text.to_owned()));
    if matches!(backend, Some(BackendConfig::OpenStack(_)))
        && !values.value("harvest").is_some_and(|value| value.is_given())
    {
        // A port keeps its address without any machine.
        values.replace("harvest", "backend openstack", "reserve".to_owned());
    }
    let is_on_pods = matches!(&backend, Some(BackendConfig::Kubevirt(site)) if site.pods.is_some());
    if is_on_pods {
        on_pods(values);
        if workers_on.as_ref().is_some_and(Option::is_some) {
            let help = "nodes on the pods' own network are reached by each other alone";
            values.problem(
                &["worker_backend", "network"],
                "network=pod has no workers on another platform",
                help,
            );
        }
    }
    let harvest = values.choice(
        "harvest",
        &[
            ("boot", Harvest::Boot),
            ("reserve", Harvest::Reserve),
            ("static", Harvest::Static),
        ],
    );
    let given = given_addresses(values);
    let networks = cluster_networks(values);
    if matches!(backend, Some(BackendConfig::Ovirt(_))) && values.value("machine_network").is_none() {
        values.missing(
            "machine_network",
            "oVirt does not tell a network's range; `machine_network=10.0.0.0/24` does",
        );
    }
    checks::addresses(values, given.as_ref(), networks.as_ref());
    checks::counts(values, given.as_ref(), harvest, masters, workers);
    checks::room_for_nodes(values, networks.as_ref(), masters, workers);
    let own = workers_on.clone().flatten().map(|workers| workers.backend);
    let images_there = match &own {
        Some(there) => images(values, ["worker_image", "worker_helper_image"], Some(there), harvest),
        None => None,
    };
    let images = images(values, ["image", "helper_image"], backend.as_ref(), harvest);
    let images_there = match own {
        Some(_) => images_there,
        None => images.clone(),
    };
    let mcs = mcs(values);
    let installer = installer(values);
    let downloads = downloads(values, &installer);
    let ssh_keys = access::ssh_keys(values);
    let pull_secret = access::pull_secret(values);
    let ca = access::ca(values);
    let proxy = access::proxy(values);
    let registry_mirrors = access::registry_mirrors(values);
    let fips = values.switch("fips");
    let capabilities = capabilities(values);
    let manifests = manifests(values);
    let fragments = fragments(values);
    let use_br = values.switch("use_br");
    let masters_schedulable = values.switch("masters_schedulable");
    let ntp_servers = values.list("ntp_servers", checks::host);
    let registry = values.choice(
        "registry",
        &[("emptydir", Registry::EmptyDir), ("removed", Registry::Removed)],
    );
    let dns = values.choice(
        "dns",
        &[
            ("dnsmasq", Dns::Dnsmasq),
            ("coredns", Dns::Coredns),
            ("user", Dns::User),
        ],
    );
    let lb = values.choice(
        "lb",
        &[
            ("keepalived", Lb::Keepalived),
            ("user", Lb::User),
            ("platform", Lb::Platform),
        ],
    );
    if lb == Some(Lb::Platform) && !is_on_pods {
        let help = "KubeVirt's pod network (backend=kubevirt, network=pod) has";
        values.problem(&["lb"], "lb=platform: this network has no balancers of its own", help);
    }
    let dhcp = values.choice("dhcp", &[("platform", Dhcp::Platform), ("user", Dhcp::User)]);
    checks::own_services(values, given.as_ref(), harvest, lb, dhcp);
    let autostart = values.switch("autostart");
    let workers_when = values.choice(
        "workers_when",
        &[("now", WorkersWhen::Now), ("ready", WorkersWhen::Ready)],
    );
    let keep_bootstrap = values.switch("keep_bootstrap");
    let timeouts = timeouts(values);
    let launch = launch(values);

    let (name, domain) = names?;
    let (image, helper_image) = images?;
    let (worker_image, worker_helper_image) = images_there?;
    Some(ClusterConfig {
        name,
        domain,
        backend: backend?,
        workers_on: workers_on?,
        masters: masters?,
        workers: workers?,
        bootstrap_size: bootstrap_size?,
        master_size: master_size?,
        worker_size: worker_size?,
        helper_size: helper_size?,
        network: network?,
        extra_networks: extra_networks?,
        networks: networks?,
        image,
        helper_image,
        worker_image,
        worker_helper_image,
        given: given?,
        harvest: harvest?,
        mcs: mcs?,
        installer,
        downloads: downloads?,
        ssh_keys: ssh_keys?,
        pull_secret: pull_secret?,
        ca: ca?,
        proxy: proxy?,
        registry_mirrors: registry_mirrors?,
        fips: fips?,
        capabilities: capabilities?,
        manifests,
        fragments,
        use_br: use_br?,
        masters_schedulable: masters_schedulable?,
        ntp_servers: ntp_servers?,
        registry: registry?,
        dns: dns?,
        lb: lb?,
        dhcp: dhcp?,
        autostart: autostart?,
        workers_when: workers_when?,
        keep_bootstrap: keep_bootstrap?,
        timeouts: timeouts?,
        launch: launch?,
    })
}

/// What a user can choose, in words.
const KNOWN: &str = "this version knows libvirt, ovirt, openstack, kubevirt and sim";

fn backend(values: &mut Values<'_>) -> Option<BackendConfig> {
    let name = values.text("backend")?;
    backend_named(values, "backend", &name)
}

/// The workers' own platform; `Some(None)` when they are where all else is.
fn workers_on(values: &mut Values<'_>, others: Option<&BackendConfig>) -> Option<Option<WorkersOn>> {
    let name = values.text("worker_backend");
    let network = values.text("worker_network");
    let Some(name) = name.filter(|name| others.is_none_or(|others| others.name() != name)) else {
        for name in ["worker_network", "worker_image", "worker_helper_image"] {
            if values.value(name).is_some_and(|value| value.is_given()) {
                values.warn(
                    name,
                    &format!("{name} has no effect without a worker_backend that is not backend"),
                );
            }
        }
        return Some(None);
    };
    let backend = backend_named(values, "worker_backend", &name)?;
    if network.is_none() {
        let hint = "name the machine network as that platform does, e.g. `worker_network=default`";
        values.missing("worker_network", hint);
    }
    Some(Some(WorkersOn {
        backend,
        network: network?,
    }))
}

/// The platform of this name, which stands in `variable`, with its settings.
fn backend_named(values: &mut Values<'_>, variable: &'static str, name: &str) -> Option<BackendConfig> {
    match name {
        "libvirt" => {
            let uri = values.read("libvirt_uri", libvirt_uri::check);
            let pool = values.text("pool");
            let virt_type = values.choice(
                "virt_type",
                &[
                    ("auto", VirtType::Auto),
                    ("kvm", VirtType::Kvm),
                    ("qemu", VirtType::Qemu),
                ],
            );
            Some(BackendConfig::Libvirt(LibvirtConfig {
                uri: uri?,
                pool: pool?,
                virt_type: virt_type?,
            }))
        }
        "sim" => Some(BackendConfig::Sim(SimConfig {
            state: values.path("sim_state")?,
        })),
        "openstack" => openstack(values).map(BackendConfig::OpenStack),
        "kubevirt" => kubevirt(values).map(BackendConfig::Kubevirt),
        "ovirt" => ovirt::read(values).map(BackendConfig::Ovirt),
        other => {
            let message = format!("`{other}` is not a backend");
            values.problem(&[variable], message, KNOWN);
            None
        }
    }
}

fn openstack(values: &mut Values<'_>) -> Option<OpenStackConfig> {
    let boot = values.choice("os_boot", &[("image", OsBoot::Image), ("volume", OsBoot::Volume)]);
    let affinity = values.choice(
        "os_affinity",
        &[
            ("soft", Affinity::Soft),
            ("hard", Affinity::Hard),
            ("off", Affinity::Off),
        ],
    );
    let ignition = values.choice(
        "os_ignition",
        &[
            ("auto", OsIgnition::Auto),
            ("glance", OsIgnition::Glance),
            ("swift", OsIgnition::Swift),
        ],
    );
    let image_import = values.switch("os_image_import");
    Some(OpenStackConfig {
        cloud: values.text("os_cloud"),
        region: values.text("os_region"),
        volume_type: values.text("os_volume_type"),
        zone: values.text("os_zone"),
        flavors: OsFlavors {
            bootstrap: values.text("os_bootstrap_flavor"),
            master: values.text("os_master_flavor"),
            worker: values.text("os_worker_flavor"),
            helper: values.text("os_helper_flavor"),
        },
        external_network: values.text("os_external_network"),
        api_floating_ip: values.ip("os_api_floating_ip"),
        ingress_floating_ip: values.ip("os_ingress_floating_ip"),
        boot: boot?,
        affinity: affinity?,
        ignition: ignition?,
        image_import: image_import?,
    })
}

fn kubevirt(values: &mut Values<'_>) -> Option<KubevirtConfig> {
    // Given or not: a name of Kubernetes, or nothing.
    let mut given = |name| match values.value(name) {
        None => Some(None),
        Some(_) => values.read(name, checks::kube_name).map(Some),
    };
    let (namespace, storage_class) = (given("namespace"), given("storage_class"));
    let mut file = |name| {
        let path = values.path(name)?;
        if !(values.sources.is_file)(&path) {
            values.problem(&[name], format!("there is no file {}", path.display()), "");
        }
        Some(path)
    };
    let (kubeconfig, upload_ca) = (file("kubeconfig"), file("upload_ca"));
    let upload_proxy = match values.value("upload_proxy") {
        None => Some(None),
        Some(_) => values.read("upload_proxy", checks::upload_proxy).map(Some),
    };
    let affinity = values.choice(
        "kubevirt_affinity",
        &[
            ("soft", Affinity::Soft),
            ("hard", Affinity::Hard),
            ("off", Affinity::Off),
        ],
    );
    let makes_namespace = values.switch("make_namespace");
    if makes_namespace == Some(true) && values.value("namespace").is_none() {
        values.problem(
            &["make_namespace"],
            "make_namespace wants `namespace`",
            "it is the name of what is made",
        );
    }
    let insecure = values.switch("kubevirt_insecure");
    let pods = match values.text("network").as_deref() {
        Some("pod") => Some(pod_network(values)?),
        _ => None,
    };
    Some(KubevirtConfig {
        kubeconfig,
        context: values.text("kube_context"),
        namespace: namespace?,
        storage_class: storage_class?,
        upload_proxy: upload_proxy?,
        upload_ca,
        affinity: affinity?,
        makes_namespace: makes_namespace?,
        pods,
        insecure: Insecure(insecure?),
    })
}

fn pod_network(values: &mut Values<'_>) -> Option<PodNetwork> {
    let expose = values.choice(
        "expose",
        &[
            ("auto", Expose::Auto),
            ("loadbalancer", Expose::LoadBalancer),
            ("nodeport", Expose::NodePort),
            ("clusterip", Expose::ClusterIp),
        ],
    );
    let routes = values.choice(
        "routes",
        &[
            ("auto", Routes::Auto),
            ("wildcard", Routes::Wildcard),
            ("names", Routes::Names),
            ("off", Routes::Off),
        ],
    );
    let node_address = values.ip("node_address");
    let pod_networks = values.list("pod_networks", parse::network);
    let admit = values.list("admit", parse::network);
    let route_names = values.list("route_names", checks::kube_name);
    Some(PodNetwork {
        expose: expose?,
        node_address,
        pod_networks: pod_networks?,
        admit: admit?,
        routes: routes?,
        route_names: route_names?,
    })
}

/// On the pods' own network nothing can be harvested by MAC, and nobody but the platform brings requests to the nodes.
fn on_pods(values: &mut Values<'_>) {
    const HARVEST: &str = "a machine's address there is its pod's, which no MAC keeps: leave it out, or set network to a \
                           NetworkAttachmentDefinition";
    const VIPS: &str = "Services of the platform have the virtual IPs there: leave it out, or set network to a \
                        NetworkAttachmentDefinition";
    for (name, fit) in [
        ("harvest", Some("reserve")),
        ("lb", Some("platform")),
        ("dhcp", Some("platform")),
        ("api_ip", None),
        ("ingress_ip", None),
        ("bootstrap_ip", None),
        ("master_ips", None),
        ("worker_ips", None),
    ] {
        let given = values
            .value(name)
            .filter(|value| value.is_given())
            .map(|value| value.text.clone());
        match (given, fit) {
            (Some(given), fit) if fit != Some(given.as_str()) => {
                let help = if matches!(name, "lb" | "api_ip" | "ingress_ip") {
                    VIPS
                } else {
                    HARVEST
                };
                let text = format!("network=pod and {name}={given} contradict each other");
                values.problem(&[name], text, help);
            }
            (None, Some(fit)) => values.replace(name, "network pod", fit.to_owned()),
            _ => {}
        }
    }
    // Each node has four addresses of it for itself. The others are not what OpenShift has by default, where it may be
    // the platform.
    for (name, fit) in [
        ("machine_network", "10.0.2.0/24"),
        ("cluster_network", "10.196.0.0/14"),
        ("service_network", "172.31.0.0/16"),
    ] {
        if !values.value(name).is_some_and(|value| value.is_given()) {
            values.replace(name, "network pod", fit.to_owned());
        }
    }
}

fn size(
    values: &mut Values<'_>,
    cpus: &'static str,
    memory: &'static str,
    disk: &'static str,
    extra_disks_gib: Option<Vec<u64>>,
) -> Option<Size> {
    let cpus = checks::cpus(values, cpus);
    let memory_mib = checks::memory(values, memory);
    let disk_gib = checks::disk(values, disk);
    Some(Size {
        cpus: cpus?,
        memory_mib: memory_mib?,
        disk_gib: disk_gib?,
        extra_disks_gib: extra_disks_gib?,
    })
}

/// `extra_disks` where it is given, else the POC's single `extra_disk`.
fn extra_disks(values: &mut Values<'_>) -> Option<Vec<u64>> {
    let extra_disk = values.switch("extra_disk");
    let given = checks::extra_disks(values)?;
    match extra_disk? {
        _ if !given.is_empty() => Some(given),
        true => Some(vec![checks::disk(values, "extra_disk_size")?]),
        false => Some(Vec::new()),
    }
}

fn given_addresses(values: &mut Values<'_>) -> Option<GivenAddresses> {
    let bootstrap_mac = checks::macs(values, "bootstrap_mac");
    let master_macs = checks::macs(values, "master_macs");
    let worker_macs = checks::macs(values, "worker_macs");
    let master_ips = values.ips("master_ips");
    let worker_ips = values.ips("worker_ips");
    let given = GivenAddresses {
        machine_network: values.network("machine_network"),
        api_ip: values.ip("api_ip"),
        ingress_ip: values.ip("ingress_ip"),
        bootstrap_mac: bootstrap_mac?.first().copied(),
        bootstrap_ip: values.ip("bootstrap_ip"),
        master_macs: master_macs?,
        master_ips: master_ips?,
        worker_macs: worker_macs?,
        worker_ips: worker_ips?,
        virtual_router_id: values.read("virtual_router_id", checks::virtual_router_id),
    };
    Some(given)
}

fn cluster_networks(values: &mut Values<'_>) -> Option<ClusterNetworks> {
    let network_type = values.text("network_type");
    let cluster_network = values.network("cluster_network");
    let host_prefix = checks::host_prefix(values, cluster_network);
    let service_network = values.network("service_network");
    Some(ClusterNetworks {
        network_type: network_type?,
        cluster_network: cluster_network?,
        host_prefix: host_prefix?,
        service_network: service_network?,
    })
}

/// The CoreOS and the helper image of one platform. The pretend platform has its own, and a rehearsal brings its probes.
fn images(
    values: &mut Values<'_>,
    names: [&'static str; 2],
    backend: Option<&BackendConfig>,
    harvest: Option<Harvest>,
) -> Option<(ImageSource, ImageSource)> {
    let rehearse = values.sources.rehearse;
    let [coreos, helper] = names;
    if matches!(backend, Some(BackendConfig::Sim(_))) {
        for (name, image) in [(coreos, "coreos"), (helper, "helper")] {
            if rehearse {
                values.replace(name, "rehearsal", image.to_owned());
            } else if !values.value(name).is_some_and(|value| value.is_given()) {
                values.replace(name, "backend sim", image.to_owned());
            }
        }
    } else if rehearse {
        let folder = values.path("images_dir")?;
        for (name, file) in [(coreos, "coreos.qcow2"), (helper, "helper.qcow2")] {
            values.replace(name, "rehearsal", folder.join(file).display().to_string());
        }
    }
    let names_on_platform = match backend {
        Some(BackendConfig::Kubevirt(_)) => checks::is_kubevirt_image,
        _ => |_: &str| false,
    };
    let coreos = image(values, coreos, "rhcos.qcow2", ImageSource::Release, names_on_platform);
    // Nothing boots from it in the other ways of harvesting.
    let helper = match harvest {
        Some(Harvest::Boot) | None => {
            let chosen = ImageSource::Catalogue(catalogue::DEFAULT_HELPER.to_owned());
            image(values, helper, "centos.qcow2", chosen, names_on_platform)
        }
        _ => {
            values.text(helper);
            Some(ImageSource::Platform(String::new()))
        }
    };
    Some((coreos?, helper?))
}

/// `auto`: the file of this name in `images_dir` if it is there, else what is chosen.
///
/// `names_on_platform` knows names of the platform's that look like a path or a URL.
fn image(
    values: &mut Values<'_>,
    name: &'static str,
    file: &str,
    chosen: ImageSource,
    names_on_platform: fn(&str) -> bool,
) -> Option<ImageSource> {
    let value = values.value(name)?;
    if value.text == "auto" {
        let path = values.path("images_dir")?.join(file);
        return Some(match (values.sources.is_file)(&path) {
            true => ImageSource::File(path),
            false => chosen,
        });
    }
    if names_on_platform(&value.text) {
        return Some(ImageSource::Platform(value.text));
    }
    if value.text.contains("://") {
        return values.read(name, checks::image_url).map(ImageSource::Url);
    }
    if !value.text.contains('/') {
        return Some(match catalogue::helper(&value.text) {
            Some(_) => ImageSource::Catalogue(value.text),
            None => ImageSource::Platform(value.text),
        });
    }
    let path = values.path(name)?;
    if !(values.sources.is_file)(&path) {
        let hint = if values.sources.rehearse {
            "`make rehearse` builds the images of a rehearsal"
        } else {
            "leave it out to have it fetched, or give the path of a qcow2 file, a URL, or a name on the platform, without a /"
        };
        values.problem(&[name], format!("there is no image file {}", path.display()), hint);
        return None;
    }
    Some(ImageSource::File(path))
}

fn mcs(values: &mut Values<'_>) -> Option<Mcs> {
    let choices = [
        ("auto", Mcs::Auto),
        ("tls", Mcs::Tls),
        ("embed", Mcs::Embed),
        ("http", Mcs::Http),
    ];
    let mcs = values.choice("mcs", &choices)?;
    if mcs == Mcs::Http && !values.sources.rehearse {
        values.warn(
            "mcs",
            "mcs=http: anybody on the network can give nodes their root configuration and read the secrets in it",
        );
    }
    Some(mcs)
}

fn installer(values: &mut Values<'_>) -> InstallerChoice {
    if values.sources.rehearse {
        return InstallerChoice::Rehearsal;
    }
    let path = values.path("installer");
    if let Some(path) = path.as_ref().filter(|path| !(values.sources.is_file)(path)) {
        let message = format!("there is no openshift-install at {}", path.display());
        values.problem(
            &["installer"],
            message,
            "leave it out to take the one in PATH, or set version to have it fetched",
        );
    }
    InstallerChoice::OpenshiftInstall(path)
}

fn downloads(values: &mut Values<'_>, installer: &InstallerChoice) -> Option<Downloads> {
    let cache = values.path("cache");
    let wanted = |values: &mut Values<'_>| -> Option<Option<Wanted>> {
        match values.value("version") {
            None => Some(None),
            Some(_) => values.read("version", str::parse).map(Some),
        }
    };
    let url = |values: &mut Values<'_>, name| match values.value(name) {
        None => Some(None),
        Some(_) => values.read(name, checks::folder_url).map(Some),
    };
    let (version, mirror, image_mirror) = (wanted(values), url(values, "mirror"), url(values, "image_mirror"));
    let sum = match values.value("mirror_sha256") {
        None => Some(None),
        Some(_) => values.read("mirror_sha256", checks::sha256).map(Some),
    };
    let (key, insecure) = (values.path("mirror_key"), values.switch("mirror_insecure"));
    let mirror_timeout = values.duration("mirror_timeout");
    let version = version?.filter(|_| *installer != InstallerChoice::Rehearsal);
    Some(Downloads {
        cache: cache?,
        version,
        mirror: mirror?,
        mirror_key: key,
        mirror_sha256: sum?,
        mirror_insecure: insecure?,
        mirror_timeout: mirror_timeout?,
        image_mirror: image_mirror?,
    })
}

fn capabilities(values: &mut Values<'_>) -> Option<Capabilities> {
    let baseline = match values.value("capabilities") {
        None => Some(None),
        Some(_) => values.read("capabilities", checks::capability_set).map(Some),
    };
    let additional = values.list("additional_capabilities", checks::capability);
    Some(Capabilities {
        baseline: baseline?,
        additional: additional?,
    })
}

fn manifests(values: &mut Values<'_>) -> Option<PathBuf> {
    let path = values.path("manifests")?;
    if !(values.sources.is_dir)(&path) {
        values.problem(&["manifests"], format!("there is no folder {}", path.display()), "");
    }
    Some(path)
}

/// The folders of own profiles, base first, then what is given; the last wins.
fn fragments(values: &mut Values<'_>) -> Vec<FragmentSource> {
    let mut fragments = values.profile_fragments.clone();
    let Some(value) = values.value("ignition_extra") else {
        return fragments;
    };
    for item in parse::list(&value.text) {
        let (role, path) = parse::role_and_path(item);
        let path = value.folder.join(path);
        if !(values.sources.is_file)(&path) {
            let message = format!("there is no file {}", path.display());
            values.problem(&["ignition_extra"], message, "give Ignition configs, FILE or ROLE:FILE");
        }
        fragments.push(FragmentSource::File { role, path });
    }
    fragments
}

fn timeouts(values: &mut Values<'_>) -> Option<Timeouts> {
    let harvest = values.duration("harvest_timeout");
    let address = values.duration("address_timeout");
    let bootstrap = values.duration("bootstrap_timeout");
    let install = values.duration("install_timeout");
    let platform = platform_timeout(values);
    Some(Timeouts {
        harvest: harvest?,
        address: address?,
        bootstrap: bootstrap?,
        install: install?,
        platform: platform?,
    })
}

fn platform_timeout(values: &mut Values<'_>) -> Option<Duration> {
    values.read("platform_timeout", |text| match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => parse::duration(text),
    })
}

fn launch(values: &mut Values<'_>) -> Option<Launch> {
    let limit = values.duration("launch_timeout");
    let retries = values.number("launch_retries");
    Some(Launch {
        limit: limit?,
        retries: u32::try_from(retries?).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Defect 23 of kcli: declared parameters that nothing reads.
    #[test]
    fn every_used_variable_is_read_and_no_other() {
        let mut read = BTreeSet::new();
        for (env, rehearse) in [
            ("extra_disk=true", false),
            ("backend=sim", false),
            ("backend=ovirt\novirt_ca=ca.pem", false),
            ("backend=libvirt", true),
            ("backend=kubevirt", false),
            ("backend=kubevirt\nnetwork=pod", false),
            ("backend=openstack", false),
            ("backend=sim\nworker_backend=libvirt\nworker_network=default", false),
        ] {
            let sources = Sources {
                env_file: Some(("env.sh".into(), env.to_owned())),
                environment: BTreeMap::from([("HOME".to_owned(), "/home/u".to_owned())]),
                flags: BTreeMap::new(),
                current_dir: PathBuf::new(),
                home: PathBuf::new(),
                rehearse,
                read_file: &|_| Err(io::ErrorKind::NotFound.into()),
                is_file: &|_| true,
                is_dir: &|_| true,
            };
            let mut values = Values::collect(&sources).unwrap();
            build(&mut values);
            read.extend(values.names_read());
        }
        let used = variables::VARIABLES
            .iter()
            .filter(|variable| variable.status == variables::Status::Used);
        assert_eq!(read, used.map(|variable| variable.name).collect());
    }
}
