//! Programs of this computer that are started, and what they are told of our surroundings: no more than they need.
//!
//! Variables may hold passwords, and children hand theirs on; ssh even to other computers, where it is told to. The
//! installer has rules of its own.

use std::ffi::OsStr;
use std::process::Command;

/// Where programs and people's files are, how people are spoken to and asked, and ssh's agent.
const TOLD: [&str; 24] = [
    "COLORTERM",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GPG_TTY",
    "HOME",
    "KRB5CCNAME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSH_AGENT_PID",
    "SSH_ASKPASS",
    "SSH_ASKPASS_REQUIRE",
    "SSH_AUTH_SOCK",
    "SSH_CONNECTION",
    "SSH_TTY",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
];

/// A program to be started with these variables and no others.
#[expect(clippy::disallowed_methods, reason = "programs are started here")]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command.envs(std::env::vars_os().filter(|(name, _)| is_told(name)));
    command
}

fn is_told(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| TOLD.contains(&name) || name.starts_with("LC_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_handed_on_that_may_be_a_secret() {
        for (name, told) in [
            ("PATH", true),
            ("LC_ALL", true),
            ("SSH_AUTH_SOCK", true),
            ("OS_PASSWORD", false),
            ("OCPDEPLOY_OVIRT_PASSWORD", false),
            ("SSHPASS", false),
            ("path", false),
            ("", false),
        ] {
            assert_eq!(is_told(OsStr::new(name)), told, "{name}");
        }
    }

    #[test]
    fn a_child_has_only_what_it_is_told() {
        let output = command("env").output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let names: Vec<_> = lines.lines().filter_map(|line| line.split_once('=')).collect();
        assert!(names.iter().any(|(name, _)| *name == "PATH"), "{lines}");
        // cargo's own are kept back.
        assert!(names.iter().all(|(name, _)| is_told(OsStr::new(name))), "{lines}");
    }
}
