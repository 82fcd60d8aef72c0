//! Checks before a deployment: services, permissions, names, sizes and quotas.

use std::collections::{BTreeMap, BTreeSet};

use ipnetwork::Ipv6Network;
use serde_json::{Value, json};

use super::auth::Service::{self, Compute, Image, Network as NEUTRON, Volume};
use super::cloud::OpenStack;
use super::content::{TOKEN_MINUTES, short_lived};
use super::network::NeutronNetwork;
use super::ports::WAYS_OUT;
use super::session::COMPUTE_VERSION;
use super::wire::{FlavorRequirements, some_of, text};
use crate::backend::findings::Findings;
use crate::backend::response::part;
use crate::backend::{BackendError, BackendErrorKind, Finding, Requirements, Verdict};
use crate::cluster::{Architecture, OsBoot, OsIgnition, Pass, Role, Size, Vip};

/// A quota: its resource, limit and use if they are known, what is required, and what this cluster already uses.
pub(super) type QuotaRow = (&'static str, Option<(i64, i64)>, u64, u64);

impl Findings {
    /// Adds a rejection as a finding. An unreachable cloud remains an error.
    pub(super) fn take<T>(&mut self, answer: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(failure) if matches!(failure.kind, BackendErrorKind::Unreachable | BackendErrorKind::Timeout) => {
                Err(failure)
            }
            Err(failure) => {
                self.add(Verdict::Fail, failure.message, failure.hint.as_deref());
                Ok(None)
            }
        }
    }
}

/// The size and the flavor of the machines of a role, or of a pool.
type Chosen<'a> = BTreeMap<(Role, Option<&'a str>), (Size, Option<super::wire::Flavor>)>;

impl OpenStack {
    pub(super) async fn check(&self, requirements: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let mut found = Findings::default();
        let token = self.session.token().await?;
        found.ok(format!(
            "signed in to {}, project {}",
            self.session.name(),
            token.project
        ));
        // openstack/keystone: `keystone/cmd/bootstrap.py`: the roles of a new cloud; all others have rights of their own.
        if !token.roles.is_empty() && token.roles.iter().all(|role| role == "reader") {
            found.fail(
                "this user has only the role reader in the project, which may change nothing".to_owned(),
                "ask the administrator of the cloud for the role member in this project",
            );
            return Ok(found.0);
        }
        if !self.check_services(requirements, &mut found).await? {
            return Ok(found.0);
        }
        self.check_ca(&mut found).await?;
        self.check_token(&mut found).await?;
        self.check_networks(requirements, &token.project, &mut found).await?;
        self.check_names(requirements, &mut found).await?;
        self.check_choices(requirements, &mut found).await?;
        let balancers = self.check_balancers(requirements, &token.project, &mut found).await?;
        self.check_hypervisors(requirements, &mut found).await?;
        let flavors = self.check_flavors(requirements, &mut found).await?;
        self.check_quotas(requirements, &token.project, &flavors, balancers, &mut found)
            .await?;
        Ok(found.0)
    }

    async fn check_services(&self, requirements: &Requirements, found: &mut Findings) -> Result<bool, BackendError> {
        let mut wanted = vec![Compute, NEUTRON, Image];
        if self.config.boot == OsBoot::Volume {
            wanted.push(Volume);
        }
        let before = found.0.len();
        for service in wanted {
            found.take(self.session.endpoint(service).await)?;
        }
        if found.0.len() > before {
            return Ok(false);
        }
        if requirements
            .sizes
            .iter()
            .any(|(_, _, size)| !size.extra_disks_gib.is_empty())
            && !self.session.has(Volume).await?
        {
            let text = "no block storage (Cinder): extra disks are the ephemeral disks of the flavor";
            found.add(Verdict::Warn, text, None);
        }
        let root = self.session.get(Compute, "/").await?;
        let version = &root["version"];
        let (least, most) = (text(version, "min_version"), text(version, "version"));
        match (parts(least), parts(COMPUTE_VERSION), parts(most)) {
            (Some(least), Some(ours), Some(most)) if least <= ours && ours <= most => {
                found.ok(format!(
                    "Nova supports microversion {COMPUTE_VERSION}, the newest is {most_text}",
                    most_text = text(version, "version")
                ));
                Ok(true)
            }
            // openstack/nova: `nova/api/openstack/compute/versions.py`: v2 has the status SUPPORTED and empty versions.
            _ if least.is_empty() && most.is_empty() => {
                let url = self.session.endpoint(Compute).await?;
                found.fail(
                    format!("{url} is Nova's API v2, which has no microversions; {COMPUTE_VERSION} is required"),
                    "if the cloud has v2.1 at another URL, set compute_endpoint_override to it in clouds.yaml",
                );
                Ok(false)
            }
            _ => {
                let text = format!("Nova supports microversions `{least}` to `{most}`; {COMPUTE_VERSION} is required");
                found.fail(text, "upgrade the cloud to the release Rocky (2018) or later");
                Ok(false)
            }
        }
    }

    /// Whether machines can verify the service from which they fetch their configs.
    async fn check_ca(&self, found: &mut Findings) -> Result<(), BackendError> {
        let service = match self.config.ignition {
            OsIgnition::Swift => Service::Object,
            OsIgnition::Glance | OsIgnition::Auto => Image,
        };
        if found.take(self.session.machines_trust(service).await)? == Some(false) {
            found.fail(
                format!(
                    "machines cannot verify the certificate of {}: only this computer trusts its CA",
                    service.name()
                ),
                "set `cacert` in clouds.yaml (or OS_CACERT) to the PEM file of that CA, which machines then get with their config",
            );
        }
        Ok(())
    }

    /// Whether a token lives long enough for machines that fetch their config with it.
    async fn check_token(&self, found: &mut Findings) -> Result<(), BackendError> {
        let has_other = match self.config.ignition {
            OsIgnition::Swift => true,
            OsIgnition::Glance => false,
            OsIgnition::Auto => self.session.has(Service::Object).await?,
        };
        if has_other {
            return Ok(());
        }
        let mut minutes = self.session.token().await?.minutes_left();
        if minutes < TOKEN_MINUTES {
            let token = self.session.separate_token().await?;
            minutes = token.minutes_left();
            self.revoke(&token.value).await;
        }
        if minutes < TOKEN_MINUTES {
            found.take::<()>(Err(short_lived(&self.session, minutes)))?;
        }
        Ok(())
    }

    async fn check_networks(
        &self,
        requirements: &Requirements,
        project: &str,
        found: &mut Findings,
    ) -> Result<(), BackendError> {
        for (index, name) in requirements.networks.iter().enumerate() {
            let Some(network) = found.take(self.network(name).await)? else {
                continue;
            };
            match network.main() {
                None => {
                    found.fail(
                        format!("network {name} has no IPv4 subnet"),
                        "add an IPv4 subnet with DHCP, which nodes require",
                    );
                    continue;
                }
                Some(subnet) if !subnet.dhcp => {
                    let text = format!("subnet {} of network {name} has no DHCP", subnet.cidr);
                    found.fail(
                        text,
                        "nodes require DHCP: enable it with `openstack subnet set --dhcp SUBNET`",
                    );
                    continue;
                }
                Some(subnet) => {
                    found.ok(format!("network {name} is {}", subnet.cidr));
                    if index == 0 && network.subnets.len() > 1 && self.config.machine_network.is_none() {
                        let all: Vec<_> = network.subnets.iter().map(|subnet| subnet.cidr.to_string()).collect();
                        found.add(
                            Verdict::Warn,
                            format!("network {name} has {} IPv4 subnets: {}", all.len(), all.join(", ")),
                            Some("choose one with machine_network"),
                        );
                    }
                }
            }
            if let Some(wanted) = requirements.ipv6.filter(|_| index == 0) {
                check_ipv6(&network, wanted, found);
            }
            if network.project != project {
                self.check_rights(name, &network, index == 0, found).await?;
            }
        }
        Ok(())
    }

    /// Requests a port with an impossible address. Neutron first checks the permission to choose MAC and addresses, then
    /// the address, so the error shows whether the permission exists.
    async fn check_rights(
        &self,
        name: &str,
        network: &NeutronNetwork,
        is_first: bool,
        found: &mut Findings,
    ) -> Result<(), BackendError> {
        let subnet = network.main().map(|subnet| subnet.id.as_str()).unwrap_or_default();
        let mut port = json!({
            "network_id": network.id,
            "mac_address": "52:54:00:00:00:00",
            "fixed_ips": [{"subnet_id": subnet, "ip_address": "255.255.255.255"}],
        });
        if is_first && network.port_security {
            port["allowed_address_pairs"] = json!([{"ip_address": "255.255.255.254"}]);
        }
        match self.session.post(NEUTRON, "/ports", &json!({"port": port})).await {
            Err(failure) if failure.kind == BackendErrorKind::Denied => {
                let text = format!(
                    "network {name} belongs to another project, and its policy does not allow members to choose MACs and addresses"
                );
                found.fail(text, WAYS_OUT);
            }
            Err(failure) if failure.kind == BackendErrorKind::Rejected => {
                found.ok(format!("MACs and addresses of ports on network {name} can be chosen"));
            }
            Err(failure) => return Err(failure),
            Ok(created) => {
                // This should not happen. The port is deleted.
                self.delete_port(text(&created["port"], "id")).await?;
            }
        }
        Ok(())
    }

    async fn check_names(&self, requirements: &Requirements, found: &mut Findings) -> Result<(), BackendError> {
        let names: Vec<_> = requirements.machines.iter().map(|(name, _)| name).collect();
        let name_conflicts = self.name_conflicts(requirements.cluster.as_ref(), &names).await?;
        for name in &name_conflicts {
            found.fail(
                format!("server {name} exists and belongs to another owner"),
                "delete or rename the server, or choose another cluster name",
            );
        }
        let macs: Vec<_> = requirements
            .machines
            .iter()
            .flat_map(|(_, macs)| macs)
            .map(ToString::to_string)
            .collect();
        // The length of a URL is limited.
        for macs in macs.chunks(50) {
            let filter: Vec<_> = macs.iter().map(|mac| ("mac_address", mac.as_str())).collect();
            for port in self.ports(&filter).await? {
                if requirements.cluster.as_ref().is_none_or(|cluster| !port.is_of(cluster)) {
                    let mac = port.mac.map(|mac| mac.to_string()).unwrap_or_default();
                    found.fail(
                        format!(
                            "MAC {mac} is in use by port {}, which belongs to another owner",
                            port.id
                        ),
                        "",
                    );
                }
            }
        }
        if name_conflicts.is_empty() {
            found.ok(format!("{} machine names are free", names.len()));
        }
        Ok(())
    }

    /// Configured networks, floating IPs and zones.
    async fn check_choices(&self, requirements: &Requirements, found: &mut Findings) -> Result<(), BackendError> {
        if let Some(name) = &self.config.external_network
            && let Some(network) = found.take(self.network(name).await)?
            && !network.is_external
        {
            found.fail(
                format!("network {name} is not an external network"),
                "set os_external_network to one of `openstack network list --external`",
            );
        }
        // If it does not exist, `check_networks` has reported it.
        if let Some(name) = requirements.networks.first()
            && let Ok(network) = self.network(name).await
        {
            let mut refused = Vip::ALL.iter().map(|vip| self.refuse_exposure(*vip, &network));
            found.take(refused.find(Result::is_err).unwrap_or(Ok(())))?;
        }
        self.check_floating_ips(requirements, found).await?;
        self.check_zones(found).await?;
        self.check_volume_type(found).await
    }

    /// Existing floating IPs are free or this cluster's, and a router leads from their network to the machines.
    async fn check_floating_ips(&self, requirements: &Requirements, found: &mut Findings) -> Result<(), BackendError> {
        let mut external = BTreeSet::new();
        if let Some(name) = &self.config.external_network
            && let Ok(network) = self.network(name).await
        {
            external.insert(network.id.clone());
        }
        let (ours, balancers) = match &requirements.cluster {
            Some(cluster) => (self.ports_of(cluster).await?, self.listed_balancers(cluster).await?),
            None => Default::default(),
        };
        let is_ours = |port: &str| {
            ours.iter().any(|other| other.id == port)
                || balancers.iter().any(|balancer| balancer["vip_port_id"] == port)
        };
        let given = [self.config.api_floating_ip, self.config.ingress_floating_ip];
        for ip in given.into_iter().flatten() {
            let there = self.floating_ips(&[("floating_ip_address", &ip.to_string())]).await?;
            let Some(floating) = there.first() else {
                let text = format!("floating IP {ip} does not exist in this project");
                found.fail(text, "list the existing ones with `openstack floating ip list`");
                continue;
            };
            external.extend(floating["floating_network_id"].as_str().map(str::to_owned));
            let port = text(floating, "port_id");
            if !port.is_empty() && !is_ours(port) {
                found.fail(
                    format!("floating IP {ip} is in use by port {port}, which is not owned by this cluster"),
                    &format!("choose another one, or detach it with `openstack floating ip unset --port {ip}`"),
                );
            }
        }
        let Some(network) = requirements.networks.first() else {
            return Ok(());
        };
        if external.is_empty() {
            return Ok(());
        }
        let Ok(network) = self.network(network).await else {
            return Ok(());
        };
        // Without it, Neutron refuses the association (openstack/neutron: `neutron/db/l3_db.py`, `get_router_for_floatingip`).
        let ports = self
            .session
            .list_where(NEUTRON, "/ports", &[("network_id", &network.id)], "ports")
            .await?;
        let routers = self.session.list(NEUTRON, "/routers", "routers").await?;
        for external in external {
            let leads = |router: &&Value| {
                router["external_gateway_info"]["network_id"] == external.as_str()
                    && ports.iter().any(|port| port["device_id"] == router["id"])
            };
            if !routers.iter().any(|router| leads(&router)) {
                // A router of another project is not visible.
                found.add(
                    Verdict::Warn,
                    format!("no router of this project connects network {} with external network {external}", network.name),
                    Some("floating IPs require one: `openstack router set --external-gateway` and `openstack router add subnet`"),
                );
            }
        }
        Ok(())
    }

    async fn check_zones(&self, found: &mut Findings) -> Result<(), BackendError> {
        let of = |service, zones: &Option<String>, setting| Some((service, zones.clone()?, setting));
        let compute = of(Compute, &self.config.zone, "os_zone");
        let volume = of(Volume, &self.config.volume_zone, "os_volume_zone");
        for (service, zones, setting) in compute.into_iter().chain(volume) {
            let all = self
                .session
                .list(service, "/os-availability-zone", "availabilityZoneInfo")
                .await?;
            let names: Vec<_> = all.iter().map(|zone| text(zone, "zoneName")).collect();
            for zone in zones.split(',') {
                // A host may follow after a colon. Only administrators can list hosts.
                let wanted = zone.trim().split(':').next().unwrap_or_default();
                if !names.contains(&wanted) {
                    found.fail(
                        format!("availability zone {wanted} does not exist"),
                        &format!("set {setting} to one or more of {}", some_of(&names)),
                    );
                }
            }
        }
        Ok(())
    }

    /// Cinder reports an unknown type only when it creates a volume (openstack/cinder: `cinder/api/v3/volumes.py`,
    /// `create`: `get_by_name_or_id`).
    async fn check_volume_type(&self, found: &mut Findings) -> Result<(), BackendError> {
        let Some(wanted) = &self.config.volume_type else {
            return Ok(());
        };
        if !self.session.has(Volume).await? {
            return Ok(());
        }
        let types = self.session.list(Volume, "/types", "volume_types").await?;
        if !types
            .iter()
            .any(|kind| [&kind["name"], &kind["id"]].contains(&&json!(wanted)))
        {
            let names: Vec<_> = types.iter().map(|kind| text(kind, "name")).collect();
            found.fail(
                format!("volume type {wanted} does not exist"),
                &format!("set os_volume_type to one of {}", some_of(&names)),
            );
        }
        Ok(())
    }

    /// Whether there are hypervisors of the machines' architectures, if this user is an administrator: only then does Nova
    /// list them (openstack/nova: `nova/policies/hypervisors.py`, `nova/api/openstack/compute/hypervisors.py`).
    async fn check_hypervisors(&self, requirements: &Requirements, found: &mut Findings) -> Result<(), BackendError> {
        let listed = self
            .session
            .list(Compute, "/os-hypervisors/detail", "hypervisors")
            .await;
        let hypervisors = match listed {
            Err(failure) if failure.code.is_some() => return Ok(()),
            listed => listed?,
        };
        let archs: BTreeSet<&str> = hypervisors
            .iter()
            .filter_map(|hypervisor| hypervisor["cpu_info"]["arch"].as_str())
            .collect();
        let known: Vec<&str> = archs.iter().copied().collect();
        // Bare metal has no information about CPUs.
        let missing = requirements.architectures.iter().filter(|_| !known.is_empty());
        for arch in missing.filter(|arch| !archs.contains(arch.as_str())) {
            let text = format!(
                "the hypervisors are of architecture {}: they reject machines of {arch}, or emulate them slowly",
                known.join(" and ")
            );
            found.add(
                Verdict::Warn,
                text,
                Some("set arch to the architecture of the hypervisors"),
            );
        }
        Ok(())
    }

    /// The flavor of each machine, or a finding if there is none.
    async fn check_flavors(
        &self,
        requirements: &Requirements,
        found: &mut Findings,
    ) -> Result<Vec<(Pass, u64, u64)>, BackendError> {
        let has_volumes = self.session.has(Volume).await?;
        let mut chosen = Chosen::new();
        let mut sums = Vec::new();
        for ((machine, _), (pass, role, size)) in requirements.machines.iter().zip(&requirements.sizes) {
            let pool = machine.pool();
            let known = chosen.get(&(*role, pool)).filter(|(known, _)| known == size);
            let flavor = match known {
                Some((_, flavor)) => flavor.clone(),
                None => {
                    let extra = &size.extra_disks_gib;
                    let boot = self.config.boot;
                    let wanted =
                        FlavorRequirements::of(size.cpus, size.memory_mib, size.disk_gib, extra, boot, has_volumes);
                    let of = match pool {
                        Some(pool) => format!("pool {pool}"),
                        None => role.to_string(),
                    };
                    let flavor = self.choose_flavor(*role, pool, &wanted).await.map_err(|mut failure| {
                        failure.message = format!("{of}: {}", failure.message);
                        failure
                    });
                    let flavor = found.take(flavor)?;
                    let is_foreign = |arch: &Architecture| !requirements.architectures.contains(arch);
                    match flavor.as_ref().map(|flavor| (flavor, flavor.arch.filter(is_foreign))) {
                        Some((flavor, Some(arch))) => found.fail(
                            format!("{of}: flavor {} requires hosts of architecture {arch}", flavor.name),
                            &format!("set arch={arch}, or choose another flavor"),
                        ),
                        Some((flavor, None)) => found.ok(format!("{of}: flavor {}", flavor.name)),
                        None => {}
                    }
                    chosen.insert((*role, pool), (size.clone(), flavor.clone()));
                    flavor
                }
            };
            sums.extend(flavor.map(|flavor| (*pass, flavor.cpus, flavor.memory_mib)));
        }
        Ok(sums)
    }

    async fn check_quotas(
        &self,
        requirements: &Requirements,
        project: &str,
        flavors: &[(Pass, u64, u64)],
        balancers: Vec<QuotaRow>,
        found: &mut Findings,
    ) -> Result<(), BackendError> {
        // Existing objects of this cluster count as used, but are not created again.
        let (servers, ports) = match &requirements.cluster {
            Some(cluster) => (self.servers_of(cluster).await?, self.ports_of(cluster).await?),
            None => Default::default(),
        };
        let have = |key: &str| {
            servers
                .iter()
                .filter_map(|server| server["flavor"][key].as_u64())
                .sum::<u64>()
        };
        let of_pass = |pass: Pass, of: fn(&(Pass, u64, u64)) -> u64| {
            flavors.iter().filter(|one| one.0 == pass).map(of).sum::<u64>()
        };
        let most = |of: fn(&(Pass, u64, u64)) -> u64| of_pass(Pass::One, of).max(of_pass(Pass::Two, of));
        let limits = self.absolute_limits().await?;
        let room = |limit: &str, used: &str| {
            let limit = limits[limit].as_i64().filter(|limit| *limit >= 0)?;
            Some((limit, limits[used].as_i64().unwrap_or_default()))
        };
        let count = u64::try_from(servers.len()).unwrap_or_default();
        let mut rows = vec![
            (
                "instances",
                room("maxTotalInstances", "totalInstancesUsed"),
                most(|_| 1),
                count,
            ),
            (
                "cores",
                room("maxTotalCores", "totalCoresUsed"),
                most(|one| one.1),
                have("vcpus"),
            ),
            (
                "MiB of memory",
                room("maxTotalRAMSize", "totalRAMUsed"),
                most(|one| one.2),
                have("ram"),
            ),
        ];
        let path = format!("/quotas/{project}/details.json");
        let quota = match self.session.get(NEUTRON, &path).await {
            Ok(answer) => part(answer, "/quota"),
            // The extension may be missing, or not allowed for members.
            Err(failure) if failure.code.is_some() => Value::Null,
            Err(failure) => return Err(failure),
        };
        let of_network = |key: &str| {
            let row = &quota[key];
            let limit = row["limit"].as_i64().filter(|limit| *limit >= 0)?;
            Some((
                limit,
                row["used"].as_i64().unwrap_or_default() + row["reserved"].as_i64().unwrap_or_default(),
            ))
        };
        if !requirements.sizes.is_empty() {
            let nics = requirements.networks.len().max(1);
            let nodes = requirements
                .sizes
                .iter()
                .filter(|(pass, ..)| *pass == Pass::Two)
                .count();
            let wanted = u64::try_from(nodes * nics + 2).unwrap_or_default();
            // Each load balancer has the port of its VIP.
            let vips = match &requirements.cluster {
                Some(cluster) => self.listed_balancers(cluster).await?.len(),
                None => 0,
            };
            rows.push((
                "ports",
                of_network("port"),
                wanted,
                u64::try_from(ports.len() + vips).unwrap_or_default(),
            ));
            let groups = match &requirements.cluster {
                Some(cluster) => self.security_groups(cluster).await?,
                None => Vec::new(),
            };
            let rules = |group: &Value| group["security_group_rules"].as_array().map_or(0, Vec::len);
            let mut wanted = 0;
            if let Some(network) = requirements.networks.first()
                && let Ok(network) = self.network(network).await
            {
                let (cluster, ipv6) = (requirements.cluster.as_ref(), requirements.ipv6);
                // A new group has a rule for outgoing packets of each family.
                let further = usize::from(ipv6.is_none());
                wanted = self.wanted_rules(cluster, "", network.main(), ipv6).await?.len() + further;
            }
            rows.push((
                "security groups",
                of_network("security_group"),
                1,
                u64::try_from(groups.len()).unwrap_or_default(),
            ));
            rows.push((
                "security group rules",
                of_network("security_group_rule"),
                u64::try_from(wanted).unwrap_or_default(),
                u64::try_from(groups.iter().map(rules).sum::<usize>()).unwrap_or_default(),
            ));
        }
        if self.config.external_network.is_some() {
            let given = [self.config.api_floating_ip, self.config.ingress_floating_ip];
            let wanted = given.iter().filter(|ip| ip.is_none()).count();
            let there = match &requirements.cluster {
                Some(cluster) => self.floating_ips_of(cluster).await?.len(),
                None => 0,
            };
            rows.push((
                "floating IPs",
                of_network("floatingip"),
                u64::try_from(wanted).unwrap_or_default(),
                u64::try_from(there).unwrap_or_default(),
            ));
        }
        rows.extend(self.volume_rows(requirements, project).await?);
        rows.extend(balancers);
        for (what, room, wanted, have) in rows {
            let Some((limit, used)) = room else { continue };
            let missing = i64::try_from(wanted.saturating_sub(have)).unwrap_or(i64::MAX) - (limit - used);
            match missing > 0 {
                true => found.fail(
                    format!("quota of {what}: limit {limit}, used {used}, required {wanted}: short by {missing}"),
                    "request a larger quota, or set fewer workers or smaller flavors",
                ),
                false => found.ok(format!("{what}: {wanted} of {}", limit - used)),
            }
        }
        Ok(())
    }

    async fn volume_rows(&self, requirements: &Requirements, project: &str) -> Result<Vec<QuotaRow>, BackendError> {
        if !self.session.has(Service::Volume).await? {
            return Ok(Vec::new());
        }
        let boots = u64::from(self.config.boot == OsBoot::Volume);
        let of_pass = |of: fn(&Size, u64) -> u64| {
            let of_one = |pass: Pass| {
                let sizes = requirements.sizes.iter().filter(move |(of, ..)| *of == pass);
                sizes.map(|(_, _, size)| of(size, boots)).sum::<u64>()
            };
            of_one(Pass::One).max(of_one(Pass::Two))
        };
        let count = of_pass(|size, boots| boots + u64::try_from(size.extra_disks_gib.len()).unwrap_or_default());
        if count == 0 {
            return Ok(Vec::new());
        }
        let gib = of_pass(|size, boots| boots * size.disk_gib + size.extra_disks_gib.iter().sum::<u64>());
        let disks = requirements.sizes.iter().flat_map(|(_, _, size)| {
            let boot = (boots > 0).then_some(size.disk_gib);
            boot.into_iter().chain(size.extra_disks_gib.iter().copied())
        });
        let largest = disks.max().unwrap_or_default();
        let there = match &requirements.cluster {
            Some(cluster) => self.volumes_of(cluster).await?,
            None => Vec::new(),
        };
        let have = u64::try_from(there.len()).unwrap_or_default();
        let have_gib = there.iter().filter_map(|volume| volume["size"].as_u64()).sum();
        // openstack/cinder: `cinder/api/contrib/quotas.py`, `show`.
        let path = format!("/os-quota-sets/{project}?usage=true");
        let quota = part(self.session.get(Service::Volume, &path).await?, "/quota_set");
        let room = |key: &str| {
            let row = &quota[key];
            let limit = row["limit"].as_i64().filter(|limit| *limit >= 0)?;
            let used = |key: &str| row[key].as_i64().unwrap_or_default();
            Some((limit, used("in_use") + used("reserved")))
        };
        let mut rows = vec![
            ("volumes", room("volumes"), count, have),
            ("GiB of volumes", room("gigabytes"), gib, have_gib),
            ("GiB of one volume", room("per_volume_gigabytes"), largest, 0),
        ];
        if let Some(kind) = &self.config.volume_type {
            let [of_type, gib_of_type] = ["volumes", "gigabytes"].map(|key| room(&format!("{key}_{kind}")));
            rows.push(("volumes of os_volume_type", of_type, count, have));
            rows.push(("GiB of volumes of os_volume_type", gib_of_type, gib, have_gib));
        }
        Ok(rows)
    }
}

/// Whether nodes can have static addresses in the second address family. Its network is compared with the settings by
/// the passes, because every platform has one.
fn check_ipv6(network: &NeutronNetwork, wanted: Ipv6Network, found: &mut Findings) {
    let name = &network.name;
    if network.ipv6_subnets.is_empty() {
        found.fail(
            format!("network {name} has no IPv6 subnet, but machine_network has {wanted}"),
            &format!(
                "create one with `openstack subnet create --network {name} --ip-version 6 --subnet-range {wanted} \
                 --ipv6-address-mode dhcpv6-stateful --ipv6-ra-mode dhcpv6-stateful NAME`, and add it to a router"
            ),
        );
    }
    let Some(subnet) = network.ipv6_subnets.iter().find(|subnet| subnet.cidr == wanted) else {
        return;
    };
    match subnet.is_automatic {
        true => found.fail(
            format!(
                "subnet {wanted} of network {name} has automatic addresses (SLAAC): Neutron rejects the addresses of nodes"
            ),
            "use an IPv6 subnet with dhcpv6-stateful for ipv6_address_mode and ipv6_ra_mode, or without both",
        ),
        false => found.ok(format!("the IPv6 subnet of network {name} is {wanted}")),
    }
}

/// The numbers of a microversion.
fn parts(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
