//! oVirt's own SDK and image daemon as references; `tests/ovirt/install.sh` puts them into `target/ovirt-sdk`.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::fake_engine::FakeEngine;
use crate::support::left_out::no_judge;

/// The installed SDK.
pub struct Sdk {
    bin: PathBuf,
}

impl Sdk {
    /// `None` when it is not installed.
    pub fn find() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let bin = root.join("target/ovirt-sdk/bin");
        if root.join("target/ovirt-sdk/installed").exists() {
            return Some(Self { bin });
        }
        no_judge("oVirt's SDK is not installed: run tests/ovirt/install.sh");
        None
    }

    pub fn imageio(&self) -> PathBuf {
        self.bin.join("ovirt-imageio")
    }

    /// Runs one of the scripts in `tests/ovirt`; returns its output.
    pub fn run(&self, script: &str, arguments: &[&str]) -> Result<String, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = Command::new(self.bin.join("python"))
            .arg("-B")
            .arg(root.join("tests/ovirt").join(script))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!("{}{}", text(&output.stdout), text(&output.stderr))),
        }
    }

    /// Runs `ansible-playbook` of this version of ansible-core with oVirt's collection in this folder; returns its output.
    pub fn ansible(
        &self,
        core: &str,
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, String)],
    ) -> Result<String, String> {
        let bin = self.bin.join(format!("../ansible-{core}/bin"));
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new(bin.join("ansible-playbook"))
            .args(arguments)
            .env_clear()
            // Another Python than the one of Ansible comes first, as on computers of users.
            .env("PATH", path)
            .env("HOME", folder)
            .env("LC_ALL", "C.UTF-8")
            .env("ANSIBLE_LOCAL_TEMP", folder.join("ansible"))
            .env("ANSIBLE_REMOTE_TEMP", folder.join("ansible"))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    /// Lets the SDK drive an engine through everything that it can do there.
    pub fn drive(&self, engine: &FakeEngine) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (ca, image) = (folder.path().join("ca.pem"), folder.path().join("image.qcow2"));
        std::fs::write(&ca, &engine.ca_pem).unwrap();
        std::fs::write(&image, small_qcow2()).unwrap();
        let arguments = [engine.url.as_str(), ca.to_str().unwrap(), image.to_str().unwrap()];
        self.run("scenario.py", &arguments)
            .unwrap_or_else(|why| panic!("{why}"))
    }

    /// Compares recorded requests with those of the SDK for the same operations; returns their number, or the differences.
    pub fn compare(&self, requests: &serde_json::Value) -> Result<String, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(requests.to_string().as_bytes()).unwrap();
        self.run("echo.py", &[file.path().to_str().unwrap()])
    }
}

/// Fails if a request to an engine differs from the SDK's; there must be at least `at_least` different requests.
#[track_caller]
pub fn judge(engine: &FakeEngine, at_least: usize) {
    let Some(sdk) = Sdk::find() else { return };
    let mut seen = BTreeSet::new();
    let mut different = engine.recorded();
    // Queries are repeated, and each request has its own number.
    different.as_array_mut().unwrap().retain(|request| {
        let mut request = request.clone();
        if let Some(query) = request["query"].as_object_mut() {
            query.remove("correlation_id");
        }
        seen.insert(request.to_string())
    });
    match sdk.compare(&different) {
        Err(differences) => panic!("{differences}"),
        Ok(words) => {
            let compared = words.split(' ').next().and_then(|word| word.parse::<usize>().ok());
            assert!(compared >= Some(at_least), "{words}");
            let _ = write!(std::io::stderr(), "{words}");
        }
    }
}

/// An empty qcow2 image of 64 MiB, with as many bytes as a disk's blocks hold.
pub fn small_qcow2() -> Vec<u8> {
    let mut image = vec![0; 5 << 16];
    image[..4].copy_from_slice(b"QFI\xfb");
    image[7] = 3;
    image[24..32].copy_from_slice(&(64_u64 << 20).to_be_bytes());
    image
}
