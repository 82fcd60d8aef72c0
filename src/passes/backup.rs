//! A backup of etcd: OpenShift's own script on a master, whose files are fetched over SSH and verified.
//!
//! The script saves a snapshot and the resources of the static pods (openshift/cluster-etcd-operator:
//! `bindata/etcd/cluster-backup.sh`). Both contain secrets.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use openssh::{Session, Stdio};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::PROGRESS;
use crate::cluster::Role;
use crate::digest;
use crate::error::{ErrorKind, OperationError};
use crate::local::ssh;
use crate::state::home::ClusterDir;
use crate::state::parameters::Parameters;

/// etcd's operator installs it on each master.
const SCRIPT: &str = "/usr/local/bin/cluster-backup.sh";

/// The directory on the master, for `mktemp`. It is deleted afterwards.
const FOLDER: &str = "/var/tmp/ocpdeploy-backup.XXXXXX";

/// Limit for one master; etcd's database has up to 8 GiB.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Limit for a file of a backup, with room for more than etcd's database.
const MOST_BYTES: u64 = 16 << 30;

/// Limit for the messages of a command on the master.
const MOST_OUTPUT: u64 = 1 << 20;

/// Limit for the deletion of the master's directory.
const DELETION_LIMIT: Duration = Duration::from_secs(60);

/// Saves a backup in the directory `to`, which is created if missing, from the first master that can make one. Returns
/// its files, with mode 0600. `without` is the command without a backup, for the hint.
pub(super) async fn back_up(dir: &ClusterDir, table: &Parameters, to: &Path, without: &str) -> Result<Vec<PathBuf>> {
    let mut builder = std::fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(to);
    created.with_context(|| format!("create directory {}", to.display()))?;
    let mut refusals = Vec::new();
    for node in table.of_role(Role::Master) {
        info!(target: PROGRESS, step = "backup", "saving etcd of {}", node.name);
        match of_master(&ssh::Node::of(dir, &table.cluster_domain(), node), to).await {
            Ok(files) => return Ok(files),
            Err(error) => refusals.push(format!("{}: {error:#}", node.name)),
        }
    }
    Err(no_backup(&table.cluster, &refusals, without).into())
}

/// The error if no master can make a backup, with a line for each. `without` is the command without a backup.
pub(super) fn no_backup(cluster: &str, refusals: &[String], without: &str) -> OperationError {
    let lines: String = refusals.iter().map(|why| format!("\n  {why}")).collect();
    let text = format!("no backup of etcd of cluster {cluster}:{lines}");
    OperationError::new(ErrorKind::Tool, text).hint(format!(
        "nothing was stopped; check the login with `ocpdeploy node ssh {cluster} master-0`, or continue without a \
         backup: `ocpdeploy {without}`"
    ))
}

async fn of_master(master: &ssh::Node<'_>, to: &Path) -> Result<Vec<PathBuf>> {
    let session = master.connect().await?;
    let folder = output(&session, &["mktemp", "-d", FOLDER]).await?;
    let folder = folder.trim_end();
    ensure!(
        folder.len() == FOLDER.len() && is_plain(folder.trim_start_matches("/var/tmp/")),
        "mktemp created `{folder}`"
    );
    let fetched = timeout(LIMIT, fetch(&session, folder, to)).await;
    let deletion = timeout(DELETION_LIMIT, output(&session, &["rm", "-r", "--", folder])).await;
    if !matches!(deletion, Ok(Ok(_))) {
        warn!(target: PROGRESS, step = "backup", "{}: {folder} contains secrets and could not be deleted", master.host);
    }
    // Its socket is removed even if this fails.
    let _ = session.close().await;
    fetched.with_context(|| format!("no backup within {} min", LIMIT.as_secs() / 60))?
}

/// Creates the backup in a directory of the master, and fetches its two files.
async fn fetch(session: &Session, folder: &str, to: &Path) -> Result<Vec<PathBuf>> {
    output(session, &[SCRIPT, folder]).await?;
    let list = output(session, &["ls", "-1", "--", folder]).await?;
    let mut names: Vec<&str> = list.lines().collect();
    names.sort_unstable();
    let is_backup = matches!(
        names.as_slice(),
        [snapshot, resources]
            if snapshot.starts_with("snapshot_") && resources.starts_with("static_kuberesources_")
                && is_plain(snapshot) && is_plain(resources)
    );
    ensure!(
        is_backup,
        "{SCRIPT} created {names:?} instead of a snapshot and the static resources"
    );
    let mut fetched = Vec::new();
    for name in &names {
        let path = format!("{folder}/{name}");
        let sum = output(session, &["sha256sum", "--", &path]).await?;
        let file = NamedTempFile::new_in(to).with_context(|| format!("create a file in {}", to.display()))?;
        let mut command = session.command("sudo");
        command.args(["-n", "cat", "--", &path]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .await?;
        let content = child.stdout().take();
        let copied = copy(content, file.as_file().try_clone()?, MOST_BYTES).await;
        copied.with_context(|| format!("fetch {path}"))?;
        let status = child.wait().await?;
        ensure!(status.success(), "reading {path} failed with {status}");
        let is_snapshot = name.starts_with("snapshot_");
        let (file, digests) = tokio::task::spawn_blocking(move || {
            let digests = Digests::of(file.as_file());
            (file, digests)
        })
        .await?;
        let digests = digests.with_context(|| format!("read {}", to.display()))?;
        ensure!(
            sum.split_whitespace().next() == Some(&*digests.whole),
            "{name} was damaged in transit: its SHA-256 differs"
        );
        ensure!(
            !is_snapshot || digests.own == Some(true),
            "{name} is not a complete snapshot of etcd: its own checksum differs"
        );
        fetched.push((file, to.join(name)));
    }
    let mut files = Vec::new();
    for (file, path) in fetched {
        let kept = file.persist_noclobber(&path);
        kept.with_context(|| format!("save {}", path.display()))?.sync_all()?;
        files.push(path);
    }
    Ok(files)
}

/// The output of a command that runs as root on the master.
async fn output(session: &Session, command: &[&str]) -> Result<String> {
    let program = command.first().copied().unwrap_or("sudo");
    let mut sudo = session.command("sudo");
    sudo.arg("-n").args(command).stdin(Stdio::null());
    let mut child = sudo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().await?;
    let stdout = limited(child.stdout().take(), MOST_OUTPUT);
    let stderr = limited(child.stderr().take(), MOST_OUTPUT);
    let (stdout, stderr) = tokio::try_join!(stdout, stderr).with_context(|| format!("read the output of {program}"))?;
    let status = child.wait().await?;
    if !status.success() {
        let all = [stdout, stderr].concat();
        let text = crate::printable::printable_text(&String::from_utf8_lossy(&all));
        let last = text
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("no message");
        bail!("{program} failed with {status}: {last}");
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// All of a pipe, up to so many bytes.
async fn limited(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most + 1).read_to_end(&mut bytes).await?;
    }
    ensure!(bytes.len() as u64 <= most, "it is longer than {most} bytes");
    Ok(bytes)
}

/// Copies all of a pipe to a file, up to so many bytes.
async fn copy(pipe: Option<impl AsyncRead + Unpin>, to: File, most: u64) -> Result<()> {
    let mut to = tokio::fs::File::from_std(to);
    if let Some(pipe) = pipe {
        let mut pipe = BufReader::with_capacity(1 << 20, pipe.take(most + 1));
        let copied = tokio::io::copy_buf(&mut pipe, &mut to).await?;
        ensure!(copied <= most, "it is longer than {most} bytes");
    }
    to.flush().await?;
    Ok(())
}

/// Whether a name has only characters without a special meaning in paths and shells.
fn is_plain(name: &str) -> bool {
    !name.starts_with('.')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The digests of a fetched file.
struct Digests {
    whole: String,
    /// Whether the file ends in the SHA-256 of the rest, as a snapshot does. `None`: no snapshot has its size.
    ///
    /// etcd-io/etcd: `client/v3/snapshot/v3_snapshot.go`, `hasChecksum`.
    own: Option<bool>,
}

impl Digests {
    fn of(mut file: &File) -> io::Result<Self> {
        const SUM: u64 = 32;
        let bytes = file.seek(io::SeekFrom::End(0))?;
        file.rewind()?;
        let mut body = Sha256::new();
        let mut rest = file.take(bytes.saturating_sub(SUM));
        let mut buffer = vec![0; 1 << 16];
        loop {
            match rest.read(&mut buffer)? {
                0 => break,
                read => body.update(&buffer[..read]),
            }
        }
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        let own = (bytes % 512 == SUM).then(|| body.clone().finalize()[..] == end[..]);
        body.update(&end);
        Ok(Self {
            whole: digest::hex(&body.finalize()),
            own,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_snapshot_ends_in_its_digest() {
        let body = vec![7; 1024];
        let sum = Sha256::digest(&body);
        for (end, own) in [
            (sum.to_vec(), Some(true)),
            (vec![0; 32], Some(false)),
            (Vec::new(), None),
            (vec![0; 33], None),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            let content = [&body[..], &end].concat();
            file.write_all(&content).unwrap();
            let digests = Digests::of(&file).unwrap();
            assert_eq!(digests.whole, digest::sha256(&content));
            assert_eq!(digests.own, own, "{} bytes", content.len());
        }
    }

    #[tokio::test]
    async fn a_master_cannot_send_more_than_the_limit() {
        let endless = || Some(tokio::io::repeat(b'x'));
        let sent = |bytes: u64| endless().map(|pipe| pipe.take(bytes));
        let file = || tempfile::tempfile().unwrap();
        for bytes in [0, 9, 10] {
            assert_eq!(limited(sent(bytes), 10).await.unwrap().len() as u64, bytes);
            let to = file();
            copy(sent(bytes), to.try_clone().unwrap(), 10).await.unwrap();
            assert_eq!(to.metadata().unwrap().len(), bytes);
        }
        assert!(limited(endless(), 10).await.is_err());
        let to = file();
        assert!(copy(endless(), to.try_clone().unwrap(), 10).await.is_err());
        assert!(to.metadata().unwrap().len() <= 11);
    }

    #[test]
    fn file_names_from_a_master_cannot_leave_the_folder() {
        for (name, plain) in [
            ("snapshot_2026-01-02_030405.db", true),
            ("../snapshot_1.db", false),
            ("snapshot_/../../x", false),
            (".ssh", false),
            ("snapshot_1 2.db", false),
        ] {
            assert_eq!(is_plain(name), plain, "{name}");
        }
    }
}
