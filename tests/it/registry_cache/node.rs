//! The bootstrap and a master of a cluster, and what they pull.
//!
//! skopeo pulls in their place, from the files in their Ignition configs. It copies images by the library of CRI-O, which
//! reads these files (cri-o/cri-o: `go.mod`, `internal/storage/image.go`; containers/skopeo: `cmd/skopeo/copy.go`; both
//! call `copy.Image` of containers/image).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ocpdeploy::cluster::{ClusterConfig, InstallerChoice, NodeName, Role};
use ocpdeploy::digest::sha256;
use ocpdeploy::ignition::contents::{self, Contents, data_url};
use ocpdeploy::node::config::NodeConfigs;
use ocpdeploy::node::host::HostParts;
use ocpdeploy::openshift::installer::Installer;
use ocpdeploy::state::home::Home;
use serde_json::{Value, json};

use super::computer::{Computer, failed};
use crate::support::cluster;
use crate::support::fake_installer;
use crate::support::fake_registry::Image;
use crate::support::left_out::no_judge;

/// Whether the registry and skopeo are installed.
pub fn is_installed() -> bool {
    let is_there = |names: &[&str]| names.iter().any(|name| Path::new("/usr/bin").join(name).exists());
    if is_there(&["docker-registry", "registry"]) && is_there(&["skopeo"]) {
        return true;
    }
    no_judge("docker-registry and skopeo are not installed");
    false
}

/// A machine by the files of its Ignition config.
pub struct Node {
    files: BTreeMap<String, Vec<u8>>,
    folder: tempfile::TempDir,
}

/// The bootstrap and a master of a cluster that is deployed from this computer.
pub fn nodes(computer: &Computer, config: &ClusterConfig) -> [Node; 2] {
    let folder = tempfile::tempdir().unwrap();
    fake_installer::programs(folder.path());
    let dir = Home::new(folder.path().join("home")).cluster(&config.name);
    dir.create().unwrap();
    let mut config = config.clone();
    config.installer = InstallerChoice::OpenshiftInstall(Some(folder.path().join("openshift-install")));
    let parameters = cluster::parameters(&config, Ipv4Addr::new(192, 0, 2, 10));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let installer = Installer::choose(&config).unwrap();
    let assets = runtime
        .block_on(installer.make_assets(&config, &parameters, &[], &dir))
        .unwrap();
    let roles = [Role::Bootstrap, Role::Master];
    let installed = roles.map(|role| (role, assets.read(role).unwrap()));
    let mut all = NodeConfigs::new(&config, &parameters, &installed.into(), &[], &HostParts::default()).unwrap();
    all.serve(Role::Master, &served(&folder.path().join("node-images.json")))
        .unwrap();
    [
        (NodeName::bootstrap(), Role::Bootstrap),
        (NodeName::node(Role::Master, 0), Role::Master),
    ]
    .map(|(name, role)| Node::new(&all.node_config(&name, role).unwrap(), computer))
}

/// What the machine config server serves, from the paths and texts of its files.
fn served(path: &Path) -> Vec<u8> {
    let texts: BTreeMap<String, String> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let file = |(path, text): (&String, &String)| {
        let source = data_url(text.as_bytes());
        json!({"overwrite": true, "path": path, "mode": 0o600, "contents": {"source": source}})
    };
    let files: Vec<_> = texts.iter().map(file).collect();
    json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files}})
        .to_string()
        .into_bytes()
}

impl Node {
    /// The computer's certificate of the upstream registry is a public one, which CoreOS has.
    fn new(config: &[u8], computer: &Computer) -> Self {
        let config: Value = serde_json::from_slice(config).unwrap();
        let files = config["storage"]["files"].as_array().unwrap().iter();
        let content = |file: &Value| match contents::of(&file["contents"]) {
            Ok(Contents::Bytes(bytes)) => bytes,
            _ => Vec::new(),
        };
        let mut files: BTreeMap<_, _> = files
            .map(|file| (file["path"].as_str().unwrap().to_owned(), content(file)))
            .collect();
        files.insert(PUBLIC.to_owned(), fs::read(computer.path("upstream.pem")).unwrap());
        Self {
            files,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Without the certificates that the cluster trusts.
    pub fn without_trust(&mut self) {
        self.files
            .retain(|path, _| path == PUBLIC || !path.starts_with(ANCHORS));
    }

    /// Writes one of the files for skopeo.
    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// skopeo with the node's files, which is to copy an image into the folder `pulled`.
    pub fn pulling(&self, image: &str) -> Command {
        // `podman pull` of the bootstrap (openshift/installer: `data/data/bootstrap/files/usr/local/bin`), and CRI-O of a
        // node (openshift/machine-config-operator: `crio.yaml` in `templates/master/01-master-container-runtime`).
        let secrets = ["/root/.docker/config.json", "/var/lib/kubelet/config.json"];
        let secret = secrets.iter().find_map(|path| self.files.get(*path)).unwrap();
        let anchors = self.files.iter().filter(|(path, _)| path.starts_with(ANCHORS));
        let anchors: Vec<u8> = anchors.flat_map(|(_, content)| content).copied().collect();
        let pulled = self.folder.path().join("pulled");
        if pulled.exists() {
            fs::remove_dir_all(&pulled).unwrap();
        }
        let mut command = match rustix::process::geteuid().is_root() {
            // As root it would note in /var/lib/containers where it has seen which layer.
            true => {
                let mut command = Command::new("unshare");
                command.args([
                    "-m",
                    "sh",
                    "-c",
                    "mount -t tmpfs none /var/lib && exec \"$@\"",
                    "sh",
                    "skopeo",
                ]);
                command
            }
            false => Command::new("skopeo"),
        };
        command
            .arg("--registries-conf")
            .arg(self.write("registries.conf", &self.files["/etc/containers/registries.conf"]))
            .args(["--insecure-policy", "copy", "--quiet", "--authfile"])
            .arg(self.write("auth.json", secret))
            .arg(format!("docker://{image}"))
            .arg(format!("dir:{}", pulled.display()))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.folder.path())
            // What `update-ca-trust` makes of them.
            .env("SSL_CERT_FILE", self.write("tls-ca-bundle.pem", &anchors))
            .env("SSL_CERT_DIR", "/nonexistent")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Pulls an image. Its layers are compared with their digests, here as well.
    pub fn pull(&self, host: &str, image: &Image) -> Result<(), String> {
        let output = self.pulling(&format!("{host}/{}", image.name)).output().unwrap();
        if !output.status.success() {
            return Err(failed(&output));
        }
        let pulled = fs::read_dir(self.folder.path().join("pulled")).unwrap();
        let pulled: BTreeSet<_> = pulled
            .map(|entry| format!("sha256:{}", sha256(fs::read(entry.unwrap().path()).unwrap())))
            .collect();
        assert!(image.layers.iter().all(|layer| pulled.contains(layer)), "{pulled:?}");
        Ok(())
    }
}

const ANCHORS: &str = "/etc/pki/ca-trust/source/anchors/";
const PUBLIC: &str = "/etc/pki/ca-trust/source/anchors/public.pem";
