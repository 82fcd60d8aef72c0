//! The questions of `ocpdeploy init` as data, and what was answered: who asks is `commands/init`.
//!
//! No rule about a value stands here. An answer is judged by `settings`, which reads the env file as it would be with
//! this answer in it.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::backend::{Choice, Offered};
use crate::cluster::BackendConfig;
use crate::settings::variables::{self, Kind, Status, Variable};
use crate::settings::{self, SettingsError, Sources, profile};

pub use file::quoted;

/// Settings without which a platform cannot be asked anything, in the order in which they are asked.
pub fn way_to(backend: &str) -> &'static [&'static str] {
    match backend {
        "libvirt" => &["libvirt_uri"],
        "ovirt" => &["ovirt_url", "ovirt_user", "ovirt_password", "ovirt_ca"],
        "openstack" => &["os_cloud"],
        "kubevirt" => &["kubeconfig", "kube_context"],
        "sim" => &["sim_state"],
        _ => &[],
    }
}

/// What is asked when the platform's part is answered, addresses between cluster and sizes.
pub const CLUSTER: &[&str] = &["cluster", "domain", "profile", "masters", "workers"];
pub const SIZES: &[&str] = &["numcpus", "master_memory", "worker_memory", "disk_size"];
pub const ACCESS: &[&str] = &["version", "pub_key", "pull_secret"];

/// Sizes are left to the profile unless they differ from it.
fn stays_default(setting: &str) -> bool {
    SIZES.contains(&setting) || ["masters", "workers"].contains(&setting)
}

/// May stay without an answer.
fn is_optional(setting: &str) -> bool {
    [
        "api_ip",
        "ingress_ip",
        "kube_context",
        "kubeconfig",
        "machine_network",
        "os_cloud",
        "ovirt_ca",
        "pub_key",
        "pull_secret",
        "version",
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
    /// Taken when nothing is answered.
    pub default: Option<String>,
    /// Nothing is an answer where there is no default.
    pub optional: bool,
    pub secret: bool,
}

/// How an answer goes into the env file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The setting's name, or `<name>_file` for a secret in a file of its own.
    pub written: String,
    pub value: String,
    /// What the settings would take anyway: shown as a comment.
    pub is_default: bool,
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
            Some(Kind::Choice(values)) => values.iter().map(|value| Choice::new(*value, "")).collect(),
            _ if setting == "profile" => profile::SHIPPED
                .iter()
                .map(|(name, text)| Choice::new(*name, profile::about(text)))
                .collect(),
            _ => Vec::new(),
        };
        // The pull secret is asked for by its file, which is none.
        let secret = variable.is_some_and(|variable| variable.secret && setting != "pull_secret");
        let default = self.usable_default(setting).filter(|_| !secret);
        Question {
            setting,
            text: variable.map_or(setting, |variable| variable.doc).to_owned(),
            open: setting == "profile",
            secret,
            optional: is_optional(setting),
            choices,
            default,
        }
    }

    /// The question for what a platform offers; something else may be typed, since a user may know of more than is shown.
    pub fn offered(&self, offered: Offered) -> Question {
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
        let is_default = stays_default(setting) && self.default_of(setting).as_deref() == Some(value);
        let answer = Answer {
            written: setting.to_owned(),
            value: self.written_out(setting, value),
            is_default,
        };
        self.answers.insert(setting, answer);
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

    /// Whether the file will hold a secret itself.
    pub fn holds_secret(&self) -> bool {
        self.answers.iter().any(|(setting, answer)| {
            let is_secret = variables::find(setting).is_some_and(|variable| variable.secret);
            // As `settings` sees it: what is no JSON is the name of a file.
            let names_file = *setting == "pull_secret" && !answer.value.contains(['{', '"']);
            is_secret && !names_file && answer.written == *setting
        })
    }

    /// The platform that the answers describe.
    pub fn platform(&self) -> Result<BackendConfig, SettingsError> {
        settings::load_platform(&self.sources_with(&self.answers))
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
    variable.status == Status::Used && (variable.kind == Kind::Path || variable.name == "pull_secret")
}

#[cfg(test)]
mod tests;
