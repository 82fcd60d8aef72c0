//! Pull secret, SSH keys and certificates: files that must parse, and whose content no message repeats.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use serde_json::Value as Json;

use super::parse;
use super::sources::io_reason;
use super::values::{Layer, Values, is_path_of_secret, read_all};
use crate::cluster::{Password, Proxy, Wanted};

/// A placeholder without a real secret, in the form that installers accept.
const REHEARSAL_PULL_SECRET: &str = r#"{"auths":{}}"#;

/// OKD needs no pull secret, but its installer requires one (openshift/openshift-docs
/// `modules/installation-obtaining-installer.adoc`).
const OKD_PULL_SECRET: &str = r#"{"auths":{"fake":{"auth":"aWQ6cGFzcwo="}}}"#;

/// The pull secret as one line of JSON.
pub(super) fn pull_secret(values: &mut Values<'_>) -> Option<SecretString> {
    const HINT: &str =
        "download it from https://console.redhat.com/openshift/install/pull-secret; for OKD, version=okd needs none";
    let value = values.value("pull_secret")?;
    if values.is_lost("pull_secret") {
        return None;
    }
    let (text, what) = if is_path_of_secret("pull_secret", &value.written, &value.text) {
        let path = values.path("pull_secret")?;
        if values.sources.rehearse && value.layer == Layer::Default && !(values.sources.is_file)(&path) {
            values.replace("pull_secret", "rehearsal", REHEARSAL_PULL_SECRET.to_owned());
            return Some(SecretString::from(REHEARSAL_PULL_SECRET));
        }
        let wanted = values.text("version").and_then(|version| version.parse().ok());
        let is_okd = wanted.is_some_and(|wanted: Wanted| wanted.is_okd());
        if is_okd && value.layer == Layer::Default && !(values.sources.is_file)(&path) {
            values.replace("pull_secret", "OKD", OKD_PULL_SECRET.to_owned());
            return Some(SecretString::from(OKD_PULL_SECRET));
        }
        match (values.sources.read_file)(&path) {
            Ok(text) => (text, format!("the pull secret {}", path.display())),
            Err(error) => {
                let message = format!("cannot read the pull secret {}: {}", path.display(), io_reason(&error));
                values.problem(&["pull_secret"], message, HINT);
                return None;
            }
        }
    } else {
        (value.text, "the pull secret".to_owned())
    };
    match checked_pull_secret(&text) {
        Ok(text) => Some(SecretString::from(text)),
        Err(reason) => {
            values.problem(&["pull_secret"], format!("{what} {reason}"), HINT);
            None
        }
    }
}

fn checked_pull_secret(text: &str) -> Result<String, String> {
    let json: Json = serde_json::from_str(text)
        .map_err(|error| format!("is not JSON at line {}, column {}", error.line(), error.column()))?;
    let auths = json
        .get("auths")
        .and_then(Json::as_object)
        .ok_or("has no object `auths`")?;
    if auths.is_empty() {
        return Err("lists no registry in `auths`".to_owned());
    }
    for (registry, entry) in auths {
        if !entry.get("auth").is_some_and(Json::is_string) {
            return Err(format!("has no `auth` for {registry}"));
        }
    }
    Ok(json.to_string())
}

/// The password of oVirt's user, and the file that contains it.
pub(super) fn ovirt_password(values: &mut Values<'_>) -> Option<(Password, Option<PathBuf>)> {
    let Some(value) = values.value("ovirt_password") else {
        values.missing(
            "ovirt_password",
            "set `ovirt_password_file=FILE`, or OCPDEPLOY_OVIRT_PASSWORD in the environment",
        );
        return None;
    };
    if values.is_lost("ovirt_password") {
        return None;
    }
    if !is_path_of_secret("ovirt_password", &value.written, &value.text) {
        return Some((Password(Some(SecretString::from(value.text))), None));
    }
    let path = values.path("ovirt_password")?;
    match (values.sources.read_file)(&path) {
        Ok(text) => {
            let password = text.trim_end_matches(['\n', '\r']);
            Some((Password(Some(SecretString::from(password))), Some(path)))
        }
        Err(error) => {
            let message = format!(
                "cannot read the password file {}: {}",
                path.display(),
                io_reason(&error)
            );
            values.problem(&["ovirt_password"], message, "the file contains only the password");
            None
        }
    }
}

/// Public keys of `pub_key` and `keys`, one line each, without duplicates.
pub(super) fn ssh_keys(values: &mut Values<'_>) -> Option<Vec<String>> {
    const HINT: &str = "create a key with `ssh-keygen -t ed25519`, or set `pub_key` to the file of another key";
    let pub_key = values.value("pub_key")?;
    let path = values.path("pub_key")?;
    let may_be_absent = values.sources.rehearse && pub_key.layer == Layer::Default;
    let mut keys = Vec::new();
    let mut all_read = true;
    if !may_be_absent || (values.sources.is_file)(&path) {
        all_read &= read_keys(values, "pub_key", &path, HINT, &mut keys);
    }
    if let Some(further) = values.value("keys") {
        let paths: Vec<PathBuf> = parse::list(&further.text)
            .map(|path| further.folder.join(path))
            .collect();
        for path in paths {
            all_read &= read_keys(values, "keys", &path, "list files of public keys", &mut keys);
        }
    }
    all_read.then_some(keys)
}

/// Whether nodes are in FIPS mode, which rejects some keys (openshift/installer
/// `pkg/types/validation/installconfig.go`).
pub(super) fn fips(values: &mut Values<'_>, keys: Option<&[String]>) -> Option<bool> {
    const TYPES: [&str; 4] = [
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
    ];
    let fips = values.switch("fips")?;
    let kinds = keys
        .unwrap_or_default()
        .iter()
        .filter_map(|key| key.split_whitespace().next());
    for kind in kinds.filter(|kind| fips && !TYPES.contains(kind)) {
        let message = format!("fips=true does not support SSH keys of type {kind}");
        let help = "create a key with `ssh-keygen -t ecdsa`, and set `pub_key` to its file";
        values.problem(&["fips", "pub_key", "keys"], message, help);
    }
    Some(fips)
}

fn read_keys(values: &mut Values<'_>, name: &'static str, path: &Path, hint: &str, keys: &mut Vec<String>) -> bool {
    let text = match (values.sources.read_file)(path) {
        Ok(text) => text,
        Err(error) => {
            let message = format!(
                "cannot read the SSH public key {}: {}",
                path.display(),
                io_reason(&error)
            );
            values.problem(&[name], message, hint);
            return false;
        }
    };
    if text.contains("PRIVATE KEY") {
        let message = format!("{} is a private key", path.display());
        values.problem(&[name], message, "use the public key, whose file name ends in .pub");
        return false;
    }
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut found = false;
    for line in lines {
        found = true;
        if !is_public_key(line) {
            let message = format!("{} is not an OpenSSH public key", path.display());
            values.problem(
                &[name],
                message,
                "each line has a type such as ssh-ed25519, the key in base64, and a comment",
            );
            return false;
        }
        if !keys.iter().any(|known| known == line) {
            keys.push(line.to_owned());
        }
    }
    if !found {
        values.problem(&[name], format!("{} contains no key", path.display()), hint);
    }
    found
}

/// `type base64 [comment]`, where the key's first field repeats the type (RFC 4253, section 6.6).
fn is_public_key(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let (Some(kind), Some(blob)) = (words.next(), words.next()) else {
        return false;
    };
    let known = [
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    ];
    let Ok(blob) = STANDARD.decode(blob) else {
        return false;
    };
    let Some((length, rest)) = blob.split_first_chunk::<4>() else {
        return false;
    };
    let length = u32::from_be_bytes(*length) as usize;
    known.contains(&kind) && rest.len() > length && &rest[..length] == kind.as_bytes()
}

/// PEM text of certificates; `Some(None)` if none is set.
pub(super) fn ca(values: &mut Values<'_>) -> Option<Option<String>> {
    let Some(path) = values.path("ca") else {
        return Some(None);
    };
    let text = match (values.sources.read_file)(&path) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("cannot read the certificates {}: {}", path.display(), io_reason(&error));
            values.problem(&["ca"], message, "");
            return None;
        }
    };
    match check_pem(&text) {
        Ok(()) => Some(Some(text)),
        Err(reason) => {
            values.problem(
                &["ca"],
                format!("{} {reason}", path.display()),
                "use a PEM file that contains only certificates",
            );
            None
        }
    }
}

/// The nodes' proxies.
pub(super) fn proxy(values: &mut Values<'_>) -> Option<Proxy> {
    let mut url = |name| match values.is_lost(name) {
        true => None,
        false => values.optional(name, |text| parse::proxy_url(text).map(SecretString::from)),
    };
    let proxy = read_all!(Proxy {
        http: url("http_proxy"),
        https: url("https_proxy"),
        no_proxy: values.list("no_proxy", parse::no_proxy),
    });
    if proxy.http.is_none() && proxy.https.is_none() && !proxy.no_proxy.is_empty() {
        values.warn("no_proxy", "no_proxy has no effect without http_proxy or https_proxy");
    }
    Some(proxy)
}

fn check_pem(text: &str) -> Result<(), &'static str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    if text.contains("PRIVATE KEY") {
        return Err("contains a private key");
    }
    let mut rest = text;
    let mut found = false;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let (body, after) = after
            .split_once(END)
            .ok_or("contains a certificate without an END line")?;
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD
            .decode(body)
            .map_err(|_| "contains a certificate that is not base64")?;
        // Every certificate is a DER sequence.
        if der.first() != Some(&0x30) {
            return Err("contains a certificate that is not DER");
        }
        found = true;
        rest = after;
    }
    found.then_some(()).ok_or("contains no certificate")
}
