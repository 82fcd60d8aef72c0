//! What openshift-install accepts as one text of an install-config.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnetwork::IpNetwork;

/// The scheme and the host of a proxy's URL, as Go's `net/url` splits it (golang/go: `src/net/url/url.go`,
/// `ParseRequestURI`). No error repeats the URL, because it may contain a password.
///
/// Stricter than Go: the host must be a name or an address, and the port a number up to 65535.
pub fn proxy_url<'a>(text: &'a str, schemes: &[&str]) -> Result<&'a str, String> {
    const NO_URL: &str = "the value is not a URL such as http://proxy.example.com:3128";
    let (scheme, rest) = text.split_once("://").ok_or(NO_URL)?;
    if !schemes.contains(&scheme) {
        return Err(format!("the URL must start with {}://", schemes.join(":// or ")));
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("the URL contains a space or a control character".to_owned());
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, server) = match authority.rsplit_once('@') {
        Some((user, server)) => (user, server),
        None => ("", authority),
    };
    // `validUserinfo`.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(is_plain) || !is_escaped(user) {
        return Err(
            "user or password contain a character that a URL cannot contain; write it as % and two hexadecimal digits"
                .to_owned(),
        );
    }
    let (host, port) = match server.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port),
        None => server.split_at(server.find(':').unwrap_or(server.len())),
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok());
    let is_name =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) && !text.is_empty();
    let is_host = match server.starts_with('[') {
        true => host.parse::<std::net::Ipv6Addr>().is_ok(),
        false => is_name(host),
    };
    match is_host && is_port && is_escaped(path) {
        true => Ok(host),
        false => Err(NO_URL.to_owned()),
    }
}

/// Whether each `%` has two hexadecimal digits.
fn is_escaped(text: &str) -> bool {
    let mut parts = text.split('%').skip(1);
    parts.all(|part| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

/// Whether openshift-install accepts an entry of `noProxy`: a domain with or without a leading dot, an address or a
/// network (openshift/installer: `pkg/types/validation/installconfig.go`, `validateProxy`).
pub fn is_no_proxy(text: &str) -> bool {
    is_name(text.strip_prefix('.').unwrap_or(text))
        || text.parse::<IpAddr>().is_ok()
        || (text.contains('/') && text.parse::<IpNetwork>().is_ok())
}

/// Whether a text is a name of DNS (kubernetes/apimachinery: `pkg/util/validation/validation.go`,
/// `IsDNS1123Subdomain`).
pub fn is_name(text: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        label.bytes().all(|b| is_inner(b) || b == b'-')
            && label.bytes().next().is_some_and(is_inner)
            && label.bytes().last().is_some_and(is_inner)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Why openshift-install rejects the source or a mirror of `imageDigestSources` (openshift/installer:
/// `pkg/types/validation/installconfig.go`, `validateNamedRepository`; containers/image: `docker/reference/normalize.go`
/// and `regexp.go`).
pub fn repository(text: &str) -> Result<(), &'static str> {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let (registry, path) = match text.split_once('/') {
        Some((registry, path)) => (registry, Some(path)),
        None => (text, None),
    };
    let (host, port) = match registry.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (registry, None),
    };
    if port.is_some_and(|port| !is_port(port)) {
        return Err(match path {
            Some(_) => "is not a repository",
            None => "has a tag; name the repository without it",
        });
    }
    let Some(path) = path else {
        return is_name(host).then_some(()).ok_or("is not a registry");
    };
    let is_label = |label: &str| {
        let is_inner = |b: u8| b.is_ascii_alphanumeric();
        label.bytes().all(|b| is_inner(b) || b == b'-')
            && label.bytes().next().is_some_and(is_inner)
            && label.bytes().last().is_some_and(is_inner)
    };
    // Without a port, a name with underscores is accepted as the first component of a path.
    let is_host = host.split('.').all(is_label) || port.is_none() && is_component(host);
    if !is_host || (!registry.contains(['.', ':']) && registry != "localhost") {
        return Err("does not begin with the name of a registry");
    }
    if path.contains(['@', ':']) {
        return Err("has a tag or a digest; name the repository without it");
    }
    if path.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err("has an upper-case letter in the path");
    }
    let short = registry == "index.docker.io" || registry == "docker.io" && !path.contains('/');
    match path.split('/').all(is_component) && text.len() <= 255 && !short {
        true => Ok(()),
        false => Err("is not a repository"),
    }
}

/// Whether a text is a component of a repository's path: letters and digits, separated by `.`, `_`, `__` or hyphens.
fn is_component(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = text.split(is_inner).filter(|part| !part.is_empty());
    let is_separator = |part: &str| [".", "_", "__"].contains(&part) || part.bytes().all(|b| b == b'-');
    text.starts_with(is_inner) && text.ends_with(is_inner) && separators.into_iter().all(is_separator)
}

/// The type of an OpenSSH public key in a line `[options] type base64 [comment]`; `None` if it is none (golang/crypto:
/// `ssh/keys.go`, `ParseAuthorizedKey`).
pub fn ssh_key_type(line: &str) -> Option<&str> {
    let line = line.trim();
    key_type(line).or_else(|| key_type(without_options(line)))
}

/// The line after its first word, in which quoted texts may contain spaces.
fn without_options(line: &str) -> &str {
    let (mut is_quoted, mut last) = (false, ' ');
    for (at, c) in line.char_indices() {
        match c {
            ' ' | '\t' if !is_quoted => return line[at..].trim_start(),
            '"' if last != '\\' => is_quoted = !is_quoted,
            _ => {}
        }
        last = c;
    }
    ""
}

/// `type base64 [comment]`, where the first field of the key is its type (RFC 4253, section 6.6).
fn key_type(text: &str) -> Option<&str> {
    let mut words = text.split_ascii_whitespace();
    let (kind, blob) = (words.next()?, words.next()?);
    let blob = STANDARD.decode(blob).ok()?;
    let mut fields = Vec::new();
    let mut rest = &blob[..];
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (field, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        fields.push(field);
        rest = after;
    }
    let (name, fields) = fields.split_first()?;
    let curve = |name: &str| match name {
        "nistp256" => Some(65),
        "nistp384" => Some(97),
        "nistp521" => Some(133),
        _ => None,
    };
    let is_point = |curve_name: &[u8], point: &[u8], curve_of_kind: &str| {
        curve_name == curve_of_kind.as_bytes() && Some(point.len()) == curve(curve_of_kind) && point.first() == Some(&4)
    };
    // RFC 8709, RFC 4253, RFC 5656, and openssh-portable: `PROTOCOL.u2f`.
    let is_whole = match (kind, fields) {
        ("ssh-ed25519", [key]) | ("sk-ssh-ed25519@openssh.com", [key, _]) => key.len() == 32,
        ("ssh-rsa", [exponent, modulus]) => !exponent.is_empty() && modulus.len() >= 128,
        ("sk-ecdsa-sha2-nistp256@openssh.com", [name, point, _]) => is_point(name, point, "nistp256"),
        (kind, [name, point]) => kind
            .strip_prefix("ecdsa-sha2-")
            .is_some_and(|curve| is_point(name, point, curve)),
        _ => false,
    };
    (is_whole && rest.is_empty() && *name == kind.as_bytes()).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_url_of_its_scheme() {
        const BOTH: &[&str] = &["http", "https"];
        for (text, schemes, host) in [
            ("http://proxy.example.com:3128", BOTH, Some("proxy.example.com")),
            ("https://me:p%40ss@proxy.example.com", BOTH, Some("proxy.example.com")),
            ("http://me:a:b@c@10.0.0.1:3128/", BOTH, Some("10.0.0.1")),
            ("http://[fd00:1::5]:3128", BOTH, Some("fd00:1::5")),
            ("http://[fd00:1::5]", BOTH, Some("fd00:1::5")),
            ("http://proxy_1:3128", BOTH, Some("proxy_1")),
            ("https://proxy.example.com:3128", &["http"], None),
            ("socks5://proxy.example.com", BOTH, None),
            ("proxy.example.com:3128", BOTH, None),
            ("http://me:p#ss@proxy.example.com", BOTH, None),
            ("http://me:p%zz@proxy.example.com", BOTH, None),
            ("http://me:p ss@proxy.example.com", BOTH, None),
            ("http://me:p/ss@proxy.example.com", BOTH, None),
            ("http://proxy.example.com:port", BOTH, None),
            ("http://proxy.example.com:99999", BOTH, None),
            ("http://proxy.example.com:", BOTH, None),
            ("http://fd00:1::5:3128", BOTH, None),
            ("http://", BOTH, None),
            ("http://:3128", BOTH, None),
            ("http://proxy.example.com/%", BOTH, None),
        ] {
            assert_eq!(proxy_url(text, schemes).ok(), host, "{text}");
        }
        let secret = proxy_url("http://me:sec#ret@proxy.example.com", BOTH).unwrap_err();
        assert!(!secret.contains("sec"), "{secret}");
    }

    #[test]
    fn a_repository_has_no_tag_and_no_upper_case_letter() {
        for good in [
            "quay.io/a",
            "quay.io/a/b__c/d.e-f",
            "Quay.io/a",
            "localhost/a",
            "registry.example.com",
            "registry.example.com:5000",
            "registry.example.com:5000/a",
            "192.168.1.1:5000/ocp/release",
            "192.168.1.1:5000",
            "docker.io/library/a",
            "registry_1.example.com/a",
        ] {
            assert_eq!(repository(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "/",
            "quay.io/",
            "quay.io/A",
            "quay.io/a:tag",
            "quay.io/a@sha256:aa",
            "quay.io/a//b",
            "quay.io/a-",
            "quay.io/a___b",
            "ocp/release",
            "Quay.io",
            "registry.example.com:tag",
            "registry_1.example.com:5000/a",
            "https://quay.io/a",
            "[fd00:1::5]:5000/a",
            "docker.io/a",
            "index.docker.io/a/b",
            "*.example.com",
        ] {
            assert!(repository(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_may_have_options() {
        const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
        for line in [
            KEY.to_owned(),
            format!("{KEY} me@here with a comment"),
            format!("no-pty {KEY}"),
            format!("from=\"10.0.0.0/8,192.0.2.1\",command=\"echo \\\"a b\\\"\" {KEY} me"),
            format!("  restrict,pty\t{KEY}"),
        ] {
            assert_eq!(ssh_key_type(&line), Some("ssh-ed25519"), "{line}");
        }
        for bad in [
            String::new(),
            "ssh-ed25519".to_owned(),
            KEY.replace("ssh-ed25519", "ssh-rsa"),
            KEY[..KEY.len() - 4].to_owned(),
            format!("{KEY}AAAA"),
            format!("from=\"10.0.0.0/8 {KEY}"),
            format!("no-pty from=\"a\" {KEY}"),
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me".to_owned(),
        ] {
            assert_eq!(ssh_key_type(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_proxy_is_bypassed_for_domains_addresses_and_networks() {
        for (text, is_valid) in [
            ("example.com", true),
            (".example.com", true),
            ("10.0.0.1", true),
            ("10.0.0.0/8", true),
            ("fd00:1::/64", true),
            ("*", false),
            ("*.example.com", false),
            ("10.0.0.0/64", false),
            ("", false),
        ] {
            assert_eq!(is_no_proxy(text), is_valid, "{text}");
        }
    }
}
