//! SSH connections to nodes with the user's own `ssh`, and the nodes' host keys.
//!
//! Each cluster has its own known hosts, by node and not by address: another cluster may get the address later.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use openssh::{OwningCommand, Session};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::subprocess;
use crate::cluster::ClusterDomain;
use crate::printable::printable_text;
use crate::state::home::{ClusterDir, write_private};
use crate::state::parameters::NodeAddress;

/// Variables of ssh (ssh(1), "ENVIRONMENT"), of Kerberos, and of programs that prompt for passphrases.
const VARIABLES: &[&[&str]] = &[&[
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GPG_TTY",
    "KRB5CCNAME",
    "SSH_AGENT_PID",
    "SSH_ASKPASS",
    "SSH_ASKPASS_REQUIRE",
    "SSH_AUTH_SOCK",
    "SSH_CONNECTION",
    "SSH_TTY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
]];

/// CoreOS's user.
const USER: &str = "core";

/// Connection timeout in seconds; TCP alone takes more than two minutes.
const CONNECT_TIMEOUT: u32 = 10;

/// Time limit for an unattended connection, including the login and a bastion.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);

/// Options of an unattended connection: no prompts, no forwarding, and a short detection of lost peers.
const UNATTENDED: [&str; 6] = [
    "BatchMode=yes",
    "ClearAllForwardings=yes",
    "ControlPersist=30s",
    "ForwardAgent=no",
    "RemoteCommand=none",
    "ServerAliveInterval=5",
];

/// Why a connection to a node failed.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    #[error("cannot run ssh: {0}")]
    NotRun(#[from] io::Error),
    #[error("cannot log in to {host}: {why}")]
    Refused { host: String, why: String },
    #[error("{host} has not answered within {} s", LOGIN_LIMIT.as_secs())]
    TooLong { host: String },
}

/// A node as an ssh target, with the user's own configuration, e.g. a bastion.
pub struct Node<'a> {
    pub dir: &'a ClusterDir,
    /// Fully qualified; its host keys are stored by it.
    pub host: String,
    pub ip: IpAddr,
    /// The private key; `None` for the keys that ssh finds.
    pub key: Option<&'a Path>,
}

impl<'a> Node<'a> {
    /// A node of a cluster, with the keys that ssh finds.
    pub fn of(dir: &'a ClusterDir, cluster: &ClusterDomain, node: &NodeAddress) -> Self {
        Self {
            dir,
            host: cluster.fqdn(node.name.as_str()),
            ip: node.ip,
            key: None,
        }
    }

    /// The user's own ssh with a shell on the node. It may prompt.
    pub fn shell(&self) -> Command {
        let mut ssh = subprocess::command("ssh", VARIABLES);
        ssh.args(self.options(has_own_timeout(self.ip))).arg(target(self.ip));
        ssh
    }

    /// A connection for running commands. It never prompts, and ends with the `Session`.
    ///
    /// `openssh` itself would start ssh with the whole environment. Therefore the master is started here, as its
    /// `SessionBuilder` does (openssh-rust/openssh: `src/builder.rs`, `launch_master`), and `openssh` uses the socket.
    pub async fn connect(&self) -> Result<Session, SshError> {
        let folder = tempfile::Builder::new().prefix("ocpdeploy-ssh-").tempdir()?;
        let log = folder.path().join("log");
        let mut ssh = subprocess::command("ssh", VARIABLES);
        ssh.args(["-M", "-N", "-f", "-T", "-x", "-S"]);
        // The name that `openssh` expects.
        ssh.arg(folder.path().join("master")).arg("-E").arg(&log);
        for option in UNATTENDED {
            ssh.args(["-o", option]);
        }
        ssh.args(self.options(has_own_timeout(self.ip))).arg(target(self.ip));
        ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut ssh = tokio::process::Command::from(ssh);
        // After the login, ssh continues in the background, and the process that was started here has ended.
        let ended = timeout(LOGIN_LIMIT, ssh.kill_on_drop(true).status()).await;
        let host = self.host.clone();
        let Ok(status) = ended else {
            return Err(SshError::TooLong { host });
        };
        if status?.success() {
            return Ok(Session::new_native_mux(folder));
        }
        let log = fs_err::read_to_string(&log).unwrap_or_default();
        let why = log.lines().next_back().unwrap_or("ssh does not say why").trim();
        let why = printable_text(why);
        Err(SshError::Refused { host, why })
    }

    fn options(&self, own_timeout: bool) -> Vec<OsString> {
        // ssh splits at spaces and expands percent signs.
        let known = self.dir.known_hosts().display().to_string().replace('%', "%%");
        let known = format!("UserKnownHostsFile=\"{known}\"");
        let alias = format!("HostKeyAlias={}", self.host);
        let mut options: Vec<OsString> = Vec::new();
        for option in [&known, &alias, "StrictHostKeyChecking=accept-new", "HashKnownHosts=no"] {
            options.extend(["-o".into(), option.into()]);
        }
        if !own_timeout {
            options.extend(["-o".into(), format!("ConnectTimeout={CONNECT_TIMEOUT}").into()]);
        }
        if let Some(key) = self.key {
            options.extend(["-i".into(), key.into()]);
        }
        options
    }
}

/// The ssh target of a node.
fn target(ip: IpAddr) -> String {
    format!("{USER}@{ip}")
}

/// Whether the user's own configuration sets the connection timeout.
fn has_own_timeout(ip: IpAddr) -> bool {
    let asked = subprocess::command("ssh", VARIABLES).args(["-G", &target(ip)]).output();
    asked.is_ok_and(|asked| sets_timeout(&String::from_utf8_lossy(&asked.stdout)))
}

/// Whether the output of `ssh -G` has a timeout.
///
/// Source: openssh/openssh-portable: readconf.c, `dump_client_config`: `connecttimeout none` if it is not set.
/// Command-line options override all files, so ours is passed only if the user has none.
fn sets_timeout(configuration: &str) -> bool {
    let set = configuration
        .lines()
        .find_map(|line| line.strip_prefix("connecttimeout "));
    set.is_some_and(|seconds| seconds != "none")
}

/// What a command on a node prints to its standard output, up to so many bytes; the rest is discarded.
pub async fn output(mut command: OwningCommand<&Session>, most: u64) -> anyhow::Result<Vec<u8>> {
    let mut child = command
        .stdin(openssh::Stdio::null())
        .stdout(openssh::Stdio::piped())
        .stderr(openssh::Stdio::null())
        .spawn()
        .await?;
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout().take() {
        stdout.take(most).read_to_end(&mut bytes).await?;
    }
    child.disconnect().await?;
    Ok(bytes)
}

/// Removes the host key of a node that is recreated.
pub fn forget(dir: &ClusterDir, host: &str) -> io::Result<()> {
    let path = dir.known_hosts();
    let text = match fs_err::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_its = |line: &&str| line.split_whitespace().next() == Some(host);
    let kept: String = text
        .lines()
        .filter(|line| !is_its(line))
        .map(|line| format!("{line}\n"))
        .collect();
    match kept == text {
        true => Ok(()),
        false => write_private(&path, kept.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::home::Home;

    #[test]
    fn only_the_key_of_that_node_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Home::new(folder.path()).cluster("lab");
        forget(&dir, "worker-1.lab.example.com").unwrap();
        let lines = "worker-1.lab.example.com ssh-ed25519 A\nworker-10.lab.example.com ssh-ed25519 B\n";
        write_private(&dir.known_hosts(), lines.as_bytes()).unwrap();
        forget(&dir, "worker-1.lab.example.com").unwrap();
        let left = std::fs::read_to_string(dir.known_hosts()).unwrap();
        assert_eq!(left, "worker-10.lab.example.com ssh-ed25519 B\n");
    }

    #[test]
    fn a_node_is_known_by_the_clusters_own_table() {
        let dir = Home::new("/state").cluster("lab");
        let node = Node {
            dir: &dir,
            host: "worker-1.lab.example.com".to_owned(),
            ip: [10, 0, 0, 7].into(),
            key: Some("/k".as_ref()),
        };
        let options = node.options(true);
        let words: Vec<_> = options.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words[8..], ["-i", "/k"]);
        for option in [
            "UserKnownHostsFile=\"/state/clusters/lab/known_hosts\"",
            "HostKeyAlias=worker-1.lab.example.com",
            // A changed key is rejected (ssh_config(5)).
            "StrictHostKeyChecking=accept-new",
        ] {
            assert!(words.contains(&option), "{words:?}");
        }
        assert!(
            !words.iter().any(|word| word.starts_with("ConnectTimeout")),
            "{words:?}"
        );
    }

    #[test]
    fn the_users_own_timeout_has_precedence() {
        for (configuration, own) in [
            ("user core\nconnecttimeout none\nport 22\n", false),
            ("user core\nconnecttimeout 60\nport 22\n", true),
            ("", false),
        ] {
            assert_eq!(sets_timeout(configuration), own, "{configuration}");
        }
    }
}
