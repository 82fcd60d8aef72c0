//! Pass one: its MACs, the load balancers' VIPs, and the parameter file. For its machines see `throwaway.rs`, for
//! reservations `reserve.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use ipnetwork::IpNetwork;

use super::error::{no_range, no_router_id, ranges_exhausted, refuse, unfit_table};
use super::run::Run;
use crate::backend::platforms::Platforms;
use crate::backend::{BalancedVip, Finding};
use crate::cluster::{
    AddressAssignment, ApiEndpoint, ClusterConfig, Evidence, ExternalVips, Harvest, Lb, NodeName, Role, Vip,
};
use crate::error::OperationError;
use crate::local::network_probe;
use crate::plan::address_ranges;
use crate::plan::addresses::{self, preferred_router_id, vip_problem, virtual_router_ids};
use crate::plan::machines::{self, MacTable};
use crate::state::inventory;
use crate::state::journal::Step;
use crate::state::parameters::{NodeAddress, Parameters, VrrpPassword};

/// Four of the one-second intervals in which routers advertise themselves.
const LISTEN: Duration = Duration::from_secs(4);

/// The name of `macs_step`.
pub(super) const MACS: &str = "pass-one/macs";

impl Run<'_> {
    /// The step that chooses the MACs.
    pub(super) fn macs_step(&self) -> Result<Step> {
        let nodes = self.config.nodes().into_iter().map(|node| (node.name, node.role));
        Step::new(MACS, &(nodes.collect::<Vec<_>>(), &self.config.given))
    }

    pub(super) async fn macs(&self) -> Result<MacTable> {
        let choose = async {
            let neighbours = self.neighbours()?;
            Ok(machines::macs(self.config, &neighbours.macs))
        };
        self.journal.run(&self.macs_step()?, choose).await
    }

    /// The addresses of these nodes and VIPs, without those of `address_ranges`; the steps' names begin with `workflow`.
    pub(super) async fn leases(&self, workflow: &str, macs: &MacTable) -> Result<Vec<AddressAssignment>> {
        match self.config.harvest {
            Harvest::Boot => self.boot_and_look(workflow, macs).await,
            Harvest::Reserve => self.reserve(workflow, macs).await,
            Harvest::Static => Ok(machines::static_leases(self.config, macs)),
        }
    }

    /// A line of the table, with the evidence for the address that `look_for_leases` has noted.
    pub(super) fn node_address(&self, workflow: &str, role: Role, lease: &AddressAssignment) -> Result<NodeAddress> {
        let note = format!("{workflow}/leases/{}", lease.name);
        let noted: Option<(IpAddr, Evidence)> = self.journal.output(&note)?;
        let evidence = noted.filter(|(ip, evidence)| *ip == lease.ip && *evidence != Evidence::Platform);
        Ok(NodeAddress {
            evidence: evidence.map(|(_, evidence)| evidence),
            ..NodeAddress::new(role, lease.clone())
        })
    }

    /// A VIP on the platform's own load balancer, which is created if missing.
    pub(super) async fn balanced(&self, vip: Vip) -> Result<Option<BalancedVip>> {
        if self.config.lb != Lb::Platform {
            return Ok(None);
        }
        let balancer = machines::balancer(self.config, vip, None, false);
        Ok(self.backend.ensure_load_balancer(&balancer).await?)
    }

    /// Gives the VIPs of the platform's load balancers their addresses; returns the endpoint of the API for this
    /// computer, if it is a different one.
    pub(super) async fn balanced_vips(
        &self,
        leases: &mut Vec<AddressAssignment>,
        macs: &MacTable,
    ) -> Result<Option<ApiEndpoint>> {
        let mut endpoint = None;
        for vip in Vip::ALL {
            let Some(balanced) = self.balanced(vip).await? else {
                continue;
            };
            let name = NodeName::vip(vip);
            let Some(mac) = balanced.mac.or_else(|| macs.get(&name).copied()) else {
                continue;
            };
            leases.retain(|lease| lease.name != name);
            leases.push(AddressAssignment {
                name,
                mac,
                ip: balanced.ip,
            });
            if vip == Vip::Api {
                endpoint = balanced.endpoint;
            }
        }
        Ok(endpoint)
    }

    /// Where computers outside of the network reach the VIPs. Both may be one; those of `address_ranges` are chosen later.
    pub(super) async fn external_vips(&self, leases: &[AddressAssignment]) -> Result<ExternalVips> {
        let ip = |vip| {
            leases
                .iter()
                .find(|lease| lease.name == NodeName::vip(vip))
                .map(|lease| lease.ip)
        };
        external_vips(self.backend, self.config, Vip::ALL.map(ip), true).await
    }

    /// Changes the platform's load balancers to the table: their ports and members.
    pub(super) async fn balance(&self, config: &ClusterConfig, table: &Parameters) -> Result<()> {
        if config.lb != Lb::Platform {
            return Ok(());
        }
        let bootstrapped = self.journal.done_at("bootstrap-complete").is_some();
        // One after the other: both VIPs may be one load balancer.
        for vip in Vip::ALL {
            let balancer = machines::balancer(config, vip, Some(table), bootstrapped);
            self.backend.ensure_load_balancer(&balancer).await?;
        }
        Ok(())
    }

    /// VRRP ids in use on the network, if this computer receives their advertisements.
    pub(super) async fn listen_for_routers(&self) -> Result<BTreeMap<u8, Ipv4Addr>> {
        let near = self.facts.gateway.or(self.config.given.api_ip);
        match near.filter(|_| self.backend.common_capabilities().guests_reachable) {
            Some(near) => Ok(network_probe::virtual_router_ids(near, LISTEN).await),
            None => Ok(BTreeMap::new()),
        }
    }

    pub(super) fn machine_network(&self) -> Result<IpNetwork, OperationError> {
        let range = self.config.given.machine_network.or(self.facts.cidr);
        range.ok_or_else(|| no_range(&self.config.network))
    }

    /// Chooses addresses of `address_ranges` and VRIDs that no cluster of the network uses, and writes the table, under one
    /// lock.
    ///
    /// `free`: all MACs, and the free addresses of `address_ranges`.
    pub(super) fn write_parameters(
        &self,
        mut leases: Vec<AddressAssignment>,
        (macs, free): (&MacTable, &[IpAddr]),
        heard: &BTreeMap<u8, Ipv4Addr>,
        (endpoint, external): (Option<ApiEndpoint>, ExternalVips),
    ) -> Result<Parameters> {
        let network = self.machine_network()?;
        let _allocation = inventory::allocate(self.home)?;
        let neighbours = self.neighbours()?;
        address_ranges::fill(self.config, macs, free, &neighbours.addresses, &mut leases)
            .map_err(|node| ranges_exhausted(self.config, &node))?;
        let by_name: BTreeMap<_, _> = leases.into_iter().map(|lease| (lease.name.clone(), lease)).collect();
        let missing = |name: &NodeName| unfit_table(&self.config.name, &format!("{name} has no address"));
        let mut nodes = Vec::new();
        for node in self.config.nodes() {
            let lease = by_name.get(&node.name).ok_or_else(|| missing(&node.name))?;
            nodes.push(self.node_address("pass-one", node.role, lease)?);
        }
        let vip = |vip: Vip| {
            by_name
                .get(&NodeName::vip(vip))
                .cloned()
                .ok_or_else(|| missing(&NodeName::vip(vip)))
        };
        let [api, ingress] = [vip(Vip::Api)?, vip(Vip::Ingress)?];
        let used = self.config.given.api_virtual_router_id.and_then(|id| {
            let router = heard.get(&id)?;
            Some(format!("api_virtual_router_id {id} is used by {router}"))
        });
        let ipv6 = addresses::ipv6_table(self.config, self.facts, [api.ip, ingress.ip]);
        let ipv6_used = ipv6.iter().flat_map(|ipv6| neighbours.ipv6_clashes(ipv6));
        let problems = [(Vip::Api, api.ip), (Vip::Ingress, ingress.ip)]
            .into_iter()
            .filter(|_| self.config.lb != Lb::Platform)
            .filter_map(|(vip, ip)| vip_problem(vip, ip, self.facts, true, &neighbours.addresses))
            .chain(used)
            .chain(ipv6_used)
            .map(Finding::fail);
        refuse(problems.collect())?;
        let taken = neighbours
            .virtual_router_ids
            .keys()
            .chain(heard.keys())
            .copied()
            .collect();
        let [wish, ingress_wish] = [api.ip, ingress.ip].map(preferred_router_id);
        let wishes = [self.config.given.api_virtual_router_id.unwrap_or(wish), ingress_wish];
        let ids = virtual_router_ids(wishes, &taken).ok_or_else(|| no_router_id(&self.config.network))?;
        let mut parameters = Parameters::new(
            &self.config.name,
            &self.config.domain,
            self.config.backend.name(),
            &self.config.network,
            self.facts,
            network,
            self.config.harvest,
            [api, ingress],
            ids,
            nodes,
        );
        parameters.api_endpoint = endpoint;
        parameters.external_vips = external;
        parameters.tenant.clone_from(&self.config.tenant);
        parameters.ipv6 = ipv6;
        if self.config.lb == Lb::Keepalived {
            parameters.vrrp_password = Some(vrrp_password()?);
        }
        parameters.write(&self.dir.parameters())?;
        Ok(parameters)
    }
}

/// Where computers outside of the network reach the VIPs with these addresses, if they are known.
pub(super) async fn external_vips(
    backend: &Platforms,
    config: &ClusterConfig,
    [api, ingress]: [Option<IpAddr>; 2],
    create: bool,
) -> Result<ExternalVips> {
    let is_one = api.is_some() && api == ingress;
    let vips: &[Vip] = if is_one { &[Vip::Api] } else { &Vip::ALL };
    let mut external = backend.external_vips(&config.id(), vips, create).await?;
    if is_one {
        external.ingress = external.api;
    }
    Ok(external)
}

fn vrrp_password() -> Result<VrrpPassword> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).context("read random bytes for the VRRP password")?;
    Ok(VrrpPassword::from_random(bytes))
}
