//! The objects that are created, as JSON; pure.
//!
//! Shapes: kubevirt/kubevirt `staging/src/kubevirt.io/api/core/v1/schema.go`, kubevirt/containerized-data-importer
//! `staging/src/kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1/types.go`.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::labels::{
    CLUSTER, CONTROL_PLANE, CREATION, FINGERPRINT, IMAGE, MACHINE, NODE, PASS, ROLE, STAYS, label, metadata, name,
};
use super::pods;
use crate::backend::{ImageHandle, MachineSpec, Nic, Payload};
use crate::cluster::{Affinity, Architecture, ClusterId, KubevirtConfig, MachineName, Pass, Role};
use crate::digest::sha256;

/// The prefix of a label that ends with a cluster's id: the cluster uses the image.
const USED_BY: &str = "used-by.ocpdeploy.io/";

/// The runStrategy of a machine that is not stopped.
pub(super) const RUNS: &str = "ocpdeploy.io/run-strategy";
pub(super) const RERUN: &str = "RerunOnFailure";

/// The name of the pod network in settings.
pub(super) const POD_NETWORK: &str = "pod";

const GIB: u64 = 1 << 30;

pub(super) fn used_by(cluster: &ClusterId) -> String {
    format!("{USED_BY}{}", cluster.tag())
}

/// Whether a volume is a shared image. A copy has the same labels and another name.
pub(super) fn is_image(volume: &Value) -> bool {
    label(volume, IMAGE).is_some_and(|tag| name(volume) == image_name(tag))
}

/// The clusters that use an image.
pub(super) fn users(image: &Value) -> Vec<ClusterId> {
    let labels = image["metadata"]["labels"].as_object().into_iter().flatten();
    labels
        .filter_map(|(label, _)| ClusterId::read(label.strip_prefix(USED_BY)?))
        .collect()
}

pub(super) fn anchor_name(cluster: &ClusterId) -> String {
    format!("ocpdeploy.{}", cluster.tag())
}

/// The owner of all other objects, so that the garbage collector completes an interrupted `destroy`.
pub(super) fn anchor(cluster: &ClusterId) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": anchor_name(cluster),
            "labels": {CLUSTER: cluster.tag()},
        },
        "data": {"about": "owns what `ocpdeploy destroy` removes"},
    })
}

/// The source of a machine's root disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// A clone of a volume claim.
    Claim { namespace: String, name: String },
    /// A clone of a data source's volume or snapshot.
    Source { namespace: String, name: String },
    /// A container image with a disk; changes are lost with the machine's pod.
    Container(String),
}

impl Root {
    pub fn handle(&self) -> ImageHandle {
        ImageHandle(match self {
            Self::Claim { namespace, name } => format!("pvc:{namespace}/{name}"),
            Self::Source { namespace, name } => format!("datasource:{namespace}/{name}"),
            Self::Container(image) => format!("containerdisk:{image}"),
        })
    }

    pub fn read(handle: &ImageHandle) -> Option<Self> {
        let (kind, rest) = handle.0.split_once(':')?;
        let place = || {
            let (namespace, name) = rest.split_once('/')?;
            Some((namespace.to_owned(), name.to_owned()))
        };
        match kind {
            "pvc" => place().map(|(namespace, name)| Self::Claim { namespace, name }),
            "datasource" => place().map(|(namespace, name)| Self::Source { namespace, name }),
            "containerdisk" => Some(Self::Container(rest.to_owned())),
            _ => None,
        }
    }
}

pub(super) fn root_name(machine: &MachineName) -> String {
    format!("{machine}-root")
}

pub(super) fn disk_name(machine: &MachineName, index: usize) -> String {
    format!("{machine}-disk-{}", index + 1)
}

pub(super) fn secret_name(machine: &MachineName) -> String {
    format!("{machine}-first-boot")
}

/// The names of all volumes in a machine's object.
pub(super) fn volumes_of(machine: &Value) -> Vec<String> {
    let templates = machine["spec"]["dataVolumeTemplates"].as_array().into_iter().flatten();
    templates.map(|template| name(template).to_owned()).collect()
}

fn labels(spec: &MachineSpec) -> Value {
    let mut labels = json!({
        CLUSTER: spec.cluster.tag(),
        MACHINE: spec.name.as_str(),
        NODE: spec.node.as_str(),
        ROLE: spec.role.to_string(),
        PASS: spec.pass.to_string(),
    });
    // One label for all machines that serve the API: selectors of Services have no "or".
    if spec.pass == Pass::Two && matches!(spec.role, Role::Bootstrap | Role::Master) {
        labels[CONTROL_PLANE] = "true".into();
    }
    if is_on_pods(spec) && spec.pass == Pass::Two && matches!(spec.role, Role::Master | Role::Worker) {
        labels[STAYS] = "true".into();
    }
    labels
}

/// Whether a machine is on the pod network.
pub(super) fn is_on_pods(spec: &MachineSpec) -> bool {
    spec.nics.first().is_some_and(|nic| nic.network == POD_NETWORK)
}

/// The first-boot configuration. KubeVirt requires these keys in lower case.
pub(super) fn secret(spec: &MachineSpec, anchor: Option<&Value>) -> Value {
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    let data = match &spec.payload {
        Payload::Ignition(config) => json!({"userdata": encode(config)}),
        // KubeVirt creates the meta-data itself.
        Payload::CloudInit {
            user_data,
            network_config,
            ..
        } => json!({"userdata": encode(user_data.as_bytes()), "networkdata": encode(network_config.as_bytes())}),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(secret_name(&spec.name), &labels(spec), anchor),
        "type": "Opaque",
        "data": data,
    })
}

/// Settings of the platform for machines.
pub(super) struct Site<'a> {
    pub config: &'a KubevirtConfig,
    /// The size of the image; a clone is never smaller.
    pub image_bytes: u64,
    /// The address of a machine on the pod network.
    pub address: Option<IpAddr>,
}

/// A virtual machine with its volumes; without an owner if there is no anchor.
pub(super) fn machine(spec: &MachineSpec, root: &Root, site: &Site<'_>, anchor: Option<&Value>) -> Value {
    let labels = labels(spec);
    let mut about = metadata(spec.name.to_string(), &labels, anchor);
    // A machine whose guest powers it off stays off, unless autostart is set.
    let runs = if spec.autostart { "Always" } else { RERUN };
    about["annotations"] = json!({FINGERPRINT: spec.fingerprint(), CREATION: spec.creation, RUNS: runs});
    let disks = disks(spec, root, site, &labels);
    let (networks, interfaces): (Vec<_>, Vec<_>) = spec
        .nics
        .iter()
        .enumerate()
        .map(|nic| self::nic(nic, site.address))
        .unzip();
    let mut machine = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": about,
        "spec": {
            "runStrategy": runs,
            "dataVolumeTemplates": disks.templates,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    // KubeVirt selects hosts by it (`pkg/virt-controller/services/nodeselectorrenderer.go`).
                    "architecture": spec.arch.go(),
                    "hostname": spec.node.as_str(),
                    "evictionStrategy": site.config.eviction,
                    "terminationGracePeriodSeconds": if spec.pass == Pass::One { 0 } else { 60 },
                    "domain": {
                        "cpu": {"cores": spec.cpus},
                        "memory": {"guest": format!("{}Mi", spec.memory_mib)},
                        "devices": {"disks": disks.disks, "interfaces": interfaces, "rng": {}},
                    },
                    "networks": networks,
                    "volumes": disks.volumes,
                },
            },
        },
    });
    let guest = &mut machine["spec"]["template"]["spec"];
    // For the others, KubeVirt chooses machine type and firmware (`pkg/defaults/defaults.go`, `pkg/defaults/arm64.go`).
    if spec.arch == Architecture::X86_64 {
        guest["domain"]["machine"] = json!({"type": "q35"});
    }
    if let Some(affinity) = apart(spec, site.config.affinity) {
        guest["affinity"] = affinity;
    }
    if let Some(probe) = pods::readiness(spec.role, spec.pass).filter(|_| is_on_pods(spec)) {
        guest["readinessProbe"] = probe;
    }
    machine
}

struct Disks {
    templates: Vec<Value>,
    disks: Vec<Value>,
    volumes: Vec<Value>,
}

fn disks(spec: &MachineSpec, root: &Root, site: &Site<'_>, labels: &Value) -> Disks {
    let disk = |name: &str, order: Option<u32>| match order {
        Some(order) => json!({"name": name, "bootOrder": order, "disk": {"bus": "virtio"}}),
        None => json!({"name": name, "disk": {"bus": "virtio"}}),
    };
    let template = |name: String, source: Value, bytes: u64| {
        let storage = storage(site.config, bytes);
        let mut volume = json!({"metadata": {"name": name, "labels": labels}, "spec": {"storage": storage}});
        for (key, value) in source.as_object().into_iter().flatten() {
            volume["spec"][key] = value.clone();
        }
        volume
    };
    let mut all = Disks {
        templates: Vec::new(),
        disks: vec![disk("root", Some(1))],
        volumes: Vec::new(),
    };
    let source = match root {
        Root::Claim { namespace, name } => Some(json!({"source": {"pvc": {"namespace": namespace, "name": name}}})),
        Root::Source { namespace, name } => {
            Some(json!({"sourceRef": {"kind": "DataSource", "namespace": namespace, "name": name}}))
        }
        Root::Container(_) => None,
    };
    match (source, root) {
        (None, Root::Container(image)) => all
            .volumes
            .push(json!({"name": "root", "containerDisk": {"image": image}})),
        (source, _) => {
            let name = root_name(&spec.name);
            all.volumes.push(json!({"name": "root", "dataVolume": {"name": name}}));
            let bytes = site.image_bytes.max(spec.disk_gib * GIB);
            all.templates.push(template(name, source.unwrap_or_default(), bytes));
        }
    }
    for (index, gib) in spec.extra_disks_gib.iter().enumerate() {
        let (name, of_machine) = (format!("disk-{}", index + 1), disk_name(&spec.name, index));
        all.disks.push(disk(&name, None));
        all.volumes
            .push(json!({"name": name, "dataVolume": {"name": of_machine}}));
        all.templates
            .push(template(of_machine, json!({"source": {"blank": {}}}), gib * GIB));
    }
    let secret = json!({"name": secret_name(&spec.name)});
    let first_boot = match spec.payload {
        Payload::Ignition(_) => json!({"name": "first-boot", "cloudInitConfigDrive": {"secretRef": secret}}),
        Payload::CloudInit { .. } => json!({
            "name": "first-boot",
            "cloudInitNoCloud": {"secretRef": secret, "networkDataSecretRef": secret},
        }),
    };
    all.disks.push(json!({"name": "first-boot", "cdrom": {"bus": "sata"}}));
    all.volumes.push(first_boot);
    all
}

/// Without modes, CDI takes those of the class's StorageProfile.
fn storage(config: &KubevirtConfig, bytes: u64) -> Value {
    let size = match bytes.is_multiple_of(GIB) {
        true => format!("{}Gi", bytes / GIB),
        false => bytes.to_string(),
    };
    let mut storage = json!({"resources": {"requests": {"storage": size}}});
    if let Some(class) = &config.storage_class {
        storage["storageClassName"] = class.as_str().into();
    }
    if let Some(mode) = config.access_mode {
        storage["accessModes"] = json!([mode]);
    }
    if let Some(mode) = config.volume_mode {
        storage["volumeMode"] = json!(mode);
    }
    storage
}

fn nic((index, nic): (usize, &Nic), address: Option<IpAddr>) -> (Value, Value) {
    let name = format!("net{index}");
    let mac = nic.mac.to_string();
    match nic.network.as_str() {
        // The only binding that every pod network supports.
        POD_NETWORK => (
            match address.and_then(pods::network_of) {
                Some(network) => json!({"name": name, "pod": {"vmNetworkCIDR": network.to_string()}}),
                None => json!({"name": name, "pod": {}}),
            },
            json!({"name": name, "macAddress": mac, "model": "virtio", "masquerade": {}}),
        ),
        network => (
            json!({"name": name, "multus": {"networkName": network}}),
            json!({"name": name, "macAddress": mac, "model": "virtio", "bridge": {}}),
        ),
    }
}

/// Anti-affinity of machines of one role: preferred or required. Never required in pass one, which must not wait for a
/// host.
///
/// The arbiter avoids the masters, and they avoid it: the scheduler also applies the rules of pods that already run
/// (kubernetes/kubernetes: `pkg/scheduler/framework/plugins/interpodaffinity`).
fn apart(spec: &MachineSpec, affinity: Affinity) -> Option<Value> {
    let role = match spec.role {
        Role::Arbiter => Role::Master,
        role => role,
    };
    let same = json!({CLUSTER: spec.cluster.tag(), ROLE: role.to_string(), PASS: spec.pass.to_string()});
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": same}});
    let rule = match (affinity, spec.pass) {
        (Affinity::Off, _) => return None,
        (Affinity::Hard, Pass::Two) => json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]}),
        _ => json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}),
    };
    Some(json!({"podAntiAffinity": rule}))
}

/// The source of an image for CDI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Import {
    /// Uploaded by this program.
    Upload,
    Http(String),
    /// `docker://…`.
    Registry(String),
}

/// The name of a shared image: from the digest of the file or of its source.
pub(super) fn image_name(identity: &str) -> String {
    format!("ocpdeploy-image-{}", image_tag(identity))
}

fn image_tag(identity: &str) -> &str {
    identity.get(..16).unwrap_or(identity)
}

/// The identity of an image that CDI downloads.
pub(super) fn identity(url: &str) -> String {
    sha256(url)
}

/// The volume of an image that clusters share.
pub(super) fn image(
    identity: &str,
    import: &Import,
    config: &KubevirtConfig,
    bytes: u64,
    cluster: &ClusterId,
) -> Value {
    let source = match import {
        Import::Upload => json!({"upload": {}}),
        Import::Http(url) => json!({"http": {"url": url}}),
        Import::Registry(url) => json!({"registry": {"url": url}}),
    };
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {
            "name": image_name(identity),
            "labels": {IMAGE: image_tag(identity), used_by(cluster): ""},
            "annotations": {
                // No pod mounts it, so a class with WaitForFirstConsumer would wait forever.
                "cdi.kubevirt.io/storage.bind.immediate.requested": "true",
                // Later clusters read its phase.
                "cdi.kubevirt.io/storage.deleteAfterCompletion": "false",
            },
        },
        "spec": {"source": source, "storage": storage(config, bytes)},
    })
}
