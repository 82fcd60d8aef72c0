//! The installation's state as text, from the cluster's objects. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::heartbeats::{Heartbeats, node_of};
use crate::cluster::NodeName;
use crate::state::parameters::{NodeAddress, Parameters};

/// Longest part of a message that is shown; operators may write long ones.
const LONGEST: usize = 160;

/// Operators whose messages are shown.
const DETAILS: usize = 3;

/// Whether the bootstrap reports completion: ConfigMap `kube-system/bootstrap`.
pub fn is_complete(bootstrap: &ConfigMap) -> bool {
    let status = bootstrap.data.as_ref().and_then(|data| data.get("status"));
    status.is_some_and(|status| status == "complete")
}

/// Whether the etcd operator has removed the bootstrap from etcd.
///
/// Source: openshift/cluster-etcd-operator: `pkg/operator/bootstrapteardown/bootstrap_teardown_controller.go`.
/// Operators from before OCPBUGS-5988 (January 2023) have only the second condition.
pub fn has_no_bootstrap(etcd: &DynamicObject) -> bool {
    let is_true = |kind| condition(etcd, kind).filter(|condition| condition["status"] == "True");
    is_true("EtcdBootstrapMemberRemoved").is_some()
        || is_true("EtcdRunningInCluster").is_some_and(|running| running["reason"] == "BootstrapAlreadyRemoved")
}

/// The etcd operator's progress in removing the bootstrap.
pub fn bootstrap_in_etcd_text(etcd: &DynamicObject) -> String {
    let running = condition(etcd, "EtcdRunningInCluster").and_then(|running| running["message"].as_str());
    let why = running.map_or_else(String::new, |message| format!(": {}", short(message)));
    format!("etcd: the operator has not removed the bootstrap member yet{why}")
}

/// What etcd needs until each of these nodes is a voting member and enough members are healthy; `None` if nothing.
///
/// The ConfigMap `openshift-etcd/etcd-endpoints` has the address of each voting member, without learners and the
/// bootstrap (openshift/cluster-etcd-operator: `pkg/operator/etcdendpointscontroller/etcdendpointscontroller.go`); the
/// condition says whether more than half of all members are healthy (`pkg/operator/etcdmemberscontroller`).
pub fn etcd_lacks(endpoints: &ConfigMap, etcd: &DynamicObject, nodes: &[NodeAddress]) -> Option<String> {
    if let Some(node) = nodes.iter().find(|node| !is_etcd_member(endpoints, node)) {
        return Some(format!("{} ({}) is not a voting member of etcd", node.name, node.ip));
    }
    match condition(etcd, "EtcdMembersAvailable") {
        Some(available) if available["status"] == "True" => None,
        Some(available) => Some(format!(
            "too few etcd members are available: {}",
            short(available["message"].as_str().unwrap_or_default())
        )),
        None => Some("etcd's operator does not report whether enough members are available".to_owned()),
    }
}

/// Whether a node is a voting member of etcd, by the ConfigMap `openshift-etcd/etcd-endpoints`.
pub fn is_etcd_member(endpoints: &ConfigMap, node: &NodeAddress) -> bool {
    let is_it = |member: &str| member.trim_matches(['[', ']']).parse() == Ok(node.ip);
    endpoints.data.iter().flatten().any(|(_, member)| is_it(member))
}

/// The etcd operator's text about its members.
pub fn etcd_text(etcd: &DynamicObject) -> Option<String> {
    let members = condition(etcd, "EtcdMembersAvailable")?;
    Some(format!("etcd: {}", short(members["message"].as_str()?)))
}

/// The paths of those policies for files that the MachineConfiguration's status lacks.
///
/// The operator merges the policies of the spec into the status, and the nodes use the status (openshift/api:
/// `operator/v1/types_machineconfiguration.go`, `NodeDisruptionPolicyStatus`).
pub fn missing_policies<'a>(configuration: Option<&DynamicObject>, policies: &'a [Value]) -> Vec<&'a str> {
    let status = configuration.map(|configuration| &configuration.data["status"]["nodeDisruptionPolicyStatus"]);
    let accepted = status.and_then(|status| status["clusterPolicies"]["files"].as_array());
    let is_there = |policy: &Value| {
        let same = |other: &Value| other["path"] == policy["path"] && other["actions"] == policy["actions"];
        accepted.into_iter().flatten().any(same)
    };
    let missing = policies.iter().filter(|policy| !is_there(policy));
    missing.filter_map(|policy| policy["path"].as_str()).collect()
}

/// The table's nodes in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Existing nodes: `None` is Ready, otherwise why not.
    there: BTreeMap<NodeName, Option<String>>,
}

impl Nodes {
    /// Selects the table's nodes; others are ignored.
    pub fn of(table: &Parameters, nodes: &[Node]) -> Self {
        let known = |node: &Node| Some((node_of(table, &node.name_any())?, why_not_ready(node)));
        Self {
            there: nodes.iter().filter_map(known).collect(),
        }
    }

    /// Nodes without a recent Lease renewal count as not Ready.
    pub fn believing(mut self, heartbeats: &Heartbeats) -> Self {
        for (node, lacks) in &mut self.there {
            if lacks.is_none() && !heartbeats.is_running(node) {
                *lacks = Some("kubelet has not renewed its Lease yet".to_owned());
            }
        }
        self
    }

    /// Nodes in the cluster, Ready or not.
    pub fn joined(&self) -> BTreeSet<NodeName> {
        self.there.keys().cloned().collect()
    }

    pub fn are_ready(&self, wanted: &BTreeSet<NodeName>) -> bool {
        wanted.iter().all(|node| self.there.get(node) == Some(&None))
    }

    /// How many are Ready, and why the others are not.
    pub fn text(&self, what: &str, wanted: &BTreeSet<NodeName>) -> String {
        let lag = |node: &NodeName| match self.there.get(node) {
            Some(None) => None,
            Some(Some(why)) => Some(format!("{node} not Ready ({why})")),
            None => Some(format!("{node} missing")),
        };
        let lagging: Vec<String> = wanted.iter().filter_map(lag).collect();
        let ready = wanted.len() - lagging.len();
        match lagging.is_empty() {
            true => format!("{what}: all {ready} Ready"),
            false => format!("{what}: {ready} of {} Ready; {}", wanted.len(), lagging.join(", ")),
        }
    }
}

/// What is still waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// All nodes that are waited for: why they are not Ready.
    pub nodes: BTreeMap<NodeName, Option<String>>,
    /// Operators that are not ready, and why.
    pub operators: BTreeMap<String, String>,
    /// Other topics, one line each.
    pub lines: Vec<String>,
    /// Nodes and operators in a few lines.
    short: Vec<String>,
}

impl From<String> for Status {
    fn from(line: String) -> Self {
        Self {
            lines: vec![line],
            ..Self::default()
        }
    }
}

impl Status {
    pub fn add_nodes(&mut self, what: &str, nodes: &Nodes, wanted: &BTreeSet<NodeName>) {
        let lacks = |node: &NodeName| match nodes.there.get(node) {
            Some(None) => None,
            Some(Some(why)) => Some(format!("not Ready: {why}")),
            None => Some("not in the cluster yet".to_owned()),
        };
        self.nodes.extend(wanted.iter().map(|node| (node.clone(), lacks(node))));
        self.short.push(nodes.text(what, wanted));
    }

    pub fn add_operators(&mut self, operators: &Operators) {
        self.operators.clone_from(&operators.lag);
        self.short.push(operators.text());
        self.short.extend(operators.details());
    }

    /// A few lines, for the error of a wait that took too long.
    pub fn summary(self) -> Vec<String> {
        [self.short, self.lines].concat()
    }
}

fn why_not_ready(node: &Node) -> Option<String> {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    match conditions.find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(short(ready.message.as_deref().unwrap_or("no reason given"))),
        None => Some("no status reported".to_owned()),
    }
}

/// The cluster's operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operators {
    pub total: usize,
    /// Operators that are not available, still progressing, or degraded, with the reason.
    pub lag: BTreeMap<String, String>,
    /// Operators that are progressing, or do not report it.
    pub busy: BTreeSet<String>,
    /// Since when each of the others is not progressing, as far as it reports that.
    pub still_since: BTreeMap<String, Timestamp>,
}

impl Operators {
    pub fn of(operators: &[DynamicObject]) -> Self {
        let mut seen = Self {
            total: operators.len(),
            ..Self::default()
        };
        for operator in operators {
            let name = operator.name_any();
            let is = |kind: &str, status: &str| condition(operator, kind).is_some_and(|c| c["status"] == status);
            let message = |kind: &str| {
                let message = condition(operator, kind).and_then(|condition| condition["message"].as_str());
                short(message.unwrap_or_default())
            };
            let lag = if is("Degraded", "True") {
                Some(format!("degraded: {}", message("Degraded")))
            } else if !is("Available", "True") {
                Some(format!("not available: {}", message("Available")))
            } else if is("Progressing", "True") {
                Some(format!("progressing: {}", message("Progressing")))
            } else {
                None
            };
            if let Some(lag) = lag {
                seen.lag.insert(name.clone(), lag);
            }
            let still = condition(operator, "Progressing").filter(|condition| condition["status"] == "False");
            let since = still.and_then(|condition| condition["lastTransitionTime"].as_str()?.parse().ok());
            match (still, since) {
                (None, _) => {
                    seen.busy.insert(name);
                }
                (Some(_), Some(since)) => {
                    seen.still_since.insert(name, since);
                }
                (Some(_), None) => {}
            }
        }
        seen
    }

    /// Whether none has been progressing for this time. As in openshift-install, a degraded operator is ignored; one
    /// that the release requires makes the ClusterVersion fail (openshift/installer:
    /// `cmd/openshift-install/command/waitfor.go`, `meetsStabilityThreshold`).
    pub fn are_steady(&self, now: Timestamp, time: Duration) -> bool {
        let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        self.busy.is_empty()
            && self
                .still_since
                .values()
                .all(|since| now.duration_since(*since) >= time)
    }

    pub fn text(&self) -> String {
        let names: Vec<&str> = self.lag.keys().map(String::as_str).collect();
        match (self.total, names.as_slice()) {
            (0, _) => "operators: none yet".to_owned(),
            (total, []) => format!("operators: all {total} available"),
            (total, names) => format!(
                "operators: {} of {total} available; waiting for {}",
                total - names.len(),
                names.join(", ")
            ),
        }
    }

    /// The reasons of the first few.
    pub fn details(&self) -> Vec<String> {
        let worst = self.lag.iter().filter(|(_, why)| !why.starts_with("progressing"));
        worst
            .take(DETAILS)
            .map(|(name, why)| format!("operator {name} {}", why.trim_end_matches(": ")))
            .collect()
    }

    /// The full messages of the operators that are not ready, by name.
    pub fn messages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lag.iter().map(|(name, why)| (name.as_str(), why.as_str()))
    }
}

/// The progress of the ClusterVersion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionProgress {
    pub is_done: bool,
    pub text: String,
}

impl VersionProgress {
    /// Complete as in openshift-install: Available, not Failing, not Progressing.
    pub fn of(version: &DynamicObject) -> Self {
        let is = |kind: &str, status: &str| condition(version, kind).is_some_and(|c| c["status"] == status);
        let said = |kind: &str| condition(version, kind).and_then(|condition| condition["message"].as_str());
        let is_done = is("Available", "True") && is("Failing", "False") && is("Progressing", "False");
        let text = match is("Failing", "True") {
            true => said("Failing"),
            false => said("Progressing"),
        };
        Self {
            is_done,
            text: format!("version: {}", short(text.unwrap_or("not reported yet"))),
        }
    }
}

/// A condition of `status.conditions` by its type.
fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    let mut conditions = object.data.get("status")?.get("conditions")?.as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}

/// One line of limited length.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{} …", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Role;
    use crate::state::parameters::tests::example;

    fn object(kind: &str, name: &str, conditions: Value) -> DynamicObject {
        let object = json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name},
            "status": {"conditions": conditions}});
        serde_json::from_value(object).unwrap()
    }

    fn operator(name: &str, available: &str, progressing: &str, degraded: &str, since: &str) -> DynamicObject {
        object(
            "ClusterOperator",
            name,
            json!([
                {"type": "Degraded", "status": degraded, "message": "one\n  two"},
                {"type": "Progressing", "status": progressing, "lastTransitionTime": since, "message": "rolling out"},
                {"type": "Available", "status": available, "message": "no replicas"},
            ]),
        )
    }

    fn node(name: &str, ready: Option<&str>) -> Node {
        let conditions = ready.map(|ready| json!([{"type": "Ready", "status": ready, "message": "network not ready"}]));
        let node = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn nodes_are_reported_with_the_reason_why_they_are_not_ready() {
        let wanted: BTreeSet<_> = (0..4).map(|index| NodeName::node(Role::Master, index)).collect();
        let all = [
            node("master-0.lab.example.com", Some("True")),
            node("master-1.lab.example.com", Some("Unknown")),
            node("master-2.lab.example.com", None),
            node("master-3.lab2.example.com", Some("True")),
        ];
        let nodes = Nodes::of(&example(), &all);
        assert_eq!(
            nodes.text("masters", &wanted),
            "masters: 1 of 4 Ready; master-1 not Ready (network not ready), master-2 not Ready (no status reported), \
             master-3 missing"
        );
        assert!(!nodes.are_ready(&wanted));
        let first = [NodeName::node(Role::Master, 0)].into();
        assert!(nodes.are_ready(&first));
        assert_eq!(nodes.text("masters", &first), "masters: all 1 Ready");
    }

    #[test]
    fn a_policy_counts_when_the_status_has_it_with_the_same_actions() {
        let policy = |path: &str, action: &str| json!({"path": path, "actions": [{"type": action}]});
        let wanted = [policy("/etc/a", "None"), policy("/etc/b", "None")];
        let merged = |files: Value| -> DynamicObject {
            let status = json!({"nodeDisruptionPolicyStatus": {"clusterPolicies": {"files": files}}});
            serde_json::from_value(json!({"metadata": {"name": "cluster"}, "status": status})).unwrap()
        };
        assert_eq!(missing_policies(None, &wanted), ["/etc/a", "/etc/b"]);
        assert_eq!(
            missing_policies(Some(&merged(json!(null))), &wanted),
            ["/etc/a", "/etc/b"]
        );
        let in_part = merged(json!([
            policy("/etc/a", "None"),
            policy("/etc/b", "Reboot"),
            policy("/etc/c", "None")
        ]));
        assert_eq!(missing_policies(Some(&in_part), &wanted), ["/etc/b"]);
        assert!(missing_policies(Some(&merged(json!(wanted))), &wanted).is_empty());
    }

    #[test]
    fn unfinished_operators_are_named_and_the_worst_explained() {
        let now: Timestamp = "2026-11-21T10:00:30Z".parse().unwrap();
        let time = Duration::from_secs(30);
        let well = operator("dns", "True", "False", "False", "2026-11-21T10:00:00Z");
        let all = Operators::of(std::slice::from_ref(&well));
        assert_eq!(all.text(), "operators: all 1 available");
        assert!(all.are_steady(now, time));
        assert!(
            !all.are_steady(now - Duration::from_secs(1), time),
            "it was busy a moment ago"
        );

        let lagging = Operators::of(&[
            well,
            operator("authentication", "False", "True", "False", ""),
            operator("console", "True", "True", "False", ""),
            operator("ingress", "True", "False", "True", ""),
        ]);
        assert_eq!(
            lagging.text(),
            "operators: 1 of 4 available; waiting for authentication, console, ingress"
        );
        assert_eq!(
            lagging.details(),
            [
                "operator authentication not available: no replicas",
                "operator ingress degraded: one two"
            ]
        );
        assert!(!lagging.are_steady(now, time));
        assert_eq!(Operators::of(&[]).text(), "operators: none yet");

        let since = "2026-11-21T09:00:00Z";
        for (available, progressing, degraded, is_steady) in [
            ("True", "False", "True", true),
            ("False", "False", "False", true),
            ("True", "True", "False", false),
            ("True", "Unknown", "False", false),
        ] {
            let seen = Operators::of(&[operator("ingress", available, progressing, degraded, since)]);
            assert_eq!(
                seen.are_steady(now, time),
                is_steady,
                "{available} {progressing} {degraded}"
            );
        }
        let silent = Operators::of(&[object("ClusterOperator", "ingress", json!([]))]);
        assert!(
            !silent.are_steady(now, time),
            "it does not report whether it is progressing"
        );
    }

    #[test]
    fn a_version_is_complete_by_the_installer_s_rule() {
        let version = |available: &str, failing: &str, progressing: &str| {
            VersionProgress::of(&object(
                "ClusterVersion",
                "version",
                json!([
                    {"type": "Available", "status": available, "message": "Done applying 4.19.0"},
                    {"type": "Failing", "status": failing, "message": "Cluster operator etcd is degraded"},
                    {"type": "Progressing", "status": progressing, "message": "Working towards 4.19.0: 68% complete"},
                ]),
            ))
        };
        for (conditions, is_done, text) in [
            (
                ("True", "False", "False"),
                true,
                "version: Working towards 4.19.0: 68% complete",
            ),
            (
                ("True", "False", "True"),
                false,
                "version: Working towards 4.19.0: 68% complete",
            ),
            (
                ("True", "True", "False"),
                false,
                "version: Cluster operator etcd is degraded",
            ),
            (
                ("False", "False", "False"),
                false,
                "version: Working towards 4.19.0: 68% complete",
            ),
            (
                ("True", "Unknown", "False"),
                false,
                "version: Working towards 4.19.0: 68% complete",
            ),
        ] {
            let (available, failing, progressing) = conditions;
            let text = text.to_owned();
            assert_eq!(
                version(available, failing, progressing),
                VersionProgress { is_done, text }
            );
        }
        let empty = VersionProgress::of(&object("ClusterVersion", "version", json!([])));
        assert_eq!(
            (empty.is_done, empty.text.as_str()),
            (false, "version: not reported yet")
        );
    }

    #[test]
    fn the_bootstrap_member_is_removed_by_the_new_or_the_old_condition() {
        let running = |status: &str, reason: &str| json!({"type": "EtcdRunningInCluster", "status": status, "reason": reason, "message": "still waiting\nfor three"});
        let removed = |status: &str| json!({"type": "EtcdBootstrapMemberRemoved", "status": status, "reason": "BootstrapMemberRemoved"});
        for (conditions, is_out) in [
            (json!([]), false),
            (json!([running("False", "NotEnoughEtcdMembers")]), false),
            // The condition about enough members comes before the bootstrap's removal.
            (json!([running("True", "EnoughEtcdMembers")]), false),
            (json!([running("True", "BootstrapAlreadyRemoved")]), true),
            (json!([running("True", "EnoughEtcdMembers"), removed("False")]), false),
            (json!([running("True", "EnoughEtcdMembers"), removed("True")]), true),
        ] {
            let etcd = object("Etcd", "cluster", conditions.clone());
            assert_eq!(has_no_bootstrap(&etcd), is_out, "{conditions}");
        }
        assert_eq!(
            bootstrap_in_etcd_text(&object(
                "Etcd",
                "cluster",
                json!([running("False", "NotEnoughEtcdMembers")])
            )),
            "etcd: the operator has not removed the bootstrap member yet: still waiting for three"
        );
    }

    #[test]
    fn etcd_lacks_nothing_if_all_nodes_vote_and_most_members_are_healthy() {
        let table = example();
        let masters: Vec<_> = table.of_role(Role::Master).cloned().collect();
        let endpoints = |nodes: &[NodeAddress]| {
            let data: BTreeMap<String, String> = nodes
                .iter()
                .map(|node| (node.name.to_string(), node.ip.to_string()))
                .collect();
            serde_json::from_value::<ConfigMap>(json!({"metadata": {}, "data": data})).unwrap()
        };
        let etcd = |status: &str| {
            let condition =
                json!({"type": "EtcdMembersAvailable", "status": status, "message": "1 of 3 members are available"});
            object("Etcd", "cluster", json!([condition]))
        };
        assert_eq!(etcd_lacks(&endpoints(&masters), &etcd("True"), &masters), None);
        let last = masters.last().unwrap();
        assert_eq!(
            etcd_lacks(&endpoints(&masters[1..]), &etcd("True"), &masters),
            Some(format!(
                "{} ({}) is not a voting member of etcd",
                masters[0].name, masters[0].ip
            ))
        );
        assert!(is_etcd_member(&endpoints(&masters), last) && !is_etcd_member(&endpoints(&masters[..1]), last));
        assert_eq!(
            etcd_lacks(&endpoints(&masters), &etcd("False"), &masters).unwrap(),
            "too few etcd members are available: 1 of 3 members are available"
        );
        assert!(etcd_lacks(&endpoints(&masters), &object("Etcd", "cluster", json!([])), &masters).is_some());
    }

    #[test]
    fn a_status_has_a_row_for_each_node_and_each_operator_that_is_not_ready() {
        let wanted: BTreeSet<_> = (0..3).map(|index| NodeName::node(Role::Master, index)).collect();
        let all = [
            node("master-0.lab.example.com", Some("True")),
            node("master-1.lab.example.com", Some("False")),
        ];
        let operators = [
            operator("dns", "True", "False", "False", "2026-01-01T00:00:00Z"),
            operator("console", "False", "True", "False", "2026-01-01T00:00:00Z"),
        ];
        let mut status = Status::from("version: 1 of 2 done".to_owned());
        status.add_nodes("masters", &Nodes::of(&example(), &all), &wanted);
        status.add_operators(&Operators::of(&operators));
        let lacks: Vec<Option<&str>> = status.nodes.values().map(Option::as_deref).collect();
        assert_eq!(
            lacks,
            [
                None,
                Some("not Ready: network not ready"),
                Some("not in the cluster yet")
            ]
        );
        let waiting: Vec<_> = status
            .operators
            .iter()
            .map(|(name, why)| (name.as_str(), why.as_str()))
            .collect();
        assert_eq!(waiting, [("console", "not available: no replicas")]);
        assert_eq!(
            status.summary(),
            [
                "masters: 1 of 3 Ready; master-1 not Ready (network not ready), master-2 missing",
                "operators: 1 of 2 available; waiting for console",
                "operator console not available: no replicas",
                "version: 1 of 2 done",
            ]
        );
    }

    #[test]
    fn only_the_word_complete_ends_the_bootstrap() {
        for (data, complete) in [
            (json!({"status": "complete"}), true),
            (json!({"status": "failed"}), false),
            (json!({}), false),
            (Value::Null, false),
        ] {
            let map = serde_json::from_value(json!({"metadata": {}, "data": data})).unwrap();
            assert_eq!(is_complete(&map), complete, "{data}");
        }
    }

    #[test]
    fn etcd_s_members_are_reported_with_its_operator_s_text() {
        let etcd = |conditions: Value| etcd_text(&object("Etcd", "cluster", conditions));
        let members =
            json!({"type": "EtcdMembersAvailable", "status": "False", "message": "1 of 3\nmembers are available"});
        assert_eq!(
            etcd(json!([members])).as_deref(),
            Some("etcd: 1 of 3 members are available")
        );
        assert_eq!(etcd(json!([])), None);
    }

    #[test]
    fn a_ready_node_counts_once_its_kubelet_has_renewed_its_lease() {
        let table = example();
        let mut heartbeats = Heartbeats::default();
        for renewed in ["10:00:00", "10:00:10", "10:00:20"] {
            let lease = json!({"metadata": {"name": "master-0.lab.example.com"},
                "spec": {"renewTime": format!("2026-11-21T{renewed}.000000Z")}});
            let leases = [serde_json::from_value(lease).unwrap()];
            heartbeats.look(&table, &leases, tokio::time::Instant::now());
        }
        let names = ["master-0", "master-1", "master-2"];
        let all = names.map(|name| {
            let ready = if name == "master-2" { "False" } else { "True" };
            node(&format!("{name}.lab.example.com"), Some(ready))
        });
        let nodes = Nodes::of(&table, &all).believing(&heartbeats);
        let masters: BTreeSet<_> = (0..3).map(|index| NodeName::node(Role::Master, index)).collect();
        assert_eq!(
            nodes.text("masters", &masters),
            "masters: 1 of 3 Ready; master-1 not Ready (kubelet has not renewed its Lease yet), \
             master-2 not Ready (network not ready)"
        );
        assert_eq!(nodes.joined(), masters, "Ready or not");
    }

    #[test]
    fn the_messages_of_lagging_operators_are_kept_by_name() {
        let since = "2026-11-21T10:00:00Z";
        let operators = Operators::of(&[
            operator("dns", "True", "False", "False", since),
            operator("console", "True", "True", "False", since),
            operator("ingress", "True", "False", "True", since),
        ]);
        assert_eq!(
            operators.messages().collect::<Vec<_>>(),
            [
                ("console", "progressing: rolling out"),
                ("ingress", "degraded: one two")
            ]
        );
    }
}
