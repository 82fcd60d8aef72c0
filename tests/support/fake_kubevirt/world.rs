//! The objects and the operations on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::admission::{self, Refusal};
use super::consoles::Seat;
use super::controllers::FINALIZER;
use super::resources::Resource;
use super::rights::User;
use super::schema;
use super::snapshots::Saved;

/// Plural, namespace, name.
pub type Key = (&'static str, String, String);

/// A change of an object, for watches.
pub struct Event {
    pub version: u64,
    pub plural: &'static str,
    pub namespace: String,
    pub word: &'static str,
    pub object: Arc<Value>,
}

/// An injected fault: the first request of this method whose path contains this text gets this status.
#[derive(Clone, Debug)]
pub struct Fault {
    pub method: &'static str,
    pub path: String,
    pub code: u16,
    /// The operation is done, and only the response is lost.
    pub done: bool,
}

pub struct World {
    /// Shared, because each round of the controllers reads all of them.
    pub objects: BTreeMap<Key, Arc<Value>>,
    /// Last applied by a manager.
    applied: BTreeMap<(Key, String), Value>,
    pub events: Vec<Event>,
    /// Watches from before this version get 410.
    pub forgotten: u64,
    version: u64,
    uids: u64,
    pub users: BTreeMap<String, User>,
    pub groups_absent: BTreeSet<&'static str>,
    /// Groups that are served in this version only.
    pub older: BTreeMap<&'static str, &'static str>,
    /// The version that KubeVirt reports, if any.
    pub kubevirt_version: Option<&'static str>,
    /// All watches up to this version lose their connection.
    pub cut: u64,
    pub has_mac_pool: bool,
    pub permits_bridge_on_pods: bool,
    /// Services of type LoadBalancer get an address.
    pub has_balancers: bool,
    /// The first three numbers of such an address.
    pub balancers_at: &'static str,
    /// Routers take Routes for all names of a domain.
    pub takes_wildcards: bool,
    pub node_ports: BTreeMap<(Key, u64), u64>,
    /// An API server older than field validation: it prunes without an error.
    pub ignores_field_validation: bool,
    /// Fields that an older KubeVirt does not know, and drops.
    pub prunes: Vec<String>,
    /// Lists contain everything, whatever their selectors, as those of some aggregated APIs do
    /// (antrea-io/antrea#1432, kubernetes/kubernetes#78214).
    pub ignores_filters: bool,
    pub faults: Vec<Fault>,
    pub meanwhile: Vec<Meanwhile>,
    pub asked: Vec<String>,
    /// The number of requests that change something.
    pub changes: usize,
    /// After this many of them, no request gets an answer.
    pub silent_after: usize,
    pub unknown: Vec<String>,
    /// When each object reached its present state, for the controllers.
    pub since: BTreeMap<Key, Instant>,
    /// Addresses by MAC: the DHCP server of the secondary network, outside of the cluster.
    pub leases: BTreeMap<String, String>,
    /// The time from a guest's start to its first lease.
    pub boot_ms: u64,
    /// CoreOS has no agent; the images of a rehearsal have one.
    pub coreos_has_agent: bool,
    /// Machines whose agent reports nothing.
    pub silent: BTreeSet<String>,
    pub step_ms: u64,
    pub uploads: BTreeMap<String, u64>,
    pub consoles: BTreeMap<String, Seat>,
    /// Machines that were stopped by the verb of this name, and are to run by their strategy.
    pub stopped: BTreeSet<Key>,
    /// The quota `late` of each namespace: the limit of objects of this plural that controllers create.
    pub quota: Option<(&'static str, usize)>,
    /// When and why the last creation by a controller was refused.
    pub refused: BTreeMap<Key, (Instant, String)>,
    /// The content of the disks, by the namespace and name of their claims.
    pub disks: BTreeMap<(String, String), u8>,
    /// What snapshots have saved, by their ids.
    pub saved: BTreeMap<String, Saved>,
    /// KubeVirt's feature gate Snapshot.
    pub has_snapshots: bool,
    /// Storage classes whose driver has no VolumeSnapshotClass.
    pub without_snapshots: BTreeSet<&'static str>,
    /// Storage classes whose StorageProfile has no access mode.
    pub without_profile: BTreeSet<&'static str>,
    /// Why a driver cannot save this volume of machines.
    pub unsaved: Option<(&'static str, &'static str)>,
    /// The objects are a real API server's, see `beside`.
    pub is_beside: bool,
    /// Where this server is, once it serves.
    pub sandbox: String,
    pub ca: String,
}

/// A change by another client just before the first request of this method whose path has this end.
pub struct Meanwhile {
    pub method: &'static str,
    pub path: &'static str,
    pub change: fn(&mut World),
}

impl Default for World {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            applied: BTreeMap::new(),
            events: Vec::new(),
            forgotten: 0,
            version: 1,
            uids: 0,
            users: BTreeMap::new(),
            groups_absent: BTreeSet::new(),
            older: BTreeMap::new(),
            kubevirt_version: Some("v1.6.0"),
            cut: 0,
            has_mac_pool: true,
            permits_bridge_on_pods: false,
            has_balancers: true,
            balancers_at: "203.0.113",
            takes_wildcards: true,
            node_ports: BTreeMap::new(),
            ignores_field_validation: false,
            prunes: Vec::new(),
            ignores_filters: false,
            faults: Vec::new(),
            meanwhile: Vec::new(),
            asked: Vec::new(),
            changes: 0,
            silent_after: usize::MAX,
            unknown: Vec::new(),
            since: BTreeMap::new(),
            leases: BTreeMap::new(),
            boot_ms: 30,
            coreos_has_agent: true,
            silent: BTreeSet::new(),
            step_ms: 5,
            uploads: BTreeMap::new(),
            consoles: BTreeMap::new(),
            stopped: BTreeSet::new(),
            quota: None,
            refused: BTreeMap::new(),
            disks: BTreeMap::new(),
            saved: BTreeMap::new(),
            has_snapshots: true,
            without_snapshots: BTreeSet::new(),
            without_profile: BTreeSet::new(),
            unsaved: None,
            is_beside: false,
            sandbox: String::new(),
            ca: String::new(),
        }
    }
}

pub type Outcome = Result<Value, Refusal>;

pub fn not_found(resource: &Resource, name: &str) -> Refusal {
    (
        404,
        "NotFound",
        format!("{} \"{name}\" not found", resource.qualified()),
    )
}

pub fn key(resource: &Resource, namespace: &str, name: &str) -> Key {
    (
        Resource::of(resource.plural).plural,
        namespace.to_owned(),
        name.to_owned(),
    )
}

/// The options of a write.
#[derive(Default)]
pub struct Write {
    pub strict: bool,
    pub dry_run: bool,
    pub force: bool,
    pub manager: String,
}

impl World {
    /// Tenants with a namespace each, their network and storage, and an administrator.
    pub fn with_tenants(tenants: &[&str]) -> Self {
        let mut world = Self::default();
        let mut admin = User::tenant("admin", "*");
        admin.edits.insert("*".to_owned());
        world.users.insert("admin-token".to_owned(), admin);
        for tenant in tenants {
            world
                .users
                .insert(format!("{tenant}-token"), User::tenant(tenant, tenant));
            world.force("namespaces", json!({"metadata": {"name": tenant}}));
            let config = json!({"cniVersion": "0.3.1", "type": "cnv-bridge", "bridge": "br1", "macspoofchk": false});
            world.force(
                "network-attachment-definitions",
                json!({"metadata": {"namespace": tenant, "name": "lan"}, "spec": {"config": config.to_string()}}),
            );
        }
        let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        world.force(
            "storageclasses",
            json!({"metadata": {"name": "fast", "annotations": default}}),
        );
        world.force(
            "storageclasses",
            json!({"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}),
        );
        world.force("cdiconfigs", json!({"metadata": {"name": "config"}, "status": {}}));
        world
    }

    /// Stores an object without any checks.
    pub fn force(&mut self, plural: &str, mut object: Value) -> Value {
        let resource = Resource::of(plural);
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = key(resource, &text(&object, "namespace"), &text(&object, "name"));
        self.stamp(&mut object);
        self.store(key, object, "ADDED")
    }

    fn stamp(&mut self, object: &mut Value) {
        self.uids += 1;
        object["metadata"]["uid"] = format!("00000000-0000-4000-8000-{:012}", self.uids).into();
        object["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z".into();
    }

    /// Stores an object under a new version and notifies the watches.
    pub fn store(&mut self, key: Key, object: impl Into<Arc<Value>>, word: &'static str) -> Value {
        self.version += 1;
        let mut object = object.into();
        Arc::make_mut(&mut object)["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.events.push(Event {
            version: self.version,
            plural: key.0,
            namespace: key.1.clone(),
            word,
            object: object.clone(),
        });
        if word == "DELETED" {
            self.objects.remove(&key);
            self.since.remove(&key);
            self.stopped.remove(&key);
            self.refused.remove(&key);
            if key.0 == "datavolumes" {
                self.uploads.remove(&format!("{}/{}", key.1, key.2));
            }
            self.applied.retain(|(of, _), _| *of != key);
        } else {
            self.objects.insert(key, object.clone());
        }
        Arc::unwrap_or_clone(object)
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn all(&self, plural: &str) -> Vec<(Key, Arc<Value>)> {
        let of_kind = self.objects.iter().filter(|((kind, ..), _)| *kind == plural);
        of_kind.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Names of one kind in a namespace.
    pub fn names(&self, plural: &str, namespace: &str) -> Vec<String> {
        let keys = self
            .objects
            .keys()
            .filter(|(kind, of, _)| *kind == plural && of == namespace);
        keys.map(|(.., name)| name.clone()).collect()
    }

    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Outcome {
        let found = self.objects.get(&key(resource, namespace, name));
        found
            .map(|object| Value::clone(object))
            .ok_or_else(|| not_found(resource, name))
    }

    pub fn list(&self, resource: &Resource, namespace: &str, chosen: impl Fn(&Value) -> bool) -> Value {
        let items: Vec<Value> = self
            .all(resource.plural)
            .into_iter()
            .filter(|((_, of, _), object)| (namespace.is_empty() || of == namespace) && chosen(object))
            .map(|(_, object)| Value::clone(&object))
            .collect();
        json!({
            "apiVersion": resource.api_version(),
            "kind": format!("{}List", resource.kind),
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": items,
        })
    }

    pub fn create(
        &mut self,
        user: &User,
        resource: &Resource,
        namespace: &str,
        sent: &Value,
        write: &Write,
    ) -> Outcome {
        let mut object = sent.clone();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if !is_name(&name) {
            // kubernetes/apimachinery: pkg/util/validation/validation.go.
            let why = format!(
                "metadata.name: Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case \
                 alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
                 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            );
            return Err(invalid(resource, &name, &why));
        }
        let key = key(resource, namespace, &name);
        if resource.namespaced {
            if sent["metadata"]["namespace"].as_str().is_some_and(|of| of != namespace) {
                let why = "the namespace of the provided object does not match the namespace sent on the request";
                return Err((400, "BadRequest", why.to_owned()));
            }
            if !self
                .objects
                .contains_key(&("namespaces", String::new(), namespace.to_owned()))
            {
                return Err((404, "NotFound", format!("namespaces \"{namespace}\" not found")));
            }
            object["metadata"]["namespace"] = namespace.into();
        }
        self.validate(user, resource, &mut object, write)?;
        if self.objects.contains_key(&key) {
            let why = format!("{} \"{name}\" already exists", resource.qualified());
            return Err((409, "AlreadyExists", why));
        }
        if resource.plural == "projectrequests" {
            // openshift/openshift-apiserver: pkg/project/apiserver/registry/projectrequest/delegated/delegated.go.
            if self.find("namespaces", "", &name).is_some() {
                let why = format!("project.project.openshift.io \"{name}\" already exists");
                return Err((409, "AlreadyExists", why));
            }
            return Ok(self.make_project(user, &name));
        }
        self.stamp(&mut object);
        self.fill_in(resource, namespace, &mut object)?;
        if resource.plural == "services" && !write.dry_run {
            self.number_ports(&key, &mut object);
        }
        if resource.plural == "virtualmachines" {
            object["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        // A request for a token is answered and not stored.
        if write.dry_run || resource.plural == "uploadtokenrequests" {
            return Ok(object);
        }
        let stored = self.store(key, object, "ADDED");
        if resource.plural == "namespaces" {
            self.furnish(&name);
        }
        Ok(stored)
    }

    /// Creates the objects that controllers create in each namespace: kubernetes/kubernetes:
    /// `pkg/controller/certificates/rootcacertpublisher/publisher.go`,
    /// `pkg/controller/serviceaccount/serviceaccounts_controller.go`.
    fn furnish(&mut self, namespace: &str) {
        self.force_in(namespace, "configmaps", "kube-root-ca.crt");
        self.force_in(namespace, "serviceaccounts", "default");
    }

    fn force_in(&mut self, namespace: &str, plural: &str, name: &str) -> Value {
        self.force(plural, json!({"metadata": {"namespace": namespace, "name": name}}))
    }

    /// A project is its maker's, who is `admin` in it (openshift/openshift-apiserver:
    /// `pkg/project/apiserver/registry/projectrequest/delegated/sample_template.go`).
    fn make_project(&mut self, user: &User, name: &str) -> Value {
        let maker = self.users.values_mut().find(|known| known.name == user.name).unwrap();
        maker.edits.insert(name.to_owned());
        let more = ["delete projects", "list roles", "list rolebindings"];
        maker.more.extend(more.map(|right| format!("{right} {name}")));
        let about = json!({"name": name, "annotations": {"openshift.io/requester": user.name}});
        let made = self.force("namespaces", json!({"metadata": about}));
        self.furnish(name);
        self.force_in(name, "rolebindings", "admin");
        // openshift/kubernetes: openshift-kube-controller-manager/servicecacertpublisher/publisher.go.
        self.force_in(name, "configmaps", "openshift-service-ca.crt");
        // openshift/openshift-controller-manager: pkg/authorization/defaultrolebindings/project_policy.go.
        for binding in ["system:deployers", "system:image-builders", "system:image-pullers"] {
            self.force_in(name, "rolebindings", binding);
        }
        // openshift/openshift-controller-manager: pkg/internalregistry/controllers/service_account_controller.go.
        for account in ["builder", "deployer"] {
            let stored = self.force_in(name, "serviceaccounts", account);
            let owner = json!([{"apiVersion": "v1", "kind": "ServiceAccount", "name": account,
                "uid": stored["metadata"]["uid"]}]);
            let about =
                json!({"namespace": name, "name": format!("{account}-dockercfg-x7k2p"), "ownerReferences": owner});
            self.force("secrets", json!({"metadata": about, "type": "kubernetes.io/dockercfg"}));
        }
        made
    }

    /// A port of the nodes for each port of a Service that is seen outside.
    fn number_ports(&mut self, of: &Key, service: &mut Value) {
        let is_inside = service["spec"]["type"] == "ClusterIP";
        for port in ports_of(service) {
            let next = 30_000 + self.node_ports.len() as u64;
            let number = port["port"].as_u64().unwrap_or_default();
            match is_inside {
                true => drop(port.as_object_mut().unwrap().remove("nodePort")),
                false => port["nodePort"] = (*self.node_ports.entry((of.clone(), number)).or_insert(next)).into(),
            }
        }
    }

    fn validate(&self, user: &User, resource: &Resource, object: &mut Value, write: &Write) -> Result<(), Refusal> {
        if object["kind"] != resource.kind || object["apiVersion"] != resource.api_version().as_str() {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            let why = format!(
                "{} in version \"{}\" cannot be handled as a {}: no match",
                text("kind"),
                text("apiVersion"),
                resource.kind
            );
            return Err((400, "BadRequest", why));
        }
        self.prunes.iter().for_each(|field| prune(object, field));
        if let Some(schema) = schema::of_kind(resource.kind) {
            let findings = schema::check(schema, object);
            if let Some(why) = findings.invalid.first() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                return Err(invalid(resource, name, why));
            }
            if write.strict && !self.ignores_field_validation && !findings.unknown.is_empty() {
                let fields: Vec<_> = findings
                    .unknown
                    .iter()
                    .map(|field| format!("unknown field \"{field}\""))
                    .collect();
                let why = format!(
                    "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                    resource.kind,
                    resource.version,
                    resource.kind,
                    fields.join(", ")
                );
                return Err((400, "BadRequest", why));
            }
        }
        for (label, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
            let short = label.rsplit('/').next().unwrap_or_default();
            let value = value.as_str().unwrap_or_default();
            if short.is_empty() || short.len() > 63 || value.len() > 63 || value.contains(['/', ' ', ':']) {
                let why = format!(
                    "metadata.labels: Invalid value: \"{value}\": a valid label must be an empty string or consist of \
                     alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
                     (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
                     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                );
                return Err(invalid(
                    resource,
                    object["metadata"]["name"].as_str().unwrap_or_default(),
                    &why,
                ));
            }
        }
        admission::admit(self, user, resource.kind, object)
    }

    /// Sets the fields that the server fills in.
    fn fill_in(&mut self, resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), Refusal> {
        match resource.plural {
            "secrets" if object["type"].is_null() => object["type"] = "Opaque".into(),
            "services" => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let is_headless = object["spec"]["clusterIP"] == "None";
                if !is_headless && object["spec"]["ports"].as_array().is_none_or(Vec::is_empty) {
                    return Err(invalid(resource, &name, "spec.ports: Required value"));
                }
                if object["spec"]["type"].is_null() {
                    object["spec"]["type"] = "ClusterIP".into();
                }
                let taken: BTreeSet<String> = self
                    .all("services")
                    .iter()
                    .filter_map(|(_, service)| service["spec"]["clusterIP"].as_str().map(str::to_owned))
                    .collect();
                match object["spec"]["clusterIP"].as_str().map(str::to_owned) {
                    Some(ip) if ip == "None" => {}
                    Some(ip) if taken.contains(&ip) => {
                        let why = format!(
                            "spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: provided IP is already allocated"
                        );
                        return Err(invalid(resource, &name, &why));
                    }
                    Some(ip) if !ip.starts_with("172.30.") => {
                        let why = format!(
                            "spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: the provided IP is not in the valid range. The range of valid IPs is 172.30.0.0/16"
                        );
                        return Err(invalid(resource, &name, &why));
                    }
                    Some(_) => {}
                    None => {
                        let free = (1..=u8::MAX)
                            .map(|last| format!("172.30.200.{last}"))
                            .find(|ip| !taken.contains(ip));
                        object["spec"]["clusterIP"] = free.unwrap().into();
                    }
                }
                for port in ports_of(object) {
                    if port["protocol"].is_null() {
                        port["protocol"] = "TCP".into();
                    }
                    if port["targetPort"].is_null() {
                        port["targetPort"] = port["port"].clone();
                    }
                }
            }
            "virtualmachines" if object["spec"]["template"]["spec"]["domain"]["firmware"].is_null() => {
                object["status"] = json!({"printableStatus": "Stopped"});
            }
            "uploadtokenrequests" => {
                let claim = object["spec"]["pvcName"].as_str().unwrap_or_default().to_owned();
                let sandbox = ("persistentvolumeclaims", namespace.to_owned(), claim.clone());
                if !self.objects.contains_key(&sandbox) {
                    let why = format!("persistentvolumeclaims \"{claim}\" not found");
                    return Err((404, "NotFound", why));
                }
                object["status"] = json!({"token": format!("upload {namespace}/{claim}")});
            }
            _ => {}
        }
        Ok(())
    }

    /// A merge patch (RFC 7386).
    pub fn merge(
        &mut self,
        user: &User,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
        write: &Write,
    ) -> Outcome {
        let there = self.get(resource, namespace, name)?;
        same_object(resource, &there, &patch["metadata"])?;
        let mut object = there.clone();
        merge_patch(&mut object, patch);
        self.update(user, resource, namespace, name, &there, object, write)
    }

    /// Server-side apply; lists are taken as a whole.
    pub fn apply(
        &mut self,
        user: &User,
        resource: &Resource,
        namespace: &str,
        name: &str,
        sent: &Value,
        write: &Write,
    ) -> Outcome {
        let key = key(resource, namespace, name);
        let Some(there) = self.objects.get(&key).cloned() else {
            if sent["metadata"]["uid"].is_string() {
                return Err((
                    409,
                    "Conflict",
                    format!("{name}: Precondition failed: UID in precondition: no object"),
                ));
            }
            let made = self.create(user, resource, namespace, sent, write)?;
            if !write.dry_run {
                self.applied.insert((key, write.manager.clone()), sent.clone());
            }
            return Ok(made);
        };
        same_object(resource, &there, &sent["metadata"])?;
        let before = self
            .applied
            .get(&(key.clone(), write.manager.clone()))
            .cloned()
            .unwrap_or_default();
        if !write.force
            && let Some(path) = clash("", sent, &there, &before)
        {
            let version = resource.api_version();
            let why = format!("Apply failed with 1 conflict: conflict with \"unknown\" using {version}: .{path}");
            return Err((409, "Conflict", why));
        }
        let mut object = Value::clone(&there);
        take_away(&mut object, &before, sent);
        merge_patch(&mut object, sent);
        let stored = self.update(user, resource, namespace, name, &there, object, write)?;
        if !write.dry_run {
            self.applied.insert((key, write.manager.clone()), sent.clone());
        }
        Ok(stored)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    fn update(
        &mut self,
        user: &User,
        resource: &Resource,
        namespace: &str,
        name: &str,
        there: &Value,
        mut object: Value,
        write: &Write,
    ) -> Outcome {
        for field in ["uid", "resourceVersion", "creationTimestamp", "name", "namespace"] {
            object["metadata"][field] = there["metadata"][field].clone();
        }
        if resource.namespaced == there["metadata"]["namespace"].is_null() {
            object["metadata"].as_object_mut().unwrap().remove("namespace");
        }
        self.validate(user, resource, &mut object, write)?;
        if resource.plural == "services" {
            // As the server does for unchanged ports.
            object["spec"]["clusterIP"] = there["spec"]["clusterIP"].clone();
            self.number_ports(&key(resource, namespace, name), &mut object);
        }
        if object == *there || write.dry_run {
            return Ok(object);
        }
        Ok(self.store(key(resource, namespace, name), object, "MODIFIED"))
    }

    pub fn delete(&mut self, resource: &Resource, namespace: &str, name: &str, options: &Value) -> Outcome {
        // A project is its namespace in other words.
        let resource = match resource.plural {
            "projects" => Resource::of("namespaces"),
            _ => resource,
        };
        let mut object = self.get(resource, namespace, name)?;
        unchanged(resource, &object, &options["preconditions"])?;
        let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if options["propagationPolicy"] == "Foreground" {
            // The garbage collector would remove it, and there is none.
            finalizers.push("foregroundDeletion".into());
        }
        if resource.plural == "namespaces" {
            for (within, object) in self.objects.clone() {
                if within.1 == name {
                    self.store(within, object, "DELETED");
                }
            }
        }
        let key = key(resource, namespace, name);
        if finalizers.is_empty() {
            return Ok(self.store(key, object, "DELETED"));
        }
        if object["metadata"]["deletionTimestamp"].is_string() {
            return Ok(object);
        }
        object["metadata"]["finalizers"] = finalizers.into();
        object["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z".into();
        Ok(self.store(key, object, "MODIFIED"))
    }
}

/// kubernetes/apimachinery: pkg/api/errors/errors.go, NewInvalid.
pub fn invalid(resource: &Resource, name: &str, why: &str) -> Refusal {
    let kind = resource.qualified_kind();
    (422, "Invalid", format!("{kind} \"{name}\" is invalid: {why}"))
}

fn ports_of(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten()
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty()
        && name.len() <= 253
        && name.chars().all(plain)
        && !name.starts_with(['-', '.'])
        && !name.ends_with(['-', '.'])
}

/// What a patch says of the object's uid and version must hold; the uid is an immutable field.
/// Source: kubernetes/apimachinery: `pkg/api/validation/objectmeta.go`, `ValidateObjectMetaAccessorUpdate`.
fn same_object(resource: &Resource, there: &Value, given: &Value) -> Result<(), Refusal> {
    if given["uid"].is_string() && given["uid"] != there["metadata"]["uid"] {
        let why = format!("metadata.uid: Invalid value: {}: field is immutable", given["uid"]);
        let name = there["metadata"]["name"].as_str().unwrap_or_default();
        return Err(invalid(resource, name, &why));
    }
    unchanged(resource, there, given)
}

/// Preconditions: uid and version, where they are given, are those of the object.
fn unchanged(resource: &Resource, there: &Value, given: &Value) -> Result<(), Refusal> {
    // kubernetes/apiserver: pkg/registry/rest/delete.go.
    for (field, shown, happened) in [
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ] {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if given[field].is_string() && given[field] != there["metadata"][field] {
            let why = format!(
                "Operation cannot be fulfilled on {} {}: the {shown} in the precondition ({}) does not match the {shown} in \
                 record ({}). The object might have been {happened}",
                resource.qualified_kind(),
                there["metadata"]["name"],
                text(&given[field]),
                text(&there["metadata"][field])
            );
            return Err((409, "Conflict", why));
        }
    }
    Ok(())
}

fn prune(object: &mut Value, field: &str) {
    match object {
        Value::Object(fields) => {
            fields.remove(field);
            fields.values_mut().for_each(|value| prune(value, field));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| prune(value, field)),
        _ => {}
    }
}

fn merge_patch(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(key);
        } else {
            merge_patch(&mut object[key], value);
        }
    }
}

/// Removes fields of the previous apply that are not in the new one.
fn take_away(object: &mut Value, before: &Value, now: &Value) {
    for (key, value) in before.as_object().into_iter().flatten() {
        match now.get(key) {
            None => {
                if let Some(fields) = object.as_object_mut() {
                    fields.remove(key);
                }
            }
            Some(now) if value.is_object() => take_away(&mut object[key], value, now),
            Some(_) => {}
        }
    }
}

/// A leaf that another manager set to another value.
fn clash(path: &str, sent: &Value, there: &Value, before: &Value) -> Option<String> {
    match sent {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            clash(&path, value, there.get(key)?, before.get(key).unwrap_or(&Value::Null))
        }),
        leaf => (leaf != there && before != there).then(|| path.to_owned()),
    }
}

/// Whether a label selector (`a=b,c`, `c` alone: there is such a label) chooses an object.
pub fn selects(selector: &str, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selector
        .split(',')
        .filter(|term| !term.is_empty())
        .all(|term| match term.split_once('=') {
            Some((label, value)) => labels[label] == value.trim_start_matches('='),
            None => labels.get(term).is_some(),
        })
}
