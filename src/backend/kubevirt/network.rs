//! Secondary networks: reads NetworkAttachmentDefinitions.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::{IpNetwork, Ipv4Network};
use serde_json::Value;

use super::kind::Kind;
use super::objects::POD_NETWORK;
use super::session::{Session, if_allowed};
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind, NetworkFacts};

/// The definition of this name, `[<namespace>/]<name>`. `None` if this user may not read it.
pub(super) async fn find(session: &Session, network: &str) -> Result<Option<Value>, BackendError> {
    if network == POD_NETWORK {
        return Ok(None);
    }
    let (namespace, name) = place(session, network);
    let path = format!("{}/{name}", Kind::Network.folder(namespace));
    match if_allowed(if_exists(session.read(&path).await))? {
        None => Ok(None),
        Some(Some(found)) => Ok(Some(found)),
        Some(None) => {
            let words = format!("no network attachment definition {name} in namespace {namespace}");
            Err(BackendError::new(BackendErrorKind::NotFound, words)
                .hint("`kubectl get network-attachment-definitions -A` lists those that you can read"))
        }
    }
}

pub(super) fn place<'a>(session: &'a Session, network: &'a str) -> (&'a str, &'a str) {
    network.split_once('/').unwrap_or((&session.namespace, network))
}

pub(super) async fn look(session: &Session, network: &str) -> Result<NetworkFacts, BackendError> {
    if network == POD_NETWORK {
        return Ok(NetworkFacts {
            identity: format!("{}#{}/pod", session.server, session.namespace),
            peer_domain: Some(format!("{}.svc", session.namespace)),
            ..NetworkFacts::default()
        });
    }
    let found = find(session, network).await?;
    let config = found.as_ref().and_then(config).unwrap_or_default();
    let (namespace, name) = place(session, network);
    let gateway = config["ipam"]["gateway"].as_str().and_then(|text| text.parse().ok());
    Ok(NetworkFacts {
        identity: format!(
            "{}#{}",
            session.server,
            segment(&config).unwrap_or(format!("{namespace}/{name}"))
        ),
        cidr: cidr(&config).map(IpNetwork::V4),
        gateway: gateway.map(IpAddr::V4),
        dhcp_ranges: range(&config)
            .map(|(first, last)| (first.into(), last.into()))
            .into_iter()
            .collect(),
        ..NetworkFacts::default()
    })
}

/// The CNI configuration: of the plugin, or of the first plugin of a list.
pub(super) fn config(definition: &Value) -> Option<Value> {
    let mut config: Value = serde_json::from_str(definition["spec"]["config"].as_str()?).ok()?;
    match config.pointer_mut("/plugins").and_then(Value::as_array_mut) {
        Some(plugins) if !plugins.is_empty() => Some(plugins.remove(0)),
        _ => Some(config),
    }
}

/// Identifies the network segment: the bridge or physical network, and the VLAN.
fn segment(config: &Value) -> Option<String> {
    let text = |key: &str| config[key].as_str().filter(|text| !text.is_empty());
    let (medium, vlan) = match (text("bridge"), text("master"), text("physicalNetworkName")) {
        (Some(bridge), ..) => (format!("bridge {bridge}"), &config["vlan"]),
        (_, Some(master), _) => (format!("link {master}"), &config["vlan"]),
        (.., Some(physical)) => (format!("physical network {physical}"), &config["vlanID"]),
        // A network of OVN-Kubernetes has the same name in all namespaces.
        _ if text("topology").is_some() => (format!("network {}", text("name")?), &Value::Null),
        _ => return None,
    };
    Some(match vlan.as_u64() {
        Some(vlan) => format!("{medium} vlan {vlan}"),
        None => medium,
    })
}

/// The range of addresses, if the network assigns them itself (plugins host-local, whereabouts, OVN-Kubernetes).
fn cidr(config: &Value) -> Option<Ipv4Network> {
    let ranges = &config["ipam"]["ranges"][0][0]["subnet"];
    let subnets = config["subnets"]
        .as_str()
        .and_then(|list| list.split(',').find(|text| !text.contains(':')));
    [
        config["ipam"]["subnet"].as_str(),
        ranges.as_str(),
        config["ipam"]["range"].as_str(),
        subnets,
    ]
    .into_iter()
    .flatten()
    .find_map(|text| text.trim().parse::<Ipv4Network>().ok())
    .and_then(|network| Ipv4Network::new(network.network(), network.prefix()).ok())
}

fn range(config: &Value) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let ipam = &config["ipam"];
    let nested = &ipam["ranges"][0][0];
    let of = |range: &Value| {
        let end = |key: &str| range[key].as_str()?.parse().ok();
        Some((
            end("rangeStart").or(end("range_start"))?,
            end("rangeEnd").or(end("range_end"))?,
        ))
    };
    of(ipam).or_else(|| of(nested))
}

/// Why virtual IPs may not work on this network.
pub(super) fn vip_trouble(config: &Value) -> Option<&'static str> {
    let is_ovn = config["type"] == "ovn-k8s-cni-overlay";
    (is_ovn && config["subnets"].as_str().is_some_and(|subnets| !subnets.is_empty()))
        .then_some("OVN-Kubernetes drops traffic of addresses that it did not assign, such as the virtual IPs")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: Value) -> Value {
        let definition = json!({"spec": {"config": config.to_string()}});
        super::config(&definition).unwrap()
    }

    #[test]
    fn one_segment_has_one_identity_in_all_namespaces() {
        for (config, expected) in [
            (
                json!({"type": "cnv-bridge", "bridge": "br1", "vlan": 7}),
                Some("bridge br1 vlan 7"),
            ),
            (
                json!({"plugins": [{"type": "bridge", "bridge": "br1"}, {"type": "tuning"}]}),
                Some("bridge br1"),
            ),
            (
                json!({"type": "ovn-k8s-cni-overlay", "topology": "localnet", "physicalNetworkName": "phys", "vlanID": 3}),
                Some("physical network phys vlan 3"),
            ),
            (
                json!({"type": "ovn-k8s-cni-overlay", "topology": "layer2", "name": "blue"}),
                Some("network blue"),
            ),
            (json!({"type": "macvlan", "master": "eth1"}), Some("link eth1")),
            (json!({"type": "other"}), None),
        ] {
            assert_eq!(segment(&read(config.clone())).as_deref(), expected, "{config}");
        }
    }

    #[test]
    fn the_range_of_a_network_is_read() {
        for (config, cidr_text) in [
            (
                json!({"ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}),
                Some("10.1.0.0/24"),
            ),
            (
                json!({"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.2.0.0/24"}]]}}),
                Some("10.2.0.0/24"),
            ),
            (
                json!({"ipam": {"type": "whereabouts", "range": "10.3.0.7/24"}}),
                Some("10.3.0.0/24"),
            ),
            (json!({"subnets": "fd00::/64,10.4.0.0/16"}), Some("10.4.0.0/16")),
            (json!({"ipam": {}}), None),
        ] {
            let found = cidr(&read(config.clone())).map(|cidr| cidr.to_string());
            assert_eq!(found.as_deref(), cidr_text, "{config}");
        }
        let ipam = json!({"ipam": {"range_start": "10.3.0.10", "range_end": "10.3.0.20"}});
        assert_eq!(range(&read(ipam)), Some(([10, 3, 0, 10].into(), [10, 3, 0, 20].into())));
    }

    #[test]
    fn a_network_with_port_security_does_not_support_virtual_ips() {
        let guarded = json!({"type": "ovn-k8s-cni-overlay", "topology": "layer2", "subnets": "10.4.0.0/16"});
        assert!(vip_trouble(&guarded).is_some());
        let open = json!({"type": "ovn-k8s-cni-overlay", "topology": "layer2"});
        assert_eq!(vip_trouble(&open), None);
    }
}
