//! Address translation between nodes that are each behind their own NAT, as on KubeVirt's pod network.
//!
//! A node's address in the table never changes, but packets reach it only through its current pod address, and come
//! from there. The platform's DNS resolves these. Each node translates packets to and from its peers, so that
//! everything on it, including OpenShift's overlay, sees the addresses of the table.

use super::input::Input;
use crate::cluster::MachineName;
use crate::node::host::{HostFile, HostParts, HostUnit};
use crate::state::parameters::NodeAddress;

/// The files of every node, for any role; empty if nodes reach each other directly.
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
