//! The content of a resource: embedded bytes, or a URL.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use serde_json::Value;

/// Limit of one resource's decompressed size; a larger one is a mistake or an attack.
const MOST: usize = 64 << 20;

/// The content of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// No source: an empty file, or an unchanged one.
    Nothing,
    /// Embedded, decoded and decompressed.
    Bytes(Vec<u8>),
    /// A URL that the node fetches on its first boot.
    Remote(String),
}

/// Why embedded bytes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    #[error("the data URL has no comma")]
    NoComma,
    #[error("the data URL's base64 is not valid: standard alphabet, padded")]
    Base64,
    #[error("the data URL has a % without two hexadecimal digits")]
    Percent,
    #[error("the compression must be gzip or empty")]
    Compression,
    #[error("the bytes are not gzip")]
    Gzip,
    #[error("it decompresses to more than 64 MiB")]
    TooLarge,
}

/// Reads the content of an object with `source` and `compression`, e.g. a file's `contents` or an entry of `merge`.
pub fn of(resource: &Value) -> Result<Contents, ContentsError> {
    let Some(source) = resource.get("source").and_then(Value::as_str) else {
        return Ok(Contents::Nothing);
    };
    if source.is_empty() {
        return Ok(Contents::Bytes(Vec::new()));
    }
    if !is_data(source) {
        return Ok(Contents::Remote(source.to_owned()));
    }
    let bytes = data(source)?;
    match resource.get("compression").and_then(Value::as_str) {
        None | Some("") => Ok(Contents::Bytes(bytes)),
        Some("gzip") => Ok(Contents::Bytes(unpack(&bytes)?)),
        Some(_) => Err(ContentsError::Compression),
    }
}

/// Whether a source is a data URL; the scheme's case does not count (RFC 3986, section 3.1).
pub fn is_data(source: &str) -> bool {
    source
        .get(..5)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// The first URL of a config that Ignition fetches from: a source that is not a data URL, or a Tang server.
pub fn fetched(config: &Value) -> Option<&str> {
    match config {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| match value {
            Value::String(url) if matches!(name.as_str(), "source" | "url") => {
                (!url.is_empty() && !is_data(url)).then_some(url.as_str())
            }
            _ => fetched(value),
        }),
        Value::Array(values) => values.iter().find_map(fetched),
        _ => None,
    }
}

/// The bytes of a data URL (RFC 2397), in base64 or percent-encoded; a plus sign is not a space.
pub fn data(url: &str) -> Result<Vec<u8>, ContentsError> {
    let (head, body) = url.split_once(',').ok_or(ContentsError::NoComma)?;
    if head.ends_with(";base64") {
        return STANDARD.decode(body).map_err(|_| ContentsError::Base64);
    }
    let mut bytes = Vec::with_capacity(body.len());
    let mut rest = body.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next())? << 4 | hex(rest.next())?,
            other => other,
        });
    }
    Ok(bytes)
}

fn hex(digit: Option<u8>) -> Result<u8, ContentsError> {
    let value = digit.and_then(|digit| char::from(digit).to_digit(16));
    value
        .and_then(|value| u8::try_from(value).ok())
        .ok_or(ContentsError::Percent)
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, ContentsError> {
    let mut bytes = Vec::new();
    let mut reader = MultiGzDecoder::new(packed).take(MOST as u64 + 1);
    reader.read_to_end(&mut bytes).map_err(|_| ContentsError::Gzip)?;
    match bytes.len() > MOST {
        true => Err(ContentsError::TooLarge),
        false => Ok(bytes),
    }
}

/// Bytes as a data URL in the installer's form: padded base64.
pub fn data_url(bytes: &[u8]) -> String {
    format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use serde_json::json;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn urls_that_are_fetched_are_found_at_any_depth() {
        for (config, expected) in [
            (json!({"ignition": {"version": "3.2.0"}}), None),
            (
                json!({"storage": {"files": [{"path": "/a", "contents": {"source": "DATA:,a"}}]}}),
                None,
            ),
            (
                json!({"storage": {"files": [{"path": "/a", "contents": {"source": ""}}]}}),
                None,
            ),
            (
                json!({"ignition": {"config": {"merge": [{"source": "https://a/"}]}}}),
                Some("https://a/"),
            ),
            (
                json!({"storage": {"files": [{"path": "/a", "append": [{"source": "tftp://a/"}]}]}}),
                Some("tftp://a/"),
            ),
            (
                json!({"storage": {"luks": [{"clevis": {"tang": [{"url": "http://t/"}]}}]}}),
                Some("http://t/"),
            ),
        ] {
            assert_eq!(fetched(&config), expected, "{config}");
        }
    }

    #[test]
    fn each_encoding_of_the_same_bytes_is_decoded() {
        let packed = format!("data:;base64,{}", STANDARD.encode(gzip("a+b ü\n".as_bytes())));
        for (resource, bytes) in [
            (json!({"source": "data:,a+b%20%c3%BC%0a"}), "a+b ü\n"),
            (
                json!({"source": "data:text/plain;charset=utf-8;base64,YStiIMO8Cg=="}),
                "a+b ü\n",
            ),
            (json!({"source": packed, "compression": "gzip"}), "a+b ü\n"),
            (json!({"source": "DATA:,a", "compression": ""}), "a"),
            (json!({"source": "data:,"}), ""),
            (json!({"source": ""}), ""),
        ] {
            assert_eq!(
                of(&resource),
                Ok(Contents::Bytes(bytes.as_bytes().to_vec())),
                "{resource}"
            );
        }
    }

    #[test]
    fn a_missing_source_and_a_url_are_distinguished() {
        assert_eq!(of(&json!({"compression": "gzip"})), Ok(Contents::Nothing));
        assert_eq!(of(&json!({"source": null})), Ok(Contents::Nothing));
        let url = "http://192.168.122.10:22624/config/master";
        assert_eq!(of(&json!({"source": url})), Ok(Contents::Remote(url.to_owned())));
    }

    #[test]
    fn invalid_data_is_an_error() {
        for (resource, error) in [
            (json!({"source": "data:text/plain"}), ContentsError::NoComma),
            (json!({"source": "data:;base64,YQ"}), ContentsError::Base64),
            (json!({"source": "data:,%4"}), ContentsError::Percent),
            (json!({"source": "data:,%zz"}), ContentsError::Percent),
            (
                json!({"source": "data:,a", "compression": "xz"}),
                ContentsError::Compression,
            ),
            (json!({"source": "data:,a", "compression": "gzip"}), ContentsError::Gzip),
        ] {
            assert_eq!(of(&resource), Err(error), "{resource}");
        }
    }

    #[test]
    fn a_decompression_bomb_is_rejected() {
        assert_eq!(unpack(&gzip(&vec![0; MOST + 1])), Err(ContentsError::TooLarge));
        assert_eq!(unpack(&gzip(&vec![0; MOST])).map(|bytes| bytes.len()), Ok(MOST));
    }
}
