//! One list of promises, kept by every backend: the pretend platform, a pretend oVirt engine, libvirt's test driver, and a real
//! libvirt named by `OCPDEPLOY_CONTRACT_LIBVIRT_URI` (with `_POOL`, `_NETWORK` and, to see guests boot, `_IMAGE`), and a
//! real OpenStack named by `OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD`, a cloud of clouds.yaml (with `_IMAGE`, `_NETWORK`, `_ZONE`
//! and, where it has block storage, `_VOLUMES`).

#[path = "support/contract.rs"]
mod contract;
#[path = "support/fake_engine/mod.rs"]
mod fake_engine;
#[path = "support/fake_kubevirt/mod.rs"]
mod fake_kubevirt;
#[path = "support/ground_kubevirt.rs"]
mod ground_kubevirt;
#[path = "support/qcow2.rs"]
mod qcow2;

/// The promises, and what each asks of the platform; every one is a test on every ground.
macro_rules! on_ground {
    ($module:ident, $open:expr) => {
        mod $module {
            use crate::contract::{self, Ability::*};

            on_ground! { @each $open,
                a_created_machine_is_listed_as_asked [Machines],
                creating_twice_makes_one [Machines],
                another_spec_under_a_name_is_a_conflict [Machines],
                a_strangers_machine_is_left_alone [Answer],
                a_strangers_name_is_not_taken [Machines],
                another_clusters_machine_is_left_alone [Machines],
                deleting_what_is_absent_is_success [Answer],
                deleting_removes_all_that_was_made [Machines],
                a_deleted_machine_can_be_made_again [Machines],
                clusters_with_similar_names_never_meet [Machines],
                holds_of_similar_clusters_never_meet [Holds],
                holding_twice_is_holding_once [Holds],
                a_held_address_is_seen_as_taken [Holds],
                what_another_cluster_holds_is_a_conflict [Holds],
                releasing_is_exact_and_may_be_repeated [Holds],
                a_released_address_can_be_held_by_another [Holds],
                one_address_is_released_alone [Holds],
                releasing_what_another_holds_changes_nothing [Holds],
                a_machine_is_stopped_and_started_again [Machines],
                stopping_and_starting_is_for_machines_of_this_cluster [Machines],
                all_that_is_owned_is_listed [Machines, Holds],
                every_cluster_that_has_something_is_found [Machines],
                a_cluster_that_only_holds_an_address_is_found [Holds],
                machines_can_be_made_side_by_side [Machines],
                one_machine_asked_for_twice_at_once_is_made_once [Machines],
                preflight_finds_what_is_in_the_way [Answer],
                preflight_accepts_what_this_cluster_made [Machines],
                a_config_over_the_limit_is_too_large [Machines, Configs],
                what_does_not_exist_is_named [Answer],
                a_machine_on_no_network_leaves_nothing [Machines],
                an_image_is_brought_once_and_shared [Images, Machines],
                the_console_of_anothers_machine_is_not_read [Machines],
                a_machine_gets_the_address_held_for_it [Machines, Holds, Leases],
            }
        }
    };
    (@each $open:expr, $($promise:ident $needs:expr,)+) => {
        $(
            #[test]
            fn $promise() {
                contract::keep(stringify!($promise), &$needs, $open, contract::$promise);
            }
        )+
    };
}

on_ground!(sim, Some(crate::ground_sim::SimGround::fresh()));
on_ground!(ovirt, Some(crate::ground_ovirt::OvirtGround::fresh()));
#[cfg(feature = "libvirt")]
on_ground!(
    libvirt_test_driver,
    Some(crate::ground_libvirt::LibvirtGround::test_driver())
);
#[cfg(feature = "libvirt")]
on_ground!(libvirt_named, crate::ground_libvirt::LibvirtGround::named());
on_ground!(kubevirt, Some(crate::ground_kubevirt::KubevirtGround::fresh()));
on_ground!(
    kubevirt_on_pods,
    Some(crate::ground_kubevirt::KubevirtGround::on_pods())
);
on_ground!(kubevirt_named, crate::ground_kubevirt::NamedGround::named());
on_ground!(openstack_named, crate::ground_openstack::OpenStackGround::named());

/// The way to a real server, walked to the pretend one.
#[test]
fn a_kubeconfig_that_is_named_aims_the_contract_at_its_server() {
    use fake_kubevirt::{FakeKubevirt, World};
    if std::env::var_os("OCPDEPLOY_TEST_KUBECONFIG").is_some() {
        return;
    }
    let server = FakeKubevirt::start(World::with_tenants(&["tenant"]));
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig, "tenant-token", "tenant");
    server.with(|world| {
        let size = serde_json::json!({"resources": {"requests": {"storage": "16Gi"}}});
        let about = serde_json::json!({"namespace": "tenant", "name": "rhcos"});
        let claim = serde_json::json!({"metadata": about, "spec": size});
        world.force("persistentvolumeclaims", claim);
    });
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["kubevirt_named::", "--test-threads=2"])
        .env("OCPDEPLOY_TEST_KUBECONFIG", &kubeconfig)
        .env("OCPDEPLOY_TEST_KUBECONFIG_NETWORK", "lan")
        .env("OCPDEPLOY_TEST_KUBECONFIG_IMAGE", "rhcos")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    server.was_asked_well();
}

/// The pretend platform, a fresh one for each promise.
mod ground_sim {
    use std::path::PathBuf;

    use ocpdeploy::backend::ImageRequest;
    use ocpdeploy::backend::sim::Sim;
    use ocpdeploy::cluster::{MachineName, SimConfig};
    use ocpdeploy::digest;
    use serde_json::{Value, json};

    use crate::contract::{Ability, Ground};

    pub struct SimGround {
        folder: tempfile::TempDir,
        sim: Sim,
    }

    impl SimGround {
        pub fn fresh() -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("image.qcow2"), b"an image").unwrap();
            let state = folder.path().join("sim.json");
            let sim = Sim::open(&SimConfig { state }).unwrap();
            Self { folder, sim }
        }

        fn state(&self) -> PathBuf {
            self.folder.path().join("sim.json")
        }

        /// The file past the backend; promises of one ground run one after the other.
        fn edit(&self, change: impl FnOnce(&mut Value)) {
            // Who lets go of the platform leaves one document.
            drop(Sim::open(&SimConfig { state: self.state() }));
            let text = std::fs::read_to_string(self.state()).unwrap_or(r#"{"v": 1, "strangers": {}}"#.to_owned());
            let mut world: Value = serde_json::from_str(&text).unwrap();
            change(&mut world);
            std::fs::write(self.state(), world.to_string()).unwrap();
        }
    }

    impl Ground for SimGround {
        type Backend = Sim;

        fn name(&self) -> &'static str {
            "sim"
        }

        fn backend(&self) -> &Sim {
            &self.sim
        }

        fn network(&self) -> String {
            "default".to_owned()
        }

        fn image(&self) -> ImageRequest {
            ImageRequest::File {
                path: self.folder.path().join("image.qcow2"),
                sha256: digest::sha256(b"an image"),
                bytes: 8,
            }
        }

        fn lacks(&self, _: Ability) -> Option<&'static str> {
            None
        }

        fn put_stranger(&self, name: &MachineName) {
            self.edit(|world| world["strangers"][name.as_str()] = json!({"macs": []}));
        }

        fn has_stranger(&self, name: &MachineName) -> bool {
            let mut there = false;
            self.edit(|world| there = world["strangers"].get(name.as_str()).is_some());
            there
        }

        fn remove_stranger(&self, name: &MachineName) {
            self.edit(|world| {
                world["strangers"].as_object_mut().map(|all| all.remove(name.as_str()));
            });
        }
    }
}

/// oVirt: a pretend engine, a fresh one for each promise.
mod ground_ovirt {
    use ocpdeploy::backend::ImageRequest;
    use ocpdeploy::backend::ovirt::Ovirt;
    use ocpdeploy::cluster::{Affinity, MachineName, OvirtConfig, OvirtIgnition, Password};
    use ocpdeploy::digest;

    use crate::contract::{Ability, Ground};
    use crate::fake_engine::FakeEngine;
    use crate::qcow2;

    pub struct OvirtGround {
        engine: FakeEngine,
        backend: Ovirt,
        folder: tempfile::TempDir,
    }

    impl OvirtGround {
        pub fn fresh() -> Self {
            // A look takes some seconds of the engine's time, so that nobody waits long for it.
            let engine = FakeEngine::with(|world| world.tick = 3_000);
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("image.qcow2"), qcow2::empty()).unwrap();
            let ca = folder.path().join("ca.pem");
            std::fs::write(&ca, &engine.ca_pem).unwrap();
            let config = OvirtConfig {
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
                ignition: OvirtIgnition::Auto,
            };
            let connect = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let backend = connect.block_on(Ovirt::connect(&config)).unwrap();
            Self {
                engine,
                backend,
                folder,
            }
        }
    }

    impl Ground for OvirtGround {
        type Backend = Ovirt;

        fn name(&self) -> &'static str {
            "a pretend oVirt engine"
        }

        fn backend(&self) -> &Ovirt {
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
            }
        }

        fn lacks(&self, ability: Ability) -> Option<&'static str> {
            (ability == Ability::Holds).then_some("nobody holds addresses there")
        }

        fn put_stranger(&self, name: &MachineName) {
            self.engine.edit(|world| world.put_vm(name.as_str()));
        }

        fn has_stranger(&self, name: &MachineName) -> bool {
            self.engine.look(|world| world.vm_named(name.as_str()).is_some())
        }

        fn remove_stranger(&self, name: &MachineName) {
            self.engine
                .edit(|world| world.vms.retain(|vm| vm.name != name.as_str()));
        }
    }
}

/// libvirt: its test driver, which lives in this process, or a real one.
#[cfg(feature = "libvirt")]
mod ground_libvirt {
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::Once;

    use ocpdeploy::backend::ImageRequest;
    use ocpdeploy::backend::libvirt::Libvirt;
    use ocpdeploy::cluster::{LibvirtConfig, MachineName, VirtType};
    use ocpdeploy::digest;
    use virt::connect::Connect;
    use virt::storage_vol::StorageVol;

    use crate::contract::{Ability, Ground};
    use crate::qcow2;

    pub struct LibvirtGround {
        name: &'static str,
        backend: Libvirt,
        /// A way past the backend, with libvirt's own calls.
        direct: Connect,
        network: String,
        image: ImageRequest,
        /// Whether the image boots.
        boots: bool,
        _image_folder: Option<tempfile::TempDir>,
    }

    impl LibvirtGround {
        /// Knows domains, volumes and networks, but moves no bytes and runs nothing.
        pub fn test_driver() -> Self {
            let uri = "test:///default";
            let direct = Connect::open(Some(uri)).unwrap();
            let pool = direct.lookup_storage_pool_by_name("default-pool").unwrap();
            let volume = "<volume><name>base.qcow2</name><capacity unit='MiB'>1</capacity>\
                          <target><format type='qcow2'/></target></volume>";
            // Another promise may have made it: all of this process share one test driver.
            let _ = StorageVol::create_xml(&pool, volume, 0);
            Self {
                name: "libvirt's test driver",
                backend: connect(uri, "default-pool", VirtType::Auto),
                direct,
                network: "default".to_owned(),
                image: ImageRequest::Platform("base.qcow2".to_owned()),
                boots: false,
                _image_folder: None,
            }
        }

        /// The libvirt that the environment names; none when it names none.
        pub fn named() -> Option<Self> {
            static TOLD: Once = Once::new();
            let variable = |name: &str| std::env::var(format!("OCPDEPLOY_CONTRACT_LIBVIRT_{name}")).ok();
            let Some(uri) = variable("URI") else {
                TOLD.call_once(|| {
                    let text = "left out: a real libvirt, since OCPDEPLOY_CONTRACT_LIBVIRT_URI is not set";
                    let _ = writeln!(std::io::stderr(), "{text}");
                });
                return None;
            };
            let pool = variable("POOL").unwrap_or("default".to_owned());
            let (image, folder) = match variable("IMAGE") {
                Some(path) => (PathBuf::from(path), None),
                None => {
                    let folder = tempfile::tempdir().unwrap();
                    let path = folder.path().join("empty.qcow2");
                    std::fs::write(&path, qcow2::empty()).unwrap();
                    (path, Some(folder))
                }
            };
            let bytes = std::fs::read(&image).unwrap();
            Some(Self {
                name: "the libvirt that is named",
                backend: connect(&uri, &pool, VirtType::Qemu),
                direct: Connect::open(Some(&uri)).unwrap(),
                network: variable("NETWORK").unwrap_or("default".to_owned()),
                image: ImageRequest::File {
                    path: image,
                    sha256: digest::sha256(&bytes),
                    bytes: bytes.len() as u64,
                },
                boots: folder.is_none(),
                _image_folder: folder,
            })
        }
    }

    fn connect(uri: &str, pool: &str, virt_type: VirtType) -> Libvirt {
        let config = LibvirtConfig {
            uri: uri.to_owned(),
            pool: pool.to_owned(),
            virt_type,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(Libvirt::connect(&config)).unwrap()
    }

    impl Ground for LibvirtGround {
        type Backend = Libvirt;

        fn name(&self) -> &'static str {
            self.name
        }

        fn backend(&self) -> &Libvirt {
            &self.backend
        }

        fn network(&self) -> String {
            self.network.clone()
        }

        fn image(&self) -> ImageRequest {
            self.image.clone()
        }

        fn config(&self) -> Vec<u8> {
            match self.lacks(Ability::Configs) {
                Some(_) => Vec::new(),
                None => br#"{"ignition":{"version":"3.1.0"}}"#.to_vec(),
            }
        }

        fn lacks(&self, ability: Ability) -> Option<&'static str> {
            let is_test_driver = matches!(self.image, ImageRequest::Platform(_));
            match ability {
                Ability::Images | Ability::Configs if is_test_driver => Some("it has no volume upload"),
                Ability::Leases if !self.boots => Some("no image that boots is named"),
                _ => None,
            }
        }

        fn put_stranger(&self, name: &MachineName) {
            let kind = if self.direct.uri().unwrap().starts_with("test") {
                "test"
            } else {
                "qemu"
            };
            let xml = format!(
                "<domain type='{kind}'><name>{name}</name><memory unit='MiB'>64</memory>\
                 <os><type>hvm</type></os></domain>"
            );
            self.direct.define_domain_xml(&xml).unwrap();
        }

        fn has_stranger(&self, name: &MachineName) -> bool {
            self.direct.lookup_domain_by_name(name.as_str()).is_ok()
        }

        fn remove_stranger(&self, name: &MachineName) {
            if let Ok(domain) = self.direct.lookup_domain_by_name(name.as_str()) {
                domain.undefine().unwrap();
            }
        }
    }
}

/// An OpenStack that the environment names; OpenStack's own library is the way past the backend.
mod ground_openstack {
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::Once;

    use ocpdeploy::backend::ImageRequest;
    use ocpdeploy::backend::openstack::OpenStack;
    use ocpdeploy::cluster::{Affinity, MachineName, OpenStackConfig, OsBoot, OsFlavors, OsIgnition};
    use ocpdeploy::digest;
    use serde_json::{Value, json};

    use crate::contract::{Ability, Ground};

    pub struct OpenStackGround {
        backend: OpenStack,
        cloud: String,
        network: String,
        image: ImageRequest,
        _folder: tempfile::TempDir,
    }

    fn variable(name: &str) -> Option<String> {
        std::env::var(format!("OCPDEPLOY_CONTRACT_OPENSTACK_{name}")).ok()
    }

    impl OpenStackGround {
        /// None when the environment names no cloud.
        pub fn named() -> Option<Self> {
            static TOLD: Once = Once::new();
            let Some(cloud) = variable("CLOUD") else {
                TOLD.call_once(|| {
                    let text = "left out: a real OpenStack, since OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD is not set";
                    let _ = writeln!(std::io::stderr(), "{text}");
                });
                return None;
            };
            // An image of its own for each promise: the bytes behind a qcow2's end are nobody's.
            let folder = tempfile::tempdir().unwrap();
            let mut bytes = std::fs::read(variable("IMAGE").expect("OCPDEPLOY_CONTRACT_OPENSTACK_IMAGE")).unwrap();
            bytes.extend(folder.path().as_os_str().as_encoded_bytes());
            let path: PathBuf = folder.path().join("guest.qcow2");
            std::fs::write(&path, &bytes).unwrap();
            let config = OpenStackConfig {
                cloud: Some(cloud.clone()),
                region: None,
                boot: OsBoot::Image,
                volume_type: None,
                zone: variable("ZONE"),
                affinity: Affinity::Soft,
                flavors: OsFlavors::default(),
                external_network: None,
                api_floating_ip: None,
                ingress_floating_ip: None,
                ignition: OsIgnition::Auto,
                image_import: false,
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            Some(Self {
                backend: runtime.block_on(OpenStack::connect(&config)).unwrap(),
                cloud,
                network: variable("NETWORK").unwrap_or("private".to_owned()),
                image: ImageRequest::File {
                    path,
                    sha256: digest::sha256(&bytes),
                    bytes: bytes.len() as u64,
                },
                _folder: folder,
            })
        }

        /// OpenStack's own library; gives what it printed.
        fn judge(&self, arguments: &[&str]) -> String {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/openstack_judge.py");
            let mut command = Command::new("/usr/bin/python3");
            command
                .args(["-W", "ignore"])
                .arg(script)
                .arg(&self.cloud)
                .args(arguments);
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {said}");
            String::from_utf8(output.stdout).unwrap()
        }
    }

    impl Ground for OpenStackGround {
        type Backend = OpenStack;

        fn name(&self) -> &'static str {
            "the OpenStack that is named"
        }

        fn backend(&self) -> &OpenStack {
            &self.backend
        }

        fn network(&self) -> String {
            self.network.clone()
        }

        fn image(&self) -> ImageRequest {
            self.image.clone()
        }

        fn lacks(&self, ability: Ability) -> Option<&'static str> {
            let has_disks = ability != Ability::ExtraDisks || variable("VOLUMES").is_some();
            (!has_disks).then_some("it has no block storage")
        }

        fn put_stranger(&self, name: &MachineName) {
            self.judge(&["server-put", name.as_str()]);
        }

        fn has_stranger(&self, name: &MachineName) -> bool {
            let seen: Value = serde_json::from_str(&self.judge(&["see", name.as_str()])).unwrap();
            seen["servers"] != json!([])
        }

        fn remove_stranger(&self, name: &MachineName) {
            self.judge(&["server-drop", name.as_str()]);
        }
    }
}
