//! The oVirt cluster, its networks and storage, and the checks before a deployment.

use std::collections::{BTreeMap, BTreeSet};

use super::engine::{Ovirt, OvirtSite};
use super::wire::id;
use super::wire::{self, EngineVersion, GIB, IgnitionMethod};
use super::{affinity, hosts};
use crate::backend::{BackendError, BackendErrorKind, Finding, Requirements};
use crate::cluster::{Affinity, Architecture, Mac, Pass, Role, Size};
use crate::xml::Element;

/// Longest name of a machine (oVirt/ovirt-engine: MaxVmNameLength).
const LONGEST_NAME: usize = 64;

/// Names in one search.
const NAMES_AT_ONCE: usize = 20;

impl Ovirt {
    pub(super) async fn site(&self) -> Result<&OvirtSite, BackendError> {
        self.site.get_or_try_init(|| self.read_site()).await
    }

    async fn read_site(&self) -> Result<OvirtSite, BackendError> {
        let api = self.session.get("", &[]).await?;
        let version = EngineVersion::read(&api).ok_or_else(|| {
            BackendError::new(
                BackendErrorKind::Rejected,
                format!("{} returns no engine version", self.session.url()),
            )
        })?;
        let way = version.way().ok_or_else(|| {
            let words = format!("engine {version} does not pass Ignition to machines");
            BackendError::new(BackendErrorKind::Rejected, words).hint("upgrade the engine to 4.3.4 or later")
        })?;
        let name = &self.config.cluster;
        let all = self.session.get("/clusters", &[]).await?;
        let is_named = |cluster: &&Element| cluster.text_of("name") == Some(name.as_str());
        let cluster = all.iter().find(is_named).ok_or_else(|| {
            BackendError::new(BackendErrorKind::NotFound, format!("the engine has no cluster {name}"))
                .hint("set ovirt_cluster to the name of an existing cluster")
        })?;
        let data_center = cluster.value("data_center", "id").ok_or_else(|| {
            BackendError::new(
                BackendErrorKind::Rejected,
                format!("cluster {name} is in no data center"),
            )
        })?;
        let is_here = |cluster: &&Element| cluster.value("data_center", "id") == Some(data_center);
        let part = |name: &str| cluster.text_of(&format!("version/{name}"))?.parse::<u32>().ok();
        // The engine always returns it; without it, the rules of newer ones are followed.
        let compatibility = part("major").zip(part("minor")).unwrap_or((version.0, version.1));
        Ok(OvirtSite {
            version,
            way,
            compatibility,
            cluster: id(cluster)?,
            data_center: data_center.to_owned(),
            architecture: cluster.text_of("cpu/architecture").unwrap_or("undefined").to_owned(),
            threads_as_cores: cluster.text_of("threads_as_cores") == Some("true"),
            clusters: all.iter().filter(is_here).map(id).collect::<Result<_, _>>()?,
        })
    }

    /// Machines or templates of the data center with exactly this name.
    pub(super) async fn named_here(&self, collection: &str, name: &str) -> Result<Vec<Element>, BackendError> {
        let site = self.site().await?;
        let mut named = self.session.named(collection, name).await?;
        named.retain(|entity| site.has(entity));
        Ok(named)
    }

    /// The id of the vNIC profile of each network.
    pub(super) async fn profiles(
        &self,
        site: &OvirtSite,
        networks: impl Iterator<Item = &str>,
    ) -> Result<Vec<String>, BackendError> {
        let all = self.session.get("/vnicprofiles", &[("follow", "network")]).await?;
        networks.map(|network| id(self.profile(site, &all, network)?)).collect()
    }

    /// All vNIC profiles with their networks, and all filters.
    ///
    /// `follow=network_filter` is HTTP 500 if any profile has no filter (oVirt/ovirt-engine: `LinkFollower.getHref` has no
    /// null check; pull request 1015), so filters are a query of their own. A rejection of it is no reason to stop.
    pub(super) async fn profiles_and_filters(&self) -> Result<(Element, Filters), BackendError> {
        use BackendErrorKind::{Timeout, Unreachable};
        let profiles = self.session.get("/vnicprofiles", &[("follow", "network")]).await?;
        let filters = match self.session.get("/networkfilters", &[]).await {
            Err(failure) if [Timeout, Unreachable].contains(&failure.kind) => return Err(failure),
            Err(_) => Filters::default(),
            Ok(filters) => Filters::read(&filters),
        };
        Ok((profiles, filters))
    }

    fn profile<'a>(&self, site: &OvirtSite, all: &'a Element, network: &str) -> Result<&'a Element, BackendError> {
        // Names repeat across data centers.
        let here = |profile: &&Element| {
            profile.text_of("network/name") == Some(network)
                && profile.value("network/data_center", "id") == Some(site.data_center.as_str())
        };
        let on_it: Vec<_> = all.iter().filter(here).collect();
        let named = |name: &str| {
            on_it
                .iter()
                .copied()
                .find(|profile| profile.text_of("name") == Some(name))
        };
        let wished = self
            .config
            .vnic_profile
            .as_deref()
            .and_then(named)
            .or_else(|| named(network));
        match (wished, on_it.as_slice()) {
            (Some(profile), _) => Ok(profile),
            (None, [profile]) => Ok(*profile),
            (None, []) => Err(BackendError::new(
                BackendErrorKind::NotFound,
                format!(
                    "there is no network {network} with a vNIC profile in the data center of cluster {}",
                    self.config.cluster
                ),
            )),
            (None, several) => {
                let names: Vec<_> = several.iter().filter_map(|profile| profile.text_of("name")).collect();
                Err(BackendError::new(
                    BackendErrorKind::NotFound,
                    format!("network {network} has several vNIC profiles: {}", names.join(", ")),
                )
                .hint("set ovirt_vnic_profile to one of them"))
            }
        }
    }

    /// The id of the storage domain for images and empty disks.
    pub(super) async fn storage_domain(&self, site: &OvirtSite) -> Result<String, BackendError> {
        id(&self.storage(site).await?)
    }

    /// The storage domains of the data center.
    pub(super) async fn domains(&self, site: &OvirtSite) -> Result<Vec<Element>, BackendError> {
        let path = format!("/datacenters/{}/storagedomains", site.data_center);
        Ok(self.session.get(&path, &[]).await?.into_children())
    }

    async fn storage(&self, site: &OvirtSite) -> Result<Element, BackendError> {
        let all = self.domains(site).await?;
        let usable = all.into_iter().filter(|domain| domain.text_of("type") == Some("data"));
        let usable: Vec<_> = usable
            .filter(|domain| domain.text_of("status") == Some("active"))
            .collect();
        let names: Vec<_> = usable.iter().filter_map(|domain| domain.text_of("name")).collect();
        let missing = |words: String| {
            BackendError::new(BackendErrorKind::NotFound, words)
                .hint("set ovirt_storage_domain to an active data domain")
        };
        let index = match &self.config.storage_domain {
            Some(wanted) => names.iter().position(|name| name == wanted).ok_or_else(|| {
                missing(format!(
                    "there is no active data domain {wanted} at cluster {}, only: {}",
                    self.config.cluster,
                    names.join(", ")
                ))
            })?,
            None if names.len() == 1 => 0,
            None => {
                return Err(missing(format!(
                    "cluster {} has several data domains or none: {}",
                    self.config.cluster,
                    names.join(", ")
                )));
            }
        };
        Ok(usable[index].clone())
    }

    /// All checks that are possible before anything is created.
    pub(super) async fn check_all(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        use BackendErrorKind::{Denied, Timeout, Unreachable};
        let site = match self.site().await {
            Ok(site) => site,
            // The engine did not respond, or denied access.
            Err(failure) if matches!(failure.kind, Unreachable | Timeout | Denied) => return Err(failure),
            Err(failure) => return Ok(vec![fail(failure)]),
        };
        let mut findings = vec![Finding::ok(format!(
            "engine {} of version {}, cluster {}",
            self.session.url(),
            site.version,
            self.config.cluster
        ))];
        for arch in &needs.architectures {
            findings.extend(check_architecture(*arch, &site.architecture, &self.config.cluster));
        }
        if site.way == IgnitionMethod::Ignition {
            let systems = self.session.get("/operatingsystems", &[]).await?;
            if !systems.iter().any(|system| system.text_of("name") == Some("rhcos_x64")) {
                findings.push(Finding::fail("the engine has no system type rhcos_x64".to_owned()));
            }
        }
        findings.extend(self.check_rights(site, &needs.templates).await?);
        self.check_hosts(site, needs, &mut findings).await?;
        self.check_storage(site, needs, &mut findings).await?;
        let (profiles, filters) = self.profiles_and_filters().await?;
        for network in &needs.networks {
            match self.profile(site, &profiles, network) {
                Ok(profile) => findings.extend(filters.finding(network, profile)),
                Err(failure) => findings.push(fail(failure)),
            }
        }
        self.check_names(site, needs, &mut findings).await?;
        self.check_macs(site, needs, &mut findings).await?;
        Ok(findings)
    }

    /// Whether a host can run the largest machine, and whether enough hosts exist for masters that must not share one.
    async fn check_hosts(
        &self,
        site: &OvirtSite,
        needs: &Requirements,
        findings: &mut Vec<Finding>,
    ) -> Result<(), BackendError> {
        if let Some(label) = self
            .config
            .worker_label
            .as_ref()
            .filter(|_| !self.session.is_filtered())
            && let Err(failure) = affinity::placing_label(self, site, label).await
        {
            findings.push(fail(failure));
        }
        let hosts = match self.hosts(site).await {
            Err(failure) if failure.kind == BackendErrorKind::NotFound => {
                findings.push(fail(failure));
                return Ok(());
            }
            hosts => hosts?,
        };
        let Some(hosts) = hosts else {
            return Ok(());
        };
        let memory = |(_, _, size): &(Pass, Role, Size)| size.memory_mib;
        let largest = needs.sizes.iter().map(memory).max().unwrap_or_default();
        match hosts::able(&hosts, needs.cpus_per_machine, largest) {
            Err(words) => findings.push(Finding::fail(words)),
            Ok(able) => {
                let masters = needs
                    .sizes
                    .iter()
                    .filter(|(pass, role, _)| *pass == Pass::Two && role.has_etcd());
                let (masters, able) = (masters.count(), able.len());
                if self.config.affinity == Affinity::Hard && able < masters {
                    findings.push(
                        Finding::fail(format!(
                            "{masters} masters on different hosts require {masters} suitable hosts, {able} found"
                        ))
                        .hint("set ovirt_affinity=soft or ovirt_affinity=off"),
                    );
                }
            }
        }
        Ok(())
    }

    /// If the MAC pool allows duplicates, the engine does not reject a MAC of another machine.
    async fn check_macs(
        &self,
        site: &OvirtSite,
        needs: &Requirements,
        findings: &mut Vec<Finding>,
    ) -> Result<(), BackendError> {
        let cluster = self.session.get(&format!("/clusters/{}", site.cluster), &[]).await?;
        let Some(pool) = cluster.value("mac_pool", "id") else {
            return Ok(());
        };
        let pool = self.session.get(&format!("/macpools/{pool}"), &[]).await;
        let Some(pool) = self.if_permitted(pool)? else {
            return Ok(());
        };
        if pool.text_of("allow_duplicates") != Some("true") {
            return Ok(());
        }
        let name = pool.text_of("name").unwrap_or_default();
        let text = format!("MAC pool {name} of cluster {} allows duplicates", self.config.cluster);
        findings.push(Finding::warn(text));
        let ours: BTreeSet<_> = needs.machines.iter().flat_map(|(_, macs)| macs).copied().collect();
        let all = self.session.get("/vms", &[("follow", "nics")]).await?;
        for vm in all.iter() {
            if wire::ownership(vm).is_some_and(|known| Some(&known.cluster) == needs.cluster.as_ref()) {
                continue;
            }
            let macs = vm
                .all("nics/nic")
                .into_iter()
                .filter_map(|nic| nic.text_of("mac/address")?.parse::<Mac>().ok());
            for mac in macs.filter(|mac| ours.contains(mac)) {
                let name = vm.text_of("name").unwrap_or_default();
                findings.push(Finding::fail(format!("MAC {mac} is in use by machine {name}")));
            }
        }
        Ok(())
    }

    async fn check_storage(
        &self,
        site: &OvirtSite,
        needs: &Requirements,
        findings: &mut Vec<Finding>,
    ) -> Result<(), BackendError> {
        let domain = match self.storage(site).await {
            Ok(domain) => domain,
            Err(failure) if failure.kind == BackendErrorKind::NotFound => {
                findings.push(fail(failure));
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        let mut domains = vec![domain];
        for name in &needs.templates {
            // A missing template is reported later.
            let Some(template) = self.find_template(name).await? else {
                continue;
            };
            if let Some((words, domain)) = self.layers_elsewhere(&template).await? {
                findings.push(Finding::warn(words).hint("set ovirt_clone=true for full copies"));
                domains.push(domain);
            }
        }
        domains.dedup();
        for domain in domains {
            let name = domain.text_of("name").unwrap_or_default();
            let free = domain.text_of("available").and_then(|bytes| bytes.parse::<u64>().ok());
            let free = free.unwrap_or_default() / GIB;
            findings.push(match free < needs.disk_gib {
                true => Finding::warn(format!(
                    "storage domain {name} has {free} GiB free, and full disks require {} GiB",
                    needs.disk_gib
                )),
                false => Finding::ok(format!("storage domain {name} has {free} GiB free")),
            });
        }
        Ok(())
    }

    async fn check_names(
        &self,
        site: &OvirtSite,
        needs: &Requirements,
        findings: &mut Vec<Finding>,
    ) -> Result<(), BackendError> {
        for (name, _) in needs
            .machines
            .iter()
            .filter(|(name, _)| name.as_str().len() > LONGEST_NAME)
        {
            findings.push(Finding::fail(format!(
                "the name {name} has {} characters, and oVirt allows {LONGEST_NAME}",
                name.as_str().len()
            )));
        }
        for some in needs.machines.chunks(NAMES_AT_ONCE) {
            let search: Vec<_> = some.iter().map(|(name, _)| wire::named(name.as_str())).collect();
            let is_wanted = |vm: &Element| {
                let name = vm.text_of("name");
                some.iter().any(|(wanted, _)| name == Some(wanted.as_str()))
            };
            let found = self.session.search("/vms", &search.join(" or "), "", is_wanted).await?;
            for vm in found.iter().filter(|vm| site.has(vm)) {
                let name = vm.text_of("name").unwrap_or_default();
                let is_ours = wire::ownership(vm).is_some_and(|ours| Some(&ours.cluster) == needs.cluster.as_ref());
                if !is_ours {
                    findings.push(Finding::fail(format!(
                        "machine {name} exists and belongs to another owner"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Identifies the network among all that this computer deploys on.
    pub(super) async fn network_identity(&self, network: &str) -> Result<String, BackendError> {
        let site = self.site().await?;
        let all = self.session.get("/vnicprofiles", &[("follow", "network")]).await?;
        let profile = self.profile(site, &all, network)?;
        let id = profile.value("network", "id").unwrap_or(network);
        Ok(format!("{}#{id}", self.session.url()))
    }

    /// Adds the hosts that may run the machine, and the storage domain of copied disks.
    pub(super) async fn placed(
        &self,
        site: &OvirtSite,
        template: &super::images::Template,
        vm: Element,
    ) -> Result<Element, BackendError> {
        let vm = match self.hosts(site).await? {
            Some(hosts) if !self.config.hosts.is_empty() => {
                vm.child(wire::on_hosts(hosts.iter().map(|host| host.id.as_str())))
            }
            _ => vm,
        };
        if !self.config.clone || self.config.storage_domain.is_none() {
            return Ok(vm);
        }
        let storage = self.storage_domain(site).await?;
        let place = |disk: &String| {
            let domains = Element::new("storage_domains").child(wire::reference("storage_domain", &storage));
            Element::new("disk_attachment").child(wire::reference("disk", disk).child(domains))
        };
        Ok(vm.child(Element::new("disk_attachments").children(template.disks.iter().map(place))))
    }
}

/// Names of network filters, by id. Empty if this user may not read them.
#[derive(Default)]
pub(super) struct Filters(BTreeMap<String, String>);

impl Filters {
    fn read(filters: &Element) -> Self {
        let named = |filter: &Element| Some((filter.get("id")?.to_owned(), filter.text_of("name")?.to_owned()));
        Self(filters.iter().filter_map(named).collect())
    }

    /// The name of a profile's filter.
    pub fn name_of(&self, profile: &Element) -> Option<&str> {
        self.0.get(profile.value("network_filter", "id")?).map(String::as_str)
    }

    /// A warning for a filter that drops packets of other addresses, and so those of virtual IPs.
    pub fn finding(&self, network: &str, profile: &Element) -> Option<Finding> {
        let filter = self.name_of(profile)?;
        let name = profile.text_of("name").unwrap_or_default();
        let drops = [
            "clean-traffic",
            "no-ip-spoofing",
            "no-arp-ip-spoofing",
            "no-arp-spoofing",
        ];
        let text = format!(
            "vNIC profile {name} of network {network} has the filter {filter}, which drops packets of virtual IPs"
        );
        drops.iter().any(|part| filter.contains(part)).then(|| {
            Finding::warn(text).hint("set ovirt_vnic_profile to a profile with the filter vdsm-no-mac-spoofing or none")
        })
    }
}

/// Whether machines of an architecture can be in an oVirt cluster. The names are those of oVirt/ovirt-engine-api-model:
/// `src/main/java/types/Architecture.java`; `ppc64` is also that of ppc64le. A cluster without hosts is `undefined`.
fn check_architecture(arch: Architecture, of_cluster: &str, cluster: &str) -> Option<Finding> {
    if arch != Architecture::X86_64 {
        // oVirt/ovirt-engine: `packaging/conf/osinfo-defaults.properties`, `vmInitType`, and `VmHandler.isOsTypeSupported`.
        let text = format!("oVirt has no system type of CoreOS for {arch}, only rhcos_x64");
        return Some(Finding::fail(text).hint("set arch=x86_64, or choose another platform"));
    }
    (![arch.as_str(), "undefined"].contains(&of_cluster)).then(|| {
        let text = format!("cluster {cluster} is of architecture {of_cluster}, the machines are {arch}");
        Finding::fail(text).hint("set ovirt_cluster to a cluster of this architecture")
    })
}

fn fail(failure: BackendError) -> Finding {
    Finding {
        hint: failure.hint,
        ..Finding::fail(failure.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_the_architecture_of_the_cluster_and_a_system_type() {
        let text = |arch, of_cluster| {
            let found = check_architecture(arch, of_cluster, "Default");
            found.map(|finding| finding.text).unwrap_or_default()
        };
        assert_eq!(text(Architecture::X86_64, "x86_64"), "");
        assert_eq!(text(Architecture::X86_64, "undefined"), "");
        assert_eq!(
            text(Architecture::X86_64, "ppc64"),
            "cluster Default is of architecture ppc64, the machines are x86_64"
        );
        for (arch, of_cluster) in [(Architecture::Ppc64le, "ppc64"), (Architecture::Aarch64, "aarch64")] {
            let expected = format!("oVirt has no system type of CoreOS for {arch}, only rhcos_x64");
            assert_eq!(text(arch, of_cluster), expected);
        }
    }
}
