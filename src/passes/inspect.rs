//! Every check at once, for `ocpdeploy check`: what fails does not hide what comes after it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Result;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::check::{find_installer, look_around};
use super::options::DeployOptions;
use super::report::{CheckResult, Report, Seen};
use crate::backend::{Backend, Finding, NetworkFacts, Verdict};
use crate::cluster::{ClusterConfig, Harvest, Role, Vip};
use crate::local::disk::{self, ETCD_WANTS};
use crate::local::network_probe;
use crate::openshift::installer::Installer;
use crate::openshift::installer::fetch::Choice;
use crate::plan::machines;
use crate::state::home::Home;
use crate::state::inventory;

/// Looks at everything, and tells all that was seen. Makes nothing, and fetches no installer and no image.
///
/// `with_leftovers` turns an error into the finding that it is.
pub async fn inspect(
    backend: Result<&dyn Backend>,
    config: &ClusterConfig,
    home: &Home,
    with_leftovers: impl Fn(&anyhow::Error) -> Finding + Sync,
) -> Vec<CheckResult> {
    let mut report = Report::for_people(&with_leftovers);
    // Errors are findings there, so none is left.
    let _ = look(backend, config, home, &mut report).await;
    report.looked
}

async fn look(
    backend: Result<&dyn Backend>,
    config: &ClusterConfig,
    home: &Home,
    report: &mut Report<'_>,
) -> Result<()> {
    let backend = report.take("platform", backend)?;
    let mut seen = Seen::default();
    if let Some(backend) = backend {
        let around = look_around(backend, config, home, DeployOptions::default(), report).await;
        seen = report.take("platform", around)?.unwrap_or_default();
        more_of_platform(backend, config, seen.facts.as_ref(), report).await;
    }
    let choice = find_installer(backend, config, home, seen.facts.as_ref(), &seen, report).await?;
    if let Some(Choice::Here { installer, .. }) = &choice {
        pull_secret(config, installer, report).await?;
    }
    report.add("client dns", [client_dns(config, api_vip(config, home)).await]);
    Ok(())
}

fn finding(verdict: Verdict, text: impl Into<String>, hint: Option<&str>) -> Finding {
    Finding {
        verdict,
        text: text.into(),
        hint: hint.map(str::to_owned),
    }
}

/// What `deploy` takes for granted when nothing speaks against it, and what only makes it slower.
async fn more_of_platform(
    backend: &dyn Backend,
    config: &ClusterConfig,
    facts: Option<&NetworkFacts>,
    report: &mut Report<'_>,
) {
    // Where the platform will not do, its network was not looked at.
    if let Some(facts) = facts {
        if !report.looked.iter().any(|looked| looked.check == "addresses") {
            report.add("addresses", [addresses(config, facts)]);
        }
        if backend.common_capabilities().guests_answer {
            report.add("network", reach(config, facts));
        }
    }
    report.add("etcd disk", etcd_disk(backend).await);
}

/// The virtual IPs against what the network's DHCP server hands out.
fn addresses(config: &ClusterConfig, facts: &NetworkFacts) -> Finding {
    let given: Vec<_> = Vip::ALL
        .into_iter()
        .filter_map(|vip| Some(format!("{vip}_ip {}", machines::given_vip(config, vip)?)))
        .collect();
    let ranges: Vec<_> = facts
        .dhcp_ranges
        .iter()
        .map(|(first, last)| format!("{first} to {last}"))
        .collect();
    let ranges = match ranges.is_empty() {
        true => "nobody tells what DHCP gives out".to_owned(),
        false => format!("DHCP gives out {}", ranges.join(", ")),
    };
    match given.is_empty() {
        true => Finding::ok(format!("both virtual IPs come from pass one; {ranges}")),
        false if facts.dhcp_ranges.is_empty() => finding(
            Verdict::Warn,
            format!("{}: {ranges}", given.join(", ")),
            Some("make sure that they are outside the DHCP server's range"),
        ),
        false => Finding::ok(format!("{}: nothing speaks against it; {ranges}", given.join(", "))),
    }
}

/// Measured only where the masters' disks are on this computer.
async fn etcd_disk(backend: &dyn Backend) -> Option<Finding> {
    // A pool that is not there was told of already.
    let folder = backend
        .diagnostics(Role::Master)?
        .local_disk_dir()
        .await
        .ok()
        .flatten()?;
    let shown = folder.display().to_string();
    let measured = tokio::task::spawn_blocking(move || disk::latency(&folder)).await.ok()?;
    Some(match measured {
        Ok(latency) if latency.p99 > ETCD_WANTS => finding(
            Verdict::Warn,
            format!("{shown}: {latency}; etcd wants {} ms", ETCD_WANTS.as_millis()),
            Some("use a pool on an SSD: with slow disks etcd loses its leader, and the installation hangs"),
        ),
        Ok(latency) => Finding::ok(format!("{shown}: {latency}")),
        Err(error) => finding(
            Verdict::Warn,
            format!("how fast {shown} is for etcd was not measured: {error}"),
            Some("run it as a user that may write there"),
        ),
    })
}

/// Whether the registry of the release takes the pull secret; `deploy` asks it for the release before its first machine.
async fn pull_secret(config: &ClusterConfig, installer: &Installer, report: &mut Report<'_>) -> Result<()> {
    if config.is_rehearsal() {
        return Ok(());
    }
    if let Some(image) = installer.release_image().await {
        let registry = image.split('/').next().unwrap_or_default();
        if !knows(config.pull_secret.expose_secret(), registry) {
            let text = format!("the pull secret has no entry for {registry}, where the release is");
            let hint = Some("a registry that asks for no password needs none; else download the pull secret anew");
            report.add("pull secret", [finding(Verdict::Warn, text, hint)]);
        }
    }
    let asked = match tempfile::tempdir() {
        Ok(private) => installer.release(config, private.path()).await,
        Err(error) => Err(error.into()),
    };
    if report.take("pull secret", asked)?.is_some() {
        report.add("pull secret", [Finding::ok("the release's registry takes it")]);
    }
    Ok(())
}

/// Whether a pull secret has an entry for a registry, by its host.
fn knows(secret: &str, registry: &str) -> bool {
    let secret: Value = serde_json::from_str(secret).unwrap_or_default();
    let entries = secret["auths"].as_object();
    entries.is_some_and(|entries| entries.keys().any(|entry| entry.split('/').next() == Some(registry)))
}

/// The api VIP where it is known already.
fn api_vip(config: &ClusterConfig, home: &Home) -> Option<Ipv4Addr> {
    let known = inventory::find(home, &config.name).ok().flatten();
    let parameters = known.and_then(|cluster| cluster.parameters);
    parameters
        .map(|parameters| parameters.api_ip)
        .or_else(|| machines::given_vip(config, Vip::Api))
}

/// What this computer's resolver says of the API. `deploy` itself does without.
async fn client_dns(config: &ClusterConfig, vip: Option<Ipv4Addr>) -> Finding {
    let name = config.id().fqdn("api");
    let asked = timeout(Duration::from_secs(5), lookup_host((name.as_str(), 6443))).await;
    let found: Vec<IpAddr> = match asked {
        Ok(Ok(addresses)) => addresses.map(|address| address.ip()).collect(),
        _ => Vec::new(),
    };
    match (found.as_slice(), vip) {
        ([], _) => finding(
            Verdict::Ok,
            format!("this computer does not know {name} yet; `deploy` does not need it"),
            Some("`ocpdeploy dns apply` tells it the names when the addresses are known"),
        ),
        (found, Some(vip)) if found.contains(&IpAddr::V4(vip)) => Finding::ok(format!("{name} leads to {vip}")),
        ([first, ..], vip) => {
            let wanted = vip.map_or("and no api_ip is given".to_owned(), |vip| {
                format!("and api_ip is {vip}")
            });
            finding(
                Verdict::Warn,
                format!("{name} leads to {first} on this computer, {wanted}"),
                Some("a wildcard record or an older cluster? `ocpdeploy dns` looks after this computer's names"),
            )
        }
    }
}

/// Whether this computer sees the machines' network, by which the cluster is waited for.
fn reach(config: &ClusterConfig, facts: &NetworkFacts) -> Option<Finding> {
    let network = facts.cidr?;
    let near = facts.gateway.unwrap_or(network.network());
    Some(match network_probe::device_to(near) {
        Some(device) => Finding::ok(format!("this computer is on {network} by {device}")),
        None => finding(
            Verdict::Warn,
            format!("this computer is not on {network}: addresses in use there are not seen from here"),
            Some(match config.harvest {
                Harvest::Static => "check by hand that nobody has the addresses, and that a router leads there",
                _ => "a router must lead there, or `deploy` waits for the API in vain",
            }),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_for_its_host() {
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
