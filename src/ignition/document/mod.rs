//! Parses one config from untrusted bytes.
//!
//! Accepts what Ignition accepts (Go's `encoding/json`), in the same way: the last of duplicate keys is used, duplicate
//! objects are merged, and keys are not case-sensitive. Unexpected results are warnings. No message of this module
//! quotes the file, because it contains passwords and keys.
//!
//! More than 500 lines: one parser with its error messages.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::check::at::shown;
use super::finding::{Finding, Severity};
use super::place::place;
use super::spec::{CONFIG, Field, Shape};
use super::version::{Major, Version, parse_version};

/// Largest config in bytes; no carrier accepts this much.
pub const MOST_BYTES: usize = 16 << 20;
/// Largest nesting depth; a config of any spec has at most ten levels.
const DEEPEST: usize = 100;

/// A parsed config.
#[derive(Debug)]
pub struct Document {
    pub config: Value,
    /// Where `config` differs from what the text appears to say.
    pub warnings: Vec<Finding>,
}

/// Why bytes are not a config, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line and column, both counted from 1, if the text cannot be parsed.
    pub place: Option<(usize, usize)>,
    /// The path in the document, `$.storage.files.2`, if known.
    pub path: Option<String>,
    pub reason: String,
    /// The line, with its letters and digits masked, and a caret below the column.
    pub snippet: Option<String>,
    hint: Option<&'static str>,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.place, &self.path) {
            (Some((line, column)), Some(path)) => write!(f, "line {line}, column {column}, in {path}: ")?,
            (Some((line, column)), None) => write!(f, "line {line}, column {column}: ")?,
            (None, Some(path)) => write!(f, "{path}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ParseError {}

impl ParseError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        self.hint
    }

    fn of_all(reason: impl Into<String>, hint: Option<&'static str>) -> Self {
        Self {
            place: None,
            path: None,
            reason: reason.into(),
            snippet: None,
            hint,
        }
    }

    fn at(text: &str, offset: usize, reason: impl Into<String>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[start..].chars().count() + 1;
        Self {
            place: Some((line, column)),
            snippet: Some(snippet(text[start..].lines().next().unwrap_or_default(), column)),
            ..Self::of_all(reason, None)
        }
    }

    fn hinted(self, hint: &'static str) -> Self {
        Self {
            hint: Some(hint),
            ..self
        }
    }
}

/// The config in `bytes`: one JSON object of a supported spec version.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    Ok(read(bytes)?.config)
}

/// The config in `bytes`, and warnings about its text.
pub fn read(bytes: &[u8]) -> Result<Document, ParseError> {
    let document = read_json(bytes)?;
    if let Err(reason) = known_version(&document.config) {
        let path = "$.ignition.version";
        return Err(ParseError {
            place: place(bytes, path),
            path: Some(path.to_owned()),
            ..ParseError::of_all(reason, None)
        });
    }
    Ok(document)
}

fn read_json(bytes: &[u8]) -> Result<Document, ParseError> {
    let text = as_text(bytes)?;
    let mut warnings = Vec::new();
    if let Cow::Owned(_) = text {
        let good = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
        let place = ParseError::at(&text, good, "").place.unwrap_or((1, 1));
        warnings.push(Finding {
            severity: Severity::Warning,
            path: "$".to_owned(),
            text: format!(
                "line {}, column {}: invalid UTF-8; Ignition replaces it with U+FFFD",
                place.0, place.1
            ),
        });
    }
    let start = text.len() - text.trim_start_matches([' ', '\t', '\r', '\n']).len();
    if !text[start..].starts_with('{') {
        return Err(not_an_object(&text, start));
    }

    let state = RefCell::new(State::default());
    let mut json = serde_json::Deserializer::from_str(&text);
    let seed = Seed {
        state: &state,
        trail: &Trail::Root,
        depth: 0,
    };
    let read = seed
        .deserialize(&mut json)
        .and_then(|config| json.end().map(|()| config));
    let state = state.into_inner();
    match read {
        Ok(mut config) => {
            warnings.extend(state.repeated.into_iter().map(|path| Finding {
                severity: Severity::Warning,
                path,
                text: "duplicate key: the last one takes effect".to_owned(),
            }));
            settle_case(&mut config, CONFIG, "$", &mut warnings);
            Ok(Document { config, warnings })
        }
        Err(error) => Err(explain(&text, &error, state)),
    }
}

/// The bytes as text; rejects binary data and files that are too large.
fn as_text(bytes: &[u8]) -> Result<Cow<'_, str>, ParseError> {
    if bytes.len() > MOST_BYTES {
        let (have, most) = (bytes.len().div_ceil(1 << 20), MOST_BYTES >> 20);
        let reason = format!("it has {have} MiB, and the limit for a config is {most} MiB");
        return Err(ParseError::of_all(reason, None));
    }
    let kind = match bytes {
        [] => return Err(ParseError::of_all("it is empty", None)),
        [0x1f, 0x8b, ..] => Some(("it is compressed with gzip", Some("decompress it with `gunzip`"))),
        [0xfe, 0xff, ..] | [0xff, 0xfe, ..] => Some(("it is UTF-16; a config must be UTF-8", None)),
        [0xef, 0xbb, 0xbf, ..] => Some(("it starts with a BOM, which JSON does not allow", None)),
        _ if bytes.contains(&0) => Some(("it is not text", None)),
        _ => None,
    };
    match kind {
        Some((reason, hint)) => Err(ParseError::of_all(reason, hint)),
        None => Ok(String::from_utf8_lossy(bytes)),
    }
}

fn not_an_object(text: &str, start: usize) -> ParseError {
    let rest = &text[start..];
    if rest.is_empty() {
        return ParseError::of_all("it is empty", None);
    }
    if is_yaml(rest) {
        return ParseError::at(text, start, "this is YAML; Ignition configs are JSON").hinted("convert it with Butane");
    }
    let reason = match rest.as_bytes()[0] {
        b'[' => "a config must be an object, not a list",
        b'<' => "this is XML or HTML; Ignition configs are JSON",
        b'/' => "JSON does not support comments",
        b'"' | b'0'..=b'9' | b'-' => "a config must be an object, not a single value",
        _ => "a config is a JSON object and starts with `{`",
    };
    ParseError::at(text, start, reason)
}

/// Whether the first relevant line is a YAML key, a list entry or a document start.
fn is_yaml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_end);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let key = |line: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        line.split_once(':').is_some_and(|(key, value)| {
            !key.is_empty() && key.chars().all(plain) && (value.is_empty() || value.starts_with(' '))
        })
    };
    match first {
        None => text.starts_with('#'),
        Some(line) => line == "---" || line.starts_with("%YAML") || line.starts_with("- ") || key(line),
    }
}

/// State collected while parsing.
#[derive(Default)]
struct State {
    /// Duplicate keys of one object.
    repeated: Vec<String>,
    /// The innermost value that could not be parsed.
    failed: Option<String>,
    too_deep: bool,
}

/// The path from the root to a value.
enum Trail<'t> {
    Root,
    Key(&'t Trail<'t>, &'t str),
    Index(&'t Trail<'t>, usize),
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trail::Root => f.write_str("$"),
            Trail::Key(above, key) => write!(f, "{above}.{}", shown(key)),
            Trail::Index(above, index) => write!(f, "{above}.{index}"),
        }
    }
}

/// Parses one value at its path.
#[derive(Clone, Copy)]
struct Seed<'t> {
    state: &'t RefCell<State>,
    trail: &'t Trail<'t>,
    depth: usize,
}

impl Seed<'_> {
    fn deeper<E: serde::de::Error>(&self) -> Result<usize, E> {
        if self.depth < DEEPEST {
            return Ok(self.depth + 1);
        }
        self.state.borrow_mut().too_deep = true;
        Err(E::custom("too deep"))
    }

    fn note_failure<T, E>(&self, read: Result<T, E>) -> Result<T, E> {
        if read.is_err() {
            self.state
                .borrow_mut()
                .failed
                .get_or_insert_with(|| self.trail.to_string());
        }
        read
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let read = deserializer.deserialize_any(self);
        self.note_failure(read)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut values = Vec::new();
        loop {
            let trail = Trail::Index(self.trail, values.len());
            let seed = Seed {
                state: self.state,
                trail: &trail,
                depth,
            };
            match list.next_element_seed(seed)? {
                Some(value) => values.push(value),
                None => return Ok(values.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let trail = Trail::Key(self.trail, &key);
            let value = map.next_value_seed(Seed {
                state: self.state,
                trail: &trail,
                depth,
            })?;
            if fields.contains_key(&key) {
                self.state.borrow_mut().repeated.push(trail.to_string());
            }
            put(&mut fields, key, value);
        }
        Ok(fields.into())
    }
}

/// Sets a field as Go does: a second object is merged into the first, any other value replaces it.
fn put(fields: &mut Map<String, Value>, key: String, value: Value) {
    match fields.entry(key) {
        Entry::Vacant(free) => {
            free.insert(value);
        }
        Entry::Occupied(mut there) => match (there.get_mut(), value) {
            (Value::Object(old), Value::Object(new)) => new.into_iter().for_each(|(key, value)| put(old, key, value)),
            (Value::Object(_), Value::Null) => {}
            (old, new) => *old = new,
        },
    }
}

/// Describes why the text is not JSON.
fn explain(text: &str, error: &serde_json::Error, state: State) -> ParseError {
    let offset = offset_of(text, error);
    let path = state.failed;
    if state.too_deep {
        let reason = format!("objects and lists are nested more than {DEEPEST} levels deep");
        return ParseError::at(text, offset, reason);
    }
    if error.is_eof() {
        let reason = "unexpected end of the config";
        let error =
            ParseError::at(text, text.trim_end().len(), reason).hinted("the file is truncated; download it again");
        let path = path.filter(|path| path != "$");
        return ParseError { path, ..error };
    }
    let words = error.to_string();
    let words = words.split(" at line ").next().unwrap_or_default();
    let here = text[offset..].chars().next();
    let reason = match (words, here) {
        (_, Some('/')) => "JSON does not support comments",
        (_, Some('\'')) => "strings must be in double quotes",
        ("invalid number", Some('0'..='9')) => "a number must not start with 0; modes are decimal: octal 0644 is 420",
        ("expected value", Some('}' | ']' | ',')) => "expected a value",
        ("expected value" | "expected ident", _) => "not a value: strings must be in double quotes",
        ("key must be a string", _) => "keys must be in double quotes",
        ("trailing comma", _) => "trailing comma",
        ("trailing characters", _) => "unexpected text after the end of the config",
        (words, _) if words.starts_with("control character") => {
            "in a string, write a line break as \\n and a tab as \\t"
        }
        ("recursion limit exceeded", _) => "objects and lists are nested too deep",
        ("lone leading surrogate in hex escape" | "unexpected end of hex escape", _) => "incomplete surrogate pair",
        (words, _) => words,
    };
    ParseError {
        path: path.filter(|path| path != "$"),
        ..ParseError::at(text, offset, reason)
    }
}

/// The byte at which the parser stopped; it counts lines from 1, and bytes of a line including that one.
fn offset_of(text: &str, error: &serde_json::Error) -> usize {
    let line_start = match error.line() {
        0 | 1 => 0,
        line => text
            .match_indices('\n')
            .nth(line - 2)
            .map_or(text.len(), |(newline, _)| newline + 1),
    };
    // Column 0 is the preceding line break.
    let mut offset = (line_start + error.column()).saturating_sub(1).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// A line with a caret below a column. Characters that may be part of a secret are replaced by dots.
fn snippet(line: &str, column: usize) -> String {
    const AROUND: usize = 30;
    let first = column.saturating_sub(AROUND + 1);
    let masked = |c: char| if "{}[]:,\" ".contains(c) { c } else { '·' };
    let shown: String = line.chars().skip(first).take(2 * AROUND).map(masked).collect();
    format!("{shown}\n{}^", " ".repeat(column - 1 - first))
}

/// The version of a config, if it is supported.
pub fn known_version(config: &Value) -> Result<Version, String> {
    let text = match config.pointer("/ignition/version") {
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => {
            return Err("the config has no spec version".to_owned());
        }
        Some(_) => return Err("the version must be a string, such as \"3.2.0\"".to_owned()),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    if text.is_empty() || text.len() > 40 || !text.bytes().all(plain) {
        return Err("the version must be three numbers, such as `3.2.0`".to_owned());
    }
    if text.split('.').count() == 2 && parse_version(&format!("{text}.0")).is_some() {
        return Err(format!(
            "a version has three numbers: write `{text}.0` instead of `{text}`"
        ));
    }
    if text.contains("experimental") {
        return Err(format!("`{text}` is an experimental version, which CoreOS rejects"));
    }
    let unsupported =
        || format!("unsupported config version `{text}`: 2.0.0 to 2.4.0 and 3.0.0 to 3.6.0 are supported");
    let version = parse_version(text).ok_or_else(|| match text.split('.').count() {
        3 => unsupported(),
        _ => format!("the version `{text}` must be three numbers, such as `3.2.0`"),
    })?;
    let newest = match version.major {
        Major::Two => 4,
        Major::Three => 6,
    };
    match version.patch == 0 && version.minor <= newest {
        true => Ok(version),
        false => Err(unsupported()),
    }
}

/// Corrects the case of known keys: Ignition accepts them in any case.
fn settle_case(value: &mut Value, fields: &[Field], path: &str, found: &mut Vec<Finding>) {
    let Value::Object(entries) = value else {
        return;
    };
    let other_case = |key: &str| {
        let known = fields.iter().find(|field| field.name.eq_ignore_ascii_case(key));
        known.filter(|field| field.name != key)
    };
    if entries.keys().any(|key| other_case(key).is_some()) {
        for (key, value) in std::mem::take(entries) {
            match other_case(&key) {
                None => put(entries, key, value),
                Some(field) => {
                    found.push(Finding {
                        severity: Severity::Warning,
                        path: format!("{path}.{}", shown(&key)),
                        text: format!(
                            "Ignition reads this key as `{}`; other programs may ignore it",
                            field.name
                        ),
                    });
                    put(entries, field.name.to_owned(), value);
                }
            }
        }
    }
    for field in fields {
        let (Shape::Object(below) | Shape::Keyed(_, below) | Shape::Series(below)) = &field.shape else {
            continue;
        };
        match entries.get_mut(field.name) {
            Some(Value::Array(list)) => {
                for (index, entry) in list.iter_mut().enumerate() {
                    settle_case(entry, below, &format!("{path}.{}.{index}", field.name), found);
                }
            }
            Some(child) => settle_case(child, below, &format!("{path}.{}", field.name), found),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
