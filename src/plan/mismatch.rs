//! Compares a parameter file with the settings.

use crate::cluster::{ClusterConfig, Vip};
use crate::state::parameters::{NodeAddress, Parameters};

/// How a parameter file contradicts this configuration.
pub fn mismatch(config: &ClusterConfig, parameters: &Parameters) -> Option<String> {
    if parameters.cluster_domain() != config.cluster_domain() {
        return Some(format!("it belongs to cluster {}", parameters.cluster_domain()));
    }
    if parameters.backend != config.backend.name() {
        return Some(format!("it was harvested on {}", parameters.backend));
    }
    if parameters.network != config.network {
        return Some(format!("it was harvested on network {}", parameters.network));
    }
    let nodes = config.nodes();
    if let Some(node) = nodes.iter().find(|node| parameters.node(&node.name).is_none()) {
        return Some(format!("it has no address for {}", node.name));
    }
    if let Some(node) = nodes.iter().find(|node| parameters.is_external(&node.name)) {
        return Some(format!("its {} is an external node", node.name));
    }
    let is_planned = |known: &&NodeAddress| nodes.iter().any(|node| node.name == known.name);
    if let Some(node) = parameters.nodes.iter().find(|known| !is_planned(known)) {
        return Some(format!("it has {}, which is not in the settings", node.name));
    }
    for vip in Vip::ALL {
        if let Some(given) = config.given.vip(vip)
            && given != parameters.vip(vip).ip
        {
            return Some(format!(
                "its {vip}_ip is {}, but the settings have {given}",
                parameters.vip(vip).ip
            ));
        }
    }
    let given = &config.given;
    if let Some(gateway) = given.gateway.filter(|gateway| parameters.gateway != Some(*gateway)) {
        return Some(format!(
            "its gateway is {}, but the settings have {gateway}",
            parameters.gateway.map_or("unknown".to_owned(), |ip| ip.to_string())
        ));
    }
    if let Some(what) = ipv6_mismatch(config, parameters) {
        return Some(what);
    }
    if !given.name_servers.is_empty() && given.name_servers != parameters.resolvers {
        return Some("its name servers differ from `name_servers` in the settings".to_owned());
    }
    None
}

/// As `mismatch`, for the second address family.
fn ipv6_mismatch(config: &ClusterConfig, parameters: &Parameters) -> Option<String> {
    let (given, table) = match (&config.ipv6, &parameters.ipv6) {
        (None, None) => return None,
        (Some(_), None) => return Some("it has no IPv6 network, but the settings have one".to_owned()),
        (None, Some(table)) => {
            let network = table.machine_network;
            return Some(format!("it has IPv6 network {network}, but the settings have none"));
        }
        (Some(given), Some(table)) => (given, table),
    };
    if given.machine_network != table.machine_network {
        return Some(format!(
            "its IPv6 network is {}, but the settings have {}",
            table.machine_network, given.machine_network
        ));
    }
    let addresses = [
        ("gateway", given.gateway, table.gateway),
        ("api_ip", given.api_ip, table.api_ip),
        ("ingress_ip", given.ingress_ip, table.ingress_ip),
    ];
    let (what, wanted, has) = addresses
        .into_iter()
        .find(|(_, given, table)| given.is_some_and(|given| given != *table))?;
    Some(format!("its {what} is {has}, but the settings have {}", wanted?))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::cluster::{BackendConfig, Ipv6Settings, Ipv6Table};
    use crate::state::parameters::tests::example;

    const API: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 122, 10));
    const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 122, 1));

    #[test]
    fn a_parameter_file_that_does_not_match_the_settings_is_rejected() {
        let table = example();
        let settings = |change: fn(&mut ClusterConfig)| {
            let mut config = ClusterConfig::example();
            change(&mut config);
            mismatch(&config, &table)
        };
        assert_eq!(settings(|_| {}), None);
        for agrees in [
            (|config| config.given.api_ip = Some(API)) as fn(&mut ClusterConfig),
            |config| config.given.gateway = Some(GATEWAY),
            |config| config.given.name_servers = vec![GATEWAY],
        ] {
            assert_eq!(settings(agrees), None);
        }
        for (change, problem) in [
            (
                (|config| config.name = "prod".to_owned()) as fn(&mut ClusterConfig),
                "it belongs to cluster lab.example.com",
            ),
            (
                |config| config.backend = BackendConfig::example_ovirt(),
                "it was harvested on sim",
            ),
            (
                |config| config.network = "br0".to_owned(),
                "it was harvested on network default",
            ),
            (|config| config.workers = 3, "it has no address for worker-2"),
            (
                |config| config.workers = 1,
                "it has worker-1, which is not in the settings",
            ),
            (
                |config| config.given.ingress_ip = Some(API),
                "its ingress_ip is 192.168.122.9, but the settings have 192.168.122.10",
            ),
            (
                |config| config.given.gateway = Some(API),
                "its gateway is 192.168.122.1, but the settings have 192.168.122.10",
            ),
            (
                |config| config.given.name_servers = vec![GATEWAY, API],
                "its name servers differ from `name_servers` in the settings",
            ),
        ] {
            assert_eq!(settings(change).as_deref(), Some(problem));
        }
    }

    #[test]
    fn the_second_family_must_match_the_table() {
        let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let settings = Ipv6Settings {
            machine_network: "fd00:1::/64".parse().unwrap(),
            cluster_network: "fd01::/48".parse().unwrap(),
            service_network: "fd02::/112".parse().unwrap(),
            gateway: None,
            api_ip: None,
            ingress_ip: None,
        };
        let in_table = Ipv6Table {
            machine_network: settings.machine_network,
            gateway: ip("fd00:1::1"),
            api_ip: ip("fd00:1::10"),
            ingress_ip: ip("fd00:1::9"),
        };
        let compared = |settings: Option<Ipv6Settings>, in_table: Option<&Ipv6Table>| {
            let mut config = ClusterConfig::example();
            config.ipv6 = settings;
            let mut table = example();
            table.ipv6 = in_table.cloned();
            mismatch(&config, &table)
        };
        let changed = |change: fn(&mut Ipv6Settings)| {
            let mut settings = settings.clone();
            change(&mut settings);
            compared(Some(settings), Some(&in_table))
        };
        assert_eq!(changed(|_| {}), None);
        let all_given = |settings: &mut Ipv6Settings| {
            settings.gateway = "fd00:1::1".parse().ok();
            settings.api_ip = "fd00:1::10".parse().ok();
            settings.ingress_ip = "fd00:1::9".parse().ok();
        };
        assert_eq!(changed(all_given), None);
        let other: fn(&mut Ipv6Settings) = |settings| settings.machine_network = "fd00:2::/64".parse().unwrap();
        let gateway: fn(&mut Ipv6Settings) = |settings| settings.gateway = "fe80::1".parse().ok();
        let ingress: fn(&mut Ipv6Settings) = |settings| settings.ingress_ip = "fd00:1::8".parse().ok();
        for (found, problem) in [
            (
                compared(Some(settings.clone()), None),
                "it has no IPv6 network, but the settings have one",
            ),
            (
                compared(None, Some(&in_table)),
                "it has IPv6 network fd00:1::/64, but the settings have none",
            ),
            (
                changed(other),
                "its IPv6 network is fd00:1::/64, but the settings have fd00:2::/64",
            ),
            (
                changed(gateway),
                "its gateway is fd00:1::1, but the settings have fe80::1",
            ),
            (
                changed(ingress),
                "its ingress_ip is fd00:1::9, but the settings have fd00:1::8",
            ),
        ] {
            assert_eq!(found.as_deref(), Some(problem));
        }
    }
}
