//! Tells before the first boot what Ignition would refuse, and what it would take without doing what was meant.
//!
//! An error is what Ignition itself refuses, by the rules of the version of the spec that the config names; a
//! warning is all else. Source of the rules: coreos/ignition, `config/v3_*/types/*.go`.

mod at;
mod data_url;
mod disks;
mod nodes;
mod resource;
mod shape;
mod traps;
mod two;
mod unit_text;
mod units;
mod url;
mod users;

use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;

use self::at::At;
use super::{Major, document};

pub use self::at::shown;
pub use self::traps::traps;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Ignition takes the config, but it does not do what it looks like.
    Warning,
    /// Ignition refuses the config: the machine would not boot.
    Error,
}

/// One thing that was found in a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The place, in Ignition's own form: `$.storage.files.0.mode`.
    pub path: String,
    pub text: String,
}

/// Whether Ignition would refuse the config.
pub fn is_refused(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Judges one config by the rules of the version it is written in.
pub fn check(config: &Value) -> Vec<Finding> {
    judge(config, Rules::OfItsVersion)
}

/// Judges the result of a merge: Ignition translates all parts to the newest version it knows, and goes by that.
pub fn check_merged(config: &Value) -> Vec<Finding> {
    judge(config, Rules::Newest)
}

/// Says so when a config is not in the language of the CoreOS it is for: none reads both.
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    OfItsVersion,
    Newest,
}

/// What Ignition 2.20 translates to, with which the corpus of our tests was recorded.
const NEWEST: u32 = 5;

/// More than anybody reads; what is no config at all would give as many as it has bytes.
const MOST_FINDINGS: usize = 1000;

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
            Rules::OfItsVersion => version.minor,
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
        // Each part was told so already.
        judge.found.retain(|finding| finding.severity == Severity::Error);
    }
    ignition(&mut judge, &root);
    users::passwd(&mut judge, &root.get("passwd"));
    nodes::storage(&mut judge, &root);
    disks::storage(&mut judge, &root.get("storage"));
    units::systemd(&mut judge, &root.get("systemd"));
    judge.found
}

/// What is known while a config is judged, and what was found.
struct Judge {
    /// The minor version the config is written in: fields that are newer are not there.
    spec: u32,
    /// The minor version whose rules hold.
    rules: u32,
    found: Vec<Finding>,
    /// Places of values of a wrong type. They count as absent, and nothing is said of that where it is missed.
    mistyped: Vec<String>,
}

impl Judge {
    fn error(&mut self, at: &At, text: impl Display) {
        self.add(Severity::Error, at, text);
    }

    fn warning(&mut self, at: &At, text: impl Display) {
        self.add(Severity::Warning, at, text);
    }

    /// An error of newer versions is a warning in older ones: the config alone passes, and what becomes of it is
    /// judged by the newest rules all the same.
    fn error_since(&mut self, minor: u32, at: &At, text: impl Display) {
        if self.rules >= minor {
            self.error(at, text);
        } else {
            let ours = self.spec;
            self.warning(
                at,
                format_args!("{text}: allowed in 3.{ours}, but Ignition rejects it after the merge"),
            );
        }
    }

    fn mistyped(&mut self, at: &At, text: impl Display) {
        self.error(at, text);
        if self.found.len() < MOST_FINDINGS {
            self.mistyped.push(at.to_string());
        }
    }

    fn add(&mut self, severity: Severity, at: &At, text: impl Display) {
        // The first error is told in any case: it decides.
        if self.found.len() >= MOST_FINDINGS && (severity == Severity::Warning || is_refused(&self.found)) {
            return;
        }
        let path = at.to_string();
        // The wrong value itself, what is around it and what would be within.
        let same = |mistyped: &String| {
            let (short, long) = if mistyped.len() < path.len() {
                (mistyped, &path)
            } else {
                (&path, mistyped)
            };
            long.strip_prefix(short)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !self.mistyped.iter().any(same) {
            let text = text.to_string();
            self.found.push(Finding { severity, path, text });
        }
    }
}

/// What is fetched before anything is made, and by which way.
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
