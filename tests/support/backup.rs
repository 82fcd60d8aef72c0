//! A backup of a folder, which can be restored.

use std::path::Path;
use std::process::Command;

pub struct Backup(tempfile::TempDir);

impl Backup {
    pub fn of(folder: &Path) -> Self {
        let backup = Self(tempfile::tempdir().unwrap());
        copy(folder, backup.0.path());
        backup
    }

    /// Restores the folder with all modes, and removes everything else in it.
    pub fn restore(&self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => std::fs::remove_dir_all(path).unwrap(),
                false => std::fs::remove_file(path).unwrap(),
            }
        }
        copy(self.0.path(), folder);
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
    assert!(copied.unwrap().success());
}
