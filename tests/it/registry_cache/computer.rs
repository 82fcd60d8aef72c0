//! A computer with a registry cache, and an upstream registry.

use crate::support::cluster::deployment;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use ocpdeploy::cluster::ClusterConfig;
use ocpdeploy::local::registry::content;
use ocpdeploy::settings::{self, Sources};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::registry_cache::{CacheDir, RegistryCache};
use serde_json::{Value, json};

use crate::support::fake_registry::{FakeRegistry, Image};
use crate::support::until::{LONG, until};

/// The credentials for the upstream registry. Nodes of OpenShift have them, too.
pub const LOGIN: &str = "me:canary-of-the-pull-secret";
const LOGIN_BASE64: &str = "bWU6Y2FuYXJ5LW9mLXRoZS1wdWxsLXNlY3JldA==";

/// A computer with a cache; its processes end with it.
pub struct Computer(tempfile::TempDir);

impl Drop for Computer {
    fn drop(&mut self) {
        self.command(&["cache", "down"]).output().unwrap();
    }
}

impl Computer {
    pub fn new(upstream: &FakeRegistry) -> Self {
        let computer = Self(tempfile::tempdir().unwrap());
        let secret = json!({"auths": {upstream.host(): {"auth": LOGIN_BASE64}}});
        computer.write("pull.json", &secret.to_string());
        computer.write("upstream.pem", &upstream.certificate);
        computer.write(
            "key.pub",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n",
        );
        let env = "cluster=lab\ndomain=example.com\nbackend=sim\npull_secret=pull.json\npub_key=key.pub\n";
        computer.write("env.sh", env);
        computer
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn program(&self) -> Vec<PathBuf> {
        vec![env!("CARGO_BIN_EXE_ocpdeploy").into()]
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.prepared(
            &[
                &self.program()[..],
                &arguments.iter().map(PathBuf::from).collect::<Vec<_>>(),
            ]
            .concat(),
        )
    }

    pub fn prepared(&self, arguments: &[PathBuf]) -> Command {
        let mut command = Command::new(&arguments[0]);
        command
            .args(&arguments[1..])
            .current_dir(self.0.path())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.0.path())
            .env("OCPDEPLOY_HOME", self.path("state"))
            .env("OCPDEPLOY_CANARY", "canary-of-the-environment")
            .env("SSL_CERT_FILE", self.path("upstream.pem"));
        command
    }

    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        succeeded(self.command(arguments).output().unwrap())
    }

    /// The arguments of the first `cache up`.
    pub fn up(&self, upstream: &FakeRegistry) -> Vec<String> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        self.up_at(upstream, free)
    }

    pub fn up_at(&self, upstream: &FakeRegistry, port: u16) -> Vec<String> {
        let repository = format!("{}/ocp", upstream.host());
        let port = port.to_string();
        let words = [
            "cache",
            "up",
            "--address",
            "127.0.0.1",
            "--port",
            &port,
            "--repository",
            &repository,
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Starts the cache for the first time; what that prints.
    pub fn start(&self, upstream: &FakeRegistry) -> String {
        let words = self.up(upstream);
        self.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn dir(&self) -> CacheDir {
        CacheDir::of(&Home::new(self.path("state")))
    }

    pub fn cache(&self) -> RegistryCache {
        self.dir().read().unwrap().unwrap()
    }

    /// The configuration of a cluster that is deployed now.
    pub fn cluster(&self, name: &str) -> ClusterConfig {
        self.cluster_with(name, &[])
    }

    /// As `cluster`, with these settings.
    pub fn cluster_with(&self, name: &str, settings: &[(&str, &str)]) -> ClusterConfig {
        let env = fs::read_to_string(self.path("env.sh")).unwrap();
        let settings = settings.iter();
        let flags = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let sources = Sources {
            env_file: Some((
                self.path("env.sh"),
                env.replace("cluster=lab", &format!("cluster={name}")),
            )),
            environment: Default::default(),
            flags: flags.collect(),
            current_dir: self.0.path().to_owned(),
            home: self.path("state"),
            rehearse: false,
            allow_downgrade: false,
            deployment: deployment(),
            read_file: &|path| fs::read_to_string(path),
            is_file: &Path::is_file,
            is_dir: &Path::is_dir,
        };
        settings::load(&sources).unwrap().config
    }

    /// Each registry's state.
    pub fn state(&self) -> String {
        let status: Value = serde_json::from_str(&self.run(&["cache", "status", "--format", "json"])).unwrap();
        assert_eq!(status["registries"].as_array().unwrap().len(), 1, "{status}");
        status["registries"][0]["state"].as_str().unwrap().to_owned()
    }

    /// The folder of the cache's content.
    pub fn storage(&self) -> PathBuf {
        let cache = self.cache();
        cache.storage.join(cache.registries[0].folder_name())
    }

    /// Waits until the cache has stored these layers of an image: with distribution 2 a node has them before.
    pub fn stored(&self, image: &Image, layers: &[String]) {
        let (storage, repository) = (self.storage(), image.name.split('@').next().unwrap());
        until(LONG, "the layers", || {
            layers.iter().all(|layer| content::has(&storage, repository, layer))
        });
    }

    /// Kills the cache's process, as a power failure does.
    pub fn kill(&self) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        until(LONG, "its end", || self.state() == "stopped");
    }

    pub fn pid(&self) -> u32 {
        let folder = self.dir().registry(&self.cache().registries[0]);
        let process: Value = serde_json::from_slice(&fs::read(folder.join("process.json")).unwrap()).unwrap();
        process["pid"].as_u64().unwrap().try_into().unwrap()
    }
}

/// The output of a command, which must succeed.
#[track_caller]
pub fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", failed(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All that it has printed.
pub fn failed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// The bytes from upstream once there are no more: a registry may continue fetches in the background.
pub fn settled(upstream: &FakeRegistry) -> u64 {
    let mut sent = upstream.sent();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        match upstream.sent() {
            now if now == sent => return sent,
            now => sent = now,
        }
    }
}
