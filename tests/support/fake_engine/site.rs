//! The site of a fresh engine: two data centers with the same network names, two hosts, two images.

use super::world::*;

impl World {
    /// Data center `Default` (cluster `Default`, hosts `host-1` and `host-2`, storage `data` and `slow`) and `Remote`.
    pub fn site() -> Self {
        let mut world = Self::empty();
        world.password = "letmein".to_owned();
        let pool = world.new_id();
        world.mac_pools.push(MacPool {
            id: pool.clone(),
            name: "Default".to_owned(),
            range: ([0x56, 0x6f, 0xf7, 0xbb, 0, 0], [0x56, 0x6f, 0xf7, 0xbb, 0xff, 0xff]),
            allow_duplicates: false,
        });
        for name in [
            "vdsm-no-mac-spoofing",
            "clean-traffic",
            "no-ip-spoofing",
            "no-arp-ip-spoofing",
        ] {
            let id = world.new_id();
            world.filters.push(Named {
                id,
                name: name.to_owned(),
                description: String::new(),
            });
        }
        for (center, cluster, networks) in [
            ("Remote", "Far", &[("ovirtmgmt", "vdsm-no-mac-spoofing")][..]),
            (
                "Default",
                "Default",
                &[
                    ("ovirtmgmt", "vdsm-no-mac-spoofing"),
                    ("filtered", "clean-traffic"),
                    ("plain", ""),
                ],
            ),
        ] {
            let data_center = world.new_id();
            let (name, mac_pool) = (center.to_owned(), pool.clone());
            world.data_centers.push(DataCenter {
                id: data_center.clone(),
                name,
                mac_pool: mac_pool.clone(),
            });
            let id = world.new_id();
            world.clusters.push(Cluster {
                id,
                name: cluster.to_owned(),
                data_center: data_center.clone(),
                mac_pool,
                cpu_type: "Intel Cascadelake Server Family".to_owned(),
                version: [4, 7],
                threads_as_cores: false,
            });
            for (name, filter) in networks {
                let network = world.new_id();
                world.networks.push(Network {
                    id: network.clone(),
                    name: (*name).to_owned(),
                    data_center: data_center.clone(),
                });
                let id = world.new_id();
                let filter = world
                    .filters
                    .iter()
                    .find(|known| known.name == *filter)
                    .map(|known| known.id.clone());
                world.profiles.push(Profile {
                    id,
                    name: (*name).to_owned(),
                    network,
                    filter,
                });
            }
        }
        let (far, near) = (world.data_centers[0].id.clone(), world.data_centers[1].id.clone());
        for (name, data_center, kind, available) in [
            ("far-data", &far, "data", 500 * GIB),
            ("data", &near, "data", 2_000 * GIB),
            ("slow", &near, "data", 8_000 * GIB),
            ("iso", &near, "iso", 50 * GIB),
        ] {
            let id = world.new_id();
            world.storage_domains.push(StorageDomain {
                id,
                name: name.to_owned(),
                data_center: data_center.clone(),
                kind: kind.to_owned(),
                status: "active".to_owned(),
                available,
                used: 100 * GIB,
            });
        }
        let cluster = world.clusters[1].id.clone();
        for number in 1..=2 {
            let id = world.new_id();
            world.hosts.push(Host {
                id,
                name: format!("host-{number}"),
                cluster: cluster.clone(),
                address: format!("host-{number}.example.com"),
                status: "up".to_owned(),
                memory: 256 * GIB,
            });
        }
        let id = world.new_id();
        world.permissions.push(Permission {
            id,
            role: "SuperUser".to_owned(),
            on: None,
        });
        world.templates.push(Template {
            id: BLANK.to_owned(),
            name: "Blank".to_owned(),
            version: 1,
            description: "Blank template".to_owned(),
            comment: String::new(),
            cluster: String::new(),
            status: "ok".to_owned(),
            shape: Hardware::plain(),
            nics: Vec::new(),
            disks: Vec::new(),
            init: None,
            agent: Agent::ByCloudInit,
            created: 0,
        });
        world.put_template("centos", 10 * GIB, "rhel_9x64", Agent::ByCloudInit);
        world.put_template("rhcos", 16 * GIB, "rhcos_x64", Agent::Never);
        world
    }

    /// A template of the cluster `Default` with one disk on `data` and one NIC, as an administrator makes it.
    pub fn put_template(&mut self, name: &str, disk_bytes: u64, os_type: &str, agent: Agent) -> String {
        let id = self.new_id();
        let disk = self.new_id();
        let domain = id_of(&self.storage_domains, "data");
        self.disks.push(Disk {
            id: disk.clone(),
            name: format!("{name}_Disk1"),
            description: String::new(),
            format: "cow".to_owned(),
            content_type: "data".to_owned(),
            provisioned_size: disk_bytes,
            initial_size: 0,
            sparse: true,
            storage_domain: domain,
            status: "ok".to_owned(),
            template: Some(id.clone()),
            data: [].into(),
        });
        let network = self.networks.iter().rev().find(|network| network.name == "ovirtmgmt");
        let profile = network.and_then(|network| self.profiles.iter().find(|profile| profile.network == network.id));
        let profile = profile.map(|profile| profile.id.clone());
        let nic = Nic {
            id: self.new_id(),
            name: "nic1".to_owned(),
            interface: "virtio".to_owned(),
            mac: String::new(),
            profile,
            linked: true,
            plugged: true,
        };
        let template = Template {
            id: id.clone(),
            name: name.to_owned(),
            version: 1,
            description: String::new(),
            comment: String::new(),
            cluster: id_of(&self.clusters, "Default"),
            status: "ok".to_owned(),
            shape: Hardware {
                os_type: os_type.to_owned(),
                ..Hardware::plain()
            },
            nics: vec![nic],
            disks: vec![Attachment {
                disk,
                interface: "virtio_scsi".to_owned(),
                bootable: true,
                active: true,
            }],
            init: None,
            agent,
            created: self.now,
        };
        self.templates.push(template);
        id
    }

    /// A machine of another owner without disks or NICs.
    pub fn put_vm(&mut self, name: &str) -> String {
        let (id, cluster) = (self.new_id(), id_of(&self.clusters, "Default"));
        let vm = Vm::new(id.clone(), name, cluster, &self.templates[0], self.now);
        self.vms.push(vm);
        id
    }
}

impl Hardware {
    pub fn plain() -> Self {
        Self {
            memory: GIB,
            guaranteed: GIB,
            cores: 1,
            sockets: 1,
            threads: 1,
            os_type: "other".to_owned(),
            boot: vec!["hd".to_owned()],
            kind: "server".to_owned(),
            is_stateless: false,
            is_delete_protected: false,
            starts_paused: false,
            quota: None,
        }
    }
}
