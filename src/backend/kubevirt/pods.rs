//! The objects of a cluster on the pod network; pure.
//!
//! KubeVirt puts each guest behind its pod, in a network of at least four addresses; the guest has the third
//! (`networks[].pod.vmNetworkCIDR`; kubevirt/kubevirt: pkg/network, masquerade binding). Each node has
//! its own network, so that addresses differ. Each node's pod has a headless Service.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::Ipv4Network;
use serde_json::{Value, json};

use super::labels::{CLUSTER, CONTROL_PLANE, MACHINE, NODE, PASS, ROLE, STAYS, metadata};
use crate::backend::LoadBalancer;
use crate::cluster::{AddressAssignment, ClusterId, Expose, Mac, MachineName, NodeName, Pass, PodNetwork, Role, Vip};

/// The guest's address; an annotation of its Service.
const ADDRESS: &str = "ocpdeploy.io/address";
const MAC: &str = "ocpdeploy.io/mac";
/// The virtual IP of a Service.
pub(super) const VIP: &str = "ocpdeploy.io/vip";
/// The label with which a user lets a pod access the cluster's API.
const CLIENT: &str = "ocpdeploy.io/client";

/// The network of a guest with this address; `None` if no guest can have it.
pub(super) fn network_of(address: IpAddr) -> Option<Ipv4Network> {
    let IpAddr::V4(address) = address else { return None };
    let bits = address.to_bits();
    match bits % 4 {
        2 => Ipv4Network::new(Ipv4Addr::from_bits(bits - 2), 30).ok(),
        _ => None,
    }
}

/// The address of the guest in this network.
pub(super) fn guest_of(network: &str) -> Option<Ipv4Addr> {
    network.parse::<Ipv4Network>().ok()?.nth(2)
}

/// The machine of a node. A cluster's id begins with its name, which has no dot.
pub(super) fn machine_of(cluster: &ClusterId, node: &NodeName) -> MachineName {
    MachineName::of_node(short(cluster), node)
}

fn short(cluster: &ClusterId) -> &str {
    cluster.domain().name()
}

/// The Service by which other nodes find a node, ready or not.
pub(super) fn of_node(cluster: &ClusterId, lease: &AddressAssignment, anchor: Option<&Value>) -> Value {
    let machine = machine_of(cluster, &lease.name);
    let labels = json!({CLUSTER: cluster.tag(), NODE: lease.name.as_str()});
    let mut about = metadata(machine.to_string(), &labels, anchor);
    about["annotations"] = json!({ADDRESS: lease.ip.to_string(), MAC: lease.mac.to_string()});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": about,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": {CLUSTER: cluster.tag(), MACHINE: machine.as_str()},
        },
    })
}

/// Reads the Service of a node.
pub(super) fn lease(service: &Value) -> Option<AddressAssignment> {
    let note = |key: &str| service["metadata"]["annotations"][key].as_str();
    Some(AddressAssignment {
        name: service["metadata"]["labels"][NODE].as_str()?.parse().ok()?,
        mac: note(MAC)?.parse::<Mac>().ok()?,
        ip: note(ADDRESS)?.parse().ok()?,
    })
}

pub(super) fn vip_name(cluster: &ClusterId, vip: Vip) -> String {
    format!("{}-{vip}-vip", short(cluster))
}

/// Selects the machines that receive requests. Selectors have no "or", so several roles share a label.
fn takers(wanted: &LoadBalancer) -> Value {
    let cluster = wanted.cluster.tag();
    match wanted.roles[..] {
        [Role::Bootstrap, ..] => json!({CLUSTER: cluster, CONTROL_PLANE: "true"}),
        [role] => json!({CLUSTER: cluster, ROLE: role.to_string(), PASS: Pass::Two.to_string()}),
        _ => json!({CLUSTER: cluster, STAYS: "true"}),
    }
}

/// The Service of a virtual IP.
pub(super) fn of_vip(wanted: &LoadBalancer, expose: Expose, anchor: Option<&Value>) -> Value {
    let (cluster, vip) = (&wanted.cluster, wanted.vip);
    let labels = json!({CLUSTER: cluster.tag(), VIP: vip.to_string()});
    let kind = match expose {
        Expose::LoadBalancer => "LoadBalancer",
        Expose::NodePort => "NodePort",
        Expose::Auto | Expose::ClusterIp => "ClusterIP",
    };
    let port = |port: &u16| json!({"name": format!("p{port}"), "port": port, "targetPort": port, "protocol": "TCP"});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(vip_name(cluster, vip), &labels, anchor),
        "spec": {
            "type": kind,
            "selector": takers(wanted),
            "ports": wanted.ports.iter().map(port).collect::<Value>(),
            "publishNotReadyAddresses": !wanted.checked,
        },
    })
}

/// Network policies: the cluster's machines reach all ports, others only those of the virtual IPs.
///
/// A pod that a policy selects receives only what some policy allows (networking.k8s.io/v1). Probes come from the pod's
/// host, which is always allowed.
pub(super) fn policies(
    wanted: &LoadBalancer,
    pods: &PodNetwork,
    pod_ranges: &[Ipv4Network],
    anchor: Option<&Value>,
) -> [Value; 2] {
    let cluster = &wanted.cluster;
    let policy = |what: &str, selector: Value, ingress: Value| {
        let labels = json!({CLUSTER: cluster.tag()});
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(format!("{}-{what}", short(cluster)), &labels, anchor),
            "spec": {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": ingress},
        })
    };
    let outside = pods.admit.iter().map(|range| {
        let within = pod_ranges.iter().filter(|pods| contains(*range, **pods));
        match within.map(ToString::to_string).collect::<Vec<_>>() {
            except if except.is_empty() => json!({"ipBlock": {"cidr": range.to_string()}}),
            except => json!({"ipBlock": {"cidr": range.to_string(), "except": except}}),
        }
    });
    let pods_with = |label: &str, value: &str| json!({"podSelector": {"matchLabels": {label: value}}});
    let mut from: Vec<Value> = outside.chain([pods_with(CLIENT, cluster.domain().as_str())]).collect();
    if wanted.vip == Vip::Ingress {
        // The namespaces of OpenShift's routers, with or without host network (openshift/cluster-ingress-operator).
        for (label, value) in [
            ("network.openshift.io/policy-group", "ingress"),
            ("policy-group.network.openshift.io/host-network", ""),
        ] {
            from.push(json!({"namespaceSelector": {"matchLabels": {label: value}}}));
        }
    }
    let port = |port: &u16| json!({"protocol": "TCP", "port": port});
    let to = json!([{"from": from, "ports": wanted.ports.iter().map(port).collect::<Value>()}]);
    let all = json!({CLUSTER: cluster.tag()});
    [
        policy("machines", all, json!([{"from": [pods_with(CLUSTER, cluster.tag())]}])),
        policy(&wanted.vip.to_string(), takers(wanted), to),
    ]
}

fn contains(range: Ipv4Network, part: Ipv4Network) -> bool {
    range.contains(part.network()) && range.prefix() <= part.prefix()
}

/// A Route to ingress for one name below `apps`; `None` is all names.
pub(super) fn route(cluster: &ClusterId, host: Option<&str>, anchor: Option<&Value>) -> Value {
    let labels = json!({CLUSTER: cluster.tag()});
    let short = short(cluster);
    let (object, host, policy) = match host {
        Some(host) => (format!("{short}-{host}"), host, "None"),
        None => (format!("{short}-apps"), "all", "Subdomain"),
    };
    json!({
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": metadata(object, &labels, anchor),
        "spec": {
            "host": cluster.domain().fqdn(&format!("{host}.apps")),
            "to": {"kind": "Service", "name": vip_name(cluster, Vip::Ingress)},
            "port": {"targetPort": "p443"},
            "tls": {"termination": "passthrough"},
            "wildcardPolicy": policy,
        },
    })
}

/// Whether the routers admitted a Route; `None` until they have decided.
pub(super) fn is_admitted(route: &Value) -> Option<bool> {
    let ingresses = route["status"]["ingress"].as_array().into_iter().flatten();
    let mut conditions = ingresses
        .filter_map(|ingress| ingress["conditions"].as_array())
        .flatten();
    let admitted = conditions.find(|condition| condition["type"] == "Admitted")?;
    Some(admitted["status"] == "True")
}

/// The readiness probe of a machine: until it succeeds, the machine receives no requests.
pub(super) fn readiness(role: Role, pass: Pass) -> Option<Value> {
    let get = match (pass, role) {
        (Pass::Two, Role::Bootstrap | Role::Master) => json!({"scheme": "HTTPS", "port": 6443, "path": "/readyz"}),
        (Pass::Two, Role::Worker) => json!({"scheme": "HTTP", "port": 1936, "path": "/healthz/ready"}),
        _ => return None,
    };
    Some(json!({"httpGet": get, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 3}))
}

/// The external address of a Service; `None` until the load balancer has assigned one.
pub(super) fn outside(service: &Value) -> Option<Ipv4Addr> {
    service["status"]["loadBalancer"]["ingress"][0]["ip"]
        .as_str()?
        .parse()
        .ok()
}

pub(super) fn inside(service: &Value) -> Option<Ipv4Addr> {
    service["spec"]["clusterIP"].as_str()?.parse().ok()
}

/// A Service for a dry run: the server returns the address that it would have.
pub(super) fn trial() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ocpdeploy-trial"},
        "spec": {"ports": [{"port": 6443, "protocol": "TCP", "targetPort": 6443}]},
    })
}

#[cfg(test)]
mod tests {
    use super::super::labels::name;
    use super::*;

    #[test]
    fn each_guest_has_the_third_of_four_addresses() {
        let ip = |last| IpAddr::from([10, 0, 2, last]);
        for (last, network) in [
            (0, None),
            (1, None),
            (2, Some("10.0.2.0/30")),
            (3, None),
            (254, Some("10.0.2.252/30")),
        ] {
            let found = network_of(ip(last)).map(|network| network.to_string());
            assert_eq!(found.as_deref(), network, "{last}");
            assert_eq!(network.and_then(guest_of).map(IpAddr::V4), network.map(|_| ip(last)));
        }
    }

    #[test]
    fn the_service_of_a_node_contains_its_address() {
        let cluster = ClusterId::read("lab.example.com.x7k2pqrs").unwrap();
        let lease = AddressAssignment {
            name: NodeName::node(Role::Master, 1),
            mac: Mac([0x52, 0x54, 0, 0, 0, 7]),
            ip: IpAddr::from([10, 0, 2, 6]),
        };
        let service = of_node(&cluster, &lease, None);
        assert_eq!(name(&service), "lab-master-1");
        assert_eq!(super::lease(&service), Some(lease));
    }

    #[test]
    fn access_from_everywhere_excludes_the_platforms_pods() {
        let cluster = ClusterId::read("lab.example.com.x7k2pqrs").unwrap();
        let pods = PodNetwork {
            admit: vec!["0.0.0.0/0".parse().unwrap(), "192.0.2.0/24".parse().unwrap()],
            ..PodNetwork::default()
        };
        let wanted = LoadBalancer {
            cluster,
            network: "pod".to_owned(),
            vip: Vip::Api,
            ip: None,
            ports: vec![6443],
            roles: vec![Role::Bootstrap, Role::Master],
            members: None,
            checked: true,
        };
        let all = policies(&wanted, &pods, &["10.128.0.0/14".parse().unwrap()], None);
        let api = &all[1]["spec"]["ingress"][0]["from"];
        assert_eq!(api[0]["ipBlock"]["except"], json!(["10.128.0.0/14"]));
        assert_eq!(api[1], json!({"ipBlock": {"cidr": "192.0.2.0/24"}}));
    }
}
