//! The position of a config's value in its file.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Line and column, counted from 1, of the value at a path such as `$.storage.files.0.mode`.
///
/// For a value that is not in the text, e.g. a missing field, the beginning of the innermost existing object.
pub fn place(text: &[u8], path: &str) -> Option<(usize, usize)> {
    let mut names: Vec<&str> = path.strip_prefix('$')?.split('.').skip(1).collect();
    loop {
        if names.is_empty() {
            return Some((1, 1));
        }
        // The parser reports its position only with an error, so reaching the target is an error.
        let mut parser = serde_json::Deserializer::from_slice(text);
        match (Find { names: &names }).deserialize(&mut parser) {
            Err(error) if error.to_string().starts_with(FOUND) => {
                return Some(behind(text, error.line(), error.column()));
            }
            Err(error) if !error.is_data() => return None,
            // One level up.
            _ => names.pop()?,
        };
    }
}

const FOUND: &str = "found";

/// The first non-blank character after this number of bytes of a line; the column counts characters.
fn behind(text: &[u8], line: usize, bytes: usize) -> (usize, usize) {
    let before: usize = text
        .split_inclusive(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let rest = text.get(before + bytes..).unwrap_or_default();
    let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let text = String::from_utf8_lossy(&text[..text.len() - rest.len() + blank]);
    let begun = text.rsplit('\n').next().unwrap_or_default();
    (text.matches('\n').count() + 1, begun.chars().count() + 1)
}

/// Parses up to the value at `names` and stops there.
struct Find<'a> {
    names: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        match self.names {
            [] => Err(D::Error::custom(FOUND)),
            _ => parser.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            match self.names.split_first() {
                Some((first, names)) if *first == name => fields.next_value_seed(Find { names })?,
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((Ok(index), names)) = self
            .names
            .split_first()
            .map(|(first, names)| (first.parse::<usize>(), names))
        else {
            return Err(A::Error::custom("a list does not have this field"));
        };
        for _ in 0..index {
            if entries.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        if entries.next_element_seed(Find { names })?.is_some() {
            while entries.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
  "ignition": {"version": "3.2.0"},
  "storage": {
    "files": [
      {"path": "/a", "path": "/b"},
      {
        "path": "/c",
        "mode": 99999
      }
    ]
  }
}"#;

    #[test]
    fn a_value_is_found_by_its_path() {
        let line = |path| place(TEXT.as_bytes(), path).map(|(line, _)| line);
        for (path, expected) in [
            ("$", 1),
            ("$.ignition.version", 2),
            ("$.storage", 3),
            ("$.storage.files.0", 5),
            ("$.storage.files.1", 6),
            ("$.storage.files.1.mode", 8),
        ] {
            assert_eq!(line(path), Some(expected), "{path}");
        }
        assert_eq!(place(TEXT.as_bytes(), "$.storage.files.1"), Some((6, 7)));
        assert_eq!(place(TEXT.as_bytes(), "$.storage.files.1.mode"), Some((8, 17)));
        assert_eq!(place("{\"ü\":\r\n [7,\t8]}".as_bytes(), "$.ü"), Some((2, 2)));
        assert_eq!(place("{\"ü\": [\"ä\",\t8]}".as_bytes(), "$.ü.1"), Some((1, 13)));
    }

    #[test]
    fn a_missing_value_has_the_position_of_its_parent() {
        for (path, around) in [
            ("$.storage.files.1.contents.source", "$.storage.files.1"),
            ("$.storage.files.7", "$.storage.files"),
            ("$.storage.files.x", "$.storage.files"),
            ("$.ignition.version.major", "$.ignition.version"),
            ("$.systemd", "$"),
        ] {
            assert_eq!(place(TEXT.as_bytes(), path), place(TEXT.as_bytes(), around), "{path}");
        }
        for (text, path) in [("{", "$.a"), ("{\"a\":}", "$.a.b"), (TEXT, "storage")] {
            assert_eq!(place(text.as_bytes(), path), None, "{text} {path}");
        }
    }
}
