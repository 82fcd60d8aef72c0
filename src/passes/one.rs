//! The steps of pass one: MACs, leases, the parameter file, and what holds the addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use ipnetwork::Ipv4Network;
use tokio::time::Instant;
use tracing::info;

use super::destroy::delete_machines;
use super::error::PassError;
use super::images::Handles;
use super::launch::Launches;
use super::run::Run;
use crate::PROGRESS;
use crate::backend::{
    AddressReservation, BackendError, BackendErrorKind, BalancedVip, Finding, MachineSpec, Owned, ReservationState,
    Verdict,
};
use crate::cluster::{AddressAssignment, ApiEndpoint, ClusterId, Dhcp, Lb, Mac, MachineName, NodeName, Pass, Vip};
use crate::local::network_probe;
use crate::node::cloud_init;
use crate::plan::addresses::{free_addresses, vip_problem, virtual_router_ids, wished_router_id};
use crate::plan::harvest::Watch;
use crate::plan::machines::{self, MacTable, Planned};
use crate::state::inventory;
use crate::state::parameters::{NodeAddress, Parameters, VrrpPassword};

/// Four of the one-second intervals in which routers advertise themselves.
const LISTEN: Duration = Duration::from_secs(4);

/// The step that chooses the MACs.
pub(super) const MACS: &str = "pass-one/macs";

/// The step that makes the platform hold the table's addresses.
const HOLD: &str = "pass-one/hold";

impl Run<'_> {
    pub(super) fn judge_macs(&self) -> Result<()> {
        self.journal.judge(MACS, &(self.config.nodes(), &self.config.given))
    }

    pub(super) fn judge_held(&self, parameters: &Parameters) -> Result<()> {
        match self.config.dhcp {
            Dhcp::User => Ok(()),
            Dhcp::Platform => self.journal.judge(HOLD, &holds(parameters)),
        }
    }

    /// Judges what `boot_and_look` did in earlier runs.
    pub(super) async fn judge_boot(&self, story: &str, macs: &MacTable) -> Result<()> {
        let planned = machines::pass_one(self.config, macs);
        self.journal.judge(&format!("{story}/leases"), &planned)?;
        if let Some(images) = self.judge_helper_images(story).await? {
            self.journal.judge(&format!("{story}/create"), &(&planned, &images))?;
        }
        Ok(())
    }

    pub(super) async fn macs(&self) -> Result<MacTable> {
        let choose = async {
            let clusters = inventory::clusters(self.home)?;
            let neighbours = inventory::neighbours(&clusters, &self.facts.identity, &self.config.id());
            Ok(machines::macs(self.config, &neighbours.macs))
        };
        self.journal
            .step(MACS, &(self.config.nodes(), &self.config.given), choose)
            .await
    }

    /// Boots throwaway machines and waits until each has shown one stable address; the steps are beneath `story`.
    pub(super) async fn boot_and_look(&self, story: &str, macs: &MacTable) -> Result<Vec<AddressAssignment>> {
        let planned = machines::pass_one(self.config, macs);
        let total = planned.len();
        let images = self.helper_images(story).await?;
        let create = async {
            info!(target: PROGRESS, step = "pass one", total, "booting {total} throwaway machines");
            stream::iter(&planned)
                .map(|machine| self.create_helper(story, machine, &images))
                .buffer_unordered(self.backend.common_capabilities().concurrency)
                .try_collect::<Vec<()>>()
                .await?;
            Ok(())
        };
        self.journal
            .step(&format!("{story}/create"), &(&planned, &images), create)
            .await?;
        let mut leases = self
            .journal
            .step(
                &format!("{story}/leases"),
                &planned,
                self.look_for_leases(story, &planned, &images),
            )
            .await?;
        leases.extend(Vip::ALL.into_iter().filter_map(|vip| {
            let name = NodeName::vip(vip);
            Some(AddressAssignment {
                ip: machines::given_vip(self.config, vip)?,
                mac: *macs.get(&name)?,
                name,
            })
        }));
        Ok(leases)
    }

    async fn create_helper(&self, story: &str, machine: &Planned, images: &Handles) -> Result<()> {
        info!(target: PROGRESS, machine = %machine.name, state = "creating");
        self.backend.create_machine(&self.helper_spec(machine, images)?).await?;
        info!(target: PROGRESS, machine = %machine.name, state = "booting");
        self.journal.note(&format!("{story}/create/{}", machine.node), &())
    }

    fn helper_spec(&self, machine: &Planned, images: &Handles) -> Result<MachineSpec> {
        let mac = machine.mac().with_context(|| format!("{} has no NIC", machine.name))?;
        let payload = cloud_init::helper_payload(machine.name.as_str(), mac, &self.config.ssh_keys)?;
        Ok(machine.spec(self.config, images.of(machine.role), payload))
    }

    async fn look_for_leases(
        &self,
        story: &str,
        planned: &[Planned],
        images: &Handles,
    ) -> Result<Vec<AddressAssignment>> {
        let begun = Instant::now();
        let mut launches = Launches::new();
        let mut watch = Watch::new(self.facts.cidr);
        let id = self.config.id();
        loop {
            let machines = self.backend.list_machines(&id).await?;
            let spec = |machine: &Planned| self.helper_spec(machine, images);
            self.start_again(&mut launches, planned, &machines, spec).await?;
            for change in watch.look(planned, &machines) {
                let state = if change.stable { "address" } else { "looking" };
                info!(target: PROGRESS, machine = %change.name, state, done = change.stable, "{change}");
                let plan = planned.iter().find(|plan| change.stable && plan.name == change.name);
                if let Some((plan, ip)) = plan.zip(watch.address(&change.name)) {
                    self.journal.note(&format!("{story}/leases/{}", plan.node), &ip)?;
                }
            }
            if watch.is_complete(planned) {
                break;
            }
            let (waited, limit) = (begun.elapsed(), self.config.timeouts.harvest);
            if let Some(error) = self.wait_failure(&watch, planned, waited, limit).await {
                return Err(error.into());
            }
            tokio::time::sleep(self.backend.common_capabilities().poll_interval).await;
        }
        let lease = |plan: &Planned| {
            Some(AddressAssignment {
                name: plan.node.clone(),
                mac: plan.mac()?,
                ip: watch.address(&plan.name)?,
            })
        };
        Ok(planned.iter().filter_map(lease).collect())
    }

    /// Chooses free addresses; the platform's refusal of a clash makes each choice atomic.
    pub(super) async fn reserve(&self, story: &str, macs: &MacTable) -> Result<Vec<AddressAssignment>> {
        let choose = async {
            let network = self.machine_network()?;
            let _allocation = inventory::allocate(self.home)?;
            let clusters = inventory::clusters(self.home)?;
            let neighbours = inventory::neighbours(&clusters, &self.facts.identity, &self.config.id());
            let ours = self.backend.list_reservations(&self.config.id()).await?;
            // The bootstrap's address is nobody's any more, and stays in the table.
            let table = Parameters::read(&self.dir.parameters()).ok().flatten();
            let leases = table.iter().flat_map(Parameters::leases);
            let kept: Vec<Ipv4Addr> = leases
                .filter(|lease| !macs.contains_key(&lease.name))
                .map(|lease| lease.ip)
                .collect();
            let free = free_addresses(network, self.facts, &neighbours.addresses).into_iter();
            let mut free = free.filter(|ip| !kept.contains(ip));
            let mut leases = Vec::new();
            for (name, mac) in macs {
                let given = Vip::ALL.into_iter().find(|vip| NodeName::vip(*vip) == *name);
                let chosen = match given {
                    Some(vip) => self.balanced(vip).await?.map(|balanced| balanced.ip),
                    None => None,
                };
                if let Some(ip) = chosen.or_else(|| machines::given_vip(self.config, given?)) {
                    leases.push(AddressAssignment {
                        name: name.clone(),
                        mac: *mac,
                        ip,
                    });
                } else if let Some(held) = ours.iter().find(|lease| lease.mac == *mac) {
                    leases.push(AddressAssignment {
                        name: name.clone(),
                        ..held.clone()
                    });
                } else {
                    leases.push(self.reserve_one(name, *mac, &mut free).await?);
                }
            }
            Ok(leases)
        };
        self.journal.step(&format!("{story}/leases"), macs, choose).await
    }

    /// A VIP that the platform's own balancer has; made where it is not there.
    pub(super) async fn balanced(&self, vip: Vip) -> Result<Option<BalancedVip>> {
        if self.config.lb != Lb::Platform {
            return Ok(None);
        }
        let balancer = machines::balancer(self.config, vip);
        Ok(match self.backend.load_balancers() {
            Some(balancers) => balancers.ensure(&balancer).await?,
            None => None,
        })
    }

    async fn reserve_one(
        &self,
        name: &NodeName,
        mac: Mac,
        free: &mut impl Iterator<Item = Ipv4Addr>,
    ) -> Result<AddressAssignment> {
        for ip in free {
            let lease = AddressAssignment {
                name: name.clone(),
                mac,
                ip,
            };
            match self
                .backend
                .reserve_address(&hold_of(&self.config.id(), &self.config.network, &lease))
                .await
            {
                Ok(_) => {
                    info!(target: PROGRESS, machine = %name, state = "reserved", done = true, "{ip}");
                    return Ok(lease);
                }
                Err(BackendError {
                    kind: BackendErrorKind::Conflict,
                    ..
                }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(PassError::NoAddress {
            network: self.config.network.clone(),
            node: name.clone(),
        }
        .into())
    }

    /// VRRP ids that somebody on the network uses, where this computer can hear it.
    pub(super) async fn listen_for_routers(&self) -> Result<BTreeMap<u8, Ipv4Addr>> {
        let near = self
            .facts
            .gateway
            .or_else(|| machines::given_vip(self.config, Vip::Api));
        match near.filter(|_| self.backend.common_capabilities().guests_answer) {
            Some(near) => Ok(network_probe::virtual_router_ids(near, LISTEN).await),
            None => Ok(BTreeMap::new()),
        }
    }

    fn machine_network(&self) -> Result<Ipv4Network, PassError> {
        let range = self.config.given.machine_network.or(self.facts.cidr);
        range.ok_or_else(|| PassError::NoRange {
            network: self.config.network.clone(),
        })
    }

    /// Chooses VRIDs among all clusters of the network and writes the table, under one lock.
    pub(super) fn write_parameters(
        &self,
        leases: Vec<AddressAssignment>,
        heard: &BTreeMap<u8, Ipv4Addr>,
        endpoint: Option<ApiEndpoint>,
    ) -> Result<Parameters> {
        let network = self.machine_network()?;
        let _allocation = inventory::allocate(self.home)?;
        let clusters = inventory::clusters(self.home)?;
        let neighbours = inventory::neighbours(&clusters, &self.facts.identity, &self.config.id());
        let by_name: BTreeMap<_, _> = leases.into_iter().map(|lease| (lease.name.clone(), lease)).collect();
        let missing = |name: &NodeName| PassError::Mismatch {
            cluster: self.config.name.clone(),
            what: format!("no address is known for {name}"),
        };
        let mut nodes = Vec::new();
        for (name, role) in self.config.nodes() {
            let lease = by_name.get(&name).ok_or_else(|| missing(&name))?;
            nodes.push(NodeAddress {
                name,
                role,
                mac: lease.mac,
                ip: lease.ip,
            });
        }
        let vip = |vip: Vip| {
            by_name
                .get(&NodeName::vip(vip))
                .cloned()
                .ok_or_else(|| missing(&NodeName::vip(vip)))
        };
        let [api, ingress] = [vip(Vip::Api)?, vip(Vip::Ingress)?];
        let used = self.config.given.virtual_router_id.and_then(|id| {
            let router = heard.get(&id)?;
            Some(format!("virtual_router_id {id} is used by {router}"))
        });
        let findings: Vec<_> = [(Vip::Api, api.ip), (Vip::Ingress, ingress.ip)]
            .into_iter()
            .filter(|_| self.config.lb != Lb::Platform)
            .filter_map(|(vip, ip)| vip_problem(vip, ip, self.facts, true, &neighbours.addresses))
            .chain(used)
            .map(|text| Finding {
                verdict: Verdict::Fail,
                text,
                hint: None,
            })
            .collect();
        if !findings.is_empty() {
            return Err(PassError::Preflight { findings }.into());
        }
        let taken = neighbours
            .virtual_router_ids
            .keys()
            .chain(heard.keys())
            .copied()
            .collect();
        let [wish, ingress_wish] = [api.ip, ingress.ip].map(wished_router_id);
        let wishes = [self.config.given.virtual_router_id.unwrap_or(wish), ingress_wish];
        let ids = virtual_router_ids(wishes, &taken).ok_or_else(|| PassError::NoRouterId {
            network: self.config.network.clone(),
        })?;
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
        parameters.tenant.clone_from(&self.config.tenant);
        if self.config.lb == Lb::Keepalived {
            parameters.vrrp_password = Some(vrrp_password()?);
        }
        parameters.write(&self.dir.parameters())?;
        Ok(parameters)
    }

    /// Makes the platform keep every address of the table, unless the user's own DHCP server does.
    pub(super) async fn hold(&self, parameters: &Parameters) -> Result<BTreeMap<NodeName, ReservationState>> {
        if self.config.dhcp == Dhcp::User {
            let leases = parameters.leases().into_iter();
            return Ok(leases.map(|lease| (lease.name, ReservationState::ByUser)).collect());
        }
        let holds = holds(parameters);
        let hold_all = async {
            info!(target: PROGRESS, step = "addresses", "{} addresses to be held", holds.len());
            let one = |hold: &AddressReservation| {
                let (name, hold) = (hold.lease.name.clone(), hold.clone());
                async move { Ok((name, self.backend.reserve_address(&hold).await?)) }
            };
            stream::iter(&holds)
                .map(one)
                .buffer_unordered(self.backend.common_capabilities().concurrency)
                .try_collect()
                .await
        };
        self.journal.step(HOLD, &holds, hold_all).await
    }

    /// Deletes what pass one booted and looks that none is left.
    pub(super) async fn sweep_pass_one(&self) -> Result<()> {
        self.journal
            .step("pass-one/gone", &(), self.delete_throwaway_machines())
            .await
    }

    pub(super) async fn delete_throwaway_machines(&self) -> Result<()> {
        let id = self.config.id();
        let mut machines = self.backend.list_machines(&id).await?;
        machines.retain(|machine| machine.pass == Pass::One);
        delete_machines(self.backend, &id, &machines).await?;
        // A run that was killed while it deleted may have left a machine's disks, which no list of machines shows.
        let owned = self.backend.list_owned(&id).await?;
        let of_machine = |thing: &Owned| MachineName::of_harvest_in(&self.config.name, &thing.name);
        for name in owned.iter().filter_map(of_machine).collect::<BTreeSet<_>>() {
            self.backend.delete_machine(&id, &name).await?;
        }
        Ok(())
    }
}

/// The order to keep an address, with the names that lead to it.
pub(super) fn hold_of(cluster: &ClusterId, network: &str, lease: &AddressAssignment) -> AddressReservation {
    let hosts: Vec<&str> = match lease.name.as_str() {
        "api" => vec!["api", "api-int"],
        "ingress" => vec!["console-openshift-console.apps", "oauth-openshift.apps"],
        node => vec![node],
    };
    AddressReservation {
        cluster: cluster.clone(),
        network: network.to_owned(),
        lease: lease.clone(),
        dns_names: hosts.into_iter().map(|host| cluster.fqdn(host)).collect(),
    }
}

/// What is to be held: one hold for each address, also when both VIPs are one.
pub(super) fn holds(parameters: &Parameters) -> Vec<AddressReservation> {
    let mut holds: Vec<AddressReservation> = Vec::new();
    for lease in parameters.leases() {
        let hold = hold_of(&parameters.id(), &parameters.network, &lease);
        match holds.iter_mut().find(|other| other.lease.ip == hold.lease.ip) {
            Some(other) => other.dns_names.extend(hold.dns_names),
            None => holds.push(hold),
        }
    }
    holds
}

fn vrrp_password() -> Result<VrrpPassword> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).context("take random bytes for the VRRP password")?;
    Ok(VrrpPassword::from_random(bytes))
}
