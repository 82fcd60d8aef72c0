//! The age of the certificates in the installer's files, and what it allows. Pure.
//!
//! They are valid for 24 hours. The cluster replaces them earlier by ones that are valid for 30 days; until then it
//! must not be off when they expire. Source: openshift/cluster-kube-controller-manager-operator,
//! `certrotationcontroller.go`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The Secret with the signer of the nodes' certificates: namespace and name.
pub const SIGNER: (&str, &str) = ("openshift-kube-controller-manager-operator", "csr-signer");

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
    /// Whether the cluster has replaced them; `None` if it was not queried or did not answer.
    pub rotated: Option<bool>,
}

impl Clock {
    pub fn at(now: Timestamp, made_at: Timestamp, rotated: Option<bool>) -> Self {
        let left = LIFE - now.duration_since(made_at);
        Self {
            made_at,
            minutes_left: left.as_mins(),
            rotated,
        }
    }

    /// One line for display.
    pub fn text(&self) -> String {
        let hours = self.minutes_left.abs() / 60;
        match (self.rotated, self.minutes_left > 0) {
            (Some(true), _) => "rotated; the cluster can be stopped".to_owned(),
            (Some(false), true) => {
                format!("not rotated yet, valid for {hours} h; do not stop the cluster before the first rotation")
            }
            (Some(false), false) => {
                format!("expired {hours} h ago without rotation; pending certificate requests must be approved")
            }
            (None, true) => {
                format!("the installer's are valid for {hours} h; rotation status unknown")
            }
            (None, false) => {
                format!("the installer's expired {hours} h ago; rotation status unknown")
            }
        }
    }
}

/// Whether the signer of the nodes' certificates is the cluster's own: the installer's is valid for a day.
///
/// `None` for a Secret without a certificate.
pub fn is_rotated(signer: &Secret) -> Option<bool> {
    let pem = &signer.data.as_ref()?.get("tls.crt")?.0;
    let (_, pem) = parse_x509_pem(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    let validity = certificate.validity();
    let life = SignedDuration::from_secs(validity.not_after.timestamp() - validity.not_before.timestamp());
    Some(life > LIFE + SignedDuration::from_hours(1))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_clock_says_what_may_be_done() {
        let made_at: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        for (hours, rotated, text) in [
            (1, None, "the installer's are valid for 23 h; rotation status unknown"),
            (30, None, "the installer's expired 6 h ago; rotation status unknown"),
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
            let clock = Clock::at(made_at + SignedDuration::from_hours(hours), made_at, rotated);
            assert_eq!(clock.text(), text);
        }
    }

    #[test]
    fn a_signer_that_lives_for_more_than_a_day_is_the_clusters_own() {
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
