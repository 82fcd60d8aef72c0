//! Ignition: from the installer's file of a role to the config of one node.
//!
//! Works on JSON values, so that unknown fields are kept, in their order.

pub mod check;
pub mod contents;
pub mod diff;
pub mod document;
mod error;
pub mod finding;
pub mod merge;
pub mod origins;
pub mod place;
pub mod spec;
pub mod stub;
mod translate;
pub mod unpack;
mod version;

use serde_json::Value;

pub use self::error::{IgnitionError, OURS};
use self::version::parse_version;
pub use self::version::{Major, Version};

/// The version that a config declares.
pub fn version(config: &Value) -> Result<Version, IgnitionError> {
    let text = config
        .pointer("/ignition/version")
        .and_then(Value::as_str)
        .ok_or(IgnitionError::NoVersion)?;
    parse_version(text).ok_or_else(|| IgnitionError::Version(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_read_strictly() {
        let read = |text: &str| version(&json!({"ignition": {"version": text}})).map(|version| version.to_string());
        for good in ["2.2.0", "3.0.0", "3.2.0", "3.10.12"] {
            assert_eq!(read(good).unwrap(), good);
        }
        for bad in [
            "3.2",
            "3",
            "",
            "3.2.0.0",
            "4.0.0",
            "1.0.0",
            "3.2.x",
            "3.+2.0",
            "3.2.0-experimental",
            "3..0",
        ] {
            let error = read(bad).unwrap_err();
            assert!(
                matches!(error, IgnitionError::Version(ref text) if text == bad),
                "{bad}: {error}"
            );
        }
        for none in [
            json!({}),
            json!({"ignition": {}}),
            json!({"ignition": {"version": 3}}),
            json!([]),
            json!(null),
        ] {
            assert!(matches!(version(&none), Err(IgnitionError::NoVersion)), "{none}");
        }
    }
}
