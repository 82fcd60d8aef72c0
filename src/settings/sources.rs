//! Where settings come from: the command line, the environment, an env file, and the files that they name.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::cluster::Deployment;

/// All sources of settings.
#[derive(Clone)]
pub struct Sources<'a> {
    /// The env file's path as the user wrote it, and its text.
    pub env_file: Option<(PathBuf, String)>,
    /// The whole environment of the process.
    pub environment: BTreeMap<String, String>,
    /// Values from the command line, by the names of `variables`.
    pub flags: BTreeMap<String, String>,
    /// The directory of relative paths in flags and environment.
    pub current_dir: PathBuf,
    /// The state directory; `$OCPDEPLOY_HOME` in an env file.
    pub home: PathBuf,
    pub rehearse: bool,
    /// Whether a channel may lead to an older release than before.
    pub allow_downgrade: bool,
    /// The id of a cluster that is not deployed yet.
    pub deployment: Deployment,
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
    pub is_file: &'a dyn Fn(&Path) -> bool,
    pub is_dir: &'a dyn Fn(&Path) -> bool,
}

impl Sources<'_> {
    /// The value of `$name` in an env file that does not set it.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        match name {
            "OCPDEPLOY_HOME" => Some(self.home.display().to_string()),
            _ => self.environment.get(name).cloned(),
        }
    }

    /// The XDG cache directory; a relative path counts as not set. Without a home directory, it is in the state
    /// directory.
    pub(super) fn cache_folder(&self) -> PathBuf {
        let absolute = |name| Some(PathBuf::from(self.environment.get(name)?)).filter(|path| path.is_absolute());
        absolute("XDG_CACHE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".cache")))
            .unwrap_or_else(|| self.home.join("cache"))
    }

    /// The directory of relative paths in the env file.
    pub(super) fn folder(&self) -> PathBuf {
        match &self.env_file {
            Some((path, _)) => self.current_dir.join(path.parent().unwrap_or(Path::new(""))),
            None => self.current_dir.clone(),
        }
    }
}

/// Why a file could not be read; common reasons are in plain words.
pub(super) fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory, not a file".to_owned(),
        _ => error.to_string(),
    }
}
