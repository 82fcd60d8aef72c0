//! The choices that an engine offers, and its CA.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, redirect};
use x509_parser::parse_x509_certificate;
use x509_parser::pem::Pem;

use super::answers::read_text;
use super::engine::Ovirt;
use super::engine::OvirtSite;
use super::session::{self};
use super::site::Filters;
use super::wire::{EngineVersion, GIB};
use crate::backend::{
    BackendError, BackendErrorKind, Choice, Finding, PlatformChoices, PlatformError, SettingChoices, Verdict,
};
use crate::digest::sha256;
use crate::xml::Element;

/// Bytes of a CA's file; one certificate has a few thousand.
const LARGEST_CA: usize = 64 << 10;

const FILTERED: &str = "the filter drops the packets of virtual IPs";

/// The CA that an engine offers. It is not verified.
#[derive(Clone, Debug)]
pub struct Ca {
    /// PEM of this certificate only.
    pub pem: String,
    /// In one line.
    pub subject: String,
    /// SHA-256 of its bytes, as `openssl x509 -fingerprint -sha256` shows it.
    pub fingerprint: String,
    /// When it ends.
    pub until: String,
}

impl Ca {
    /// Reads a PEM file of exactly one certificate. `None` for any other file: a user compares one fingerprint.
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

/// Fetches the CA of an engine, without credentials. The user must compare its fingerprint.
pub async fn fetch_ca(url: &str) -> Result<Ca, PlatformError> {
    let ca = ca_of(url).await;
    ca.map_err(|error| error.during(format!("fetch the CA of {url}")))
}

async fn ca_of(url: &str) -> Result<Ca, BackendError> {
    // The CA that would verify the engine is what is fetched here.
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
        return Err(BackendError::new(
            BackendErrorKind::NotFound,
            format!("{url} offers no CA: {status}"),
        ));
    }
    Ca::read(text.as_bytes()).ok_or_else(|| {
        BackendError::new(
            BackendErrorKind::Rejected,
            format!("the CA that {url} offers is not exactly one certificate"),
        )
        .hint(
            "set ovirt_url to the engine itself, such as https://engine.example.com/ovirt-engine; if it offers several \
             certificates, set ovirt_ca to the file that its administrator gives you",
        )
    })
}

impl Ovirt {
    pub(super) async fn all_offers(&self) -> Result<PlatformChoices, BackendError> {
        let api = self.session.get("", &[]).await?;
        let clusters = self.session.get("/clusters", &[]).await?;
        let choice = |cluster: &Element| {
            let about = cluster.text_of("cpu/type").or(cluster.text_of("description"));
            Some(Choice::new(cluster.text_of("name")?, about.unwrap_or_default()))
        };
        let mut choices = PlatformChoices {
            host: None,
            seen: vec![engine(self.session.url(), EngineVersion::read(&api))],
            settings: vec![
                SettingChoices::new("ovirt_cluster", clusters.iter().filter_map(choice).collect()).decides(),
            ],
        };
        // Storage and networks belong to the data center of the cluster, and the one in the settings may not be there.
        match self.site().await {
            Ok(site) => {
                choices.settings.extend(self.offers_at(site).await?);
                choices.seen.extend(self.check_rights(site, &[]).await?);
            }
            Err(failure) if failure.kind == BackendErrorKind::NotFound => {}
            Err(failure) => return Err(failure),
        }
        Ok(choices)
    }

    async fn offers_at(&self, site: &OvirtSite) -> Result<Vec<SettingChoices>, BackendError> {
        let storage = self.domains(site).await?;
        let (profiles, filters) = self.profiles_and_filters().await?;
        let templates = self.session.get("/templates", &[]).await?;
        let here: Vec<_> = profiles
            .iter()
            .filter(|profile| profile.value("network/data_center", "id") == Some(site.data_center.as_str()))
            .collect();
        let templates: Vec<_> = templates
            .iter()
            // Blank has no cluster and no disk.
            .filter(|template| template.value("cluster", "id").is_some() && site.has(template))
            .filter_map(template)
            .collect();
        Ok(vec![
            SettingChoices::new("ovirt_storage_domain", storage.iter().filter_map(domain).collect()),
            SettingChoices::new("network", networks(&here, &filters)),
            SettingChoices::new(
                "ovirt_vnic_profile",
                here.iter().filter_map(|one| profile(one, &filters)).collect(),
            )
            .optional(),
            SettingChoices::new("image", templates.clone()).optional(),
            SettingChoices::new("harvest_image", templates).optional(),
        ])
    }

    /// The engine's time.
    pub(super) async fn time(&self) -> Result<Option<SystemTime>, BackendError> {
        self.session.date().await
    }
}

fn engine(url: &str, version: Option<EngineVersion>) -> Finding {
    let (verdict, text) = match version {
        None => (Verdict::Warn, format!("{url} returns no engine version")),
        Some(version) if version.way().is_none() => (
            Verdict::Warn,
            format!("engine {version} does not pass Ignition to machines"),
        ),
        Some(version) => (Verdict::Ok, format!("engine {version} passes Ignition to machines")),
    };
    let hint = (verdict == Verdict::Warn).then(|| "upgrade the engine to 4.3.4 or later".to_owned());
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
fn networks(profiles: &[&Element], filters: &Filters) -> Vec<Choice> {
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
        match own.iter().all(|profile| filters.finding(name, profile).is_some()) {
            true => choice.warn(FILTERED),
            false => choice,
        }
    };
    names.into_iter().map(choice).collect()
}

fn profile(profile: &Element, filters: &Filters) -> Option<Choice> {
    let (name, network) = (profile.text_of("name")?, profile.text_of("network/name")?);
    let filter = match (profile.find("network_filter"), filters.name_of(profile)) {
        (None, _) => "no filter".to_owned(),
        (Some(_), None) => "unknown filter".to_owned(),
        (Some(_), Some(filter)) => format!("filter {filter}"),
    };
    let choice = Choice::new(name, format!("network {network}, {filter}"));
    Some(match filters.finding(network, profile) {
        Some(_) => choice.warn(FILTERED),
        None => choice,
    })
}

fn template(template: &Element) -> Option<Choice> {
    let about = template.text_of("description").unwrap_or_default();
    Some(Choice::new(template.text_of("name")?, about))
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
    fn only_the_certificate_that_was_shown_is_trusted() {
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
    fn a_subject_is_shown_without_control_characters() {
        let odd = certificate("engine\n  SHA-256 AA:BB\u{1b}[2J");
        let ca = Ca::read(odd.pem().as_bytes()).unwrap();
        assert!(!ca.subject.chars().any(char::is_control), "{:?}", ca.subject);
    }
}
