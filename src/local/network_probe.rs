//! Observes a network that this computer is connected to: addresses in use, and VRRP ids. On other networks it sends
//! nothing and finds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fs_err as fs;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use ipnetwork::{IpNetwork, Ipv6Network};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::cluster::Mac;

/// A machine answers at once; a busy one may take a moment.
pub const ANSWER: Duration = Duration::from_millis(1500);

const LOOK: Duration = Duration::from_millis(50);

/// VRRP's protocol number and group; RFC 5798, section 5.1.
const VRRP: i32 = 112;
const VRRP_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);

/// Flags of a route; torvalds/linux: `include/uapi/linux/route.h`.
const RTF_UP: u32 = 0x1;
const RTF_REJECT: u32 = 0x200;

/// The network device that reaches an address without a router.
pub fn device_to(ip: IpAddr) -> Option<String> {
    connected_by(ip)
}

/// Addresses that are in use, with the MAC if known; it is unknown for IPv6 addresses.
pub async fn answering(addresses: &[IpAddr]) -> BTreeMap<IpAddr, Option<Mac>> {
    answering_within(addresses, ANSWER).await
}

async fn answering_within(addresses: &[IpAddr], limit: Duration) -> BTreeMap<IpAddr, Option<Mac>> {
    let queries = addresses.iter().map(|ip| async {
        connected_by(*ip)?;
        // The table keeps stale entries for up to a minute, so an entry that existed before proves nothing. It has
        // only IPv4 addresses.
        let may_appear = ip.is_ipv4() && arp_entry(*ip).is_none();
        let answer = async {
            tokio::select! {
                () = tcp_answers(*ip) => {}
                () = in_arp_table(*ip), if may_appear => {}
            }
        };
        timeout(limit, answer).await.ok()?;
        Some((*ip, arp_entry(*ip)))
    });
    join_all(queries).await.into_iter().flatten().collect()
}

/// The machines that answer at their address within this time, without those whose address has another MAC. Addresses
/// behind a router are not probed.
pub async fn machines_at(addresses: Vec<(IpAddr, Mac)>, limit: Duration) -> Vec<(IpAddr, Mac)> {
    let all: Vec<IpAddr> = addresses.iter().map(|(ip, _)| *ip).collect();
    let answers = answering_within(&all, limit).await;
    let answers_as = |ip, mac| answers.get(&ip).is_some_and(|seen| seen.is_none_or(|seen| seen == mac));
    addresses
        .into_iter()
        .filter(|(ip, mac)| answers_as(*ip, *mac))
        .collect()
}

/// The addresses that answer by TCP, with the MAC if known. Unlike in `answering`, an entry of the ARP table alone does
/// not count, and addresses behind a router are probed, too.
pub async fn answering_tcp(addresses: &[IpAddr]) -> BTreeMap<IpAddr, Option<Mac>> {
    let queries = addresses.iter().map(|ip| async {
        timeout(ANSWER, tcp_answers(*ip)).await.ok()?;
        Some((*ip, arp_entry(*ip)))
    });
    join_all(queries).await.into_iter().flatten().collect()
}

/// As `answering_tcp`, for addresses of an IPv6 network. Other addresses are skipped, as is a network in which this
/// computer has no address.
pub async fn answering_ipv6(network: Ipv6Network, addresses: &[Ipv6Addr]) -> BTreeSet<Ipv6Addr> {
    let is_near = |ip: &&Ipv6Addr| {
        let own = own_address((**ip).into());
        own.is_ok_and(|own| matches!(own, IpAddr::V6(own) if network.contains(own)))
    };
    let queries = addresses.iter().filter(is_near).map(|ip| async {
        timeout(ANSWER, tcp_answers((*ip).into())).await.ok()?;
        Some(*ip)
    });
    join_all(queries).await.into_iter().flatten().collect()
}

/// The host addresses of a network that this computer reaches without a router. Empty for an IPv4 network larger than a
/// /20, and for each IPv6 network.
pub fn direct_neighbours(network: IpNetwork) -> Vec<IpAddr> {
    let IpNetwork::V4(network) = network else {
        return Vec::new();
    };
    if network.prefix() < 20 {
        return Vec::new();
    }
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let hosts = network
        .iter()
        .filter(|ip| *ip != network.network() && *ip != network.broadcast());
    let reached = hosts.filter(|ip| connected_in(&routes, *ip).is_some());
    reached.map(IpAddr::V4).collect()
}

/// Makes the kernel send ARP requests: one empty datagram to each address (port 9, discard; RFC 863). Requires no
/// privileges.
pub fn resolve(addresses: &[IpAddr]) {
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else {
        return;
    };
    // A full queue would block. What is dropped is sent again by the next call.
    let _ = socket.set_nonblocking(true);
    for ip in addresses {
        let _ = socket.send_to(&[], (*ip, 9));
    }
}

/// The complete entries of this computer's ARP table.
pub fn neighbours() -> BTreeMap<IpAddr, Mac> {
    neighbours_in(&fs::read_to_string("/proc/net/arp").unwrap_or_default())
}

/// Returns when the address accepts or refuses a connection; otherwise never. Connecting makes the kernel send an ARP
/// request.
async fn tcp_answers(ip: IpAddr) {
    let ports = [6443, 443, 22, 80];
    let mut connections: FuturesUnordered<_> = ports
        .iter()
        .map(|port| TcpStream::connect(SocketAddr::new(ip, *port)))
        .collect();
    while let Some(result) = connections.next().await {
        match result {
            Ok(_) => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
            Err(_) => {}
        }
    }
    std::future::pending().await
}

/// Returns when the ARP table has the address; otherwise never.
async fn in_arp_table(ip: IpAddr) {
    while arp_entry(ip).is_none() {
        sleep(LOOK).await;
    }
}

/// The MAC in a complete entry of the ARP table.
fn arp_entry(ip: IpAddr) -> Option<Mac> {
    neighbours().remove(&ip)
}

fn neighbours_in(table: &str) -> BTreeMap<IpAddr, Mac> {
    // Columns: address, hardware type, flags, MAC, mask, device.
    let entry = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [address, _, flags, mac, ..] = columns[..] else {
            return None;
        };
        let complete = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()? & 0x2 != 0;
        let entry = (address.parse().ok()?, mac.parse().ok()?);
        complete.then_some(entry)
    };
    table.lines().skip(1).filter_map(entry).collect()
}

/// The device that reaches the address without a router.
fn connected_by(ip: IpAddr) -> Option<String> {
    match ip {
        IpAddr::V4(ip) => connected_in(&fs::read_to_string("/proc/net/route").ok()?, ip),
        IpAddr::V6(ip) => connected_in_ipv6(&fs::read_to_string("/proc/net/ipv6_route").ok()?, ip),
    }
}

fn connected_in(table: &str, ip: Ipv4Addr) -> Option<String> {
    // Columns: device, destination, gateway, flags, three counters, mask; numbers in this computer's byte order.
    let address = |hex: &str| Some(Ipv4Addr::from(u32::from_str_radix(hex, 16).ok()?.to_ne_bytes()));
    let routes = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [device, destination, gateway, _, _, _, _, mask, ..] = columns[..] else {
            return None;
        };
        let (destination, mask) = (address(destination)?, address(mask)?);
        let fits = u32::from(ip) & u32::from(mask) == u32::from(destination);
        fits.then_some((u32::from(mask), device, address(gateway)?))
    });
    let (_, device, gateway) = routes.max_by_key(|(mask, ..)| *mask)?;
    gateway.is_unspecified().then(|| device.to_owned())
}

fn connected_in_ipv6(table: &str, ip: Ipv6Addr) -> Option<String> {
    // Columns: destination, its prefix length, source and its length, gateway, three counters and metrics, flags,
    // device.
    // Source: torvalds/linux: `net/ipv6/route.c` and `net/ipv6/ip6_fib.c`, `ipv6_route_native_seq_show`.
    let address = |hex: &str| Some(Ipv6Addr::from_bits(u128::from_str_radix(hex, 16).ok()?));
    let routes = table.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [destination, prefix, _, _, gateway, _, _, _, flags, device] = columns[..] else {
            return None;
        };
        let (prefix, flags) = (
            u8::from_str_radix(prefix, 16).ok()?,
            u32::from_str_radix(flags, 16).ok()?,
        );
        let network = Ipv6Network::new(address(destination)?, prefix).ok()?;
        let is_usable = flags & (RTF_UP | RTF_REJECT) == RTF_UP;
        (is_usable && network.contains(ip)).then_some((prefix, device, address(gateway)?))
    });
    let (_, device, gateway) = routes.max_by_key(|(prefix, ..)| *prefix)?;
    gateway.is_unspecified().then(|| device.to_owned())
}

/// Listens for other clusters' VRRP on the network of an address; returns each id with one of its users.
///
/// Empty if this computer is not on that network or may not listen, which requires CAP_NET_RAW. VRRP for IPv6 is
/// ignored.
pub async fn virtual_router_ids(near: IpAddr, listen: Duration) -> BTreeMap<u8, Ipv4Addr> {
    let (IpAddr::V4(near), Some(device)) = (near, connected_by(near)) else {
        return BTreeMap::new();
    };
    let ids = tokio::task::spawn_blocking(move || listen_for_vrrp(near, &device, listen)).await;
    match ids {
        Ok(Ok(ids)) => ids,
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::info!(target: crate::PROGRESS, "VRRP ids in use cannot be detected without root");
            BTreeMap::new()
        }
        Ok(Err(error)) => {
            tracing::debug!("cannot listen for VRRP: {error}");
            BTreeMap::new()
        }
        Err(_) => BTreeMap::new(),
    }
}

fn listen_for_vrrp(near: Ipv4Addr, device: &str, listen: Duration) -> io::Result<BTreeMap<u8, Ipv4Addr>> {
    let mut socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(VRRP)))?;
    socket.bind_device(Some(device.as_bytes()))?;
    let IpAddr::V4(own) = own_address(near.into())? else {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    };
    socket.join_multicast_v4(&VRRP_GROUP, &own)?;
    let end = Instant::now() + listen;
    let (mut ids, mut packet) = (BTreeMap::new(), [0; 1500]);
    while let Some(left) = end
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
    {
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut packet) {
            Ok(length) => ids.extend(advertisement(&packet[..length])),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(ids)
}

/// The VRRP id of an IPv4 packet, and its sender.
fn advertisement(packet: &[u8]) -> Option<(u8, Ipv4Addr)> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let vrrp = packet.get(header..)?;
    let is_advertisement = packet.get(9) == Some(&112) && vrrp.first()? & 0x0f == 1;
    is_advertisement.then_some((*vrrp.get(1)?, source.into()))
}

/// This computer's address for connections to another one; sends nothing.
pub fn own_address(near: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match near {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((near, 9))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_entries_of_the_arp_table_count() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     192.168.122.5    0x1         0x2         52:54:00:01:02:03     *        virbr0\n\
                     192.168.122.55   0x1         0x6         52:54:00:01:02:04     *        virbr0\n\
                     192.168.122.6    0x1         0x0         00:00:00:00:00:00     *        virbr0\n";
        let entries = neighbours_in(table);
        let shown: Vec<String> = entries.iter().map(|(ip, mac)| format!("{ip} {mac}")).collect();
        assert_eq!(
            shown,
            ["192.168.122.5 52:54:00:01:02:03", "192.168.122.55 52:54:00:01:02:04"]
        );
        assert!(neighbours_in("").is_empty());
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn an_address_behind_a_router_is_not_probed() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                     eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     virbr0\t007AA8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     tun0\t807AA8C0\t0200000A\t0003\t0\t0\t0\t80FFFFFF\t0\t0\t0\n";
        let by = |ip: &str| connected_in(table, ip.parse().unwrap());
        assert_eq!(by("10.0.0.7").as_deref(), Some("eth0"));
        assert_eq!(by("192.168.122.10").as_deref(), Some("virbr0"));
        assert_eq!(by("192.168.122.200"), None, "the longer prefix has a router");
        assert_eq!(by("198.51.100.1"), None);
        assert_eq!(connected_in("", "10.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn an_ipv6_address_behind_a_router_or_unreachable_is_not_probed() {
        const ZERO: &str = "00000000000000000000000000000000";
        let line = |destination: &str, prefix, gateway: &str, flags, device| {
            format!("{destination} {prefix} {ZERO} 00 {gateway} 00000100 00000001 00000000 {flags} {device:>8}\n")
        };
        let router = "fe800000000000000000000000000001";
        let table = [
            line("fd000001000000000000000000000000", "40", ZERO, "00000001", "virbr0"),
            line("fd000001000000000000000000000080", "7b", router, "00000003", "tun0"),
            line("fd000002000000000000000000000000", "40", ZERO, "00200200", "lo"),
            line(ZERO, "00", router, "00450003", "eth0"),
        ]
        .concat();
        let by = |ip: &str| connected_in_ipv6(&table, ip.parse().unwrap());
        assert_eq!(by("fd00:1::7").as_deref(), Some("virbr0"));
        assert_eq!(by("fd00:1::81"), None, "the longer prefix has a router");
        assert_eq!(by("fd00:2::1"), None, "this network is unreachable");
        assert_eq!(by("2001:db8::1"), None);
    }

    #[test]
    fn only_advertisements_are_parsed() {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 255, 112, 0, 0, 10, 0, 0, 7, 224, 0, 0, 18];
        packet.extend([0x21, 51, 100, 1]);
        assert_eq!(advertisement(&packet), Some((51, Ipv4Addr::new(10, 0, 0, 7))));
        for cut in 0..22 {
            assert_eq!(advertisement(&packet[..cut]), None, "cut at {cut}");
        }
        packet[9] = 17;
        assert_eq!(advertisement(&packet), None);
    }
}
