//! What is looked at before anything is made.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::compare::quantity;
use super::kind::Kind;
use super::objects::{self, POD_NETWORK};
use super::session::{Failure, Session, if_allowed, if_there};
use super::{look, network};
use crate::backend::{BackendErrorKind, Finding, Needs, Verdict};
use crate::cluster::{KubevirtConfig, Mac};

/// What this user must be able to do in the namespace: all of it is in the cluster roles `edit`, `kubevirt.io:edit`
/// and `cdi.kubevirt.io:edit`.
const RIGHTS: &[(&str, &str, &[&str])] = &[
    (
        "kubevirt.io",
        "virtualmachines",
        &["get", "list", "create", "delete", "patch"],
    ),
    ("kubevirt.io", "virtualmachineinstances", &["get", "list", "delete"]),
    ("subresources.kubevirt.io", "virtualmachines/start", &["update"]),
    ("subresources.kubevirt.io", "virtualmachines/stop", &["update"]),
    (
        "cdi.kubevirt.io",
        "datavolumes",
        &["get", "list", "create", "delete", "patch"],
    ),
    ("", "persistentvolumeclaims", &["get", "list", "delete"]),
    ("", "secrets", &["get", "list", "create", "delete", "patch"]),
    ("", "configmaps", &["get", "list", "create", "delete", "patch"]),
];

/// What the program is the better for, and what goes without it.
const WISHES: &[(&str, &str, &str, &str)] = &[
    ("", "pods", "list", "no console lines in failure reports"),
    ("", "resourcequotas", "list", "quotas are not compared"),
    (
        "upload.cdi.kubevirt.io",
        "uploadtokenrequests",
        "create",
        "image files cannot be uploaded",
    ),
];

pub(super) struct Findings(pub Vec<Finding>);

impl Findings {
    fn add(&mut self, verdict: Verdict, text: impl Into<String>, hint: Option<&str>) {
        self.0.push(Finding {
            verdict,
            text: text.into(),
            hint: hint.map(str::to_owned),
        });
    }

    fn ok(&mut self, text: impl Into<String>) {
        self.add(Verdict::Ok, text, None);
    }

    fn fail(&mut self, text: impl Into<String>, hint: &str) {
        self.add(Verdict::Fail, text, Some(hint));
    }
}

/// Whether this user may do something; asks the server.
pub(super) async fn may(
    session: &Session,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<bool, Failure> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": namespace.unwrap_or(""),
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
        }},
    });
    let answer = session
        .ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &question)
        .await?;
    Ok(answer["status"]["allowed"] == true)
}

pub(super) async fn preflight(
    session: &Session,
    config: &KubevirtConfig,
    needs: &Needs,
) -> Result<Vec<Finding>, Failure> {
    let mut findings = Findings(Vec::new());
    if !versions(session, &mut findings).await? {
        return Ok(findings.0);
    }
    if !rights(session, &mut findings).await? {
        return Ok(findings.0);
    }
    networks(session, needs, &mut findings).await?;
    storage(session, config, &mut findings).await?;
    quotas(session, needs, &mut findings).await?;
    capacity(session, needs, &mut findings).await?;
    strangers(session, needs, &mut findings).await?;
    Ok(findings.0)
}

/// Whether KubeVirt and CDI are there.
pub(super) async fn versions(session: &Session, findings: &mut Findings) -> Result<bool, Failure> {
    let groups = session.read("/apis").await?;
    let groups: BTreeSet<&str> = groups["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|group| group["name"].as_str())
        .collect();
    for (group, what) in [("kubevirt.io", "KubeVirt"), ("cdi.kubevirt.io", "CDI")] {
        if !groups.contains(group) {
            let text = format!("{} has no {what}: nobody serves {group}", session.server);
            findings.fail(
                text,
                "an administrator installs KubeVirt and CDI, or OpenShift Virtualization with both",
            );
        }
    }
    if !findings.0.is_empty() {
        return Ok(false);
    }
    let version = if_there(session.read("/apis/subresources.kubevirt.io/v1/version").await);
    let version = if_allowed(version)?.flatten().unwrap_or_default();
    let version = version["gitVersion"]
        .as_str()
        .unwrap_or("of unknown version")
        .to_owned();
    findings.ok(format!("KubeVirt {version} answers at {}", session.server));
    Ok(true)
}

pub(super) async fn rights(session: &Session, findings: &mut Findings) -> Result<bool, Failure> {
    let namespace = session.namespace.as_str();
    let mut missing: Vec<String> = Vec::new();
    for (group, resource, verbs) in RIGHTS {
        let mut refused = Vec::new();
        for verb in *verbs {
            if !may(session, verb, group, resource, Some(namespace)).await? {
                refused.push(*verb);
            }
        }
        if !refused.is_empty() {
            let place = if group.is_empty() {
                (*resource).to_owned()
            } else {
                format!("{resource}.{group}")
            };
            missing.push(format!("{} {place}", refused.join(",")));
        }
    }
    if !missing.is_empty() {
        let text = format!("this user may not do in namespace {namespace}: {}", missing.join("; "));
        findings.fail(
            text,
            "an administrator binds the cluster roles edit, kubevirt.io:edit and cdi.kubevirt.io:edit there",
        );
        return Ok(false);
    }
    findings.ok(format!(
        "this user has all rights that are needed in namespace {namespace}"
    ));
    for (group, resource, verb, without) in WISHES {
        if !may(session, verb, group, resource, Some(namespace)).await? {
            findings.add(
                Verdict::Warn,
                format!("this user may not {verb} {resource}: {without}"),
                None,
            );
        }
    }
    let path = format!("/api/v1/namespaces/{namespace}");
    if let Some(None) = if_allowed(if_there(session.read(&path).await))? {
        findings.fail(
            format!("there is no namespace {namespace}"),
            "set namespace to one of yours",
        );
        return Ok(false);
    }
    Ok(true)
}

async fn networks(session: &Session, needs: &Needs, findings: &mut Findings) -> Result<(), Failure> {
    for name in &needs.networks {
        if name == POD_NETWORK {
            let text = "the pod network gives a machine the address of its pod, which no MAC keeps: nothing can be harvested there";
            findings.fail(text, "set network to the name of a NetworkAttachmentDefinition");
            continue;
        }
        match network::find(session, name).await {
            Ok(Some(found)) => {
                findings.ok(format!("network attachment definition {name} is there"));
                if let Some(trouble) = network::config(&found).as_ref().and_then(network::vip_trouble) {
                    let hint =
                        "have a definition without subnets made, where the network's own DHCP server gives addresses";
                    findings.add(Verdict::Warn, format!("network {name}: {trouble}"), Some(hint));
                }
            }
            Ok(None) => findings.ok(format!(
                "network attachment definition {name} cannot be read, and is taken as it is"
            )),
            Err(failure) if failure.kind == BackendErrorKind::NotFound => {
                findings.fail(failure.words, failure.hint.as_deref().unwrap_or_default());
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

async fn storage(session: &Session, config: &KubevirtConfig, findings: &mut Findings) -> Result<(), Failure> {
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let Some(list) = if_allowed(session.read(classes).await)? else {
        findings.ok("storage classes cannot be read, and are taken as they are");
        return Ok(());
    };
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let known: Vec<&str> = items.iter().map(objects::name).collect();
    match &config.storage_class {
        Some(class) if !known.contains(&class.as_str()) => {
            let hint = format!("storage_class may be one of: {}", known.join(", "));
            findings.fail(format!("there is no storage class {class}"), &hint);
        }
        Some(class) => findings.ok(format!("storage class {class} is there")),
        None if items.iter().any(is_default) => findings.ok("volumes are of the default storage class"),
        None => {
            let hint = format!("set storage_class to one of: {}", known.join(", "));
            findings.fail("no storage class is the default one", &hint);
        }
    }
    Ok(())
}

/// KubeVirt has a default of its own beside that of Kubernetes.
pub(super) fn is_default(class: &Value) -> bool {
    [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.kubevirt.io/is-default-virt-class",
    ]
    .iter()
    .any(|annotation| class["metadata"]["annotations"][*annotation] == "true")
}

/// What a quota leaves of a resource, in thousandths.
fn left(quota: &Value, resource: &str) -> Option<u128> {
    let hard = quantity(&quota["status"]["hard"][resource]).or_else(|| quantity(&quota["spec"]["hard"][resource]))?;
    let used = quantity(&quota["status"]["used"][resource]).unwrap_or(0);
    Some(hard.saturating_sub(used))
}

async fn quotas(session: &Session, needs: &Needs, findings: &mut Findings) -> Result<(), Failure> {
    const MIB: u128 = 1000 << 20;
    let Some(quotas) = if_allowed(session.list(Kind::Quota, "").await)? else {
        return Ok(());
    };
    let memory = u128::from(needs.memory_mib) * MIB;
    let disk = u128::from(needs.disk_gib) * 1024 * MIB;
    for quota in &quotas {
        let wanted = [
            ("requests.memory", memory, MIB, "MiB of memory"),
            ("limits.memory", memory, MIB, "MiB of memory"),
            ("memory", memory, MIB, "MiB of memory"),
            ("requests.storage", disk, 1024 * MIB, "GiB of disk"),
        ];
        for (resource, wanted, unit, what) in wanted {
            if let Some(left) = left(quota, resource).filter(|left| *left < wanted) {
                let text = format!(
                    "quota {} of namespace {} leaves {} {what} ({resource}), {} wanted",
                    objects::name(quota),
                    session.namespace,
                    left / unit,
                    wanted / unit,
                );
                findings.fail(
                    text,
                    "ask for less, or have the quota raised; each machine's pod wants some more than its guest",
                );
            }
        }
    }
    if !quotas.is_empty() && findings.0.iter().all(|finding| !finding.text.starts_with("quota ")) {
        findings.ok(format!("the quotas of namespace {} suffice", session.namespace));
    }
    let Some(ranges) = if_allowed(session.list(Kind::LimitRange, "").await)? else {
        return Ok(());
    };
    let limits = ranges
        .iter()
        .flat_map(|range| range["spec"]["limits"].as_array().into_iter().flatten());
    for limit in limits.filter(|limit| limit["type"] == "Container" || limit["type"] == "Pod") {
        let most = quantity(&limit["max"]["cpu"]).filter(|most| *most < u128::from(needs.cpus_per_machine) * 1000);
        if let Some(most) = most {
            let text = format!(
                "a pod may have {} cpus here, a machine wants {}",
                most / 1000,
                needs.cpus_per_machine
            );
            findings.add(
                Verdict::Warn,
                text,
                Some("KubeVirt asks for a tenth of them unless they are dedicated"),
            );
        }
    }
    Ok(())
}

/// Memory of all hosts, where a user may look at them.
async fn capacity(session: &Session, needs: &Needs, findings: &mut Findings) -> Result<(), Failure> {
    let Some(nodes) = if_allowed(session.read("/api/v1/nodes").await)? else {
        return Ok(());
    };
    let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
    let able = |node: &&Value| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    let memory = |node: &Value| quantity(&node["status"]["allocatable"]["memory"]).unwrap_or(0) / (1000 << 20);
    let total: u128 = nodes.iter().filter(able).map(memory).sum();
    let text = format!(
        "hosts for machines have {total} MiB of memory together, {} MiB wanted",
        needs.memory_mib
    );
    match total < u128::from(needs.memory_mib) {
        true if nodes.iter().any(|node| able(&node)) => findings.fail(text, "ask for less memory or fewer nodes"),
        true => findings.add(Verdict::Warn, "no host is marked as able to run machines", None),
        false => findings.ok(text),
    }
    Ok(())
}

/// Names and MACs that machines of others in the namespace have.
async fn strangers(session: &Session, needs: &Needs, findings: &mut Findings) -> Result<(), Failure> {
    let mut wanted: BTreeMap<Mac, &str> = BTreeMap::new();
    for (name, macs) in &needs.machines {
        wanted.extend(macs.iter().map(|mac| (*mac, name.as_str())));
    }
    let mut clash = false;
    for machine in session.list(Kind::Machine, "").await? {
        let owner = objects::owner(&machine);
        if owner.is_some() && owner == needs.cluster {
            continue;
        }
        let name = objects::name(&machine);
        if needs.machines.iter().any(|(machine, _)| machine.as_str() == name) {
            clash = true;
            let text = format!("a virtual machine {name} that is not of this cluster is there");
            findings.fail(text, "choose another cluster name, or remove it");
        }
        for mac in look::macs(&machine) {
            if let Some(machine) = wanted.get(&mac) {
                clash = true;
                let text = format!("virtual machine {name} already has the MAC {mac} of {machine}");
                findings.fail(text, "give other MACs, or remove it");
            }
        }
    }
    if !clash {
        findings.ok(format!(
            "no name or MAC is taken by a stranger in namespace {}",
            session.namespace
        ));
    }
    Ok(())
}
