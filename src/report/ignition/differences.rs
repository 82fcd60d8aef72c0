//! The differences of two configs, one line each.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};
use similar::TextDiff;

use super::value;
use crate::ignition::diff::{Change, Difference};
use crate::printable::printable_line;

/// Two configs, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Differences {
    pub equal: bool,
    pub differences: Vec<Value>,
}

impl Differences {
    /// The form for scripts. With `decode`, values and contents in full; otherwise digests of what may be secret.
    pub fn of(differences: &[Difference], decode: bool) -> Self {
        Self {
            equal: differences.is_empty(),
            differences: differences.iter().map(|difference| entry(difference, decode)).collect(),
        }
    }
}

fn entry(Difference { path, change }: &Difference, decode: bool) -> Value {
    let shown = |value: &Value| match decode {
        true => value.clone(),
        false => value::masked(field(path), value),
    };
    let contents = |bytes: &[u8]| {
        let mut digest = value::digest(bytes);
        match std::str::from_utf8(bytes) {
            _ if !decode => {}
            Ok(text) => digest["text"] = json!(text),
            Err(_) => digest["base64"] = json!(STANDARD.encode(bytes)),
        }
        digest
    };
    match change {
        Change::Added(new) => json!({"path": path, "change": "added", "new": shown(new)}),
        Change::Removed(old) => json!({"path": path, "change": "removed", "old": shown(old)}),
        Change::Changed { old, new } => {
            json!({"path": path, "change": "changed", "old": shown(old), "new": shown(new)})
        }
        Change::Contents { old, new } => {
            json!({"path": path, "change": "contents", "old": contents(old), "new": contents(new)})
        }
        Change::Order { old, new } => json!({"path": path, "change": "order", "old": old, "new": new}),
    }
}

/// The form for users: `-` is only in the first, `+` only in the second, `~` differs. With `decode`, the changed lines
/// of contents follow. Empty without differences.
pub fn text(differences: &[Difference], decode: bool) -> String {
    let mut text = String::new();
    for Difference { path, change } in differences {
        let name = field(path);
        let (sign, words) = match change {
            Change::Added(new) => ('+', value::entry_words(name, new)),
            Change::Removed(old) => ('-', value::entry_words(name, old)),
            Change::Changed { old, new } => (
                '~',
                format!("{} → {}", value::words(name, old), value::words(name, new)),
            ),
            Change::Contents { old, new } => ('~', sizes(old, new)),
            Change::Order { old, new } => ('~', format!("order {} → {}", old.join(", "), new.join(", "))),
        };
        // The key may already contain the value.
        let end = match words.is_empty() || path.ends_with(&format!("[{words}]")) {
            true => String::new(),
            false => format!(": {words}"),
        };
        text += &printable_line(&format!("{sign} {path}{end}"));
        text.push('\n');
        if let (Change::Contents { old, new }, true) = (change, decode) {
            text += &lines(old, new);
        }
    }
    text
}

fn sizes(old: &[u8], new: &[u8]) -> String {
    format!(
        "{} → {} bytes (sha256 {} → {})",
        old.len(),
        new.len(),
        value::short_sha256(old),
        value::short_sha256(new)
    )
}

/// The changed lines of two texts, indented; empty for binary data.
fn lines(old: &[u8], new: &[u8]) -> String {
    let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return String::new();
    };
    let diff = TextDiff::from_lines(old, new)
        .unified_diff()
        .context_radius(3)
        .to_string();
    diff.lines()
        .map(|line| format!("    {}\n", printable_line(line)))
        .collect()
}

/// The last field of a path.
fn field(path: &str) -> &str {
    let last = path.rsplit('.').next().unwrap_or(path);
    last.split('[').next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::contents::data_url;
    use crate::ignition::diff::diff;

    fn differences() -> Vec<Difference> {
        let config = |rest: Value| json!({"ignition": {"version": "3.2.0"}, "storage": {"files": rest}});
        let old = config(json!([
            {"path": "/etc/a.mode", "mode": 420, "contents": {"source": data_url(b"one\ntwo\nthree\n")}},
            {"path": "/bin", "contents": {"source": "data:,%ff"}},
            {"path": "/gone", "mode": 420},
        ]));
        let mut new = config(json!([
            {"path": "/etc/a.mode", "mode": 384, "contents": {"source": data_url(b"one\nzwei\x1b[2J\nthree\n")}},
            {"path": "/bin", "contents": {"source": "data:,%fe"}},
        ]));
        new["passwd"] = json!({"users": [{"name": "core", "passwordHash": "$6$secret"}]});
        new["ignition"]["version"] = json!("3.3.0");
        diff(&old, &new)
    }

    #[test]
    fn each_difference_is_one_line() {
        insta::assert_snapshot!(text(&differences(), false), @r"
        ~ $.ignition.version: 3.2.0 → 3.3.0
        ~ $.storage.files[/etc/a.mode].mode: 0644 → 0600
        ~ $.storage.files[/etc/a.mode].contents: 14 → 19 bytes (sha256 b6285c57e879… → 17e36595fb72…)
        ~ $.storage.files[/bin].contents: 1 → 1 bytes (sha256 a8100ae6aa19… → aa687b58b0e7…)
        - $.storage.files[/gone]: mode 0644
        + $.passwd.users[core]: passwordHash (hidden)
        ");
        insta::assert_snapshot!(text(&differences(), true), @r"
        ~ $.ignition.version: 3.2.0 → 3.3.0
        ~ $.storage.files[/etc/a.mode].mode: 0644 → 0600
        ~ $.storage.files[/etc/a.mode].contents: 14 → 19 bytes (sha256 b6285c57e879… → 17e36595fb72…)
            @@ -1,3 +1,3 @@
             one
            -two
            +zwei\u{1b}[2J
             three
        ~ $.storage.files[/bin].contents: 1 → 1 bytes (sha256 a8100ae6aa19… → aa687b58b0e7…)
        - $.storage.files[/gone]: mode 0644
        + $.passwd.users[core]: passwordHash (hidden)
        ");
        assert_eq!(text(&[], true), "");
    }

    #[test]
    fn scripts_get_contents_on_demand_only() {
        let masked = serde_json::to_string(&Differences::of(&differences(), false)).unwrap();
        for hidden in ["zwei", "$6$secret"] {
            assert!(!masked.contains(hidden), "{masked}");
        }
        let shown = serde_json::to_value(Differences::of(&differences(), true)).unwrap();
        let texts: Vec<&Value> = shown["differences"].as_array().unwrap().iter().collect();
        assert!(
            texts
                .iter()
                .any(|entry| entry["new"]["text"] == "one\nzwei\u{1b}[2J\nthree\n")
        );
        assert!(texts.iter().any(|entry| entry["old"]["base64"] == "/w=="));
        assert_eq!(shown["equal"], false);
    }
}
