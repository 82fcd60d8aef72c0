//! What an engine has to choose from, and its CA for who does not have it yet.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, redirect};
use x509_parser::parse_x509_certificate;
use x509_parser::pem::Pem;

use super::answers::read_text;
use super::engine::Ovirt;
use super::engine::Site;
use super::session::{self};
use super::site::filter_finding;
use super::wire::{GIB, Version};
use crate::backend::failure::{During, Failure};
use crate::backend::{BackendError, BackendErrorKind, Choice, Finding, PlatformChoices, SettingChoices, Verdict};
use crate::digest::sha256;
use crate::xml::Element;

/// Bytes of a CA's file; one certificate has a few thousand.
const LARGEST_CA: usize = 64 << 10;

const FILTERED: &str = "the filter drops the packets of virtual IPs";

/// A CA that an engine says is its own; nobody has vouched for it.
#[derive(Clone, Debug)]
pub struct Ca {
    /// PEM of this certificate and of nothing else.
    pub pem: String,
    /// In one line.
    pub subject: String,
    /// SHA-256 of its bytes, as `openssl x509 -fingerprint -sha256` shows it.
    pub fingerprint: String,
    /// When it ends.
    pub until: String,
}

impl Ca {
    /// Reads a PEM file of exactly one certificate; `None`: it is none, or holds more than a user can compare.
    fn read(text: &[u8]) -> Option<Self> {
        let mut all = Pem::iter_from_buffer(text);
        let pem = all.next()?.ok().filter(|pem| pem.label == "CERTIFICATE")?;
        if all.next().is_some() {
            return None;
        }
        let (rest, certificate) = parse_x509_certificate(&pem.contents).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let hex = sha256(&pem.contents).to_uppercase();
        let pairs: Vec<_> = hex.as_bytes().chunks(2).map(String::from_utf8_lossy).collect();
        Some(Self {
            fingerprint: pairs.join(":"),
            subject: certificate.subject().to_string().replace(char::is_control, " "),
            until: certificate.validity().not_after.to_string(),
            pem: pem_of(&pem.contents),
        })
    }
}

/// A certificate as PEM (RFC 7468, section 2: lines of 64 characters).
fn pem_of(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines: Vec<_> = base64.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// Fetches the CA of an engine. Nothing is told to the engine, and what comes is worth what its fingerprint is.
pub async fn fetch_ca(url: &str) -> Result<Ca, BackendError> {
    let operation = format!("fetch the CA of {url}");
    ca_of(url).await.during(operation)
}

async fn ca_of(url: &str) -> Result<Ca, Failure> {
    // There is nothing yet to verify the engine by: the user compares the fingerprint.
    let http = Client::builder()
        .connect_timeout(Duration::from_secs(15))
        .timeout(Duration::from_secs(30))
        .redirect(redirect::Policy::none())
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
    let text = read_text(url, answer, LARGEST_CA).await?;
    if !status.is_success() {
        return Err(Failure::new(
            BackendErrorKind::NotFound,
            format!("{url} offers no CA: {status}"),
        ));
    }
    Ca::read(text.as_bytes()).ok_or_else(|| {
        Failure::new(
            BackendErrorKind::Rejected,
            format!("what {url} offers as its CA is not exactly one certificate"),
        )
        .hint(
            "ovirt_url leads to the engine itself, such as https://engine.example.com/ovirt-engine; of several \
             certificates only its administrator knows which to trust: give their file as ovirt_ca",
        )
    })
}

impl Ovirt {
    pub(super) async fn all_offers(&self) -> Result<PlatformChoices, Failure> {
        let api = self.session.get("", &[]).await?;
        let clusters = self.session.get("/clusters", &[]).await?;
        let choice = |cluster: &Element| {
            let about = cluster.text_of("cpu/type").or(cluster.text_of("description"));
            Some(Choice::new(cluster.text_of("name")?, about.unwrap_or_default()))
        };
        let mut choices = PlatformChoices {
            seen: vec![engine(self.session.url(), Version::read(&api))],
            settings: vec![
                SettingChoices::new("ovirt_cluster", clusters.iter().filter_map(choice).collect()).decides(),
            ],
        };
        // Storage and networks belong to the data center of the cluster, and the one in the settings may not be there.
        match self.site().await {
            Ok(site) => {
                choices.settings.extend(self.offers_at(site).await?);
                choices.seen.extend(self.look_at_rights(site).await?);
            }
            Err(failure) if failure.kind == BackendErrorKind::NotFound => {}
            Err(failure) => return Err(failure),
        }
        Ok(choices)
    }

    async fn offers_at(&self, site: &Site) -> Result<Vec<SettingChoices>, Failure> {
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
            SettingChoices::new("ovirt_storage_domain", storage.iter().filter_map(domain).collect()),
            SettingChoices::new("network", networks(&here)),
            SettingChoices::new(
                "ovirt_vnic_profile",
                here.iter().filter_map(|one| profile(one)).collect(),
            )
            .optional(),
            SettingChoices::new("image", templates.clone()).optional(),
            SettingChoices::new("helper_image", templates).optional(),
        ])
    }

    /// What time it is there.
    pub(super) async fn time(&self) -> Result<Option<SystemTime>, Failure> {
        self.session.date().await
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

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn what_is_trusted_is_what_was_shown() {
        let (shown, hidden) = (certificate("engine"), certificate("attacker"));
        let ca = Ca::read(shown.pem().as_bytes()).unwrap();
        let [pem] = &Vec::from_iter(Pem::iter_from_buffer(ca.pem.as_bytes()).flatten())[..] else {
            panic!("{}", ca.pem);
        };
        assert_eq!(pem.contents, shown.der().as_ref());
        assert_eq!(
            ca.fingerprint.replace(':', "").to_lowercase(),
            sha256(shown.der().as_ref())
        );
        // Text around it is not kept.
        let around = format!("subject=/O=x\n{}\nmore text", shown.pem());
        assert_eq!(Ca::read(around.as_bytes()).unwrap().pem, ca.pem);
        for several in [
            format!("{}{}", shown.pem(), hidden.pem()),
            format!("{}\n-----BEGIN CERTIFICATE-----\ncut", shown.pem()),
            shown.pem().replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
            "no certificate".to_owned(),
            String::new(),
        ] {
            assert!(Ca::read(several.as_bytes()).is_none(), "{several}");
        }
        let mut longer = shown.der().to_vec();
        longer.extend(hidden.der().as_ref());
        assert!(Ca::read(pem_of(&longer).as_bytes()).is_none());
    }

    #[test]
    fn a_subject_cannot_write_to_the_terminal() {
        let odd = certificate("engine\n  SHA-256 AA:BB\u{1b}[2J");
        let ca = Ca::read(odd.pem().as_bytes()).unwrap();
        assert!(!ca.subject.chars().any(char::is_control), "{:?}", ca.subject);
    }
}
