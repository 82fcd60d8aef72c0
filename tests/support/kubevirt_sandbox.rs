//! A folder from which clusters are deployed on the fake KubeVirt: by the program, and by the library.
#![allow(dead_code, reason = "each test takes what it needs")]

use crate::support::cluster::{deployment, without_ids};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ocpdeploy::backend::BackendError;
use ocpdeploy::backend::kubevirt::Kubevirt;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::cluster::{BackendConfig, ClusterConfig};
use ocpdeploy::passes::{self, DeployOptions, Deployed};
use ocpdeploy::settings::{self, Sources};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::inventory::Known;
use ocpdeploy::state::parameters::Parameters;
use serde_json::Value;

use super::faulty::no_guest_probe;

use crate::support::fake_kubevirt::world::Fault;
use crate::support::fake_kubevirt::{FakeKubevirt, World};

pub const DOMAIN: &str = "example.com";

pub struct Sandbox {
    pub server: FakeKubevirt,
    folder: tempfile::TempDir,
}

impl Sandbox {
    pub fn new(world: World) -> Self {
        let server = FakeKubevirt::start(world);
        let folder = tempfile::tempdir().unwrap();
        for image in ["coreos.qcow2", "helper.qcow2"] {
            std::fs::write(folder.path().join(image), image).unwrap();
        }
        let sandbox = Self { server, folder };
        for tenant in ["blue", "red"] {
            let path = sandbox.kubeconfig(tenant);
            sandbox.server.kubeconfig(&path, &format!("{tenant}-token"), tenant);
        }
        sandbox
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn kubeconfig(&self, tenant: &str) -> PathBuf {
        self.path().join(format!("{tenant}.kubeconfig"))
    }

    pub fn home(&self) -> Home {
        Home::new(self.path().join("home"))
    }

    /// Writes the env file of a cluster of tenant blue with these lines after the usual ones.
    pub fn env(&self, cluster: &str, lines: &str) -> PathBuf {
        let path = self.path().join(format!("{cluster}.sh"));
        let mut text = format!("cluster={cluster}\ndomain={DOMAIN}\nbackend=kubevirt\n");
        for (name, value) in [
            ("kubevirt_kubeconfig", self.kubeconfig("blue").display().to_string()),
            ("network", "lan".to_owned()),
            ("machine_network", "10.7.0.0/24".to_owned()),
            ("images_dir", self.path().display().to_string()),
        ] {
            // Has a range of its own.
            let is_on_pods = name == "machine_network" && lines.contains("network=pod");
            if !is_on_pods && !lines.lines().any(|line| line.starts_with(&format!("{name}="))) {
                text += &format!("{name}={value}\n");
            }
        }
        std::fs::write(&path, text + lines + "\n").unwrap();
        path
    }

    pub fn config(&self, cluster: &str) -> ClusterConfig {
        let path = self.path().join(format!("{cluster}.sh"));
        let text = std::fs::read_to_string(&path).unwrap();
        let sources = Sources {
            env_file: Some((path, text)),
            environment: BTreeMap::from([("HOME".to_owned(), self.path().display().to_string())]),
            flags: BTreeMap::new(),
            current_dir: self.path().to_owned(),
            home: self.home().root().to_owned(),
            rehearse: true,
            allow_downgrade: false,
            deployment: deployment(),
            read_file: &|path| std::fs::read_to_string(path),
            is_file: &Path::is_file,
            is_dir: &Path::is_dir,
        };
        let mut config = settings::load(&sources)
            .unwrap_or_else(|error| panic!("{error}"))
            .config;
        if let Some(known) = Known::read(&self.home().cluster(cluster)).unwrap() {
            config.deployment = known.deployment;
        }
        config
    }

    /// Deploys with the library, without probes of guests.
    pub fn deploy(&self, cluster: &str) -> anyhow::Result<Deployed> {
        let config = self.config(cluster);
        runtime().block_on(async {
            let backend = far(&config).await?.for_at_most(Duration::ZERO);
            passes::deploy(&backend, &config, &self.home(), DeployOptions::default()).await
        })
    }

    /// As `deploy`, but waits for an unreachable server, as the program does.
    pub fn deploy_patiently(&self, cluster: &str) -> anyhow::Result<Deployed> {
        let config = self.config(cluster);
        runtime().block_on(async {
            let backend = far(&config).await?;
            passes::deploy(&backend, &config, &self.home(), DeployOptions::default()).await
        })
    }

    /// Deploys with the library until this many changes were made; returns whether there were that many.
    pub fn cut(&self, cluster: &str, changes: usize) -> bool {
        let config = self.config(cluster);
        self.cut_during(cluster, changes, async |backend, home| {
            passes::deploy(backend, &config, home, DeployOptions::default())
                .await
                .map(drop)
        })
    }

    /// Calls the library until this many changes were made; returns whether there were that many.
    pub fn cut_during(
        &self,
        cluster: &str,
        changes: usize,
        work: impl AsyncFnOnce(&Platforms, &Home) -> anyhow::Result<()>,
    ) -> bool {
        let config = self.config(cluster);
        let change = |silent_after| self.server.with(|world| world.silent_after = silent_after);
        change(self.server.with(|world| world.changes) + changes);
        let was_cut = runtime().block_on(async {
            let backend = far(&config).await.unwrap().for_at_most(Duration::ZERO);
            let home = self.home();
            let silence = async {
                while !self.server.with(|world| world.changes >= world.silent_after) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::select! {
                done = work(&backend, &home) => {
                    done.unwrap();
                    false
                }
                () = silence => true,
            }
        });
        change(usize::MAX);
        was_cut
    }

    /// Calls the library, without probes of guests.
    pub fn far<T>(
        &self,
        cluster: &str,
        work: impl AsyncFnOnce(&Platforms, &Home) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let config = self.config(cluster);
        runtime().block_on(async {
            let platforms = far(&config).await?.for_at_most(Duration::ZERO);
            work(&platforms, &self.home()).await
        })
    }

    /// Methods and kinds of all requests that have changed something in namespace blue.
    fn kinds_of_changes(&self) -> BTreeSet<(&'static str, String)> {
        const WRITES: [&str; 4] = ["POST", "PATCH", "PUT", "DELETE"];
        let asked = self.server.with(|world| world.asked.clone());
        let mut all = BTreeSet::new();
        for line in asked.iter().filter(|line| line.contains("/namespaces/blue/")) {
            let (method, path) = line.split_once(' ').unwrap();
            // Up to the kind: names and verbs follow.
            let mut parts: Vec<&str> = path.split('/').collect();
            let kind = parts.iter().position(|part| *part == "blue").unwrap() + 1;
            parts.truncate(kind + 1);
            if let Some(method) = WRITES.into_iter().find(|write| *write == method) {
                all.insert((method, parts.join("/")));
            }
        }
        all
    }

    /// Deploys until it succeeds, while each kind of change that `untouched` has made fails twice: before it is done, and
    /// after, when only the answer is lost.
    pub fn deploy_through_faults(&self, cluster: &str, untouched: &Self) {
        let mut kinds = untouched.kinds_of_changes();
        // Requested only if two requests coincide.
        kinds.retain(|(method, path)| !(*method == "PATCH" && path.ends_with("configmaps")));
        let faults = kinds.iter().flat_map(|(method, path)| {
            [false, true].map(|done| Fault {
                method,
                path: path.clone(),
                code: 500,
                done,
            })
        });
        self.server.with(|world| world.faults = faults.collect());
        let mut cut = 0;
        while let Err(error) = self.deploy(cluster) {
            cut += 1;
            println!("{error:#}");
            assert!(cut <= 2 * kinds.len(), "it never ends");
        }
        assert!(cut > 10, "only {cut} runs were interrupted");
        self.server
            .with(|world| assert!(world.faults.is_empty(), "{:?}", world.faults));
    }

    /// Calls the backend as tenant blue.
    pub fn on_backend<T>(&self, work: impl AsyncFnOnce(&Kubevirt) -> T) -> T {
        self.env("backend", "");
        let config = self.config("backend");
        runtime().block_on(async { work(&connected(&config).await.unwrap()).await })
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("OCPDEPLOY_HOME", self.home().root())
            .current_dir(self.path());
        command
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.start(arguments).wait_with_output().unwrap()
    }

    /// Destroys a cluster with the program.
    #[track_caller]
    pub fn destroy(&self, cluster: &str) {
        let destroyed = self.run(&["destroy", cluster, "--yes"]);
        assert!(
            destroyed.status.success(),
            "{}",
            String::from_utf8_lossy(&destroyed.stderr)
        );
    }

    /// Runs the program and kills it (SIGKILL) once `moment` holds.
    pub fn kill(&self, arguments: &[&str], moment: impl Fn(&World) -> bool) {
        let mut child = self.start(arguments);
        let begin = Instant::now();
        while !self.server.with(|world| moment(world)) {
            assert!(child.try_wait().unwrap().is_none(), "it ended before the moment came");
            assert!(begin.elapsed() < Duration::from_secs(60), "the moment did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn parameters(&self, cluster: &str) -> Parameters {
        Parameters::read(&self.home().cluster(cluster).parameters())
            .unwrap()
            .expect("a parameter file")
    }

    /// All objects of a namespace, without the parts that differ from run to run.
    pub fn inventory(&self, namespace: &str) -> Vec<String> {
        self.server.with(|world| {
            let here = world
                .objects
                .keys()
                .filter(|(kind, of, _)| of == namespace && *kind != "network-attachment-definitions");
            here.map(|(kind, _, name)| without_ids(&format!("{kind}/{name}"), DOMAIN))
                .collect()
        })
    }

    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Value {
        self.server.with(|world| {
            let found = world
                .all(plural)
                .into_iter()
                .find(|((_, of, called), _)| of == namespace && called == name);
            found.map(|(_, object)| Value::clone(&object)).unwrap_or_default()
        })
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

async fn connected(config: &ClusterConfig) -> Result<Kubevirt, BackendError> {
    let BackendConfig::Kubevirt(kubevirt) = &config.backend else {
        panic!("{:?}", config.backend);
    };
    Kubevirt::connect(kubevirt).await
}

/// KubeVirt without probes of guests: the fake ones have no network.
async fn far(config: &ClusterConfig) -> Result<Platforms, BackendError> {
    Ok(no_guest_probe(connected(config).await?, Duration::from_millis(40)))
}

/// Runs kubectl as tenant blue.
pub fn kubectl(sandbox: &Sandbox, arguments: &[&str]) -> (bool, String) {
    let output = Command::new("kubectl")
        .args(arguments)
        .env("KUBECONFIG", sandbox.kubeconfig("blue"))
        .env("HOME", sandbox.path())
        .output()
        .expect("this test needs kubectl: apt-get install kubernetes-client");
    let said = if output.status.success() {
        output.stdout
    } else {
        [output.stdout, output.stderr].concat()
    };
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// The program's messages for these settings; exit code first.
pub fn told(sandbox: &Sandbox, lines: &str) -> String {
    sandbox.env("lab", lines);
    let output = sandbox.run(&["deploy", "lab.sh", "--rehearse"]);
    let text = String::from_utf8(output.stderr).unwrap();
    let message = text.find("error: ").map_or("", |at| &text[at..]);
    let message = message.replace(&sandbox.path().display().to_string(), "<place>");
    // Both images are uploaded in parallel, and either may fail first.
    let message = message
        .replace("helper.qcow2", "<image>")
        .replace("coreos.qcow2", "<image>");
    let message = message.replace(&sandbox.server.address.port().to_string(), "<port>");
    // Other operations are running when one fails.
    let there = message
        .split("existing objects: ")
        .nth(1)
        .and_then(|text| text.lines().next());
    let message = there.map_or(message.clone(), |there| message.replace(there, "<objects>"));
    format!("exit code {}\n{message}", output.status.code().unwrap_or(-1))
}

/// `verb resource namespace` of these Roles in the documentation.
pub fn documented(roles: &[usize], namespace: &str) -> Vec<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/how-to/kubevirt.md")).unwrap();
    let words = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    };
    let mut rights = Vec::new();
    for index in roles {
        let role = text
            .split("```yaml\n")
            .nth(index + 1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        let role: Value = serde_saphyr::from_str(role).unwrap();
        for rule in role["rules"].as_array().unwrap() {
            for resource in words(&rule["resources"]) {
                rights.extend(
                    words(&rule["verbs"])
                        .iter()
                        .map(|verb| format!("{verb} {resource} {namespace}")),
                );
            }
        }
    }
    rights
}
