//! Every check at once, for `ocpdeploy check`: what fails does not hide what comes after it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::DeployOptions;
use super::check::{Looked, look_around};
use crate::backend::{Backend, Finding, NetworkFacts, Verdict};
use crate::cluster::{ClusterConfig, Harvest, InstallerChoice, Role, Vip};
use crate::disk::{self, ETCD_WANTS};
use crate::home::Home;
use crate::images;
use crate::installer::Installer;
use crate::inventory;
use crate::lan;
use crate::machines;

/// Clocks apart by more than that make trouble sooner or later, and by `TOO_FAR` at once.
const APART: Duration = Duration::from_secs(10);
const TOO_FAR: Duration = Duration::from_secs(300);

/// Looks at everything, and tells all that was seen. Makes nothing, and fetches no installer and no image.
///
/// `told` turns an error into the finding that it is.
pub async fn inspect<B: Backend>(
    backend: Result<&B>,
    config: &ClusterConfig,
    home: &Home,
    told: impl Fn(&anyhow::Error) -> Finding,
) -> Vec<Looked> {
    let mut looked = Vec::new();
    // Those of masters and of workers.
    let mut artifacts = [config.backend.image_artifact(); 2];
    match backend {
        Err(error) => looked.push(Looked::at("platform")(told(&error))),
        Ok(backend) => {
            artifacts = [Role::Master, Role::Worker].map(|role| backend.limits_for(role).image_artifact);
            platform(backend, config, home, &told, &mut looked).await;
            let clock = clock(backend).await.unwrap_or_else(|error| Some(told(&error)));
            looked.extend(clock.map(Looked::at("clock")));
            looked.extend(etcd_disk(backend).await.map(Looked::at("etcd disk")));
        }
    }
    installer(config, artifacts, home, &told, &mut looked).await;
    let vip = api_vip(config, home);
    looked.push(Looked::at("client dns")(client_dns(config, vip).await));
    looked
}

fn finding(verdict: Verdict, text: impl Into<String>, hint: Option<&str>) -> Finding {
    Finding {
        verdict,
        text: text.into(),
        hint: hint.map(str::to_owned),
    }
}

fn ok(text: impl Into<String>) -> Finding {
    finding(Verdict::Ok, text, None)
}

/// What `deploy` itself looks at first, and what it takes for granted when nothing speaks against it.
async fn platform<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    home: &Home,
    told: &impl Fn(&anyhow::Error) -> Finding,
    looked: &mut Vec<Looked>,
) {
    let (facts, found) = match look_around(backend, config, home, DeployOptions::default()).await {
        Ok(seen) => seen,
        Err(error) => {
            looked.push(Looked::at("platform")(told(&error)));
            return;
        }
    };
    let clear = !found.iter().any(|looked| looked.check == "addresses");
    looked.extend(found);
    // Where the platform will not do, its network was not looked at.
    let Some(facts) = facts else { return };
    if clear {
        looked.push(Looked::at("addresses")(addresses(config, &facts)));
    }
    if backend.limits().guests_answer {
        looked.extend(reach(config, &facts).map(Looked::at("network")));
    }
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
        true => ok(format!("both virtual IPs come from pass one; {ranges}")),
        false if facts.dhcp_ranges.is_empty() => finding(
            Verdict::Warn,
            format!("{}: {ranges}", given.join(", ")),
            Some("make sure that they are outside the DHCP server's range"),
        ),
        false => ok(format!("{}: nothing speaks against it; {ranges}", given.join(", "))),
    }
}

async fn clock<B: Backend>(backend: &B) -> Result<Option<Finding>> {
    let Some(there) = backend.clock().await? else {
        return Ok(None);
    };
    Ok(Some(apart(SystemTime::now(), there)))
}

fn apart(here: SystemTime, there: SystemTime) -> Finding {
    let apart = here
        .duration_since(there)
        .or_else(|_| there.duration_since(here))
        .unwrap_or_default();
    let text = format!(
        "this computer's clock and the platform's are {} s apart",
        apart.as_secs()
    );
    let hint = Some("set both by NTP: the first certificates are valid from the moment they are made");
    match apart {
        apart if apart > TOO_FAR => finding(Verdict::Fail, text, hint),
        apart if apart > APART => finding(Verdict::Warn, text, hint),
        _ => ok(text),
    }
}

/// Measured only where the masters' disks are on this computer.
async fn etcd_disk<B: Backend>(backend: &B) -> Option<Finding> {
    // A pool that is not there was told of already.
    let folder = backend.disks_here().await.ok().flatten()?;
    let shown = folder.display().to_string();
    let measured = tokio::task::spawn_blocking(move || disk::latency(&folder)).await.ok()?;
    Some(match measured {
        Ok(latency) if latency.p99 > ETCD_WANTS => finding(
            Verdict::Warn,
            format!("{shown}: {latency}; etcd wants {} ms", ETCD_WANTS.as_millis()),
            Some("use a pool on an SSD: with slow disks etcd loses its leader, and the installation hangs"),
        ),
        Ok(latency) => ok(format!("{shown}: {latency}")),
        Err(error) => finding(
            Verdict::Warn,
            format!("how fast {shown} is for etcd was not measured: {error}"),
            Some("run it as a user that may write there"),
        ),
    })
}

/// The installer that is here, and whether image, settings and pull secret go with it.
async fn installer(
    config: &ClusterConfig,
    artifacts: [&'static str; 2],
    home: &Home,
    told: &impl Fn(&anyhow::Error) -> Finding,
    looked: &mut Vec<Looked>,
) {
    let at = |finding| Looked::at("installer")(finding);
    if config.installer == InstallerChoice::Rehearsal {
        looked.push(at(ok("a rehearsal needs neither openshift-install nor a pull secret")));
        return;
    }
    let found = match Installer::at_hand(config, &home.cluster(&config.name)).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            let wanted = config
                .downloads
                .version
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            looked.push(at(ok(format!("`deploy` fetches openshift-install {wanted}"))));
            return;
        }
        Err(error) => {
            looked.push(at(told(&error)));
            return;
        }
    };
    let version = match found.version().await {
        Ok(version) => version,
        Err(error) => {
            looked.push(at(told(&error)));
            return;
        }
    };
    looked.push(at(match found.check(config, &version) {
        Ok(()) => ok(format!("openshift-install {version} is here and knows all settings")),
        Err(error) => told(&error.into()),
    }));
    let mut images = vec![&config.image, &config.worker_image];
    images.dedup();
    for (image, artifact) in images.into_iter().zip(artifacts) {
        looked.push(Looked::at("images")(match images::check(image, &version, artifact) {
            Ok(()) => ok(format!("{image} goes with {version}")),
            Err(error) => told(&error.into()),
        }));
    }
    pull_secret(config, &found, told, looked).await;
}

/// Whether the registry of the release lets us in.
async fn pull_secret(
    config: &ClusterConfig,
    installer: &Installer,
    told: &impl Fn(&anyhow::Error) -> Finding,
    looked: &mut Vec<Looked>,
) {
    let at = |finding| Looked::at("pull secret")(finding);
    if let Some(image) = installer.release_image().await {
        let registry = image.split('/').next().unwrap_or_default();
        if !knows(config.pull_secret.expose_secret(), registry) {
            let text = format!("the pull secret has no entry for {registry}, where the release is");
            looked.push(at(finding(
                Verdict::Warn,
                text,
                Some("a registry that asks for no password needs none; else download the pull secret anew"),
            )));
        }
    }
    let asked = match tempfile::tempdir() {
        Ok(private) => installer.release(config, private.path()).await,
        Err(error) => Err(error.into()),
    };
    looked.push(at(match asked {
        Ok(_) => ok("the release's registry takes it"),
        Err(error) => told(&error),
    }));
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
        (found, Some(vip)) if found.contains(&IpAddr::V4(vip)) => ok(format!("{name} leads to {vip}")),
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
    Some(match lan::device_to(near) {
        Some(device) => ok(format!("this computer is on {network} by {device}")),
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
    fn clocks_far_apart_end_it_whichever_is_ahead() {
        let here = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (seconds, expected) in [
            (0, Verdict::Ok),
            (10, Verdict::Ok),
            (11, Verdict::Warn),
            (301, Verdict::Fail),
        ] {
            let away = Duration::from_secs(seconds);
            assert_eq!(apart(here, here + away).verdict, expected, "{seconds} ahead");
            assert_eq!(apart(here, here - away).verdict, expected, "{seconds} behind");
        }
    }

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
