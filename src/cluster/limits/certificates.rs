//! Certificates as PEM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::parse_x509_certificate;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";

/// The certificates of a PEM text, without what is around them: openshift-install reads on until nothing is left, so it
/// rejects a comment or an empty line after the last one (openshift/installer: `pkg/validate/validate.go`, `CABundle`).
pub fn certificates(text: &str) -> Result<String, &'static str> {
    let mut all = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        if !before.is_empty() && !before.ends_with('\n') {
            return Err("contains a BEGIN that is not at the start of a line");
        }
        let (kind, after) = after.split_once("-----").ok_or("contains an incomplete BEGIN line")?;
        if kind.ends_with("PRIVATE KEY") {
            return Err("contains a private key");
        }
        if kind != "CERTIFICATE" {
            return Err("contains a PEM block that is not a CERTIFICATE");
        }
        let (body, after) = after
            .split_once(END)
            .ok_or("contains a certificate without an END line")?;
        rest = after
            .strip_prefix("CERTIFICATE-----")
            .ok_or("contains a certificate without an END line")?;
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD
            .decode(body)
            .map_err(|_| "contains a certificate that is not base64")?;
        match parse_x509_certificate(&der) {
            Ok(([], _)) => {}
            _ => return Err("contains a certificate that is damaged"),
        }
        all += BEGIN;
        all += "CERTIFICATE-----\n";
        let body = STANDARD.encode(der);
        for line in body.as_bytes().chunks(64) {
            all.extend(line.iter().map(|b| char::from(*b)));
            all.push('\n');
        }
        all += END;
        all += "CERTIFICATE-----\n";
    }
    match all.is_empty() {
        true => Err("contains no certificate"),
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_certificates_of_a_file_are_used() {
        let certificate = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            rcgen::CertificateParams::new([name.to_owned()])
                .unwrap()
                .self_signed(&key)
                .unwrap()
                .pem()
        };
        let (one, two) = (certificate("a"), certificate("b"));
        let (one, two) = (one.replace("\r\n", "\n"), two.replace("\r\n", "\n"));
        let both = format!("{one}{two}");
        assert_eq!(certificates(&both).as_deref(), Ok(both.as_str()));
        for around in [
            format!("{one}{two}\n"),
            format!("# first\n{one}\n# second\n{two}# end\n"),
            both.replace('\n', "\r\n"),
            both.trim_end().to_owned(),
            format!("Certificate:\n    Data:\n{both}"),
        ] {
            assert_eq!(certificates(&around).as_deref(), Ok(both.as_str()), "{around}");
        }
        let damaged = one.replacen("MII", "MIIB", 1);
        for (bad, why) in [
            (String::new(), "contains no certificate"),
            (
                "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".to_owned(),
                "damaged",
            ),
            (damaged, "not base64"),
            (one.replace("-----END CERTIFICATE-----", ""), "END line"),
            (one.replace("CERTIFICATE", "TRUSTED CERTIFICATE"), "not a CERTIFICATE"),
            (one.replace("CERTIFICATE", "EC PRIVATE KEY"), "private key"),
            (format!("x{one}"), "start of a line"),
        ] {
            let error = certificates(&bad).unwrap_err();
            assert!(error.contains(why), "{error}: {bad}");
        }
    }
}
