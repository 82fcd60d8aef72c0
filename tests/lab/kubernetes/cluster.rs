//! A deployed cluster with the lab's API server; the test plays the rest.
//!
//! That is the kubelet of each running machine, with a kubelet's rights; the bootstrap; the operators. A fake oVirt
//! engine has the machines, and the program's simulated platform those of one pool.
//!
//! More than 500 lines: a complete cluster without its API server.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use ocpdeploy::cluster::{NodeName, Role};
use ocpdeploy::state::parameters::{NodeAddress, Parameters};
use rcgen::KeyPair;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::manifests::define;
use super::*;
use crate::support::fake_engine::{Agent, FakeEngine};
use crate::support::fake_installer;
use crate::support::fake_kube::requests::{Wish, client, serving};
use crate::support::fake_kube::world::story::entry;
use crate::support::qcow2;
use crate::support::sandbox::{Outcome, Sandbox};

/// Its definitions of MachineConfigPools and of what else the program reads and writes.
const RELEASE: (u32, u32) = (4, 16);
const KINDS: [&str; 10] = [
    "clusteroperators.config.openshift.io",
    "clusterversions.config.openshift.io",
    "configs.imageregistry.operator.openshift.io",
    "etcds.operator.openshift.io",
    "ingresscontrollers.operator.openshift.io",
    "machineconfigpools.machineconfiguration.openshift.io",
    "machineconfigs.machineconfiguration.openshift.io",
    "machineconfigurations.operator.openshift.io",
    "networks.operator.openshift.io",
    "schedulers.config.openshift.io",
];

const NAMESPACES: [&str; 4] = [
    "openshift-ingress-operator",
    "openshift-machine-api",
    "openshift-machine-config-operator",
    "shop",
];

const SETTINGS: &str = "cluster=lab\ndomain=example.com\nbackend=ovirt\nnetwork=ovirtmgmt\novirt_password_file=password\n\
    ovirt_ca=ca.pem\novirt_storage_domain=data\nimages_dir=.\nworker_backend=sim\nworker_network=default\n\
    sim_state=sim.json\nmachine_network=192.168.99.0/24\nmcs=http\ninstall_timeout=3m\nbootstrap_timeout=3m\n\
    masters=3\nworkers=2\npools=infra:2,gpu:1\nworker_backend_for=gpu\nmachine_config_pools=infra\n\
    pool_labels=gpu:example.com/accelerator=a100,gpu:node-restriction.kubernetes.io/tenant=research\n\
    pool_taints=infra:node-role.kubernetes.io/infra:NoSchedule,gpu:nvidia.com/gpu=present:NoSchedule\n";

/// Labels that a kubelet may give its node (kubernetes/kubernetes:
/// `staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go`).
pub(super) const OF_KUBELET: [&str; 3] = ["kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os"];

/// Two platforms on one network, and everything else that the program requires.
pub(super) struct Site {
    /// Runs the program; its simulated platform has the pool `gpu`.
    pub(super) sandbox: Sandbox,
    pub(super) engine: FakeEngine,
}

impl Site {
    pub(super) fn new() -> Self {
        let sandbox = Sandbox::new(json!({"networks": {"default": {
            "cidr": "192.168.99.0/24", "gateway": "192.168.99.1",
            "dhcp_from": "192.168.99.100", "dhcp_to": "192.168.99.200",
        }}}));
        let engine = FakeEngine::with(|world| {
            world.tick = 3_000;
            world.uploaded_agent = Agent::Installed;
        });
        fake_installer::install(sandbox.path());
        let mut kubeconfig = kubeconfig();
        kubeconfig["clusters"][0]["cluster"]["server"] = json!("https://api.lab.example.com:6443");
        let settings = format!(
            "{SETTINGS}{}ovirt_url={}\novirt_user={}\n",
            fake_installer::LINES,
            engine.url,
            engine.user
        );
        for (name, bytes) in [
            ("lab.sh", settings.as_bytes()),
            ("kubeconfig", kubeconfig.to_string().as_bytes()),
            ("centos.qcow2", &qcow2::empty()),
            ("rhcos.qcow2", &[qcow2::empty(), vec![0; 512]].concat()),
            ("ca.pem", engine.ca_pem.as_bytes()),
            ("password", engine.password.as_bytes()),
        ] {
            std::fs::write(sandbox.path().join(name), bytes).unwrap();
        }
        Self { sandbox, engine }
    }

    pub(super) fn run(&self, line: &str) -> Outcome {
        let words: Vec<&str> = line.split(' ').collect();
        let outcome = self.sandbox.run(&words);
        println!("$ {line}\n{}{}", outcome.stderr, outcome.stdout);
        outcome
    }

    pub(super) fn table(&self) -> Parameters {
        self.sandbox.parameters("lab").expect("a parameter file")
    }

    /// A node's running machine as a unique text: its platform, and a property that no earlier machine had.
    pub(super) fn machine(&self, node: &str) -> Option<String> {
        let name = format!("lab-{node}");
        let there = self.engine.look(|world| {
            let vm = world.vm_named(&name).filter(|vm| vm.status == "up");
            vm.map(|vm| format!("ovirt {}", vm.id))
        });
        let here = &self.sandbox.state()["machines"][&name];
        there.or_else(|| (here.is_object() && here["off"] != true).then(|| format!("sim {}", here["created_ms"])))
    }
}

/// The lab's own kubeconfig.
fn kubeconfig() -> Value {
    let text = std::fs::read_to_string(folder().join("state/admin.kubeconfig")).unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn client_of(user: Option<Value>) -> Client {
    let mut kubeconfig = kubeconfig();
    if let Some(user) = user {
        kubeconfig["users"][0]["user"] = user;
    }
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A kubelet from the first start of its node, see kubernetes/kubernetes: `pkg/kubelet/kubelet_node_status.go`,
/// `pkg/kubelet/certificate/bootstrap/bootstrap.go`.
struct Kubelet {
    host: String,
    node: NodeAddress,
    /// With the token that is in each node's kubeconfig at first.
    bootstrapper: Client,
    admin: Client,
    /// The bootstrap approves whatever is requested while it runs (openshift/installer:
    /// `data/data/bootstrap/files/usr/local/bin/approve-csr.sh`); here, what masters request.
    is_approved: bool,
}

impl Kubelet {
    async fn run(self) {
        let user = self.certificate(&self.bootstrapper, client(&self.host)).await;
        let own = client_of(Some(user)).await;
        let uid = self.register(&own).await;
        let serving = serving(&self.host, &self.node);
        tokio::join!(self.certificate(&own, serving), self.works(&own, &uid));
    }

    /// Requests a certificate and returns it as a user of a kubeconfig.
    async fn certificate(&self, by: &Client, mut wish: Wish) -> Value {
        let key = KeyPair::generate().unwrap();
        // Of a kubelet of the server's age, also for a key that can only sign (kubernetes/kubernetes: `pkg/apis/certificates/v1`,
        // `kubeletClientRequiredUsages`).
        wish.usages.push("key encipherment".to_owned());
        let mut request = wish.signed("", &key);
        request["metadata"] = json!({"generateName": "csr-"});
        let requests: Api<CertificateSigningRequest> = Api::all(by.clone());
        let request = serde_json::from_value(request).unwrap();
        let made = requests.create(&PostParams::default(), &request).await.unwrap();
        let name = made.name_any();
        if self.is_approved {
            kubectl(&["certificate", "approve", &name]);
        }
        loop {
            let seen = requests.get(&name).await.unwrap();
            if let Some(certificate) = seen.status.and_then(|status| status.certificate) {
                let key = STANDARD.encode(key.serialize_pem());
                return json!({"client-certificate-data": certificate, "client-key-data": key});
            }
            pause().await;
        }
    }

    /// Creates the Node, which the server accepts only without what the program sets; returns its uid.
    async fn register(&self, own: &Client) -> String {
        let labels = OF_KUBELET.into_iter().zip(["amd64", &self.host, "linux"]);
        let labels: BTreeMap<&str, &str> = labels.collect();
        let is_master = self.node.role == Role::Master;
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": self.host, "labels": labels},
            "spec": {},
            "status": {
                "addresses": [{"type": "InternalIP", "address": self.node.ip}, {"type": "Hostname", "address": self.host}],
                "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady",
                    "message": "container runtime network not ready"}],
            },
        });
        if is_master {
            // openshift/machine-config-operator: templates/master/01-master-kubelet/_base/units/kubelet.service.yaml
            node["spec"]["taints"] = json!([{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}]);
        }
        let nodes: Api<Node> = Api::all(own.clone());
        let create = async |node: &Value| {
            let node = serde_json::from_value(node.clone()).unwrap();
            nodes.create(&PostParams::default(), &node).await
        };
        for label in ["node-role.kubernetes.io/infra", "node-restriction.kubernetes.io/tenant"] {
            let mut labeled = node.clone();
            labeled["metadata"]["labels"][label] = json!("");
            let refused = create(&labeled).await.unwrap_err().to_string();
            assert!(refused.contains("not allowed to set the following labels"), "{refused}");
        }
        let made = create(&node).await.unwrap();
        // OpenShift's server, unlike Kubernetes' own, lets a kubelet create its Node with the labels of masters and workers
        // (openshift/kubernetes: plugin/pkg/admission/noderestriction/admission.go, getForbiddenLabels).
        let label = format!("node-role.kubernetes.io/{}", self.node.role);
        let all: Api<Node> = Api::all(self.admin.clone());
        merge(&all, &self.host, json!({"metadata": {"labels": {label: ""}}})).await;
        made.uid().unwrap()
    }

    /// Reports the node as Ready, renews its Lease, and ends the pods that must go.
    async fn works(&self, own: &Client, uid: &str) {
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": self.host, "uid": uid}]);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.host, "namespace": "kube-node-lease", "ownerReferences": owner},
            "spec": {"holderIdentity": self.host, "leaseDurationSeconds": 40},
        });
        let leases: Api<Lease> = Api::namespaced(own.clone(), "kube-node-lease");
        let lease = serde_json::from_value(lease).unwrap();
        leases.create(&PostParams::default(), &lease).await.unwrap();
        let nodes: Api<Node> = Api::all(own.clone());
        let pods: Api<Pod> = Api::all(own.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.host));
        loop {
            let now = jiff::Timestamp::now();
            let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at,
                "message": "kubelet is posting ready status"});
            let status = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
            match nodes.patch_status(&self.host, &PatchParams::default(), &status).await {
                // A kubelet whose Node was deleted registers again only when it starts again.
                Err(kube::Error::Api(status)) if status.code == 404 => return std::future::pending().await,
                reported => _ = reported.unwrap(),
            }
            let renewed = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
            merge(&leases, &self.host, json!({"spec": {"renewTime": renewed}})).await;
            for pod in pods.list(&here).await.unwrap() {
                if pod.metadata.deletion_timestamp.is_some() {
                    let pods: Api<Pod> = Api::namespaced(own.clone(), &pod.namespace().unwrap());
                    let now = DeleteParams::default().grace_period(0);
                    pods.delete(&pod.name_any(), &now).await.unwrap();
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

async fn merge<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.unwrap();
}

/// Everything of the cluster except its API server, until it is dropped.
pub(super) struct Cluster {
    runtime: Runtime,
    lives: JoinHandle<()>,
}

impl Cluster {
    pub(super) fn new(site: Arc<Site>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let lives = runtime.spawn(live(site));
        Self { runtime, lives }
    }

    /// Fails if one of its tasks has failed.
    pub(super) fn is_well(&mut self) {
        if self.lives.is_finished() {
            self.runtime.block_on(&mut self.lives).unwrap();
        }
    }
}

async fn live(site: Arc<Site>) {
    let admin = client_of(None).await;
    let token = token_of_nodes().await;
    let bootstrapper = client_of(Some(json!({"token": token}))).await;
    let mut kubelets: BTreeMap<NodeName, (String, JoinHandle<()>)> = BTreeMap::new();
    let (mut stage, mut vip) = (Stage::Bootstrap, None);
    loop {
        pause().await;
        let Some(table) = site.sandbox.parameters("lab") else {
            continue;
        };
        vip.get_or_insert_with(|| OnLoopback::new(table.api_ip));
        let nodes: Vec<&NodeAddress> = table.nodes.iter().filter(|node| node.role != Role::Bootstrap).collect();
        let mut off = Vec::new();
        for (name, (machine, kubelet)) in &mut kubelets {
            if kubelet.is_finished() {
                kubelet.await.unwrap();
            } else if site.machine(name.as_str()).as_ref() != Some(machine) {
                kubelet.abort();
                off.push(name.clone());
            }
        }
        kubelets.retain(|name, _| !off.contains(name));
        for node in &nodes {
            if let Some(machine) = site.machine(node.name.as_str())
                && !kubelets.contains_key(&node.name)
            {
                let kubelet = Kubelet {
                    host: host(node.name.as_str()),
                    node: (*node).clone(),
                    bootstrapper: bootstrapper.clone(),
                    admin: admin.clone(),
                    is_approved: node.role == Role::Master && stage == Stage::Bootstrap,
                };
                kubelets.insert(node.name.clone(), (machine, tokio::spawn(kubelet.run())));
            }
        }
        stage = stage.next(&site, &admin, &nodes).await;
    }
}

/// The progress of the installation.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Bootstrap,
    Operators,
    Installed,
}

impl Stage {
    async fn next(self, site: &Site, admin: &Client, nodes: &[&NodeAddress]) -> Self {
        let all: Api<Node> = Api::all(admin.clone());
        let ready: BTreeSet<String> = all
            .list(&ListParams::default())
            .await
            .unwrap()
            .iter()
            .filter(is_ready)
            .map(ResourceExt::name_any)
            .collect();
        let are_ready = |role: &[Role]| {
            let mut wanted = nodes.iter().filter(|node| role.contains(&node.role));
            wanted.all(|node| ready.contains(&host(node.name.as_str())))
        };
        match self {
            Stage::Bootstrap if are_ready(&[Role::Master]) => {
                // The bootstrap has created the installer's manifests, and left etcd.
                let made = std::fs::read_to_string(site.sandbox.path().join("openshift.json")).unwrap();
                let made: BTreeMap<String, String> = serde_json::from_str(&made).unwrap();
                for text in made.values() {
                    if let Ok(manifest) = serde_json::from_str::<Value>(text) {
                        store(admin, manifest).await;
                    }
                }
                let source = "https://api-int.lab.example.com:22623/config/worker";
                let pointer = json!({"ignition": {"version": "3.2.0", "config": {"merge": [{"source": source}]}}});
                let pointer = pointer.to_string();
                store(
                    admin,
                    json!({
                        "apiVersion": "v1", "kind": "Secret", "data": {"userData": STANDARD.encode(pointer)},
                        "metadata": {"name": "worker-user-data-managed", "namespace": "openshift-machine-api"},
                    }),
                )
                .await;
                store(
                    admin,
                    json!({
                        "apiVersion": "operator.openshift.io/v1", "kind": "Etcd", "metadata": {"name": "cluster"},
                        "spec": {"managementState": "Managed"},
                        "status": {"conditions": [condition("EtcdBootstrapMemberRemoved", true)]},
                    }),
                )
                .await;
                store(
                    admin,
                    json!({
                        "apiVersion": "v1", "kind": "ConfigMap", "data": {"status": "complete"},
                        "metadata": {"name": "bootstrap", "namespace": "kube-system"},
                    }),
                )
                .await;
                Stage::Operators
            }
            Stage::Operators if are_ready(&[Role::Master, Role::Worker]) => {
                let conditions = [
                    ("Available", true),
                    ("Progressing", false),
                    ("Degraded", false),
                    ("Failing", false),
                ];
                let conditions = conditions.map(|(kind, yes)| condition(kind, yes));
                store(admin, json!({
                    "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": {"name": "ingress"},
                    "spec": {}, "status": {"conditions": conditions},
                })).await;
                let done = entry("4.19.0", "4190", true);
                store(admin, json!({
                    "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
                    "spec": {"clusterID": "7b1d2ff4-0000-4000-8000-000000000000"},
                    "status": {"desired": {"version": done["version"], "image": done["image"]}, "history": [done],
                        "conditions": conditions, "observedGeneration": 1, "versionHash": "x", "availableUpdates": []},
                })).await;
                Stage::Installed
            }
            Stage::Installed => {
                merge_policies(admin).await;
                Stage::Installed
            }
            stage => stage,
        }
    }
}

/// The machine config operator accepts the node disruption policies of the spec (openshift/machine-config-operator:
/// `pkg/apihelpers/apihelpers.go`, `MergeClusterPolicies`).
async fn merge_policies(admin: &Client) {
    let kind = GroupVersionKind::gvk("operator.openshift.io", "v1", "MachineConfiguration");
    let api: Api<DynamicObject> = Api::all_with(admin.clone(), &ApiResource::from_gvk(&kind));
    let Some(configuration) = api.get_opt("cluster").await.unwrap() else {
        return;
    };
    let files = &configuration.data["spec"]["nodeDisruptionPolicy"]["files"];
    let status = json!({"nodeDisruptionPolicyStatus": {"clusterPolicies": {"files": files}}});
    if configuration.data["status"] != status {
        let status = Patch::Merge(json!({"status": status}));
        let accepted = api.patch_status("cluster", &PatchParams::default(), &status).await;
        accepted.unwrap();
    }
}

fn is_ready(node: &&Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A condition that has held for an hour.
fn condition(kind: &str, yes: bool) -> Value {
    let since = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1);
    json!({"type": kind, "status": if yes { "True" } else { "False" }, "reason": "AsExpected", "message": "",
        "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()})
}

/// Creates an object, also its status, as an operator does.
async fn store(admin: &Client, object: Value) {
    let status = json!({"status": object["status"]});
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let (name, kind) = (object.name_any(), ApiResource::from_gvk(&kind));
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(admin.clone(), &namespace, &kind),
        None => Api::all_with(admin.clone(), &kind),
    };
    let made = api.create(&PostParams::default(), &object).await;
    made.unwrap_or_else(|error| panic!("{name}: {error}"));
    if !status["status"].is_null() {
        let status = Patch::Merge(status);
        let stored = api.patch_status(&name, &PatchParams::default(), &status).await;
        stored.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Lets nodes request certificates, and returns the token for that (openshift/machine-config-operator:
/// `manifests/machineconfigserver/csr-bootstrap-role-binding.yaml`).
async fn token_of_nodes() -> String {
    const NAMESPACE: &str = "openshift-machine-config-operator";
    let account = format!("{NAMESPACE}:node-bootstrapper");
    kubectl(&["-n", NAMESPACE, "create", "serviceaccount", "node-bootstrapper"]);
    let role = ["--clusterrole=system:node-bootstrapper", "--serviceaccount", &account];
    let create = ["create", "clusterrolebinding", "system-bootstrap-node-bootstrapper"];
    kubectl(&[&create[..], &role].concat());
    loop {
        let show = [
            "-n",
            NAMESPACE,
            "get",
            "serviceaccount",
            "node-bootstrapper",
            "-o",
            "jsonpath={.secrets[0].name}",
        ];
        let secret = kubectl(&show);
        if !secret.is_empty() {
            let show = [
                "-n",
                NAMESPACE,
                "get",
                "secret",
                &secret,
                "-o",
                "jsonpath={.data.token}",
            ];
            return String::from_utf8(STANDARD.decode(kubectl(&show)).unwrap()).unwrap();
        }
        pause().await;
    }
}

/// The api VIP, at which the server also answers.
struct OnLoopback(IpAddr);

impl OnLoopback {
    fn new(ip: IpAddr) -> Self {
        assert!(Self::ip("add", ip), "{ip} can be added to lo");
        Self(ip)
    }

    fn ip(operation: &str, ip: IpAddr) -> bool {
        let arguments = ["address", operation, &format!("{ip}/32"), "dev", "lo"];
        Command::new("ip").args(arguments).status().unwrap().success()
    }
}

impl Drop for OnLoopback {
    fn drop(&mut self) {
        Self::ip("del", self.0);
    }
}

pub(super) fn host(node: &str) -> String {
    format!("{node}.lab.example.com")
}

/// Removes the objects of an earlier attempt, and defines the kinds of OpenShift.
pub(super) fn fresh() {
    for kind in ["nodes", "certificatesigningrequests"] {
        kubectl(&["delete", kind, "--all"]);
    }
    kubectl(&[
        "-n",
        "kube-system",
        "delete",
        "configmap",
        "bootstrap",
        "--ignore-not-found",
    ]);
    kubectl(&[
        "delete",
        "clusterrolebinding",
        "system-bootstrap-node-bootstrapper",
        "--ignore-not-found",
    ]);
    define(RELEASE, &KINDS);
    // Node disruption policies are newer.
    define((4, 20), &["machineconfigurations.operator.openshift.io"]);
    for namespace in NAMESPACES {
        kubectl(&["delete", "namespace", namespace, "--ignore-not-found"]);
        kubectl(&["create", "namespace", namespace]);
    }
}
