//! What ocpdeploy itself adds to the nodes, computed before any address is known: a conflicting config of the user is
//! rejected before pass one, by the code that later merges both.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;
use serde_json::{Value, json};

use super::error::network_config;
use super::image_sources;
use super::report::CheckedFacts;
use crate::backend::NetworkFacts;
use crate::backend::platforms::Platforms;
use crate::cluster::{AddressAssignment, ClusterConfig, Dhcp, Harvest, Mac, NodeName, Role, Vip, major_minor};
use crate::ignition::contents::data_url;
use crate::node::config::{NodeConfigs, for_coreos};
use crate::node::services::{self, Combined, Release};
use crate::node::user_manifests::check_machine_configs;
use crate::openshift::installer;
use crate::plan::addresses::ipv6_gateway;
use crate::plan::connections::connections;
use crate::plan::machines;
use crate::state::parameters::{NodeAddress, Parameters};

/// Placeholder addresses for those that pass one finds; RFC 2544 reserves them for tests.
const PLACEHOLDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// Rejects user configs and manifests that write what ocpdeploy, the user's own MachineConfigs or the machine config
/// operator write; returns warnings.
///
/// The installer's files do not exist yet; they are compared after they are created. The operator's are compared only
/// here: they are not in any file of the installer.
pub(super) fn refuse_conflicts(
    backend: &Platforms,
    config: &ClusterConfig,
    facts: &NetworkFacts,
    seen: &CheckedFacts,
    version: &str,
) -> Result<Vec<String>> {
    if seen.fragments.is_empty() && config.manifests.is_none() && config.mirror_manifests.is_empty() {
        return Ok(Vec::new());
    }
    let parameters = match &seen.table {
        Some(table) => table.clone(),
        None => placeholder_table(config, facts),
    };
    let release = release(version);
    let leased = leased(backend, config, &parameters);
    let services = services::Input {
        config,
        parameters: &parameters,
        release: &release,
        leased: &leased,
    };
    let manifests = installer::combined_manifests(config, services::manifests(&services)?)?;
    let files = installers_files(config, &manifests, release.version)?;
    let bootstrap = services::parts(&services, Role::Bootstrap)?;
    let connections = connections(config, seen.table.as_ref()).map_err(network_config)?;
    let (fragments, rewritten) = for_coreos(&seen.fragments, |role| {
        image_sources::newest_spec(config, role, release.version)
    })?;
    let all = NodeConfigs::new(config, &parameters, &files, &fragments, &bootstrap)?;
    let all = all.with_connections(connections);
    for node in config.nodes() {
        all.layers(&node.name, node.role)?;
    }
    all.refuse_operator_files(release.version)?;
    let users: Vec<_> = manifests
        .users
        .iter()
        .map(|user| (user.path.as_path(), user.content.as_slice()))
        .collect();
    let pools = config
        .pools
        .iter()
        .filter(|pool| pool.own_configs)
        .map(|pool| pool.name.to_string());
    let of_users = check_machine_configs(&users, release.version, pools)?;
    let mut warnings = [rewritten, manifests.warnings, of_users].concat();
    warnings.extend(all.refuse_machine_configs()?);
    Ok(warnings)
}

/// The cluster's table with placeholder addresses.
fn placeholder_table(config: &ClusterConfig, facts: &NetworkFacts) -> Parameters {
    let macs = machines::macs(config, &Default::default());
    let mut addresses = (0..).map(|offset| Ipv4Addr::from_bits(PLACEHOLDER.to_bits() + offset));
    let mut lease = |name: NodeName| AddressAssignment {
        mac: macs.get(&name).copied().unwrap_or(Mac([0; 6])),
        ip: addresses.next().unwrap_or(PLACEHOLDER).into(),
        name,
    };
    let vips = Vip::ALL.map(|vip| lease(NodeName::vip(vip)));
    let nodes = config.nodes().into_iter();
    let nodes = nodes
        .map(|node| NodeAddress::new(node.role, lease(node.name)))
        .collect();
    let machine_network = facts.cidr.unwrap_or_else(|| IpAddr::V4(PLACEHOLDER).into());
    let addresses = [vips[0].ip, vips[1].ip];
    let mut table = Parameters::new(
        &config.name,
        &config.domain,
        config.backend.name(),
        &config.network,
        facts,
        machine_network,
        config.harvest,
        vips,
        [1, 2],
        nodes,
    );
    table.ipv6 = config.ipv6.as_ref().map(|ipv6| {
        let gateway = ipv6_gateway(ipv6, facts).unwrap_or(ipv6.machine_network.network());
        ipv6.table(gateway, addresses)
    });
    table
}

/// The virtual IPs that will not be reserved, as far as that is known.
fn leased(backend: &Platforms, config: &ClusterConfig, parameters: &Parameters) -> Vec<AddressAssignment> {
    let kept = backend.capabilities(Role::Master).reserves_addresses
        || config.dhcp != Dhcp::Platform
        || config.harvest != Harvest::Boot;
    let leased = Vip::ALL
        .into_iter()
        .filter(|vip| !kept && machines::is_harvested(config, *vip));
    leased.map(|vip| parameters.vip(vip)).collect()
}

/// A release of this version with all images; their names are irrelevant.
fn release(version: &str) -> Release {
    let image = |name: &&str| ((*name).to_owned(), format!("stand-in/{name}"));
    Release {
        // Without a version it is assumed to be recent.
        version: major_minor(version).unwrap_or((4, 19)),
        images: services::IMAGES.iter().map(image).collect(),
    }
}

/// The known part of the installer's files: the spec, the pointers, and the manifests of ocpdeploy and the user.
fn installers_files(
    config: &ClusterConfig,
    manifests: &Combined,
    version: (u32, u32),
) -> Result<BTreeMap<Role, Vec<u8>>> {
    // openshift/installer writes spec 3 since 4.6, and its list of configs to fetch has another name there.
    let (spec, list) = match version >= (4, 6) {
        true => ("3.1.0", "merge"),
        false => ("2.2.0", "append"),
    };
    let ours = manifests
        .ours
        .iter()
        .map(|manifest| (manifest.path.clone(), manifest.content.as_bytes()));
    let users = manifests
        .users
        .iter()
        .map(|user| (format!("openshift/{}", user.name), user.content.as_slice()));
    let file = |(path, content): (String, &[u8])| {
        let mut file = json!({"path": format!("/opt/openshift/{path}"), "contents": {"source": data_url(content)}});
        if version < (4, 6) {
            file["filesystem"] = json!("root");
        }
        file
    };
    let manifests: Vec<Value> = ours.chain(users).map(file).collect();
    let mut files = BTreeMap::new();
    let bootstrap = json!({"ignition": {"version": spec}, "storage": {"files": manifests}});
    files.insert(Role::Bootstrap, serde_json::to_vec(&bootstrap)?);
    for role in config.node_roles() {
        let api = config.cluster_domain().fqdn("api-int");
        let source = format!("https://{api}:22623/config/{role}");
        let pointer = json!({"ignition": {"version": spec, "config": {list: [{"source": source}]}}});
        files.insert(role, serde_json::to_vec(&pointer)?);
    }
    Ok(files)
}
