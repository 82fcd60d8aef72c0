//! Results of commands that change a cluster.

use std::path::PathBuf;

use serde::Serialize;

use super::plan::changes_table;
use super::{owned, row, table};
use crate::artifacts::download::Pruned;
use crate::backend::Owned;
use crate::cluster::{AddressAssignment, ClusterDomain, DeploymentId, NodeName};
use crate::passes::{Changed, Renewed, Rollout, Scaled};
use crate::plan::{Action, Change};
use crate::printable::{count, printable_line};
use crate::state::parameters::{NodeAddress, Parameters};

/// The address table of pass one.
#[derive(Debug, Serialize)]
pub struct Harvested {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    cluster: ClusterDomain,
    /// Virtual IPs and nodes.
    addresses: Vec<AddressAssignment>,
    parameter_file: PathBuf,
}

impl Harvested {
    pub fn new(parameters: &Parameters, file: PathBuf) -> Self {
        Self {
            cluster: parameters.cluster_domain(),
            addresses: parameters.leases(),
            parameter_file: file,
        }
    }

    pub fn text(&self) -> String {
        let head = row([&"NAME", &"MAC", &"IP"]);
        let rows = self.addresses.iter();
        let rows = rows.map(|address| row([&address.name, &address.mac, &address.ip]));
        let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
        let path = printable_line(&self.parameter_file.display().to_string());
        format!("{}\nparameter file: {path}\n", table(&rows))
    }
}

/// What a command would change, for the user to review first.
#[derive(Debug, Serialize)]
pub struct Preview<'a> {
    pub cluster: &'a ClusterDomain,
    pub dry_run: bool,
    pub changes: &'a [Change],
}

impl<'a> Preview<'a> {
    pub fn new(cluster: &'a ClusterDomain, changes: &'a [Change]) -> Self {
        Self {
            cluster,
            dry_run: true,
            changes,
        }
    }

    pub fn text(&self) -> String {
        match self.changes {
            [] => format!("nothing to change in cluster {}\n", self.cluster),
            changes => changes_table(&Vec::from_iter(changes)),
        }
    }

    /// The number of machines that are deleted.
    pub fn losses(&self) -> usize {
        let is_loss = |change: &&Change| change.action == Action::Delete;
        self.changes.iter().filter(is_loss).count()
    }
}

impl Scaled {
    pub fn text(&self) -> String {
        let names = |names: &[NodeName]| names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
        let mut text = String::new();
        if !self.added.is_empty() {
            text += &format!("added: {}\n", names(&self.added));
        }
        if !self.removed.is_empty() {
            text += &format!("removed: {}\n", names(&self.removed));
        }
        let in_pools: Vec<_> = self
            .pools
            .iter()
            .map(|(pool, nodes)| format!("{nodes} in pool {pool}"))
            .collect();
        let in_pools = match in_pools.is_empty() {
            true => String::new(),
            false => format!(", {}", in_pools.join(", ")),
        };
        text += &format!(
            "cluster {} has {}{in_pools}\n",
            self.cluster,
            count(self.workers, "worker")
        );
        if self.rehearsal {
            text += "rehearsal: no node was drained, no certificate was approved, and no MachineConfig was updated\n";
        }
        text + &self.rollout.text()
    }
}

impl Rollout {
    /// What to look at meanwhile.
    fn text(&self) -> String {
        let how = if self.reboots {
            "with a reboot of each"
        } else {
            "without reboots"
        };
        let line = |role: &String| {
            format!("the {role} nodes are now updated one by one, {how}; `oc get mcp {role}` shows the progress\n")
        };
        self.roles.iter().map(line).collect()
    }
}

impl Renewed {
    pub fn text(&self) -> String {
        let cluster = &self.cluster;
        let text = match &self.version {
            Some(version) => format!("the static pods of cluster {cluster} have the images of {version}\n"),
            None => format!("cluster {cluster} has no static pods of ocpdeploy\n"),
        };
        match self.rollout.roles.is_empty() {
            true => text + "nothing was changed\n",
            false => text + &self.rollout.text(),
        }
    }
}

/// A cluster that was started or stopped.
#[derive(Debug, Serialize)]
pub struct Switched {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    pub cluster: ClusterDomain,
    pub running: bool,
    /// Whether the command started or stopped it.
    pub changed: bool,
    pub rehearsal: bool,
}

impl Switched {
    pub fn text(&self) -> String {
        let cluster = &self.cluster;
        match (self.running, self.changed) {
            (false, changed) => {
                let already = if changed { "" } else { "already " };
                let name = cluster.name();
                format!("cluster {cluster} is {already}off; `ocpdeploy start {name}` starts it\n")
            }
            (true, changed) => {
                let runs = if changed { "runs" } else { "runs already" };
                let ready = if self.rehearsal {
                    ""
                } else {
                    ", and its nodes are Ready"
                };
                format!("cluster {cluster} {runs}, with the addresses it had{ready}\n")
            }
        }
    }
}

/// A node that was recreated.
#[derive(Debug, Serialize)]
pub struct Replaced {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    pub cluster: ClusterDomain,
    pub node: NodeAddress,
}

impl Replaced {
    pub fn text(&self) -> String {
        let NodeAddress { name, mac, ip, .. } = &self.node;
        format!("{name} of cluster {} recreated with {mac} and {ip}\n", self.cluster)
    }
}

/// What an external machine boots with, and the next commands.
#[derive(Debug, Serialize)]
pub struct JoinFileWritten {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    pub cluster: ClusterDomain,
    pub node: NodeAddress,
    /// Whether the address is in the files; otherwise, the DHCP server must assign it.
    pub static_address: bool,
    /// The Ignition config, and with a static address NetworkManager's files.
    pub files: Vec<PathBuf>,
    /// CoreOS' live image with these files.
    pub iso: Option<PathBuf>,
    pub next: Vec<String>,
}

impl JoinFileWritten {
    pub fn text(&self) -> String {
        let NodeAddress { name, mac, ip, .. } = &self.node;
        let id = &self.cluster;
        let cluster = self.cluster.name();
        let mut text = format!("{name} of cluster {id}: MAC {mac}, address {ip}\n");
        for file in self.files.iter().chain(&self.iso) {
            text += &format!(
                "wrote {}, which contains secrets\n",
                printable_line(&file.display().to_string())
            );
        }
        if !self.static_address {
            text += &format!(
                "the DHCP server must assign {ip} to {mac}; `ocpdeploy export dhcp {cluster}` writes its configuration\n"
            );
        }
        text += "next:\n";
        self.next.iter().fold(text, |text, line| text + &format!("  {line}\n"))
    }
}

impl Changed {
    pub fn text(&self) -> String {
        let name = &self.node.name;
        let cluster = &self.cluster;
        let mut text = match self.joined {
            true => format!("{name} joined cluster {cluster} with {}\n", self.node.ip),
            false => format!(
                "{name} is removed from cluster {cluster}; switch its machine off, and wipe its disk, which has secrets\n"
            ),
        };
        if self.rehearsal {
            text += "rehearsal: no node was drained, no certificate was approved, and no MachineConfig was updated\n";
        }
        text + &self.rollout.text()
    }
}

/// The objects of a cluster that was destroyed, or would be.
#[derive(Debug, Serialize)]
pub struct Destroyed<'a> {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    pub cluster: &'a ClusterDomain,
    pub id: &'a DeploymentId,
    pub dry_run: bool,
    pub addresses_kept: bool,
    pub objects: &'a [Owned],
    /// Nodes whose machines are not ours.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub external: &'a [NodeName],
}

impl Destroyed<'_> {
    pub fn text(&self) -> String {
        let cluster = self.cluster;
        let mut text = match (self.dry_run, self.addresses_kept) {
            (true, _) => owned(cluster, self.objects),
            (false, true) => format!("cluster {cluster} destroyed; its addresses are kept\n"),
            (false, false) => format!("cluster {cluster} destroyed\n"),
        };
        for node in self.external {
            text +=
                &format!("{node} was an external node: switch its machine off, and wipe its disk, which has secrets\n");
        }
        text
    }
}

/// Downloads that were removed from the cache, or would be.
#[derive(Debug, Serialize)]
pub struct PrunedImages {
    pub dry_run: bool,
    pub removed: Vec<Pruned>,
}

impl PrunedImages {
    pub fn text(&self) -> String {
        let mut text = String::new();
        for pruned in &self.removed {
            let path = printable_line(&pruned.path.display().to_string());
            text += &format!("{:>6} MiB  {path}\n", pruned.bytes >> 20);
        }
        let sum = self.removed.iter().map(|pruned| pruned.bytes).sum::<u64>() >> 20;
        let operation = if self.dry_run { "would be freed" } else { "freed" };
        format!("{text}{sum} MiB {operation}\n")
    }
}

/// Where images are, in the cache or on the platform.
#[derive(Debug, Default, Serialize)]
pub struct StoredImages {
    pub images: Vec<StoredImage>,
}

#[derive(Debug, Serialize)]
pub struct StoredImage {
    /// Its name in the env file or the catalog, or its URL.
    pub image: String,
    /// Of the verified download.
    pub path: Option<PathBuf>,
    /// The platform's name for it.
    pub on_platform: Option<String>,
}
