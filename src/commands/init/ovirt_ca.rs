//! The CA of an oVirt engine: a file, or downloaded and compared by its fingerprint.

use std::rc::Rc;

use anyhow::Result;

use super::interview::{Interview, may_write};
use super::line::Check;
use super::survey::Question;
use crate::backend::{Choice, ovirt};
use crate::cluster::BackendConfig;
use crate::commands::output::tell;
use crate::error::{ErrorKind, OperationError};
use crate::printable::printable_line;
use crate::state::home::write_where_asked;

/// The answer that downloads the CA, instead of a file.
const FETCH: &str = "fetch";

impl Interview {
    /// The engine's CA: a file, or downloaded and compared.
    pub async fn ovirt_ca(&mut self) -> Result<()> {
        let question = Question {
            choices: vec![Choice::new(
                FETCH,
                "downloaded from the engine; you compare its fingerprint",
            )],
            open: true,
            default: Some(FETCH.to_owned()),
            ..self.survey.question("ovirt_ca")
        };
        let judge = self.survey.clone();
        let check: Check = Rc::new(move |value: &str| match value {
            FETCH => None,
            path => judge.problem("ovirt_ca", path),
        });
        match self.ask.ask(&question, &check)? {
            Some(value) if value != FETCH => self.survey.answer("ovirt_ca", &value),
            None => {}
            Some(_) => self.fetch_ca().await?,
        }
        Ok(())
    }

    async fn fetch_ca(&mut self) -> Result<()> {
        let BackendConfig::Ovirt(config) = self.survey.platform_of("ovirt")? else {
            return Ok(());
        };
        let ca = ovirt::fetch_ca(&config.url).await?;
        tell(&format!(
            "\nCA certificate of {}; compare the fingerprint with the one from its administrator:",
            config.url
        ));
        // An attacker can choose the subject: it must not look like a fingerprint.
        let subject = printable_line(&ca.subject);
        tell(&format!(
            "  {subject}, until {}\n  SHA-256 {}",
            ca.until, ca.fingerprint
        ));
        if !self.ask.agree("is this the engine's CA?", false)? {
            let text = format!("the CA of {} is not trusted; no password was sent", config.url);
            return Err(OperationError::new(ErrorKind::Platform, text)
                .hint("get the CA certificate from the engine's administrator and set ovirt_ca to its file")
                .into());
        }
        let name = self.beside("ovirt-ca.pem");
        let path = self.folder().join(&name);
        if std::fs::read_to_string(&path).ok().as_deref() != Some(ca.pem.as_str()) {
            may_write(&self.ask, &path, "set ovirt_ca to its file")?;
            write_where_asked(&path, ca.pem.as_bytes())?;
        }
        self.survey.answer("ovirt_ca", &name);
        Ok(())
    }
}
