//! CA certificates in a file that a setting names, for the client of a platform's server.

use std::path::Path;

use reqwest::Certificate;

use super::{BackendError, BackendErrorKind};
use crate::cluster::limits::certificates;
use crate::limited_file;

/// The certificates of a PEM file, as PEM and for a client. `signed` says in the hint what the CA must have signed.
pub(super) fn read(setting: &str, path: &Path, signed: &str) -> Result<(String, Vec<Certificate>), BackendError> {
    let unusable = |why: String| {
        let words = format!("{setting} {}: {why}", path.display());
        BackendError::new(BackendErrorKind::LocalFile, words)
            .hint(format!("set {setting} to the PEM file of the CA that signed {signed}"))
    };
    let text = limited_file::read_text(path).map_err(|error| unusable(error.to_string()))?;
    let pem = certificates(&text).map_err(|why| unusable(format!("it {why}")))?;
    let parsed = Certificate::from_pem_bundle(pem.as_bytes()).map_err(|error| unusable(error.to_string()))?;
    Ok((pem, parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_file_without_a_valid_certificate_is_rejected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        let damaged = "-----BEGIN CERTIFICATE-----\nbm8gY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n";
        for (text, why) in [
            ("", "contains no certificate"),
            ("text", "contains no certificate"),
            (damaged, "contains a certificate that is damaged"),
            (&key.serialize_pem(), "contains a private key"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            let error = read("ovirt_ca", file.path(), "the engine's certificate").unwrap_err();
            assert_eq!(error.message, format!("ovirt_ca {}: it {why}", file.path().display()));
        }
        std::fs::write(file.path(), format!("# comment\n{certificate}\n{certificate}")).unwrap();
        assert_eq!(read("ovirt_ca", file.path(), "").unwrap().1.len(), 2);
    }
}
