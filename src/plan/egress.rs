//! Endpoints outside their network that nodes must reach to pull images, and a guest's report about them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::ExposeSecret;

use crate::cluster::{ClusterConfig, Proxy};
use crate::node::cloud_init::EGRESS_LINE;

/// Endpoints, each `HOST:PORT`, of which one must answer.
pub type AnyOf = Vec<String>;

/// What nodes must reach to pull these images: the proxy if one is set, otherwise each registry or one of its mirrors.
///
/// Endpoints whose host is not a plain name or an IPv4 address are left out.
pub fn endpoints<'a>(config: &ClusterConfig, images: impl IntoIterator<Item = &'a str>) -> Vec<AnyOf> {
    if let Some(proxy) = proxy(&config.proxy) {
        return vec![vec![proxy]];
    }
    let mirrors = config.mirrors();
    let mut all = BTreeSet::new();
    for image in images {
        let mirrored = mirrors.iter().find(|mirror| {
            let rest = image.strip_prefix(mirror.source.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '@']))
        });
        let mirrors = mirrored.iter().flat_map(|mirror| &mirror.mirrors).map(String::as_str);
        let mut any_of: AnyOf = Vec::new();
        for endpoint in mirrors.chain([image]).filter_map(registry) {
            if !any_of.contains(&endpoint) {
                any_of.push(endpoint);
            }
        }
        if !any_of.is_empty() {
            all.insert(any_of);
        }
    }
    all.into_iter().collect()
}

/// The proxy through which nodes pull images: the one for HTTPS, which registries use.
fn proxy(proxy: &Proxy) -> Option<String> {
    let url = proxy.https.as_ref()?.expose_secret();
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?']).next()?;
    let host = host.rsplit('@').next()?;
    endpoint(host, if scheme == "http" { 80 } else { 443 })
}

/// The registry of an image or a repository.
fn registry(image: &str) -> Option<String> {
    let (host, _) = image.split_once('/')?;
    endpoint(host, 443)
}

fn endpoint(host: &str, port: u16) -> Option<String> {
    let (host, port) = match host.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (host, port),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let is_host = !host.is_empty() && host.chars().all(is_plain) && !host.starts_with('-');
    is_host.then(|| format!("{host}:{port}"))
}

/// Whether each endpoint answers, according to the last line about it on a guest's console.
pub fn results(console: &str) -> BTreeMap<String, bool> {
    let result = |line: &str| {
        let mut fields = line.split_once(EGRESS_LINE)?.1.split_whitespace();
        let endpoint = fields.next()?.to_owned();
        match fields.next()? {
            "ok" => Some((endpoint, true)),
            "failed" => Some((endpoint, false)),
            _ => None,
        }
    };
    console.lines().filter_map(result).collect()
}

/// The endpoints that a guest cannot reach. `None` until the guest has reported all of them.
pub fn unreachable(wanted: &[AnyOf], results: &BTreeMap<String, bool>) -> Option<Vec<String>> {
    let mut failed = Vec::new();
    for any_of in wanted {
        if any_of.iter().any(|endpoint| results.get(endpoint) == Some(&true)) {
            continue;
        }
        if !any_of.iter().all(|endpoint| results.contains_key(endpoint)) {
            return None;
        }
        failed.extend(any_of.iter().cloned());
    }
    Some(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::RegistryMirror;

    const IMAGES: [&str; 3] = [
        "registry.example.com/ocp/release@sha256:1",
        "registry.example.com/ocp/other@sha256:2",
        "second.example.com:5000/a@sha256:3",
    ];

    #[test]
    fn endpoints_are_registries_their_mirrors_or_the_proxy() {
        let mut config = ClusterConfig::example();
        assert_eq!(
            endpoints(&config, IMAGES),
            [["registry.example.com:443"], ["second.example.com:5000"]]
        );
        config.registry_mirrors = vec![RegistryMirror {
            source: "registry.example.com/ocp".to_owned(),
            mirrors: vec!["mirror.example.com:8443/ocp".to_owned(), "b.example.com/ocp".to_owned()],
        }];
        assert_eq!(
            endpoints(&config, [IMAGES[0]]),
            [[
                "mirror.example.com:8443",
                "b.example.com:443",
                "registry.example.com:443"
            ]]
        );
        assert_eq!(
            endpoints(&config, ["registry.example.com/ocpx/a"]),
            [["registry.example.com:443"]],
            "a longer name is not mirrored"
        );
        for (url, wanted) in [
            ("http://user:pa:ss@proxy.example.com:3128/", "proxy.example.com:3128"),
            ("http://proxy.example.com", "proxy.example.com:80"),
            ("https://proxy.example.com/x@y", "proxy.example.com:443"),
        ] {
            config.proxy.https = Some(url.to_owned().into());
            assert_eq!(endpoints(&config, IMAGES), [[wanted]], "{url}");
        }
    }

    #[test]
    fn text_with_shell_characters_is_not_an_endpoint() {
        let config = ClusterConfig::example();
        for image in [
            "$(x)/a",
            "a b/c",
            "-x/a",
            "a;b/c",
            "/a",
            "no-host",
            "a:99999/b",
            "a:/b",
            "",
        ] {
            assert!(endpoints(&config, [image]).is_empty(), "{image}");
        }
    }

    #[test]
    fn one_of_each_group_must_answer() {
        let wanted = [vec!["a:1".to_owned(), "b:1".to_owned()], vec!["c:1".to_owned()]];
        let said = |text: &str| unreachable(&wanted, &results(text));
        let line = |endpoint: &str, result: &str| format!("[3.2] x: {EGRESS_LINE} {endpoint} {result}\n");
        assert_eq!(said(""), None);
        assert_eq!(
            said(&(line("a:1", "failed") + &line("c:1", "ok"))),
            None,
            "b is not known"
        );
        assert_eq!(said(&(line("b:1", "ok") + &line("c:1", "ok"))), Some(vec![]));
        let failed = line("a:1", "failed") + &line("b:1", "failed") + &line("c:1", "failed");
        assert_eq!(said(&failed), Some(vec!["a:1".into(), "b:1".into(), "c:1".into()]));
        let later = failed + &line("a:1", "ok") + &line("c:1", "ok");
        assert_eq!(said(&later), Some(vec![]), "the last line counts");
    }
}
