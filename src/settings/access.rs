//! Pull secret, SSH keys and certificates: files that must parse, and whose content no message repeats.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnetwork::IpNetwork;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value as Json;

use super::parse;
use super::sources::io_reason;
use super::values::{Layer, Values, is_path_of_secret, read_all};
use crate::cluster::limits::{self, HTTP_PROXY, HTTPS_PROXY};
use crate::cluster::{ClusterNetworks, Ipv6Settings, Password, Proxy, Wanted};

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
        values.problems.replaced();
        return Some(SecretString::from(REHEARSAL_PULL_SECRET));
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
                values.placeholder("pull_secret", message, HINT);
                return Some(SecretString::from(REHEARSAL_PULL_SECRET));
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
    let auths =
        json.get("auths")
            .and_then(Json::as_object)
            .ok_or_else(|| match json.pointer("/data/.dockerconfigjson") {
                Some(_) => "is a Secret of Kubernetes; `oc extract secret/NAME --to=-` prints its content",
                None => "has no object `auths`",
            })?;
    if auths.is_empty() {
        return Err("lists no registry in `auths`".to_owned());
    }
    for (registry, entry) in auths {
        if registry.contains(char::is_whitespace) {
            return Err(format!("has a space in the name of registry `{registry}`"));
        }
        let auth = entry.get("auth").and_then(Json::as_str);
        let auth = auth.ok_or_else(|| match json.get("credsStore") {
            Some(_) => {
                format!("has no `auth` for {registry}: Docker stored it elsewhere; use `podman login --authfile FILE`")
            }
            None => format!("has no `auth` for {registry}"),
        })?;
        if !is_login(auth) {
            return Err(format!(
                "has an `auth` for {registry} that is not USER:PASSWORD in base64"
            ));
        }
    }
    Ok(json.to_string())
}

/// Whether the bootstrap machine, CRI-O and the kubelet can read the login of a registry. One that the kubelet cannot
/// read makes it ignore the whole pull secret (containers/image: `pkg/docker/config/config.go`, `decodeDockerAuth`;
/// kubernetes/kubernetes: `pkg/credentialprovider/config.go`, `decodeDockerConfigFieldAuth`).
fn is_login(auth: &str) -> bool {
    let login = STANDARD.decode(auth.replace(['\r', '\n'], ""));
    auth.is_empty() || login.is_ok_and(|login| login.contains(&b':'))
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
    let fips = values.switch("fips")?;
    let is_approved = |kind: &&str| *kind == "ssh-rsa" || kind.starts_with("ecdsa-sha2-nistp");
    let kinds = keys
        .unwrap_or_default()
        .iter()
        .filter_map(|key| limits::ssh_key_type(key));
    for kind in kinds.filter(|kind| fips && !is_approved(kind)) {
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
            // The configuration has no key in its place.
            values.placeholder(name, message, hint);
            return true;
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
        if limits::ssh_key_type(line).is_none() {
            let message = format!("{} is not an OpenSSH public key", path.display());
            values.problem(
                &[name],
                message,
                "each line has options if any, a type such as ssh-ed25519, the key in base64, and a comment",
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

/// PEM text of certificates, and nothing else; `Some(None)` if none is set.
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
    match limits::certificates(&text) {
        Ok(certificates) => Some(Some(certificates)),
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
    let mut url = |name, schemes| match values.is_lost(name) {
        true => None,
        false => values.optional(name, |text| {
            limits::proxy_url(text, schemes).map(|_| SecretString::from(text))
        }),
    };
    let proxy = read_all!(Proxy {
        http: url("http_proxy", HTTP_PROXY),
        https: url("https_proxy", HTTPS_PROXY),
        no_proxy: values.list("no_proxy", parse::no_proxy),
    });
    if proxy.http.is_none() && proxy.https.is_none() && !proxy.no_proxy.is_empty() {
        values.warn("no_proxy", "no_proxy has no effect without http_proxy or https_proxy");
    }
    Some(proxy)
}

/// Rejects a proxy with an address of the networks inside the cluster.
pub(super) fn proxy_addresses(
    values: &mut Values<'_>,
    proxy: &Proxy,
    networks: &ClusterNetworks,
    ipv6: Option<&Ipv6Settings>,
) {
    let inner = [
        ("cluster_network", Some(networks.cluster_network)),
        ("service_network", Some(networks.service_network)),
        ("ovn_join_network", networks.ovn_join_network.map(IpNetwork::V4)),
        ("cluster_network", ipv6.map(|ipv6| IpNetwork::V6(ipv6.cluster_network))),
        ("service_network", ipv6.map(|ipv6| IpNetwork::V6(ipv6.service_network))),
    ];
    for (name, url) in [("http_proxy", &proxy.http), ("https_proxy", &proxy.https)] {
        let host = url
            .as_ref()
            .and_then(|url| limits::proxy_url(url.expose_secret(), HTTPS_PROXY).ok()?.parse().ok());
        let Some(ip): Option<IpAddr> = host else { continue };
        for (network_name, network) in inner {
            if let Some(network) = network.filter(|network| network.contains(ip)) {
                let message = format!("`{name}`: {ip} is in `{network_name}` {network}");
                values.problem(&[name, network_name], message, "");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_of_a_pull_secret_is_a_login_that_nodes_read() {
        let of_auth = |auth: &str| format!("{{\"auths\": {{\"quay.io\": {{\"auth\": \"{auth}\"}}}}}}");
        for auth in ["bWU6cHc=", "bWU6cHcK", "bWU6\\ncHc=", "Og==", ""] {
            checked_pull_secret(&of_auth(auth)).unwrap();
        }
        for (text, expected) in [
            (of_auth("bWU6cHc"), "has an `auth` for quay.io that is not"),
            (of_auth("bWVwdw=="), "has an `auth` for quay.io that is not"),
            (of_auth("me:pw"), "has an `auth` for quay.io that is not"),
            (of_auth(" bWU6cHc="), "has an `auth` for quay.io that is not"),
            (
                of_auth("bWU6cHc=").replace("quay.io", "quay.io "),
                "has a space in the name",
            ),
            (
                of_auth("").replace("\"auth\"", "\"password\""),
                "has no `auth` for quay.io",
            ),
            (
                "{\"auths\": {\"quay.io\": {}}, \"credsStore\": \"desktop\"}".to_owned(),
                "has no `auth` for quay.io: Docker stored it elsewhere",
            ),
            (
                "{\"data\": {\".dockerconfigjson\": \"e30=\"}}".to_owned(),
                "is a Secret of Kubernetes",
            ),
            ("{\"auths\": {}}".to_owned(), "lists no registry"),
        ] {
            let error = checked_pull_secret(&text).unwrap_err();
            assert!(
                error.starts_with(expected) && !error.contains("bWU6"),
                "{text}: {error}"
            );
        }
    }
}
