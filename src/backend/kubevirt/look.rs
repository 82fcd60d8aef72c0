//! Reads virtual machines and their instances; pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

use super::errors::{EXCEEDED_QUOTA, NO_CLONE, let_clone};
use super::labels::{self, CREATION, FINGERPRINT, MACHINE, NODE, PASS, ROLE};
use super::objects::{POD_NETWORK, RERUN};
use super::pods;
use crate::backend::ownership::Ownership;
use crate::backend::{Machine, Nic, Power, SeenNic};
use crate::cluster::Mac;

/// The ownership of a machine; `None` if a label is missing.
pub(super) fn ownership(machine: &Value) -> Option<Ownership> {
    let annotation = |name: &str| machine["metadata"]["annotations"][name].as_str();
    let nics = nics(machine, None).into_iter().map(|nic| Nic {
        network: nic.network,
        mac: nic.mac,
    });
    Some(Ownership {
        cluster: labels::owner(machine)?,
        machine: labels::name(machine).parse().ok()?,
        node: labels::label(machine, NODE)?.parse().ok()?,
        role: labels::label(machine, ROLE)?.parse().ok()?,
        pass: labels::label(machine, PASS)?.parse().ok()?,
        fingerprint: annotation(FINGERPRINT)?.to_owned(),
        nics: nics.collect(),
        creation: annotation(CREATION).and_then(|creation| creation.parse().ok()),
    })
}

/// A machine of a cluster; `None` if a label is missing.
pub(super) fn machine(machine: &Value, instance: Option<&Value>) -> Option<Machine> {
    let seen = ownership(machine)?.machine(power(machine, instance), &BTreeMap::new());
    let nics = nics(machine, instance);
    Some(Machine { nics, ..seen })
}

/// What an interrupted creation or deletion has left of a machine, from the labels of its Secret.
pub(super) fn remains(secret: &Value) -> Option<Machine> {
    Some(Machine {
        name: labels::label(secret, MACHINE)?.parse().ok()?,
        node: labels::label(secret, NODE)?.parse().ok()?,
        role: labels::label(secret, ROLE)?.parse().ok()?,
        pass: labels::label(secret, PASS)?.parse().ok()?,
        fingerprint: String::new(),
        power: Power::Building,
        nics: Vec::new(),
        creation: None,
    })
}

/// Whether KubeVirt has restored a snapshot of the machine: its volumes have other names then (kubevirt/kubevirt:
/// `pkg/storage/snapshot/restore.go`, `generateRestoredVMSpec`).
pub(super) fn was_restored(machine: &Value) -> bool {
    machine["metadata"]["annotations"]["restore.kubevirt.io/lastRestoreUID"].is_string()
}

/// The power state. Values: kubevirt/kubevirt
/// `staging/src/kubevirt.io/api/core/v1/types.go`: VirtualMachinePrintableStatus.
///
/// The status lags behind the spec; the instance shows the actual state.
pub(super) fn power(machine: &Value, instance: Option<&Value>) -> Power {
    let status = machine["status"]["printableStatus"].as_str().unwrap_or_default();
    match status {
        _ if is_halted(machine) => match instance {
            Some(_) => Power::Running,
            None => Power::Off,
        },
        "Running" | "Migrating" | "Stopping" => Power::Running,
        "Stopped" if instance.map_or_else(|| stays_off(machine), has_ended) => Power::Off,
        "Terminating" => Power::Off,
        "Paused" => Power::Paused(reason(machine).unwrap_or("paused by a user").to_owned()),
        "ErrorUnschedulable"
        | "ImagePullBackOff"
        | "ErrorPvcNotFound"
        | "ErrorDataVolumeNotFound"
        | DATA_VOLUME_ERROR => Power::Broken(match reason(machine) {
            Some(reason) => format!("{status}: {reason}"),
            None => status.to_owned(),
        }),
        // The guest or its pod ended by itself, and is started again after a pause.
        "CrashLoopBackOff" => Power::Waiting(reason(machine).unwrap_or(status).to_owned()),
        _ => not_started(machine),
    }
}

/// A machine whose instance or pod does not exist. virt-controller retries, and reports the reason in a condition:
/// `Failure` if there is no instance, `Synchronized` if there is no pod.
/// Source: kubevirt/kubevirt: `pkg/virt-controller/watch/vm/vm.go`, `pkg/virt-controller/watch/vmi/lifecycle.go`.
fn not_started(machine: &Value) -> Power {
    let conditions = machine["status"]["conditions"].as_array().into_iter().flatten();
    let refused = conditions.into_iter().find(|condition| {
        let is = |kind: &str, status: &str| condition["type"] == kind && condition["status"] == status;
        is("Failure", "True") || is("Synchronized", "False") && condition["reason"] == "FailedCreate"
    });
    match refused.and_then(|condition| condition["message"].as_str()) {
        // Waiting does not help: quotas are not raised during a deployment, and rights are not granted.
        Some(why) if REFUSED.iter().any(|text| why.contains(text)) => Power::Broken(why.to_owned()),
        Some(why) => match why.split_once(NO_CLONE) {
            Some((_, from)) => {
                let to = machine["metadata"]["namespace"].as_str().unwrap_or_default();
                Power::Broken(format!("{why}; {}", let_clone(from, to)))
            }
            None => Power::Waiting(why.to_owned()),
        },
        None => Power::Building,
    }
}

/// Whether a machine without an instance cannot get one until its cause is removed.
pub(super) fn is_refused(machine: &Value) -> bool {
    matches!(not_started(machine), Power::Broken(_))
}

/// What admission says of a pod that it never admits: a quota is used up, or limits a resource that the pod does not
/// name, or the namespace enforces another level of Pod Security (kubernetes/kubernetes:
/// `staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`,
/// `staging/src/k8s.io/pod-security-admission/admission/admission.go`).
const REFUSED: [&str; 3] = [EXCEEDED_QUOTA, "failed quota: ", "violates PodSecurity"];

/// What KubeVirt reports of a machine whose volume cannot be filled; only the volume has the reason.
const DATA_VOLUME_ERROR: &str = "DataVolumeError";
/// Restarts of CDI's pod after which a volume cannot be filled.
const RESTARTS: u64 = 3;
/// Reasons of conditions that last until somebody else changes something.
/// Source: containerized-data-importer: `pkg/controller/common/util.go`, `pkg/controller/datavolume/controller-base.go`.
const NOT_VALID: &str = "ErrClaimNotValid";
const LASTING: [&str; 2] = [NOT_VALID, "ErrExceededQuota"];

/// Why a data volume is not filled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfilled {
    pub why: String,
    /// Waiting longer cannot help.
    pub is_final: bool,
}

/// `None` for a volume that is filled, and without a reason. CDI copies the reasons of its pod and of the claim to
/// conditions of the data volume (containerized-data-importer: `pkg/controller/datavolume/conditions.go`).
pub(super) fn unfilled(volume: &Value) -> Option<Unfilled> {
    let status = &volume["status"];
    let phase = status["phase"].as_str().unwrap_or_default();
    if phase == "Succeeded" {
        return None;
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let open: Vec<&Value> = conditions.filter(|condition| condition["status"] != "True").collect();
    let is_lasting = |condition: &&Value| LASTING.iter().any(|reason| condition["reason"] == *reason);
    // The most specific first: CDI's pod, then the claim.
    let said = ["Running", "Bound", "Ready"].iter().find_map(|kind| {
        let condition = open.iter().find(|condition| condition["type"] == *kind)?;
        condition["message"].as_str().filter(|text| !text.is_empty())
    });
    let restarts = status["restartCount"].as_u64().unwrap_or(0);
    let is_final = phase == "Failed" || restarts >= RESTARTS || open.iter().any(is_lasting);
    let said = said.or(is_final.then_some("CDI gives no reason"))?;
    let hint = match open.iter().any(|condition| condition["reason"] == NOT_VALID) {
        true => {
            "; set kubevirt_storage_class, kubevirt_access_mode or kubevirt_volume_mode to what the storage supports"
        }
        false => "",
    };
    Some(Unfilled {
        why: format!("data volume {}: {said}{hint}", labels::name(volume)),
        is_final,
    })
}

/// The power state of a machine that waits for its volumes, with the reason of the first of them that has one.
pub(super) fn with_volumes<'v>(power: Power, volumes: impl Iterator<Item = &'v Value>) -> Power {
    let is_volume_error = match &power {
        Power::Building => false,
        Power::Broken(why) if why.starts_with(DATA_VOLUME_ERROR) => true,
        _ => return power,
    };
    let all: Vec<Unfilled> = volumes.filter_map(unfilled).collect();
    match all.iter().find(|one| one.is_final).or(all.first()) {
        Some(one) if one.is_final || is_volume_error => Power::Broken(one.why.clone()),
        Some(one) => Power::Waiting(one.why.clone()),
        None => power,
    }
}

/// Whether KubeVirt leaves a machine without an instance off, as it does after its guest has shut down or was evicted.
/// The status has the strategy once the machine has run (kubevirt/kubevirt: `pkg/virt-controller/watch/vm/vm.go`,
/// `shouldStartRerunOnFailure`; versions without this field keep the instance).
fn stays_off(machine: &Value) -> bool {
    let status = &machine["status"];
    let list = |field: &str| status[field].as_array().into_iter().flatten();
    machine["spec"]["runStrategy"] == RERUN
        && status["runStrategy"] == RERUN
        && list("stateChangeRequests").next().is_none()
        && !list("conditions").any(|condition| condition["type"] == "Failure" && condition["status"] == "True")
}

/// Whether the guest has ended; the machine's status may be older than its instance.
fn has_ended(instance: &Value) -> bool {
    matches!(instance["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

pub(super) fn is_halted(machine: &Value) -> bool {
    machine["spec"]["runStrategy"] == "Halted"
}

/// The message of the most specific condition.
fn reason(machine: &Value) -> Option<&str> {
    let conditions = machine["status"]["conditions"].as_array()?;
    ["Failure", "Paused", "Ready"].into_iter().find_map(|kind| {
        let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
        condition["message"].as_str().filter(|message| !message.is_empty())
    })
}

/// The MACs in a machine's spec.
pub(super) fn macs(machine: &Value) -> Vec<Mac> {
    nics(machine, None).iter().map(|nic| nic.mac).collect()
}

/// NICs in the order of the spec, with what the instance reports for each MAC.
fn nics(machine: &Value, instance: Option<&Value>) -> Vec<SeenNic> {
    let spec = &machine["spec"]["template"]["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let networks = list(&spec["networks"]);
    let reported = instance
        .map(|instance| list(&instance["status"]["interfaces"]))
        .unwrap_or_default();
    let interfaces = list(&spec["domain"]["devices"]["interfaces"]);
    let nic = |interface: &Value| {
        let mac: Mac = interface["macAddress"].as_str()?.parse().ok()?;
        let network = networks.iter().find(|network| network["name"] == interface["name"])?;
        if let Some(range) = network["pod"]["vmNetworkCIDR"].as_str() {
            // KubeVirt reports the pod's address, which the guest does not have.
            let runs = instance.is_some_and(|instance| instance["status"]["phase"] == "Running");
            return Some(SeenNic {
                network: POD_NETWORK.to_owned(),
                mac,
                addresses: pods::guest_of(range)
                    .into_iter()
                    .filter(|_| runs)
                    .map(IpAddr::V4)
                    .collect(),
            });
        }
        let network = network["multus"]["networkName"]
            .as_str()
            .unwrap_or(POD_NETWORK)
            .to_owned();
        let of_mac = reported.iter().filter(|seen| {
            seen["mac"]
                .as_str()
                .and_then(|text| text.to_ascii_lowercase().parse().ok())
                == Some(mac)
        });
        let mut addresses: Vec<IpAddr> = of_mac.flat_map(addresses).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Some(SeenNic {
            network,
            mac,
            addresses,
        })
    };
    interfaces.iter().filter_map(nic).collect()
}

/// The IPv4 addresses. `ipAddress` repeats the first of `ipAddresses`, if that list exists; both may have a prefix length.
fn addresses(interface: &Value) -> Vec<IpAddr> {
    let list = interface["ipAddresses"].as_array().into_iter().flatten();
    list.chain([&interface["ipAddress"]])
        .filter_map(|text| text.as_str()?.split('/').next()?.parse::<Ipv4Addr>().ok())
        .map(IpAddr::V4)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_found_by_mac_and_not_by_name() {
        let machine = json!({"spec": {"template": {"spec": {
            "networks": [{"name": "net0", "multus": {"networkName": "a/br"}}, {"name": "net1", "pod": {}}],
            "domain": {"devices": {"interfaces": [
                {"name": "net0", "macAddress": "52:54:00:00:00:01"}, {"name": "net1", "macAddress": "52:54:00:00:00:02"},
            ]}},
        }}}});
        let instance = json!({"status": {"interfaces": [
            {"name": "", "interfaceName": "br-ex", "mac": "52:54:00:00:00:02", "ipAddress": "10.0.0.9/24"},
            {"name": "net0", "mac": "52:54:00:00:00:01".to_uppercase(), "ipAddress": "10.0.0.5",
             "ipAddresses": ["10.0.0.5", "fe80::1", "10.0.0.4"]},
            {"name": "net1", "mac": "52:54:00:00:00:03", "ipAddress": "10.0.0.7"},
        ]}});
        let ips = |nic: &SeenNic| nic.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        let seen = nics(&machine, Some(&instance));
        assert_eq!(
            (seen[0].network.as_str(), ips(&seen[0])),
            ("a/br", vec!["10.0.0.4".to_owned(), "10.0.0.5".to_owned()])
        );
        assert_eq!(
            (seen[1].network.as_str(), ips(&seen[1])),
            ("pod", vec!["10.0.0.9".to_owned()])
        );
        assert_eq!(nics(&machine, None).len(), 2);
    }

    #[test]
    fn a_permanent_failure_is_broken_with_its_reason() {
        let with = |status: &str| {
            let ready = json!({"type": "Ready", "status": "False", "message": "0/3 nodes are available"});
            power(
                &json!({"status": {"printableStatus": status, "conditions": [ready]}}),
                None,
            )
        };
        assert_eq!(with("Running"), Power::Running);
        for building in [
            "Stopped",
            "Provisioning",
            "Starting",
            "WaitingForVolumeBinding",
            "ErrImagePull",
            "Unknown",
            "",
        ] {
            assert_eq!(with(building), Power::Building, "{building}");
        }
        let words = "ErrorUnschedulable: 0/3 nodes are available".to_owned();
        assert_eq!(with("ErrorUnschedulable"), Power::Broken(words));
        assert!(matches!(with("Paused"), Power::Paused(_)));
    }

    #[test]
    fn a_rejected_start_has_its_reason() {
        let with = |status: &str, kind: &str, is: &str, reason: &str, message: &str| {
            let condition = json!({"type": kind, "status": is, "reason": reason, "message": message});
            power(
                &json!({"status": {"printableStatus": status, "conditions": [condition]}}),
                None,
            )
        };
        let quota =
            "Failure while starting VMI: virtualmachineinstances.kubevirt.io \"a\" is forbidden: exceeded quota: small";
        assert_eq!(
            with("Stopped", "Failure", "True", "FailedCreate", quota),
            Power::Broken(quota.to_owned())
        );
        let pod = "failed to create virtual machine pod: pods \"a\" is forbidden: exceeded quota: small";
        assert_eq!(
            with("Starting", "Synchronized", "False", "FailedCreate", pod),
            Power::Broken(pod.to_owned())
        );
        for refused in [
            "pods \"a\" is forbidden: failed quota: small: must specify limits.memory for: compute",
            "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": seccompProfile",
        ] {
            assert_eq!(
                with("Starting", "Synchronized", "False", "FailedCreate", refused),
                Power::Broken(refused.to_owned())
            );
        }
        let webhook = "failed to create virtual machine pod: Internal error occurred: failed calling webhook \"a\"";
        assert_eq!(
            with("Starting", "Synchronized", "False", "FailedCreate", webhook),
            Power::Waiting(webhook.to_owned())
        );
        let crashed = "the guest ended";
        assert_eq!(
            with("CrashLoopBackOff", "Ready", "False", "GuestNotRunning", crashed),
            Power::Waiting(crashed.to_owned())
        );
        let waits = with(
            "Starting",
            "Ready",
            "False",
            "GuestNotRunning",
            "Guest VM is not reported as running",
        );
        assert_eq!(waits, Power::Building);
    }

    #[test]
    fn a_machine_has_the_reason_of_its_volume() {
        let volume = |phase: &str, kind: &str, reason: &str, message: &str| {
            let condition = json!({"type": kind, "status": "False", "reason": reason, "message": message});
            let ready = json!({"type": "Ready", "status": "False", "reason": "", "message": ""});
            json!({"metadata": {"name": "root"}, "status": {"phase": phase, "conditions": [ready, condition]}})
        };
        let why = |text: &str| format!("data volume root: {text}");
        let error = || Power::Broken("DataVolumeError: VMI does not exist".to_owned());
        let no_mode = "no accessMode specified in StorageProfile slow";
        let not_valid = format!(
            "{no_mode}; set kubevirt_storage_class, kubevirt_access_mode or kubevirt_volume_mode to what the storage supports"
        );
        let quota = "persistentvolumeclaims \"root\" is forbidden: exceeded quota: small";
        let pending = "PVC root Pending";
        for (power, volume, expected) in [
            (
                Power::Building,
                volume("", "Bound", "ErrClaimNotValid", no_mode),
                Power::Broken(why(&not_valid)),
            ),
            (
                Power::Building,
                volume("Pending", "Bound", "ErrExceededQuota", quota),
                Power::Broken(why(quota)),
            ),
            (
                Power::Building,
                volume("Pending", "Bound", "Pending", pending),
                Power::Waiting(why(pending)),
            ),
            (
                Power::Building,
                volume("Failed", "Running", "Error", ""),
                Power::Broken(why("CDI gives no reason")),
            ),
            (
                Power::Building,
                volume("Succeeded", "Running", "Completed", "Clone Complete"),
                Power::Building,
            ),
            (Power::Building, volume("Pending", "Running", "", ""), Power::Building),
            (
                error(),
                volume("ImportInProgress", "Running", "Error", "404"),
                Power::Broken(why("404")),
            ),
            (error(), json!({}), error()),
            (
                Power::Running,
                volume("Failed", "Running", "Error", "404"),
                Power::Running,
            ),
        ] {
            assert_eq!(with_volumes(power, [volume.clone()].iter()), expected, "{volume}");
        }
        // A final reason takes precedence.
        let volumes = [
            volume("Pending", "Bound", "Pending", pending),
            volume("", "Bound", "ErrClaimNotValid", no_mode),
        ];
        assert_eq!(
            with_volumes(Power::Building, volumes.iter()),
            Power::Broken(why(&not_valid))
        );
        let mut tried = volume("ImportInProgress", "Running", "Error", "404");
        tried["status"]["restartCount"] = json!(3);
        assert!(unfilled(&tried).unwrap().is_final);
    }

    #[test]
    fn the_spec_takes_precedence_over_an_outdated_status() {
        let [instance, ended] = ["Running", "Succeeded"].map(|phase| json!({"status": {"phase": phase}}));
        for (strategy, status, instance, expected) in [
            ("Halted", "Running", None, Power::Off),
            ("Halted", "Running", Some(&instance), Power::Running),
            ("RerunOnFailure", "Stopped", None, Power::Building),
            ("RerunOnFailure", "Stopped", Some(&instance), Power::Building),
            ("RerunOnFailure", "Stopped", Some(&ended), Power::Off),
        ] {
            let machine = json!({"spec": {"runStrategy": strategy}, "status": {"printableStatus": status}});
            assert_eq!(power(&machine, instance), expected, "{strategy} {status}");
        }
    }

    #[test]
    fn a_machine_that_has_shut_down_is_off_until_somebody_starts_it() {
        let failure = json!([{"type": "Failure", "status": "True", "message": "failed calling webhook"}]);
        let rerun = "RerunOnFailure";
        for (spec, status, requests, conditions, expected) in [
            (rerun, json!(rerun), json!(null), json!(null), Power::Off),
            (rerun, json!(null), json!(null), json!(null), Power::Building),
            (rerun, json!("Halted"), json!(null), json!(null), Power::Building),
            (
                rerun,
                json!(rerun),
                json!([{"action": "Start"}]),
                json!(null),
                Power::Building,
            ),
            (
                rerun,
                json!(rerun),
                json!(null),
                failure,
                Power::Waiting("failed calling webhook".to_owned()),
            ),
            ("Always", json!("Always"), json!(null), json!(null), Power::Building),
        ] {
            let status = json!({"printableStatus": "Stopped", "runStrategy": status,
                "stateChangeRequests": requests, "conditions": conditions});
            let machine = json!({"spec": {"runStrategy": spec}, "status": status});
            assert_eq!(power(&machine, None), expected, "{machine}");
        }
    }
}
