//! The interview of `ocpdeploy init`: one question after another, with the choices of the platform.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;
use ipnetwork::IpNetwork;

use super::ask::Ask;
use super::line::Check;
use super::survey::{Question, Survey};
use crate::backend::connect::connect;
use crate::backend::platforms::DEFAULT_LIMIT;
use crate::backend::{BackendErrorKind, HostCapacity, NetworkFacts, PlatformChoices, PlatformError, SettingChoices};
use crate::cluster::{BackendConfig, ClusterDomain, Role, Vip};
use crate::commands::output::tell;
use crate::commands::session::Session;
use crate::error::{ErrorKind, OperationError};
use crate::plan::addresses::{Others, vip_problem};
use crate::printable::printable_block;
use crate::settings::parse::list;
use crate::state::inventory;

/// The questions asked so far, and their answers.
pub struct Interview {
    pub ask: Ask,
    pub survey: Survey<'static>,
    /// The env file.
    pub path: PathBuf,
    pub asked: BTreeSet<&'static str>,
    /// What the host of the masters has.
    pub host: Option<HostCapacity>,
}

impl Interview {
    /// Asks one question and stores the answer.
    pub fn put(&mut self, question: Question) -> Result<()> {
        self.put_checked(question, |_| None)
    }

    /// As `put`, with a check in addition to that of the settings.
    pub fn put_checked(&mut self, question: Question, more: impl Fn(&str) -> Option<String> + 'static) -> Result<()> {
        let (judge, setting) = (self.survey.clone(), question.setting);
        let check: Check = Rc::new(move |value| judge.problem(setting, value).or_else(|| more(value)));
        self.asked.insert(setting);
        match self.ask.ask(&question, &check)? {
            Some(answer) => self.survey.answer(setting, &answer),
            None => self.survey.forget(setting),
        }
        Ok(())
    }

    /// Queries a platform and asks for the settings for which it has choices, until an answer leads to no new question.
    ///
    /// `called` maps a setting of the platform to the setting to ask for, if any.
    pub async fn platform(&mut self, backend: &str, called: fn(&'static str) -> Option<&'static str>) -> Result<()> {
        let mut shown = BTreeSet::new();
        loop {
            let config = self.survey.platform_of(backend)?;
            let offers = look(&config).await?;
            if called("network") == Some("network") {
                self.host = offers.host;
            }
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

    /// Asks for one of the choices. The name of another network is checked at once.
    pub async fn one_of(&mut self, backend: &str, offered: SettingChoices) -> Result<()> {
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

    /// Whether a platform has this network; prints the error if not.
    pub async fn is_there(&self, backend: &str, network: &str) -> Result<bool> {
        match network_facts(&self.survey.platform_of(backend)?, network).await {
            Err(error) if is_absent(&error) => {
                tell(&format!("  {}", printable_block(&format!("{error:#}"))));
                Ok(false)
            }
            looked => looked.map(|_| true),
        }
    }

    /// Asks for the virtual IPs. If they are not `optional`, asks only for those that are not set.
    pub fn vips(&mut self, session: &Session, facts: &NetworkFacts, holds: bool, optional: bool) -> Result<()> {
        let others = self.others(session, facts)?;
        for (vip, setting) in [(Vip::Api, "api_ip"), (Vip::Ingress, "ingress_ip")] {
            if !optional && self.survey.value(setting).is_some() {
                continue;
            }
            let (facts, others) = (facts.clone(), others.clone());
            let free = move |text: &str| {
                let ip = list(text).next()?.parse().ok()?;
                vip_problem(vip, ip, &facts, holds, &others)
            };
            let question = self.survey.question(setting);
            self.put_checked(Question { optional, ..question }, free)?;
        }
        Ok(())
    }

    /// The facts of the machines' network, and whether the platform can reserve addresses there.
    pub async fn network(&self) -> Result<(NetworkFacts, bool)> {
        let network = self.survey.value("network").unwrap_or_default();
        let (facts, holds) = network_facts(&self.survey.platform()?, network).await?;
        let cidr = facts.cidr.or_else(|| self.machine_network());
        Ok((NetworkFacts { cidr, ..facts }, holds))
    }

    pub fn machine_network(&self) -> Option<IpNetwork> {
        list(self.survey.value("machine_network")?).next()?.parse().ok()
    }

    /// The addresses of the state directory's other clusters on this network.
    fn others(&self, session: &Session, facts: &NetworkFacts) -> Result<Others> {
        let name = |setting| self.survey.value(setting).unwrap_or_default();
        let id = ClusterDomain::new(name("cluster"), name("domain"));
        let clusters = inventory::clusters(&session.home)?;
        Ok(inventory::neighbours(&clusters, &facts.identity, &id).addresses)
    }
}

/// Asks before an existing file is overwritten.
pub fn may_write(ask: &Ask, path: &Path, hint: &str) -> Result<()> {
    if !path.exists() || ask.agree(&format!("{} exists; overwrite it?", path.display()), false)? {
        return Ok(());
    }
    let text = format!("{} exists and was not changed", path.display());
    Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into())
}

fn is_absent(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<PlatformError>().map(PlatformError::kind);
    kind == Some(BackendErrorKind::NotFound)
}

/// What the platform offers for the settings.
pub async fn look(config: &BackendConfig) -> Result<PlatformChoices> {
    let platform = connect(config, None, DEFAULT_LIMIT).await?;
    Ok(platform.choices().await?)
}

/// The facts of a network, and whether the platform can reserve addresses.
async fn network_facts(config: &BackendConfig, network: &str) -> Result<(NetworkFacts, bool)> {
    let platform = connect(config, None, DEFAULT_LIMIT).await?;
    let facts = platform.network_facts(network).await?;
    Ok((facts, platform.capabilities(Role::Master).reserves_addresses))
}
