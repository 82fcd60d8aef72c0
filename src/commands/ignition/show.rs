//! `ocpdeploy ignition show`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use super::input::{is_stdin, name, read};
use crate::backend::Capabilities;
use crate::cli::{Global, IgnitionShow};
use crate::cluster::NodeName;
use crate::commands::output::{print_file, print_result};
use crate::commands::session::Session;
use crate::digest::sha512;
use crate::error::{ErrorKind, OperationError};
use crate::ignition::origins::{Layer, Origin, merge_layers, origins};
use crate::ignition::unpack::{Unpacked, unpack};
use crate::ignition::version;
use crate::node::config::KeptLayers;
use crate::passes::no_node;
use crate::report::ignition::show::{Head, Shown, file_contents};
use crate::state::home::ClusterDir;
use crate::state::inventory::{self, Cluster, InventoryError};

pub fn run(global: &Global, command: &IgnitionShow) -> Result<ExitCode> {
    let target = Target::find(global, command)?;
    let input = read(&target.path).map_err(|why| why.failure(&target.path.display().to_string()))?;
    let file = name(&target.path);
    let Unpacked { layers, fetched } = unpack(&file, &input.config).with_context(|| format!("cannot unpack {file}"))?;
    let config = merge_layers(&layers)?;
    if let Some(path) = &command.file {
        print_file(&contents(&config, path, &file)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut head = Head {
        cluster: None,
        node: None,
        file,
        version: version(&config)?.to_string(),
        bytes: input.bytes.len(),
        sha512: sha512(&input.bytes),
        carrier: None,
        carrier_bytes: None,
        layers: names(&layers),
        fetched,
    };
    let mut parts = origins(&layers)?;
    if let Some(NodeOf { node, cluster, dir }) = &target.node {
        head.cluster = Some(cluster.known.id().to_string());
        head.node = Some(node.to_string());
        let table = cluster.parameters.as_ref();
        if !table.is_some_and(|table| table.is_external(node)) {
            let carrier = Capabilities::of(cluster.known.backend_of(node)).carrier;
            head.carrier = Some(carrier.name.to_owned());
            head.carrier_bytes = carrier.max_config_bytes();
        }
        if let Some(kept) = kept_layers(dir, cluster, node)? {
            head.layers = names(&kept);
            name_origins(&mut parts, &origins(&kept)?);
        }
    }
    let shown = Shown::of(head, &config, &parts, command.decode);
    print_result(&command.output, &shown, || shown.text())?;
    Ok(ExitCode::SUCCESS)
}

fn names(layers: &[Layer]) -> Vec<String> {
    layers.iter().map(|layer| layer.origin.clone()).collect()
}

/// The layers of a node's config: the installer's file, the user's files, our overlay. `None` if they were not stored.
fn kept_layers(dir: &ClusterDir, cluster: &Cluster, node: &NodeName) -> Result<Option<Vec<Layer>>> {
    let parameters = cluster.parameters.as_ref();
    let Some(role) = parameters
        .and_then(|parameters| parameters.node(node))
        .map(|node| node.role)
    else {
        return Ok(None);
    };
    let kept = dir.ignition_layers();
    let installer = dir.installer().join(format!("{role}.ign"));
    if !kept.exists() || !installer.exists() {
        return Ok(None);
    }
    let kept = KeptLayers::parse(&fs_err::read(&kept)?).map_err(|error| {
        OperationError::new(ErrorKind::Settings, format!("cannot parse {}: {error}", kept.display()))
    })?;
    let Some(ours) = kept.and_then(|kept| kept.layers(node, role)) else {
        return Ok(None);
    };
    let theirs = read(&installer).map_err(|why| why.failure(&installer.display().to_string()))?;
    let mut layers = vec![Layer {
        origin: format!("installer's {role}.ign"),
        config: theirs.config,
    }];
    layers.extend(ours);
    Ok(Some(layers))
}

/// Sets the origin of each entry of a node's config to a stored layer.
fn name_origins(parts: &mut [Origin], kept: &[Origin]) {
    fn key(origin: &Origin) -> (&'static str, &str, Option<&str>) {
        (origin.kind, &origin.key, origin.part_of.as_deref())
    }
    let kept: HashMap<_, _> = kept.iter().map(|origin| (key(origin), &origin.layers)).collect();
    for part in parts {
        if let Some(layers) = kept.get(&key(part)) {
            part.layers = (*layers).clone();
        }
    }
}

/// The requested config.
struct Target {
    path: PathBuf,
    /// `None` for a file that does not belong to a node.
    node: Option<NodeOf>,
}

struct NodeOf {
    node: NodeName,
    cluster: Cluster,
    dir: ClusterDir,
}

impl Target {
    fn find(global: &Global, command: &IgnitionShow) -> Result<Self> {
        let node = command.node.as_str();
        let path = Path::new(node);
        if node.contains('/') || node.ends_with(".ign") || is_stdin(path) {
            return Ok(Self {
                path: path.to_owned(),
                node: None,
            });
        }
        let session = Session::new(global)?;
        let name = session.cluster_name(command.of.cluster.as_deref())?;
        let dir = session.home.cluster(&name);
        let unknown = InventoryError::Unknown { cluster: name.clone() };
        let cluster = inventory::find(&session.home, &name)?.ok_or(unknown)?;
        let path = dir.ignition(node);
        let node: NodeName = node.parse().map_err(|why| OperationError::new(ErrorKind::Usage, why))?;
        if let Some(table) = cluster.parameters.as_ref().filter(|table| table.node(&node).is_none()) {
            return Err(no_node(table, &node).into());
        }
        if !path.exists() {
            let text = format!("{node} of cluster {name} has no Ignition config yet");
            let hint = "`ocpdeploy deploy` creates the configs after pass one";
            return Err(OperationError::new(ErrorKind::Tool, text).hint(hint).into());
        }
        let node = NodeOf { node, cluster, dir };
        Ok(Self { path, node: Some(node) })
    }
}

/// The complete content of one file in a config.
fn contents(config: &Value, path: &str, name: &str) -> Result<Vec<u8>, OperationError> {
    let files = config.pointer("/storage/files").and_then(Value::as_array);
    // In spec 2, a path may occur more than once; the last entry is effective.
    let file = files.into_iter().flatten().rfind(|file| file["path"] == path);
    let Some(file) = file else {
        return Err(OperationError::new(ErrorKind::Usage, format!("{name} has no file {path}"))
            .hint("run the command without --file to list the files; files that the node fetches on its first boot are not listed"));
    };
    let found = file_contents(file);
    match found.elsewhere.first() {
        None => Ok(found.bytes),
        Some(url) => {
            let text = format!("the config of {name} does not contain {path}: the node fetches it from {url}");
            Err(OperationError::new(ErrorKind::Tool, text))
        }
    }
}
