//! Whole rehearsals of the program on a real libvirt with real guests, checked with `virsh`.
//!
//! `tests/lab/test.sh` runs these where the guests can be reached, after building their images.

#![cfg(feature = "libvirt")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::cluster::without_ids;
use crate::support::left_out::left_out;
use ocpdeploy::state::home::Home;
use ocpdeploy::state::parameters::Parameters;

const DOMAIN: &str = "example.com";

/// A state folder and env files for clusters with unique names.
pub(super) struct Lab {
    pub(super) uri: String,
    pub(super) folder: tempfile::TempDir,
    mark: String,
    /// The command that runs the program, e.g. as another user; empty: none.
    pub(super) around: Vec<String>,
}

impl Lab {
    pub(super) fn new() -> Self {
        let uri = std::env::var("OCPDEPLOY_LAB_URI").expect("OCPDEPLOY_LAB_URI names the libvirt to test on");
        let folder = tempfile::tempdir().unwrap();
        Self {
            uri,
            folder,
            mark: format!("tp{}", std::process::id()),
            around: Vec::new(),
        }
    }

    pub(super) fn home(&self) -> Home {
        Home::new(self.folder.path().join("home"))
    }

    /// A user's config with one entry of each kind, to compare the guests with.
    fn fragment(&self) -> PathBuf {
        let path = self.folder.path().join("extra.ign");
        let config = serde_json::json!({
            "ignition": {"version": "3.1.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQ== mine"]}]},
            "storage": {"files": [{"path": "/etc/mine", "mode": 384, "contents": {"source": "data:,mine"}}]},
            "systemd": {"units": [
                {"name": "mine.service", "enabled": true,
                    "contents": "[Service]\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n"},
                {"name": "kubelet.service", "dropins": [{"name": "90-mine.conf", "contents": "[Service]\nNice=1\n"}]},
            ]},
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Writes the env file of a cluster with this many masters and workers; returns its name.
    pub(super) fn cluster(&self, name: &str, masters: usize, workers: usize) -> String {
        let cluster = format!("{}{name}", self.mark);
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/images");
        let text = format!(
            "cluster={cluster}\ndomain={DOMAIN}\nbackend=libvirt\nlibvirt_uri={}\nlibvirt_virt_type=qemu\n\
             masters={masters}\nworkers={workers}\nimages_dir={}\nignition_extra={}\n",
            self.uri,
            images.display(),
            self.fragment().display()
        );
        std::fs::write(self.env(&cluster), text).unwrap();
        cluster
    }

    pub(super) fn env(&self, cluster: &str) -> PathBuf {
        self.folder.path().join(format!("{cluster}.sh"))
    }

    pub(super) fn start(&self, arguments: &[&str]) -> Child {
        let program = env!("CARGO_BIN_EXE_ocpdeploy").to_owned();
        let mut words = self.around.iter().chain([&program]);
        Command::new(words.next().unwrap())
            .args(words)
            .args(arguments)
            .env("OCPDEPLOY_HOME", self.home().root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub(super) fn start_deploy(&self, cluster: &str) -> Child {
        self.start(&["deploy", self.env(cluster).to_str().unwrap(), "--rehearse"])
    }

    pub(super) fn destroy(&self, cluster: &str) {
        succeeded(self.start(&["destroy", cluster, "--yes"]));
    }

    pub(super) fn parameters(&self, cluster: &str) -> Option<Parameters> {
        Parameters::read(&self.home().cluster(cluster).parameters()).unwrap()
    }

    pub(super) fn virsh(&self, arguments: &[&str]) -> String {
        let output = Command::new("virsh")
            .args(["-q", "-c", &self.uri])
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "virsh {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn domains(&self, cluster: &str) -> Vec<String> {
        let all = self.virsh(&["list", "--all", "--name"]);
        let prefix = format!("{cluster}-");
        all.split_whitespace()
            .filter(|name| name.starts_with(&prefix))
            .map(str::to_owned)
            .collect()
    }

    /// All objects of the host that contain a cluster's name: domains, volumes, reservations and DNS records.
    pub(super) fn inventory(&self, cluster: &str) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = self.domains(cluster).into_iter().collect();
        self.virsh(&["pool-refresh", "default"]);
        all.extend(self.virsh(&["vol-list", "default"]).lines().map(str::to_owned));
        for flags in [
            &["net-dumpxml", "default"][..],
            &["net-dumpxml", "default", "--inactive"],
        ] {
            all.extend(
                self.virsh(flags)
                    .lines()
                    .map(|line| format!("{} {line}", flags.join(" "))),
            );
        }
        all.retain(|thing| thing.contains(cluster));
        all
    }

    /// Kills a deployment (SIGKILL) once `moment` holds.
    fn kill_deployment(&self, cluster: &str, moment: impl Fn() -> bool) {
        let mut child = self.start_deploy(cluster);
        awaited(&mut child, "the moment", || moment().then_some(()));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None, "it was not killed");
    }
}

impl Drop for Lab {
    /// A failed test leaves no guests.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for cluster in self.home().cluster_names().unwrap_or_default() {
                let _ = self.start(&["destroy", &cluster, "--yes"]).wait_with_output();
            }
        }
    }
}

/// Waits for an event of a running deployment.
#[track_caller]
pub(super) fn awaited<T>(run: &mut Child, what: &str, look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert_eq!(run.try_wait().unwrap(), None, "it ended before {what}");
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}: not in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for the end, which must be a success, and returns the output.
#[track_caller]
pub(super) fn succeeded(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs the lab"]
fn three_clusters_at_once_share_nothing_and_are_destroyed_one_by_one() {
    let lab = Lab::new();
    let clusters = ["a", "a-2", "b"].map(|name| lab.cluster(name, 1, 1));
    let runs: Vec<_> = clusters.iter().map(|cluster| lab.start_deploy(cluster)).collect();
    for run in runs {
        let table = succeeded(run);
        assert_eq!(table.matches(" yes ").count(), 3, "a guest is not as planned:\n{table}");
    }

    let tables = clusters
        .each_ref()
        .map(|cluster| lab.parameters(cluster).expect("a parameter file"));
    let leases: Vec<_> = tables.iter().flat_map(Parameters::leases).collect();
    let ips: BTreeSet<_> = leases.iter().map(|lease| lease.ip).collect();
    let macs: BTreeSet<_> = leases.iter().map(|lease| lease.mac).collect();
    let vrids: BTreeSet<_> = tables
        .iter()
        .flat_map(|table| [table.virtual_router_id, table.ingress_virtual_router_id])
        .collect();
    assert_eq!((ips.len(), macs.len(), vrids.len()), (15, 15, 6));

    // `…a-2` begins with the name of `…a`: destroying one must not see the other.
    let others: Vec<_> = clusters[1..].iter().map(|cluster| lab.inventory(cluster)).collect();
    lab.destroy(&clusters[0]);
    for (cluster, before) in clusters[1..].iter().zip(others) {
        assert_eq!(lab.inventory(cluster), before);
    }
    for cluster in &clusters[1..] {
        lab.destroy(cluster);
    }
    assert_eq!(lab.inventory(&lab.mark), BTreeSet::new());
    assert_eq!(lab.home().cluster_names().unwrap(), [""; 0]);
}

#[test]
#[ignore = "needs the lab"]
fn killed_in_either_pass_the_same_command_finishes() {
    let lab = Lab::new();
    let cluster = lab.cluster("k", 1, 0);
    lab.kill_deployment(&cluster, || lab.domains(&cluster).len() >= 2);
    assert!(
        lab.domains(&cluster).iter().all(|name| name.contains("-harvest-")),
        "it is in pass one"
    );
    lab.kill_deployment(&cluster, || {
        lab.domains(&cluster).iter().any(|name| !name.contains("-harvest-"))
    });
    let table = lab.parameters(&cluster).expect("pass one was over");

    let printed = succeeded(lab.start_deploy(&cluster));
    assert_eq!(printed.matches(" yes ").count(), 2, "{printed}");
    assert_eq!(lab.parameters(&cluster), Some(table), "the addresses are kept");
    assert_eq!(lab.domains(&cluster), [format!("{cluster}-master-0")]);
    lab.destroy(&cluster);
    assert_eq!(lab.inventory(&lab.mark), BTreeSet::new());
}

/// Xorshift: the same moments for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        bound.mul_f64((self.0 % 1_000_000) as f64 / 1e6)
    }
}

impl Lab {
    /// Kills this command up to `kills` times, at moments within `long`, each time starting it again; returns how often.
    fn kill_at_random(&self, arguments: &[&str], kills: usize, long: Duration, chance: &mut Chance) -> usize {
        for killed in 0..kills {
            let mut child = self.start(arguments);
            // Runs differ most at their start: every second kill is early.
            let bound = if killed % 2 == 0 { long } else { long / 10 };
            std::thread::sleep(chance.below(bound));
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            if let Some(code) = output.status.code() {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(
                    code == 0 || said.contains("in the state directory"),
                    "{arguments:?}: {said}"
                );
                return killed;
            }
        }
        kills
    }

    /// The host's objects of a cluster, without addresses and MACs, which differ from run to run.
    fn shape(&self, cluster: &str) -> BTreeSet<String> {
        let named = |thing: String| {
            let cut = |mark: &str, end: char| Some(thing.split_once(mark)?.1.split(end).next()?.to_owned());
            let name = cut("name='", '\'')
                .or_else(|| cut("<hostname>", '<'))
                .unwrap_or(thing.clone());
            // virsh pads its tables.
            let words: Vec<_> = name.split_whitespace().collect();
            let words = words.join(" ").replace(cluster, "CLUSTER");
            without_ids(&words, &format!("CLUSTER.{DOMAIN}"))
        };
        self.inventory(cluster).into_iter().map(named).collect()
    }
}

/// `OCPDEPLOY_KILLS` sets the number of kills: each resumption takes seconds (`make reliability`).
#[test]
#[ignore = "needs the lab"]
fn killed_at_random_moments_a_deployment_has_the_same_result() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(wanted) = number("OCPDEPLOY_KILLS") else {
        left_out("OCPDEPLOY_KILLS says how many kills");
        return;
    };
    let seed = number("OCPDEPLOY_SEED").unwrap_or_else(|| jiff::Timestamp::now().as_microsecond().unsigned_abs());
    println!("reliability seed: OCPDEPLOY_SEED={seed}");
    let mut chance = Chance(seed | 1);
    let lab = Lab::new();
    let uncut = lab.cluster("u", 1, 0);
    let begun = Instant::now();
    succeeded(lab.start_deploy(&uncut));
    let deploys = begun.elapsed();
    let expected = lab.shape(&uncut);
    let begun = Instant::now();
    lab.destroy(&uncut);
    let destroys = begun.elapsed();

    let mut kills = 0;
    for round in 0.. {
        if kills >= wanted as usize {
            break;
        }
        let cluster = lab.cluster(&format!("r{round}"), 1, 0);
        let env = lab.env(&cluster).display().to_string();
        let deploy = ["deploy", env.as_str(), "--rehearse"];
        kills += lab.kill_at_random(&deploy, 12, deploys / 2, &mut chance);
        let printed = succeeded(lab.start_deploy(&cluster));
        assert_eq!(printed.matches(" yes ").count(), 2, "seed {seed}: {printed}");
        assert_eq!(lab.shape(&cluster), expected, "seed {seed}, {cluster}");
        kills += lab.kill_at_random(&["destroy", &cluster, "--yes"], 3, destroys, &mut chance);
        let ended = lab.start(&["destroy", &cluster, "--yes"]).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(
            ended.status.success() || said.contains("no cluster"),
            "seed {seed}: {said}"
        );
        assert_eq!(lab.inventory(&cluster), BTreeSet::new(), "seed {seed}, {cluster}");
        println!("{kills} kills after {} s", begun.elapsed().as_secs());
    }
    assert_eq!(lab.inventory(&lab.mark), BTreeSet::new());
    assert_eq!(lab.home().cluster_names().unwrap(), [""; 0]);
    println!("reliability: {kills} kills at random moments on libvirt");
    println!("reliability: 0 objects left");
}

/// An address on the host's side of the network, like that of another machine.
struct Squatter(&'static str);

impl Squatter {
    fn new(address: &'static str) -> Self {
        let squatter = Self(address);
        assert!(squatter.ip("add"), "{address} can be added to virbr0");
        squatter
    }

    fn ip(&self, operation: &str) -> bool {
        let done = Command::new("ip")
            .args(["address", operation, &format!("{}/32", self.0), "dev", "virbr0"])
            .status();
        done.unwrap().success()
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        self.ip("delete");
    }
}

#[test]
#[ignore = "needs the lab"]
fn a_virtual_ip_in_use_is_rejected_before_anything_is_created() {
    let lab = Lab::new();
    let cluster = lab.cluster("v", 1, 0);
    let taken = Squatter::new("192.168.122.251");
    let deploy = |api_ip: &str| {
        let env = lab.env(&cluster);
        let setting = format!("api_ip={api_ip}");
        let run = lab.start(&["deploy", env.to_str().unwrap(), "--rehearse", "--set", &setting]);
        run.wait_with_output().unwrap()
    };
    for (api_ip, words) in [
        (taken.0, "api 192.168.122.251 is in use by another machine"),
        ("192.168.122.1", "192.168.122.1 is the gateway"),
        ("192.168.122.255", "192.168.122.255 is the network or broadcast address"),
        ("192.168.123.9", "192.168.123.9 is outside the machine network"),
    ] {
        let output = deploy(api_ip);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(lab.inventory(&lab.mark), BTreeSet::new());
        assert_eq!(lab.home().cluster_names().unwrap(), [""; 0]);
    }
}

impl Lab {
    /// The exit code and output of a deployment with these settings, which must fail.
    fn fails(&self, cluster: &str, settings: &[&str]) -> (Option<i32>, String) {
        let env = self.env(cluster);
        let mut arguments = vec!["deploy", env.to_str().unwrap(), "--rehearse"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let output = self.start(&arguments).wait_with_output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    /// The first running machine of the cluster whose name contains `part`, once there is one.
    fn running(&self, run: &mut Child, cluster: &str, part: &str) -> String {
        awaited(run, part, || {
            let all = self.virsh(&["list", "--state-running", "--name"]);
            let of_cluster = |name: &&str| name.starts_with(&format!("{cluster}-")) && name.contains(part);
            all.split_whitespace().find(of_cluster).map(str::to_owned)
        })
    }
}

/// The setting of a directory with one of the images of the rehearsal, and an empty disk in place of the other.
fn images_with(lab: &Lab, good: &str, empty: &str) -> String {
    let images = lab.folder.path().join("images");
    std::fs::create_dir(&images).unwrap();
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/images").join(good);
    std::os::unix::fs::symlink(built, images.join(good)).unwrap();
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .arg(images.join(empty))
        .arg("64M")
        .status();
    assert!(made.unwrap().success());
    format!("images_dir={}", images.display())
}

#[test]
#[ignore = "needs the lab"]
fn a_node_that_never_booted_is_not_ok_by_its_lease_of_pass_one() {
    let lab = Lab::new();
    let cluster = lab.cluster("o", 1, 0);
    let folder = images_with(&lab, "helper.qcow2", "coreos.qcow2");
    let (code, said) = lab.fails(&cluster, &[&folder, "address_timeout=10s"]);
    assert_eq!(code, Some(6), "{said}");
    // Another process, while the leases of pass one are valid.
    let status = lab.start(&["status", &cluster]).wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&status.stdout);
    assert_eq!(shown.matches("running, but has no DHCP lease").count(), 2, "{shown}");
    assert!(!shown.contains("  ok"), "{shown}");
    lab.destroy(&cluster);
    assert_eq!(lab.inventory(&lab.mark), BTreeSet::new());
}

#[test]
#[ignore = "needs the lab"]
fn a_guest_that_never_boots_is_reported_with_its_console_and_leaves_nothing() {
    let lab = Lab::new();
    let cluster = lab.cluster("n", 1, 0);
    let folder = images_with(&lab, "coreos.qcow2", "helper.qcow2");
    let (code, said) = lab.fails(&cluster, &[&folder, "harvest_timeout=10s"]);
    assert_eq!(code, Some(6), "{said}");
    for words in [
        "2 machines of 2 without the expected address",
        "is running, but has no DHCP lease",
        "hint: the machines are kept",
    ] {
        assert!(said.contains(words), "`{words}` in: {said}");
    }
    lab.destroy(&cluster);
    assert_eq!(lab.inventory(&lab.mark), BTreeSet::new());
}

#[test]
#[ignore = "needs the lab"]
fn a_guest_that_is_paused_is_reported_at_once_and_leaves_nothing() {
    let lab = Lab::new();
    let cluster = lab.cluster("p", 1, 0);
    let mut run = lab.start_deploy(&cluster);
    let paused = lab.running(&mut run, &cluster, "-harvest-");
    lab.virsh(&["suspend", &paused]);
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains(&format!("{paused} is paused")), "{said}");
    lab.destroy(&cluster);
    assert_eq!(lab.inventory(&lab.mark), BTreeSet::new());
}

#[test]
#[ignore = "needs the lab"]
fn guests_that_go_down_by_themselves_are_started_again_in_either_pass() {
    let lab = Lab::new();
    let cluster = lab.cluster("d", 1, 0);
    let mut run = lab.start_deploy(&cluster);
    for part in ["-harvest-".to_owned(), format!("{cluster}-master-0")] {
        let name = lab.running(&mut run, &cluster, &part);
        lab.virsh(&["destroy", &name]);
    }
    let printed = succeeded(run);
    assert_eq!(printed.matches(" yes ").count(), 2, "{printed}");
    assert_eq!(lab.domains(&cluster), [format!("{cluster}-master-0")]);
    lab.destroy(&cluster);
    assert_eq!(lab.inventory(&lab.mark), BTreeSet::new());
}
