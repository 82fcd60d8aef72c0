//! Two users of one computer, for attacks of one on the other. Needs root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::left_out::is_root;

/// Runs the program.
pub const ALICE: u32 = 61001;
/// Attacks her.
pub const MALLORY: u32 = 61002;

/// A folder that both reach: Alice's home with what must not be touched, and the program.
pub struct Users {
    folder: tempfile::TempDir,
}

/// What a file was: mode, owner, links, content.
pub type Was = Vec<(PathBuf, u32, u32, u64, Vec<u8>)>;

impl Users {
    /// `None` where the test does not run as root.
    pub fn new() -> Option<Self> {
        if !is_root("act as two users") {
            return None;
        }
        let users = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        mode(users.folder.path(), 0o755);
        // Not written by this process: what another thread starts meanwhile would keep it open, and it could not be run.
        let copy = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_ocpdeploy"))
            .arg(users.path("ocpdeploy"))
            .status();
        assert!(copy.unwrap().success());
        for (name, owner, bits) in [
            ("alice", ALICE, 0o755),
            ("alice/.ssh", ALICE, 0o755),
            ("mallory", MALLORY, 0o755),
        ] {
            users.make(name, owner, bits);
        }
        for (name, bits) in [(".ssh/authorized_keys", 0o600), (".ssh/id", 0o600), (".bashrc", 0o644)] {
            let path = users.path("alice").join(name);
            fs::write(&path, format!("this is {name} of Alice\n")).unwrap();
            chown(&path, Some(ALICE), Some(ALICE)).unwrap();
            mode(&path, bits);
        }
        Some(users)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a folder of this owner.
    pub fn make(&self, name: &str, owner: u32, bits: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        mode(&path, bits);
        path
    }

    /// The program, run by Alice with nothing of this computer's around it.
    pub fn alice(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("ocpdeploy"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("alice"))
            .env("OCPDEPLOY_HOME", self.path("alice/state"))
            .current_dir(self.path("alice"))
            .stdin(Stdio::null())
            .uid(ALICE)
            .gid(ALICE);
        command
    }

    /// Another program, run by Mallory.
    pub fn mallory(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.path("mallory"))
            .stdin(Stdio::null())
            .uid(MALLORY)
            .gid(MALLORY);
        command
    }

    /// All of Alice's that is not the program's.
    pub fn of_alice(&self) -> Was {
        let names = ["", ".ssh", ".ssh/authorized_keys", ".ssh/id", ".bashrc"];
        let one = |name: &&str| {
            let path = self.path("alice").join(name);
            let data = fs::symlink_metadata(&path).unwrap();
            let content = if data.is_dir() {
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            let links = if data.is_dir() { 0 } else { data.nlink() };
            (path, data.mode(), data.uid(), links, content)
        };
        names.iter().map(one).collect()
    }
}

pub fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
