//! Background activity: CDI fills volumes, KubeVirt creates instances of machines, guests get addresses.
//!
//! There is no garbage collector: objects of a deleted owner stay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::admission::no_clone;
use super::resources::Resource;
use super::world::{Key, World};

pub const MACHINE: &str = "virtualmachines";
pub const INSTANCE: &str = "virtualmachineinstances";
pub const VOLUME: &str = "datavolumes";
pub const CLAIM: &str = "persistentvolumeclaims";
const POD: &str = "pods";
/// kubevirt/kubevirt: staging/src/kubevirt.io/api/core/v1/types.go, VirtualMachineControllerFinalizer.
pub const FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// kubernetes/kubernetes: plugin/pkg/admission/storage/storageobjectinuseprotection/admission.go: of each claim.
pub const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";

impl World {
    /// One round of all controllers.
    pub fn tick(&mut self) {
        for (key, volume) in self.all(VOLUME) {
            self.move_volume(key, &volume);
        }
        // On a real API server, its own controller does this.
        if !self.is_beside {
            for (key, claim) in self.all(CLAIM) {
                self.move_claim(key, &claim);
            }
        }
        for (key, machine) in self.all(MACHINE) {
            self.move_machine(key, &machine);
        }
        for (key, instance) in self.all(INSTANCE) {
            self.move_instance(key, &instance);
        }
        for (key, snapshot) in self.all("virtualmachinesnapshots") {
            self.move_snapshot(key, &snapshot);
        }
        for (key, restore) in self.all("virtualmachinerestores") {
            self.move_restore(key, &restore);
        }
        for (key, service) in self.all("services") {
            self.move_service(key, &service);
        }
        for (key, route) in self.all("routes") {
            let is_taken = route["spec"]["wildcardPolicy"] != "Subdomain" || self.takes_wildcards;
            let condition = json!({"type": "Admitted", "status": if is_taken { "True" } else { "False" }});
            self.set_status(
                &key,
                &route,
                json!({"ingress": [{"routerName": "default", "conditions": [condition]}]}),
            );
        }
    }

    pub fn age(&mut self, key: &Key) -> Duration {
        self.since.entry(key.clone()).or_insert_with(Instant::now).elapsed()
    }

    pub fn set_status(&mut self, key: &Key, object: &Value, status: Value) {
        if object["status"] == status {
            return;
        }
        let mut object = object.clone();
        object["status"] = status;
        self.since.insert(key.clone(), Instant::now());
        self.store(key.clone(), object, "MODIFIED");
    }

    /// A load balancer assigns an address, and removes it when it is not requested any more.
    fn move_service(&mut self, key: Key, service: &Value) {
        let name = format!("balancer {}/{}", key.1, key.2);
        let range = self.balancers_at;
        let status = match service["spec"]["type"] == "LoadBalancer" && self.has_balancers {
            true => json!({"loadBalancer": {"ingress": [{"ip": self.address(&name, range)}]}}),
            false => json!({"loadBalancer": {}}),
        };
        self.set_status(&key, service, status);
    }

    pub fn find(&self, plural: &'static str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&(plural, namespace.to_owned(), name.to_owned()))
    }

    /// Whether the class of a volume binds only when a pod mounts it.
    fn is_late(&self, volume: &Value) -> bool {
        let class = volume["spec"]["storage"]["storageClassName"].as_str().unwrap_or("fast");
        let class = self.find("storageclasses", "", class);
        class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
    }

    fn move_volume(&mut self, key: Key, volume: &Value) {
        let (_, namespace, name) = key.clone();
        let source = &volume["spec"]["source"];
        let phase = volume["status"]["phase"].as_str().unwrap_or_default();
        if let Some(why) = self.no_claim(volume).filter(|_| phase.is_empty()) {
            let conditions = conditions(("False", "ErrClaimNotValid", &why), "");
            self.set_status(&key, volume, json!({"conditions": conditions}));
            return;
        }
        if self.find(CLAIM, &namespace, &name).is_none() && !phase.is_empty() {
            let owner = json!([{"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": name,
                "uid": volume["metadata"]["uid"]}]);
            let labels = volume["metadata"]["labels"].clone();
            let about = json!({"namespace": namespace, "name": name, "labels": labels, "ownerReferences": owner,
                "finalizers": [CLAIM_FINALIZER]});
            let storage = &volume["spec"]["storage"];
            let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": storage["resources"]});
            for field in ["accessModes", "volumeMode"] {
                if !storage[field].is_null() {
                    spec[field] = storage[field].clone();
                }
            }
            self.force(CLAIM, json!({"metadata": about, "spec": spec}));
        }
        let age = self.age(&key);
        if age < Duration::from_millis(self.step_ms) {
            return;
        }
        let immediate = volume["metadata"]["annotations"]["cdi.kubevirt.io/storage.bind.immediate.requested"] == "true";
        let waits = self.is_late(volume) && !immediate && !self.is_mounted(&namespace, &name);
        let import = |kind: &str| source[kind].is_object();
        let next = match phase {
            "" => "Pending",
            "Succeeded" | "Failed" => return,
            "Pending" | "WaitForFirstConsumer" if waits => "WaitForFirstConsumer",
            "Pending" | "WaitForFirstConsumer" if import("upload") => "UploadScheduled",
            "UploadScheduled" => "UploadReady",
            "UploadReady" if self.uploads.contains_key(&format!("{namespace}/{name}")) => "Succeeded",
            "UploadReady" => return,
            "Pending" | "WaitForFirstConsumer" if import("http") || import("registry") => "ImportScheduled",
            "ImportScheduled" => "ImportInProgress",
            "ImportInProgress" if source.to_string().contains("missing") => "Failed",
            "Pending" | "WaitForFirstConsumer" if import("pvc") => {
                let text = |field: &str| source["pvc"][field].as_str().unwrap_or_default().to_owned();
                let from = self.find(VOLUME, &text("namespace"), &text("name"));
                let ready = from.is_none_or(|volume| volume["status"]["phase"] == "Succeeded");
                match self.find(CLAIM, &text("namespace"), &text("name")) {
                    Some(_) if ready => "CloneInProgress",
                    _ => return,
                }
            }
            _ => "Succeeded",
        };
        let (bound, pending) = (format!("PVC {name} Bound"), format!("PVC {name} Pending"));
        let (bound, why) = match next {
            "Succeeded" => (("True", "Bound", bound.as_str()), ""),
            "Failed" => (
                ("True", "Bound", bound.as_str()),
                "Unable to connect to http data source: expected status code 200, got 404",
            ),
            _ => (("False", "Pending", pending.as_str()), ""),
        };
        let status = json!({"phase": next, "conditions": conditions(bound, why)});
        self.set_status(&key, volume, status);
    }

    /// A deleted claim stays until no pod uses it: kubernetes/kubernetes:
    /// pkg/controller/volume/pvcprotection/pvc_protection_controller.go.
    fn move_claim(&mut self, key: Key, claim: &Value) {
        let about = &claim["metadata"];
        let is_protected = about["finalizers"].to_string().contains(CLAIM_FINALIZER);
        let is_free = about["deletionTimestamp"].is_string() && is_protected && !self.is_mounted(&key.1, &key.2);
        if is_free && self.age(&key) >= Duration::from_millis(self.step_ms) {
            self.drop_finalizer(key, claim);
        }
    }

    /// Why CDI cannot make a claim: its access mode is not known (containerized-data-importer:
    /// pkg/controller/datavolume/util.go, `renderPvcSpecVolumeModeAndAccessModesAndStorageClass`).
    fn no_claim(&self, volume: &Value) -> Option<String> {
        let storage = &volume["spec"]["storage"];
        let class = storage["storageClassName"].as_str()?;
        if storage["accessModes"].is_array() || self.is_beside {
            return None;
        }
        if self.find("storageclasses", "", class).is_none() {
            return Some("PVC spec is missing accessMode and no storageClass to choose profile".to_owned());
        }
        let has_profile = !self.without_profile.contains(class);
        (!has_profile).then(|| format!("no accessMode specified in StorageProfile {class}"))
    }

    fn is_mounted(&self, namespace: &str, volume: &str) -> bool {
        self.all(INSTANCE).iter().any(|((_, of, _), instance)| {
            let volumes = instance["spec"]["volumes"].as_array().into_iter().flatten();
            of == namespace
                && volumes
                    .into_iter()
                    .any(|mounted| mounted["dataVolume"]["name"] == volume)
        })
    }

    fn move_machine(&mut self, key: Key, machine: &Value) {
        let (_, namespace, name) = key.clone();
        let instance = self.find(INSTANCE, &namespace, &name).cloned();
        if machine["metadata"]["deletionTimestamp"].is_string() {
            match instance {
                Some(_) => self.end_instance(&namespace, &name),
                None if self.is_being_saved(&namespace, &name) => {}
                None => self.drop_finalizer(key, machine),
            }
            return;
        }
        if machine["metadata"]["finalizers"].is_null() {
            // Put there by a test, and not moved; on a real API server the controller sees each machine so at first.
            if self.is_beside {
                let mut machine = machine.clone();
                machine["metadata"]["finalizers"] = json!([FINALIZER]);
                self.store(key, machine, "MODIFIED");
            }
            return;
        }
        if machine["status"].is_null() || machine["status"] == json!({"printableStatus": "Stopped"}) {
            // It is new: a refusal of an earlier machine of this name says nothing of this one.
            self.refused
                .retain(|(_, place, of), _| *place != namespace || !of.starts_with(&name));
        }
        for template in machine["spec"]["dataVolumeTemplates"].as_array().into_iter().flatten() {
            let of_template = template["metadata"]["name"].as_str().unwrap();
            if self.find(VOLUME, &namespace, of_template).is_none() {
                let mut volume = template.clone();
                volume["metadata"]["namespace"] = namespace.clone().into();
                volume["metadata"]["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                    "name": name, "uid": machine["metadata"]["uid"]}]);
                self.spawn(VOLUME, volume);
            }
        }
        let is_halted = machine["spec"]["runStrategy"] == "Halted";
        let is_off = is_halted || self.stopped.contains(&key);
        if is_halted && instance.is_some() {
            self.end_instance(&namespace, &name);
        }
        let phases: Vec<String> = machine["spec"]["dataVolumeTemplates"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|template| {
                // A volume that could not be created is not ready either.
                let volume = self.find(VOLUME, &namespace, template["metadata"]["name"].as_str()?)?;
                volume["status"]["phase"].as_str().map(str::to_owned)
            })
            .map(Option::unwrap_or_default)
            .collect();
        let ready = phases
            .iter()
            .all(|phase| phase == "Succeeded" || phase == "WaitForFirstConsumer");
        if instance.is_none() && ready && !is_off {
            let template = &machine["spec"]["template"];
            let about = json!({"namespace": namespace, "name": name, "labels": template["metadata"]["labels"]});
            self.spawn(
                INSTANCE,
                json!({"metadata": about, "spec": template["spec"], "status": {"phase": "Pending"}}),
            );
        }
        let phase = instance
            .as_ref()
            .and_then(|instance| instance["status"]["phase"].as_str())
            .unwrap_or_default();
        let shown = match (phase, is_off) {
            ("Running", _) => "Running",
            ("", true) => "Stopped",
            ("", false) if phases.iter().any(|phase| phase == "Failed") => "DataVolumeError",
            ("", false) => "Provisioning",
            _ => "Starting",
        };
        let mut status = json!({"printableStatus": shown});
        let no_volume = machine["spec"]["dataVolumeTemplates"]
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|template| self.refusal(VOLUME, &namespace, template["metadata"]["name"].as_str()?));
        // kubevirt/kubevirt: pkg/virt-controller/watch/vm/vm.go: a refused instance is the condition Failure of a machine
        // that is shown as stopped; otherwise conditions are the instance's.
        let failure = |message: String| json!([{"type": "Failure", "status": "True", "reason": "FailedCreate", "message": message}]);
        match (self.refusal(INSTANCE, &namespace, &name), &instance) {
            (_, None) if no_volume.is_some() => {
                status["printableStatus"] = "Starting".into();
                let why = no_volume.unwrap_or_default();
                status["conditions"] = failure(format!("Error encountered while creating DataVolumes: {why}"));
            }
            (Some(why), None) if !is_off => {
                status["printableStatus"] = "Stopped".into();
                status["conditions"] = failure(format!("Failure while starting VMI: {why}"));
            }
            (_, Some(instance)) if instance["status"]["conditions"].is_array() => {
                status["conditions"] = instance["status"]["conditions"].clone();
            }
            _ => {}
        }
        // kubevirt/kubevirt: pkg/virt-controller/watch/vm/vm.go, `updateStatus`: once a machine has run.
        if instance.is_some() || machine["status"]["runStrategy"].is_string() {
            status["runStrategy"] = machine["spec"]["runStrategy"].clone();
        }
        status["volumeSnapshotStatuses"] = self.volume_statuses(&namespace, machine);
        self.set_status(&key, machine, status);
    }

    /// Creates an object as a controller, which retries after a rejection with a delay.
    fn spawn(&mut self, plural: &'static str, object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key: Key = (plural, text("namespace"), text("name"));
        if self
            .refused
            .get(&key)
            .is_some_and(|(when, _)| when.elapsed() < Duration::from_secs(1))
        {
            return;
        }
        match self.over_quota(&key).or_else(|| self.may_not_clone(&key, &object)) {
            Some(why) => drop(self.refused.insert(key, (Instant::now(), why))),
            None => {
                if !self.is_beside {
                    self.refused.remove(&key);
                }
                self.force(plural, object);
            }
        }
    }

    /// The namespace that a volume is cloned from, if that is another one.
    pub fn cloned_from(&self, volume: &Value) -> Option<String> {
        let own = volume["metadata"]["namespace"].as_str().unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let reference = &volume["spec"]["sourceRef"];
        let from = match reference["name"].as_str() {
            Some(name) => {
                let place = text(&reference["namespace"]).unwrap_or(own.to_owned());
                let source = self.find("datasources", &place, name)?;
                text(&source["spec"]["source"]["pvc"]["namespace"]).unwrap_or(place)
            }
            None => text(&volume["spec"]["source"]["pvc"]["namespace"])?,
        };
        Some(from).filter(|from| from != own)
    }

    /// The user with whose rights KubeVirt clones the volumes of machines (kubevirt/kubevirt:
    /// pkg/virt-controller/watch/vm/vm.go, `authorizeDataVolume`).
    pub fn cloner(namespace: &str) -> String {
        format!("system:serviceaccount:{namespace}:default")
    }

    /// On a real API server, `beside` asks that one.
    fn may_not_clone(&self, (plural, namespace, _): &Key, volume: &Value) -> Option<String> {
        let from = self
            .cloned_from(volume)
            .filter(|_| *plural == VOLUME && !self.is_beside)?;
        let cloner = Self::cloner(namespace);
        let mut users = self.users.values();
        let may = users.any(|user| user.name == cloner && user.may("create", "datavolumes/source", &from));
        (!may).then(|| format!("not authorized to create DataVolume: {}", no_clone(&cloner, &from)))
    }

    /// kubernetes/kubernetes: staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go, `CheckRequest`.
    fn over_quota(&self, (plural, namespace, name): &Key) -> Option<String> {
        let (_, hard) = self.quota.filter(|(kind, _)| kind == plural)?;
        let used = self.names(plural, namespace).len();
        let resource = Resource::of(plural).qualified();
        let count = |number: usize| format!("count/{resource}={number}");
        (used >= hard).then(|| {
            let (requested, used, limited) = (count(1), count(used), count(hard));
            format!(
                "{resource} \"{name}\" is forbidden: exceeded quota: late, requested: {requested}, used: {used}, \
                 limited: {limited}"
            )
        })
    }

    /// Why a controller could not create an object.
    fn refusal(&self, plural: &'static str, namespace: &str, name: &str) -> Option<String> {
        let key: Key = (plural, namespace.to_owned(), name.to_owned());
        self.refused.get(&key).map(|(_, why)| why.clone())
    }

    /// kubevirt/kubevirt: pkg/virt-controller/services/template.go: the label has the host name, and the console's log is a
    /// sidecar among the init containers.
    fn make_pod(&mut self, namespace: &str, name: &str, instance: &Value) {
        let host = instance["spec"]["hostname"].as_str().unwrap_or(name);
        let labels = json!({"vm.kubevirt.io/name": host, "kubevirt.io": "virt-launcher"});
        let mut all = instance["metadata"]["labels"].clone();
        for (label, value) in labels.as_object().unwrap() {
            all[label] = value.clone();
        }
        let ip = self.address(&format!("pod {namespace} {name}"), "10.128.0");
        let image = "registry.invalid/virt-launcher:1";
        let memory = &instance["spec"]["domain"]["memory"]["guest"];
        // The pod's memory besides the guest's; an estimate of pkg/virt-controller/services/renderresources.go.
        let mib = memory
            .as_str()
            .and_then(|text| text.strip_suffix("Mi")?.parse::<u64>().ok());
        let requests = json!({"cpu": "100m", "memory": format!("{}Mi", mib.unwrap_or(0) + 280)});
        self.spawn(
            POD,
            json!({
                "metadata": {"namespace": namespace, "name": format!("virt-launcher-{name}"), "labels": all},
                "spec": {
                    "containers": [{"name": "compute", "image": image, "resources": {"requests": requests}}],
                    "initContainers": [{"name": "guest-console-log", "image": image}],
                },
                "status": {"phase": "Running", "podIP": ip, "hostIP": "192.0.2.10"},
            }),
        );
    }

    pub fn drop_finalizer(&mut self, key: Key, object: &Value) {
        let mut object = object.clone();
        let finalizers = object["metadata"]["finalizers"].as_array_mut().unwrap();
        finalizers.retain(|finalizer| finalizer == "foregroundDeletion");
        match finalizers.is_empty() {
            true => self.store(key, object, "DELETED"),
            false => self.store(key, object, "MODIFIED"),
        };
    }

    /// Deletes an instance and its pod.
    pub fn end_instance(&mut self, namespace: &str, name: &str) {
        for (plural, name) in [(INSTANCE, name.to_owned()), (POD, format!("virt-launcher-{name}"))] {
            let key = (plural, namespace.to_owned(), name);
            if let Some(object) = self.objects.get(&key).cloned() {
                self.store(key, object, "DELETED");
            }
        }
    }

    fn move_instance(&mut self, key: Key, instance: &Value) {
        let (_, namespace, name) = key.clone();
        let boot = Duration::from_millis(self.boot_ms);
        let age = self.age(&key);
        let secret = secret_of(instance).and_then(|secret| self.find("secrets", &namespace, &secret));
        // Only its start: otherwise each round would copy and decode megabytes.
        let is_coreos = secret.map(|secret| {
            let data = secret["data"]["userdata"].as_str().unwrap_or_default();
            let begin = STANDARD.decode(data.get(..4).unwrap_or_default());
            begin.is_ok_and(|data| data.starts_with(b"{"))
        });
        let pod = format!("virt-launcher-{name}");
        match instance["status"]["phase"].as_str().unwrap_or_default() {
            "" if self.is_beside => self.set_status(&key, instance, json!({"phase": "Pending"})),
            "Pending" if self.find(POD, &namespace, &pod).is_none() => {
                self.make_pod(&namespace, &name, instance);
                // kubevirt/kubevirt: pkg/virt-controller/watch/vmi/lifecycle.go.
                if let Some(why) = self.refusal(POD, &namespace, &pod) {
                    let message = format!("failed to create virtual machine pod: {why}");
                    let conditions = json!([
                        {"type": "Ready", "status": "False", "reason": "PodNotExists",
                         "message": "virt-launcher pod has not yet been scheduled"},
                        {"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": message},
                    ]);
                    self.set_status(&key, instance, json!({"phase": "Pending", "conditions": conditions}));
                }
            }
            "Pending" => self.set_status(&key, instance, json!({"phase": "Scheduling"})),
            // The pod waits for what it mounts.
            "Scheduling" if age > Duration::from_millis(self.step_ms) && is_coreos.is_some() => {
                let interfaces = self.interfaces(&namespace, instance, false);
                self.set_status(&key, instance, json!({"phase": "Running", "interfaces": interfaces}));
            }
            "Running" if age > boot => {
                let has_agent = !self.silent.contains(&name) && (is_coreos != Some(true) || self.coreos_has_agent);
                let interfaces = self.interfaces(&namespace, instance, has_agent);
                let status = json!({"phase": "Running", "interfaces": interfaces});
                if instance["status"] != status {
                    self.set_status(&key, instance, status);
                }
            }
            _ => {}
        }
    }

    /// What is reported of each NIC, by binding and agent (kubevirt/kubevirt: pkg/network/setup/netstat.go).
    fn interfaces(&mut self, namespace: &str, instance: &Value, has_agent: bool) -> Vec<Value> {
        let networks = instance["spec"]["networks"].as_array().cloned().unwrap_or_default();
        let interfaces = instance["spec"]["domain"]["devices"]["interfaces"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let name = instance["metadata"]["name"].as_str().unwrap_or_default();
        let mut reported = Vec::new();
        for interface in interfaces {
            let mac = interface["macAddress"]
                .as_str()
                .unwrap_or("02:00:00:00:00:99")
                .to_owned();
            let network = networks.iter().find(|network| network["name"] == interface["name"]);
            let on_pods = network.is_some_and(|network| network["pod"].is_object());
            let mut shown = json!({"name": interface["name"], "mac": mac, "infoSource": "domain, multus-status"});
            if on_pods {
                // The address of the pod, which the guest does not have.
                shown["ipAddress"] = self.address(&format!("pod {namespace} {name}"), "10.128.0").into();
                shown["infoSource"] = "domain".into();
            } else if has_agent {
                shown["ipAddress"] = self.address(&mac, "10.7.0").into();
                shown["ipAddresses"] = json!([shown["ipAddress"], "fe80::1"]);
                shown["infoSource"] = "domain, guest-agent, multus-status".into();
                shown["interfaceName"] = "eth0".into();
            }
            reported.push(shown);
        }
        reported
    }

    fn address(&mut self, of: &str, prefix: &str) -> String {
        let next = self.leases.len() + 20;
        let (network, third) = prefix.rsplit_once('.').unwrap();
        // Many more than fit a /24 where a server runs for long.
        let third = third.parse::<usize>().unwrap() + next / 250;
        self.leases
            .entry(of.to_owned())
            .or_insert_with(|| format!("{network}.{third}.{}", next % 250))
            .clone()
    }

    /// Verbs of machines.
    pub fn power(&mut self, namespace: &str, name: &str, verb: &str) -> Result<(), (u16, &'static str, String)> {
        let key: Key = (MACHINE, namespace.to_owned(), name.to_owned());
        let Some(machine) = self.objects.get(&key).cloned() else {
            return Err(super::world::not_found(Resource::of(MACHINE), name));
        };
        let runs = self.find(INSTANCE, namespace, name).is_some();
        match verb {
            // kubevirt/kubevirt: pkg/virt-api/rest/lifecycle.go.
            "stop" if !runs => return Err(conflict(name, "VM is not running")),
            "start" if runs => return Err(conflict(name, "VM is already running")),
            "stop" => {
                if machine["spec"]["runStrategy"] != "Halted" {
                    self.stopped.insert(key);
                }
                self.end_instance(namespace, name);
            }
            _ => drop(self.stopped.remove(&key)),
        }
        Ok(())
    }
}

/// The conditions of a data volume (containerized-data-importer: pkg/controller/datavolume/conditions.go).
fn conditions((status, reason, message): (&str, &str, &str), running: &str) -> Value {
    let is_ready = status == "True" && running.is_empty();
    let (ready, invalid) = match status == "False" && reason.starts_with("Err") {
        true => ("False", (reason, message)),
        false if is_ready => ("True", ("", "")),
        false => ("False", ("", "")),
    };
    json!([
        {"type": "Bound", "status": status, "reason": reason, "message": message},
        {"type": "Ready", "status": ready, "reason": invalid.0, "message": invalid.1},
        {"type": "Running", "status": "False", "reason": "", "message": running},
    ])
}

fn conflict(name: &str, why: &str) -> (u16, &'static str, String) {
    let why = format!("Operation cannot be fulfilled on virtualmachine.kubevirt.io \"{name}\": {why}");
    (409, "Conflict", why)
}

fn secret_of(instance: &Value) -> Option<String> {
    let volumes = instance["spec"]["volumes"].as_array()?;
    volumes.iter().find_map(|volume| {
        let name = ["cloudInitConfigDrive", "cloudInitNoCloud"]
            .iter()
            .find_map(|kind| volume[*kind]["secretRef"]["name"].as_str())?;
        Some(name.to_owned())
    })
}
