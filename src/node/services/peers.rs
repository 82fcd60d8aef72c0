//! How nodes find each other where each is behind a translator of its own, as on KubeVirt's pod network.
//!
//! A node's address is the table's and never changes, but packets for it arrive only when they are sent to the node's
//! place, and come from there. The platform's DNS knows the places. Each node rewrites what goes to its peers and what
//! comes from them, so that everything on it, OpenShift's overlay included, sees the addresses of the table.

use super::input::Input;
use crate::cluster::MachineName;
use crate::node::host::{HostFile, HostParts, HostUnit};
use crate::state::parameters::NodeAddress;

/// What every node gets, whatever its role; nothing where nodes reach each other.
pub fn parts(input: &Input<'_>) -> HostParts {
    let parameters = input.parameters;
    let Some(domain) = &parameters.peer_domain else {
        return HostParts::default();
    };
    let line = |node: &NodeAddress| {
        let machine = MachineName::of_node(&parameters.cluster, &node.name);
        format!("{} {machine}.{domain}\n", node.ip)
    };
    let script = include_str!("templates/peers/ocpdeploy-peers");
    HostParts {
        files: vec![
            HostFile::new(
                "/etc/ocpdeploy/peers",
                0o644,
                parameters.nodes.iter().map(line).collect::<String>(),
            ),
            HostFile::new("/usr/local/bin/ocpdeploy-peers", 0o755, script),
        ],
        units: vec![HostUnit {
            name: "ocpdeploy-peers.service".to_owned(),
            enabled: Some(true),
            contents: Some(include_str!("templates/peers/ocpdeploy-peers.service").to_owned()),
            dropins: vec![],
        }],
    }
}
