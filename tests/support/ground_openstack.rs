//! OpenStack for the contract: one that the environment names, with OpenStack's own library as an independent client;
//! and the fake cloud of `fake_cloud.rs`, for faults that a real one does not show on demand.

use std::io::Write;
use std::mem::ManuallyDrop;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use ocpdeploy::backend::ImageRequest;
use ocpdeploy::backend::openstack::OpenStack;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::cluster::{
    Affinity, Architecture, Insecure, MachineName, OpenStackConfig, OsBoot, OsFlavors, OsIgnition,
};
use ocpdeploy::digest;
use serde_json::{Value, json};

use crate::support::contract::{Ability, Foreign, Ground, Mark};
use crate::support::fake_cloud::{FakeCloud, PASSWORD, Stores};
use crate::support::faulty::alone;
use crate::support::qcow2;

pub struct OpenStackGround {
    backend: Platforms,
    cloud: String,
    network: String,
    image: ImageRequest,
    _folder: tempfile::TempDir,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("OCPDEPLOY_CONTRACT_OPENSTACK_{name}")).ok()
}

impl OpenStackGround {
    /// `None` if the environment names no cloud.
    pub fn named() -> Option<Self> {
        static TOLD: Once = Once::new();
        let Some(cloud) = variable("CLOUD") else {
            TOLD.call_once(|| {
                let text = "left out: a real OpenStack, since OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD is not set";
                let _ = writeln!(std::io::stderr(), "{text}");
            });
            return None;
        };
        // A separate image for each promise: bytes after a qcow2's end are ignored.
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(variable("IMAGE").expect("OCPDEPLOY_CONTRACT_OPENSTACK_IMAGE")).unwrap();
        bytes.extend(folder.path().as_os_str().as_encoded_bytes());
        let path: PathBuf = folder.path().join("guest.qcow2");
        std::fs::write(&path, &bytes).unwrap();
        let config = OpenStackConfig {
            cloud: Some(cloud.clone()),
            region: None,
            boot: OsBoot::Image,
            volumes: true,
            volume_type: None,
            zone: variable("ZONE"),
            affinity: Affinity::Soft,
            flavors: OsFlavors::default(),
            machine_network: None,
            external_network: None,
            api_floating_ip: None,
            ingress_floating_ip: None,
            balancers: None,
            ignition: OsIgnition::Auto,
            image_import: false,
            volume_zone: None,
            volume_timeout: std::time::Duration::from_secs(600),
            admit: Vec::new(),
            client_ip: None,
            rehearsal: true,
            insecure: Insecure(false),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Some(Self {
            backend: alone(runtime.block_on(OpenStack::connect(&config)).unwrap()),
            cloud,
            network: variable("NETWORK").unwrap_or("private".to_owned()),
            image: ImageRequest::File {
                path,
                sha256: digest::sha256(&bytes),
                bytes: bytes.len() as u64,
                arch: Architecture::X86_64,
            },
            _folder: folder,
        })
    }

    /// Runs OpenStack's own library; returns its output.
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
    fn name(&self) -> &'static str {
        "the named OpenStack"
    }

    fn backend(&self) -> &Platforms {
        &self.backend
    }

    fn network(&self) -> String {
        self.network.clone()
    }

    fn image(&self) -> ImageRequest {
        self.image.clone()
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::ExtraDisks if variable("VOLUMES").is_none() => Some("it has no block storage"),
            Ability::Foreign => Some("tests/lab_openstack.rs does that"),
            _ => None,
        }
    }

    fn put_unowned(&self, name: &MachineName) {
        self.judge(&["server-put", name.as_str()]);
    }

    fn has_unowned(&self, name: &MachineName) -> bool {
        let seen: Value = serde_json::from_str(&self.judge(&["see", name.as_str()])).unwrap();
        seen["servers"] != json!([])
    }

    fn remove_unowned(&self, name: &MachineName) {
        self.judge(&["server-drop", name.as_str()]);
    }
}

/// The fake cloud, in a process whose environment points to it.
pub struct PretendGround {
    /// Its runtime ends with the process, because the promise still runs on another runtime.
    cloud: ManuallyDrop<FakeCloud>,
    backend: Platforms,
    folder: tempfile::TempDir,
}

/// The user's own floating IP, which the settings give to the API.
const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 50);
const HERE: &str = "OCPDEPLOY_TEST_PRETEND_CLOUD";

impl PretendGround {
    /// `None` in a process that was not started for it.
    pub fn here() -> Option<Self> {
        let clouds = std::env::var_os(HERE)?;
        let cloud = FakeCloud::start();
        let text = format!(
            "clouds:\n  lab:\n    auth:\n      auth_url: {}\n      username: demo\n      project_name: demo\n      \
             password: {PASSWORD}\n",
            cloud.auth_url()
        );
        std::fs::write(clouds, text).unwrap();
        cloud.with(|world| {
            world.more = vec!["volumev3", "load-balancer"];
            let own = json!({"id": "own", "floating_ip_address": OWN, "port_id": null, "description": ""});
            world.stores.floating_ips.push(own);
        });
        let config = OpenStackConfig {
            cloud: Some("lab".to_owned()),
            region: None,
            boot: OsBoot::Image,
            volumes: true,
            volume_type: None,
            zone: None,
            affinity: Affinity::Soft,
            flavors: OsFlavors::default(),
            machine_network: None,
            external_network: None,
            api_floating_ip: Some(OWN),
            ingress_floating_ip: None,
            balancers: None,
            ignition: OsIgnition::Auto,
            image_import: false,
            volume_zone: None,
            volume_timeout: std::time::Duration::from_secs(600),
            admit: Vec::new(),
            client_ip: None,
            rehearsal: true,
            insecure: Insecure(false),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let backend = runtime.block_on(OpenStack::connect(&config)).unwrap();
        let cloud = ManuallyDrop::new(cloud);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("image.qcow2"), qcow2::empty()).unwrap();
        Some(Self {
            cloud,
            backend: alone(backend),
            folder,
        })
    }

    /// Runs one test of this program in a process with `here`.
    pub fn elsewhere(test: &str) {
        let folder = tempfile::tempdir().unwrap();
        let clouds = folder.path().join("clouds.yaml");
        let output = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(HERE, &clouds)
            .env("OS_CLIENT_CONFIG_FILE", &clouds)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        for line in said.lines().filter(|line| line.starts_with("reliability")) {
            println!("{line}");
        }
    }
}

impl Ground for PretendGround {
    fn name(&self) -> &'static str {
        "the fake cloud"
    }

    fn backend(&self) -> &Platforms {
        &self.backend
    }

    fn network(&self) -> String {
        "private".to_owned()
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

    fn lacks(&self, _: Ability) -> Option<&'static str> {
        None
    }

    fn put_unowned(&self, _: &MachineName) {
        unimplemented!("the promise kept here knows none");
    }

    fn has_unowned(&self, _: &MachineName) -> bool {
        false
    }

    fn remove_unowned(&self, _: &MachineName) {}

    fn put_foreign(&self, all: &[Foreign]) {
        let ours = all.iter().find_map(|one| match &one.mark {
            Mark::Around(id) => Some(id.as_str()),
            _ => None,
        });
        let ours = ours.unwrap();
        let short = ours.split('.').next().unwrap();
        self.cloud.with(|world| {
            world.ignores_filters = true;
            for (index, one) in all.iter().enumerate() {
                let (name, id) = (&one.name, format!("foreign-{index}"));
                let mark = one.text(|id| format!("ocpdeploy {id}")).unwrap_or_default();
                let cluster = one.text(str::to_owned);
                let tags = cluster
                    .iter()
                    .flat_map(|cluster| ["ocpdeploy", cluster])
                    .collect::<Vec<_>>();
                world.ports.push(json!({
                    "id": id, "name": format!("{short}-worker-0:0"), "description": mark, "network_id": "net-1",
                    "mac_address": format!("52:54:01:00:00:{index:02x}"), "device_id": "",
                    "fixed_ips": [{"subnet_id": "sub-1", "ip_address": format!("10.20.0.{}", 20 + index)}],
                }));
                let stores = &mut world.stores;
                stores.floating_ips.insert(
                    0,
                    json!({"id": id, "floating_ip_address": format!("203.0.113.{}", 60 + index),
                    "port_id": null, "description": mark}),
                );
                stores
                    .groups
                    .push(json!({"id": id, "name": mark, "description": mark, "security_group_rules": []}));
                stores
                    .server_groups
                    .push(json!({"id": id, "name": format!("{mark} masters"), "members": []}));
                stores.servers.push(json!({
                    "id": id, "name": name, "status": "ACTIVE", "hostId": "host-0", "tags": tags, "addresses": {},
                    "flavor": {"vcpus": 1}, "metadata": {"ocpdeploy.cluster": cluster, "ocpdeploy.node": "worker-0",
                    "ocpdeploy.role": "worker", "ocpdeploy.pass": "two"},
                }));
                stores.volumes.push(
                    json!({"id": id, "name": format!("{short}-worker-0:disk0"), "status": "available",
                    "size": 1, "attachments": [], "metadata": {"ocpdeploy.cluster": cluster}}),
                );
                // The image without an owner has the bytes that we upload, but was not uploaded by us.
                let mut image = json!({"id": id, "name": name, "status": "active", "tags": tags});
                if cluster.is_none() {
                    image["ocpdeploy_sha256"] = json!(digest::sha256(qcow2::empty()));
                }
                stores.images.push(image);
            }
            for (index, one) in all.iter().enumerate() {
                let cluster = one.text(str::to_owned);
                let tags: Vec<_> = cluster.iter().flat_map(|cluster| ["ocpdeploy", cluster]).collect();
                world.octavia.load_balancers.push(json!({
                    "id": format!("foreign-lb-{index}"), "name": format!("api.{ours}"), "description": "",
                    "tags": tags, "provider": "amphora", "provisioning_status": "ACTIVE",
                    "operating_status": "ONLINE", "vip_address": format!("10.20.0.{}", 60 + index),
                    "vip_port_id": format!("foreign-{index}"),
                }));
            }
            let default = json!({"id": "foreign-default", "name": "default", "description": "Default security group",
                "security_group_rules": []});
            world.stores.groups.insert(0, default);
            let group = json!({"id": "foreign-group", "name": format!("ocpdeploy {ours} my databases"), "members": []});
            world.stores.server_groups.push(group);
        });
    }

    fn foreign(&self) -> Vec<String> {
        self.cloud.with(|world| {
            let Stores {
                images,
                groups,
                floating_ips,
                server_groups,
                servers,
                volumes,
                ..
            } = &world.stores;
            let kinds = [
                &world.ports,
                &world.octavia.load_balancers,
                images,
                groups,
                floating_ips,
                server_groups,
                servers,
                volumes,
            ];
            let all = kinds.into_iter().flatten();
            let foreign = all.filter(|thing| thing["id"].as_str().unwrap().starts_with("foreign-"));
            foreign.map(Value::to_string).collect()
        })
    }
}

impl Drop for PretendGround {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.cloud.was_asked_well();
            self.cloud.with(|world| {
                let own = world
                    .stores
                    .floating_ips
                    .iter()
                    .find(|floating| floating["id"] == "own");
                assert_ne!(
                    own.expect("the user's own is kept")["port_id"],
                    Value::Null,
                    "it was given to the API"
                );
            });
        }
    }
}
