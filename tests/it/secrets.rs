//! Canaries instead of secrets, searched for wherever they must not be: on the screen, in logs, journals and files that
//! others can read, in arguments and environment of children. All runs have umask 0. Also hostile names and folders.

use crate::support::{fake_cloud, fake_installer, qcow2};
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::fake_cloud::FakeCloud;
use crate::support::fake_engine::{Agent, FakeEngine};
use crate::support::fake_kubevirt::{FakeKubevirt, World};
use crate::support::left_out::is_root;
use age::secrecy::ExposeSecret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::digest::sha256;

const PUBLIC_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";
/// Parts of the state folder that may contain the secrets of the cluster itself and are private.
const MAY_HOLD: [&str; 3] = ["installer", "installer.old", "ignition"];
/// These secrets. No part of the state folder may contain any other, such as a platform's password.
const OF_CLUSTER: [&str; 4] = [
    "pull secret",
    "kubeadmin's password",
    "the admin's token",
    "the proxy's password",
];
/// An exception: this copy for users contains none.
const FOR_PEOPLE: &str = "install-config.kept.yaml";

/// A text that does not occur by chance.
fn canary(what: &str) -> String {
    let unique = format!("{what} {} {:?}", std::process::id(), std::time::SystemTime::now());
    format!("canary{}", &sha256(unique)[..24])
}

/// A computer on which the program is run, and the secrets that it knows.
struct Sandbox {
    folder: tempfile::TempDir,
    canaries: Vec<(String, String)>,
    /// All output.
    said: String,
}

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Self {
            folder,
            canaries: Vec::new(),
            said: String::new(),
        };
        sandbox.write("key.pub", PUBLIC_KEY);
        sandbox.write("image.qcow2", &String::from_utf8_lossy(&qcow2::empty()));
        for (name, end) in [("coreos", "c"), ("helper", "h")] {
            let image = [&qcow2::empty()[..], end.as_bytes()].concat();
            std::fs::write(sandbox.path(&format!("{name}.qcow2")), image).unwrap();
        }
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// The state folder of a second computer.
    fn second_home(&self) -> PathBuf {
        self.path("second")
    }

    /// The simulated platform's network is this computer's own.
    fn is_on_the_loopback(&self) {
        let network = r#"{"cidr": "127.94.1.0/24", "gateway": "127.94.1.1", "dhcp_from": "127.94.1.2", "dhcp_to": "127.94.1.254"}"#;
        self.write(
            "sim.json",
            &format!(r#"{{"v": 1, "networks": {{"default": {network}}}}}"#),
        );
    }

    /// Writes a private file of the user.
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn secret(&mut self, what: &str) -> String {
        let canary = canary(what);
        self.knows(what, &canary);
        canary
    }

    /// Adds a secret to search for, also in base64.
    fn knows(&mut self, what: &str, secret: &str) {
        self.canaries.push((what.to_owned(), secret.to_owned()));
        self.canaries.push((
            format!("{what} in base64"),
            STANDARD.encode(secret).trim_end_matches('=').to_owned(),
        ));
    }

    /// A pull secret with its canary as a registry credential.
    fn pull_secret(&mut self) -> String {
        let auth = STANDARD.encode(format!("me:{}", self.secret("pull secret")));
        self.knows("pull secret's entry", &auth);
        format!(r#"{{"auths":{{"a.example.com":{{"auth":"{auth}"}}}}}}"#)
    }

    /// Runs the program with umask 0: files without an explicit mode are readable and writable for all users.
    fn run(&mut self, arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
        let output = Command::new("sh")
            .args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ocpdeploy")])
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("OCPDEPLOY_HOME", self.home())
            .envs(environment.iter().copied())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        self.said += &format!("$ ocpdeploy {}\n{said}", arguments.join(" "));
        (output.status.code(), said.into_owned())
    }

    /// Runs commands that must end with one of these codes.
    #[track_caller]
    fn all(&mut self, environment: &[(&str, &str)], commands: &[(&str, &[i32])]) {
        for (command, codes) in commands {
            let words: Vec<&str> = command.split(' ').collect();
            let (code, said) = self.run(&words, environment);
            assert!(
                code.is_some_and(|code| codes.contains(&code)),
                "{command}: {code:?} {said}"
            );
        }
    }

    /// The canary that a text contains.
    fn found_in(&self, bytes: &[u8]) -> Option<&str> {
        self.found_besides(&[], bytes)
    }

    /// The canary that a text contains, other than those whose names begin so.
    fn found_besides(&self, permitted: &[&str], bytes: &[u8]) -> Option<&str> {
        let holds = |canary: &str| bytes.windows(canary.len()).any(|part| part == canary.as_bytes());
        let is_permitted = |what: &str| permitted.iter().any(|name| what.starts_with(name));
        self.canaries
            .iter()
            .find(|(what, canary)| !is_permitted(what) && holds(canary))
            .map(|(what, _)| what.as_str())
    }

    /// Searches everywhere; returns the number of searched places.
    #[track_caller]
    fn holds_no_secret(&self, given: &BTreeSet<PathBuf>) -> usize {
        assert_eq!(
            self.found_in(self.said.as_bytes()),
            None,
            "on the screen: {}",
            self.said
        );
        let mut looked_at = 1;
        for path in everything(self.folder.path()) {
            if given.contains(&path) {
                continue;
            }
            let data = std::fs::symlink_metadata(&path).unwrap();
            let shown = path.strip_prefix(self.folder.path()).unwrap().display().to_string();
            let is_state = path.starts_with(self.home()) || path.starts_with(self.second_home());
            if is_state && !data.is_symlink() {
                assert_eq!(data.mode() & 0o077, 0, "others may use {shown}: {:o}", data.mode());
            }
            if data.is_dir() || data.is_symlink() {
                continue;
            }
            looked_at += 1;
            let of_cluster = shown.split('/').nth(3).unwrap_or_default();
            let permitted = match is_state && MAY_HOLD.contains(&of_cluster) && !shown.ends_with(FOR_PEOPLE) {
                true => &OF_CLUSTER[..],
                false => &[],
            };
            let found = self.found_besides(permitted, &contents(&path));
            assert_eq!(found, None, "in {shown}");
        }
        looked_at
    }
}

/// The content of a file; a tar is unpacked.
fn contents(path: &Path) -> Vec<u8> {
    let is_tar = path.extension().is_some_and(|end| end == "gz" || end == "tar");
    let bytes = std::fs::read(path).unwrap();
    if !is_tar {
        return bytes;
    }
    let unpacked = Command::new("tar").arg("-xaOf").arg(path).output().unwrap();
    match unpacked.status.success() {
        true => unpacked.stdout,
        false => bytes,
    }
}

/// All files and folders below a folder.
fn everything(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    found
}

fn tell(looked_at: usize) {
    println!("reliability: {looked_at} places looked at for secrets");
    println!("reliability: 0 secrets found");
}

#[test]
fn a_deployment_leaks_no_secret_to_screen_files_or_children() {
    let mut sandbox = Sandbox::new();
    let pull_secret = sandbox.pull_secret();
    sandbox.write("pull-secret.json", &pull_secret);
    let private = sandbox.secret("private key");
    sandbox.write("key", &format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{private}\n"));
    fake_installer::programs(&sandbox.path("."));
    // The kubeadmin password that the fake always writes.
    sandbox.knows("kubeadmin's password", "aB3dE-fGh1j-Klmn0-pqrst");
    // The installer's kubeconfig, which the fake copies.
    let token = sandbox.secret("the admin's token");
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin\n\
         clusters: [{{name: lab, cluster: {{server: 'https://api.lab.example.com:6443'}}}}]\n\
         contexts: [{{name: admin, context: {{cluster: lab, user: admin}}}}]\nusers: [{{name: admin, user: {{token: {token}}}}}]\n"
    );
    sandbox.write("kubeconfig", &kubeconfig);
    // Nothing answers for an API there.
    sandbox.is_on_the_loopback();
    sandbox.write(
        "env.sh",
        "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\nmasters=1\nworkers=1\n\
         installer=openshift-install\npull_secret=pull-secret.json\npub_key=key.pub\nimage=./coreos.qcow2\n\
         harvest_image=./helper.qcow2\nbootstrap_timeout=2s\n",
    );
    let given = everything(sandbox.folder.path());
    let elsewhere = sandbox.secret("another platform's password");
    let environment = [
        ("OCPDEPLOY_OVIRT_PASSWORD", elsewhere.as_str()),
        ("OS_PASSWORD", elsewhere.as_str()),
    ];
    let commands: [(&str, &[i32]); 12] = [
        ("config", &[0]),
        ("config --format json", &[0]),
        ("check", &[0, 4]),
        ("plan", &[0]),
        ("harvest -v", &[0]),
        // Nothing answers at the VIP.
        ("deploy -v", &[4, 6, 7]),
        ("status", &[0]),
        ("status lab --format json", &[0]),
        ("list --format json", &[0]),
        ("ignition show lab master-0", &[0]),
        ("audit --format json", &[0, 1]),
        ("verify lab --format json", &[0, 1]),
    ];
    sandbox.all(&environment, &commands);
    assert!(
        sandbox
            .home()
            .join("clusters/lab/installer/auth/kubeadmin-password")
            .exists()
    );
    // What the fakes recorded: their arguments and environment, as /proc shows them.
    let seen = sandbox.path("create-manifests.seen");
    let seen = std::fs::read_to_string(seen).expect("the installer was run");
    assert_eq!(sandbox.found_in(seen.as_bytes()), None, "a child got a secret: {seen}");
    let mut own = given.clone();
    // Written by the fake next to itself, for the tests; the real one writes nothing there.
    own.extend(["install-config.json", "node-images.json", "openshift.json"].map(|name| sandbox.path(name)));
    let looked_at = sandbox.holds_no_secret(&own);
    assert!(looked_at > 20, "only {looked_at} places");
    // A tool that fails with a secret in its message.
    sandbox.all(&environment, &[("destroy lab --keep-addresses --yes", &[0])]);
    sandbox.write("fail", "");
    sandbox.all(&environment, &[("deploy", &[4])]);
    own.insert(sandbox.path("fail"));
    sandbox.holds_no_secret(&own);
    sandbox.all(
        &environment,
        &[("destroy lab --dry-run", &[0]), ("destroy lab --yes", &[0])],
    );
    tell(sandbox.holds_no_secret(&own));
    assert_eq!(
        everything(&sandbox.home()).iter().filter(|path| path.is_file()).count(),
        1,
        "the inventory's lock remains"
    );
}

/// Variables with secrets are not stored, on this computer or in an export. Later commands say how to set them again.
#[test]
fn secrets_in_variables_are_not_stored() {
    let mut sandbox = Sandbox::new();
    let env = "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\nmasters=3\nworkers=1\n\
               image=coreos\nharvest_image=helper\n";
    sandbox.write("env.sh", env);
    // Contains the nodes' Ignition configs.
    sandbox.write("sim.json", r#"{"v": 1}"#);
    let key = age::x25519::Identity::generate();
    sandbox.write("key.txt", key.to_string().expose_secret());
    sandbox.write("team.keys", &format!("{}\n", key.to_public()));
    let given = everything(sandbox.folder.path());
    let pull_secret = sandbox.pull_secret();
    let password = sandbox.secret("a platform's password");
    let proxy = format!(
        "http://me:{}@proxy.example.com:3128",
        sandbox.secret("the proxy's password")
    );
    let note = sandbox.secret("a variable that is no setting");
    let environment = [
        ("OCPDEPLOY_HTTP_PROXY", proxy.as_str()),
        ("OCPDEPLOY_OVIRT_PASSWORD", password.as_str()),
        ("OCPDEPLOY_PULL_SECRET", pull_secret.as_str()),
        ("OCPDEPLOY_REMARK", note.as_str()),
        ("OCPDEPLOY_WORKER_MEMORY", "300"),
    ];
    let commands: [(&str, &[i32]); 3] = [
        ("deploy --rehearse", &[0]),
        ("state export lab -o lab.age --recipients-file team.keys", &[0]),
        ("state import lab.age --identity key.txt --home second", &[0]),
    ];
    sandbox.all(&environment, &commands);
    for home in [sandbox.home(), sandbox.second_home()] {
        let kept = std::fs::read(home.join("clusters/lab/settings.json")).unwrap();
        let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
        let stored = serde_json::json!({
            "OCPDEPLOY_HTTP_PROXY": "***",
            "OCPDEPLOY_OVIRT_PASSWORD": "***",
            "OCPDEPLOY_PULL_SECRET": "***",
            "OCPDEPLOY_WORKER_MEMORY": "300",
        });
        assert_eq!(kept["environment"], stored);
    }
    tell(sandbox.holds_no_secret(&given));

    // The simulated platform requires no password.
    let (code, said) = sandbox.run(&["scale", "lab", "--workers", "2"], &[]);
    assert_eq!(code, Some(3), "{said}");
    for words in [
        "`http_proxy` is not set",
        "set `http_proxy` in the env file, or OCPDEPLOY_HTTP_PROXY in the environment",
        "`pull_secret` is not set",
        "set `pull_secret_file=FILE`, or OCPDEPLOY_PULL_SECRET in the environment",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("ovirt_password` is not set"), "{said}");
    sandbox.all(&environment, &[("scale lab --workers 2", &[0])]);
    // The env file has them now.
    sandbox.write(
        "env.sh",
        &format!("{env}http_proxy='{proxy}'\npull_secret='{pull_secret}'\n"),
    );
    sandbox.all(&[], &[("scale lab --workers 3", &[0])]);
    sandbox.holds_no_secret(&given);
}

#[test]
fn secrets_are_not_accepted_as_arguments() {
    let mut sandbox = Sandbox::new();
    let pull_secret = sandbox.pull_secret();
    let password = canary("password");
    for (setting, hint) in [
        (
            format!("ovirt_password={password}"),
            "set `ovirt_password_file=FILE`, or OCPDEPLOY_OVIRT_PASSWORD in the environment",
        ),
        (
            format!("pullsecret={pull_secret}"),
            "set `pull_secret_file=FILE`, or OCPDEPLOY_PULL_SECRET in the environment",
        ),
        (
            format!("https_proxy=http://me:{password}@proxy.example.com:3128"),
            "set `https_proxy` in the env file, or OCPDEPLOY_HTTPS_PROXY in the environment",
        ),
    ] {
        let name = setting.split('=').next().unwrap();
        let refused = format!("`{name}` contains a secret, and other users can read the arguments of a command");
        for command in [
            &["config", "--rehearse"][..],
            &["deploy", "--rehearse", "--backend", "sim"],
        ] {
            let (code, said) = sandbox.run(&[command, &["--set", &setting]].concat(), &[]);
            assert_eq!(code, Some(3), "{said}");
            assert!(said.contains(&refused) && said.contains(hint), "{said}");
            assert!(
                !said.contains(&password) && sandbox.found_in(said.as_bytes()).is_none(),
                "{said}"
            );
            assert!(!sandbox.home().exists(), "{name}");
        }
    }
    // The names of files are no secrets.
    sandbox.write("password", &password);
    sandbox.write("pull-secret.json", &pull_secret);
    let arguments = [
        "--set",
        "ovirt_password_file=password",
        "--set",
        "pull_secret=pull-secret.json",
    ];
    let plan = ["plan", "--rehearse", "--backend", "sim"];
    let (code, said) = sandbox.run(&[&plan[..], &arguments].concat(), &[]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn the_password_of_ovirt_is_not_leaked() {
    let engine = FakeEngine::with(|world| {
        world.tick = 3_000;
        world.uploaded_agent = Agent::Installed;
    });
    let mut sandbox = Sandbox::new();
    sandbox.knows("the engine's password", &engine.password);
    let wrong = sandbox.secret("a wrong password");
    sandbox.write("ca.pem", &engine.ca_pem);
    let env = |password: &str| {
        format!(
            "cluster=lab\ndomain=example.com\nbackend=ovirt\novirt_url={}\novirt_user={}\n{password}\novirt_ca=ca.pem\n\
             ovirt_storage_domain=data\nmachine_network=192.168.99.0/24\nimages_dir=.\nmasters=1\nworkers=1\n",
            engine.url, engine.user
        )
    };
    sandbox.write("env.sh", &env(&format!("ovirt_password='{}'", engine.password)));
    sandbox.write("wrong.sh", &env(&format!("ovirt_password='{wrong}'")));
    sandbox.write("none.sh", &env(""));
    let given = everything(sandbox.folder.path());
    let commands: [(&str, &[i32]); 7] = [
        ("config --rehearse --format json", &[0]),
        ("check --rehearse", &[0, 4]),
        ("check wrong.sh --rehearse", &[4, 5]),
        ("harvest wrong.sh --rehearse", &[4, 5]),
        ("harvest --rehearse -v", &[0]),
        ("harvest --rehearse --set ovirt_user=nobody@internal", &[3, 4, 5, 7]),
        ("audit --format json", &[0, 1]),
    ];
    sandbox.all(&[], &commands);
    let password = engine.password.clone();
    let told = [("OCPDEPLOY_OVIRT_PASSWORD", password.as_str())];
    sandbox.all(
        &told,
        &[("status lab --format json", &[0]), ("destroy lab --dry-run", &[0])],
    );
    tell(sandbox.holds_no_secret(&given));
    sandbox.all(&told, &[("destroy lab --yes", &[0])]);
    sandbox.holds_no_secret(&given);
}

#[test]
fn the_password_of_openstack_is_not_leaked() {
    let cloud = FakeCloud::start();
    let mut sandbox = Sandbox::new();
    sandbox.knows("the cloud's password", fake_cloud::PASSWORD);
    let wrong = sandbox.secret("a wrong password");
    let pull_secret = sandbox.pull_secret();
    sandbox.write(
        "env.sh",
        &format!(
            "cluster=lab\ndomain=example.com\nbackend=openstack\nmasters=1\nworkers=0\nnetwork=private\n\
             pull_secret='{pull_secret}'\npub_key=key.pub\nimage=rhcos\nmcs=http\n"
        ),
    );
    let clouds = |password: &str| {
        format!(
            "clouds:\n  lab:\n    region_name: one\n    auth:\n      auth_url: {}\n      username: demo\n      \
             project_name: demo\n      password: {password}\n",
            cloud.auth_url()
        )
    };
    sandbox.write("clouds.yaml", &clouds(fake_cloud::PASSWORD));
    let given = everything(sandbox.folder.path());
    let commands: [(&str, &[i32]); 5] = [
        ("config --format json", &[0]),
        ("harvest -v", &[0]),
        ("status lab --format json", &[0]),
        ("destroy lab --yes", &[0]),
        ("list", &[0]),
    ];
    sandbox.all(&[], &commands);
    sandbox.write("clouds.yaml", &clouds(&wrong));
    sandbox.run(&["harvest"], &[]);
    sandbox.write("clouds.yaml", "clouds: {lab: {auth: {password: [");
    sandbox.run(&["harvest"], &[]);
    tell(sandbox.holds_no_secret(&given));
    cloud.finish();
}

#[test]
fn the_token_of_kubevirt_is_not_leaked() {
    let server = FakeKubevirt::start(World::with_tenants(&["blue", "red"]));
    let mut sandbox = Sandbox::new();
    sandbox.knows("the tenant's token", "blue-token");
    let wrong = sandbox.secret("a wrong token");
    for (file, token) in [("blue.kubeconfig", "blue-token"), ("wrong.kubeconfig", wrong.as_str())] {
        server.kubeconfig(&sandbox.path(file), token, "blue");
        let env = format!(
            "cluster=lab\ndomain=example.com\nbackend=kubevirt\nkubevirt_kubeconfig={file}\nnetwork=lan\n\
             machine_network=10.7.0.0/24\nimages_dir=.\nmasters=1\nworkers=0\n"
        );
        sandbox.write(&file.replace("kubeconfig", "sh"), &env);
    }
    let given = everything(sandbox.folder.path());
    let commands: [(&str, &[i32]); 9] = [
        ("config blue.sh --rehearse --format json", &[0]),
        ("check blue.sh --rehearse", &[0]),
        ("check wrong.sh --rehearse", &[4]),
        ("harvest wrong.sh --rehearse", &[5]),
        ("harvest blue.sh --rehearse -v --set harvest_timeout=5s", &[0]),
        ("status", &[0]),
        ("audit --env blue.sh --format json", &[1]),
        ("audit --env wrong.sh", &[5]),
        ("destroy lab --yes", &[0]),
    ];
    sandbox.all(&[], &commands);
    tell(sandbox.holds_no_secret(&given));
}

/// ssh may send its environment to other computers, so it gets only the variables that it needs.
#[test]
fn ssh_gets_no_variable_that_may_contain_a_secret() {
    let mut sandbox = Sandbox::new();
    sandbox.write(
        "env.sh",
        "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\nmasters=1\nworkers=0\n",
    );
    // Addresses of the simulated platform outside of the loopback are never contacted.
    sandbox.is_on_the_loopback();
    sandbox.write("ssh", "#!/bin/sh\nenv >> seen\necho \"$@\" >> seen\n");
    std::fs::set_permissions(sandbox.path("ssh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        sandbox.folder.path().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let secret = sandbox.secret("a password of the shell");
    let environment = [
        ("PATH", path.as_str()),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("LC_ALL", "C"),
        ("TERM", "dumb"),
        ("OCPDEPLOY_OVIRT_PASSWORD", secret.as_str()),
        ("OS_PASSWORD", secret.as_str()),
        ("SSHPASS", secret.as_str()),
        ("ANYTHING", secret.as_str()),
    ];
    // This ssh makes no connection on which a command could be run.
    let commands: [(&str, &[i32]); 3] = [
        ("harvest --rehearse", &[0]),
        ("node ssh lab master-0 -- uptime", &[4]),
        ("node ssh lab master-0", &[0]),
    ];
    sandbox.all(&environment, &commands);
    let seen = std::fs::read_to_string(sandbox.path("seen")).expect("ssh was run");
    assert_eq!(sandbox.found_in(seen.as_bytes()), None, "{seen}");
    for line in [
        "SSH_AUTH_SOCK=/run/agent",
        "LC_ALL=C",
        "TERM=dumb",
        &format!("PATH={path}"),
    ] {
        assert!(seen.lines().any(|seen| seen == line), "{line} is not in {seen}");
    }
    assert!(seen.contains(" BatchMode=yes "), "{seen}");
    sandbox.holds_no_secret(&BTreeSet::new());
}

#[test]
fn a_secret_in_an_env_file_that_others_can_read_is_a_warning() {
    let mut sandbox = Sandbox::new();
    let pull_secret = sandbox.pull_secret();
    sandbox.write(
        "env.sh",
        &format!("cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\npull_secret='{pull_secret}'\npub_key=key.pub\nimage=coreos\n"),
    );
    for (mode, warned) in [(0o600, false), (0o640, true), (0o644, true)] {
        std::fs::set_permissions(sandbox.path("env.sh"), std::fs::Permissions::from_mode(mode)).unwrap();
        let (code, said) = sandbox.run(&["plan"], &[]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(
            said.contains("other users can read pull_secret in env.sh"),
            warned,
            "{mode:o}: {said}"
        );
    }
}

#[test]
fn a_cluster_name_cannot_select_another_folder() {
    let mut sandbox = Sandbox::new();
    // A folder that a name must not select: it looks like a cluster's folder.
    let elsewhere = sandbox.path("elsewhere");
    std::fs::create_dir_all(elsewhere.join("installer")).unwrap();
    std::fs::write(elsewhere.join("journal.jsonl"), "").unwrap();
    let absolute = elsewhere.display().to_string();
    let base = "domain=example.com\nbackend=sim\nsim_state=sim.json\nimage=coreos\nharvest_image=helper\n";
    let mut tried = 0;
    let names = [
        "../elsewhere",
        "../../elsewhere",
        absolute.as_str(),
        "lab\n../x",
        "lab/../..",
        ".",
        "..",
        "-lab",
    ];
    for name in names {
        sandbox.write("env.sh", &format!("cluster='{name}'\n{base}"));
        let before = everything(sandbox.folder.path());
        let (code, said) = sandbox.run(&["deploy", "--rehearse"], &[]);
        assert_eq!(code, Some(3), "{name:?}: {said}");
        for command in [
            &["destroy", "--yes", "--", name][..],
            &["destroy", "--yes", "--from-backend", "--env", "env.sh", "--", name],
            &["destroy", "--yes", "--env", "env.sh", "--", name],
            &["status", "--", name],
            &["scale", "--workers", "1", "--", name],
            &["stop", "--", name],
            &["start", "--", name],
            &["snapshot", "save", "--", name, "before"],
            &["snapshot", "delete", "--", "lab", name],
            &["verify", "--repair", "--", name],
            &["kubeconfig", "--", name],
            &["deploy", "--rehearse", "--cluster", name],
        ] {
            let (code, said) = sandbox.run(command, &[]);
            assert!(matches!(code, Some(2..=4)), "{command:?}: {code:?} {said}");
            tried += 1;
        }
        assert_eq!(everything(sandbox.folder.path()), before, "{name:?}");
    }
    println!("reliability: {tried} inputs tried that lead astray");
}

/// Runs the program as user `nobody`, in a folder that all users may enter.
fn as_nobody(program: &Path, home: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program)
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("OCPDEPLOY_HOME", home)
        .current_dir("/")
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn a_state_folder_of_another_user_is_rejected() {
    let mut sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.home()).unwrap();
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(&sandbox.home(), 0o777);
    let (code, said) = sandbox.run(&["list"], &[]);
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains("everyone can write to") && said.contains("--home"),
        "{said}"
    );
    open(&sandbox.home(), 0o755);
    assert_eq!(sandbox.run(&["list"], &[]).0, Some(0));

    if !is_root("make folders of another user") {
        return;
    }
    open(sandbox.folder.path(), 0o755);
    let program = sandbox.path("ocpdeploy");
    std::fs::copy(env!("CARGO_BIN_EXE_ocpdeploy"), &program).unwrap();
    let theirs = sandbox.path("theirs");
    std::fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65533), Some(65533)).unwrap();
    open(&theirs, 0o755);
    let (code, said) = as_nobody(&program, &theirs, &["list"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("belongs to user 65533"), "{said}");
    // A link of another user in a folder that all users can write to; root does not follow it either.
    let shared = sandbox.path("shared");
    std::fs::create_dir(&shared).unwrap();
    open(&shared, 0o1777);
    let link = shared.join("state");
    symlink(&theirs, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(65533), Some(65533)).unwrap();
    for (code, said) in [
        as_nobody(&program, &link, &["list"]),
        sandbox.run(&["list", "--home", link.to_str().unwrap()], &[]),
    ] {
        assert_eq!(code, Some(4), "{said}");
        assert!(
            said.contains("is a link of user 65533") || said.contains("Permission denied"),
            "{said}"
        );
    }
    let own = sandbox.path("own");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    let (code, said) = as_nobody(&program, &own, &["list"]);
    assert_eq!(code, Some(0), "{said}");
}
