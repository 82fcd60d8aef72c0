//! The exported playbook, run as its page says, by three versions of Ansible with oVirt's own collection against the fake
//! engine.

use std::net::Ipv4Addr;
use std::process::Command;

use ocpdeploy::cluster::Role;
use ocpdeploy::export::ansible;
use ocpdeploy::state::inventory::Known;
use ocpdeploy::state::parameters::Parameters;

use crate::export::ovirt_config;
use crate::support::cluster;
use crate::support::fake_engine::{AffinityLabel, FakeEngine, Vm, World, id_of};
use crate::support::ovirt_sdk::Sdk;

const USUAL: &str = "masters=3\nworkers=2\ndisk_size=120\nworker_extra_disks=5\novirt_storage_domain=data\n";

/// An engine, and the exported files of a cluster on it.
struct Site {
    engine: FakeEngine,
    folder: tempfile::TempDir,
    parameters: Parameters,
    sdk: Sdk,
    /// Of ansible-core.
    core: &'static str,
}

impl Site {
    /// `None` if Ansible is not installed.
    fn of(core: &'static str, lines: &str, change: impl FnOnce(&mut World)) -> Option<Self> {
        let sdk = Sdk::find()?;
        let engine = FakeEngine::with(|world: &mut World| {
            world.tick = 3_000;
            change(world);
        });
        let config = ovirt_config(lines);
        let mut parameters = cluster::parameters(&config, Ipv4Addr::new(10, 0, 4, 8));
        parameters.network = "ovirtmgmt".to_owned();
        let site = Self {
            engine,
            folder: tempfile::tempdir().unwrap(),
            parameters,
            sdk,
            core,
        };
        for node in &site.parameters.nodes {
            let config = format!(r#"{{"ignition":{{"version":"3.2.0"}},"node":"{}"}}"#, node.name);
            site.write(&format!("ignition/{}.ign", node.name), config);
        }
        let ignition = site.path("ignition");
        let inventory = ansible::inventory(&site.parameters, &Known::of(&config), &ignition);
        site.write("inventory.yaml", inventory);
        site.write("playbook.yaml", ansible::playbook());
        site.write("ca.pem", &site.engine.ca_pem);
        Some(site)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }

    fn try_run(&self, arguments: &[&str]) -> Result<String, String> {
        let variables = [
            ("OVIRT_URL", format!("{}/api", self.engine.url)),
            ("OVIRT_USERNAME", self.engine.user.clone()),
            ("OVIRT_PASSWORD", self.engine.password.clone()),
            ("OVIRT_CAFILE", self.path("ca.pem")),
        ];
        let arguments = [&["-i", "inventory.yaml", "playbook.yaml"], arguments].concat();
        self.sdk.ansible(self.core, self.folder.path(), &arguments, &variables)
    }

    fn run(&self, arguments: &[&str]) -> String {
        self.try_run(arguments).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Looks at each machine of a role.
    fn each(&self, role: Role, look: impl Fn(&World, &Vm)) {
        let of = self.parameters.nodes.iter().filter(|node| node.role == role);
        self.engine.look(|world| {
            of.for_each(|node| look(world, world.vm_named(&format!("lab-{}", node.name)).unwrap()));
        });
    }
}

/// Uploads the image, creates and starts all machines, and removes what the cluster had.
fn creates_and_removes_a_cluster(core: &'static str) {
    let no_template = |world: &mut World| world.templates.retain(|template| template.name != "rhcos");
    let Some(site) = Site::of(core, USUAL, no_template) else {
        return;
    };
    site.engine.start_imageio(&site.sdk.imageio());
    let image = site.path("rhcos.qcow2");
    let made_image = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", &image, "64M"])
        .status();
    assert!(made_image.unwrap().success());
    site.run(&["-e", &format!("coreos_image={image}")]);
    let nodes = &site.parameters.nodes;
    for node in nodes {
        let name = format!("lab-{}", node.name);
        let boot = site
            .engine
            .last_boot(&name)
            .unwrap_or_else(|| panic!("{name} was not started"));
        let config = boot.given.ignition();
        assert!(
            config.is_some_and(|config| config.contains(node.name.as_str())),
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
    let groups = |world: &World| -> Vec<_> {
        let groups = world.affinity_groups.iter();
        groups
            .map(|group| (group.vms.len(), group.positive, group.enforcing))
            .collect()
    };
    assert_eq!(site.engine.look(groups), [(3, false, false), (2, false, false)]);
    // Again is no change.
    let boots = site.engine.boots().len();
    site.run(&[]);
    assert_eq!(site.engine.boots().len(), boots);
    site.run(&["--tags", "retire"]);
    assert!(site.engine.look(|world| world.vm_named("lab-bootstrap").is_none()));
    assert_eq!(site.engine.look(|world| world.vms.len()), nodes.len() - 1);
    site.run(&["--tags", "remove"]);
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

#[test]
fn the_playbook_creates_and_removes_a_cluster_with_ansible_2_14() {
    creates_and_removes_a_cluster("2.14");
}

#[test]
fn the_playbook_creates_and_removes_a_cluster_with_ansible_2_19() {
    creates_and_removes_a_cluster("2.19");
}

#[test]
fn the_playbook_obeys_the_settings_of_the_env_file() {
    let lines = "masters=1\nworkers=2\ndisk_size=120\novirt_storage_domain=slow\novirt_clone=true\novirt_hosts=host-2\n\
                 ovirt_worker_label=workers\novirt_affinity=off\nextra_networks=plain\nautostart=true\n";
    let site = Site::of("2.16", lines, |world| {
        let stranger = world.put_vm("stranger");
        world.affinity_labels.push(AffinityLabel {
            id: "00000000-0000-4000-8000-0000000000bb".to_owned(),
            name: "workers".to_owned(),
            is_implicit: false,
            vms: vec![stranger],
            hosts: vec![world.hosts[1].id.clone()],
        });
        // A template of the user, which has the same name in another data center.
        let mut other = world.templates.last().unwrap().clone();
        (other.id, other.cluster) = (world.new_id(), id_of(&world.clusters, "Far"));
        world.templates.insert(1, other);
    });
    let Some(site) = site else { return };
    let said = site.run(&[]);
    for role in [Role::Master, Role::Worker] {
        site.each(role, |world, vm| {
            let profiles: Vec<_> = vm.nics.iter().map(|nic| nic.profile.clone().unwrap()).collect();
            let wanted = ["ovirtmgmt", "plain"].map(|name| {
                let mut all = world.profiles.iter().rev();
                all.find(|profile| profile.name == name).unwrap().id.clone()
            });
            assert_eq!(profiles, wanted);
            assert_eq!(vm.pinned, [world.hosts[1].id.clone()]);
            assert_eq!(vm.host.as_deref(), Some("host-2"));
            assert!(vm.is_clone && vm.is_highly_available);
            let disk = world.disk(&vm.disks[0].disk).unwrap();
            assert_eq!(disk.storage_domain, id_of(&world.storage_domains, "slow"));
            assert_eq!(disk.provisioned_size, 120 << 30, "{said}");
        });
    }
    site.engine.look(|world| {
        assert!(world.affinity_groups.is_empty());
        assert_eq!(world.affinity_labels[0].vms.len(), 3, "both workers and the stranger");
    });
    // A machine of another owner is neither changed nor removed.
    let foreign = |world: &mut World| {
        world.vms.retain(|vm| vm.name != "lab-bootstrap");
        world.put_vm("lab-bootstrap");
    };
    site.engine.edit(foreign);
    for arguments in [&[][..], &["--tags", "remove"]] {
        let said = site.try_run(arguments).unwrap_err();
        assert!(
            said.contains("a machine with this name has another comment than"),
            "{said}"
        );
        let vm = site
            .engine
            .look(|world| world.vm_named("lab-bootstrap").unwrap().clone());
        assert_eq!((vm.status.as_str(), vm.disks.len()), ("down", 0));
    }
    assert_eq!(site.engine.look(|world| world.vms.len()), 2, "the strangers");
}
