//! Compares a parameter file with the settings.

use crate::cluster::{ClusterConfig, Vip};
use crate::plan::machines::given_vip;
use crate::state::parameters::Parameters;

/// How a parameter file contradicts this configuration.
pub fn mismatch(config: &ClusterConfig, parameters: &Parameters) -> Option<String> {
    if parameters.id() != config.id() {
        return Some(format!("it belongs to cluster {}", parameters.id()));
    }
    if parameters.backend != config.backend.name() {
        return Some(format!("it was harvested on {}", parameters.backend));
    }
    if parameters.network != config.network {
        return Some(format!("it was harvested on network {}", parameters.network));
    }
    if let Some((node, _)) = config.nodes().iter().find(|(node, _)| parameters.node(node).is_none()) {
        return Some(format!("it has no address for {node}"));
    }
    let nodes = config.nodes();
    if let Some((node, _)) = nodes.iter().find(|(node, _)| parameters.is_external(node)) {
        return Some(format!("its {node} is an external node"));
    }
    if let Some(node) = parameters
        .nodes
        .iter()
        .find(|known| nodes.iter().all(|(node, _)| *node != known.name))
    {
        return Some(format!("it has {}, which is not in the settings", node.name));
    }
    for vip in Vip::ALL {
        if let Some(given) = given_vip(config, vip)
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
        let (has, wanted) = (table.machine_network, given.machine_network);
        return Some(format!("its IPv6 network is {has}, but the settings have {wanted}"));
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
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::cluster::BackendConfig;
    use crate::state::parameters::tests::example;

    const API: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 122, 10));

    #[test]
    fn a_parameter_file_that_does_not_match_the_settings_is_rejected() {
        let table = example();
        let settings = |change: fn(&mut ClusterConfig)| {
            let mut config = ClusterConfig::example();
            change(&mut config);
            mismatch(&config, &table)
        };
        assert_eq!(settings(|_| {}), None);
        assert_eq!(settings(|config| config.given.api_ip = Some(API)), None);
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
        ] {
            assert_eq!(settings(change).as_deref(), Some(problem));
        }
    }
}
