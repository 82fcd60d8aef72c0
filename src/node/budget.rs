//! Whether a config fits its carrier, its largest entries, and its compressed form.

use std::fmt;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use serde::Serialize;
use serde_json::{Value, json};

use crate::backend::Carrier;
use crate::ignition::contents::{self, Contents};
use crate::ignition::stub::can_pack;
use crate::ignition::version;

/// A larger config causes a warning even without a limit: a guest reads fw_cfg slowly.
pub const LARGE: usize = 1 << 20;

/// Number of the largest entries that are reported.
const SHOWN: usize = 5;

/// A config in the form that its carrier accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    pub bytes: Vec<u8>,
    /// It is compressed.
    pub packed: bool,
}

/// A config that exceeds its carrier's limit in every form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TooLarge {
    pub bytes: usize,
    /// Size of the compressed form in bytes, if the spec version supports it.
    pub packed: Option<usize>,
    pub carrier: &'static str,
    /// The carrier's limit in bytes.
    pub room: usize,
    pub largest: Vec<Contributor>,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bytes, carrier, room, ..
        } = self;
        write!(f, "{bytes} bytes")?;
        if let Some(packed) = self.packed {
            write!(f, ", {packed} compressed")?;
        }
        write!(f, ", and the limit of {carrier} is {room}; the largest entries:")?;
        for contributor in &self.largest {
            write!(f, "\n  {contributor}")?;
        }
        Ok(())
    }
}

/// An entry of a config, with its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contributor {
    /// `file`, `unit`, …
    pub kind: &'static str,
    pub key: String,
    /// Its size in the config, including quotes and base64.
    pub bytes: usize,
    /// Percentage of the whole config.
    pub percent: usize,
}

impl fmt::Display for Contributor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            key,
            bytes,
            percent,
        } = self;
        write!(f, "{kind} {key}: {bytes} bytes, {percent} %")
    }
}

/// The config itself if it fits and is not too slow to read, otherwise its compressed form if there is one.
pub fn fit(carrier: &Carrier, config: Vec<u8>) -> Result<Fitted, TooLarge> {
    let room = carrier.max_config_bytes().unwrap_or(usize::MAX);
    let plain = |config| Fitted {
        bytes: config,
        packed: false,
    };
    if config.len() <= room.min(carrier.compress_above.unwrap_or(room)) {
        return Ok(plain(config));
    }
    match pack(&config) {
        Some(bytes) if bytes.len() <= room.min(config.len()) => Ok(Fitted { bytes, packed: true }),
        _ if config.len() <= room => Ok(plain(config)),
        packed => Err(TooLarge {
            bytes: config.len(),
            packed: packed.map(|bytes| bytes.len()),
            carrier: carrier.name,
            room,
            largest: contributors(&serde_json::from_slice(&config).unwrap_or_default(), SHOWN),
        }),
    }
}

/// The compressed form: a config that only merges the gzip of the original. `None` before 3.1.
///
/// `merge` instead of `replace`: replacing a config also drops what the image itself adds (the groups of `core`), and
/// merging a config into an empty one does not change it. Compressed references require spec 3.1.
pub fn pack(config: &[u8]) -> Option<Vec<u8>> {
    let document = serde_json::from_slice(config).ok()?;
    let version = version(&document).ok().filter(can_pack)?;
    let source = format!("data:;base64,{}", STANDARD.encode(gzip(config)));
    let packed = json!({"ignition": {
        "version": version.to_string(),
        "config": {"merge": [{"source": source, "compression": "gzip"}]},
    }});
    serde_json::to_vec(&packed).ok()
}

/// Gzip with the best compression; deterministic, without time and name.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    // Writing to a vector cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// The largest entries of a config, largest first.
///
/// An embedded config, as in a pointer, is analyzed too, with the sizes that its entries have in it.
pub fn contributors(config: &Value, most: usize) -> Vec<Contributor> {
    let mut all = Vec::new();
    collect(config, 1.0, &mut all);
    let total = size(config).max(1);
    let mut all: Vec<_> = all
        .into_iter()
        .map(|(kind, key, bytes)| Contributor {
            kind,
            key,
            bytes,
            percent: (bytes * 100 + total / 2) / total,
        })
        .collect();
    all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.key.cmp(&b.key)));
    all.truncate(most);
    all
}

/// Lists of entries: their path, the field with the name, and the kind's name.
const LISTS: [(&str, &str, &str); 9] = [
    ("/storage/files", "path", "file"),
    ("/storage/directories", "path", "directory"),
    ("/storage/links", "path", "link"),
    ("/storage/luks", "name", "LUKS volume"),
    ("/systemd/units", "name", "unit"),
    ("/passwd/users", "name", "user"),
    (
        "/ignition/security/tls/certificateAuthorities",
        "",
        "certificate authority",
    ),
    ("/ignition/config/merge", "source", "merged config"),
    ("/ignition/config/append", "source", "merged config"),
];

fn collect(config: &Value, scale: f64, all: &mut Vec<(&'static str, String, usize)>) {
    for (place, field, kind) in LISTS {
        let entries = config.pointer(place).and_then(Value::as_array).into_iter().flatten();
        for (index, entry) in entries.enumerate() {
            let bytes = size(entry) as f64 * scale;
            if let Some((inner, length)) = inner_config(entry) {
                // The average size here of one embedded byte: base64 increases it, gzip reduces it.
                collect(&inner, bytes / length.max(1) as f64, all);
                continue;
            }
            let named = entry.get(field).and_then(Value::as_str);
            let key = named.map_or(format!("number {}", index + 1), str::to_owned);
            all.push((kind, key, bytes.round() as usize));
        }
    }
}

/// The config that an entry merges: no other entry has JSON as its source.
fn inner_config(entry: &Value) -> Option<(Value, usize)> {
    let Ok(Contents::Bytes(bytes)) = contents::of(entry) else {
        return None;
    };
    let inner = serde_json::from_slice(&bytes).ok()?;
    Some((inner, bytes.len()))
}

/// Bytes of a value as JSON, without white space.
fn size(value: &Value) -> usize {
    value.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::contents::data_url;
    use crate::ignition::unpack::unpack;

    fn config(bytes: usize) -> Vec<u8> {
        let text = "0123456789 ".repeat(bytes / 11 + 1);
        let file = |path: &str, length: usize| json!({"path": path, "contents": {"source": data_url(&text.as_bytes()[..length])}});
        let config = json!({
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [file("/small", bytes / 10), file("/large", bytes)]},
            "systemd": {"units": [{"name": "a.service", "contents": "[Service]\nExecStart=/x\n"}]},
        });
        serde_json::to_vec(&config).unwrap()
    }

    #[test]
    fn each_carrier_has_its_limit() {
        for (carrier, room) in [
            (Carrier::FW_CFG, None),
            (Carrier::CUSTOM_SCRIPT, None),
            (Carrier::USER_DATA, Some(49_149)),
            (Carrier::INLINE_USER_DATA, Some(2_048)),
            (Carrier::SECRET, Some(1_048_576)),
        ] {
            assert_eq!(carrier.max_config_bytes(), room, "{}", carrier.name);
            let Some((room, limit)) = room.zip(carrier.limit) else {
                continue;
            };
            let counted = |bytes: usize| {
                if carrier.counts_base64 {
                    STANDARD.encode(vec![0; bytes]).len()
                } else {
                    bytes
                }
            };
            assert!(counted(room) <= limit && counted(room + 1) > limit, "{}", carrier.name);
        }
    }

    #[test]
    fn a_config_is_compressed_if_it_exceeds_the_limit() {
        let config = config(20_000);
        let carrier = |limit| Carrier {
            name: "toy",
            limit: Some(limit),
            compress_above: None,
            counts_base64: false,
            fetches: false,
            requires_network: false,
        };
        let as_is = fit(&carrier(config.len()), config.clone()).unwrap();
        assert_eq!(
            as_is,
            Fitted {
                bytes: config.clone(),
                packed: false
            }
        );
        let packed = fit(&carrier(config.len() - 1), config.clone()).unwrap();
        assert!(packed.packed && packed.bytes.len() < 2_000, "{}", packed.bytes.len());
        let unpacked = unpack("x", &serde_json::from_slice(&packed.bytes).unwrap())
            .unwrap()
            .layers;
        assert_eq!(
            unpacked.last().unwrap().config,
            serde_json::from_slice::<Value>(&config).unwrap()
        );
        assert_eq!(
            fit(&carrier(packed.bytes.len()), config.clone()).unwrap(),
            packed,
            "the same bytes again"
        );

        let error = fit(&carrier(100), config.clone()).unwrap_err();
        let text = error.to_string();
        let head = format!(
            "{} bytes, {} compressed, and the limit of toy is 100; the largest entries:\n",
            config.len(),
            packed.bytes.len()
        );
        assert!(text.starts_with(&head), "{text}");
        let largest: Vec<_> = error
            .largest
            .iter()
            .map(|one| (one.kind, one.key.as_str(), one.percent))
            .collect();
        assert_eq!(
            largest,
            [("file", "/large", 90), ("file", "/small", 9), ("unit", "a.service", 0)]
        );
        // Before 3.1 there is no compressed form.
        let old = String::from_utf8(config).unwrap().replace("3.2.0", "3.0.0");
        assert_eq!(fit(&carrier(100), old.into_bytes()).unwrap_err().packed, None);
    }

    #[test]
    fn a_config_that_its_carrier_reads_slowly_is_compressed_if_that_helps() {
        let large = config(100_000);
        let fitted = fit(&Carrier::FW_CFG, large.clone()).unwrap();
        assert!(fitted.packed && fitted.bytes.len() < large.len());
        let small = config(40_000);
        assert!(!fit(&Carrier::FW_CFG, small).unwrap().packed);
        // Before spec 3.1 there is no compressed form, so it is unchanged.
        let old = String::from_utf8(large).unwrap().replace("3.2.0", "3.0.0").into_bytes();
        let plain = Fitted {
            bytes: old.clone(),
            packed: false,
        };
        assert_eq!(fit(&Carrier::FW_CFG, old).unwrap(), plain);
    }

    #[test]
    fn entries_of_an_embedded_config_count_with_their_embedded_size() {
        let inner = config(9_000);
        let pointer = json!({"ignition": {"version": "3.2.0", "config": {"merge": [
            {"source": "https://api-int.lab.example.com:22623/config/worker"},
            {"source": data_url(&inner)},
        ]}}});
        let found = contributors(&pointer, 3);
        let keys: Vec<_> = found.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["/large", "/small", "a.service"]);
        // 9000 bytes in nested base64.
        assert!((16_000..16_400).contains(&found[0].bytes), "{}", found[0]);
    }

    #[test]
    fn the_largest_entries_are_listed_with_their_size_and_share() {
        let carrier = Carrier {
            name: "toy",
            limit: Some(1),
            compress_above: None,
            counts_base64: false,
            fetches: false,
            requires_network: false,
        };
        let error = fit(&carrier, config(20_000)).unwrap_err();
        let large = &error.largest[0];
        let line = format!("  file /large: {} bytes, 90 %", large.bytes);
        assert_eq!(error.to_string().lines().nth(1), Some(line.as_str()));
    }

    #[test]
    fn shares_are_rounded() {
        for bytes in 20..60 {
            let config: Value = serde_json::from_slice(&config(bytes)).unwrap();
            for found in contributors(&config, 3) {
                let share = found.bytes as f64 * 100.0 / size(&config) as f64;
                assert_eq!(found.percent, share.round() as usize, "{found} of {}", size(&config));
            }
        }
    }

    #[test]
    fn a_file_that_contains_a_config_is_one_entry() {
        let file = json!({"path": "/f", "contents": {"source": data_url(&config(100))}});
        let found = contributors(&json!({"storage": {"files": [file]}}), 3);
        let keys: Vec<_> = found.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["/f"]);
    }
}
