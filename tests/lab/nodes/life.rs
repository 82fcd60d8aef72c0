//! Events of clusters: the network plugin's bridge, reboots, evictions, lost machines, expired certificates.

use std::process::Command;
use std::time::{Duration, Instant};

use ocpdeploy::state::parameters::NodeAddress;
use serde_json::Value;

use super::cluster::Nodes;
use super::{LONG, answers, answers_within, text, until};

/// How long the API may be unavailable; five seconds if the guests are not emulated.
const FAILOVER: Duration = Duration::from_secs(15);

impl Nodes {
    /// A deployment whose installation takes too long ends with a bundle from the cluster and its nodes; the settings
    /// are then as before.
    pub(super) fn fail_to_install(&self) {
        let env = self.lab.env(&self.name);
        let settings = std::fs::read_to_string(&env).unwrap();
        std::fs::write(&env, settings.replace("install_timeout=40m", "install_timeout=10s")).unwrap();
        let output = self
            .lab
            .start(&["deploy", env.to_str().unwrap()])
            .wait_with_output()
            .unwrap();
        std::fs::write(&env, settings).unwrap();
        let err = text(&output.stderr);
        eprintln!("──── a deployment that takes too long\n{err}");
        assert_eq!(output.status.code(), Some(6));
        let cluster = self.lab.home().cluster(&self.name);
        let names = std::fs::read_dir(cluster.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let bundles: Vec<_> = names
            .filter(|path| path.extension().is_some_and(|end| end == "tar"))
            .collect();
        assert_eq!(bundles.len(), 1, "{bundles:?}");
        let bundle = bundles[0].to_str().unwrap();
        assert!(err.contains(bundle), "{bundle}");
        let tar = |words: &[&str]| text(&Command::new("tar").args(words).output().unwrap().stdout);
        let list = tar(&["-tf", bundle]);
        for wanted in [
            "journal.jsonl",
            "api/nodes.json",
            "api/events.json",
            "journals/master-0.txt",
        ] {
            assert!(
                list.lines().any(|line| line == wanted),
                "{wanted} is not in the bundle:\n{list}"
            );
        }
        let console = format!("consoles/{}-master-0.txt", self.name);
        assert!(list.lines().any(|line| line == console), "{list}");
        let name = self.table().cluster_domain().fqdn("master-0");
        assert!(tar(&["-xOf", bundle, "api/nodes.json"]).contains(&name));
        let journal = tar(&["-xOf", bundle, "journals/master-0.txt"]);
        assert!(
            journal.contains("kubelet") && journal.contains("ocpdeploy-resolver"),
            "{journal}"
        );
        assert!(
            !tar(&["-xOf", bundle]).contains("PRIVATE KEY-----"),
            "the bundle has a key"
        );
    }

    /// Moves the node's address to an Open vSwitch bridge, as OVN-Kubernetes does; the ingress VIP of the node follows.
    pub(super) fn move_to_bridge(&self, node: &NodeAddress) {
        let table = self.table();
        // A node is Ready before its static pods run.
        until("it has the virtual IP", Duration::from_secs(120), || {
            self.holders(table.ingress_ip).contains(&node.name)
        });
        // In the background: the connection of this command breaks.
        self.on(node, "systemctl enable --now --no-block lab-configure-ovs.service 2>&1");
        let has = |ip| format!("ip -4 -o addr show dev br-ex | grep -qF ' {ip}/'");
        until("the address is on br-ex", LONG, || {
            self.try_on(node, &has(node.ip)).status.success()
        });
        until("the virtual IP follows", Duration::from_secs(60), || {
            self.try_on(node, &has(table.ingress_ip)).status.success()
        });
        let others = "ip -4 -o addr show scope global | awk '$2 != \"cni0\" && $2 != \"br-ex\"'";
        assert_eq!(self.on(node, others), "", "addresses that were left behind");
        until("the ingress answers", Duration::from_secs(60), || {
            answers(&format!("http://{}/", table.ingress_ip))
        });
        until("the names are back", Duration::from_secs(60), || {
            let name = table.cluster_domain().fqdn("api-int");
            self.try_on(node, &format!("getent ahostsv4 {name}")).status.success()
        });
        self.check_names(node);
        self.check_machine_config(node);
    }

    /// Reboots a node: it keeps its address and what it runs, and does not run Ignition again.
    pub(super) fn reboot_and_check(&self, node: &NodeAddress) {
        self.reboot(node);
        self.check_units(node);
        self.check_names(node);
        self.check_object(node);
    }

    /// Reboots a node and waits until it is Ready.
    pub(super) fn reboot(&self, node: &NodeAddress) {
        let boot = || text(&self.try_on(node, "cat /proc/sys/kernel/random/boot_id").stdout);
        let before = boot();
        let _ = self.try_on(node, "systemctl reboot");
        until("rebooted", LONG, || !["", before.as_str()].contains(&boot().as_str()));
        assert!(!self.on(node, "cat /proc/cmdline").contains("ignition.firstboot"));
        let name = self.table().cluster_domain().fqdn(node.name.as_str());
        until("Ready after the reboot", LONG, || {
            let object = self.get(&["node", &name]);
            object["status"]["nodeInfo"]["bootID"] == boot().trim() && self.is_ready(&object)
        });
    }

    fn is_ready(&self, object: &Value) -> bool {
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    }

    #[track_caller]
    fn apply(&self, object: &Value) {
        let path = self.path("object.json");
        std::fs::write(&path, object.to_string()).unwrap();
        let output = self.kubectl(&["apply", "-f", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// Two replicas on different nodes, one of which must always be available.
    pub(super) fn with_busy_pods(&self) {
        let labels = serde_json::json!({"app": "busy"});
        self.apply(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "busy"},
             "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "busy"}, "spec": {
                "replicas": 2, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 2,
                    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": labels}}],
                    "containers": [{"name": "busy", "image": "lab.invalid/tools:1", "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sleep", "infinity"]}]}}}},
        ]}));
        until("busy pods are available", LONG, || self.available() == 2);
    }

    pub(super) fn available(&self) -> u64 {
        let deployment = self.get(&["deployment", "busy"]);
        deployment["status"]["availableReplicas"].as_u64().unwrap_or_default()
    }

    /// How long the API is unavailable when something happens to the node that has its virtual IP.
    fn api_away(&self, happens: impl FnOnce(&NodeAddress)) -> (NodeAddress, Duration) {
        let table = self.table();
        let url = format!("https://{}:6443/readyz", table.api_ip);
        let holders = self.holders(table.api_ip);
        assert_eq!(holders.len(), 1, "{holders:?}");
        let holder = self.node(holders[0].as_str());
        assert!(answers(&url));
        happens(&holder);
        let begun = Instant::now();
        let (mut last_failure, mut good) = (Duration::ZERO, 0);
        // The API may answer for a moment longer.
        while good < 20 {
            assert!(begun.elapsed() < LONG, "the API stays unavailable");
            if answers_within(&url, 1) {
                good += 1;
            } else {
                (last_failure, good) = (begun.elapsed(), 0);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!(
            "{}: the API was unavailable for {:.1} s",
            holder.name,
            last_failure.as_secs_f64()
        );
        (holder, last_failure)
    }

    /// The machine that has the API's virtual IP loses its power; returns its node.
    pub(super) fn lose_the_holder(&self) -> NodeAddress {
        let (node, away) = self.api_away(|node| {
            self.lab.virsh(&["destroy", &self.domain(node)]);
        });
        assert!(away < FAILOVER, "{away:?}");
        assert!(!self.holders(self.table().api_ip).contains(&node.name));
        node
    }

    /// Only the API server of the node with the virtual IP ends: haproxy or keepalived selects another one.
    pub(super) fn lose_an_api_server(&self) {
        let pod = "/etc/kubernetes/manifests/kube-apiserver.json";
        let (node, away) = self.api_away(|node| {
            self.on(node, &format!("mv {pod} /run/kept.json; pkill -f relay.cfg"));
        });
        assert!(away < FAILOVER, "{away:?}");
        self.on(&node, &format!("mv /run/kept.json {pod}"));
        until("its API server is back", LONG, || {
            self.try_on(&node, "curl -kfs --max-time 5 https://localhost:6443/readyz")
                .status
                .success()
        });
    }

    pub(super) fn domain(&self, node: &NodeAddress) -> String {
        format!("{}-{}", self.name, node.name)
    }

    /// Removes an etcd member, as an administrator does before replacing a master; the operator is played.
    pub(super) fn remove_etcd_member(&self, node: &NodeAddress) {
        let name = self.table().cluster_domain().fqdn(node.name.as_str());
        let patch = serde_json::json!({ "data": { name: null } }).to_string();
        let words = [
            "-n",
            "openshift-etcd",
            "patch",
            "configmap",
            "etcd-endpoints",
            "--type=merge",
            "-p",
            &patch,
        ];
        let output = self.kubectl(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// Starts a stopped cluster, checks that it is complete, and destroys it.
    pub(super) fn start_and_destroy(&self) {
        self.run(&["start", &self.name]);
        self.check_all();
        self.run(&["verify", &self.name]);
        self.destroy();
    }

    /// Saves the cluster, deletes a namespace and breaks a worker's disk; the snapshot brings both back.
    pub(super) fn save_break_and_restore(&self) {
        let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}});
        self.apply(&namespace);
        self.apply(&serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kept", "namespace": "work"}, "data": {"since": "before"}}));
        let kept = || self.get(&["-n", "work", "configmap", "kept"]);
        let (before, table) = (kept(), self.table());
        let begun = Instant::now();
        // The script that saves etcd is OpenShift's own.
        self.run(&["snapshot", "save", &self.name, "before", "--no-backup"]);
        eprintln!("saved within {:.0} s", begun.elapsed().as_secs_f64());

        let deleted = self.kubectl(&["delete", "namespace", "work"]);
        assert!(deleted.status.success(), "{}", text(&deleted.stderr));
        let worker = self.node("worker-0");
        // The partition table, the boot partition and the beginning of the root file system.
        let _ = self.try_on(
            &worker,
            "dd if=/dev/zero of=/dev/vda bs=1M count=1024 oflag=direct conv=fsync",
        );
        self.lab.virsh(&["destroy", &self.domain(&worker)]);

        let begun = Instant::now();
        self.run(&["snapshot", "restore", &self.name, "before", "--yes"]);
        eprintln!("restored within {:.0} s", begun.elapsed().as_secs_f64());
        assert_eq!(self.table(), table);
        self.check_all();
        let after = kept();
        for field in ["/metadata/uid", "/data"] {
            assert_eq!(after.pointer(field), before.pointer(field));
        }
        self.run(&["verify", &self.name]);
        self.run(&["snapshot", "delete", &self.name, "before", "--yes"]);
    }

    /// All kubelets' certificates expire while the cluster is off.
    pub(super) fn stop_until_certificates_end(&self) {
        // They are valid from five minutes before the certificate is issued (kubernetes/kubernetes v1.20.2:
        // `pkg/controller/certificates/authority`).
        self.native.sign_for("10m");
        for node in self.nodes() {
            self.on(
                &node,
                "systemctl stop kubelet; rm -f /var/lib/kubelet/pki/*; systemctl start --no-block kubelet",
            );
        }
        let pki = "/var/lib/kubelet/pki/kubelet";
        let both = format!("test -e {pki}-client-current.pem && test -e {pki}-server-current.pem");
        until("certificates for five minutes", LONG, || {
            let requests = self.get(&["csr"]);
            for request in requests["items"].as_array().unwrap() {
                if request["status"]["conditions"].is_null() {
                    let name = request["metadata"]["name"].as_str().unwrap();
                    self.kubectl(&["certificate", "approve", name]);
                }
            }
            let nodes = self.nodes();
            nodes.iter().all(|node| self.try_on(node, &both).status.success())
        });
        self.run(&["stop", &self.name]);
        // A kubelet may have renewed its certificate until then.
        std::thread::sleep(Duration::from_secs(5 * 60 + 10));
        self.native.sign_as_before();
    }
}
