//! Floating IPs of the VIPs.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use tracing::info;

use super::auth::Service::Network as NEUTRON;
use super::cloud::OpenStack;
use super::network::NeutronNetwork;
use super::wire::{tag_text, text, vip_tag};
use crate::backend::ownership::conflict;
use crate::backend::response::part;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::{ClusterId, ExternalVips, Vip};

impl OpenStack {
    /// The existing floating IP that the settings give to a VIP.
    fn given_floating_ip(&self, vip: Vip) -> Option<Ipv4Addr> {
        match vip {
            Vip::Api => self.config.api_floating_ip,
            Vip::Ingress => self.config.ingress_floating_ip,
        }
    }

    /// Rejects a floating IP that would expose more than API and ingress: without port security, no security group
    /// filters packets.
    pub(super) fn refuse_exposure(&self, vip: Vip, network: &NeutronNetwork) -> Result<(), BackendError> {
        let is_wanted = self.config.external_network.is_some() || self.given_floating_ip(vip).is_some();
        if !is_wanted || network.port_security {
            return Ok(());
        }
        let exposed = match (&self.config.balancers, vip) {
            // Everything that is sent to the floating IP reaches the node that has the VIP.
            (None, _) => "SSH, kubelet, etcd and the machine config server of nodes",
            (Some(_), Vip::Api) => "the machine config server",
            (Some(_), Vip::Ingress) => return Ok(()),
        };
        let name = &network.name;
        let message = format!("network {name} has no port security: a floating IP would expose {exposed} to everyone");
        Err(BackendError::new(BackendErrorKind::Rejected, message).hint(
            "use a network with port security, or remove os_external_network, os_api_floating_ip and \
             os_ingress_floating_ip",
        ))
    }

    /// The addresses of the floating IPs of these VIPs.
    pub(super) async fn floating_ips_of_vips(
        &self,
        cluster: &ClusterId,
        vips: &[Vip],
        create: bool,
    ) -> Result<ExternalVips, BackendError> {
        let mut external = ExternalVips::default();
        for vip in vips {
            let found = self.floating_ip_of(cluster, *vip, create).await?;
            let ip = found.and_then(|floating| text(&floating, "floating_ip_address").parse().ok());
            match vip {
                Vip::Api => external.api = ip,
                Vip::Ingress => external.ingress = ip,
            }
        }
        Ok(external)
    }

    /// The floating IP of a VIP: the existing one of the settings, or one that is created for it.
    async fn floating_ip_of(&self, cluster: &ClusterId, vip: Vip, create: bool) -> Result<Option<Value>, BackendError> {
        if let Some(ip) = self.given_floating_ip(vip) {
            let there = self.floating_ips(&[("floating_ip_address", &ip.to_string())]).await?;
            return match there.into_iter().next() {
                None if create => {
                    let message = format!("floating IP {ip} does not exist in this project");
                    Err(BackendError::new(BackendErrorKind::NotFound, message).hint(
                        "create one with `openstack floating ip create NETWORK`, or remove this setting and set \
                         os_external_network",
                    ))
                }
                there => Ok(there),
            };
        }
        let Some(external) = &self.config.external_network else {
            return Ok(None);
        };
        let tag = vip_tag(cluster, vip);
        let there = self.floating_ips(&[("description", &tag)]).await?.into_iter().next();
        if there.is_some() || !create {
            return Ok(there);
        }
        let network = self.network(external).await?;
        let floating = json!({"floatingip": {"floating_network_id": network.id, "description": tag}});
        let created = self.session.post(NEUTRON, "/floatingips", &floating).await?;
        Ok(Some(part(created, "/floatingip")))
    }

    /// Assigns its floating IP to a VIP, if it has one.
    pub(super) async fn assign_floating_ip(
        &self,
        cluster: &ClusterId,
        vip: Vip,
        port: &str,
    ) -> Result<(), BackendError> {
        if self.given_floating_ip(vip).is_none() && self.config.external_network.is_none() {
            return Ok(());
        }
        let on_port = self.floating_ips(&[("port_id", port)]).await?.into_iter().next();
        let floating = match on_port {
            Some(there) => Some(there),
            None => self.floating_ip_of(cluster, vip, true).await?,
        };
        let Some(floating) = floating else { return Ok(()) };
        let (ip, user) = (text(&floating, "floating_ip_address"), text(&floating, "port_id"));
        if !user.is_empty() && user != port {
            return Err(conflict(format!("floating IP {ip} is in use by port {user}")));
        }
        if user.is_empty() {
            let path = format!("/floatingips/{}", text(&floating, "id"));
            let body = json!({"floatingip": {"port_id": port}});
            self.session.put(NEUTRON, &path, &body).await?;
        }
        info!("floating IP of {vip}: {ip}");
        Ok(())
    }

    /// The floating IPs of this project.
    pub(super) async fn floating_ips(&self, filter: &[(&str, &str)]) -> Result<Vec<Value>, BackendError> {
        self.session
            .list_own_where(NEUTRON, "/floatingips", filter, "floatingips")
            .await
    }

    /// The floating IPs that were created for the cluster.
    pub(super) async fn floating_ips_of(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        let [api, ingress] = Vip::ALL.map(|vip| vip_tag(cluster, vip));
        let tags = [tag_text(cluster), api, ingress];
        self.floating_ips(&tags.each_ref().map(|tag| ("description", tag.as_str())))
            .await
    }

    /// Deletes floating IPs that were created for this cluster, all or those of one port. Others are kept.
    pub(super) async fn delete_floating_ips(
        &self,
        cluster: &ClusterId,
        port: Option<&str>,
    ) -> Result<(), BackendError> {
        for floating in self.floating_ips_of(cluster).await? {
            if port.is_none_or(|port| text(&floating, "port_id") == port) {
                let path = format!("/floatingips/{}", text(&floating, "id"));
                self.session.delete(NEUTRON, &path).await?;
            }
        }
        Ok(())
    }
}
