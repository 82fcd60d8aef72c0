//! Settings of the libvirt backend. Supported URIs connect to a daemon and start no program that they name.
//!
//! libvirt runs the program in `command` (transport `ext`: any program; `ssh`: in place of ssh), and the one in
//! `netcat` on the remote computer; `name` replaces the URI (libvirt/libvirt: `docs/uri.rst`,
//! `src/remote/remote_driver.c`, which compares the names of parameters case-insensitively). So only known parameters
//! are allowed, without escapes.

use crate::cluster::{DiskCache, LibvirtConfig};
use crate::settings::values::{Values, read_all};

/// The workers' host has its own URI and pool.
pub(super) fn read(values: &mut Values<'_>, of_workers: bool) -> Option<LibvirtConfig> {
    let [uri, pool] = [
        ("libvirt_worker_uri", "libvirt_uri"),
        ("libvirt_worker_storage_pool", "libvirt_storage_pool"),
    ]
    .map(|(own, common)| {
        let is_own = of_workers && values.value(own).is_some();
        if is_own { own } else { common }
    });
    let config = read_all!(LibvirtConfig {
        uri: values.read(uri, check),
        pool: values.text(pool),
        virt_type: values.choice("libvirt_virt_type"),
        disk_cache: values.choice("libvirt_disk_cache"),
    });
    if config.disk_cache == DiskCache::Unsafe {
        values.warn(
            "libvirt_disk_cache",
            "libvirt_disk_cache=unsafe: a crash or power failure of the host can destroy the nodes' disks",
        );
    }
    Some(config)
}

const HINT: &str = "use qemu:///system or qemu+ssh://user@host/system";

/// Transports that are allowed, and the parameters of each.
const TRANSPORTS: [(&str, &[&str]); 6] = [
    (
        "libssh",
        &["keyfile", "known_hosts", "mode", "proxy", "socket", "sshauth"],
    ),
    (
        "libssh2",
        &["keyfile", "known_hosts", "mode", "proxy", "socket", "sshauth"],
    ),
    ("ssh", &["keyfile", "mode", "no_tty", "no_verify", "proxy", "socket"]),
    // Without `no_verify`, which accepts any server certificate.
    ("tls", &["pkipath", "tls_priority"]),
    ("tcp", &[]),
    ("unix", &["mode", "socket"]),
];

/// A URI of a libvirt that can run a cluster's machines.
fn check(text: &str) -> Result<String, String> {
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| format!("`{text}` is not a libvirt URI; {HINT}"))?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = place
        .split_once('/')
        .ok_or_else(|| format!("`{text}` has no path; {HINT}"))?;
    // Not repeated: the text after the colon is a password.
    if host.split_once('@').is_some_and(|(user, _)| user.contains(':')) {
        return Err("a password in a URI appears in logs; use an SSH key or libvirt's auth.conf".to_owned());
    }
    let (driver, transport) = match scheme.split_once('+') {
        Some((driver, transport)) => (driver, Some(transport)),
        None => (scheme, None),
    };
    match (driver, path) {
        // The driver `test` runs inside the client and connects to nothing.
        ("test", _) if transport.is_none() && host.is_empty() && query.is_empty() => return Ok(text.to_owned()),
        ("test", _) => return Err("the driver `test` supports neither transports nor parameters".to_owned()),
        ("qemu", "system") => {}
        ("qemu", "session") => {
            return Err("machines of a session have no address that others can reach; use qemu:///system".to_owned());
        }
        ("qemu", _) => return Err(format!("`/{path}` is not `/system`; {HINT}")),
        _ => return Err(format!("the driver `{scheme}` is not supported; {HINT}")),
    }
    check_host(host)?;
    let transport = transport.unwrap_or(if host.is_empty() { "unix" } else { "tls" });
    let (_, allowed) = TRANSPORTS
        .iter()
        .find(|(name, _)| *name == transport)
        .ok_or_else(|| format!("the transport `{transport}` is not supported; {HINT}"))?;
    if transport == "tcp" && !is_loopback(host) {
        return Err("the transport `tcp` is not encrypted; use qemu+ssh or qemu+tls".to_owned());
    }
    for parameter in query.split('&').filter(|_| !query.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if !allowed.contains(&name) {
            let supported = match allowed {
                [] => "it supports none".to_owned(),
                allowed => format!("supported are {}", allowed.join(", ")),
            };
            return Err(format!(
                "`{name}` is not a supported parameter of the transport `{transport}`; {supported}"
            ));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._~:,@+-".contains(c);
        if value.is_empty() || value.starts_with('-') || !value.chars().all(plain) {
            return Err(format!(
                "the value of `{name}` contains characters that are not supported in this URI"
            ));
        }
    }
    Ok(text.to_owned())
}

/// `[user@]host[:port]`, where ssh can interpret no part as an option.
fn check_host(text: &str) -> Result<(), String> {
    let (user, host) = match text.split_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, text),
    };
    let is_name = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && name.chars().all(plain)
    };
    let is_user = user.is_none_or(is_name);
    let (name, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, port)) => (address, port),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_host = is_name(name) || (host.starts_with('[') && name.parse::<std::net::Ipv6Addr>().is_ok());
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    match (is_host || text.is_empty()) && is_user && is_port {
        true => Ok(()),
        false => Err(format!("`{text}` is not [user@]host[:port]; {HINT}")),
    }
}

/// Whether the host is this computer, for example the local end of a tunnel.
fn is_loopback(host: &str) -> bool {
    let host = host.rsplit('@').next().unwrap_or_default();
    let name = host.split(':').next().unwrap_or_default();
    name == "localhost"
        || name.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || host.starts_with("[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_a_daemon_are_accepted() {
        for uri in [
            "qemu:///system",
            "qemu+unix:///system?socket=/run/libvirt/libvirt-sock&mode=legacy",
            "qemu+ssh://root@kvm_1.example.com/system",
            "qemu+ssh://me@[fd00::1]:2222/system?keyfile=/home/me/.ssh/lab&no_tty=1",
            "qemu+libssh://host/system?known_hosts=/home/me/.ssh/known_hosts",
            "qemu+libssh2://host/system",
            "qemu://host/system?pkipath=/etc/pki/libvirt",
            "qemu+tls://host:16514/system",
            "qemu+tcp://localhost:5000/system",
            "qemu+tcp://[::1]/system",
            "test:///default",
            "test:///path/to/host.xml",
        ] {
            assert_eq!(check(uri), Ok(uri.to_owned()));
        }
    }

    #[test]
    fn uris_that_run_programs_or_are_not_secure_are_rejected() {
        for (uri, words) in [
            (
                "qemu+ext:///system?command=/tmp/x",
                "the transport `ext` is not supported",
            ),
            (
                "test+ext:///default?command=/tmp/x",
                "neither transports nor parameters",
            ),
            ("test:///default?command=/tmp/x", "neither transports nor parameters"),
            (
                "qemu+ssh://host/system?command=/tmp/x",
                "`command` is not a supported parameter",
            ),
            ("qemu+ssh://host/system?Command=/tmp/x", "`Command` is not"),
            ("qemu+ssh://host/system?%63ommand=/tmp/x", "`%63ommand` is not"),
            (
                "qemu+ssh://host/system?no_tty=1;command=/tmp/x",
                "the value of `no_tty`",
            ),
            ("qemu+ssh://host/system?no_tty=1&netcat=/tmp/x", "`netcat` is not"),
            ("qemu+ssh://host/system?name=qemu%2Bext:///x", "`name` is not"),
            ("qemu+ssh://host/system?no_tty=1?command=/x", "the value of `no_tty`"),
            ("qemu+ssh://host/system#?command=/x", "is not `/system`"),
            (
                "qemu+ssh://host/system?keyfile=-oProxyCommand=x",
                "the value of `keyfile`",
            ),
            ("qemu+ssh://-oProxyCommand=x/system", "is not [user@]host[:port]"),
            ("qemu+ssh://-lroot@host/system", "is not [user@]host[:port]"),
            ("qemu+ssh://host;x/system", "is not [user@]host[:port]"),
            ("qemu+ssh://host%20x/system", "is not [user@]host[:port]"),
            ("qemu+tls://host/system?no_verify=1", "`no_verify` is not"),
            ("qemu+tcp://host/system", "is not encrypted"),
            ("qemu+tcp://127.0.0.1.example.com/system", "is not encrypted"),
            ("qemu+SSH://host/system", "the transport `SSH`"),
            ("lxc:///system", "the driver `lxc` is not supported"),
            ("qemu:///session", "use qemu:///system"),
            ("qemu:system", "is not a libvirt URI"),
        ] {
            match check(uri) {
                Err(why) => assert!(why.contains(words), "{uri}: {why}"),
                Ok(_) => panic!("{uri} is accepted"),
            }
        }
    }
}
