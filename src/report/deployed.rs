//! The end of a deployment: each node's addresses in both passes, and where the cluster is.

use crate::backend::ReservationState;
use crate::cluster::{ClusterConfig, InstallerChoice, Vip};
use crate::passes::{Deployed, NodeRow};
use crate::state::home::ClusterDir;

use super::{row, table};

/// The table of nodes and how to reach the cluster.
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
        true => "\npass two was read from the guests, Ignition's sha512 too\n",
        false => "\npass two is what the platform shows; not every guest was asked\n",
    };
    text += &match config.installer {
        InstallerChoice::Rehearsal => format!("the rehearsal of cluster {} ended well\n", config.id()),
        InstallerChoice::OpenshiftInstall(_) => format!("cluster {} is up\n", config.id()),
    };
    if deployed.skipped_pass_one {
        text += "pass one was skipped: the addresses were known\n";
    }
    let by_luck = deployed
        .rows
        .iter()
        .filter(|row| row.held == ReservationState::Unreserved)
        .count();
    if by_luck > 0 {
        text += &format!("{by_luck} addresses are held by nobody; the DHCP server will probably give them again\n");
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

/// The kubeconfig, the console, and the lines that a client's hosts file needs where DNS does not know the cluster.
fn reach(config: &ClusterConfig, deployed: &Deployed, dir: &ClusterDir) -> String {
    let id = config.id();
    let [api, ingress] = Vip::ALL.map(|vip| deployed.parameters.vip(vip).ip);
    format!(
        "\nkubeconfig {}\nconsole    https://console-openshift-console.apps.{id}\n\
         kubeadmin's password is in {}\n\n\
         for /etc/hosts where DNS does not know the cluster:\n\
         {api} api.{id}\n\
         {ingress} console-openshift-console.apps.{id} oauth-openshift.apps.{id}\n",
        dir.kubeconfig().display(),
        dir.kubeadmin_password().display(),
    )
}
