//! What Ignition accepts and fails on when it applies the config: the machine stops in the emergency shell.
//!
//! Source: coreos/ignition, `internal/exec/stages`, `internal/exec/util` and `internal/resource`.

use std::collections::HashSet;

use super::at::{At, quoted};
use super::judge::Judge;
use super::nodes::{LISTS, ancestors};
use super::{coreos, users};
use crate::cluster::limits::certificates;
use crate::digest::{sha256, sha512};
use crate::ignition::contents::{self, Contents, ContentsError};

pub fn config(judge: &mut Judge, root: &At) {
    let storage = root.get("storage");
    below_files(judge, &storage);
    embedded(judge, root);
    accounts(judge, &root.get("passwd"));
    coreos::storage(judge, &storage);
}

/// Ignition creates the parents of each path.
fn below_files(judge: &mut Judge, storage: &At) {
    let files: HashSet<_> = storage.entries("files").filter_map(|file| file.words("path")).collect();
    for list in LISTS {
        for node in storage.entries(list) {
            let path = node.text("path").unwrap_or_default();
            if let Some(above) = ancestors(path).find(|above| files.contains(above)) {
                let text = format!(
                    "{} is a file of this config, so it cannot contain this path",
                    quoted(above)
                );
                judge.error(&node.get("path"), text);
            }
        }
    }
}

/// All contents that are in the config itself, and the hashes of those that are not.
fn embedded(judge: &mut Judge, root: &At) {
    let ignition = root.get("ignition");
    let config = ignition.get("config");
    for entry in config.entries("merge") {
        data(judge, &entry);
    }
    data(judge, &config.get("replace"));
    for authority in ignition.get("security").get("tls").entries("certificateAuthorities") {
        if let Some(bytes) = data(judge, &authority) {
            authorities(judge, &authority, &bytes);
        }
    }
    let storage = root.get("storage");
    for file in storage.entries("files") {
        let contents = file.get("contents");
        if let Some(bytes) = data(judge, &contents) {
            script(judge, &contents, &bytes);
        }
        for part in file.entries("append") {
            data(judge, &part);
        }
    }
    for volume in storage.entries("luks") {
        data(judge, &volume.get("keyFile"));
    }
}

/// The bytes of a data URL; reports a description that they do not match.
fn data(judge: &mut Judge, resource: &At) -> Option<Vec<u8>> {
    let verification = resource.get("verification");
    let (function, sum) = verification
        .words("hash")
        .and_then(|hash| hash.split_once('-'))
        .unwrap_or_default();
    // Its length was already checked.
    if !sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        judge.error(
            &verification.get("hash"),
            "the digest is not hexadecimal, so it never matches",
        );
    }
    let bytes = match contents::of(resource.value) {
        Ok(Contents::Bytes(bytes)) if resource.words("source").is_some() => bytes,
        Err(ContentsError::Gzip) => {
            judge.error(
                &resource.get("compression"),
                "the data is not gzip; for uncompressed data, set `\"compression\": \"\"`",
            );
            return None;
        }
        _ => return None,
    };
    // The hash is that of the uncompressed data.
    let is = match function {
        "sha512" => sha512(&bytes),
        "sha256" => sha256(&bytes),
        _ => return Some(bytes),
    };
    if !sum.eq_ignore_ascii_case(&is) && sum.len() == is.len() {
        judge.error(&verification.get("hash"), "the data does not match the hash");
    }
    Some(bytes)
}

/// Ignition reads on until nothing is left (`internal/resource/http.go`, `parseCABundle`).
fn authorities(judge: &mut Judge, authority: &At, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let text = text.replace("\r\n", "\n");
    let ends_well = text
        .strip_suffix('\n')
        .unwrap_or(&text)
        .ends_with("-----END CERTIFICATE-----");
    if let Err(why) = certificates(&text) {
        judge.error(&authority.get("source"), format_args!("the data {why} in PEM"));
    } else if !ends_well {
        judge.error(
            &authority.get("source"),
            "an empty line or another text follows the last certificate",
        );
    }
}

/// The kernel looks for an interpreter whose name ends in a carriage return.
fn script(judge: &mut Judge, contents: &At, bytes: &[u8]) {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first.starts_with(b"#!") && first.ends_with(b"\r") {
        let text = "the lines of this script end in CR LF, as on Windows, so its interpreter is not found; use LF";
        judge.warning(&contents.get("source"), text);
    }
}

/// What `useradd` and `groupadd` reject.
fn accounts(judge: &mut Judge, passwd: &At) {
    for list in ["users", "groups"] {
        for entry in passwd.entries(list) {
            if let Some(fault) = users::name_fault(entry.text("name").unwrap_or_default()) {
                judge.error(&entry.get("name"), fault);
            }
        }
    }
    for user in passwd.entries("users") {
        for field in ["passwordHash", "gecos", "homeDir", "shell"] {
            // They separate the fields and the entries of /etc/passwd.
            if user.text(field).is_some_and(|text| text.contains([':', '\n'])) {
                judge.error(
                    &user.get(field),
                    "it contains a colon or a line break, which `useradd` rejects",
                );
            }
        }
    }
}
