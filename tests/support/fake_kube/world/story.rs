//! Background activity of the cluster: kubelets, etcd and its operator, and the operators of an installation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ocpdeploy::cluster::{NodeName, Role};
use ocpdeploy::state::parameters::{NodeAddress, Parameters};
use serde_json::{Value, json};

use super::super::authority::Authority;
use super::super::requests::{client, serving};
use super::{
    CONFIG_MAPS, CONFIGURATIONS, ETCD_MEMBERS, ETCDS, EtcdOperator, LEASES, MACHINE_CONFIGS, MANAGED, NODES, OPERATORS,
    PODS, REQUESTS, Stage, VERSIONS, World,
};

/// Moments between a worker's readiness and its second request.
const SERVING_LATER: usize = 20;

/// Moments between the bootstrap's end and the removal of its member, and between a master's readiness and its vote.
const ETCD_LATER: usize = 25;

/// A kubelet's Lease: short, and renewed every quarter of it, as kubelets do (kubernetes/kubernetes: `pkg/kubelet/kubelet.go`,
/// `nodeLeaseRenewIntervalFraction`). A moment is 20 ms.
const LEASE_SECONDS: usize = 2;
const RENEW: usize = 25;

const OPERATOR_NAMES: [&str; 5] = ["authentication", "console", "dns", "etcd", "ingress"];

impl World {
    /// Advances the story by one moment.
    pub fn tick(&mut self) {
        let Some(table) = self.table.clone() else { return };
        self.moments += 1;
        let here = |node: &&NodeAddress| match table.is_external(&node.name) {
            true => self.switched_on.contains(&node.name),
            false => self.present.as_ref().is_none_or(|present| present(&node.name)),
        };
        let present: Vec<NodeAddress> = table.all_nodes().filter(here).cloned().collect();
        let absent: Vec<NodeAddress> = table.all_nodes().filter(|node| !here(node)).cloned().collect();
        self.lose(&absent, &table);
        for node in &present {
            let host = table.cluster_domain().fqdn(node.name.as_str());
            if self.lost.contains(&host) && self.get(NODES, &host).is_some() {
                self.come_back(&host, node);
            }
        }
        let present: Vec<NodeAddress> = {
            let is_lost = |node: &NodeAddress| self.lost.contains(&table.cluster_domain().fqdn(node.name.as_str()));
            present.into_iter().filter(|node| !is_lost(node)).collect()
        };
        let of_role = |role| present.iter().filter(move |node: &&NodeAddress| node.role == role);
        if self.gate >= Stage::Masters {
            for node in present.iter().filter(|node| node.role.has_etcd()) {
                self.join_master(&table.cluster_domain().fqdn(node.name.as_str()), node);
            }
            self.etcd(&table);
        }
        self.renew_leases(&present, &table);
        self.watch_bootstrap();
        if self.gate >= Stage::Bootstrapped
            && self.ready_members() == table.etcd_members().count()
            && self.get(CONFIG_MAPS, "bootstrap").is_none()
        {
            self.complete = Some(self.moments);
            self.put(
                CONFIG_MAPS,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "bootstrap", "namespace": "kube-system"}, "data": {"status": "complete"}}),
            );
        }
        if self.gate >= Stage::Workers && self.get(CONFIG_MAPS, "bootstrap").is_some() {
            for node in of_role(Role::Worker) {
                self.join_worker(&table.cluster_domain().fqdn(node.name.as_str()), node);
            }
        }
        self.operators(&table);
    }

    /// The kubelet of a recreated node requests a certificate again.
    pub(super) fn forget_requests_of(&mut self, host: &str) {
        let node = host.split('.').next().unwrap_or(host);
        for wave in ["client", "serving", "again"] {
            self.delete(REQUESTS, &format!("csr-{wave}-{node}"));
        }
        self.joined.remove(host);
        self.lost.remove(host);
        // It belongs to its Node.
        self.delete(LEASES, host);
    }

    /// Kubelets that run renew their Leases, each by its own clock.
    fn renew_leases(&mut self, present: &[NodeAddress], table: &Parameters) {
        if !self.moments.is_multiple_of(RENEW) {
            return;
        }
        let renewed = (Timestamp::now() + self.skew)
            .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
            .to_string();
        for node in present {
            let host = table.cluster_domain().fqdn(node.name.as_str());
            if self.get(NODES, &host).is_some() {
                self.put(
                    LEASES,
                    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": host, "namespace": "kube-node-lease"},
                    "spec": {"holderIdentity": host, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed}}),
                );
            }
        }
    }

    /// The bootstrap is a member of etcd until its operator removes it.
    fn watch_bootstrap(&mut self) {
        let is_there = self
            .present
            .as_ref()
            .is_none_or(|present| present(&NodeName::bootstrap()));
        self.bootstrap_seen |= is_there;
        let is_member = self.complete.is_some() && !self.is_bootstrap_removed();
        self.bootstrap_lost |= self.bootstrap_seen && !is_there && is_member;
    }

    fn is_bootstrap_removed(&self) -> bool {
        self.etcd_operator == EtcdOperator::Absent
            || self.gate >= Stage::MemberRemoved && self.complete.is_some_and(|then| self.moments > then + ETCD_LATER)
    }

    /// Ends a pod that was evicted; some are recreated immediately.
    pub(super) fn end_pod(&mut self, name: &str) {
        let pod = self.get(PODS, name).unwrap().clone();
        let host = pod["spec"]["nodeName"].as_str().unwrap().to_owned();
        let is_silent = self.lost.contains(&host)
            || self
                .get(NODES, &host)
                .is_some_and(|node| node["status"]["conditions"][0]["status"] == "Unknown");
        if is_silent || pod["metadata"]["annotations"]["test/ends"] == "never" {
            return self.edit(PODS, name, |pod| {
                pod["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z")
            });
        }
        self.delete(PODS, name);
        // openshift/library-go: `pkg/operator/staticpod/controller/guard/guard_controller.go`: bound to its node, cordoned
        // or not.
        if pod["metadata"]["labels"]["app"] == "guard" {
            self.put(PODS, pod);
        }
    }

    /// Nodes whose machines are off report nothing.
    fn lose(&mut self, absent: &[NodeAddress], table: &Parameters) {
        for node in absent {
            let host = table.cluster_domain().fqdn(node.name.as_str());
            if self.is_ready(&host) && !self.lost.contains(&host) {
                if !self.nobody_watches {
                    self.edit(NODES, &host, |seen| {
                        seen["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
                            "message": "Kubelet stopped posting node status."}]);
                    });
                }
                self.delete(REQUESTS, &format!("csr-again-{}", node.name));
                self.lost.insert(host);
            }
        }
    }

    /// A node that was off is Ready again once it has a certificate.
    fn come_back(&mut self, host: &str, node: &NodeAddress) {
        let again = format!("csr-again-{}", node.name);
        if !self.certificates_ended || self.is_approved(&again) {
            self.lost.remove(host);
            self.set_ready(host);
        } else if self.get(REQUESTS, &again).is_none() {
            self.rightful.push(again.clone());
            self.put(REQUESTS, client(host).object(&again));
        }
    }

    fn ready(&self, role: Role) -> usize {
        let label = format!("node-role.kubernetes.io/{role}");
        let nodes = self.objects.get(NODES).into_iter().flat_map(BTreeMap::values);
        let ready = |node: &&Value| {
            node["metadata"]["labels"].get(&label).is_some() && node["status"]["conditions"][0]["status"] == "True"
        };
        nodes.filter(ready).count()
    }

    /// Nodes with etcd.
    fn ready_members(&self) -> usize {
        self.ready(Role::Master) + self.ready(Role::Arbiter)
    }

    fn put_node(&mut self, host: &str, node: &NodeAddress) {
        let role = node.role;
        self.lost.remove(host);
        if role.has_etcd() {
            self.started.insert(host.to_owned(), self.moments);
        }
        let addresses = json!([{"type": "InternalIP", "address": node.ip}, {"type": "Hostname", "address": host}]);
        let mut labels = json!({"kubernetes.io/hostname": host});
        labels[format!("node-role.kubernetes.io/{role}")] = json!("");
        self.put(
            NODES,
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": host, "labels": labels},
            "spec": {}, "status": {"addresses": addresses, "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady",
                "message": "container runtime network not ready"}]}}),
        );
    }

    fn set_ready(&mut self, host: &str) {
        self.edit(NODES, host, |node| {
            node["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status"}]);
        });
    }

    pub fn is_ready(&self, host: &str) -> bool {
        self.get(NODES, host)
            .is_some_and(|node| node["status"]["conditions"][0]["status"] == "True")
    }

    /// The bootstrap approves the requests of masters, so no other approval is required.
    ///
    /// A master that joins later requests certificates like a worker.
    fn join_master(&mut self, host: &str, node: &NodeAddress) {
        if self.complete.is_some() {
            self.join_worker(host, node);
        } else if self.get(NODES, host).is_none() {
            let wishes = [("client", client(host)), ("serving", serving(host, node))];
            for (wave, wish) in wishes {
                let mut request = wish.object(&format!("csr-{wave}-{}", node.name));
                request["status"] = json!({"certificate": "LS0t", "conditions": [{"type": "Approved", "status": "True",
                    "reason": "BootstrapApprove", "message": "approved by the bootstrap"}]});
                self.put(REQUESTS, request);
            }
            self.put_node(host, node);
        } else if !self.is_ready(host) && !self.sick.contains(host) {
            self.set_ready(host);
        }
        let is_due = |then: &usize| self.moments > then + ETCD_LATER;
        if self.is_ready(host) && !self.learners.contains(host) && self.started.get(host).is_some_and(is_due) {
            self.started.remove(host);
            self.voting.insert(host.to_owned(), node.clone());
        }
    }

    /// A kubelet is Ready before it has its serving certificate, which it requests some time later.
    fn join_worker(&mut self, host: &str, node: &NodeAddress) {
        let (first, second) = (
            format!("csr-client-{}", node.name),
            format!("csr-serving-{}", node.name),
        );
        if self.get(REQUESTS, &first).is_none() {
            self.rightful.push(first.clone());
            self.put(REQUESTS, client(host).object(&first));
        } else if self.is_approved(&first) && self.get(NODES, host).is_none() {
            self.put_node(host, node);
        } else if self.get(NODES, host).is_some() && !self.is_ready(host) && !self.sick.contains(host) {
            self.set_ready(host);
            self.joined.insert(host.to_owned(), self.moments);
        } else if self.is_ready(host)
            && self.get(REQUESTS, &second).is_none()
            && self
                .joined
                .get(host)
                .is_some_and(|then| self.moments > then + SERVING_LATER)
        {
            self.rightful.push(second.clone());
            self.put(REQUESTS, serving(host, node).object(&second));
        }
    }

    fn is_approved(&self, request: &str) -> bool {
        let request = self.get(REQUESTS, request);
        request.is_some_and(|request| request["status"]["conditions"][0]["type"] == "Approved")
    }

    /// What etcd's operator says; openshift/cluster-etcd-operator: `pkg/operator/etcdmemberscontroller`,
    /// `pkg/operator/bootstrapteardown/bootstrap_teardown_controller.go`, `pkg/operator/etcdendpointscontroller`.
    fn etcd(&mut self, table: &Parameters) {
        if table.nodes.is_empty() || self.etcd_operator == EtcdOperator::Absent {
            return;
        }
        let members = self.ready_members();
        let condition = |kind: &str, yes: bool, reason: &str, message: &str| {
            json!({"type": kind, "status": if yes { "True" } else { "False" },
            "reason": reason, "message": message})
        };
        let removed = self.is_bootstrap_removed();
        let wanted = table.etcd_members().count();
        let mut conditions = vec![
            condition(
                "EtcdMembersAvailable",
                members > 0,
                "EtcdQuorate",
                &format!("{members} members are available"),
            ),
            match (removed, members == wanted) {
                (true, _) => condition(
                    "EtcdRunningInCluster",
                    true,
                    "BootstrapAlreadyRemoved",
                    "etcd-bootstrap member is already removed",
                ),
                (false, true) => condition(
                    "EtcdRunningInCluster",
                    true,
                    "EnoughEtcdMembers",
                    "enough members found",
                ),
                (false, false) => condition(
                    "EtcdRunningInCluster",
                    false,
                    "NotEnoughEtcdMembers",
                    "still waiting for three healthy etcd members",
                ),
            },
        ];
        if removed && self.etcd_operator == EtcdOperator::New {
            conditions.push(condition(
                "EtcdBootstrapMemberRemoved",
                true,
                "BootstrapMemberRemoved",
                "etcd bootstrap member is removed",
            ));
        }
        let conditions = json!(conditions);
        if self
            .get(ETCDS, "cluster")
            .is_none_or(|etcd| etcd["status"]["conditions"] != conditions)
        {
            self.put(
                ETCDS,
                json!({"apiVersion": "operator.openshift.io/v1", "kind": "Etcd", "metadata": {"name": "cluster"},
                "status": {"conditions": conditions}}),
            );
        }
        let data: BTreeMap<String, String> = self
            .voting
            .values()
            .zip(1..)
            .map(|(node, id)| (format!("{id:x}"), node.ip.to_string()))
            .collect();
        if self
            .get(ETCD_MEMBERS, "etcd-endpoints")
            .is_none_or(|endpoints| endpoints["data"] != json!(data))
        {
            self.put(
                ETCD_MEMBERS,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "etcd-endpoints", "namespace": "openshift-etcd"}, "data": data}),
            );
        }
    }

    fn operators(&mut self, table: &Parameters) {
        if self.gate < Stage::Bootstrapped || self.get(CONFIG_MAPS, "bootstrap").is_none() {
            return;
        }
        let all = table.nodes.iter().filter(|node| node.role != Role::Bootstrap).count();
        let joined = self.ready_members() + self.ready(Role::Worker) == all;
        for name in OPERATOR_NAMES {
            match self.get(OPERATORS, name) {
                None => self.put(OPERATORS, operator(name, false)),
                Some(seen)
                    if seen["status"]["conditions"][0]["status"] == "False"
                        && joined
                        && self.gate >= Stage::Operators =>
                {
                    self.put(OPERATORS, operator(name, true));
                    return self.cluster_version();
                }
                Some(_) => {}
            }
        }
        self.machine_configs();
        self.policies();
        self.cluster_version();
    }

    /// cluster-bootstrap creates the installer's manifests.
    fn machine_configs(&mut self) {
        let made = self.manifests.as_ref().and_then(|path| std::fs::read(path).ok());
        let made = made.and_then(|text| serde_json::from_slice::<BTreeMap<String, String>>(&text).ok());
        let Some(made) = made else { return };
        self.manifests = None;
        for text in made.into_values() {
            let object: Value = serde_saphyr::from_str(&text).unwrap();
            if object["kind"] == "MachineConfig" && object["metadata"]["name"].is_string() {
                self.put(MACHINE_CONFIGS, object);
            }
        }
    }

    /// The ingress operator publishes the CA of the certificate that it made for the routers.
    fn router_ca(&mut self) {
        if self.get(MANAGED, "default-ingress-cert").is_none() {
            self.put(
                MANAGED,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "default-ingress-cert", "namespace": "openshift-config-managed"},
                "data": {"ca-bundle.crt": Authority::new().pem()}}),
            );
        }
    }

    /// The machine config operator merges the policies of the spec with its own ones into the status
    /// (openshift/machine-config-operator: `pkg/apihelpers/apihelpers.go`, `MergeClusterPolicies`).
    fn policies(&mut self) {
        if self.policies_ignored {
            return;
        }
        let own = json!({"path": "/var/lib/kubelet/config.json", "actions": [{"type": "None"}]});
        match self.get(CONFIGURATIONS, "cluster") {
            None => self.put(
                CONFIGURATIONS,
                json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
                    "metadata": {"name": "cluster"}, "spec": {"managementState": "Managed"}}),
            ),
            Some(configuration) => {
                let mut merged = vec![own];
                let files = configuration["spec"]["nodeDisruptionPolicy"]["files"].as_array();
                merged.extend(files.into_iter().flatten().cloned());
                let status = json!({"nodeDisruptionPolicyStatus": {"clusterPolicies": {"files": merged}}});
                if configuration["status"] != status {
                    self.edit(CONFIGURATIONS, "cluster", |configuration| {
                        configuration["status"] = status
                    });
                }
            }
        }
    }

    fn cluster_version(&mut self) {
        let operators = self.objects.get(OPERATORS).into_iter().flat_map(BTreeMap::values);
        let available = operators
            .filter(|seen| seen["status"]["conditions"][0]["status"] == "True")
            .count();
        let percent = 100 * available / OPERATOR_NAMES.len();
        let done = percent == 100 && self.gate >= Stage::Installed;
        if done {
            self.router_ca();
        }
        let condition = |kind: &str, yes: bool, message: &str| json!({"type": kind, "status": if yes { "True" } else { "False" }, "message": message});
        let progress = format!(
            "Working towards 4.19.0: {} of 900 done ({percent}% complete)",
            9 * percent
        );
        let progress = if done { "Cluster version is 4.19.0" } else { &progress };
        let conditions = json!([
            condition("Available", done, if done { "Done applying 4.19.0" } else { "" }),
            condition("Failing", false, ""),
            condition("Progressing", !done, progress),
        ]);
        if self
            .get(VERSIONS, "version")
            .is_some_and(|seen| seen["status"]["conditions"] == conditions)
        {
            return;
        }
        self.put(
            VERSIONS,
            json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
            "metadata": {"name": "version"}, "spec": {"clusterID": "7b1d2ff4-0000-0000-0000-000000000000"},
            "status": {"desired": {"version": "4.19.0"}, "conditions": conditions, "history": [entry("4.19.0", "4190", done)]}}),
        );
    }
}

/// An entry of a ClusterVersion's history.
pub fn entry(version: &str, digest: &str, done: bool) -> Value {
    json!({"version": version, "image": format!("registry.example.com/ocp/release@sha256:{digest}"),
        "state": if done { "Completed" } else { "Partial" }, "startedTime": "2026-01-01T00:00:00Z",
        "completionTime": done.then_some("2026-01-01T01:00:00Z"), "verified": true})
}

fn operator(name: &str, available: bool) -> Value {
    let condition = |kind: &str, yes: bool, message: &str| json!({"type": kind, "status": if yes { "True" } else { "False" }, "reason": "AsExpected", "message": message});
    let why = if available { "" } else { "no replicas are available" };
    json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": {"name": name}, "status": {"conditions": [
        condition("Available", available, why), condition("Progressing", !available, why), condition("Degraded", false, ""),
    ]}})
}
