//! The connection to a platform: the settings that it requires, and where the password is stored.

use std::path::Path;
use std::rc::Rc;

use anyhow::Result;

use super::interview::{Interview, may_write};
use super::line::Check;
use super::survey::Question;
use crate::backend::Choice;
use crate::backend::connect::local_choices;
use crate::state::home::write_where_asked;

impl Interview {
    /// Asks for one setting of the connection.
    pub(super) async fn connection(&mut self, setting: &'static str) -> Result<()> {
        match setting {
            #[cfg(feature = "ovirt")]
            "ovirt_ca" => self.ovirt_ca().await,
            setting => {
                let kubeconfig = self
                    .survey
                    .value("kubevirt_kubeconfig")
                    .map(|path| self.folder().join(path));
                match local_choices(setting, kubeconfig.as_deref())? {
                    // Connecting reports what is missing, for example clouds.yaml or the variables OS_*.
                    Some(offered) if offered.choices.is_empty() => Ok(()),
                    Some(offered) => self.put(self.survey.offered(offered)),
                    None => self.put(self.survey.question(setting)),
                }
            }
        }
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

    /// The env file's directory: relative paths in it start there.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// The name of a file next to the env file, with its stem.
    pub fn beside(&self, what: &str) -> String {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        format!("{stem}-{what}")
    }
}
