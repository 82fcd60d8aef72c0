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
use std::path::Path;

use anyhow::{Context, Result};

use self::ask::Ask;
use self::interview::{Interview, may_write};
use self::survey::{Question, Survey};
use super::output::{print, tell};
use super::session::{Session, end, runtime};
use crate::backend::connect::require;
use crate::backend::{Choice, SettingChoices};
use crate::cli::Init;
use crate::error::{ErrorKind, OperationError};
use crate::printable::printable_block;
use crate::settings::{SettingsError, variables};
use crate::state::home::write_where_asked;

pub fn run(session: &Session, command: &Init) -> Result<()> {
    let ask = Ask::new();
    let path = std::path::absolute(&command.output).context("find the env file's directory")?;
    may_write(&ask, &path, "choose another name with -o")?;
    let survey = Survey::new(path.clone(), session.surroundings()?);
    let mut interview = Interview {
        ask,
        survey,
        path,
        asked: BTreeSet::new(),
    };
    let runtime = runtime()?;
    let asked = runtime.block_on(interview.conduct(session, command.backend.as_deref()));
    end(runtime);
    asked?;
    interview.write(&command.output)
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
            self.put(self.survey.question(setting))?;
        }
        self.addresses(session).await?;
        for setting in survey::SIZES {
            self.put(self.survey.question(setting))?;
        }
        for setting in survey::ACCESS {
            self.put(self.access(setting))?;
        }
        self.optional(session).await
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
        self.keep_password()?;
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
        tell(
            "\nnext: `ocpdeploy check` checks all requirements, `ocpdeploy plan` shows what would be created, `ocpdeploy deploy` deploys the cluster",
        );
        print(&format!("written to {}\n", shown.display()))
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
