//! Derives the machines of both passes from a cluster's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use serde::Serialize;

use crate::backend::{Capabilities, ImageHandle, LoadBalancer, MachineSpec, NetworkFacts, Nic, Payload, Requirements};
use crate::cluster::{
    self, AddressAssignment, Architecture, BootImages, ClusterConfig, Dhcp, ImageSource, InstallerChoice, Lb, Mac,
    MachineName, Mcs, NodeName, NodeSpec, Pass, Role, Size, Vip,
};
use crate::plan::addresses::derive_mac;
use crate::state::parameters::{NodeAddress, Parameters};

/// A machine of one of the passes, before its image and payload are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    pub name: MachineName,
    pub node: NodeName,
    pub role: Role,
    /// Its platform: `worker` for the workers' own one, otherwise `master`; see `place_of`.
    #[serde(skip)]
    pub place: Role,
    pub pass: Pass,
    #[serde(skip_serializing_if = "Architecture::is_default")]
    pub arch: Architecture,
    pub size: Size,
    pub nics: Vec<Nic>,
    /// Of the first NIC, which identifies the machine.
    #[serde(skip)]
    pub mac: Mac,
    /// `None` before pass one.
    pub ip: Option<IpAddr>,
    /// Known together with `ip`, if the cluster has two address families.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
}

impl Planned {
    /// The specification for the backend.
    pub fn spec(&self, config: &ClusterConfig, image: &ImageHandle, payload: Payload) -> MachineSpec {
        MachineSpec {
            cluster: config.id(),
            creation: config.deployment.creation.clone().of_kind(config.is_rehearsal()),
            name: self.name.clone(),
            node: self.node.clone(),
            role: self.role,
            pass: self.pass,
            arch: self.arch,
            cpus: self.size.cpus,
            memory_mib: self.size.memory_mib,
            disk_gib: self.size.disk_gib,
            extra_disks_gib: self.size.extra_disks_gib.clone(),
            image: image.clone(),
            nics: self.nics.clone(),
            payload,
            autostart: config.autostart && self.pass == Pass::Two && self.role != Role::Bootstrap,
            ipv6: config.ipv6.as_ref().map(|ipv6| ipv6.machine_network),
        }
    }
}

/// The MAC of each node and VIP.
pub type MacTable = BTreeMap<NodeName, Mac>;

/// Chooses all MACs of a cluster: the given ones, otherwise derived ones that avoid `taken`.
pub fn macs(config: &ClusterConfig, taken: &BTreeSet<Mac>) -> MacTable {
    let mut taken = taken.clone();
    let mut table = MacTable::new();
    let nodes = config.nodes();
    taken.extend(nodes.iter().filter_map(|node| node.mac));
    let vips = Vip::ALL.map(|vip| (NodeName::vip(vip), None));
    for (node, given) in nodes.into_iter().map(|node| (node.name, node.mac)).chain(vips) {
        let mac = given.unwrap_or_else(|| derive_mac(&config.tenant, &config.cluster_domain(), node.as_str(), &taken));
        taken.insert(mac);
        table.insert(node, mac);
    }
    table
}

/// Whether a VIP's address is neither set nor that of a load balancer of the platform.
pub fn is_open(config: &ClusterConfig, vip: Vip) -> bool {
    config.given.vip(vip).is_none() && config.lb != Lb::Platform
}

/// Whether pass one finds a VIP, by a machine or by a reservation: nothing else determines its address.
pub fn is_harvested(config: &ClusterConfig, vip: Vip) -> bool {
    is_open(config, vip) && config.address_ranges.is_empty()
}

/// The whole table from the env file, for `harvest=static`; `settings` has checked that it is complete.
pub fn static_leases(config: &ClusterConfig, macs: &MacTable) -> Vec<AddressAssignment> {
    let vips = Vip::ALL
        .into_iter()
        .map(|vip| (NodeName::vip(vip), config.given.vip(vip)));
    let nodes = config.nodes().into_iter().map(|node| (node.name, node.ip));
    vips.chain(nodes)
        .filter_map(|(name, ip)| {
            Some(AddressAssignment {
                mac: *macs.get(&name)?,
                ip: ip?,
                name,
            })
        })
        .collect()
}

/// The MACs of a cluster's VIPs: as they would be chosen now, and as they are in the table.
pub fn vip_macs(macs: &MacTable, table: Option<&Parameters>) -> BTreeSet<Mac> {
    let now = Vip::ALL
        .into_iter()
        .filter_map(|vip| macs.get(&NodeName::vip(vip)).copied());
    let kept = table
        .into_iter()
        .flat_map(|table| Vip::ALL.map(|vip| table.vip(vip).mac));
    now.chain(kept).collect()
}

/// The platform's load balancer for a VIP, at its address in the table if it exists. After the bootstrap phase the
/// bootstrap is not a member of it.
pub fn balancer(config: &ClusterConfig, vip: Vip, table: Option<&Parameters>, bootstrapped: bool) -> LoadBalancer {
    let (ports, roles) = match vip {
        Vip::Api if config.mcs == Mcs::Http => (vec![6443, 22623, 22624], vec![Role::Bootstrap, Role::Master]),
        Vip::Api => (vec![6443, 22623], vec![Role::Bootstrap, Role::Master]),
        Vip::Ingress => (vec![80, 443], config.router_roles()),
    };
    let members = table.map(|table| {
        let takes = |node: &&NodeAddress| {
            let is_due = roles.contains(&node.role) && !(bootstrapped && node.role == Role::Bootstrap);
            is_due && (vip == Vip::Api || config.admits_routers(&node.name))
        };
        table.all_nodes().filter(takes).map(NodeAddress::lease).collect()
    });
    LoadBalancer {
        cluster: config.id(),
        network: config.network.clone(),
        vip,
        ip: table.map(|table| table.vip(vip).ip).or_else(|| config.given.vip(vip)),
        ports,
        roles,
        members,
        checked: config.installer != InstallerChoice::Rehearsal,
    }
}

/// How the VIPs that are not set get their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VipSource {
    /// A helper machine leases each.
    Leased,
    /// The platform reserves each without a machine.
    Reserved,
}

impl VipSource {
    /// The platform reserves them if it is the DHCP server of the network. Without facts about the network, the
    /// settings decide.
    pub fn of(config: &ClusterConfig, capabilities: &Capabilities, facts: Option<&NetworkFacts>) -> Self {
        let serves_dhcp = match facts {
            Some(facts) => !facts.dhcp_ranges.is_empty(),
            // E.g. `bridge:br0`.
            None => !config.network.contains(':'),
        };
        // With two platforms, the facts do not show which of them is the DHCP server.
        let is_one = config.workers_on.is_none();
        match capabilities.reserves_addresses && config.dhcp == Dhcp::Platform && is_one && serves_dhcp {
            true => Self::Reserved,
            false => Self::Leased,
        }
    }
}

/// The throwaway machines of pass one: one for each node, and a helper for each VIP that is not set and must be leased.
/// The platform's load balancers need no helper.
pub fn pass_one(config: &ClusterConfig, macs: &MacTable, vips: VipSource) -> Vec<Planned> {
    // If only some pools are on another platform, the name contains the pool.
    let has_pools_elsewhere = config.workers_on.as_ref().is_some_and(|on| !on.only.is_empty());
    let mut count = BTreeMap::<Role, usize>::new();
    let nodes = config.nodes().into_iter().map(|node| {
        let next = count.entry(node.role).or_default();
        let pool = node.name.pool().zip(node.name.number()).filter(|_| has_pools_elsewhere);
        let name = match pool {
            Some((pool, number)) => MachineName::of_harvest_in_pool(&config.name, pool, number),
            None => MachineName::of_harvest(&config.name, node.role, *next),
        };
        *next += 1;
        (name, node)
    });
    let helpers = Vip::ALL
        .into_iter()
        .enumerate()
        .filter(|(_, vip)| vips == VipSource::Leased && is_harvested(config, *vip))
        .map(|(index, vip)| {
            let node = NodeSpec {
                role: Role::Helper,
                ..config.node(NodeName::vip(vip))
            };
            (MachineName::of_harvest(&config.name, node.role, index), node)
        });
    nodes
        .chain(helpers)
        .filter_map(|(name, node)| {
            let mac = *macs.get(&node.name)?;
            let network = node.network.to_owned();
            Some(Planned {
                name,
                node: node.name,
                role: node.role,
                place: node.place,
                pass: Pass::One,
                arch: node.arch,
                size: config.harvest_size.clone(),
                nics: vec![Nic { network, mac }],
                mac,
                ip: None,
                ipv6: None,
            })
        })
        .collect()
}

/// The VIPs that are neither set nor leased by one of these machines of pass one.
pub fn unleased_vips(config: &ClusterConfig, macs: &MacTable, one: &[Planned]) -> MacTable {
    let harvested = Vip::ALL.into_iter().filter(|vip| is_harvested(config, *vip));
    let names = harvested.map(NodeName::vip);
    names
        .filter(|name| one.iter().all(|machine| machine.node != *name))
        .filter_map(|name| Some((name.clone(), *macs.get(&name)?)))
        .collect()
}

/// The cluster's machines, with the MACs and addresses of the parameter file if it exists.
pub fn pass_two(config: &ClusterConfig, macs: &MacTable, parameters: Option<&Parameters>) -> Vec<Planned> {
    let mut machines = Vec::new();
    let mut taken: BTreeSet<Mac> = macs.values().copied().collect();
    let tenant = parameters.map_or(&config.tenant, |parameters| &parameters.tenant);
    for node in config.nodes() {
        let known = parameters.and_then(|parameters| parameters.node(&node.name));
        let Some(mac) = known.map(|known| known.mac).or_else(|| macs.get(&node.name).copied()) else {
            continue;
        };
        let mut nics = vec![Nic {
            network: node.network.to_owned(),
            mac,
        }];
        for (index, network) in node.extra_networks.iter().enumerate() {
            let nic = format!("{}/{}", node.name, index + 1);
            let network = network.clone();
            let mac = derive_mac(tenant, &config.cluster_domain(), &nic, &taken);
            taken.insert(mac);
            nics.push(Nic { network, mac });
        }
        let ip = known.map(|known| known.ip).or(node.ip);
        let ipv6 = config.ipv6.as_ref().zip(ip);
        machines.push(Planned {
            name: MachineName::of_node(&config.name, &node.name),
            role: node.role,
            place: node.place,
            pass: Pass::Two,
            arch: node.arch,
            size: node.size.clone(),
            nics,
            mac,
            ip,
            ipv6: ipv6.map(|(ipv6, ip)| cluster::beside(ipv6.machine_network, ip)),
            node: node.name,
        });
    }
    machines
}

/// The requirements on the platform, and on the workers' own.
pub fn needs(config: &ClusterConfig, one: &[Planned], two: &[Planned]) -> Requirements {
    let on = |place: Role, images: &BootImages| {
        let of = |machines: &[Planned]| -> Vec<Planned> {
            let there = machines.iter().filter(|machine| machine.place == place);
            there.cloned().collect()
        };
        let names = [&images.coreos, &images.harvest]
            .into_iter()
            .filter_map(|image| match image {
                // An empty name: no machine needs the image.
                ImageSource::Platform(name) => Some(name.clone()).filter(|name| !name.is_empty()),
                _ => None,
            });
        Requirements {
            templates: names.collect(),
            ..needs_of_one(config, &of(one), &of(two))
        }
    };
    let workers = config.workers_on.as_ref().map(|workers| {
        let mut needs = on(Role::Worker, &config.worker_images);
        needs.networks[0].clone_from(&workers.network);
        Box::new(needs)
    });
    Requirements {
        workers,
        ..on(Role::Master, &config.images)
    }
}

fn needs_of_one(config: &ClusterConfig, one: &[Planned], two: &[Planned]) -> Requirements {
    let sum =
        |machines: &[Planned], of: fn(&Size) -> u64| machines.iter().map(|machine| of(&machine.size)).sum::<u64>();
    let disk = |size: &Size| size.disk_gib + size.extra_disks_gib.iter().sum::<u64>();
    Requirements {
        networks: networks(config, two),
        machines: one
            .iter()
            .chain(two)
            .map(|machine| (machine.name.clone(), machine.nics.iter().map(|nic| nic.mac).collect()))
            .collect(),
        vips: Vec::new(),
        cluster: Some(config.id()),
        architectures: one.iter().chain(two).map(|machine| machine.arch).collect(),
        memory_mib: sum(one, |size| size.memory_mib).max(sum(two, |size| size.memory_mib)),
        cpus_per_machine: two.iter().map(|machine| machine.size.cpus).max().unwrap_or(1),
        disk_gib: sum(one, disk).max(sum(two, disk)),
        autostart: config.autostart,
        ipv6: config.ipv6.as_ref().map(|ipv6| ipv6.machine_network),
        inner_networks: vec![config.networks.cluster_network, config.networks.service_network],
        sizes: one
            .iter()
            .chain(two)
            .map(|machine| (machine.pass, machine.role, machine.size.clone()))
            .collect(),
        templates: Vec::new(),
        balancers: match config.lb {
            Lb::Platform => Vip::ALL.map(|vip| balancer(config, vip, None, false)).into(),
            _ => Vec::new(),
        },
        workers: None,
    }
}

/// The machine network first, then the networks of additional NICs, each once.
fn networks(config: &ClusterConfig, two: &[Planned]) -> Vec<String> {
    let mut networks = vec![config.network.clone()];
    let additional = two.iter().flat_map(|machine| machine.nics.iter().skip(1));
    for network in config.extra_networks.iter().chain(additional.map(|nic| &nic.network)) {
        if !networks.contains(network) {
            networks.push(network.clone());
        }
    }
    networks
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::cluster::{BackendConfig, Effect, GivenAddresses, Pool, Taint, WorkersOn};
    use crate::state::parameters::tests::example;

    fn names(machines: &[Planned]) -> Vec<&str> {
        machines.iter().map(|machine| machine.name.as_str()).collect()
    }

    #[test]
    fn machines_of_pass_one_never_have_a_nodes_name() {
        let config = ClusterConfig::example();
        let macs = macs(&config, &BTreeSet::new());
        let (one, two) = (
            pass_one(&config, &macs, VipSource::Leased),
            pass_two(&config, &macs, None),
        );
        assert_eq!(
            names(&one),
            [
                "lab-harvest-bootstrap-0",
                "lab-harvest-master-0",
                "lab-harvest-master-1",
                "lab-harvest-master-2",
                "lab-harvest-worker-0",
                "lab-harvest-worker-1",
                "lab-harvest-helper-0",
                "lab-harvest-helper-1"
            ]
        );
        assert_eq!(
            names(&two),
            [
                "lab-bootstrap",
                "lab-master-0",
                "lab-master-1",
                "lab-master-2",
                "lab-worker-0",
                "lab-worker-1"
            ]
        );
        for machine in &two {
            let before = one
                .iter()
                .find(|other| other.node == machine.node)
                .map(|other| other.mac);
            assert_eq!(before, Some(machine.mac), "{} keeps its MAC", machine.name);
        }
    }

    #[test]
    fn all_macs_differ_from_each_other_and_from_given_and_used_ones() {
        let mut config = ClusterConfig::example();
        let derived = macs(&config, &BTreeSet::new());
        let taken: BTreeSet<Mac> = derived.values().copied().collect();
        config.given.master_macs = vec![derived[&NodeName::bootstrap()]];
        config.extra_networks = vec!["storage".to_owned(), "backup".to_owned()];
        let table = macs(&config, &taken);
        assert_eq!(
            table[&NodeName::node(Role::Master, 0)],
            derived[&NodeName::bootstrap()],
            "a given MAC is used"
        );
        let mut all: Vec<Mac> = table.values().copied().collect();
        let nodes = pass_two(&config, &table, None);
        all.extend(
            nodes
                .iter()
                .flat_map(|machine| machine.nics[1..].iter().map(|nic| nic.mac)),
        );
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(nodes.iter().all(|machine| machine.nics.len() == 3));
    }

    #[test]
    fn a_given_vip_needs_no_helper() {
        let mut config = ClusterConfig::example();
        config.given.api_ip = Some(IpAddr::from([192, 168, 122, 10]));
        let macs = macs(&config, &BTreeSet::new());
        let one = pass_one(&config, &macs, VipSource::Leased);
        let helpers: Vec<_> = one.iter().filter(|machine| machine.role == Role::Helper).collect();
        assert_eq!(helpers.len(), 1);
        assert_eq!(
            (helpers[0].node.as_str(), helpers[0].name.as_str()),
            ("ingress", "lab-harvest-helper-1")
        );
        assert_eq!(unleased_vips(&config, &macs, &one), MacTable::new());
        let one = pass_one(&config, &macs, VipSource::Reserved);
        assert!(one.iter().all(|machine| machine.role != Role::Helper), "{one:?}");
        let ingress = NodeName::vip(Vip::Ingress);
        let unleased = MacTable::from([(ingress.clone(), macs[&ingress])]);
        assert_eq!(unleased_vips(&config, &macs, &one), unleased);
    }

    #[test]
    fn a_throwaway_machines_name_contains_its_pool_if_only_some_pools_are_elsewhere() {
        let mut config = ClusterConfig::example();
        config.pools = vec![Pool::example("gpu", 1)];
        let macs = macs(&config, &BTreeSet::new());
        for (only, name) in [
            (vec![], "lab-harvest-worker-2"),
            (vec!["gpu".to_owned()], "lab-harvest-gpu-0"),
        ] {
            config.workers_on = Some(WorkersOn {
                backend: BackendConfig::example_ovirt(),
                network: "ovirtmgmt".to_owned(),
                only,
            });
            let one = pass_one(&config, &macs, VipSource::Reserved);
            assert_eq!(names(&one).last(), Some(&name));
        }
    }

    #[test]
    fn the_platforms_own_images_and_load_balancers_are_requirements() {
        let mut config = ClusterConfig::example();
        let of = |config: &ClusterConfig| needs(config, &[], &[]);
        assert!(of(&config).balancers.is_empty());
        config.lb = Lb::Platform;
        assert_eq!(of(&config).templates, ["rhcos", "centos"]);
        let balanced: Vec<_> = of(&config)
            .balancers
            .into_iter()
            .map(|balancer| balancer.ports)
            .collect();
        assert_eq!(balanced, [vec![6443, 22623], vec![80, 443]]);
    }

    #[test]
    fn vips_are_reserved_where_the_platform_is_the_dhcp_server() {
        let range = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 9]));
        let serving = NetworkFacts {
            dhcp_ranges: vec![range],
            ..NetworkFacts::default()
        };
        let foreign = NetworkFacts::default();
        let example = ClusterConfig::example();
        let of = |change: fn(&mut ClusterConfig), facts| {
            let mut config = example.clone();
            change(&mut config);
            VipSource::of(&config, &Capabilities::of(&config.backend), facts)
        };
        let workers_elsewhere = |config: &mut ClusterConfig| {
            config.workers_on = Some(WorkersOn {
                backend: BackendConfig::example_ovirt(),
                network: "ovirtmgmt".to_owned(),
                only: Vec::new(),
            });
        };
        for (change, facts, vips) in [
            ((|_| {}) as fn(&mut ClusterConfig), Some(&serving), VipSource::Reserved),
            (|_| {}, Some(&foreign), VipSource::Leased),
            (|_| {}, None, VipSource::Reserved),
            (
                |config| config.network = "bridge:br0".to_owned(),
                None,
                VipSource::Leased,
            ),
            (|config| config.dhcp = Dhcp::User, Some(&serving), VipSource::Leased),
            (
                |config| config.backend = BackendConfig::example_ovirt(),
                Some(&serving),
                VipSource::Leased,
            ),
            (workers_elsewhere, Some(&serving), VipSource::Leased),
        ] {
            assert_eq!(of(change, facts), vips);
        }
    }

    const API: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 122, 10));

    fn ips<const N: usize>(last: [u8; N]) -> Vec<IpAddr> {
        last.map(|last| IpAddr::from([192, 168, 122, last])).to_vec()
    }

    #[test]
    fn only_permanent_nodes_are_started_automatically() {
        let mut config = ClusterConfig::example();
        let macs = macs(&config, &BTreeSet::new());
        let all = [
            pass_one(&config, &macs, VipSource::Leased),
            pass_two(&config, &macs, None),
        ]
        .concat();
        let started = |config: &ClusterConfig| {
            let image = ImageHandle("image".to_owned());
            let specs = all
                .iter()
                .map(|machine| machine.spec(config, &image, Payload::Ignition(vec![])));
            let started = specs.filter(|spec| spec.autostart).map(|spec| spec.name.to_string());
            started.collect::<Vec<_>>()
        };
        assert!(started(&config).is_empty());
        config.autostart = true;
        assert_eq!(
            started(&config),
            [
                "lab-master-0",
                "lab-master-1",
                "lab-master-2",
                "lab-worker-0",
                "lab-worker-1"
            ]
        );
    }

    #[test]
    fn given_addresses_belong_to_their_nodes() {
        let mut config = ClusterConfig::example();
        let mac = |last| Mac([0x52, 0x54, 0, 0, 0, last]);
        config.given = GivenAddresses {
            api_ip: Some(API),
            ingress_ip: Some(IpAddr::from([192, 168, 122, 9])),
            bootstrap_mac: Some(mac(1)),
            bootstrap_ip: Some(IpAddr::from([192, 168, 122, 11])),
            master_macs: vec![mac(2), mac(3), mac(4)],
            master_ips: ips([12, 13, 14]),
            worker_macs: vec![mac(5), mac(6)],
            worker_ips: ips([15, 16]),
            ..GivenAddresses::default()
        };
        let macs = macs(&config, &BTreeSet::new());
        let text =
            |name: &str, mac: Option<Mac>, ip: Option<IpAddr>| format!("{name} {} {}", mac.unwrap(), ip.unwrap());
        let two = pass_two(&config, &macs, None);
        let two: Vec<_> = two
            .iter()
            .map(|machine| text(machine.node.as_str(), Some(machine.mac), machine.ip))
            .collect();
        assert_eq!(
            two,
            [
                "bootstrap 52:54:00:00:00:01 192.168.122.11",
                "master-0 52:54:00:00:00:02 192.168.122.12",
                "master-1 52:54:00:00:00:03 192.168.122.13",
                "master-2 52:54:00:00:00:04 192.168.122.14",
                "worker-0 52:54:00:00:00:05 192.168.122.15",
                "worker-1 52:54:00:00:00:06 192.168.122.16"
            ]
        );
        let table = static_leases(&config, &macs);
        let table: Vec<_> = table
            .iter()
            .map(|line| text(line.name.as_str(), Some(line.mac), Some(line.ip)))
            .collect();
        let vip = |vip, ip| text(NodeName::vip(vip).as_str(), macs.get(&NodeName::vip(vip)).copied(), ip);
        let vips = vec![
            vip(Vip::Api, config.given.api_ip),
            vip(Vip::Ingress, config.given.ingress_ip),
        ];
        assert_eq!(table, [vips, two].concat());
    }

    #[test]
    fn a_clusters_own_vip_macs_are_the_derived_and_the_recorded_ones() {
        let mut table = example();
        let macs = macs(&ClusterConfig::example(), &BTreeSet::new());
        let derived = BTreeSet::from([table.api_mac, table.ingress_mac]);
        assert_eq!(vip_macs(&macs, None), derived);
        table.api_mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
        let both = derived.into_iter().chain([table.api_mac]).collect();
        assert_eq!(vip_macs(&macs, Some(&table)), both);
    }

    #[test]
    fn the_bootstrap_is_a_member_of_a_load_balancer_until_its_phase_ends() {
        let (mut config, table) = (ClusterConfig::example(), example());
        let members = |config: &ClusterConfig, vip, bootstrapped| {
            let balancer = balancer(config, vip, Some(&table), bootstrapped);
            assert_eq!(balancer.ip, Some(table.vip(vip).ip));
            let members = balancer.members.unwrap();
            members.iter().map(|member| member.name.to_string()).collect::<Vec<_>>()
        };
        let of_role = |role| {
            let nodes = table.of_role(role).map(|node| node.name.to_string());
            nodes.collect::<Vec<_>>()
        };
        let masters = of_role(Role::Master);
        assert_eq!(
            members(&config, Vip::Api, false),
            [of_role(Role::Bootstrap), masters.clone()].concat()
        );
        assert_eq!(members(&config, Vip::Api, true), masters);
        assert_eq!(members(&config, Vip::Ingress, false), of_role(Role::Worker));
        config.masters_schedulable = true;
        assert_eq!(
            members(&config, Vip::Ingress, false),
            [masters, of_role(Role::Worker)].concat()
        );
        // Before the table is known, the VIP has the address of the settings.
        config.given.api_ip = Some(API);
        let early = balancer(&config, Vip::Api, None, false);
        assert_eq!((early.ip, early.members), (Some(API), None));
    }

    #[test]
    fn a_platforms_load_balancer_serves_the_mcs_without_tls_only_on_request() {
        let mut config = ClusterConfig::example();
        let api = balancer(&config, Vip::Api, None, false);
        assert_eq!(api.ports, [6443, 22623]);
        assert_eq!(api.roles, [Role::Bootstrap, Role::Master]);
        assert!(!api.checked, "machines of a rehearsal have no health endpoint");
        let ingress = balancer(&config, Vip::Ingress, None, false);
        assert_eq!((ingress.ports, ingress.roles), (vec![80, 443], vec![Role::Worker]));
        config.mcs = Mcs::Http;
        config.installer = InstallerChoice::OpenshiftInstall(None);
        let api = balancer(&config, Vip::Api, None, false);
        assert_eq!(api.ports, [6443, 22623, 22624]);
        assert!(api.checked);
    }

    #[test]
    fn pools_have_their_own_sizes_networks_and_addresses() {
        let mut config = ClusterConfig::example();
        config.extra_networks = vec!["storage".to_owned()];
        config.given.worker_ips = vec![API; 2];
        let fast = Size {
            cpus: 16,
            ..config.worker_size.clone()
        };
        let ip = IpAddr::from([192, 168, 122, 77]);
        config.pools = vec![
            Pool::example("infra", 1),
            Pool {
                size: fast.clone(),
                extra_networks: vec!["rdma".to_owned()],
                ips: vec![API, ip],
                ..Pool::example("gpu", 2)
            },
        ];
        let macs = macs(&config, &BTreeSet::new());
        let one = pass_one(&config, &macs, VipSource::Leased);
        let two = pass_two(&config, &macs, None);
        let last = two.last().unwrap();
        assert_eq!((last.node.as_str(), last.name.as_str()), ("gpu-1", "lab-gpu-1"));
        assert_eq!((&last.size, last.ip, last.role), (&fast, Some(ip), Role::Worker));
        assert_eq!(last.nics[1].network, "rdma");
        let infra = two.iter().find(|machine| machine.node.as_str() == "infra-0").unwrap();
        assert_eq!((infra.ip, infra.nics.len()), (None, 1));
        let needs = needs(&config, &one, &two);
        assert_eq!(needs.networks, ["default", "storage", "rdma"]);
        assert_eq!(needs.cpus_per_machine, 16);
        let names: BTreeSet<_> = one.iter().chain(&two).map(|machine| &machine.name).collect();
        assert_eq!(names.len(), one.len() + two.len(), "two machines have one name");
        let back = config.with_workers_of(two.iter().map(|machine| &machine.node));
        assert_eq!((back.workers, &back.pools), (config.workers, &config.pools));
    }

    #[test]
    fn a_load_balancer_leaves_out_nodes_that_repel_routers() {
        let mut config = ClusterConfig::example();
        let taint = Taint {
            key: "dedicated".to_owned(),
            value: String::new(),
            effect: Effect::NoSchedule,
        };
        config.pools = vec![Pool {
            taints: [taint].into(),
            ..Pool::example("infra", 1)
        }];
        let mut table = example();
        let infra = NodeAddress {
            name: NodeName::of_pool("infra", 0),
            ..table.nodes.last().unwrap().clone()
        };
        table.nodes.push(infra);
        let members = |config: &ClusterConfig| {
            balancer(config, Vip::Ingress, Some(&table), true)
                .members
                .unwrap()
                .len()
        };
        assert_eq!(members(&config), 2);
        config.pools[0].taints.clear();
        assert_eq!(members(&config), 3);
    }

    #[test]
    fn workers_on_another_platform_count_only_there() {
        let mut config = ClusterConfig::example();
        config.worker_size.extra_disks_gib = vec![200, 300];
        config.workers_on = Some(WorkersOn {
            backend: BackendConfig::example_ovirt(),
            network: "ovirtmgmt".to_owned(),
            only: Vec::new(),
        });
        let macs = macs(&config, &BTreeSet::new());
        let here = needs(
            &config,
            &pass_one(&config, &macs, VipSource::Leased),
            &pass_two(&config, &macs, None),
        );
        assert_eq!((here.memory_mib, here.disk_gib), (8192 + 3 * 16384, 4 * 100));
        assert_eq!(here.networks, ["default"]);
        let there = here.workers.unwrap();
        assert_eq!((there.memory_mib, there.disk_gib), (2 * 8192, 2 * 600));
        assert_eq!(there.networks, ["ovirtmgmt"]);
        let machines = |machines: &[(MachineName, Vec<Mac>)]| {
            let names = machines.iter().map(|(name, _)| name.to_string());
            names.filter(|name| name.contains("worker")).count()
        };
        assert_eq!((machines(&here.machines), machines(&there.machines)), (0, 4));
        config.workers_on = None;
        let all = needs(
            &config,
            &pass_one(&config, &macs, VipSource::Leased),
            &pass_two(&config, &macs, None),
        );
        assert!(all.workers.is_none());
        assert_eq!(machines(&all.machines), 4);
    }
}
