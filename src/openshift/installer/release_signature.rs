//! Signatures of release images, by which the digests of a release are trusted.
//!
//! A store has the files `sha256=<digest>/signature-1`, `-2` and so on (openshift/library-go:
//! `pkg/verify/store/sigstore/sigstore.go`). Each is an OpenPGP message that signs a JSON document with the digest of
//! the image (containers/image: `docs/containers-signature.5.md`).

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use tracing::{info, warn};

use super::signature::SigningKeys;
use crate::PROGRESS;
use crate::artifacts::download::{self, Cache};
use crate::cluster::Downloads;
use crate::error::{ErrorKind, OperationError};

/// The vendor's store (openshift/cluster-update-keys: `stores/store-openshift-official-release-mirror`).
const STORE: &str = "https://mirror.openshift.com/pub/openshift-v4/signatures/openshift/release";

/// Most signatures of one image that are read; upstream's clients have the same limit.
const MOST: usize = 10;

/// Largest signature in bytes; a signed document has a few hundred.
const LONGEST: usize = 64 * 1024;

/// Limit for all requests: a network without a route to the store must not delay a deployment for long.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
struct Document {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: Image,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Verifies a release image that is not named by a verified program.
///
/// Releases without a signature (nightlies, own builds) and stores that cannot be reached are common: these are
/// warnings, as is an image without a digest.
///
/// # Errors
/// There are signatures, and none of them is valid.
pub(super) async fn check(image: &str, downloads: &Downloads) -> Result<(), OperationError> {
    let unverified = |why: &str| warn!(target: PROGRESS, step = "release", "{image} is not verified: {why}");
    let Some(digest) = digest(image) else {
        unverified("it has no sha256 digest");
        return Ok(());
    };
    let mut keys = SigningKeys::vendor()?;
    if let Some(path) = &downloads.installer_mirror_key {
        keys = keys.and(SigningKeys::of_file(path)?);
    }
    let store = downloads
        .signature_store
        .as_deref()
        .unwrap_or(STORE)
        .trim_end_matches('/');
    let (until, retries) = (Instant::now() + LIMIT, Cache::new(&downloads.dir).retries());
    let mut outcome = Ok(());
    for number in 1..=MOST {
        let url = format!("{store}/sha256={digest}/signature-{number}");
        let message = match download::bytes_until(&url, retries, until).await {
            Ok(message) => message,
            // There are no more.
            Err(_) if outcome.is_err() => break,
            Err(error) => {
                match error.is_absent() {
                    true => unverified(&format!("{store} has no signature of it")),
                    false => unverified(&format!("{error:#}")),
                }
                return Ok(());
            }
        };
        match judge(&keys, &message, digest) {
            Ok(key) => {
                info!(target: PROGRESS, step = "release", "{image} is signed with key {key}");
                return Ok(());
            }
            Err(why) => {
                let text = format!("cannot verify release {image}: {url}: {why}");
                let error = OperationError::new(ErrorKind::Tool, text).hint(
                    "nothing was created; if the release is signed with your own key, set installer_mirror_key=FILE to the \
                     public key",
                );
                outcome = outcome.and(Err(error));
            }
        }
    }
    outcome
}

/// The hexadecimal digest of an image.
fn digest(image: &str) -> Option<&str> {
    let (_, digest) = image.rsplit_once("@sha256:")?;
    (digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digest)
}

/// Whether a trusted key has signed this digest; returns the key's fingerprint.
fn judge(keys: &SigningKeys, message: &[u8], digest: &str) -> Result<String, String> {
    let signed = keys.content(message, LONGEST, Timestamp::now())?;
    let (content, key) = signed.ok_or("it is too long")?;
    let document: Document = serde_json::from_slice(&content).map_err(|error| error.to_string())?;
    let Critical { kind, image } = document.critical;
    if kind != "atomic container signature" {
        return Err(format!("it is of type {kind}"));
    }
    match image.digest.strip_prefix("sha256:") == Some(digest) {
        true => Ok(key),
        false => Err(format!("it is a signature of {}", image.digest)),
    }
}
