//! KubeVirt's controllers of snapshots and restores, with the CSI drivers. The content of a disk is one number.
//!
//! Source: kubevirt/kubevirt: pkg/storage/snapshot/{snapshot,source,restore}.go. The objects between them and the driver
//! (VirtualMachineSnapshotContent, VolumeSnapshot) are not visible.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::controllers::{CLAIM, INSTANCE, MACHINE, VOLUME};
use super::world::{Key, World};

const SNAPSHOT: &str = "virtualmachinesnapshots";
const SNAPSHOT_FINALIZER: &str = "snapshot.kubevirt.io/vmsnapshot-protection";
/// The annotation of a machine with the restore that it had last.
const LAST: &str = "restore.kubevirt.io/lastRestoreUID";
const RESTORE_FINALIZER: &str = "snapshot.kubevirt.io/vmrestore-protection";

/// What a snapshot has saved.
pub struct Saved {
    machine: Value,
    /// By the name of the volume in the machine; disks without writes have no content.
    volumes: BTreeMap<String, Option<u8>>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn uid(object: &Value) -> String {
    text(&object["metadata"]["uid"])
}

fn mark(restore: &Value) -> String {
    format!("{}-{}", text(&restore["metadata"]["name"]), uid(restore))
}

fn volumes(machine: &Value) -> &[Value] {
    let volumes = machine["spec"]["template"]["spec"]["volumes"].as_array();
    volumes.map_or(&[], Vec::as_slice)
}

/// The claim of a volume that can have snapshots. A data volume's claim has its name.
fn claim(volume: &Value) -> Option<&str> {
    let names = [
        &volume["dataVolume"]["name"],
        &volume["persistentVolumeClaim"]["claimName"],
    ];
    names.into_iter().find_map(Value::as_str)
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason})
}

impl World {
    /// Why a volume cannot be saved.
    fn unsaved(&self, namespace: &str, volume: &Value) -> Option<String> {
        let name = &volume["name"];
        let Some(claim) = claim(volume) else {
            return Some(format!("Snapshot is not supported for this volumeSource type [{name}]"));
        };
        if self.find(CLAIM, namespace, claim).is_none() {
            return Some("PVC not found".to_owned());
        }
        let data = self.find(VOLUME, namespace, claim);
        let class = data.and_then(|volume| volume["spec"]["storage"]["storageClassName"].as_str());
        let class = class.unwrap_or("fast");
        self.without_snapshots.contains(class).then(|| {
            format!(
                "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [{class}] [{name}]"
            )
        })
    }

    /// The status `volumeSnapshotStatuses` of a machine.
    pub fn volume_statuses(&self, namespace: &str, machine: &Value) -> Value {
        let status = |volume: &Value| match self.unsaved(namespace, volume) {
            Some(reason) => json!({"name": volume["name"], "enabled": false, "reason": reason}),
            None => json!({"name": volume["name"], "enabled": true}),
        };
        volumes(machine).iter().map(status).collect()
    }

    /// Whether a machine is the locked source of a snapshot, which then keeps it.
    pub fn is_being_saved(&self, namespace: &str, machine: &str) -> bool {
        self.all(SNAPSHOT).iter().any(|((_, of, _), snapshot)| {
            of == namespace
                && snapshot["spec"]["source"]["name"] == machine
                && snapshot["status"]["phase"] == "InProgress"
                && !snapshot["metadata"]["deletionTimestamp"].is_string()
        })
    }

    /// Adds the controller's finalizer to a new object; whether it had none.
    fn is_new(&mut self, key: &Key, object: &Value, finalizer: &str) -> bool {
        let is_new = object["metadata"]["finalizers"].is_null();
        if is_new {
            let mut object = object.clone();
            object["metadata"]["finalizers"] = json!([finalizer]);
            self.store(key.clone(), object, "MODIFIED");
        }
        is_new
    }

    pub fn move_snapshot(&mut self, key: Key, snapshot: &Value) {
        let Some(name) = snapshot["spec"]["source"]["name"].as_str().map(str::to_owned) else {
            return;
        };
        if snapshot["metadata"]["deletionTimestamp"].is_string() {
            self.saved.remove(&uid(snapshot));
            return self.drop_finalizer(key, snapshot);
        }
        let is_young = self.age(&key) < Duration::from_millis(self.step_ms);
        if self.is_new(&key, snapshot, SNAPSHOT_FINALIZER) || is_young {
            return;
        }
        let mut status = snapshot["status"].clone();
        match status["phase"].as_str() {
            None => {
                status = json!({"phase": "InProgress", "readyToUse": false, "conditions": [
                    condition("Progressing", "True", "Source locked and operation in progress"),
                    condition("Ready", "False", "Not ready"),
                ]});
            }
            Some("InProgress") => match self.save(&key.1, &name, &uid(snapshot)) {
                Some(saved) => {
                    status["snapshotVolumes"] = saved;
                    status["phase"] = "Succeeded".into();
                    status["conditions"][0] = condition("Progressing", "False", "Operation complete");
                }
                None => {
                    let Some((_, why)) = self.unsaved else { return };
                    // The deadline of five minutes.
                    status["phase"] = "Failed".into();
                    status["error"] = json!({"message": format!("VolumeSnapshot error: {why}")});
                    status["conditions"] = json!([
                        condition("Progressing", "False", "In error state"),
                        condition("Ready", "False", "Not ready"),
                        condition("Failure", "True", "snapshot deadline exceeded"),
                    ]);
                }
            },
            Some("Succeeded") => {
                status["readyToUse"] = true.into();
                status["conditions"][1] = condition("Ready", "True", "Ready");
            }
            Some(_) => return,
        }
        self.set_status(&key, snapshot, status);
    }

    /// Saves the volumes of a machine that can be saved: `snapshotVolumes` of the status. `None` while they are not ready.
    fn save(&mut self, namespace: &str, name: &str, uid: &str) -> Option<Value> {
        let machine = self.find(MACHINE, namespace, name)?.clone();
        // kubevirt/kubevirt: pkg/storage/snapshot/source.go, `verifyVolumes`.
        let is_filled = |claim: &str| {
            let data = self.find(VOLUME, namespace, claim);
            self.find(CLAIM, namespace, claim).is_some()
                && data.is_none_or(|data| data["status"]["phase"] == "Succeeded")
        };
        if !volumes(&machine).iter().filter_map(claim).all(is_filled) {
            return None;
        }
        let (mut included, mut excluded) = (Vec::new(), Vec::new());
        let mut saved = BTreeMap::new();
        for volume in volumes(&machine) {
            let of = text(&volume["name"]);
            if self.unsaved.is_some_and(|(unsaved, _)| unsaved == of) {
                return None;
            }
            match claim(volume).filter(|_| self.unsaved(namespace, volume).is_none()) {
                Some(claim) => {
                    let content = self.disks.get(&(namespace.to_owned(), claim.to_owned())).copied();
                    saved.insert(of.clone(), content);
                    included.push(of);
                }
                None => excluded.push(of),
            }
        }
        self.saved.insert(
            uid.to_owned(),
            Saved {
                machine: Value::clone(&machine),
                volumes: saved,
            },
        );
        Some(json!({"includedVolumes": included, "excludedVolumes": excluded}))
    }

    pub fn move_restore(&mut self, key: Key, restore: &Value) {
        let Some(name) = restore["spec"]["target"]["name"].as_str().map(str::to_owned) else {
            return;
        };
        if restore["metadata"]["deletionTimestamp"].is_string() {
            return self.drop_finalizer(key, restore);
        }
        let is_young = self.age(&key) < Duration::from_millis(self.step_ms);
        let is_done = restore["status"]["complete"] == true;
        if self.is_new(&key, restore, RESTORE_FINALIZER) || is_young || is_done {
            return;
        }
        let waits = |why: &str| {
            json!({"complete": false, "conditions": [
                condition("Progressing", "False", why), condition("Ready", "False", why)]})
        };
        let status = match restore["status"]["restores"].as_array() {
            _ if self.find(INSTANCE, &key.1, &name).is_some() => waits("Waiting for target to be ready"),
            None => match self.restored_volumes(&key.1, restore) {
                Ok(restores) => json!({"complete": false, "restores": restores, "conditions": [
                    condition("Progressing", "True", "Creating new PVCs"),
                    condition("Ready", "False", "Waiting for new PVCs"),
                ]}),
                Err(why) => waits(&why),
            },
            Some(_) if !self.was_restored(&key.1, &name, restore) => {
                return self.replace_volumes(&key.1, &name, restore);
            }
            Some(_) => {
                self.delete_obsolete_volumes(&key.1, &name);
                json!({"complete": true, "restores": restore["status"]["restores"], "conditions": [
                    condition("Progressing", "False", "Operation complete"),
                    condition("Ready", "True", "Operation complete"),
                ]})
            }
        };
        self.set_status(&key, restore, status);
    }

    fn source_of(&self, namespace: &str, restore: &Value) -> Result<&Value, String> {
        let name = text(&restore["spec"]["virtualMachineSnapshotName"]);
        let snapshot = self.find(SNAPSHOT, namespace, &name);
        let snapshot = snapshot.ok_or(format!("VMSnapshot {namespace}/{name} does not exist"))?;
        if snapshot["status"]["phase"] == "Failed" {
            return Err(format!("VMSnapshot {namespace}/{name} failed and is invalid to use"));
        }
        match snapshot["status"]["readyToUse"] == true {
            true => Ok(snapshot),
            false => Err(format!("VMSnapshot {namespace}/{name} not ready")),
        }
    }

    fn restored_volumes(&self, namespace: &str, restore: &Value) -> Result<Value, String> {
        let saved = &self.saved[&uid(self.source_of(namespace, restore)?)];
        let target = self.find(MACHINE, namespace, &text(&restore["spec"]["target"]["name"]));
        if target.is_some_and(|target| target["metadata"]["uid"] != saved.machine["metadata"]["uid"]) {
            return Err("restore source and restore target are different but restore target already exists".to_owned());
        }
        let restored = |volume: &String| {
            let name = format!("restore-{}-{volume}", uid(restore));
            json!({"volumeName": volume, "persistentVolumeClaim": name, "dataVolumeName": name,
                "volumeSnapshotName": format!("vmsnapshot-{volume}")})
        };
        Ok(saved.volumes.keys().map(restored).collect())
    }

    /// Gives the machine new volumes with the content of the snapshot.
    fn replace_volumes(&mut self, namespace: &str, name: &str, restore: &Value) {
        let saved = match self.source_of(namespace, restore) {
            Ok(snapshot) => &self.saved[&uid(snapshot)],
            Err(_) => return,
        };
        let key: Key = (MACHINE, namespace.to_owned(), name.to_owned());
        let Some(mut machine) = self.objects.get(&key).map(|machine| Value::clone(machine)) else {
            // The target is created, like the source was.
            let mut machine = saved.machine.clone();
            machine["spec"]["runStrategy"] = "Halted".into();
            self.force(MACHINE, machine);
            return;
        };
        let strategy = machine["spec"]["runStrategy"].clone();
        machine["spec"] = saved.machine["spec"].clone();
        machine["spec"]["runStrategy"] = strategy;
        machine["metadata"]["annotations"][LAST] = mark(restore).into();
        let contents = saved.volumes.clone();
        let mut names = BTreeMap::new();
        for volume in machine["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap() {
            if contents.contains_key(&text(&volume["name"])) {
                let new = format!("restore-{}-{}", uid(restore), text(&volume["name"]));
                names.insert(
                    text(&volume["dataVolume"]["name"]),
                    (text(&volume["name"]), new.clone()),
                );
                volume["dataVolume"]["name"] = new.into();
            }
        }
        let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name,
            "uid": machine["metadata"]["uid"]}]);
        let mut made = Vec::new();
        for template in machine["spec"]["dataVolumeTemplates"].as_array_mut().unwrap() {
            let (volume, new) = names[&text(&template["metadata"]["name"])].clone();
            template["metadata"]["name"] = new.clone().into();
            let mut data = template.clone();
            data["metadata"]["namespace"] = namespace.into();
            data["metadata"]["ownerReferences"] = owner.clone();
            data["metadata"]["annotations"]["cdi.kubevirt.io/storage.prePopulated"] = "true".into();
            data["status"] = json!({"phase": "Succeeded"});
            made.push((data, new, contents[&volume]));
        }
        self.store(key, machine, "MODIFIED");
        for (data, claim, content) in made {
            self.force(VOLUME, data);
            if let Some(content) = content {
                self.disks.insert((namespace.to_owned(), claim), content);
            }
        }
    }

    fn was_restored(&self, namespace: &str, name: &str, restore: &Value) -> bool {
        let machine = self.find(MACHINE, namespace, name);
        machine.is_some_and(|machine| machine["metadata"]["annotations"][LAST] == mark(restore))
    }

    /// Deletes the data volumes of a machine that it does not use any more.
    fn delete_obsolete_volumes(&mut self, namespace: &str, name: &str) {
        let machine = self.find(MACHINE, namespace, name).cloned().unwrap_or_default();
        for ((_, of, volume), data) in self.all(VOLUME) {
            let is_its = of == namespace && data["metadata"]["ownerReferences"][0]["name"] == name;
            if !is_its || volumes(&machine).iter().any(|used| claim(used) == Some(&*volume)) {
                continue;
            }
            self.disks.remove(&(namespace.to_owned(), volume.clone()));
            // There is no garbage collector here.
            for kind in [VOLUME, CLAIM] {
                let key: Key = (kind, namespace.to_owned(), volume.clone());
                if let Some(object) = self.objects.get(&key).cloned() {
                    self.store(key, object, "DELETED");
                }
            }
        }
    }
}
