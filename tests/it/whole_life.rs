//! Day two of a cluster with an API, with the binary: replaced nodes, and a stop and start of the whole cluster.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use crate::support::fake_installer;
use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::story::entry;
use crate::support::fake_kube::world::{
    API_SIGNERS, CONFIGURATIONS, MACHINE_CONFIGS, NODES, PODS, SIGNERS, Stage, VERSIONS,
};
use crate::support::sandbox::{Outcome, outcome};
use crate::support::site::Site;
use crate::support::sshd::Sshd;
use crate::support::until::{LONG, until};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::{NodeName, Role};
use ocpdeploy::state::journal;
use ocpdeploy::state::parameters::NodeAddress;
use serde_json::{Value, json};

/// An installed cluster of 3 masters and 2 workers, and its API.
struct Life {
    site: Site,
    kube: FakeKube,
}

impl Life {
    fn new(network: u8) -> Self {
        Self::of(Site::new(network, ""))
    }

    fn of(site: Site) -> Self {
        let mut child = site.start(&[]);
        let kube = site.kube(&mut child, Stage::Installed);
        outcome(child).succeeded();
        // The same settings with short timeouts.
        let env = std::fs::read_to_string(site.sandbox.path().join("lab.sh")).unwrap();
        std::fs::write(
            site.sandbox.path().join("hasty.sh"),
            format!("{env}\ninstall_timeout=3s\n"),
        )
        .unwrap();
        Self { site, kube }
    }

    fn replace(&self, node: &str) -> Outcome {
        self.site.sandbox.run(&["node", "replace", "lab", node, "--yes"])
    }

    /// As `replace`, without waiting for long.
    fn replace_hastily(&self, node: &str) -> Outcome {
        let words = ["node", "replace", "lab", node, "--env", "hasty.sh", "--yes"];
        self.site.sandbox.run(&words)
    }

    /// When a node's machine was created.
    fn made(&self, node: &str) -> u64 {
        self.site.sandbox.state()["machines"][format!("lab-{node}")]["created_ms"]
            .as_u64()
            .unwrap()
    }

    fn node(&self, name: &str) -> NodeAddress {
        let table = self.site.sandbox.parameters("lab").unwrap();
        table.nodes.into_iter().find(|node| node.name.as_str() == name).unwrap()
    }

    /// Removes a master's member from etcd, as the user does.
    fn leave_etcd(&self, node: &str) {
        self.kube.with(|world| world.voting.remove(&host(node)).unwrap());
        self.etcd_says_so();
    }

    /// Waits until etcd's operator has published the members.
    fn etcd_says_so(&self) {
        let moment = self.kube.with(|world| world.moments());
        until(LONG, "etcd's operator", || {
            self.kube.with(|world| world.moments()) > moment + 1
        });
    }

    /// How many client certificates of a node that was off were approved.
    fn let_in(&self, node: &str) -> usize {
        let name = format!("csr-again-{node}");
        self.kube
            .with(|world| world.approved.iter().filter(|approved| **approved == name).count())
    }

    /// Ends the API; no request was approved that should not be.
    fn finish(self) {
        let world = self.kube.finish();
        assert_eq!(world.wrongly_approved(), [""; 0]);
    }
}

fn host(node: &str) -> String {
    format!("{node}.lab.example.com")
}

#[test]
fn a_machine_that_never_became_ready_is_replaced_by_a_second_replace() {
    let life = Life::new(20);
    life.kube.with(|world| world.sick.insert(host("worker-0")));
    let first = life.replace_hastily("worker-0");
    assert_eq!(first.code, Some(6), "{}", first.stderr);
    let stuck = life.made("worker-0");
    let second = life.replace_hastily("worker-0");
    assert_eq!(second.code, Some(6), "{}", second.stderr);
    let again = life.made("worker-0");
    assert_ne!(again, stuck, "the stuck machine was not replaced");

    // A replacement that became Ready is the requested one.
    life.kube.with(|world| world.sick.clear());
    until(LONG, "Ready", || {
        life.kube.with(|world| world.is_ready(&host("worker-0")))
    });
    life.replace("worker-0").succeeded();
    assert_eq!(life.made("worker-0"), again);
    life.replace("worker-0").succeeded();
    assert_ne!(life.made("worker-0"), again, "a Ready node is replaced on request");
    life.finish();
}

#[test]
fn a_replacement_interrupted_after_the_removal_only_creates_the_machine() {
    let life = Life::new(21);
    life.kube.with(|world| world.sick.insert(host("worker-1")));
    assert_eq!(life.replace_hastily("worker-1").code, Some(6));
    life.site.sandbox.edit(|world| {
        world["machines"]
            .as_object_mut()
            .unwrap()
            .remove("lab-worker-1")
            .unwrap();
    });
    life.kube.with(|world| {
        world.sick.clear();
        // An eviction of it would fail.
        world.put(
            PODS,
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": host("worker-1"), "containers": []},
            "metadata": {"name": "alone", "namespace": "shop"}, "status": {"phase": "Running"}}),
        );
    });
    life.replace("worker-1").succeeded();
    life.finish();
}

#[test]
fn masters_are_replaced_one_at_a_time_and_each_becomes_a_member_of_etcd() {
    let life = Life::new(22);
    until(LONG, "members", || life.kube.with(|world| world.voting.len()) == 3);
    life.etcd_says_so();
    let is_refused = |node: &str, why: &str| {
        let refused = life.replace(node);
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        assert!(refused.message().contains(why), "{why}\n{}", refused.stderr);
    };
    is_refused("master-1", "still is a member of etcd");
    is_refused(
        "master-1",
        "the other members are healthy: switch the machine off, then remove its member from etcd",
    );
    life.leave_etcd("master-1");
    life.leave_etcd("master-2");
    let (one, two) = (life.node("master-1"), life.node("master-2"));
    is_refused(
        "master-1",
        &format!("master-2 ({}) is not a voting member of etcd", two.ip),
    );
    is_refused("master-1", "repair these first, and remove no member");
    life.kube.with(|world| world.voting.insert(host("master-2"), two));
    life.etcd_says_so();

    // It is Ready, but only a learner.
    life.kube.with(|world| world.learners.insert(host("master-1")));
    let before = life.made("master-1");
    let late = life.replace_hastily("master-1");
    assert_eq!(late.code, Some(6), "{}", late.stderr);
    let why = format!(
        "timed out waiting for etcd members after 3 s; last status:\n  master-1 ({}) is not a voting member of etcd",
        one.ip
    );
    assert!(late.message().contains(&why), "{}", late.stderr);
    let made = life.made("master-1");
    assert_ne!(made, before);
    is_refused("master-2", "is not a voting member of etcd");

    life.kube.with(|world| world.learners.clear());
    life.replace("master-1").succeeded();
    assert_eq!(
        life.made("master-1"),
        made,
        "a node that was already Ready was waited for"
    );
    life.finish();
}

#[test]
fn an_arbiter_is_replaced_like_a_master_and_counts_for_the_quorum_of_etcd() {
    let site = Site::new(34, "masters=2\narbiter=1\nworkers=0\n");
    fake_installer::release(site.sandbox.path(), "4.22.0");
    let life = Life::of(site);
    until(LONG, "members", || life.kube.with(|world| world.voting.len()) == 3);
    life.etcd_says_so();
    let refused = life.replace("arbiter-0");
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(
        refused.message().contains("still is a member of etcd"),
        "{}",
        refused.stderr
    );
    for node in ["arbiter-0", "master-1"] {
        life.leave_etcd(node);
        let made = life.made(node);
        life.replace(node).succeeded();
        assert_ne!(life.made(node), made);
        assert!(life.kube.with(|world| world.voting.contains_key(&host(node))));
    }
    let config = life.site.sandbox.home().cluster("lab").ignition("arbiter-0");
    let config: Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
    let pointer = config["ignition"]["config"]["merge"][0]["source"].as_str().unwrap();
    assert!(pointer.ends_with(":22623/config/arbiter"), "{pointer}");
    // Without the arbiter, only one other member remains next to a master.
    life.leave_etcd("arbiter-0");
    life.leave_etcd("master-0");
    let refused = life.replace("master-0");
    assert!(
        refused.message().contains("arbiter-0") && refused.message().contains("is not a voting member of etcd"),
        "{}",
        refused.stderr
    );
    life.finish();
}

#[test]
fn a_started_cluster_is_ready_when_all_its_kubelets_report() {
    let life = Life::new(23);
    life.kube.with(|world| {
        world.certificates_ended = true;
        world.nobody_watches = true;
    });
    // A user's own cordon is kept.
    life.kube.with(|world| {
        world.edit(NODES, &host("worker-1"), |node| {
            node["spec"]["unschedulable"] = json!(true)
        });
    });
    life.site.sandbox.run(&["stop", "lab", "--force"]).succeeded();
    let nodes: Vec<NodeName> = [Role::Master, Role::Worker]
        .into_iter()
        .flat_map(|role| (0..if role == Role::Master { 3 } else { 2 }).map(move |index| NodeName::node(role, index)))
        .collect();
    let cordoned = || {
        let is_cordoned = |node: &&NodeName| {
            life.kube
                .with(|world| world.get(NODES, &host(node.as_str())).unwrap()["spec"]["unschedulable"] == json!(true))
        };
        nodes
            .iter()
            .filter(is_cordoned)
            .map(NodeName::as_str)
            .collect::<Vec<_>>()
    };
    assert_eq!(cordoned().len(), 5);
    until(LONG, "the end", || {
        let is_lost = |node: &NodeName| life.kube.with(|world| world.is_lost(&host(node.as_str())));
        nodes.iter().all(is_lost)
    });
    // The first start is interrupted after it has switched the machines on; the second finds them on.
    let mut child = life.site.sandbox.start(&["start", "lab"]);
    until(LONG, "the machines", || {
        let machines = life.site.sandbox.machines(None);
        machines.iter().all(|(_, machine)| machine["off"] == false)
    });
    child.kill().unwrap();
    outcome(child);
    let said = life
        .site
        .sandbox
        .run(&["start", "lab", "--timeout", "120s"])
        .succeeded();
    assert!(said.stdout.contains("its nodes are Ready"), "{}", said.stdout);
    for node in &nodes {
        assert_eq!(life.let_in(node.as_str()), 1, "{node} was not approved exactly once");
    }
    assert_eq!(cordoned(), ["worker-1"], "the user cordoned it");

    // `start` itself detects a machine that a user switched off.
    life.site
        .sandbox
        .edit(|world| world["machines"]["lab-master-0"]["off"] = json!(true));
    until(LONG, "its end", || {
        life.kube.with(|world| world.is_lost(&host("master-0")))
    });
    life.site
        .sandbox
        .run(&["start", "lab", "--timeout", "120s"])
        .succeeded();
    assert_eq!(life.let_in("master-0"), 2);

    // It does not detect one that went off and on before.
    life.site
        .sandbox
        .edit(|world| world["machines"]["lab-master-1"]["off"] = json!(true));
    until(LONG, "its end", || {
        life.kube.with(|world| world.is_lost(&host("master-1")))
    });
    life.site
        .sandbox
        .edit(|world| world["machines"]["lab-master-1"]["off"] = json!(false));
    let refused = life.site.sandbox.run(&["start", "lab", "--timeout", "8s"]);
    assert_eq!(refused.code, Some(6), "{}", refused.stderr);
    let why = "neither `stop` nor `start` saw the machine of master-1 powered off";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    assert_eq!(life.let_in("master-1"), 1);

    let journal = journal::read(&life.site.sandbox.home().cluster("lab").journal()).unwrap();
    let forgotten = journal.iter().filter(|entry| entry.step == "off").count();
    assert_eq!(
        forgotten, 3,
        "an observed stop counts only until the nodes are Ready again"
    );
    life.finish();
}

#[test]
fn a_restored_clusters_requests_are_approved_and_its_cordons_restored() {
    let life = Life::new(32);
    let sandbox = &life.site.sandbox;
    let save = ["snapshot", "save", "lab", "before", "--no-backup", "--timeout", "120s"];
    // Before the first rotation nothing is stopped, not even by force.
    let young = sandbox.run(&save);
    assert_eq!(young.code, Some(4), "{}", young.stderr);
    assert!(young.message().contains("must not be stopped yet"), "{}", young.stderr);
    assert!(!young.message().contains("--force"), "{}", young.stderr);
    life.site.age_assets(30);
    // Without the masters' SSH no backup, and without a backup no snapshot.
    let refused = sandbox.run(&save[..4]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let hint = "`ocpdeploy snapshot save lab before --no-backup`";
    assert!(refused.message().contains(hint), "{}", refused.stderr);
    let is_on = |(_, machine): &(String, Value)| machine["off"] == json!(false);
    assert!(sandbox.machines(Some("lab")).iter().all(is_on));

    let cordon = |node: &str, cordoned: bool| {
        life.kube.with(|world| {
            world.edit(NODES, &host(node), |node| {
                node["spec"]["unschedulable"] = json!(cordoned)
            });
        });
    };
    let nodes = ["master-0", "master-1", "master-2", "worker-0", "worker-1"];
    let cordoned = || -> Vec<&str> {
        let is_cordoned = |node: &&str| {
            life.kube
                .with(|world| world.get(NODES, &host(node)).unwrap()["spec"]["unschedulable"] == json!(true))
        };
        nodes.into_iter().filter(is_cordoned).collect()
    };
    cordon("worker-1", true);
    sandbox.run(&save).succeeded();
    assert_eq!(cordoned(), ["worker-1"], "the user cordoned it");

    // The restored etcd has the nodes as they were during their shutdown, and their certificates have expired since.
    nodes.iter().for_each(|node| cordon(node, true));
    life.kube.with(|world| {
        world.certificates_ended = true;
        world.nobody_watches = true;
    });
    let restore = ["snapshot", "restore", "lab", "before", "--yes", "--timeout", "120s"];
    let said = sandbox.run(&restore).succeeded();
    assert!(said.stdout.contains("its nodes are Ready"), "{}", said.stdout);
    assert_eq!(cordoned(), ["worker-1"], "the user cordoned it before it was saved");
    for node in nodes {
        assert!(life.let_in(node) <= 1, "{node} was approved twice");
    }
    let status = sandbox.run(&["status", "lab"]).succeeded().stdout;
    assert!(status.contains("restored at "), "{status}");
    life.finish();
}

#[test]
fn status_says_how_long_a_cluster_can_be_off() {
    let life = Life::new(33);
    let signer = |name: &str, year: i32, month: u8| {
        let signer = life.site.authority.server("signer", |params| {
            params.not_before = rcgen::date_time_ymd(2026, 11, 1);
            params.not_after = rcgen::date_time_ymd(year, month, 1);
        });
        json!({"metadata": {"name": name}, "data": {"tls.crt": STANDARD.encode(signer.certificate)}})
    };
    life.kube.with(|world| {
        world.put(SIGNERS, signer("csr-signer", 2026, 12));
        world.put(API_SIGNERS, signer("kube-apiserver-to-kubelet-signer", 2027, 11));
    });
    let status = || {
        let said = life.site.sandbox.run(&["status", "lab"]).succeeded().stdout;
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let running = "rotated; the cluster can be stopped, and started again before 2027-11-01T00:00:00Z";
    // `status` gives the API a few seconds; a busy machine may want more.
    until(LONG, running, || status().contains(running));
    // Rotated certificates need no force.
    life.site.sandbox.run(&["stop", "lab"]).succeeded();
    let status = status();
    for part in [
        "off since 20",
        "; start it before 2027-11-01T00:00:00Z",
        "; the nodes' certificates end by 2026-12-01T00:00:00Z, from then on `start` approves new ones",
    ] {
        assert!(status.contains(part), "{part}\n{status}");
    }
    life.finish();
}

/// Runs as root on a node: only the backup's script is not the real one.
const SUDO: &str = r#"#!/bin/sh
[ "$1" = -n ] && shift
[ "$1" = /usr/local/bin/cluster-backup.sh ] || exec "$@"
exec sh "${0%/*}/cluster-backup" "$2"
"#;

#[test]
fn etcd_is_saved_before_a_cluster_is_stopped() {
    let life = Life::new(30);
    let masters = ["master-0", "master-1", "master-2"].map(|name| life.node(name).ip);
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    std::fs::write(programs.join("sudo"), SUDO).unwrap();
    std::fs::set_permissions(programs.join("sudo"), Permissions::from_mode(0o755)).unwrap();
    let Some(sshd) = Sshd::start(folder.path(), &masters[1..], &programs) else {
        return;
    };
    let (saved, on_node) = (folder.path().join("saved"), folder.path().join("on-node"));
    let stop = || {
        let path = format!("{}:/usr/bin:/bin", sshd.tools.display());
        let mut command = life.site.sandbox.command(&["stop", "lab", "--force", "--backup"]);
        command.arg(&saved).env("PATH", path);
        outcome(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let is_off = || {
        let machines = life.site.sandbox.machines(None);
        machines.iter().all(|(_, machine)| machine["off"] == true)
    };
    let script = |end: &str| {
        let on_node = on_node.display();
        let text = format!(
            "echo \"$1\" > {on_node}\necho secret > $1/static_kuberesources_2026-01-02_030405.tar.gz\n\
             db=$1/snapshot_2026-01-02_030405.db\nhead -c 1024 /dev/urandom > $db\n{end}\n"
        );
        std::fs::write(programs.join("cluster-backup"), text).unwrap();
    };
    let signed = "sha256sum $db | head -c 64 | sed 's/../\\\\x&/g' | xargs -0 printf >> $db";
    for (end, why) in [
        ("echo certificate has expired >&2\nexit 1", "certificate has expired"),
        (
            "yes",
            "read the output of /usr/local/bin/cluster-backup.sh: it is longer than 1048576 bytes",
        ),
        ("head -c 32 /dev/zero >> $db", "its own checksum differs"),
        (
            &format!("{signed}\necho more > $1/notes"),
            "instead of a snapshot and the static resources",
        ),
    ] {
        script(end);
        let refused = stop();
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        for part in ["no backup of etcd of cluster lab", "\n  master-0: cannot log in", why] {
            assert!(refused.stderr.contains(part), "{part}\n{}", refused.stderr);
        }
        assert!(!is_off(), "it was stopped without a backup");
        assert_eq!(
            std::fs::read_dir(&saved).unwrap().count(),
            0,
            "an incomplete backup remains"
        );
    }
    script(signed);
    stop().succeeded();
    assert!(is_off());
    let mut files: Vec<_> = std::fs::read_dir(&saved).unwrap().map(|file| file.unwrap()).collect();
    files.sort_by_key(|file| file.file_name());
    let names: Vec<_> = files.iter().map(|file| file.file_name()).collect();
    assert_eq!(
        names,
        [
            "snapshot_2026-01-02_030405.db",
            "static_kuberesources_2026-01-02_030405.tar.gz"
        ]
    );
    for file in &files {
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600, "{file:?}");
    }
    let left = std::fs::read_to_string(&on_node).unwrap();
    assert!(!Path::new(left.trim_end()).exists(), "{left} remains on the master");
    // It is off: nothing can be saved.
    assert!(stop().stderr.contains("all machines are off"));
    life.finish();
}

/// What a cluster's nodes have of a static pod: its image.
fn image_of(life: &Life, role: &str, pod: &str) -> String {
    let config = life.kube.with(|world| {
        world
            .get(MACHINE_CONFIGS, &format!("99-{role}-ocpdeploy"))
            .unwrap()
            .clone()
    });
    let files = config["spec"]["config"]["storage"]["files"].as_array().unwrap();
    let path = format!("/etc/kubernetes/manifests/ocpdeploy-{pod}.yaml");
    let file = files.iter().find(|file| file["path"] == *path).unwrap();
    let data = file["contents"]["source"].as_str().unwrap().rsplit_once(',').unwrap().1;
    let text = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
    let pod: Value = serde_json::from_str(&text).unwrap();
    pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

#[test]
fn nodes_of_releases_without_disruption_policies_reboot_when_a_worker_leaves() {
    let life = Life::new(28);
    let run = |words: &[&str]| life.site.sandbox.run(words).succeeded();
    life.kube.with(|world| {
        world.edit(VERSIONS, "version", |version| {
            version["status"]["history"] = json!([entry("4.16.3", "4163", true)])
        })
    });
    let scaled = run(&["scale", "lab", "--workers", "1", "--yes"]);
    assert!(
        scaled.stdout.contains("one by one, with a reboot of each"),
        "{}",
        scaled.stdout
    );
    let (rebooting, policies) = life
        .kube
        .with(|world| (world.rebooting.clone(), world.get(CONFIGURATIONS, "cluster").cloned()));
    assert_eq!(rebooting, ["99-master-ocpdeploy", "99-worker-ocpdeploy"]);
    assert_eq!(policies.unwrap()["spec"].get("nodeDisruptionPolicy"), None);
    life.finish();
}

#[test]
fn an_updated_cluster_gets_the_images_of_its_release() {
    let life = Life::new(27);
    let run = |words: &[&str]| life.site.sandbox.run(words);
    let history = |entries: Vec<Value>| {
        life.kube.with(|world| {
            world.edit(VERSIONS, "version", |version| {
                version["status"]["history"] = json!(entries)
            })
        });
    };
    let images = ["4190", "4199", "4201"].map(|digest| format!("registry.example.com/ocp/release@sha256:{digest}"));
    std::fs::write(life.site.sandbox.path().join("oc.images"), images.join(" ")).unwrap();
    let old = entry("4.19.0", "4190", true);
    run(&["verify", "lab"]).succeeded();

    // Not during an update; then the update is complete, and the pods have old images.
    history(vec![entry("4.19.9", "4199", false), old.clone()]);
    let refused = run(&["renew", "lab"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(
        refused.message().contains("is being updated to 4.19.9"),
        "{}",
        refused.stderr
    );
    run(&["verify", "lab"]).succeeded();
    history(vec![entry("4.19.9", "4199", true), old.clone()]);
    let behind = run(&["verify", "lab"]);
    assert_eq!(behind.code, Some(1), "{}", behind.stderr);
    let told = "have the images of 4.19.0, the cluster runs 4.19.9: `ocpdeploy renew lab`";
    assert!(behind.stdout.contains(told), "{}", behind.stdout);

    let renewed = run(&["renew", "lab"]).succeeded();
    insta::assert_snapshot!("renewed", renewed.stdout);
    for (role, pod) in [
        ("master", "haproxy"),
        ("master", "keepalived"),
        ("worker", "keepalived"),
    ] {
        let image = image_of(&life, role, pod);
        assert!(image.ends_with("4199"), "{role} {pod}: {image}");
    }
    // The policy comes first, or the nodes reboot.
    let applied = life.kube.with(|world| world.applied.clone());
    assert_eq!(
        applied,
        [
            "MachineConfiguration",
            "99-master-ocpdeploy",
            "99-worker-ocpdeploy",
            "default"
        ]
    );
    run(&["verify", "lab"]).succeeded();
    let again = run(&["renew", "lab"]).succeeded();
    assert!(again.stdout.contains("nothing was changed"), "{}", again.stdout);

    // Later changes have the same images.
    let scaled = run(&["scale", "lab", "--workers", "1", "--yes"]).succeeded();
    assert!(image_of(&life, "worker", "keepalived").ends_with("4199"));
    assert!(
        scaled.stdout.contains("one by one, without reboots"),
        "{}",
        scaled.stdout
    );
    assert_eq!(life.kube.with(|world| world.rebooting.clone()), [""; 0]);

    // An operator that does not accept the policy: nothing else is changed.
    life.kube.with(|world| {
        world.policies_ignored = true;
        world.edit(CONFIGURATIONS, "cluster", |configuration| {
            configuration["status"] = json!({})
        });
    });
    history(vec![entry("4.20.1", "4201", true), entry("4.19.9", "4199", true), old]);
    let applied = life.kube.with(|world| world.applied.len());
    let waited = run(&["renew", "lab", "--env", "hasty.sh"]);
    assert_eq!(waited.code, Some(6), "{}", waited.stderr);
    assert!(
        waited.message().contains("no policy for /etc/kubernetes/manifests"),
        "{}",
        waited.stderr
    );
    assert_eq!(life.kube.with(|world| world.applied.len()), applied);
    life.kube.with(|world| world.policies_ignored = false);
    run(&["renew", "lab"]).succeeded();
    assert!(image_of(&life, "master", "haproxy").ends_with("4201"));
    life.finish();
}
