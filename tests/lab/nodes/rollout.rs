//! Plays the machine config daemon: its actions on the nodes after a change of a MachineConfig.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::checks::{contents_of, sums_of_files};
use super::cluster::Nodes;
use super::until;

impl Nodes {
    /// Writes the files that differ, one node after the other, and runs their policies' actions; none may be without
    /// a policy, because the node would reboot (openshift/machine-config-operator: `pkg/daemon/update.go`,
    /// `calculatePostConfigChangeNodeDisruptionActionFromMCDiffs`, `performPostConfigChangeNodeDisruptionAction`).
    ///
    /// Afterwards, each node that may have the ingress VIP knows all others.
    pub(super) fn roll_out(&self) {
        let configuration = self.get(&["machineconfiguration", "cluster"]);
        let policies = &configuration["status"]["nodeDisruptionPolicyStatus"]["clusterPolicies"]["files"];
        let policies = policies.as_array().unwrap();
        for node in self.nodes() {
            let config = self.served(node.role);
            let files = config["storage"]["files"].as_array().unwrap();
            let path = |file: &Value| file["path"].as_str().unwrap().to_owned();
            let sums = sums_of_files(&config);
            let compare = format!("sha256sum --check 2>/dev/null <<'END' | sed -n 's/: FAILED.*//p'\n{sums}END\n");
            let differing = self.on(&node, &compare);
            let mut script = "set -e\n".to_owned();
            let mut actions = String::new();
            for file in files
                .iter()
                .filter(|file| differing.lines().any(|line| line == path(file)))
            {
                let path = path(file);
                let policy = policies.iter().find(|policy| policy["path"] == *path);
                let action = &policy.unwrap_or_else(|| panic!("{}: {path} has no policy", node.name))["actions"][0];
                match action["type"].as_str() {
                    Some("None") => {}
                    Some("Restart") => {
                        let service = action["restart"]["serviceName"].as_str().unwrap();
                        let _ = writeln!(actions, "systemctl restart {service}");
                    }
                    other => panic!("{}: {path}: {other:?}", node.name),
                }
                let (folder, name) = path.rsplit_once('/').unwrap();
                let mode = file["mode"].as_u64().unwrap();
                let _ = writeln!(
                    script,
                    "base64 -d <<'END' | install -D -m {mode:o} /dev/stdin {folder}/.{name}\n{}\nEND\n\
                     mv {folder}/.{name} {path}",
                    STANDARD.encode(contents_of(file))
                );
            }
            self.on(&node, &(script + &actions));
            eprintln!("{}: rolled out {}", node.name, differing.replace('\n', " "));
        }
        let workers: Vec<_> = self
            .nodes()
            .into_iter()
            .filter(|node| node.name.as_str().starts_with("worker"))
            .collect();
        for worker in &workers {
            let others = workers.iter().filter(|other| other.name != worker.name);
            let knows_all: String = others
                .map(|other| format!("grep -qw {} /run/ocpdeploy/keepalived/keepalived.conf\n", other.ip))
                .collect();
            until("keepalived knows the other workers", Duration::from_secs(60), || {
                self.try_on(worker, &format!("set -e\n{knows_all}")).status.success()
            });
        }
    }
}
