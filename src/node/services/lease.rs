//! The leases of virtual IPs, renewed by whoever holds the address.
//!
//! Where the platform keeps no address, pass one's helpers got the virtual IPs as leases, and these would end with them.
//! A node that asks from its own address is served, since the server goes by what is in the request (RFC 2131, 4.1 and
//! 4.3.2); so a few lines of shell are enough, and nothing is configured on the node.

use super::input::Input;
use crate::node::host::{HostFile, HostParts, HostUnit};

/// What every node gets that may hold a virtual IP; nothing where no virtual IP is a lease.
pub fn parts(input: &Input<'_>) -> HostParts {
    if input.leased.is_empty() {
        return HostParts::default();
    }
    let leases = input.leased.iter().map(|lease| format!("{} {}\n", lease.ip, lease.mac));
    let script = include_str!("templates/lease/ocpdeploy-renew-vips");
    let unit = |name: &str, enabled, contents: &str| HostUnit {
        name: name.to_owned(),
        enabled,
        contents: Some(contents.to_owned()),
        dropins: vec![],
    };
    HostParts {
        files: vec![
            HostFile::new("/etc/ocpdeploy/vip-leases", 0o644, leases.collect::<String>()),
            HostFile::new("/usr/local/bin/ocpdeploy-renew-vips", 0o755, script),
        ],
        units: vec![
            unit(
                "ocpdeploy-renew-vips.service",
                None,
                include_str!("templates/lease/ocpdeploy-renew-vips.service"),
            ),
            unit(
                "ocpdeploy-renew-vips.timer",
                Some(true),
                include_str!("templates/lease/ocpdeploy-renew-vips.timer"),
            ),
        ],
    }
}
