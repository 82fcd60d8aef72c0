//! Detects before the first boot what Ignition would reject, and what it would accept with an unexpected result.
//!
//! An error is what keeps a machine from booting: what Ignition rejects by the rules of the config's spec version, and
//! in `check_first_boot` also what it accepts and then fails on. Everything else is a warning. Source of the rules:
//! coreos/ignition, `config/v3_*/types/*.go`.

pub(super) mod at;
mod coreos;
mod data_url;
mod disks;
mod escape;
mod first_boot;
mod judge;
mod nodes;
mod resource;
mod shape;
mod traps;
mod two;
mod unit_text;
mod units;
mod url;
mod users;

use serde_json::Value;

use self::at::At;
use self::judge::Judge;
use super::document;
use super::version::{Major, Version};

pub use self::traps::traps;
pub use super::finding::{Finding, Severity, is_refused};

/// Checks one config by the rules of its own version, as Ignition does before it changes anything.
pub fn check(config: &Value) -> Vec<Finding> {
    judge(config, Rules::OfItsVersion)
}

/// As `check`, and what Ignition fails on when CoreOS boots with this config.
pub fn check_first_boot(config: &Value) -> Vec<Finding> {
    judge(config, Rules::OfFirstBoot)
}

/// Checks the result of a merge: Ignition translates all parts to the newest version it supports and applies that
/// version's rules.
pub fn check_merged(config: &Value) -> Vec<Finding> {
    judge(config, Rules::Newest)
}

/// Reports a config whose spec the intended CoreOS does not support: no CoreOS supports both.
pub fn other_major(config: &Value, wanted: Major) -> Option<Finding> {
    let version = document::known_version(config).ok()?;
    let text = match (version.major, wanted) {
        (Major::Two, Major::Three) => "spec 2 is for OpenShift 4.1 to 4.5: later releases of CoreOS reject it",
        (Major::Three, Major::Two) => "spec 3 is for OpenShift 4.6 and later: earlier releases of CoreOS reject it",
        _ => return None,
    };
    Some(Finding {
        severity: Severity::Error,
        path: "$.ignition.version".to_owned(),
        text: text.to_owned(),
    })
}

/// The config in the newest version that a CoreOS reads.
///
/// # Errors
/// What `newest` does not have: the findings that the config has only in this version.
pub fn in_version(config: &Value, newest: Version) -> Result<Value, Vec<Finding>> {
    let newer = document::known_version(config).is_ok_and(|own| own.major == newest.major && own > newest);
    let mut older = config.clone();
    if newer && let Some(version) = older.pointer_mut("/ignition/version") {
        *version = newest.to_string().into();
    }
    let known = check(config);
    let only_older: Vec<_> = check(&older)
        .into_iter()
        .filter(|finding| !known.contains(finding))
        .collect();
    match only_older.is_empty() {
        true => Ok(older),
        false => Err(only_older),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    OfItsVersion,
    OfFirstBoot,
    Newest,
}

/// The version that Ignition 2.20 translates to; the tests' corpus was recorded with it.
const NEWEST: u32 = 5;

fn judge(config: &Value, rules: Rules) -> Vec<Finding> {
    let root = At::root(config);
    let version = match document::known_version(config) {
        Ok(version) => version,
        Err(text) => {
            return vec![Finding {
                severity: Severity::Error,
                path: "$.ignition.version".to_owned(),
                text,
            }];
        }
    };
    let mut judge = Judge {
        spec: version.minor,
        rules: match rules {
            Rules::OfItsVersion | Rules::OfFirstBoot => version.minor,
            Rules::Newest => version.minor.max(NEWEST),
        },
        found: Vec::new(),
        mistyped: Vec::new(),
    };
    if version.major == Major::Two {
        two::config(&mut judge, &root);
        return judge.found;
    }

    shape::config(&mut judge, &root);
    if rules == Rules::Newest {
        // Warnings were already reported for each part.
        judge.found.retain(|finding| finding.severity == Severity::Error);
    }
    ignition(&mut judge, &root);
    users::passwd(&mut judge, &root.get("passwd"));
    nodes::storage(&mut judge, &root);
    disks::storage(&mut judge, &root.get("storage"));
    units::systemd(&mut judge, &root.get("systemd"));
    if rules == Rules::OfFirstBoot {
        first_boot::config(&mut judge, &root);
    }
    judge.found
}

/// What is fetched first, and how.
fn ignition(judge: &mut Judge, root: &At) {
    let ignition = root.get("ignition");
    let config = ignition.get("config");
    for entry in config.entries("merge") {
        resource::reference(judge, &entry);
        if entry.words("source").is_none() {
            judge.error_since(1, &entry, "a source is required");
        }
    }
    let replace = config.get("replace");
    resource::reference(judge, &replace);
    if replace.words("source").is_some() {
        for section in ["kernelArguments", "passwd", "storage", "systemd"] {
            let section = root.get(section);
            if section.value.as_object().is_some_and(|fields| !fields.is_empty()) {
                judge.warning(
                    &section,
                    "`ignition.config.replace` discards this config: none of it is applied",
                );
            }
        }
    }
    for authority in ignition.get("security").get("tls").entries("certificateAuthorities") {
        resource::reference(judge, &authority);
        if authority.words("source").is_none() {
            judge.error(&authority, "a source is required");
        }
    }
    if judge.spec >= 1 {
        let proxy = ignition.get("proxy");
        for (name, secure) in [("httpProxy", false), ("httpsProxy", true)] {
            let at = proxy.get(name);
            match proxy.text(name).map(url::parse) {
                None => {}
                Some(Err(reason)) => judge.error(&at, reason),
                Some(Ok(url)) => match url.scheme.as_str() {
                    "https" => {}
                    "http" if secure => judge.warning(&at, "https requests are sent to this proxy unencrypted"),
                    "http" => {}
                    _ => judge.error(&at, "the URL of a proxy must use http or https"),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
