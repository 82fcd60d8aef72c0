//! Nodes as processes with a network, a process table and a file system of their own, on one bridge. Needs root.
//!
//! Nodes leave nothing outside: a node is its first process, and everything on it ends with it, also when the
//! test panics or is killed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ocpdeploy::node::host::HostParts;

/// The first process of a node, with a private `/etc`, `/usr/local/bin` and `/run`.
const FIRST_PROCESS: &str = r#"
set -eu
mount -t tmpfs tmpfs /mnt
for folder in /etc /usr/local/bin; do
    mkdir -p /mnt/upper$folder /mnt/work$folder
    mount -t overlay overlay -o lowerdir=$folder,upperdir=/mnt/upper$folder,workdir=/mnt/work$folder $folder
done
mount -t tmpfs tmpfs /run
ip link set lo up
echo ready
exec sleep infinity
"#;

/// A process that keeps namespaces, in which others are started.
struct Namespaces {
    child: Child,
    started: Mutex<Vec<Child>>,
}

impl Namespaces {
    fn new() -> Self {
        // It ends with this thread, and its namespaces with it.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args([
                "unshare",
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["bash", "-c", FIRST_PROCESS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "this test needs root");
        let started = Mutex::default();
        Self { child, started }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let pid = self.pid();
        let mut command = Command::new("nsenter");
        command
            .args([format!("--target={pid}"), "--net".to_owned(), "--mount".to_owned()])
            .arg(format!("--pid=/proc/{pid}/ns/pid_for_children"))
            .args(["--wd=/", "--"])
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    fn sh(&self, script: &str) -> Output {
        self.command(&["bash", "-c", script]).output().unwrap()
    }

    /// Starts a process whose output is added to a file; it ends with these namespaces.
    fn start(&self, arguments: &[&str], output: &Path) {
        let file = File::options().create(true).append(true).open(output).unwrap();
        let mut command = self.command(arguments);
        command.stdout(file.try_clone().unwrap()).stderr(file);
        self.started.lock().unwrap().push(command.spawn().unwrap());
    }

    #[track_caller]
    fn done(&self, script: &str) -> String {
        let output = self.sh(script);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        for child in self.started.get_mut().into_iter().flatten() {
            child.wait().ok();
        }
    }
}

/// A bridge, and a namespace on it from which tests observe the nodes.
pub struct Wire {
    namespaces: Namespaces,
    ports: AtomicUsize,
}

impl Wire {
    /// `address` with its prefix length is the test's own on the bridge.
    pub fn new(address: &str) -> Self {
        let namespaces = Namespaces::new();
        // Without a fixed MAC, a bridge takes the lowest of its ports': each new node may change it, and those
        // that know the old one cannot reach it for seconds.
        namespaces.done(&format!(
            "ip link add br0 address 02:00:00:00:00:01 type bridge && ip addr add {address} dev br0 && \
             ip link set br0 up"
        ));
        let ports = AtomicUsize::new(0);
        Self { namespaces, ports }
    }

    /// The output of a shell in this namespace, and whether it succeeded.
    pub fn sh(&self, script: &str) -> (bool, String) {
        let output = self.namespaces.sh(script);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), text)
    }

    /// Starts a process here; its output goes to a file.
    pub fn start(&self, arguments: &[&str], output: &Path) {
        self.namespaces.start(arguments, output);
    }
}

/// A machine on a wire.
pub struct Node {
    pub name: String,
    pub ip: IpAddr,
    logs: PathBuf,
    namespaces: Option<Namespaces>,
    /// Once it is off, its process id may be reused.
    is_on: Arc<AtomicBool>,
}

impl Node {
    /// A machine whose NIC `nic` has the address; its processes log to `logs`.
    pub fn new(wire: &Wire, name: &str, ip: IpAddr, prefix: u8, logs: &Path) -> Self {
        let namespaces = Namespaces::new();
        let port = wire.ports.fetch_add(1, Ordering::Relaxed);
        let pid = namespaces.pid();
        wire.namespaces.done(&format!(
            "ip link add p{port} type veth peer name nic{port} && ip link set p{port} master br0 up"
        ));
        // From outside: in the wire's process table, the node has no process id.
        let moved = Command::new("nsenter")
            .args([&format!("--target={}", wire.namespaces.pid()), "--net", "--"])
            .args([
                "ip",
                "link",
                "set",
                &format!("nic{port}"),
                "netns",
                &pid.to_string(),
                "name",
                "nic",
            ])
            .output()
            .unwrap();
        assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
        let nodad = if ip.is_ipv6() { " nodad" } else { "" };
        namespaces.done(&format!(
            "ip addr add {ip}/{prefix} dev nic{nodad} && ip link set nic up"
        ));
        Self {
            name: name.to_owned(),
            ip,
            logs: logs.to_owned(),
            namespaces: Some(namespaces),
            is_on: Arc::new(AtomicBool::new(true)),
        }
    }

    fn namespaces(&self) -> &Namespaces {
        self.namespaces.as_ref().expect("the node is on")
    }

    /// Cuts the power.
    pub fn cut(&mut self) {
        self.is_on.store(false, Ordering::Relaxed);
        self.namespaces = None;
    }

    /// Runs a shell on the node, which must succeed.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        self.namespaces().done(script)
    }

    /// Starts a process; what it prints goes to the log of this name.
    pub fn start(&self, log: &str, arguments: &[&str]) {
        self.namespaces().start(arguments, &self.log_file(log));
    }

    fn log_file(&self, log: &str) -> PathBuf {
        self.logs.join(format!("{}-{log}.log", self.name))
    }

    /// The output of a process of `start`.
    pub fn log(&self, log: &str) -> String {
        fs::read_to_string(self.log_file(log)).unwrap_or_default()
    }

    /// Writes files and starts what a CoreOS would start: enabled services, and pods as processes.
    ///
    /// A pod's container has the host's network and finds the host's folders at their own paths, so its command
    /// runs as it is.
    pub fn boot(&self, parts: &HostParts) {
        let root = PathBuf::from(format!("/proc/{}/root", self.namespaces().pid()));
        for file in &parts.files {
            let path = root.join(file.path.strip_prefix('/').unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &file.content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(file.mode)).unwrap();
        }
        for file in &parts.files {
            if file.path.starts_with("/etc/kubernetes/manifests/") {
                self.run_pod(&file.content);
            }
        }
        for unit in parts.units.iter().filter(|unit| unit.enabled == Some(true)) {
            let contents = unit.contents.as_deref().unwrap();
            // Units of other kinds, such as paths, start nothing by themselves.
            if let Some(command) = contents.lines().find_map(|line| line.strip_prefix("ExecStart=")) {
                self.start(&unit.name, &command.split(' ').collect::<Vec<_>>());
            }
        }
    }

    fn run_pod(&self, manifest: &str) {
        let pod: serde_json::Value = serde_saphyr::from_str(manifest).unwrap();
        let spec = &pod["spec"];
        assert_eq!(spec["hostNetwork"], true);
        let path_of = |name: &serde_json::Value| {
            let volumes = spec["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|volume| volume["name"] == *name).unwrap();
            volume["hostPath"]["path"].clone()
        };
        for container in spec["containers"].as_array().unwrap() {
            for mount in container["volumeMounts"].as_array().unwrap() {
                assert_eq!(mount["mountPath"], path_of(&mount["name"]));
                self.sh(&format!("mkdir -p {}", mount["mountPath"].as_str().unwrap()));
            }
            let words = container["command"].as_array().unwrap().iter();
            let command: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
            self.start(container["name"].as_str().unwrap(), &command);
        }
    }

    /// Whether an address is on one of its interfaces.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.namespaces
            .as_ref()
            .is_some_and(|namespaces| has(namespaces.pid(), ip))
    }
}

/// Whether the network of a process has an address, from the kernel's own table; false when the process has ended.
fn has(pid: u32, ip: IpAddr) -> bool {
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    match ip {
        IpAddr::V4(ip) => {
            let (table, leaf) = (table("fib_trie"), format!("|-- {ip}"));
            let mut lines = table.lines().map(str::trim);
            lines.any(|line| line == leaf) && lines.next() == Some("/32 host LOCAL")
        }
        IpAddr::V6(ip) => {
            let address = format!("{:032x} ", ip.to_bits());
            table("if_inet6").lines().any(|line| line.starts_with(&address))
        }
    }
}

/// Checks ten times a second which nodes have an address.
pub struct Watch {
    stop: Arc<AtomicBool>,
    looks: Arc<Mutex<Vec<Look>>>,
}

/// When, and the names of those who had it.
type Look = (Instant, Vec<String>);

impl Watch {
    pub fn new<'a>(nodes: impl IntoIterator<Item = &'a Node>, ip: IpAddr) -> Self {
        let nodes = nodes.into_iter();
        let nodes = nodes.map(|node| (node.name.clone(), node.namespaces().pid(), Arc::clone(&node.is_on)));
        let nodes: Vec<_> = nodes.collect();
        let look = move || -> Vec<String> {
            let holders = nodes
                .iter()
                .filter(|(_, pid, is_on)| is_on.load(Ordering::Relaxed) && has(*pid, ip));
            holders.map(|(name, ..)| name.clone()).collect()
        };
        let (stop, looks) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let watch = Self {
            stop: Arc::clone(&stop),
            looks: Arc::clone(&looks),
        };
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let mut holders = look();
                // A scan takes time: an address that moved during it is not on two nodes.
                if holders.len() > 1 {
                    holders = look();
                }
                looks.lock().unwrap().push((Instant::now(), holders));
                std::thread::sleep(Duration::from_millis(90));
            }
        });
        watch
    }

    /// Who had the address, one after the other; the looks that saw it at two at once, and the longest time
    /// between two looks. What is so now has been looked at.
    pub fn holders(&self) -> (Vec<String>, usize, Duration) {
        std::thread::sleep(Duration::from_millis(300));
        let looks = self.looks.lock().unwrap();
        let mut one_by_one: Vec<String> = looks
            .iter()
            .filter_map(|(_, holders)| holders.first().cloned())
            .collect();
        one_by_one.dedup();
        let doubles = looks.iter().filter(|(_, holders)| holders.len() > 1).count();
        let times = looks.iter().map(|(time, _)| *time);
        let gaps = times.clone().skip(1).chain([Instant::now()]).zip(times);
        (
            one_by_one,
            doubles,
            gaps.map(|(later, time)| later - time).max().unwrap_or(Duration::MAX),
        )
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
