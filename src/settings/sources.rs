//! Where settings come from: the command line, the environment, an env file, and the files that they name.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::cluster::Deployment;

/// Everything that settings are read from.
#[derive(Clone)]
pub struct Sources<'a> {
    /// The env file's path as the user wrote it, and its text.
    pub env_file: Option<(PathBuf, String)>,
    /// The whole environment of the process.
    pub environment: BTreeMap<String, String>,
    /// Values given on the command line, by the names of `variables`.
    pub flags: BTreeMap<String, String>,
    /// Where relative paths of flags and environment begin.
    pub current_dir: PathBuf,
    /// The state folder; `$OCPDEPLOY_HOME` in an env file.
    pub home: PathBuf,
    pub rehearse: bool,
    /// That of a cluster which is not deployed yet.
    pub deployment: Deployment,
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
    pub is_file: &'a dyn Fn(&Path) -> bool,
    pub is_dir: &'a dyn Fn(&Path) -> bool,
}

impl Sources<'_> {
    /// What `$name` is in an env file that does not set it.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        match name {
            "OCPDEPLOY_HOME" => Some(self.home.display().to_string()),
            _ => self.environment.get(name).cloned(),
        }
    }

    /// The XDG cache folder; a relative one counts as not set. Without a home folder it is in the state folder.
    pub(super) fn cache_folder(&self) -> PathBuf {
        let absolute = |name| Some(PathBuf::from(self.environment.get(name)?)).filter(|path| path.is_absolute());
        absolute("XDG_CACHE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".cache")))
            .unwrap_or_else(|| self.home.join("cache"))
    }

    /// Where relative paths of the env file begin.
    pub(super) fn folder(&self) -> PathBuf {
        match &self.env_file {
            Some((path, _)) => self.current_dir.join(path.parent().unwrap_or(Path::new(""))),
            None => self.current_dir.clone(),
        }
    }
}

/// Why a file could not be read, in our words where the reason is a plain one.
pub(super) fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder, not a file".to_owned(),
        io::ErrorKind::InvalidData => "it is not a text file".to_owned(),
        _ => error.to_string(),
    }
}
