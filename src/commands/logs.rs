//! `ocpdeploy logs`.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

use super::output::print;
use super::output_file::OutputFile;
use super::platform::connect_for;
use super::saved_settings::{self, Counts};
use super::session::Session;
use crate::cli::{Logs, OneCluster, OneNode};
use crate::cluster::NodeName;
use crate::error::{ErrorKind, OperationError};
use crate::passes::{diagnose, no_node};
use crate::state::home::{create_private_dir, write_where_asked};
use crate::state::inventory::Known;
use crate::state::parameters::Parameters;

/// Lists what could not be fetched.
const NOT_FETCHED: &str = "not-fetched.txt";

pub fn run(session: &Session, command: &Logs) -> Result<()> {
    let (cluster, nodes) = names(session, command)?;
    // Its secrets are needed to mask them.
    let config = saved_settings::load(session, &cluster, &command.again, &Counts::default())?.config;
    let dir = session.home.cluster(&cluster);
    let table = Parameters::read(&dir.parameters())?;
    if let Some(table) = &table
        && let Some(unknown) = nodes.iter().find(|node| table.node(node).is_none())
    {
        return Err(no_node(table, unknown).into());
    }
    let path = command.output.clone().unwrap_or_else(|| {
        let time = Timestamp::now().strftime("%Y%m%d-%H%M%S");
        PathBuf::from(format!("{cluster}-logs-{time}.tar.gz"))
    });
    let mut target = Target::new(&path)?;
    let missing = session.finish_or_stop(async {
        let backend = connect_for(&config).await;
        let each = |name: &str, bytes: &[u8]| target.add(name, bytes);
        diagnose::collect(backend.as_ref(), &config, table.as_ref(), &dir, &nodes, each).await
    })?;
    let mut text: String = missing.iter().map(|missing| format!("  {missing}\n")).collect();
    if !missing.is_empty() {
        text.insert_str(0, "not fetched:\n");
        target.add(NOT_FETCHED, text.as_bytes())?;
    }
    target.finish()?;
    print(&format!("{text}logs written to {}\n", path.display()))
}

/// The cluster and the nodes. As in the commands of one node, the cluster may be left out before a node.
fn names(session: &Session, command: &Logs) -> Result<(String, Vec<NodeName>)> {
    let mut nodes = command.nodes.clone();
    let is_node = |node: &NodeName| node.number().is_some() || *node == NodeName::bootstrap();
    let alone = command.of.cluster.as_deref().and_then(|name| name.parse().ok());
    let cluster = match alone.filter(is_node) {
        Some(node) if Known::read(&session.home.cluster(node.as_str()))?.is_none() => {
            nodes.insert(0, node.clone());
            let of = OneCluster { cluster: None };
            session.cluster_of_node(&OneNode { of, node })?
        }
        _ => session.cluster_name(command.of.cluster.as_deref())?,
    };
    Ok((cluster, nodes))
}

/// Where the logs are written.
enum Target {
    Folder(PathBuf),
    Archive {
        file: OutputFile,
        /// The directory in the archive.
        folder: String,
        tar: Box<tar::Builder<GzEncoder<Vec<u8>>>>,
    },
}

impl Target {
    /// Checks the path: a new archive, or a directory that is empty or missing.
    fn new(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = [".tar.gz", ".tgz"].into_iter().find_map(|end| name.strip_suffix(end));
        if let Some(stem) = stem {
            return Ok(Self::Archive {
                file: OutputFile::check(path, "leave out --output to write an archive in this directory")?,
                folder: stem.to_owned(),
                tar: Box::new(tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()))),
            });
        }
        create_private_dir(path)?;
        let is_empty = path
            .read_dir()
            .context("read the directory for the logs")?
            .next()
            .is_none();
        match is_empty {
            true => Ok(Self::Folder(std::path::absolute(path)?)),
            false => {
                let text = format!("the directory {} is not empty", path.display());
                let hint = "choose a new directory, or an archive with a name that ends in .tar.gz";
                Err(OperationError::new(ErrorKind::Tool, text).hint(hint).into())
            }
        }
    }

    fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Folder(path) => write_where_asked(&path.join(name), bytes),
            Self::Archive { folder, tar, .. } => diagnose::append(tar, &format!("{folder}/{name}"), bytes),
        }
    }

    fn finish(self) -> Result<()> {
        if let Self::Archive { file, tar, .. } = self {
            file.write(&tar.into_inner()?.finish()?)?;
        }
        Ok(())
    }
}
