//! A short description of a config's value, without secrets.

use serde_json::{Map, Value, json};

use crate::digest::sha256;
use crate::ignition::contents::{self, Contents};
use crate::printable::{count, printable_line};

/// Fields that contain credentials: a password's hash, a token in a header.
const SECRET: &[&str] = &["passwordHash", "value"];

/// Fields that are already in the path.
const KEYS: &[&str] = &["path", "name", "device", "number"];

/// Longest text that is shown in full, in bytes.
const SHORT: usize = 80;

/// The value of field `name` for display: one line, safe for a terminal.
pub fn words(name: &str, value: &Value) -> String {
    let text = match value {
        Value::String(_) if SECRET.contains(&name) => "(hidden)".to_owned(),
        Value::String(text) if name == "source" => resource(&json!({name: text})),
        Value::String(text) => short(text),
        Value::Number(_) if name == "mode" => value.as_u64().map_or_else(|| value.to_string(), mode),
        Value::Array(entries) if entries.len() == 1 => words(name, &entries[0]),
        Value::Array(entries) => count(entries.len(), "entry"),
        Value::Object(fields) if fields.contains_key("source") => resource(value),
        Value::Object(fields) => {
            let parts: Vec<String> = fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| format!("{name} {}", words(name, value)))
                .collect();
            parts.join(", ")
        }
        _ => value.to_string(),
    };
    printable_line(&text)
}

/// An entry of a list for display, without its key.
pub fn entry_words(name: &str, value: &Value) -> String {
    match value {
        Value::Object(fields) if !fields.contains_key("source") => {
            let rest: Map<String, Value> = fields
                .iter()
                .filter(|(name, _)| !KEYS.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            words(name, &Value::Object(rest))
        }
        _ => words(name, value),
    }
}

/// Permission bits in octal: `0644`.
pub fn mode(bits: u64) -> String {
    format!("{bits:04o}")
}

/// Size and digest: `12 bytes (sha256 e3b0c44298fc…)`.
pub fn bytes(bytes: &[u8]) -> String {
    format!("{} bytes (sha256 {})", bytes.len(), short_sha256(bytes))
}

pub fn short_sha256(bytes: &[u8]) -> String {
    sha256(bytes).chars().take(12).chain(['…']).collect()
}

/// A public key by its type, end and comment, which distinguish keys.
pub fn ssh_key(key: &str) -> Option<String> {
    let mut words = key.trim().splitn(3, ' ');
    let kind = words.next()?;
    let body = words.next()?;
    if !["ssh-", "ecdsa-", "sk-"].iter().any(|start| kind.starts_with(start)) {
        return None;
    }
    let end = body
        .char_indices()
        .rev()
        .nth(7)
        .and_then(|(at, _)| body.get(at..))
        .unwrap_or(body);
    let comment = words.next().map(|comment| format!(" {comment}")).unwrap_or_default();
    Some(format!("{kind} …{end}{comment}"))
}

fn short(text: &str) -> String {
    match ssh_key(text) {
        Some(key) => key,
        None if text.contains('\n') || text.len() > SHORT => bytes(text.as_bytes()),
        None => text.to_owned(),
    }
}

fn is_packed(name: &str, text: &str) -> bool {
    name == "source" && contents::is_data(text)
}

fn resource(value: &Value) -> String {
    match contents::of(value) {
        Ok(Contents::Bytes(found)) => bytes(&found),
        Ok(Contents::Remote(source)) => url(&source),
        Ok(Contents::Nothing) => "nothing".to_owned(),
        Err(error) => format!("({error})"),
    }
}

/// A URL without credentials: user and password, and the query, which may be a signature.
pub fn url(url: &str) -> String {
    let (url, query) = url.split_once('?').map_or((url, ""), |(url, _)| (url, "?…"));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or(host);
    match scheme {
        "" => format!("{host}{path}{query}"),
        _ => format!("{scheme}://{host}{path}{query}"),
    }
}

/// The value for scripts, with possible secrets replaced by their size and digest.
pub fn masked(name: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if SECRET.contains(&name) || text.contains('\n') || is_packed(name, text) => {
            digest(text.as_bytes())
        }
        Value::String(text) if name == "source" => json!(url(text)),
        Value::Array(entries) => entries.iter().map(|entry| masked(name, entry)).collect(),
        Value::Object(fields) => {
            let unpacked = fields
                .get("source")
                .and_then(Value::as_str)
                .filter(|text| is_packed("source", text));
            let unpacked = unpacked.and_then(|_| match contents::of(value) {
                Ok(Contents::Bytes(bytes)) => Some(digest(&bytes)),
                _ => None,
            });
            let fields = fields.iter().map(|(name, value)| match (name.as_str(), &unpacked) {
                ("source", Some(digest)) => (name.clone(), digest.clone()),
                _ => (name.clone(), masked(name, value)),
            });
            Value::Object(fields.collect())
        }
        _ => value.clone(),
    }
}

/// Size and digest of bytes, for scripts.
pub fn digest(bytes: &[u8]) -> Value {
    json!({"bytes": bytes.len(), "sha256": sha256(bytes)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::contents::data_url;

    const SECRETS: [&str; 5] = ["$6$hash", "token-of-glance", "private", "cHJpdmF0ZQ", ":word"];

    fn entry() -> Value {
        json!({
            "path": "/etc/shadow.d", "mode": 384, "overwrite": true, "user": {"name": "root"}, "group": null,
            "contents": {"compression": "", "source": data_url(b"private")},
            "append": [{"source": "http://user:word@a/b?sig=:word", "httpHeaders": [{"name": "X-Auth-Token", "value": "token-of-glance"}]}],
            "passwordHash": "$6$hash",
            "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh lab key"],
            "text": "private\nprivate",
        })
    }

    #[test]
    fn an_entry_is_reported_in_one_line_without_its_secrets() {
        let text = entry_words("files", &entry());
        insta::assert_snapshot!(text, @"mode 0600, overwrite true, user name root, contents 7 bytes (sha256 715dc8493c36…), append http://a/b?…, passwordHash (hidden), sshAuthorizedKeys ssh-ed25519 …dMbFf8hh lab key, text 15 bytes (sha256 2a2905495077…)");
        assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
    }

    #[test]
    fn a_script_gets_digests_in_place_of_secrets() {
        let text = masked("files", &entry()).to_string();
        assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
        assert!(text.contains(&sha256("private")), "{text}");
        assert!(text.contains("\"mode\":384"), "{text}");
    }
}
