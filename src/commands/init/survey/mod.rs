//! The questions of `ocpdeploy init` as data, and the answers; `commands/init` prompts for them.
//!
//! This module has no rules about values: `settings` checks an answer as part of the resulting env file.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;

use self::file::Answer;
use crate::backend::{Choice, HostCapacity, SettingChoices};
use crate::cluster::BackendConfig;
use crate::printable::count;
use crate::settings::variables::{self, Kind, Variable};
use crate::settings::{self, ResolvedValue, SettingsError, Sources, parse, profile};

/// The questions after those about the platform. The addresses come between `CLUSTER` and `SIZES`.
pub const CLUSTER: &[&str] = &["cluster", "domain", "profile", "masters", "workers"];
pub const SIZES: &[&str] = &["numcpus", "master_memory", "worker_memory", "disk_size"];
pub const ACCESS: &[&str] = &["version", "pub_key", "pull_secret"];

/// Settings that most clusters do not change, with a description: asked only if selected from a list.
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
/// The choice of none of these.
pub const NOTHING: &str = "none";
/// The addresses that static addresses require, besides the virtual IPs.
pub const STATIC: &[&str] = &["bootstrap_ip", "master_ips", "worker_ips"];

/// The setting of this name, if it is one of `FURTHER`.
pub fn further(name: &str) -> Option<&'static str> {
    let found = FURTHER.iter().find(|(further, _)| *further == name);
    found.map(|(further, _)| *further)
}

/// The setting of the workers' own platform in place of this one; `None` if it does not concern workers.
pub fn of_workers(setting: &'static str) -> Option<&'static str> {
    match setting {
        "network" => Some("worker_network"),
        "image" => Some("worker_image"),
        "harvest_image" => Some("worker_harvest_image"),
        "os_external_network" | "os_bootstrap_flavor" | "os_master_flavor" | "os_arbiter_flavor" => None,
        other => Some(other),
    }
}

/// Whether an answer that equals the default is written as a comment: sizes, and settings of `FURTHER`.
///
/// Not `harvest`, because its default depends on the platform.
fn stays_default(setting: &str) -> bool {
    SIZES.contains(&setting)
        || ["masters", "workers"].contains(&setting)
        || further(setting).is_some_and(|further| further != "harvest")
}

/// Whether the setting may remain without an answer.
fn is_optional(setting: &str) -> bool {
    [
        "api_ip",
        "ca",
        "extra_disks",
        "extra_networks",
        "http_proxy",
        "https_proxy",
        "ingress_ip",
        "kubevirt_context",
        "kubevirt_kubeconfig",
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

/// The profile that requires the least memory.
const SMALLEST: &str = "laptop";

/// What a host lacks.
fn shortage(host: &HostCapacity, needs: &HostCapacity) -> Option<String> {
    let has = match (needs.cpus, host.cpus) {
        _ if needs.memory_mib > host.memory_mib => gib(host.memory_mib),
        (Some(needs), Some(has)) if needs > has => {
            return Some(format!("{} for each machine, the host has {has}", count(needs, "CPU")));
        }
        _ => return None,
    };
    Some(format!("the host has {has}"))
}

/// `31.2 GiB`, `24 GiB`.
fn gib(mib: u64) -> String {
    match (mib / 1024, mib % 1024 * 10 / 1024) {
        (whole, 0) => format!("{whole} GiB"),
        (whole, tenth) => format!("{whole}.{tenth} GiB"),
    }
}

/// One question.
#[derive(Clone, Debug)]
pub struct Question {
    pub setting: &'static str,
    pub text: String,
    /// Empty: the answer is typed.
    pub choices: Vec<Choice>,
    /// The user may type another value than the choices.
    pub open: bool,
    /// The answer is a list of choices, separated by commas.
    pub many: bool,
    /// The value of an empty answer.
    pub default: Option<String>,
    /// Without a default, an empty answer is valid.
    pub optional: bool,
    pub secret: bool,
}

/// The answers so far, and the sources to check them with.
#[derive(Clone)]
pub struct Survey<'a> {
    sources: Sources<'a>,
    /// Settings in the environment, which are the defaults of their questions.
    environment: BTreeMap<&'static str, String>,
    path: PathBuf,
    answers: BTreeMap<&'static str, Answer>,
}

impl<'a> Survey<'a> {
    /// `sources` are those of this process. The env file must be complete without the settings in its environment.
    pub fn new(path: PathBuf, mut sources: Sources<'a>) -> Self {
        let (own, others) = std::mem::take(&mut sources.environment)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(name, _)| name.starts_with(settings::ENVIRONMENT));
        sources.environment = others;
        let setting = |(name, value): (String, String)| {
            let name = name.strip_prefix(settings::ENVIRONMENT)?.to_ascii_lowercase();
            Some((variables::find(&name)?.name, value))
        };
        Self {
            sources,
            environment: own.into_iter().filter_map(setting).collect(),
            path,
            answers: BTreeMap::new(),
        }
    }

    /// The question for a setting, with the help of the table of settings.
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
        // The answer for the pull secret is the name of its file, which is not secret.
        let secret = variable.is_some_and(|variable| variable.is_secret() && setting != "pull_secret");
        let default = self.usable_default(setting).filter(|_| !secret);
        let default = self.of_environment(setting).or(default);
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

    /// The question for the profile, with what each requires beside what the host has; and a warning if the usual one
    /// does not fit, and so is not preselected.
    pub fn profile(&self, host: Option<&HostCapacity>) -> (Question, Option<String>) {
        let mut question = self.question("profile");
        for choice in &mut question.choices {
            let Some(needs) = self.needs(&choice.value) else {
                continue;
            };
            // First, because a narrow terminal cuts the line.
            let lacks = host.and_then(|host| shortage(host, &needs));
            let lacks = lacks.map_or(String::new(), |lacks| format!(" (warning: {lacks})"));
            choice.about = format!("{} of memory{lacks}: {}", gib(needs.memory_mib), choice.about);
        }
        let (Some(host), Some(usual)) = (host, question.default.clone()) else {
            return (question, None);
        };
        let (Some(needs), Some(least)) = (self.needs(&usual), self.needs(SMALLEST)) else {
            return (question, None);
        };
        if needs.memory_mib <= host.memory_mib {
            return (question, None);
        }
        let has = gib(host.memory_mib);
        let requires = |name: &str, needs: &HostCapacity| {
            let of = |setting| self.of_profile(name, setting).unwrap_or_default();
            let (masters, workers) = (count(of("masters"), "master"), count(of("workers"), "worker"));
            format!(
                "{name}, with {masters} and {workers}, requires {}",
                gib(needs.memory_mib)
            )
        };
        let (usual, smallest) = (requires(&usual, &needs), requires(SMALLEST, &least));
        let fits = least.memory_mib <= host.memory_mib;
        question.default = fits.then(|| SMALLEST.to_owned());
        let so = match fits {
            true => "such a cluster does not survive the failure of its master",
            false => "an installation does not fit, a rehearsal does",
        };
        let warning = format!("the host has {has} of memory: {usual}; {smallest}; {so}");
        (question, Some(warning))
    }

    /// The memory of all machines of a profile's cluster while it is installed, and the CPUs of the largest one.
    fn needs(&self, profile: &str) -> Option<HostCapacity> {
        let number = |setting| self.of_profile(profile, setting);
        let masters = number("masters")? * number("master_memory")?;
        let workers = number("workers")? * number("worker_memory")?;
        Some(HostCapacity {
            memory_mib: number("bootstrap_memory")? + masters + workers,
            cpus: Some(number("numcpus")?.max(number("bootstrap_numcpus")?)),
        })
    }

    /// A number in the settings with this profile.
    fn of_profile(&self, profile: &str, setting: &str) -> Option<u64> {
        let mut with = self.clone();
        with.answer("profile", profile);
        let kind = variables::find(setting)?.kind;
        parse::number(&with.default_of(setting)?, kind).ok()
    }

    /// The question for a setting with choices of the platform. The list may be incomplete, so other values are valid.
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

    /// The question which setting of `FURTHER` to change, with the current value of each.
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

    /// The value that a deployment would use now, including the platform's defaults.
    pub fn in_effect(&self, setting: &str) -> Option<String> {
        self.value_in(self.loaded().as_deref(), setting)
    }

    /// All settings that a deployment would use; `None` while required settings are missing.
    fn loaded(&self) -> Option<Vec<ResolvedValue>> {
        let loaded = settings::load(&self.sources_with(&self.answers)).ok()?;
        Some(loaded.values)
    }

    /// The value of one of them; if they are not known, the answer.
    fn value_in(&self, loaded: Option<&[ResolvedValue]>, setting: &str) -> Option<String> {
        let Some(values) = loaded else {
            return self.value(setting).map(str::to_owned);
        };
        let found = values.iter().find(|value| value.name == setting)?;
        Some(found.value.clone()).filter(|value| !value.is_empty())
    }

    /// The variables in the environment that differ from the answers, and override them.
    pub fn overriding(&self) -> Vec<String> {
        let set = self.environment.iter().filter(|(_, value)| !value.is_empty());
        set.filter(|(name, value)| self.value(name) != Some(value.as_str()))
            .map(|(name, _)| format!("{}{}", settings::ENVIRONMENT, name.to_ascii_uppercase()))
            .collect()
    }

    /// The value of a setting in the environment, if it is valid and not a secret.
    fn of_environment(&self, setting: &'static str) -> Option<String> {
        let value = self.environment.get(setting).filter(|value| !value.is_empty())?;
        let is_usable = settings::storable(setting, value) == value && self.problem(setting, value).is_none();
        is_usable.then(|| value.clone())
    }

    /// The default of a setting, if it is valid.
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

    /// The problem that this value causes in the env file, if any.
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
        // A missing setting has no line. All earlier lines were valid, so an invalid line is due to this answer.
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

    /// Stores an answer. Expands a `~/`, which has a meaning only in a shell.
    pub fn answer(&mut self, setting: &'static str, value: &str) {
        // An earlier answer must not count as the default.
        self.forget(setting);
        let is_default = stays_default(setting) && self.default_of(setting).as_deref() == Some(value);
        let answer = Answer {
            written: setting.to_owned(),
            value: self.written_out(setting, value),
            is_default,
        };
        self.answers.insert(setting, answer);
    }

    /// Removes the answer.
    pub fn forget(&mut self, setting: &str) {
        self.answers.remove(setting);
    }

    /// A value; in the name of a file, `~` is replaced by the home directory.
    fn written_out(&self, setting: &str, value: &str) -> String {
        let names_file = variables::find(setting).is_some_and(names_file);
        let home = self.sources.environment.get("HOME");
        match (value.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) if names_file => format!("{home}/{rest}"),
            _ => value.to_owned(),
        }
    }

    /// Replaces a secret by the name of its file.
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

    /// The platform of this name with its answers, also if it is the workers' own.
    pub fn platform_of(&self, backend: &str) -> Result<BackendConfig, SettingsError> {
        let mut alone = self.clone();
        alone.answer("backend", backend);
        alone.platform()
    }

    /// The check of the whole file: warnings, or the remaining problems.
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
