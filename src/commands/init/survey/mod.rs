//! The questions of `ocpdeploy init` as data, and the answers; `commands/init` prompts for them.
//!
//! This module has no rules about values. `settings` checks an answer: it reads the env file as it would be with it.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;

use self::file::Answer;
use crate::backend::{Choice, SettingChoices};
use crate::cluster::BackendConfig;
use crate::settings::variables::{self, Kind, Variable};
use crate::settings::{self, ResolvedValue, SettingsError, Sources, profile};

/// What is asked when the platform's part is answered, addresses between cluster and sizes.
pub const CLUSTER: &[&str] = &["cluster", "domain", "profile", "masters", "workers"];
pub const SIZES: &[&str] = &["numcpus", "master_memory", "worker_memory", "disk_size"];
pub const ACCESS: &[&str] = &["version", "pub_key", "pull_secret"];

/// What most clusters leave as it is, and what it is about: asked only when it is chosen from a list.
const FURTHER: &[(&str, &str)] = &[
    ("harvest", "how pass one learns the IP addresses"),
    ("extra_networks", "additional NICs of the nodes"),
    ("extra_disks", "additional empty disks of masters and workers"),
    ("worker_backend", "another platform for the workers"),
    ("dns", "DNS server on the nodes"),
    ("lb", "load balancer of api_ip and ingress_ip"),
    ("dhcp", "where addresses are reserved"),
    ("ntp_servers", "NTP servers of the nodes"),
    ("http_proxy", "proxies of the nodes, and what to access without a proxy"),
    ("registry_mirrors", "registry mirrors"),
    ("ca", "CA certificates that the cluster trusts"),
];
/// Nothing of that list.
pub const NOTHING: &str = "none";
/// What is needed where nothing is harvested, besides the virtual IPs.
pub const STATIC: &[&str] = &["bootstrap_ip", "master_ips", "worker_ips"];

/// The setting of this name, if it is one that few change.
pub fn further(name: &str) -> Option<&'static str> {
    let found = FURTHER.iter().find(|(further, _)| *further == name);
    found.map(|(further, _)| *further)
}

/// The workers' own platform has settings of its own for what both have; `None`: it is not for workers.
pub fn of_workers(setting: &'static str) -> Option<&'static str> {
    match setting {
        "network" => Some("worker_network"),
        "image" => Some("worker_image"),
        "helper_image" => Some("worker_helper_image"),
        "os_external_network" | "os_bootstrap_flavor" | "os_master_flavor" | "os_arbiter_flavor" => None,
        other => Some(other),
    }
}

/// Sizes are left to the profile unless they differ from it, and what few change to its default.
///
/// Not so `harvest`, whose default hangs on the platform.
fn stays_default(setting: &str) -> bool {
    SIZES.contains(&setting)
        || ["masters", "workers"].contains(&setting)
        || further(setting).is_some_and(|further| further != "harvest")
}

/// May stay without an answer.
fn is_optional(setting: &str) -> bool {
    [
        "api_ip",
        "ca",
        "extra_disks",
        "extra_networks",
        "http_proxy",
        "https_proxy",
        "ingress_ip",
        "kube_context",
        "kubeconfig",
        "machine_network",
        "no_proxy",
        "ntp_servers",
        "os_cloud",
        "ovirt_ca",
        "pub_key",
        "pull_secret",
        "registry_mirrors",
        "version",
        "worker_backend",
    ]
    .contains(&setting)
}

/// One question.
#[derive(Clone, Debug)]
pub struct Question {
    pub setting: &'static str,
    pub text: String,
    /// Empty: the answer is typed.
    pub choices: Vec<Choice>,
    /// Something else than the choices may be typed.
    pub open: bool,
    /// Several of them, separated by commas, are one answer.
    pub many: bool,
    /// Taken when nothing is answered.
    pub default: Option<String>,
    /// Nothing is an answer where there is no default.
    pub optional: bool,
    pub secret: bool,
}

/// The answers so far, and what they are judged by.
#[derive(Clone)]
pub struct Survey<'a> {
    sources: Sources<'a>,
    path: PathBuf,
    answers: BTreeMap<&'static str, Answer>,
}

impl<'a> Survey<'a> {
    /// `sources` are this process's surroundings; settings in its environment do not count.
    pub fn new(path: PathBuf, mut sources: Sources<'a>) -> Self {
        sources
            .environment
            .retain(|name, _| !name.starts_with(settings::ENVIRONMENT));
        Self {
            sources,
            path,
            answers: BTreeMap::new(),
        }
    }

    /// The question for a setting, its text from the table of settings.
    pub fn question(&self, setting: &'static str) -> Question {
        let variable = variables::find(setting);
        let choices = match variable.map(|variable| variable.kind) {
            Some(Kind::Choice(choices)) => choices().iter().map(|value| Choice::new(*value, "")).collect(),
            _ if setting == "profile" => profile::SHIPPED
                .iter()
                .map(|(name, text)| Choice::new(*name, profile::about(text)))
                .collect(),
            _ => Vec::new(),
        };
        // The pull secret is asked for by its file, which is none.
        let secret = variable.is_some_and(|variable| variable.is_secret() && setting != "pull_secret");
        let default = self.usable_default(setting).filter(|_| !secret);
        Question {
            setting,
            text: variable.map_or(setting, |variable| variable.doc).to_owned(),
            open: setting == "profile",
            many: false,
            secret,
            optional: is_optional(setting),
            choices,
            default,
        }
    }

    /// The question for what a platform offers; something else may be typed, since a user may know of more than is shown.
    pub fn offered(&self, offered: SettingChoices) -> Question {
        let question = self.question(offered.setting);
        let is_there = |value: &String| offered.choices.iter().any(|choice| choice.value == *value);
        let sound = offered.choices.iter().find(|choice| choice.warning.is_none());
        let best = sound.filter(|_| !offered.optional).map(|choice| choice.value.clone());
        let default = match offered.choices.is_empty() {
            true => question.default,
            false => question.default.filter(is_there).or(best),
        };
        Question {
            default,
            open: true,
            optional: offered.optional,
            choices: offered.choices,
            ..question
        }
    }

    /// Which of the settings that few change is to be changed, with what each is now.
    pub fn further(&self) -> Question {
        let loaded = self.loaded();
        let choice = |(setting, about): &(&str, &str)| match self.value_in(loaded.as_deref(), setting) {
            Some(value) => Choice::new(*setting, format!("{about}: {value}")),
            None => Choice::new(*setting, *about),
        };
        let nothing = Choice::new(NOTHING, "finish");
        Question {
            setting: "optional settings",
            text: "Most clusters need none of these. Select a setting to enter its value.".to_owned(),
            choices: std::iter::once(nothing).chain(FURTHER.iter().map(choice)).collect(),
            open: false,
            many: false,
            default: Some(NOTHING.to_owned()),
            optional: false,
            secret: false,
        }
    }

    /// What a deployment would take now: a platform may have defaults of its own.
    pub fn in_effect(&self, setting: &str) -> Option<String> {
        self.value_in(self.loaded().as_deref(), setting)
    }

    /// All settings as a deployment would take them; `None`: they are not whole yet, and so not known.
    fn loaded(&self) -> Option<Vec<ResolvedValue>> {
        let loaded = settings::load(&self.sources_with(&self.answers)).ok()?;
        Some(loaded.values)
    }

    /// One of them, or where they are not known what was answered.
    fn value_in(&self, loaded: Option<&[ResolvedValue]>, setting: &str) -> Option<String> {
        let Some(values) = loaded else {
            return self.value(setting).map(str::to_owned);
        };
        let found = values.iter().find(|value| value.name == setting)?;
        Some(found.value.clone()).filter(|value| !value.is_empty())
    }

    /// What the settings take without an answer, where that would do.
    fn usable_default(&self, setting: &'static str) -> Option<String> {
        self.default_of(setting)
            .filter(|default| self.problem(setting, default).is_none())
    }

    fn default_of(&self, setting: &str) -> Option<String> {
        let values = settings::resolve(&self.sources_with(&self.answers)).ok()?;
        let found = values.into_iter().find(|value| value.name == setting)?;
        Some(found.value).filter(|value| !value.is_empty())
    }

    fn sources_with(&self, answers: &BTreeMap<&'static str, Answer>) -> Sources<'a> {
        Sources {
            env_file: Some((self.path.clone(), file::render(answers).text)),
            ..self.sources.clone()
        }
    }

    /// Why a value will not do, as the settings say it of the file with this value in it.
    pub fn problem(&self, setting: &'static str, value: &str) -> Option<String> {
        let mut answers = self.answers.clone();
        let answer = Answer {
            written: setting.to_owned(),
            value: self.written_out(setting, value),
            is_default: false,
        };
        answers.insert(setting, answer);
        let lines = file::render(&answers).lines;
        let error = settings::load(&self.sources_with(&answers)).err()?;
        // What is still missing has no line. Before this answer no line was wrong, so that one which is now is so by it.
        let of_answer = |place: &String| {
            let line = place.rsplit_once(':').and_then(|(_, line)| line.parse().ok());
            line.is_some_and(|line: usize| lines.values().any(|known| *known == line))
        };
        let problem = error
            .problems
            .into_iter()
            .find(|problem| problem.places.iter().any(of_answer))?;
        Some(match problem.help {
            Some(help) => format!("{}\n{help}", problem.message),
            None => problem.message,
        })
    }

    /// Keeps an answer. A `~/` is written out, since it means something in a shell only.
    pub fn answer(&mut self, setting: &'static str, value: &str) {
        // What was answered before is not the default.
        self.forget(setting);
        let is_default = stays_default(setting) && self.default_of(setting).as_deref() == Some(value);
        let answer = Answer {
            written: setting.to_owned(),
            value: self.written_out(setting, value),
            is_default,
        };
        self.answers.insert(setting, answer);
    }

    /// As if it had not been asked for.
    pub fn forget(&mut self, setting: &str) {
        self.answers.remove(setting);
    }

    /// A value with the home folder in place of a `~`, where it names a file.
    fn written_out(&self, setting: &str, value: &str) -> String {
        let names_file = variables::find(setting).is_some_and(names_file);
        let home = self.sources.environment.get("HOME");
        match (value.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) if names_file => format!("{home}/{rest}"),
            _ => value.to_owned(),
        }
    }

    /// Puts the name of its file in place of a secret.
    pub fn answer_by_file(&mut self, setting: &'static str, file: &str) {
        let answer = Answer {
            written: format!("{setting}_file"),
            value: file.to_owned(),
            is_default: false,
        };
        self.answers.insert(setting, answer);
    }

    pub fn value(&self, setting: &str) -> Option<&str> {
        self.answers.get(setting).map(|answer| answer.value.as_str())
    }

    /// The platform that the answers describe.
    pub fn platform(&self) -> Result<BackendConfig, SettingsError> {
        settings::load_platform(&self.sources_with(&self.answers))
    }

    /// The platform of this name by what was answered for it, be it the workers' own.
    pub fn platform_of(&self, backend: &str) -> Result<BackendConfig, SettingsError> {
        let mut alone = self.clone();
        alone.answer("backend", backend);
        alone.platform()
    }

    /// What the settings say of the whole file: warnings, or what it still lacks.
    pub fn verdict(&self) -> Result<Vec<String>, SettingsError> {
        settings::load(&self.sources_with(&self.answers)).map(|loaded| loaded.warnings)
    }

    /// The env file.
    pub fn text(&self) -> String {
        file::render(&self.answers).text
    }
}

fn names_file(variable: &Variable) -> bool {
    matches!(variable.kind, Kind::Path) || variable.name == "pull_secret"
}

#[cfg(test)]
mod tests;
