//! libvirt for the contract: its test driver, which lives in this process, or a real one.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, Once};

use ocpdeploy::backend::libvirt::Libvirt;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{ImageRequest, Snapshot};
use ocpdeploy::cluster::{Architecture, LibvirtConfig, MachineName, VirtType};
use ocpdeploy::digest;
use virt::connect::Connect;
use virt::storage_pool::StoragePool;
use virt::storage_vol::StorageVol;
use virt::sys;

use crate::support::contract::{Ability, Foreign, Ground};
use crate::support::faulty::alone;
use crate::support::qcow2;

pub struct LibvirtGround {
    name: &'static str,
    backend: Platforms,
    /// libvirt's own calls, as an independent client.
    direct: Connect,
    pool: String,
    network: String,
    image: ImageRequest,
    foreign: Mutex<Planted>,
    /// Whether the image boots.
    boots: bool,
    _image_folder: Option<tempfile::TempDir>,
}

impl LibvirtGround {
    /// It has domains, volumes and networks, but copies no data and runs nothing.
    pub fn test_driver() -> Self {
        let uri = "test:///default";
        // First, because it loads libvirt's library.
        let backend = connect(uri, "default-pool", VirtType::Auto);
        let direct = Connect::open(Some(uri)).unwrap();
        let pool = direct.lookup_storage_pool_by_name("default-pool").unwrap();
        let volume = "<volume><name>base.qcow2</name><capacity unit='MiB'>1</capacity>\
                      <target><format type='qcow2'/></target></volume>";
        // Another promise may have created it: all promises of this process share one test driver.
        let _ = StorageVol::create_xml(&pool, volume, 0);
        Self {
            name: "libvirt's test driver",
            backend: alone(backend),
            direct,
            pool: "default-pool".to_owned(),
            network: "default".to_owned(),
            image: ImageRequest::Platform("base.qcow2".to_owned()),
            foreign: Mutex::default(),
            boots: false,
            _image_folder: None,
        }
    }

    /// The libvirt that the environment names, if any.
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
            // Before `direct`, because it loads libvirt's library.
            backend: alone(connect(&uri, &pool, VirtType::Qemu)),
            direct: Connect::open(Some(&uri)).unwrap(),
            pool,
            foreign: Mutex::default(),
            network: variable("NETWORK").unwrap_or("default".to_owned()),
            image: ImageRequest::File {
                path: image,
                sha256: digest::sha256(&bytes),
                bytes: bytes.len() as u64,
                arch: Architecture::X86_64,
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
        disk_cache: Default::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(Libvirt::connect(&config)).unwrap()
}

impl LibvirtGround {
    fn pool(&self) -> StoragePool {
        self.direct.lookup_storage_pool_by_name(&self.pool).unwrap()
    }

    /// Runs a command of qemu-io on the first disk of a machine; `None` if disks have no files here.
    fn qemu_io(&self, name: &MachineName, command: &str) -> Option<String> {
        let xml = self
            .direct
            .lookup_domain_by_name(name.as_str())
            .unwrap()
            .xml_desc(0)
            .unwrap();
        let (_, rest) = xml.split_once("<source file='")?;
        let (path, _) = rest.split_once('\'')?;
        if !std::path::Path::new(path).exists() {
            return None;
        }
        let output = Command::new("qemu-io")
            .args(["-f", "qcow2", "-c", command, path])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && !said.contains("failed"),
            "{command} {path}: {said}"
        );
        Some(said)
    }

    fn domain_type(&self) -> &'static str {
        match self.direct.uri().unwrap().starts_with("test") {
            true => "test",
            false => "qemu",
        }
    }
}

impl Ground for LibvirtGround {
    fn name(&self) -> &'static str {
        self.name
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
            // A real network may have other reservations.
            Ability::Foreign if !is_test_driver => Some("it may have other addresses"),
            _ => None,
        }
    }

    fn put_unowned(&self, name: &MachineName) {
        let kind = self.domain_type();
        let xml = format!(
            "<domain type='{kind}'><name>{name}</name><memory unit='MiB'>64</memory>\
             <os><type>hvm</type></os></domain>"
        );
        self.direct.define_domain_xml(&xml).unwrap();
    }

    fn has_unowned(&self, name: &MachineName) -> bool {
        self.direct.lookup_domain_by_name(name.as_str()).is_ok()
    }

    fn remove_unowned(&self, name: &MachineName) {
        if let Ok(domain) = self.direct.lookup_domain_by_name(name.as_str()) {
            domain.undefine().unwrap();
        }
    }

    fn put_foreign(&self, all: &[Foreign]) {
        let network = self.direct.lookup_network_by_name(&self.network).unwrap();
        let kind = self.domain_type();
        let mut planted = self.foreign.lock().unwrap();
        for (index, one) in all.iter().enumerate() {
            let mark = one.text(str::to_owned).map(|cluster| {
                format!(
                    "<metadata><o:machine xmlns:o='https://ocpdeploy.dev/1' cluster='{cluster}' node='worker-0' \
                     role='worker' pass='two' fingerprint='f'/></metadata>"
                )
            });
            let xml = format!(
                "<domain type='{kind}'><name>{}</name>{}<memory unit='MiB'>64</memory>\
                 <os><type>hvm</type></os></domain>",
                one.name,
                mark.unwrap_or_default()
            );
            self.direct.define_domain_xml(&xml).unwrap();
            let of_machine = one.text(|id| format!("ocpdeploy_{id}_{}_disk.qcow2", one.name));
            let uses = one.text(|id| format!("ocpdeploy_{id}_uses-{}", "0".repeat(32)));
            let volumes = [Some(format!("{}_disk.qcow2", one.name)), of_machine, uses];
            for name in volumes.into_iter().flatten() {
                let xml = format!(
                    "<volume><name>{name}</name><capacity unit='MiB'>1</capacity>\
                     <target><format type='raw'/></target></volume>"
                );
                StorageVol::create_xml(&self.pool(), &xml, 0).unwrap();
                planted.volumes.push(name);
            }
            let host = one
                .text(|id| format!("worker-0.{id}.ocpdeploy"))
                .unwrap_or(one.name.clone());
            // From the network's end, where no promise reserves any.
            let ip = format!("192.168.122.{}", 20 + index);
            let mac = format!("52:54:01:{index:02x}:00:{:02x}", std::process::id() % 256);
            let entries = [
                (
                    sys::VIR_NETWORK_SECTION_IP_DHCP_HOST,
                    format!("<host mac='{mac}' name='{host}' ip='{ip}'/>"),
                ),
                (
                    sys::VIR_NETWORK_SECTION_DNS_HOST,
                    format!(
                        "<host ip='{ip}'><hostname>{}</hostname><hostname>{host}</hostname></host>",
                        one.name
                    ),
                ),
            ];
            for (section, entry) in entries {
                network
                    .update(sys::VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, section, -1, &entry, LIVE)
                    .unwrap();
                planted.entries.push((section, entry));
            }
            planted.domains.push(one.name.clone());
        }
    }

    fn foreign(&self) -> Vec<String> {
        let planted = self.foreign.lock().unwrap();
        let domain = |name: &String| Some(self.direct.lookup_domain_by_name(name).ok()?.xml_desc(0).unwrap());
        let mut found: Vec<String> = planted.domains.iter().filter_map(domain).collect();
        let pool = self.pool();
        let volume = |name: &String| Some(pool.lookup_storage_vol_by_name(name).ok()?.xml_desc(0).unwrap());
        found.extend(planted.volumes.iter().filter_map(volume));
        let network = self
            .direct
            .lookup_network_by_name(&self.network)
            .unwrap()
            .xml_desc(0)
            .unwrap();
        // One line each, as they were added.
        let lines: Vec<_> = network.lines().map(str::trim).collect();
        let network = lines.concat();
        found.extend(
            planted
                .entries
                .iter()
                .map(|(_, entry)| entry.clone())
                .filter(|entry| network.contains(entry)),
        );
        found
    }

    fn write_disk(&self, name: &MachineName, content: u8) {
        self.qemu_io(name, &format!("write -P {content} 0 64k"));
    }

    fn read_disk(&self, name: &MachineName) -> Option<u8> {
        // `00000000:  02 02 02 02 …`
        let said = self.qemu_io(name, "read -v 0 512")?;
        let byte = said.split_whitespace().nth(1).unwrap().to_owned();
        Some(u8::from_str_radix(&byte, 16).unwrap())
    }

    fn put_foreign_snapshot(&self, name: &MachineName, snapshot: &Snapshot) {
        let domain = self.direct.lookup_domain_by_name(name.as_str()).unwrap();
        let own = format!("ocpdeploy_{}_{}", snapshot.name, snapshot.taken.as_millisecond());
        for (name, description) in [("mine", "before the update"), (own.as_str(), "ocpdeploy: cluster lab")] {
            let xml =
                format!("<domainsnapshot><name>{name}</name><description>{description}</description></domainsnapshot>");
            domain.create_snapshot_xml(&xml, 0).unwrap();
        }
    }

    fn count_snapshots(&self, name: &MachineName) -> usize {
        let domain = self.direct.lookup_domain_by_name(name.as_str()).unwrap();
        domain.list_all_snapshots(0).unwrap().len()
    }

    fn remove_foreign(&self) {
        let planted = std::mem::take(&mut *self.foreign.lock().unwrap());
        for name in &planted.domains {
            self.remove_unowned(&name.parse().unwrap());
        }
        for name in &planted.volumes {
            if let Ok(volume) = self.pool().lookup_storage_vol_by_name(name) {
                volume.delete(0).unwrap();
            }
        }
        let network = self.direct.lookup_network_by_name(&self.network).unwrap();
        for (section, entry) in &planted.entries {
            let _ = network.update(sys::VIR_NETWORK_UPDATE_COMMAND_DELETE, *section, -1, entry, LIVE);
        }
    }
}

const LIVE: sys::virNetworkUpdateFlags = sys::VIR_NETWORK_UPDATE_AFFECT_LIVE;

/// Names, and entries of the network with their section.
#[derive(Default)]
struct Planted {
    domains: Vec<String>,
    volumes: Vec<String>,
    entries: Vec<(sys::virNetworkUpdateSection, String)>,
}
