//! The choices of a setting: the variants of its enum, which is their only list.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, IntoDeserializer};

/// The variants' names, from serde's error for an unknown name.
#[derive(Debug)]
struct Expected(&'static [&'static str]);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl de::StdError for Expected {}

impl de::Error for Expected {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Expected> {
    let text: StrDeserializer<'_, Expected> = text.into_deserializer();
    T::deserialize(text)
}

/// The names of an enum's variants.
pub(super) fn choices<T: DeserializeOwned>() -> &'static [&'static str] {
    match read::<T>("") {
        Err(Expected(names)) => names,
        Ok(_) => &[],
    }
}

/// The variant of this name.
pub(super) fn choice<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    read(text).map_err(|expected| format!("`{text}` is not one of {expected}"))
}
