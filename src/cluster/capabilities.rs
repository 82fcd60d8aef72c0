//! Optional components of OpenShift: their names, their sets, and which of them a cluster has.
//!
//! Source: openshift/api, `config/v1/types_cluster_version.go` of release-4.11 to release-5.2 (2a3d73913, 2026-08-22).

use serde::Serialize;

use super::names::major_minor;

/// The optional components of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// `None`, `vCurrent`, `v4.18`, …; the installer's default if not set.
    pub baseline: Option<String>,
    pub additional: Vec<String>,
}

/// The sets. New releases have new capabilities, but since 4.18 no set of their own.
pub const SETS: [&str; 10] = [
    "None", "vCurrent", "v4.11", "v4.12", "v4.13", "v4.14", "v4.15", "v4.16", "v4.17", "v4.18",
];

/// Each capability with the first release in which it is optional: earlier releases always have the component.
pub const KNOWN: [(&str, (u32, u32)); 19] = [
    ("baremetal", (4, 11)),
    ("marketplace", (4, 11)),
    ("openshift-samples", (4, 11)),
    ("Console", (4, 12)),
    ("CSISnapshot", (4, 12)),
    ("Insights", (4, 12)),
    ("Storage", (4, 12)),
    ("NodeTuning", (4, 13)),
    ("Build", (4, 14)),
    ("DeploymentConfig", (4, 14)),
    (IMAGE_REGISTRY, (4, 14)),
    (MACHINE_API, (4, 14)),
    ("CloudCredential", (4, 15)),
    (OLM, (4, 15)),
    ("CloudControllerManager", (4, 16)),
    (INGRESS, (4, 16)),
    ("OperatorLifecycleManagerV1", (4, 18)),
    (CLUSTER_API, (4, 23)),
    (REQUIREMENTS, (4, 23)),
];

pub const IMAGE_REGISTRY: &str = "ImageRegistry";
pub const INGRESS: &str = "Ingress";
const OLM: &str = "OperatorLifecycleManager";
const MACHINE_API: &str = "MachineAPI";
const CLUSTER_API: &str = "ClusterAPI";
const REQUIREMENTS: &str = "CompatibilityRequirements";

/// First release with capabilities.
const FIRST: (u32, u32) = (4, 11);

impl Capabilities {
    /// Whether a cluster of this release has the component of a capability.
    ///
    /// Each set has the capabilities of its release. `MachineAPI` is in every set.
    pub fn has(&self, capability: &str, release: (u32, u32)) -> bool {
        let since = KNOWN.iter().find(|(name, _)| *name == capability);
        let Some((_, since)) = since.filter(|(_, since)| *since <= release) else {
            return true;
        };
        let in_baseline = match self.baseline.as_deref() {
            None | Some("vCurrent") => true,
            Some("None") => false,
            Some(_) if capability == MACHINE_API => true,
            Some(set) => set_version(set).is_some_and(|set| set >= *since),
        };
        in_baseline || self.additional.iter().any(|name| name == capability)
    }

    /// Why the installer of this release would reject the settings (openshift/installer
    /// `pkg/types/validation/installconfig.go`).
    pub fn problem(&self, release: (u32, u32)) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let requires = |what: String, (major, minor): (u32, u32)| Some(format!("{what} requires {major}.{minor}"));
        if release < FIRST {
            return requires("the setting capabilities".to_owned(), FIRST);
        }
        let baseline = self.baseline.as_deref().unwrap_or_default();
        if let Some(set) = set_version(baseline).filter(|set| *set > release) {
            return requires(format!("capabilities={baseline}"), set);
        }
        let since = |name: &String| KNOWN.iter().find(|(known, since)| known == name && *since > release);
        if let Some((name, since)) = self.additional.iter().find_map(since) {
            return requires(format!("additional_capabilities={name}"), *since);
        }
        if !self.has(INGRESS, release) {
            return Some(format!(
                "capabilities={baseline} requires additional_capabilities={INGRESS}"
            ));
        }
        if self.has("marketplace", release) && !self.has(OLM, release) {
            return Some(format!("capability marketplace requires additional_capabilities={OLM}"));
        }
        // openshift/installer: commits 2b7e12e41a and 8f6e183f7b.
        if ((4, 14)..(4, 17)).contains(&release) && self.has("baremetal", release) && !self.has(MACHINE_API, release) {
            return Some(format!(
                "capability baremetal requires additional_capabilities={MACHINE_API}"
            ));
        }
        None
    }

    /// Why a cluster of this release would reject capabilities that its installer accepts: they depend on feature gates
    /// that only other feature sets enable (openshift/api: `features/features.go`), and no setting selects a set.
    pub fn gated(&self, release: (u32, u32)) -> Option<String> {
        let is_added = |name: &str| self.additional.iter().any(|added| added == name);
        let (_, since) = KNOWN.iter().find(|(name, _)| *name == CLUSTER_API)?;
        if release < *since {
            return None;
        }
        if is_added(CLUSTER_API) && !is_added(REQUIREMENTS) {
            return Some(format!(
                "capability {CLUSTER_API} requires additional_capabilities={REQUIREMENTS}"
            ));
        }
        let gated = [CLUSTER_API, REQUIREMENTS].into_iter().find(|name| is_added(name))?;
        Some(format!(
            "capability {gated} requires the feature set TechPreviewNoUpgrade"
        ))
    }
}

/// `(4, 18)` of `v4.18`.
fn set_version(set: &str) -> Option<(u32, u32)> {
    set.strip_prefix('v').and_then(major_minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(baseline: &str, additional: &[&str]) -> Capabilities {
        Capabilities {
            baseline: (!baseline.is_empty()).then(|| baseline.to_owned()),
            additional: additional.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn a_cluster_has_the_capabilities_of_its_set_and_those_not_yet_optional() {
        for (baseline, additional, release, has) in [
            ("", &[][..], (4, 19), true),
            ("vCurrent", &[], (4, 19), true),
            ("None", &[], (4, 19), false),
            ("None", &["Ingress"], (4, 19), false),
            ("None", &[IMAGE_REGISTRY], (4, 19), true),
            ("v4.13", &[], (4, 14), false),
            ("v4.13", &[IMAGE_REGISTRY], (4, 14), true),
            ("v4.14", &[], (4, 14), true),
            ("v4.18", &[], (4, 20), true),
            // The registry is optional since 4.14.
            ("None", &[], (4, 13), true),
            ("v4.11", &[], (4, 12), true),
            ("", &[], (4, 5), true),
        ] {
            assert_eq!(
                set(baseline, additional).has(IMAGE_REGISTRY, release),
                has,
                "{baseline} {additional:?} {release:?}"
            );
        }
    }

    #[test]
    fn what_the_installer_would_reject_is_a_problem() {
        for (baseline, additional, release, problem) in [
            ("", &[][..], (4, 5), None),
            ("None", &["Ingress"], (4, 19), None),
            ("v4.18", &[], (4, 20), None),
            ("None", &[], (4, 15), None),
            ("vCurrent", &[], (4, 10), Some("the setting capabilities requires 4.11")),
            ("v4.18", &[], (4, 17), Some("capabilities=v4.18 requires 4.18")),
            (
                "",
                &["NodeTuning"],
                (4, 12),
                Some("additional_capabilities=NodeTuning requires 4.13"),
            ),
            (
                "None",
                &["Console"],
                (4, 16),
                Some("capabilities=None requires additional_capabilities=Ingress"),
            ),
            (
                "v4.15",
                &[],
                (4, 16),
                Some("capabilities=v4.15 requires additional_capabilities=Ingress"),
            ),
            (
                "None",
                &["Ingress", "marketplace"],
                (4, 19),
                Some("capability marketplace requires additional_capabilities=OperatorLifecycleManager"),
            ),
            (
                "v4.11",
                &["Ingress"],
                (4, 16),
                Some("capability marketplace requires additional_capabilities=OperatorLifecycleManager"),
            ),
            (
                "",
                &["ClusterAPI"],
                (4, 22),
                Some("additional_capabilities=ClusterAPI requires 4.23"),
            ),
            ("", &["ClusterAPI"], (4, 23), None),
            (
                "None",
                &["Ingress", "baremetal"],
                (4, 16),
                Some("capability baremetal requires additional_capabilities=MachineAPI"),
            ),
            ("v4.11", &["Ingress", "OperatorLifecycleManager"], (4, 16), None),
            ("None", &["Ingress", "baremetal"], (4, 17), None),
        ] {
            assert_eq!(
                set(baseline, additional).problem(release).as_deref(),
                problem,
                "{baseline} {additional:?} {release:?}"
            );
        }
    }

    #[test]
    fn capabilities_of_a_feature_gate_are_rejected_only_where_they_exist() {
        for (additional, release, problem) in [
            (&["ClusterAPI"][..], (4, 22), None),
            (&[], (4, 23), None),
            (&["Console"], (4, 23), None),
            (
                &["ClusterAPI"],
                (4, 23),
                Some("capability ClusterAPI requires additional_capabilities=CompatibilityRequirements"),
            ),
            (
                &["ClusterAPI", "CompatibilityRequirements"],
                (5, 0),
                Some("capability ClusterAPI requires the feature set TechPreviewNoUpgrade"),
            ),
        ] {
            assert_eq!(
                set("", additional).gated(release).as_deref(),
                problem,
                "{additional:?} {release:?}"
            );
        }
    }
}
