//! oVirt for the contract: a fake engine, a new one for each promise.

use std::sync::Mutex;

use ocpdeploy::backend::ovirt::Ovirt;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{ImageRequest, Snapshot};
use ocpdeploy::cluster::{Architecture, MachineName};
use ocpdeploy::digest;
use serde_json::json;

use crate::support::contract::{Ability, Foreign, Ground, Mark};
use crate::support::fake_engine::{self, AffinityGroup, Disk, FakeEngine, GIB, Named, World, id_of};
use crate::support::faulty::alone;
use crate::support::ovirt_client::config;
use crate::support::qcow2;

pub struct OvirtGround {
    engine: FakeEngine,
    backend: Platforms,
    folder: tempfile::TempDir,
    /// Ids.
    foreign: Mutex<Vec<String>>,
}

impl OvirtGround {
    pub fn fresh() -> Self {
        // A query takes some seconds of the engine's time, to keep waits short.
        let engine = FakeEngine::with(|world| world.tick = 3_000);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("image.qcow2"), qcow2::empty()).unwrap();
        let connect = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let backend = connect
            .block_on(Ovirt::connect(&config(&engine, folder.path())))
            .unwrap();
        Self {
            engine,
            backend: alone(backend),
            folder,
            foreign: Mutex::default(),
        }
    }
}

impl Ground for OvirtGround {
    fn name(&self) -> &'static str {
        "a fake oVirt engine"
    }

    fn backend(&self) -> &Platforms {
        &self.backend
    }

    fn network(&self) -> String {
        "ovirtmgmt".to_owned()
    }

    fn image(&self) -> ImageRequest {
        let image = qcow2::empty();
        ImageRequest::File {
            path: self.folder.path().join("image.qcow2"),
            sha256: digest::sha256(&image),
            bytes: image.len() as u64,
            arch: Architecture::X86_64,
        }
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        (ability == Ability::Holds).then_some("oVirt cannot reserve addresses")
    }

    fn put_unowned(&self, name: &MachineName) {
        self.engine.edit(|world| world.put_vm(name.as_str()));
    }

    fn has_unowned(&self, name: &MachineName) -> bool {
        self.engine.look(|world| world.vm_named(name.as_str()).is_some())
    }

    fn remove_unowned(&self, name: &MachineName) {
        self.engine
            .edit(|world| world.vms.retain(|vm| vm.name != name.as_str()));
    }

    fn write_disk(&self, name: &MachineName, content: u8) {
        self.engine.edit(|world| {
            let disk = world.vm_named(name.as_str()).unwrap().disks[0].disk.clone();
            world.disk_mut(&disk).unwrap().data = [content].into();
        });
    }

    fn read_disk(&self, name: &MachineName) -> Option<u8> {
        self.engine.look(|world| {
            let disk = &world.vm_named(name.as_str()).unwrap().disks[0].disk;
            world.disk(disk).unwrap().data.first().copied()
        })
    }

    /// The engine itself chooses the name of a snapshot, so the name does not matter.
    fn put_foreign_snapshot(&self, name: &MachineName, snapshot: &Snapshot) {
        self.engine.edit(|world| {
            let (id, created) = (world.new_id(), world.now);
            let vm = world.vms.iter_mut().find(|vm| vm.name == name.as_str()).unwrap();
            vm.snapshots.push(fake_engine::Snapshot {
                id,
                description: format!("snapshot {} {} 1", snapshot.name, snapshot.taken.as_millisecond()),
                status: "ok".to_owned(),
                created,
                disks: Vec::new(),
                lost: Vec::new(),
            });
        });
    }

    fn count_snapshots(&self, name: &MachineName) -> usize {
        self.engine
            .look(|world| world.vm_named(name.as_str()).unwrap().snapshots.len())
    }

    fn put_foreign(&self, all: &[Foreign]) {
        self.engine.edit(|world| {
            world.ignores_filters = true;
            let ours = all.iter().find_map(|one| match &one.mark {
                Mark::Around(id) => Some(id.clone()),
                _ => None,
            });
            let ours = ours.unwrap();
            let cluster = id_of(&world.clusters, "Default");
            let storage_domain = id_of(&world.storage_domains, "data");
            for one in all {
                let mark = |id: &str| format!("ocpdeploy-{id}");
                let about = |id: &str| {
                    let about = json!({"v": 1, "cluster": id, "node": "worker-0", "role": "worker", "pass": "two",
                        "fingerprint": "f", "nics": []});
                    format!("{} {about}", mark(id))
                };
                let id = world.put_vm(&one.name);
                let vm = world.vms.iter_mut().find(|vm| vm.id == id).unwrap();
                vm.comment = one.text(about).unwrap_or_default();
                let description = one
                    .text(|id| format!("{} {ours}-worker-0", mark(id)))
                    .unwrap_or_default();
                let disk = Disk {
                    id: world.new_id(),
                    name: format!("{}-extra-0", one.name),
                    description,
                    format: "cow".to_owned(),
                    content_type: "data".to_owned(),
                    provisioned_size: GIB,
                    initial_size: 0,
                    sparse: true,
                    storage_domain: storage_domain.clone(),
                    status: "ok".to_owned(),
                    template: None,
                    data: [].into(),
                };
                world.disks.push(disk);
                let tag = one.text(|id| json!({"cluster": id, "images": ["centos"]}).to_string());
                let id = world.new_id();
                world.tags.push(Named {
                    id,
                    name: one.text(mark).unwrap_or(one.name.clone()),
                    description: tag.unwrap_or_default(),
                });
                let id = world.new_id();
                world.affinity_groups.push(AffinityGroup {
                    id,
                    name: one
                        .text(|id| format!("{}-masters", mark(id)))
                        .unwrap_or(one.name.clone()),
                    description: one.text(mark).unwrap_or_default(),
                    cluster: cluster.clone(),
                    enabled: true,
                    ..AffinityGroup::default()
                });
            }
            // Another user copied our tag, with other images, and our comment before other text.
            let id = world.new_id();
            world.tags.push(Named {
                id,
                name: "backup".to_owned(),
                description: json!({"cluster": ours, "images": ["centos", "rhcos"]}).to_string(),
            });
            let id = world.put_vm("foreign");
            let vm = world.vms.iter_mut().find(|vm| vm.id == id).unwrap();
            vm.comment = format!("ocpdeploy-{ours} is not here");
            *self.foreign.lock().unwrap() = ids(world);
        });
    }

    fn foreign(&self) -> Vec<String> {
        let planted = self.foreign.lock().unwrap();
        self.engine.look(|world| {
            let vms = world.vms.iter().map(|vm| (&vm.id, format!("{vm:?}")));
            let disks = world.disks.iter().map(|disk| (&disk.id, format!("{disk:?}")));
            let tags = world.tags.iter().map(|tag| (&tag.id, format!("{tag:?}")));
            let groups = world
                .affinity_groups
                .iter()
                .map(|group| (&group.id, format!("{group:?}")));
            let templates = world
                .templates
                .iter()
                .map(|template| (&template.id, format!("{template:?}")));
            let all = vms.chain(disks).chain(tags).chain(groups).chain(templates);
            all.filter(|(id, _)| planted.contains(*id))
                .map(|(_, thing)| thing)
                .collect()
        })
    }
}

fn ids(world: &World) -> Vec<String> {
    let vms = world.vms.iter().map(|vm| &vm.id);
    let disks = world.disks.iter().map(|disk| &disk.id);
    let tags = world.tags.iter().map(|tag| &tag.id);
    let groups = world.affinity_groups.iter().map(|group| &group.id);
    let templates = world.templates.iter().map(|template| &template.id);
    let all = vms.chain(disks).chain(tags).chain(groups).chain(templates);
    all.cloned().collect()
}
