//! What would be lost with the namespace: all objects in it that neither the platform nor a controller creates again.

use std::collections::BTreeSet;

use serde_json::Value;

use super::labels;
use super::session::Session;
use crate::backend::BackendError;
use crate::backend::error::if_exists;
use crate::printable::printable_line;

/// Kinds whose objects only record a state.
const RECORDS: [&str; 5] = [
    "csistoragecapacities",
    "endpoints",
    "endpointslices",
    "events",
    "leases",
];

/// An annotation of projects (openshift/openshift-apiserver:
/// `pkg/project/apiserver/registry/projectrequest/delegated/sample_template.go`).
const REQUESTER: &str = "openshift.io/requester";

/// What a namespace has.
#[derive(Default)]
pub(super) struct Contents {
    /// Kind and name of each object.
    pub objects: BTreeSet<String>,
    /// Kinds and API groups that cannot be listed.
    pub unknown: BTreeSet<String>,
}

/// A kind with its API path in the namespace.
struct Listed {
    plural: String,
    kind: String,
    path: String,
}

impl Contents {
    /// Lists all objects in the session's namespace; `namespace` is its object. `is_ours` is true for objects to leave
    /// out.
    pub async fn of(
        session: &Session,
        namespace: &Value,
        is_ours: impl Fn(&Value) -> bool,
    ) -> Result<Self, BackendError> {
        let mut all = Self::default();
        let kinds = all.kinds(session).await?;
        let is_project = namespace["metadata"]["annotations"][REQUESTER].is_string();
        for Listed { plural, kind, path } in &kinds {
            // The server may have stopped serving the kind.
            let list = all.unless_refused(plural, if_exists(session.metadata(path).await))?;
            let list = list.flatten().unwrap_or_default();
            // An object with an owner in the namespace is left out: the owner is listed itself, and if it does not
            // exist, the garbage collector deletes the object.
            let is_derived = |object: &Value| {
                labels::owners(object).any(|owner| kinds.iter().any(|listed| owner["kind"] == *listed.kind))
            };
            let found = list["items"].as_array().into_iter().flatten().filter(|object| {
                !labels::is_going(object)
                    && !is_derived(object)
                    && !is_default(plural, object, is_project)
                    && !is_ours(object)
            });
            all.objects
                .extend(found.map(|object| printable_line(&format!("{kind} {}", labels::name(object)))));
        }
        Ok(all)
    }

    /// The kinds that are deleted with a namespace: those that are namespaced and have the verb `delete`.
    /// Source: kubernetes/kubernetes: `pkg/controller/namespace/deletion/namespaced_resources_deleter.go`,
    /// `deleteAllContent`; `cmd/kube-controller-manager/app/core.go`, `ServerPreferredNamespacedResources`.
    async fn kinds(&mut self, session: &Session) -> Result<Vec<Listed>, BackendError> {
        let groups = session.read("/apis").await?;
        let groups = groups["groups"].as_array().into_iter().flatten();
        // The preferred version of a group is the first one; the others may have kinds that it does not have.
        let versions = groups.flat_map(|group| group["versions"].as_array().into_iter().flatten());
        let versions =
            versions.filter_map(|version| version["groupVersion"].as_str().map(|name| format!("apis/{name}")));
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for version in std::iter::once("api/v1".to_owned()).chain(versions) {
            let Some(served) = self.unless_refused(&version, session.read(&format!("/{version}")).await)? else {
                continue;
            };
            for resource in served["resources"].as_array().into_iter().flatten() {
                let text = |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
                let has = |verb: &str| {
                    resource["verbs"]
                        .as_array()
                        .is_some_and(|verbs| verbs.iter().any(|one| one == verb))
                };
                let plural = text("name");
                let is_object = resource["namespaced"] == true && has("delete") && has("list");
                let group = version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
                if is_object && !RECORDS.contains(&plural.as_str()) && seen.insert((group, plural.clone())) {
                    found.push(Listed {
                        path: format!("/{version}/namespaces/{}/{plural}", session.namespace),
                        kind: text("kind"),
                        plural,
                    });
                }
            }
        }
        Ok(found)
    }

    /// Records what the server refuses to list.
    fn unless_refused<T>(&mut self, what: &str, answer: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
        match answer {
            Err(failure) if failure.code.is_some() => {
                let what = what.trim_start_matches("apis/");
                self.unknown.insert(printable_line(what));
                tracing::debug!("{what} cannot be listed: {}", failure.message);
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}

/// Whether the platform creates this object in every namespace.
fn is_default(plural: &str, object: &Value, is_project: bool) -> bool {
    let name = labels::name(object);
    match plural {
        // kubernetes/kubernetes: pkg/controller/serviceaccount/serviceaccounts_controller.go;
        // openshift/openshift-controller-manager: pkg/authorization/defaultrolebindings/project_policy.go. Their Secrets
        // have them as owners: pkg/internalregistry/controllers/service_account_controller.go.
        "serviceaccounts" => ["default", "builder", "deployer"].contains(&name),
        // kubernetes/kubernetes: pkg/controller/certificates/rootcacertpublisher/publisher.go; openshift/kubernetes:
        // openshift-kube-controller-manager/servicecacertpublisher/publisher.go.
        "configmaps" => ["kube-root-ca.crt", "openshift-service-ca.crt"].contains(&name),
        // Before OpenShift 4.16 these had no owner (openshift/openshift-controller-manager:
        // pkg/serviceaccounts/controllers/create_dockercfg_secrets.go).
        "secrets" => {
            object["metadata"]["annotations"]["kubernetes.io/created-by"] == "openshift.io/create-dockercfg-secrets"
        }
        // openshift/openshift-controller-manager: pkg/authorization/defaultrolebindings/project_policy.go;
        // openshift/openshift-apiserver: pkg/project/apiserver/registry/projectrequest/delegated/sample_template.go.
        "rolebindings" => name.starts_with("system:") || (is_project && name == "admin"),
        // Copies of operators that are installed for all namespaces (operator-framework/api:
        // pkg/operators/v1alpha1/clusterserviceversion.go).
        "clusterserviceversions" => labels::label(object, "olm.copiedFrom").is_some(),
        _ => false,
    }
}
