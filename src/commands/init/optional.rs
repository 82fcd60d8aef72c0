//! Optional settings: the user selects one from a list, enters its value, and sees the list again.

use std::rc::Rc;

use anyhow::Result;

use super::interview::{Interview, look};
use super::line::Check;
use super::survey::{self, Question};
use crate::backend::Choice;
use crate::backend::connect::require;
use crate::commands::session::Session;
use crate::settings::{parse, variables};

impl Interview {
    /// Asks for the selected settings until the user selects none.
    pub(super) async fn optional(&mut self, session: &Session) -> Result<()> {
        loop {
            let anything: Check = Rc::new(|_| None);
            let chosen = self.ask.ask(&self.survey.further(), &anything)?;
            match chosen.as_deref().unwrap_or(survey::NOTHING) {
                survey::NOTHING => return Ok(()),
                "harvest" => self.harvest(session).await?,
                "extra_networks" => self.extra_networks().await?,
                "worker_backend" => self.workers().await?,
                "lb" => self.balancer(session).await?,
                "http_proxy" => {
                    for setting in ["http_proxy", "https_proxy", "no_proxy"] {
                        self.put(self.survey.question(setting))?;
                    }
                }
                chosen => {
                    if let Some(setting) = survey::further(chosen) {
                        self.put(self.survey.question(setting))?;
                    }
                }
            }
        }
    }

    /// How pass one learns addresses, if the platform supports it. With static addresses, asks for all of them.
    async fn harvest(&mut self, session: &Session) -> Result<()> {
        let (facts, holds) = self.network().await?;
        let mut choices = vec![Choice::new("boot", "pass one boots temporary machines")];
        if holds {
            choices.push(Choice::new(
                "reserve",
                "the platform assigns them, pass one boots no machines",
            ));
        }
        choices.push(Choice::new("static", "you set the address of each node"));
        let question = Question {
            default: self.survey.in_effect("harvest"),
            choices,
            ..self.survey.question("harvest")
        };
        let judge = self.survey.clone();
        let check: Check = Rc::new(move |value| match value {
            // The next questions ask for the addresses that it requires.
            "static" => None,
            value => judge.problem("harvest", value),
        });
        let Some(answer) = self.ask.ask(&question, &check)? else {
            return Ok(());
        };
        if answer == "static" {
            self.vips(session, &facts, holds, false)?;
            for setting in survey::STATIC {
                let question = self.survey.question(setting);
                if *setting == "worker_ips" && self.survey.value("workers") == Some("0") {
                    continue;
                }
                let cidr = facts.cidr;
                self.put_checked(question, move |text| {
                    let mut ips = parse::list(text).filter_map(|ip| ip.parse().ok());
                    let outside = ips.find(|ip| cidr.is_some_and(|cidr| !cidr.contains(*ip)))?;
                    Some(format!("{outside} is outside {}", cidr?))
                })?;
            }
        } else {
            survey::STATIC.iter().for_each(|setting| self.survey.forget(setting));
        }
        self.survey.answer("harvest", &answer);
        Ok(())
    }

    /// The load balancer. If it is the user's own, asks for its addresses.
    async fn balancer(&mut self, session: &Session) -> Result<()> {
        let judge = self.survey.clone();
        let check: Check = Rc::new(move |value| match value {
            "user" => None,
            value => judge.problem("lb", value),
        });
        let Some(answer) = self.ask.ask(&self.survey.question("lb"), &check)? else {
            return Ok(());
        };
        if answer == "user" {
            let (facts, holds) = self.network().await?;
            self.vips(session, &facts, holds, false)?;
        }
        self.survey.answer("lb", &answer);
        Ok(())
    }

    /// The networks of additional NICs.
    async fn extra_networks(&mut self) -> Result<()> {
        let backend = self.survey.value("backend").unwrap_or_default().to_owned();
        let first = self.survey.value("network").unwrap_or_default();
        let offered = look(&self.survey.platform()?).await?.settings.into_iter();
        let networks = offered.filter(|offered| offered.setting == "network");
        let mut choices: Vec<_> = networks.flat_map(|offered| offered.choices).collect();
        // A name with several words cannot be in a list; the pod network supports no second NIC.
        choices.retain(|choice| {
            let fits = parse::list(&choice.value).eq([choice.value.as_str()]);
            fits && choice.value != first && choice.value != "pod"
        });
        let question = Question {
            choices,
            open: true,
            many: true,
            ..self.survey.question("extra_networks")
        };
        loop {
            self.put(question.clone())?;
            let names = self.survey.value("extra_networks").unwrap_or_default().to_owned();
            let is_known = |name: &str| question.choices.iter().any(|choice| choice.value == name);
            let mut all_there = true;
            for name in parse::list(&names).filter(|name| !is_known(name)) {
                all_there &= self.is_there(&backend, name).await?;
            }
            if all_there {
                return Ok(());
            }
            self.survey.forget("extra_networks");
        }
    }

    /// Another platform for the workers, and the settings that they require there.
    async fn workers(&mut self) -> Result<()> {
        let own = self.survey.value("backend").unwrap_or_default().to_owned();
        let mut question = self.survey.question("worker_backend");
        question.choices.retain(|choice| choice.value != own);
        // Answers for another platform are not valid there.
        for setting in ["network", "image", "harvest_image"]
            .into_iter()
            .filter_map(survey::of_workers)
        {
            self.survey.forget(setting);
            self.asked.remove(setting);
        }
        self.put(question)?;
        let Some(there) = self.survey.value("worker_backend").map(str::to_owned) else {
            return Ok(());
        };
        require(&there)?;
        for setting in variables::connection_settings(&there) {
            self.connection(setting).await?;
        }
        self.platform(&there, survey::of_workers).await
    }
}
