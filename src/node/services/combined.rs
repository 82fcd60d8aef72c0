//! The manifests of the user beside those of this program: one file for each object.
//!
//! openshift-install rejects two manifests for one object, but only when it creates the Ignition configs (openshift/
//! installer: `pkg/asset/ignition/bootstrap/cvoignore.go`); installers before 4.12 create the first of both. A user's
//! object is therefore merged into the one of this program, unless it contradicts it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use super::manifests::Manifest;
use crate::cluster::{ClusterConfig, Lb, Role};
use crate::error::{ErrorKind, OperationError};
use crate::node::user_manifests;

/// A manifest of the user: file name and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserManifest {
    pub path: PathBuf,
    pub name: String,
    pub content: Vec<u8>,
}

impl UserManifest {
    /// The error of a manifest with the file name of one that the installer creates.
    pub fn conflict(&self) -> OperationError {
        let (path, name) = (self.path.display(), &self.name);
        refuse(
            format!("manifest {path} would replace the installer's own {name}"),
            "rename your manifest; if it is for the same object, remove it: the installer rejects two manifests for \
             one object",
        )
    }
}

/// All manifests, without two for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Combined {
    /// Those of this program, with what the user's manifests for the same objects add.
    pub ours: Vec<Manifest>,
    pub users: Vec<UserManifest>,
    /// For the user, one line each.
    pub warnings: Vec<String>,
}

/// Objects that every openshift-install creates on platform `none`, all named `cluster` and of the group
/// `config.openshift.io`. Source: openshift/installer, `pkg/asset/manifests`.
const INSTALLERS: [&str; 7] = [
    "DNS",
    "FeatureGate",
    "Infrastructure",
    "Ingress",
    "Network",
    "Proxy",
    "Scheduler",
];

/// What identifies an object; its version does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ObjectId {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

impl ObjectId {
    fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let id = Self {
            group: group.to_owned(),
            kind: text("/kind").to_owned(),
            namespace: text("/metadata/namespace").to_owned(),
            name: text("/metadata/name").to_owned(),
        };
        (!id.kind.is_empty()).then_some(id)
    }

    fn is_of_installer(&self) -> bool {
        self.group == "config.openshift.io" && self.name == "cluster" && INSTALLERS.contains(&self.kind.as_str())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Merges the user's manifests for objects of this program, and rejects those that the installer would reject.
pub fn combine(
    config: &ClusterConfig,
    ours: Vec<Manifest>,
    users: Vec<UserManifest>,
) -> Result<Combined, OperationError> {
    let mut combined = Combined::default();
    let mut objects = BTreeMap::new();
    for (index, manifest) in ours.iter().enumerate() {
        let object: Value = serde_saphyr::from_str(&manifest.content).unwrap_or_default();
        objects.extend(ObjectId::of(&object).map(|id| (id, (index, object))));
    }
    combined.ours = ours;
    let mut seen: BTreeMap<ObjectId, PathBuf> = BTreeMap::new();
    for user in users {
        let path = user.path.display();
        if combined
            .ours
            .iter()
            .any(|ours| ours.path == format!("openshift/{}", user.name))
        {
            let text = format!("manifest {path} has the file name of a manifest of ocpdeploy");
            return Err(refuse(
                text,
                "rename it; ocpdeploy merges a manifest for the same object into its own",
            ));
        }
        let mut objects_of_user = user_manifests::objects(&user.path, &user.content)?;
        if objects_of_user.len() > 1 {
            // `cvoignore.go`, and openshift/library-go: `pkg/assets/create/creater.go`, `load`.
            combined.warnings.push(format!(
                "manifest {path} has {} documents: except for MachineConfigs, OpenShift creates only the first",
                objects_of_user.len()
            ));
        }
        let object = objects_of_user.swap_remove(0);
        let Some(id) = ObjectId::of(&object) else { continue };
        if let Some(other) = seen.insert(id.clone(), user.path.clone()) {
            let text = format!("manifests {} and {path} are both for {id}", other.display());
            return Err(refuse(
                text,
                "the installer rejects two manifests for one object: remove one",
            ));
        }
        let Some((index, own)) = objects.get(&id) else {
            if id.is_of_installer() {
                let text = format!("manifest {path} is for {id}, which the installer creates itself");
                return Err(refuse(
                    text,
                    "the installer rejects two manifests for one object: change it after the installation",
                ));
            }
            combined.users.push(user);
            continue;
        };
        let contradiction = |why: String| {
            let text = format!("manifest {path} contradicts ocpdeploy's own {id}: {why}");
            let hint = match id.kind.as_str() {
                "MachineConfig" => "rename the object; its name sorts after ocpdeploy's to take precedence",
                _ => "remove this field; ocpdeploy merges the others into its own manifest",
            };
            refuse(text, hint)
        };
        let mut merged = own.clone();
        for pointer in replaceable(&id.kind, config) {
            if object.pointer(pointer).is_some_and(|value| !value.is_null()) {
                remove(&mut merged, pointer);
            }
        }
        merge(&mut merged, object, "").map_err(contradiction)?;
        if let Some(why) = misplaced(&id.kind, &merged, config) {
            return Err(contradiction(why));
        }
        if let Some(ours) = combined.ours.get_mut(*index) {
            *ours = Manifest::new(&ours.path, &merged);
        }
    }
    Ok(combined)
}

fn refuse(text: String, hint: &str) -> OperationError {
    OperationError::new(ErrorKind::Tool, text).hint(hint)
}

/// The fields of our object that one of the user replaces. All others must not contradict: services depend on them.
fn replaceable(kind: &str, config: &ClusterConfig) -> &'static [&'static str] {
    match kind {
        "IngressController" if config.lb == Lb::User => &[
            "/spec/replicas",
            "/spec/nodePlacement",
            "/spec/endpointPublishingStrategy",
        ],
        "IngressController" => &["/spec/replicas", "/spec/nodePlacement"],
        // The registry's. The storage is replaced as a whole: only one kind of storage may be set.
        "Config" => &["/spec/managementState", "/spec/replicas", "/spec/storage"],
        "Scheduler" => &["/spec/policy"],
        _ => &[],
    }
}

/// Why the routers would be on nodes that do not take over the ingress VIP; `None` if they would not.
fn misplaced(kind: &str, object: &Value, config: &ClusterConfig) -> Option<String> {
    if kind != "IngressController" || config.lb == Lb::User {
        return None;
    }
    let labels = object
        .pointer("/spec/nodePlacement/nodeSelector/matchLabels")?
        .as_object()?;
    let roles = config.router_roles();
    for (label, role) in [
        ("master", Role::Master),
        ("control-plane", Role::Master),
        ("worker", Role::Worker),
    ] {
        if labels.contains_key(&format!("node-role.kubernetes.io/{label}")) && !roles.contains(&role) {
            return Some(format!(
                "it places the routers on nodes with the role {label}, which do not serve ingress_ip"
            ));
        }
    }
    None
}

fn remove(object: &mut Value, pointer: &str) {
    if let Some((parent, field)) = pointer.rsplit_once('/')
        && let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut)
    {
        parent.shift_remove(field);
    }
}

/// Adds the fields of `more`; fails at the first one that has another value.
fn merge(object: &mut Value, more: Value, place: &str) -> Result<(), String> {
    match (object, more) {
        (_, Value::Null) => Ok(()),
        (Value::Object(fields), Value::Object(more)) => {
            for (name, value) in more {
                let place = match place {
                    "" => name.clone(),
                    place => format!("{place}.{name}"),
                };
                merge(fields.entry(name).or_insert(Value::Null), value, &place)?;
            }
            Ok(())
        }
        (empty @ Value::Null, more) => {
            *empty = more;
            Ok(())
        }
        // The version of an object.
        (_, _) if place == "apiVersion" => Ok(()),
        (value, more) if *value == more => Ok(()),
        (value, more) if value.is_object() || value.is_array() || more.is_object() || more.is_array() => {
            Err(format!("{place} differs"))
        }
        (value, more) => Err(format!("{place} is {more}, and ocpdeploy requires {value}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn user(name: &str, content: &str) -> UserManifest {
        UserManifest {
            path: format!("m/{name}").into(),
            name: name.to_owned(),
            content: content.as_bytes().to_vec(),
        }
    }

    fn ingress(spec: &Value) -> Manifest {
        let object = json!({
            "apiVersion": "operator.openshift.io/v1",
            "kind": "IngressController",
            "metadata": {"name": "default", "namespace": "openshift-ingress-operator"},
            "spec": spec,
        });
        Manifest::new("openshift/99_ocpdeploy-ingress-controller.yaml", &object)
    }

    fn ours() -> Vec<Manifest> {
        let scheduler = json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "Scheduler",
            "metadata": {"name": "cluster"},
            "spec": {"mastersSchedulable": true, "policy": {"name": ""}},
        });
        vec![
            ingress(&json!({
                "replicas": 2,
                "endpointPublishingStrategy": {"type": "HostNetwork"},
                "nodePlacement": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}},
            })),
            Manifest::new("manifests/cluster-scheduler-02-config.yml", &scheduler),
        ]
    }

    const INGRESS: &str = "apiVersion: operator.openshift.io/v1\nkind: IngressController\nmetadata:\n  name: default\n  \
                           namespace: openshift-ingress-operator\nspec:\n";
    const SCHEDULER: &str = "apiVersion: config.openshift.io/v1\nkind: Scheduler\nmetadata:\n  name: cluster\nspec:\n";

    #[test]
    fn an_object_of_the_user_is_merged_into_ours() {
        let config = ClusterConfig::example();
        let text = format!(
            "{INGRESS}  replicas: 3\n  defaultCertificate:\n    name: mine\n  nodePlacement:\n    nodeSelector:\n      \
             matchLabels:\n        node-role.kubernetes.io/infra: ''\n"
        );
        let scheduler = format!("{SCHEDULER}  profile: HighNodeUtilization\n  mastersSchedulable: true\n");
        let other = user(
            "other.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: default\n",
        );
        let users = vec![user("my.yaml", &text), other.clone(), user("s.yaml", &scheduler)];
        let combined = combine(&config, ours(), users).unwrap();
        assert_eq!((combined.users, combined.warnings), (vec![other], vec![]));
        let read = |index: usize| -> Value { serde_saphyr::from_str(&combined.ours[index].content).unwrap() };
        assert_eq!(
            read(0)["spec"],
            json!({
                "endpointPublishingStrategy": {"type": "HostNetwork"},
                "replicas": 3,
                "defaultCertificate": {"name": "mine"},
                "nodePlacement": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}}},
            })
        );
        assert_eq!(
            read(1)["spec"],
            json!({"mastersSchedulable": true, "policy": {"name": ""}, "profile": "HighNodeUtilization"})
        );
        assert_eq!(combined.ours[1].path, "manifests/cluster-scheduler-02-config.yml");
    }

    #[test]
    fn a_contradiction_is_an_error() {
        let mut config = ClusterConfig::example();
        let node_port = format!("{INGRESS}  endpointPublishingStrategy:\n    type: NodePortService\n");
        let on_masters = format!(
            "{INGRESS}  nodePlacement:\n    nodeSelector:\n      matchLabels:\n        node-role.kubernetes.io/master: ''\n"
        );
        let own = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
        for (users, expected) in [
            (
                vec![user("my.yaml", &node_port)],
                "manifest m/my.yaml contradicts ocpdeploy's own IngressController default: \
                 spec.endpointPublishingStrategy.type is \"NodePortService\", and ocpdeploy requires \"HostNetwork\"",
            ),
            (
                vec![user("my.yaml", &on_masters)],
                "manifest m/my.yaml contradicts ocpdeploy's own IngressController default: it places the routers on \
                 nodes with the role master, which do not serve ingress_ip",
            ),
            (
                vec![user("s.yaml", &format!("{SCHEDULER}  mastersSchedulable: false\n"))],
                "manifest m/s.yaml contradicts ocpdeploy's own Scheduler cluster: spec.mastersSchedulable is false, and \
                 ocpdeploy requires true",
            ),
            (
                vec![user("99_ocpdeploy-ingress-controller.yaml", own)],
                "manifest m/99_ocpdeploy-ingress-controller.yaml has the file name of a manifest of ocpdeploy",
            ),
            (
                vec![user("a.yaml", own), user("b.yaml", own)],
                "manifests m/a.yaml and m/b.yaml are both for ConfigMap a",
            ),
            (
                vec![user("p.yaml", &SCHEDULER.replace("Scheduler", "Proxy"))],
                "manifest m/p.yaml is for Proxy cluster, which the installer creates itself",
            ),
        ] {
            assert_eq!(combine(&config, ours(), users).unwrap_err().to_string(), expected);
        }
        config.lb = Lb::User;
        for text in [&node_port, &on_masters] {
            combine(&config, ours(), vec![user("my.yaml", text)]).expect("the user's load balancer");
        }
    }

    #[test]
    fn a_file_that_is_no_single_object_is_reported() {
        let config = ClusterConfig::example();
        let two = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\napiVersion: v1\nkind: B\nmetadata: {name: b}\n";
        let users = vec![user("two.yaml", two)];
        let combined = combine(&config, ours(), users.clone()).unwrap();
        assert_eq!((combined.ours, combined.users), (ours(), users));
        assert_eq!(combined.warnings[0][..25], *"manifest m/two.yaml has 2");
        combine(&config, ours(), vec![user("no.yaml", "- a\n")]).unwrap_err();
    }
}
