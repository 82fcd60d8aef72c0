//! Addresses from `address_ranges`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::backend::{Finding, NetworkFacts};
use crate::cluster::{AddressAssignment, ClusterConfig, Harvest, NodeName, Vip};
use crate::plan::addresses::Others;
use crate::plan::machines::{self, MacTable};
use crate::printable::count;
use crate::state::parameters::Parameters;

/// The names whose addresses are chosen: VIPs that are not set, and with static addresses the nodes.
pub fn names(config: &ClusterConfig) -> Vec<NodeName> {
    if config.address_ranges.is_empty() {
        return Vec::new();
    }
    let vips = Vip::ALL.into_iter().filter(|vip| machines::is_open(config, *vip));
    let nodes = config.nodes().into_iter();
    let nodes = nodes.filter(|node| config.harvest == Harvest::Static && node.ip.is_none());
    vips.map(NodeName::vip).chain(nodes.map(|node| node.name)).collect()
}

/// The addresses that may be chosen, in the order of the setting. `table` is the cluster's own.
pub fn usable(
    config: &ClusterConfig,
    facts: &NetworkFacts,
    others: &Others,
    table: Option<&Parameters>,
) -> Vec<IpAddr> {
    let own: BTreeSet<IpAddr> = table
        .iter()
        .flat_map(|table| table.all_leases())
        .map(|lease| lease.ip)
        .collect();
    let network = config.given.machine_network.or(facts.cidr);
    let is_free = |ip: &IpAddr| {
        facts.gateway != Some(*ip)
            && !facts.resolvers.contains(ip)
            && !facts.taken.contains_key(ip)
            && !others.contains_key(ip)
            && !own.contains(ip)
            && network.is_none_or(|network| network.contains(*ip))
    };
    config
        .address_ranges
        .iter()
        .flat_map(|range| range.iter())
        .filter(is_free)
        .collect()
}

/// Chooses an address for each of these names that is in `macs` and has none; the error is the first name without an
/// address.
///
/// Call it with the allocation lock, and write the table before it is released.
pub fn fill(
    config: &ClusterConfig,
    macs: &MacTable,
    free: &[IpAddr],
    others: &Others,
    leases: &mut Vec<AddressAssignment>,
) -> Result<(), NodeName> {
    for name in names(config) {
        let is_known = leases.iter().any(|lease| lease.name == name);
        let Some(mac) = macs.get(&name).copied().filter(|_| !is_known) else {
            continue;
        };
        let is_free = |ip: &IpAddr| !others.contains_key(ip) && leases.iter().all(|lease| lease.ip != *ip);
        let Some(ip) = free.iter().copied().find(is_free) else {
            return Err(name);
        };
        leases.push(AddressAssignment { name, mac, ip });
    }
    Ok(())
}

/// What the platform knows about the addresses; `settings` has compared them with the env file. A DHCP server
/// that reserves them assigns them to no other machine.
pub fn findings(
    config: &ClusterConfig,
    facts: &NetworkFacts,
    others: &Others,
    table: Option<&Parameters>,
    is_reserved: bool,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for range in &config.address_ranges {
        let mut fault = |what: String| found.push(Finding::fail(format!("address_ranges {range} {what}")));
        if let Some(network) = facts
            .cidr
            .filter(|network| !(network.contains(range.first) && network.contains(range.last)))
        {
            fault(format!("is outside network {}, which is {network}", config.network));
        }
        if let Some(gateway) = facts.gateway.filter(|gateway| range.contains(*gateway)) {
            fault(format!("contains {gateway}, the gateway"));
        }
        for (first, last) in facts.dhcp_ranges.iter().filter(|_| !is_reserved) {
            if range.first <= *last && *first <= range.last {
                fault(format!(
                    "overlaps with the DHCP range {first}–{last}, so another machine may get its addresses"
                ));
            }
        }
    }
    let wanted = names(config).len();
    let free = usable(config, facts, others, None).len();
    if table.is_none() && found.is_empty() && free < wanted {
        let finding = Finding::fail(format!(
            "address_ranges has {} that no other machine has, too few for {wanted}",
            count(free, "address")
        ));
        found.push(Finding {
            hint: Some("enlarge address_ranges, or set some of the addresses".to_owned()),
            ..finding
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{AddressRange, Lb, Role};

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 168, 122, last])
    }

    fn pool(first: u8, last: u8) -> AddressRange {
        AddressRange {
            first: ip(first),
            last: ip(last),
        }
    }

    fn config(harvest: Harvest) -> ClusterConfig {
        ClusterConfig {
            harvest,
            address_ranges: vec![pool(50, 52), pool(60, 69)],
            ..ClusterConfig::example()
        }
    }

    fn chosen(config: &ClusterConfig, others: &Others) -> Result<Vec<String>, NodeName> {
        let facts = NetworkFacts {
            gateway: Some(ip(51)),
            taken: [(ip(60), None)].into(),
            ..NetworkFacts::default()
        };
        let macs = machines::macs(config, &Default::default());
        let mut leases = machines::static_leases(config, &macs);
        let free = usable(config, &facts, &Others::new(), None);
        fill(config, &macs, &free, others, &mut leases)?;
        Ok(leases
            .iter()
            .map(|lease| format!("{} {}", lease.name, lease.ip))
            .collect())
    }

    #[test]
    fn addresses_that_are_not_set_are_chosen_in_order_without_used_ones() {
        let others = Others::from([(ip(61), "api of cluster prod".to_owned())]);
        let mut config = config(Harvest::Static);
        let all = [
            "api 192.168.122.50",
            "ingress 192.168.122.52",
            "bootstrap 192.168.122.62",
            "master-0 192.168.122.63",
            "master-1 192.168.122.64",
            "master-2 192.168.122.65",
            "worker-0 192.168.122.66",
            "worker-1 192.168.122.67",
        ];
        assert_eq!(chosen(&config, &others).unwrap(), all);
        config.given.api_ip = Some(ip(10));
        config.given.worker_ips = vec![ip(31), ip(32)];
        let given = [
            "api 192.168.122.10",
            "worker-0 192.168.122.31",
            "worker-1 192.168.122.32",
            "ingress 192.168.122.50",
            "bootstrap 192.168.122.52",
            "master-0 192.168.122.62",
            "master-1 192.168.122.63",
            "master-2 192.168.122.64",
        ];
        assert_eq!(chosen(&config, &others).unwrap(), given);
        config.masters = 7;
        config.given = Default::default();
        config.workers = 0;
        config.address_ranges.truncate(1);
        assert_eq!(chosen(&config, &others).unwrap_err(), NodeName::bootstrap());
    }

    #[test]
    fn with_dhcp_only_virtual_ips_without_a_platform_load_balancer_are_chosen() {
        let mut config = config(Harvest::Boot);
        assert_eq!(
            chosen(&config, &Others::new()).unwrap(),
            ["api 192.168.122.50", "ingress 192.168.122.52"]
        );
        config.lb = Lb::Platform;
        assert_eq!(chosen(&config, &Others::new()).unwrap(), [""; 0]);
        config.lb = Lb::Keepalived;
        config.address_ranges.clear();
        assert!(names(&config).is_empty());
    }

    #[test]
    fn new_workers_get_the_next_free_addresses() {
        let mut config = config(Harvest::Static);
        let table = crate::state::parameters::tests::example();
        config.address_ranges = vec![pool(8, 30)];
        let taken: Vec<_> = table.leases().iter().map(|lease| lease.ip).collect();
        let free = usable(&config, &NetworkFacts::default(), &Others::new(), Some(&table));
        assert!(
            !free.is_empty() && free.iter().all(|ip| !taken.contains(ip)),
            "{free:?}"
        );
        config.workers = 3;
        let new = NodeName::node(Role::Worker, 2);
        let mut macs = machines::macs(&config, &Default::default());
        macs.retain(|name, _| *name == new);
        let mut leases = Vec::new();
        fill(&config, &macs, &free, &Others::new(), &mut leases).unwrap();
        assert_eq!(leases.len(), 1);
        assert_eq!((&leases[0].name, leases[0].ip), (&new, free[0]));
    }

    #[test]
    fn the_pool_is_compared_with_the_network() {
        let facts = NetworkFacts {
            cidr: Some("192.168.122.0/26".parse().unwrap()),
            gateway: Some(ip(51)),
            dhcp_ranges: vec![(ip(40), ip(50))],
            ..NetworkFacts::default()
        };
        let texts = |config: &ClusterConfig, others: &Others| -> Vec<String> {
            let found = findings(config, &facts, others, None, false);
            found.into_iter().map(|finding| finding.text).collect()
        };
        let mut config = config(Harvest::Static);
        assert_eq!(
            texts(&config, &Others::new()),
            [
                "address_ranges 192.168.122.50-192.168.122.52 contains 192.168.122.51, the gateway",
                "address_ranges 192.168.122.50-192.168.122.52 overlaps with the DHCP range 192.168.122.40–192.168.122.50, \
                 so another machine may get its addresses",
                "address_ranges 192.168.122.60-192.168.122.69 is outside network default, which is 192.168.122.0/26",
            ]
        );
        config.address_ranges = vec![pool(20, 27)];
        assert_eq!(texts(&config, &Others::new()), [""; 0]);
        let others = Others::from([(ip(27), "x".to_owned())]);
        assert_eq!(
            texts(&config, &others),
            ["address_ranges has 7 addresses that no other machine has, too few for 8"]
        );
    }
}
