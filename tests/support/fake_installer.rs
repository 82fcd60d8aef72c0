//! Fakes of openshift-install and oc with the files that a real installation requires, and the CA of its API.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ocpdeploy::cluster::NodeName;
use serde_json::Value;

use super::fake_kube::authority::Authority;
use super::sandbox::pretend_platform;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n";

/// The settings that name these files.
pub const LINES: &str = "installer=openshift-install\npull_secret=pull-secret.json\npub_key=key.pub\n";

/// One that the fake of `oc` accepts.
pub const PULL_SECRET: &str = r#"{"auths":{"a.example.com":{"auth":"Zm9vOmJhcg=="}}}"#;

/// Puts the programs and their files into a folder, and returns the CA of cluster `lab`.
pub fn install(folder: &Path) -> Authority {
    programs(folder);
    let authority = Authority::new();
    let kubeconfig = authority.kubeconfig("lab", "https://api.lab.example.com:6443");
    for (name, text) in [
        ("kubeconfig", kubeconfig.as_bytes()),
        ("pull-secret.json", PULL_SECRET.as_bytes()),
        ("root-ca.crt", authority.pem().as_bytes()),
        ("key.pub", KEY.as_bytes()),
        ("node.qcow2", b"QFI\xfb a node"),
        ("helper.qcow2", b"QFI\xfb a helper"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    authority
}

/// The programs alone.
pub fn programs(folder: &Path) {
    for program in ["openshift-install", "oc"] {
        let fake = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(program);
        symlink(fake, folder.join(program)).unwrap();
    }
}

/// Makes the programs those of another release, such as `4.22.0`.
pub fn release(folder: &Path, version: &str) {
    std::fs::write(folder.join("version"), version).unwrap();
    let image = format!("registry.example.com/ocp/release@sha256:{}", version.replace('.', ""));
    std::fs::write(folder.join("oc.images"), image).unwrap();
}

/// Whether a node's machine of pass two is on, from the simulated platform's file.
pub fn is_on(file: PathBuf) -> Box<dyn Fn(&NodeName) -> bool + Send> {
    // Read again only when it has changed: this is called hundreds of times a second.
    let seen = std::cell::RefCell::new((None, Value::Null));
    Box::new(move |node| {
        let now = std::fs::metadata(&file)
            .ok()
            .map(|file| (file.len(), file.modified().unwrap()));
        let (then, state) = &mut *seen.borrow_mut();
        if *then != now {
            (*then, *state) = (now, pretend_platform(&file).unwrap_or_default());
        }
        let machine = &state["machines"][format!("lab-{node}")];
        machine["pass"] == "two" && machine["off"] != true
    })
}
