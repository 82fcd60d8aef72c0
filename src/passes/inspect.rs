//! All checks of `ocpdeploy check`: a failed check does not hide the later ones.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::check::{find_installer, look_around};
use super::options::DeployOptions;
use super::report::{CheckReport, CheckResult, CheckedFacts};
use crate::backend::platforms::Platforms;
use crate::backend::{Finding, NetworkFacts, Verdict};
use crate::cluster::{ClusterConfig, Harvest, Vip};
use crate::local::disk::{self, ETCD_WANTS};
use crate::local::network_probe;
use crate::openshift::installer::fetch::Choice;
use crate::openshift::installer::{Installer, PullSecretRejected};
use crate::state::home::Home;
use crate::state::inventory;

/// Runs all checks and returns all findings. Creates nothing, and downloads no installer and no image.
///
/// `to_finding` converts an error into a finding.
pub async fn inspect(
    backend: Result<&Platforms>,
    config: &ClusterConfig,
    home: &Home,
    to_finding: impl Fn(&anyhow::Error) -> Finding + Sync,
) -> Vec<CheckResult> {
    let mut report = CheckReport::for_people(&to_finding);
    // Errors become findings here, so none is returned.
    let _ = look(backend, config, home, &mut report).await;
    report.looked
}

async fn look(
    backend: Result<&Platforms>,
    config: &ClusterConfig,
    home: &Home,
    report: &mut CheckReport<'_>,
) -> Result<()> {
    let backend = report.take("platform", backend)?;
    let mut seen = CheckedFacts::default();
    if let Some(backend) = backend {
        let around = look_around(backend, config, home, DeployOptions::default(), report).await;
        seen = report.take("platform", around)?.unwrap_or_default();
        more_of_platform(backend, config, seen.facts.as_ref(), report).await;
    }
    let choice = find_installer(backend, config, home, seen.facts.as_ref(), &seen, report).await?;
    if let Some(Choice::Here { installer, .. }) = &choice {
        pull_secret(config, installer, report).await?;
    }
    let (client, search) = tokio::join!(
        client_dns(config, api_vip(config, home)),
        search_domains(config, async |name| addresses_of(name).await)
    );
    report.add("client dns", [client]);
    report.add("search domains", search);
    Ok(())
}

fn finding(verdict: Verdict, text: impl Into<String>, hint: Option<&str>) -> Finding {
    Finding {
        verdict,
        text: text.into(),
        hint: hint.map(str::to_owned),
    }
}

/// Checks what `deploy` assumes without checking, and what only slows it down.
async fn more_of_platform(
    backend: &Platforms,
    config: &ClusterConfig,
    facts: Option<&NetworkFacts>,
    report: &mut CheckReport<'_>,
) {
    // If the platform is unusable, its network was not read.
    if let Some(facts) = facts {
        if !report.looked.iter().any(|looked| looked.check == "addresses") {
            report.add("addresses", [addresses(config, facts)]);
        }
        if backend.common_capabilities().guests_reachable {
            report.add("network", reach(config, facts));
        }
    }
    report.add("etcd disk", etcd_disk(backend).await);
}

/// Compares the virtual IPs with the ranges of the network's DHCP server.
fn addresses(config: &ClusterConfig, facts: &NetworkFacts) -> Finding {
    let given: Vec<_> = Vip::ALL
        .into_iter()
        .filter_map(|vip| Some(format!("{vip}_ip {}", config.given.vip(vip)?)))
        .collect();
    let ranges: Vec<_> = facts
        .dhcp_ranges
        .iter()
        .map(|(first, last)| format!("{first} to {last}"))
        .collect();
    let ranges = match ranges.is_empty() {
        true => "the DHCP ranges are unknown".to_owned(),
        false => format!("DHCP ranges: {}", ranges.join(", ")),
    };
    match given.is_empty() {
        true => Finding::ok(format!("both virtual IPs come from pass one; {ranges}")),
        false if facts.dhcp_ranges.is_empty() => finding(
            Verdict::Warn,
            format!("{}: {ranges}", given.join(", ")),
            Some("make sure that they are outside of the DHCP server's range"),
        ),
        false => Finding::ok(format!("{}: no conflict found; {ranges}", given.join(", "))),
    }
}

/// Measured only if the masters' disks are on this computer.
async fn etcd_disk(backend: &Platforms) -> Option<Finding> {
    // A missing pool has been reported already.
    let folder = backend.local_disk_dir().await.ok().flatten()?;
    let shown = folder.display().to_string();
    let measured = tokio::task::spawn_blocking(move || disk::latency(&folder)).await.ok()?;
    Some(match measured {
        Ok(latency) if latency.p99 > ETCD_WANTS => finding(
            Verdict::Warn,
            format!(
                "{shown}: {latency}; etcd requires at most {} ms",
                ETCD_WANTS.as_millis()
            ),
            Some("use a pool on an SSD: with slow disks etcd loses its leader and the installation hangs"),
        ),
        Ok(latency) => Finding::ok(format!("{shown}: {latency}")),
        Err(error) => finding(
            Verdict::Warn,
            format!("cannot measure the write latency of {shown}: {error}"),
            Some("run `ocpdeploy check` as a user who may write there"),
        ),
    })
}

/// Whether the release's registry accepts the pull secret; `deploy` reads the release from it before its first machine.
async fn pull_secret(config: &ClusterConfig, installer: &Installer, report: &mut CheckReport<'_>) -> Result<()> {
    // A pull secret that cannot be read was reported with the settings.
    if config.is_rehearsal() || !has_entries(config.pull_secret.expose_secret()) {
        return Ok(());
    }
    if let Some(image) = installer.release_image().await {
        let registry = image.split('/').next().unwrap_or_default();
        if !knows(config.pull_secret.expose_secret(), registry) {
            let text = format!("the pull secret has no entry for {registry}, the registry of the release");
            let hint = Some("a registry without authentication needs none; otherwise download the pull secret again");
            report.add("pull secret", [finding(Verdict::Warn, text, hint)]);
        }
    }
    let asked = installer.release(config).await;
    let is_denied = |error: &anyhow::Error| error.chain().any(|cause| cause.is::<PullSecretRejected>());
    let check = match &asked {
        Err(error) if !is_denied(error) => "release",
        _ => "pull secret",
    };
    if report.take(check, asked)?.is_some() {
        report.add("pull secret", [Finding::ok("accepted by the release's registry")]);
    }
    Ok(())
}

fn has_entries(secret: &str) -> bool {
    let secret: Value = serde_json::from_str(secret).unwrap_or_default();
    secret["auths"].as_object().is_some_and(|entries| !entries.is_empty())
}

/// Whether a pull secret has an entry for a registry, by its host.
fn knows(secret: &str, registry: &str) -> bool {
    let secret: Value = serde_json::from_str(secret).unwrap_or_default();
    let entries = secret["auths"].as_object();
    entries.is_some_and(|entries| entries.keys().any(|entry| entry.split('/').next() == Some(registry)))
}

/// The api VIP if it is already known.
fn api_vip(config: &ClusterConfig, home: &Home) -> Option<IpAddr> {
    let known = inventory::find(home, &config.name).ok().flatten();
    let parameters = known.and_then(|cluster| cluster.parameters);
    parameters.map(|parameters| parameters.api_ip).or(config.given.api_ip)
}

/// The addresses of a name on this computer.
async fn addresses_of(name: &str) -> Vec<IpAddr> {
    match timeout(Duration::from_secs(5), lookup_host((name, 6443))).await {
        Ok(Ok(addresses)) => addresses.map(|address| address.ip()).collect(),
        _ => Vec::new(),
    }
}

/// Search domains with a wildcard record: a pod first searches them for the name of a service, and finds an address
/// outside of the cluster. Nodes answer for the cluster's own domain themselves, and DHCP servers often announce the one
/// above it.
async fn search_domains(config: &ClusterConfig, resolve: impl AsyncFn(&str) -> Vec<IpAddr>) -> Vec<Finding> {
    let own = config.cluster_domain().to_string();
    let mut findings = Vec::new();
    for (domain, is_set) in config
        .dns_search
        .iter()
        .map(|domain| (domain, true))
        .chain([(&config.domain, false)])
    {
        if *domain == own || !is_set && config.dns_search.contains(domain) {
            continue;
        }
        let name = format!("ocpdeploy-check.svc.cluster.local.{domain}");
        let Some(ip) = resolve(&name).await.first().copied() else {
            continue;
        };
        let condition = match is_set {
            true => "dns_search has this domain",
            false => "this is a problem if the network's DHCP server announces this search domain",
        };
        let text =
            format!("every name below {domain} resolves, to {ip}: {condition}, and pods find their services there");
        findings.push(Finding::warn(text).hint("remove the wildcard record, or the search domain"));
    }
    findings
}

/// How this computer resolves the API's name. `deploy` itself does not need it.
async fn client_dns(config: &ClusterConfig, vip: Option<IpAddr>) -> Finding {
    let name = config.cluster_domain().fqdn("api");
    let found = addresses_of(&name).await;
    match (found.as_slice(), vip) {
        ([], _) => finding(
            Verdict::Ok,
            format!("this computer cannot resolve {name} yet; `deploy` does not need it"),
            Some("after pass one, add the names with `ocpdeploy dns apply`"),
        ),
        (found, Some(vip)) if found.contains(&vip) => Finding::ok(format!("{name} resolves to {vip}")),
        ([first, ..], vip) => {
            let wanted = vip.map_or("and api_ip is not set".to_owned(), |vip| format!("and api_ip is {vip}"));
            finding(
                Verdict::Warn,
                format!("{name} resolves to {first} on this computer, {wanted}"),
                Some("check for a wildcard record or an older cluster; `ocpdeploy dns` manages this computer's names"),
            )
        }
    }
}

/// Whether this computer is on the machines' network, which the waits for the cluster depend on.
fn reach(config: &ClusterConfig, facts: &NetworkFacts) -> Option<Finding> {
    let network = facts.cidr?;
    let near = facts.gateway.unwrap_or(network.network());
    Some(match network_probe::device_to(near) {
        Some(device) => Finding::ok(format!("this computer is on {network} through {device}")),
        None => finding(
            Verdict::Warn,
            format!("this computer is not on {network}: it cannot detect addresses in use there"),
            Some(match config.harvest {
                Harvest::Static => "make sure that the addresses are free and that this computer has a route to them",
                _ => "`deploy` requires a route from this computer to the cluster's API",
            }),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_search_domain_with_a_wildcard_record_is_reported() {
        let mut config = ClusterConfig::example();
        let wildcard = async |name: &str| -> Vec<IpAddr> {
            name.ends_with(".wild.example")
                .then_some([203, 0, 113, 9].into())
                .into_iter()
                .collect()
        };
        assert!(search_domains(&config, wildcard).await.is_empty());
        config.domain = "wild.example".to_owned();
        config.dns_search = vec!["a.example".to_owned(), "sub.wild.example".to_owned()];
        let found = search_domains(&config, wildcard).await;
        let texts: Vec<_> = found.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "every name below sub.wild.example resolves, to 203.0.113.9: dns_search has this domain, and pods find their \
                 services there",
                "every name below wild.example resolves, to 203.0.113.9: this is a problem if the network's DHCP server \
                 announces this search domain, and pods find their services there",
            ]
        );
        // The nodes know all names of the cluster's own domain.
        config.dns_search = vec![format!("{}.wild.example", config.name)];
        assert_eq!(search_domains(&config, wildcard).await.len(), 1);
    }

    #[test]
    fn a_pull_secret_entry_belongs_to_its_host() {
        let secret = r#"{"auths":{"registry.example.com:5000/x":{"auth":"eDp5"},"b":{"auth":"eDp5"}}}"#;
        for (registry, expected) in [
            ("registry.example.com:5000", true),
            ("b", true),
            ("registry.example.com", false),
            ("", false),
        ] {
            assert_eq!(knows(secret, registry), expected, "{registry}");
        }
    }
}
