//! Nova's description of a machine.

use serde_json::Value;

use super::cloud::OpenStack;
use super::wire;
use crate::backend::{BackendError, Description, Form};
use crate::cluster::{ClusterId, MachineName};

/// Fields about placement: our name and Nova's.
const SCHEDULING: [(&str, &str); 2] = [("zone", "OS-EXT-AZ:availability_zone"), ("host id", "hostId")];

/// Fields about the present state.
const DYNAMIC: [(&str, &str); 5] = [
    ("status", "status"),
    ("task", "OS-EXT-STS:task_state"),
    ("id", "id"),
    // Only for administrators.
    ("host", "OS-EXT-SRV-ATTR:host"),
    ("instance", "OS-EXT-SRV-ATTR:instance_name"),
];

impl OpenStack {
    pub(super) async fn describe(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        let server = self.existing(cluster, name).await?;
        let mut described = Description::default();
        let text = |path: &Value| path.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        for (message, map) in [
            (&SCHEDULING[..], &mut described.scheduling),
            (&DYNAMIC[..], &mut described.dynamic),
        ] {
            map.extend(
                message
                    .iter()
                    .filter_map(|(ours, novas)| Some(((*ours).to_owned(), text(&server[*novas])?.into()))),
            );
        }
        let scheduling = &mut described.scheduling;
        scheduling.extend(text(&server["flavor"]["original_name"]).map(|name| ("flavor".to_owned(), name.into())));
        let groups = self.server_groups(cluster).await?;
        let is_member = |group: &&Value| {
            let mut members = group["members"].as_array().into_iter().flatten();
            members.any(|member| *member == server["id"])
        };
        if let Some(group) = groups.iter().find(is_member) {
            let (name, policy) = (wire::text(group, "name"), wire::text(group, "policy"));
            scheduling.insert("affinity".to_owned(), format!("{policy} ({name})").into());
        }
        described.form = Some(Form {
            name: "Nova JSON",
            text: format!("{:#}", wire::without_payload(server)),
        });
        Ok(described)
    }
}
