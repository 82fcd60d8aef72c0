//! What a deployment would create, for the user to review first.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::backend::Capabilities;
use crate::cluster::{ClusterConfig, Harvest, Lb, Mac, NodeName, Vip};
use crate::plan::Change;
use crate::plan::machines::{self, Planned, VipSource, is_harvested, pass_one, pass_two};
use crate::plan::node_settings::NodeSettings;
use crate::state::parameters::Parameters;

/// What a deployment would create; changes nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub cluster: String,
    pub domain: String,
    pub backend: &'static str,
    /// The workers' own platform, if they have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_on: Option<PlannedPlace>,
    pub network: String,
    pub harvest: Harvest,
    /// Whether a parameter file exists, so that pass one is skipped.
    pub harvested: bool,
    pub vips: Vec<PlannedVip>,
    pub nodes: NodeSettings,
    pub pass_one: Vec<Planned>,
    pub pass_two: Vec<Planned>,
    /// How long earlier deployments took; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedTime>,
    /// The address of the registry cache that the nodes pull through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_cache: Option<Ipv4Addr>,
    /// What this network does not support.
    pub limits: Vec<&'static str>,
    /// Peak usage, without the workers' own platform.
    pub memory_mib: u64,
    pub disk_gib: u64,
    /// Compared with the platform, if it was queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<Change>>,
}

/// How long a deployment probably takes.
#[derive(Clone, Debug, Serialize)]
pub struct ExpectedTime {
    pub seconds: u64,
    /// The number of earlier deployments of similar size on this platform from which the time is derived.
    pub deployments: usize,
    /// These deployments with their sizes: `2 deployments of 3 to 5 nodes`.
    pub source: String,
    /// The time of each phase.
    pub phases: Vec<ExpectedPhase>,
}

/// A part of a deployment: its usual time, and the best one of all earlier deployments.
#[derive(Clone, Debug, Serialize)]
pub struct ExpectedPhase {
    pub phase: String,
    pub seconds: u64,
    pub best_seconds: u64,
}

/// The workers' own platform, and its peak usage.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedPlace {
    /// `workers`, or some of them.
    pub machines: String,
    pub backend: String,
    pub network: String,
    pub memory_mib: u64,
    pub disk_gib: u64,
}

/// A virtual IP of the plan.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedVip {
    pub name: NodeName,
    pub ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
    pub mac: Mac,
    /// `None` until the address is known.
    pub virtual_router_id: Option<u8>,
    /// On a platform that cannot reserve addresses: what keeps the VIP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<&'static str>,
}

/// What keeps a VIP's address if the platform does not reserve it.
fn kept_by(config: &ClusterConfig, vip: Vip) -> Option<&'static str> {
    if Capabilities::of(&config.backend).reserves_addresses || config.lb == Lb::Platform {
        return None;
    }
    Some(match is_harvested(config, vip) {
        false => "not reserved: it must be outside the range of every DHCP server",
        true => {
            "leased with its own MAC; the node that holds it renews the lease, which can expire while all nodes are off"
        }
    })
}

/// Limitations of clusters on the pod network.
const ON_PODS: [&str; 5] = [
    "addresses cannot be learned by MAC: only the node itself sees its address, and nodes reach each other through Services",
    "this computer cannot reach the nodes: `node console` works, SSH and the probe of a rehearsal do not",
    "virtual IPs are Services, without keepalived or haproxy on the nodes; the networks in `kubevirt_admit` can reach the machine config server",
    "live migration interrupts a machine's connections for some seconds",
    "experimental: OpenShift expects nodes on one network",
];

/// Plans both passes. Pass one is empty if it boots no machine.
pub fn plan(config: &ClusterConfig, parameters: Option<&Parameters>, taken: &BTreeSet<Mac>) -> Plan {
    let macs = machines::macs(config, taken);
    let one = match (parameters, config.harvest) {
        (None, Harvest::Boot) => {
            let vips = VipSource::of(config, &Capabilities::of(&config.backend), None);
            pass_one(config, &macs, vips)
        }
        _ => Vec::new(),
    };
    let two = pass_two(config, &macs, parameters);
    let needs = machines::needs(config, &one, &two);
    let vips = Vip::ALL
        .into_iter()
        .filter_map(|vip| {
            let name = NodeName::vip(vip);
            let ip = parameters.map(|p| p.vip(vip).ip).or_else(|| config.given.vip(vip));
            let of_table = parameters.and_then(|p| Some(p.ipv6.as_ref()?.vip(vip)));
            Some(PlannedVip {
                ip,
                ipv6: of_table.or_else(|| Some(config.ipv6.as_ref()?.vip(vip, ip?))),
                mac: parameters
                    .map(|p| p.vip(vip).mac)
                    .or_else(|| macs.get(&name).copied())?,
                virtual_router_id: parameters.map(|parameters| parameters.router_id(vip)),
                kept: kept_by(config, vip),
                name,
            })
        })
        .collect();
    Plan {
        cluster: config.name.clone(),
        domain: config.domain.clone(),
        backend: config.backend.name(),
        workers_on: config
            .workers_on
            .as_ref()
            .zip(needs.workers.as_ref())
            .map(|(workers, needs)| PlannedPlace {
                machines: workers.machines(),
                backend: workers.name_beside(&config.backend),
                network: workers.network.clone(),
                memory_mib: needs.memory_mib,
                disk_gib: needs.disk_gib,
            }),
        network: config.network.clone(),
        harvest: config.harvest,
        harvested: parameters.is_some(),
        vips,
        nodes: NodeSettings::new(config, parameters),
        pass_one: one,
        pass_two: two,
        expected: None,
        registry_cache: config.registry_cache.as_ref().map(|cache| cache.address),
        limits: match config.backend.pod_network() {
            Some(_) => ON_PODS.to_vec(),
            None => Vec::new(),
        },
        memory_mib: needs.memory_mib,
        disk_gib: needs.disk_gib,
        changes: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{BackendConfig, KubevirtConfig, PodNetwork};

    #[test]
    fn the_plan_counts_the_larger_pass() {
        let mut config = ClusterConfig::example();
        let plan_now = plan(&config, None, &BTreeSet::new());
        assert_eq!(plan_now.memory_mib, 8192 + 3 * 16384 + 2 * 8192);
        assert_eq!(plan_now.disk_gib, 600);
        config.harvest_size.memory_mib = 100_000;
        assert_eq!(plan(&config, None, &BTreeSet::new()).memory_mib, 600_000);
        config.harvest = Harvest::Reserve;
        assert!(plan(&config, None, &BTreeSet::new()).pass_one.is_empty());
    }

    #[test]
    fn a_plan_lists_the_limits_of_its_network_and_how_vips_are_kept() {
        let mut config = ClusterConfig::example();
        let kept = |config: &ClusterConfig| {
            let vips = plan(config, None, &BTreeSet::new()).vips;
            [vips[0].kept, vips[1].kept]
        };
        assert_eq!(kept(&config), [None, None]);
        assert!(plan(&config, None, &BTreeSet::new()).limits.is_empty());
        config.backend = BackendConfig::example_ovirt();
        config.given.api_ip = Some([192, 168, 122, 10].into());
        let [api, ingress] = kept(&config).map(Option::unwrap);
        assert!(
            api.starts_with("not reserved") && ingress.starts_with("leased"),
            "{api} {ingress}"
        );
        config.lb = Lb::Platform;
        assert_eq!(kept(&config), [None, None]);
        for backend in [
            config.backend.clone(),
            BackendConfig::Kubevirt(KubevirtConfig::default()),
        ] {
            config.backend = backend;
            assert!(plan(&config, None, &BTreeSet::new()).limits.is_empty());
        }
        config.backend = BackendConfig::Kubevirt(KubevirtConfig {
            pods: Some(PodNetwork::default()),
            ..KubevirtConfig::default()
        });
        assert_eq!(plan(&config, None, &BTreeSet::new()).limits, ON_PODS);
    }
}
