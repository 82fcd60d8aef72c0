//! What is looked at before anything is made: services, rights, names, sizes and quotas.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::auth::Service::{self, Compute, Image, Network as NEUTRON, Volume};
use super::cloud::OpenStack;
use super::network::Network;
use super::ports::{WAYS_OUT, told};
use super::session::COMPUTE_VERSION;
use super::wire::{Wanted, text};
use crate::backend::failure::Failure;
use crate::backend::findings::Findings;
use crate::backend::{BackendErrorKind, Finding, Requirements, Verdict};
use crate::cluster::{OsBoot, Pass, Role, Size};

/// What was found, in order.
impl Findings {
    /// A refusal by the cloud is a finding, a cloud out of reach the end of the look.
    fn take<T>(&mut self, answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(failure) if matches!(failure.kind, BackendErrorKind::Unreachable | BackendErrorKind::Timeout) => {
                Err(failure)
            }
            Err(failure) => {
                self.add(Verdict::Fail, failure.words, failure.hint.as_deref());
                Ok(None)
            }
        }
    }
}

impl OpenStack {
    pub(super) async fn look(&self, needs: &Requirements) -> Result<Vec<Finding>, Failure> {
        let mut found = Findings::default();
        let token = self.session.token().await?;
        found.ok(format!(
            "{} lets us into project {}",
            self.session.name(),
            token.project
        ));
        if self.session.auth_url().starts_with("http://") {
            let text = format!(
                "{} is not encrypted: passwords and tokens travel in clear",
                self.session.auth_url()
            );
            found.add(Verdict::Warn, text, None);
        }
        if !self.look_at_services(needs, &mut found).await? {
            return Ok(found.0);
        }
        self.look_at_networks(needs, &token.project, &mut found).await?;
        self.look_at_names(needs, &mut found).await?;
        self.look_at_choices(&mut found).await?;
        let flavors = self.look_at_flavors(needs, &mut found).await?;
        self.look_at_quotas(needs, &token.project, &flavors, &mut found).await?;
        Ok(found.0)
    }

    async fn look_at_services(&self, needs: &Requirements, found: &mut Findings) -> Result<bool, Failure> {
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
        if needs.sizes.iter().any(|(_, _, size)| !size.extra_disks_gib.is_empty()) && !self.session.has(Volume).await? {
            let text = "there is no block storage (Cinder), so extra disks are ephemeral ones of the flavor";
            found.add(Verdict::Warn, text, None);
        }
        let root = self.session.get(Compute, "/").await?;
        let version = &root["version"];
        let (least, most) = (text(version, "min_version"), text(version, "version"));
        match (parts(least), parts(COMPUTE_VERSION), parts(most)) {
            (Some(least), Some(ours), Some(most)) if least <= ours && ours <= most => {
                found.ok(format!(
                    "Nova speaks microversion {COMPUTE_VERSION}, and {most_text} at most",
                    most_text = text(version, "version")
                ));
                Ok(true)
            }
            _ => {
                let text = format!("Nova speaks microversions `{least}` to `{most}`, and {COMPUTE_VERSION} is needed");
                found.fail(
                    text,
                    "it came with release Stein of 2019; an older cloud cannot be used",
                );
                Ok(false)
            }
        }
    }

    async fn look_at_networks(&self, needs: &Requirements, project: &str, found: &mut Findings) -> Result<(), Failure> {
        for (index, name) in needs.networks.iter().enumerate() {
            let Some(network) = found.take(self.network(name).await)? else {
                continue;
            };
            match network.main() {
                None => {
                    found.fail(
                        format!("network {name} has no IPv4 subnet"),
                        "nodes need IPv4 addresses by DHCP",
                    );
                    continue;
                }
                Some(subnet) if !subnet.dhcp => {
                    let text = format!("subnet {} of network {name} has no DHCP", subnet.cidr);
                    found.fail(
                        text,
                        "`openstack subnet set --dhcp SUBNET` turns it on; nodes get their addresses so",
                    );
                    continue;
                }
                Some(subnet) => found.ok(format!("network {name} is {}", subnet.cidr)),
            }
            if network.project != project {
                self.look_at_rights(name, &network, index == 0, found).await?;
            }
        }
        Ok(())
    }

    /// Asks for a port that no network can have: with the right to choose its MAC and addresses, Neutron complains of the
    /// address, and without it of the right.
    async fn look_at_rights(
        &self,
        name: &str,
        network: &Network,
        is_first: bool,
        found: &mut Findings,
    ) -> Result<(), Failure> {
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
                    "network {name} is another project's, and Neutron lets its members choose neither MACs nor addresses there"
                );
                found.fail(text, WAYS_OUT);
            }
            Err(failure) if failure.kind == BackendErrorKind::Rejected => {
                found.ok(format!(
                    "ports on network {name} may have MACs and addresses of our choice"
                ));
            }
            Err(failure) => return Err(failure),
            Ok(made) => {
                // No network has this address; should one have it, nothing of it stays.
                self.delete_port(text(&made["port"], "id")).await?;
            }
        }
        Ok(())
    }

    async fn look_at_names(&self, needs: &Requirements, found: &mut Findings) -> Result<(), Failure> {
        let names: Vec<_> = needs.machines.iter().map(|(name, _)| name).collect();
        let name_conflicts = self.name_conflicts(needs.cluster.as_ref(), &names).await?;
        for name in &name_conflicts {
            found.fail(
                format!("a server {name} that is not of this cluster is there"),
                "delete or rename it, or choose another name for the cluster",
            );
        }
        let macs: Vec<_> = needs
            .machines
            .iter()
            .flat_map(|(_, macs)| macs)
            .map(ToString::to_string)
            .collect();
        // The address of a request has its bounds.
        for macs in macs.chunks(50) {
            let filter: Vec<_> = macs.iter().map(|mac| ("mac_address", mac.as_str())).collect();
            for port in self.ports(&filter).await? {
                if needs.cluster.as_ref().is_none_or(|cluster| !port.is_of(cluster)) {
                    let mac = port.mac.map(|mac| mac.to_string()).unwrap_or_default();
                    found.fail(
                        format!("port {} that is not of this cluster has MAC {mac}", port.id),
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

    /// Networks, addresses and zones that the settings name.
    async fn look_at_choices(&self, found: &mut Findings) -> Result<(), Failure> {
        if let Some(name) = &self.config.external_network
            && let Some(network) = found.take(self.network(name).await)?
            && !network.is_external
        {
            found.fail(
                format!("network {name} gives no floating IPs"),
                "`openstack network list --external` shows which do",
            );
        }
        for ip in [self.config.api_floating_ip, self.config.ingress_floating_ip]
            .into_iter()
            .flatten()
        {
            if self
                .floating_ips(&[("floating_ip_address", &ip.to_string())])
                .await?
                .is_empty()
            {
                let text = format!("this project has no floating IP {ip}");
                found.fail(text, "`openstack floating ip list` shows what it has");
            }
        }
        if let Some(zone) = &self.config.zone {
            let zones = self
                .session
                .list(Compute, "/os-availability-zone", "availabilityZoneInfo")
                .await?;
            let names: Vec<_> = zones.iter().map(|zone| text(zone, "zoneName")).collect();
            // A host may stand behind a colon, and only administrators see hosts.
            let wanted = zone.split(':').next().unwrap_or_default();
            if !names.contains(&wanted) {
                found.fail(
                    format!("there is no availability zone {wanted}"),
                    &format!("there are {}", told(&names)),
                );
            }
        }
        Ok(())
    }

    /// The flavor of each machine; those that have none are told.
    async fn look_at_flavors(
        &self,
        needs: &Requirements,
        found: &mut Findings,
    ) -> Result<Vec<(Pass, u64, u64)>, Failure> {
        let has_volumes = self.session.has(Volume).await?;
        let mut chosen: BTreeMap<Role, (Size, Option<super::wire::Flavor>)> = BTreeMap::new();
        let mut sums = Vec::new();
        for (pass, role, size) in &needs.sizes {
            let known = chosen.get(role).filter(|(known, _)| known == size);
            let flavor = match known {
                Some((_, flavor)) => flavor.clone(),
                None => {
                    let extra = &size.extra_disks_gib;
                    let boot = self.config.boot;
                    let wanted = Wanted::of(size.cpus, size.memory_mib, size.disk_gib, extra, boot, has_volumes);
                    let flavor = self.choose_flavor(*role, &wanted).await.map_err(|mut failure| {
                        failure.words = format!("{role}: {}", failure.words);
                        failure
                    });
                    let flavor = found.take(flavor)?;
                    if let Some(flavor) = &flavor {
                        found.ok(format!("{role}: flavor {}", flavor.name));
                    }
                    chosen.insert(*role, (size.clone(), flavor.clone()));
                    flavor
                }
            };
            sums.extend(flavor.map(|flavor| (*pass, flavor.cpus, flavor.memory_mib)));
        }
        Ok(sums)
    }

    async fn look_at_quotas(
        &self,
        needs: &Requirements,
        project: &str,
        flavors: &[(Pass, u64, u64)],
        found: &mut Findings,
    ) -> Result<(), Failure> {
        // What this cluster has already is counted as used, and is not asked for again.
        let (servers, ports) = match &needs.cluster {
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
            Ok(mut answer) => answer["quota"].take(),
            // Not every Neutron has the extension, or lets members ask.
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
        if !needs.sizes.is_empty() {
            let nics = needs.networks.len().max(1);
            let nodes = needs.sizes.iter().filter(|(pass, ..)| *pass == Pass::Two).count();
            let wanted = u64::try_from(nodes * nics + 2).unwrap_or_default();
            rows.push((
                "ports",
                of_network("port"),
                wanted,
                u64::try_from(ports.len()).unwrap_or_default(),
            ));
            let groups = match &needs.cluster {
                Some(cluster) => self.security_groups(cluster).await?.len(),
                None => 0,
            };
            rows.push((
                "security groups",
                of_network("security_group"),
                1,
                u64::try_from(groups).unwrap_or_default(),
            ));
        }
        if self.config.external_network.is_some() {
            let given = [self.config.api_floating_ip, self.config.ingress_floating_ip];
            let wanted = given.iter().filter(|ip| ip.is_none()).count();
            let there = match &needs.cluster {
                Some(cluster) => self
                    .floating_ips(&[("description", &super::wire::mark(cluster))])
                    .await?
                    .len(),
                None => 0,
            };
            rows.push((
                "floating IPs",
                of_network("floatingip"),
                u64::try_from(wanted).unwrap_or_default(),
                u64::try_from(there).unwrap_or_default(),
            ));
        }
        rows.extend(self.volume_rows(needs).await?);
        for (what, room, wanted, have) in rows {
            let Some((limit, used)) = room else { continue };
            let missing = i64::try_from(wanted.saturating_sub(have)).unwrap_or(i64::MAX) - (limit - used);
            match missing > 0 {
                true => found.fail(
                    format!("the quota of {what} is {limit}, {used} are used and {wanted} needed: short by {missing}"),
                    "ask for a larger quota, or for less with fewer workers or smaller flavors",
                ),
                false => found.ok(format!("{what}: {wanted} of {}", limit - used)),
            }
        }
        Ok(())
    }

    async fn volume_rows(
        &self,
        needs: &Requirements,
    ) -> Result<Vec<(&'static str, Option<(i64, i64)>, u64, u64)>, Failure> {
        if !self.session.has(Service::Volume).await? {
            return Ok(Vec::new());
        }
        let boots = u64::from(self.config.boot == OsBoot::Volume);
        let of_pass = |of: fn(&Size, u64) -> u64| {
            let of_one = |pass: Pass| {
                let sizes = needs.sizes.iter().filter(move |(of, ..)| *of == pass);
                sizes.map(|(_, _, size)| of(size, boots)).sum::<u64>()
            };
            of_one(Pass::One).max(of_one(Pass::Two))
        };
        let count = of_pass(|size, boots| boots + u64::try_from(size.extra_disks_gib.len()).unwrap_or_default());
        if count == 0 {
            return Ok(Vec::new());
        }
        let gib = of_pass(|size, boots| boots * size.disk_gib + size.extra_disks_gib.iter().sum::<u64>());
        let there = match &needs.cluster {
            Some(cluster) => self.volumes_of(cluster).await?,
            None => Vec::new(),
        };
        let have = u64::try_from(there.len()).unwrap_or_default();
        let have_gib = there.iter().filter_map(|volume| volume["size"].as_u64()).sum();
        let answer = self.session.get(Service::Volume, "/limits").await?;
        let limits = &answer["limits"]["absolute"];
        let room = |limit: &str, used: &str| {
            let limit = limits[limit].as_i64().filter(|limit| *limit >= 0)?;
            Some((limit, limits[used].as_i64().unwrap_or_default()))
        };
        Ok(vec![
            ("volumes", room("maxTotalVolumes", "totalVolumesUsed"), count, have),
            (
                "GiB of volumes",
                room("maxTotalVolumeGigabytes", "totalGigabytesUsed"),
                gib,
                have_gib,
            ),
        ])
    }
}

/// A microversion in numbers.
fn parts(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
