//! OpenStack where real services do not misbehave on demand: the program against a thin cloud that does.
//!
//! What the services accept and answer is not judged here but by the real ones, see tests/lab/openstack.

#[path = "support/fake_cloud.rs"]
mod fake_cloud;

use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_cloud::{FakeCloud, PASSWORD, Trouble, flavor};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A folder with an env file of a small cluster, in which the program is run.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let env = "cluster=lab\ndomain=example.com\nbackend=openstack\nmasters=1\nworkers=0\nnetwork=private\n\
                   pull_secret='{\"auths\":{\"registry.example.com\":{\"auth\":\"eDp5\"}}}'\npub_key=key.pub\nimage=rhcos\n";
        std::fs::write(folder.path().join("env.sh"), env).unwrap();
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";
        std::fs::write(folder.path().join("key.pub"), key).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.0.path().join(name), text).unwrap();
        self
    }

    fn clouds(&self, auth_url: &str, more: &str) -> &Self {
        self.write(
            "clouds.yaml",
            &format!(
                "clouds:\n  lab:\n    region_name: one\n{more}    auth:\n      auth_url: {auth_url}\n      username: demo\n      \
                 project_name: demo\n      password: {PASSWORD}\n"
            ),
        )
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("OCPDEPLOY_HOME", self.0.path().join("home"))
            .envs(variables.iter().copied())
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn harvest(&self) -> Output {
        self.run(&["harvest"], &[])
    }

    /// What a failing harvest says, without ports and folders of this run.
    fn refusal(&self, code: i32) -> String {
        let output = self.harvest();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(!text.contains(PASSWORD), "it tells the password: {text}");
        text.find("error: ").map_or(String::new(), |at| text[at..].to_owned())
    }
}

fn told(text: &str, place: &Place) -> String {
    let folder = place.0.path().display().to_string();
    let text = text.replace(&folder, "FOLDER");
    let mut told = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("127.0.0.1:") {
        told += &rest[..at];
        told += "127.0.0.1:PORT";
        rest = rest[at + 10..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    told + rest
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    text
}

#[test]
fn a_harvest_makes_one_port_for_each_node_and_vip() {
    let (cloud, place) = (FakeCloud::start(), Place::new());
    place.clouds(&cloud.auth_url(), "");
    succeeded(&place.harvest());
    let world = cloud.finish();
    let names: Vec<_> = world.ports.iter().map(|port| port["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["api", "bootstrap", "ingress", "master-0"].map(|name| format!("{name}.lab.example.com"))
    );
    for port in &world.ports {
        assert_eq!(port["description"], "ocpdeploy lab.example.com");
        assert_eq!(port["fixed_ips"][0]["subnet_id"], "sub-1");
    }
}

#[test]
fn a_service_that_asks_for_a_pause_gets_it() {
    let (cloud, place) = (FakeCloud::start(), Place::new());
    place.clouds(&cloud.auth_url(), "");
    cloud.trouble("GET /network/v2.0/networks", [Trouble::Later(429, 1)]);
    cloud.trouble(
        "POST /network/v2.0/ports",
        [Trouble::Later(503, 1), Trouble::Later(429, 1)],
    );
    let begin = Instant::now();
    succeeded(&place.harvest());
    assert!(begin.elapsed() >= Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(cloud.finish().ports.len(), 4);
}

#[test]
fn what_only_looks_is_asked_again_after_a_fault_and_what_makes_is_not() {
    let (cloud, place) = (FakeCloud::start(), Place::new());
    place.clouds(&cloud.auth_url(), "");
    let broken = || Trouble::Status(502, json!("<html><h1>Bad Gateway</h1></html>"));
    cloud.trouble("GET /compute/v2.1/limits", [broken(), broken()]);
    cloud.trouble("POST /network/v2.0/ports", [broken()]);
    let refusal = place.refusal(5);
    assert!(
        refusal.contains("Bad Gateway") && refusal.contains("hold address"),
        "{refusal}"
    );
    assert_eq!(cloud.asked("POST /network/v2.0/ports"), 1);
    // The same command goes on.
    succeeded(&place.harvest());
    assert_eq!(cloud.finish().ports.len(), 4);
}

#[test]
fn a_port_whose_answer_was_cut_off_is_found_again_and_not_made_twice() {
    let (cloud, place) = (FakeCloud::start(), Place::new());
    place.clouds(&cloud.auth_url(), "");
    cloud.trouble("POST /network/v2.0/ports", [Trouble::Half]);
    let refusal = place.refusal(5);
    assert!(refusal.contains("was cut off"), "{refusal}");
    succeeded(&place.harvest());
    let world = cloud.finish();
    assert_eq!(world.ports.len(), 4, "{:?}", world.ports);
}

#[test]
fn a_token_that_ends_under_way_is_renewed() {
    let (cloud, place) = (FakeCloud::start(), Place::new());
    place.clouds(&cloud.auth_url(), "");
    cloud.trouble("GET /compute/v2.1/flavors", [Trouble::Expired]);
    cloud.trouble("POST /network/v2.0/ports", [Trouble::Expired]);
    succeeded(&place.harvest());
    assert_eq!(cloud.asked("POST /identity/v3/auth/tokens"), 3);
    assert_eq!(cloud.finish().ports.len(), 4);
}

#[test]
fn a_token_that_ends_soon_is_renewed_before_it_is_used() {
    let (cloud, place) = (FakeCloud::start(), Place::new());
    place.clouds(&cloud.auth_url(), "");
    cloud.with(|world| world.lifetime = Some(200));
    succeeded(&place.harvest());
    let (renewed, refused) = (cloud.asked("POST /identity/"), cloud.asked("GET /"));
    assert!(renewed > 5, "{renewed} tokens for {refused} requests");
    cloud.finish();
}

#[test]
fn slow_answers_are_waited_for() {
    let (cloud, place) = (FakeCloud::start(), Place::new());
    place.clouds(&cloud.auth_url(), "");
    cloud.trouble("POST /network/v2.0/ports", [Trouble::Slow(Duration::from_secs(3))]);
    succeeded(&place.harvest());
    assert_eq!(cloud.asked("POST /network/v2.0/ports"), 4);
    cloud.finish();
}

#[test]
fn variables_and_application_credentials_let_in_too() {
    let (cloud, place) = (FakeCloud::start(), Place::new());
    let url = cloud.auth_url();
    let plain = url.trim_end_matches("/v3");
    let ways: [&[(&str, &str)]; 2] = [
        &[
            ("OS_AUTH_URL", plain),
            ("OS_USERNAME", "demo"),
            ("OS_PASSWORD", PASSWORD),
            ("OS_PROJECT_NAME", "demo"),
            ("OS_USER_DOMAIN_NAME", "Default"),
        ],
        &[
            ("OS_AUTH_URL", &url),
            ("OS_APPLICATION_CREDENTIAL_ID", "abc"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", PASSWORD),
        ],
    ];
    for way in ways {
        succeeded(&place.run(&["harvest"], way));
    }
    // The password may stand in a file of its own.
    place.clouds(&url, "").write(
        "secure.yaml",
        &format!("clouds:\n  lab:\n    auth:\n      password: {PASSWORD}\n"),
    );
    let clouds = std::fs::read_to_string(place.0.path().join("clouds.yaml")).unwrap();
    place.write(
        "clouds.yaml",
        &clouds.replace(&format!("      password: {PASSWORD}\n"), ""),
    );
    succeeded(&place.harvest());
    cloud.finish();
}

/// Each mistake, on a cloud of its own, and what the program says of it.
#[test]
fn mistakes_are_told_in_words() {
    type Mistake = (&'static str, i32, fn(&FakeCloud, &Place));
    let mistakes: [Mistake; 10] = [
        ("unknown cloud", 5, |_, place| {
            place.write("env.sh", &env(place, "os_cloud=lbo\n"));
        }),
        ("wrong password", 5, |cloud, place| {
            let url = cloud.auth_url();
            place
                .clouds(&url, "")
                .write("secure.yaml", "clouds:\n  lab:\n    auth:\n      password: other\n");
        }),
        ("missing catalog entry", 4, |cloud, _| {
            cloud.with(|world| world.lacking = vec!["image"])
        }),
        ("unknown region", 4, |_, place| {
            place.write("env.sh", &env(place, "os_region=two\n"));
        }),
        ("not verified", 5, |cloud, place| {
            place.clouds(&cloud.auth_url(), "    verify: false\n");
        }),
        ("flavor too small", 4, |cloud, _| {
            let flavors = json!({"flavors": [flavor("tiny", 1, 512, 10), flavor("large", 8, 32768, 80)]});
            answer(cloud, "/compute/v2.1/flavors/detail", flavors);
        }),
        ("named flavor too small", 4, |cloud, place| {
            place.write("env.sh", &env(place, "os_master_flavor=tiny\n"));
            let flavors = json!({"flavors": [flavor("tiny", 1, 512, 10), flavor("large", 8, 32768, 120)]});
            answer(cloud, "/compute/v2.1/flavors/detail", flavors);
        }),
        ("network without DHCP", 4, |cloud, _| {
            let subnet = json!({"id": "sub-1", "cidr": "10.20.0.0/24", "enable_dhcp": false});
            answer(cloud, "/network/v2.0/subnets", json!({"subnets": [subnet]}));
        }),
        ("quota short by one", 4, |cloud, _| {
            let limits =
                json!({"maxTotalCores": 20, "totalCoresUsed": 13, "maxTotalInstances": -1, "maxTotalRAMSize": -1});
            answer(cloud, "/compute/v2.1/limits", json!({"limits": {"absolute": limits}}));
        }),
        ("another project's network", 4, |cloud, _| {
            let network = json!({"id": "net-1", "name": "private", "project_id": "project-2"});
            answer(cloud, "/network/v2.0/networks", json!({"networks": [network]}));
            let fault = "((rule:create_port and rule:create_port:mac_address)) is disallowed by policy";
            let fault = json!({"NeutronError": {"type": "PolicyNotAuthorized", "message": fault, "detail": ""}});
            cloud.trouble("POST /network/v2.0/ports", [Trouble::Status(403, fault)]);
        }),
    ];
    let mut all = String::new();
    for (name, code, make) in mistakes {
        let (cloud, place) = (FakeCloud::start(), Place::new());
        place.clouds(&cloud.auth_url(), "");
        make(&cloud, &place);
        all += &format!("-- {name}\n{}\n", told(&place.refusal(code), &place));
        assert_eq!(cloud.finish().ports, [Value::Null; 0], "{name}: nothing was made");
    }
    insta::assert_snapshot!(all);
}

fn env(place: &Place, more: &str) -> String {
    std::fs::read_to_string(place.0.path().join("env.sh")).unwrap() + more
}

fn answer(cloud: &FakeCloud, path: &str, value: Value) {
    cloud.with(|world| world.answers.insert(path.to_owned(), value));
}

#[test]
fn a_cloud_whose_certificate_nobody_vouches_for_is_told_nothing() {
    let place = Place::new();
    let (ours, others) = (certificate(), certificate());
    let (address, heard) = serve_tls(&ours);
    let url = format!("https://localhost:{}/v3", address.port());
    place
        .write("ours.pem", &ours.cert.pem())
        .write("others.pem", &others.cert.pem());
    let mut all = String::new();
    for (name, more) in [
        ("no CA", ""),
        ("wrong CA", "    cacert: others.pem\n"),
        ("no file", "    cacert: none.pem\n"),
    ] {
        place.clouds(&url, more);
        let text = place.refusal(5).replace(&address.port().to_string(), "PORT");
        all += &format!("-- {name}\n{text}\n");
        assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 0, "{name}");
    }
    insta::assert_snapshot!(all);
    place.clouds(&url, "    cacert: ours.pem\n");
    let text = place.refusal(5);
    assert!(text.contains("does not let us in"), "{text}");
    assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 1);
}

fn certificate() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// Lets nobody in, and counts who asked.
fn serve_tls(
    certificate: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> (std::net::SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    use rustls::pki_types::PrivateKeyDer;
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::default());
    let count: Arc<std::sync::atomic::AtomicUsize> = Arc::clone(&heard);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _ = stream.write_all(answer).await;
                    let _ = stream.shutdown().await;
                }
            }
        });
    });
    (address, heard)
}
