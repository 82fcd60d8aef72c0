//! A bundle for support: it contains no secret, in any encoding.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::sshd::Sshd;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flate2::{Compression, write::GzEncoder};

const PASSWORD: &str = "canary4f21bb\"%/+";
const ADMIN: &str = "canary81d0c3admin";

fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes.as_ref()).unwrap();
    encoder.finish().unwrap()
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Each file contains one secret, and the word `kept`.
fn files(pull_secret: &str) -> Vec<(&'static str, Vec<u8>)> {
    let basic = STANDARD.encode(format!("me:{PASSWORD}"));
    let wrapped = STANDARD.encode(format!("{{\"kind\": \"Secret\", \"data\": {{\"a\": \"{basic}\"}}}}"));
    let wrapped: Vec<_> = wrapped.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    let ignition = format!(
        r#"{{"storage": {{"files": [{{"path": "/var/lib/kubelet/config.json", "contents": {{"source": "data:,{}"}}}}]}}}}"#,
        percent(pull_secret)
    );
    let packed = STANDARD.encode(gzip(&ignition));
    let packed = format!(r#"{{"source": "data:;base64,{packed}", "compression": "gzip"}}"#);
    let key = "-----BEGIN EC PRIVATE KEY-----\ncanary77e9key\n-----END EC PRIVATE KEY-----";
    vec![
        ("plain", format!("kept {PASSWORD}").into_bytes()),
        ("pull-secret", format!("kept {pull_secret}").into_bytes()),
        ("auth", format!("kept Authorization: Basic {basic}").into_bytes()),
        ("base64", format!("kept {}", STANDARD.encode(PASSWORD)).into_bytes()),
        (
            "base64-1",
            format!("kept {}", STANDARD.encode(format!("1{PASSWORD}"))).into_bytes(),
        ),
        (
            "base64-2",
            format!("kept {}", URL_SAFE_NO_PAD.encode(format!("22{PASSWORD}"))).into_bytes(),
        ),
        (
            "wrapped.yaml",
            format!("kept: |\n  {}\n", wrapped.join("\n  ")).into_bytes(),
        ),
        (
            "percent",
            format!("kept https://me:{}@host/", percent(PASSWORD)).into_bytes(),
        ),
        ("json", format!("kept {}", serde_json::json!(PASSWORD)).into_bytes()),
        (
            "json-2",
            format!("kept {}", serde_json::json!(serde_json::json!(PASSWORD).to_string())).into_bytes(),
        ),
        ("ignition.json", format!("kept {ignition}").into_bytes()),
        ("packed.json", format!("kept {packed}").into_bytes()),
        (
            "machineconfigs.json",
            format!("kept {}", serde_json::json!(packed)).into_bytes(),
        ),
        ("openapi.json.gz", gzip(format!("kept {PASSWORD}"))),
        ("kubeconfig", format!("kept token: {ADMIN}").into_bytes()),
        ("key", format!("kept {key}").into_bytes()),
        (
            "key-data",
            format!("kept client-key-data: {}", STANDARD.encode(key)).into_bytes(),
        ),
        ("kubeadmin", b"kept aB3dE-fGh1j-Klmn0-pqrst".to_vec()),
    ]
}

/// Searches everything in a file that can be decoded, with an independent program.
fn found_in(file: &Path) -> String {
    let output = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/decode_all.py"))
        .arg(file)
        .args(["canary", "aB3dE-fGh1j"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_bundle_holds_no_secret_in_any_encoding() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).unwrap();
    crate::support::fake_installer::programs(folder.path());
    let auth = STANDARD.encode(format!("me:{PASSWORD}"));
    let pull_secret = format!(r#"{{"auths":{{"a.example.com":{{"auth":"{auth}"}}}}}}"#);
    let network =
        r#"{"cidr": "127.94.2.0/24", "gateway": "127.94.2.1", "dhcp_from": "127.94.2.2", "dhcp_to": "127.94.2.15"}"#;
    write(
        "sim.json",
        format!(r#"{{"v": 1, "networks": {{"default": {network}}}}}"#).as_bytes(),
    );
    write("pull-secret.json", pull_secret.as_bytes());
    write(
        "key.pub",
        b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab",
    );
    for image in ["coreos", "helper"] {
        write(
            &format!("{image}.qcow2"),
            &[&crate::support::qcow2::empty()[..], image.as_bytes()].concat(),
        );
    }
    let ca = STANDARD.encode(crate::support::fake_kube::authority::Authority::new().pem());
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin\n\
         clusters: [{{name: lab, cluster: {{server: 'https://api.lab.example.com:6443', certificate-authority-data: {ca}}}}}]\n\
         contexts: [{{name: admin, context: {{cluster: lab, user: admin}}}}]\nusers: [{{name: admin, user: {{token: {ADMIN}}}}}]\n"
    );
    write("kubeconfig", kubeconfig.as_bytes());
    write(
        "env.sh",
        b"cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\nmasters=1\nworkers=0\n\
          installer=openshift-install\npull_secret=pull-secret.json\npub_key=key.pub\nimage=./coreos.qcow2\n\
          harvest_image=./helper.qcow2\nbootstrap_timeout=1s\n",
    );
    // What the installer gathers from the nodes.
    std::fs::create_dir(path("gathered")).unwrap();
    let files = files(&pull_secret);
    for (name, bytes) in &files {
        write(&format!("gathered/{name}"), bytes);
        assert!(
            !found_in(&path(&format!("gathered/{name}"))).is_empty(),
            "the independent program finds nothing in {name}"
        );
    }
    write("gathered/journal.bin", b"\0canary");
    // The same in the journals of nodes, which are fetched over a real sshd.
    std::fs::create_dir(path("node")).unwrap();
    write(
        "node/journalctl",
        format!(
            "#!/bin/sh\necho \"kept $*\"\ncd {}/gathered\ncat plain pull-secret auth base64 percent json kubeconfig key\n",
            folder.path().display()
        )
        .as_bytes(),
    );
    std::fs::set_permissions(path("node/journalctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
    // sshd listens on 16 at most.
    let ips: Vec<_> = (2..16).map(|last| [127, 94, 2, last].into()).collect();
    let sshd = Sshd::start(folder.path(), &ips, &path("node"));
    let tools = sshd
        .as_ref()
        .map(|sshd| format!("{}:", sshd.tools.display()))
        .unwrap_or_default();
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(arguments)
            .env_clear()
            .env("HOME", folder.path())
            .env("PATH", format!("{tools}{}", std::env::var("PATH").unwrap()))
            .env("OCPDEPLOY_HOME", path("home"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let output = run(&["deploy"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    let state = std::fs::read_dir(path("home/clusters/lab"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let bundle = state
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "tar"))
        .unwrap();
    assert_eq!(found_in(&bundle), "");
    assert!(
        said.lines()
            .any(|line| line.contains("skipped ") && line.ends_with("/rendered-assets/journal.bin")),
        "{said}"
    );
    // The text around the secrets is still there.
    let mut tar = tar::Archive::new(std::fs::File::open(&bundle).unwrap());
    let (mut kept, mut journals) = (0, 0);
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let is_one = entry.path().unwrap().to_string_lossy().contains("rendered-assets/");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
        if is_one {
            assert!(text.contains("kept") && text.contains("****"), "{text}");
            kept += 1;
        }
        if text.contains("kept --boot") {
            assert!(text.contains("--unit kubelet") && text.contains("****"), "{text}");
            journals += 1;
        }
    }
    assert_eq!(kept, files.len());
    let nodes = if sshd.is_some() { 2 } else { 0 };
    assert_eq!(journals, nodes, "bootstrap's and the master's: {said}");
    logs_hold_no_secret_and_say_what_is_missing(folder.path(), &run, sshd);
    println!("reliability: {} places looked at for secrets", files.len());
    println!("reliability: 0 secrets found");
}

/// The API is down; the bootstrap and the master answer until sshd ends.
fn logs_hold_no_secret_and_say_what_is_missing(folder: &Path, run: &dyn Fn(&[&str]) -> Output, sshd: Option<Sshd>) {
    let logs = |arguments: &[&str]| {
        let output = run(&[&["logs", "lab"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let said = logs(&["-o", "all.tar.gz"]);
    assert!(
        said.contains("not fetched:\n") && said.contains("objects of the cluster's API: "),
        "{said}"
    );
    assert!(said.ends_with("logs written to all.tar.gz\n"), "{said}");
    let archive = folder.join("all.tar.gz");
    assert_eq!(found_in(&archive), "");
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(archive).unwrap()));
    let entries = tar.entries().unwrap();
    let names: Vec<_> = entries
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    let mut expected = vec![
        "all/journal.jsonl",
        "all/bundle-",
        "all/not-fetched.txt",
        "all/log/openshift-install-",
    ];
    if sshd.is_some() {
        let of_nodes = [
            "all/journals/bootstrap.txt",
            "all/journals/master-0.txt",
            "rendered-assets/",
        ];
        expected.extend(of_nodes);
    }
    for name in expected {
        assert!(names.iter().any(|found| found.contains(name)), "{name}: {names:?}");
    }
    // What the installer gathered for this archive has all secrets.
    let left = std::fs::read_dir(folder.join("home/clusters/lab/installer")).unwrap();
    let is_bundle = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("log-bundle-");
    assert!(
        !left
            .map(|entry| entry.unwrap().file_name())
            .any(|name| is_bundle(&name))
    );

    drop(sshd);
    let said = logs(&["master-0", "-o", "one"]);
    assert!(
        said.contains("  journal of master-0: cannot log in to master-0.lab.example.com: "),
        "{said}"
    );
    assert!(!said.contains("bootstrap"), "{said}");
    let missing = std::fs::read_to_string(folder.join("one/not-fetched.txt")).unwrap();
    assert!(missing.contains("\n  journal of master-0: "), "{missing}");
    assert!(folder.join("one/consoles/lab-master-0.txt").is_file());
    assert!(!folder.join("one/journal.jsonl").exists());
    let output = run(&["logs", "lab", "-o", "one"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the directory one is not empty"));
}
