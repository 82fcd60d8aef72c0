//! What all services share: faults, paths with queries, pages of lists, names for hints, and the tags of a cluster.

use std::fmt::Write;

use serde_json::Value;

use crate::backend::BackendErrorKind;
use crate::cluster::{ClusterId, Vip};
use crate::http_limits;

/// The longest part of a service's message that is shown.
pub const MESSAGE_LIMIT: usize = 300;

/// The message of an error response. Each service has its own format.
pub fn fault(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    // Keystone, Nova, Neutron and Cinder: an object whose only key is the kind; Glance: text or HTML; Octavia: WSME's
    // form with several keys.
    let inner = json.as_object().and_then(|object| object.values().next());
    let message = json["faultstring"]
        .as_str()
        .or_else(|| inner.and_then(|inner| inner["message"].as_str().or(inner.as_str())));
    let message = without_tags(message.unwrap_or(&text));
    // Nova repeats invalid values, and user data contains secrets.
    let message = message.split(" Value: ").next().unwrap_or_default();
    let message = http_limits::words(message, MESSAGE_LIMIT);
    match message.trim_end_matches('.') {
        "" => "no message".to_owned(),
        message => message.to_owned(),
    }
}

/// Glance and proxies return HTML, also inside JSON.
fn without_tags(html: &str) -> String {
    let mut message = String::new();
    let mut within = false;
    for c in html.chars() {
        match c {
            '<' => within = true,
            '>' => {
                within = false;
                message.push(' ');
            }
            _ if !within => message.push(c),
            _ => {}
        }
    }
    message
}

/// The error kind of a status and message.
pub fn kind_of(status: u16, fault: &str) -> BackendErrorKind {
    let is_quota = ["uota", "xceeded"].iter().all(|part| fault.contains(part))
        || fault.contains("OverQuota")
        // openstack/octavia: `octavia/common/exceptions.py`, `QuotaException`.
        || fault.contains("Quota has been met")
        // Unified limits (openstack/oslo.limit: `oslo_limit/exception.py`, `ProjectOverLimit`).
        || fault.contains("is over a limit for");
    match status {
        _ if is_quota && matches!(status, 403 | 409 | 413) => BackendErrorKind::Quota,
        401 | 403 => BackendErrorKind::Denied,
        404 => BackendErrorKind::NotFound,
        409 => BackendErrorKind::Conflict,
        413 => BackendErrorKind::Quota,
        408 | 429 | 504 => BackendErrorKind::Timeout,
        502 | 503 => BackendErrorKind::Unreachable,
        _ => BackendErrorKind::Rejected,
    }
}

/// The marker in the link to the next page of a list: `<key>_links` of Nova, Neutron and Cinder, `next` of Glance.
///
/// All four create the link from the request and set `marker` in it (openstack/nova:
/// `nova/api/openstack/common.py`, `_get_next_link`; openstack/neutron: `neutron/api/api_common.py`, `get_next_link`;
/// openstack/cinder: `cinder/api/common.py`, `_get_next_link`; openstack/glance: `glance/api/v2/images.py`, `index`), so
/// the rest of the link is redundant. Its scheme and host are wrong behind many proxies.
pub fn next_marker(page: &Value, key: &str) -> Result<Option<String>, String> {
    // Cinder's list `volume_types` has `volume_type_links` (openstack/cinder: `cinder/api/v3/views/types.py`).
    let links = [key, key.trim_end_matches('s')].map(|key| &page[format!("{key}_links")]);
    let links = links.iter().find_map(|links| links.as_array());
    let next = links.into_iter().flatten().find(|link| link["rel"] == "next");
    let Some(next) = next.map(|link| &link["href"]).unwrap_or(&page["next"]).as_str() else {
        return Ok(None);
    };
    let query = next.split_once('?').map_or("", |(_, query)| query);
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    match pairs.find(|(name, _)| *name == "marker") {
        // The marker remains escaped, and must not contain other parts of a URL.
        Some((_, marker)) if !marker.is_empty() && marker.bytes().all(is_query) => Ok(Some(marker.to_owned())),
        _ => Err("the link to the next page has no marker".to_owned()),
    }
}

/// The bytes of a value after urlencode (python/cpython: `Lib/urllib/parse.py`, `quote_plus`).
fn is_query(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+%".contains(&byte)
}

/// A path for the page after a marker, which is escaped already.
pub fn with_marker(path: &str, marker: &str) -> String {
    let sign = if path.contains('?') { '&' } else { '?' };
    format!("{path}{sign}marker={marker}")
}

/// A path with these pairs in its query.
pub fn query(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut text = path.to_owned();
    for (name, value) in pairs {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(name);
        text.push('=');
        text.push_str(&escape(value));
    }
    text
}

/// A text escaped for a URL.
pub fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Up to 12 names for a hint.
pub fn some_of(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        names if names.len() > 12 => format!("{} and {} more", names[..12].join(", "), names.len() - 12),
        names => names.join(", "),
    }
}

/// The tag of a cluster in descriptions, and in names of objects without description.
pub fn tag_text(cluster: &ClusterId) -> String {
    format!("ocpdeploy {}", cluster.tag())
}

/// The description of a floating IP that was created for a VIP.
pub fn vip_tag(cluster: &ClusterId, vip: Vip) -> String {
    format!("{} {vip}", tag_text(cluster))
}

/// The cluster of such a tag.
pub fn cluster_of_tag(description: &str) -> Option<ClusterId> {
    let tag = description.strip_prefix("ocpdeploy ")?;
    let mut of_vip = Vip::ALL.iter().map(|vip| tag.strip_suffix(&format!(" {vip}")));
    ClusterId::read(of_vip.find_map(|tag| tag).unwrap_or(tag))
}

/// The tag of all objects of this program, in addition to the tag with the cluster's id.
pub const TAG: &str = "ocpdeploy";
