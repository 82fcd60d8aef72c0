//! Types for validated names: parsed from text, and written as text.

/// Implements the conversions of a type `$name(String)`, whose values satisfy `$is_valid`; `$what` describes them.
macro_rules! text_type {
    ($name:ident, $is_valid:expr, $what:literal) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match $is_valid(text) {
                    true => Ok(Self(text.to_owned())),
                    false => Err(format!("`{}` is not {}", text.escape_debug(), $what)),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

pub(crate) use text_type;
