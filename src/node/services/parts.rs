//! All services of a node.

use super::input::{Input, ServiceError};
use super::{dns, haproxy, keepalived, lease, peers, resolver};
use crate::cluster::{Lb, Role};
use crate::node::host::HostParts;

/// All service files of a role's nodes.
pub fn parts(input: &Input<'_>, role: Role) -> Result<HostParts, ServiceError> {
    let mut parts = HostParts::default();
    if input.config.lb == Lb::Keepalived {
        parts.extend(keepalived::parts(input, role)?);
        parts.extend(haproxy::parts(input, role)?);
    }
    parts.extend(dns::parts(input)?);
    parts.extend(resolver::parts(input));
    parts.extend(lease::parts(input));
    parts.extend(peers::parts(input));
    Ok(parts)
}
