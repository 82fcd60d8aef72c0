//! The exported playbook, run by Ansible with oVirt's own collection against the fake engine.

use std::net::Ipv4Addr;
use std::process::Command;

use ocpdeploy::cluster::{Affinity, Role, Size, Sizes};
use ocpdeploy::export::ansible;

use crate::support::cluster;
use crate::support::fake_engine::{FakeEngine, World};
use crate::support::ovirt_sdk::Sdk;

struct Site {
    engine: FakeEngine,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let engine = FakeEngine::with(|world: &mut World| {
            world.tick = 3_000;
            world.templates.retain(|template| template.name != "rhcos");
        });
        let folder = tempfile::tempdir().unwrap();
        Self { engine, folder }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

#[test]
fn the_playbook_creates_and_removes_a_cluster() {
    let Some(sdk) = Sdk::find() else { return };
    let site = Site::new();
    site.engine.start_imageio(&sdk.imageio());
    let mut parameters = cluster::parameters(&cluster::config(), Ipv4Addr::new(10, 0, 4, 8));
    parameters.network = "ovirtmgmt".to_owned();
    let size = |memory_mib| Size {
        cpus: 4,
        memory_mib,
        disk_gib: 120,
        extra_disks_gib: Vec::new(),
    };
    let sizes = Sizes {
        master: size(16_384),
        worker: Size {
            extra_disks_gib: vec![5],
            ..size(8_192)
        },
        bootstrap: size(8_192),
        arbiter: None,
        pools: Default::default(),
    };
    for node in &parameters.nodes {
        let config = format!(r#"{{"ignition":{{"version":"3.2.0"}},"node":"{}"}}"#, node.name);
        site.write(&format!("ignition/{}.ign", node.name), config);
    }
    let folder = site.folder.path().join("ignition").display().to_string();
    let inventory = ansible::inventory(&parameters, &sizes, &folder, Affinity::Soft);
    let (inventory, playbook) = (
        site.write("inventory.yaml", inventory),
        site.write("playbook.yaml", ansible::playbook()),
    );
    let image = site.folder.path().join("rhcos.qcow2");
    let made_image = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .arg(&image)
        .arg("64M")
        .status();
    assert!(made_image.unwrap().success());
    let ca = site.write("ca.pem", &site.engine.ca_pem);
    let variables = [
        ("OVIRT_URL", format!("{}/api", site.engine.url)),
        ("OVIRT_USERNAME", site.engine.user.clone()),
        ("OVIRT_PASSWORD", site.engine.password.clone()),
        ("OVIRT_CAFILE", ca),
    ];
    let run = |arguments: &[&str]| {
        let arguments = [&["-i", &inventory, &playbook], arguments].concat();
        sdk.ansible(site.folder.path(), &arguments, &variables)
            .unwrap_or_else(|why| panic!("{why}"))
    };
    let image = format!("coreos_image={}", image.display());
    run(&["-e", &image]);
    let nodes = &parameters.nodes;
    for node in nodes {
        let name = format!("lab-{}", node.name);
        let boot = site
            .engine
            .last_boot(&name)
            .unwrap_or_else(|| panic!("{name} was not started"));
        assert!(
            boot.given
                .ignition()
                .is_some_and(|config| config.contains(node.name.as_str())),
            "{boot:?}"
        );
        assert_eq!(boot.macs, [node.mac.to_string()]);
        site.engine.look(|world| {
            let vm = world.vm_named(&name).unwrap();
            let disks = if node.role == Role::Worker { 2 } else { 1 };
            assert_eq!(vm.disks.len(), disks, "{name}");
            assert_eq!(world.disk(&vm.disks[0].disk).unwrap().provisioned_size, 120 << 30);
        });
    }
    let masters = nodes.iter().filter(|node| node.role == Role::Master).count();
    assert_eq!(
        site.engine.look(|world| world
            .affinity_groups
            .iter()
            .map(|group| group.vms.len())
            .collect::<Vec<_>>()),
        [masters]
    );
    // Again is no change.
    let boots = site.engine.boots().len();
    run(&[]);
    assert_eq!(site.engine.boots().len(), boots);
    run(&["--tags", "retire"]);
    assert!(site.engine.look(|world| world.vm_named("lab-bootstrap").is_none()));
    assert_eq!(site.engine.look(|world| world.vms.len()), nodes.len() - 1);
    run(&["--tags", "remove"]);
    site.engine.advance(std::time::Duration::from_secs(60));
    site.engine.look(|world| {
        assert_eq!((world.vms.len(), world.affinity_groups.len()), (0, 0));
        assert!(
            world.disks.iter().all(|disk| disk.template.is_some()),
            "{:?}",
            world.disks
        );
        assert!(world.templates.iter().any(|template| template.name == "rhcos"));
    });
}
