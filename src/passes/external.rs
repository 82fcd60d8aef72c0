//! External nodes: workers whose machines `ocpdeploy` did not create, such as bare metal or machines of another
//! platform.
//!
//! The table lists them for DNS, load balancing and the approval of certificates. No backend knows them: nothing here
//! creates, starts, stops or deletes a machine.

use std::net::IpAddr;

use anyhow::Result;
use serde::Serialize;
use tracing::info;

use super::error::{network_config, no_node, ranges_exhausted, refuse};
use super::join::Reach;
use super::renew::Rollout;
use super::run::{Run, on_installed};
use super::scale::ScaleOptions;
use crate::PROGRESS;
use crate::backend::Finding;
use crate::backend::platforms::Platforms;
use crate::cluster::{ClusterConfig, ClusterDomain, Dhcp, Harvest, Mac, NodeName, Role};
use crate::error::{ErrorKind, OperationError};
use crate::local::ssh;
use crate::node::host::HostFile;
use crate::node::overlay;
use crate::openshift::drain;
use crate::openshift::wait::seen::Nodes;
use crate::plan::{addresses, connections};
use crate::settings::parse::LONGEST_NAME;
use crate::state::home::{self, Home};
use crate::state::inventory;
use crate::state::parameters::{NodeAddress, Parameters};

/// The user's description of the machine. A node that is already in the table needs none.
#[derive(Clone, Copy, Debug)]
pub struct JoinOptions<'a> {
    pub node: &'a NodeName,
    /// Of the NIC in the machine network, then of others.
    pub macs: &'a [Mac],
    pub ip: Option<IpAddr>,
}

/// What an external machine boots with.
#[derive(Clone, Debug)]
pub struct JoinFile {
    pub node: NodeAddress,
    /// Its Ignition config, which contains secrets.
    pub ignition: Vec<u8>,
    /// With a static address: NetworkManager's files, which the config contains as well.
    pub keyfiles: Vec<HostFile>,
    pub dhcp: Dhcp,
}

/// The result of `node join` and `node remove`.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    pub cluster: ClusterDomain,
    pub rehearsal: bool,
    pub node: NodeAddress,
    /// Whether the node joined; otherwise it was removed.
    pub joined: bool,
    #[serde(flatten)]
    pub rollout: Rollout,
}

/// Adds an external node to the table, or finds it there, and creates its Ignition config.
pub async fn join_file(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    options: JoinOptions<'_>,
) -> Result<JoinFile> {
    on_installed(backend, config, home, "node join-file", async |run| {
        run.join_file(options).await
    })
    .await
}

/// Approves the certificates of an external node, waits until it is Ready, and adds it to the other nodes' files.
pub async fn join(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    node: &NodeName,
    installed_workers: usize,
) -> Result<Changed> {
    on_installed(backend, config, home, "node join", async |run| {
        run.join_external(node, installed_workers).await
    })
    .await
}

/// Removes an external node from the cluster and the table.
pub async fn remove(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    node: &NodeName,
    options: ScaleOptions,
) -> Result<Changed> {
    on_installed(backend, config, home, "node remove", async |run| {
        run.remove_external(node, options).await
    })
    .await
}

impl Run<'_> {
    async fn join_file(&self, options: JoinOptions<'_>) -> Result<JoinFile> {
        let mut table = self.installed()?;
        self.refuse_other_settings(&table)?;
        let node = match table.external.iter().find(|known| known.name == *options.node) {
            Some(known) => self.known_external(known, options)?,
            None => self.new_external(&table, options).await?,
        };
        let is_new = !table.is_external(&node.name);
        if is_new {
            table.external.push(node.clone());
        }
        let reach = self.reach(&table).await?;
        let mut all = self.later_configs(&reach, &table, &[Role::Worker].into()).await?;
        let configured = self.connections_of(&table, &node, options.macs)?;
        if let Some(files) = &configured {
            all = all.with_connections([(node.name.clone(), files.clone())].into());
        }
        let ignition = all.node_config(&node.name, Role::Worker)?;
        home::write_private_unsynced(&self.dir.ignition(node.name.as_str()), &ignition)?;
        if is_new {
            self.add_external(&table)?;
            info!(target: PROGRESS, step = "table", "{} is in the table, as an external node", node.name);
        }
        Ok(JoinFile {
            keyfiles: keyfiles(self.config, &table, &node.name, configured.as_ref()),
            node,
            ignition,
            dhcp: self.config.dhcp,
        })
    }

    /// The node's connections from `network_config`; `None` if no file is for this node.
    fn connections_of(&self, table: &Parameters, node: &NodeAddress, macs: &[Mac]) -> Result<Option<Vec<HostFile>>> {
        let mut all = vec![node.mac];
        all.extend(macs.iter().skip(1));
        Ok(connections::of_external(self.config, table, node, &all).map_err(network_config)?)
    }

    fn known_external(&self, known: &NodeAddress, options: JoinOptions<'_>) -> Result<NodeAddress, OperationError> {
        let cluster = &self.config.name;
        let NodeAddress { name, mac, ip, .. } = known;
        let other_mac = options.macs.first().is_some_and(|given| given != mac);
        if other_mac || options.ip.is_some_and(|given| given != *ip) {
            let why = format!("the table has it with {mac} and {ip}");
            let hint =
                format!("leave out --mac and --ip, or remove it first: `ocpdeploy node remove {cluster} {name}`");
            return Err(refused(name, &why, hint));
        }
        Ok(known.clone())
    }

    /// The line of the table for a new external node.
    async fn new_external(&self, table: &Parameters, options: JoinOptions<'_>) -> Result<NodeAddress> {
        let cluster = &self.config.name;
        let node = options.node;
        let refused = |why: &str, hint: String| refused(node, why, hint);
        if table.node(node).is_some() {
            let hint = format!("choose another name, such as metal-0; `ocpdeploy status {cluster}` shows all nodes");
            return Err(refused("it is a node whose machine ocpdeploy created", hint).into());
        }
        if node.role() != Role::Worker || node.number().is_none() {
            let hint = "choose a name such as metal-0, worker-100, or gpu-100 for a node of pool gpu".to_owned();
            return Err(refused(
                "the name of an external node must be NAME-NUMBER, and it must be a worker",
                hint,
            )
            .into());
        }
        if self.config.cluster_domain().fqdn(node.as_str()).len() > LONGEST_NAME {
            let why = format!("its name with the domain has more than {LONGEST_NAME} characters");
            return Err(refused(&why, "choose a shorter name".to_owned()).into());
        }
        if table.peer_domain.is_some() {
            let hint = "deploy the cluster in a network that the machine can join".to_owned();
            return Err(refused(
                "the nodes are in the platform's pod network, which it cannot reach",
                hint,
            )
            .into());
        }
        let Some(mac) = options.macs.first() else {
            let hint = format!("specify it: `ocpdeploy node join-file {cluster} {node} --mac MAC --ip IP`");
            return Err(refused("the MAC address of its NIC is unknown", hint).into());
        };
        let ip = match options.ip {
            Some(ip) => ip,
            None if self.config.harvest == Harvest::Static && !self.config.address_ranges.is_empty() => {
                let free = self.free_in_ranges(1, Some(table)).await?;
                let first = free.first().copied();
                first.ok_or_else(|| ranges_exhausted(self.config, node))?
            }
            None => {
                let (why, how) = match self.config.dhcp {
                    Dhcp::None => (
                        "its address is unknown, and address_ranges is not set",
                        "choose a free one",
                    ),
                    Dhcp::Platform | Dhcp::User => (
                        "its address is unknown: ocpdeploy cannot query the DHCP server that it will use",
                        "reserve one for the MAC at the DHCP server",
                    ),
                };
                let hint = format!("{how}: `ocpdeploy node join-file {cluster} {node} --mac {mac} --ip IP`");
                return Err(refused(why, hint).into());
            }
        };
        let others = self.neighbours()?.addresses;
        if let Some(why) = addresses::external_problem(ip, *mac, table, self.facts, &others) {
            return Err(refused(&why, "choose a free address of the machine network".to_owned()).into());
        }
        Ok(NodeAddress {
            name: node.clone(),
            role: Role::Worker,
            mac: *mac,
            ip,
            evidence: None,
        })
    }

    /// Writes the table with a new external node, unless another cluster has taken its address meanwhile.
    fn add_external(&self, table: &Parameters) -> Result<()> {
        let _allocation = inventory::allocate(self.home)?;
        let neighbours = self.neighbours()?;
        refuse(neighbours.clashes(table).into_iter().map(Finding::fail).collect())?;
        Ok(table.write(&self.dir.parameters())?)
    }

    async fn join_external(&self, node: &NodeName, installed_workers: usize) -> Result<Changed> {
        let table = self.installed()?;
        self.refuse_other_settings(&table)?;
        let node = external(&table, node)?;
        let reach = self.reach(&table).await?;
        let wanted = [node.name.clone()].into();
        let limit = self.config.timeouts.install;
        match &reach {
            Reach::Api(api) => {
                let cluster = self.cluster(api, &table);
                info!(target: PROGRESS, step = "cluster", "waiting for {} at {}", node.name, node.ip);
                match Nodes::of(&table, &api.nodes().await?).joined().contains(&node.name) {
                    // Its certificate may have expired while it was off, or its disk may be empty again.
                    true => cluster.nodes_back(&wanted, &Default::default(), limit).await?,
                    false => cluster.nodes_ready(&wanted, limit).await?,
                }
            }
            Reach::Rehearsal => {
                let mut only = table.clone();
                only.nodes = std::mem::take(&mut only.external);
                self.ask_guests(&only, &wanted).await?;
            }
        }
        self.changed(&reach, &table, node, installed_workers).await
    }

    async fn remove_external(&self, node: &NodeName, options: ScaleOptions) -> Result<Changed> {
        let mut table = self.installed()?;
        self.refuse_other_settings(&table)?;
        let node = external(&table, node)?;
        let reach = self.reach(&table).await?;
        let host = table.cluster_domain().fqdn(node.name.as_str());
        table.external.retain(|other| other.name != node.name);
        self.balance_routers(&table, options.installed_workers).await?;
        if let Reach::Api(api) = &reach {
            drain::drain(api, &host, false, options.drain).await?;
            api.delete_node(&host).await?;
        }
        ssh::forget(&self.dir, &host)?;
        super::destroy::remove_file(&self.dir.ignition(node.name.as_str()))?;
        self.record_scaled().await?;
        let allocation = inventory::allocate(self.home)?;
        table.write(&self.dir.parameters())?;
        drop(allocation);
        self.changed(&reach, &table, node, options.installed_workers).await
    }

    /// Updates everything that lists the cluster's workers.
    async fn changed(
        &self,
        reach: &Reach,
        table: &Parameters,
        node: NodeAddress,
        installed_workers: usize,
    ) -> Result<Changed> {
        self.balance_routers(table, installed_workers).await?;
        let rollout = self.renew(reach, table, installed_workers).await?;
        self.record_scaled().await?;
        Ok(Changed {
            cluster: table.cluster_domain(),
            rehearsal: matches!(reach, Reach::Rehearsal),
            joined: table.is_external(&node.name),
            node,
            rollout,
        })
    }
}

/// With a static address, NetworkManager's files of a node, which its config contains as well.
fn keyfiles(
    config: &ClusterConfig,
    table: &Parameters,
    node: &NodeName,
    configured: Option<&Vec<HostFile>>,
) -> Vec<HostFile> {
    let is_keyfile = |file: &HostFile| config.dhcp == Dhcp::None && file.path.ends_with(".nmconnection");
    let own = overlay::own_parts(config, table, node, configured);
    own.files.into_iter().filter(is_keyfile).collect()
}

/// An external node of the table.
fn external(table: &Parameters, name: &NodeName) -> Result<NodeAddress, OperationError> {
    let cluster = &table.cluster;
    match table.node(name) {
        Some(node) if table.is_external(name) => Ok(node.clone()),
        Some(_) => Err(refused(
            name,
            "ocpdeploy created its machine",
            format!(
                "`ocpdeploy scale {cluster}` adds and removes workers, `ocpdeploy node replace {cluster} {name}` \
                 recreates a node"
            ),
        )),
        None => Err(no_node(table, name)),
    }
}

fn refused(node: &NodeName, why: &str, hint: String) -> OperationError {
    OperationError::new(ErrorKind::Usage, format!("{node}: {why}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::parameters::tests::example;

    #[test]
    fn an_external_node_with_a_static_address_has_one_keyfile() {
        let mut table = example();
        let name = NodeName::of_pool("metal", 0);
        table.external.push(NodeAddress {
            name: name.clone(),
            role: Role::Worker,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            ip: IpAddr::from([192, 168, 122, 99]),
            evidence: None,
        });
        let of = |dhcp| {
            let config = ClusterConfig {
                dhcp,
                ..ClusterConfig::example()
            };
            keyfiles(&config, &table, &name, None)
        };
        assert_eq!(of(Dhcp::User), []);
        let files = of(Dhcp::None);
        let [file] = files.as_slice() else { panic!("{files:?}") };
        for line in [
            "mac-address=02:00:00:00:00:01",
            "address1=192.168.122.99/24,192.168.122.1",
        ] {
            assert!(file.content.contains(line), "{}", file.content);
        }
    }
}
