//! `ocpdeploy init`: reaches the platform, asks with what it has, writes an env file.

mod ask;
mod connection;
mod optional;
pub mod survey;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use ipnetwork::Ipv4Network;

use self::ask::{Ask, Check};
use self::survey::{Question, Survey};
use super::output::tell;
use super::{DEFAULT_LIMIT, Session, connect, print, runtime};
use crate::backend::{BackendError, BackendErrorKind, Choice, NetworkFacts, PlatformChoices, SettingChoices};
use crate::cli::Init;
use crate::cluster::{BackendConfig, ClusterId, Role, Vip};
use crate::failure::{CommandError, Kind};
use crate::plan::addresses::{Others, vip_problem};
use crate::printable::printable_block;
use crate::settings::{SettingsError, variables};
use crate::state::home::write_where_asked;
use crate::state::inventory;

pub fn run(session: &Session, command: &Init) -> Result<()> {
    let ask = Ask::new();
    let path = std::path::absolute(&command.out).context("find the env file's directory")?;
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
    // A blocking call that was given up must not hold the program.
    runtime.shutdown_background();
    asked?;
    interview.write(&command.out)
}

/// A file that is there is replaced only when the user says so.
fn may_write(ask: &Ask, path: &Path, hint: &str) -> Result<()> {
    if !path.exists() || ask.agree(&format!("{} exists; overwrite it?", path.display()))? {
        return Ok(());
    }
    let text = format!("{} exists and was not changed", path.display());
    Err(CommandError::new(Kind::Usage, text).hint(hint).into())
}

struct Interview {
    ask: Ask,
    survey: Survey<'static>,
    /// The env file.
    path: PathBuf,
    asked: BTreeSet<&'static str>,
}

impl Interview {
    async fn conduct(&mut self, session: &Session, backend: Option<&str>) -> Result<()> {
        self.backend(backend)?;
        let backend = self.survey.value("backend").unwrap_or_default().to_owned();
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
            return Err(CommandError::new(Kind::Usage, format!("--backend: {problem}")).into());
        }
        self.survey.answer("backend", given);
        Ok(())
    }

    /// Asks one question and keeps the answer.
    fn put(&mut self, question: Question) -> Result<()> {
        self.put_checked(question, |_| None)
    }

    /// As `put`, with a judgement beside that of the settings.
    fn put_checked(&mut self, question: Question, more: impl Fn(&str) -> Option<String> + 'static) -> Result<()> {
        let (judge, setting) = (self.survey.clone(), question.setting);
        let check: Check = Rc::new(move |value| judge.problem(setting, value).or_else(|| more(value)));
        self.asked.insert(setting);
        match self.ask.ask(&question, &check)? {
            Some(answer) => self.survey.answer(setting, &answer),
            None => self.survey.forget(setting),
        }
        Ok(())
    }

    /// Reaches a platform and asks with what it has, until no answer opens further questions.
    ///
    /// `called` says by which setting each is answered, if at all.
    async fn platform(&mut self, backend: &str, called: fn(&'static str) -> Option<&'static str>) -> Result<()> {
        let mut shown = BTreeSet::new();
        loop {
            let config = self.survey.platform_of(backend)?;
            let offers = look(&config).await?;
            for finding in offers.seen {
                if shown.insert(finding.text.clone()) {
                    self.ask.tell(&finding);
                }
            }
            let mut opened = false;
            for offered in offers.settings {
                let Some(setting) = called(offered.setting).filter(|setting| !self.asked.contains(setting)) else {
                    continue;
                };
                opened = offered.decides;
                self.one_of(backend, SettingChoices { setting, ..offered }).await?;
                if opened {
                    break;
                }
            }
            if !opened {
                return Ok(());
            }
        }
    }

    /// Asks for one of what is offered. What was typed instead is looked for at once, where that is a network.
    async fn one_of(&mut self, backend: &str, offered: SettingChoices) -> Result<()> {
        let is_network = ["network", "worker_network"].contains(&offered.setting);
        let question = self.survey.offered(offered);
        loop {
            self.put(question.clone())?;
            let value = self.survey.value(question.setting).unwrap_or_default();
            if !is_network || question.choices.iter().any(|choice| choice.value == value) {
                return Ok(());
            }
            if self.is_there(backend, value).await? {
                return Ok(());
            }
        }
    }

    /// Whether a platform has this network; says so where it has not.
    async fn is_there(&self, backend: &str, network: &str) -> Result<bool> {
        match network_facts(&self.survey.platform_of(backend)?, network).await {
            Err(error) if is_absent(&error) => {
                tell(&format!("  {}", printable_block(&format!("{error:#}"))));
                Ok(false)
            }
            looked => looked.map(|_| true),
        }
    }

    /// The machines' network where the platform does not tell it, and the virtual IPs.
    async fn addresses(&mut self, session: &Session) -> Result<()> {
        let (mut facts, holds) = self.network().await?;
        if facts.cidr.is_none() {
            let question = self.survey.question("machine_network");
            let optional = self.survey.value("backend") != Some("ovirt");
            self.put(Question { optional, ..question })?;
            facts.cidr = self.machine_network();
        }
        self.vips(session, &facts, holds, true)
    }

    /// Asks for the virtual IPs; those that are not `optional` only where they were left open.
    fn vips(&mut self, session: &Session, facts: &NetworkFacts, holds: bool, optional: bool) -> Result<()> {
        let others = self.others(session, facts)?;
        for (vip, setting) in [(Vip::Api, "api_ip"), (Vip::Ingress, "ingress_ip")] {
            if !optional && self.survey.value(setting).is_some() {
                continue;
            }
            let (facts, others) = (facts.clone(), others.clone());
            let free = move |text: &str| vip_problem(vip, text.parse().ok()?, &facts, holds, &others);
            let question = self.survey.question(setting);
            self.put_checked(Question { optional, ..question }, free)?;
        }
        Ok(())
    }

    /// What the platform tells of the machines' network, and whether it keeps addresses there.
    async fn network(&self) -> Result<(NetworkFacts, bool)> {
        let network = self.survey.value("network").unwrap_or_default();
        let (facts, holds) = network_facts(&self.survey.platform()?, network).await?;
        let cidr = facts.cidr.or_else(|| self.machine_network());
        Ok((NetworkFacts { cidr, ..facts }, holds))
    }

    fn machine_network(&self) -> Option<Ipv4Network> {
        self.survey.value("machine_network")?.parse().ok()
    }

    /// What other clusters known here have on this network.
    fn others(&self, session: &Session, facts: &NetworkFacts) -> Result<Others> {
        let name = |setting| self.survey.value(setting).unwrap_or_default();
        let id = ClusterId::new(name("cluster"), name("domain"));
        let clusters = inventory::clusters(&session.home)?;
        Ok(inventory::neighbours(&clusters, &facts.identity, &id).addresses)
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

    /// Writes all that was asked for, secrets where they belong.
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

/// Public keys in the user's folder of keys.
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

fn is_absent(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<BackendError>().map(|error| error.kind);
    kind == Some(BackendErrorKind::NotFound)
}

async fn look(config: &BackendConfig) -> Result<PlatformChoices> {
    let platform = connect(config, None, DEFAULT_LIMIT).await?;
    Ok(match platform.discovery() {
        Some(discovery) => discovery.choices().await?,
        None => PlatformChoices::default(),
    })
}

/// What the platform tells of the network, and whether it keeps addresses.
async fn network_facts(config: &BackendConfig, network: &str) -> Result<(NetworkFacts, bool)> {
    let platform = connect(config, None, DEFAULT_LIMIT).await?;
    let facts = platform.network_facts(network).await?;
    Ok((facts, platform.capabilities(Role::Master).reserves_addresses))
}
