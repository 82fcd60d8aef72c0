//! Our client with a fake engine.

#![allow(dead_code, reason = "each test file uses its part")]

use crate::support::cluster::cluster_id;
use std::path::{Path, PathBuf};

use ocpdeploy::backend::ovirt::Ovirt;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{ImageHandle, ImageRequest, MachineSpec, Nic, Payload, PlatformError};
use ocpdeploy::cluster::{Affinity, Architecture, ClusterId, MachineName, NodeName, OvirtConfig, Pass, Password, Role};
use ocpdeploy::digest;

use crate::support::fake_engine::FakeEngine;
use crate::support::faulty::alone;
use crate::support::qcow2;

/// Settings of an engine's user; the folder gets the engine's CA.
pub fn config(engine: &FakeEngine, folder: &Path) -> OvirtConfig {
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, &engine.ca_pem).unwrap();
    OvirtConfig {
        url: engine.url.clone(),
        user: engine.user.clone(),
        password: Password(Some(engine.password.clone().into())),
        password_file: None,
        ca: Some(ca),
        cluster: "Default".to_owned(),
        storage_domain: Some("data".to_owned()),
        vnic_profile: None,
        affinity: Affinity::Soft,
        hosts: Vec::new(),
        worker_label: None,
        clone: false,
    }
}

/// An error with its cause and its hint.
pub fn words(error: &PlatformError) -> String {
    let cause = &error.source;
    format!(
        "{error}: {cause}\n  hint: {}",
        cause.hint.as_deref().unwrap_or_default()
    )
}

/// The backend as in a run, with a folder for its files.
pub struct Client {
    pub config: OvirtConfig,
    folder: tempfile::TempDir,
}

impl Client {
    /// With the settings of that engine's user and these changes.
    pub fn of(engine: &FakeEngine, change: impl FnOnce(&mut OvirtConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(engine, folder.path());
        change(&mut config);
        Self { config, folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A qcow2 of this many bytes, most of them unused.
    pub fn image(&self, name: &str, bytes: usize) -> ImageRequest {
        let mut image = qcow2::empty();
        image.resize(bytes, 0);
        // The size that a guest sees.
        image[24..32].copy_from_slice(&(64_u64 << 20).to_be_bytes());
        std::fs::write(self.path(name), &image).unwrap();
        ImageRequest::File {
            path: self.path(name),
            sha256: digest::sha256(&image),
            bytes: image.len() as u64,
            arch: Architecture::X86_64,
        }
    }

    /// A fresh connection for each run, as each run of the program has.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&Platforms) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let ovirt = Ovirt::connect(&self.config).await.unwrap();
            work(&alone(ovirt)).await
        })
    }

    /// The first master of a cluster, from the template `rhcos`.
    pub fn spec(&self, cluster: &str) -> MachineSpec {
        let node = NodeName::node(Role::Master, 0);
        MachineSpec {
            cluster: cluster_id(cluster, "example.com"),
            name: MachineName::of_node(cluster, &node),
            node,
            role: Role::Master,
            pass: Pass::Two,
            arch: Architecture::X86_64,
            cpus: 4,
            memory_mib: 16_384,
            disk_gib: 120,
            extra_disks_gib: vec![5],
            image: ImageHandle("rhcos".to_owned()),
            nics: vec![Nic {
                network: "ovirtmgmt".to_owned(),
                mac: "52:54:00:aa:bb:cc".parse().unwrap(),
            }],
            payload: Payload::Ignition(br#"{"ignition":{"version":"3.2.0"}}"#.to_vec()),
            autostart: true,
            ipv6: None,
            creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
        }
    }
}
