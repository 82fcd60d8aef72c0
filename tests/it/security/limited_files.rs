//! Files that settings and arguments name: one without an end, and a FIFO that nobody writes to, are errors.

use std::process::{Child, Command, Stdio};

use crate::support::sandbox::{Outcome, outcome};

const ENV: &str = "cluster=lab\ndomain=example.com\nimage=coreos\n";
const PULL_SECRET: &str = r#"{"auths":{"registry.example.com":{"auth":"eDp5"}}}"#;
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab\n";

/// A command; `FILE` is the file that it reads.
struct Case {
    arguments: &'static str,
    /// Lines of the env file, besides the usual ones.
    lines: &'static str,
    variable: Option<&'static str>,
}

const fn case(arguments: &'static str, lines: &'static str) -> Case {
    Case {
        arguments,
        lines,
        variable: None,
    }
}

const CASES: &[Case] = &[
    case("check env.sh", "backend=sim\npull_secret=FILE"),
    case("check env.sh", "backend=sim\npub_key=FILE"),
    case("check env.sh", "backend=sim\nkeys=FILE"),
    case("check env.sh", "backend=sim\nca=FILE"),
    case("check env.sh", "backend=sim\nnetwork_config=FILE"),
    case("check env.sh", "backend=sim\nregistry_mirrors=FILE"),
    case("check env.sh", "backend=sim\nignition_extra=FILE"),
    case(
        "check env.sh",
        "backend=sim\nversion=4.19.3\ninstaller_mirror=https://127.0.0.1:9\ninstaller_mirror_key=FILE",
    ),
    case(
        "check env.sh",
        "backend=kubevirt\nnetwork=pod\nkubevirt_kubeconfig=FILE",
    ),
    case(
        "check env.sh",
        "backend=ovirt\nnetwork=lab\novirt_url=https://127.0.0.1:9/ovirt-engine\novirt_cluster=lab\n\
         ovirt_storage_domain=lab\novirt_password_file=FILE",
    ),
    Case {
        arguments: "check env.sh",
        lines: "backend=openstack\nnetwork=lab\nos_cloud=lab",
        variable: Some("OS_CLIENT_CONFIG_FILE"),
    },
    case("check FILE", ""),
    case("adopt env.sh --kubeconfig FILE", "backend=sim"),
    case("ignition check FILE", ""),
    case("state import FILE", ""),
    case("state import exported --identity FILE", ""),
    case("state import with-passphrase --passphrase-file FILE", ""),
];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("pull", PULL_SECRET);
        place.write("key.pub", KEY);
        let recipient = age::x25519::Identity::generate().to_public();
        place.write("exported", age::encrypt(&recipient, b"x").unwrap());
        let mut passphrase = age::scrypt::Recipient::new("x".to_owned().into());
        passphrase.set_work_factor(2);
        place.write("with-passphrase", age::encrypt(&passphrase, b"x").unwrap());
        place
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.0.path().join(name), content).unwrap();
    }

    /// Starts a command with at most 2 GiB of memory.
    fn start(&self, number: usize, case: &Case, file: &str) -> Child {
        let named = |text: &str| text.replace("FILE", file);
        let mut lines = format!("{ENV}{}\n", named(case.lines));
        for (setting, value) in [
            ("pull_secret", "pull"),
            ("pub_key", "key.pub"),
            ("sim_state", "sim.json"),
        ] {
            if !case.lines.contains(setting) {
                lines += &format!("{setting}={value}\n");
            }
        }
        let env = format!("{number}.sh");
        self.write(&env, lines);
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "ulimit -v 2097152; exec \"$0\" \"$@\"",
                env!("CARGO_BIN_EXE_ocpdeploy"),
            ])
            .args(
                case.arguments
                    .split(' ')
                    .map(|word| named(word).replace("env.sh", &env)),
            )
            .env_clear()
            .env("HOME", self.0.path())
            .envs(case.variable.map(|variable| (variable, file)))
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Runs all commands at once.
    fn run(&self, file: &str) -> Vec<Outcome> {
        let children: Vec<_> = CASES
            .iter()
            .enumerate()
            .map(|(number, case)| self.start(number, case, file))
            .collect();
        children.into_iter().map(outcome).collect()
    }
}

#[test]
fn a_file_without_an_end_and_a_fifo_without_a_writer_are_errors() {
    let place = Place::new();
    let fifo = place.0.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (file, reasons) in [
        ("/dev/zero", ["larger than", "does not exist", "Header is invalid"]),
        (
            fifo.to_str().unwrap(),
            [
                "no program wrote to this FIFO within 5 s",
                "does not exist",
                "cannot import",
            ],
        ),
    ] {
        for (case, ended) in CASES.iter().zip(place.run(file)) {
            let what = format!("{} {} {:?} {file}", case.arguments, case.lines, case.variable);
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(matches!(ended.code, Some(2..=4)), "{what}: {:?} {said}", ended.code);
            assert!(said.contains(file), "{what}: {said}");
            assert!(reasons.iter().any(|reason| said.contains(reason)), "{what}: {said}");
        }
    }
}

#[test]
fn a_file_that_is_no_network_state_is_not_quoted() {
    let place = Place::new();
    place.write("shadow", "root:$6$secret:19000:\n- [daemon:*:19000\n");
    let case = case("check env.sh", "backend=sim\nnetwork_config=FILE");
    let ended = outcome(place.start(0, &case, "shadow"));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("shadow:"), "{}", ended.stderr);
    for content in ["$6$secret", "daemon"] {
        assert!(!ended.stderr.contains(content), "{}", ended.stderr);
    }
}
