//! Files, directories and links: paths, modes, owners, and conflicts between them.

use std::collections::HashSet;

use super::at::At;
use super::judge::Judge;
use super::resource;

pub const LISTS: [&str; 3] = ["directories", "files", "links"];

pub fn storage(judge: &mut Judge, root: &At) {
    let storage = root.get("storage");
    let of = |list| {
        storage
            .entries(list)
            .filter_map(|node| node.text("path"))
            .collect::<HashSet<_>>()
    };
    let [directories, _, links] = LISTS.map(of);
    let units = unit_paths(&root.get("systemd"));

    for list in LISTS {
        for node in storage.entries(list) {
            let path = node.text("path").unwrap_or_default();
            if let Some(fault) = path_fault(path) {
                judge.error(&node.get("path"), fault);
            }
            if units.contains(path) {
                judge.error(
                    &node.get("path"),
                    "a unit or drop-in of `systemd.units` also writes to this path",
                );
            }
            for owner in ["user", "group"] {
                let owner = node.get(owner);
                if owner.has("id") && owner.words("name").is_some() {
                    judge.error(&owner, "both id and name are set");
                }
            }
            if ancestors(path).any(|above| links.contains(above)) {
                judge.error(&node, "the path goes through a link of this config");
            }
        }
    }
    for file in storage.entries("files") {
        one_file(judge, &file);
    }
    for directory in storage.entries("directories") {
        mode(judge, &directory);
        if directory.number("mode").is_some_and(|mode| mode & 0o7700 == 0o600) {
            judge.warning(
                &directory.get("mode"),
                "without execute permission, only root can enter the directory",
            );
        }
    }
    for link in storage.entries("links") {
        one_link(judge, &link, &directories);
    }
}

fn one_file(judge: &mut Judge, file: &At) {
    let contents = file.get("contents");
    mode(judge, file);
    if file.flag("overwrite") == Some(true) && contents.text("source").is_none() {
        judge.error(
            &file.get("overwrite"),
            "`overwrite` requires `contents.source`, which may be empty",
        );
    }
    resource::contents(judge, &contents);
    for part in file.entries("append") {
        resource::contents(judge, &part);
        if part.words("source").is_none() {
            judge.warning(&part, "nothing is appended: the entry has no source");
        }
    }
    if contents.text("source").is_some() && !file.list("append").is_empty() {
        judge.warning(&file.get("append"), "both apply: appended data follows the contents");
    }
}

fn one_link(judge: &mut Judge, link: &At, directories: &HashSet<&str>) {
    let target = link.words("target");
    if target.is_none() {
        judge.error_since(3, &link.get("target"), "a target is required");
    }
    if link.flag("hard") != Some(true) {
        return;
    }
    let path = link.text("path").unwrap_or_default();
    let full = match target.unwrap_or_default() {
        absolute if absolute.starts_with('/') => clean(absolute),
        relative => clean(&format!("{path}/{relative}")),
    };
    if directories.contains(full.as_str()) {
        judge.error(link, "hard links to directories are not possible");
    }
    for owner in ["user", "group"] {
        for field in ["id", "name"] {
            if link.get(owner).has(field) {
                judge.warning(
                    &link.get(owner).get(field),
                    "a hard link always has the owner of its target",
                );
            }
        }
    }
}

/// Whether the mode is plausible: the owner can read, and has at least the group's permissions, which are at least
/// those of others.
fn plausible(mode: i64) -> bool {
    let (owner, group, others) = (mode >> 6 & 7, mode >> 3 & 7, mode & 7);
    owner & 4 != 0 && group & !owner == 0 && others & !group == 0
}

fn mode(judge: &mut Judge, node: &At) {
    let Some(mode) = node.number("mode") else {
        return;
    };
    let at = node.get("mode");
    let possible = (0..=0o7777).contains(&mode);
    let special = mode & 0o7000 != 0;
    let typed = i64::from_str_radix(&mode.to_string(), 8).ok();
    let meant = typed.filter(|typed| *typed <= 0o7777 && plausible(*typed));
    match meant.filter(|_| !possible || special || !plausible(mode)) {
        Some(meant) => {
            let text = format!("modes are decimal: {mode} is octal {mode:04o}; for octal {meant:04o}, write {meant}");
            match possible {
                true => judge.warning(&at, text),
                false => judge.error(&at, text),
            }
        }
        None if !possible => judge.error(&at, "a mode is 0 to 4095, octal 07777"),
        None if special && judge.rules < 6 => {
            judge.warning(&at, "before spec 3.6, the setuid, setgid and sticky bits are ignored");
        }
        None => {}
    }
}

/// What is wrong with a path that must be absolute and normalized.
pub fn path_fault(path: &str) -> Option<&'static str> {
    let odd = |part: &str| matches!(part, "" | "." | "..");
    if path.is_empty() {
        Some("a path is required")
    } else if !path.starts_with('/') {
        Some("the path is not absolute")
    } else if path != "/" && path[1..].split('/').any(odd) {
        Some("the path is not normalized: it contains `.`, `..`, `//` or a trailing slash")
    } else {
        None
    }
}

/// The normalized path.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            other => parts.push(other),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// All parents of a path: only `/a` for `/a/b`.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(slash, _)| &path[..slash])
}

/// Where Ignition writes units and drop-ins with contents.
fn unit_paths(systemd: &At) -> HashSet<String> {
    let mut paths = HashSet::new();
    for unit in systemd.entries("units") {
        let name = unit.text("name").unwrap_or_default();
        if unit.words("contents").is_some() {
            paths.insert(format!("/etc/systemd/system/{name}"));
        }
        for dropin in unit.entries("dropins") {
            if dropin.words("contents").is_some() {
                let dropin = dropin.text("name").unwrap_or_default();
                paths.insert(format!("/etc/systemd/system/{name}.d/{dropin}"));
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized_as_by_the_reference() {
        for (path, cleaned) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a//b/", "/a/b"),
            ("/../a", "/a"),
            ("/a/../..", "/"),
            ("a/./b", "a/b"),
            ("../a", "../a"),
            ("a/../../b", "../b"),
            ("a/..", "."),
            ("", "."),
        ] {
            assert_eq!(clean(path), cleaned, "{path}");
        }
    }
}
