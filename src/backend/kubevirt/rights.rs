//! The rights of the user.

use serde_json::json;

use super::session::Session;
use crate::backend::BackendError;

/// Asks the server whether this user may do something.
pub(super) async fn may(
    session: &Session,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<bool, BackendError> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": namespace.unwrap_or(""),
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
        }},
    });
    let answer = session
        .ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &question)
        .await?;
    Ok(answer["status"]["allowed"] == true)
}
