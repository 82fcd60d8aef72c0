//! Parses one value. An error describes the text; the caller adds the setting's name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

use super::entry::Kind;
use crate::cluster::capabilities::{KNOWN, SETS};
use crate::cluster::limits;
use crate::cluster::{AddressRange, Mac, NodeName, NodeSelector, Role};

/// Longest label of a DNS name, and longest name of a Kubernetes node.
pub const LONGEST_NAME: usize = 63;

/// The items of a list, separated by commas, spaces or line breaks.
pub fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty())
}

/// Splits `worker:extra.ign`; without a role, the whole text is the path.
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

/// Splits `worker-0:net.yaml`, as `role_and_path`.
pub(super) fn nodes_and_path(text: &str) -> (NodeSelector, &str) {
    match (role_and_path(text), text.split_once(':')) {
        ((Some(role), path), _) => (NodeSelector::Role(role), path),
        ((None, path), named) => match named.and_then(|(name, path)| Some((node(name)?, path))) {
            Some((node, path)) => (NodeSelector::Node(node), path),
            None => (NodeSelector::All, path),
        },
    }
}

fn node(name: &str) -> Option<NodeName> {
    let number = ["master-", "arbiter-", "worker-"]
        .iter()
        .find_map(|role| name.strip_prefix(role))?;
    // No leading zeros.
    let is_number = number.parse::<usize>().is_ok_and(|read| read.to_string() == number);
    name.parse().ok().filter(|_| is_number)
}

/// Units of memory and disks as powers of two, in MiB. `16G` means `16GiB`, as in libvirt (libvirt/libvirt:
/// `docs/formatdomain.rst`); the decimal `16GB` is rejected, because it would be a surprise.
const UNITS: [(&str, u32); 9] = [
    ("M", 0),
    ("Mi", 0),
    ("MiB", 0),
    ("G", 10),
    ("Gi", 10),
    ("GiB", 10),
    ("T", 20),
    ("Ti", 20),
    ("TiB", 20),
];

/// A whole number. A size may have a unit, in place of that of the setting.
pub fn number(text: &str, kind: Kind) -> Result<u64, String> {
    let unit = kind.unit().trim_start();
    let bad = || match unit {
        "" => format!("`{text}` is not a whole number"),
        unit => format!("`{text}` is not a whole number of {unit}, or a size such as 16GiB"),
    };
    let length = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let (digits, written) = text.split_at(length);
    let number: Option<u64> = digits.parse().ok();
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    let number = number.filter(|_| is_number).ok_or_else(bad)?;
    if written.is_empty() {
        return Ok(number);
    }
    let shift = |unit: &str| UNITS.iter().find(|(name, _)| *name == unit).map(|(_, shift)| *shift);
    let (written, own) = shift(written).zip(shift(unit)).ok_or_else(bad)?;
    let mib = number.checked_mul(1 << written).ok_or_else(bad)?;
    match mib % (1 << own) {
        0 => Ok(mib >> own),
        _ => Err(bad()),
    }
}

/// An address of a machine, of either family.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    match text.contains(':') {
        true => global_ip6(text).map(IpAddr::V6),
        false => ip4(text).map(IpAddr::V4),
    }
}

pub(super) fn ip4(text: &str) -> Result<Ipv4Addr, String> {
    let ip: Ipv4Addr = text.parse().map_err(|_| match text.split_once('/') {
        Some((ip, _)) if ip.parse::<Ipv4Addr>().is_ok() => {
            format!("`{text}` is an address with its prefix; write `{ip}`")
        }
        _ => format!("`{text}` is not an IPv4 address"),
    })?;
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_broadcast() {
        return Err(format!("`{text}` cannot be the address of a machine"));
    }
    Ok(ip)
}

/// One address, or the first and the last of several.
pub(super) fn range(text: &str) -> Result<AddressRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    if let (Ok(first), Ok(last)) = (first.parse::<Ipv4Addr>(), last.parse::<u8>()) {
        let [a, b, c, _] = first.octets();
        return Err(format!(
            "`{text}`: write both addresses in full, as {first}-{a}.{b}.{c}.{last}"
        ));
    }
    let (first, last) = (ip(first)?, ip(last)?);
    match (first.is_ipv4() == last.is_ipv4(), first <= last) {
        (true, true) => Ok(AddressRange { first, last }),
        (true, false) => Err(format!("`{text}`: {last} is before {first}")),
        (false, _) => Err(format!(
            "`{text}`: {first} and {last} are of different address families"
        )),
    }
}

pub(super) fn network(text: &str) -> Result<Ipv4Network, String> {
    let bad = || format!("`{text}` is not an IPv4 network such as 192.168.122.0/24");
    if text.contains(':') {
        return Err(format!("`{text}` is an IPv6 network; only IPv4 is supported here"));
    }
    if !text.contains('/') {
        return Err(bad());
    }
    let network: Ipv4Network = text.parse().map_err(|_| bad())?;
    no_host(text, network.into())?;
    Ok(network)
}

/// An IPv4 network of a cluster; its address cannot be 0.0.0.0.
pub(super) fn network_of_cluster(text: &str) -> Result<Ipv4Network, String> {
    let network = network(text)?;
    not_of_all(text, network.into())?;
    Ok(network)
}

/// Rejects a network whose address is 0.0.0.0 or ::, as openshift-install does (openshift/installer:
/// `pkg/validate/validate.go`, `SubnetCIDR`).
fn not_of_all(text: &str, network: IpNetwork) -> Result<(), String> {
    match network.ip().is_unspecified() {
        true => Err(format!("`{text}` cannot be a network of the cluster")),
        false => Ok(()),
    }
}

/// A network plugin, with the usual spelling of OpenShift's own.
pub(super) fn network_type(text: &str) -> Result<String, String> {
    let own = ["OVNKubernetes", "OpenShiftSDN", "Kuryr"];
    let known = own.into_iter().find(|known| known.eq_ignore_ascii_case(text));
    Ok(known.unwrap_or(text).to_owned())
}

/// Rejects a network that is written with the address of a host.
fn no_host(text: &str, network: IpNetwork) -> Result<(), String> {
    let (first, prefix) = (network.network(), network.prefix());
    if network.ip() == first {
        return Ok(());
    }
    Err(format!(
        "`{text}` is the address of a host; the network is {first}/{prefix}"
    ))
}

/// A network of either address family.
pub(super) fn any_network(text: &str) -> Result<IpNetwork, String> {
    match text.contains(':') {
        true => network6(text).map(IpNetwork::V6),
        false => network(text).map(IpNetwork::V4),
    }
}

/// A network; an IPv6 network may follow an IPv4 network.
pub(super) fn networks(text: &str) -> Result<(IpNetwork, Option<Ipv6Network>), String> {
    let (first, second) = first_and_second(text)?;
    let (first, second) = (any_network(first)?, second.map(network6).transpose()?);
    for network in [Some(first), second.map(IpNetwork::V6)].into_iter().flatten() {
        not_of_all(text, network)?;
    }
    Ok((first, second))
}

/// An address; an IPv6 address may follow an IPv4 address.
pub(super) fn addresses(text: &str) -> Result<(IpAddr, Option<Ipv6Addr>), String> {
    let (first, second) = first_and_second(text)?;
    Ok((ip(first)?, second.map(global_ip6).transpose()?))
}

/// The gateways of one or both address families. Routers often have only a link-local IPv6 address.
pub(super) fn gateways(text: &str) -> Result<(Option<Ipv4Addr>, Option<Ipv6Addr>), String> {
    let (first, second) = families(text)?;
    Ok((first.map(ip4).transpose()?, second.map(ip6).transpose()?))
}

/// The first item of a list, and the IPv6 one after it.
fn first_and_second(text: &str) -> Result<(&str, Option<&str>), String> {
    Ok(match families(text)? {
        (Some(first), second) => (first, second),
        (None, only) => (only.unwrap_or_default(), None),
    })
}

/// The IPv4 and the IPv6 item of a list, in this order.
fn families(text: &str) -> Result<(Option<&str>, Option<&str>), String> {
    let is_ipv6 = |item: &str| item.contains(':');
    match list(text).collect::<Vec<_>>()[..] {
        [one] if is_ipv6(one) => Ok((None, Some(one))),
        [one] => Ok((Some(one), None)),
        [one, two] if !is_ipv6(one) && is_ipv6(two) => Ok((Some(one), Some(two))),
        [one, two] if is_ipv6(one) && !is_ipv6(two) => Err(format!(
            "`{text}`: IPv4 must be first, as openshift-install requires; use `{two},{one}`"
        )),
        _ => Err(format!(
            "`{text}` is not one item of each address family, first IPv4, then IPv6"
        )),
    }
}

/// An address that is valid on more than one link.
fn global_ip6(text: &str) -> Result<Ipv6Addr, String> {
    match ip6(text)? {
        local if local.is_unicast_link_local() => Err(format!("`{local}` is valid on one link only")),
        ip => Ok(ip),
    }
}

fn ip6(text: &str) -> Result<Ipv6Addr, String> {
    let ip: Ipv6Addr = text.parse().map_err(|_| format!("`{text}` is not an IPv6 address"))?;
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.to_ipv4_mapped().is_some() {
        return Err(format!("`{text}` cannot be the address of a machine"));
    }
    Ok(ip)
}

fn network6(text: &str) -> Result<Ipv6Network, String> {
    let bad = || format!("`{text}` is not an IPv6 network such as fd00:1::/64");
    let network: Ipv6Network = text.parse().map_err(|_| bad())?;
    if !text.contains('/') || network.ip().is_multicast() || network.ip().is_unicast_link_local() {
        return Err(bad());
    }
    no_host(text, network.into())?;
    Ok(network)
}

/// Parses `600`, `90s`, `10m`, `1h30m`; rejects zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a duration such as 600, 10m or 1h30m");
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

/// A MAC address that a NIC can have.
pub(super) fn nic_mac(text: &str) -> Result<Mac, String> {
    let mac: Mac = text.parse()?;
    match mac.is_unicast() {
        true => Ok(mac),
        false => Err(format!(
            "`{text}` is a multicast MAC address; the first byte must be even"
        )),
    }
}

/// A label of a DNS name (RFC 1123).
pub(super) fn dns_label(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= LONGEST_NAME
        && text
            .bytes()
            .all(|b| b == b'-' || b.is_ascii_lowercase() || b.is_ascii_digit())
        && !text.starts_with('-')
        && !text.ends_with('-');
    match fits {
        true => Ok(text.to_owned()),
        false if text.is_empty() => Err("a label of the name is empty".to_owned()),
        false => Err(format!(
            "`{text}` is not a DNS label: lower-case letters, digits and inner hyphens, at most {LONGEST_NAME} characters"
        )),
    }
}

pub(super) fn virtual_router_id(text: &str) -> Result<u8, String> {
    text.parse()
        .ok()
        .filter(|id| *id > 0)
        .ok_or_else(|| format!("`{text}` is not between 1 and 255"))
}

/// The name of a Kubernetes object (RFC 1123 subdomain).
pub(super) fn kube_name(text: &str) -> Result<String, String> {
    match text.len() <= 253 && text.split('.').all(|label| dns_label(label).is_ok()) {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not a Kubernetes object name")),
    }
}

/// The name or address of a host.
pub(super) fn host(text: &str) -> Result<String, String> {
    let is_name = text.len() <= 253 && text.split('.').all(|label| dns_label(label).is_ok());
    match is_name || text.parse::<IpAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not a DNS name or an IP address")),
    }
}

/// A DNS search domain.
pub(super) fn domain(text: &str) -> Result<String, String> {
    match text.len() <= 253 && text.split('.').all(|label| dns_label(label).is_ok()) {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not a DNS domain such as example.com")),
    }
}

/// The MTU of a node: that of its pods is 100 less, and IPv6 requires 1280 (RFC 8200).
pub(super) fn mtu(text: &str) -> Result<u16, String> {
    let mtu = text.parse().ok().filter(|mtu| *mtu >= 1380);
    mtu.ok_or_else(|| format!("`{text}` is not an MTU from 1380 to 65535"))
}

/// The URL of an image, optionally followed by `#sha256=<hex>`.
pub fn image_url(text: &str) -> Result<String, String> {
    let (url, sum) = text.split_once('#').unwrap_or((text, ""));
    let is_sum = |sum: &str| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
    if !sum.is_empty() && !sum.strip_prefix("sha256=").is_some_and(is_sum) {
        return Err(format!("`#{sum}` is not `#sha256=` with 64 hexadecimal digits"));
    }
    http_url(url)?;
    match url.rsplit('/').next() {
        Some(name) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("`{text}` does not end in a file name")),
    }
}

/// A SHA-256 in lower case, the first word of a line of `sha256sum`.
pub(super) fn sha256(text: &str) -> Result<String, String> {
    let text = text.split_whitespace().next().unwrap_or_default();
    match text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!("`{text}` is not a SHA-256: 64 hexadecimal digits")),
    }
}

/// The URL of a directory, without a / at its end.
pub(super) fn folder_url(text: &str) -> Result<String, String> {
    http_url(text)?;
    match text.contains(['?', '#']) {
        true => Err(format!("`{text}` is not the URL of a directory")),
        false => Ok(text.trim_end_matches('/').to_owned()),
    }
}

fn http_url(text: &str) -> Result<(), String> {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .ok_or_else(|| format!("`{text}` is not an http or https URL"))?;
    let host = rest.split('/').next().unwrap_or_default();
    // Not repeated: it may contain a password.
    if host.contains('@') {
        return Err("a password in a URL appears in logs; use a mirror that requires none".to_owned());
    }
    match host.is_empty() || text.contains(char::is_whitespace) {
        true => Err(format!("`{text}` is not a URL")),
        false => Ok(()),
    }
}

/// A destination without a proxy: a host, a domain with or without a leading dot, an address or a network.
pub(super) fn no_proxy(text: &str) -> Result<String, String> {
    match text {
        "*" => Err("`*` would bypass the proxy for every destination; remove the proxy instead".to_owned()),
        text if limits::is_no_proxy(text) => Ok(text.to_owned()),
        text => Err(format!("`{text}` is not a host, a domain or a network")),
    }
}

/// A capability set, such as `None` or `v4.18`.
pub(super) fn capability_set(text: &str) -> Result<String, String> {
    one_of(text, &SETS, "capability set")
}

/// The name of a capability, such as `Console`.
pub(super) fn capability(text: &str) -> Result<String, String> {
    one_of(text, &KNOWN.map(|(name, _)| name), "capability")
}

/// The most similar name, if its similarity exceeds `least`.
pub(super) fn most_similar<'a>(
    names: impl Iterator<Item = &'a str>,
    least: f64,
    likeness: impl Fn(&str) -> f64,
) -> Option<&'a str> {
    let judged = names.map(|name| (likeness(name), name));
    let near = judged.filter(|(likeness, _)| *likeness > least);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// One of these names; the error suggests the most similar one, or lists all.
fn one_of(text: &str, known: &[&str], what: &str) -> Result<String, String> {
    if known.contains(&text) {
        return Ok(text.to_owned());
    }
    let likeness = |name: &str| strsim::jaro_winkler(&text.to_lowercase(), &name.to_lowercase());
    Err(match most_similar(known.iter().copied(), 0.8, likeness) {
        Some(near) => format!("`{text}` is not a {what}; did you mean `{near}`?"),
        None => format!("`{text}` is not a {what}: use one of {}", known.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_may_have_a_unit() {
        for (text, kind, size) in [
            ("16384", Kind::Mib, Some(16384)),
            ("16384M", Kind::Mib, Some(16384)),
            ("16G", Kind::Mib, Some(16384)),
            ("16Gi", Kind::Mib, Some(16384)),
            ("16GiB", Kind::PerPool(&Kind::Mib), Some(16384)),
            ("100", Kind::Gib, Some(100)),
            ("100G", Kind::Gib, Some(100)),
            ("1TiB", Kind::List(&Kind::Gib), Some(1024)),
            ("2048MiB", Kind::Gib, Some(2)),
            ("2047MiB", Kind::Gib, None),
            ("16GB", Kind::Mib, None),
            ("16 G", Kind::Mib, None),
            ("1.5G", Kind::Mib, None),
            ("G", Kind::Mib, None),
            ("+1", Kind::Mib, None),
            ("18446744073709551615T", Kind::Mib, None),
            ("4", Kind::Count, Some(4)),
            ("4G", Kind::Count, None),
        ] {
            assert_eq!(number(text, kind).ok(), size, "{text} {kind:?}");
        }
    }

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
    fn two_families_are_listed_in_their_order() {
        let both = |text| networks(text).map(|(first, second)| (first.to_string(), second.map(|six| six.to_string())));
        for text in [
            "10.0.0.0/24,fd00:1::/64",
            "10.0.0.0/24 fd00:1::/64",
            "10.0.0.0/24, fd00:1::/64",
        ] {
            assert_eq!(
                both(text),
                Ok(("10.0.0.0/24".to_owned(), Some("fd00:1::/64".to_owned())))
            );
        }
        for one in ["10.0.0.0/24", "fd00:1::/64"] {
            assert_eq!(both(one), Ok((one.to_owned(), None)));
        }
        for (bad, words) in [
            ("", "one item of each"),
            ("fd00:1::/64,10.0.0.0/24", "use `10.0.0.0/24,fd00:1::/64`"),
            ("10.0.0.0/24,10.1.0.0/24", "one item of each"),
            ("fd00:1::/64,fd00:2::/64", "one item of each"),
            ("10.0.0.0/24,fd00:1::/64,fd00:2::/64", "one item of each"),
            ("10.0.0.0/24,fd00:1::5/64", "the network is fd00:1::/64"),
            ("10.0.0.0/24,fd00:1::", "is not an IPv6 network"),
            ("10.0.0.0/24,fe80::/64", "is not an IPv6 network"),
            ("10.0.0.0/24,fd00:1::/129", "is not an IPv6 network"),
        ] {
            assert!(both(bad).unwrap_err().contains(words), "{bad}: {:?}", both(bad));
        }
        for good in ["10.0.0.1,fd00:1::1", "10.0.0.1", "fd00:1::1"] {
            assert!(addresses(good).is_ok(), "{good}");
        }
        for bad in [
            "10.0.0.1,fe80::1",
            "10.0.0.1,ff02::1",
            "10.0.0.1,::1",
            "10.0.0.1,::ffff:10.0.0.1",
            "fe80::1",
        ] {
            assert!(addresses(bad).is_err(), "{bad}");
        }
        assert_eq!(gateways("fe80::1"), Ok((None, Some("fe80::1".parse().unwrap()))));
        assert!(gateways("fe80::1,10.0.0.1").is_err());
    }

    #[test]
    fn a_network_has_no_host_bits() {
        assert!(network("192.168.122.0/24").is_ok());
        for bad in ["192.168.122.1/24", "192.168.122.0", "192.168.122.0/33", "fd00::/64", ""] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }
}
