//! Which kubelets run, detected by their Lease renewals. Pure: the caller provides the time.
//!
//! A Node may still be Ready from before its machine was off: a kubelet does not change that when it stops. Only the
//! node lifecycle controller does, after it has watched the node for a while. So a kubelet counts as running only if it
//! renews its Lease during the wait. `renewTime` is from the node's clock and is compared only with its own earlier
//! value, never with this computer's clock, as in that controller (kubernetes/kubernetes:
//! `pkg/controller/nodelifecycle/node_lifecycle_controller.go`, `tryUpdateNodeHealth`).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use tokio::time::Instant;

use crate::cluster::NodeName;
use crate::state::parameters::Parameters;

/// The duration of a kubelet's Lease if the Lease does not contain it: `nodeLeaseDurationSeconds` is 40 by default
/// (kubernetes/kubernetes: `pkg/kubelet/apis/config/v1beta1/defaults.go`).
const DURATION: Duration = Duration::from_secs(40);

/// A kubelet renews its Lease every quarter of its duration, and for the first time as soon as it starts
/// (kubernetes/kubernetes: `pkg/kubelet/kubelet.go`). The node's conditions may not be posted by then; by the second
/// renewal they are.
const RENEWALS: u32 = 2;

/// The observed Leases of a table's nodes.
#[derive(Debug, Default)]
pub struct Heartbeats(BTreeMap<NodeName, Heartbeat>);

#[derive(Debug)]
struct Heartbeat {
    /// `None` while the node has no Lease.
    renewed: Option<Timestamp>,
    duration: Duration,
    /// How often `renewed` changed between two queries.
    renewals: u32,
    /// Since when `renewed` has been unchanged, as observed.
    unchanged_since: Instant,
}

impl Heartbeats {
    /// Records the cluster's current Leases.
    pub fn look(&mut self, table: &Parameters, leases: &[Lease], now: Instant) {
        let mut leases: BTreeMap<NodeName, &Lease> = leases
            .iter()
            .filter_map(|lease| Some((node_of(table, &lease.name_any())?, lease)))
            .collect();
        for node in table.all_nodes() {
            let spec = leases.remove(&node.name).and_then(|lease| lease.spec.as_ref());
            let renewed = spec.and_then(|spec| Some(spec.renew_time.as_ref()?.0));
            let seconds = spec.and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok());
            let heartbeat = self.0.entry(node.name.clone()).or_insert(Heartbeat {
                renewed,
                duration: DURATION,
                renewals: 0,
                unchanged_since: now,
            });
            heartbeat.duration = seconds.map_or(DURATION, Duration::from_secs);
            if heartbeat.renewed != renewed {
                heartbeat.renewed = renewed;
                heartbeat.renewals += 1;
                heartbeat.unchanged_since = now;
            }
        }
    }

    /// The API did not answer: a kubelet may have failed to renew its Lease for the same reason.
    pub fn interrupted(&mut self, now: Instant) {
        for heartbeat in self.0.values_mut() {
            heartbeat.unchanged_since = now;
        }
    }

    /// Whether a node's kubelet runs, so that its conditions are current.
    pub fn is_running(&self, node: &NodeName) -> bool {
        self.0.get(node).is_some_and(|heartbeat| heartbeat.renewals >= RENEWALS)
    }

    /// Whether a node's kubelet has renewed its Lease since the first look.
    pub fn has_renewed(&self, node: &NodeName) -> bool {
        self.0.get(node).is_some_and(|heartbeat| heartbeat.renewals > 0)
    }

    /// Whether a node's Lease was observed for its whole duration without a renewal.
    pub fn is_silent(&self, node: &NodeName, now: Instant) -> bool {
        let silent =
            |heartbeat: &Heartbeat| now.saturating_duration_since(heartbeat.unchanged_since) >= heartbeat.duration;
        self.0.get(node).is_some_and(silent)
    }

    /// When a node's kubelet last renewed its Lease, by the node's own clock.
    pub fn renewed(&self, node: &NodeName) -> Option<Timestamp> {
        self.0.get(node)?.renewed
    }
}

/// The table's node with the name of an object of the cluster, with or without the domain.
pub fn node_of(table: &Parameters, name: &str) -> Option<NodeName> {
    let id = table.cluster_domain();
    let host = id.host_of(name).unwrap_or(name);
    let planned = table.all_nodes().find(|planned| planned.name.as_str() == host)?;
    Some(planned.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Role;
    use crate::state::parameters::tests::example;

    fn lease(renewed: &str) -> Lease {
        serde_json::from_value(json!({"metadata": {"name": "worker-0.lab.example.com"},
            "spec": {"leaseDurationSeconds": 40, "renewTime": renewed}}))
        .unwrap()
    }

    #[test]
    fn only_an_observed_renewal_shows_that_a_kubelet_runs() {
        let (table, node, begun) = (example(), NodeName::node(Role::Worker, 0), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut heartbeats = Heartbeats::default();
        // A node's clock may be years ahead.
        for seconds in [0, 5, 39] {
            heartbeats.look(&table, &[lease("2040-01-01T00:00:00.000000Z")], after(seconds));
            assert!(!heartbeats.has_renewed(&node) && !heartbeats.is_silent(&node, after(seconds)));
        }
        assert!(heartbeats.is_silent(&node, after(40)));
        heartbeats.look(&table, &[lease("2040-01-01T00:01:00.000000Z")], after(50));
        assert!(
            heartbeats.has_renewed(&node) && !heartbeats.is_running(&node),
            "its Ready condition may be outdated"
        );
        assert!(!heartbeats.is_silent(&node, after(60)));
        heartbeats.look(&table, &[lease("2040-01-01T00:01:10.000000Z")], after(60));
        assert!(heartbeats.is_running(&node));
        assert!(!heartbeats.is_running(&NodeName::node(Role::Worker, 1)));
    }

    #[test]
    fn an_unresponsive_api_makes_no_kubelet_silent() {
        let (table, node, begun) = (example(), NodeName::node(Role::Worker, 0), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut heartbeats = Heartbeats::default();
        assert!(
            !heartbeats.is_silent(&node, after(1000)),
            "a node that was not observed is not silent"
        );
        heartbeats.look(&table, &[], after(0));
        heartbeats.interrupted(after(30));
        heartbeats.look(&table, &[], after(41));
        assert!(!heartbeats.is_silent(&node, after(41)));
        assert!(heartbeats.is_silent(&node, after(70)), "a node without a Lease, too");
    }
}
