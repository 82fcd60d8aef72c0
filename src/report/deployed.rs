//! The result of a deployment: each node's addresses in both passes, and how to access the cluster.

use crate::backend::ReservationState;
use crate::cluster::{ClusterConfig, InstallerChoice, Vip};
use crate::passes::{Deployed, NodeRow};
use crate::state::home::ClusterDir;

use super::{row, table};

/// The table of nodes and how to access the cluster.
pub fn text(config: &ClusterConfig, deployed: &Deployed, dir: &ClusterDir) -> String {
    let head = [
        "NODE",
        "PASS ONE MAC",
        "PASS ONE IP",
        "PASS TWO MAC",
        "PASS TWO IP",
        "SAME",
        "IGNITION",
    ];
    let head = head.map(str::to_owned).to_vec();
    let rows = deployed.rows.iter().map(node);
    let mut text = table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    text += match deployed.rows.iter().all(|row| row.report.checked) {
        true => "\npass two: as reported by the guests, with the sha512 of their Ignition configs\n",
        false => "\npass two: as reported by the platform; not all guests were queried\n",
    };
    text += &match config.installer {
        InstallerChoice::Rehearsal => format!("rehearsal of cluster {} succeeded\n", config.id()),
        InstallerChoice::OpenshiftInstall(_) => format!("cluster {} is installed\n", config.id()),
    };
    if deployed.skipped_pass_one {
        text += "pass one was skipped: the addresses were already known\n";
    }
    let unreserved = deployed
        .rows
        .iter()
        .filter(|row| row.held == ReservationState::Unreserved)
        .count();
    if unreserved > 0 {
        text += &format!("{unreserved} addresses are not reserved; the DHCP server will probably assign them again\n");
    }
    if config.installer != InstallerChoice::Rehearsal {
        text += &reach(config, deployed, dir);
    }
    text
}

fn node(node: &NodeRow) -> Vec<String> {
    let (planned, seen) = (&node.planned, &node.report);
    let addresses = (planned.mac, planned.ip) == (seen.mac, seen.ip);
    let config = node.ignition_sha512 == seen.config_sha512;
    row([
        &planned.name,
        &planned.mac,
        &planned.ip,
        &seen.mac,
        &seen.ip,
        &if addresses && config { "yes" } else { "no" },
        &seen.config_sha512.chars().take(8).collect::<String>(),
    ])
}

/// The kubeconfig, the console, and the lines for a client's hosts file if DNS does not resolve the cluster's names.
fn reach(config: &ClusterConfig, deployed: &Deployed, dir: &ClusterDir) -> String {
    let id = config.id();
    let [api, ingress] = Vip::ALL.map(|vip| deployed.parameters.vip(vip).ip);
    format!(
        "\nkubeconfig {}\nconsole    https://console-openshift-console.apps.{id}\n\
         password of kubeadmin: {}\n\n\
         lines for /etc/hosts, if DNS does not resolve the cluster's names:\n\
         {api} api.{id}\n\
         {ingress} console-openshift-console.apps.{id} oauth-openshift.apps.{id}\n",
        dir.kubeconfig().display(),
        dir.kubeadmin_password().display(),
    )
}
