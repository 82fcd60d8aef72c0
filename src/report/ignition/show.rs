//! One config as its node reads it: its entries and their layers.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use super::value;
use crate::ignition::contents::{self, Contents};
use crate::ignition::origins::Origin;
use crate::printable::{printable_line, printable_text};
use crate::report::table;

/// Information about a config besides its entries.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    /// `None` for a plain file.
    pub cluster: Option<String>,
    pub node: Option<String>,
    pub file: String,
    pub version: String,
    /// Size of the delivered config.
    pub bytes: usize,
    pub sha512: String,
    /// How it reaches the machine, e.g. `fw_cfg`; `None` for a plain file.
    pub carrier: Option<String>,
    /// The carrier's limit in bytes.
    pub carrier_bytes: Option<usize>,
    /// The layers, lowest first.
    pub layers: Vec<String>,
    /// URLs that the node fetches on its first boot, in this order.
    pub fetched: Vec<String>,
}

/// A config for display.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    pub head: Head,
    pub files: Vec<File>,
    pub directories: Vec<Directory>,
    pub links: Vec<Link>,
    pub units: Vec<Unit>,
    pub users: Vec<User>,
    pub others: Vec<Other>,
}

#[derive(Clone, Debug, Serialize)]
pub struct File {
    pub path: String,
    /// Octal; `None` is 0644, or the mode of an existing file.
    pub mode: Option<String>,
    /// `USER`, or `USER:GROUP`.
    pub owner: String,
    /// Whether it is appended to an existing file.
    pub appends: bool,
    /// `None` if a part of it is fetched or cannot be read.
    pub bytes: Option<usize>,
    /// URLs that are fetched, and why other parts cannot be read.
    pub elsewhere: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Text>,
    pub from: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Directory {
    pub path: String,
    pub mode: Option<String>,
    pub owner: String,
    pub from: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Link {
    pub path: String,
    pub target: String,
    pub hard: bool,
    pub from: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Unit {
    pub name: String,
    /// `None` does not change it.
    pub enabled: Option<bool>,
    pub masked: bool,
    /// `None` if the config does not contain the unit itself.
    pub bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Text>,
    pub dropins: Vec<Dropin>,
    pub from: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Dropin {
    pub name: String,
    pub bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Text>,
    pub from: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct User {
    pub name: String,
    /// The type, end and comment of each.
    pub ssh_keys: Vec<String>,
    pub groups: Vec<String>,
    pub has_password: bool,
    pub from: Vec<String>,
}

/// An entry of another kind, e.g. a disk.
#[derive(Clone, Debug, Serialize)]
pub struct Other {
    pub kind: String,
    pub key: String,
    pub from: Vec<String>,
}

/// The content of a file: text, otherwise base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Text {
    Text(String),
    Base64(String),
}

impl Text {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Self::Text(text.to_owned()),
            _ => Self::Base64(STANDARD.encode(bytes)),
        }
    }
}

/// The decoded content of a config's file, including appended data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileContents {
    pub bytes: Vec<u8>,
    /// URLs that are fetched, and why other parts cannot be read; then `bytes` is incomplete.
    pub elsewhere: Vec<String>,
}

/// Reads an entry of `storage.files`.
pub fn file_contents(file: &Value) -> FileContents {
    let appended = list(file, "/append").iter();
    let mut found = FileContents::default();
    for resource in std::iter::once(&file["contents"]).chain(appended) {
        match contents::of(resource) {
            Ok(Contents::Nothing) => {}
            Ok(Contents::Bytes(bytes)) => found.bytes.extend(bytes),
            Ok(Contents::Remote(url)) => found.elsewhere.push(value::url(&url)),
            Err(error) => found.elsewhere.push(error.to_string()),
        }
    }
    found
}

impl Shown {
    /// All entries of a config. With `decode`, including contents.
    pub fn of(head: Head, config: &Value, origins: &[Origin], decode: bool) -> Self {
        let origins: HashMap<&str, &Origin> = origins.iter().map(|origin| (origin.pointer.as_str(), origin)).collect();
        let from = |pointer: &str| match origins.get(pointer) {
            Some(origin) => origin.layers.clone(),
            None => Vec::new(),
        };
        let text = |bytes: &[u8]| decode.then(|| Text::of(bytes));
        let entries = |pointer: &str| {
            let numbered = list(config, pointer).iter().enumerate();
            let entries: Vec<_> = numbered
                .map(|(index, entry)| (entry, from(&format!("{pointer}/{index}"))))
                .collect();
            entries
        };
        let files = entries("/storage/files").into_iter().map(|(entry, from)| {
            let FileContents { bytes, elsewhere } = file_contents(entry);
            File {
                path: field(entry, "path"),
                mode: entry["mode"].as_u64().map(value::mode),
                owner: owner(entry),
                appends: entry["contents"]["source"].is_null() && !list(entry, "/append").is_empty()
                    || entry["append"] == true,
                contents: text(&bytes),
                bytes: elsewhere.is_empty().then_some(bytes.len()),
                elsewhere,
                from,
            }
        });
        let directories = entries("/storage/directories")
            .into_iter()
            .map(|(entry, from)| Directory {
                path: field(entry, "path"),
                mode: entry["mode"].as_u64().map(value::mode),
                owner: owner(entry),
                from,
            });
        let links = entries("/storage/links").into_iter().map(|(entry, from)| Link {
            path: field(entry, "path"),
            target: field(entry, "target"),
            hard: entry["hard"] == true,
            from,
        });
        let units = entries("/systemd/units")
            .into_iter()
            .enumerate()
            .map(|(index, (entry, from))| {
                let contents = entry["contents"].as_str().map(str::as_bytes);
                let dropins = entries(&format!("/systemd/units/{index}/dropins"));
                let dropin = |(entry, from): (&Value, Vec<String>)| {
                    let contents = entry["contents"].as_str().unwrap_or_default().as_bytes();
                    Dropin {
                        name: field(entry, "name"),
                        bytes: contents.len(),
                        contents: text(contents),
                        from,
                    }
                };
                Unit {
                    name: field(entry, "name"),
                    enabled: entry["enabled"].as_bool(),
                    masked: entry["mask"] == true,
                    bytes: contents.map(<[u8]>::len),
                    contents: contents.and_then(text),
                    dropins: dropins.into_iter().map(dropin).collect(),
                    from,
                }
            });
        let users = entries("/passwd/users").into_iter().map(|(entry, from)| User {
            name: field(entry, "name"),
            ssh_keys: texts(entry, "/sshAuthorizedKeys")
                .map(|key| value::ssh_key(key).unwrap_or_else(|| value::words("", &key.into())))
                .collect(),
            groups: texts(entry, "/groups").map(str::to_owned).collect(),
            has_password: entry["passwordHash"].as_str().is_some_and(|hash| !hash.is_empty()),
            from,
        });
        // What is fetched is listed in the head.
        let tables = [
            "/ignition/config/",
            "/storage/files/",
            "/storage/directories/",
            "/storage/links/",
            "/systemd/units/",
            "/passwd/users/",
        ];
        let other = |origin: &&Origin| {
            origin.part_of.is_none() && !tables.iter().any(|table| origin.pointer.starts_with(table))
        };
        let mut others: Vec<&Origin> = origins.values().copied().filter(other).collect();
        others.sort_by(|one, other| one.pointer.cmp(&other.pointer));
        Self {
            files: files.collect(),
            directories: directories.collect(),
            links: links.collect(),
            units: units.collect(),
            users: users.collect(),
            others: others
                .into_iter()
                .map(|origin| Other {
                    kind: origin.kind.to_owned(),
                    key: value::words("source", &origin.key.as_str().into()),
                    from: origin.layers.clone(),
                })
                .collect(),
            head,
        }
    }

    /// The head, a table for each kind with entries, and the contents if requested.
    pub fn text(&self) -> String {
        let mut text = self.head.text();
        let from = |from: &[String]| from.join(" + ");
        let mut add = |head: &[&str], rows: Vec<Vec<String>>| {
            if !rows.is_empty() {
                let head = head.iter().map(|&cell| cell.to_owned()).collect();
                let rows: Vec<_> = std::iter::once(head).chain(rows.into_iter().map(safe)).collect();
                text += &format!("\n{}", table(&rows));
            }
        };
        let files = self.files.iter().map(|file| {
            let bytes = match (file.bytes, file.appends) {
                (Some(bytes), false) => bytes.to_string(),
                (Some(bytes), true) => format!("+{bytes}"),
                (None, _) => file.elsewhere.join(" + "),
            };
            let mode = file.mode.clone().unwrap_or_default();
            vec![file.path.clone(), mode, file.owner.clone(), bytes, from(&file.from)]
        });
        add(&["FILE", "MODE", "OWNER", "BYTES", "FROM"], files.collect());
        let directories = self.directories.iter().map(|directory| {
            let mode = directory.mode.clone().unwrap_or_default();
            vec![
                directory.path.clone(),
                mode,
                directory.owner.clone(),
                from(&directory.from),
            ]
        });
        add(&["DIRECTORY", "MODE", "OWNER", "FROM"], directories.collect());
        let links = self
            .links
            .iter()
            .map(|link| vec![link.path.clone(), link.target.clone(), from(&link.from)]);
        add(&["LINK", "TARGET", "FROM"], links.collect());
        let units = self.units.iter().flat_map(|unit| {
            let bytes = unit.bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
            let own = vec![unit.name.clone(), unit.state().to_owned(), bytes, from(&unit.from)];
            let dropins = unit.dropins.iter().map(|dropin| {
                vec![
                    format!("  {}", dropin.name),
                    String::new(),
                    dropin.bytes.to_string(),
                    from(&dropin.from),
                ]
            });
            std::iter::once(own).chain(dropins).collect::<Vec<_>>()
        });
        add(&["UNIT", "STATE", "BYTES", "FROM"], units.collect());
        let users = self.users.iter().map(|user| {
            let password = if user.has_password { "yes" } else { "" };
            vec![
                user.name.clone(),
                user.groups.join(", "),
                user.ssh_keys.join(", "),
                password.to_owned(),
                from(&user.from),
            ]
        });
        add(&["USER", "GROUPS", "SSH KEYS", "PASSWORD", "FROM"], users.collect());
        let others = self
            .others
            .iter()
            .map(|other| vec![other.kind.clone(), other.key.clone(), from(&other.from)]);
        add(&["OTHER", "KEY", "FROM"], others.collect());
        for (title, contents) in self.decoded() {
            text += &format!("\n== {}\n", printable_line(&title));
            text += &match contents {
                Text::Text(contents) => printable_text(contents.trim_end_matches('\n')) + "\n",
                Text::Base64(packed) => format!(
                    "(not text; {} characters of base64; --file prints the contents)\n",
                    packed.len()
                ),
            };
        }
        text
    }

    /// The requested contents, each with its title.
    fn decoded(&self) -> impl Iterator<Item = (String, &Text)> {
        let files = self
            .files
            .iter()
            .filter_map(|file| Some((file.path.clone(), file.contents.as_ref()?)));
        let units = self.units.iter().flat_map(|unit| {
            let own = unit.contents.iter().map(|contents| (unit.name.clone(), contents));
            let dropins = unit.dropins.iter().filter_map(|dropin| {
                let title = format!("{}.d/{}", unit.name, dropin.name);
                Some((title, dropin.contents.as_ref()?))
            });
            own.chain(dropins)
        });
        files.chain(units)
    }
}

impl Head {
    fn text(&self) -> String {
        let size = match (&self.carrier, self.carrier_bytes) {
            (Some(carrier), Some(most)) => format!("{} bytes; the limit of {carrier} is {most}", self.bytes),
            (Some(carrier), None) => format!("{} bytes; {carrier} has no limit", self.bytes),
            (None, _) => format!("{} bytes", self.bytes),
        };
        let mut lines = Vec::new();
        if let (Some(node), Some(cluster)) = (&self.node, &self.cluster) {
            lines.push(("node", format!("{node} of {cluster}")));
        }
        lines.push(("file", self.file.clone()));
        lines.push(("version", self.version.clone()));
        lines.push(("size", size));
        lines.push(("sha512", self.sha512.clone()));
        let titles = |title, again: &'static str, values: &[String]| -> Vec<(&str, String)> {
            let titles = std::iter::once(title).chain(std::iter::repeat(again));
            titles.zip(values.iter().cloned()).collect()
        };
        lines.extend(titles("layers", "", &self.layers));
        lines.extend(titles("fetches", "", &self.fetched));
        let line = |(title, value): (&str, String)| printable_line(&format!("{title:8} {value}")) + "\n";
        lines.into_iter().map(line).collect()
    }
}

impl Unit {
    fn state(&self) -> &'static str {
        match (self.masked, self.enabled) {
            (true, _) => "masked",
            (false, Some(true)) => "enabled",
            (false, Some(false)) => "disabled",
            (false, None) => "",
        }
    }
}

/// A row without terminal escape sequences.
fn safe(row: Vec<String>) -> Vec<String> {
    row.iter().map(|cell| printable_line(cell)).collect()
}

fn field(entry: &Value, name: &str) -> String {
    entry[name].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn texts<'a>(entry: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    list(entry, pointer).iter().filter_map(Value::as_str)
}

/// Ignition's default owner is root.
fn owner(entry: &Value) -> String {
    let one = |kind: &str| {
        let owner = &entry[kind];
        let name = owner["name"]
            .as_str()
            .filter(|name| !name.is_empty())
            .map(str::to_owned);
        name.or_else(|| owner["id"].as_u64().map(|id| id.to_string()))
    };
    let user = one("user").unwrap_or_else(|| "root".to_owned());
    match one("group") {
        Some(group) if group != user => format!("{user}:{group}"),
        _ => user,
    }
}
