//! Users and groups.

use super::at::At;
use super::judge::Judge;

/// Valid prefixes of a key type in a line of `authorized_keys`.
const KEY_TYPES: [&str; 3] = ["ssh-", "ecdsa-", "sk-"];

/// Ignition checks none of this; sshd and PAM do.
pub fn passwd(judge: &mut Judge, passwd: &At) {
    for user in passwd.entries("users") {
        if user.words("passwordHash").is_some_and(|hash| !is_password_hash(hash)) {
            let text = "this is no hash of crypt(3), so no password matches it; create one with `mkpasswd`";
            judge.warning(&user.get("passwordHash"), text);
        }
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

/// Whether a text is a hash, or marks a password as locked (crypt(5), shadow(5)).
fn is_password_hash(text: &str) -> bool {
    let is_salt = |byte: u8| byte.is_ascii_alphanumeric() || b"./".contains(&byte);
    let is_long = || {
        let mut parts = text.strip_prefix('$')?.splitn(2, '$');
        let (method, rest) = (parts.next()?, parts.next()?);
        Some(!method.is_empty() && !rest.is_empty())
    };
    // DES, and its extended form.
    let is_short = matches!(text.strip_prefix('_').unwrap_or(text).len(), 13 | 19) && text.bytes().skip(1).all(is_salt);
    text.starts_with(['!', '*']) || is_short || is_long() == Some(true)
}

/// Why `useradd` and `groupadd` of CoreOS reject a name (systemd/systemd: `docs/USER_NAMES.md`, the rule of Fedora).
pub fn name_fault(name: &str) -> Option<&'static str> {
    let first = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte);
    let stem = name.strip_suffix('$').unwrap_or(name);
    if name.is_empty() {
        Some("a name is required")
    } else if name.len() > 32 {
        Some("a name has at most 32 characters")
    } else if !stem.bytes().next().is_some_and(first) || !stem.bytes().all(|byte| first(byte) || byte == b'-') {
        Some("a name may contain letters, digits, `.`, `_` and `-`, and must not start with `-`")
    } else if matches!(name, "." | "..") || name.bytes().all(|byte| byte.is_ascii_digit()) {
        Some("a name must contain a letter")
    } else {
        None
    }
}
