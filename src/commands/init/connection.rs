//! The connection to a platform: the settings that it requires, and where the password is stored.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;

use super::ask::Check;
use super::interview::{Interview, may_write};
use super::survey::Question;
use crate::backend::{Choice, kubevirt, openstack, ovirt};
use crate::cluster::BackendConfig;
use crate::commands::output::tell;
use crate::failure::{CommandError, Kind};
use crate::printable::printable_line;
use crate::state::home::write_where_asked;

/// The answer that downloads the CA, instead of a file.
const FETCH: &str = "fetch";

impl Interview {
    /// Asks for one setting of the connection.
    pub(super) async fn connection(&mut self, setting: &'static str) -> Result<()> {
        match setting {
            "ovirt_ca" => self.ovirt_ca().await,
            "os_cloud" => {
                let offered = openstack::clouds()?;
                // Without clouds.yaml the variables OS_* are required; connecting reports what is missing.
                if offered.choices.is_empty() {
                    return Ok(());
                }
                self.put(self.survey.offered(offered))
            }
            "kube_context" => {
                let path = self.survey.value("kubeconfig").map(PathBuf::from);
                let path = path.map(|path| self.folder().join(path));
                let offered = kubevirt::contexts(path.as_deref())?;
                if offered.choices.is_empty() {
                    return Ok(());
                }
                self.put(self.survey.offered(offered))
            }
            _ => self.put(self.survey.question(setting)),
        }
    }

    /// The engine's CA: a file, or downloaded and compared.
    async fn ovirt_ca(&mut self) -> Result<()> {
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
        if !self.ask.agree("is this the engine's CA?")? {
            let text = format!("the CA of {} is not trusted; no password was sent", config.url);
            return Err(CommandError::new(Kind::Platform, text)
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

    /// Stores the password that was entered, in the file that the user chooses.
    pub(super) fn keep_password(&mut self) -> Result<()> {
        let Some(password) = self.survey.value("ovirt_password").map(str::to_owned) else {
            return Ok(());
        };
        let name = self.beside("ovirt-password");
        let question = Question {
            text: "Where to store the password; both files are readable only by you.".to_owned(),
            choices: vec![
                Choice::new("file", format!("in a separate file, {name}")),
                Choice::new("env", "in the env file"),
            ],
            default: Some("file".to_owned()),
            open: false,
            many: false,
            optional: false,
            secret: false,
            setting: "store in",
        };
        let anything: Check = Rc::new(|_| None);
        if self.ask.ask(&question, &anything)?.as_deref() == Some("file") {
            let path = self.folder().join(&name);
            may_write(
                &self.ask,
                &path,
                "store the password in the env file, or choose another name with -o",
            )?;
            write_where_asked(&path, format!("{password}\n").as_bytes())?;
            self.survey.answer_by_file("ovirt_password", &name);
        }
        Ok(())
    }

    /// The env file's folder: relative paths in it start there.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// The name of a file next to the env file, with its stem.
    fn beside(&self, what: &str) -> String {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        format!("{stem}-{what}")
    }
}
