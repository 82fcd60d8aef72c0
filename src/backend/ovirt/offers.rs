//! What an engine has to choose from, and its CA for who does not have it yet.

use std::time::{Duration, SystemTime};

use reqwest::Client;
use x509_parser::pem::Pem;

use super::Ovirt;
use super::session::{self, Failure};
use super::site::{Site, filter_finding};
use super::wire::{GIB, Version};
use crate::backend::{BackendError, BackendErrorKind, Choice, Finding, Offered, Offers, Verdict};
use crate::digest::sha256;
use crate::xml::Element;

const FILTERED: &str = "the filter drops the packets of virtual IPs";

/// A CA that an engine says is its own; nobody has vouched for it.
#[derive(Clone, Debug)]
pub struct Ca {
    pub pem: String,
    pub subject: String,
    /// SHA-256 of its bytes, as `openssl x509 -fingerprint -sha256` shows it.
    pub fingerprint: String,
    /// When it ends.
    pub until: String,
}

/// Fetches the CA of an engine. Nothing is told to the engine, and what comes is worth what its fingerprint is.
pub async fn fetch_ca(url: &str) -> Result<Ca, BackendError> {
    let deed = format!("fetch the CA of {url}");
    ca_of(url).await.map_err(|failure| failure.during(deed))
}

async fn ca_of(url: &str) -> Result<Ca, Failure> {
    // There is nothing yet to verify the engine by: the user compares the fingerprint.
    let http = Client::builder()
        .connect_timeout(Duration::from_secs(15))
        .timeout(Duration::from_secs(30))
        .tls_danger_accept_invalid_certs(true)
        .build()
        .map_err(|error| session::unreachable(url, &error))?;
    let answer = http
        .get(format!("{url}/services/pki-resource"))
        .query(&[("resource", "ca-certificate"), ("format", "X509-PEM-CA")])
        .send()
        .await
        .map_err(|error| session::unreachable(url, &error))?;
    let status = answer.status();
    let pem = answer.text().await.map_err(|error| session::unreachable(url, &error))?;
    if !status.is_success() {
        return Err(Failure::new(
            BackendErrorKind::NotFound,
            format!("{url} offers no CA: {status}"),
        ));
    }
    let odd = |_| {
        Failure::new(
            BackendErrorKind::Rejected,
            format!("what {url} offers as its CA is no certificate"),
        )
        .hint("ovirt_url leads to the engine itself, such as https://engine.example.com/ovirt-engine")
    };
    let (read, _) = Pem::read(std::io::Cursor::new(pem.as_bytes())).map_err(|_| odd(()))?;
    let certificate = read.parse_x509().map_err(|_| odd(()))?;
    let hex = sha256(&read.contents).to_uppercase();
    let pairs: Vec<_> = hex.as_bytes().chunks(2).map(String::from_utf8_lossy).collect();
    Ok(Ca {
        fingerprint: pairs.join(":"),
        subject: certificate.subject().to_string(),
        until: certificate.validity().not_after.to_string(),
        pem,
    })
}

impl Ovirt {
    pub(super) async fn all_offers(&self) -> Result<Offers, Failure> {
        let api = self.session.get("", &[]).await?;
        let clusters = self.session.get("/clusters", &[]).await?;
        let choice = |cluster: &Element| {
            let about = cluster.text_of("cpu/type").or(cluster.text_of("description"));
            Some(Choice::new(cluster.text_of("name")?, about.unwrap_or_default()))
        };
        let mut offers = Offers {
            seen: vec![engine(self.session.url(), Version::read(&api))],
            settings: vec![Offered::new("ovirt_cluster", clusters.iter().filter_map(choice).collect()).decides()],
        };
        // Storage and networks belong to the data center of the cluster, and the one in the settings may not be there.
        match self.site().await {
            Ok(site) => {
                offers.settings.extend(self.offers_at(site).await?);
                offers.seen.extend(self.look_at_rights(site).await?);
            }
            Err(failure) if failure.kind == BackendErrorKind::NotFound => {}
            Err(failure) => return Err(failure),
        }
        Ok(offers)
    }

    async fn offers_at(&self, site: &Site) -> Result<Vec<Offered>, Failure> {
        let storage = format!("/datacenters/{}/storagedomains", site.data_center);
        let storage = self.session.get(&storage, &[]).await?;
        let profiles = self.profiles_and_filters().await?;
        let templates = self.session.get("/templates", &[]).await?;
        let here: Vec<_> = profiles
            .iter()
            .filter(|profile| profile.value("network/data_center", "id") == Some(site.data_center.as_str()))
            .collect();
        let templates: Vec<_> = templates.iter().filter_map(template).collect();
        Ok(vec![
            Offered::new("ovirt_storage_domain", storage.iter().filter_map(domain).collect()),
            Offered::new("network", networks(&here)),
            Offered::new(
                "ovirt_vnic_profile",
                here.iter().filter_map(|one| profile(one)).collect(),
            )
            .optional(),
            Offered::new("image", templates.clone()).optional(),
            Offered::new("helper_image", templates).optional(),
        ])
    }

    /// What time it is there.
    pub(super) async fn time(&self) -> Result<Option<SystemTime>, Failure> {
        let answer = self.session.http().get(format!("{}/api", self.session.url())).send();
        let answer = answer.await.map_err(|error| self.session.unreachable(&error))?;
        let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
        Ok(date.and_then(crate::backend::time_of))
    }
}

fn engine(url: &str, version: Option<Version>) -> Finding {
    let (verdict, text) = match version {
        None => (Verdict::Warn, format!("{url} tells no version of an engine")),
        Some(version) if version.way().is_none() => {
            let text =
                format!("engine {version} hands no Ignition to machines: its hosts need the hook for `ignitiondata`");
            (Verdict::Warn, text)
        }
        Some(version) => (Verdict::Ok, format!("engine {version} hands Ignition to machines")),
    };
    let hint = (verdict == Verdict::Warn).then(|| "4.3.4 is the first that does without".to_owned());
    Finding { verdict, text, hint }
}

/// Active domains for data.
fn domain(domain: &Element) -> Option<Choice> {
    let is = |path: &str, word: &str| domain.text_of(path) == Some(word);
    let gib = |path: &str| Some(domain.text_of(path)?.parse::<u64>().ok()? / GIB);
    let free = gib("available").unwrap_or_default();
    let used = gib("used").unwrap_or_default();
    (is("type", "data") && is("status", "active")).then(|| {
        Some(Choice::new(
            domain.text_of("name")?,
            format!("{free} GiB free, {used} used"),
        ))
    })?
}

/// Networks with a vNIC profile, each once.
fn networks(profiles: &[&Element]) -> Vec<Choice> {
    let mut names: Vec<_> = profiles
        .iter()
        .filter_map(|profile| profile.text_of("network/name"))
        .collect();
    names.sort_unstable();
    names.dedup();
    let choice = |name: &str| {
        let own = profiles
            .iter()
            .filter(|profile| profile.text_of("network/name") == Some(name));
        let own: Vec<_> = own.collect();
        let names: Vec<_> = own.iter().filter_map(|profile| profile.text_of("name")).collect();
        let choice = Choice::new(name, format!("vNIC profiles: {}", names.join(", ")));
        match own.iter().all(|profile| filter_finding(name, profile).is_some()) {
            true => choice.warn(FILTERED),
            false => choice,
        }
    };
    names.into_iter().map(choice).collect()
}

fn profile(profile: &Element) -> Option<Choice> {
    let (name, network) = (profile.text_of("name")?, profile.text_of("network/name")?);
    let filter = profile.text_of("network_filter/name");
    let filter_words = filter.map_or("no filter".to_owned(), |filter| format!("filter {filter}"));
    let choice = Choice::new(name, format!("network {network}, {filter_words}"));
    Some(match filter_finding(network, profile) {
        Some(_) => choice.warn(FILTERED),
        None => choice,
    })
}

fn template(template: &Element) -> Option<Choice> {
    let name = template.text_of("name").filter(|name| *name != "Blank")?;
    Some(Choice::new(name, template.text_of("description").unwrap_or_default()))
}
