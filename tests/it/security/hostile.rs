//! A hostile or broken server for each HTTP client: platforms, mirrors, machine config servers, the
//! cluster's API and guests of a rehearsal.
//!
//! Every client is tested with every attack. The client must end by itself with a regular exit code, within
//! bounded time and memory; no escape sequence of a server reaches the terminal; and no credential goes to another host
//! (`127.0.0.2`), whose certificate is as valid as the server's.

mod attacks;
pub mod server;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use attacks::{ALL, Attack, Language, url};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::{NodeName, Role};
use serde_json::json;
use server::{Authority, Plan, Reply, Request, Server};
use watch::{is_obeyed, watch};

/// The names that the cluster's own servers have in their certificates.
pub const API: &str = "api.lab.example.com";
pub const MCS: &str = "api-int.lab.example.com";

/// The secrets; each client gets its own.
const SECRETS: [&str; 3] = [PASSWORD, TOKEN, MIRROR_TOKEN];
const PASSWORD: &str = "canary-password";
const TOKEN: &str = "canary-token";
const MIRROR_TOKEN: &str = "canary-mirror-token";

/// The most memory that a client may use: nine requests at once, each with a response of the largest size.
const MEMORY_MIB: u64 = 700;

/// The client of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// The program, with these arguments and lines of standard input.
    OpenStack(&'static [&'static str], &'static str),
    Ovirt(&'static [&'static str], &'static str),
    Kubevirt(&'static [&'static str], &'static str),
    Mirror(&'static [&'static str]),
    /// A function of the library, called by this test program in a separate process.
    Library(&'static str),
}

const CHECK: &[&str] = &["check"];
const AUDIT: &[&str] = &["audit", "--env", "env.sh"];
const DEPLOY: &[&str] = &["deploy", "--rehearse", "env.sh"];
const DESTROY: &[&str] = &[
    "destroy",
    "lab.example.com",
    "--from-backend",
    "--id",
    "x7k2pqrs",
    "--env",
    "env.sh",
    "--yes",
];

/// What the server does before it attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    TheFirstRequest,
    /// It authenticates the client, with a token and a catalog.
    SignedIn,
}

/// One run of one client against one attack.
struct Case {
    client: Client,
    attack: Attack,
    from: From,
}

impl Client {
    fn language(self) -> Language {
        match self {
            Client::Ovirt(..) => Language::Xml,
            _ => Language::Json,
        }
    }

    fn is_tls(self) -> bool {
        match self {
            Client::Ovirt(..) | Client::Kubevirt(..) => true,
            Client::Library(name) => matches!(name, "mcs" | "api"),
            Client::OpenStack(..) | Client::Mirror(_) => false,
        }
    }

    fn address(self) -> SocketAddr {
        match self {
            // The port is fixed, so each server has a separate address.
            Client::Library("probe") => {
                static SERVERS: AtomicU8 = AtomicU8::new(1);
                let [a, b] = (std::process::id() as u16).to_be_bytes();
                let c = SERVERS.fetch_add(1, Ordering::Relaxed);
                SocketAddr::from((Ipv4Addr::new(127, a.max(1), b, c), 8080))
            }
            _ => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// Files and arguments of a run against the server.
    fn command(self, folder: &Path, server: SocketAddr, authority: &Authority) -> (Command, String) {
        let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";
        write("key.pub", key.to_owned());
        write("ca.pem", authority.pem.clone());
        std::fs::create_dir(folder.join("images")).unwrap();
        for (name, byte) in [("coreos", 1), ("helper", 2)] {
            let header = [&b"QFI\xfb\0\0\0\x03"[..], &[0; 20], &[1 << 4, 0, 0, byte], &[0; 512]].concat();
            std::fs::write(folder.join(format!("images/{name}.qcow2")), header).unwrap();
        }
        let usual = "cluster=lab\ndomain=example.com\nmasters=1\nworkers=0\npub_key=key.pub\nimages_dir=images\ndns=user\n\
                     pull_secret='{\"auths\":{\"registry.example.com\":{\"auth\":\"eDp5\"}}}'\n";
        let port = server.port();
        let kubeconfig = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "mine",
                "clusters": [{"name": "infra", "cluster": {
                    "server": format!("https://{name}:{port}"),
                    "certificate-authority-data": STANDARD.encode(&authority.pem),
                }}],
                "users": [{"name": "me", "user": {"token": TOKEN}}],
                "contexts": [{"name": "mine", "context": {"cluster": "infra", "user": "me", "namespace": "blue"}}],
            })
            .to_string()
        };
        let (arguments, input) = match self {
            Client::OpenStack(arguments, input) => {
                write(
                    "env.sh",
                    format!("{usual}backend=openstack\nnetwork=private\nimage=rhcos\n"),
                );
                let clouds = format!(
                    "clouds:\n  lab:\n    auth:\n      auth_url: http://{server}/v3\n      username: demo\n      \
                     project_name: demo\n      password: {PASSWORD}\n"
                );
                write("clouds.yaml", clouds);
                (arguments, input)
            }
            Client::Ovirt(arguments, input) => {
                let way = format!(
                    "backend=ovirt\novirt_url=https://localhost:{port}/ovirt-engine\novirt_user=admin@internal\n\
                     ovirt_password={PASSWORD}\novirt_ca=ca.pem\novirt_cluster=Default\nnetwork=lan\n\
                     machine_network=10.7.0.0/24\nimage=rhcos\n"
                );
                write("env.sh", format!("{usual}{way}"));
                (arguments, input)
            }
            Client::Kubevirt(arguments, input) => {
                write("kubeconfig", kubeconfig("localhost"));
                let way =
                    "backend=kubevirt\nkubevirt_kubeconfig=kubeconfig\nnetwork=lan\nmachine_network=10.7.0.0/24\n";
                write("env.sh", format!("{usual}{way}"));
                (arguments, input)
            }
            Client::Mirror(arguments) => {
                let way = format!(
                    "backend=sim\nsim_state=sim.json\nversion=stable\ninstaller_mirror=http://{server}/clients\n"
                );
                write("env.sh", format!("{usual}{way}"));
                (arguments, "")
            }
            Client::Library(name) => {
                write("kubeconfig", kubeconfig(API));
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args([
                    "--exact",
                    "security::hostile::library_client",
                    "--ignored",
                    "--nocapture",
                    "--quiet",
                ]);
                command
                    .env("HOSTILE_CLIENT", name)
                    .env("HOSTILE_SERVER", server.to_string());
                command.current_dir(folder).env("HOME", folder);
                return (command, String::new());
            }
        };
        if arguments[0] == "init" {
            // It writes one.
            std::fs::remove_file(folder.join("env.sh")).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", folder)
            .env("OCPDEPLOY_HOME", folder.join("home"))
            // Retries of a silent platform are not tested here.
            .env("OCPDEPLOY_PLATFORM_TIMEOUT", "0s")
            .env("OCPDEPLOY_HARVEST_TIMEOUT", "5s")
            .current_dir(folder);
        (command, input.replace("PORT", &port.to_string()))
    }
}

/// The response that authenticates a client; `None` for other requests.
fn sign_in(client: Client, request: &Request, server: &str) -> Option<Reply> {
    match client {
        Client::OpenStack(..) if request.path == "/v3/auth/tokens" => {
            let services = ["compute", "network", "image", "volumev3", "object-store"].map(|kind| {
                let url = format!("{server}/{kind}");
                json!({"type": kind, "endpoints": [{"interface": "public", "region": "one", "region_id": "one", "url": url}]})
            });
            let token = json!({"token": {
                "expires_at": "2199-01-01T00:00:00Z", "project": {"id": "p", "name": "demo"}, "catalog": services,
            }});
            let headers = vec![("X-Subject-Token", TOKEN.to_owned())];
            Some(Reply::Whole(201, headers, token.to_string().into_bytes()))
        }
        Client::Ovirt(..) if request.path.ends_with("/sso/oauth/token") => {
            Some(Reply::json(200, &json!({"access_token": TOKEN})))
        }
        _ => None,
    }
}

impl Case {
    /// Runs it and returns the failures.
    fn run(&self, limit: Duration) -> Vec<String> {
        let Self { client, attack, from } = *self;
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let tls = client.is_tls().then_some(&authority);
        let welcome: Plan = Box::new(|_, _| Reply::json(200, &json!({})));
        let other = Server::start(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0)), tls, welcome);
        let elsewhere = url(other.address, client.is_tls());
        let plan: Plan = Box::new(move |request, number| {
            let host = request
                .raw
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("host: ").map(str::to_owned));
            let here = format!("http://{}", host.unwrap_or_default());
            match sign_in(client, request, &here).filter(|_| from == From::SignedIn) {
                Some(reply) => reply,
                None => attack.reply(client.language(), request, number, &elsewhere),
            }
        });
        let server = Server::start(client.address(), tls, plan);
        let (mut command, input) = client.command(folder.path(), server.address, &authority);
        if attack == Attack::Slow {
            command.env("OCPDEPLOY_TEST_SECOND", "50");
        }
        let ended = watch(&mut command, &input, limit);
        let mut faults = Vec::new();
        let mut fault = |text: String| faults.push(format!("{client:?} {attack:?} from {from:?}: {text}"));
        match ended.code {
            Some(0..=8) => {}
            code => fault(format!("ended with {code:?}\n{}", ended.said)),
        }
        if ended.peak_mib > MEMORY_MIB {
            fault(format!("took {} MiB", ended.peak_mib));
        }
        if let Some(c) = ended.said.chars().find(|c| is_obeyed(*c)) {
            fault(format!("{c:?} reached the terminal\n{:?}", ended.said));
        }
        if let Some(secret) = SECRETS.iter().find(|secret| ended.said.contains(**secret)) {
            fault(format!("{secret} was shown\n{}", ended.said));
        }
        if server.asked().is_empty() {
            fault(format!("the server was never asked\n{}", ended.said));
        }
        for request in other.asked() {
            let is_mirror = matches!(client, Client::Mirror(_) | Client::Library("download"));
            let raw = request.raw.to_lowercase();
            // Basic authentication has them in base64.
            let tells = SECRETS.iter().any(|secret| raw.contains(*secret)) || raw.contains("authorization:");
            // Redirects of mirrors are followed, because checksums are verified; all others are not.
            if tells || !is_mirror {
                fault(format!("the other host was asked {request:?}"));
            }
        }
        faults
    }
}

/// Runs all cases, a few in parallel, and fails with all failures.
#[track_caller]
fn survive(cases: Vec<Case>, limit: Duration, at_once: usize) {
    let cases = std::sync::Mutex::new(cases);
    let faults = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(case) = cases.lock().unwrap().pop() else { break };
                    let found = case.run(limit);
                    faults.lock().unwrap().extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn cases(clients: &[Client], attacks: &[Attack], from: &[From]) -> Vec<Case> {
    let pairs = clients
        .iter()
        .flat_map(|client| attacks.iter().map(|attack| (*client, *attack)));
    let case = |(client, attack)| {
        from.iter().map(move |from| Case {
            client,
            attack,
            from: *from,
        })
    };
    pairs.flat_map(case).collect()
}

/// Endless pages take a busy computer two minutes.
const USUAL: Duration = Duration::from_secs(300);
const STAGES: &[From] = &[From::TheFirstRequest, From::SignedIn];

/// The attacks that depend most on the request.
const MOST: &[Attack] = &[
    Attack::Endless(200),
    Attack::Redirect(307),
    Attack::Escapes(200),
    Attack::Escapes(403),
];

#[test]
fn openstack_survives_a_hostile_cloud() {
    survive(cases(&[Client::OpenStack(CHECK, "")], ALL, STAGES), USUAL, 2);
    let pages = [Attack::EndlessPages, Attack::CirclingPages, Attack::ForeignPages];
    let others = [Client::OpenStack(AUDIT, ""), Client::OpenStack(DESTROY, "")];
    survive(cases(&others, &pages, &[From::SignedIn]), USUAL, 2);
    let others = [
        Client::OpenStack(AUDIT, ""),
        Client::OpenStack(DESTROY, ""),
        Client::OpenStack(DEPLOY, ""),
        Client::OpenStack(&["init", "--backend", "openstack"], "lab\n"),
    ];
    survive(cases(&others, MOST, &[From::SignedIn]), USUAL, 2);
}

#[test]
fn ovirt_survives_a_hostile_engine() {
    survive(cases(&[Client::Ovirt(CHECK, "")], ALL, STAGES), USUAL, 2);
    let others = [
        Client::Ovirt(AUDIT, ""),
        Client::Ovirt(DESTROY, ""),
        Client::Ovirt(DEPLOY, ""),
    ];
    survive(cases(&others, MOST, &[From::SignedIn]), USUAL, 2);
    // Without a CA, the client first fetches it from whichever server answers.
    let fetch = "https://localhost:PORT/ovirt-engine\nadmin@internal\ncanary-password\nfetch\nyes\n";
    let init = Client::Ovirt(&["init", "--backend", "ovirt"], fetch);
    survive(cases(&[init], ALL, &[From::TheFirstRequest]), USUAL, 2);
}

#[test]
fn kubevirt_survives_a_hostile_api_server() {
    survive(
        cases(&[Client::Kubevirt(CHECK, "")], ALL, &[From::TheFirstRequest]),
        USUAL,
        2,
    );
    let others = [
        Client::Kubevirt(AUDIT, ""),
        Client::Kubevirt(DESTROY, ""),
        Client::Kubevirt(DEPLOY, ""),
        Client::Kubevirt(&["init", "--backend", "kubevirt"], "kubeconfig\n\n\n"),
    ];
    survive(cases(&others, MOST, &[From::TheFirstRequest]), USUAL, 2);
}

#[test]
fn downloads_survive_a_hostile_mirror() {
    // Requests to a failing server are repeated for a minute.
    let clients = [Client::Mirror(CHECK)];
    survive(cases(&clients, ALL, &[From::TheFirstRequest]), 2 * USUAL, 4);
    // Credentials for a mirror are not sent to the target of its redirects.
    let attacks = [301, 302, 303, 307, 308].map(Attack::Redirect);
    let attacks = [
        &attacks[..],
        &[Attack::TooLong, Attack::Escapes(200), Attack::Escapes(403)],
    ]
    .concat();
    survive(
        cases(&[Client::Library("download")], &attacks, &[From::TheFirstRequest]),
        USUAL,
        2,
    );
}

#[test]
fn clients_of_the_cluster_survive_hostile_servers() {
    let clients = ["mcs", "api", "probe"].map(Client::Library);
    survive(cases(&clients, ALL, &[From::TheFirstRequest]), USUAL, 2);
}

/// All clients in parallel, because each waits for its own limit, in seconds of 50 ms.
#[test]
fn a_slow_sender_times_out() {
    let clients = [
        Client::OpenStack(CHECK, ""),
        Client::Ovirt(CHECK, ""),
        Client::Kubevirt(CHECK, ""),
        Client::Mirror(CHECK),
        Client::Library("mcs"),
        Client::Library("api"),
        Client::Library("probe"),
    ];
    let cases = cases(&clients, &[Attack::Slow], &[From::SignedIn]);
    let at_once = cases.len();
    survive(cases, USUAL / 5, at_once);
}

/// Calls the client of the library in `HOSTILE_CLIENT`, and prints the result as the program does.
#[test]
#[ignore = "a part of other tests, in a process of its own"]
fn library_client() {
    // Without a server it tests nothing.
    let Ok(server) = std::env::var("HOSTILE_SERVER") else {
        return;
    };
    let server: SocketAddr = server.parse().unwrap();
    let SocketAddr::V4(server) = server else {
        panic!("{server}")
    };
    let seconds = Duration::from_secs(3);
    let outcome: anyhow::Result<()> = runtime().block_on(async {
        match std::env::var("HOSTILE_CLIENT").unwrap().as_str() {
            "mcs" => {
                let ca = STANDARD.encode(std::fs::read("ca.pem")?);
                let pointer = json!({"ignition": {
                    "config": {"merge": [{"source": format!("https://{MCS}:22623/config/master")}]},
                    "security": {"tls": {"certificateAuthorities": [
                        {"source": format!("data:text/plain;charset=utf-8;base64,{ca}")}]}},
                    "version": "3.2.0",
                }});
                let mut named = ocpdeploy::node::pointer::server(&pointer)?;
                named.port = server.port();
                let version = ocpdeploy::ignition::version(&pointer)?;
                let limits = ocpdeploy::openshift::mcs::Limits::new(seconds);
                ocpdeploy::openshift::mcs::fetch(&named, (*server.ip()).into(), version, limits).await?;
            }
            "api" => {
                let endpoint = ocpdeploy::cluster::ApiEndpoint::from(std::net::IpAddr::from(*server.ip()));
                let api = ocpdeploy::openshift::api::ClusterApi::open(Path::new("kubeconfig"), endpoint).await?;
                // Queries of different shapes, each independent of the previous result.
                let mut outcomes = vec![api.version().await.err(), api.nodes().await.err()];
                outcomes.push(api.node("master-0").await.err());
                outcomes.push(api.cluster_operators().await.err());
                outcomes.push(api.requests().await.err());
                for error in outcomes.into_iter().flatten() {
                    eprint!("{}", ocpdeploy::failure::explain(&error.into()).render(false));
                }
            }
            "download" => {
                let artifact = ocpdeploy::artifacts::catalogue::Artifact {
                    url: format!("http://{server}/file?token={MIRROR_TOKEN}"),
                    sha256: Some("0".repeat(64)),
                    content_sha256: None,
                    unpack: false,
                };
                ocpdeploy::artifacts::download::Cache::new("cache")
                    .fetch(&artifact)
                    .await?;
            }
            "probe" => {
                let guest = NodeName::node(Role::Master, 0);
                ocpdeploy::openshift::installer::guests_answer(&[(guest, (*server.ip()).into())], seconds).await?;
            }
            other => panic!("{other}"),
        }
        Ok(())
    });
    if let Err(error) = outcome {
        eprint!("{}", ocpdeploy::failure::explain(&error).render(false));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
}
