//! Renewal of virtual IPs' leases by the node that holds the address.
//!
//! If the platform reserves no addresses, pass one's helpers leased the virtual IPs, and these leases would expire. A
//! server answers a node that sends requests from its own address, because only the content of the request matters
//! (RFC 2131, 4.1 and 4.3.2); so a few lines of shell are sufficient, and nothing is configured on the node.

use super::input::Input;
use crate::node::host::{HostFile, HostParts, HostUnit};

/// The files of every node that may hold a virtual IP; empty if no virtual IP is a lease.
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
