//! The state and the answers of the API server; what happens in the cluster by itself is in `story`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use ocpdeploy::cluster::{NodeName, Role};
use ocpdeploy::state::parameters::{NodeAddress, Parameters};
use serde_json::{Value, json};

use super::requests;
use super::server::status;

pub mod story;

pub const NODES: &str = "/api/v1/nodes";
pub const PODS: &str = "/api/v1/pods";
pub const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub const VERSIONS: &str = "/apis/config.openshift.io/v1/clusterversions";
pub const CONFIGURATIONS: &str = "/apis/operator.openshift.io/v1/machineconfigurations";
pub const OPERATORS: &str = "/apis/config.openshift.io/v1/clusteroperators";
pub const ETCDS: &str = "/apis/operator.openshift.io/v1/etcds";
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
pub const SECRETS: &str = "/api/v1/namespaces/openshift-machine-api/secrets";
pub const SIGNERS: &str = "/api/v1/namespaces/openshift-kube-controller-manager-operator/secrets";
pub const API_SIGNERS: &str = "/api/v1/namespaces/openshift-kube-apiserver-operator/secrets";

pub const MACHINE_CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
pub const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
pub const EVENTS: &str = "/api/v1/events";
pub const INGRESS: &str = "/apis/operator.openshift.io/v1/namespaces/openshift-ingress-operator/ingresscontrollers";
pub const ETCD_MEMBERS: &str = "/api/v1/namespaces/openshift-etcd/configmaps";
pub const MANAGED: &str = "/api/v1/namespaces/openshift-config-managed/configmaps";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Collections that exist from the start; the others are added by their operators.
const COLLECTIONS: [&str; 18] = [
    NODES,
    PODS,
    REQUESTS,
    VERSIONS,
    OPERATORS,
    ETCDS,
    CONFIG_MAPS,
    SECRETS,
    SIGNERS,
    API_SIGNERS,
    MACHINE_CONFIGS,
    CONFIGURATIONS,
    POOLS,
    EVENTS,
    INGRESS,
    ETCD_MEMBERS,
    MANAGED,
    LEASES,
];

/// Kinds that the API server learns from CustomResourceDefinitions.
const CUSTOM: [&str; 7] = [
    VERSIONS,
    OPERATORS,
    ETCDS,
    MACHINE_CONFIGS,
    CONFIGURATIONS,
    POOLS,
    INGRESS,
];

/// How far an installation may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The API answers; there is nothing in it.
    Api,
    /// Masters join, and etcd grows.
    Masters,
    /// The ConfigMap says that the bootstrap has done its work.
    Bootstrapped,
    /// etcd's operator removes the bootstrap's member.
    MemberRemoved,
    /// Workers ask for certificates, and join with them.
    Workers,
    /// Operators become available, one after the other.
    Operators,
    #[default]
    Installed,
}

/// The number of the next requests that have each fault.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// 429 with a Status.
    pub too_many: usize,
    /// 503 with a Status.
    pub unavailable: usize,
    /// The connection ends in the middle of the answer.
    pub resets: usize,
    /// An approval conflicts: the request was changed meanwhile.
    pub conflicts: usize,
    /// A change of a node's labels conflicts: the node was changed meanwhile.
    pub node_conflicts: usize,
}

/// The form in which etcd's operator reports that the bootstrap is no member any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EtcdOperator {
    #[default]
    New,
    /// From before OCPBUGS-5988.
    Old,
    /// The cluster has none, and its API server does not know the kind.
    Absent,
}

/// The answer to one request.
pub enum Answer {
    Json(u16, Value),
    /// Plain text, as Go's own handlers answer.
    Text(u16, &'static str),
    Reset,
    Watch {
        path: String,
        from: u64,
        limit: Duration,
    },
}

type Presence = Box<dyn Fn(&NodeName) -> bool + Send>;

#[derive(Default)]
pub struct World {
    table: Option<Parameters>,
    version: u64,
    /// Watches from before this version get the error that it is gone.
    forgotten: u64,
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    events: Vec<(u64, String, Value)>,
    /// The story stops here.
    pub gate: Stage,
    pub faults: Faults,
    /// Whether a node's machine runs; by default all do.
    pub present: Option<Presence>,
    /// The installer's manifests, once it has written them.
    pub manifests: Option<PathBuf>,
    /// External nodes whose machines run.
    pub switched_on: BTreeSet<NodeName>,
    /// Lists contain everything, whatever their selectors.
    pub ignores_filters: bool,
    pub asked: usize,
    pub watched: usize,
    pub etcd_operator: EtcdOperator,
    /// The bootstrap's machine was deleted while it was a member of etcd.
    pub bootstrap_lost: bool,
    /// The node lifecycle controller does not run: Nodes of machines that are off keep their status.
    pub nobody_watches: bool,
    /// How far the nodes' clocks are ahead of the API server's.
    pub skew: SignedDuration,
    /// Masters that are voting members of etcd, by name. A removed member stays removed until its Node is recreated.
    pub voting: BTreeMap<String, NodeAddress>,
    /// Masters whose member does not become a voting one.
    pub learners: BTreeSet<String>,
    /// Nodes that never become Ready.
    pub sick: BTreeSet<String>,
    moments: usize,
    /// When the bootstrap was done with its work, and when its machine was first there.
    complete: Option<usize>,
    bootstrap_seen: bool,
    /// When a master's etcd started.
    started: BTreeMap<String, usize>,
    /// When a worker became Ready.
    joined: BTreeMap<String, usize>,
    /// Nodes that were Ready, and whose machines went off.
    lost: BTreeSet<String>,
    /// Unknown requests.
    pub unknown: Vec<String>,
    /// The machine config operator does not process its MachineConfiguration.
    pub policies_ignored: bool,
    /// Names of the objects that an apply changed, in order.
    pub applied: Vec<String>,
    /// Names of the MachineConfigs whose changes reboot nodes.
    pub rebooting: Vec<String>,
    /// The certificates of kubelets that start again have expired.
    pub certificates_ended: bool,
    /// Names of the requests that were approved through the API, in order.
    pub approved: Vec<String>,
    /// Names of the requests that may be approved.
    pub rightful: Vec<String>,
}

impl World {
    /// A cluster of this table whose installation starts now.
    pub fn new(table: Parameters) -> Self {
        let mut world = Self {
            table: Some(table),
            ..Self::default()
        };
        // openshift/installer: `pkg/asset/machines/arbiter.go`: only if there is an arbiter.
        let arbiter = world.table().of_role(Role::Arbiter).next().map(|node| node.role);
        for role in [Role::Master, Role::Worker].into_iter().chain(arbiter) {
            let pointer = json!({"ignition": {"version": "3.2.0", "config": {"merge": [
                {"source": format!("https://api-int.{}:22623/config/{role}", world.table().cluster_domain())}]}}});
            world.put(SECRETS, json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": format!("{role}-user-data-managed"), "namespace": "openshift-machine-api"},
                "data": {"userData": STANDARD.encode(pointer.to_string()), "disableTemplating": STANDARD.encode("true\n")},
            }));
        }
        world
    }

    /// Adds requests that must not be approved.
    pub fn hostile(mut self) -> Self {
        for request in requests::hostile(self.table()) {
            self.put(REQUESTS, request);
        }
        self
    }

    /// Sets the nodes of the cluster.
    pub fn learn(&mut self, table: Parameters) {
        self.table = Some(table);
    }

    /// The requests that were approved and must not be.
    pub fn wrongly_approved(&self) -> Vec<&str> {
        let wrongly = self.approved.iter().filter(|name| !self.rightful.contains(name));
        wrongly.map(String::as_str).collect()
    }

    /// A summary of the requests so far.
    pub fn seen(&self) -> Value {
        let nodes = self.objects.get(NODES).into_iter().flat_map(BTreeMap::keys);
        json!({"unknown": self.unknown, "approved": self.approved, "rightful": self.rightful, "nodes": Vec::from_iter(nodes)})
    }

    fn table(&self) -> &Parameters {
        self.table.as_ref().unwrap()
    }

    /// All versions before now are forgotten, as after a compaction.
    pub fn forget(&mut self) {
        self.forgotten = self.version;
    }

    pub fn get(&self, path: &str, name: &str) -> Option<&Value> {
        self.objects.get(path)?.get(name)
    }

    /// Adds or replaces an object and notifies watches.
    pub fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let sandbox = self.objects.entry(path.to_owned()).or_default();
        let before = sandbox.get(&name);
        object["metadata"]["uid"] = match before {
            Some(before) => before["metadata"]["uid"].clone(),
            None => json!(format!("{path}/{name}/{}", self.version)),
        };
        match before {
            None if [REQUESTS, NODES].contains(&path) => {
                object["metadata"]["creationTimestamp"] =
                    json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            }
            Some(before) if object["metadata"]["creationTimestamp"].is_null() => {
                object["metadata"]["creationTimestamp"] = before["metadata"]["creationTimestamp"].clone();
            }
            _ => {}
        }
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        sandbox.insert(name, object.clone());
        let event = json!({"type": kind, "object": object});
        self.events.push((self.version, path.to_owned(), event));
    }

    pub fn delete(&mut self, path: &str, name: &str) -> Option<Value> {
        let object = self.objects.get_mut(path)?.remove(name)?;
        self.version += 1;
        let event = json!({"type": "DELETED", "object": object});
        self.events.push((self.version, path.to_owned(), event));
        Some(object)
    }

    /// Changes an existing object.
    pub fn edit(&mut self, path: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(path, name).unwrap().clone();
        change(&mut object);
        self.put(path, object);
    }

    /// What happened to a collection since a version, and the version now.
    pub fn news(&self, path: &str, from: u64) -> (Vec<Value>, u64) {
        if from < self.forgotten {
            let gone = status(410, "Expired", &format!("too old resource version: {from}"));
            return (vec![json!({"type": "ERROR", "object": gone})], self.version);
        }
        let mut news = self.events.iter();
        let first = news.position(|(version, _, _)| *version > from);
        let news = first.map_or(&[][..], |first| &self.events[first..]);
        let of_path = news.iter().filter(|(_, at, _)| at == path);
        (of_path.map(|(_, _, event)| event.clone()).collect(), self.version)
    }

    pub fn bookmark(&self, path: &str) -> Value {
        let (kind, api_version) = kind_of(path);
        let version = self.version.to_string();
        json!({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": api_version,
            "metadata": {"resourceVersion": version, "creationTimestamp": null}, "spec": {"request": "", "signerName": ""}}})
    }

    /// Answers a request, or records it as unknown.
    pub fn answer(&mut self, method: &str, path: &str, query: &str, body: &[u8]) -> Answer {
        self.asked += 1;
        let faults = &mut self.faults;
        for (left, code, reason) in [
            (&mut faults.too_many, 429, "TooManyRequests"),
            (&mut faults.unavailable, 503, "ServiceUnavailable"),
        ] {
            if *left > 0 {
                *left -= 1;
                return Answer::Json(code, status(code, reason, "please try again later"));
            }
        }
        if faults.resets > 0 {
            faults.resets -= 1;
            return Answer::Reset;
        }
        if self.bootstrap_lost && self.table().of_role(Role::Master).count() == 1 {
            // One of two members is no quorum: etcd answers no more requests (etcd-io/etcd: `ErrTimeout`).
            return Answer::Json(500, status(500, "InternalError", "etcdserver: request timed out"));
        }
        if !self.knows(path) {
            // kubernetes/kubernetes: `staging/src/k8s.io/apiserver/pkg/server/handler.go`, `NotFoundHandler`.
            return Answer::Text(404, "404 page not found\n");
        }
        let query: BTreeMap<&str, &str> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        let answer = self.known(method, path, &query, body);
        answer.unwrap_or_else(|| {
            self.unknown.push(format!("{method} {path}?{query:?}"));
            Answer::Json(
                405,
                status(405, "MethodNotAllowed", &format!("{method} {path} is not known here")),
            )
        })
    }

    /// The number of ticks so far.
    pub fn moments(&self) -> usize {
        self.moments
    }

    /// Whether a node's kubelet does not answer.
    pub fn is_lost(&self, host: &str) -> bool {
        self.lost.contains(host)
    }

    /// Whether there is a kind for a path: bootkube brings the definitions after the API server.
    fn knows(&self, path: &str) -> bool {
        let Some(kind) = CUSTOM.into_iter().find(|kind| path.starts_with(kind)) else {
            return true;
        };
        let absent = kind == ETCDS && self.etcd_operator == EtcdOperator::Absent;
        !absent && (self.gate > Stage::Api || self.objects.contains_key(kind))
    }

    fn known(&mut self, method: &str, path: &str, query: &BTreeMap<&str, &str>, body: &[u8]) -> Option<Answer> {
        let only = |names: &[&str]| query.keys().all(|name| names.contains(name));
        if (method, path) == ("GET", "/version") {
            return only(&[]).then(|| Answer::Json(200, version()));
        }
        if COLLECTIONS.contains(&path) {
            return match (method, query.get("watch")) {
                ("GET", Some(&"true"))
                    if only(&["watch", "timeoutSeconds", "resourceVersion", "allowWatchBookmarks"]) =>
                {
                    self.watched += 1;
                    Some(Answer::Watch {
                        path: path.to_owned(),
                        from: query.get("resourceVersion")?.parse().ok()?,
                        limit: Duration::from_secs(query.get("timeoutSeconds")?.parse().ok()?),
                    })
                }
                ("GET", None) if only(&["fieldSelector", "limit"]) => {
                    let wanted = query.get("fieldSelector");
                    let node = wanted.map(|selector| selector.strip_prefix("spec.nodeName%3D"));
                    match node {
                        None => Some(Answer::Json(200, self.list(path, |_| true))),
                        Some(Some(node)) if path == PODS => Some(Answer::Json(
                            200,
                            self.list(path, |pod| self.ignores_filters || pod["spec"]["nodeName"] == node),
                        )),
                        Some(_) => None,
                    }
                }
                _ => None,
            };
        }
        let (collection, name) = path.rsplit_once('/')?;
        if method == "PUT" && name == "approval" && only(&["fieldManager"]) {
            let (collection, name) = collection.rsplit_once('/')?;
            return (collection == REQUESTS).then(|| self.approve(name, body));
        }
        if method == "POST" && name == "eviction" {
            let (collection, name) = collection.rsplit_once('/')?;
            return (collection.starts_with("/api/v1/namespaces/") && collection.ends_with("/pods") && only(&[]))
                .then(|| self.evict(name));
        }
        if !COLLECTIONS.contains(&collection) {
            return None;
        }
        match method {
            "GET" if only(&[]) => Some(match self.get(collection, name) {
                Some(object) => Answer::Json(200, object.clone()),
                None => not_found(name),
            }),
            "PATCH" if collection == NODES && query.get("fieldManager") == Some(&"ocpdeploy") => {
                self.mark(name, &serde_json::from_slice(body).ok()?)
            }
            "PATCH" if collection == NODES && only(&[]) => {
                let wish: Value = serde_json::from_slice(body).ok()?;
                let unschedulable = wish["spec"]["unschedulable"].as_bool()?;
                self.get(NODES, name)?;
                self.edit(NODES, name, |node| node["spec"]["unschedulable"] = json!(unschedulable));
                Some(Answer::Json(200, self.get(NODES, name)?.clone()))
            }
            "DELETE" if collection == NODES && only(&[]) => Some(match self.delete(NODES, name) {
                Some(node) => {
                    self.forget_requests_of(name);
                    Answer::Json(200, node)
                }
                None => not_found(name),
            }),
            "PATCH" if collection == CONFIGURATIONS && name == "cluster" => {
                let is_apply = query.get("fieldManager") == Some(&"ocpdeploy") && query.get("force") == Some(&"true");
                let wish: Value = serde_json::from_slice(body).ok().filter(|_| is_apply)?;
                let mut stored = self.get(collection, name)?.clone();
                merge_policies(&mut stored, &wish);
                if self.get(collection, name) != Some(&stored) {
                    self.applied.push("MachineConfiguration".to_owned());
                    self.put(collection, stored);
                }
                Some(Answer::Json(200, self.get(collection, name)?.clone()))
            }
            "PATCH" if [MACHINE_CONFIGS, POOLS, INGRESS].contains(&collection) => {
                // The part of server-side apply that sets the given fields.
                let is_apply = query.get("fieldManager") == Some(&"ocpdeploy") && query.get("force") == Some(&"true");
                let mut wish: Value = serde_json::from_slice(body).ok().filter(|_| is_apply)?;
                if wish["metadata"]["name"] != name {
                    return None;
                }
                let stored = self.get(collection, name);
                let is_said = stored.is_some_and(|object| object["spec"] == wish["spec"]);
                let owned = json!([{"manager": "ocpdeploy", "operation": "Apply"}]);
                // The first apply also changes an object that says the same: it notes who owns which fields
                // (kubernetes/kubernetes: `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager`).
                if !is_said || stored.is_some_and(|object| object["metadata"]["managedFields"] != owned) {
                    if collection == MACHINE_CONFIGS && stored.is_some_and(|stored| self.reboots(stored, &wish)) {
                        self.rebooting.push(name.to_owned());
                    }
                    if !is_said {
                        self.applied.push(name.to_owned());
                    }
                    wish["metadata"]["managedFields"] = owned;
                    self.put(collection, wish);
                }
                Some(Answer::Json(200, self.get(collection, name)?.clone()))
            }
            _ => None,
        }
    }

    /// Whether nodes reboot for this change of a MachineConfig: each file that differs needs a policy in the status, and so
    /// does each unit (openshift/machine-config-operator: `pkg/daemon/update.go`,
    /// `calculatePostConfigChangeNodeDisruptionActionFromMCDiffs`).
    fn reboots(&self, before: &Value, after: &Value) -> bool {
        let differing = |list: &str, key: &str| -> BTreeSet<String> {
            let of = |config: &Value| -> BTreeMap<String, String> {
                let entries = config.pointer(list).and_then(Value::as_array).into_iter().flatten();
                entries
                    .map(|entry| (entry[key].to_string(), entry.to_string()))
                    .collect()
            };
            let (before, after) = (of(before), of(after));
            let names = before.keys().chain(after.keys());
            names
                .filter(|name| before.get(*name) != after.get(*name))
                .cloned()
                .collect()
        };
        let status = self.get(CONFIGURATIONS, "cluster").map(|object| &object["status"]);
        let policies =
            status.and_then(|status| status["nodeDisruptionPolicyStatus"]["clusterPolicies"]["files"].as_array());
        let allowed: BTreeSet<String> = policies
            .into_iter()
            .flatten()
            .map(|policy| policy["path"].to_string())
            .collect();
        let files = differing("/spec/config/storage/files", "path");
        !files.is_subset(&allowed) || !differing("/spec/config/systemd/units", "name").is_empty()
    }

    /// Labels and taints of a node, as a merge patch of the version that its author read. Any other version is a conflict
    /// (kubernetes/kubernetes: `staging/src/k8s.io/apiserver/pkg/registry/generic/registry/store.go`,
    /// `OptimisticLockErrorMsg`), and a list is replaced as a whole (RFC 7386).
    fn mark(&mut self, name: &str, wish: &Value) -> Option<Answer> {
        let Some(node) = self.get(NODES, name) else {
            return Some(not_found(name));
        };
        let read = wish["metadata"]["resourceVersion"].as_str()?;
        if self.faults.node_conflicts > 0 {
            self.faults.node_conflicts -= 1;
            self.edit(NODES, name, |node| {
                node["metadata"]["annotations"] = json!({"touched": "yes"})
            });
        } else if node["metadata"]["resourceVersion"] == read {
            let is_known = |key: &String| ["metadata", "spec"].contains(&key.as_str());
            let labels = wish["metadata"]["labels"].as_object()?;
            if !wish.as_object()?.keys().all(is_known) {
                return None;
            }
            self.edit(NODES, name, |node| {
                for (key, value) in labels {
                    node["metadata"]["labels"][key] = value.clone();
                }
                if let Some(taints) = wish["spec"].get("taints") {
                    node["spec"]["taints"] = taints.clone();
                }
            });
            return Some(Answer::Json(200, self.get(NODES, name)?.clone()));
        }
        let message = "the object has been modified; please apply your changes to the latest version and try again";
        Some(Answer::Json(409, status(409, "Conflict", message)))
    }

    fn list(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let (kind, api_version) = kind_of(path);
        let items = self.objects.get(path).into_iter().flat_map(BTreeMap::values);
        let items: Vec<&Value> = items.filter(|item| wanted(item)).collect();
        json!({"kind": format!("{kind}List"), "apiVersion": api_version,
            "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    fn approve(&mut self, name: &str, body: &[u8]) -> Answer {
        let Some(stored) = self.get(REQUESTS, name).cloned() else {
            return not_found(name);
        };
        let Ok(wish) = serde_json::from_slice::<Value>(body) else {
            return Answer::Json(400, status(400, "BadRequest", "no JSON"));
        };
        let conflict = || {
            status(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version",
            )
        };
        if self.faults.conflicts > 0 {
            self.faults.conflicts -= 1;
            self.edit(REQUESTS, name, |request| {
                request["metadata"]["labels"] = json!({"touched": "yes"})
            });
            return Answer::Json(409, conflict());
        }
        if wish["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
            return Answer::Json(409, conflict());
        }
        let conditions = wish["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let [condition] = conditions.as_slice() else {
            return Answer::Json(422, status(422, "Invalid", "one condition is expected"));
        };
        let good = condition["type"] == "Approved" && condition["status"] == "True" && condition["reason"].is_string();
        if !good || wish["spec"] != stored["spec"] {
            self.unknown.push(format!("approval of {name} with {wish}"));
            return Answer::Json(422, status(422, "Invalid", "not an approval"));
        }
        self.edit(REQUESTS, name, |request| {
            request["status"]["conditions"] = json!(conditions)
        });
        self.approved.push(name.to_owned());
        Answer::Json(200, self.get(REQUESTS, name).unwrap().clone())
    }

    fn evict(&mut self, name: &str) -> Answer {
        match self
            .get(PODS, name)
            .map(|pod| pod["metadata"]["annotations"]["test/budget"].clone())
        {
            None => not_found(name),
            Some(budget) if budget == "none" => {
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                Answer::Json(429, status(429, "TooManyRequests", message))
            }
            Some(_) => {
                self.end_pod(name);
                Answer::Json(
                    201,
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
                )
            }
        }
    }
}

/// Adds the policies of an apply to a list whose key is the path (openshift/api:
/// `operator/v1/types_machineconfiguration.go`, `listMapKey=path`).
fn merge_policies(stored: &mut Value, wish: &Value) {
    let files = &mut stored["spec"]["nodeDisruptionPolicy"]["files"];
    let mut merged = files.as_array().cloned().unwrap_or_default();
    for policy in wish["spec"]["nodeDisruptionPolicy"]["files"]
        .as_array()
        .into_iter()
        .flatten()
    {
        merged.retain(|other| other["path"] != policy["path"]);
        merged.push(policy.clone());
    }
    *files = json!(merged);
}

fn not_found(name: &str) -> Answer {
    Answer::Json(404, status(404, "NotFound", &format!("\"{name}\" not found")))
}

fn kind_of(path: &str) -> (&'static str, &'static str) {
    match path {
        NODES => ("Node", "v1"),
        PODS => ("Pod", "v1"),
        REQUESTS => ("CertificateSigningRequest", "certificates.k8s.io/v1"),
        VERSIONS => ("ClusterVersion", "config.openshift.io/v1"),
        OPERATORS => ("ClusterOperator", "config.openshift.io/v1"),
        ETCDS => ("Etcd", "operator.openshift.io/v1"),
        LEASES => ("Lease", "coordination.k8s.io/v1"),
        CONFIG_MAPS | ETCD_MEMBERS | MANAGED => ("ConfigMap", "v1"),
        MACHINE_CONFIGS => ("MachineConfig", "machineconfiguration.openshift.io/v1"),
        CONFIGURATIONS => ("MachineConfiguration", "operator.openshift.io/v1"),
        POOLS => ("MachineConfigPool", "machineconfiguration.openshift.io/v1"),
        EVENTS => ("Event", "v1"),
        INGRESS => ("IngressController", "operator.openshift.io/v1"),
        _ => ("Secret", "v1"),
    }
}

fn version() -> Value {
    json!({"major": "1", "minor": "32", "gitVersion": "v1.32.5", "gitCommit": "0", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.23.4", "compiler": "gc", "platform": "linux/amd64"})
}
