//! One value from its text; each error says in words what the text is not.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnetwork::Ipv4Network;

use super::variables::Kind;
use crate::cluster::Role;

/// The items of a list, separated by commas, blanks or lines.
pub fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty())
}

/// Splits `worker:extra.ign`; without the name of a role all of it is the path.
pub(super) fn role_and_path(text: &str) -> (Option<Role>, &str) {
    match text.split_once(':') {
        Some(("all", path)) => (None, path),
        Some((role, path)) => match role.parse() {
            Ok(Role::Helper) | Err(_) => (None, text),
            Ok(role) => (Some(role), path),
        },
        None => (None, text),
    }
}

pub(super) fn number(text: &str, kind: Kind) -> Result<u64, String> {
    let bad = || {
        let unit = match kind {
            Kind::Mib => ", in MiB",
            Kind::Gib => ", in GiB",
            _ => "",
        };
        format!("`{text}` is not a whole number{unit}")
    };
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    text.parse().map_err(|_| bad())
}

pub(super) fn ip(text: &str) -> Result<Ipv4Addr, String> {
    let ip: Ipv4Addr = text.parse().map_err(|_| format!("`{text}` is not an IPv4 address"))?;
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_broadcast() {
        return Err(format!("`{text}` is not an address that a machine can have"));
    }
    Ok(ip)
}

pub(super) fn network(text: &str) -> Result<Ipv4Network, String> {
    let bad = || format!("`{text}` is not an IPv4 network such as 192.168.122.0/24");
    if text.contains(':') {
        return Err(format!(
            "`{text}`: clusters with IPv6 and with both families are not in this version; give one IPv4 network"
        ));
    }
    if !text.contains('/') {
        return Err(bad());
    }
    let network: Ipv4Network = text.parse().map_err(|_| bad())?;
    if network.ip() != network.network() {
        return Err(format!(
            "`{text}` is an address in a network; the network is {}/{}",
            network.network(),
            network.prefix()
        ));
    }
    Ok(network)
}

/// Reads `600`, `90s`, `10m`, `1h30m`; never zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time such as 600, 10m or 1h30m");
    let mut seconds = 0u64;
    let mut rest = text;
    let mut last_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit = match rest[digits..].chars().next() {
            Some('h') => 3600,
            Some('m') => 60,
            Some('s') => 1,
            None if digits == text.len() => 1,
            _ => return Err(bad()),
        };
        if unit >= last_unit {
            return Err(bad());
        }
        last_unit = unit;
        seconds = number
            .checked_mul(unit)
            .and_then(|part| seconds.checked_add(part))
            .ok_or_else(bad)?;
        rest = rest.get(digits + 1..).unwrap_or_default();
    }
    match seconds {
        0 => Err(bad()),
        1..=604_800 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("`{text}` is longer than a week")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_strictly() {
        for (text, seconds) in [("600", 600), ("10m", 600), ("1h30m", 5400), ("1h1s", 3601), ("90s", 90)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in [
            "",
            "0",
            "0m",
            "m",
            "10 m",
            "10m5",
            "5m1h",
            "1m1m",
            "-5",
            "1.5h",
            "10min",
            "99999999999999999999h",
            "1h é",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration("5200000000000000h").is_err(), "overflow");
    }

    #[test]
    fn a_network_has_no_host_bits() {
        assert!(network("192.168.122.0/24").is_ok());
        for bad in ["192.168.122.1/24", "192.168.122.0", "192.168.122.0/33", "fd00::/64", ""] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }
}
