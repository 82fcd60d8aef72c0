//! `ocpdeploy kubeconfig --merge` and `destroy` on the kubeconfig of the user. kubectl judges the result.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::support::fake_kube::authority::Authority;
use crate::support::left_out::{left_out, no_judge};
use crate::support::sandbox::{Outcome, Sandbox, outcome};

/// A kubeconfig as kubectl writes it, with more than it knows.
const OTHERS: &str = "apiVersion: v1\nclusters:\n- cluster:\n    server: https://other.example.org:6443\n  name: other\n\
                      contexts:\n- context:\n    cluster: other\n    user: other\n    namespace: \"on\"\n  name: other\n\
                      current-context: other\nkind: Config\npreferences: {}\nextension-of-a-vendor: [1, '1', 1.5, null]\n\
                      users:\n- name: other\n  user:\n    token: '0123'\n";

/// An installed cluster on the loopback, with this kubeconfig in its record.
fn lab(kubeconfig: &str) -> Sandbox {
    let network =
        json!({"cidr": "127.94.0.0/24", "gateway": "127.94.0.1", "dhcp_from": "127.94.0.2", "dhcp_to": "127.94.0.254"});
    let sandbox = Sandbox::new(json!({"networks": {"default": network}}));
    sandbox.env("lab", "masters=1\nworkers=0\nimage=coreos\nharvest_image=helper");
    sandbox.deploy("lab").succeeded();
    let path = sandbox.home().cluster("lab").kubeconfig();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, kubeconfig).unwrap();
    sandbox
}

fn of_a_cluster() -> String {
    Authority::new().kubeconfig("lab", "https://api.lab.example.com:6443")
}

fn merge(sandbox: &Sandbox, options: &[&str]) -> Outcome {
    sandbox.run(&[&["kubeconfig", "lab", "--merge"], options].concat())
}

fn default_file(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join(".kube/config")
}

fn content(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn a_context_is_added_beside_all_others_and_destroy_removes_only_it() {
    let sandbox = lab(&of_a_cluster());
    let file = default_file(&sandbox);
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, OTHERS).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let said = merge(&sandbox, &[]).succeeded().stdout;
    let written = format!(
        "context lab written to {}; use it with `kubectl --context lab`\n",
        file.display()
    );
    assert_eq!(said, written);
    let added = std::fs::read_to_string(&file).unwrap();
    let (before, after) = (content(OTHERS), content(&added));
    for (key, value) in before.as_object().unwrap() {
        match value.as_array().filter(|_| !key.starts_with("extension")) {
            Some(entries) => assert_eq!(after[key].as_array().unwrap()[..1], entries[..], "{key}"),
            None => assert_eq!(after[key], *value, "{key}"),
        }
    }
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
    match Command::new("kubectl").arg("version").arg("--client").output() {
        Err(_) => no_judge("kubectl is not installed: nothing reads the kubeconfig with a new context"),
        Ok(_) => {
            let view = Command::new("kubectl")
                .args(["config", "view", "--minify", "--context", "lab", "-o"])
                .args([
                    "jsonpath={.clusters[0].cluster.server} {.clusters[0].cluster.tls-server-name} {.users[0].name}",
                ])
                .env("KUBECONFIG", &file)
                .output()
                .unwrap();
            let api = sandbox.parameters("lab").unwrap().api_ip;
            let expected = format!("https://{api}:6443 api.lab.example.com lab");
            assert_eq!(String::from_utf8_lossy(&view.stdout), expected, "{view:?}");
        }
    }
    // Again, nothing changes; the namespace that the user chose is kept.
    let mut chosen = after;
    chosen["contexts"][1]["context"]["namespace"] = json!("web");
    std::fs::write(&file, chosen.to_string()).unwrap();
    let inode = file.metadata().unwrap().ino();
    let again = merge(&sandbox, &[]).succeeded().stdout;
    assert_eq!(again, format!("{} already has context lab\n", file.display()));
    assert_eq!(file.metadata().unwrap().ino(), inode, "it was written again");
    let shown = sandbox.run(&["destroy", "lab", "--dry-run"]).succeeded().stdout;
    let line = format!("{}: context lab", file.display());
    assert!(shown.contains(&line), "{shown}");
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(content(&std::fs::read_to_string(&file).unwrap()), before);
    assert!(!file.with_extension("lock").exists());
}

#[test]
fn the_file_is_the_one_that_kubectl_changes() {
    let sandbox = lab(&of_a_cluster());
    let path = |name: &str| sandbox.path().join(name);
    std::fs::write(path("second"), "").unwrap();
    let list = ["first", "second", "third"]
        .map(path)
        .map(|path| path.display().to_string());
    let mut command = sandbox.command(&["kubeconfig", "lab", "--merge", "--context", "mine"]);
    command.env("KUBECONFIG", list.join(":"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    outcome(child).succeeded();
    assert!(!path("first").exists() && !path("third").exists() && !default_file(&sandbox).exists());
    let written = content(&std::fs::read_to_string(path("second")).unwrap());
    assert_eq!(written["current-context"], "mine");
    merge(&sandbox, &[]).succeeded();
    assert_eq!(default_file(&sandbox).metadata().unwrap().mode() & 0o777, 0o600);
    // Wherever it was added, it is removed.
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    for file in [path("second"), default_file(&sandbox)] {
        let left = content(&std::fs::read_to_string(file).unwrap());
        assert_eq!(
            (&left["contexts"], &left["users"]),
            (&json!([]), &json!([])),
            "{left:#}"
        );
        assert_eq!(left["current-context"], "");
    }
}

#[test]
fn a_kubeconfig_that_is_not_understood_or_has_the_name_is_left_as_it_is() {
    let sandbox = lab(&of_a_cluster());
    let file = default_file(&sandbox);
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let of_another = OTHERS.replace("name: other", "name: lab");
    let two_documents = format!("{OTHERS}---\nkind: Config\n");
    for (text, words) in [
        (
            of_another.as_str(),
            "it already has a cluster lab that is not of this cluster",
        ),
        ("a: [CANARY", "error: cannot change kubeconfig"),
        (&two_documents, "error: cannot change kubeconfig"),
        ("kind: Secret\n", "it is not a kubeconfig: its kind is Secret"),
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = merge(&sandbox, &[]);
        assert_eq!(refused.code, Some(3), "{text}: {refused:?}");
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
        assert!(
            refused.stderr.contains(&file.display().to_string()),
            "{}",
            refused.stderr
        );
        assert!(!refused.stderr.contains("CANARY"), "{}", refused.stderr);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let refused = merge(&sandbox, &[]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(
        refused.stderr.contains("it is not a regular file"),
        "{}",
        refused.stderr
    );
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &of_another).unwrap();
    assert!(
        merge(&sandbox, &[])
            .stderr
            .contains("hint: choose another name with `--context NAME`")
    );
    merge(&sandbox, &["--context", "mine"]).succeeded();
    // After the refusals nothing is recorded for them: the context of that name is not removed.
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(content(&std::fs::read_to_string(&file).unwrap()), content(&of_another));
    // kubectl has the lock while it writes.
    let sandbox = lab(&of_a_cluster());
    std::fs::create_dir(sandbox.path().join(".kube")).unwrap();
    std::fs::write(sandbox.path().join(".kube/config.lock"), "").unwrap();
    let locked = merge(&sandbox, &[]);
    assert_eq!(locked.code, Some(4), "{}", locked.stderr);
    assert!(
        locked.stderr.contains("another program is changing it"),
        "{}",
        locked.stderr
    );
    assert!(!default_file(&sandbox).exists());
}

#[test]
fn the_kubeconfig_of_another_user_is_not_changed_by_root() {
    if !geteuid().is_root() {
        left_out("only root can create a kubeconfig of another user".to_owned());
        return;
    }
    let sandbox = lab(&of_a_cluster());
    let file = default_file(&sandbox);
    let folder = file.parent().unwrap();
    std::fs::create_dir(folder).unwrap();
    chown(folder, Some(61003), None).unwrap();
    let as_sudo_of = |user: &str| {
        let mut command = sandbox.command(&["kubeconfig", "lab", "--merge"]);
        let command = command
            .env("SUDO_UID", user)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        outcome(command.spawn().unwrap())
    };
    // The user could not change a new file of root.
    let refused = as_sudo_of("61003");
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert!(
        refused.stderr.contains(".kube belongs to user 61003"),
        "{}",
        refused.stderr
    );
    assert!(!file.exists());
    std::fs::write(&file, OTHERS).unwrap();
    chown(&file, Some(61003), None).unwrap();
    for user in ["", "61004"] {
        let refused = as_sudo_of(user);
        assert_eq!(refused.code, Some(3), "{}", refused.stderr);
        assert!(refused.stderr.contains("belongs to user 61003"), "{}", refused.stderr);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), OTHERS);
    }
    as_sudo_of("61003").succeeded();
    assert_eq!(file.metadata().unwrap().uid(), 61003);
    assert_ne!(std::fs::read_to_string(&file).unwrap(), OTHERS);
}
