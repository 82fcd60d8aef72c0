//! Checks of a cluster and its nodes.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ocpdeploy::cluster::{NodeName, Role};
use ocpdeploy::digest::sha256;
use ocpdeploy::ignition::contents::{self, Contents};
use ocpdeploy::state::parameters::NodeAddress;
use serde_json::Value;

use super::cluster::Nodes;
use super::{LONG, answers, text, until};

/// Names of certificate requests.
const OWN: &str = "with-its-own-address";
const FORGED: &str = "with-the-address-of-another";

impl Nodes {
    /// All units started, in their declared order: names are resolved before the network counts as online,
    /// and the kubelet starts after that.
    pub(super) fn check_units(&self, node: &NodeAddress) {
        let failed = self.on(node, "systemctl list-units --state=failed --plain --no-legend");
        assert_eq!(failed, "", "{}: failed units", node.name);
        let complaints = "journalctl -b -q --no-pager -t systemd | grep -iE 'ordering cycle|bad unit|ignoring|not be enabled' || true";
        assert_eq!(self.on(node, complaints), "", "{}", node.name);
        // The resolver runs again whenever the network changes: the first moments count.
        let moments = self.on(
            node,
            "first() { journalctl -b -q --no-pager -t systemd -o short-monotonic | grep -m 1 \"$1\" | tr -d '[' | awk '{ print $1 + 0 }'; }\n\
             first 'Finished ocpdeploy-resolver'\n\
             first 'Reached target network-online'\n\
             first 'Starting kubelet.service'\n",
        );
        let moments: Vec<f64> = moments.lines().map(|line| line.parse().unwrap()).collect();
        let is_in_order = moments.len() == 3 && moments.is_sorted();
        assert!(is_in_order, "{}: resolver, online, kubelet: {moments:?}", node.name);
    }

    /// The node itself resolves the cluster's names, forward and reverse, and no name that does not exist. Of the
    /// nodes, it resolves those in the role's MachineConfig.
    pub(super) fn check_names(&self, node: &NodeAddress) {
        let mut table = self.table();
        let served = self.served(node.role);
        let mut files = served["storage"]["files"].as_array().unwrap().iter();
        let records = files.find(|file| file["path"] == "/etc/ocpdeploy/dnsmasq.conf");
        let records = text(&contents_of(records.unwrap()));
        table.nodes.retain(|node| records.contains(&format!(",{}\n", node.ip)));
        let resolv = self.on(node, "cat /etc/resolv.conf");
        let first = resolv.lines().find_map(|line| line.strip_prefix("nameserver "));
        assert_eq!(first, Some(node.ip.to_string().as_str()), "{}: {resolv}", node.name);
        let id = table.cluster_domain();
        let mut names: BTreeMap<String, String> = BTreeMap::from([
            (id.fqdn("api"), table.api_ip.to_string()),
            (id.fqdn("api-int"), table.api_ip.to_string()),
            (id.fqdn("console-openshift-console.apps"), table.ingress_ip.to_string()),
            (id.fqdn("anything.apps"), table.ingress_ip.to_string()),
        ]);
        names.extend(
            table
                .nodes
                .iter()
                .map(|node| (id.fqdn(node.name.as_str()), node.ip.to_string())),
        );
        let words: Vec<&str> = names.keys().map(String::as_str).collect();
        let family = if node.ip.is_ipv6() { 6 } else { 4 };
        let script = format!(
            "for name in {}; do getent ahostsv{family} $name | awk '$2 == \"STREAM\" {{ print $1 }}'; done",
            words.join(" ")
        );
        let found = self.on(node, &script);
        assert_eq!(
            found.lines().collect::<Vec<_>>(),
            names.values().collect::<Vec<_>>(),
            "{}: {words:?}",
            node.name
        );
        let addresses: Vec<String> = table.nodes.iter().map(|node| node.ip.to_string()).collect();
        let script = format!(
            "for ip in {}; do getent hosts $ip | awk '{{ print $2 }}'; done",
            addresses.join(" ")
        );
        let found = self.on(node, &script);
        let owners: Vec<String> = table.nodes.iter().map(|node| id.fqdn(node.name.as_str())).collect();
        assert_eq!(found.lines().collect::<Vec<_>>(), owners, "{}: PTR", node.name);
        let unknown = self.try_on(node, &format!("getent hosts {}", id.fqdn("nobody")));
        assert_eq!(unknown.status.code(), Some(2), "{}: {unknown:?}", node.name);
    }

    /// The machine config server's config of a role: that of the installation with our current MachineConfig.
    pub(super) fn served(&self, role: Role) -> Value {
        let config = std::fs::read(self.path(&format!("{role}.json"))).unwrap();
        let mut config: Value = serde_json::from_slice(&config).unwrap();
        let ours = self.get(&["machineconfig", &format!("99-{role}-ocpdeploy")]);
        let files = config["storage"]["files"].as_array_mut().unwrap();
        for file in ours["spec"]["config"]["storage"]["files"].as_array().unwrap() {
            files.retain(|other| other["path"] != file["path"]);
            files.push(file.clone());
        }
        config
    }

    /// Files and units are as the cluster's MachineConfigs say: whatever differs makes the machine config daemon report the
    /// node as Degraded (openshift/machine-config-operator: `pkg/daemon/on_disk_validation.go`).
    pub(super) fn check_machine_config(&self, node: &NodeAddress) {
        let config = self.served(node.role);
        let mut sums = sums_of_files(&config);
        for unit in config["systemd"]["units"].as_array().unwrap() {
            let name = unit["name"].as_str().unwrap();
            if let Some(contents) = unit["contents"].as_str() {
                sums += &format!("{}  /etc/systemd/system/{name}\n", sha256(contents));
            }
            for dropin in unit["dropins"].as_array().into_iter().flatten() {
                let (file, contents) = (dropin["name"].as_str().unwrap(), dropin["contents"].as_str().unwrap());
                sums += &format!("{}  /etc/systemd/system/{name}.d/{file}\n", sha256(contents));
            }
        }
        assert!(sums.lines().count() > 20, "{sums}");
        self.on(node, &format!("sha256sum --check --quiet <<'END'\n{sums}END\n"));
    }

    /// The cluster knows the node by its own address, also if it has a virtual IP.
    pub(super) fn check_object(&self, node: &NodeAddress) {
        let name = self.table().cluster_domain().fqdn(node.name.as_str());
        let object = self.get(&["node", &name]);
        let internal: Vec<&Value> = object["status"]["addresses"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|address| address["type"] == "InternalIP")
            .map(|address| &address["address"])
            .collect();
        assert_eq!(internal, [node.ip.to_string().as_str()], "{name}");
    }

    /// Each virtual IP is on exactly one node, and its service answers there.
    pub(super) fn check_virtual_ips(&self) {
        let table = self.table();
        for (ip, url) in [
            (
                table.api_ip,
                format!("https://{}/readyz", SocketAddr::new(table.api_ip, 6443)),
            ),
            (
                table.ingress_ip,
                format!("http://{}/", SocketAddr::new(table.ingress_ip, 80)),
            ),
        ] {
            let holders: Vec<NodeName> = self.holders(ip);
            assert_eq!(holders.len(), 1, "{ip}: {holders:?}");
            // ovn-kubernetes/ovn-kubernetes: go-controller/pkg/util/net_linux.go, IsAddressAddedByKeepAlived; an IPv6
            // address has no label.
            let mark = if ip.is_ipv6() { "deprecated" } else { "label vip" };
            let marked = self.on(
                &self.node(holders[0].as_str()),
                &format!("ip -o addr show to {ip} {mark}"),
            );
            assert!(!marked.is_empty(), "{ip} is not marked on {holders:?}");
            assert!(answers(&url), "{url}");
        }
    }

    pub(super) fn holders(&self, ip: IpAddr) -> Vec<NodeName> {
        let script = format!("ip -o addr show to {ip} | grep -q .");
        let nodes = self.nodes().into_iter();
        nodes
            .filter(|node| self.try_on(node, &script).status.success())
            .map(|node| node.name)
            .collect()
    }

    /// The bootstrap approves its masters' requests, this program all later ones.
    pub(super) fn check_certificates(&self) {
        let (nodes, id) = (self.nodes(), self.table().cluster_domain());
        let mut approvers: BTreeMap<(Role, String), usize> = BTreeMap::new();
        for request in self.get(&["csr"])["items"].as_array().unwrap() {
            let mut openssl = Command::new("openssl");
            openssl.args(["req", "-noout", "-subject", "-nameopt", "multiline"]);
            let subject = piped(
                &mut openssl,
                &BASE64.decode(request["spec"]["request"].as_str().unwrap()).unwrap(),
            );
            let node = nodes.iter().find(|node| subject.contains(&id.fqdn(node.name.as_str())));
            let node = node.unwrap_or_else(|| panic!("a request of an unknown node: {subject}"));
            let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let reason = conditions
                .first()
                .map_or("Pending", |condition| condition["reason"].as_str().unwrap());
            *approvers.entry((node.role, reason.to_owned())).or_default() += 1;
        }
        let workers = nodes.iter().filter(|node| node.role == Role::Worker).count();
        eprintln!("requests: {approvers:?}");
        assert!(
            approvers[&(Role::Worker, "OcpdeployApproved".to_owned())] >= 2 * workers,
            "{approvers:?}"
        );
        assert!(
            !approvers.contains_key(&(Role::Worker, "KubectlApprove".to_owned())),
            "{approvers:?}"
        );
    }

    /// Has a node request two serving certificates, one of them with the address of another, as a node that was taken over
    /// would. Both are undecided.
    pub(super) fn request_certificates(&self, node: &NodeAddress) {
        let (table, id) = (self.table(), self.table().cluster_domain());
        let name = id.fqdn(node.name.as_str());
        for (request, address) in [(OWN, node.ip), (FORGED, table.api_ip)] {
            let script = format!(
                "cd /run; key=/var/lib/kubelet/pki/kubelet-client-current.pem\n\
                 request=$(openssl req -new -key $key -subj '/O=system:nodes/CN=system:node:{name}' \
                     -addext 'subjectAltName=DNS:{name},IP:{address}' | base64 -w0)\n\
                 kubectl --kubeconfig /var/lib/kubelet/kubeconfig create -f - <<END\n\
                 {{\"apiVersion\": \"certificates.k8s.io/v1\", \"kind\": \"CertificateSigningRequest\", \"metadata\": {{\"name\": \"{request}\"}},\n\
                  \"spec\": {{\"signerName\": \"kubernetes.io/kubelet-serving\", \"request\": \"$request\",\n\
                  \"usages\": [\"digital signature\", \"server auth\"]}}}}\nEND\n"
            );
            self.on(node, &script);
        }
    }

    /// While this program let nodes join, it approved the valid one of these requests and left the other one undecided.
    pub(super) fn check_requested_certificates(&self) {
        let conditions = |name| self.get(&["csr", name])["status"]["conditions"].clone();
        assert_eq!(conditions(OWN)[0]["reason"], "OcpdeployApproved");
        assert_eq!(conditions(FORGED), Value::Null);
        let output = self.kubectl(&["delete", "csr", OWN, FORGED]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// The haproxy of each master has all masters' API servers as healthy.
    pub(super) fn check_balancing(&self) {
        let masters: Vec<NodeAddress> = self.table().of_role(Role::Master).cloned().collect();
        let mut names: Vec<&str> = masters.iter().map(|master| master.name.as_str()).collect();
        names.sort_unstable();
        for master in &masters {
            let healthy = "curl -fs 'http://127.0.0.1:9444/stats;csv' | \
                 awk -F, '$1 == \"apis\" && $2 != \"BACKEND\" && $18 ~ /^UP/ { print $2 }' | sort";
            until(&format!("{} balances over all masters", master.name), LONG, || {
                self.on(master, healthy).lines().collect::<Vec<_>>() == names
            });
        }
    }

    pub(super) fn check_all(&self) {
        for node in self.nodes() {
            self.check_units(&node);
            self.check_names(&node);
            self.check_machine_config(&node);
            self.check_object(&node);
        }
        self.check_virtual_ips();
    }
}

/// The files of a config, as `sha256sum --check` reads them.
pub(super) fn sums_of_files(config: &Value) -> String {
    let files = config["storage"]["files"].as_array().unwrap().iter();
    files
        .map(|file| format!("{}  {}\n", sha256(contents_of(file)), file["path"].as_str().unwrap()))
        .collect()
}

pub(super) fn contents_of(file: &Value) -> Vec<u8> {
    match contents::of(&file["contents"]) {
        Ok(Contents::Bytes(bytes)) => bytes,
        _ => panic!("{file}"),
    }
}

fn piped(command: &mut Command, input: &[u8]) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    text(&child.wait_with_output().unwrap().stdout)
}
