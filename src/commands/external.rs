//! `ocpdeploy node join-file`, `node join` and `node remove`: external nodes.

use std::ffi::OsString;
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context, Result};

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings::{self, Counts, Recalled};
use super::scale;
use super::session::Session;
use crate::cli::{Again, NodeJoin, NodeJoinFile, NodeRemove, OneNode};
use crate::cluster::{Dhcp, NodeName};
use crate::error::{ErrorKind, OperationError};
use crate::local::coreos_installer::{Installation, PROGRAM};
use crate::passes::{self, JoinFile, JoinOptions, ScaleOptions};
use crate::printable::{shell_path, shell_word};
use crate::report::changes::JoinFileWritten;
use crate::state::home::write_where_asked;

/// Placeholders for the image and the disk, in commands that the user completes.
const IMAGE: &str = "COREOS-LIVE.iso";
const DEVICE: &str = "/dev/DISK";

/// The node, and the settings of its cluster.
fn recall(session: &Session, node: &OneNode, again: &Again) -> Result<(NodeName, Recalled)> {
    let cluster = session.cluster_name(node.of.cluster.as_deref())?;
    let recalled = saved_settings::load(session, &cluster, again, &Counts::default())?;
    session.progress.log_to(&session.home.cluster(&cluster));
    Ok((node.node.clone(), recalled))
}

pub(super) fn join_file(session: &Session, command: &NodeJoinFile) -> Result<()> {
    let (node, recalled) = recall(session, &command.node, &command.again)?;
    let config = &recalled.config;
    let file = command.file.clone();
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{}-{node}.ign", config.name)));
    let image = file.with_extension("iso");
    if image == file {
        let text = format!("{} is the name of the ISO, not of the Ignition config", file.display());
        let hint = format!("use `-o {}`", shell_path(&file.with_extension("ign")));
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    if let Some(base) = command.iso.as_deref().filter(|base| !base.is_file()) {
        let text = format!("{} is not a file", base.display());
        let hint = "download the live ISO of CoreOS; `openshift-install coreos print-stream-json` has its URL";
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    let options = JoinOptions {
        node: &node,
        macs: &command.mac,
        ip: command.ip,
    };
    let made = session.finish_or_stop(async {
        let backend = connect_for(config).await?;
        passes::join_file(&backend, config, &session.home, options).await
    })?;
    recalled.keep(session)?;
    let keyfiles = write(&file, &made)?;
    let installation = Installation {
        ignition: &file,
        keyfiles: &keyfiles,
        device: command.device.as_deref().unwrap_or(DEVICE),
    };
    let has_image = match &command.iso {
        Some(base) => installation.customize(base, &image)?,
        None => false,
    };
    let mut next = Vec::new();
    if !has_image {
        if command.iso.is_some() {
            tracing::warn!("{PROGRAM} is not installed, so no ISO was created");
        }
        let base = command.iso.as_deref().unwrap_or(Path::new(IMAGE));
        next.push(shown(&installation.arguments(base, &image)));
    }
    next.push(format!(
        "boot the machine from {}: it overwrites {}, then starts the node",
        image.display(),
        installation.device
    ));
    next.push(format!("ocpdeploy node join {} {node}", config.name));
    let written = JoinFileWritten {
        cluster: config.cluster_domain(),
        static_address: made.dhcp == Dhcp::None,
        node: made.node,
        files: [vec![file.clone()], keyfiles].concat(),
        iso: has_image.then_some(image),
        next,
    };
    print_result(&command.output, &written, || written.text())
}

/// Writes the config, and beside it the connections. Returns the paths of the connections.
fn write(file: &Path, made: &JoinFile) -> Result<Vec<PathBuf>> {
    let write = |path: &Path, content: &[u8]| {
        let path = absolute(path).with_context(|| format!("write {}", path.display()))?;
        anyhow::Ok(write_where_asked(&path, content)?)
    };
    write(file, &made.ignition)?;
    let mut keyfiles = Vec::new();
    for keyfile in &made.keyfiles {
        let name = keyfile.path.rsplit('/').next().unwrap_or_default();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let path = file.with_file_name(format!("{stem}-{name}"));
        write(&path, keyfile.content.as_bytes())?;
        keyfiles.push(path);
    }
    Ok(keyfiles)
}

/// A command for the user's shell.
fn shown(arguments: &[OsString]) -> String {
    let words: Vec<_> = arguments
        .iter()
        .map(|word| shell_word(&word.to_string_lossy()))
        .collect();
    format!("{PROGRAM} {}", words.join(" "))
}

pub(super) fn join(session: &Session, command: &NodeJoin) -> Result<()> {
    let (node, recalled) = recall(session, &command.node, &command.again)?;
    let config = &recalled.config;
    let changed = session.finish_or_stop(async {
        let backend = connect_for(config).await?;
        passes::join(&backend, config, &session.home, &node, recalled.installed_workers).await
    })?;
    recalled.keep(session)?;
    print_result(&command.output, &changed, || changed.text())
}

pub(super) fn remove(session: &Session, command: &NodeRemove) -> Result<()> {
    let (node, recalled) = recall(session, &command.node, &command.again)?;
    let config = &recalled.config;
    let options = ScaleOptions {
        drain: scale::drain(&command.drain),
        installed_workers: recalled.installed_workers,
    };
    let changed = session.finish_or_stop(async {
        let backend = connect_for(config).await?;
        passes::remove(&backend, config, &session.home, &node, options).await
    })?;
    recalled.keep(session)?;
    print_result(&command.output, &changed, || changed.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_quoted_for_the_shell() {
        let keyfiles = [PathBuf::from("a b.nmconnection")];
        let installation = Installation {
            ignition: Path::new("it's.ign"),
            keyfiles: &keyfiles,
            device: "/dev/sda",
        };
        assert_eq!(
            shown(&installation.arguments(Path::new("live.iso"), Path::new("out.iso"))),
            r"coreos-installer iso customize --dest-device /dev/sda --dest-ignition 'it'\''s.ign' --network-keyfile 'a b.nmconnection' -o out.iso live.iso"
        );
    }
}
