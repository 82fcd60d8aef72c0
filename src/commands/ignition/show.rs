//! `ocpdeploy ignition show`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{is_stdin, read};
use crate::backend::Carrier;
use crate::cli::{Format, Global, IgnitionShow, Source};
use crate::commands::{Session, print, print_bytes};
use crate::digest::sha512;
use crate::failure::{CommandError, Kind};
use crate::home::ClusterDir;
use crate::ignition::origins::{merge_layers, origins};
use crate::ignition::unpack::{Unpacked, unpack};
use crate::ignition::version;
use crate::inventory::{self, InventoryError, Known};
use crate::report;
use crate::report::ignition::show::{Head, Shown, file_contents};

pub fn run(global: &Global, command: &IgnitionShow) -> Result<ExitCode> {
    let target = Target::find(global, command)?;
    let input = read(&target.path).map_err(|why| why.failure(&target.path.display().to_string()))?;
    let Unpacked { layers, fetched } =
        unpack(&target.origin, &input.config).with_context(|| format!("cannot unpack {}", input.name))?;
    let config = merge_layers(&layers)?;
    if let Some(path) = &command.file {
        print_bytes(&contents(&config, path, &input.name)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let origins = origins(&layers)?;
    let carrier = target.known.as_ref().map(|known| Carrier::of(&known.backend));
    let head = Head {
        cluster: target.known.as_ref().map(|known| known.id().to_string()),
        node: target.known.as_ref().map(|_| command.node.clone()),
        file: input.name.clone(),
        version: version(&config)?.to_string(),
        bytes: input.bytes.len(),
        sha512: sha512(&input.bytes),
        carrier: carrier.map(|carrier| carrier.name.to_owned()),
        carrier_bytes: carrier.and_then(|carrier| carrier.room()),
        layers: layers.iter().map(|layer| layer.origin.clone()).collect(),
        fetched,
    };
    let shown = Shown::of(head, &config, &origins, command.decode);
    match command.output.output {
        Format::Text => print(&shown.text())?,
        Format::Json => print(&report::json(&shown)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Which config is asked for.
struct Target {
    path: PathBuf,
    /// What its own entries are from.
    origin: String,
    /// `None` for a file that is not a node's.
    known: Option<Known>,
}

impl Target {
    fn find(global: &Global, command: &IgnitionShow) -> Result<Self> {
        let node = command.node.as_str();
        let path = Path::new(node);
        if node.contains('/') || node.ends_with(".ign") || is_stdin(path) {
            return Ok(Self {
                path: path.to_owned(),
                origin: super::name(path),
                known: None,
            });
        }
        let session = Session::new(global)?;
        let name = match &command.cluster {
            Some(name) => name.clone(),
            None => only_cluster(&session)?,
        };
        let dir = session.home.cluster(&name);
        let known = Known::read(&dir)?.ok_or(InventoryError::Unknown { cluster: name })?;
        let path = dir.ignition(node);
        if !path.exists() {
            return Err(no_config(&dir, &known, node)?.into());
        }
        Ok(Self {
            path,
            origin: format!("{node}.ign"),
            known: Some(known),
        })
    }
}

/// The cluster of `./env.sh`, or else the only one that is known here.
fn only_cluster(session: &Session) -> Result<String> {
    if Path::new("env.sh").exists() {
        return Ok(session.load_whereabouts(&Source::default())?.0);
    }
    let clusters = inventory::clusters(&session.home)?;
    let names: Vec<&str> = clusters.iter().map(|cluster| cluster.known.name.as_str()).collect();
    match names.as_slice() {
        [name] => Ok((*name).to_owned()),
        [] => Err(CommandError::new(Kind::Tool, "no cluster is known here")
            .hint("`ocpdeploy deploy` makes one; a config of your own is shown by its path: ./FILE")
            .into()),
        several => {
            let text = format!("several clusters are known here: {}", several.join(", "));
            Err(CommandError::new(Kind::Usage, text)
                .hint("choose one with --cluster")
                .into())
        }
    }
}

/// Why a node has no config: none has one yet, or there is no such node.
fn no_config(dir: &ClusterDir, known: &Known, node: &str) -> Result<CommandError> {
    let mut nodes = Vec::new();
    if dir.ignition_folder().is_dir() {
        for entry in fs_err::read_dir(dir.ignition_folder())? {
            let name = entry?.file_name();
            nodes.extend(
                name.to_str()
                    .and_then(|name| name.strip_suffix(".ign"))
                    .map(str::to_owned),
            );
        }
    }
    nodes.sort();
    Ok(match nodes.is_empty() {
        true => CommandError::new(
            Kind::Tool,
            format!("the nodes of cluster {} have no config yet", known.name),
        )
        .hint("`ocpdeploy deploy` makes them, after pass one"),
        false => CommandError::new(Kind::Usage, format!("cluster {} has no node {node}", known.name))
            .hint(format!("its nodes: {}", nodes.join(", "))),
    })
}

/// What is in one file of a config, whole.
fn contents(config: &Value, path: &str, name: &str) -> Result<Vec<u8>, CommandError> {
    let files = config.pointer("/storage/files").and_then(Value::as_array);
    // In spec 2 a path may be there more than once, and the last is written last.
    let file = files.into_iter().flatten().rfind(|file| file["path"] == path);
    let Some(file) = file else {
        return Err(CommandError::new(Kind::Usage, format!("{name} has no file {path}"))
            .hint("without --file its files are listed; what the node fetches on its first boot is not among them"));
    };
    let found = file_contents(file);
    match found.elsewhere.first() {
        None => Ok(found.bytes),
        Some(url) => {
            let text = format!("{path} of {name} is not in the config: {url}");
            Err(CommandError::new(Kind::Tool, text))
        }
    }
}
