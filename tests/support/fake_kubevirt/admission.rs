//! Objects that webhooks of KubeVirt, CDI and KubeMacPool reject although the schema allows them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rights::User;
use super::world::World;

/// The limit of inline user data (kubevirt/kubevirt: vmi-create-admitter.go).
const INLINE: usize = 2048;
/// The limit of all values of a Secret together (kubernetes/kubernetes: ValidateSecret).
const SECRET: usize = 1 << 20;

const VOLUMES: &str = "datavolume-validate.cdi.kubevirt.io";

/// Why an object is rejected: status, reason, message.
pub type Refusal = (u16, &'static str, String);

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn denied(webhook: &str, why: String) -> Refusal {
    (
        400,
        "BadRequest",
        format!("admission webhook \"{webhook}\" denied the request: {why}"),
    )
}

pub fn admit(world: &World, user: &User, kind: &str, object: &Value) -> Result<(), Refusal> {
    may_block(user, object)?;
    match kind {
        "VirtualMachine" => machine(world, object),
        "DataVolume" => {
            volume(&object["spec"])?;
            may_clone(world, user, object)
        }
        "Secret" => secret(object),
        "VirtualMachineSnapshot" => snapshot(world, object),
        "VirtualMachineRestore" => restore(world, object),
        _ => Ok(()),
    }
}

/// kubernetes/kubernetes: plugin/pkg/admission/gc/gc_admission.go; OpenShift enables it (openshift/cluster-kube-apiserver-
/// operator: bindata/assets/config/defaultconfig.yaml, `OwnerReferencesPermissionEnforcement`).
fn may_block(user: &User, object: &Value) -> Result<(), Refusal> {
    let about = &object["metadata"];
    let namespace = about["namespace"].as_str().unwrap_or_default();
    let may = |owner: &Value| {
        let plural = format!(
            "{}s/finalizers",
            owner["kind"].as_str().unwrap_or_default().to_lowercase()
        );
        user.may("update", &plural, namespace)
    };
    let blocked = |owner: &&Value| owner["blockOwnerDeletion"] == true && !may(owner);
    match list(&about["ownerReferences"]).iter().find(blocked) {
        None => Ok(()),
        Some(_) => {
            let why =
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
            Err((
                403,
                "Forbidden",
                format!("{} is forbidden: {why}: , <nil>", about["name"]),
            ))
        }
    }
}

/// kubevirt/kubevirt: pkg/storage/admitters/vmsnapshot.go.
fn snapshot(world: &World, object: &Value) -> Result<(), Refusal> {
    const WEBHOOK: &str = "virtualmachinesnapshot-validator.snapshot.kubevirt.io";
    if !world.has_snapshots {
        return Err(denied(WEBHOOK, "snapshot feature gate not enabled".to_owned()));
    }
    of_machine(WEBHOOK, &object["spec"]["source"])
}

/// kubevirt/kubevirt: pkg/storage/admitters/vmrestore.go.
fn restore(world: &World, object: &Value) -> Result<(), Refusal> {
    const WEBHOOK: &str = "virtualmachinerestore-validator.snapshot.kubevirt.io";
    if !world.has_snapshots {
        return Err(denied(WEBHOOK, "Snapshot/Restore feature gate not enabled".to_owned()));
    }
    let (namespace, target) = (&object["metadata"]["namespace"], &object["spec"]["target"]);
    for (_, other) in world.all("virtualmachinerestores") {
        let is_one = other["metadata"]["namespace"] == *namespace && other["spec"]["target"] == *target;
        if is_one && other["status"]["complete"] != true {
            let why = format!("VirtualMachineRestore {} in progress", other["metadata"]["name"]);
            return Err(denied(WEBHOOK, why));
        }
    }
    of_machine(WEBHOOK, target)
}

fn of_machine(webhook: &str, object: &Value) -> Result<(), Refusal> {
    match (object["apiGroup"].as_str(), object["kind"].as_str()) {
        (None, _) => Err(denied(webhook, "missing apiGroup".to_owned())),
        (Some("kubevirt.io"), Some("VirtualMachine")) => Ok(()),
        (Some("kubevirt.io"), _) => Err(denied(webhook, "invalid kind".to_owned())),
        _ => Err(denied(webhook, "invalid apiGroup".to_owned())),
    }
}

fn secret(object: &Value) -> Result<(), Refusal> {
    use base64::Engine;
    let mut bytes = 0;
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        let decoded = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
        let decoded = decoded.map_err(|_| {
            let why =
                format!("Secret in version \"v1\" cannot be handled as a Secret: data.{key}: illegal base64 data");
            (400, "BadRequest", why)
        })?;
        bytes += decoded.len();
    }
    match bytes > SECRET {
        true => Err((
            422,
            "Invalid",
            format!(
                "Secret {} is invalid: data: Too long: may not be more than {SECRET} bytes",
                object["metadata"]["name"]
            ),
        )),
        false => Ok(()),
    }
}

fn volume(spec: &Value) -> Result<(), Refusal> {
    let sources =
        spec["source"].as_object().map_or(0, serde_json::Map::len) + usize::from(spec["sourceRef"].is_object());
    if sources != 1 {
        return Err(denied(VOLUMES, format!("a data volume has one source, not {sources}")));
    }
    match spec["storage"].is_object() == spec["pvc"].is_object() {
        true => Err(denied(VOLUMES, "one of storage and pvc is wanted".to_owned())),
        false => Ok(()),
    }
}

/// A user's own data volume. Those of machines are KubeVirt's, which asks for the rights of their service account
/// (kubevirt/containerized-data-importer: pkg/apiserver/webhooks/datavolume-mutate.go).
fn may_clone(world: &World, user: &User, volume: &Value) -> Result<(), Refusal> {
    match world.cloned_from(volume) {
        Some(from) if !user.may("create", "datavolumes/source", &from) => {
            Err(denied(VOLUMES, no_clone(&user.name, &from)))
        }
        _ => Ok(()),
    }
}

/// kubevirt/containerized-data-importer: staging/src/kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1/
/// authorize_utils.go.
pub fn no_clone(user: &str, from: &str) -> String {
    format!("User {user} has insufficient permissions in clone source namespace {from}")
}

fn machine(world: &World, object: &Value) -> Result<(), Refusal> {
    const WEBHOOK: &str = "virtualmachine-validator.kubevirt.io";
    let refuse = |why: String| Err(denied(WEBHOOK, why));
    let spec = &object["spec"];
    if spec["running"].is_boolean() == spec["runStrategy"].is_string() {
        return refuse("one of running and runStrategy is wanted".to_owned());
    }
    for template in list(&spec["dataVolumeTemplates"]) {
        volume(&template["spec"])?;
    }
    let guest = &spec["template"]["spec"];
    let networks = list(&guest["networks"]);
    let interfaces = list(&guest["domain"]["devices"]["interfaces"]);
    let names = |list: &[Value]| {
        list.iter()
            .map(|item| item["name"].to_string())
            .collect::<BTreeSet<_>>()
    };
    if names(networks) != names(interfaces)
        || names(networks).len() != networks.len()
        || networks.len() != interfaces.len()
    {
        return refuse("networks and interfaces do not fit each other".to_owned());
    }
    for interface in interfaces {
        let network = networks
            .iter()
            .find(|network| network["name"] == interface["name"])
            .unwrap();
        let bindings = ["bridge", "masquerade"]
            .iter()
            .filter(|name| interface[**name].is_object())
            .count();
        if bindings != 1 {
            return refuse(format!("interface {} has {bindings} bindings", interface["name"]));
        }
        if interface["masquerade"].is_object() && !network["pod"].is_object() {
            return refuse("masquerade works with the pod network only".to_owned());
        }
        if interface["bridge"].is_object() && network["pod"].is_object() && !world.permits_bridge_on_pods {
            return refuse("bridge interface is not enabled in kubevirt-config".to_owned());
        }
        if let Some(range) = network["pod"]["vmNetworkCIDR"].as_str() {
            let prefix = range.split_once('/').and_then(|(_, prefix)| prefix.parse::<u8>().ok());
            if prefix.is_none_or(|prefix| prefix > 30) {
                return refuse(format!("vmNetworkCIDR {range} has no room for a gateway and a guest"));
            }
        }
        if let Some(mac) = interface["macAddress"].as_str() {
            mac_is_free(world, object, mac)?;
        }
    }
    let volumes = list(&guest["volumes"]);
    let disks = list(&guest["domain"]["devices"]["disks"]);
    if names(volumes) != names(disks) || names(disks).len() != disks.len() {
        return refuse("volumes and disks do not fit each other".to_owned());
    }
    for volume in volumes {
        for kind in ["cloudInitConfigDrive", "cloudInitNoCloud"] {
            let inline = volume[kind]["userData"].as_str().map_or(0, str::len);
            if inline > INLINE {
                return refuse(format!("{kind} userData exceeds {INLINE} byte limit"));
            }
        }
    }
    Ok(())
}

fn mac_is_free(world: &World, object: &Value, mac: &str) -> Result<(), Refusal> {
    let parts: Vec<_> = mac.split(':').collect();
    if parts.len() != 6
        || parts
            .iter()
            .any(|part| part.len() != 2 || u8::from_str_radix(part, 16).is_err())
    {
        return Err(denied(
            "virtualmachine-validator.kubevirt.io",
            format!("malformed MAC address ({mac})"),
        ));
    }
    if !world.has_mac_pool {
        return Ok(());
    }
    let me = (&object["metadata"]["namespace"], &object["metadata"]["name"]);
    for (_, other) in world.all("virtualmachines") {
        let them = (&other["metadata"]["namespace"], &other["metadata"]["name"]);
        let interfaces = list(&other["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"]);
        if me != them && interfaces.iter().any(|interface| interface["macAddress"] == mac) {
            let why = "Failed to create virtual machine allocation error: Failed to allocate mac to the vm object: \
                       failed to allocate requested mac address";
            return Err(denied("mutatevirtualmachines.kubemacpool.io", why.to_owned()));
        }
    }
    Ok(())
}
