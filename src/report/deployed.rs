//! The result of a deployment: each node's addresses in both passes, and how to access the cluster.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;

use crate::backend::ReservationState;
use crate::cluster::{ClusterConfig, ClusterDomain, ExternalVips, InstallerChoice, Mac, NodeName, Role, Vip};
use crate::passes::{Deployed, NodeRow};
use crate::state::home::ClusterDir;

use super::{row, table};

/// A deployment that succeeded.
#[derive(Debug, Serialize)]
pub struct Installed {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    cluster: ClusterDomain,
    rehearsal: bool,
    /// The addresses were already known.
    pass_one_skipped: bool,
    api_ip: IpAddr,
    ingress_ip: IpAddr,
    /// Where computers outside of the network reach them.
    #[serde(skip_serializing_if = "ExternalVips::is_empty")]
    external_vips: ExternalVips,
    /// Bootstrap first.
    nodes: Vec<Node>,
    /// Not of a rehearsal.
    access: Option<Access>,
}

#[derive(Debug, Serialize)]
struct Node {
    name: NodeName,
    role: Role,
    mac: Mac,
    ip: IpAddr,
    reserved_by: Option<&'static str>,
    pass_two: PassTwo,
    /// Address and config are as planned.
    same: bool,
}

#[derive(Debug, Serialize)]
struct PassTwo {
    mac: Mac,
    ip: IpAddr,
    ignition_sha512: String,
    /// Reported by the guest itself, not only by the platform.
    queried: bool,
}

/// How to use the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    kubeconfig: PathBuf,
    console: String,
    kubeadmin_password_file: PathBuf,
    /// Writes a kubeconfig that works without DNS.
    kubeconfig_command: String,
}

impl Access {
    pub fn new(cluster: &ClusterDomain, dir: &ClusterDir) -> Self {
        let name = cluster.name();
        Self {
            kubeconfig: dir.kubeconfig(),
            console: format!("https://console-openshift-console.apps.{cluster}"),
            kubeadmin_password_file: dir.kubeadmin_password(),
            kubeconfig_command: format!("ocpdeploy kubeconfig {name} -o {name}.kubeconfig"),
        }
    }

    /// Labels and values, for users.
    pub fn rows(&self) -> [(&'static str, String); 4] {
        [
            ("console    ", self.console.clone()),
            (
                "kubeadmin  ",
                format!("password in {}", self.kubeadmin_password_file.display()),
            ),
            ("kubeconfig ", self.kubeconfig.display().to_string()),
            (
                "           ",
                format!("`{}` writes one that needs no DNS", self.kubeconfig_command),
            ),
        ]
    }
}

impl From<&NodeRow> for Node {
    fn from(node: &NodeRow) -> Self {
        let planned = &node.planned;
        let seen = &node.report;
        let addresses = (planned.mac, planned.ip) == (seen.mac, seen.ip);
        Self {
            name: planned.name.clone(),
            role: planned.role,
            mac: planned.mac,
            ip: planned.ip,
            reserved_by: match node.held {
                ReservationState::ByPlatform => Some("platform"),
                ReservationState::ByUser => Some("user"),
                ReservationState::Static => Some("node"),
                ReservationState::Unreserved => None,
            },
            pass_two: PassTwo {
                mac: seen.mac,
                ip: seen.ip,
                ignition_sha512: seen.config_sha512.clone(),
                queried: seen.checked,
            },
            same: addresses && node.ignition_sha512 == seen.config_sha512,
        }
    }
}

impl Installed {
    pub fn new(config: &ClusterConfig, deployed: &Deployed, dir: &ClusterDir) -> Self {
        let [api_ip, ingress_ip] = Vip::ALL.map(|vip| deployed.parameters.vip(vip).ip);
        let rehearsal = config.installer == InstallerChoice::Rehearsal;
        Self {
            cluster: config.cluster_domain(),
            rehearsal,
            pass_one_skipped: deployed.skipped_pass_one,
            api_ip,
            ingress_ip,
            external_vips: deployed.parameters.external_vips,
            nodes: deployed.rows.iter().map(Node::from).collect(),
            access: (!rehearsal).then(|| Access::new(&config.cluster_domain(), dir)),
        }
    }

    /// The table of nodes and how to access the cluster.
    pub fn text(&self) -> String {
        // Both columns do not fit into 80 columns; a MAC that differs is an exception.
        let one_mac = self.nodes.iter().all(|node| node.mac == node.pass_two.mac);
        let (mac, pass_two_mac): (_, &[&str]) = match one_mac {
            true => ("MAC", &[]),
            false => ("PASS ONE MAC", &["PASS TWO MAC"]),
        };
        let head = [
            &["NODE", mac, "PASS ONE IP"],
            pass_two_mac,
            &["PASS TWO IP", "SAME", "IGNITION"],
        ]
        .concat();
        let head = head.into_iter().map(str::to_owned).collect();
        let rows = self.nodes.iter().map(|node| node.row(one_mac));
        let mut text = table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
        text += match self.nodes.iter().all(|node| node.pass_two.queried) {
            true => "\npass two: as reported by the guests, with the sha512 of their Ignition configs\n",
            false => "\npass two: as reported by the platform; not all guests were queried\n",
        };
        text += &match self.rehearsal {
            true => format!("rehearsal of cluster {} succeeded\n", self.cluster),
            false => format!("cluster {} is installed\n", self.cluster),
        };
        if self.pass_one_skipped {
            text += "pass one was skipped: the addresses were already known\n";
        }
        let unreserved = self.nodes.iter().filter(|node| node.reserved_by.is_none()).count();
        text += &match unreserved {
            0 => String::new(),
            1 => "1 address is not reserved; the DHCP server will probably assign it again\n".to_owned(),
            _ => format!("{unreserved} addresses are not reserved; the DHCP server will probably assign them again\n"),
        };
        text + &self
            .access
            .as_ref()
            .map(|access| self.reach(access))
            .unwrap_or_default()
    }

    /// The kubeconfig, the console, and the lines for a client's hosts file if DNS does not resolve the cluster's names.
    fn reach(&self, access: &Access) -> String {
        let id = &self.cluster;
        let api_ip = self.external_vips.api.unwrap_or(self.api_ip);
        let ingress_ip = self.external_vips.ingress.unwrap_or(self.ingress_ip);
        let rows: String = access
            .rows()
            .iter()
            .map(|(label, text)| format!("{label}{text}\n"))
            .collect();
        format!(
            "\n{rows}\n\
             lines for /etc/hosts, if DNS does not resolve the cluster's names:\n\
             {api_ip} api.{id}\n\
             {ingress_ip} console-openshift-console.apps.{id} oauth-openshift.apps.{id}\n"
        )
    }
}

impl Node {
    fn row(&self, one_mac: bool) -> Vec<String> {
        let seen = &self.pass_two;
        let mut cells = row([
            &self.name,
            &self.mac,
            &self.ip,
            &seen.mac,
            &seen.ip,
            &if self.same { "yes" } else { "no" },
            &seen.ignition_sha512.chars().take(8).collect::<String>(),
        ]);
        if one_mac {
            cells.remove(3);
        }
        cells
    }
}
