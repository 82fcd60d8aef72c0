//! The whole configuration from all values.

use std::path::PathBuf;
use std::time::Duration;

use super::values::{Values, read_all};
use super::{
    access, address_families, address_ranges, checks, images, network_config, parse, platforms, pools, registry_cache,
    registry_mirrors, sizes, version_lock,
};
use crate::cluster::{
    Capabilities, ClusterConfig, ClusterDomain, ClusterNetworks, FragmentSource, GivenAddresses, Launch, Mac, Mcs,
    Timeouts,
};

/// The whole configuration; `None` only when a problem was added.
pub(super) fn build(values: &mut Values<'_>) -> Option<ClusterConfig> {
    if values.sources.rehearse {
        values.replace("mcs", "rehearsal", "http".to_owned());
        values.replace("installer", "rehearsal", "built-in".to_owned());
    }
    let names = checks::names(values);
    let backend = platforms::backend(values);
    let arch = platforms::arch(values, backend.as_ref());
    let masters = checks::masters(values);
    let workers = checks::workers(values);
    let [bootstrap_size, master_size, arbiter_size, worker_size, harvest_size] = sizes::sizes(values);
    sizes::warn_of_small(values, masters.is_some_and(|(_, arbiter)| arbiter), workers);
    let network = values.text("network");
    let workers_on = platforms::workers_on(values, backend.as_ref());
    let elsewhere = workers_on.as_ref().and_then(Option::as_ref);
    let extra_networks = values.texts("extra_networks");
    let id = names.as_ref().map(|(name, domain)| ClusterDomain::new(name, domain));
    let pools = pools::pools(
        values,
        id.as_ref(),
        arch,
        worker_size.as_ref(),
        extra_networks.as_deref(),
    );
    let of_pools = pools.as_deref().unwrap_or_default();
    platforms::on_pods(values, backend.as_ref(), elsewhere);
    let dhcp = platforms::dhcp(values, backend.as_ref(), elsewhere);
    let harvest = values.choice("harvest");

    address_families::set_defaults(values);
    let given = given_addresses(values);
    let address_ranges = values.list("address_ranges", parse::range);
    let networks = cluster_networks(values);
    let ipv6 = address_families::read(values);
    platforms::require_machine_network(values, backend.as_ref());
    if let (Some(given), Some(networks)) = (&given, &networks) {
        address_families::first_family(values, given, networks);
    }
    checks::addresses(values, given.as_ref(), of_pools, networks.as_ref());
    if let Some(networks) = &networks {
        checks::join_network(values, networks);
    }
    let ranges = address_ranges.as_deref();
    checks::counts(values, given.as_ref(), ranges, harvest, masters, workers, of_pools);
    if let (Some(given), Some(ranges), Some(networks)) = (&given, ranges, &networks) {
        address_ranges::check(values, given, ranges, networks);
    }
    platforms::check_workers_on(values, elsewhere, of_pools);
    pools::check_addresses(values, of_pools);
    let nodes = checks::count_nodes(masters, workers, of_pools);
    checks::room_for_nodes(values, networks.as_ref(), nodes);
    checks::room_for_machines(values, given.as_ref(), nodes);

    let [images, worker_images] = images::images(values, backend.as_ref(), elsewhere, harvest, arch);
    let foreign_images = images::foreign(values, backend.as_ref(), harvest, arch, of_pools);
    let mcs = mcs(values);
    let lock = version_lock::read(values);
    let installer = images::installer(values);
    let downloads = images::downloads(values, arch, of_pools);
    let version = downloads.as_ref().and_then(|downloads| downloads.version.as_ref());
    let has_ipv6 = ipv6.as_ref().is_some_and(Option::is_some);
    checks::release(values, version, masters, backend.as_ref(), networks.as_ref(), has_ipv6);
    let ssh_keys = access::ssh_keys(values);
    let pull_secret = access::pull_secret(values);
    let ca = access::ca(values);
    let proxy = access::proxy(values);
    if let (Some(proxy), Some(networks), Some(ipv6)) = (&proxy, &networks, &ipv6) {
        access::proxy_addresses(values, proxy, networks, ipv6.as_ref());
    }
    let (registry_mirrors, mirror_manifests) = registry_mirrors::registry_mirrors(values).unzip();
    let is_ipv6_only = networks.as_ref().is_some_and(ClusterNetworks::is_ipv6_only);
    let (name, domain) = names.unzip();
    let (masters, arbiter) = masters.unzip();
    let config = read_all!(ClusterConfig {
        name,
        domain,
        deployment: Some(values.sources.deployment.clone()),
        env_file: Some(values.sources.env_file.as_ref().map(|(path, _)| path.clone())),
        tenant: Some(platforms::tenant(values.sources, backend.as_ref())),
        arch,
        backend,
        workers_on,
        masters,
        arbiter,
        workers,
        pools,
        bootstrap_size,
        master_size,
        arbiter_size,
        worker_size,
        harvest_size,
        network,
        extra_networks,
        networks,
        ipv6,
        images,
        worker_images,
        foreign_images,
        given,
        address_ranges,
        harvest,
        mcs,
        installer: Some(installer),
        downloads,
        lock: Some(lock),
        ssh_keys,
        pull_secret,
        ca,
        proxy,
        registry_mirrors,
        mirror_manifests,
        registry_cache: registry_cache::registry_cache(values, is_ipv6_only),
        egress_check: values.switch("egress_check"),
        fips: access::fips(values, ssh_keys.as_deref()),
        capabilities: capabilities(values),
        manifests: Some(manifests(values)),
        fragments: Some(fragments(values)),
        network_config: network_config::read(values),
        use_br: values.switch("use_br"),
        masters_schedulable: pools::masters_schedulable(values, of_pools, workers),
        ntp_servers: values.list("ntp_servers", parse::host),
        mtu: values.optional("mtu", parse::mtu),
        dns_search: values.list("dns_search", parse::domain),
        registry: values.choice("registry"),
        dns: checks::dns(values, dns_search.as_deref(), dhcp),
        lb: checks::lb(values, backend.as_ref(), given.as_ref(), harvest, dhcp),
        dhcp,
        autostart: values.switch("autostart"),
        workers_when: values.choice("workers_when"),
        keep_bootstrap: values.switch("keep_bootstrap"),
        timeouts: timeouts(values),
        launch: launch(values),
    });
    address_ranges::check_size(values, &config);
    network_config::check(values, &config);
    address_families::check(values, &config);
    Some(config)
}

fn given_addresses(values: &mut Values<'_>) -> Option<GivenAddresses> {
    let first = |macs: Vec<Mac>| macs.first().copied();
    Some(read_all!(GivenAddresses {
        bootstrap_mac: values.list("bootstrap_mac", parse::nic_mac).map(first),
        master_macs: values.list("master_macs", parse::nic_mac),
        arbiter_mac: values.list("arbiter_mac", parse::nic_mac).map(first),
        worker_macs: values.list("worker_macs", parse::nic_mac),
        master_ips: values.ips("master_ips"),
        worker_ips: values.ips("worker_ips"),
        name_servers: values.ips("name_servers"),
        machine_network: Some(values.first_network("machine_network")),
        gateway: Some(address_families::first_gateway(values)),
        api_ip: Some(values.first_ip("api_ip")),
        ingress_ip: Some(values.first_ip("ingress_ip")),
        bootstrap_ip: Some(values.ip("bootstrap_ip")),
        arbiter_ip: Some(values.ip("arbiter_ip")),
        api_virtual_router_id: Some(values.read("api_virtual_router_id", parse::virtual_router_id)),
    }))
}

fn cluster_networks(values: &mut Values<'_>) -> Option<ClusterNetworks> {
    Some(read_all!(ClusterNetworks {
        network_type: values.read("network_type", parse::network_type),
        cluster_network: values.first_network("cluster_network"),
        host_prefix: checks::host_prefix(values, cluster_network),
        service_network: values.first_network("service_network"),
        ovn_join_network: values.optional("ovn_join_network", parse::network_of_cluster),
    }))
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
    Some(read_all!(Capabilities {
        baseline: values.optional("capabilities", parse::capability_set),
        additional: values.list("additional_capabilities", parse::capability),
    }))
}

fn manifests(values: &mut Values<'_>) -> Option<PathBuf> {
    let path = values.path("manifests")?;
    if !(values.sources.is_dir)(&path) {
        values.problem(
            &["manifests"],
            format!("the directory {} does not exist", path.display()),
            "",
        );
    }
    Some(path)
}

/// The directories of the user's own profiles, base first, then `ignition_extra`; the last wins.
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
    Some(read_all!(Timeouts {
        harvest: values.duration("harvest_timeout"),
        address: values.duration("address_timeout"),
        bootstrap: values.duration("bootstrap_timeout"),
        install: values.duration("install_timeout"),
        platform: platform_timeout(values),
    }))
}

pub(super) fn platform_timeout(values: &mut Values<'_>) -> Option<Duration> {
    values.read("platform_timeout", |text| match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => parse::duration(text),
    })
}

fn launch(values: &mut Values<'_>) -> Option<Launch> {
    Some(read_all!(Launch {
        limit: values.duration("restart_window"),
        retries: values
            .number("restart_limit")
            .map(|retries| u32::try_from(retries).unwrap_or(u32::MAX)),
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::io;

    use super::super::sources::Sources;
    use super::super::variables;
    use super::*;

    /// kcli declares parameters that nothing reads; here, each setting must be read.
    #[test]
    fn every_used_variable_is_read_and_no_other() {
        let mut read = BTreeSet::new();
        for (env, rehearse) in [
            ("backend=sim", false),
            ("backend=ovirt\novirt_ca=ca.pem", false),
            ("backend=libvirt", true),
            ("backend=kubevirt", false),
            ("backend=kubevirt\nnetwork=pod", false),
            ("backend=openstack\nlb=platform", false),
            ("backend=sim\nworker_backend=libvirt\nworker_network=default", false),
            (
                "libvirt_worker_uri=qemu+ssh://b/system\nlibvirt_worker_storage_pool=ssd\nworker_network=default",
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
                allow_downgrade: false,
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
