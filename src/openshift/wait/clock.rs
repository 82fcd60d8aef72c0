//! How long certificates are valid, and what this allows: to stop a cluster, and to start it again.
//!
//! The installer's certificates are valid for 24 hours. Before they expire, the running cluster replaces them with
//! certificates that are valid for 30 days. Until then, it must not be off when they expire.
//!
//! Source: openshift/cluster-kube-controller-manager-operator,
//! `certrotationcontroller.go`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use x509_parser::certificate::Validity;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::openshift::api::ClusterApi;

/// The Secret with the signer of the nodes' certificates: namespace and name.
const NODES: (&str, &str) = ("openshift-kube-controller-manager-operator", "csr-signer");

/// The Secret with the signer of the certificate by which nodes trust the API server. Its end is OpenShift's limit for
/// a cluster that is off (openshift/openshift-docs: modules/graceful-shutdown.adoc).
const API: (&str, &str) = ("openshift-kube-apiserver-operator", "kube-apiserver-to-kubelet-signer");

/// The validity of the installer's certificates.
const LIFE: SignedDuration = SignedDuration::from_hours(24);

/// Files of this age are no longer used: the installation itself takes some hours.
pub const STALE_HOURS: i64 = 20;

/// The state of a cluster's first certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Clock {
    /// When the installer's files were created.
    pub made_at: Timestamp,
    /// Minutes until the installer's certificates expire; negative afterwards.
    pub minutes_left: i64,
    #[serde(flatten)]
    pub certificates: Certificates,
}

/// The certificates of a running cluster, or of one that is off as `stop` recorded them. `None`: not queried, or no
/// answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Certificates {
    /// Whether the cluster has replaced the installer's.
    pub rotated: Option<bool>,
    /// When the signer of the nodes' certificates expires: no certificate of a node is valid longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_until: Option<Timestamp>,
    /// A cluster that is off must be started before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_before: Option<Timestamp>,
}

impl Certificates {
    /// The journal's note of `stop`.
    pub const NOTE: &str = "certificates";

    pub async fn query(api: &ClusterApi) -> Self {
        let secret = async |(namespace, name)| api.secret(namespace, name).await.ok().flatten();
        Self::of(secret(NODES).await.as_ref(), secret(API).await.as_ref())
    }

    fn of(nodes: Option<&Secret>, api: Option<&Secret>) -> Self {
        let end = |secret| Timestamp::from_second(validity(secret)?.not_after.timestamp()).ok();
        Self {
            rotated: nodes.and_then(is_rotated),
            nodes_until: nodes.and_then(end),
            start_before: api.and_then(end),
        }
    }
}

impl Clock {
    pub fn at(now: Timestamp, made_at: Timestamp, certificates: Certificates) -> Self {
        let left = LIFE - now.duration_since(made_at);
        Self {
            made_at,
            minutes_left: left.as_mins(),
            certificates,
        }
    }

    /// One line for display.
    pub fn text(&self) -> String {
        let hours = self.minutes_left.abs() / 60;
        let Certificates {
            rotated, start_before, ..
        } = self.certificates;
        match (rotated, self.minutes_left > 0) {
            (Some(true), _) => match start_before {
                Some(end) => format!("rotated; the cluster can be stopped, and started again before {end}"),
                None => "rotated; the cluster can be stopped".to_owned(),
            },
            (Some(false), true) => {
                format!("not rotated yet, valid for {hours} h; do not stop the cluster before the first rotation")
            }
            (Some(false), false) => {
                format!("expired {hours} h ago without rotation; pending certificate requests must be approved")
            }
            (None, true) => {
                format!("the installer's certificates are valid for {hours} h; rotation status unknown")
            }
            (None, false) => {
                format!("the installer's certificates expired {hours} h ago; rotation status unknown")
            }
        }
    }
}

impl Certificates {
    /// How long a cluster that was stopped at `since` may stay off, and what `start` will do.
    pub fn off_text(&self, since: Timestamp) -> String {
        let mut text = format!("since {since:.0}");
        if let Some(end) = self.start_before {
            text += &format!("; start it before {end}, when the nodes stop trusting the API server");
        }
        if let Some(end) = self.nodes_until {
            text += &format!("; the nodes' certificates end by {end}, from then on `start` approves new ones");
        }
        text
    }
}

/// The validity of the certificate in a Secret; `None` for a Secret without one.
fn validity(secret: &Secret) -> Option<Validity> {
    let pem = &secret.data.as_ref()?.get("tls.crt")?.0;
    let (_, pem) = parse_x509_pem(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    Some(certificate.validity().clone())
}

/// Whether the signer of the nodes' certificates is the cluster's own: the installer's is valid for a day.
fn is_rotated(signer: &Secret) -> Option<bool> {
    let validity = validity(signer)?;
    let life = SignedDuration::from_secs(validity.not_after.timestamp() - validity.not_before.timestamp());
    Some(life > LIFE + SignedDuration::from_hours(1))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_text_says_whether_the_cluster_can_be_stopped() {
        let made_at: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        for (hours, rotated, text) in [
            (
                1,
                None,
                "the installer's certificates are valid for 23 h; rotation status unknown",
            ),
            (
                30,
                None,
                "the installer's certificates expired 6 h ago; rotation status unknown",
            ),
            (
                19,
                Some(false),
                "not rotated yet, valid for 5 h; do not stop the cluster before the first rotation",
            ),
            (
                26,
                Some(false),
                "expired 2 h ago without rotation; pending certificate requests must be approved",
            ),
            (19, Some(true), "rotated; the cluster can be stopped"),
            (900, Some(true), "rotated; the cluster can be stopped"),
        ] {
            let certificates = Certificates {
                rotated,
                ..Certificates::default()
            };
            let clock = Clock::at(made_at + SignedDuration::from_hours(hours), made_at, certificates);
            assert_eq!(clock.text(), text);
        }
    }

    #[test]
    fn a_cluster_may_be_off_until_its_signers_expire() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let since = at("2026-11-21T10:00:00Z");
        let certificates = Certificates {
            rotated: Some(true),
            nodes_until: Some(at("2026-12-15T00:00:00Z")),
            start_before: Some(at("2027-08-05T00:00:00Z")),
        };
        assert_eq!(
            certificates.off_text(since),
            "since 2026-11-21T10:00:00Z; start it before 2027-08-05T00:00:00Z, when the nodes stop trusting the API server; \
             the nodes' certificates end by 2026-12-15T00:00:00Z, from then on `start` approves new ones"
        );
        assert_eq!(Certificates::default().off_text(since), "since 2026-11-21T10:00:00Z");
        let running = Clock::at(since, since, certificates).text();
        assert_eq!(
            running,
            "rotated; the cluster can be stopped, and started again before 2027-08-05T00:00:00Z"
        );
    }

    #[test]
    fn a_signer_that_is_valid_for_more_than_a_day_is_the_clusters_own() {
        let signer = |days: u8| {
            let mut params = CertificateParams::default();
            params.not_before = date_time_ymd(2026, 11, 1);
            params.not_after = date_time_ymd(2026, 11, 1 + days);
            let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
            let data = [("tls.crt".to_owned(), ByteString(pem.into_bytes()))].into();
            Secret {
                data: Some(data),
                ..Secret::default()
            }
        };
        assert_eq!(is_rotated(&signer(1)), Some(false));
        assert_eq!(is_rotated(&signer(29)), Some(true));
        assert_eq!(is_rotated(&Secret::default()), None);
    }
}
