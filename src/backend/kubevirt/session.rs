//! The connection to the API server: requests, errors in our terms, and the comparison of what was stored with what was sent.

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
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::backend::filters::matching;
use crate::backoff::Backoff;
use crate::cluster::{ClusterId, KubevirtConfig};
use crate::http_limits::{self, innermost};

/// Tries of a call that the server put off.
const TRIES: u32 = 4;

/// The first pause of our own choice.
const FIRST_PAUSE: Duration = Duration::from_millis(600);

/// The longest pause that is waited for here.
const LONGEST_PAUSE: Option<Duration> = Some(Duration::from_secs(10));

/// One request and all of its answer; API servers end their own work after 60 s (kubernetes/kubernetes:
/// `staging/src/k8s.io/apiserver/pkg/server/config.go`, `RequestTimeout`).
const ANSWER: Duration = Duration::from_secs(120);

/// The longest words of a server that are repeated.
const MOST_WORDS: usize = 1000;

/// Who set a field, as `kubectl get --show-managed-fields` shows it.
const MANAGER: &str = "ocpdeploy";

/// An API server, and the namespace in which everything of ours lives.
pub(super) struct Session {
    client: Client,
    pub server: String,
    pub namespace: String,
}

/// How the server refuses what a ResourceQuota has no room for (kubernetes/kubernetes:
/// `staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`).
pub(super) const EXCEEDED_QUOTA: &str = "exceeded quota";

/// Which words of the server mean more than its status code.
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

impl From<Error> for Failure {
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
                    (_, 403) => (
                        Denied,
                        Some("`ocpdeploy deploy` lists the rights it needs before it makes anything"),
                    ),
                    (_, 404) => (NotFound, None),
                    (_, 409) => (Conflict, None),
                    (_, 413) => (TooLarge, None),
                    // A server that asks for patience gets it.
                    (_, 408 | 429 | 504) => (Timeout, None),
                    (_, 500 | 502 | 503) => (Unreachable, None),
                    _ => (Rejected, None),
                };
                // The header is not shown to us, but API servers say the same in the answer.
                let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Self {
                    kind,
                    words: http_limits::words(&status.message, MOST_WORDS),
                    hint: hint.map(str::to_owned),
                    code: Some(code.into()),
                    pause: (asked > 0 && matches!(status.code, 429 | 503)).then(|| Duration::from_secs(asked.into())),
                }
            }
            Error::Auth(error) => auth(&error),
            // The call was cut off or never began; the innermost cause says why.
            error => Self::new(Unreachable, innermost(&error)),
        }
    }
}

/// Whether a patch was refused because the object of this name is another one than the patch names: an object's uid is an
/// immutable field to the API server, so this is a validation error and not the 409 of a failed precondition.
/// Source: kubernetes/apimachinery: `pkg/api/validation/objectmeta.go`, `ValidateObjectMetaAccessorUpdate`.
fn is_other_uid(message: &str) -> bool {
    message.contains("metadata.uid: Invalid value") && message.contains("field is immutable")
}

fn auth(error: &AuthError) -> Failure {
    let hint = match error {
        AuthError::AuthExecStart(_) => {
            "install the command that the kubeconfig names under `exec`, or use another kubeconfig"
        }
        AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "run the command that the kubeconfig names under `exec` by hand; it may want a login first"
        }
        _ => "look at the user's entry in the kubeconfig",
    };
    // What an exec plugin printed may hold a token.
    let words = match error {
        AuthError::AuthExecRun { out, .. } => format!("the kubeconfig's exec command ended with {}", out.status),
        AuthError::AuthExecStart(error) => format!("the kubeconfig's exec command cannot be started: {error}"),
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "the kubeconfig's exec command printed no credential".to_owned()
        }
        other => other.to_string(),
    };
    Failure::new(BackendErrorKind::Denied, words).hint(hint)
}

/// What is absent is `None`.
pub(super) fn if_there<T>(outcome: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.code == Some(404) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What one may not see is `None`.
pub(super) fn if_allowed<T>(outcome: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match outcome {
        Err(failure) if failure.code == Some(403) && failure.kind == BackendErrorKind::Denied => Ok(None),
        other => other.map(Some),
    }
}

impl Session {
    pub async fn open(config: &KubevirtConfig) -> Result<Self, Failure> {
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

    /// The `Date` of an answer.
    pub async fn date(&self) -> Result<Option<String>, Failure> {
        let request = Request::get("/version").body(kube::client::Body::empty());
        let answer = self.client.send(request.map_err(|error| broken(&error))?).await?;
        let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
        Ok(date.map(str::to_owned))
    }

    pub async fn call(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Result<String, Failure> {
        self.accepting(method, path, kind, ANY_JSON, body).await
    }

    /// One request; put off and asked again while the server says that it took nothing in.
    async fn accepting(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<String, Failure> {
        let bytes = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| broken(&error))?,
            None => Vec::new(),
        };
        let mut tries = 0;
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
            let answer = match timeout(ANSWER, self.client.request_text(request)).await {
                Ok(answer) => answer.map_err(Failure::from),
                Err(_) => {
                    let words = format!("{} gave no whole answer within {} s", self.server, ANSWER.as_secs());
                    Err(Failure::new(BackendErrorKind::Timeout, words))
                }
            };
            match answer {
                // A longer pause is for who knows how long the user's patience lasts.
                Err(failure)
                    if matches!(failure.code, Some(429 | 503)) && tries < TRIES && failure.pause <= LONGEST_PAUSE =>
                {
                    tokio::time::sleep(backoff.pause(failure.pause)).await;
                }
                other => return other,
            }
        }
    }

    async fn json(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Result<Value, Failure> {
        parse(&self.call(method, path, kind, body).await?)
    }

    pub async fn read(&self, path: &str) -> Result<Value, Failure> {
        self.json(Method::GET, path, JSON, None).await
    }

    pub async fn ask(&self, path: &str, question: &Value) -> Result<Value, Failure> {
        self.json(Method::POST, path, JSON, Some(question)).await
    }

    pub fn path(&self, kind: Kind, name: &str) -> String {
        format!("{}/{name}", kind.folder(&self.namespace))
    }

    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>, Failure> {
        if_there(self.read(&self.path(kind, name)).await)
    }

    /// All of a kind that a label selector chooses; a kind that the server does not know has none.
    pub async fn list(&self, kind: Kind, selector: &str) -> Result<Vec<Value>, Failure> {
        let path = format!("{}?labelSelector={}", kind.folder(&self.namespace), escape(selector));
        let list = if_there(self.read(&path).await)?.unwrap_or_default();
        Ok(self.selected(list, &path, selector))
    }

    /// What the server chose is compared with the selector again.
    fn selected(&self, mut list: Value, path: &str, selector: &str) -> Vec<Value> {
        match list["items"].take() {
            Value::Array(items) => matching(&self.server, path, items, |object| labels::meets(object, selector)),
            _ => Vec::new(),
        }
    }

    /// As `list`, without what is in the objects: Secrets are large, and nobody's business.
    pub async fn list_labels(&self, kind: Kind, selector: &str) -> Result<Vec<Value>, Failure> {
        const ABOUT: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let path = format!("{}?labelSelector={}", kind.folder(&self.namespace), escape(selector));
        let text = self.accepting(Method::GET, &path, JSON, ABOUT, None).await?;
        let list: Value = parse(&text)?;
        Ok(self.selected(list, &path, selector))
    }

    /// Makes an object; one of this name that is there is `Conflict`, with code 409. What was not stored as it was sent
    /// does not stay.
    pub async fn create(&self, kind: Kind, object: &Value) -> Result<Value, Failure> {
        let path = format!("{}?{STRICT}", kind.folder(&self.namespace));
        let stored = self.json(Method::POST, &path, JSON, Some(object)).await?;
        if let Err(failure) = as_sent(kind, object, &stored) {
            self.delete(kind, &stored).await?;
            return Err(failure);
        }
        Ok(stored)
    }

    /// Makes an object that belongs to a cluster, or makes the one there as it should be. A stranger's is `Conflict`.
    pub async fn put(&self, kind: Kind, cluster: &ClusterId, object: &Value) -> Result<Value, Failure> {
        let name = labels::name(object);
        if self.get(kind, name).await?.is_none() {
            match self.create(kind, object).await {
                Err(failure) if failure.code == Some(409) => {}
                other => return other,
            }
        }
        let there = self.get(kind, name).await?.unwrap_or_default();
        if labels::owner(&there).as_ref() != Some(cluster) {
            return Err(stranger(kind, name, cluster));
        }
        // More peers than ours would be let in by a policy.
        let is_exact = kind != Kind::Policy || there["spec"] == object["spec"];
        if is_exact && as_sent(kind, object, &there).is_ok() && !there["metadata"]["deletionTimestamp"].is_string() {
            return Ok(there);
        }
        let mut wanted = object.clone();
        // Only this very object: one that came in its place is a 409.
        wanted["metadata"]["uid"] = there["metadata"]["uid"].clone();
        let path = format!("{}?{STRICT}&force=true", self.path(kind, name));
        let stored = self.json(Method::PATCH, &path, APPLY, Some(&wanted)).await?;
        as_sent(kind, object, &stored)?;
        Ok(stored)
    }

    pub async fn merge(&self, kind: Kind, name: &str, patch: &Value) -> Result<Value, Failure> {
        let path = format!("{}?fieldManager={MANAGER}", self.path(kind, name));
        self.json(Method::PATCH, &path, MERGE, Some(patch)).await
    }

    /// Deletes exactly this object; `false` when it is gone, or another has its name.
    pub async fn delete(&self, kind: Kind, object: &Value) -> Result<bool, Failure> {
        self.delete_if(kind, object, json!({"uid": object["metadata"]["uid"]}))
            .await
    }

    /// As `delete`, if it still is as it was seen.
    pub async fn delete_unchanged(&self, kind: Kind, object: &Value) -> Result<bool, Failure> {
        let (uid, version) = (&object["metadata"]["uid"], &object["metadata"]["resourceVersion"]);
        self.delete_if(kind, object, json!({"uid": uid, "resourceVersion": version}))
            .await
    }

    async fn delete_if(&self, kind: Kind, object: &Value, preconditions: Value) -> Result<bool, Failure> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            // Foreground would wait for a garbage collector, which we do not count on.
            "propagationPolicy": "Background",
            "preconditions": preconditions,
        });
        let path = self.path(kind, labels::name(object));
        match self.call(Method::DELETE, &path, JSON, Some(&options)).await {
            Ok(_) => Ok(true),
            Err(failure) if matches!(failure.code, Some(404 | 409)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

const JSON: &str = "application/json";
/// As client-go asks. virt-api declares no media type for the routes that start and stop machines, and its router answers
/// 406 there unless `*/*` is accepted.
/// Source: kubevirt/kubevirt: `pkg/virt-api/api.go`; emicklei/go-restful: `route.go`, `matchesAccept`.
const ANY_JSON: &str = "application/json, */*";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRICT: &str = "fieldManager=ocpdeploy&fieldValidation=Strict";

fn broken(error: &dyn std::error::Error) -> Failure {
    Failure::new(BackendErrorKind::Rejected, error.to_string())
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    http_limits::json(text.as_bytes()).map_err(|error| broken(&error))
}

/// Whether an object was stored whole: an API server of before fieldValidation drops what it does not know without a word.
pub(super) fn as_sent(kind: Kind, sent: &Value, stored: &Value) -> Result<(), Failure> {
    let Some(Difference { path, what }) = compare::difference(sent, stored) else {
        return Ok(());
    };
    let name = labels::name(sent);
    let words = format!(
        "the server did not store {} {name} as it was sent: {path} {what}",
        kind.word()
    );
    Err(Failure::new(BackendErrorKind::Rejected, words)
        .hint("KubeVirt or CDI there is too old, or somebody changes what is made"))
}

pub(super) fn stranger(kind: Kind, name: &str, cluster: &ClusterId) -> Failure {
    let words = format!("{} {name} is not of cluster {cluster}", kind.word());
    Failure::new(BackendErrorKind::Conflict, words)
}

/// Label selectors hold letters, digits and few signs; those that mean something in a URL are escaped.
fn escape(selector: &str) -> String {
    selector
        .replace('%', "%25")
        .replace('=', "%3D")
        .replace(',', "%2C")
        .replace('/', "%2F")
        .replace('!', "%21")
}

/// A client for lines on which nothing may come for hours.
pub(super) async fn patient(config: &KubevirtConfig) -> Result<Client, Failure> {
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
            assert_eq!(Failure::from(Error::Api(status.boxed())).kind, kind, "{code} {message}");
        }
    }
}
