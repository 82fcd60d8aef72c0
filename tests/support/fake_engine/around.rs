//! The machines' environment, which seldom changes: clusters, storage, hosts, networks and pools.

use super::faults::{Outcome, Refusal};
use super::http::Request;
use super::routes::Reply::{self, Shown};
use super::search::select;
use super::show::{API, Follow, entity, reference, time};
use super::world::*;
use super::xml::{Node, node};

impl World {
    pub(super) fn route_around(&mut self, request: &Request, path: &[&str]) -> Outcome<Reply> {
        let query = &request.query;
        let is_administrator = self.is_administrator;
        let follow = |known: &[&str]| Follow::read(request.query.get("follow"), known, is_administrator);
        Ok(match (request.method.as_str(), path) {
            ("GET", ["clusters"]) => {
                let follow = follow(&["data_center"])?;
                let fields = |cluster: &Cluster| vec![("name", cluster.name.clone()), ("id", cluster.id.clone())];
                let found = select(self.clusters.clone(), query, &["name", "id"], fields)?;
                Shown(node("clusters").all(found.iter().map(|cluster| self.show_cluster(cluster, &follow))))
            }
            ("GET", ["clusters", id]) => Shown(self.show_cluster(self.cluster(id)?, &Follow::default())),
            ("GET", ["clusters", id, "networks"]) => {
                let center = &self.cluster(id)?.data_center;
                let of = self.networks.iter().filter(|network| network.data_center == *center);
                Shown(node("networks").all(of.map(|network| self.show_network(network))))
            }

            ("GET", ["datacenters"]) => {
                let fields = |center: &DataCenter| {
                    let of = self.clusters.iter().filter(|cluster| cluster.data_center == center.id);
                    let clusters = of.map(|cluster| ("clusters.name", cluster.name.clone()));
                    [("name", center.name.clone())].into_iter().chain(clusters).collect()
                };
                let found = select(self.data_centers.clone(), query, &["name", "clusters.name"], fields)?;
                Shown(node("data_centers").all(found.iter().map(|center| self.show_data_center(center))))
            }
            ("GET", ["datacenters", id, "networks"]) => {
                let of = self.networks.iter().filter(|network| network.data_center == *id);
                Shown(node("networks").all(of.map(|network| self.show_network(network))))
            }
            ("GET", ["datacenters", id]) => Shown(self.show_data_center(self.data_center(id)?)),
            ("GET", ["datacenters", id, "storagedomains"]) => {
                self.data_center(id)?;
                let of = self.storage_domains.iter().filter(|domain| domain.data_center == *id);
                Shown(node("storage_domains").all(of.map(|domain| self.show_storage_domain(domain, true))))
            }
            ("GET", ["storagedomains"]) => {
                let known = ["name", "id", "status", "datacenter", "type"];
                let center = |id: &str| by_id(&self.data_centers, id).map(|center| center.name.clone());
                let fields = |domain: &StorageDomain| {
                    vec![
                        ("name", domain.name.clone()),
                        ("id", domain.id.clone()),
                        ("status", domain.status.clone()),
                        ("type", domain.kind.clone()),
                        ("datacenter", center(&domain.data_center).unwrap_or_default()),
                    ]
                };
                let found = select(self.storage_domains.clone(), query, &known, fields)?;
                Shown(node("storage_domains").all(found.iter().map(|domain| self.show_storage_domain(domain, false))))
            }
            ("GET", ["hosts"]) => {
                let fields = |host: &Host| {
                    vec![
                        ("name", host.name.clone()),
                        ("id", host.id.clone()),
                        ("status", host.status.clone()),
                        (
                            "cluster",
                            self.cluster(&host.cluster)
                                .map(|cluster| cluster.name.clone())
                                .unwrap_or_default(),
                        ),
                    ]
                };
                let mut found = select(self.hosts.clone(), query, &["name", "id", "status", "cluster"], fields)?;
                // Users have roles on machines, not on hosts.
                found.retain(|_| self.is_administrator);
                Shown(node("hosts").all(found.iter().map(|host| self.show_host(host))))
            }
            ("GET", ["hosts", id]) => {
                let host = by_id(&self.hosts, id).ok_or(Refusal::NotFound)?;
                Shown(self.show_host(host))
            }
            ("GET", ["networkfilters"]) => Shown(node("network_filters").all(self.filters.iter().map(show_filter))),
            ("GET", ["vnicprofiles"]) => {
                let follow = follow(&["network", "network_filter"])?;
                let shown = self.profiles.iter().map(|profile| self.show_profile(profile, &follow));
                Shown(node("vnic_profiles").all(shown.collect::<Outcome<Vec<_>>>()?))
            }
            ("GET", ["vnicprofiles", id]) => {
                let profile = by_id(&self.profiles, id).ok_or(Refusal::NotFound)?;
                Shown(self.show_profile(profile, &Follow::default())?)
            }
            ("GET", ["macpools"]) => Shown(node("mac_pools").all(self.mac_pools.iter().map(show_mac_pool))),
            ("GET", ["macpools", id]) => {
                let pool = by_id(&self.mac_pools, id).ok_or(Refusal::NotFound)?;
                Shown(show_mac_pool(pool))
            }
            ("GET", ["operatingsystems"]) => Shown(node("operation_systems").all(self.systems().into_iter().map(
                |(id, name)| {
                    entity("operating_system", "operatingsystems", &id.to_string())
                        .text("name", name)
                        .text("description", name)
                        .text("architecture", "x86_64")
                },
            ))),
            ("GET", ["events"]) => {
                let fields = |event: &Event| {
                    vec![
                        ("correlation_id", event.correlation_id.clone()),
                        ("severity", event.severity.to_owned()),
                    ]
                };
                let found = select(self.events.clone(), query, &["correlation_id", "severity"], fields)?;
                Shown(node("events").all(found.iter().map(show_event)))
            }
            ("GET", ["users", _, "permissions"]) => {
                Shown(node("permissions").all(self.permissions.iter().map(show_permission)))
            }
            ("GET", ["roles", id, "permits"]) => {
                let known = self.permissions.iter().map(|permission| permission.role.as_str());
                let role = known
                    .into_iter()
                    .find(|role| role_id(role) == *id)
                    .ok_or(Refusal::NotFound)?;
                let permits = permits_of(role).iter().enumerate();
                Shown(node("permits").all(permits.map(|(number, name)| {
                    node("permit")
                        .href(format!("{API}/roles/{id}/permits/{number}"))
                        .id(&number.to_string())
                        .text("name", name)
                        .add(reference("role", "roles", id))
                })))
            }
            _ => return self.route_groups(request, path),
        })
    }

    /// oVirt/ovirt-engine: BackendApiResource.
    pub fn show_api(&self) -> Node {
        let [major, minor, build] = self.version;
        let version = node("version")
            .text("full_version", format!("{major}.{minor}.{build}-1.el8"))
            .text("major", major)
            .text("minor", minor)
            .text("build", build)
            .text("revision", 0);
        let mut api = node("api");
        for rel in COLLECTIONS {
            api = api.link(rel, format!("{API}/{rel}"));
        }
        let user = "00000000-0000-4000-8000-00000000ad41";
        api.add(
            node("product_info")
                .text("name", "oVirt Engine")
                .text("vendor", "ovirt.org")
                .add(version),
        )
        .add(
            node("special_objects")
                .add(reference("blank_template", "templates", BLANK))
                .add(reference("root_tag", "tags", BLANK)),
        )
        .text("time", time(self.now))
        .add(reference("authenticated_user", "users", user))
        .add(reference("effective_user", "users", user))
    }

    pub fn cluster(&self, id: &str) -> Outcome<&Cluster> {
        super::check_guid(id)?;
        by_id(&self.clusters, id).ok_or(Refusal::NotFound)
    }

    fn data_center(&self, id: &str) -> Outcome<&DataCenter> {
        super::check_guid(id)?;
        by_id(&self.data_centers, id).ok_or(Refusal::NotFound)
    }

    /// oVirt/ovirt-engine: ClusterMapper.
    fn show_cluster(&self, cluster: &Cluster, follow: &Follow) -> Node {
        let [major, minor] = cluster.version;
        let data_center = match by_id(&self.data_centers, &cluster.data_center) {
            Some(center) if follow.has("data_center") => self.show_data_center(center),
            _ => reference("data_center", "datacenters", &cluster.data_center),
        };
        entity("cluster", "clusters", &cluster.id)
            .text("name", &cluster.name)
            .text("description", "")
            .text("ballooning_enabled", true)
            .add(
                node("cpu")
                    .text("architecture", "x86_64")
                    .text("type", &cluster.cpu_type),
            )
            .text("threads_as_cores", cluster.threads_as_cores)
            .add(node("version").text("major", major).text("minor", minor))
            .add(data_center)
            .add(reference("mac_pool", "macpools", &cluster.mac_pool))
            .link(
                "affinitygroups",
                format!("{API}/clusters/{}/affinitygroups", cluster.id),
            )
            .link("networks", format!("{API}/clusters/{}/networks", cluster.id))
    }

    /// oVirt/ovirt-engine: DataCenterMapper.
    fn show_data_center(&self, center: &DataCenter) -> Node {
        let link = |rel: &str| format!("{API}/datacenters/{}/{rel}", center.id);
        entity("data_center", "datacenters", &center.id)
            .text("name", &center.name)
            .text("local", false)
            .text("status", "up")
            .text("storage_format", "v5")
            .add(reference("mac_pool", "macpools", &center.mac_pool))
            .link("storagedomains", link("storagedomains"))
    }

    /// Outside of a data center, a domain has no status, but names its data center (oVirt/ovirt-engine:
    /// StorageDomainMapper, BackendStorageDomainsResource, BackendAttachedStorageDomainsResource).
    fn show_storage_domain(&self, domain: &StorageDomain, is_attached: bool) -> Node {
        let shown = entity("storage_domain", "storagedomains", &domain.id)
            .text("name", &domain.name)
            .text("available", domain.available)
            .text("used", domain.used)
            .text("committed", domain.used)
            .text("master", domain.name == "data")
            .add(node("storage").text("type", "nfs"))
            .text("storage_format", "v5")
            .text("type", &domain.kind)
            .text("external_status", "ok");
        match is_attached {
            true => {
                shown
                    .text("status", &domain.status)
                    .add(reference("data_center", "datacenters", &domain.data_center))
            }
            false => shown.add(node("data_centers").add(reference("data_center", "datacenters", &domain.data_center))),
        }
    }

    /// oVirt/ovirt-engine: HostMapper.
    fn show_host(&self, host: &Host) -> Node {
        entity("host", "hosts", &host.id)
            .text("name", &host.name)
            .text("address", &host.address)
            .text("memory", host.memory)
            .text("max_scheduling_memory", host.memory.saturating_sub(self.used(host)))
            .text("status", &host.status)
            .text("type", "ovirt_node")
            .add(node("cpu").add(node("topology").text("cores", 16).text("sockets", 2).text("threads", 2)))
            .add(reference("cluster", "clusters", &host.cluster))
    }

    /// Memory that machines on a host were promised.
    fn used(&self, host: &Host) -> u64 {
        let on = self.vms.iter().filter(|vm| vm.host.as_ref() == Some(&host.name));
        on.map(|vm| vm.shape.guaranteed).sum()
    }

    /// oVirt/ovirt-engine: NetworkMapper.
    fn show_network(&self, network: &Network) -> Node {
        let usage = |name: &str| {
            let mut usage = node("usage");
            usage.text = name.to_owned();
            usage
        };
        entity("network", "networks", &network.id)
            .text("name", &network.name)
            .text("mtu", 0)
            .text("stp", false)
            .add(node("usages").add(usage("vm")))
            .add(reference("data_center", "datacenters", &network.data_center))
            .link("vnicprofiles", format!("{API}/networks/{}/vnicprofiles", network.id))
    }

    /// oVirt/ovirt-engine: VnicProfileMapper.
    fn show_profile(&self, profile: &Profile, follow: &Follow) -> Outcome<Node> {
        let network = by_id(&self.networks, &profile.network);
        let filter = self
            .filters
            .iter()
            .find(|filter| Some(&filter.id) == profile.filter.as_ref());
        let network = match network {
            Some(network) if follow.has("network") => self.show_network(network),
            _ => reference("network", "networks", &profile.network),
        };
        let filter = match (filter, follow.has("network_filter")) {
            // oVirt/ovirt-engine: `LinkFollower.getHref` asks what is not there for its address (oVirt/ovirt-engine#1015).
            (None, true) => return Err(Refusal::Exception),
            (Some(filter), true) => Some(show_filter(filter)),
            (filter, false) => filter.map(|filter| reference("network_filter", "networkfilters", &filter.id)),
        };
        Ok(entity("vnic_profile", "vnicprofiles", &profile.id)
            .text("name", &profile.name)
            .add(node("pass_through").text("mode", "disabled"))
            .text("port_mirroring", false)
            .add(network)
            .all(filter))
    }
}

/// oVirt/ovirt-engine: EventMapper.
fn show_event(event: &Event) -> Node {
    entity("event", "events", &event.id)
        .text("code", 17)
        .text("correlation_id", &event.correlation_id)
        .text("custom_id", -1)
        .text("description", &event.description)
        .text("flood_rate", 30)
        .text("origin", "oVirt")
        .text("severity", event.severity)
        .text("time", time(event.at))
}

/// oVirt/ovirt-engine: NetworkFilterMapper.
fn show_filter(filter: &Named) -> Node {
    let version = node("version")
        .text("major", 4)
        .text("minor", 0)
        .text("build", -1)
        .text("revision", -1);
    entity("network_filter", "networkfilters", &filter.id)
        .text("name", &filter.name)
        .add(version)
}

/// oVirt/ovirt-engine: MacPoolMapper.
fn show_mac_pool(pool: &MacPool) -> Node {
    let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let range = node("range")
        .text("from", text(pool.range.0))
        .text("to", text(pool.range.1));
    entity("mac_pool", "macpools", &pool.id)
        .text("name", &pool.name)
        .text("allow_duplicates", pool.allow_duplicates)
        .text("default_pool", true)
        .add(node("ranges").add(range))
}

/// oVirt/ovirt-engine: PermissionMapper.
fn show_permission(permission: &Permission) -> Node {
    let role = reference("role", "roles", &role_id(&permission.role));
    let shown = entity("permission", "permissions", &permission.id).add(role);
    shown.all(permission.on.iter().map(|(kind, id)| node(kind).id(id)))
}

fn role_id(name: &str) -> String {
    let number = name
        .bytes()
        .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("{number:08x}-0000-4000-8000-000000000000")
}

/// The permits of a role that concern machines.
pub(super) fn permits_of(role: &str) -> &'static [&'static str] {
    match role {
        "UserTemplateBasedVm" => &["login", "create_vm"],
        "PowerUserRole" => &["login", "create_vm", "create_template", "create_disk"],
        "UserRole" => &["login", "run_vm", "stop_vm", "shut_down_vm"],
        _ => &[
            "login",
            "create_vm",
            "delete_vm",
            "edit_vm_properties",
            "edit_admin_vm_properties",
            "run_vm",
            "stop_vm",
            "shut_down_vm",
            "configure_vm_network",
            "configure_vm_storage",
            "create_disk",
            "attach_disk",
            "edit_disk_properties",
            "delete_disk",
            "create_template",
            "delete_template",
            "manipulate_affinity_groups",
            "tag_management",
        ],
    }
}

const COLLECTIONS: &[&str] = &[
    "affinitylabels",
    "clusters",
    "datacenters",
    "disks",
    "events",
    "hosts",
    "imagetransfers",
    "macpools",
    "networkfilters",
    "networks",
    "operatingsystems",
    "permissions",
    "roles",
    "storagedomains",
    "tags",
    "templates",
    "users",
    "vms",
    "vnicprofiles",
];
