//! A value in a config and its path.

use std::fmt;

use serde_json::Value;

/// A value in a config with its path. It displays as the path, `$.storage.files.0`.
///
/// A value that is missing, `null`, or of another type than requested counts as not set.
#[derive(Clone, Copy)]
pub struct At<'p, 'v> {
    pub value: &'v Value,
    step: Step<'p>,
    above: Option<&'p At<'p, 'v>>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Field(&'p str),
    /// An entry of the list in this field.
    Entry(&'p str, usize),
    Index(usize),
}

impl<'v> At<'v, 'v> {
    pub fn root(config: &'v Value) -> Self {
        Self {
            value: config,
            step: Step::Root,
            above: None,
        }
    }
}

impl<'v> At<'_, 'v> {
    pub fn get<'q>(&'q self, name: &'q str) -> At<'q, 'v> {
        At {
            value: self.value.get(name).unwrap_or(&Value::Null),
            step: Step::Field(name),
            above: Some(self),
        }
    }

    pub fn list(&self, name: &str) -> &'v [Value] {
        self.value
            .get(name)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub fn entries<'q>(&'q self, name: &'q str) -> impl Iterator<Item = At<'q, 'v>> {
        self.list(name).iter().enumerate().map(move |(index, value)| At {
            value,
            step: Step::Entry(name, index),
            above: Some(self),
        })
    }

    /// The entries, if this value is a list.
    pub fn items<'q>(&'q self) -> impl Iterator<Item = At<'q, 'v>> {
        let items = self.value.as_array().map_or(&[][..], Vec::as_slice);
        items.iter().enumerate().map(move |(index, value)| At {
            value,
            step: Step::Index(index),
            above: Some(self),
        })
    }

    pub fn has(&self, name: &str) -> bool {
        self.value.get(name).is_some_and(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Option<&'v str> {
        self.value.get(name).and_then(Value::as_str)
    }

    /// The text, if it is not empty.
    pub fn words(&self, name: &str) -> Option<&'v str> {
        self.text(name).filter(|text| !text.is_empty())
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        self.value.get(name).and_then(Value::as_i64)
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        self.value.get(name).and_then(Value::as_bool)
    }
}

impl fmt::Display for At<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(f, "{above}")?;
        }
        match self.step {
            Step::Root => f.write_str("$"),
            Step::Field(name) => write!(f, ".{}", shown(name)),
            Step::Entry(name, index) => write!(f, ".{}.{index}", shown(name)),
            Step::Index(index) => write!(f, ".{index}"),
        }
    }
}

/// A key of a config for messages: unusual characters could be a secret or terminal codes.
pub fn shown(key: &str) -> &str {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if !key.is_empty() && key.len() <= 40 && key.bytes().all(plain) {
        key
    } else {
        "…"
    }
}

/// A name or path of a config for messages: on one line, of limited length.
pub fn quoted(text: &str) -> String {
    let mut quoted: String = text.chars().take(100).flat_map(char::escape_debug).collect();
    if text.chars().nth(100).is_some() {
        quoted.push('…');
    }
    format!("`{quoted}`")
}
