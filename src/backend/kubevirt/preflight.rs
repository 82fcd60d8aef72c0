//! Checks before anything is created.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

use super::compare::quantity;
use super::kind::Kind;
use super::labels;
use super::objects::POD_NETWORK;
use super::release::{self, Release};
use super::session::{Session, if_allowed};
use super::{balancers, images, look, namespace, network, pods, quotas};
use crate::backend::error::if_exists;
use crate::backend::findings::Findings;
use crate::backend::{BackendError, BackendErrorKind, Finding, Requirements, Verdict};
use crate::cluster::{Affinity, Expose, KubevirtConfig, Mac, Pass, PodNetwork, Role, Routes, Size};

/// The required rights in the namespace: all are in the cluster roles `edit`, `kubevirt.io:edit`
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

const LET_EDIT: &str =
    "ask an administrator to bind the cluster roles edit, kubevirt.io:edit and cdi.kubevirt.io:edit there";

pub(super) const INSTALL: &str =
    "ask an administrator to install KubeVirt and CDI, or OpenShift Virtualization, which includes both";

/// Kubernetes' cluster role `edit` has no rules for groups that it does not know (kubernetes/kubernetes:
/// `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`), and Multus adds none to it
/// (k8snetworkplumbingwg/multus-cni: `deployments/multus-daemonset.yml`).
const LET_NETWORKS: &str = "ask an administrator to apply the Role of docs/how-to/kubevirt.md there";

/// Optional rights, and what is not available without them.
const WISHES: &[(&str, &str, &str, &str)] = &[
    ("", "pods", "list", "no console lines in failure reports"),
    (
        "subresources.kubevirt.io",
        "virtualmachineinstances/console",
        "get",
        "no interactive console with `ocpdeploy node console --interactive`",
    ),
    ("", "resourcequotas", "list", "quotas are not compared"),
    (
        "upload.cdi.kubevirt.io",
        "uploadtokenrequests",
        "create",
        "image files cannot be uploaded",
    ),
];

pub(super) async fn preflight(
    session: &Session,
    config: &KubevirtConfig,
    needs: &Requirements,
) -> Result<Vec<Finding>, BackendError> {
    let mut findings = Findings(Vec::new());
    let Some(kubevirt) = versions(session, &mut findings).await? else {
        return Ok(findings.0);
    };
    if config.makes_namespace && !namespace::is_there(session).await? {
        let name = &session.namespace;
        match namespace::way(session).await? {
            // Its creator gets rights in it; nothing else can be checked before it exists.
            Some(_) => findings.ok(format!("namespace {name} will be created")),
            None => findings.fail(
                format!("namespace {name} does not exist, and this user may not create it"),
                "ask an administrator to create it, and leave out kubevirt_make_namespace",
            ),
        }
        return Ok(findings.0);
    }
    if !rights(session, &mut findings).await? {
        return Ok(findings.0);
    }
    networks(session, config, needs, &mut findings).await?;
    let platform = quotas::Platform {
        kubevirt,
        class: storage(session, config, &mut findings).await?,
        image_bytes: images::check(session, &needs.templates, &mut findings).await?,
    };
    quotas::check(session, needs, &platform, &mut findings).await?;
    capacity(session, config, needs, &mut findings).await?;
    name_conflicts(session, needs, &mut findings).await?;
    Ok(findings.0)
}

/// KubeVirt's release; `None` if KubeVirt or CDI is missing or too old.
pub(super) async fn versions(session: &Session, findings: &mut Findings) -> Result<Option<Release>, BackendError> {
    let groups = session.read("/apis").await?;
    let groups = groups["groups"].as_array().cloned().unwrap_or_default();
    for (group, version, what) in [("kubevirt.io", "v1", "KubeVirt"), ("cdi.kubevirt.io", "v1beta1", "CDI")] {
        let Some(served) = groups.iter().find(|served| served["name"] == group) else {
            let text = format!("{} has no {what}: {group} is not served", session.server);
            findings.fail(text, INSTALL);
            continue;
        };
        let versions = served["versions"].as_array().into_iter().flatten();
        let versions: Vec<&str> = versions.filter_map(|served| served["version"].as_str()).collect();
        if !versions.contains(&version) {
            let text = format!(
                "{what} at {} is too old: it serves {group}/{}, but {group}/{version} is required",
                session.server,
                versions.join(" and ")
            );
            findings.fail(text, "ask an administrator to update it");
        }
    }
    if !findings.0.is_empty() {
        return Ok(None);
    }
    let version = if_exists(session.read("/apis/subresources.kubevirt.io/v1/version").await);
    let version = if_allowed(version)?.flatten().unwrap_or_default();
    let version = version["gitVersion"]
        .as_str()
        .unwrap_or("of unknown version")
        .to_owned();
    findings.ok(format!("KubeVirt {version} answers at {}", session.server));
    let kubevirt = release::read(&version);
    match kubevirt {
        Release::Known(0, _) => {
            let text = format!("KubeVirt {version} is older than the first supported version, v1.0");
            findings.add(Verdict::Warn, text, None);
        }
        Release::SelfBuilt => findings.ok("KubeVirt is built without a version, so its age is not checked"),
        _ => {}
    }
    let first = async |path: &str| -> Result<Option<Value>, BackendError> {
        let list = if_allowed(if_exists(session.read(path).await))?.flatten();
        Ok(list.and_then(|list| list["items"].get(0).cloned()))
    };
    if let Some(kubevirt) = first("/apis/kubevirt.io/v1/kubevirts").await? {
        let gates = &kubevirt["spec"]["configuration"]["developerConfiguration"]["featureGates"];
        let gates = gates.as_array().into_iter().flatten().filter_map(Value::as_str);
        let gates: Vec<&str> = gates.collect();
        findings.ok(gates_of("KubeVirt", &gates));
        // KubeVirt 1.1 and later; if disabled, failure reports have no console lines.
        let off = &kubevirt["spec"]["configuration"]["virtualMachineOptions"]["disableSerialConsoleLog"];
        if off.is_object() {
            let text = "KubeVirt stores no consoles (disableSerialConsoleLog): failure reports have no console lines";
            findings.add(Verdict::Warn, text, None);
        }
    } else {
        findings.ok("KubeVirt's feature gates cannot be read and are not checked");
    }
    if let Some(cdi) = first("/apis/cdi.kubevirt.io/v1beta1/cdis").await? {
        let version = cdi["status"]["observedVersion"]
            .as_str()
            .unwrap_or("of unknown version");
        findings.ok(format!("CDI {version} is installed"));
    } else {
        findings.ok("CDI is installed, but this user cannot read its version");
    }
    if let Some(config) = first("/apis/cdi.kubevirt.io/v1beta1/cdiconfigs").await? {
        let gates = config["spec"]["featureGates"].as_array().into_iter().flatten();
        let gates: Vec<&str> = gates.filter_map(Value::as_str).collect();
        findings.ok(gates_of("CDI", &gates));
    } else {
        findings.ok("CDI's feature gates cannot be read and are not checked");
    }
    Ok(Some(kubevirt))
}

fn gates_of(what: &str, gates: &[&str]) -> String {
    match gates.is_empty() {
        true => format!("{what} has no feature gates enabled"),
        false => format!("{what} has feature gates enabled: {}", gates.join(", ")),
    }
}

pub(super) async fn rights(session: &Session, findings: &mut Findings) -> Result<bool, BackendError> {
    let namespace = session.namespace.as_str();
    let missing = missing(session, RIGHTS).await?;
    if !missing.is_empty() {
        let text = format!(
            "this user lacks permissions in namespace {namespace}: {}",
            missing.join("; ")
        );
        findings.fail(text, LET_EDIT);
        return Ok(false);
    }
    findings.ok(format!("this user has all required rights in namespace {namespace}"));
    for (group, resource, verb, without) in WISHES {
        if !session.may(verb, group, resource, Some(namespace)).await? {
            findings.add(
                Verdict::Warn,
                format!("this user may not {verb} {resource}: {without}"),
                None,
            );
        }
    }
    let path = format!("/api/v1/namespaces/{namespace}");
    if let Some(None) = if_allowed(if_exists(session.read(&path).await))? {
        findings.fail(
            format!("namespace {namespace} does not exist"),
            "set kubevirt_namespace to an existing namespace",
        );
        return Ok(false);
    }
    Ok(true)
}

/// The rights that the pod network requires in addition.
const ON_PODS: &[(&str, &str, &[&str])] = &[
    ("", "services", &["get", "list", "create", "delete", "patch"]),
    (
        "networking.k8s.io",
        "networkpolicies",
        &["get", "list", "create", "delete", "patch"],
    ),
];

/// The label of namespaces whose pods have another network than those of other namespaces: they reach each other and
/// Services only on that network (ovn-kubernetes/ovn-kubernetes: `go-controller/pkg/types/const.go`,
/// `RequiredUDNNamespaceLabel`; `docs/features/user-defined-networks/user-defined-networks.md`).
const OWN_NETWORK: &str = "k8s.ovn.org/primary-user-defined-network";

/// Checks the rights, and that the cluster's own ranges do not overlap with the platform's.
async fn on_pods(
    session: &Session,
    site: &PodNetwork,
    needs: &Requirements,
    findings: &mut Findings,
) -> Result<(), BackendError> {
    let missing = missing(session, ON_PODS).await?;
    if !missing.is_empty() {
        let text = format!(
            "this user lacks permissions in namespace {}: {}",
            session.namespace,
            missing.join("; ")
        );
        findings.fail(text, LET_EDIT);
        return Ok(());
    }
    let namespace = session.read(&format!("/api/v1/namespaces/{}", session.namespace)).await;
    if let Some(Some(namespace)) = if_allowed(if_exists(namespace))?
        && labels::label(&namespace, OWN_NETWORK).is_some()
    {
        findings.fail(
            format!(
                "pods of namespace {} are on a user-defined network, which network=pod does not support",
                session.namespace
            ),
            "set namespace to one without the label k8s.ovn.org/primary-user-defined-network, or network to a \
             NetworkAttachmentDefinition",
        );
        return Ok(());
    }
    let mut seen: Vec<(String, IpAddr)> = Vec::new();
    let path = format!("{}?dryRun=All", Kind::Service.folder(&session.namespace));
    let trial = session.ask(&path, &pods::trial()).await?;
    seen.extend(pods::inside(&trial).map(|ip| ("a Service".to_owned(), ip.into())));
    for pod in if_allowed(session.list(Kind::Pod, "").await)?.unwrap_or_default() {
        let ip: Option<Ipv4Addr> = pod["status"]["podIP"].as_str().and_then(|text| text.parse().ok());
        seen.extend(ip.map(|ip| (format!("pod {}", labels::name(&pod)), ip.into())));
    }
    let ranges = balancers::pod_ranges(session, site).await?;
    seen.extend(ranges.iter().map(|range| ("a pod".to_owned(), range.network().into())));
    let clash = seen.iter().find_map(|(what, ip)| {
        let inner = needs.inner_networks.iter().find(|inner| inner.contains(*ip))?;
        Some(format!(
            "{what} of the platform has {ip}, which is in the cluster's own {inner}"
        ))
    });
    match clash {
        Some(text) => findings.fail(
            text,
            "set cluster_network and service_network to ranges that the platform does not use",
        ),
        None => findings.ok("the cluster's networks do not overlap with the platform's"),
    }
    let takes_all = site.admit.iter().any(|admitted| admitted.prefix() < 8);
    if ranges.is_empty() && takes_all {
        findings.fail(
            "the range of the platform's pods is not known, so any pod there would have access",
            "set kubevirt_pod_networks to this range, or kubevirt_admit to the networks of your clients",
        );
    }
    match site.expose {
        Expose::NodePort if balancers::node_address(session, site).await?.is_none() => findings.fail(
            "kubevirt_expose=nodeport: this user may not list nodes, so no address for node ports is known",
            "set kubevirt_node_address to the address of a node",
        ),
        Expose::ClusterIp => findings.add(
            Verdict::Warn,
            "kubevirt_expose=clusterip: only pods of the platform can reach the API, so run this program in one",
            None,
        ),
        _ => {}
    }
    if site.routes != Routes::Off {
        route_rights(session, site, findings).await?;
    }
    Ok(())
}

async fn route_rights(session: &Session, site: &PodNetwork, findings: &mut Findings) -> Result<(), BackendError> {
    let wanted: &[(&str, &str, &[&str])] = &[
        (
            "route.openshift.io",
            "routes",
            &["get", "list", "create", "delete", "patch"],
        ),
        ("route.openshift.io", "routes/custom-host", &["create"]),
    ];
    let is_served = balancers::serves_routes(session).await?;
    if !is_served && site.routes == Routes::Auto {
        findings.ok("the platform has no Routes: ingress is available only at its virtual IP");
        return Ok(());
    }
    let hint = "set kubevirt_routes=off, or ask an administrator for this";
    if !is_served {
        findings.fail(format!("{} has no Routes", session.server), hint);
        return Ok(());
    }
    let missing = missing(session, wanted).await?;
    if !missing.is_empty() {
        findings.fail(format!("this user may not create Routes: {}", missing.join("; ")), hint);
    }
    Ok(())
}

/// The rights that this user lacks in the namespace, as text.
pub(super) async fn missing(session: &Session, rights: &[(&str, &str, &[&str])]) -> Result<Vec<String>, BackendError> {
    let mut missing = Vec::new();
    for (group, resource, verbs) in rights {
        let mut refused = Vec::new();
        for verb in *verbs {
            if !session.may(verb, group, resource, Some(&session.namespace)).await? {
                refused.push(*verb);
            }
        }
        if !refused.is_empty() {
            let place = match group.is_empty() {
                true => (*resource).to_owned(),
                false => format!("{resource}.{group}"),
            };
            missing.push(format!("{} {place}", refused.join(",")));
        }
    }
    Ok(missing)
}

async fn networks(
    session: &Session,
    config: &KubevirtConfig,
    needs: &Requirements,
    findings: &mut Findings,
) -> Result<(), BackendError> {
    for name in &needs.networks {
        if name == POD_NETWORK {
            match &config.pods {
                Some(site) => on_pods(session, site, needs, findings).await?,
                None => findings.fail(
                    "the pod network cannot be an additional network of a machine",
                    "set network=pod, or extra_networks to NetworkAttachmentDefinitions",
                ),
            }
            continue;
        }
        match network::find(session, name).await {
            Ok(Some(found)) => {
                findings.ok(format!("network attachment definition {name} exists"));
                if let Some(trouble) = network::config(&found).as_ref().and_then(network::vip_trouble) {
                    let hint =
                        "ask for a definition without subnets, so that the network's own DHCP server assigns addresses";
                    findings.add(Verdict::Warn, format!("network {name}: {trouble}"), Some(hint));
                }
            }
            // Without this right, a mistyped name would be found only when the first machine does not start.
            Ok(None) => {
                let namespace = network::place(session, name).0;
                findings.fail(
                    format!(
                        "this user lacks permissions in namespace {namespace}: get {}.k8s.cni.cncf.io, so network {name} \
                         cannot be checked",
                        Kind::Network.plural()
                    ),
                    LET_NETWORKS,
                );
            }
            Err(failure) if failure.kind == BackendErrorKind::NotFound => {
                findings.fail(failure.message, failure.hint.as_deref().unwrap_or_default());
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Checks the storage class, and returns its name if it is known.
async fn storage(
    session: &Session,
    config: &KubevirtConfig,
    findings: &mut Findings,
) -> Result<Option<String>, BackendError> {
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let Some(list) = if_allowed(session.read(classes).await)? else {
        findings.ok("storage classes cannot be read and are not checked");
        return Ok(config.storage_class.clone());
    };
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let known: Vec<&str> = items.iter().map(labels::name).collect();
    // CDI prefers KubeVirt's default to Kubernetes' (containerized-data-importer: `pkg/controller/common/util.go`,
    // `GetStorageClassByNameWithVirtFallback`).
    let default = DEFAULTS.iter().find_map(|annotation| {
        let is_default = |class: &&Value| class["metadata"]["annotations"][*annotation] == "true";
        items.iter().find(is_default)
    });
    match (&config.storage_class, default) {
        (Some(class), _) if !known.contains(&class.as_str()) => {
            let hint = format!("set kubevirt_storage_class to one of: {}", known.join(", "));
            findings.fail(format!("storage class {class} does not exist"), &hint);
        }
        (Some(class), _) => findings.ok(format!("storage class {class} exists")),
        (None, Some(_)) => findings.ok("volumes use the default storage class"),
        (None, None) => {
            let hint = format!("set kubevirt_storage_class to one of: {}", known.join(", "));
            findings.fail("the platform has no default storage class", &hint);
        }
    }
    let default = default.map(|class| labels::name(class).to_owned());
    Ok(config.storage_class.clone().or(default))
}

/// The annotations of default storage classes, of KubeVirt's own default first.
const DEFAULTS: [&str; 2] = [
    "storageclass.kubevirt.io/is-default-virt-class",
    "storageclass.kubernetes.io/is-default-class",
];

/// Whether a class is a default one.
pub(super) fn is_default(class: &Value) -> bool {
    DEFAULTS
        .iter()
        .any(|annotation| class["metadata"]["annotations"][*annotation] == "true")
}

/// Compares the hosts' memory with the requirements, if this user can list the hosts.
async fn capacity(
    session: &Session,
    config: &KubevirtConfig,
    needs: &Requirements,
    findings: &mut Findings,
) -> Result<(), BackendError> {
    let Some(nodes) = if_allowed(session.read("/api/v1/nodes").await)? else {
        return Ok(());
    };
    let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
    let able = |node: &&Value| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    let memory = |node: &Value| quantity(&node["status"]["allocatable"]["memory"]).unwrap_or(0) / (1000 << 20);
    architectures(nodes.iter().filter(able), needs, findings);
    let total: u128 = nodes.iter().filter(able).map(memory).sum();
    let text = format!(
        "the hosts for machines have {total} MiB of memory in total, {} MiB required",
        needs.memory_mib
    );
    let most = [&[Role::Master, Role::Arbiter][..], &[Role::Worker]].map(|roles| {
        let of_roles = |(pass, of, _): &&(Pass, Role, Size)| *pass == Pass::Two && roles.contains(of);
        needs.sizes.iter().filter(of_roles).count()
    });
    let hosts = nodes.iter().filter(able).count();
    if config.affinity == Affinity::Hard && most.into_iter().any(|count| count > hosts) {
        let text =
            format!("kubevirt_affinity=hard requires a host for each machine, but {hosts} hosts can run machines");
        findings.fail(text, "set kubevirt_affinity=soft, or reduce the number of nodes");
    }
    match total < u128::from(needs.memory_mib) {
        true if nodes.iter().any(|node| able(&node)) => findings.fail(text, "reduce memory or the number of nodes"),
        true => findings.add(Verdict::Warn, "no host is labeled as able to run machines", None),
        false => findings.ok(text),
    }
    Ok(())
}

/// Checks that hosts have the machines' architectures. kubelet labels each host with its own (kubernetes/api:
/// `core/v1/well_known_labels.go`), virt-handler with those that it can emulate (kubevirt/kubevirt:
/// `pkg/virt-handler/node-labeller/node_labeller.go`).
fn architectures<'n>(hosts: impl Iterator<Item = &'n Value>, needs: &Requirements, findings: &mut Findings) {
    let labels = hosts
        .filter_map(|host| host["metadata"]["labels"].as_object())
        .flatten();
    let archs: BTreeSet<&str> = labels
        .filter_map(|(name, value)| match name.as_str() {
            "kubernetes.io/arch" => value.as_str(),
            name => name.strip_prefix("kubevirt.io/vm-arch-"),
        })
        .collect();
    let known: Vec<&str> = archs.iter().copied().collect();
    let missing = needs.architectures.iter().filter(|_| !known.is_empty());
    for arch in missing.filter(|arch| !archs.contains(arch.go())) {
        let text = format!(
            "no host can run machines of {}, only of {}",
            arch.go(),
            known.join(" and ")
        );
        findings.fail(text, "set arch to the architecture of the hosts");
    }
}

/// Checks that no machine of another owner has the cluster's names or MACs.
async fn name_conflicts(session: &Session, needs: &Requirements, findings: &mut Findings) -> Result<(), BackendError> {
    let mut wanted: BTreeMap<Mac, &str> = BTreeMap::new();
    for (name, macs) in &needs.machines {
        wanted.extend(macs.iter().map(|mac| (*mac, name.as_str())));
    }
    let mut clash = false;
    for machine in session.list(Kind::Machine, "").await? {
        let owner = labels::owner(&machine);
        if owner.is_some() && owner == needs.cluster {
            continue;
        }
        let name = labels::name(&machine);
        if needs.machines.iter().any(|(machine, _)| machine.as_str() == name) {
            clash = true;
            let text = format!("virtual machine {name} exists and belongs to another owner");
            findings.fail(text, "choose another cluster name, or remove the virtual machine");
        }
        for mac in look::macs(&machine) {
            if let Some(machine) = wanted.get(&mac) {
                clash = true;
                let text = format!("virtual machine {name} already has the MAC {mac} of {machine}");
                findings.fail(text, "set other MACs, or remove that virtual machine");
            }
        }
    }
    if !clash {
        findings.ok(format!(
            "machine names and MACs are free in namespace {}",
            session.namespace
        ));
    }
    Ok(())
}
