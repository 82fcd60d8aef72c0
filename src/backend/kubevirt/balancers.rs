//! Services, Routes and policies on the pod network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnetwork::Ipv4Network;
use serde_json::Value;

use super::kind::Kind;
use super::labels;
use super::objects::POD_NETWORK;
use super::pods;
use super::session::{Session, if_allowed, not_owned};
use crate::backend::error::if_exists;
use crate::backend::ownership::conflict;
use crate::backend::{
    Action, AddressReservation, BackendError, BackendErrorKind, BalancedVip, LoadBalancer, ReservationState,
};
use crate::cluster::{AddressAssignment, ApiEndpoint, ClusterId, Expose, NodeName, PodNetwork, Routes, Vip};

/// Time limit for a load balancer's address, which a platform assigns within seconds.
const ADDRESS: Duration = Duration::from_secs(20);
/// Time limit for routers, which admit or reject a Route within seconds.
const VERDICT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(200);

/// Reserves the address of a node; an existing reservation is success.
pub(super) async fn hold(session: &Session, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
    let (cluster, lease) = (&hold.cluster, &hold.assignment);
    if hold.network != POD_NETWORK {
        // Addresses of a secondary network are assigned by its own DHCP server, which Kubernetes does not manage.
        return Ok(ReservationState::Unreserved);
    }
    if let Some(vip) = Vip::ALL.into_iter().find(|vip| lease.name.as_str() == vip.to_string()) {
        let service = session.get(Kind::Service, &pods::vip_name(cluster, vip)).await?;
        let ours = |service: &Value| labels::owner(service).as_ref() == Some(cluster) && has(service, lease.ip);
        return match service.filter(ours) {
            Some(_) => Ok(ReservationState::ByPlatform),
            None => Err(conflict(format!("no Service of cluster {cluster} has {}", lease.ip))),
        };
    }
    if pods::network_of(lease.ip).is_none() {
        return Err(conflict(format!("no guest can have the address {}", lease.ip)));
    }
    for other in held(session, cluster).await? {
        if other.name != lease.name && (other.ip == lease.ip || other.mac == lease.mac) {
            return Err(conflict(format!("{} has {} and {}", other.name, other.mac, other.ip)));
        }
    }
    let anchor = session.anchor(cluster).await?;
    let wanted = pods::of_node(cluster, lease, Some(&anchor));
    let name = labels::name(&wanted);
    match session.get(Kind::Service, name).await? {
        Some(there) if labels::owner(&there).as_ref() != Some(cluster) => {
            return Err(not_owned(Kind::Service, name, cluster));
        }
        Some(there) if pods::lease(&there).as_ref() != Some(lease) => {
            return Err(conflict(format!("service {name} reserves another address")));
        }
        _ => session.put(Kind::Service, cluster, &wanted).await?,
    };
    Ok(ReservationState::ByPlatform)
}

fn has(service: &Value, ip: IpAddr) -> bool {
    [pods::inside(service), pods::outside(service)]
        .into_iter()
        .flatten()
        .any(|known| known == ip)
}

/// The addresses of a cluster's nodes.
pub(super) async fn held(session: &Session, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
    let services = if_allowed(session.list(Kind::Service, &labels::of_cluster(cluster)).await)?;
    Ok(services.unwrap_or_default().iter().filter_map(pods::lease).collect())
}

pub(super) async fn release(session: &Session, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
    let name = pods::machine_of(&hold.cluster, &hold.assignment.name);
    let there = match hold.network == POD_NETWORK {
        true => session.get(Kind::Service, name.as_str()).await?,
        false => None,
    };
    let ours = there.filter(|service| {
        labels::owner(service).as_ref() == Some(&hold.cluster)
            && pods::lease(service).as_ref() == Some(&hold.assignment)
    });
    match ours {
        Some(service) if session.delete(Kind::Service, &service).await? => Ok(Action::Done(())),
        _ => Ok(Action::Unchanged(())),
    }
}

/// The address that is reserved for a node.
pub(super) async fn address_of(
    session: &Session,
    cluster: &ClusterId,
    node: &NodeName,
) -> Result<IpAddr, BackendError> {
    let machine = pods::machine_of(cluster, node);
    let service = session.get(Kind::Service, machine.as_str()).await?;
    let ours = service.filter(|service| labels::owner(service).as_ref() == Some(cluster));
    ours.as_ref()
        .and_then(pods::lease)
        .map(|lease| lease.ip)
        .ok_or_else(|| {
            let words = format!("no Service reserves an address for machine {machine} on the pod network");
            BackendError::new(BackendErrorKind::NotFound, words)
        })
}

/// Creates the Service of a virtual IP: first its policies, then the Service, then the Routes.
pub(super) async fn ensure(
    session: &Session,
    site: &PodNetwork,
    wanted: &LoadBalancer,
) -> Result<BalancedVip, BackendError> {
    let cluster = &wanted.cluster;
    let anchor = session.anchor(cluster).await?;
    let ranges = pod_ranges(session, site).await?;
    for policy in pods::policies(wanted, site, &ranges, Some(&anchor)) {
        session.put(Kind::Policy, cluster, &policy).await?;
    }
    let service = service(session, site, wanted, &anchor).await?;
    let inside = pods::inside(&service).ok_or_else(|| {
        let words = format!("service {} has no address", labels::name(&service));
        BackendError::new(BackendErrorKind::Rejected, words)
    })?;
    if wanted.vip == Vip::Ingress {
        routes(session, site, cluster, &anchor).await?;
    }
    let endpoint = match service["spec"]["type"].as_str() {
        Some("NodePort") => node_address(session, site).await?.map(|ip| endpoint(ip, &service)),
        _ => None,
    };
    Ok(BalancedVip {
        ip: pods::outside(&service).unwrap_or(inside).into(),
        mac: None,
        endpoint,
    })
}

fn endpoint(ip: IpAddr, service: &Value) -> ApiEndpoint {
    let port = |port: &Value| {
        let number = |field: &str| u16::try_from(port[field].as_u64()?).ok();
        Some((number("port")?, number("nodePort")?))
    };
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let ports: BTreeMap<u16, u16> = ports.filter_map(port).collect();
    ApiEndpoint { ip, ports }
}

/// The Service of a virtual IP, of the type that is set or that the platform supports.
async fn service(
    session: &Session,
    site: &PodNetwork,
    wanted: &LoadBalancer,
    anchor: &Value,
) -> Result<Value, BackendError> {
    let name = pods::vip_name(&wanted.cluster, wanted.vip);
    let there = session.get(Kind::Service, &name).await?;
    let settled = there
        .as_ref()
        .and_then(|service| match service["spec"]["type"].as_str()? {
            // A Service without an address may be left over from an interrupted run.
            "LoadBalancer" if pods::outside(service).is_none() => None,
            "LoadBalancer" => Some(Expose::LoadBalancer),
            "NodePort" => Some(Expose::NodePort),
            _ => Some(Expose::ClusterIp),
        });
    let expose = match (site.expose, settled) {
        (Expose::Auto, None) => Expose::LoadBalancer,
        (Expose::Auto, Some(settled)) => settled,
        (given, _) => given,
    };
    let put = async |expose| {
        let object = pods::of_vip(wanted, expose, Some(anchor));
        session.put(Kind::Service, &wanted.cluster, &object).await
    };
    let mut service = put(expose).await?;
    let begun = Instant::now();
    while expose == Expose::LoadBalancer && pods::outside(&service).is_none() {
        if begun.elapsed() > ADDRESS {
            if site.expose == Expose::LoadBalancer {
                let words = format!("service {name} got no address from a load balancer");
                return Err(BackendError::new(BackendErrorKind::Timeout, words).hint(
                    "if the platform has no load balancer, set kubevirt_expose=nodeport or kubevirt_expose=clusterip; otherwise run \
                        the same command again",
                ));
            }
            let next = match node_address(session, site).await? {
                Some(_) => Expose::NodePort,
                None => Expose::ClusterIp,
            };
            tracing::warn!("the platform has no load balancer for service {name}: it is exposed as {next:?}");
            return put(next).await;
        }
        tokio::time::sleep(LOOK).await;
        service = session.again(Kind::Service, &service).await?.unwrap_or(service);
    }
    Ok(service)
}

/// An address where node ports are reachable.
pub(super) async fn node_address(session: &Session, site: &PodNetwork) -> Result<Option<IpAddr>, BackendError> {
    if site.node_address.is_some() {
        return Ok(site.node_address.map(IpAddr::V4));
    }
    let nodes = if_allowed(session.read("/api/v1/nodes").await)?.unwrap_or_default();
    let nodes = nodes["items"].as_array().into_iter().flatten();
    let mut addresses = nodes.flat_map(|node| node["status"]["addresses"].as_array().into_iter().flatten());
    let internal = addresses.find(|address| address["type"] == "InternalIP");
    let ip = internal.and_then(|address| address["address"].as_str()?.parse().ok());
    Ok(ip.map(IpAddr::V4))
}

/// The ranges of the platform's pods: from the settings, from OpenShift's network, or from the nodes.
pub(super) async fn pod_ranges(session: &Session, site: &PodNetwork) -> Result<Vec<Ipv4Network>, BackendError> {
    if !site.pod_networks.is_empty() {
        return Ok(site.pod_networks.clone());
    }
    let range = |value: &Value| value.as_str()?.parse::<Ipv4Network>().ok();
    let path = "/apis/config.openshift.io/v1/networks/cluster";
    if let Some(Some(network)) = if_allowed(if_exists(session.read(path).await))? {
        let entries = network["status"]["clusterNetwork"].as_array().into_iter().flatten();
        let ranges: Vec<_> = entries.filter_map(|entry| range(&entry["cidr"])).collect();
        if !ranges.is_empty() {
            return Ok(ranges);
        }
    }
    let nodes = if_allowed(session.read("/api/v1/nodes").await)?.unwrap_or_default();
    let nodes = nodes["items"].as_array().into_iter().flatten();
    Ok(nodes.filter_map(|node| range(&node["spec"]["podCIDR"])).collect())
}

/// Creates the Routes to ingress: one for all names if the routers admit it, otherwise one for each name.
async fn routes(session: &Session, site: &PodNetwork, cluster: &ClusterId, anchor: &Value) -> Result<(), BackendError> {
    if site.routes == Routes::Off || (site.routes == Routes::Auto && !serves_routes(session).await?) {
        return Ok(());
    }
    if site.routes != Routes::Names {
        let all = pods::route(cluster, None, Some(anchor));
        if is_taken(session, cluster, &all).await? {
            return Ok(());
        }
        if site.routes == Routes::Wildcard {
            let words = format!(
                "the platform's routers reject a wildcard Route for {}",
                cluster.domain().fqdn("apps")
            );
            return Err(BackendError::new(BackendErrorKind::Denied, words)
                .hint("set kubevirt_routes=names, or ask an administrator to allow wildcards (WildcardsAllowed)"));
        }
    }
    for host in &site.route_names {
        let route = pods::route(cluster, Some(host), Some(anchor));
        session.put(Kind::Route, cluster, &route).await?;
    }
    Ok(())
}

/// Replaces `auto` by the choice made when the Routes were created.
pub(super) async fn settle(session: &Session, cluster: &ClusterId, site: &mut PodNetwork) -> Result<(), BackendError> {
    site.pod_networks = pod_ranges(session, site).await?;
    if site.routes == Routes::Auto {
        let there = if_allowed(session.list(Kind::Route, &labels::of_cluster(cluster)).await)?.unwrap_or_default();
        site.routes = match there.as_slice() {
            [] => Routes::Off,
            routes
                if routes
                    .iter()
                    .any(|route| route["spec"]["wildcardPolicy"] == "Subdomain") =>
            {
                Routes::Wildcard
            }
            _ => Routes::Names,
        };
    }
    Ok(())
}

/// Creates a Route for all names; deletes it if the routers reject it.
async fn is_taken(session: &Session, cluster: &ClusterId, route: &Value) -> Result<bool, BackendError> {
    let mut stored = match session.put(Kind::Route, cluster, route).await {
        // The API server itself may reject wildcards.
        Err(failure) if matches!(failure.code, Some(403 | 422)) => return Ok(false),
        other => other?,
    };
    let begun = Instant::now();
    loop {
        match pods::is_admitted(&stored) {
            Some(true) => return Ok(true),
            None if begun.elapsed() < VERDICT => {}
            _ => {
                session.delete(Kind::Route, &stored).await?;
                return Ok(false);
            }
        }
        tokio::time::sleep(LOOK).await;
        stored = session.again(Kind::Route, &stored).await?.unwrap_or(stored);
    }
}

pub(super) async fn serves_routes(session: &Session) -> Result<bool, BackendError> {
    let groups = session.read("/apis").await?;
    let mut groups = groups["groups"].as_array().into_iter().flatten();
    Ok(groups.any(|group| group["name"] == "route.openshift.io"))
}
