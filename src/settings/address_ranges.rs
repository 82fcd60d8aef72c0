//! `address_ranges`, and its checks against the other addresses in the settings.

use std::net::IpAddr;

use super::checks::given_ips;
use super::values::Values;
use crate::cluster::{AddressRange, ClusterConfig, ClusterNetworks, GivenAddresses, reserved_as};
use crate::plan::address_ranges;
use crate::printable::count;

const NAME: &str = "address_ranges";

/// Checks that machines can have the addresses, and that no other setting uses them.
pub(super) fn check(
    values: &mut Values<'_>,
    given: &GivenAddresses,
    ranges: &[AddressRange],
    networks: &ClusterNetworks,
) {
    let inner = [
        ("cluster_network", networks.cluster_network),
        ("service_network", networks.service_network),
    ];
    let servers = given.name_servers.iter().map(|ip| ("name_servers", *ip));
    let taken: Vec<(&'static str, IpAddr)> = given_ips(given).into_iter().chain(servers).collect();
    for (index, range) in ranges.iter().enumerate() {
        let mut problem = |names: &[&'static str], what: String| {
            values.problem(names, format!("`{NAME}`: {range} {what}"), "");
        };
        if let Some(other) = ranges[..index].iter().find(|other| other.overlaps(range)) {
            problem(&[NAME], format!("overlaps with {other}"));
        }
        for (name, network) in inner {
            let whole = AddressRange {
                first: network.network(),
                last: network.broadcast(),
            };
            if whole.overlaps(range) {
                problem(&[NAME, name], format!("overlaps with `{name}` {network}"));
            }
        }
        if let Some(network) = given.machine_network {
            if !network.contains(range.first) || !network.contains(range.last) {
                problem(&[NAME, "machine_network"], format!("is outside {network}"));
            }
            for ip in [network.network(), network.broadcast()] {
                if let Some(what) = reserved_as(network, ip).filter(|_| range.contains(ip)) {
                    let what = format!("contains {ip}, {what} of {network}");
                    problem(&[NAME, "machine_network"], what);
                }
            }
        }
        for (name, ip) in &taken {
            if range.contains(*ip) {
                problem(&[NAME, *name], format!("contains {ip}, which is in `{name}`"));
            }
        }
    }
}

/// Checks that the ranges are large enough and have an effect.
pub(super) fn check_size(values: &mut Values<'_>, config: &ClusterConfig) {
    if config.address_ranges.is_empty() {
        return;
    }
    let wanted = address_ranges::names(config);
    if wanted.is_empty() {
        values.warn(
            NAME,
            &format!("{NAME} has no effect: all addresses are set, or are from the platform"),
        );
    }
    let all = config.address_ranges.iter().flat_map(AddressRange::iter);
    let has = all.take(wanted.len()).count();
    if has < wanted.len() {
        let names: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        values.problem(
            &[NAME],
            format!(
                "`{NAME}` has {}, too few for {} machines and virtual IPs",
                count(has, "address"),
                wanted.len()
            ),
            &format!("it must have an address for each of {}", names.join(", ")),
        );
    }
}
