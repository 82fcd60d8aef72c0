//! The connection to the API server: requests, and the check that objects were stored as sent.

use std::time::{Duration, Instant};

use http::{Method, Request};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::compare::{self, Difference};
use super::kind::Kind;
use super::kubeconfig::load;
use super::{labels, objects};
use crate::backend::error::if_exists;
use crate::backend::filters::matching;
use crate::backend::response::part;
use crate::backend::{BackendError, BackendErrorKind};
use crate::backoff::Backoff;
use crate::cluster::{ClusterId, KubevirtConfig};
use crate::http_limits::{self, time_limit};
use crate::kube_client;

/// Attempts of a request that the server asks to repeat.
const TRIES: u32 = 4;

/// The first pause if the server does not name one.
const FIRST_PAUSE: Duration = Duration::from_millis(600);

/// The longest pause that the session waits for. Longer ones are left to the caller.
const LONGEST_PAUSE: Option<Duration> = Some(Duration::from_secs(10));

/// The timeout of a request with its response; API servers end a request after 60 s (kubernetes/kubernetes:
/// `staging/src/k8s.io/apiserver/pkg/server/config.go`, `RequestTimeout`).
const ANSWER: Duration = Duration::from_secs(120);

/// Time limit until a deleted object no longer exists; a guest has one minute to shut down.
pub(super) const GOING: Duration = Duration::from_secs(180);
/// The first and the longest pause between two checks whether a deleted object still exists.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The manager of fields, as `kubectl get --show-managed-fields` shows it.
const MANAGER: &str = "ocpdeploy";

/// A connection to an API server, and the namespace of all objects.
pub(super) struct Session {
    client: Client,
    pub server: String,
    /// The proxy in front of the server, for messages; empty without one.
    through: String,
    pub namespace: String,
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
        let kube = load(config)?;
        let server = kube.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = config
            .namespace
            .clone()
            .unwrap_or_else(|| kube.default_namespace.clone());
        let proxy = kube
            .proxy_url
            .as_ref()
            .and_then(http::Uri::authority)
            .map(|proxy| proxy.as_str());
        // Without the password.
        let proxy = proxy.map(|proxy| proxy.rsplit('@').next().unwrap_or(proxy));
        let through = proxy.map(|proxy| format!(" through proxy {proxy}")).unwrap_or_default();
        let client = kube_client::new(kube)?;
        Ok(Self {
            client,
            server,
            through,
            namespace,
        })
    }

    /// The error of a request; it names the server if this did not respond.
    fn failure(&self, error: kube::Error) -> BackendError {
        let mut failure = BackendError::from(error);
        if failure.kind == BackendErrorKind::Unreachable && failure.code.is_none() {
            failure.message = format!("{}{}: {}", self.server, self.through, failure.message);
        }
        failure
    }

    /// The `Date` header of a response.
    pub async fn date(&self) -> Result<Option<String>, BackendError> {
        let request = Request::get("/version").body(kube::client::Body::empty());
        let answer = self.client.send(request.map_err(|error| broken(&error))?).await;
        let answer = answer.map_err(|error| self.failure(error))?;
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

    /// Sends one request, and repeats it a few times if the server is too busy.
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
                Ok(answer) => answer.map_err(|error| self.failure(error)),
                Err(_) => {
                    let words = format!("{} sent no complete response within {} s", self.server, limit.as_secs());
                    Err(BackendError::new(BackendErrorKind::Timeout, words))
                }
            };
            match answer {
                // Longer pauses are left to the caller, which knows `platform_timeout`.
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

    /// Asks the server whether this user may do something.
    pub async fn may(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<bool, BackendError> {
        let question = json!({
            "apiVersion": REVIEWS,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": access(verb, group, resource, namespace.unwrap_or(""))},
        });
        let path = format!("/apis/{REVIEWS}/selfsubjectaccessreviews");
        let answer = self.ask(&path, &question).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Whether the service account `default` of the machines' namespace may do something in another namespace. `None` if
    /// this user may not ask: that requires the cluster role `admin` there.
    pub async fn may_default_account(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        there: &str,
    ) -> Result<Option<bool>, BackendError> {
        let here = &self.namespace;
        let question = json!({
            "apiVersion": REVIEWS,
            "kind": "LocalSubjectAccessReview",
            "metadata": {"namespace": there},
            "spec": {
                "user": format!("system:serviceaccount:{here}:default"),
                "groups": [
                    "system:serviceaccounts",
                    format!("system:serviceaccounts:{here}"),
                    "system:authenticated",
                ],
                "resourceAttributes": access(verb, group, resource, there),
            },
        });
        let path = format!("/apis/{REVIEWS}/namespaces/{there}/localsubjectaccessreviews");
        let answer = if_allowed(self.ask(&path, &question).await)?;
        Ok(answer.map(|answer| answer["status"]["allowed"] == true))
    }

    pub fn path(&self, kind: Kind, name: &str) -> String {
        format!("{}/{name}", kind.folder(&self.namespace))
    }

    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>, BackendError> {
        if_exists(self.read(&self.path(kind, name)).await)
    }

    /// Reads exactly this object again; `None` if it was deleted or replaced.
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

    /// A cluster's objects of a kind. There are none of an optional kind that this user cannot list: the user cannot
    /// have created any.
    pub async fn of_kind(&self, kind: Kind, selector: &str) -> Result<Vec<Value>, BackendError> {
        let found = self.list(kind, selector).await;
        match kind.is_optional() {
            true => Ok(if_allowed(found)?.unwrap_or_default()),
            false => found,
        }
    }

    /// Filters by the selector again: some servers ignore it.
    fn selected(&self, list: Value, path: &str, selector: &str) -> Vec<Value> {
        match part(list, "/items") {
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

    /// Fails if the server, its webhooks included, would reject an object. Nothing is stored.
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
        if is_exact && as_sent(kind, object, &there).is_ok() && !labels::is_going(&there) {
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

    /// Returns the anchor of a cluster, the object that owns its other objects; creates it if it does not exist.
    pub async fn anchor(&self, cluster: &ClusterId) -> Result<Value, BackendError> {
        let name = objects::anchor_name(cluster);
        match self.get(Kind::ConfigMap, &name).await? {
            Some(there) if labels::owner(&there).as_ref() == Some(cluster) && !labels::is_going(&there) => Ok(there),
            _ => self.put(Kind::ConfigMap, cluster, &objects::anchor(cluster)).await,
        }
    }

    pub async fn merge(&self, kind: Kind, name: &str, patch: &Value) -> Result<Value, BackendError> {
        let path = format!("{}?fieldManager={MANAGER}", self.path(kind, name));
        self.json(Method::PATCH, &path, MERGE, Some(patch)).await
    }

    /// Deletes exactly this object; `false` if it was already deleted or replaced.
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

    /// Deletes exactly this object, and waits until it no longer exists.
    pub async fn remove(&self, kind: Kind, object: &Value) -> Result<(), BackendError> {
        self.delete(kind, object).await?;
        self.gone(kind, object).await
    }

    /// Deletes exactly these objects, and waits until they no longer exist.
    pub async fn remove_all(&self, kind: Kind, objects: &[Value]) -> Result<(), BackendError> {
        for object in objects.iter().filter(|object| !labels::is_going(object)) {
            self.delete(kind, object).await?;
        }
        for object in objects {
            self.gone(kind, object).await?;
        }
        Ok(())
    }

    /// Deletes all objects of a kind that match the selector, and waits until they no longer exist. `false` if there
    /// were none.
    pub async fn sweep(&self, kind: Kind, selector: &str) -> Result<bool, BackendError> {
        let found = self.of_kind(kind, selector).await?;
        self.remove_all(kind, &found).await?;
        Ok(!found.is_empty())
    }

    /// Waits until exactly this object no longer exists; does not wait for a new object of the same name.
    pub async fn gone(&self, kind: Kind, object: &Value) -> Result<(), BackendError> {
        let begun = Instant::now();
        let mut backoff = Backoff::doubling(FIRST_LOOK, LONGEST_LOOK);
        while let Some(there) = self.again(kind, object).await? {
            if begun.elapsed() > GOING {
                let finalizers = &there["metadata"]["finalizers"];
                let words = format!(
                    "{} {} was deleted but still exists; its finalizers: {finalizers}",
                    kind.word(),
                    labels::name(object)
                );
                return Err(BackendError::new(BackendErrorKind::Timeout, words));
            }
            tokio::time::sleep(backoff.pause(None)).await;
        }
        Ok(())
    }
}

const REVIEWS: &str = "authorization.k8s.io/v1";

/// The attributes of a request, for a review of access.
fn access(verb: &str, group: &str, resource: &str, namespace: &str) -> Value {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    json!({
        "namespace": namespace,
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
    })
}

const JSON: &str = "application/json";
/// As client-go sends it. virt-api declares no media type for the routes that start and stop machines, so its router
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
    let words = format!("{} {name} does not belong to cluster {cluster}", kind.word());
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

/// A client without a read timeout, for connections that may be idle for hours.
pub(super) async fn patient(config: &KubevirtConfig) -> Result<Client, BackendError> {
    let mut kube = load(config)?;
    kube.read_timeout = None;
    Ok(kube_client::new(kube)?)
}
