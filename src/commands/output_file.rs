//! Files that the user names with `--output`: replaced as a whole, with mode 0600.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::error::{ErrorKind, OperationError};
use crate::state::home::write_where_asked;

/// How to write to stdout, for the commands whose default it is.
pub const NO_OUTPUT: &str = "leave out --output";

/// A regular file, or a new one in an existing directory.
pub struct OutputFile(PathBuf);

impl OutputFile {
    /// Checks the path. `stdout` says how to write to stdout instead.
    pub fn check(path: &Path, stdout: &str) -> Result<Self, OperationError> {
        let refuse =
            |why: &str| OperationError::new(ErrorKind::Tool, format!("cannot write {}: {why}", path.display()));
        let named = std::path::absolute(path).map_err(|error| refuse(&error.to_string()))?;
        // In a directory such as /tmp, another user could make this user replace any file.
        if let Ok(link) = named.symlink_metadata()
            && link.is_symlink()
            && ![0, geteuid().as_raw()].contains(&link.uid())
        {
            return Err(refuse(&format!("it is a link of user {}", link.uid())));
        }
        // If the path is a link of this user, its target is replaced.
        match std::fs::canonicalize(&named) {
            Ok(real) if real.is_dir() => Err(refuse("it is a directory")),
            Ok(real) if !real.is_file() => Err(refuse(&format!(
                "it is not a regular file; to write to stdout, {stdout}"
            ))),
            Ok(real) => Ok(Self(real)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match named.parent().is_some_and(Path::is_dir) {
                true => Ok(Self(named)),
                false => Err(refuse("no such directory")),
            },
            Err(error) => Err(refuse(&error.to_string())),
        }
    }

    /// Replaces the file. Its former content remains where another name or process uses it.
    pub fn write(&self, content: &[u8]) -> Result<(), OperationError> {
        write_where_asked(&self.0, content).map_err(|error| OperationError::new(ErrorKind::Tool, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn only_links_of_this_user_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str| OutputFile::check(&path(name), NO_OUTPUT).and_then(|file| file.write(b"new"));
        std::fs::write(path("file"), "old").unwrap();
        std::fs::set_permissions(path("file"), std::fs::Permissions::from_mode(0o666)).unwrap();
        std::fs::hard_link(path("file"), path("other")).unwrap();
        for (link, target) in [("mine", "file"), ("theirs", "other"), ("dangling", "missing")] {
            symlink(target, path(link)).unwrap();
        }
        write("mine").unwrap();
        assert!(path("mine").is_symlink());
        assert_eq!(std::fs::read_to_string(path("file")).unwrap(), "new");
        assert_eq!(path("file").metadata().unwrap().mode() & 0o777, 0o600);
        write("dangling").unwrap();
        assert!(!path("dangling").is_symlink() && !path("missing").exists());
        if geteuid().is_root() {
            lchown(path("theirs"), Some(61002), None).unwrap();
            let refused = write("theirs").unwrap_err().to_string();
            assert!(refused.ends_with("theirs: it is a link of user 61002"), "{refused}");
        }
        assert_eq!(std::fs::read_to_string(path("other")).unwrap(), "old");
    }
}
