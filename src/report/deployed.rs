//! The end of a deployment: each node's addresses in both passes, and where the cluster is.

use crate::backend::Held;
use crate::cluster::{ClusterConfig, InstallerChoice, Vip};
use crate::home::ClusterDir;
use crate::passes::{Deployed, NodeRow};

use super::{row, table};

/// The table of nodes and how to reach the cluster.
pub fn text(config: &ClusterConfig, deployed: &Deployed, dir: &ClusterDir) -> String {
    let head = row([
        &"NODE",
        &"MAC",
        &"PASS ONE",
        &"PASS TWO",
        &"HELD",
        &"IGNITION",
        &"STATE",
    ]);
    let rows = deployed.rows.iter().map(node);
    let mut text = table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    text += &format!("\ncluster {} is up\n", config.id());
    if config.installer != InstallerChoice::Rehearsal {
        text += &reach(config, deployed, dir);
    }
    text
}

fn node(node: &NodeRow) -> Vec<String> {
    let held = match node.held {
        Held::ByPlatform => "platform",
        Held::ByLuck => "luck",
    };
    row([
        &node.planned.name,
        &node.planned.mac,
        &node.planned.ip,
        &"",
        &held,
        &&node.ignition_sha512[..12.min(node.ignition_sha512.len())],
        &"",
    ])
}

/// The kubeconfig, the console, and the lines that a client's hosts file needs where DNS does not know the cluster.
fn reach(config: &ClusterConfig, deployed: &Deployed, dir: &ClusterDir) -> String {
    let id = config.id();
    let [api, ingress] = Vip::ALL.map(|vip| deployed.parameters.vip(vip).ip);
    format!(
        "\nkubeconfig {}\nconsole    https://console-openshift-console.apps.{id}\n\n\
         for /etc/hosts where DNS does not know the cluster:\n\
         {api} api.{id}\n\
         {ingress} console-openshift-console.apps.{id} oauth-openshift.apps.{id}\n",
        dir.installer().join("auth/kubeconfig").display(),
    )
}
