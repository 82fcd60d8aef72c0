//! What libvirt tells about a network, and the reservations and DNS names that we add to it.
//!
//! A reservation of ours is named `<node>.<cluster>.<domain>.ocpdeploy`, and a DNS record of ours bears that
//! name among the others: one atomic write makes the entry and says whose it is, and an entry that a user made
//! for a node by hand is never taken for ours.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

use ipnetwork::Ipv4Network;
use virt::connect::Connect;
use virt::network::Network;
use virt::sys;

use super::leases::{self, DhcpLease};
use super::session::{Failure, if_supported, if_there, plain};
use super::xml::{self, Element};
use crate::backend::{BackendErrorKind, Held, Hold, NetworkFacts};
use crate::cluster::{ClusterId, Lease, Mac, NodeName};

/// Ends the name of each entry that is ours.
const MARK: &str = ".ocpdeploy";

const ADD: sys::virNetworkUpdateCommand = sys::VIR_NETWORK_UPDATE_COMMAND_ADD_LAST;
const DELETE: sys::virNetworkUpdateCommand = sys::VIR_NETWORK_UPDATE_COMMAND_DELETE;
const HOSTS: sys::virNetworkUpdateSection = sys::VIR_NETWORK_SECTION_IP_DHCP_HOST;
const RECORDS: sys::virNetworkUpdateSection = sys::VIR_NETWORK_SECTION_DNS_HOST;

/// One of a network's two documents: what dnsmasq has now, and what it gets at the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Document {
    forward: Option<String>,
    /// The first IPv4 block.
    own: Option<Ipv4Network>,
    ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    has_dhcp: bool,
    has_dns: bool,
    hosts: Vec<Host>,
    records: Vec<Record>,
}

/// A DHCP reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub mac: Option<Mac>,
    pub ip: Option<Ipv4Addr>,
    pub name: String,
}

/// A DNS record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub ip: String,
    pub names: Vec<String>,
}

fn marked(cluster: &ClusterId, node: &NodeName) -> String {
    cluster.fqdn(node.as_str()) + MARK
}

/// The node for which an entry of exactly this cluster was made.
fn node_of<'a>(cluster: &ClusterId, name: &'a str) -> Option<&'a str> {
    cluster.host_of(name.strip_suffix(MARK)?)
}

impl Host {
    fn read(element: &Element) -> Self {
        Self {
            mac: element.get("mac").and_then(|mac| mac.parse().ok()),
            ip: element.get("ip").and_then(|ip| ip.parse().ok()),
            name: element.get("name").unwrap_or_default().to_owned(),
        }
    }

    fn to_xml(&self) -> Element {
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

    /// What it holds, and for whom.
    fn holder(&self) -> String {
        let name = match self.name.as_str() {
            "" => "a reservation without a name",
            name => name.strip_suffix(MARK).unwrap_or(name),
        };
        match (self.ip, self.mac) {
            (Some(ip), Some(mac)) => format!("{name} ({mac}) holds {ip}"),
            _ => format!("{name} has a reservation"),
        }
    }
}

impl Record {
    fn read(element: &Element) -> Self {
        let names = element.all("hostname");
        Self {
            ip: element.get("ip").unwrap_or_default().to_owned(),
            names: names.into_iter().map(|name| name.text.clone()).collect(),
        }
    }

    fn to_xml(&self) -> Element {
        let names = self.names.iter().map(|name| Element::new("hostname").text(name));
        Element::new("host").attr("ip", &self.ip).children(names)
    }

    fn is_of(&self, cluster: &ClusterId) -> bool {
        self.names.iter().any(|name| node_of(cluster, name).is_some())
    }
}

impl Document {
    fn read(network: &Element) -> Self {
        let is_v4 = |ip: &&Element| ip.get("family").is_none_or(|family| family == "ipv4");
        let own = network.all("ip").into_iter().find(is_v4);
        let dhcp = own.and_then(|ip| ip.find("dhcp"));
        let range = |range: &Element| Some((range.get("start")?.parse().ok()?, range.get("end")?.parse().ok()?));
        let of_dhcp = |name| dhcp.map(|dhcp| dhcp.all(name)).unwrap_or_default();
        Self {
            forward: network.value("forward", "mode").map(str::to_owned),
            own: own.and_then(block),
            ranges: of_dhcp("range").into_iter().filter_map(range).collect(),
            has_dhcp: dhcp.is_some(),
            has_dns: own.is_some() && network.value("dns", "enable") != Some("no"),
            hosts: of_dhcp("host").into_iter().map(Host::read).collect(),
            records: network.all("dns/host").into_iter().map(Record::read).collect(),
        }
    }

    /// Whether the reservation must still be made; the reason why it cannot be made otherwise.
    fn lacks_host(&self, wanted: &Host) -> Result<bool, String> {
        let differs = |host: &&Host| *host != wanted && !host.is_same_by_hand(wanted);
        let clashes = |host: &&Host| {
            (host.mac.is_some() && host.mac == wanted.mac)
                || (host.ip.is_some() && host.ip == wanted.ip)
                || host.name == wanted.name
        };
        match self.hosts.iter().filter(clashes).find(differs) {
            Some(host) => Err(host.holder()),
            None => Ok(!self.hosts.iter().any(|host| clashes(&host))),
        }
    }

    /// As `lacks_host` for a DNS record.
    fn lacks_record(&self, wanted: &Record) -> Result<bool, String> {
        let own_names: BTreeSet<_> = wanted.names.iter().filter(|name| !name.ends_with(MARK)).collect();
        let mut lacks = true;
        for record in &self.records {
            let names: BTreeSet<_> = record.names.iter().collect();
            if record.ip == wanted.ip && own_names.is_subset(&names) {
                lacks = false;
            } else if record.ip == wanted.ip {
                return Err(format!("{} already leads to {}", record.names.join(", "), record.ip));
            } else if let Some(name) = own_names.intersection(&names).next() {
                return Err(format!("{name} already leads to {}", record.ip));
            }
        }
        Ok(lacks)
    }
}

impl Host {
    /// A user's own entry that already does what we want; it stays the user's.
    fn is_same_by_hand(&self, wanted: &Host) -> bool {
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

pub(super) fn find(connect: &Connect, name: &str) -> Result<Network, Failure> {
    if_there(connect.lookup_network_by_name(plain("the network's name", name)?))?.ok_or_else(|| {
        let failure = Failure::new(BackendErrorKind::NotFound, format!("there is no network `{name}`"));
        failure.hint("`virsh net-list --all` shows the networks; set `network`")
    })
}

fn live(network: &Network) -> Result<Document, Failure> {
    Ok(Document::read(&xml::parse(&network.xml_desc(0)?)?))
}

/// Leases that have not ended; none where libvirt is not the DHCP server.
pub(super) fn leases_now(network: &Network) -> Result<Vec<DhcpLease>, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let leases = if_supported(leases::of_network(network).map_err(Failure::from))?.unwrap_or_default();
    let lasts = |lease: &DhcpLease| lease.expires.is_none_or(|end| end > now);
    Ok(leases.into_iter().filter(lasts).collect())
}

/// Whether libvirt's own DHCP server serves it.
pub(super) fn has_dhcp(network: &Network) -> Result<bool, Failure> {
    Ok(live(network)?.has_dhcp)
}

pub(super) fn look(connect: &Connect, name: &str) -> Result<NetworkFacts, Failure> {
    let network = find(connect, name)?;
    let document = live(&network)?;
    let reserved = document.hosts.iter().filter_map(|host| Some((host.ip?, host.mac)));
    let leased = leases_now(&network)?
        .into_iter()
        .map(|lease| (lease.ip, Some(lease.mac)));
    let own = document.own.map(|block| block.ip());
    Ok(NetworkFacts {
        identity: format!("libvirt:{}:{}", connect.hostname()?, network.uuid()?),
        cidr: document
            .own
            .and_then(|block| Ipv4Network::new(block.network(), block.prefix()).ok()),
        // An isolated network has an address on the host and leads nowhere.
        gateway: own.filter(|_| document.forward.is_some()),
        dhcp_ranges: document.ranges.clone(),
        taken: leased.chain(reserved).collect(),
        resolvers: own.filter(|_| document.has_dns).into_iter().collect(),
        answers_dns: document.has_dns,
    })
}

pub(super) fn hold(connect: &Connect, hold: &Hold) -> Result<Held, Failure> {
    let network = find(connect, &hold.network)?;
    let document = live(&network)?;
    if !document.has_dhcp {
        return Ok(Held::ByLuck);
    }
    let Lease { name, mac, ip } = &hold.lease;
    check_address(&document, *mac, *ip)?;
    let other = leases_now(&network)?
        .into_iter()
        .find(|lease| lease.ip == *ip && lease.mac != *mac);
    if let Some(other) = other {
        let words = format!("{ip} is leased to {}", other.mac);
        return Err(Failure::new(BackendErrorKind::Conflict, words));
    }
    let mark = marked(&hold.cluster, name);
    let host = Host {
        mac: Some(*mac),
        ip: Some(*ip),
        name: mark.clone(),
    };
    let mut names = Vec::new();
    for dns_name in &hold.dns_names {
        let dns_name = plain("the DNS name", dns_name)?;
        if !names.iter().any(|name| name == dns_name) {
            names.push(dns_name.to_owned());
        }
    }
    let record = Record {
        ip: ip.to_string(),
        names: names.into_iter().chain([mark]).collect(),
    };
    let record = Some(record).filter(|_| !hold.dns_names.is_empty() && document.has_dns);
    make(&network, &host, record.as_ref())?;
    Ok(Held::ByPlatform)
}

/// libvirt itself takes any address, even one of another network.
fn check_address(document: &Document, mac: Mac, ip: Ipv4Addr) -> Result<(), Failure> {
    let rejected = |words| Err(Failure::new(BackendErrorKind::Rejected, words));
    if !mac.is_unicast() {
        return rejected(format!("{mac} is not a unicast MAC"));
    }
    match document.own {
        Some(block) if !block.contains(ip) || [block.ip(), block.network(), block.broadcast()].contains(&ip) => {
            rejected(format!("{ip} is no address for a machine of {block}"))
        }
        _ => Ok(()),
    }
}

/// The documents that exist: running networks have one, persistent ones another.
fn documents(network: &Network) -> Result<Vec<(sys::virNetworkUpdateFlags, Document)>, Failure> {
    let mut documents = Vec::new();
    if network.is_active()? {
        documents.push((sys::VIR_NETWORK_UPDATE_AFFECT_LIVE, live(network)?));
    }
    if network.is_persistent()? {
        let inactive = network.xml_desc(sys::VIR_NETWORK_XML_INACTIVE).map_err(Failure::from);
        if let Some(inactive) = if_supported(inactive)? {
            let document = Document::read(&xml::parse(&inactive)?);
            documents.push((sys::VIR_NETWORK_UPDATE_AFFECT_CONFIG, document));
        }
    }
    Ok(documents)
}

/// Makes both entries wherever they lack, or none of them.
///
/// libvirt refuses what clashes with an entry made since we looked: then the look is repeated.
fn make(network: &Network, host: &Host, record: Option<&Record>) -> Result<(), Failure> {
    let host_xml = host.to_xml();
    let mut refused = None;
    for _ in 0..3 {
        let conflict = |holder| Failure::new(BackendErrorKind::Conflict, holder);
        let (mut host_lacks, mut record_lacks) = (0, 0);
        for (flag, document) in documents(network)? {
            if document.lacks_host(host).map_err(conflict)? {
                host_lacks |= flag;
            }
            if let Some(record) = record
                && document.lacks_record(record).map_err(conflict)?
            {
                record_lacks |= flag;
            }
        }
        if let Err(failure) = update(network, ADD, HOSTS, &host_xml, host_lacks) {
            refused = Some(failure);
            continue;
        }
        let named = record.map_or(Ok(()), |record| {
            update(network, ADD, RECORDS, &record.to_xml(), record_lacks)
        });
        let Err(failure) = named else {
            return Ok(());
        };
        update(network, DELETE, HOSTS, &host_xml, host_lacks)?;
        refused = Some(failure);
    }
    refused.map_or(Ok(()), Err)
}

fn update(
    network: &Network,
    command: sys::virNetworkUpdateCommand,
    section: sys::virNetworkUpdateSection,
    entry: &Element,
    flags: sys::virNetworkUpdateFlags,
) -> Result<(), Failure> {
    // To libvirt no flag means the running network.
    if flags == 0 {
        return Ok(());
    }
    Ok(network.update(command, section, -1, &entry.to_string(), flags)?)
}

/// An entry of ours, with the network that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Host(Host),
    Record(Record),
}

/// The entries of exactly this cluster on one network, live or only configured.
pub(super) fn entries(network: &Network, cluster: &ClusterId) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    for (_, document) in documents(network)? {
        for entry in of_cluster(&document, cluster) {
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

fn of_cluster(document: &Document, cluster: &ClusterId) -> Vec<Entry> {
    let hosts = document
        .hosts
        .iter()
        .filter(|host| node_of(cluster, &host.name).is_some());
    let records = document.records.iter().filter(|record| record.is_of(cluster));
    hosts
        .cloned()
        .map(Entry::Host)
        .chain(records.cloned().map(Entry::Record))
        .collect()
}

/// The reservations of exactly this cluster.
pub(super) fn held(network: &Network, cluster: &ClusterId) -> Result<Vec<Lease>, Failure> {
    let lease = |entry| match entry {
        Entry::Host(host) => Some(Lease {
            name: NodeName::from_platform(node_of(cluster, &host.name)?),
            mac: host.mac?,
            ip: host.ip?,
        }),
        Entry::Record(_) => None,
    };
    Ok(entries(network, cluster)?.into_iter().filter_map(lease).collect())
}

/// Removes every entry of exactly this cluster.
pub(super) fn release(network: &Network, cluster: &ClusterId) -> Result<(), Failure> {
    for (flag, document) in documents(network)? {
        for entry in of_cluster(&document, cluster) {
            let (section, element) = match &entry {
                Entry::Host(host) => (HOSTS, host.to_xml()),
                Entry::Record(record) => (RECORDS, record.to_xml()),
            };
            update(network, DELETE, section, &element, flag)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: &str = "
<network connections='1'>
  <name>default</name>
  <uuid>544b24cf-eb86-4677-bea5-f91924bedc44</uuid>
  <forward mode='nat'><nat><port start='1024' end='65535'/></nat></forward>
  <bridge name='virbr0' stp='on' delay='0'/>
  <dns>
    <host ip='192.168.122.10'><hostname>master-0.lab.example.com</hostname><hostname>master-0.lab.example.com.ocpdeploy</hostname></host>
    <host ip='192.168.122.11'><hostname>registry.lab.example.com</hostname></host>
    <host ip='192.168.122.12'><hostname>api.a.lab.example.com</hostname><hostname>api.a.lab.example.com.ocpdeploy</hostname></host>
  </dns>
  <ip family='ipv6' address='fd00::1' prefix='64'/>
  <ip address='192.168.122.1' netmask='255.255.255.0'>
    <dhcp>
      <range start='192.168.122.2' end='192.168.122.254'/>
      <host mac='52:54:00:00:00:10' name='master-0.lab.example.com.ocpdeploy' ip='192.168.122.10'/>
      <host mac='52:54:00:00:00:11' name='registry.lab.example.com' ip='192.168.122.11'/>
      <host mac='52:54:00:00:00:12' name='api.a.lab.example.com.ocpdeploy' ip='192.168.122.12'/>
      <host mac='52:54:00:00:00:13' name='api.lab.example.com' ip='192.168.122.13'/>
      <host mac='52:54:00:00:00:14' ip='192.168.122.14'/>
      <host name='by-name' ip='192.168.122.15'/>
    </dhcp>
  </ip>
</network>";

    fn document() -> Document {
        Document::read(&xml::parse(NETWORK).unwrap())
    }

    fn host(mac: &str, ip: &str, name: &str) -> Host {
        Host {
            mac: Some(mac.parse().unwrap()),
            ip: Some(ip.parse().unwrap()),
            name: name.to_owned(),
        }
    }

    #[test]
    fn the_networks_plan_is_read() {
        let document = document();
        assert_eq!(document.own, Some("192.168.122.1/24".parse().unwrap()));
        let range = ("192.168.122.2".parse().unwrap(), "192.168.122.254".parse().unwrap());
        assert_eq!(document.ranges, [range]);
        assert!(document.has_dhcp && document.has_dns);
        let bridged = xml::parse("<network><name>lan</name><forward mode='bridge'/><bridge name='br0'/></network>");
        let bridged = Document::read(&bridged.unwrap());
        assert_eq!(bridged.forward.as_deref(), Some("bridge"));
        assert!(!bridged.has_dhcp && !bridged.has_dns && bridged.own.is_none());
    }

    #[test]
    fn only_marked_entries_of_exactly_this_cluster_are_its_own() {
        let names = |cluster: &str| -> Vec<String> {
            let cluster = ClusterId::from_tag(cluster);
            let name = |entry| match entry {
                Entry::Host(host) => host.name,
                Entry::Record(record) => record.ip,
            };
            of_cluster(&document(), &cluster).into_iter().map(name).collect()
        };
        assert_eq!(
            names("lab.example.com"),
            ["master-0.lab.example.com.ocpdeploy", "192.168.122.10"]
        );
        assert_eq!(
            names("a.lab.example.com"),
            ["api.a.lab.example.com.ocpdeploy", "192.168.122.12"]
        );
        assert_eq!(names("example.com"), [""; 0]);
        assert_eq!(names("b.example.com"), [""; 0]);
    }

    #[test]
    fn a_reservation_is_there_lacks_or_clashes() {
        let document = document();
        let ours = |mac, ip| host(mac, ip, "master-0.lab.example.com.ocpdeploy");
        assert_eq!(
            document.lacks_host(&ours("52:54:00:00:00:10", "192.168.122.10")),
            Ok(false)
        );
        let new = host(
            "52:54:00:00:00:99",
            "192.168.122.99",
            "master-9.lab.example.com.ocpdeploy",
        );
        assert_eq!(document.lacks_host(&new), Ok(true));
        // What a user reserved by hand for this very MAC is as good.
        let by_hand = host(
            "52:54:00:00:00:14",
            "192.168.122.14",
            "worker-0.lab.example.com.ocpdeploy",
        );
        assert_eq!(document.lacks_host(&by_hand), Ok(false));
        for (mac, ip, name, holder) in [
            (
                "52:54:00:00:00:99",
                "192.168.122.10",
                "api.lab.example.com.ocpdeploy",
                "master-0.lab.example.com (52:54:00:00:00:10) holds 192.168.122.10",
            ),
            (
                "52:54:00:00:00:11",
                "192.168.122.99",
                "api.lab.example.com.ocpdeploy",
                "registry.lab.example.com (52:54:00:00:00:11) holds 192.168.122.11",
            ),
            (
                "52:54:00:00:00:99",
                "192.168.122.99",
                "master-0.lab.example.com.ocpdeploy",
                "master-0.lab.example.com (52:54:00:00:00:10) holds 192.168.122.10",
            ),
            (
                "52:54:00:00:00:12",
                "192.168.122.12",
                "api.lab.example.com.ocpdeploy",
                "api.a.lab.example.com (52:54:00:00:00:12) holds 192.168.122.12",
            ),
            (
                "52:54:00:00:00:99",
                "192.168.122.15",
                "api.lab.example.com.ocpdeploy",
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
    fn a_record_is_there_lacks_or_clashes() {
        let document = document();
        let record = |ip: &str, names: &[&str]| Record {
            ip: ip.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let mark = "master-0.lab.example.com.ocpdeploy";
        for (wanted, verdict) in [
            (record("192.168.122.10", &["master-0.lab.example.com", mark]), Ok(false)),
            (record("192.168.122.99", &["api.lab.example.com", mark]), Ok(true)),
            (record("192.168.122.11", &["registry.lab.example.com", mark]), Ok(false)),
            (
                record("192.168.122.11", &["api.lab.example.com", mark]),
                Err("registry.lab.example.com already leads to 192.168.122.11".to_owned()),
            ),
            (
                record("192.168.122.99", &["registry.lab.example.com", mark]),
                Err("registry.lab.example.com already leads to 192.168.122.11".to_owned()),
            ),
        ] {
            assert_eq!(document.lacks_record(&wanted), verdict, "{wanted:?}");
        }
    }

    #[test]
    fn addresses_outside_the_network_are_refused() {
        let mac: Mac = "52:54:00:00:00:99".parse().unwrap();
        let check = |ip: &str| check_address(&document(), mac, ip.parse().unwrap()).is_ok();
        assert!(check("192.168.122.77"));
        for bad in ["10.0.0.1", "192.168.122.1", "192.168.122.0", "192.168.122.255"] {
            assert!(!check(bad), "{bad}");
        }
    }

    #[test]
    fn entries_are_written_as_libvirt_takes_them() {
        insta::assert_snapshot!(host("52:54:00:00:00:10", "192.168.122.10", "a.ocpdeploy").to_xml().to_string(), @"<host mac=\"52:54:00:00:00:10\" name=\"a.ocpdeploy\" ip=\"192.168.122.10\"/>");
        let record = Record {
            ip: "10.0.0.1".to_owned(),
            names: vec!["a".to_owned(), "b".to_owned()],
        };
        insta::assert_snapshot!(record.to_xml().to_string());
    }
}
