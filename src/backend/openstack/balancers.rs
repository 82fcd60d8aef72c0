//! Load balancers of Octavia: one for each VIP, changed step by step to what is wanted.
//!
//! Octavia performs one change of a load balancer at a time and rejects others with 409 until it has ended
//! (openstack/octavia: `octavia/common/exceptions.py`, `ImmutableObject`, `LBPendingStateError`). The port of a VIP
//! belongs to Octavia, and is deleted with the load balancer.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::auth::Service::{Balancer as OCTAVIA, Network as NEUTRON};
use super::cloud::{OpenStack, PAUSE};
use super::listing::has_tags;
use super::network::Subnet;
use super::ports::Port;
use super::security_groups::near;
use super::wire::{self, TAG, query, text};
use crate::backend::response::part;
use crate::backend::{BackendError, BackendErrorKind, BalancedVip, LoadBalancer};
use crate::cluster::{AddressAssignment, ClusterId, NodeName, Vip};

/// How long Octavia may take for one change. It boots a machine for a new load balancer, for which it waits some minutes
/// (openstack/octavia: `octavia/common/config.py`, `amp_active_retries`, `amp_active_wait_sec`).
const CHANGE_TIMEOUT: Duration = Duration::from_secs(900);

/// How often a deletion is requested if the load balancer has status ERROR again.
const DELETIONS: u32 = 3;

/// The first part of all paths. Octavia serves it below `v2` and `v2.0` (openstack/octavia: `octavia/api/root_controller.py`).
pub(super) const LBAAS: &str = "/v2/lbaas";

impl OpenStack {
    /// Creates the load balancer of a VIP, or changes an existing one to this state.
    pub(super) async fn ensure_balancer(&self, wanted: &LoadBalancer) -> Result<BalancedVip, BackendError> {
        let network = self.network(&wanted.network).await?;
        let subnet = match wanted.ip {
            Some(ip) => network.subnet_of(ip)?,
            None => network.main().ok_or_else(|| {
                let message = format!("network {} has no IPv4 subnet", network.name);
                BackendError::new(BackendErrorKind::Rejected, message)
            })?,
        };
        let balancer = match self.usable_balancer(wanted).await? {
            Some(balancer) => balancer,
            None => self.create_balancer(wanted, subnet).await?,
        };
        let id = text(&balancer, "id").to_owned();
        let balancer = self.active_balancer(&id).await?;
        if let Some(members) = &wanted.members {
            // With OVN only the nodes' security group restricts the machine config server.
            if wire::is_ovn(&balancer) {
                self.refuse_exposure(wanted.vip, &network)?;
            }
            let listeners = self.listeners_of(&balancer).await?;
            for port in &wanted.ports {
                let listener = listeners.iter().find(|listener| listener["protocol_port"] == *port);
                self.ensure_port(wanted, &balancer, members, (*port, listener), subnet)
                    .await?;
            }
            self.active_balancer(&id).await?;
            self.assign_floating_ip(&wanted.cluster, wanted.vip, text(&balancer, "vip_port_id"))
                .await?;
        }
        let ip = address(&balancer).ok_or_else(|| {
            let message = format!("load balancer {} has no address", text(&balancer, "name"));
            BackendError::new(BackendErrorKind::Rejected, message)
        })?;
        let port = self.vip_port(&balancer).await?;
        Ok(BalancedVip {
            ip,
            mac: port.and_then(|port| port.mac),
            endpoint: None,
        })
    }

    /// The port of a load balancer's VIP, if this user can see it.
    async fn vip_port(&self, balancer: &Value) -> Result<Option<Port>, BackendError> {
        let path = format!("/ports/{}", text(balancer, "vip_port_id"));
        let found = self.session.find(NEUTRON, &path).await?;
        Ok(found.map(|port| Port::read(&port["port"])))
    }

    /// The VIPs of the cluster's load balancers.
    pub(super) async fn balanced_vips(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
        let mut found = Vec::new();
        for balancer in self.balancers_of(cluster).await? {
            let named = |vip: &Vip| balancer["name"] == cluster.domain().fqdn(NodeName::vip(*vip).as_str());
            let vip = Vip::ALL.into_iter().find(named).map(NodeName::vip);
            let mac = self.vip_port(&balancer).await?.and_then(|port| port.mac);
            let assignment = vip.zip(mac).zip(address(&balancer));
            found.extend(assignment.map(|((name, mac), ip)| AddressAssignment { name, mac, ip }));
        }
        Ok(found)
    }

    /// The load balancer that has the VIP, unless it must be created.
    async fn usable_balancer(&self, wanted: &LoadBalancer) -> Result<Option<Value>, BackendError> {
        let Some(balancer) = self.balancer_of(&wanted.cluster, wanted.vip, wanted.ip).await? else {
            return Ok(None);
        };
        let (name, status) = (text(&balancer, "name"), text(&balancer, "provisioning_status"));
        let is_empty = ["listeners", "pools"]
            .iter()
            .all(|parts| balancer[parts].as_array().is_none_or(Vec::is_empty));
        match status {
            "PENDING_DELETE" => {}
            // Its creation failed, so it never served requests. Members of a project cannot repair it, only delete it.
            "ERROR" if is_empty => {
                warn!("load balancer {name} has provisioning_status ERROR: it is deleted and created again");
            }
            _ => return Ok(Some(balancer)),
        }
        self.delete_balancer(text(&balancer, "id")).await?;
        Ok(None)
    }

    /// The cluster's load balancer with the VIP: by its name, or by its address if both VIPs have the same.
    pub(super) async fn balancer_of(
        &self,
        cluster: &ClusterId,
        vip: Vip,
        ip: Option<IpAddr>,
    ) -> Result<Option<Value>, BackendError> {
        let name = cluster.domain().fqdn(NodeName::vip(vip).as_str());
        let mut all = self.balancers_of(cluster).await?;
        let of_ip = |balancer: &Value| ip.is_some() && address(balancer) == ip;
        let Some(at) = all
            .iter()
            .position(|balancer| balancer["name"] == name.as_str())
            .or_else(|| all.iter().position(of_ip))
        else {
            return Ok(None);
        };
        let balancer = all.swap_remove(at);
        if let Some(ip) = ip.filter(|_| !of_ip(&balancer)) {
            let there = text(&balancer, "vip_address");
            let message = format!("load balancer {name} has {there}, not {ip}");
            return Err(BackendError::new(BackendErrorKind::Conflict, message));
        }
        Ok(Some(balancer))
    }

    async fn create_balancer(&self, wanted: &LoadBalancer, subnet: &Subnet) -> Result<Value, BackendError> {
        let provider = self
            .config
            .balancers
            .as_ref()
            .and_then(|settings| settings.provider.as_deref());
        let body = wire::balancer(wanted, &subnet.id, provider);
        info!("creating load balancer {}", wire::balancer_name(wanted));
        let path = format!("{LBAAS}/loadbalancers");
        let created = self.session.post(OCTAVIA, &path, &body).await.map_err(with_role_hint)?;
        Ok(created["loadbalancer"].clone())
    }

    /// Creates or changes the listener, pool, members and health monitor of one port.
    async fn ensure_port(
        &self,
        wanted: &LoadBalancer,
        balancer: &Value,
        members: &[AddressAssignment],
        (port, listener): (u16, Option<&Value>),
        subnet: &Subnet,
    ) -> Result<(), BackendError> {
        let id = text(balancer, "id");
        let us = self.our_addresses(Some(&wanted.cluster), Some(subnet)).await?;
        let near = near(Some(subnet.cidr.into()), us.into_iter().filter(IpAddr::is_ipv4));
        let cidrs = wire::allowed_cidrs(balancer, port, &near);
        let listener = match listener {
            Some(listener) => listener.clone(),
            None => {
                let body = wire::listener(wanted, balancer, port, &cidrs);
                let created = self.create_part(id, "listeners", &body).await;
                part(
                    created.map_err(|failure| with_provider_hint(failure, balancer, port))?,
                    "/listener",
                )
            }
        };
        let listener_path = format!("{LBAAS}/listeners/{}", text(&listener, "id"));
        if !wire::has_cidrs(&listener, &cidrs) {
            let body = json!({"listener": {"allowed_cidrs": cidrs}});
            self.change_part(id, &listener_path, &body).await?;
        }
        let pool = match listener["default_pool_id"].as_str() {
            Some(pool) => part(
                self.session.get(OCTAVIA, &format!("{LBAAS}/pools/{pool}")).await?,
                "/pool",
            ),
            None => {
                let body = wire::pool(wanted, balancer, text(&listener, "id"), port);
                part(self.create_part(id, "pools", &body).await?, "/pool")
            }
        };
        let pool_id = text(&pool, "id");
        let path = format!("{LBAAS}/pools/{pool_id}/members");
        let there = self.session.list(OCTAVIA, &path, "members").await?;
        let members = wire::members(wanted, balancer, members, port, (&subnet.id, subnet.cidr));
        if !wire::has_members(&there, &members) {
            // Without `additive_only` other members are deleted (openstack/octavia: `octavia/api/v2/controllers/member.py`).
            self.change_part(id, &path, &json!({"members": members})).await?;
        }
        if wanted.checked && pool["healthmonitor_id"].is_null() {
            let body = wire::monitor(wanted, balancer, pool_id, port);
            self.create_part(id, "healthmonitors", &body).await?;
        }
        Ok(())
    }

    /// The listeners of a load balancer, one request each, because filters by load balancer differ between releases.
    async fn listeners_of(&self, balancer: &Value) -> Result<Vec<Value>, BackendError> {
        let mut listeners = Vec::new();
        for listener in balancer["listeners"].as_array().into_iter().flatten() {
            let path = format!("{LBAAS}/listeners/{}", text(listener, "id"));
            let found = self.session.find(OCTAVIA, &path).await?;
            listeners.extend(found.map(|answer| part(answer, "/listener")));
        }
        Ok(listeners)
    }

    async fn create_part(&self, balancer: &str, kind: &str, body: &Value) -> Result<Value, BackendError> {
        let path = format!("{LBAAS}/{kind}");
        self.when_active(balancer, async || self.session.post(OCTAVIA, &path, body).await)
            .await
    }

    async fn change_part(&self, balancer: &str, path: &str, body: &Value) -> Result<(), BackendError> {
        let changed = self.when_active(balancer, async || self.session.put(OCTAVIA, path, body).await);
        changed.await.map(drop)
    }

    /// Sends a request when the load balancer accepts changes.
    async fn when_active(
        &self,
        balancer: &str,
        request: impl AsyncFn() -> Result<Value, BackendError>,
    ) -> Result<Value, BackendError> {
        let begun = Instant::now();
        loop {
            self.active_balancer(balancer).await?;
            match request().await {
                Err(failure) if is_busy(&failure) && begun.elapsed() < CHANGE_TIMEOUT => sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    /// Waits until the load balancer has completed its last change, and returns it.
    async fn active_balancer(&self, id: &str) -> Result<Value, BackendError> {
        let path = format!("{LBAAS}/loadbalancers/{id}");
        let begun = Instant::now();
        loop {
            let balancer = part(self.session.get(OCTAVIA, &path).await?, "/loadbalancer");
            let (name, status) = (text(&balancer, "name"), text(&balancer, "provisioning_status"));
            match status {
                "ACTIVE" => return Ok(balancer),
                "ERROR" => return Err(self.failed_balancer(&balancer).await),
                _ if begun.elapsed() > CHANGE_TIMEOUT => {
                    let message = format!("load balancer {name} is still {status}");
                    return Err(BackendError::new(BackendErrorKind::Timeout, message)
                        .hint("ask the administrator of the cloud to check the load balancer service (Octavia)"));
                }
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// The error of a load balancer with status ERROR.
    async fn failed_balancer(&self, balancer: &Value) -> BackendError {
        let (id, name) = (text(balancer, "id"), text(balancer, "name"));
        let statuses = self
            .session
            .get(OCTAVIA, &format!("{LBAAS}/loadbalancers/{id}/status"))
            .await;
        let parts = statuses
            .map(|statuses| wire::failed_parts(&statuses))
            .unwrap_or_default();
        let parts = match parts.is_empty() {
            true => String::new(),
            false => format!(", and so have {}", Vec::from_iter(parts).join(", ")),
        };
        let message = format!("load balancer {name} has provisioning_status ERROR{parts}");
        let failure = BackendError::new(BackendErrorKind::Rejected, message);
        match balancer["listeners"].as_array().is_none_or(Vec::is_empty) {
            true => failure.hint(
                "run the same command again, which creates the load balancer again; Octavia gives no reason: its \
                 administrator finds it in the log of octavia-worker",
            ),
            // Only administrators may fail over (openstack/octavia: `octavia/policies/loadbalancer.py`).
            false => failure.hint(format!(
                "let an administrator repair it with `openstack loadbalancer failover {id}`, or delete it with \
                 `openstack loadbalancer delete --cascade {id}`; then run the same command again"
            )),
        }
    }

    /// The cluster's load balancers. Each is compared with the tags.
    pub(super) async fn balancers_of(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        let tags = format!("{TAG},{}", cluster.tag());
        let path = query(&format!("{LBAAS}/loadbalancers"), &[("tags", &tags)]);
        self.balancers(&path, &[TAG, cluster.tag()]).await
    }

    /// The load balancers of all clusters.
    pub(super) async fn balancers_of_any(&self) -> Result<Vec<Value>, BackendError> {
        let path = query(&format!("{LBAAS}/loadbalancers"), &[("tags", TAG)]);
        self.balancers(&path, &[TAG]).await
    }

    async fn balancers(&self, path: &str, tags: &[&str]) -> Result<Vec<Value>, BackendError> {
        let is_tagged = |balancer: &Value| has_tags(balancer, tags);
        let listed = self.session.list_own(OCTAVIA, path, "loadbalancers", is_tagged);
        let listed = self.if_used(OCTAVIA, listed).await.map_err(with_role_hint)?;
        Ok(listed.unwrap_or_default())
    }

    /// Deletes the cluster's load balancers with all of their parts and ports, and waits until they are deleted.
    pub(super) async fn delete_balancers(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let all = self.balancers_of(cluster).await?;
        let ids: Vec<_> = all.iter().map(|balancer| text(balancer, "id")).collect();
        try_join_all(ids.into_iter().map(|id| self.delete_balancer(id))).await?;
        Ok(())
    }

    async fn delete_balancer(&self, id: &str) -> Result<(), BackendError> {
        let path = format!("{LBAAS}/loadbalancers/{id}");
        let begun = Instant::now();
        let mut requested = 0;
        while let Some(answer) = self.session.find(OCTAVIA, &path).await? {
            let balancer = &answer["loadbalancer"];
            let (name, status) = (text(balancer, "name"), text(balancer, "provisioning_status"));
            if status == "DELETED" {
                break;
            }
            if begun.elapsed() > CHANGE_TIMEOUT || requested == DELETIONS && status == "ERROR" {
                let message = format!("load balancer {name} cannot be deleted: its provisioning_status is {status}");
                return Err(BackendError::new(BackendErrorKind::Timeout, message).hint(format!(
                    "let the administrator of the cloud delete it: `openstack loadbalancer delete --cascade {id}`"
                )));
            }
            if matches!(status, "ACTIVE" | "ERROR") && requested < DELETIONS {
                match self.session.delete(OCTAVIA, &format!("{path}?cascade=true")).await {
                    Err(failure) if is_busy(&failure) => {}
                    deleted => requested += u32::from(deleted?),
                }
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// The address of a load balancer.
pub(super) fn address(balancer: &Value) -> Option<IpAddr> {
    text(balancer, "vip_address").parse().ok()
}

/// Whether Octavia rejected a request because the load balancer performs another change.
fn is_busy(failure: &BackendError) -> bool {
    failure.code == Some(409)
        && ["immutable", "Invalid state"]
            .iter()
            .any(|part| failure.message.contains(part))
}

/// Adds a hint if Octavia's policy denies a request.
pub(super) fn with_role_hint(failure: BackendError) -> BackendError {
    match failure.kind {
        BackendErrorKind::Denied => failure.hint(
            "ask the administrator of the cloud for the role load-balancer_member in this project, or set lb=keepalived",
        ),
        _ => failure,
    }
}

/// Adds a hint if the provider cannot restrict a port.
fn with_provider_hint(failure: BackendError, balancer: &Value, port: u16) -> BackendError {
    match failure.code {
        // openstack/octavia: `octavia/common/exceptions.py`, `ProviderUnsupportedOptionError`.
        Some(501) => failure.hint(format!(
            "provider {} cannot restrict port {port}, which serves secrets, to the machine network: set \
             os_lb_provider=amphora or os_lb_provider=ovn, or lb=keepalived",
            text(balancer, "provider")
        )),
        _ => failure,
    }
}
