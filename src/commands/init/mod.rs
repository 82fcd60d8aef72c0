//! `ocpdeploy init`: connects to the platform, asks for settings with its choices, writes an env file.

mod ask;
mod connection;
mod interview;
mod line;
mod optional;
#[cfg(feature = "ovirt")]
mod ovirt_ca;
pub mod survey;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::ask::{Ask, Back, How};
use self::interview::{Interview, may_write};
use self::survey::{Question, Survey};
use super::output::{print, tell};
use super::session::{Session, end, runtime};
use crate::backend::connect::require;
use crate::backend::{Choice, Finding, SettingChoices};
use crate::cli::Init;
use crate::error::{ErrorKind, OperationError};
use crate::printable::printable_block;
use crate::settings::{SettingsError, variables};
use crate::state::home::write_where_asked;

pub fn run(session: &Session, command: &Init) -> Result<()> {
    let ask = Ask::new();
    let path = std::path::absolute(&command.output).context("find the env file's directory")?;
    if path.is_dir() {
        let text = format!("{} is a directory", path.display());
        return Err(OperationError::new(ErrorKind::Usage, text)
            .hint("name a file with -o")
            .into());
    }
    may_write(&ask, &path, "choose another name with -o")?;
    let kept = kept_answers(&path);
    if let (How::Terminal, Ok(answers)) = (&ask.how, std::fs::read_to_string(&kept))
        && let Some(count) = ask.give_again(&answers)
        && !ask.agree(
            &format!("continue with the {count} answers in {}?", kept.display()),
            true,
        )?
    {
        ask.give_again("[]");
    }
    let sources = session.surroundings()?;
    let mut interview = Interview {
        ask,
        survey: Survey::new(path.clone(), sources.clone()),
        path: path.clone(),
        asked: BTreeSet::new(),
        host: None,
    };
    if let How::Terminal = interview.ask.how {
        tell("Escape in a list, or `<` in a line, goes back to the previous question; Ctrl-C keeps the answers.");
    }
    let runtime = runtime()?;
    let asked = loop {
        match runtime.block_on(interview.conduct(session, command.backend.as_deref())) {
            Err(error) if error.is::<Back>() => {
                interview.ask.step_back();
                interview.survey = Survey::new(path.clone(), sources.clone());
                interview.asked.clear();
            }
            asked => break asked,
        }
    };
    end(runtime);
    match (asked, &interview.ask.how) {
        (Ok(()), _) => {
            interview.write(&command.output)?;
            let overriding = interview.survey.overriding();
            if !overriding.is_empty() {
                tell(&format!(
                    "warning: set in the environment, and overrides the env file: {}",
                    overriding.join(", ")
                ));
            }
            let _ = std::fs::remove_file(&kept);
            Ok(())
        }
        (Err(error), How::Terminal) => Err(keep(&interview.ask, &kept, error)),
        (Err(error), How::Lines) => Err(error),
    }
}

/// The file for the answers of an incomplete interview: `env.sh.answers` for `env.sh`.
fn kept_answers(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".answers");
    name.into()
}

/// Keeps the answers, tells the user where, and returns the error.
fn keep(ask: &Ask, to: &Path, error: anyhow::Error) -> anyhow::Error {
    match ask.kept().map(|answers| write_where_asked(to, answers.as_bytes())) {
        Some(Ok(())) => {
            tell(&format!(
                "the answers are kept in {}: run the same command again to continue",
                to.display()
            ));
        }
        Some(Err(failed)) => tell(&format!("the answers are not kept: {}: {failed}", to.display())),
        None => {}
    }
    error
}

impl Interview {
    async fn conduct(&mut self, session: &Session, backend: Option<&str>) -> Result<()> {
        self.backend(backend)?;
        let backend = self.survey.value("backend").unwrap_or_default().to_owned();
        require(&backend)?;
        for setting in variables::connection_settings(&backend) {
            self.connection(setting).await?;
        }
        self.platform(&backend, Some).await?;
        for setting in survey::CLUSTER {
            match *setting {
                "profile" => self.profile()?,
                setting => self.put(self.survey.question(setting))?,
            }
        }
        self.addresses(session).await?;
        for setting in survey::SIZES {
            self.put(self.survey.question(setting))?;
        }
        for setting in survey::ACCESS {
            self.put(self.access(setting))?;
            if *setting == "pull_secret" {
                self.require_pull_secret()?;
            }
        }
        self.optional(session).await?;
        self.keep_password()
    }

    /// Asks for the profile. The first one that the host has enough memory for is preselected.
    fn profile(&mut self) -> Result<()> {
        let (question, warning) = self.survey.profile(self.host.as_ref());
        if let Some(warning) = warning {
            self.ask.tell(&Finding::warn(warning));
        }
        self.put(question)
    }

    /// Asks again for a pull secret that the release requires, unless the user wants to add it later.
    fn require_pull_secret(&mut self) -> Result<()> {
        // Without a version, the installer in PATH decides.
        let is_okd = self
            .survey
            .value("version")
            .is_none_or(|version| version.starts_with("okd"));
        if is_okd || self.survey.value("pull_secret").is_some() {
            return Ok(());
        }
        let finding = Finding::warn("OpenShift requires a pull secret, and `deploy` fails without it");
        self.ask.tell(&finding.hint(
            "download it from https://console.redhat.com/openshift/install/pull-secret; version=okd requires none",
        ));
        match self.ask.how {
            How::Terminal => self.put(self.access("pull_secret")),
            // A script has no answer to a second question.
            How::Lines => Ok(()),
        }
    }

    fn backend(&mut self, given: Option<&str>) -> Result<()> {
        let Some(given) = given else {
            return self.put(self.survey.question("backend"));
        };
        if let Some(problem) = self.survey.problem("backend", given) {
            return Err(OperationError::new(ErrorKind::Usage, format!("--backend: {problem}")).into());
        }
        self.survey.answer("backend", given);
        Ok(())
    }

    /// Asks for the machines' network if the platform cannot report it, and for the virtual IPs.
    async fn addresses(&mut self, session: &Session) -> Result<()> {
        let (mut facts, holds) = self.network().await?;
        if facts.cidr.is_none() {
            let question = self.survey.question("machine_network");
            let optional = !self.survey.platform()?.requires_machine_network();
            self.put(Question { optional, ..question })?;
            facts.cidr = self.machine_network();
        }
        self.vips(session, &facts, holds, true)
    }

    fn access(&self, setting: &'static str) -> Question {
        let choices = match setting {
            "version" => vec![
                Choice::new("stable", "the latest OpenShift, downloaded and verified"),
                Choice::new("okd", "the latest OKD, requires no subscription"),
            ],
            "pub_key" => public_keys(),
            _ => return self.survey.question(setting),
        };
        let question = self.survey.offered(SettingChoices::new(setting, choices));
        Question {
            optional: true,
            ..question
        }
    }

    /// Writes the env file, and secrets to their own files.
    fn write(&mut self, shown: &Path) -> Result<()> {
        match self.survey.verdict() {
            Ok(warnings) => warnings
                .iter()
                .for_each(|warning| tell(&format!("warning: {}", printable_block(warning)))),
            Err(SettingsError { problems }) => {
                tell("\nfix these problems before you deploy:");
                problems
                    .iter()
                    .for_each(|problem| tell(&format!("  {}", printable_block(&problem.message))));
            }
        }
        write_where_asked(&self.path, self.survey.text().as_bytes())?;
        print(&format!("written to {}\n", shown.display()))?;
        tell(
            "\nnext:\n  ocpdeploy check    checks all requirements\n  ocpdeploy plan     shows what would be created\n  \
             ocpdeploy deploy   deploys the cluster",
        );
        Ok(())
    }
}

/// The public keys in `~/.ssh`.
fn public_keys() -> Vec<Choice> {
    let Some(home) = std::env::home_dir() else {
        return Vec::new();
    };
    let files = std::fs::read_dir(home.join(".ssh")).into_iter().flatten().flatten();
    let mut names: Vec<_> = files
        .filter_map(|file| file.path().into_os_string().into_string().ok())
        .filter(|name| name.ends_with(".pub"))
        .collect();
    names.sort();
    names.into_iter().map(|name| Choice::new(name, "")).collect()
}
