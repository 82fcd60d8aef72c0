//! Child processes with a minimal environment.
//!
//! Variables may contain passwords, and children pass them on; ssh even to other computers if configured. Therefore
//! each caller lists what its program reads. libvirt starts ssh with a list of its own (libvirt/libvirt:
//! `src/rpc/virnetsocket.c`, `virNetSocketNewConnectSSH`).

use std::ffi::OsStr;
use std::process::Command;

/// Variables of every child: paths, locale and terminal. In all lists, a name that ends with `_` is a prefix.
const COMMON: &[&str] = &[
    "COLORTERM",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_",
];

/// The proxy of programs in Go (golang/net: `http/httpproxy/proxy.go`, `proxy/proxy.go`). A URL may contain a password.
pub const PROXY: &[&str] = &[
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// The certificates that programs in Go trust (golang/go: `src/crypto/x509/root_unix.go`).
pub const CERTIFICATES: &[&str] = &["SSL_CERT_DIR", "SSL_CERT_FILE"];

/// A child process with the common variables, those of these lists, and no others.
#[expect(clippy::disallowed_methods, reason = "programs are started here")]
pub fn command(program: impl AsRef<OsStr>, lists: &[&[&str]]) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command.envs(std::env::vars_os().filter(|(name, _)| is_allowed(name, lists)));
    command
}

fn is_allowed(name: &OsStr, lists: &[&[&str]]) -> bool {
    let Some(name) = name.to_str() else { return false };
    let mut allowed = COMMON.iter().chain(lists.iter().copied().flatten());
    allowed.any(|&allowed| match allowed.ends_with('_') {
        true => name.starts_with(allowed),
        false => name == allowed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_may_be_secret_are_not_passed_on() {
        let lists: &[&[&str]] = &[&["SSH_AUTH_SOCK"], &["OPENSHIFT_INSTALL_"]];
        for (name, common, listed) in [
            ("PATH", true, true),
            ("LC_ALL", true, true),
            ("XDG_RUNTIME_DIR", true, true),
            ("SSH_AUTH_SOCK", false, true),
            ("OPENSHIFT_INSTALL_INVOKER", false, true),
            ("OPENSHIFT_INSTALLER", false, false),
            ("OS_PASSWORD", false, false),
            ("OCPDEPLOY_OVIRT_PASSWORD", false, false),
            ("PATH_TOKEN", false, false),
            ("SSHPASS", false, false),
            ("path", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_allowed(OsStr::new(name), &[]), common, "{name}");
            assert_eq!(is_allowed(OsStr::new(name), lists), listed, "{name}");
        }
    }

    #[test]
    fn a_child_has_only_allowed_variables() {
        let output = command("env", &[]).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let names: Vec<_> = lines.lines().filter_map(|line| line.split_once('=')).collect();
        assert!(names.iter().any(|(name, _)| *name == "PATH"), "{lines}");
        // cargo's own are removed.
        assert!(
            names.iter().all(|(name, _)| is_allowed(OsStr::new(name), &[])),
            "{lines}"
        );
    }
}
