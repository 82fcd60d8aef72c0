//! Machines: a VirtualMachine, its volumes, and the Secret with its first-boot configuration.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::kind::Kind;
use super::labels;
use super::objects::{self, Root, Site};
use super::session::{Session, as_sent, not_owned};
use super::{balancers, images, look, network};
use crate::backend::error::if_exists;
use crate::backend::ownership::Ownership;
use crate::backend::{
    Action, BackendError, BackendErrorKind, Carrier, Description, Form, Machine, MachineSpec, Payload, Power, Stop,
};
use crate::cluster::{ClusterId, KubevirtConfig, MachineName};

pub(super) async fn create(
    session: &Session,
    config: &KubevirtConfig,
    spec: &MachineSpec,
) -> Result<Action<Machine>, BackendError> {
    fits(spec)?;
    let mut there = still(session, spec.name.as_str()).await?;
    if let Some(machine) = &there {
        Ownership::adopt(look::ownership(machine), spec)?;
        if look::is_refused(machine) && has_no_volume(session, spec, machine).await? {
            // virt-controller may retry only after 17 minutes, long after the cause was removed (kubevirt/kubevirt:
            // `pkg/virt-controller/watch/vm/vm.go`, `Execute`: `AddRateLimited`). So the machine is created again.
            delete(session, &spec.cluster, &spec.name).await?;
            there = None;
        }
    }
    for nic in &spec.nics {
        network::find(session, &nic.network).await?;
    }
    let Some(root) = Root::read(&spec.image) else {
        let words = format!("`{}` is not an image of this platform", spec.image.0);
        return Err(BackendError::new(BackendErrorKind::NotFound, words));
    };
    let site = Site {
        config,
        image_bytes: images::size(session, &root).await?,
        address: match objects::is_on_pods(spec) {
            true => Some(balancers::address_of(session, &spec.cluster, &spec.node).await?),
            false => None,
        },
    };
    let object = |anchor| objects::machine(spec, &root, &site, anchor);
    if there.is_some() {
        return adopt(session, spec, &object(None)).await;
    }
    let anchor = session.anchor(&spec.cluster).await?;
    // The Secret comes first, so an existing machine is always complete.
    session
        .put(Kind::Secret, &spec.cluster, &objects::secret(spec, Some(&anchor)))
        .await?;
    match session.create(Kind::Machine, &object(Some(&anchor))).await {
        Ok(stored) => seen(&stored).map(Action::Done),
        Err(failure) if failure.code == Some(409) => match session.get(Kind::Machine, spec.name.as_str()).await? {
            Some(there) => {
                Ownership::adopt(look::ownership(&there), spec)?;
                adopt(session, spec, &object(None)).await
            }
            None => Err(failure),
        },
        Err(failure) => Err(failure),
    }
}

/// Whether a machine that requires volumes has none: it has never run, and has no data.
async fn has_no_volume(session: &Session, spec: &MachineSpec, machine: &Value) -> Result<bool, BackendError> {
    let requires_some = machine["spec"]["dataVolumeTemplates"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    let selector = labels::of_machine(&spec.cluster, &spec.name);
    for kind in [Kind::DataVolume, Kind::Claim] {
        if !session.list(kind, &selector).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(requires_some)
}

fn fits(spec: &MachineSpec) -> Result<(), BackendError> {
    let bytes = match &spec.payload {
        Payload::Ignition(config) => config.len(),
        Payload::CloudInit {
            user_data,
            network_config,
            ..
        } => user_data.len() + network_config.len(),
    };
    match Carrier::SECRET.limit {
        Some(limit) if bytes > limit => {
            let words = format!(
                "the first-boot config of {} has {bytes} bytes; the limit of a Secret is {limit}",
                spec.name
            );
            Err(BackendError::new(BackendErrorKind::TooLarge, words))
        }
        _ => Ok(()),
    }
}

/// The machine with this name. If it is being deleted, waits until it no longer exists.
async fn still(session: &Session, name: &str) -> Result<Option<Value>, BackendError> {
    match session.get(Kind::Machine, name).await? {
        Some(there) if labels::is_going(&there) => {
            session.gone(Kind::Machine, &there).await?;
            session.get(Kind::Machine, name).await
        }
        other => Ok(other),
    }
}

/// Starts the existing machine, and checks that it was stored as it was sent: the run that created it may have been
/// interrupted before this check.
async fn adopt(session: &Session, spec: &MachineSpec, sent: &Value) -> Result<Action<Machine>, BackendError> {
    start(session, &spec.cluster, &spec.name).await?;
    match find(session, &spec.cluster, &spec.name).await? {
        Some(there) => {
            if !look::was_restored(&there) {
                as_sent(Kind::Machine, sent, &there)?;
            }
            seen(&there).map(Action::Unchanged)
        }
        None => Err(absent(&spec.name)),
    }
}

fn seen(machine: &Value) -> Result<Machine, BackendError> {
    look::machine(machine, None).ok_or_else(|| {
        let words = format!(
            "virtual machine {} no longer has ocpdeploy's labels",
            labels::name(machine)
        );
        BackendError::new(BackendErrorKind::Rejected, words)
    })
}

pub(super) async fn list(session: &Session, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
    let selector = labels::of_cluster(cluster);
    let (machines, instances, secrets) = futures::try_join!(
        session.list(Kind::Machine, &selector),
        session.list(Kind::Instance, &selector),
        session.list_labels(Kind::Secret, &selector)
    )?;
    let by_name: BTreeMap<&str, &Value> = instances
        .iter()
        .map(|instance| (labels::name(instance), instance))
        .collect();
    let of = |machine: &Value| look::machine(machine, by_name.get(labels::name(machine)).copied());
    let mut whole: Vec<Machine> = machines.iter().filter_map(of).collect();
    // Volumes are read only if a machine may be waiting for one, because a deployed cluster has many.
    let waits = |machine: &Machine| matches!(machine.power, Power::Building | Power::Broken(_));
    if whole.iter().any(waits) {
        let volumes = session.list(Kind::DataVolume, &selector).await?;
        for machine in whole.iter_mut().filter(|machine| waits(machine)) {
            let of_machine = |volume: &&Value| labels::label(volume, labels::MACHINE) == Some(machine.name.as_str());
            let power = look::with_volumes(machine.power.clone(), volumes.iter().filter(of_machine));
            machine.power = power;
        }
    }
    // A Secret is created before its machine and deleted after it.
    let remains = secrets.iter().filter_map(look::remains);
    let remains: Vec<Machine> = remains
        .filter(|left| whole.iter().all(|machine| machine.name != left.name))
        .collect();
    Ok(whole.into_iter().chain(remains).collect())
}

/// A machine of this cluster; a machine that is not owned by this cluster is a conflict.
pub(super) async fn find(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Option<Value>, BackendError> {
    match session.get(Kind::Machine, name.as_str()).await? {
        Some(there) if labels::owner(&there).as_ref() != Some(cluster) => {
            Err(not_owned(Kind::Machine, name.as_str(), cluster))
        }
        found => Ok(found),
    }
}

pub(super) fn absent(name: &MachineName) -> BackendError {
    BackendError::new(
        BackendErrorKind::NotFound,
        format!("virtual machine {name} does not exist"),
    )
}

/// Deletes a machine and its objects, and waits until they no longer exist: its MAC may be reused immediately.
pub(super) async fn delete(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Action<()>, BackendError> {
    let mut changed = false;
    let machine = find(session, cluster, name).await?;
    let selector = labels::of_machine(cluster, name);
    // First, because KubeVirt keeps a machine while it saves a snapshot, and a restore would create it again.
    for kind in [Kind::Restore, Kind::Snapshot] {
        changed |= session.sweep(kind, &selector).await?;
    }
    if let Some(machine) = &machine {
        changed = true;
        if !labels::is_going(machine) {
            // Power off first: a guest that is deleted has nothing to save.
            cut(session, machine).await?;
            session.delete(Kind::Machine, machine).await?;
        }
        session.gone(Kind::Machine, machine).await?;
    }
    // The garbage collector would delete the rest only later.
    for kind in [Kind::Instance, Kind::DataVolume, Kind::Claim, Kind::Secret] {
        changed |= session.sweep(kind, &selector).await?;
    }
    Ok(if changed {
        Action::Done(())
    } else {
        Action::Unchanged(())
    })
}

/// Powers a machine off; `false` if it is not running. Only this subresource can do so: KubeVirt does not let users
/// change the grace period of an instance (kubevirt/kubevirt:
/// `pkg/virt-api/webhooks/validating-webhook/admitters/vmi-update-admitter.go`).
async fn cut(session: &Session, machine: &Value) -> Result<bool, BackendError> {
    subresource(session, machine, "stop", &json!({"gracePeriod": 0})).await
}

/// Calls a subresource of a machine; `false` if the machine is already in that state, was deleted, or is no longer
/// owned by this cluster.
///
/// Subresources identify a machine only by name and take no preconditions (kubevirt/kubevirt:
/// `pkg/virt-api/rest/lifecycle.go`; `staging/src/kubevirt.io/api/core/v1/types.go`, `StopOptions`), so the machine is
/// read again just before. If another client replaces the machine between these two requests, the new one is started or
/// stopped.
async fn subresource(session: &Session, machine: &Value, verb: &str, body: &Value) -> Result<bool, BackendError> {
    let there = session.again(Kind::Machine, machine).await?;
    if there.is_none_or(|there| labels::owner(&there) != labels::owner(machine)) {
        return Ok(false);
    }
    let path = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{}/virtualmachines/{}/{verb}",
        session.namespace,
        labels::name(machine)
    );
    match session.call(Method::PUT, &path, "application/json", Some(body)).await {
        Ok(_) => Ok(true),
        Err(failure) if matches!(failure.code, Some(404 | 409)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn action(changed: bool) -> Action<()> {
    if changed {
        Action::Done(())
    } else {
        Action::Unchanged(())
    }
}

/// A machine of this cluster that is off. A guest that shut itself down leaves its instance, which is deleted: KubeVirt
/// would treat the machine as a running one.
pub(super) async fn off(session: &Session, cluster: &ClusterId, name: &MachineName) -> Result<Value, BackendError> {
    let (machine, instance) = with_instance(session, cluster, name).await?;
    if look::power(&machine, instance.as_ref()) != Power::Off {
        let words = format!("virtual machine {name} is not powered off");
        return Err(BackendError::new(BackendErrorKind::Rejected, words));
    }
    if let Some(instance) = &instance {
        run(session, &machine, "Halted").await?;
        session.gone(Kind::Instance, instance).await?;
    }
    Ok(machine)
}

/// A machine of this cluster and its instance.
async fn with_instance(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<(Value, Option<Value>), BackendError> {
    let machine = find(session, cluster, name).await?.ok_or_else(|| absent(name))?;
    Ok((machine, session.get(Kind::Instance, name.as_str()).await?))
}

pub(super) async fn start(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Action<()>, BackendError> {
    let (machine, instance) = with_instance(session, cluster, name).await?;
    if look::power(&machine, instance.as_ref()) != Power::Off {
        return Ok(Action::Unchanged(()));
    }
    if !look::is_halted(&machine) {
        return subresource(session, &machine, "start", &json!({})).await.map(action);
    }
    let runs = machine["metadata"]["annotations"][objects::RUNS]
        .as_str()
        .unwrap_or(objects::RERUN);
    run(session, &machine, runs).await?;
    Ok(Action::Done(()))
}

/// Sets the run strategy of a machine, if it is still the same object.
async fn run(session: &Session, machine: &Value, strategy: &str) -> Result<(), BackendError> {
    let patch = json!({"metadata": {"uid": machine["metadata"]["uid"]}, "spec": {"runStrategy": strategy}});
    session
        .merge(Kind::Machine, labels::name(machine), &patch)
        .await
        .map(drop)
}

pub(super) async fn stop(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
    how: Stop,
) -> Result<Action<()>, BackendError> {
    let (machine, instance) = with_instance(session, cluster, name).await?;
    if look::is_halted(&machine) && instance.is_none() {
        return Ok(Action::Unchanged(()));
    }
    // KubeVirt asks the guest to shut down, and powers it off after the grace period.
    run(session, &machine, "Halted").await?;
    if how == Stop::Force {
        cut(session, &machine).await?;
        if let Some(instance) = &instance {
            session.gone(Kind::Instance, instance).await?;
        }
    }
    Ok(Action::Done(()))
}

/// A machine's object and state. Its first-boot configuration is in a Secret and not shown.
pub(super) async fn describe(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Description, BackendError> {
    let (mut machine, instance) = with_instance(session, cluster, name).await?;
    if let Some(about) = machine["metadata"].as_object_mut() {
        about.remove("managedFields");
    }
    let instance = instance.unwrap_or_default();
    let rules = &machine["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"];
    let affinity = match rules
        .as_object()
        .and_then(|rules| rules.keys().next())
        .map(String::as_str)
    {
        Some(rule) if rule.starts_with("required") => "hard",
        Some(_) => "soft",
        None => "off",
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let told = [
        ("status", text(&machine["status"]["printableStatus"])),
        ("phase", text(&instance["status"]["phase"])),
        ("host", text(&instance["status"]["nodeName"])),
        ("run_strategy", text(&machine["spec"]["runStrategy"])),
    ];
    Ok(Description {
        scheduling: BTreeMap::from([
            ("namespace".to_owned(), session.namespace.as_str().into()),
            ("affinity".to_owned(), affinity.into()),
        ]),
        dynamic: told
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
            .collect(),
        form: Some(Form {
            name: "VirtualMachine",
            text: serde_json::to_string_pretty(&machine).unwrap_or_default(),
        }),
    })
}

/// The last lines of the serial console, from the log of a container in the machine's pod (KubeVirt 1.1 and later).
pub(super) async fn console(
    session: &Session,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Option<String>, BackendError> {
    find(session, cluster, name).await?.ok_or_else(|| absent(name))?;
    // Selected by a label that KubeVirt copies to the pod: `vm.kubevirt.io/name` is the guest's host name.
    // Source: kubevirt/kubevirt: `pkg/virt-controller/services/template.go`.
    let pods = session.list(Kind::Pod, &labels::of_machine(cluster, name)).await?;
    let newest = pods
        .iter()
        .max_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str());
    let Some(pod) = newest else { return Ok(None) };
    // Sidecars with restartPolicy Always are among the init containers.
    let mut containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    if !containers.any(|container| container["name"] == CONSOLE) {
        return Ok(None);
    }
    let path = format!(
        "{}/log?container={CONSOLE}&tailLines=60",
        session.path(Kind::Pod, labels::name(pod))
    );
    let text = if_exists(session.call(Method::GET, &path, "application/json", None).await)?;
    Ok(text.map(|text| last_lines(&text)).filter(|text| !text.is_empty()))
}

/// kubevirt/kubevirt: pkg/virt-controller/services/renderresources.go.
const CONSOLE: &str = "guest-console-log";

/// Up to 20 lines without terminal control sequences.
fn last_lines(text: &str) -> String {
    let plain = |line: &str| {
        let mut plain = String::new();
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            if character == '\x1b' && characters.peek() == Some(&'[') {
                characters.next();
                // Parameters end with a letter or one of @ [ \ ] ^ _ ` { | } ~.
                characters.by_ref().find(|c| ('@'..='~').contains(c));
            } else if !character.is_control() || character == '\t' {
                plain.push(character);
            }
        }
        plain.trim_end().to_owned()
    };
    let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
