//! Snapshots. KubeVirt lets the CSI drivers of the disks' storage classes save the volumes.
//!
//! Source of fields and behavior: kubevirt/kubevirt: `staging/src/kubevirt.io/api/snapshot/v1beta1/types.go`,
//! `pkg/storage/snapshot/snapshot.go`, `pkg/storage/snapshot/restore.go`. KubeVirt leaves out volumes that it cannot save
//! and still reports success, so each snapshot records the volumes that it must have.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kind::{Kind, SNAPSHOTS};
use super::labels::{self, CLUSTER, MACHINE, SNAPSHOT, TAKEN, label, metadata};
use super::machines::{absent, find, off};
use super::preflight::missing;
use super::session::{Session, not_owned};
use crate::backend::error::if_exists;
use crate::backend::findings::Findings;
use crate::backend::{Action, BackendError, BackendErrorKind, Finding, MachineSnapshot, Snapshot};
use crate::cluster::{ClusterId, MachineName};

/// The limit for one machine. KubeVirt gives up after 5 minutes if a volume is not saved; some drivers then copy it.
const LIMIT: Duration = Duration::from_secs(30 * 60);
const LOOK: Duration = Duration::from_millis(250);

/// The names of the volumes that a snapshot must have, separated by commas.
const VOLUMES: &str = "ocpdeploy.io/volumes";

const RIGHTS: &[(&str, &str, &[&str])] = &[
    (
        "snapshot.kubevirt.io",
        "virtualmachinesnapshots",
        &["get", "list", "create", "delete"],
    ),
    (
        "snapshot.kubevirt.io",
        "virtualmachinerestores",
        &["get", "list", "create", "delete"],
    ),
];

/// The name of a snapshot's object. None of the parts contains a dot.
fn object_name(machine: &MachineName, snapshot: &Snapshot) -> String {
    format!("{machine}.{}.{}", snapshot.name, snapshot.taken.as_millisecond())
}

/// A cluster's snapshot, by its labels; `None` for other objects.
pub(super) fn read(object: &Value) -> Option<MachineSnapshot> {
    let taken = Timestamp::from_millisecond(label(object, TAKEN)?.parse().ok()?).ok()?;
    Some(MachineSnapshot {
        machine: label(object, MACHINE)?.parse().ok()?,
        snapshot: Snapshot::new(label(object, SNAPSHOT)?.parse().ok()?, taken),
        is_complete: is_ready(object) && lacking(object).is_empty() && !labels::is_going(object),
    })
}

/// Volumes of a machine that have a state of their own. The others are created from API objects at each start.
fn stateful_volumes(machine: &Value) -> Vec<&str> {
    const STATELESS: [&str; 8] = [
        "cloudInitConfigDrive",
        "cloudInitNoCloud",
        "configMap",
        "downwardAPI",
        "downwardMetrics",
        "secret",
        "serviceAccount",
        "sysprep",
    ];
    let volumes = machine["spec"]["template"]["spec"]["volumes"].as_array();
    let stateful = volumes
        .into_iter()
        .flatten()
        .filter(|volume| STATELESS.iter().all(|kind| volume[kind].is_null()));
    stateful.filter_map(|volume| volume["name"].as_str()).collect()
}

/// The disks of a machine that KubeVirt cannot save, as text.
fn problems(machine: &Value) -> Vec<String> {
    let statuses = machine["status"]["volumeSnapshotStatuses"].as_array();
    let status_of = |name: &str| statuses.into_iter().flatten().find(|status| status["name"] == name);
    let problem = |name: &str| match status_of(name) {
        Some(status) if status["enabled"] == true => None,
        status => {
            let reason = status.and_then(|status| status["reason"].as_str());
            let reason = reason.unwrap_or("KubeVirt does not say whether its storage class has snapshots");
            Some(format!("disk {name} cannot have snapshots: {reason}"))
        }
    };
    let volumes = machine["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten();
    // Hot-plugged disks: a restore gives volumes new names, but a CSI driver knows its volumes by their names.
    let attached = volumes.filter(|volume| {
        let kinds = ["dataVolume", "persistentVolumeClaim"];
        kinds.iter().any(|kind| volume[*kind]["hotpluggable"] == true)
    });
    let attached = attached.filter_map(|volume| volume["name"].as_str());
    let attached = attached.map(|name| format!("disk {name} was attached by another program"));
    stateful_volumes(machine)
        .into_iter()
        .filter_map(problem)
        .chain(attached)
        .collect()
}

fn is_ready(object: &Value) -> bool {
    object["status"]["phase"] == "Succeeded" && object["status"]["readyToUse"] == true
}

/// The volumes that a snapshot must have but lacks.
fn lacking(object: &Value) -> Vec<&str> {
    let included = object["status"]["snapshotVolumes"]["includedVolumes"].as_array();
    let is_included = |name: &&str| included.into_iter().flatten().any(|volume| volume == name);
    required(object).filter(|name| !is_included(name)).collect()
}

fn required(object: &Value) -> impl Iterator<Item = &str> {
    let names = object["metadata"]["annotations"][VOLUMES].as_str().unwrap_or_default();
    names.split(',')
}

/// Why a snapshot or restore is not complete, in KubeVirt's words.
fn why(object: &Value) -> String {
    let status = &object["status"];
    let conditions = status["conditions"].as_array();
    let of_condition = |kind: &str| {
        let condition = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == kind)?;
        // Some have their message in the reason: kubevirt/kubevirt: pkg/storage/snapshot/util.go, `newCondition`.
        ["message", "reason"]
            .iter()
            .find_map(|field| condition[field].as_str().filter(|text| !text.is_empty()))
    };
    let error = status["error"]["message"].as_str();
    let said = error.or_else(|| ["Failure", "Progressing"].into_iter().find_map(of_condition));
    said.unwrap_or("KubeVirt gives no reason").to_owned()
}

fn is_failed(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut failures = conditions.filter(|condition| condition["type"] == "Failure");
    object["status"]["phase"] == "Failed" || failures.any(|condition| condition["status"] == "True")
}

fn source(name: &MachineName) -> Value {
    json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name.as_str()})
}

fn snapshot_object(
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
    machine: &Value,
    anchor: &Value,
) -> Value {
    let labels = json!({
        CLUSTER: cluster.tag(),
        MACHINE: name.as_str(),
        SNAPSHOT: snapshot.name.as_str(),
        TAKEN: snapshot.taken.as_millisecond().to_string(),
    });
    let mut about = metadata(object_name(name, snapshot), &labels, Some(anchor));
    about["annotations"] = json!({VOLUMES: stateful_volumes(machine).join(",")});
    json!({
        "apiVersion": SNAPSHOTS,
        "kind": "VirtualMachineSnapshot",
        "metadata": about,
        "spec": {"source": source(name)},
    })
}

fn restore_object(cluster: &ClusterId, name: &MachineName, snapshot: &Snapshot, anchor: &Value) -> Value {
    let labels = json!({CLUSTER: cluster.tag(), MACHINE: name.as_str()});
    let object = object_name(name, snapshot);
    json!({
        "apiVersion": SNAPSHOTS,
        "kind": "VirtualMachineRestore",
        "metadata": metadata(object.clone(), &labels, Some(anchor)),
        "spec": {"target": source(name), "virtualMachineSnapshotName": object},
    })
}

pub(super) async fn check(
    session: &Session,
    cluster: &ClusterId,
    names: &[MachineName],
) -> Result<Vec<Finding>, BackendError> {
    let mut findings = Findings(Vec::new());
    if if_exists(session.read(&format!("/apis/{SNAPSHOTS}")).await)?.is_none() {
        let text = format!("{} does not serve {SNAPSHOTS}", session.server);
        findings.fail(text, "snapshots require KubeVirt 1.3 or later");
        return Ok(findings.0);
    }
    let refused = missing(session, RIGHTS).await?;
    if !refused.is_empty() {
        let text = format!(
            "this user lacks permissions in namespace {}: {}",
            session.namespace,
            refused.join("; ")
        );
        findings.fail(text, "the cluster role `kubevirt.io:edit` includes these rights");
        return Ok(findings.0);
    }
    for name in names {
        let machine = find(session, cluster, name).await?.ok_or_else(|| absent(name))?;
        for problem in problems(&machine) {
            let hint = "a VolumeSnapshotClass of the storage class's CSI driver is required";
            findings.fail(format!("{name}: {problem}"), hint);
        }
    }
    let rejected = match names.first() {
        Some(name) => rejection(session, cluster, name).await?,
        None => None,
    };
    match rejected {
        Some(words) => findings.fail(
            format!("KubeVirt rejects snapshots: {words}"),
            "ask an administrator to enable KubeVirt's feature gate Snapshot",
        ),
        None if findings.0.is_empty() => findings.ok("the storage classes of all disks have snapshots"),
        None => {}
    }
    Ok(findings.0)
}

/// Why a snapshot of this machine would be rejected. Users cannot read KubeVirt's feature gates, but its webhook checks
/// them (kubevirt/kubevirt: `pkg/storage/admitters/vmsnapshot.go`).
async fn rejection(session: &Session, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
    // No snapshot has this name: it contains no time.
    let labels = json!({CLUSTER: cluster.tag()});
    let object = json!({
        "apiVersion": SNAPSHOTS,
        "kind": "VirtualMachineSnapshot",
        "metadata": metadata(format!("{name}.check"), &labels, None),
        "spec": {"source": source(name)},
    });
    match session.would_create(Kind::Snapshot, &object).await {
        Ok(()) => Ok(None),
        Err(failure) if matches!(failure.kind, BackendErrorKind::Unreachable | BackendErrorKind::Timeout) => {
            Err(failure)
        }
        Err(failure) => Ok(Some(failure.message)),
    }
}

pub(super) async fn save(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<Action<()>, BackendError> {
    let machine = off(session, cluster, name).await?;
    let object_name = object_name(name, snapshot);
    let is_there = lookup(session, Kind::Snapshot, cluster, &object_name).await?.is_some();
    if !is_there {
        let anchor = session.anchor(cluster).await?;
        let object = snapshot_object(cluster, name, snapshot, &machine, &anchor);
        session.create(Kind::Snapshot, &object).await?;
    }
    let saved = wait(session, Kind::Snapshot, cluster, &object_name, is_ready).await?;
    is_whole(name, &lacking(&saved))?;
    Ok(match is_there {
        true => Action::Unchanged(()),
        false => Action::Done(()),
    })
}

fn is_whole(name: &MachineName, lacking: &[&str]) -> Result<(), BackendError> {
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(BackendError::new(
            BackendErrorKind::Rejected,
            format!("KubeVirt left out disks of {name}: {}", lacking.join(", ")),
        )),
    }
}

pub(super) async fn list(session: &Session, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
    let found = session.list(Kind::Snapshot, &labels::of_cluster(cluster)).await?;
    let mut all: Vec<_> = found.iter().filter_map(read).collect();
    all.sort();
    Ok(all)
}

/// KubeVirt creates volumes with new names from the snapshot, and replaces the machine's volumes with them. The restore
/// is a separate object. It is deleted when it is complete, so an existing one was interrupted.
pub(super) async fn revert(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<(), BackendError> {
    let machine = off(session, cluster, name).await?;
    let object_name = object_name(name, snapshot);
    let saved = lookup(session, Kind::Snapshot, cluster, &object_name).await?;
    let Some(saved) = saved else {
        let words = format!("virtual machine {name} has no snapshot {}", snapshot.name);
        return Err(BackendError::new(BackendErrorKind::NotFound, words));
    };
    is_whole(name, &lacking(&saved))?;
    let mut continues = false;
    for restore in session.list(Kind::Restore, &labels::of_machine(cluster, name)).await? {
        let is_over = is_restored(&restore) || is_failed(&restore) || labels::is_going(&restore);
        match labels::name(&restore) == object_name && !is_over {
            true => continues = true,
            false => session.remove(Kind::Restore, &restore).await?,
        }
    }
    if !continues {
        let anchor = session.anchor(cluster).await?;
        let object = restore_object(cluster, name, snapshot, &anchor);
        // A restore identifies its target only by name (`VirtualMachineRestoreSpec`), so the machine is read again just
        // before.
        session
            .again(Kind::Machine, &machine)
            .await?
            .ok_or_else(|| absent(name))?;
        session.create(Kind::Restore, &object).await?;
    }
    let restore = wait(session, Kind::Restore, cluster, &object_name, is_restored).await?;
    let restored = restore["status"]["restores"].as_array();
    let is_there = |volume: &&str| restored.into_iter().flatten().any(|one| one["volumeName"] == *volume);
    let left_out: Vec<&str> = required(&saved).filter(|volume| !is_there(volume)).collect();
    is_whole(name, &left_out)?;
    session.remove(Kind::Restore, &restore).await
}

fn is_restored(restore: &Value) -> bool {
    restore["status"]["complete"] == true
}

pub(super) async fn delete(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<Action<()>, BackendError> {
    find(session, cluster, name).await?;
    match lookup(session, Kind::Snapshot, cluster, &object_name(name, snapshot)).await? {
        Some(found) => session.remove(Kind::Snapshot, &found).await.map(Action::Done),
        None => Ok(Action::Unchanged(())),
    }
}

/// A snapshot or restore of this name. One that is not owned by the cluster is a conflict.
async fn lookup(session: &Session, kind: Kind, cluster: &ClusterId, name: &str) -> Result<Option<Value>, BackendError> {
    match session.get(kind, name).await? {
        Some(found) if labels::owner(&found).as_ref() != Some(cluster) => Err(not_owned(kind, name, cluster)),
        found => Ok(found),
    }
}

/// Waits until a snapshot or restore is complete. KubeVirt retries after errors until it reports a failure.
async fn wait(
    session: &Session,
    kind: Kind,
    cluster: &ClusterId,
    name: &str,
    is_complete: fn(&Value) -> bool,
) -> Result<Value, BackendError> {
    let begun = Instant::now();
    loop {
        let Some(object) = lookup(session, kind, cluster, name).await? else {
            let words = format!("{} {name} was deleted by another client", kind.word());
            return Err(BackendError::new(BackendErrorKind::NotFound, words));
        };
        if is_complete(&object) {
            return Ok(object);
        }
        let words = || format!("{} {name}: {}", kind.word(), why(&object));
        if is_failed(&object) {
            return Err(BackendError::new(BackendErrorKind::Rejected, words()));
        }
        if begun.elapsed() > LIMIT {
            return Err(BackendError::new(BackendErrorKind::Timeout, words()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_complete_only_with_all_its_disks() {
        let object = |phase: &str, ready: bool, included: &[&str]| {
            json!({
                "metadata": {
                    "labels": {MACHINE: "lab-master-0", SNAPSHOT: "before", TAKEN: "1790000000123"},
                    "annotations": {VOLUMES: "root,disk-1"},
                },
                "status": {"phase": phase, "readyToUse": ready, "snapshotVolumes": {"includedVolumes": included}},
            })
        };
        let is_complete = |object: &Value| read(object).unwrap().is_complete;
        assert!(is_complete(&object("Succeeded", true, &["disk-1", "root"])));
        for (phase, ready, included) in [
            ("Succeeded", true, &["root"][..]),
            ("Succeeded", true, &[]),
            // Volumes that drivers still copy, or have lost.
            ("Succeeded", false, &["root", "disk-1"]),
            ("InProgress", true, &["root", "disk-1"]),
            ("Failed", true, &["root", "disk-1"]),
        ] {
            assert!(
                !is_complete(&object(phase, ready, included)),
                "{phase} {ready} {included:?}"
            );
        }
        let mut unknown = object("Succeeded", true, &["root", "disk-1"]);
        unknown["metadata"]["annotations"] = json!({});
        assert!(!is_complete(&unknown), "it does not say which volumes it must have");
        let mut going = object("Succeeded", true, &["root", "disk-1"]);
        going["metadata"]["deletionTimestamp"] = json!("2026-11-24T10:00:00Z");
        assert!(!is_complete(&going));
        assert_eq!(read(&json!({"metadata": {"labels": {MACHINE: "lab-master-0"}}})), None);
    }

    #[test]
    fn each_disk_with_a_state_must_support_snapshots() {
        let machine = json!({
            "spec": {"template": {"spec": {"volumes": [
                {"name": "root", "dataVolume": {"name": "a"}},
                {"name": "disk-1", "dataVolume": {"name": "b"}},
                {"name": "attached", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "first-boot", "cloudInitConfigDrive": {"secretRef": {"name": "d"}}},
            ]}}},
            "status": {"volumeSnapshotStatuses": [
                {"name": "root", "enabled": true},
                {"name": "disk-1", "enabled": false, "reason": "No VolumeSnapshotClass"},
                {"name": "first-boot", "enabled": false, "reason": "Snapshot is not supported"},
            ]},
        });
        assert_eq!(stateful_volumes(&machine), ["root", "disk-1", "attached"]);
        let found = problems(&machine);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("disk disk-1") && found[0].contains("No VolumeSnapshotClass"),
            "{found:?}"
        );
        assert!(found[1].contains("disk attached"), "{found:?}");
        let volume = json!({"name": "pvc-1", "dataVolume": {"name": "pvc-1", "hotpluggable": true}});
        let mut machine = json!({"spec": {"template": {"spec": {"volumes": [volume]}}}});
        machine["status"]["volumeSnapshotStatuses"] = json!([{"name": "pvc-1", "enabled": true}]);
        assert_eq!(problems(&machine), ["disk pvc-1 was attached by another program"]);
    }
}
