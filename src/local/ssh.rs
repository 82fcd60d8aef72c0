//! The way onto a node: what the user's own `ssh` is told, and the keys by which it knows the nodes again.
//!
//! Each cluster has its own known hosts, by node and not by address: another cluster may get the address one day.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::state::home::{ClusterDir, write_private};

/// The user that CoreOS has.
const USER: &str = "core";

/// A node that does not answer is given up after so many seconds; TCP alone takes more than two minutes.
const CONNECT_TIMEOUT: u32 = 10;

/// Where `ssh` leads on a node.
pub fn target(ip: Ipv4Addr) -> String {
    format!("{USER}@{ip}")
}

/// Whether the user's own configuration says how long ssh may take to connect, by what `ssh -G` prints.
///
/// Source: openssh/openssh-portable: readconf.c, `dump_client_config`: `connecttimeout none` where nothing sets it.
/// Options of the command line win over all files, so ours is given only where the user has none.
pub fn has_connect_timeout(configuration: &str) -> bool {
    let set = configuration
        .lines()
        .find_map(|line| line.strip_prefix("connecttimeout "));
    set.is_some_and(|seconds| seconds != "none")
}

/// What `ssh` is started with, its own name left out.
pub fn arguments(
    dir: &ClusterDir,
    host: &str,
    ip: Ipv4Addr,
    key: Option<&Path>,
    own_timeout: bool,
    command: &[OsString],
) -> Vec<OsString> {
    // ssh parts at blanks and fills in percent signs.
    let known = dir.known_hosts().display().to_string().replace('%', "%%");
    let known = format!("UserKnownHostsFile=\"{known}\"");
    let mut arguments = Vec::new();
    let alias = format!("HostKeyAlias={host}");
    for option in [&known, &alias, "StrictHostKeyChecking=accept-new", "HashKnownHosts=no"] {
        arguments.extend(["-o".into(), option.into()]);
    }
    if !own_timeout {
        arguments.extend(["-o".into(), format!("ConnectTimeout={CONNECT_TIMEOUT}").into()]);
    }
    if let Some(key) = key {
        arguments.extend(["-i".into(), key.into()]);
    }
    arguments.push(target(ip).into());
    arguments.extend(command.iter().cloned());
    arguments
}

/// Forgets the key of a node that is made anew.
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
    fn what_follows_the_host_is_the_users_own() {
        let dir = Home::new("/state").cluster("lab");
        let command = ["journalctl", "-u", "kubelet; reboot"].map(OsString::from);
        let arguments = arguments(
            &dir,
            "worker-1.lab.example.com",
            [10, 0, 0, 7].into(),
            Some("/k".as_ref()),
            true,
            &command,
        );
        let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(
            words[8..],
            ["-i", "/k", "core@10.0.0.7", "journalctl", "-u", "kubelet; reboot"]
        );
        assert!(
            words.contains(&"UserKnownHostsFile=\"/state/clusters/lab/known_hosts\""),
            "{words:?}"
        );
        assert!(words.contains(&"HostKeyAlias=worker-1.lab.example.com"), "{words:?}");
        assert!(
            !words.iter().any(|word| word.starts_with("ConnectTimeout")),
            "{words:?}"
        );
    }

    #[test]
    fn a_limit_of_the_users_own_wins() {
        for (configuration, own) in [
            ("user core\nconnecttimeout none\nport 22\n", false),
            ("user core\nconnecttimeout 60\nport 22\n", true),
            ("", false),
        ] {
            assert_eq!(has_connect_timeout(configuration), own, "{configuration}");
        }
    }
}
