//! Checks that run before anything is created.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use ipnetwork::IpNetwork;
use tracing::info;

use super::complete::refuse_changes;
use super::effective_settings::EffectiveSettings;
use super::error::{FEW_ADDRESSES, no_range, preflight, unfit_table};
use super::options::DeployOptions;
use super::report::{CheckReport, CheckedFacts};
use super::simulated::refuse_simulated;
use super::{clock, deployments, fragments, networks, ours};
use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::backend::{Capabilities, Carrier, Finding, NetworkFacts, PlatformError, Verdict};
use crate::cluster::{
    AddressAssignment, BootImages, ClusterConfig, Dhcp, Dns, Harvest, Lb, Mac, NodeName, Precedence, Role, Vip,
    domain_problem, major_minor, overlap, platform_names, unsupported_release,
};
use crate::error::{ErrorKind, OperationError};
use crate::local::network_probe;
use crate::local::registry::{self, State};
use crate::node;
use crate::node::config::Fragment;
use crate::openshift::installer::fetch::Choice;
use crate::openshift::installer::{self, Installer};
use crate::passes::image_sources;
use crate::plan::address_ranges;
use crate::plan::addresses::{
    Others, free_addresses, ipv6_gateway, ipv6_problem, ipv6_vips_taken, vip_problem, vip_taken,
};
use crate::plan::connections::connections;
use crate::plan::machines::{self, MacTable, VipSource};
use crate::plan::mismatch::mismatch;
use crate::printable::count;
use crate::state::home::Home;
use crate::state::inventory::{self, Cluster, Known};
use crate::state::journal::{self, Entry};
use crate::state::parameters::Parameters;
use crate::state::registry_cache::CacheDir;

/// Stands for a machine network that is not known yet; RFC 2544 reserves it for tests.
const UNKNOWN_NETWORK: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0));

/// Runs all checks that need no installer, before anything is created; for the installer see `find_installer`.
pub(super) async fn check(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions<'_>,
) -> Result<(NetworkFacts, CheckedFacts)> {
    info!(target: PROGRESS, step = "checks", "checking {} before anything is created", platform_names(&config.backend, config.workers_on.as_ref()));
    let mut report = CheckReport::for_deployment();
    let mut seen = look_around(backend, config, home, options, &mut report).await?;
    report.judged()?;
    let facts = seen
        .facts
        .take()
        .with_context(|| format!("read network {}", config.network))?;
    Ok((facts, seen))
}

/// Findings about settings, files, platform and network.
pub(super) async fn look_around(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions<'_>,
    report: &mut CheckReport<'_>,
) -> Result<CheckedFacts> {
    let clusters = inventory::clusters(home)?;
    let known = clusters.iter().find(|cluster| cluster.known.name == config.name);
    let mut seen = CheckedFacts::default();
    let table = known_table(backend, config, home, known, options).await;
    let Some(table) = report.take("cluster", table)? else {
        return Ok(seen);
    };
    seen.table = table;

    if known.is_none() {
        report.add("state", in_work_tree(config, home));
    }
    let macs = machines::macs(config, &Default::default());
    let mut one = Vec::new();
    let mut vips = MacTable::new();
    if config.harvest == Harvest::Boot {
        // The facts about the network are read only after the platform's checks.
        let source = VipSource::of(config, &backend.capabilities(Role::Master), None);
        one = machines::pass_one(config, &macs, source);
        vips = machines::unleased_vips(config, &macs, &one);
    }
    let two = machines::pass_two(config, &macs, seen.table.as_ref());
    let mut needs = machines::needs(config, &one, &two);
    needs.vips = vips.into_iter().collect();
    let found = backend.preflight(&needs).await;
    let found = report.take("platform", found.map_err(anyhow::Error::from))?;
    let answers = found.is_some();
    report.add("platform", found.into_iter().flatten());
    let failed = report
        .looked
        .iter()
        .any(|looked| looked.finding.verdict == Verdict::Fail);
    if answers {
        match deployments::other_deployments(backend, config).await {
            // An unusable platform often cannot list them, and has reported a failure already.
            Err(_) if failed => {}
            others => {
                let others = report.take("cluster", others.map_err(anyhow::Error::from))?;
                report.add("cluster", others.into_iter().flatten());
            }
        }
    }
    seen.facts = match look(backend, config).await {
        // An unusable platform often cannot read the network either, and has reported a failure already.
        Err(_) if failed => None,
        looked => report.take("platform", looked)?,
    };
    if let Some(facts) = &seen.facts {
        if facts.cidr.is_none() && seen.table.is_none() && !failed {
            report.take::<()>("platform", Err(no_range(&config.network).into()))?;
        }
        report.add("platform", networks::findings(config, facts));
        report.add("platform", runs_nothing(config, facts));
        report.add("platform", too_large(config, facts));
        report.add("addresses", other_network(config, facts));
        report.add("addresses", static_network(config, facts));
        report.add("addresses", ipv6_network(config, facts));
        report.add("addresses", network_config(config, facts, seen.table.as_ref()));
        let neighbours = inventory::neighbours(&clusters, &facts.identity, &config.cluster_domain());
        let table = known.and_then(|cluster| cluster.parameters.as_ref());
        let own = machines::vip_macs(&macs, table);
        // With lb=user, the user's load balancer already has the VIPs. With lb=platform, so may the platform's after an
        // interrupted run.
        let has_vips = config.lb == Lb::User || config.lb == Lb::Platform && known.is_some();
        let mut findings = given_vip_findings(
            config,
            facts,
            &neighbours,
            backend.capabilities(Role::Master).reserves_addresses,
            &own,
            has_vips,
        );
        findings.extend(given_ipv6_findings(config, facts, &neighbours, &own));
        findings.extend(given_router_id_finding(config, &neighbours));
        let own = seen.table.as_ref();
        let is_reserved = config.dhcp == Dhcp::Platform && backend.capabilities(Role::Master).reserves_addresses;
        findings.extend(address_ranges::findings(
            config,
            facts,
            &neighbours.addresses,
            own,
            is_reserved,
        ));
        if known.is_none() {
            findings.extend(too_few_addresses(config, facts, &neighbours.addresses));
        }
        match &seen.table {
            Some(table) => findings.extend(neighbours.clashes(table).into_iter().map(Finding::fail)),
            None if backend.common_capabilities().guests_reachable => {
                let (first, second) = tokio::join!(answered_for(config, has_vips), answered_for_ipv6(config, has_vips));
                findings.extend(first.into_iter().chain(second));
            }
            None => {}
        }
        let answering = answering_macs(backend, config, facts, &macs)
            .await
            .map_err(anyhow::Error::from);
        findings.extend(report.take("addresses", answering)?.into_iter().flatten());
        report.add("addresses", findings);
        report.add("mcs", resolve_mcs(config, facts, carrier(backend)).err());
    }
    report.add("images", unprotected_images(config, &seen));
    report.add("registry cache", cache_findings(config, home).await);
    let clock = report.take("clock", clock::compare(backend).await)?;
    report.add("clock", clock.flatten());
    let own = own_configs(backend, config);
    if let Some((fragments, warnings)) = report.take("ignition", own)? {
        report.add(
            "ignition",
            warnings.into_iter().map(|warning| Finding::warn(warning.to_string())),
        );
        report.add("ignition", fragments::fetched(config, &fragments));
        seen.fragments = fragments;
    }
    Ok(seen)
}

/// The images that anyone on the network could replace.
fn unprotected_images(config: &ClusterConfig, seen: &CheckedFacts) -> Vec<Finding> {
    let boots = config.harvest == Harvest::Boot && seen.table.is_none();
    let images = config.boot_places().into_iter().flat_map(|place| {
        let BootImages { coreos, harvest } = config.boot_images(place);
        let images = std::iter::once(coreos).chain(boots.then_some(harvest));
        images.map(move |image| image_sources::unprotected(image, &config.downloads, place.1))
    });
    let mut findings: Vec<Finding> = Vec::new();
    for found in images {
        findings.extend(found.filter(|found| !findings.contains(found)));
    }
    findings
}

/// A machine network that has no address of the platform's network.
fn other_network(config: &ClusterConfig, facts: &NetworkFacts) -> Option<Finding> {
    let (given, known) = (config.given.machine_network?, facts.cidr?);
    (!overlap(given, known)).then(|| {
        let text = format!("network {} is {known}, but machine_network is {given}", config.network);
        Finding::fail(text).hint("set machine_network to the range of the network, or remove it")
    })
}

/// Whether the network has fewer free addresses than pass one reserves.
fn too_few_addresses(config: &ClusterConfig, facts: &NetworkFacts, others: &Others) -> Option<Finding> {
    let network = config.given.machine_network.or(facts.cidr)?;
    let vips = Vip::ALL.into_iter().filter(|vip| machines::is_harvested(config, *vip));
    let (wanted, free) = (
        config.nodes().len() + vips.count(),
        free_addresses(network, facts, others).len(),
    );
    let is_short = config.harvest == Harvest::Reserve && free < wanted;
    is_short.then(|| {
        let free = count(free, "free address");
        Finding::fail(format!("network {} has {free}, too few for {wanted}", config.network)).hint(FEW_ADDRESSES)
    })
}

/// Whether the registry cache that the nodes will use works.
async fn cache_findings(config: &ClusterConfig, home: &Home) -> Vec<Finding> {
    let dir = CacheDir::of(home);
    let (Some(_), Ok(Some(cache))) = (&config.registry_cache, dir.read()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for registry in &cache.registries {
        let endpoint = cache.endpoint(registry);
        let upstream = &registry.upstream;
        findings.push(match registry::state(&dir, &cache, registry).await {
            State::Running | State::Remote => {
                Finding::ok(format!("nodes pull images of {upstream} through {endpoint}"))
            }
            State::Offline => Finding::warn(format!(
                "the cache of {upstream} at {endpoint} has only the images that it fetched before"
            ))
            .hint("to fetch images again, run `ocpdeploy cache up`"),
            State::Silent | State::Stopped => Finding::warn(format!(
                "the cache at {endpoint} does not answer; nodes pull from {upstream} itself"
            ))
            .hint(format!(
                "run `ocpdeploy cache up` on {}, or `ocpdeploy cache down` here to use no cache",
                cache.address
            )),
        });
    }
    findings
}

/// Rejects settings that conflict with the existing cluster of this name; returns its addresses, if it has any.
async fn known_table(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    known: Option<&Cluster>,
    options: DeployOptions<'_>,
) -> Result<Option<Parameters>> {
    let Some(known) = known else { return Ok(None) };
    refuse_other_cluster(config, &known.known)?;
    let journal = journal::read(&home.cluster(&config.name).journal())?;
    refuse_other_kind(backend, config, &known.known, &journal).await?;
    refuse_changes(config, known, &journal, options)?;
    let table = known.parameters.clone().filter(|_| !options.harvest_again);
    if let Some(what) = table.as_ref().and_then(|table| mismatch(config, table)) {
        return Err(unfit_table(&config.name, &what).into());
    }
    Ok(table)
}

/// The user's own Ignition configs, and the findings about each of them alone.
fn own_configs(backend: &Platforms, config: &ClusterConfig) -> Result<(Vec<Fragment>, Vec<String>)> {
    let own = fragments::read(config)?;
    let warnings = node::config::check_fragments(&own)?;
    fragments::refuse_too_large(config, &own, |role| backend.capabilities(role).carrier)?;
    Ok((own, warnings))
}

/// Warns of secrets that a commit would publish, before the cluster has any. Only git knows which files it ignores.
fn in_work_tree(config: &ClusterConfig, home: &Home) -> Option<Finding> {
    let tree = home.work_tree().filter(|_| !config.is_rehearsal())?;
    Some(Finding::warn(format!(
        "the state directory {} is in the git work tree {}: `git add --force` would publish its passwords and the \
         pull secret, `git clean -x` would delete them; choose a directory outside of it with OCPDEPLOY_HOME or --home",
        home.root().display(),
        tree.display()
    )))
}

/// A real cluster on the simulated platform: nothing answers at its addresses, or an unrelated machine does.
fn runs_nothing(config: &ClusterConfig, facts: &NetworkFacts) -> Option<Finding> {
    if config.is_rehearsal() {
        return None;
    }
    let api = config.given.api_ip.or(facts.cidr.map(|network| network.network()))?;
    refuse_simulated(&config.name, &config.backend, api).err()?;
    Some(
        Finding::fail(
            "the simulated platform runs no machines, so a real cluster cannot be installed on it".to_owned(),
        )
        .hint("`ocpdeploy deploy --rehearse` runs both passes on it"),
    )
}

/// Which installer is used, and whether settings, images and the user's files are compatible with its release.
///
/// Queries the mirror where necessary; downloads nothing.
pub(super) async fn find_installer(
    backend: Option<&Platforms>,
    config: &ClusterConfig,
    home: &Home,
    facts: Option<&NetworkFacts>,
    seen: &CheckedFacts,
    report: &mut CheckReport<'_>,
) -> Result<Option<Choice>> {
    let choice = Installer::find(config, &home.cluster(&config.name)).await;
    let Some(choice) = report.take("installer", choice)? else {
        return Ok(None);
    };
    let version = choice.version();
    report.take(
        "installer",
        refuse_older(config, home, version).map_err(anyhow::Error::from),
    )?;
    if let Some(unsupported) = unsupported(config, version) {
        report.add("installer", [unsupported]);
        return Ok(None);
    }
    let domain = major_minor(version).and_then(|release| domain_problem(release, &config.domain));
    let hint = "use the newest patch release, or another domain";
    report.add("installer", domain.map(|text| Finding::warn(text).hint(hint)));
    // An overlap is reported with the other findings about the network.
    let known = facts.filter(|facts| networks::findings(config, facts).is_empty());
    let machine_network = config.given.machine_network.or(known.and_then(|facts| facts.cidr));
    let mut rejected = installer::check_settings(config, machine_network.unwrap_or(UNKNOWN_NETWORK.into()), version);
    rejected.extend(
        facts
            .into_iter()
            .flat_map(|facts| networks::of_ovn_kubernetes(config, facts, version)),
    );
    let is_rejected = rejected.iter().any(|finding| finding.verdict == Verdict::Fail);
    report.add("installer", rejected);
    let fips = installer::fips::check_fips(config, &choice).map_err(anyhow::Error::from);
    if report.take("installer", fips)?.is_some() && !is_rejected {
        report.add("installer", [Finding::ok(describe_installer(&choice))]);
    }
    for place in config.boot_places().into_iter().filter(|_| !config.is_rehearsal()) {
        let artifact = Capabilities::of(config.backend_at(place.0)).image_artifact;
        let image = &config.boot_images(place).coreos;
        let fits = image_sources::check(image, version, artifact, place.1).map_err(anyhow::Error::from);
        let fits = report.take("images", fits)?;
        report.add("images", fits);
    }
    if let (Some(backend), Some(facts)) = (backend, facts) {
        let beside = ours::refuse_conflicts(backend, config, facts, seen, version);
        let warnings = report.take("ignition", beside)?.unwrap_or_default();
        report.add("ignition", warnings.into_iter().map(Finding::warn));
    }
    Ok(Some(choice))
}

/// Rejects an older release than the one with which the deployment began, if a channel selects it.
fn refuse_older(config: &ClusterConfig, home: &Home, version: &str) -> Result<(), OperationError> {
    let journal = journal::read(&home.cluster(&config.name).journal()).unwrap_or_default();
    let begun: Option<EffectiveSettings> = journal::output(&journal, EffectiveSettings::STEP);
    let channel = config.downloads.version.as_ref().filter(|wanted| wanted.is_channel());
    match (channel, begun) {
        (Some(channel), Some(EffectiveSettings { installer: before, .. }))
            if Precedence::of(version) < Precedence::of(&before) && !config.downloads.allow_downgrade =>
        {
            Err(installer::downgrade(channel, version, &before))
        }
        _ => Ok(()),
    }
}

/// Rejects an unsupported release that only the installer reveals; a release in the settings was checked with them.
fn unsupported(config: &ClusterConfig, version: &str) -> Option<Finding> {
    let release = major_minor(version).filter(|_| !config.is_rehearsal())?;
    let unsupported = unsupported_release(
        release,
        config.masters,
        config.arbiter,
        &config.backend,
        &config.networks,
        config.ipv6.is_some(),
    )?;
    Some(
        Finding::fail(format!("openshift-install is {version}: {}", unsupported.why))
            .hint(format!("{}, with `installer` or `version`", unsupported.hint)),
    )
}

fn describe_installer(choice: &Choice) -> String {
    match choice {
        Choice::Here {
            installer: Installer::Rehearsal(_),
            ..
        } => "a rehearsal needs neither openshift-install nor a pull secret".to_owned(),
        Choice::Here { version, .. } => format!("openshift-install {version} is installed and supports all settings"),
        Choice::Published(_) => format!(
            "the mirror has openshift-install {}, which `deploy` fetches",
            choice.version()
        ),
    }
}

/// As `find_installer`, for a deployment.
pub(super) async fn check_installer(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    facts: &NetworkFacts,
    seen: &CheckedFacts,
) -> Result<Choice> {
    let mut report = CheckReport::for_deployment();
    let choice = find_installer(Some(backend), config, home, Some(facts), seen, &mut report).await?;
    report.judged()?;
    choice.context("find openshift-install")
}

/// The network of the cluster as its platform describes it.
pub(super) async fn look(backend: &Platforms, config: &ClusterConfig) -> Result<NetworkFacts> {
    let facts = backend.network_facts(&config.network).await?;
    let mut facts = match config.given.machine_network {
        Some(IpNetwork::V6(network)) => facts.of_ipv6(network),
        Some(IpNetwork::V4(_)) | None => facts,
    };
    let given = &config.given;
    facts.cidr = facts.cidr.or(given.machine_network);
    facts.gateway = given.gateway.or(facts.gateway);
    if !given.name_servers.is_empty() {
        facts.resolvers.clone_from(&given.name_servers);
    }
    Ok(facts)
}

/// What the second address family requires.
fn ipv6_network(config: &ClusterConfig, facts: &NetworkFacts) -> Option<Finding> {
    let (text, hint) = ipv6_problem(config, facts)?;
    Some(Finding::fail(text).hint(hint))
}

/// The requirements of static addresses that the platform does not report for the network.
fn static_network(config: &ClusterConfig, facts: &NetworkFacts) -> Option<Finding> {
    if config.dhcp != Dhcp::None {
        return None;
    }
    let missing: Vec<_> = [
        ("gateway", facts.gateway.is_none()),
        ("name_servers", facts.resolvers.is_empty()),
    ]
    .into_iter()
    .filter_map(|(name, is_missing)| is_missing.then_some(name))
    .collect();
    if missing.is_empty() {
        return None;
    }
    let missing = missing.join(" and ");
    Some(
        Finding::fail(format!(
            "dhcp=none requires {missing}, and the platform does not report them for network {}",
            config.network
        ))
        .hint(format!("set {missing} in the env file")),
    )
}

/// An MTU that the network does not carry: long packets would be lost without an error.
fn too_large(config: &ClusterConfig, facts: &NetworkFacts) -> Option<Finding> {
    let (mtu, most) = config.mtu.zip(facts.mtu)?;
    (mtu > most).then(|| {
        Finding::fail(format!(
            "mtu={mtu} is more than the MTU of network {}, which is {most}",
            config.network
        ))
        .hint(format!("set mtu={most} or less, or raise the MTU of the network"))
    })
}

/// A file of `network_config` that contradicts the platform's network; `settings` has compared it with the env file.
fn network_config(config: &ClusterConfig, facts: &NetworkFacts, table: Option<&Parameters>) -> Option<Finding> {
    let mut known = config.clone();
    known.given.machine_network = known.given.machine_network.or(facts.cidr);
    known.given.gateway = facts.gateway;
    if let Some(ipv6) = &mut known.ipv6 {
        ipv6.gateway = ipv6_gateway(ipv6, facts);
    }
    let error = connections(&known, table).err()?;
    Some(Finding {
        hint: error.fault.help.clone(),
        ..Finding::fail(format!("network_config: {error}"))
    })
}

/// The carrier with the lowest limit for a node's config.
fn carrier(backend: &Platforms) -> Carrier {
    let [masters, workers] = [Role::Master, Role::Worker].map(|role| backend.capabilities(role).carrier);
    match (masters.max_stored_bytes(), workers.max_stored_bytes()) {
        (Some(masters_room), Some(workers_room)) if workers_room < masters_room => workers,
        (None, Some(_)) => workers,
        _ => masters,
    }
}

/// The configuration with the machine config server's mode chosen, or why there is no safe one.
fn resolve_mcs(config: &ClusterConfig, facts: &NetworkFacts, carrier: Carrier) -> Result<ClusterConfig, Finding> {
    let dns_knows = facts.answers_dns || config.dns == Dns::User;
    match config.mcs.resolve_mcs(dns_knows, carrier.max_stored_bytes()) {
        Some(mcs) => Ok(ClusterConfig { mcs, ..config.clone() }),
        None => Err(Finding::fail(format!(
            "nodes cannot fetch their configuration securely: the DNS of network {} does not resolve api-int.{}, \
                 and a node's whole configuration is too large for {}",
            config.network,
            config.id(),
            carrier.name
        ))
        .hint(format!(
            "have the network's DNS resolve api-int.{} to api_ip and set dns=user; or set mcs=http, which lets \
                 anyone on the network give nodes their root configuration and read the secrets in it",
            config.id()
        ))),
    }
}

/// As `resolve_mcs`, for commands that skip the other checks.
pub(super) fn with_mcs(
    backend: &Platforms,
    config: &ClusterConfig,
    facts: &NetworkFacts,
) -> Result<ClusterConfig, OperationError> {
    resolve_mcs(config, facts, carrier(backend)).map_err(|finding| preflight(vec![finding]))
}

/// Addresses of the settings that are in use on the network before this cluster has any machine.
async fn answered_for(config: &ClusterConfig, has_vips: bool) -> Vec<Finding> {
    let leases = given_leases(config, has_vips);
    let addresses: BTreeSet<_> = leases.iter().map(|lease| lease.ip).collect();
    let answering = network_probe::answering(&Vec::from_iter(addresses)).await;
    let finding = |lease: &AddressAssignment| {
        let who = match answering.get(&lease.ip)? {
            Some(mac) => format!("another machine with MAC {mac}"),
            None => "another machine".to_owned(),
        };
        Some(Finding::fail(format!("{} {} is in use by {who}", lease.name, lease.ip)))
    };
    leases.iter().filter_map(finding).collect()
}

/// MACs of this cluster that another machine on the network has: MACs are derived from names, so another deployment of
/// this name has the same ones, even on a platform whose machines are not listed here.
async fn answering_macs(
    backend: &Platforms,
    config: &ClusterConfig,
    facts: &NetworkFacts,
    macs: &MacTable,
) -> Result<Vec<Finding>, PlatformError> {
    let node_of = |mac: Mac| macs.iter().find(|(_, known)| **known == mac).map(|(node, _)| node);
    let taken = facts
        .taken
        .iter()
        .filter_map(|(ip, mac)| Some((*ip, node_of((*mac)?)?, (*mac)?)));
    let taken: Vec<_> = taken.collect();
    if taken.is_empty() || !backend.common_capabilities().guests_reachable {
        return Ok(Vec::new());
    }
    let machines = backend.list_machines(&config.id()).await?;
    let own: BTreeSet<Mac> = machines
        .iter()
        .flat_map(|machine| &machine.nics)
        .map(|nic| nic.mac)
        .collect();
    let taken: Vec<_> = taken.into_iter().filter(|(_, _, mac)| !own.contains(mac)).collect();
    let addresses: Vec<_> = taken.iter().map(|(ip, ..)| *ip).collect();
    let answering = network_probe::answering(&addresses).await;
    let in_use = taken
        .into_iter()
        .filter(|(ip, _, mac)| answering.get(ip) == Some(&Some(*mac)));
    Ok(in_use
        .map(|(ip, node, mac)| {
            let text = format!("MAC {mac} of {node} answers at {ip}, and this deployment has no machine with it");
            Finding::fail(text).hint(
                "another deployment of this name is on the network: choose another cluster name, or set other MACs with \
                 bootstrap_mac, master_macs and worker_macs",
            )
        })
        .collect())
}

/// As `answered_for`, for the IPv6 addresses derived from these.
async fn answered_for_ipv6(config: &ClusterConfig, has_vips: bool) -> Vec<Finding> {
    let Some(ipv6) = &config.ipv6 else {
        return Vec::new();
    };
    let known = |lease: AddressAssignment| (ipv6.address_of(&lease.name, lease.ip), lease.name);
    let known: Vec<_> = given_leases(config, has_vips).into_iter().map(known).collect();
    let addresses: BTreeSet<_> = known.iter().map(|(ip, _)| *ip).collect();
    let answering = network_probe::answering_ipv6(ipv6.machine_network, &Vec::from_iter(addresses)).await;
    let used = known.into_iter().filter(|(ip, _)| answering.contains(ip));
    used.map(|(ip, name)| Finding::fail(format!("{name} {ip} is in use by another machine")))
        .collect()
}

/// The addresses in the settings, without the VIPs if a load balancer already has them (`has_vips`).
fn given_leases(config: &ClusterConfig, has_vips: bool) -> Vec<AddressAssignment> {
    let mut leases = machines::static_leases(config, &machines::macs(config, &Default::default()));
    if has_vips {
        leases.retain(|lease| Vip::ALL.iter().all(|vip| lease.name != NodeName::vip(*vip)));
    }
    leases
}

/// Rejects a rehearsal under the name of a real cluster, and the reverse. A cluster without completed steps and without
/// machines is neither: only its addresses were kept.
pub(super) async fn refuse_other_kind(
    backend: &Platforms,
    config: &ClusterConfig,
    known: &Known,
    journal: &[Entry],
) -> Result<()> {
    if known.rehearsal == config.is_rehearsal() {
        return Ok(());
    }
    if !journal::has_steps(journal) && backend.list_machines(&known.id()).await?.is_empty() {
        return Ok(());
    }
    let cluster = &known.name;
    let (text, hint) = match known.rehearsal {
        true => (
            format!("cluster {cluster} is a rehearsal; a real cluster cannot be deployed under its name"),
            format!(
                "OpenShift is not installed in a rehearsal: `ocpdeploy destroy {cluster}` removes it, then run the \
                 same command again; or choose another name with `--cluster NAME`"
            ),
        ),
        false => (
            format!("cluster {cluster} is a real cluster; it cannot be rehearsed under its name"),
            format!("use another name for the rehearsal: `ocpdeploy deploy --rehearse --cluster {cluster}-rehearsal`"),
        ),
    };
    Err(OperationError::new(ErrorKind::Settings, text).hint(hint).into())
}

pub fn refuse_other_cluster(config: &ClusterConfig, known: &Known) -> Result<(), OperationError> {
    let what = if known.domain != config.domain {
        format!("domain {}", known.domain)
    } else if known.deployment != config.deployment {
        // Another process has written the record since the settings were read.
        format!("id {}, which another command has just begun", known.deployment.id)
    } else if known.backend != config.backend {
        format!("different settings of backend {}", known.backend.name())
    } else if known.workers_on != config.workers_on {
        format!("another platform of its workers: it is on {}", known.platforms())
    } else {
        return Ok(());
    };
    let cluster = &config.name;
    let text = format!("cluster {cluster} exists with {what}");
    Err(OperationError::new(ErrorKind::Settings, text).hint(format!(
        "choose another cluster name or restore the settings; `ocpdeploy status {cluster}` shows the cluster that has \
         this name"
    )))
}

fn given_vip_findings(
    config: &ClusterConfig,
    facts: &NetworkFacts,
    neighbours: &inventory::Neighbours,
    can_hold: bool,
    own: &BTreeSet<Mac>,
    has_vips: bool,
) -> Vec<Finding> {
    let problem = |vip| {
        let ip = config.given.vip(vip)?;
        if let Some(problem) = vip_problem(vip, ip, facts, can_hold, &neighbours.addresses) {
            return Some(Finding::fail(problem));
        }
        let taken = vip_taken(vip, ip, facts, own).filter(|_| !has_vips)?;
        let hint =
            format!("set another {vip}_ip, or release this address: `ocpdeploy` does not take it from its owner");
        Some(Finding::fail(taken).hint(hint))
    };
    Vip::ALL.into_iter().filter_map(problem).collect()
}

/// Checks only the given VIPs: an IPv6 address derived from a free IPv4 address is free, too.
fn given_ipv6_findings(
    config: &ClusterConfig,
    facts: &NetworkFacts,
    neighbours: &inventory::Neighbours,
    own: &BTreeSet<Mac>,
) -> Vec<Finding> {
    let used = |vip| {
        let ip = config.ipv6.as_ref()?.given_vip(vip)?;
        let owner = neighbours.addresses.get(&ip.into())?;
        Some(Finding::fail(format!("{vip}_ip {ip} is already used by {owner}")))
    };
    let taken = ipv6_vips_taken(config, facts, own)
        .map(|(vip, ip)| Finding::fail(format!("{vip}_ip {ip} is already reserved on the network")));
    Vip::ALL.into_iter().filter_map(used).chain(taken).collect()
}

fn given_router_id_finding(config: &ClusterConfig, neighbours: &inventory::Neighbours) -> Option<Finding> {
    let id = config.given.api_virtual_router_id?;
    let owner = neighbours.virtual_router_ids.get(&id)?;
    Some(Finding::fail(format!(
        "api_virtual_router_id {id} is already used by {owner}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Ipv6Settings;

    /// In ::/96, the address derived from 0.0.0.1 is ::1, which is this computer.
    #[tokio::test]
    async fn ipv6_addresses_of_nodes_and_vips_that_answer_are_found() {
        let [ours, free] = [1, 2].map(|last| IpAddr::from([0, 0, 0, last]));
        let mut config = ClusterConfig::example();
        (config.given.api_ip, config.given.ingress_ip) = (Some(ours), Some(free));
        config.given.master_ips = vec![free, ours];
        assert!(answered_for_ipv6(&config, false).await.is_empty());
        config.ipv6 = Some(Ipv6Settings {
            machine_network: "::/96".parse().unwrap(),
            cluster_network: "fd01::/48".parse().unwrap(),
            service_network: "fd02::/112".parse().unwrap(),
            gateway: None,
            api_ip: None,
            ingress_ip: None,
        });
        for (has_vips, expected) in [(false, &["api", "master-1"][..]), (true, &["master-1"])] {
            let found = answered_for_ipv6(&config, has_vips).await;
            let texts: Vec<_> = found.into_iter().map(|finding| finding.text).collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|name| format!("{name} ::1 is in use by another machine"))
                .collect();
            assert_eq!(texts, expected);
        }
    }
}
