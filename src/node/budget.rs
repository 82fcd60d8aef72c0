//! Whether a config fits its carrier, what makes it large, and smaller forms of the same config.

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

/// Over this a config is warned of even where nobody sets a bound: a guest reads fw_cfg page by page, each from the
/// start.
pub const LARGE: usize = 1 << 20;

/// How many of the largest entries a user is told.
const TOLD: usize = 5;

/// A config in the form in which its carrier takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    pub bytes: Vec<u8>,
    /// It is the packed form.
    pub packed: bool,
}

/// A config that its carrier does not take in any form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TooLarge {
    pub bytes: usize,
    /// Bytes of the packed form, where the version of the spec has one.
    pub packed: Option<usize>,
    pub carrier: &'static str,
    /// Bytes for which the carrier has room.
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

/// An entry of a config, by its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contributor {
    /// `file`, `unit`, …
    pub kind: &'static str,
    pub key: String,
    /// As it stands in the config, quotes and base64 included.
    pub bytes: usize,
    /// Of the whole config.
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

/// Takes the config as it is where it fits, else its packed form.
pub fn fit(carrier: &Carrier, config: Vec<u8>) -> Result<Fitted, TooLarge> {
    let Some(room) = carrier.room().filter(|room| config.len() > *room) else {
        return Ok(Fitted {
            bytes: config,
            packed: false,
        });
    };
    let packed = pack(&config);
    match packed {
        Some(bytes) if bytes.len() <= room => Ok(Fitted { bytes, packed: true }),
        packed => Err(TooLarge {
            bytes: config.len(),
            packed: packed.map(|bytes| bytes.len()),
            carrier: carrier.name,
            room,
            largest: contributors(&serde_json::from_slice(&config).unwrap_or_default(), TOLD),
        }),
    }
}

/// The same config, packed: one that does nothing but merge the gzip of it. `None` before 3.1.
///
/// `merge` and not `replace`: a replaced config also drops what the image itself brings (the groups of `core`), and the
/// merge of nothing with a config is the config. Compressed references came with spec 3.1.
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

/// Gzip as small as it gets; the same bytes every time, for there is no time and no name in it.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    // A vector takes everything.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// The largest entries of a config, largest first.
///
/// A config within the config, as a pointer merges one, is looked into, its entries as large as they are in there.
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

/// Lists of entries: their place, the field that names one, and what one is called.
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
                // How many bytes one byte within takes up here: base64 makes more of it, gzip less.
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
    fn each_carrier_has_its_room() {
        for (carrier, room) in [
            (Carrier::FW_CFG, None),
            (Carrier::CUSTOM_SCRIPT, None),
            (Carrier::USER_DATA, Some(49_149)),
            (Carrier::INLINE_USER_DATA, Some(2_048)),
            (Carrier::SECRET, Some(1_048_576)),
        ] {
            assert_eq!(carrier.room(), room, "{}", carrier.name);
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
    fn what_fits_stays_as_it_is_and_what_does_not_is_packed() {
        let config = config(20_000);
        let carrier = |limit| Carrier {
            name: "toy",
            limit: Some(limit),
            counts_base64: false,
            bootstrap_fetches: false,
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
        // Before 3.1 there is no packed form.
        let old = String::from_utf8(config).unwrap().replace("3.2.0", "3.0.0");
        assert_eq!(fit(&carrier(100), old.into_bytes()).unwrap_err().packed, None);
    }

    #[test]
    fn entries_of_a_config_within_the_config_count_as_they_are_there() {
        let inner = config(9_000);
        let pointer = json!({"ignition": {"version": "3.2.0", "config": {"merge": [
            {"source": "https://api-int.lab.example.com:22623/config/worker"},
            {"source": data_url(&inner)},
        ]}}});
        let found = contributors(&pointer, 3);
        let keys: Vec<_> = found.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["/large", "/small", "a.service"]);
        // 9000 bytes in base64 in base64.
        assert!((16_000..16_400).contains(&found[0].bytes), "{}", found[0]);
    }

    #[test]
    fn the_largest_entries_are_listed_with_their_size_and_share() {
        let carrier = Carrier {
            name: "toy",
            limit: Some(1),
            counts_base64: false,
            bootstrap_fetches: false,
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
    fn a_file_that_holds_a_config_is_one_entry() {
        let file = json!({"path": "/f", "contents": {"source": data_url(&config(100))}});
        let found = contributors(&json!({"storage": {"files": [file]}}), 3);
        let keys: Vec<_> = found.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["/f"]);
    }
}
