//! Which URLs Ignition accepts: its own rules, applied to what Go's `net/url` can parse.

use std::borrow::Cow;

use super::data_url;
use super::escape::{BAD_PERCENT, hex_pair, percent};

/// The relevant parts of a URL.
#[derive(Debug, PartialEq, Eq)]
pub struct Url<'u> {
    /// In lower case.
    pub scheme: String,
    /// What follows the scheme if that does not begin with a slash.
    opaque: &'u str,
    query: &'u str,
}

/// Validates the source of a resource, by the rules of a minor version of spec 3.
pub fn source(text: &str, minor: u32) -> Result<(), &'static str> {
    let url = parse(text)?;
    match url.scheme.as_str() {
        "http" | "https" | "tftp" => Ok(()),
        "gs" if minor >= 2 => Ok(()),
        "s3" => version_id(&url),
        "arn" if minor >= 4 => arn(&url),
        "data" => data_url::judge(text),
        "gs" => Err("gs URLs require spec 3.2"),
        "arn" => Err("arn URLs require spec 3.4"),
        "" => Err("not a URL: it has no scheme"),
        _ => Err("unsupported scheme: Ignition supports http, https, tftp, s3, gs, arn and data"),
    }
}

/// Parses a URL as Go does (`net/url`, `Parse`).
pub fn parse(text: &str) -> Result<Url<'_>, &'static str> {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    if rest.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("a URL must not contain line breaks or control characters");
    }
    let (scheme, rest) = split_scheme(rest)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme: scheme.to_ascii_lowercase(),
        opaque: "",
        query,
    };
    if !rest.starts_with('/') && !scheme.is_empty() {
        url.opaque = rest;
    } else {
        hierarchy(scheme, rest)?;
    }
    percent(fragment)?;
    Ok(url)
}

fn split_scheme(text: &str) -> Result<(&str, &str), &'static str> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("the URL starts with a colon"),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// A URL that begins with slashes, or is relative.
fn hierarchy(scheme: &str, rest: &str) -> Result<(), &'static str> {
    if !rest.starts_with('/') && rest.split('/').next().is_some_and(|first| first.contains(':')) {
        return Err("the URL's first segment has a colon but no scheme");
    }
    let with_host = rest
        .strip_prefix("//")
        .filter(|_| !scheme.is_empty() || !rest.starts_with("///"));
    let Some(rest) = with_host else {
        return percent(rest);
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        None => host(authority)?,
        Some((user, name)) => {
            host(name)?;
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
            if !user.bytes().all(plain) {
                return Err("the URL's user or password has a character that must be escaped");
            }
            percent(user)?;
        }
    }
    percent(path)
}

fn host(text: &str) -> Result<(), &'static str> {
    let colon = match text.starts_with('[') {
        true => text.rfind(']').ok_or("the URL's host has no closing bracket")? + 1,
        false => text.rfind(':').unwrap_or(text.len()),
    };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = &text[colon..];
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(digits) {
        return Err("the URL's port is not a number");
    }
    // In brackets an escaped zone may follow the address.
    let zone = match text.starts_with('[') {
        true => text[..colon].find("%25").map_or(colon..colon, |zone| zone..colon - 1),
        false => colon..colon,
    };
    let bytes = text.as_bytes();
    let mut index = 0;
    while index < bytes.len() {
        let in_zone = zone.contains(&index);
        let byte = bytes[index];
        index += 1;
        if byte == b'%' {
            let value = hex_pair(&bytes[index..]).ok_or(BAD_PERCENT)?;
            let is_percent = bytes[index..].starts_with(b"25");
            let allowed = match in_zone {
                true => is_percent || value == b' ' || in_host(value),
                false => is_percent || value >= 0x80,
            };
            if !allowed {
                return Err("the URL's host has an invalid escape");
            }
            index += 2;
        } else if byte < 0x80 && !in_host(byte) {
            return Err("the URL's host has an invalid character");
        }
    }
    Ok(())
}

fn in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$&'()*+,;=:[]<>\"-_.~".contains(&byte)
}

/// `versionId` of an S3 object must have a value.
fn version_id(url: &Url) -> Result<(), &'static str> {
    let pairs = url.query.split('&').filter(|pair| !pair.contains(';'));
    let mut values = pairs.filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((unescape(key)?, unescape(value)?))
    });
    match values.find(|(key, _)| key == "versionId") {
        Some((_, value)) if value.is_empty() => Err("versionId is empty"),
        _ => Ok(()),
    }
}

fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(text.into());
    }
    let bytes = text.as_bytes();
    let mut plain = Vec::new();
    let mut index = 0;
    while index < bytes.len() {
        match bytes[index] {
            b'%' => {
                plain.push(hex_pair(&bytes[index + 1..])?);
                index += 3;
            }
            byte => {
                plain.push(byte);
                index += 1;
            }
        }
    }
    Some(String::from_utf8_lossy(&plain).into_owned().into())
}

/// `arn:<partition>:s3:<region>:<account>:<bucket or access point>/<object>`.
fn arn(url: &Url) -> Result<(), &'static str> {
    const FAULT: &str = "not the ARN of an S3 object";
    let parts: Vec<&str> = url.opaque.splitn(5, ':').collect();
    let [_, service, _, _, resource] = parts[..] else {
        return Err(FAULT);
    };
    let slashes = url.opaque.matches('/').count();
    let needed = if resource.starts_with("accesspoint/") { 2 } else { 1 };
    if service != "s3" || slashes < needed {
        return Err(FAULT);
    }
    version_id(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_by_the_rules_of_their_spec() {
        for (url, minor, good) in [
            ("http://host/path", 0, true),
            ("HTTPS://host:8443/a%20b?c#d", 0, true),
            ("http://[::1]:80/", 0, true),
            ("http://[fe80::1%25eth0]/", 0, true),
            ("http://user:pass@host/", 0, true),
            ("http:", 0, true),
            ("tftp://host/a", 0, true),
            ("s3://bucket/object", 0, true),
            ("s3://bucket/object?versionId=1", 0, true),
            ("s3://bucket/object?versionId=", 0, false),
            ("s3://bucket/object?version%49d=", 0, false),
            ("gs://bucket/object", 1, false),
            ("gs://bucket/object", 2, true),
            ("arn:aws:s3:::bucket/object", 3, false),
            ("arn:aws:s3:::bucket/object", 4, true),
            ("arn:aws:s3:::bucket", 4, false),
            ("arn:aws:ec2:::bucket/object", 4, false),
            ("arn:aws:s3:::bucket/object?versionId=", 4, false),
            ("arn:aws:s3:us-west-1:1:accesspoint/name/object/k", 4, true),
            ("arn:aws:s3:us-west-1:1:accesspoint/name", 4, false),
            ("/etc/passwd", 0, false),
            ("file:///etc/passwd", 5, false),
            ("oem:///a", 5, false),
            ("://host", 0, false),
            ("a b://host", 0, false),
            ("1http://host", 0, false),
            ("http://host:port/", 0, false),
            ("http://ho st/", 0, false),
            ("http://host/%zz", 0, false),
            ("http://host/a#%z", 0, false),
            ("http://ho%41st/", 0, false),
            ("http://us er@host/", 0, false),
            ("http://[::1/", 0, false),
            ("http://host/\n", 0, false),
        ] {
            assert_eq!(source(url, minor).is_ok(), good, "{url} in 3.{minor}");
        }
    }
}
