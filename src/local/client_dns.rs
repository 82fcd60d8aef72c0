//! The cluster's names on this computer: in the hosts file, or in a configuration file of the local resolver.
//!
//! Only text between a cluster's own markers, or in its own file, is written or removed. Changes are recorded in the
//! cluster's directory, so that `destroy` reverts them.
//!
//! More than 500 lines: three resolvers with one interface.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cluster::ClusterDomain;
use crate::export::hosts::{self, BrokenMarkers};
use crate::export::resolver;
use crate::local::foreign_file::replace;
use crate::local::subprocess;
use crate::state::dir::NO_LINK;
use crate::state::home::ClusterDir;
use crate::state::parameters::Parameters;

/// Version of the record in the cluster's directory.
const VERSION: u32 = 1;

/// How this computer resolves the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Lines in the hosts file; only the common names below `apps`.
    Hosts,
    /// A configuration file for NetworkManager's dnsmasq; resolves every name.
    NetworkManager,
    /// A delegate of systemd-resolved, which queries the cluster's masters; resolves every name while they run.
    Resolved,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            How::Hosts => "hosts",
            How::NetworkManager => "networkmanager",
            How::Resolved => "resolved",
        })
    }
}

/// Why an operation on a file failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientDnsError {
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot write {}: root is required", path.display())]
    Denied { path: PathBuf, by_hand: String },
    #[error("{}:{line}: {problem}", path.display())]
    Markers {
        path: PathBuf,
        line: usize,
        problem: String,
    },
    #[error("{how} is not available on this computer: {why}")]
    NotInUse { how: How, why: &'static str },
    #[error("{} has unsupported version {v}, expected {VERSION}", path.display())]
    Version { path: PathBuf, v: u32 },
    #[error("{command} failed: {why}; the change was written but is not active yet")]
    Reload { command: String, why: String },
}

impl ClientDnsError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Denied { by_hand, .. } => Some(format!(
                "run the command with sudo and --home, or make the change manually:\n{by_hand}"
            )),
            Self::Markers { .. } => {
                Some("nothing was changed; complete each BEGIN line with an END line, or remove both".to_owned())
            }
            Self::NotInUse { how, .. } => Some(match how {
                How::NetworkManager => {
                    "add `dns=dnsmasq` to the section [main] of /etc/NetworkManager/conf.d/dns.conf and restart \
                     NetworkManager, or use --how hosts"
                        .to_owned()
                }
                _ => "use --how hosts".to_owned(),
            }),
            Self::Reload { command, .. } => Some(format!("run `{command}`")),
            Self::Io { .. } | Self::Version { .. } => None,
        }
    }
}

/// This computer's files; in tests a directory in place of `/`.
#[derive(Clone, Debug)]
pub struct Computer {
    root: PathBuf,
}

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: PathBuf,
    /// `None` if the file does not exist.
    pub before: Option<String>,
    pub after: Option<String>,
}

impl Change {
    pub fn is_none(&self) -> bool {
        self.before == self.after
    }
}

/// The record in the cluster's directory.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    v: u32,
    how: How,
}

impl Computer {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the real computer, not a directory in place of `/`.
    pub fn is_this(&self) -> bool {
        self.root == Path::new("/")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The file that is changed for this cluster.
    pub fn file(&self, cluster: &ClusterDomain, how: How) -> PathBuf {
        match how {
            How::Hosts => self.path("/etc/hosts"),
            How::NetworkManager => self.path(&format!("/etc/NetworkManager/dnsmasq.d/ocpdeploy-{cluster}.conf")),
            How::Resolved => self.path(&format!("/etc/systemd/dns-delegate.d/ocpdeploy-{cluster}.dns-delegate")),
        }
    }

    /// The change that `apply` would make.
    pub fn plan(&self, parameters: &Parameters, how: How) -> Result<Change, ClientDnsError> {
        let id = parameters.cluster_domain();
        let path = self.file(&id, how);
        let before = read(&path)?;
        let after = match how {
            How::Hosts => {
                let before = before.as_deref().unwrap_or_default();
                hosts::with_block(before, parameters).map_err(|broken| broken_markers(&path, broken))?
            }
            How::NetworkManager => resolver::dnsmasq(parameters),
            How::Resolved => resolver::resolved(parameters),
        };
        Ok(Change {
            path,
            before,
            after: Some(after),
        })
    }

    /// The change that `remove` would make.
    pub fn plan_removal(&self, cluster: &ClusterDomain, how: How) -> Result<Change, ClientDnsError> {
        let path = self.file(cluster, how);
        let before = read(&path)?;
        let after = match (how, &before) {
            (How::Hosts, Some(text)) => {
                Some(hosts::without_block(text, cluster).map_err(|broken| broken_markers(&path, broken))?)
            }
            _ => None,
        };
        Ok(Change { path, before, after })
    }

    /// Fails if this computer does not use the resolver that reads the file.
    pub fn check(&self, how: How) -> Result<(), ClientDnsError> {
        let why = match how {
            How::NetworkManager if !self.networkmanager_runs_dnsmasq()? => {
                "NetworkManager is not configured with dns=dnsmasq"
            }
            How::Resolved if !self.resolved_is_in_use() => "/etc/resolv.conf does not point to systemd-resolved",
            How::Resolved if self.is_this() && !resolved_delegates() => {
                "systemd is older than 258, so its resolver would send all other queries to the masters, too"
            }
            _ => return Ok(()),
        };
        Err(ClientDnsError::NotInUse { how, why })
    }

    /// Other lines of the hosts file with the cluster's names, each with its location.
    pub fn rivals(&self, cluster: &ClusterDomain) -> Result<Vec<String>, ClientDnsError> {
        let path = self.file(cluster, How::Hosts);
        let text = read(&path)?.unwrap_or_default();
        let rivals = hosts::rivals(&text, cluster).map_err(|broken| broken_markers(&path, broken))?;
        let shown = |(line, text)| format!("{}:{line}: {text}", path.display());
        Ok(rivals.into_iter().map(shown).collect())
    }

    fn networkmanager_runs_dnsmasq(&self) -> Result<bool, ClientDnsError> {
        let mut files = vec![self.path("/etc/NetworkManager/NetworkManager.conf")];
        for folder in [
            "/usr/lib/NetworkManager/conf.d",
            "/run/NetworkManager/conf.d",
            "/etc/NetworkManager/conf.d",
        ] {
            files.extend(conf_files(&self.path(folder))?);
        }
        // The last setting is effective.
        let mut dns = None;
        for file in files {
            dns = main_dns(&read(&file)?.unwrap_or_default()).or(dns);
        }
        Ok(dns.as_deref() == Some("dnsmasq"))
    }

    fn resolved_is_in_use(&self) -> bool {
        let leads_to = std::fs::read_link(self.path("/etc/resolv.conf")).unwrap_or_default();
        leads_to.to_string_lossy().contains("systemd/resolve/")
    }

    /// Makes the resolver reload its files. Does nothing for a directory in place of `/`.
    fn reload(&self, how: How) -> Result<(), ClientDnsError> {
        let command: &[&str] = match how {
            _ if !self.is_this() => return Ok(()),
            How::Hosts => return Ok(()),
            How::NetworkManager => &["nmcli", "general", "reload", "dns-full"],
            // Restarted and not reloaded: systemd-resolved reads delegates only when it starts.
            How::Resolved => &["systemctl", "try-restart", "systemd-resolved.service"],
        };
        let failed = |why: String| ClientDnsError::Reload {
            command: command.join(" "),
            why,
        };
        let output = subprocess::command(command[0], &[])
            .args(&command[1..])
            .output()
            .map_err(|error| failed(error.to_string()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }
}

/// Whether systemd-resolved reads delegates (systemd.dns-delegate(5)).
fn resolved_delegates() -> bool {
    let output = subprocess::command("resolvectl", &[]).arg("--version").output();
    let version = output
        .ok()
        .and_then(|output| systemd_version(&String::from_utf8_lossy(&output.stdout)));
    version.is_some_and(|version| version >= 258)
}

/// `258` of `systemd 258~rc1 (258~rc1-1)`.
fn systemd_version(text: &str) -> Option<u32> {
    let version = text.strip_prefix("systemd ")?;
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

/// Adds the cluster's names. Repeating it changes nothing; another method replaces the previous one.
pub fn apply(
    computer: &Computer,
    dir: &ClusterDir,
    parameters: &Parameters,
    how: How,
) -> Result<Change, ClientDnsError> {
    computer.check(how)?;
    if applied(dir)?.is_some_and(|before| before != how) {
        remove(computer, Some(dir), &parameters.cluster_domain())?;
    }
    // Recorded first: after a crash there may be a record without lines, but never lines without a record.
    note(dir, how)?;
    let change = change(computer, &parameters.cluster_domain(), || {
        computer.plan(parameters, how)
    })?;
    if !change.is_none() {
        computer.reload(how)?;
    }
    Ok(change)
}

/// Removes the names and returns the changes. Without a record every method's file is checked.
///
/// `dir` is the cluster's directory, if it still exists.
pub fn remove(
    computer: &Computer,
    dir: Option<&ClusterDir>,
    cluster: &ClusterDomain,
) -> Result<Vec<Change>, ClientDnsError> {
    let mut changes = Vec::new();
    for how in places(dir)? {
        let change = change(computer, cluster, || computer.plan_removal(cluster, how))?;
        if !change.is_none() {
            computer.reload(how)?;
            changes.push(change);
        }
    }
    let Some(path) = dir.map(ClusterDir::client_dns) else {
        return Ok(changes);
    };
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(ClientDnsError::Io {
            operation: "remove",
            path,
            source,
        }),
        _ => Ok(changes),
    }
}

/// The methods by which a cluster's names may have been added: the recorded one, or all.
pub fn places(dir: Option<&ClusterDir>) -> Result<Vec<How>, ClientDnsError> {
    let applied = dir.map(applied).transpose()?.flatten();
    Ok(applied.map_or_else(|| vec![How::Hosts, How::NetworkManager, How::Resolved], |how| vec![how]))
}

/// The method in use according to the record; `None` without one.
pub fn applied(dir: &ClusterDir) -> Result<Option<How>, ClientDnsError> {
    let path = dir.client_dns();
    let Some(text) = read(&path)? else {
        return Ok(None);
    };
    let note: Note = serde_json::from_str(&text).map_err(|error| ClientDnsError::Io {
        operation: "parse",
        path: path.clone(),
        source: error.into(),
    })?;
    match note.v {
        VERSION => Ok(Some(note.how)),
        v => Err(ClientDnsError::Version { path, v }),
    }
}

fn note(dir: &ClusterDir, how: How) -> Result<(), ClientDnsError> {
    let path = dir.client_dns();
    let failed = |source: io::Error| ClientDnsError::Io {
        operation: "write",
        path: path.clone(),
        source,
    };
    let text = serde_json::to_vec(&Note { v: VERSION, how }).map_err(|error| failed(error.into()))?;
    dir.write_for_owner(&path, &text).map_err(failed)
}

/// The lock for all changes. Other users cannot open it, so they cannot hold it forever.
const LOCK: &str = "/run/ocpdeploy-dns.lock";

/// Reads, plans and writes while other instances wait. If the lock cannot be opened, the change goes on without it:
/// this user has no right to write the files either.
fn change(
    computer: &Computer,
    cluster: &ClusterDomain,
    plan: impl Fn() -> Result<Change, ClientDnsError>,
) -> Result<Change, ClientDnsError> {
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(NO_LINK)
        .open(computer.path(LOCK));
    let _lock = lock.and_then(|lock| lock.lock().map(|()| lock)).ok();
    let change = plan()?;
    if change.is_none() {
        return Ok(change);
    }
    let written = match &change.after {
        Some(text) => replace(&change.path, text, 0o644),
        None => std::fs::remove_file(&change.path),
    };
    written.map_err(|source| match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ClientDnsError::Denied {
            path: change.path.clone(),
            by_hand: by_hand(&change, cluster),
        },
        _ => ClientDnsError::Io {
            operation: "write",
            path: change.path.clone(),
            source,
        },
    })?;
    Ok(change)
}

fn broken_markers(path: &Path, broken: BrokenMarkers) -> ClientDnsError {
    ClientDnsError::Markers {
        path: path.to_owned(),
        line: broken.line,
        problem: broken.problem,
    }
}

/// The change as instructions for an administrator.
fn by_hand(change: &Change, cluster: &ClusterDomain) -> String {
    let path = change.path.display();
    let [begin, end] = hosts::markers(cluster);
    match &change.after {
        None => format!("remove {path}"),
        Some(after) => match after.find(&begin) {
            Some(start) => format!("add to {path}:\n{}", &after[start..]),
            None if change.before.as_ref().is_some_and(|before| before.contains(&begin)) => {
                format!("remove the lines from `{begin}` to `{end}` from {path}")
            }
            None => format!("write to {path}:\n{after}"),
        },
    }
}

/// `None` if the file does not exist.
fn read(path: &Path) -> Result<Option<String>, ClientDnsError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ClientDnsError::Io {
            operation: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

/// The `.conf` files of a directory, sorted as the resolver reads them.
fn conf_files(folder: &Path) -> Result<Vec<PathBuf>, ClientDnsError> {
    let failed = |source| ClientDnsError::Io {
        operation: "list",
        path: folder.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed(source)),
    };
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.map_err(failed)?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
    files.sort();
    Ok(files)
}

/// The last `dns=` of the section `[main]`.
fn main_dns(text: &str) -> Option<String> {
    let mut section = "";
    let mut dns = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if let Some((key, value)) = line.split_once('=')
            && section == "[main]"
            && key.trim() == "dns"
        {
            dns = Some(value.trim().to_owned());
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_systemd_is_read() {
        for (text, version) in [
            ("systemd 258 (258.1-1.fc43)\n+PAM +AUDIT", Some(258)),
            ("systemd 258~rc3 (258~rc3)\n", Some(258)),
            ("systemd 252", Some(252)),
            ("resolvectl 258", None),
            ("", None),
        ] {
            assert_eq!(systemd_version(text), version, "{text}");
        }
    }

    #[test]
    fn the_last_dns_of_the_main_section_counts() {
        for (text, dns) in [
            ("[main]\ndns=dnsmasq\n", Some("dnsmasq")),
            ("[main]\n dns = dnsmasq \n", Some("dnsmasq")),
            ("[main]\ndns=dnsmasq\n[ifupdown]\ndns=none\n", Some("dnsmasq")),
            ("[main]\ndns=dnsmasq\ndns=default\n", Some("default")),
            ("[main]\n#dns=dnsmasq\n", None),
            ("dns=dnsmasq\n", None),
        ] {
            assert_eq!(main_dns(text).as_deref(), dns, "{text}");
        }
    }
}
