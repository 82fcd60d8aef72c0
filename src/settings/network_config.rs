//! `network_config`: nmstate files, read and checked against the other settings.

use std::rc::Rc;

use super::parse;
use super::problem::Place;
use super::sources::io_reason;
use super::values::Values;
use crate::cluster::{ClusterConfig, NetworkConfig, NodeSelector};
use crate::plan::connections::connections;

const NAME: &str = "network_config";

/// The files; `None` after a problem.
pub(super) fn read(values: &mut Values<'_>) -> Option<Vec<NetworkConfig>> {
    let Some(value) = values.value(NAME) else {
        return Some(Vec::new());
    };
    let mut files: Vec<NetworkConfig> = Vec::new();
    let mut is_read = true;
    for item in parse::list(&value.text) {
        let (nodes, name) = parse::nodes_and_path(item);
        let path = value.folder.join(name);
        if files.iter().any(|known| known.nodes == nodes) {
            let message = format!("`{NAME}` has two files for {nodes}");
            values.problem(&[NAME], message, "list one FILE, ROLE:FILE or NODE:FILE for each");
            is_read = false;
        }
        match (values.sources.read_file)(&path) {
            Ok(text) => files.push(NetworkConfig { nodes, path, text }),
            Err(error) => {
                let message = format!(
                    "cannot read the network configuration {}: {}",
                    path.display(),
                    io_reason(&error)
                );
                values.problem(&[NAME], message, "list nmstate files as FILE, ROLE:FILE or NODE:FILE");
                is_read = false;
            }
        }
    }
    is_read.then_some(files)
}

/// Compares the files with the other settings, for every node.
pub(super) fn check(values: &mut Values<'_>, config: &ClusterConfig) {
    let nodes = config.nodes();
    for file in &config.network_config {
        if !nodes.iter().any(|node| file.nodes.selects(&node.name)) {
            let message = match &file.nodes {
                NodeSelector::Node(node) => format!("{NAME} has a file for {node}, which is not in the cluster"),
                nodes => format!("{NAME} has a file for {nodes}, of which the cluster has none"),
            };
            values.warn(NAME, &message);
        }
    }
    if let Some(bridge) = config.bridge().filter(|_| !config.network_config.is_empty()) {
        values.problem(
            &["use_br", NAME],
            format!("use_br and {NAME} cannot be combined"),
            &format!("remove use_br, and describe the bridge {bridge} in the files of {NAME}"),
        );
        return;
    }
    if let Err(error) = connections(config, None) {
        let (path, place, fault) = (error.file.path.display(), error.place(), error.fault);
        let place = match fault.span {
            Some(span) if fault.may_quote => Place::File(path.to_string(), Rc::from(error.file.text.as_str()), span),
            _ => Place::Named(place),
        };
        values.problems.add(fault.message, &[place], fault.help);
    }
}
