//! Reads a certificate request (PKCS#10, RFC 2986) in the one form that a kubelet writes.
//!
//! The signer reads it with Go, which skips attributes that it cannot parse and takes the extensions of all the others
//! (golang/go: `src/crypto/x509/x509.go`, `parseCSRExtensions`). Another lenient parser may read a different request
//! than the signer. Therefore the parsed request is encoded again as Go would encode it, and both must be the same
//! bytes.
//!
//! A kubelet requests one organization, one common name and optional alternative names, and nothing else
//! (kubernetes/kubernetes: `pkg/kubelet/certificate/bootstrap/bootstrap.go`, `pkg/kubelet/certificate/kubelet.go`,
//! `staging/src/k8s.io/client-go/util/cert/csr.go`; golang/go: `buildCSRExtensions` in the file above).

use std::collections::BTreeSet;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs;

/// Largest request in bytes of PEM; one with an RSA key of 4096 bits has 1,700.
const MOST: usize = 16 << 10;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[0]`, the attributes of a request.
const ATTRIBUTES: u8 = 0xa0;
/// `[2]` and `[7]` among alternative names.
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
/// 2.5.29.17
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// 1.2.840.113549.1.9.14
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];

/// The content of a request.
#[derive(Debug)]
pub(super) struct RequestContent {
    pub common_name: String,
    pub names: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

impl RequestContent {
    /// Reads a PEM file; the error says why it is not from a kubelet.
    pub fn read(pem: &[u8]) -> Result<Self, String> {
        let faulty = || "not a certificate request".to_owned();
        let der = der(pem).ok_or_else(faulty)?;
        let form = Form::read(&der).ok_or_else(faulty)?;
        let asked = form.asked()?;
        if form.write() != der {
            return Err("it has other contents or another encoding than a kubelet's request".to_owned());
        }
        // The API server checks this as well (kubernetes/kubernetes: `pkg/apis/certificates/validation/validation.go`).
        match form.is_signed() {
            true => Ok(asked),
            false => Err("its signature does not match its key".to_owned()),
        }
    }
}

/// The bytes of a PEM file as Go writes it: one block, lines of 64, no headers, nothing around it.
pub(super) fn der(pem: &[u8]) -> Option<Vec<u8>> {
    if pem.len() > MOST {
        return None;
    }
    let body = std::str::from_utf8(pem).ok()?;
    let body = body.strip_prefix("-----BEGIN CERTIFICATE REQUEST-----\n")?;
    let body = body.strip_suffix("\n-----END CERTIFICATE REQUEST-----\n")?;
    let mut lines = body.split('\n').rev();
    let last = lines.next().is_some_and(|line| (1..=64).contains(&line.len()));
    if !last || lines.any(|line| line.len() != 64) {
        return None;
    }
    STANDARD.decode(body.replace('\n', "")).ok()
}

/// The variable parts of a request.
struct Form<'a> {
    subject: Vec<NamePart<'a>>,
    key_algorithm: &'a [u8],
    key: &'a [u8],
    /// Tags and contents.
    alternative_names: Vec<(u8, &'a [u8])>,
    signature_algorithm: &'a [u8],
    signature: &'a [u8],
}

struct NamePart<'a> {
    kind: &'a [u8],
    string: u8,
    text: &'a [u8],
}

impl<'a> Form<'a> {
    /// Reads the parts from their expected positions; anything else is detected when the request is encoded again.
    fn read(der: &'a [u8]) -> Option<Self> {
        let mut request = Reader(der).enter(SEQUENCE)?;
        let mut info = request.enter(SEQUENCE)?;
        info.enter(INTEGER)?;
        let mut rest = info.enter(SEQUENCE)?;
        let mut subject = Vec::new();
        while !rest.0.is_empty() {
            let mut part = rest.enter(SET)?.enter(SEQUENCE)?;
            let kind = part.enter(OBJECT_IDENTIFIER)?.0;
            let (string, text) = part.next()?;
            subject.push(NamePart { kind, string, text });
        }
        let mut key = info.enter(SEQUENCE)?;
        let mut attributes = info.enter(ATTRIBUTES)?;
        let mut alternative_names = Vec::new();
        if !attributes.0.is_empty() {
            let mut attribute = attributes.enter(SEQUENCE)?;
            attribute.enter(OBJECT_IDENTIFIER)?;
            let mut extension = attribute.enter(SET)?.enter(SEQUENCE)?.enter(SEQUENCE)?;
            extension.enter(OBJECT_IDENTIFIER)?;
            let mut names = extension.enter(OCTET_STRING)?.enter(SEQUENCE)?;
            while !names.0.is_empty() {
                alternative_names.push(names.next()?);
            }
        }
        Some(Self {
            subject,
            key_algorithm: key.enter(SEQUENCE)?.0,
            key: key.enter(BIT_STRING)?.whole_bytes()?,
            alternative_names,
            signature_algorithm: request.enter(SEQUENCE)?.0,
            signature: request.enter(BIT_STRING)?.whole_bytes()?,
        })
    }

    /// The request as Go's `CreateCertificateRequest` writes it.
    fn write(&self) -> Vec<u8> {
        let algorithm = element(SEQUENCE, &[self.signature_algorithm]);
        let signature = element(BIT_STRING, &[&[0], self.signature]);
        element(SEQUENCE, &[&self.info(), &algorithm, &signature])
    }

    /// The signed part.
    fn info(&self) -> Vec<u8> {
        let parts = self.subject.iter().map(|part| {
            let kind = element(OBJECT_IDENTIFIER, &[part.kind]);
            let text = element(part.string, &[part.text]);
            element(SET, &[&element(SEQUENCE, &[&kind, &text])])
        });
        let subject = element(SEQUENCE, &[&parts.collect::<Vec<_>>().concat()]);
        let algorithm = element(SEQUENCE, &[self.key_algorithm]);
        let key = element(SEQUENCE, &[&algorithm, &element(BIT_STRING, &[&[0], self.key])]);
        let attributes = element(ATTRIBUTES, &[&self.attribute()]);
        let version = element(INTEGER, &[&[0]]);
        element(SEQUENCE, &[&version, &subject, &key, &attributes])
    }

    /// The one attribute with its one extension; empty without alternative names.
    fn attribute(&self) -> Vec<u8> {
        if self.alternative_names.is_empty() {
            return Vec::new();
        }
        let names = self.alternative_names.iter().map(|(tag, name)| element(*tag, &[name]));
        let names = element(SEQUENCE, &[&names.collect::<Vec<_>>().concat()]);
        let kind = element(OBJECT_IDENTIFIER, &[SUBJECT_ALTERNATIVE_NAME]);
        let extension = element(SEQUENCE, &[&kind, &element(OCTET_STRING, &[&names])]);
        let extensions = element(SET, &[&element(SEQUENCE, &[&extension])]);
        let kind = element(OBJECT_IDENTIFIER, &[EXTENSION_REQUEST]);
        element(SEQUENCE, &[&kind, &extensions])
    }

    /// The text of subject and alternative names.
    fn asked(&self) -> Result<RequestContent, String> {
        let (mut common_names, mut organizations) = (Vec::new(), Vec::new());
        for part in &self.subject {
            if ![PRINTABLE_STRING, UTF8_STRING].contains(&part.string) {
                return Err("its subject is not a PrintableString or UTF8String".to_owned());
            }
            match part.kind {
                COMMON_NAME => common_names.push(text(part.text)?),
                ORGANIZATION => organizations.push(text(part.text)?),
                _ => return Err("its subject has fields other than organization and common name".to_owned()),
            }
        }
        exactly("organizations", &organizations, &["system:nodes"], &[])?;
        // Duplicates are rejected as well.
        let [_] = organizations.as_slice() else {
            return Err("its subject must have exactly one organization".to_owned());
        };
        let [common_name] = <[String; 1]>::try_from(common_names)
            .map_err(|_| "its subject must have exactly one common name".to_owned())?;
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        for (tag, name) in &self.alternative_names {
            match *tag {
                DNS_NAME => names.push(text(name)?),
                IP_ADDRESS => addresses.push(address(name).ok_or("it has an address of invalid length")?),
                _ => return Err("it has an alternative name that is not a host name or an address".to_owned()),
            }
        }
        Ok(RequestContent {
            common_name,
            names,
            addresses,
        })
    }

    /// Whether the request is signed with its own key, by an algorithm that the TLS library supports.
    fn is_signed(&self) -> bool {
        let info = self.info();
        let known = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        known.iter().any(|algorithm| {
            *algorithm.public_key_alg_id() == *self.key_algorithm
                && *algorithm.signature_alg_id() == *self.signature_algorithm
                && algorithm.verify_signature(self.key, &info, self.signature).is_ok()
        })
    }
}

/// Characters allowed in and around a node's name: visible ASCII.
fn text(bytes: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(u8::is_ascii_graphic) => Ok(text.to_owned()),
        _ => Err("it has a name with characters that are not allowed in node names".to_owned()),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Reads DER elements one after the other; skipped elements are not validated.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Tag and content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk()?;
        let length = match first {
            ..=0x7f => usize::from(first),
            0x81 | 0x82 => {
                let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit))
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next element, which has this tag.
    fn enter(&mut self, tag: u8) -> Option<Self> {
        let (found, content) = self.next()?;
        (found == tag).then_some(Self(content))
    }

    /// The content of a bit string of whole bytes.
    fn whole_bytes(self) -> Option<&'a [u8]> {
        self.0.strip_prefix(&[0])
    }
}

/// An element of DER; its parts have less than 64 KiB together, because of `MOST`.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [.., high, low] = content.len().to_be_bytes();
    let mut der = match (high, low) {
        (0, ..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    der.extend(content);
    der
}

/// Requires all of one list, allows some of the other, and nothing else.
pub(super) fn exactly(what: &str, given: &[String], all: &[&str], perhaps: &[&str]) -> Result<(), String> {
    let given: BTreeSet<&str> = given.iter().map(String::as_str).collect();
    if let Some(missing) = all.iter().find(|one| !given.contains(**one)) {
        return Err(format!("{missing} is missing from its {what}"));
    }
    match given.iter().find(|one| !all.contains(one) && !perhaps.contains(one)) {
        Some(more) => Err(format!("{more} is not allowed in its {what}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    /// A request for one alternative name, with its attributes repeated.
    fn request(times: usize) -> Vec<u8> {
        let mut params = CertificateParams::new(["worker-0.lab.example.com".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params
            .distinguished_name
            .push(DnType::CommonName, "system:node:worker-0.lab.example.com");
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        let mut parts = Reader(request.der()).enter(SEQUENCE).unwrap();
        let mut info = parts.enter(SEQUENCE).unwrap();
        let [version, subject, key, attributes] = std::array::from_fn(|_| info.next().unwrap());
        let again = |(tag, content): (u8, &[u8])| element(tag, &[content]);
        let attributes = element(ATTRIBUTES, &vec![attributes.1; times]);
        let info = element(SEQUENCE, &[&again(version), &again(subject), &again(key), &attributes]);
        let rest = [parts.next().unwrap(), parts.next().unwrap()].map(again).concat();
        let body = STANDARD.encode(element(SEQUENCE, &[&info, &rest]));
        let lines: Vec<_> = body.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        let body = lines.join("\n");
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
    }

    #[test]
    fn more_than_one_extension_request_is_rejected() {
        let read = |times| RequestContent::read(&request(times)).map(|asked| asked.names);
        assert_eq!(read(1), Ok(vec!["worker-0.lab.example.com".to_owned()]));
        let refused = Err("it has other contents or another encoding than a kubelet's request".to_owned());
        assert_eq!(read(2), refused);
    }
}
