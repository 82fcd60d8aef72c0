use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::cluster::Role;

fn nics(count: u8) -> Vec<Nic> {
    let nic = |last| Nic {
        network: ["lan", "storage", "backup"][usize::from(last)].to_owned(),
        mac: Mac([0x52, 0x54, 0, 0, 0, last + 1]),
    };
    (0..count).map(nic).collect()
}

const SERVERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 54)),
];

fn table() -> Addressing<'static> {
    Addressing::Static(StaticAddress {
        ip: IpAddr::from([10, 0, 0, 31]),
        prefix: 24,
        gateway: Some(IpAddr::from([10, 0, 0, 1])),
        name_servers: &SERVERS,
        search: &[],
    })
}

/// Without IPv4.
fn ipv6_table() -> Addressing<'static> {
    const SERVERS: [IpAddr; 1] = [IpAddr::V6(Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1))];
    Addressing::Static(StaticAddress {
        ip: "fd00:1::31".parse().unwrap(),
        prefix: 64,
        gateway: Some("fe80::1".parse().unwrap()),
        name_servers: &SERVERS,
        search: &[],
    })
}

fn files(
    text: &str,
    count: u8,
    addressing: Addressing<'_>,
    has_ovn_kubernetes: bool,
) -> Result<Vec<HostFile>, NetworkConfigFault> {
    files_with_mtu(text, count, addressing, has_ovn_kubernetes, None)
}

fn files_with_mtu(
    text: &str,
    count: u8,
    addressing: Addressing<'_>,
    has_ovn_kubernetes: bool,
    mtu: Option<u16>,
) -> Result<Vec<HostFile>, NetworkConfigFault> {
    files_of(text, &nics(count), addressing, has_ovn_kubernetes, mtu, None)
}

/// With two address families.
fn files_with_ipv6(
    text: &str,
    addressing: Addressing<'_>,
    ipv6: Ipv6Address,
) -> Result<Vec<HostFile>, NetworkConfigFault> {
    files_of(text, &nics(3), addressing, true, None, Some(ipv6))
}

fn files_of(
    text: &str,
    nics: &[Nic],
    addressing: Addressing<'_>,
    has_ovn_kubernetes: bool,
    mtu: Option<u16>,
    ipv6: Option<Ipv6Address>,
) -> Result<Vec<HostFile>, NetworkConfigFault> {
    let node = NodeName::node(Role::Worker, 0);
    let target = ConnectionTarget {
        node: &node,
        nics,
        addressing,
        ipv6,
        mtu,
        has_ovn_kubernetes,
    };
    connections(&NetworkConfigDocument::read(text)?, &target)
}

const BOND: &str = "
interfaces:
- name: bond0
  type: bond
  link-aggregation: {mode: active-backup, options: {miimon: '100'}, port: [nic0, nic1]}
  ipv4: {enabled: true}
";

const VLAN: &str = "
interfaces:
- name: bond0
  type: bond
  mtu: 9000
  link-aggregation: {mode: 802.3ad, port: [nic0, nic1]}
- name: bond0.100
  type: vlan
  vlan: {base-iface: bond0, id: 100}
  ipv4: {enabled: true}
- name: nic2
  type: ethernet
  ipv4: {enabled: true, dhcp: true, auto-gateway: false}
routes:
  config:
  - {destination: 0.0.0.0/0, next-hop-address: 10.0.0.1, next-hop-interface: bond0.100}
  - {destination: 172.20.0.0/16, next-hop-address: 10.0.0.254, next-hop-interface: bond0.100}
dns-resolver: {config: {search: [example.com]}}
";

const BRIDGE: &str = "
interfaces:
- name: br1
  type: linux-bridge
  ipv4: {enabled: true}
  ipv6: {enabled: true, autoconf: true, dhcp: true}
  bridge: {options: {stp: {enabled: false}}, port: [{name: nic0}]}
- name: nic1
  type: ethernet
  ipv4: {enabled: false}
";

#[test]
fn files_for_networkmanager_are_written() {
    for (name, text, addressing, ovn) in [
        ("bond-by-dhcp", BOND, Addressing::Dhcp, true),
        ("bond-static", BOND, table(), true),
        ("vlan-static", VLAN, table(), true),
        ("bridge-static", BRIDGE, table(), false),
        ("bond-of-ipv6", &BOND.replace("ipv4", "ipv6"), ipv6_table(), true),
    ] {
        let files = files(text, 3, addressing, ovn).unwrap();
        assert!(
            files.iter().all(|file| file.mode == 0o600),
            "NetworkManager ignores files with another mode"
        );
        let text: String = files
            .iter()
            .map(|file| format!("# {}\n{}\n", file.path, file.content))
            .collect();
        insta::assert_snapshot!(name, text);
    }
}

const SECOND: Ipv6Address = Ipv6Address {
    ip: Some(Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0x0a00, 0x001f)),
    prefix: 64,
    gateway: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
};

#[test]
fn with_two_address_families_the_nodes_interface_has_the_ipv6_address_and_default_route() {
    for (name, text, addressing) in [
        ("dual-stack-bond-by-dhcp", BOND, Addressing::Dhcp),
        ("dual-stack-vlan-static", VLAN, table()),
    ] {
        let files = files_with_ipv6(text, addressing, SECOND).unwrap();
        // That of the node's interface; the others have no IPv6, as with one family.
        let sections = files.iter().map(|file| {
            let path = file.path.rsplit('/').next().unwrap();
            let ipv6 = file.content.split_once("[ipv6]").map_or("", |(_, rest)| rest);
            format!("# {path}{}\n", ipv6.split("\n[").next().unwrap())
        });
        insta::assert_snapshot!(name, sections.collect::<String>());
    }
}

/// The file may repeat the IPv6 settings of the node's interface.
#[test]
fn an_ipv6_address_or_route_in_the_file_must_be_the_nodes_own() {
    let expected = files_with_ipv6(BOND, table(), SECOND).unwrap();
    let route =
        "routes:\n  config:\n  - {destination: '::/0', next-hop-address: 'FE80::0:1', next-hop-interface: bond0}\n";
    for lines in [
        "  ipv6: {enabled: true}\n".to_owned(),
        "  ipv6: {enabled: true, dhcp: false, autoconf: false}\n".to_owned(),
        "  ipv6: {enabled: true, address: [{ip: 'fd00:1::0a00:1f', prefix-length: 64}]}\n".to_owned(),
    ] {
        let found = files_with_ipv6(&format!("{BOND}{lines}"), table(), SECOND).unwrap();
        assert_eq!(found, expected, "{lines}");
    }
    let with_route = files_with_ipv6(&format!("{BOND}{route}"), table(), SECOND).unwrap();
    let routes = |files: &[HostFile]| files[0].content.matches("route0=::/0,").count();
    assert_eq!((routes(&with_route), routes(&expected)), (1, 1));
    // Before the addresses are known, the file is accepted without them.
    let later = Ipv6Address {
        ip: None,
        gateway: None,
        ..SECOND
    };
    for addressing in [Addressing::Later(AddressFamily::Ipv4), Addressing::Dhcp] {
        assert!(files_with_ipv6(BOND, addressing, later).is_ok(), "{addressing:?}");
    }
}

#[test]
fn contradicting_ipv6_settings_are_reported_with_their_location() {
    let bond = |ipv6: &str| format!("{BOND}  ipv6: {{{ipv6}}}\n");
    let address = |ip: &str, prefix: u8| {
        bond(&format!(
            "enabled: true, address: [{{ip: '{ip}', prefix-length: {prefix}}}]"
        ))
    };
    let nic = |ipv6: &str| format!("{BOND}- name: nic2\n  type: ethernet\n  ipv6: {{{ipv6}}}\n");
    let route = |gateway: &str, nic: &str| {
        let route = format!("{{destination: '::/0', next-hop-address: '{gateway}', next-hop-interface: {nic}}}");
        format!("{BOND}routes:\n  config:\n  - {route}\n")
    };
    let unknown = Ipv6Address { ip: None, ..SECOND };
    for (text, second, message, at) in [
        (
            bond("enabled: false"),
            SECOND,
            "bond0 has IPv6 disabled, but nodes have static IPv6 addresses",
            "bond0",
        ),
        (
            bond("enabled: true, dhcp: true, autoconf: false"),
            SECOND,
            "bond0 has IPv6 by DHCP",
            "bond0",
        ),
        (
            bond("enabled: true, autoconf: true"),
            SECOND,
            "bond0 has IPv6 by autoconf",
            "bond0",
        ),
        (
            address("fd00:1::99", 64),
            SECOND,
            "worker-0 has address fd00:1::a00:1f/64, but bond0 has fd00:1::99/64",
            "fd00:1::99",
        ),
        (
            address("fd00:1::a00:1f", 96),
            SECOND,
            "but bond0 has fd00:1::a00:1f/96",
            "fd00:1::a00:1f",
        ),
        (
            bond(
                "enabled: true, address: [{ip: 'fd00:1::a00:1f', prefix-length: 64}, {ip: 'fd00:1::7', prefix-length: 64}]",
            ),
            SECOND,
            "but bond0 has fd00:1::7/64",
            "fd00:1::7",
        ),
        (
            address("fd00:1::a00:1f", 64),
            unknown,
            "bond0 has an IPv6 address, but that of worker-0 follows from its IPv4 address",
            "fd00:1::a00:1f",
        ),
        (
            route("fe80::2", "bond0"),
            SECOND,
            "the gateway of the machine network is fe80::1, but the default route has fe80::2",
            "fe80::2",
        ),
        (
            route("fe80::1", "nic2"),
            SECOND,
            "the IPv6 default route is on nic2, but the node's interface is bond0",
            "fe80::1",
        ),
        (
            nic("enabled: true, dhcp: true, autoconf: true"),
            SECOND,
            "nic2 has an IPv6 default route by autoconf, but the node's interface is bond0",
            "nic2",
        ),
    ] {
        for addressing in [Addressing::Dhcp, table()] {
            let fault = files_with_ipv6(&text, addressing, second).unwrap_err();
            assert!(
                fault.message.contains(message),
                "expected `{message}`: {}",
                fault.message
            );
            let place = fault.span.map(|span| text[span].trim_matches('\''));
            assert_eq!(place, Some(at), "{message}");
            assert!(fault.help.is_some(), "{message}");
        }
    }
    let without = nic("enabled: true, dhcp: true, autoconf: true, auto-gateway: false");
    assert!(files_with_ipv6(&without, Addressing::Dhcp, SECOND).is_ok());
}

#[test]
fn the_mtu_of_the_settings_applies_to_the_nodes_interface_and_all_below_it() {
    let mtus = |text: &str, mtu| {
        let files = files_with_mtu(text, 3, table(), true, Some(mtu))?;
        let line = |file: &HostFile| {
            let name = file.path.rsplit('/').next().unwrap().replace(".nmconnection", "");
            let mtu = file.content.lines().find(|line| line.starts_with("mtu="));
            format!("{name} {}", mtu.unwrap_or("none"))
        };
        Ok::<_, NetworkConfigFault>(files.iter().map(line).collect::<Vec<_>>())
    };
    // The file gives the bond 9000; nic2 is for another purpose.
    let lower = [
        "bond0.100 mtu=1600",
        "bond0 mtu=9000",
        "nic0 mtu=9000",
        "nic1 mtu=9000",
        "nic2 none",
    ];
    assert_eq!(mtus(VLAN, 1600).unwrap(), lower);
    let fault = mtus(VLAN, 9100).unwrap_err();
    assert_eq!(fault.message, "`bond0` has MTU 9000, but mtu=9100 in the settings");
    assert_eq!(&VLAN[fault.span.unwrap()], "bond0");
    // The node's own interface has exactly this MTU.
    let own = BOND.replace("type: bond", "type: bond\n  mtu: 9000");
    assert!(mtus(&own, 1600).is_err());
    assert_eq!(
        mtus(&own, 9000).unwrap(),
        ["bond0 mtu=9000", "nic0 mtu=9000", "nic1 mtu=9000"]
    );
}

#[test]
fn without_ipv4_the_nodes_interface_has_ipv6_only() {
    let bond = BOND.replace("ipv4", "ipv6");
    let both = format!("{bond}  ipv4: {{enabled: true}}\n");
    let fault = |text: &str, addressing| files(text, 3, addressing, true).unwrap_err();
    for (text, message) in [
        (BOND, "no interface has IPv6 enabled"),
        (
            both.as_str(),
            "bond0 has IPv4 enabled, but the machine network is an IPv6 network",
        ),
    ] {
        assert_eq!(fault(text, ipv6_table()).message, message);
    }
    assert_eq!(fault(&bond, table()).message, "no interface has IPv4 enabled");
    assert!(
        files(&bond, 3, Addressing::Later(AddressFamily::Ipv6), true).is_ok(),
        "not known yet"
    );
}

#[test]
fn search_domains_are_from_the_file_or_from_the_settings() {
    let domains = ["example.net".to_owned(), "example.org".to_owned()];
    let Addressing::Static(address) = table() else {
        unreachable!()
    };
    let table = Addressing::Static(StaticAddress {
        search: &domains,
        ..address
    });
    for (text, line) in [
        (BOND, "dns-search=example.net;example.org"),
        (VLAN, "dns-search=example.com"),
    ] {
        let files = files(text, 3, table, true).unwrap();
        let lines = files.iter().flat_map(|file| file.content.lines());
        let found: Vec<_> = lines.filter(|line| line.starts_with("dns-search")).collect();
        assert_eq!(found, [line]);
    }
}

#[test]
fn the_same_file_always_gives_the_same_bytes() {
    let once = files(VLAN, 3, table(), true).unwrap();
    for _ in 0..20 {
        assert_eq!(files(VLAN, 3, table(), true).unwrap(), once);
    }
}

#[test]
fn an_address_in_the_file_must_be_the_one_in_the_table() {
    let with = |ip: &str, prefix: u8| {
        let address = format!("ipv4: {{enabled: true, address: [{{ip: {ip}, prefix-length: {prefix}}}]}}");
        BOND.replace("ipv4: {enabled: true}", &address)
    };
    let same = files(&with("10.0.0.31", 24), 2, table(), true).unwrap();
    assert_eq!(same, files(BOND, 2, table(), true).unwrap());
    for (ip, prefix) in [("10.0.0.32", 24), ("10.0.0.31", 16)] {
        let text = with(ip, prefix);
        let fault = files(&text, 2, table(), true).unwrap_err();
        assert_eq!(
            fault.message,
            format!("worker-0 has address 10.0.0.31/24, but bond0 has {ip}/{prefix}")
        );
        assert_eq!(&text[fault.span.unwrap()], ip);
        assert!(
            files(&text, 2, Addressing::Later(AddressFamily::Ipv4), true).is_ok(),
            "not known yet"
        );
    }
}

/// Every message, and the text at its location.
#[test]
fn errors_are_reported_with_their_location() {
    let bond = |from: &str, to: &str| BOND.replace(from, to);
    let vlan = |from: &str, to: &str| VLAN.replace(from, to);
    let bridge = |from: &str, to: &str| BRIDGE.replace(from, to);
    let (dhcp, table) = (Addressing::Dhcp, table());
    for (text, count, addressing, message, at) in [
        ("[]".to_owned(), 2, table, "the file has no `interfaces`", None),
        (
            format!("{BOND}hostname: {{config: a}}\n"),
            2,
            table,
            "`hostname` is not supported",
            Some("hostname"),
        ),
        (
            bond("type: bond", "type: bund"),
            2,
            table,
            "unknown interface type `bund`",
            Some("bond0"),
        ),
        (
            bond("miimon: '100'", "miimun: '100'"),
            2,
            table,
            "unknown field `miimun`",
            Some("bond0"),
        ),
        (
            format!("{BOND}- name: bond0\n  type: bond\n"),
            2,
            table,
            "`bond0` is listed twice",
            Some("bond0"),
        ),
        (
            BOND.to_owned(),
            1,
            table,
            "worker-0 has no nic1: its NICs are nic0 (52:54:00:00:00:01, lan)",
            None,
        ),
        (
            bond("[nic0, nic1]", "[nic1]"),
            2,
            table,
            "the node's interface bond0 does not use nic0, the NIC in network lan",
            Some("bond0"),
        ),
        (
            bridge("name: nic1", "name: nic1\n  mac-address: 52:54:00:00:00:09"),
            2,
            table,
            "`nic1`: worker-0 has no NIC with this MAC: its NICs are nic0 (52:54:00:00:00:01, lan), nic1 (52:54:00:00:00:02, storage)",
            Some("nic1"),
        ),
        (
            bridge(
                "name: nic1",
                "name: eth9\n  identifier: mac-address\n  mac-address: 52:54:00:00:00:09",
            ),
            1,
            table,
            "`eth9`: worker-0 has no NIC with this MAC",
            Some("eth9"),
        ),
        (
            bond("name: bond0", "name: nic0").replace("[nic0, nic1]", "[nic1]"),
            2,
            table,
            "nic0 is a NIC of the machine, but has type bond",
            Some("nic0"),
        ),
        (
            bond("enabled: true", "enabled: false"),
            2,
            table,
            "no interface has IPv4 enabled",
            None,
        ),
        (
            vlan(
                "  - {destination: 0.0.0.0/0, next-hop-address: 10.0.0.1, next-hop-interface: bond0.100}\n",
                "",
            )
            .replace(", auto-gateway: false", ""),
            3,
            table,
            "several interfaces have IPv4 enabled (bond0.100, nic2) and none has a default route",
            None,
        ),
        (
            vlan(
                "172.20.0.0/16, next-hop-address: 10.0.0.254, next-hop-interface: bond0.100",
                "0.0.0.0/0, next-hop-address: 10.9.0.254, next-hop-interface: nic2",
            ),
            3,
            table,
            "several interfaces have a default route: bond0.100, nic2",
            Some("10.0.0.1"),
        ),
        (
            vlan(
                "next-hop-address: 10.0.0.1, next-hop-interface: bond0.100",
                "next-hop-address: 10.0.0.1, next-hop-interface: bond0",
            ),
            3,
            table,
            "the default route is on bond0, which does not have IPv4 enabled",
            Some("10.0.0.1"),
        ),
        (
            vlan("next-hop-address: 10.0.0.1,", "next-hop-address: 10.0.0.7,"),
            3,
            table,
            "the gateway of the machine network is 10.0.0.1, but the default route has 10.0.0.7",
            Some("10.0.0.7"),
        ),
        (
            BRIDGE.to_owned(),
            2,
            table,
            "OVN-Kubernetes cannot move the node's interface br1 of type linux-bridge into br-ex",
            Some("br1"),
        ),
        (
            bond("bond0", "br-ex"),
            2,
            table,
            "br-ex is created by OVN-Kubernetes",
            Some("br-ex"),
        ),
        (
            bond("type: bond", "type: bond\n  mac-address: 52:54:00:00:00:02"),
            2,
            table,
            "`bond0` has a MAC that is not the one of worker-0: 52:54:00:00:00:01",
            Some("bond0"),
        ),
        (
            bond("enabled: true", "enabled: true, dhcp: true"),
            2,
            table,
            "bond0 has `dhcp: true`, but dhcp=none",
            Some("bond0"),
        ),
        (
            bond("enabled: true", "enabled: true, dhcp: false"),
            2,
            dhcp,
            "bond0 has `dhcp: false`, but nodes get their addresses by DHCP",
            Some("bond0"),
        ),
        (
            bond(
                "enabled: true",
                "enabled: true, address: [{ip: 10.0.0.31, prefix-length: 24}]",
            ),
            2,
            dhcp,
            "bond0 has a static address, but nodes get theirs by DHCP",
            Some("10.0.0.31"),
        ),
        (
            VLAN.to_owned(),
            3,
            dhcp,
            "the node's interface is on the VLAN bond0.100, but its address is from DHCP without a VLAN",
            Some("bond0.100"),
        ),
        (
            bond("active-backup", "802.3ad"),
            2,
            dhcp,
            "bond0 has mode 802.3ad, but its NICs are not bonded while a node gets its first address and its configuration",
            Some("bond0"),
        ),
        (
            vlan(
                "next-hop-address: 10.0.0.254, next-hop-interface: bond0.100",
                "next-hop-address: 10.0.0.254, next-hop-interface: eth9",
            ),
            3,
            table,
            "eth9",
            None,
        ),
    ] {
        let fault = match files(&text, count, addressing, true) {
            Err(fault) => fault,
            Ok(files) => panic!("expected `{message}`, but it is accepted: {files:#?}"),
        };
        assert!(
            fault.message.contains(message),
            "expected `{message}`: {}",
            fault.message
        );
        assert_eq!(fault.span.map(|span| &text[span]), at, "{message}");
    }
}
