//! Images of nodes, pulled through this computer's registry cache by skopeo in the guest, which reads the node's own
//! files in their places.

use std::process::Command;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::local::registry::RegistryDirectory;
use ocpdeploy::state::registry_cache::CacheDir;
use serde_json::{Value, json};

use super::cluster::Nodes;
use super::{text, until};
use crate::support::fake_installer;
use crate::support::fake_registry::{FakeRegistry, Image};

/// Where the lab's guests reach this computer.
const ADDRESS: &str = "192.168.122.1";
const LOGIN: &str = "me:secret";
const SOON: Duration = Duration::from_secs(120);

/// The anchors are those of CoreOS, where `update-ca-trust` merges them into one file.
const PULL: &str = "cat /etc/pki/ca-trust/source/anchors/* >/run/anchors.pem\n\
                    rm -rf /var/tmp/pulled\n\
                    SSL_CERT_FILE=/run/anchors.pem skopeo --insecure-policy copy --quiet \\\n\
                    --authfile /var/lib/kubelet/config.json docker://IMAGE dir:/var/tmp/pulled\n";

/// The upstream registry and its images.
pub(super) struct Pulls {
    pub(super) upstream: FakeRegistry,
    first: Image,
    second: Image,
    dir: CacheDir,
}

impl Drop for Pulls {
    fn drop(&mut self) {
        if let Ok(Some(cache)) = self.dir.read() {
            for registry in &cache.registries {
                let _ = RegistryDirectory(self.dir.registry(registry)).stop();
            }
        }
    }
}

impl Pulls {
    /// Starts the upstream registry, which the guests reach as well, and a cache of it.
    pub(super) fn new(nodes: &mut Nodes) -> Self {
        let upstream = FakeRegistry::start_at(ADDRESS, ADDRESS, LOGIN);
        let mut secret: Value = serde_json::from_str(fake_installer::PULL_SECRET).unwrap();
        secret["auths"][upstream.host()] = json!({"auth": STANDARD.encode(LOGIN)});
        std::fs::write(nodes.path("pull-secret.json"), secret.to_string()).unwrap();
        let trusted = nodes.path("upstream.pem");
        std::fs::write(&trusted, &upstream.certificate).unwrap();
        nodes.lab.around.push(format!("SSL_CERT_FILE={}", trusted.display()));
        let env = nodes.lab.env(&nodes.name);
        let repository = format!("{}/ocp", upstream.host());
        let env = env.to_str().unwrap();
        nodes.run(&["cache", "up", env, "--address", ADDRESS, "--repository", &repository]);
        let pulls = Self {
            first: upstream.add_image("ocp/release", &[2_000_000, 100_000]),
            second: upstream.add_image("ocp/art", &[4_000_000]),
            upstream,
            dir: CacheDir::of(&nodes.lab.home()),
        };
        assert_eq!(pulls.upstream.sent(), 0);
        pulls
    }

    /// The script that pulls an image.
    fn script(&self, image: &Image) -> String {
        PULL.replace("IMAGE", &format!("{}/{}", self.upstream.host(), image.name))
    }

    pub(super) fn fill(&self, nodes: &Nodes) {
        nodes.on(&nodes.node("master-0"), &self.script(&self.first));
        let cached = || self.status(nodes)["registries"][0]["bytes"].as_u64() >= Some(self.first.bytes);
        until("the cache has the image", SOON, cached);
    }

    pub(super) fn pull_without_upstream(&self, nodes: &Nodes) {
        let sent = self.upstream.sent();
        nodes.on(&nodes.node("master-0"), &self.script(&self.first));
        assert_eq!(self.upstream.sent(), sent, "bytes from upstream");
    }

    pub(super) fn kill_the_cache_in_the_middle(&self, nodes: &Nodes) {
        nodes.run(&["cache", "up"]);
        let (master, script, sent) = (nodes.node("master-0"), self.script(&self.second), self.upstream.sent());
        self.upstream.hold_above(1_000_000);
        thread::scope(|scope| {
            let pull = scope.spawn(|| nodes.try_on(&master, &script));
            until("half of the layer", SOON, || self.upstream.sent() > sent + 1_900_000);
            let cache = self.dir.read().unwrap().unwrap();
            let process = std::fs::read(self.dir.registry(&cache.registries[0]).join("process.json")).unwrap();
            let process: Value = serde_json::from_slice(&process).unwrap();
            let killed = Command::new("kill").args(["-9", &process["pid"].to_string()]).status();
            assert!(killed.unwrap().success());
            let cut = pull.join().unwrap();
            assert!(!cut.status.success(), "{}", text(&cut.stderr));
        });
        self.upstream.hold_above(usize::MAX);
        assert_eq!(self.status(nodes)["registries"][0]["state"], "stopped");
        // The kubelet repeats a pull that fails.
        nodes.on(&master, &script);
    }

    fn status(&self, nodes: &Nodes) -> Value {
        serde_json::from_str(&nodes.run(&["cache", "status", "--format", "json"])).unwrap()
    }
}
