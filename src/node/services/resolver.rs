//! /etc/resolv.conf of the nodes: the node itself first, then the resolvers from DHCP.
//!
//! NetworkManager does not write the file (`rc-manager=unmanaged`) and is only queried; every call writes the same, so
//! it can be called by anything at any time. openshift/machine-config-operator does the same on its on-premise
//! platforms (`templates/common/on-prem/files/resolv-prepender.yaml`), with an image that must be pulled first.

use super::input::Input;
use crate::cluster::{Dns, Vip};
use crate::node::host::{HostFile, HostParts, HostUnit};

/// The files of every node, for any role; empty with `dns=user`.
pub fn parts(input: &Input<'_>) -> HostParts {
    if input.config.dns == Dns::User {
        return HostParts::default();
    }
    let script = include_str!("templates/resolver/ocpdeploy-resolver");
    let dispatcher = include_str!("templates/resolver/30-ocpdeploy-resolver");
    let files = vec![
        HostFile::new("/etc/ocpdeploy/resolver", 0o644, settings(input)),
        HostFile::new("/usr/local/bin/ocpdeploy-resolver", 0o755, script),
        HostFile::new(
            "/etc/NetworkManager/dispatcher.d/30-ocpdeploy-resolver",
            0o755,
            dispatcher,
        ),
        HostFile::new(
            "/etc/NetworkManager/conf.d/90-ocpdeploy.conf",
            0o644,
            "# ocpdeploy-resolver writes /etc/resolv.conf.\n[main]\nrc-manager=unmanaged\n",
        ),
    ];
    let unit = |name: &str, contents: &str| HostUnit {
        name: name.to_owned(),
        enabled: Some(true),
        contents: Some(contents.to_owned()),
        dropins: vec![],
    };
    let units = vec![
        unit(
            "ocpdeploy-resolver.service",
            include_str!("templates/resolver/ocpdeploy-resolver.service"),
        ),
        unit(
            "ocpdeploy-resolver.path",
            include_str!("templates/resolver/ocpdeploy-resolver.path"),
        ),
        // Pods get a copy of /etc/resolv.conf when they start, and kubelet itself resolves api-int.
        HostUnit {
            name: "kubelet.service".to_owned(),
            dropins: vec![(
                "10-ocpdeploy-resolver.conf".to_owned(),
                "[Service]\nExecStartPre=/usr/local/bin/ocpdeploy-resolver wait\n".to_owned(),
            )],
            ..HostUnit::default()
        },
    ];
    HostParts { files, units }
}

/// The script's settings: a key and a value in each line.
fn settings(input: &Input<'_>) -> String {
    let parameters = input.parameters;
    let mut text = format!(
        "domain {}\nnetwork {}\n",
        parameters.cluster_domain(),
        parameters.machine_network
    );
    for domain in &input.config.dns_search {
        text += &format!("search {domain}\n");
    }
    for ip in Vip::ALL.into_iter().flat_map(|vip| parameters.vip_addresses(vip)) {
        text += &format!("vip {ip}\n");
    }
    for ip in parameters.all_nodes().flat_map(|node| parameters.both(node.ip)) {
        text += &format!("node {ip}\n");
    }
    text
}
