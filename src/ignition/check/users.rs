//! Users and groups.

use super::at::At;
use super::judge::Judge;

/// Valid prefixes of a key type in a line of `authorized_keys`.
const KEY_TYPES: [&str; 3] = ["ssh-", "ecdsa-", "sk-"];

/// Ignition checks none of this; `useradd` and sshd do.
pub fn passwd(judge: &mut Judge, passwd: &At) {
    for list in ["users", "groups"] {
        for entry in passwd.entries(list) {
            if let Some(fault) = name_fault(entry.text("name").unwrap_or_default()) {
                judge.warning(&entry.get("name"), fault);
            }
        }
    }
    for user in passwd.entries("users") {
        for key in user.entries("sshAuthorizedKeys") {
            let text = key.value.as_str().unwrap_or_default().trim();
            let known = text
                .split([' ', ',', '"'])
                .any(|word| KEY_TYPES.iter().any(|kind| word.starts_with(kind)));
            if !known {
                judge.warning(&key, "not an SSH key: sshd ignores the line");
            } else if text.contains('\n') {
                judge.warning(&key, "more than one line; add one entry per key");
            }
        }
    }
}

/// The rule of shadow-utils.
fn name_fault(name: &str) -> Option<&'static str> {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let later = |byte: u8| first(byte) || byte.is_ascii_digit() || byte == b'-';
    let stem = name.strip_suffix('$').unwrap_or(name);
    if name.is_empty() {
        Some("a name is required, or Ignition fails on the node")
    } else if name.len() > 32 {
        Some("a name has at most 32 characters")
    } else if !stem.bytes().next().is_some_and(first) || !stem.bytes().all(later) {
        Some("a name may contain lower-case letters, digits, `_` and `-`, and must start with a letter or `_`")
    } else {
        None
    }
}
