//! The API of the deployed cluster: through its VIP, with the installer's kubeconfig, without DNS.
//!
//! Every call has its own time limit and is made once. Waits repeat calls, see `wait`.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret, Taint};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::AuthInfo;
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::time::timeout;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use self::error::whole;
use crate::cluster::{ApiEndpoint, ClusterDomain};
use crate::kubeconfig::Kubeconfig;
use crate::{http_limits, kube_client, limited_file};

mod error;

pub use self::error::ApiError;

/// Limit for one connection attempt.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Limit for one call; an API server aborts its own work after 60 s, and lists here are short.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The name of the approver in the cluster's audit log.
const US: &str = "ocpdeploy";

/// The API of one cluster.
#[derive(Clone)]
pub struct ClusterApi {
    client: Client,
    name: String,
    address: SocketAddr,
}

/// The result of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    Given,
    /// The request was changed or deleted in the meantime: list again.
    Overtaken,
}

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is terminating; it exists until it has terminated.
    Begun,
    /// It no longer existed.
    Gone,
    /// A disruption budget forbids it for now; with the server's text.
    NotNow(String),
}

/// Rejects the text of a kubeconfig that `ClusterApi::open` would reject, that is for another cluster, or that refers to
/// other files. `path` is for errors.
pub fn check_kubeconfig(path: &Path, text: &str, cluster: &ClusterDomain) -> Result<(), ApiError> {
    let unusable = unusable(path);
    let read =
        Kubeconfig::parse(text.as_bytes(), Path::new("")).map_err(|_| unusable("it is not a kubeconfig".to_owned()))?;
    if let Some(file) = read.referenced_file() {
        return Err(unusable(format!("it refers to another file, {file}")));
    }
    let (config, name) = judged(path, &read)?;
    let name = config.tls_server_name.unwrap_or(name);
    match cluster.host_of(&name) {
        Some(_) => Ok(()),
        None => Err(unusable(format!("it is for {name}, not for {}", cluster.fqdn("api")))),
    }
}

fn unusable(path: &Path) -> impl Fn(String) -> ApiError + '_ {
    move |why| ApiError::Kubeconfig {
        path: path.to_owned(),
        why,
    }
}

/// The connection of a kubeconfig without its proxy, and the host name of its server.
fn judged(path: &Path, read: &Kubeconfig) -> Result<(Config, String), ApiError> {
    let unusable = unusable(path);
    let selected = read.select(None).map_err(&unusable)?;
    if selected.cluster.insecure_skip_tls_verify == Some(true) {
        let why = format!("its cluster {} sets insecure-skip-tls-verify", selected.cluster_name);
        return Err(unusable(why));
    }
    let mut config = kube_client::config(selected).map_err(&unusable)?;
    if let Some(since) = client_certificate_end(&config.auth_info).filter(|end| *end < Timestamp::now()) {
        let path = path.to_owned();
        return Err(ApiError::ClientExpired { path, since });
    }
    if config.root_cert.is_none() {
        return Err(unusable("it has no CA certificate".to_owned()));
    }
    let name = config.cluster_url.host().map(str::to_owned);
    let name = name.ok_or_else(|| unusable("its server URL has no host name".to_owned()))?;
    config.tls_server_name.get_or_insert_with(|| name.clone());
    Ok((config, name))
}

impl ClusterApi {
    /// Reads the installer's `auth/kubeconfig` and connects its name to the api VIP; sends no request yet.
    ///
    /// TLS is verified against the name in the kubeconfig, with its CA. The environment's proxy is not used, because
    /// the VIP is on the machines' network.
    pub async fn open(kubeconfig: &Path, endpoint: impl Into<ApiEndpoint>) -> Result<Self, ApiError> {
        let unusable = unusable(kubeconfig);
        let read = kube_client::read_kubeconfig(Some(kubeconfig)).map_err(&unusable)?;
        let (mut config, name) = judged(kubeconfig, &read)?;
        let address = endpoint.into().to(config.cluster_url.port_u16().unwrap_or(443));
        let url = format!("https://{address}").parse();
        config.cluster_url = url.map_err(|error| unusable(format!("{error}")))?;
        config.connect_timeout = Some(CONNECT_LIMIT);
        // Waits retry with their own limits; kube's retries do not know these.
        config.default_retry = false;
        let client = kube_client::new(config).map_err(|error| unusable(whole(&error)))?;
        Ok(Self { client, name, address })
    }

    /// The name that the server's certificate must have, e.g. `api.lab.example.com`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of connections: the api VIP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The version of Kubernetes, e.g. `v1.32.5`; the cheapest request.
    pub async fn version(&self) -> Result<String, ApiError> {
        let version = self
            .call("get the API version", self.client.apiserver_version())
            .await?;
        Ok(version.git_version)
    }

    /// All nodes of the cluster.
    pub async fn nodes(&self) -> Result<Vec<Node>, ApiError> {
        let api = Api::<Node>::all(self.client.clone());
        Ok(self
            .call("list the nodes", api.list(&ListParams::default()))
            .await?
            .items)
    }

    /// A node by its full name, e.g. `worker-0.lab.example.com`.
    pub async fn node(&self, name: &str) -> Result<Option<Node>, ApiError> {
        let api = Api::<Node>::all(self.client.clone());
        absent(self.call(&format!("get node {name}"), api.get(name)).await)
    }

    /// The Leases of all nodes, by the nodes' full names: each kubelet renews its own for as long as it runs.
    pub async fn node_leases(&self) -> Result<Vec<Lease>, ApiError> {
        let api = Api::<Lease>::namespaced(self.client.clone(), "kube-node-lease");
        let all = ListParams::default();
        Ok(self.call("list the Leases of nodes", api.list(&all)).await?.items)
    }

    /// Adds labels to a node as it was read, and replaces its taints. Returns whether it did: `false` if the node has
    /// changed since, or no longer exists.
    pub async fn label_node(
        &self,
        node: &Node,
        labels: &BTreeMap<String, String>,
        taints: Option<&[Taint]>,
    ) -> Result<bool, ApiError> {
        let api = Api::<Node>::all(self.client.clone());
        let name = node.name_any();
        // The version prevents the loss of taints that others have added since: the list is replaced as a whole.
        let mut patch = json!({"metadata": {"resourceVersion": node.resource_version(), "labels": labels}});
        if let Some(taints) = taints {
            patch["spec"] = json!({"taints": taints});
        }
        let params = PatchParams {
            field_manager: Some(US.to_owned()),
            ..PatchParams::default()
        };
        let operation = format!("set labels and taints of node {name}");
        match self
            .call(&operation, api.patch(&name, &params, &Patch::Merge(&patch)))
            .await
        {
            Ok(_) => Ok(true),
            Err(ApiError::Refused { code: 404 | 409, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Marks a node as unschedulable.
    pub async fn cordon(&self, name: &str) -> Result<(), ApiError> {
        let api = Api::<Node>::all(self.client.clone());
        self.call(&format!("cordon node {name}"), api.cordon(name)).await?;
        Ok(())
    }

    /// Marks a node as schedulable.
    pub async fn uncordon(&self, name: &str) -> Result<(), ApiError> {
        let api = Api::<Node>::all(self.client.clone());
        self.call(&format!("uncordon node {name}"), api.uncordon(name)).await?;
        Ok(())
    }

    /// Deletes a node from the cluster; a missing node is success.
    pub async fn delete_node(&self, name: &str) -> Result<(), ApiError> {
        let api = Api::<Node>::all(self.client.clone());
        let operation = format!("delete node {name}");
        absent(self.call(&operation, api.delete(name, &DeleteParams::default())).await).map(drop)
    }

    /// All pods on a node, of all namespaces.
    pub async fn pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError> {
        let api = Api::<Pod>::all(self.client.clone());
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let mut pods = self
            .call(&format!("list the pods on {node}"), api.list(&on_node))
            .await?
            .items;
        // These pods will be evicted: a server that ignores the filter must not drain other nodes.
        pods.retain(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node));
        Ok(pods)
    }

    /// Evicts a pod, as far as its disruption budgets allow.
    pub async fn evict(&self, namespace: &str, pod: &str) -> Result<Eviction, ApiError> {
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let operation = format!("evict pod {namespace}/{pod}");
        match self.call(&operation, api.evict(pod, &EvictParams::default())).await {
            Ok(_) => Ok(Eviction::Begun),
            Err(ApiError::Refused { code: 404, .. }) => Ok(Eviction::Gone),
            Err(ApiError::Refused { code: 429, why, .. }) => Ok(Eviction::NotNow(why)),
            Err(error) => Err(error),
        }
    }

    /// A ConfigMap, if it exists.
    pub async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, ApiError> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let operation = format!("get ConfigMap {namespace}/{name}");
        absent(self.call(&operation, api.get(name)).await)
    }

    /// A Secret, if it exists.
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ApiError> {
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let operation = format!("get Secret {namespace}/{name}");
        absent(self.call(&operation, api.get(name)).await)
    }

    /// The ClusterVersion, once the cluster has one.
    pub async fn cluster_version(&self) -> Result<Option<DynamicObject>, ApiError> {
        let kind = resource("config.openshift.io", "ClusterVersion", "clusterversions");
        self.object(&kind, "version").await
    }

    /// The settings and the status of the machine config operator.
    pub async fn machine_configuration(&self) -> Result<Option<DynamicObject>, ApiError> {
        let kind = resource("operator.openshift.io", "MachineConfiguration", "machineconfigurations");
        self.object(&kind, "cluster").await
    }

    /// The Etcd resource with the members' conditions.
    pub async fn etcd(&self) -> Result<Option<DynamicObject>, ApiError> {
        let kind = resource("operator.openshift.io", "Etcd", "etcds");
        self.object(&kind, "cluster").await
    }

    /// The addresses of etcd's voting members, as its operator maintains them for the API servers.
    pub async fn etcd_endpoints(&self) -> Result<Option<ConfigMap>, ApiError> {
        self.config_map("openshift-etcd", "etcd-endpoints").await
    }

    /// All ClusterOperators; none while the cluster does not have the kind.
    pub async fn cluster_operators(&self) -> Result<Vec<DynamicObject>, ApiError> {
        let kind = resource("config.openshift.io", "ClusterOperator", "clusteroperators");
        self.objects(&kind, "list the cluster operators").await
    }

    /// All MachineConfigPools; none while the cluster does not have the kind.
    pub async fn machine_config_pools(&self) -> Result<Vec<DynamicObject>, ApiError> {
        let kind = resource(
            "machineconfiguration.openshift.io",
            "MachineConfigPool",
            "machineconfigpools",
        );
        self.objects(&kind, "list the MachineConfigPools").await
    }

    /// The events of all namespaces, at most 5000.
    pub async fn events(&self) -> Result<Vec<Event>, ApiError> {
        let api = Api::<Event>::all(self.client.clone());
        let some = ListParams::default().limit(5000);
        Ok(self.call("list the events", api.list(&some)).await?.items)
    }

    /// Applies one of our manifests, field by field.
    ///
    /// Server-side apply: fields that the manifest does not contain are unchanged.
    pub async fn apply(&self, manifest: DynamicObject) -> Result<Applied, ApiError> {
        let types = manifest.types.clone().unwrap_or_default();
        let (name, namespace) = (manifest.name_any(), manifest.namespace());
        let operation = format!("apply {} {name}", types.kind);
        let kind =
            GroupVersionKind::try_from(&types).map_err(|error| self.unreachable(&operation, error.to_string()))?;
        let kind = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        };
        let before = absent(self.call(&operation, api.get(&name)).await)?;
        let params = PatchParams::apply(US).force();
        let after = self
            .call(&operation, api.patch(&name, &params, &Patch::Apply(&manifest)))
            .await?;
        Ok(Applied { before, after })
    }

    /// All objects of a kind; none while the cluster does not have the kind.
    async fn objects(&self, kind: &ApiResource, operation: &str) -> Result<Vec<DynamicObject>, ApiError> {
        let api = Api::<DynamicObject>::all_with(self.client.clone(), kind);
        let listed = absent(self.call(operation, api.list(&ListParams::default())).await)?;
        Ok(listed.map_or_else(Vec::new, |list| list.items))
    }

    async fn object(&self, kind: &ApiResource, name: &str) -> Result<Option<DynamicObject>, ApiError> {
        let api = Api::<DynamicObject>::all_with(self.client.clone(), kind);
        absent(self.call(&format!("get {} {name}", kind.kind), api.get(name)).await)
    }

    /// All certificate requests, and the version of this list for `requests_change`.
    pub async fn requests(&self) -> Result<(Vec<CertificateSigningRequest>, String), ApiError> {
        let api = Api::<CertificateSigningRequest>::all(self.client.clone());
        let list = self
            .call("list certificate requests", api.list(&ListParams::default()))
            .await?;
        Ok((list.items, list.metadata.resource_version.unwrap_or_default()))
    }

    /// Approves a request as it was read; a request that has changed since is not approved.
    pub async fn approve(&self, request: &CertificateSigningRequest, reason: &str) -> Result<Approval, ApiError> {
        let api = Api::<CertificateSigningRequest>::all(self.client.clone());
        let name = request.name_any();
        let mut approved = request.clone();
        let status = approved.status.get_or_insert_default();
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now());
        status
            .conditions
            .get_or_insert_default()
            .push(CertificateSigningRequestCondition {
                type_: "Approved".to_owned(),
                status: "True".to_owned(),
                reason: Some("OcpdeployApproved".to_owned()),
                message: Some(reason.to_owned()),
                last_update_time: Some(now),
                last_transition_time: None,
            });
        let params = PostParams {
            field_manager: Some(US.to_owned()),
            ..PostParams::default()
        };
        let operation = format!("approve certificate request {name}");
        match self
            .call(
                &operation,
                api.replace_subresource("approval", &name, &params, &approved),
            )
            .await
        {
            Ok(_) => Ok(Approval::Given),
            Err(ApiError::Refused { code: 404 | 409, .. }) => Ok(Approval::Overtaken),
            Err(error) => Err(error),
        }
    }

    /// Returns when a certificate request was added or changed since the list of this version, at the latest after
    /// `limit`.
    ///
    /// Only a trigger: it also returns if the connection fails, or if the server no longer has that version.
    pub async fn requests_change(&self, version: &str, limit: Duration) {
        let api = Api::<CertificateSigningRequest>::all(self.client.clone());
        let seconds = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX).clamp(1, 290);
        let params = WatchParams::default().timeout(seconds);
        let bell = async {
            let Ok(events) = api.watch(&params, version).await else {
                return;
            };
            let mut events = pin!(events.into_stream());
            while let Some(Ok(WatchEvent::Bookmark(_))) = events.next().await {}
        };
        let _ = timeout(limit, bell).await;
    }

    async fn call<T>(&self, operation: &str, work: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
        let limit = http_limits::time_limit(CALL_LIMIT);
        match timeout(limit, work).await {
            Ok(done) => done.map_err(|error| ApiError::of(&error, operation, &self.name, self.address)),
            Err(_) => Err(self.unreachable(operation, format!("no answer within {} s", limit.as_secs()))),
        }
    }

    fn unreachable(&self, operation: &str, why: String) -> ApiError {
        ApiError::Unreachable {
            operation: operation.to_owned(),
            address: self.address,
            name: self.name.clone(),
            why,
        }
    }
}

/// The requested object, or `None` if it does not exist.
///
/// Any 404 counts. kube's `get_opt` requires a Status with the reason `NotFound`, but a server without the API
/// group answers `404 page not found` in plain text (kubernetes/kubernetes:
/// `staging/src/k8s.io/apiserver/pkg/server/handler.go`, `NotFoundHandler`).
fn absent<T>(answer: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match answer {
        Err(error) if error.code() == Some(404) => Ok(None),
        answer => answer.map(Some),
    }
}

/// An object before and after a manifest was applied.
#[derive(Debug)]
pub struct Applied {
    pub before: Option<DynamicObject>,
    pub after: DynamicObject,
}

impl Applied {
    /// Whether that changed anything.
    pub fn is_change(&self) -> bool {
        let before = self.before.as_ref();
        before.is_none_or(|before| content(before) != content(&self.after))
    }
}

/// The parts of an object that a manifest can set: its version also changes when an apply takes over fields without
/// changing them (kubernetes/kubernetes: `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager`).
fn content(object: &DynamicObject) -> (&BTreeMap<String, String>, &BTreeMap<String, String>, Value) {
    let mut data = object.data.clone();
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    (object.labels(), object.annotations(), data)
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
}

/// The end of the validity of a kubeconfig's client certificate; `None` if it has no readable one.
fn client_certificate_end(auth: &AuthInfo) -> Option<Timestamp> {
    let pem = match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, Some(path)) => limited_file::read(Path::new(path)).ok()?,
        (None, None) => return None,
    };
    let (_, pem) = parse_x509_pem(&pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}
