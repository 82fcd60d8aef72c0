//! Creates and deletes the namespace; on OpenShift a project, if users may create one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use super::contents::Contents;
use super::kind::Kind;
use super::labels;
use super::session::{Session, if_allowed};
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind};

/// Marks a namespace that was created by this program and is deleted with its last cluster.
const MARK: &str = "ocpdeploy.namespace";
/// The uid of the marked namespace, because another namespace may have a copy of the mark.
const UID: &str = "uid";
/// The largest number of objects that a message names.
const MOST_NAMES: usize = 12;
/// How long a controller may take to grant the user rights in a new project.
const RIGHTS: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(200);

/// How this user can create a namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Namespace,
    Project,
}

pub(super) async fn way(session: &Session) -> Result<Option<Way>, BackendError> {
    if session.may("create", "", "namespaces", None).await? {
        return Ok(Some(Way::Namespace));
    }
    let project = session
        .may("create", "project.openshift.io", "projectrequests", None)
        .await?;
    Ok(project.then_some(Way::Project))
}

/// Whether the namespace exists; if it cannot be read, whether this user may write in it.
pub(super) async fn is_there(session: &Session) -> Result<bool, BackendError> {
    let path = format!("/api/v1/namespaces/{}", session.namespace);
    match if_allowed(if_exists(session.read(&path).await))? {
        Some(found) => Ok(found.is_some_and(|found| found["status"]["phase"] != "Terminating")),
        None => session.may("create", "", "configmaps", Some(&session.namespace)).await,
    }
}

/// Creates the namespace if it does not exist.
pub(super) async fn make(session: &Session) -> Result<(), BackendError> {
    let name = session.namespace.as_str();
    // An error is ignored: OpenShift sends the same response for a missing project and for another user's project.
    let known = session.get(Kind::ConfigMap, MARK).await;
    if matches!(&known, Ok(Some(_))) {
        return Ok(());
    }
    let named = json!({"name": name});
    let made = match way(session).await? {
        Some(Way::Namespace) => {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": named});
            session.ask("/api/v1/namespaces", &object).await
        }
        Some(Way::Project) => {
            let object = json!({"apiVersion": "project.openshift.io/v1", "kind": "ProjectRequest", "metadata": named});
            session
                .ask("/apis/project.openshift.io/v1/projectrequests", &object)
                .await
        }
        // This user cannot create a namespace, so it must already exist.
        None => return Ok(()),
    };
    let uid = match made {
        Ok(made) => made["metadata"]["uid"].clone(),
        // This program did not create it: it is used, and never deleted.
        Err(failure) if failure.code == Some(409) => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let mark = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": MARK},
        "data": {"about": "`ocpdeploy destroy` removes this namespace with the last cluster in it", UID: uid},
    });
    let begun = Instant::now();
    loop {
        match session.create(Kind::ConfigMap, &mark).await {
            Err(failure) if failure.code == Some(403) && begun.elapsed() < RIGHTS => tokio::time::sleep(LOOK).await,
            Err(failure) if failure.code == Some(409) => return Ok(()),
            other => return other.map(drop),
        }
    }
}

/// Deletes the namespace if this program created it and nothing else is in it.
///
/// An object that is created between the listing of its kind and the deletion is deleted with the namespace.
pub(super) async fn leave(session: &Session) -> Result<(), BackendError> {
    let name = session.namespace.as_str();
    let core = format!("/api/v1/namespaces/{name}");
    let Some(mark) = if_allowed(session.get(Kind::ConfigMap, MARK).await)?.flatten() else {
        return Ok(());
    };
    // The namespace that this program created, not another one to which the mark was copied.
    let there = if_allowed(if_exists(session.read(&core).await))?.flatten();
    let Some(there) =
        there.filter(|there| mark["data"][UID].is_string() && mark["data"][UID] == there["metadata"]["uid"])
    else {
        return Ok(());
    };
    if !session.list(Kind::ConfigMap, labels::CLUSTER).await?.is_empty() {
        return Ok(());
    }
    let contents = Contents::of(session, &there, |object| {
        object["metadata"]["uid"] == mark["metadata"]["uid"]
    })
    .await?;
    let reasons = [
        ("it has", &contents.objects),
        ("this user cannot list", &contents.unknown),
    ];
    let reasons: Vec<_> = reasons
        .into_iter()
        .filter(|(_, found)| !found.is_empty())
        .map(|(words, found)| format!("{words} {}", some_of(found)))
        .collect();
    if !reasons.is_empty() {
        tracing::warn!("namespace {name} is not deleted: {}", reasons.join("; "));
        return Ok(());
    }
    // A project passes the preconditions on to its namespace, which compares them (openshift/openshift-apiserver:
    // pkg/project/apiserver/registry/project/proxy/proxy.go; kubernetes/kubernetes:
    // pkg/registry/core/namespace/storage/storage.go).
    for path in [core, format!("/apis/project.openshift.io/v1/projects/{name}")] {
        match session.delete_unchanged(&path, &there).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                tracing::warn!("namespace {name} was deleted or changed by another client and is not deleted here");
                return Ok(());
            }
            Err(failure) if failure.code == Some(403) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(BackendError::new(
        BackendErrorKind::Denied,
        format!("this user created namespace {name}, but may not delete it"),
    ))
}

/// The first names of a list.
fn some_of(names: &BTreeSet<String>) -> String {
    let first: Vec<&str> = names.iter().take(MOST_NAMES).map(String::as_str).collect();
    match names.len().saturating_sub(first.len()) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
