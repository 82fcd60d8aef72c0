//! The simulated platform for the contract, a new one for each promise.

use std::path::PathBuf;
use std::sync::Mutex;

use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::sim::Sim;
use ocpdeploy::backend::{ImageRequest, Snapshot};
use ocpdeploy::cluster::{Architecture, ClusterId, MachineName, SimConfig};
use ocpdeploy::digest;
use serde_json::{Value, json};

use crate::support::contract::{Ability, Foreign, Ground};
use crate::support::faulty::alone;

pub struct SimGround {
    folder: tempfile::TempDir,
    backend: Platforms,
    foreign: Mutex<Vec<Foreign>>,
}

impl SimGround {
    pub fn fresh() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("image.qcow2"), b"an image").unwrap();
        let state = folder.path().join("sim.json");
        let backend = alone(Sim::open(&SimConfig { state }).unwrap());
        let foreign = Mutex::default();
        Self {
            folder,
            backend,
            foreign,
        }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("sim.json")
    }

    /// Changes the file without the backend; promises of one ground run one after the other.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        // Closing the platform leaves one document in its file.
        drop(Sim::open(&SimConfig { state: self.state() }));
        let text = std::fs::read_to_string(self.state()).unwrap_or(r#"{"v": 1, "foreign_machines": {}}"#.to_owned());
        let mut world: Value = serde_json::from_str(&text).unwrap();
        change(&mut world);
        std::fs::write(self.state(), world.to_string()).unwrap();
    }
}

impl Ground for SimGround {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn backend(&self) -> &Platforms {
        &self.backend
    }

    fn network(&self) -> String {
        "default".to_owned()
    }

    fn image(&self) -> ImageRequest {
        ImageRequest::File {
            path: self.folder.path().join("image.qcow2"),
            sha256: digest::sha256(b"an image"),
            bytes: 8,
            arch: Architecture::X86_64,
        }
    }

    fn lacks(&self, _: Ability) -> Option<&'static str> {
        None
    }

    fn put_unowned(&self, name: &MachineName) {
        self.edit(|world| world["foreign_machines"][name.as_str()] = json!({"macs": []}));
    }

    fn has_unowned(&self, name: &MachineName) -> bool {
        let mut there = false;
        self.edit(|world| there = world["foreign_machines"].get(name.as_str()).is_some());
        there
    }

    fn remove_unowned(&self, name: &MachineName) {
        self.edit(|world| {
            world["foreign_machines"]
                .as_object_mut()
                .map(|all| all.remove(name.as_str()));
        });
    }

    fn put_foreign(&self, all: &[Foreign]) {
        self.edit(|world| {
            world["script"]["ignores_filters"] = json!(true);
            if world["networks"].is_null() {
                world["networks"] = json!({"default": {"cidr": "192.168.122.0/24", "gateway": "192.168.122.1",
                    "dhcp_from": "192.168.122.2", "dhcp_to": "192.168.122.254"}});
            }
            for (index, one) in all.iter().enumerate() {
                // Its file has only valid tags.
                let cluster = one.text(str::to_owned).filter(|tag| ClusterId::read(tag).is_some());
                let kept = json!({"mac": format!("52:54:01:00:00:{index:02x}"), "name": "master-0", "cluster": cluster,
                    "dns_names": [format!("{}.foreign.test", one.name)]});
                world["networks"]["default"]["reservations"][format!("192.168.122.{}", 60 + index)] = kept;
                let Some(cluster) = cluster else {
                    world["foreign_machines"][&one.name] = json!({"macs": []});
                    continue;
                };
                world["uploads"][format!("sha256:{index}")] = json!([cluster]);
                world["machines"][&one.name] = json!({
                    "cluster": cluster, "node": "worker-0", "role": "worker", "pass": "two", "fingerprint": "f",
                    "cpus": 1, "memory_mib": 192, "disk_gib": 1, "extra_disks_gib": [], "image": "coreos", "nics": [],
                    "payload": {"kind": "ignition", "bytes": 2, "sha512": "0"}, "autostart": false, "created_ms": 0,
                    "boots_ms": 0, "off": false, "starts": 0, "disk": 0,
                });
            }
        });
        *self.foreign.lock().unwrap() = all.to_vec();
    }

    fn foreign(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.edit(|world| {
            for (index, one) in self.foreign.lock().unwrap().iter().enumerate() {
                let ip = format!("192.168.122.{}", 60 + index);
                let things = [
                    &world["machines"][&one.name],
                    &world["foreign_machines"][&one.name],
                    &world["uploads"][format!("sha256:{index}")],
                    &world["networks"]["default"]["reservations"][ip],
                ];
                found.extend(things.iter().filter(|thing| !thing.is_null()).map(ToString::to_string));
            }
        });
        found
    }

    fn write_disk(&self, name: &MachineName, content: u8) {
        self.edit(|world| world["machines"][name.as_str()]["disk"] = json!(content));
    }

    fn read_disk(&self, name: &MachineName) -> Option<u8> {
        let mut disk = None;
        self.edit(|world| disk = world["machines"][name.as_str()]["disk"].as_u64());
        disk.and_then(|disk| disk.try_into().ok())
    }

    fn put_foreign_snapshot(&self, name: &MachineName, snapshot: &Snapshot) {
        self.edit(|world| {
            let kept = world["machines"][name.as_str()]["snapshots"].as_array_mut().unwrap();
            kept.push(json!({"snapshot": snapshot, "disk": 1}));
        });
    }

    fn count_snapshots(&self, name: &MachineName) -> usize {
        let mut count = 0;
        self.edit(|world| {
            let kept = world["machines"][name.as_str()]["snapshots"].as_array();
            count = kept.map_or(0, Vec::len);
        });
        count
    }
}
