//! Creates and deletes the namespace; on OpenShift a project, if users may create one.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::kind::Kind;
use super::labels;
use super::look::is_going;
use super::rights::may;
use super::session::{Session, if_allowed, if_there};
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;

/// Marks a namespace that was created by this program and is deleted with its last cluster.
const MARK: &str = "ocpdeploy.namespace";
/// The label of a machine's pod (kubevirt/kubevirt: staging/src/kubevirt.io/api/core/v1/types.go: AppLabel).
const APP: &str = "kubevirt.io";
/// The time until a controller has granted the rights in a new project to its user.
const RIGHTS: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(200);

/// How this user can create a namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Namespace,
    Project,
}

pub(super) async fn way(session: &Session) -> Result<Option<Way>, Failure> {
    if may(session, "create", "", "namespaces", None).await? {
        return Ok(Some(Way::Namespace));
    }
    let project = may(session, "create", "project.openshift.io", "projectrequests", None).await?;
    Ok(project.then_some(Way::Project))
}

/// Whether the namespace exists; if it cannot be read, whether this user may write in it.
pub(super) async fn is_there(session: &Session) -> Result<bool, Failure> {
    let path = format!("/api/v1/namespaces/{}", session.namespace);
    match if_allowed(if_there(session.read(&path).await))? {
        Some(found) => Ok(found.is_some_and(|found| found["status"]["phase"] != "Terminating")),
        None => may(session, "create", "", "configmaps", Some(&session.namespace)).await,
    }
}

/// Creates the namespace if it does not exist.
pub(super) async fn make(session: &Session) -> Result<(), Failure> {
    let name = session.namespace.as_str();
    // A user of projects gets the same response for a missing project and for one of another user.
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
        // Then it must exist.
        None => return Ok(()),
    };
    match made {
        Ok(_) => {}
        // Not created by this program: it is used and kept.
        Err(failure) if failure.code == Some(409) => return Ok(()),
        Err(failure) => return Err(failure),
    }
    let mark = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": MARK},
        "data": {"about": "`ocpdeploy destroy` removes this namespace with the last cluster in it"},
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

/// Deletes the namespace if this program created it and it has no cluster, machines, volumes, pods or Services.
pub(super) async fn leave(session: &Session) -> Result<(), Failure> {
    if if_allowed(session.get(Kind::ConfigMap, MARK).await)?
        .flatten()
        .is_none()
    {
        return Ok(());
    }
    for (kind, selector) in [
        (Kind::Machine, ""),
        (Kind::DataVolume, ""),
        (Kind::ConfigMap, labels::CLUSTER),
    ] {
        if !session.list(kind, selector).await?.is_empty() {
            return Ok(());
        }
    }
    for kind in [Kind::Claim, Kind::Pod, Kind::Service] {
        // Pods and claims of deleted machines are deleted by their controllers.
        let stays = |object: &Value| !is_going(object) && labels::label(object, APP) != Some("virt-launcher");
        match if_allowed(session.list(kind, "").await)? {
            Some(there) if !there.iter().any(stays) => {}
            _ => return Ok(()),
        }
    }
    let name = session.namespace.as_str();
    let paths = [
        format!("/api/v1/namespaces/{name}"),
        format!("/apis/project.openshift.io/v1/projects/{name}"),
    ];
    for path in paths {
        match session
            .call(Method::DELETE, &path, "application/json", None::<&Value>)
            .await
        {
            Ok(_) => return Ok(()),
            Err(failure) if matches!(failure.code, Some(404 | 409)) => return Ok(()),
            Err(failure) if failure.code == Some(403) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::new(
        BackendErrorKind::Denied,
        format!("this user may not remove namespace {name}, which it made"),
    ))
}
