//! The document of a network: its subnet, reservations and DNS records, and which of them have a cluster's tag.
//!
//! The tag is a name, `<node>.<cluster>.<domain>.ocpdeploy`: the name of a reservation, or one of the names of a DNS
//! record. So one atomic request creates the entry with its tag, and entries that users created are never changed.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::{Ipv4Network, Ipv6Network};

use crate::backend::{AddressReservation, BackendError, BackendErrorKind};
use crate::cluster::{ClusterId, Mac, NodeName};
use crate::xml::Element;

/// The suffix of all tags.
const MARK: &str = ".ocpdeploy";

/// One of a network's two documents: the present configuration of dnsmasq, or that of its next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetworkDocument {
    pub forward: Option<String>,
    /// The first IPv4 block.
    pub own: Option<Ipv4Network>,
    /// The first IPv6 block.
    pub ipv6: Option<Ipv6Network>,
    pub ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub has_dhcp: bool,
    pub has_dns: bool,
    pub mtu: Option<u16>,
    pub hosts: Vec<DhcpHost>,
    pub records: Vec<DnsRecord>,
}

/// A DHCP reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DhcpHost {
    pub mac: Option<Mac>,
    pub ip: Option<Ipv4Addr>,
    pub name: String,
}

/// A DNS record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DnsRecord {
    pub ip: String,
    pub names: Vec<String>,
}

/// The tag of an entry.
pub(super) fn tag_of(cluster: &ClusterId, node: &NodeName) -> String {
    format!("{node}.{}{MARK}", cluster.tag())
}

/// The node of an entry of exactly this cluster.
pub(super) fn node_of<'a>(cluster: &ClusterId, name: &'a str) -> Option<&'a str> {
    cluster.host_of(name.strip_suffix(MARK)?)
}

impl DhcpHost {
    fn read(element: &Element) -> Self {
        Self {
            mac: element.get("mac").and_then(|mac| mac.parse().ok()),
            ip: element.get("ip").and_then(|ip| ip.parse().ok()),
            name: element.get("name").unwrap_or_default().to_owned(),
        }
    }

    pub fn to_xml(&self) -> Element {
        let mut host = Element::new("host");
        if let Some(mac) = self.mac {
            host = host.attr("mac", mac);
        }
        if !self.name.is_empty() {
            host = host.attr("name", &self.name);
        }
        match self.ip {
            Some(ip) => host.attr("ip", ip),
            None => host,
        }
    }

    /// The reservation as part of a message.
    fn summary(&self) -> String {
        let name = match self.name.as_str() {
            "" => "a reservation without a name",
            name => name.strip_suffix(MARK).unwrap_or(name),
        };
        match (self.ip, self.mac) {
            (Some(ip), Some(mac)) => format!("{ip} is reserved for {name} ({mac})"),
            _ => format!("{name} has a reservation"),
        }
    }
}

impl DnsRecord {
    fn read(element: &Element) -> Self {
        let names = element.all("hostname");
        Self {
            ip: element.get("ip").unwrap_or_default().to_owned(),
            names: names.into_iter().map(|name| name.text.clone()).collect(),
        }
    }

    pub fn to_xml(&self) -> Element {
        let names = self.names.iter().map(|name| Element::new("hostname").text(name));
        Element::new("host").attr("ip", &self.ip).children(names)
    }

    fn is_of(&self, cluster: &ClusterId) -> bool {
        self.names.iter().any(|name| node_of(cluster, name).is_some())
    }
}

impl NetworkDocument {
    pub fn read(network: &Element) -> Self {
        let is_v4 = |ip: &&Element| ip.get("family").is_none_or(|family| family == "ipv4");
        let own = network.all("ip").into_iter().find(is_v4);
        let ipv6 = network
            .all("ip")
            .into_iter()
            .find(|ip| ip.get("family") == Some("ipv6"));
        let dhcp = own.and_then(|ip| ip.find("dhcp"));
        let range = |range: &Element| Some((range.get("start")?.parse().ok()?, range.get("end")?.parse().ok()?));
        let of_dhcp = |name| dhcp.map(|dhcp| dhcp.all(name)).unwrap_or_default();
        Self {
            forward: network.value("forward", "mode").map(str::to_owned),
            own: own.and_then(block),
            ipv6: ipv6.and_then(block6),
            ranges: of_dhcp("range").into_iter().filter_map(range).collect(),
            has_dhcp: dhcp.is_some(),
            // libvirt/libvirt: src/network/bridge_driver.c, `networkStartNetworkVirtual`.
            has_dns: (own.is_some() || ipv6.is_some()) && network.value("dns", "enable") != Some("no"),
            mtu: mtu(network),
            hosts: of_dhcp("host").into_iter().map(DhcpHost::read).collect(),
            records: network.all("dns/host").into_iter().map(DnsRecord::read).collect(),
        }
    }

    /// Whether the reservation is missing; the reason if a conflict prevents it.
    pub fn lacks_host(&self, wanted: &DhcpHost) -> Result<bool, String> {
        let differs = |host: &&DhcpHost| *host != wanted && !host.is_equal_user_entry(wanted);
        let clashes = |host: &&DhcpHost| {
            (host.mac.is_some() && host.mac == wanted.mac)
                || (host.ip.is_some() && host.ip == wanted.ip)
                || host.name == wanted.name
        };
        match self.hosts.iter().filter(clashes).find(differs) {
            Some(host) => Err(host.summary()),
            None => Ok(!self.hosts.iter().any(|host| clashes(&host))),
        }
    }

    /// Like `lacks_host`, for a DNS record.
    pub fn lacks_record(&self, wanted: &DnsRecord) -> Result<bool, String> {
        let own_names: BTreeSet<_> = wanted.names.iter().filter(|name| !name.ends_with(MARK)).collect();
        let mut lacks = true;
        // A name has one address of each family.
        let is_ipv6 = |record: &&DnsRecord| record.ip.contains(':');
        for record in self.records.iter().filter(|record| is_ipv6(record) == is_ipv6(&wanted)) {
            let names: BTreeSet<_> = record.names.iter().collect();
            if record.ip == wanted.ip && own_names.is_subset(&names) {
                lacks = false;
            } else if record.ip == wanted.ip {
                return Err(format!("{} already resolves to {}", record.names.join(", "), record.ip));
            } else if let Some(name) = own_names.intersection(&names).next() {
                return Err(format!("{name} already resolves to {}", record.ip));
            }
        }
        Ok(lacks)
    }
}

impl DhcpHost {
    /// Whether this is a user's own entry with the same MAC and address. It remains the user's entry.
    fn is_equal_user_entry(&self, wanted: &DhcpHost) -> bool {
        self.mac == wanted.mac && self.ip == wanted.ip && !self.name.ends_with(MARK)
    }
}

/// `<ip address='192.168.122.1' netmask='255.255.255.0'>` or `prefix='24'`.
fn block(ip: &Element) -> Option<Ipv4Network> {
    let address = ip.get("address")?.parse().ok()?;
    match (ip.get("prefix"), ip.get("netmask")) {
        (Some(prefix), _) => Ipv4Network::new(address, prefix.parse().ok()?).ok(),
        (None, Some(mask)) => Ipv4Network::with_netmask(address, mask.parse().ok()?).ok(),
        (None, None) => None,
    }
}

/// The MTU of a network whose bridge libvirt creates; that of other bridges is not in the document.
///
/// libvirt/libvirt: docs/formatnetwork.rst, `mtu`: nat, route, open and isolated networks; without it that of the bridge,
/// which the kernel creates with 1500.
fn mtu(network: &Element) -> Option<u16> {
    match (network.value("mtu", "size"), network.value("forward", "mode")) {
        (Some(size), _) => size.parse().ok(),
        (None, None | Some("nat" | "route" | "open")) => Some(1500),
        (None, Some(_)) => None,
    }
}

/// `<ip family='ipv6' address='fd00::1' prefix='64'/>`.
fn block6(ip: &Element) -> Option<Ipv6Network> {
    Ipv6Network::new(ip.get("address")?.parse().ok()?, ip.get("prefix")?.parse().ok()?).ok()
}

/// A tagged entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NetworkEntry {
    Host(DhcpHost),
    Record(DnsRecord),
}

/// The entries of exactly this cluster.
pub(super) fn of_cluster(document: &NetworkDocument, cluster: &ClusterId) -> Vec<NetworkEntry> {
    let hosts = document
        .hosts
        .iter()
        .filter(|host| node_of(cluster, &host.name).is_some());
    let records = document.records.iter().filter(|record| record.is_of(cluster));
    hosts
        .cloned()
        .map(NetworkEntry::Host)
        .chain(records.cloned().map(NetworkEntry::Record))
        .collect()
}

/// The clusters that have entries: the part of the tag after the node.
pub(super) fn clusters(document: &NetworkDocument) -> BTreeSet<ClusterId> {
    let hosts = document.hosts.iter().map(|host| &host.name);
    let records = document.records.iter().flat_map(|record| &record.names);
    let of = |name: &String| ClusterId::read(name.strip_suffix(MARK)?.split_once('.')?.1);
    hosts.chain(records).filter_map(of).collect()
}

/// The entries of exactly this reservation.
pub(super) fn of_reservation(document: &NetworkDocument, reservation: &AddressReservation) -> Vec<NetworkEntry> {
    let tag = tag_of(&reservation.cluster, &reservation.assignment.name);
    let (mac, ip) = (reservation.assignment.mac, reservation.assignment.ip);
    let ips: Vec<String> = std::iter::once(ip.to_string())
        .chain(reservation.ipv6.map(|ip| ip.to_string()))
        .collect();
    let at_its_place = |entry: &NetworkEntry| match entry {
        NetworkEntry::Host(host) => host.name == tag && host.ip.map(IpAddr::V4) == Some(ip),
        NetworkEntry::Record(record) => record.names.contains(&tag) && ips.contains(&record.ip),
    };
    // A record without a reservation is left over from an interrupted release. If there is a reservation for another
    // MAC, the record belongs to that one.
    let is_of_another_mac = |entry: &NetworkEntry| matches!(entry, NetworkEntry::Host(host) if host.mac != Some(mac));
    let mut entries = of_cluster(document, &reservation.cluster);
    entries.retain(at_its_place);
    match entries.iter().any(is_of_another_mac) {
        true => Vec::new(),
        false => entries,
    }
}

/// libvirt accepts any address, even one of another network.
pub(super) fn check_address(document: &NetworkDocument, mac: Mac, ip: Ipv4Addr) -> Result<(), BackendError> {
    let rejected = |message| Err(BackendError::new(BackendErrorKind::Rejected, message));
    if !mac.is_unicast() {
        return rejected(format!("{mac} is not a unicast MAC"));
    }
    match document.own {
        Some(block) if !block.contains(ip) || [block.ip(), block.network(), block.broadcast()].contains(&ip) => {
            rejected(format!("{ip} is not a machine address of {block}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    const NETWORK: &str = "
<network connections='1'>
  <name>default</name>
  <uuid>544b24cf-eb86-4677-bea5-f91924bedc44</uuid>
  <forward mode='nat'><nat><port start='1024' end='65535'/></nat></forward>
  <bridge name='virbr0' stp='on' delay='0'/>
  <dns>
    <host ip='192.168.122.10'><hostname>master-0.lab.example.com</hostname><hostname>master-0.lab.example.com.x7k2pqrs.ocpdeploy</hostname></host>
    <host ip='192.168.122.11'><hostname>registry.lab.example.com</hostname></host>
    <host ip='192.168.122.12'><hostname>api.a.lab.example.com</hostname><hostname>api.a.lab.example.com.x7k2pqrs.ocpdeploy</hostname></host>
  </dns>
  <ip family='ipv6' address='fd00::1' prefix='64'/>
  <ip address='192.168.122.1' netmask='255.255.255.0'>
    <dhcp>
      <range start='192.168.122.2' end='192.168.122.254'/>
      <host mac='52:54:00:00:00:10' name='master-0.lab.example.com.x7k2pqrs.ocpdeploy' ip='192.168.122.10'/>
      <host mac='52:54:00:00:00:11' name='registry.lab.example.com' ip='192.168.122.11'/>
      <host mac='52:54:00:00:00:12' name='api.a.lab.example.com.x7k2pqrs.ocpdeploy' ip='192.168.122.12'/>
      <host mac='52:54:00:00:00:13' name='api.lab.example.com' ip='192.168.122.13'/>
      <host mac='52:54:00:00:00:14' ip='192.168.122.14'/>
      <host name='by-name' ip='192.168.122.15'/>
    </dhcp>
  </ip>
</network>";

    fn document() -> NetworkDocument {
        NetworkDocument::read(&xml::parse(NETWORK).unwrap())
    }

    fn host(mac: &str, ip: &str, name: &str) -> DhcpHost {
        DhcpHost {
            mac: Some(mac.parse().unwrap()),
            ip: Some(ip.parse().unwrap()),
            name: name.to_owned(),
        }
    }

    #[test]
    fn the_subnet_is_read() {
        let document = document();
        assert_eq!(document.own, Some("192.168.122.1/24".parse().unwrap()));
        assert_eq!(document.ipv6, Some("fd00::1/64".parse().unwrap()));
        let range = ("192.168.122.2".parse().unwrap(), "192.168.122.254".parse().unwrap());
        assert_eq!(document.ranges, [range]);
        assert!(document.has_dhcp && document.has_dns);
        let bridged = xml::parse("<network><name>lan</name><forward mode='bridge'/><bridge name='br0'/></network>");
        let bridged = NetworkDocument::read(&bridged.unwrap());
        assert_eq!((document.mtu, bridged.mtu), (Some(1500), None));
        for (network, mtu) in [
            ("<network><mtu size='9000'/><forward mode='nat'/></network>", Some(9000)),
            ("<network><forward/></network>", Some(1500)),
            ("<network/>", Some(1500)),
        ] {
            assert_eq!(
                NetworkDocument::read(&xml::parse(network).unwrap()).mtu,
                mtu,
                "{network}"
            );
        }
        let of_ipv6 =
            xml::parse("<network><name>six</name><ip family='ipv6' address='fd00::1' prefix='64'/></network>");
        let of_ipv6 = NetworkDocument::read(&of_ipv6.unwrap());
        assert!(of_ipv6.has_dns && !of_ipv6.has_dhcp && of_ipv6.own.is_none());
        assert_eq!(bridged.forward.as_deref(), Some("bridge"));
        assert!(!bridged.has_dhcp && !bridged.has_dns && bridged.own.is_none() && bridged.ipv6.is_none());
    }

    #[test]
    fn only_tagged_entries_of_exactly_this_cluster_are_its_own() {
        let names = |cluster: &str| -> Vec<String> {
            let cluster = ClusterId::read(cluster).unwrap();
            let name = |entry| match entry {
                NetworkEntry::Host(host) => host.name,
                NetworkEntry::Record(record) => record.ip,
            };
            of_cluster(&document(), &cluster).into_iter().map(name).collect()
        };
        assert_eq!(
            names("lab.example.com.x7k2pqrs"),
            ["master-0.lab.example.com.x7k2pqrs.ocpdeploy", "192.168.122.10"]
        );
        assert_eq!(
            names("a.lab.example.com.x7k2pqrs"),
            ["api.a.lab.example.com.x7k2pqrs.ocpdeploy", "192.168.122.12"]
        );
        assert_eq!(names("lab.example.com.zzzzzzzz"), [""; 0]);
        assert_eq!(names("b.example.com.x7k2pqrs"), [""; 0]);
    }

    #[test]
    fn clusters_are_read_only_from_tags() {
        let found: Vec<_> = clusters(&document()).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["a.lab.example.com", "lab.example.com"]);
    }

    #[test]
    fn a_reservation_exists_is_missing_or_conflicts() {
        let document = document();
        let ours = |mac, ip| host(mac, ip, "master-0.lab.example.com.x7k2pqrs.ocpdeploy");
        assert_eq!(
            document.lacks_host(&ours("52:54:00:00:00:10", "192.168.122.10")),
            Ok(false)
        );
        let new = host(
            "52:54:00:00:00:99",
            "192.168.122.99",
            "master-9.lab.example.com.x7k2pqrs.ocpdeploy",
        );
        assert_eq!(document.lacks_host(&new), Ok(true));
        // A user's reservation for this MAC and address is sufficient.
        let by_hand = host(
            "52:54:00:00:00:14",
            "192.168.122.14",
            "worker-0.lab.example.com.x7k2pqrs.ocpdeploy",
        );
        assert_eq!(document.lacks_host(&by_hand), Ok(false));
        for (mac, ip, name, holder) in [
            (
                "52:54:00:00:00:99",
                "192.168.122.10",
                "api.lab.example.com.x7k2pqrs.ocpdeploy",
                "192.168.122.10 is reserved for master-0.lab.example.com.x7k2pqrs (52:54:00:00:00:10)",
            ),
            (
                "52:54:00:00:00:11",
                "192.168.122.99",
                "api.lab.example.com.x7k2pqrs.ocpdeploy",
                "192.168.122.11 is reserved for registry.lab.example.com (52:54:00:00:00:11)",
            ),
            (
                "52:54:00:00:00:99",
                "192.168.122.99",
                "master-0.lab.example.com.x7k2pqrs.ocpdeploy",
                "192.168.122.10 is reserved for master-0.lab.example.com.x7k2pqrs (52:54:00:00:00:10)",
            ),
            (
                "52:54:00:00:00:12",
                "192.168.122.12",
                "api.lab.example.com.x7k2pqrs.ocpdeploy",
                "192.168.122.12 is reserved for api.a.lab.example.com.x7k2pqrs (52:54:00:00:00:12)",
            ),
            (
                "52:54:00:00:00:99",
                "192.168.122.15",
                "api.lab.example.com.x7k2pqrs.ocpdeploy",
                "by-name has a reservation",
            ),
        ] {
            assert_eq!(
                document.lacks_host(&host(mac, ip, name)),
                Err(holder.to_owned()),
                "{mac} {ip} {name}"
            );
        }
    }

    #[test]
    fn a_record_exists_is_missing_or_conflicts() {
        let document = document();
        let record = |ip: &str, names: &[&str]| DnsRecord {
            ip: ip.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let tag = "master-0.lab.example.com.x7k2pqrs.ocpdeploy";
        for (wanted, verdict) in [
            (record("192.168.122.10", &["master-0.lab.example.com", tag]), Ok(false)),
            (record("192.168.122.99", &["api.lab.example.com", tag]), Ok(true)),
            (record("192.168.122.11", &["registry.lab.example.com", tag]), Ok(false)),
            (
                record("192.168.122.11", &["api.lab.example.com", tag]),
                Err("registry.lab.example.com already resolves to 192.168.122.11".to_owned()),
            ),
            (
                record("192.168.122.99", &["registry.lab.example.com", tag]),
                Err("registry.lab.example.com already resolves to 192.168.122.11".to_owned()),
            ),
        ] {
            assert_eq!(document.lacks_record(&wanted), verdict, "{wanted:?}");
        }
    }

    #[test]
    fn addresses_outside_the_network_are_rejected() {
        let mac: Mac = "52:54:00:00:00:99".parse().unwrap();
        let check = |ip: &str| check_address(&document(), mac, ip.parse().unwrap()).is_ok();
        assert!(check("192.168.122.77"));
        for bad in ["10.0.0.1", "192.168.122.1", "192.168.122.0", "192.168.122.255"] {
            assert!(!check(bad), "{bad}");
        }
    }

    #[test]
    fn entries_are_written_in_libvirts_format() {
        insta::assert_snapshot!(host("52:54:00:00:00:10", "192.168.122.10", "a.ocpdeploy").to_xml().to_string(), @"<host mac=\"52:54:00:00:00:10\" name=\"a.ocpdeploy\" ip=\"192.168.122.10\"/>");
        let record = DnsRecord {
            ip: "10.0.0.1".to_owned(),
            names: vec!["a".to_owned(), "b".to_owned()],
        };
        insta::assert_snapshot!(record.to_xml().to_string());
    }
}
