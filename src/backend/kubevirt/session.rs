//! The connection to the API server: requests, their errors, and the check that objects were stored as sent.

use std::time::Duration;

use http::{Method, Request};
use kube::client::AuthError;
use kube::{Client, Error};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::compare::{self, Difference};
use super::kind::Kind;
use super::kubeconfig::load;
use super::labels;
use crate::backend::error::if_exists;
use crate::backend::filters::matching;
use crate::backend::{BackendError, BackendErrorKind};
use crate::backoff::Backoff;
use crate::cluster::{ClusterId, KubevirtConfig};
use crate::http_limits::{self, innermost, time_limit};

/// Attempts of a request that the server asks to repeat.
const TRIES: u32 = 4;

/// The first pause if the server does not name one.
const FIRST_PAUSE: Duration = Duration::from_millis(600);

/// The longest pause that the session waits; for longer ones the caller decides.
const LONGEST_PAUSE: Option<Duration> = Some(Duration::from_secs(10));

/// The timeout of a request with its response; API servers end a request after 60 s (kubernetes/kubernetes:
/// `staging/src/k8s.io/apiserver/pkg/server/config.go`, `RequestTimeout`).
const ANSWER: Duration = Duration::from_secs(120);

/// The longest message of a server that is quoted.
const MOST_WORDS: usize = 1000;

/// The manager of fields, as `kubectl get --show-managed-fields` shows it.
const MANAGER: &str = "ocpdeploy";

/// A connection to an API server, and the namespace of all objects.
pub(super) struct Session {
    client: Client,
    pub server: String,
    pub namespace: String,
}

/// In the server's message for an object that a ResourceQuota rejects (kubernetes/kubernetes:
/// `staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`).
pub(super) const EXCEEDED_QUOTA: &str = "exceeded quota";

/// Messages of the server that are more specific than its status code.
const SAID: &[(&str, BackendErrorKind, &str)] = &[
    (
        EXCEEDED_QUOTA,
        BackendErrorKind::Quota,
        "ask for less, or have the namespace's ResourceQuota raised",
    ),
    (
        "requested mac address",
        BackendErrorKind::Conflict,
        "KubeMacPool knows the MAC from another machine: give other ones with master_macs and worker_macs",
    ),
];

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        use BackendErrorKind::{Conflict, Denied, NotFound, Rejected, Timeout, TooLarge, Unreachable};
        match error {
            Error::Api(status) => {
                let said = SAID.iter().find(|(words, ..)| status.message.contains(words));
                let code = match status.code {
                    422 if is_other_uid(&status.message) => 409,
                    code => code,
                };
                let (kind, hint) = match (said, code) {
                    (Some((_, kind, hint)), _) => (*kind, Some(*hint)),
                    (_, 401) => (
                        Denied,
                        Some(
                            "the token of the kubeconfig is wrong or has expired: log in again, then run the same command",
                        ),
                    ),
                    (_, 403) if has_not_read_roles(&status.message) => (Unreachable, None),
                    (_, 403) => (
                        Denied,
                        Some("`ocpdeploy deploy` lists the rights it needs before it makes anything"),
                    ),
                    (_, 404) => (NotFound, None),
                    (_, 409) => (Conflict, None),
                    (_, 413) => (TooLarge, None),
                    // The server asks to repeat the request.
                    (_, 408 | 429 | 504) => (Timeout, None),
                    (_, 500 | 502 | 503) => (Unreachable, None),
                    _ => (Rejected, None),
                };
                // The Retry-After header is not available here; API servers repeat it in the body.
                let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Self {
                    kind,
                    message: http_limits::words(&status.message, MOST_WORDS),
                    hint: hint.map(str::to_owned),
                    code: Some(code.into()),
                    pause: (asked > 0 && matches!(status.code, 429 | 503)).then(|| Duration::from_secs(asked.into())),
                }
            }
            Error::Auth(error) => auth(&error),
            // The connection failed; the innermost cause says why.
            error => Self::new(Unreachable, innermost(&error)),
        }
    }
}

/// Whether a patch was rejected because the object of this name has another uid. To the API server the uid is an
/// immutable field, so this is a validation error and not the 409 of a failed precondition.
/// Source: kubernetes/apimachinery: `pkg/api/validation/objectmeta.go`, `ValidateObjectMetaAccessorUpdate`.
fn is_other_uid(message: &str) -> bool {
    message.contains("metadata.uid: Invalid value") && message.contains("field is immutable")
}

/// Whether an API server that has just started denied a request because it has not read the roles yet: it misses even
/// those that every cluster has, and appends that to its denial.
/// Source: kubernetes/kubernetes: `plugin/pkg/auth/authorizer/rbac/rbac.go`, `Authorize`.
fn has_not_read_roles(message: &str) -> bool {
    message.contains("RBAC: ") && message.contains("clusterrole.rbac.authorization.k8s.io \"system:")
}

fn auth(error: &AuthError) -> BackendError {
    let hint = match error {
        AuthError::AuthExecStart(_) => {
            "install the command that the kubeconfig names under `exec`, or use another kubeconfig"
        }
        AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "run the command that the kubeconfig names under `exec` by hand; it may want a login first"
        }
        _ => "look at the user's entry in the kubeconfig",
    };
    // The output of an exec plugin may contain a token.
    let words = match error {
        AuthError::AuthExecRun { out, .. } => format!("the kubeconfig's exec command ended with {}", out.status),
        AuthError::AuthExecStart(error) => format!("the kubeconfig's exec command cannot be started: {error}"),
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "the kubeconfig's exec command printed no credential".to_owned()
        }
        other => other.to_string(),
    };
    BackendError::new(BackendErrorKind::Denied, words).hint(hint)
}

/// `None` if this user may not read it.
pub(super) fn if_allowed<T>(outcome: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
    match outcome {
        Err(failure) if failure.code == Some(403) && failure.kind == BackendErrorKind::Denied => Ok(None),
        other => other.map(Some),
    }
}

impl Session {
    pub async fn open(config: &KubevirtConfig) -> Result<Self, BackendError> {
        let kube = load(config).await?;
        let server = kube.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = config
            .namespace
            .clone()
            .unwrap_or_else(|| kube.default_namespace.clone());
        let client = http_limits::kube_client(kube)?;
        Ok(Self {
            client,
            server,
            namespace,
        })
    }

    /// The `Date` header of a response.
    pub async fn date(&self) -> Result<Option<String>, BackendError> {
        let request = Request::get("/version").body(kube::client::Body::empty());
        let answer = self.client.send(request.map_err(|error| broken(&error))?).await?;
        let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
        Ok(date.map(str::to_owned))
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<String, BackendError> {
        self.accepting(method, path, kind, ANY_JSON, body).await
    }

    /// Sends one request, and repeats it while the server rejects it as too busy.
    async fn accepting(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<String, BackendError> {
        let bytes = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| broken(&error))?,
            None => Vec::new(),
        };
        let mut tries = 0;
        let limit = time_limit(ANSWER);
        let mut backoff = Backoff::tripling(FIRST_PAUSE, FIRST_PAUSE * 9);
        loop {
            tries += 1;
            let request = Request::builder()
                .method(method.clone())
                .uri(path)
                .header("content-type", kind)
                .header("accept", accept)
                .body(bytes.clone())
                .map_err(|error| broken(&error))?;
            let answer = match timeout(limit, self.client.request_text(request)).await {
                Ok(answer) => answer.map_err(BackendError::from),
                Err(_) => {
                    let words = format!("{} gave no whole answer within {} s", self.server, limit.as_secs());
                    Err(BackendError::new(BackendErrorKind::Timeout, words))
                }
            };
            match answer {
                // For a longer pause the caller decides, who knows `platform_timeout`.
                Err(failure)
                    if matches!(failure.code, Some(429 | 503)) && tries < TRIES && failure.pause <= LONGEST_PAUSE =>
                {
                    tokio::time::sleep(backoff.pause(failure.pause)).await;
                }
                other => return other,
            }
        }
    }

    async fn json(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Result<Value, BackendError> {
        parse(&self.call(method, path, kind, body).await?)
    }

    pub async fn read(&self, path: &str) -> Result<Value, BackendError> {
        self.json(Method::GET, path, JSON, None).await
    }

    pub async fn ask(&self, path: &str, question: &Value) -> Result<Value, BackendError> {
        self.json(Method::POST, path, JSON, Some(question)).await
    }

    pub fn path(&self, kind: Kind, name: &str) -> String {
        format!("{}/{name}", kind.folder(&self.namespace))
    }

    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>, BackendError> {
        if_exists(self.read(&self.path(kind, name)).await)
    }

    /// Reads exactly this object again; `None` if it is gone or was replaced.
    pub async fn again(&self, kind: Kind, object: &Value) -> Result<Option<Value>, BackendError> {
        let found = self.get(kind, labels::name(object)).await?;
        Ok(found.filter(|found| found["metadata"]["uid"] == object["metadata"]["uid"]))
    }

    /// All objects of a kind that match a label selector; none if the server does not serve the kind.
    pub async fn list(&self, kind: Kind, selector: &str) -> Result<Vec<Value>, BackendError> {
        let path = format!("{}?labelSelector={}", kind.folder(&self.namespace), escape(selector));
        let list = if_exists(self.read(&path).await)?.unwrap_or_default();
        Ok(self.selected(list, &path, selector))
    }

    /// A cluster's objects of a kind; none of an optional kind that this user cannot list, because it cannot have created
    /// any.
    pub async fn of_kind(&self, kind: Kind, selector: &str) -> Result<Vec<Value>, BackendError> {
        let found = self.list(kind, selector).await;
        match kind.is_optional() {
            true => Ok(if_allowed(found)?.unwrap_or_default()),
            false => found,
        }
    }

    /// Filters by the selector again: some servers ignore it.
    fn selected(&self, mut list: Value, path: &str, selector: &str) -> Vec<Value> {
        match list["items"].take() {
            Value::Array(items) => matching(&self.server, path, items, |object| labels::meets(object, selector)),
            _ => Vec::new(),
        }
    }

    /// Like `list`, but only the metadata: Secrets are large and confidential.
    pub async fn list_labels(&self, kind: Kind, selector: &str) -> Result<Vec<Value>, BackendError> {
        let path = format!("{}?labelSelector={}", kind.folder(&self.namespace), escape(selector));
        // Plain Kubernetes has no Routes.
        let list = if_exists(self.metadata(&path).await)?.unwrap_or_default();
        Ok(self.selected(list, &path, selector))
    }

    /// The list at an API path with only the metadata of its objects, if the server can leave the rest out.
    pub async fn metadata(&self, path: &str) -> Result<Value, BackendError> {
        parse(&self.accepting(Method::GET, path, JSON, METADATA, None).await?)
    }

    /// Creates an object; an existing one is `Conflict` with code 409. An object that was not stored as it was sent
    /// is deleted.
    pub async fn create(&self, kind: Kind, object: &Value) -> Result<Value, BackendError> {
        let path = format!("{}?{STRICT}", kind.folder(&self.namespace));
        let stored = self.json(Method::POST, &path, JSON, Some(object)).await?;
        if let Err(failure) = as_sent(kind, object, &stored) {
            self.delete(kind, &stored).await?;
            return Err(failure);
        }
        Ok(stored)
    }

    /// Whether the server, its webhooks included, would accept an object. Nothing is stored.
    pub async fn would_create(&self, kind: Kind, object: &Value) -> Result<(), BackendError> {
        let path = format!("{}?dryRun=All&{STRICT}", kind.folder(&self.namespace));
        self.call(Method::POST, &path, JSON, Some(object)).await.map(drop)
    }

    /// Creates or updates an object of a cluster. An object that is not owned by the cluster is `Conflict`.
    pub async fn put(&self, kind: Kind, cluster: &ClusterId, object: &Value) -> Result<Value, BackendError> {
        let name = labels::name(object);
        if self.get(kind, name).await?.is_none() {
            match self.create(kind, object).await {
                Err(failure) if failure.code == Some(409) => {}
                other => return other,
            }
        }
        let there = self.get(kind, name).await?.unwrap_or_default();
        if labels::owner(&there).as_ref() != Some(cluster) {
            return Err(not_owned(kind, name, cluster));
        }
        // Additional entries in a policy would allow more peers.
        let is_exact = kind != Kind::Policy || there["spec"] == object["spec"];
        if is_exact && as_sent(kind, object, &there).is_ok() && !there["metadata"]["deletionTimestamp"].is_string() {
            return Ok(there);
        }
        let mut wanted = object.clone();
        // Only this object: a recreated one is a conflict.
        wanted["metadata"]["uid"] = there["metadata"]["uid"].clone();
        let path = format!("{}?{STRICT}&force=true", self.path(kind, name));
        let stored = self.json(Method::PATCH, &path, APPLY, Some(&wanted)).await?;
        as_sent(kind, object, &stored)?;
        Ok(stored)
    }

    pub async fn merge(&self, kind: Kind, name: &str, patch: &Value) -> Result<Value, BackendError> {
        let path = format!("{}?fieldManager={MANAGER}", self.path(kind, name));
        self.json(Method::PATCH, &path, MERGE, Some(patch)).await
    }

    /// Deletes exactly this object; `false` if it is gone or was replaced.
    pub async fn delete(&self, kind: Kind, object: &Value) -> Result<bool, BackendError> {
        let path = self.path(kind, labels::name(object));
        self.delete_if(&path, json!({"uid": object["metadata"]["uid"]})).await
    }

    /// Like `delete`, if the object has not changed.
    pub async fn delete_unchanged(&self, path: &str, object: &Value) -> Result<bool, BackendError> {
        let (uid, version) = (&object["metadata"]["uid"], &object["metadata"]["resourceVersion"]);
        self.delete_if(path, json!({"uid": uid, "resourceVersion": version}))
            .await
    }

    /// Source: kubernetes/kubernetes: `staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/types.go`, `Preconditions`.
    async fn delete_if(&self, path: &str, preconditions: Value) -> Result<bool, BackendError> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            // Foreground deletion would wait for the garbage collector.
            "propagationPolicy": "Background",
            "preconditions": preconditions,
        });
        match self.call(Method::DELETE, path, JSON, Some(&options)).await {
            Ok(_) => Ok(true),
            Err(failure) if matches!(failure.code, Some(404 | 409)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

const JSON: &str = "application/json";
/// As client-go requests. virt-api declares no media type for the routes that start and stop machines, so its router
/// responds with 406 unless `*/*` is accepted.
/// Source: kubevirt/kubevirt: `pkg/virt-api/api.go`; emicklei/go-restful: `route.go`, `matchesAccept`.
const ANY_JSON: &str = "application/json, */*";
/// Servers that cannot leave out the rest send whole objects.
/// Source: kubernetes/kubernetes: `staging/src/k8s.io/client-go/metadata/metadata.go`.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRICT: &str = "fieldManager=ocpdeploy&fieldValidation=Strict";

fn broken(error: &dyn std::error::Error) -> BackendError {
    BackendError::new(BackendErrorKind::Rejected, error.to_string())
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, BackendError> {
    http_limits::json(text.as_bytes()).map_err(|error| broken(&error))
}

/// Checks that an object was stored completely: an API server without fieldValidation drops unknown fields silently.
pub(super) fn as_sent(kind: Kind, sent: &Value, stored: &Value) -> Result<(), BackendError> {
    let Some(Difference { path, what }) = compare::difference(sent, stored) else {
        return Ok(());
    };
    let name = labels::name(sent);
    let words = format!(
        "the server did not store {} {name} as it was sent: {path} {what}",
        kind.word()
    );
    Err(BackendError::new(BackendErrorKind::Rejected, words)
        .hint("KubeVirt or CDI is too old, or another program changes created objects"))
}

pub(super) fn not_owned(kind: Kind, name: &str, cluster: &ClusterId) -> BackendError {
    let words = format!("{} {name} belongs to another owner than cluster {cluster}", kind.word());
    BackendError::new(BackendErrorKind::Conflict, words)
}

/// Escapes a label selector for a URL; it has letters, digits and few other characters.
fn escape(selector: &str) -> String {
    selector
        .replace('%', "%25")
        .replace('=', "%3D")
        .replace(',', "%2C")
        .replace('/', "%2F")
        .replace('!', "%21")
}

/// A client without read timeout, for connections that may be idle for hours.
pub(super) async fn patient(config: &KubevirtConfig) -> Result<Client, BackendError> {
    let mut kube = load(config).await?;
    kube.read_timeout = None;
    Ok(http_limits::kube_client(kube)?)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_what_may_pass_by_itself_is_silence() {
        use BackendErrorKind::{Conflict, Denied, Quota, Rejected, Timeout, Unreachable};
        for (code, message, kind) in [
            (403, "virtualmachines.kubevirt.io is forbidden: no", Denied),
            (
                403,
                "pods is forbidden: RBAC: clusterrole.rbac.authorization.k8s.io \"ours\" not found",
                Denied,
            ),
            (
                403,
                "pods is forbidden: RBAC: [clusterrole.rbac.authorization.k8s.io \"system:basic-user\" not found, \
                 clusterrole.rbac.authorization.k8s.io \"ours\" not found]",
                Unreachable,
            ),
            (403, "pods \"a\" is forbidden: exceeded quota: small", Quota),
            (409, "the object has been modified", Conflict),
            (422, "spec.domain: Required value", Rejected),
            (
                422,
                "DataVolume.cdi.kubevirt.io \"a\" is invalid: metadata.uid: Invalid value: \"1\": field is immutable",
                Conflict,
            ),
            (429, "too many requests, please try again later", Timeout),
            (500, "etcdserver: request timed out", Unreachable),
            (503, "the server is currently unable to handle the request", Unreachable),
            (504, "Timeout: request did not complete", Timeout),
        ] {
            let status = Status::failure(message, "").with_code(code);
            assert_eq!(
                BackendError::from(Error::Api(status.boxed())).kind,
                kind,
                "{code} {message}"
            );
        }
    }
}
