//! The state folder has secrets and selects the programs that run: one that others own or can change is rejected, and
//! nothing is written through a link in it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::security::{MALLORY, mode};
use crate::support::left_out::{is_root, left_out};

/// A state folder with one cluster, in a place of its own.
struct Sandbox(tempfile::TempDir);

impl Sandbox {
    fn new() -> Self {
        let sandbox = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(sandbox.cluster()).unwrap();
        for folder in [sandbox.home(), sandbox.home().join("clusters"), sandbox.cluster()] {
            mode(&folder, 0o700);
        }
        let env =
            "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\nimage=coreos\nharvest_image=helper\n";
        fs::write(sandbox.0.path().join("env.sh"), env).unwrap();
        sandbox
    }

    fn home(&self) -> std::path::PathBuf {
        self.0.path().join("home")
    }

    fn cluster(&self) -> std::path::PathBuf {
        self.home().join("clusters/lab")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("OCPDEPLOY_HOME", self.home())
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn refuses(&self, why: &str) -> String {
        let output = self.command(&["list"]).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains(why) && said.contains("hint: "), "{said}");
        said
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_folder_that_its_group_or_others_can_write_to_is_rejected() {
    let sandbox = Sandbox::new();
    assert!(sandbox.command(&["list"]).status().unwrap().success());
    let group = fs::metadata(sandbox.home()).unwrap().gid();
    let by_group = format!("members of group {group} can write to");
    for (folder, bits, why) in [
        (sandbox.home(), 0o770, by_group.as_str()),
        (sandbox.home().join("clusters"), 0o775, &by_group),
        (sandbox.cluster(), 0o730, &by_group),
        (sandbox.cluster(), 0o707, "everyone can write to"),
    ] {
        mode(&folder, bits);
        sandbox.refuses(&format!("{why} {}", folder.display()));
        mode(&folder, 0o700);
    }
}

#[test]
fn a_folder_of_another_user_is_rejected_even_by_root() {
    if !is_root("make folders of another user") {
        return;
    }
    let sandbox = Sandbox::new();
    for folder in [sandbox.home(), sandbox.home().join("clusters"), sandbox.cluster()] {
        chown(&folder, Some(MALLORY), None).unwrap();
        let said = sandbox.refuses(&format!("{} belongs to user {MALLORY}", folder.display()));
        // su and doas do not set it.
        let hint = format!("run the command with SUDO_UID={MALLORY} in the environment");
        assert_eq!(said.contains(&hint), folder == sandbox.home(), "{said}");
        // With sudo, root may use the calling user's folder: `sudo ocpdeploy --home … dns apply`.
        let mut by_sudo = sandbox.command(&["list"]);
        assert!(by_sudo.env("SUDO_UID", MALLORY.to_string()).status().unwrap().success());
        assert!(!by_sudo.env("SUDO_UID", "61099").status().unwrap().success());
        chown(&folder, Some(0), None).unwrap();
    }
}

/// After `sudo ocpdeploy …` in a user's state directory, this user cannot use what root has created.
#[test]
fn files_of_root_in_a_users_state_directory_are_reported_with_a_command_that_fixes_it() {
    if !is_root("run a command as another user") {
        return;
    }
    let sandbox = Sandbox::new();
    mode(sandbox.0.path(), 0o755);
    for folder in [sandbox.home(), sandbox.home().join("clusters"), sandbox.cluster()] {
        chown(&folder, Some(MALLORY), Some(MALLORY)).unwrap();
    }
    let listed = || {
        let mut list = sandbox.command(&["list"]);
        list.uid(MALLORY).gid(MALLORY).output()
    };
    match listed() {
        Ok(output) => assert!(output.status.success(), "{}", said(&output)),
        Err(error) => return left_out(format!("another user cannot run the program: {error}")),
    }
    let journal = sandbox.cluster().join("journal.jsonl");
    fs::write(&journal, "").unwrap();
    let output = listed().unwrap();
    let (said, home) = (said(&output), sandbox.home());
    assert_eq!(output.status.code(), Some(4), "{said}");
    for words in [
        format!("{} belongs to root", journal.display()),
        format!("`sudo chown -Rh $(id -u):$(id -g) {}`", home.display()),
    ] {
        assert!(said.contains(&words), "{said}");
    }
}

#[test]
fn a_link_in_place_of_a_folder_is_rejected() {
    let sandbox = Sandbox::new();
    let elsewhere = sandbox.0.path().join("elsewhere");
    for folder in [sandbox.cluster(), sandbox.home().join("clusters")] {
        fs::rename(&folder, &elsewhere).unwrap();
        symlink(&elsewhere, &folder).unwrap();
        sandbox.refuses(&format!("{} is a link", folder.display()));
        fs::remove_file(&folder).unwrap();
        fs::rename(&elsewhere, &folder).unwrap();
    }
    // The user's own link to the whole folder is accepted.
    fs::rename(sandbox.home(), &elsewhere).unwrap();
    symlink(&elsewhere, sandbox.home()).unwrap();
    assert!(sandbox.command(&["list"]).status().unwrap().success());
}

#[test]
fn no_file_is_written_through_a_link() {
    for name in [
        "journal.jsonl",
        "lock",
        "log",
        "log/ocpdeploy.jsonl",
        "parameters.yaml",
        "cluster.json",
        "settings.json",
    ] {
        let sandbox = Sandbox::new();
        let victim = sandbox.0.path().join("victim");
        let is_folder = name == "log";
        if is_folder {
            fs::create_dir(&victim).unwrap();
        } else {
            fs::write(&victim, "").unwrap();
        }
        let link = sandbox.cluster().join(name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&victim, &link).unwrap();
        let output = sandbox.command(&["deploy", "env.sh", "--rehearse"]).output().unwrap();
        let untouched = match is_folder {
            true => fs::read_dir(&victim).unwrap().count() == 0,
            false => fs::read(&victim).unwrap().is_empty(),
        };
        assert!(untouched, "{name}: {}", said(&output));
    }
}

#[test]
fn a_kubeconfig_may_be_written_through_a_link_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, folder.path().join("link")).unwrap();
    let write = |path: &Path| ocpdeploy::state::home::write_where_asked(path, b"x");
    write(&folder.path().join("link/kubeconfig")).unwrap();
    assert_eq!(fs::read(real.join("kubeconfig")).unwrap(), b"x");
    let error = ocpdeploy::state::home::write_private(&folder.path().join("link/secret"), b"x").unwrap_err();
    assert!(error.to_string().contains("is a link"), "{error}");
}
