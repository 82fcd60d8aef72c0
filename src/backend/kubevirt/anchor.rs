//! The object that owns all other objects of a cluster.

use serde_json::Value;

use super::kind::Kind;
use super::labels;
use super::session::Session;
use super::{look, objects};
use crate::backend::BackendError;
use crate::cluster::ClusterId;

/// Returns the anchor of a cluster; creates it if it does not exist.
pub(super) async fn anchor(session: &Session, cluster: &ClusterId) -> Result<Value, BackendError> {
    let name = objects::anchor_name(cluster);
    match session.get(Kind::ConfigMap, &name).await? {
        Some(there) if labels::owner(&there).as_ref() == Some(cluster) && !look::is_going(&there) => Ok(there),
        _ => session.put(Kind::ConfigMap, cluster, &objects::anchor(cluster)).await,
    }
}
