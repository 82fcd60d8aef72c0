//! A cluster for tests of pure modules.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::*;

impl ClusterConfig {
    /// A cluster of 3 masters and 2 workers on the simulated platform, for tests of pure modules.
    pub(crate) fn example() -> Self {
        let size = |memory_mib| Size {
            cpus: 4,
            memory_mib,
            disk_gib: 100,
            extra_disks_gib: vec![],
        };
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let network = |text: &str| text.parse().expect("a network");
        let images = BootImages {
            coreos: ImageSource::Platform("rhcos".to_owned()),
            harvest: ImageSource::Platform("centos".to_owned()),
        };
        Self {
            name: "lab".to_owned(),
            domain: "example.com".to_owned(),
            env_file: None,
            deployment: Deployment {
                id: "x7k2pqrs".parse().expect("an id"),
                creation: "anna@laptop 2026-11-28T09:12:13Z".parse().expect("a creation"),
            },
            arch: Architecture::X86_64,
            tenant: String::new(),
            backend: BackendConfig::Sim(SimConfig {
                state: PathBuf::from("sim.json"),
            }),
            workers_on: None,
            masters: 3,
            arbiter: false,
            workers: 2,
            pools: vec![],
            bootstrap_size: size(8192),
            master_size: size(16384),
            arbiter_size: size(8192),
            worker_size: size(8192),
            harvest_size: Size {
                cpus: 1,
                memory_mib: 1024,
                disk_gib: 10,
                extra_disks_gib: vec![],
            },
            network: "default".to_owned(),
            extra_networks: vec![],
            networks: ClusterNetworks {
                network_type: "OVNKubernetes".to_owned(),
                cluster_network: network("10.128.0.0/14"),
                host_prefix: 23,
                service_network: network("172.30.0.0/16"),
                ovn_join_network: None,
            },
            ipv6: None,
            images: images.clone(),
            worker_images: images,
            foreign_images: BTreeMap::new(),
            given: GivenAddresses::default(),
            address_ranges: vec![],
            harvest: Harvest::Boot,
            mcs: Mcs::Tls,
            installer: InstallerChoice::Rehearsal,
            downloads: Downloads::from_publishers(
                PathBuf::from("cache"),
                ReleaseArchitecture::Single(Architecture::X86_64),
            ),
            lock: None,
            ssh_keys: vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJZ lab".to_owned()],
            pull_secret: SecretString::from(r#"{"auths":{}}"#),
            ca: None,
            proxy: Proxy::default(),
            registry_mirrors: vec![],
            registry_cache: None,
            egress_check: true,
            fips: false,
            capabilities: Capabilities::default(),
            manifests: None,
            mirror_manifests: vec![],
            fragments: vec![],
            network_config: vec![],
            use_br: false,
            masters_schedulable: false,
            ntp_servers: vec![],
            mtu: None,
            dns_search: vec![],
            registry: Registry::EmptyDir,
            dns: Dns::Dnsmasq,
            lb: Lb::Keepalived,
            dhcp: Dhcp::Platform,
            autostart: false,
            workers_when: WorkersWhen::Now,
            keep_bootstrap: false,
            timeouts: Timeouts {
                harvest: minutes(10),
                address: minutes(10),
                bootstrap: minutes(60),
                install: minutes(60),
                platform: minutes(2),
            },
            launch: Launch {
                limit: minutes(10),
                retries: 2,
            },
        }
    }
}

impl BackendConfig {
    /// oVirt's, with what it requires.
    pub(crate) fn example_ovirt() -> Self {
        let settings = serde_json::json!({"url": "https://engine.example.com/ovirt-engine", "user": "admin@internal",
            "cluster": "Default", "hosts": [], "affinity": "soft", "clone": false, "ignition": "auto"});
        Self::Ovirt(serde_json::from_value(settings).expect("settings of oVirt"))
    }
}
