//! The whole configuration from all values.

use std::path::PathBuf;
use std::time::Duration;

use super::values::Values;
use super::{
    access, address_families, address_pool, checks, images, network_config, parse, platforms, pools, registry_cache,
    registry_mirrors, version_lock,
};
use crate::cluster::{
    BackendConfig, Capabilities, ClusterConfig, ClusterDomain, ClusterNetworks, Dhcp, FragmentSource, GivenAddresses,
    Launch, Lb, Mcs, Size, Timeouts,
};

/// The whole configuration; `None` only when a problem was added.
pub(super) fn build(values: &mut Values<'_>) -> Option<ClusterConfig> {
    if values.sources.rehearse {
        values.replace("mcs", "rehearsal", "http".to_owned());
        values.replace("installer", "rehearsal", "built-in".to_owned());
    }
    let names = checks::names(values);
    let backend = platforms::backend(values);
    let masters = checks::masters(values);
    let workers = checks::workers(values);
    let extra_disks = extra_disks(values);
    let worker_extra_disks = match values.value("worker_extra_disks") {
        Some(_) => checks::extra_disks(values, "worker_extra_disks"),
        None => extra_disks.clone(),
    };
    let none = Some(Vec::new());
    let bootstrap_size = size(
        values,
        ["bootstrap_numcpus", "bootstrap_memory", "disk_size"],
        none.clone(),
    );
    let [master_cpus, master_disk] =
        [("master_numcpus", "numcpus"), ("master_disk_size", "disk_size")].map(|names| given_or(values, names));
    let [worker_cpus, worker_disk] =
        [("worker_numcpus", "numcpus"), ("worker_disk_size", "disk_size")].map(|names| given_or(values, names));
    let master_size = size(values, [master_cpus, "master_memory", master_disk], extra_disks);
    let arbiter_size = size(
        values,
        ["arbiter_numcpus", "arbiter_memory", "arbiter_disk_size"],
        none.clone(),
    );
    let worker_size = size(values, [worker_cpus, "worker_memory", worker_disk], worker_extra_disks);
    let helper_size = size(values, ["helper_numcpus", "helper_memory", "helper_disk_size"], none);
    checks::sizes(values, masters.is_some_and(|(_, arbiter)| arbiter), workers);
    let network = values.text("network");
    let workers_on = platforms::workers_on(values, backend.as_ref());
    let extra_networks = values.texts("extra_networks");
    let id = names.as_ref().map(|(name, domain)| ClusterDomain::new(name, domain));
    let pools = pools::pools(values, id.as_ref(), worker_size.as_ref(), extra_networks.as_deref());
    let of_pools = pools.as_deref().unwrap_or_default();
    if backend.as_ref().is_some_and(|backend| backend.pod_network().is_some()) {
        platforms::on_pods(values);
        if workers_on.as_ref().is_some_and(Option::is_some) {
            let message = "worker_backend is not supported with network=pod";
            let help = "nodes on the pod network can reach only each other";
            values.problem(&["worker_backend", "network"], message, help);
        }
    }
    let dhcp = values.choice("dhcp");
    match dhcp {
        Some(Dhcp::None) => {
            let workers_on = workers_on.as_ref().and_then(Option::as_ref);
            platforms::without_dhcp(values, backend.as_ref(), workers_on);
        }
        _ => platforms::with_dhcp(values),
    }
    let harvest = values.choice("harvest");
    address_families::set_defaults(values);
    let given = given_addresses(values);
    let address_pool = values.list("address_pool", parse::range);
    let networks = cluster_networks(values);
    let ipv6 = address_families::read(values);
    let is_required = backend.as_ref().is_some_and(BackendConfig::requires_machine_network);
    if is_required && values.value("machine_network").is_none() {
        let help = "set the subnet of the network, e.g. `machine_network=10.0.0.0/24`: not available from the platform";
        values.missing("machine_network", help);
    }
    if let (Some(given), Some(networks)) = (&given, &networks) {
        address_families::first_family(values, given, networks);
    }
    checks::addresses(values, given.as_ref(), of_pools, networks.as_ref());
    checks::counts(
        values,
        given.as_ref(),
        address_pool.as_deref(),
        harvest,
        masters,
        workers,
        of_pools,
    );
    if let (Some(given), Some(ranges), Some(networks)) = (&given, &address_pool, &networks) {
        address_pool::check(values, given, ranges, networks);
    }
    platforms::check_workers_on(values, workers_on.as_ref().and_then(Option::as_ref), of_pools);
    pools::check_addresses(values, of_pools);
    checks::room_for_nodes(values, networks.as_ref(), masters, workers, of_pools);
    checks::room_for_machines(values, given.as_ref(), masters, workers, of_pools);
    let worker_images = workers_on.as_ref().and_then(Option::as_ref).map(|workers| {
        let names = ["worker_image", "worker_helper_image"];
        images::images(values, names, Some(&workers.backend), harvest)
    });
    let images = match platforms::is_known(values) {
        true => images::images(values, ["image", "helper_image"], backend.as_ref(), harvest),
        false => None,
    };
    let worker_images = worker_images.unwrap_or_else(|| images.clone());
    let mcs = mcs(values);
    let lock = version_lock::read(values);
    let installer = images::installer(values);
    let downloads = images::downloads(values, &installer);
    let has_ipv6 = ipv6.as_ref().is_some_and(Option::is_some);
    checks::release(
        values,
        downloads.as_ref(),
        masters,
        backend.as_ref(),
        networks.as_ref(),
        has_ipv6,
    );
    let ssh_keys = access::ssh_keys(values);
    let pull_secret = access::pull_secret(values);
    let ca = access::ca(values);
    let proxy = access::proxy(values);
    let registry_mirrors = registry_mirrors::registry_mirrors(values);
    let is_ipv6_only = networks.as_ref().is_some_and(ClusterNetworks::is_ipv6_only);
    let registry_cache = registry_cache::registry_cache(values, is_ipv6_only);
    let egress_check = values.switch("egress_check");
    let fips = values.switch("fips");
    if let (Some(true), Some(keys)) = (fips, &ssh_keys) {
        access::fips_keys(values, keys);
    }
    let capabilities = capabilities(values);
    let manifests = manifests(values);
    let fragments = fragments(values);
    let network_config = network_config::read(values);
    let use_br = values.switch("use_br");
    let masters_schedulable = values.switch("masters_schedulable");
    pools::check_routers(values, of_pools, workers, masters_schedulable);
    let ntp_servers = values.list("ntp_servers", parse::host);
    let mtu = values.optional("mtu", parse::mtu);
    let dns_search = values.list("dns_search", parse::domain);
    let registry = values.choice("registry");
    let dns = values.choice("dns");
    let lb = values.choice("lb");
    if let (Some(Lb::Platform), Some(backend)) = (lb, &backend)
        && !crate::backend::Capabilities::of(backend).load_balancers
    {
        let message = format!(
            "backend={} has no load balancers on network {}",
            backend.name(),
            network.as_deref().unwrap_or_default()
        );
        let help = "use lb=keepalived or lb=user; lb=platform requires backend=openstack, or backend=kubevirt with network=pod";
        values.problem(&["lb"], message, help);
    }
    checks::own_services(values, given.as_ref(), harvest, lb, dhcp);
    checks::search_domains(values, dns_search.as_deref(), dns, dhcp);
    let autostart = values.switch("autostart");
    let workers_when = values.choice("workers_when");
    let keep_bootstrap = values.switch("keep_bootstrap");
    let timeouts = timeouts(values);
    let launch = launch(values);
    let tenant = platforms::tenant(values.sources, backend.as_ref());

    let registry_mirrors = registry_mirrors?;
    let (name, domain) = names?;
    let (masters, arbiter) = masters?;
    let (image, helper_image) = images?;
    let (worker_image, worker_helper_image) = worker_images?;
    let config = ClusterConfig {
        name,
        domain,
        deployment: values.sources.deployment.clone(),
        env_file: values.sources.env_file.as_ref().map(|(path, _)| path.clone()),
        backend: backend?,
        tenant,
        workers_on: workers_on?,
        masters,
        arbiter,
        workers: workers?,
        pools: pools?,
        bootstrap_size: bootstrap_size?,
        master_size: master_size?,
        arbiter_size: arbiter_size?,
        worker_size: worker_size?,
        helper_size: helper_size?,
        network: network?,
        extra_networks: extra_networks?,
        networks: networks?,
        ipv6: ipv6?,
        image,
        helper_image,
        worker_image,
        worker_helper_image,
        given: given?,
        address_pool: address_pool?,
        harvest: harvest?,
        mcs: mcs?,
        installer,
        downloads: downloads?,
        lock,
        ssh_keys: ssh_keys?,
        pull_secret: pull_secret?,
        ca: ca?,
        proxy: proxy?,
        registry_mirrors: registry_mirrors.mirrors,
        mirror_manifests: registry_mirrors.manifests,
        registry_cache: registry_cache?,
        egress_check: egress_check?,
        fips: fips?,
        capabilities: capabilities?,
        manifests,
        fragments,
        network_config: network_config?,
        use_br: use_br?,
        masters_schedulable: masters_schedulable?,
        ntp_servers: ntp_servers?,
        mtu: mtu?,
        dns_search: dns_search?,
        registry: registry?,
        dns: dns?,
        lb: lb?,
        dhcp: dhcp?,
        autostart: autostart?,
        workers_when: workers_when?,
        keep_bootstrap: keep_bootstrap?,
        timeouts: timeouts?,
        launch: launch?,
    };
    address_pool::check_size(values, &config);
    network_config::check(values, &config);
    address_families::check(values, &config);
    Some(config)
}

fn size(values: &mut Values<'_>, names: [&'static str; 3], extra_disks_gib: Option<Vec<u64>>) -> Option<Size> {
    let [cpus, memory, disk] = names;
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

/// The setting of a role if it is set, else the one of all.
fn given_or(values: &mut Values<'_>, (of_role, of_all): (&'static str, &'static str)) -> &'static str {
    match values.value(of_role) {
        Some(_) => of_role,
        None => of_all,
    }
}

/// `extra_disks` where it is given, else the POC's single `extra_disk`.
fn extra_disks(values: &mut Values<'_>) -> Option<Vec<u64>> {
    let extra_disk = values.switch("extra_disk");
    let given = checks::extra_disks(values, "extra_disks")?;
    match extra_disk? {
        _ if !given.is_empty() => Some(given),
        true => Some(vec![checks::disk(values, "extra_disk_size")?]),
        false => Some(Vec::new()),
    }
}

fn given_addresses(values: &mut Values<'_>) -> Option<GivenAddresses> {
    let bootstrap_mac = values.list("bootstrap_mac", parse::nic_mac);
    let master_macs = values.list("master_macs", parse::nic_mac);
    let arbiter_mac = values.list("arbiter_mac", parse::nic_mac);
    let worker_macs = values.list("worker_macs", parse::nic_mac);
    let master_ips = values.ips("master_ips");
    let worker_ips = values.ips("worker_ips");
    let name_servers = values.ips("name_servers");
    Some(GivenAddresses {
        machine_network: values.first_network("machine_network"),
        gateway: address_families::first_gateway(values),
        name_servers: name_servers?,
        api_ip: values.first_ip("api_ip"),
        ingress_ip: values.first_ip("ingress_ip"),
        bootstrap_mac: bootstrap_mac?.first().copied(),
        bootstrap_ip: values.ip("bootstrap_ip"),
        master_macs: master_macs?,
        master_ips: master_ips?,
        arbiter_mac: arbiter_mac?.first().copied(),
        arbiter_ip: values.ip("arbiter_ip"),
        worker_macs: worker_macs?,
        worker_ips: worker_ips?,
        virtual_router_id: values.read("virtual_router_id", parse::virtual_router_id),
    })
}

fn cluster_networks(values: &mut Values<'_>) -> Option<ClusterNetworks> {
    let network_type = values.text("network_type");
    let cluster_network = values.first_network("cluster_network");
    let host_prefix = checks::host_prefix(values, cluster_network);
    let service_network = values.first_network("service_network");
    Some(ClusterNetworks {
        network_type: network_type?,
        cluster_network: cluster_network?,
        host_prefix: host_prefix?,
        service_network: service_network?,
    })
}

fn mcs(values: &mut Values<'_>) -> Option<Mcs> {
    let mcs = values.choice("mcs")?;
    if mcs == Mcs::Http && !values.sources.rehearse {
        values.warn(
            "mcs",
            "mcs=http is not encrypted: anyone on the network can read the secrets in the nodes' configuration, and replace the configuration that nodes apply as root",
        );
    }
    Some(mcs)
}

fn capabilities(values: &mut Values<'_>) -> Option<Capabilities> {
    let baseline = values.optional("capabilities", parse::capability_set);
    let additional = values.list("additional_capabilities", parse::capability);
    Some(Capabilities {
        baseline: baseline?,
        additional: additional?,
    })
}

fn manifests(values: &mut Values<'_>) -> Option<PathBuf> {
    let path = values.path("manifests")?;
    if !(values.sources.is_dir)(&path) {
        values.problem(
            &["manifests"],
            format!("the folder {} does not exist", path.display()),
            "",
        );
    }
    Some(path)
}

/// The folders of the user's own profiles, base first, then `ignition_extra`; the last wins.
fn fragments(values: &mut Values<'_>) -> Vec<FragmentSource> {
    let mut fragments = values.profile_fragments.clone();
    let Some(value) = values.value("ignition_extra") else {
        return fragments;
    };
    for item in parse::list(&value.text) {
        let (role, path) = parse::role_and_path(item);
        let path = value.folder.join(path);
        if !(values.sources.is_file)(&path) {
            let message = format!("the file {} does not exist", path.display());
            values.problem(
                &["ignition_extra"],
                message,
                "list Ignition configs as FILE or ROLE:FILE",
            );
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

pub(super) fn platform_timeout(values: &mut Values<'_>) -> Option<Duration> {
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::io;

    use super::super::sources::Sources;
    use super::super::variables;
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
            ("backend=openstack\nlb=platform", false),
            ("backend=sim\nworker_backend=libvirt\nworker_network=default", false),
            (
                "worker_libvirt_uri=qemu+ssh://b/system\nworker_pool=ssd\nworker_network=default",
                false,
            ),
        ] {
            let sources = Sources {
                env_file: Some(("env.sh".into(), env.to_owned())),
                environment: BTreeMap::from([("HOME".to_owned(), "/home/u".to_owned())]),
                flags: BTreeMap::new(),
                current_dir: PathBuf::new(),
                home: PathBuf::new(),
                rehearse,
                deployment: crate::cluster::ClusterConfig::example().deployment,
                read_file: &|_| Err(io::ErrorKind::NotFound.into()),
                is_file: &|_| true,
                is_dir: &|_| true,
            };
            let mut values = Values::collect(&sources).unwrap();
            build(&mut values);
            read.extend(values.names_read());
        }
        let all = variables::VARIABLES.iter().map(|variable| variable.name);
        assert_eq!(read, all.collect());
    }
}
