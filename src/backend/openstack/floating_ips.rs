//! Floating IPs of the VIPs.

use serde_json::{Value, json};
use tracing::info;

use super::auth::Service::Network as NEUTRON;
use super::cloud::OpenStack;
use super::wire::{tag_text, text};
use crate::backend::ownership::conflict;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::{ClusterId, Vip};

impl OpenStack {
    /// Assigns the configured floating IP to a VIP.
    pub(super) async fn assign_floating_ip(
        &self,
        cluster: &ClusterId,
        vip: Vip,
        port: &str,
    ) -> Result<(), BackendError> {
        let given = match vip {
            Vip::Api => self.config.api_floating_ip,
            Vip::Ingress => self.config.ingress_floating_ip,
        };
        if given.is_none() && self.config.external_network.is_none() {
            return Ok(());
        }
        let on_port = self.floating_ips(&[("port_id", port)]).await?;
        if let Some(there) = on_port.first() {
            info!("floating IP of {vip}: {}", text(there, "floating_ip_address"));
            return Ok(());
        }
        let address = match (given, &self.config.external_network) {
            (Some(ip), _) => {
                let found = self
                    .floating_ips(&[("floating_ip_address", &ip.to_string())])
                    .await?
                    .into_iter()
                    .next();
                let found = found.ok_or_else(|| {
                    BackendError::new(BackendErrorKind::NotFound, format!("floating IP {ip} does not exist in this project"))
                        .hint("create one with `openstack floating ip create NETWORK`, or remove this setting and set os_external_network")
                })?;
                if !text(&found, "port_id").is_empty() {
                    return Err(conflict(format!("floating IP {ip} is in use by another port")));
                }
                let path = format!("/floatingips/{}", text(&found, "id"));
                self.session
                    .put(NEUTRON, &path, &json!({"floatingip": {"port_id": port}}))
                    .await?
            }
            (None, Some(external)) => {
                let network = self.network(external).await?;
                let floating = json!({"floatingip": {
                    "floating_network_id": network.id,
                    "port_id": port,
                    "description": tag_text(cluster),
                }});
                self.session.post(NEUTRON, "/floatingips", &floating).await?
            }
            (None, None) => return Ok(()),
        };
        info!(
            "floating IP of {vip}: {}",
            text(&address["floatingip"], "floating_ip_address")
        );
        Ok(())
    }

    /// The floating IPs of this project.
    pub(super) async fn floating_ips(&self, filter: &[(&str, &str)]) -> Result<Vec<Value>, BackendError> {
        self.session
            .list_own_where(NEUTRON, "/floatingips", filter, "floatingips")
            .await
    }

    /// Deletes floating IPs that were created for this cluster, all or those of one port. Others are kept.
    pub(super) async fn delete_floating_ips(
        &self,
        cluster: &ClusterId,
        port: Option<&str>,
    ) -> Result<(), BackendError> {
        let tag = tag_text(cluster);
        let mut filter = vec![("description", tag.as_str())];
        filter.extend(port.map(|port| ("port_id", port)));
        for floating in self.floating_ips(&filter).await? {
            self.session
                .delete(NEUTRON, &format!("/floatingips/{}", text(&floating, "id")))
                .await?;
        }
        Ok(())
    }
}
