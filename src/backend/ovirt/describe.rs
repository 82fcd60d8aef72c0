//! The description of a machine by the engine.

use super::affinity;
use super::engine::Ovirt;
use super::wire;
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind, Description, Form};
use crate::cluster::{ClusterId, MachineName};
use crate::xml::Element;

impl Ovirt {
    pub(super) async fn describe(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        let (id, status) = self.known(cluster, name).await?;
        let vm = self.session.get(&format!("/vms/{id}"), &[]).await?;
        let mut described = Description::default();
        let scheduling = &mut described.scheduling;
        scheduling.insert("cluster".to_owned(), self.config.cluster.as_str().into());
        if let Some(group) = affinity::of(self, self.site().await?, cluster, &id).await? {
            scheduling.insert("affinity".to_owned(), group.into());
        }
        if let Some(label) = &self.config.worker_label
            && let Some(label) = affinity::label_of(self, label, &id).await?
        {
            scheduling.insert("label".to_owned(), label.into());
        }
        if let Some(migration) = vm.text_of("placement_policy/affinity") {
            scheduling.insert("placement".to_owned(), migration.into());
        }
        let mut pinned = Vec::new();
        for host in vm.all("placement_policy/hosts/host") {
            pinned.push(self.host_name(host).await?);
        }
        if !pinned.is_empty() {
            scheduling.insert("hosts".to_owned(), pinned.into());
        }
        described.dynamic.insert("status".to_owned(), status.into());
        if let Some(host) = vm.find("host") {
            described
                .dynamic
                .insert("host".to_owned(), self.host_name(host).await?.into());
        }
        for (key, path) in [("stopped_because", "stop_reason"), ("fqdn", "fqdn")] {
            if let Some(text) = vm.text_of(path).filter(|text| !text.is_empty()) {
                described.dynamic.insert(key.to_owned(), text.into());
            }
        }
        described.form = Some(Form {
            name: "oVirt XML",
            text: wire::without_payload(&vm).to_string(),
        });
        Ok(described)
    }

    /// Its id if this user may not read hosts.
    async fn host_name(&self, host: &Element) -> Result<String, BackendError> {
        let id = host.get("id").unwrap_or_default();
        let shown = match if_exists(self.session.get(&format!("/hosts/{id}"), &[]).await) {
            Err(failure) if failure.kind == BackendErrorKind::Denied => None,
            shown => shown?,
        };
        Ok(shown
            .as_ref()
            .and_then(|host| host.text_of("name"))
            .unwrap_or(id)
            .to_owned())
    }
}
