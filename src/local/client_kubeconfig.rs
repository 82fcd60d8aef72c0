//! A cluster's context in the user's kubeconfig, which kubectl and oc read.
//!
//! Only the entries of the cluster are written or removed. Where they were added is recorded in the cluster's directory,
//! so that `destroy` removes them.

use std::fs::File;
use std::io::{self, ErrorKind as IoKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, OperationError};
use crate::export::kubeconfig::{AddError, with_context, without_context};
use crate::found_file::is_trusted;
use crate::kubeconfig::default_files;
use crate::limited_file;
use crate::local::foreign_file::replace;
use crate::printable::{shell_path, shell_word};
use crate::state::dir::{judge_path, me};
use crate::state::home::ClusterDir;

/// Version of the record in the cluster's directory.
const VERSION: u32 = 1;

/// A context in a kubeconfig of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddedContext {
    /// Absolute.
    pub file: PathBuf,
    pub name: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    v: u32,
    contexts: Vec<AddedContext>,
}

/// The file to which kubectl adds contexts: of the files in `KUBECONFIG` the first that exists, otherwise the last one
/// (kubernetes/client-go: `tools/clientcmd/config.go`, `GetDefaultFilename`).
pub fn default_file() -> Result<PathBuf, OperationError> {
    let files = default_files(|name| std::env::var(name).ok());
    let file = files.iter().find(|file| file.exists()).or(files.last());
    let file = file.and_then(|file| std::path::absolute(file).ok());
    file.ok_or_else(|| {
        let text = "cannot determine the kubeconfig: neither KUBECONFIG nor HOME is set";
        OperationError::new(ErrorKind::Usage, text).hint("set KUBECONFIG to the path of a file")
    })
}

impl AddedContext {
    /// Adds or updates the context; `of_cluster` is the cluster's kubeconfig. Returns whether the file has changed.
    pub fn add(&self, dir: &ClusterDir, of_cluster: &str) -> Result<bool, OperationError> {
        self.change(|kubeconfig| {
            let changed = with_context(kubeconfig, of_cluster, &self.name).map_err(|error| match error {
                AddError::Invalid(why) => self.refused(&why),
                AddError::Taken(why) => self.refused(&why).hint("choose another name with `--context NAME`"),
            })?;
            // Recorded first: after a crash there may be a record without a context, but never a context without a record.
            let mut contexts = recorded(dir)?;
            if !contexts.contains(self) {
                contexts.push(self.clone());
                record(dir, contexts)?;
            }
            Ok(changed)
        })
    }

    /// Removes the context if it is still of this cluster. Returns whether the file has changed.
    pub fn remove(&self, of_cluster: &str) -> Result<bool, OperationError> {
        if !self.file.exists() {
            return Ok(false);
        }
        self.change(|kubeconfig| {
            without_context(kubeconfig, of_cluster, &self.name).map_err(|why| {
                let by_hand = format!(
                    "`kubectl --kubeconfig {} config delete-context {}` removes the context",
                    shell_path(&self.file),
                    shell_word(&self.name)
                );
                self.refused(&why).hint(by_hand)
            })
        })
    }

    /// Whether `remove` would change the file.
    pub fn is_there(&self, of_cluster: &str) -> bool {
        let removed = |text: String| without_context(&text, of_cluster, &self.name);
        self.judge().is_ok() && self.read().is_ok_and(|text| matches!(removed(text), Ok(Some(_))))
    }

    /// Changes the file while kubectl, oc and other instances of this program wait or fail.
    fn change(
        &self,
        change: impl FnOnce(&str) -> Result<Option<String>, OperationError>,
    ) -> Result<bool, OperationError> {
        self.judge().map_err(|why| {
            self.refused(&why)
                .hint("run the command as the user of the kubeconfig, or set KUBECONFIG to another file")
        })?;
        let failed = |error: io::Error| self.refused(&error.to_string());
        std::fs::create_dir_all(self.file.parent().unwrap_or(&self.file)).map_err(failed)?;
        let _lock = Lock::of(&self.file)?;
        match change(&self.read()?)? {
            Some(text) => replace(&self.file, &text, 0o600).map(|()| true).map_err(failed),
            None => Ok(false),
        }
    }

    /// The file's content; nothing if it is missing.
    fn read(&self) -> Result<String, OperationError> {
        // A pipe could be read, but would be replaced by a file.
        match limited_file::check(&self.file).and_then(|()| limited_file::read_text(&self.file)) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == IoKind::NotFound => Ok(String::new()),
            Err(error) => Err(self.refused(&error.to_string())),
        }
    }

    /// Under sudo, only a kubeconfig of root and of the user who called it is changed. Root creates none for other users:
    /// they could not change it.
    fn judge(&self) -> Result<(), String> {
        judge_path(&self.file, is_trusted)?;
        let nearest = self
            .file
            .ancestors()
            .find_map(|path| Some((path, path.metadata().ok()?)));
        match nearest {
            Some((path, folder)) if folder.is_dir() && me() == 0 && folder.uid() != 0 => {
                Err(format!("{} belongs to user {}", path.display(), folder.uid()))
            }
            _ => Ok(()),
        }
    }

    fn refused(&self, why: &str) -> OperationError {
        let text = format!("cannot change kubeconfig {}: {why}", self.file.display());
        OperationError::new(ErrorKind::Settings, text)
    }
}

/// The contexts that were added for a cluster.
pub fn recorded(dir: &ClusterDir) -> Result<Vec<AddedContext>, OperationError> {
    let path = dir.client_kubeconfig();
    let unusable = |why: &str| OperationError::new(ErrorKind::Tool, format!("cannot read {}: {why}", path.display()));
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == IoKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unusable(&error.to_string())),
    };
    let record: Record = serde_json::from_slice(&text).map_err(|error| unusable(&error.to_string()))?;
    match record.v {
        VERSION => Ok(record.contexts),
        v => Err(unusable(&format!("unsupported version {v}, expected {VERSION}"))),
    }
}

fn record(dir: &ClusterDir, contexts: Vec<AddedContext>) -> Result<(), OperationError> {
    let failed = |why: String| OperationError::new(ErrorKind::Tool, why);
    let text = serde_json::to_vec(&Record { v: VERSION, contexts }).map_err(|error| failed(error.to_string()))?;
    dir.write_for_owner(&dir.client_kubeconfig(), &text)
        .map_err(|error| failed(error.to_string()))
}

/// The lock of kubectl and oc: a file that only one program can create (kubernetes/client-go:
/// `tools/clientcmd/loader.go`, `lockFile`).
struct Lock(PathBuf);

impl Lock {
    fn of(file: &Path) -> Result<Self, OperationError> {
        let mut lock = file.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let created = File::options().write(true).create_new(true).mode(0o600).open(&lock);
        created.map(|_| Self(lock.clone())).map_err(|error| {
            let text = format!("cannot lock kubeconfig {}: {error}", file.display());
            let error = OperationError::new(ErrorKind::Tool, text);
            match lock.exists() {
                true => error.hint(format!(
                    "another program is changing it; if none is, remove {}",
                    shell_path(&lock)
                )),
                false => error,
            }
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A remaining lock is reported to the next program.
        let _ = std::fs::remove_file(&self.0);
    }
}
