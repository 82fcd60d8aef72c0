//! Server groups, which place masters, and workers, on different hosts.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::auth::Service::Compute as NOVA;
use super::cloud::OpenStack;
use super::wire::{self, text};
use crate::backend::response::part;
use crate::backend::{BackendError, MachineSpec};
use crate::cluster::{Affinity, ClusterId};

/// How long to wait for the host of a server before the next server of its group is created, and the pause between two
/// queries.
const HOST_TIMEOUT: Duration = Duration::from_secs(60);
const HOST_PAUSE: Duration = Duration::from_millis(250);
/// The default limit of Nova for the members of a server group.
const MEMBERS: i64 = 10;
impl OpenStack {
    /// The server group of a machine, according to the affinity setting.
    pub(super) async fn server_group(&self, spec: &MachineSpec) -> Result<Option<String>, BackendError> {
        let policy = match self.config.affinity {
            Affinity::Soft => "soft-anti-affinity",
            Affinity::Hard => "anti-affinity",
            Affinity::Off => return Ok(None),
        };
        let most = self.absolute_limits().await?["maxServerGroupMembers"]
            .as_i64()
            .unwrap_or(MEMBERS);
        let members = usize::try_from(most).unwrap_or(usize::MAX);
        let Some(name) = wire::group_name(spec, members) else {
            return Ok(None);
        };
        let _exclusive = self.groups.lock().await;
        let there = self.server_groups(&spec.cluster).await?;
        if let Some(group) = there.iter().find(|group| group["name"] == name.as_str()) {
            return Ok(Some(text(group, "id").to_owned()));
        }
        let body = json!({"server_group": {"name": name, "policy": policy}});
        let created = self.session.post(NOVA, "/os-server-groups", &body).await?;
        Ok(Some(text(&created["server_group"], "id").to_owned()))
    }

    pub(super) async fn server_groups(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        let mut groups = self.all_server_groups().await?;
        groups.retain(|group| wire::group_of(text(group, "name")).as_ref() == Some(cluster));
        Ok(groups)
    }

    /// All server groups of the project.
    pub(super) async fn all_server_groups(&self) -> Result<Vec<Value>, BackendError> {
        self.session
            .list_own(NOVA, "/os-server-groups", "server_groups", |_| true)
            .await
    }

    /// Deletes server groups without members.
    pub(super) async fn delete_server_groups(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        for group in self.server_groups(cluster).await? {
            if group["members"].as_array().is_none_or(Vec::is_empty) {
                let path = format!("/os-server-groups/{}", text(&group, "id"));
                self.session.delete(NOVA, &path).await?;
            }
        }
        Ok(())
    }

    /// Waits until a server has a host or has failed, at most for `HOST_TIMEOUT`, because soft affinity is optional.
    pub(super) async fn wait_for_host(&self, id: &str) -> Result<(), BackendError> {
        let begun = Instant::now();
        while begun.elapsed() < HOST_TIMEOUT {
            let found = self.session.find(NOVA, &format!("/servers/{id}")).await?;
            let Some(server) = found.map(|answer| part(answer, "/server")) else {
                break;
            };
            if !text(&server, "hostId").is_empty() || text(&server, "status") != "BUILD" {
                break;
            }
            sleep(HOST_PAUSE).await;
        }
        Ok(())
    }
}
