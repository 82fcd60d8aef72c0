//! Checks that the namespace's quotas and limits suffice for the machines, before anything is created.

use std::collections::BTreeSet;

use serde_json::Value;

use super::compare::quantity;
use super::kind::Kind;
use super::labels;
use super::objects::POD_NETWORK;
use super::release::Release;
use super::session::{Session, if_allowed};
use crate::backend::findings::Findings;
use crate::backend::{BackendError, Requirements, Verdict};
use crate::cluster::{Pass, Size};
use crate::printable::count;

/// Quantities are counted in thousandths.
const ONE: u128 = 1000;
const MB: u128 = ONE * 1_000_000;
const MIB: u128 = ONE << 20;
const GIB: u128 = MIB << 10;

/// A namespace's label with the ratio of memory limits to requests (kubevirt/kubevirt:
/// `pkg/virt-controller/services/renderresources.go`, `getMemoryLimitsRatio`).
const RATIO: &str = "alpha.kubevirt.io/auto-memory-limits-ratio";

/// The platform's properties that determine KubeVirt's requests for machines.
pub(super) struct Platform {
    pub kubevirt: Release,
    /// The storage class of the volumes, if it is known.
    pub class: Option<String>,
    /// The size of the largest image; a clone is never smaller.
    pub image_bytes: u64,
}

/// What determines KubeVirt's requests for a machine, besides its size.
struct Terms {
    kubevirt: Release,
    image_bytes: u64,
    /// Percent of the memory requests that KubeVirt sets as limits.
    memory_limit: u128,
    /// The root disk is a container image, and not a volume.
    is_container: bool,
}

/// What containers ask for, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Resources {
    memory: u128,
    memory_limit: u128,
    cpu: u128,
    cpu_limit: u128,
}

impl Resources {
    fn with(self, other: Self, combine: fn(u128, u128) -> u128) -> Self {
        Self {
            memory: combine(self.memory, other.memory),
            memory_limit: combine(self.memory_limit, other.memory_limit),
            cpu: combine(self.cpu, other.cpu),
            cpu_limit: combine(self.cpu_limit, other.cpu_limit),
        }
    }

    fn and(self, other: Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    /// The resources of the container with the guest.
    ///
    /// Sources in kubevirt/kubevirt: `pkg/virt-controller/services/renderresources.go`, and `template.go`
    /// (`doesVMIRequireAutoResourceLimits`, `DefaultMemoryLimitOverheadRatio`); `pkg/virt-config/virt-config.go`
    /// (`DefaultCPUAllocationRatio`: a tenth of each CPU).
    fn of_guest(size: &Size, terms: &Terms) -> Self {
        let memory = u128::from(size.memory_mib + overhead_mib(size, terms.kubevirt)) * MIB;
        Self {
            memory,
            memory_limit: memory * terms.memory_limit / 100,
            cpu: u128::from(size.cpus) * ONE / 10,
            cpu_limit: u128::from(size.cpus) * ONE,
        }
    }

    /// The resources of the pod, with the containers of the console's log and of a container disk (kubevirt/kubevirt:
    /// `pkg/virt-controller/services/serialconsolelog.go`, `pkg/container-disk/container-disk.go`).
    fn of_pod(size: &Size, terms: &Terms) -> Self {
        let beside = |memory: u128, memory_limit: u128, cpu, cpu_limit| Self {
            memory: memory * MB,
            memory_limit: memory_limit * MB,
            cpu,
            cpu_limit,
        };
        let disk = if terms.is_container {
            beside(1, 40, 1, 10)
        } else {
            Self::default()
        };
        Self::of_guest(size, terms).and(beside(35, 60, 5, 15)).and(disk)
    }
}

/// The memory of a machine's pod besides its guest's, in MiB, without the containers beside it.
///
/// A fixed part, 8 MiB for each CPU and for the I/O thread, and 32 MiB for the display; until 1.4 also a 512th of the
/// memory for page tables (kubevirt/kubevirt: `GetMemoryOverhead` in `pkg/hypervisor/kvm/hypervisorbackend.go`, before
/// 1.8 in `pkg/virt-controller/services/renderresources.go`; `setDefaultResourceRequests` in `pkg/defaults/defaults.go`).
fn overhead_mib(size: &Size, kubevirt: Release) -> u64 {
    let tables = size.memory_mib / 512;
    let more = match kubevirt {
        Release::Known(0, _) | Release::Known(1, ..=3) => 210 + tables,
        Release::Known(1, 4) => 215 + tables,
        Release::Known(1, 5..=9) => 220,
        _ => 240,
    };
    more + 8 * u64::from(size.cpus) + 8 + 32
}

/// What machines use of a quota, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    machines: u128,
    pods: Resources,
    volumes: u128,
    disk: u128,
    services: u128,
}

impl Wanted {
    /// The larger of both passes, without machines that exist already: a quota counts those itself.
    fn of(needs: &Requirements, existing: &BTreeSet<&str>, terms: &Terms) -> Self {
        let pass = |pass: Pass| {
            let machines = needs.machines.iter().zip(&needs.sizes);
            let missing = machines.filter(|((name, _), (of, ..))| *of == pass && !existing.contains(name.as_str()));
            missing.fold(Self::default(), |sum, (_, (_, _, size))| sum.and(size, terms))
        };
        let (one, two) = (pass(Pass::One), pass(Pass::Two));
        let is_on_pods = needs.networks.iter().any(|network| network == POD_NETWORK);
        Self {
            machines: one.machines.max(two.machines),
            pods: one.pods.with(two.pods, u128::max),
            volumes: one.volumes.max(two.volumes),
            disk: one.disk.max(two.disk),
            // One for each machine and virtual IP.
            services: if is_on_pods { two.machines + 2 * ONE } else { 0 },
        }
    }

    fn and(self, size: &Size, terms: &Terms) -> Self {
        let (roots, root) = match terms.is_container {
            true => (0, 0),
            false => (
                1,
                (u128::from(size.disk_gib) * GIB).max(u128::from(terms.image_bytes) * ONE),
            ),
        };
        let extra = u128::from(size.extra_disks_gib.iter().sum::<u64>()) * GIB;
        Self {
            machines: self.machines + ONE,
            pods: self.pods.and(Resources::of_pod(size, terms)),
            volumes: self.volumes + (roots + size.extra_disks_gib.len() as u128) * ONE,
            disk: self.disk + root + extra,
            services: 0,
        }
    }
}

/// A resource that a quota can limit, and what the machines use of it.
struct Limited {
    resource: String,
    wanted: u128,
    /// What the machines use while CDI fills their volumes.
    at_most: u128,
    unit: u128,
    word: &'static str,
}

/// Each resource that a ResourceQuota can limit and that machines use (kubernetes/kubernetes:
/// `pkg/quota/v1/evaluator/core`; other kinds: `staging/src/k8s.io/apiserver/pkg/quota/v1/generic/evaluator.go`).
///
/// While CDI fills a volume, a temporary claim of the same size exists (containerized-data-importer:
/// `pkg/controller/populators/populator-base.go`, `createPVCPrime`; `pkg/controller/clone`). Claims for file systems are
/// larger than their disks by 6 % of the claim by default (`pkg/common/common.go`, `DefaultGlobalOverhead`).
fn limited(wanted: Wanted, class: Option<&str>) -> Vec<Limited> {
    let fixed = |resource: &str, wanted: u128, unit: u128, word: &'static str| Limited {
        resource: resource.to_owned(),
        wanted,
        at_most: wanted,
        unit,
        word,
    };
    let each = |resources: &[&str], wanted: u128, unit: u128, word: &'static str| -> Vec<Limited> {
        resources
            .iter()
            .map(|resource| fixed(resource, wanted, unit, word))
            .collect()
    };
    let mut all = each(&["requests.memory", "memory"], wanted.pods.memory, MIB, "MiB");
    all.extend(each(&["limits.memory"], wanted.pods.memory_limit, MIB, "MiB"));
    all.extend(each(&["requests.cpu", "cpu"], wanted.pods.cpu, 1, "m"));
    all.extend(each(&["limits.cpu"], wanted.pods.cpu_limit, 1, "m"));
    // `ephemeralStorageOverheadSize` in kubevirt/kubevirt: `pkg/virt-controller/services/template.go`.
    let ephemeral = wanted.machines / ONE * 50 * MB;
    all.extend(each(
        &["requests.ephemeral-storage", "ephemeral-storage"],
        ephemeral,
        MIB,
        "MiB",
    ));
    let for_each_machine = [
        "pods",
        "count/pods",
        "secrets",
        "count/secrets",
        "count/virtualmachines.kubevirt.io",
        "count/virtualmachineinstances.kubevirt.io",
        "requests.devices.kubevirt.io/kvm",
    ];
    all.extend(each(&for_each_machine, wanted.machines, ONE, ""));
    all.extend(each(&["count/datavolumes.cdi.kubevirt.io"], wanted.volumes, ONE, ""));
    all.extend(each(&["services", "count/services"], wanted.services, ONE, ""));
    let (claims, storage) = (wanted.volumes * 2, wanted.disk * 200 / 94);
    let of_class = class.map(|class| format!("{class}.storageclass.storage.k8s.io/"));
    for prefix in [Some(String::new()), of_class].into_iter().flatten() {
        let of = |resource: &str| format!("{prefix}{resource}");
        all.push(Limited {
            at_most: claims,
            ..fixed(&of("persistentvolumeclaims"), wanted.volumes, ONE, "")
        });
        all.push(Limited {
            at_most: storage,
            ..fixed(&of("requests.storage"), wanted.disk, GIB, "GiB")
        });
    }
    all.push(Limited {
        at_most: claims,
        ..fixed("count/persistentvolumeclaims", wanted.volumes, ONE, "")
    });
    all
}

/// The part of a quota's resource that is not used, in thousandths.
fn left(quota: &Value, resource: &str) -> Option<u128> {
    let hard = quantity(&quota["status"]["hard"][resource]).or_else(|| quantity(&quota["spec"]["hard"][resource]))?;
    let used = quantity(&quota["status"]["used"][resource]).unwrap_or(0);
    Some(hard.saturating_sub(used))
}

/// Whether a quota counts the pods of machines: they have no deadline, no priority class, and requests.
/// Source: kubernetes/kubernetes: `pkg/quota/v1/evaluator/core/pods.go`, `podMatchesScopeFunc`.
fn counts_pods(quota: &Value) -> bool {
    let scopes = quota["spec"]["scopes"].as_array().into_iter().flatten();
    let selected = &quota["spec"]["scopeSelector"]["matchExpressions"];
    let selected = selected.as_array().into_iter().flatten();
    let all = scopes.map(|scope| (scope, "Exists")).chain(selected.map(|one| {
        let operator = one["operator"].as_str().unwrap_or_default();
        (&one["scopeName"], operator)
    }));
    all.into_iter().all(|(scope, operator)| match scope.as_str() {
        Some("NotTerminating" | "NotBestEffort") => true,
        Some("PriorityClass") => matches!(operator, "DoesNotExist" | "NotIn"),
        _ => false,
    })
}

/// One resource of a quota: what the machines use of what is left.
fn line(limited: &Limited, left: u128) -> String {
    let Limited {
        resource,
        wanted,
        at_most,
        unit,
        word,
    } = limited;
    let numbers = match at_most > wanted && left < *at_most {
        true => format!("{} to {}", wanted.div_ceil(*unit), at_most.div_ceil(*unit)),
        false => wanted.div_ceil(*unit).to_string(),
    };
    match word.is_empty() {
        true => format!("{numbers} of {} {resource}", left / unit),
        false => format!("{numbers} of {} {word} {resource}", left / unit),
    }
}

/// The finding about a quota; `None` if it limits nothing that the machines use.
fn judge(quota: &Value, limited: &[Limited]) -> Option<(Verdict, String)> {
    let found: Vec<_> = limited
        .iter()
        .filter(|limited| limited.wanted > 0)
        .filter_map(|limited| Some((limited, left(quota, &limited.resource)?)))
        .collect();
    let those = |is_chosen: &dyn Fn(&Limited, u128) -> bool| -> Vec<String> {
        let chosen = found.iter().filter(|(limited, left)| is_chosen(limited, *left));
        chosen.map(|(limited, left)| line(limited, *left)).collect()
    };
    let short = those(&|limited, left| left < limited.wanted);
    let tight = those(&|limited, left| left < limited.at_most);
    let all = those(&|_, _| true);
    match (short.is_empty(), tight.is_empty(), all.is_empty()) {
        (_, _, true) => None,
        (false, ..) => Some((
            Verdict::Fail,
            format!("is too small, the machines require {}", short.join(", ")),
        )),
        (_, false, _) => Some((
            Verdict::Warn,
            format!(
                "may be too small while CDI fills volumes, the machines require {}",
                tight.join(", ")
            ),
        )),
        _ => Some((
            Verdict::Ok,
            format!("suffices, the machines require {}", all.join(", ")),
        )),
    }
}

pub(super) async fn check(
    session: &Session,
    needs: &Requirements,
    platform: &Platform,
    findings: &mut Findings,
) -> Result<(), BackendError> {
    let terms = Terms {
        kubevirt: platform.kubevirt,
        image_bytes: platform.image_bytes,
        memory_limit: memory_limit(session).await?,
        is_container: needs.templates.len() > 1
            && needs.templates.iter().all(|image| image.starts_with("containerdisk:")),
    };
    let mut quotas = if_allowed(session.list(Kind::Quota, "").await)?.unwrap_or_default();
    quotas.retain(counts_pods);
    if !quotas.is_empty() {
        let machines = match &needs.cluster {
            Some(cluster) => session.list(Kind::Machine, &labels::of_cluster(cluster)).await?,
            None => Vec::new(),
        };
        let wanted = Wanted::of(needs, &machines.iter().map(labels::name).collect(), &terms);
        let limited = limited(wanted, platform.class.as_deref());
        for quota in &quotas {
            let Some((verdict, text)) = judge(quota, &limited) else {
                continue;
            };
            let text = format!(
                "quota {} of namespace {} {text}",
                labels::name(quota),
                session.namespace
            );
            let hint = match verdict {
                Verdict::Ok => None,
                _ => Some(
                    "reduce sizes or the number of nodes, or ask for a larger quota; `ocpdeploy plan` lists the sizes",
                ),
            };
            findings.add(verdict, text, hint);
        }
    }
    limit_ranges(session, needs, &terms, &quotas, findings).await
}

/// The memory limit that KubeVirt sets, in percent of the memory request.
async fn memory_limit(session: &Session) -> Result<u128, BackendError> {
    let path = format!("/api/v1/namespaces/{}", session.namespace);
    let namespace = if_allowed(session.read(&path).await)?.unwrap_or_default();
    let label = labels::label(&namespace, RATIO).map(|text| quantity(&text.into()));
    let ratio = label.flatten().filter(|ratio| *ratio >= ONE);
    Ok(ratio.unwrap_or(2 * ONE) / 10)
}

/// Compares the largest machine with the largest pod or container that the namespace allows.
///
/// Where a quota has `limits.memory` or `limits.cpu`, KubeVirt sets that limit, which is then compared instead of the
/// request (kubernetes/kubernetes: `plugin/pkg/admission/limitranger/admission.go`, `maxConstraint`).
async fn limit_ranges(
    session: &Session,
    needs: &Requirements,
    terms: &Terms,
    quotas: &[Value],
    findings: &mut Findings,
) -> Result<(), BackendError> {
    let ranges = if_allowed(session.list(Kind::LimitRange, "").await)?.unwrap_or_default();
    let limits = ranges
        .iter()
        .flat_map(|range| range["spec"]["limits"].as_array().into_iter().flatten());
    let has = |resource: &str| quotas.iter().any(|quota| left(quota, resource).is_some());
    let (limits_memory, limits_cpu) = (has("limits.memory"), has("limits.cpu"));
    for limit in limits {
        let (what, of): (_, fn(&Size, &Terms) -> Resources) = match limit["type"].as_str() {
            Some("Pod") => ("pod", Resources::of_pod),
            Some("Container") => ("container", Resources::of_guest),
            _ => continue,
        };
        let all = needs.sizes.iter().map(|(.., size)| of(size, terms));
        let largest = all.fold(Resources::default(), |one, other| one.with(other, u128::max));
        let memory = if limits_memory {
            largest.memory_limit
        } else {
            largest.memory
        };
        let namespace = &session.namespace;
        if let Some(most) = quantity(&limit["max"]["memory"]).filter(|most| *most < memory) {
            findings.fail(
                format!(
                    "a {what} in namespace {namespace} can have {} MiB of memory, a machine requires {}",
                    most / MIB,
                    memory.div_ceil(MIB)
                ),
                "reduce the sizes, or ask for a larger LimitRange",
            );
        }
        let cpus = if limits_cpu {
            largest.cpu_limit
        } else {
            u128::from(needs.cpus_per_machine) * ONE
        };
        if let Some(most) = quantity(&limit["max"]["cpu"]).filter(|most| *most < cpus) {
            let text = format!(
                "a {what} in namespace {namespace} can have {}, a machine requires {}",
                count(most / ONE, "CPU"),
                cpus.div_ceil(ONE)
            );
            let (verdict, hint) = match limits_cpu {
                true => (Verdict::Fail, "reduce the CPUs, or ask for a larger LimitRange"),
                false => (
                    Verdict::Warn,
                    "KubeVirt requests a tenth of a machine's CPUs, unless they are dedicated",
                ),
            };
            findings.add(verdict, text, Some(hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Role;

    fn size(cpus: u32, memory_mib: u64) -> Size {
        Size {
            cpus,
            memory_mib,
            disk_gib: 120,
            extra_disks_gib: vec![10],
        }
    }

    fn terms(kubevirt: Release) -> Terms {
        Terms {
            kubevirt,
            image_bytes: 0,
            memory_limit: 200,
            is_container: false,
        }
    }

    /// The sums of machines of one size.
    fn sums(machines: u128, size: &Size, terms: &Terms) -> Wanted {
        (0..machines).fold(Wanted::default(), |sum, _| sum.and(size, terms))
    }

    #[test]
    fn a_pod_requires_more_than_its_guest_by_the_release() {
        use Release::{Known, SelfBuilt, Unknown};
        for (release, small, large) in [
            // KubeVirt's own test in 1.0: 2 GiB and two CPUs have 270 MiB.
            (Known(1, 0), 270, 314),
            (Known(1, 4), 275, 319),
            (Known(1, 5), 276, 292),
            (Known(1, 9), 276, 292),
            (Known(1, 10), 296, 312),
            (Known(2, 0), 296, 312),
            (SelfBuilt, 296, 312),
            (Unknown, 296, 312),
        ] {
            assert_eq!(overhead_mib(&size(2, 2048), release), small, "{release:?}");
            assert_eq!(overhead_mib(&size(4, 16384), release), large, "{release:?}");
        }
    }

    /// The requests of virt-controller 1.10 for five rehearsal machines, as kube-apiserver 1.36 counted them.
    #[test]
    fn the_sums_are_those_that_a_real_quota_counts() {
        let terms = terms(Release::SelfBuilt);
        let one = sums(1, &size(1, 192), &terms);
        assert_eq!(one.pods.memory_limit / ONE, 1_066_632_960);
        assert_eq!(one.pods.cpu_limit, 1015);
        assert_eq!(one.pods.memory / ONE, (480 << 20) + 35_000_000);
        assert_eq!(one.pods.cpu, 105);
        let five = sums(5, &size(1, 192), &terms);
        let quota = json!({"spec": {"hard": {"limits.memory": "4Gi"}}});
        let (verdict, text) = judge(&quota, &limited(five, None)).unwrap();
        assert_eq!(verdict, Verdict::Fail);
        assert_eq!(
            text,
            "is too small, the machines require 5087 of 4096 MiB limits.memory"
        );
        let quota = json!({"spec": {"hard": {"limits.cpu": "500m"}}});
        assert_eq!(judge(&quota, &limited(one, None)).unwrap().0, Verdict::Fail);
    }

    #[test]
    fn existing_machines_are_not_counted_twice() {
        let machine = |name: &str| (name.parse().unwrap(), vec![]);
        let needs = Requirements {
            machines: vec![
                machine("lab-harvest-master-0"),
                machine("lab-master-0"),
                machine("lab-master-1"),
            ],
            sizes: vec![
                (Pass::One, Role::Master, size(1, 512)),
                (Pass::Two, Role::Master, size(4, 16384)),
                (Pass::Two, Role::Master, size(4, 16384)),
            ],
            ..Requirements::default()
        };
        let terms = terms(Release::Known(1, 6));
        let all = Wanted::of(&needs, &BTreeSet::new(), &terms);
        let rest = Wanted::of(&needs, &BTreeSet::from(["lab-master-0"]), &terms);
        assert_eq!((all.machines, rest.machines), (2000, 1000));
        assert_eq!((all.volumes, all.pods.cpu), (4000, 810));
        assert_eq!(all.pods.memory, rest.pods.memory * 2);
        let quota = json!({"status": {"hard": {"requests.memory": "33Gi", "pods": "3"}, "used": {"pods": "2"}}});
        let told = |wanted: Wanted| judge(&quota, &limited(wanted, None)).unwrap();
        assert_eq!(
            told(rest),
            (
                Verdict::Ok,
                "suffices, the machines require 16710 of 33792 MiB requests.memory, 1 of 1 pods".to_owned()
            )
        );
        assert_eq!(
            told(all),
            (
                Verdict::Fail,
                "is too small, the machines require 2 of 1 pods".to_owned()
            )
        );
    }

    #[test]
    fn storage_is_counted_by_class_and_twice_while_it_is_filled() {
        let terms = Terms {
            image_bytes: 150 << 30,
            ..terms(Release::Known(1, 6))
        };
        let wanted = sums(2, &size(4, 16384), &terms);
        let class = "fast.storageclass.storage.k8s.io";
        let claims = format!("{class}/persistentvolumeclaims");
        for (hard, verdict, text) in [
            (
                json!({"requests.storage": "300Gi"}),
                Verdict::Fail,
                "320 to 681 of 300 GiB requests.storage",
            ),
            (
                json!({"requests.storage": "320Gi"}),
                Verdict::Warn,
                "320 to 681 of 320 GiB requests.storage",
            ),
            (
                json!({"requests.storage": "700Gi"}),
                Verdict::Ok,
                "320 of 700 GiB requests.storage",
            ),
            (
                json!({&claims: "3"}),
                Verdict::Fail,
                "4 to 8 of 3 fast.storageclass.storage.k8s.io/persistentvolumeclaims",
            ),
        ] {
            let told = judge(&json!({"spec": {"hard": hard}}), &limited(wanted, Some("fast"))).unwrap();
            assert_eq!(told.0, verdict, "{}", told.1);
            assert!(told.1.ends_with(text), "{text}: {}", told.1);
        }
        let other = json!({"spec": {"hard": {&claims: "3"}}});
        assert_eq!(judge(&other, &limited(wanted, Some("slow"))), None);
    }

    #[test]
    fn only_quotas_of_long_running_pods_count() {
        let of = |scopes: Value| counts_pods(&json!({"spec": {"scopes": scopes}}));
        assert!(of(json!([])) && of(json!(["NotTerminating", "NotBestEffort"])));
        for scope in [
            "Terminating",
            "BestEffort",
            "PriorityClass",
            "CrossNamespacePodAffinity",
        ] {
            assert!(!of(json!([scope])), "{scope}");
        }
        let by_class = |operator: &str| {
            let selector = json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator}]});
            counts_pods(&json!({"spec": {"scopeSelector": selector}}))
        };
        assert!(by_class("DoesNotExist") && !by_class("In"));
    }
}
