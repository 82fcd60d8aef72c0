//! Child processes with a minimal environment.
//!
//! Variables may contain passwords, and children pass them on; ssh even to other computers if configured. The
//! installer has rules of its own.

use std::ffi::OsStr;
use std::process::Command;

/// Variables for paths, locale, prompts, and ssh's agent.
const ALLOWED: [&str; 24] = [
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

/// A child process with these variables and no others.
#[expect(clippy::disallowed_methods, reason = "programs are started here")]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command.envs(std::env::vars_os().filter(|(name, _)| is_allowed(name)));
    command
}

fn is_allowed(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| ALLOWED.contains(&name) || name.starts_with("LC_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_may_be_secret_are_not_passed_on() {
        for (name, allowed) in [
            ("PATH", true),
            ("LC_ALL", true),
            ("SSH_AUTH_SOCK", true),
            ("OS_PASSWORD", false),
            ("OCPDEPLOY_OVIRT_PASSWORD", false),
            ("SSHPASS", false),
            ("path", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(OsStr::new(name)), allowed, "{name}");
        }
    }

    #[test]
    fn a_child_has_only_allowed_variables() {
        let output = command("env").output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let names: Vec<_> = lines.lines().filter_map(|line| line.split_once('=')).collect();
        assert!(names.iter().any(|(name, _)| *name == "PATH"), "{lines}");
        // cargo's own are removed.
        assert!(names.iter().all(|(name, _)| is_allowed(OsStr::new(name))), "{lines}");
    }
}
