//! KubeVirt for the contract: the fake API server, a new one for each promise, or a real one that
//! `OCPDEPLOY_TEST_KUBECONFIG` names.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use ocpdeploy::backend::kubevirt::Kubevirt;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{AddressReservation, ImageRequest, MachineSpec, Snapshot};
use ocpdeploy::cluster::{
    AddressAssignment, Affinity, Architecture, Insecure, KubevirtConfig, MachineName, PodNetwork,
};
use ocpdeploy::digest;
use serde_json::json;

use crate::support::contract::{Ability, Foreign, Ground, Mark};
use crate::support::fake_kubevirt::{FakeKubevirt, World};
use crate::support::faulty::alone;

pub struct KubevirtGround {
    server: FakeKubevirt,
    folder: tempfile::TempDir,
    backend: Platforms,
    is_on_pods: bool,
    foreign: Mutex<BTreeSet<String>>,
}

const TENANT: &str = "tenant";

impl KubevirtGround {
    pub fn fresh() -> Self {
        Self::on(None)
    }

    /// On the pods' own network.
    pub fn on_pods() -> Self {
        Self::on(Some(PodNetwork::default()))
    }

    fn on(pods: Option<PodNetwork>) -> Self {
        let is_on_pods = pods.is_some();
        let server = FakeKubevirt::start(World::with_tenants(&[TENANT]));
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        server.kubeconfig(&kubeconfig, "tenant-token", TENANT);
        std::fs::write(folder.path().join("image.qcow2"), b"an image").unwrap();
        let backend = connect(&KubevirtConfig {
            pods,
            ..config(kubeconfig)
        });
        Self {
            server,
            folder,
            backend: alone(backend),
            is_on_pods,
            foreign: Mutex::default(),
        }
    }
}

pub fn config(kubeconfig: PathBuf) -> KubevirtConfig {
    KubevirtConfig {
        kubeconfig: Some(kubeconfig),
        ..KubevirtConfig::default()
    }
}

fn connect(config: &KubevirtConfig) -> Kubevirt {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let backend = runtime.block_on(Kubevirt::connect(config)).unwrap();
    // The client's worker lives as long as the program.
    std::mem::forget(runtime);
    backend
}

impl Ground for KubevirtGround {
    fn name(&self) -> &'static str {
        "the fake KubeVirt"
    }

    fn backend(&self) -> &Platforms {
        &self.backend
    }

    fn network(&self) -> String {
        if self.is_on_pods { "pod" } else { "lan" }.to_owned()
    }

    /// Reserves a guest's address before the guest is created.
    async fn prepare(&self, spec: &MachineSpec) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if self.is_on_pods {
            let hold = AddressReservation {
                cluster: spec.cluster.clone(),
                network: self.network(),
                assignment: AddressAssignment {
                    name: spec.node.clone(),
                    mac: spec.nics[0].mac,
                    ip: Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 2, 2).to_bits() + 4 * NEXT.fetch_add(1, Relaxed))
                        .into(),
                },
                ipv6: None,
                dns_names: vec![],
                dns_later: false,
                allowed: vec![],
            };
            // Some promises have several specs of one node; the first one's address is kept.
            let _ = self.backend.reserve_address(&hold).await;
        }
    }

    fn image(&self) -> ImageRequest {
        ImageRequest::File {
            path: self.folder.path().join("image.qcow2"),
            sha256: digest::sha256(b"an image"),
            bytes: 8,
            arch: Architecture::X86_64,
        }
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Holds if self.is_on_pods => Some("addresses there are each cluster's own"),
            Ability::Holds => Some("a secondary network has no reservations"),
            _ => None,
        }
    }

    fn put_unowned(&self, name: &MachineName) {
        let about = json!({"namespace": TENANT, "name": name.as_str()});
        self.server.with(|world| {
            world.force(
                "virtualmachines",
                json!({"metadata": about, "spec": {"running": false}}),
            )
        });
    }

    fn has_unowned(&self, name: &MachineName) -> bool {
        self.server.with(|world| {
            world
                .names("virtualmachines", TENANT)
                .iter()
                .any(|known| known == name.as_str())
        })
    }

    fn remove_unowned(&self, name: &MachineName) {
        self.server.with(|world| {
            world
                .objects
                .remove(&("virtualmachines", TENANT.to_owned(), name.to_string()));
        });
    }

    fn put_foreign(&self, all: &[Foreign]) {
        self.server.with(|world| {
            world.ignores_filters = true;
            for one in all {
                let mut labels = json!({"app": one.name, "ocpdeploy.io/machine": one.name});
                if let Some(cluster) = one.text(str::to_owned) {
                    labels["ocpdeploy.io/cluster"] = json!(cluster);
                }
                for kind in KINDS {
                    let about = json!({"namespace": TENANT, "name": one.name, "labels": labels});
                    world.force(kind, json!({"metadata": about, "spec": {}}));
                }
                let used = one.text(|id| format!("used-by.ocpdeploy.io/{id}"));
                let labels = json!({"ocpdeploy.io/image": "0123456789abcdef", used.unwrap_or("app".to_owned()): ""});
                for kind in ["datavolumes", "persistentvolumeclaims"] {
                    let name = format!("{}-image", one.name);
                    let about = json!({"namespace": TENANT, "name": name, "labels": labels});
                    world.force(kind, json!({"metadata": about, "spec": {}}));
                }
            }
        });
        let mut planted = self.foreign.lock().unwrap();
        planted.extend(all.iter().map(|one| one.name.clone()));
        // A copy of an image by another user, with its labels.
        let ours = all.iter().find_map(|one| match &one.mark {
            Mark::Around(id) => Some(id),
            _ => None,
        });
        let used = format!("used-by.ocpdeploy.io/{}", ours.unwrap());
        let labels = json!({"ocpdeploy.io/image": "0123456789abcdef", used: ""});
        let about = json!({"namespace": TENANT, "name": "copy-of-image", "labels": labels});
        for kind in ["datavolumes", "persistentvolumeclaims"] {
            let copy = json!({"metadata": about, "spec": {}});
            self.server.with(|world| world.force(kind, copy));
        }
        planted.insert("copy-of-image".to_owned());
    }

    /// What controllers do is in the status.
    fn foreign(&self) -> Vec<String> {
        let planted = self.foreign.lock().unwrap();
        let is_planted =
            |name: &String| planted.contains(name) || planted.iter().any(|one| *name == format!("{one}-image"));
        self.server.with(|world| {
            let objects = world.objects.iter().filter(|((_, _, name), _)| is_planted(name));
            let shown = objects.map(|((kind, _, _), object)| {
                let mut about = object["metadata"].clone();
                about.as_object_mut().unwrap().remove("resourceVersion");
                format!("{kind} {about} {}", object["spec"])
            });
            shown.collect()
        })
    }

    fn write_disk(&self, name: &MachineName, content: u8) {
        self.server.with(|world| {
            let claim = claim(world, name);
            world.disks.insert(claim, content);
        });
    }

    fn read_disk(&self, name: &MachineName) -> Option<u8> {
        self.server.with(|world| world.disks.get(&claim(world, name)).copied())
    }

    fn put_foreign_snapshot(&self, name: &MachineName, snapshot: &Snapshot) {
        let own = format!("{name}.{}.{}", snapshot.name, snapshot.taken.as_millisecond());
        let source = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name.as_str()});
        self.server.with(|world| {
            for name in [own, "mine".to_owned()] {
                let about = json!({"namespace": TENANT, "name": name});
                world.force(
                    "virtualmachinesnapshots",
                    json!({"metadata": about, "spec": {"source": source}}),
                );
            }
        });
    }

    fn count_snapshots(&self, name: &MachineName) -> usize {
        self.server.with(|world| {
            let all = world.all("virtualmachinesnapshots").into_iter();
            all.filter(|(_, snapshot)| snapshot["spec"]["source"]["name"] == name.as_str())
                .count()
        })
    }
}

/// The claim of a machine's root disk.
fn claim(world: &World, name: &MachineName) -> (String, String) {
    let machine = &world.objects[&("virtualmachines", TENANT.to_owned(), name.to_string())];
    let volumes = machine["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let root = volumes.iter().find(|volume| volume["name"] == "root").unwrap();
    let claim = root["dataVolume"]["name"].as_str().unwrap();
    (TENANT.to_owned(), claim.to_owned())
}

/// Kinds that may carry a cluster's label.
const KINDS: [&str; 11] = [
    "virtualmachines",
    "virtualmachineinstances",
    "datavolumes",
    "persistentvolumeclaims",
    "secrets",
    "services",
    "networkpolicies",
    "routes",
    "configmaps",
    "virtualmachinesnapshots",
    "virtualmachinerestores",
];

/// A real API server, with kubectl as an independent client.
pub struct NamedGround {
    kubeconfig: PathBuf,
    backend: Platforms,
}

impl NamedGround {
    /// The one that the environment names, if any.
    pub fn named() -> Option<Self> {
        let Some(kubeconfig) = std::env::var_os("OCPDEPLOY_TEST_KUBECONFIG").map(PathBuf::from) else {
            static TOLD: std::sync::Once = std::sync::Once::new();
            TOLD.call_once(|| {
                let text = "left out: a real KubeVirt, since OCPDEPLOY_TEST_KUBECONFIG is not set";
                let _ = writeln!(std::io::stderr(), "{text}");
            });
            return None;
        };
        let backend = connect(&config(kubeconfig.clone()));
        Some(Self {
            kubeconfig,
            backend: alone(backend),
        })
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> bool {
        let mut child = Command::new("kubectl")
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait().unwrap().success()
    }
}

impl Ground for NamedGround {
    fn name(&self) -> &'static str {
        "the named KubeVirt"
    }

    fn backend(&self) -> &Platforms {
        &self.backend
    }

    fn network(&self) -> String {
        std::env::var("OCPDEPLOY_TEST_KUBECONFIG_NETWORK").unwrap_or("lan".to_owned())
    }

    fn image(&self) -> ImageRequest {
        let image = std::env::var("OCPDEPLOY_TEST_KUBECONFIG_IMAGE");
        ImageRequest::Platform(image.expect("OCPDEPLOY_TEST_KUBECONFIG_IMAGE names an image of the platform"))
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Holds => Some("a secondary network has no reservations"),
            Ability::Images => Some("the image is the platform's own"),
            Ability::Foreign => Some("its listings are its own"),
            _ => None,
        }
    }

    fn put_unowned(&self, name: &MachineName) {
        let disks = json!({"devices": {}});
        let object = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": name.as_str()},
            "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": disks}}},
        });
        // The server validates it; kubectl has its schemas from there anyway.
        assert!(self.kubectl(&["create", "--validate=false", "-f", "-"], &object.to_string()));
    }

    fn has_unowned(&self, name: &MachineName) -> bool {
        self.kubectl(&["get", "virtualmachines.kubevirt.io", name.as_str()], "")
    }

    fn remove_unowned(&self, name: &MachineName) {
        self.kubectl(&["delete", "virtualmachines.kubevirt.io", name.as_str()], "");
    }
}

impl Drop for KubevirtGround {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.server
                .with(|world| assert_eq!(world.unknown, [""; 0], "the API got unknown requests"));
        }
    }
}
