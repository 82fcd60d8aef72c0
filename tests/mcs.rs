//! Asking the machine config server for what it serves: a real TLS server with the one name the real one has.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ocpdeploy::ignition::Version;
use ocpdeploy::ignition::pointer::{self, Server};
use ocpdeploy::mcs::{McsError, fetch};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::json;

const HOST: &str = "api-int.lab.example.com";

/// What the server does with one connection.
#[derive(Clone)]
enum Turn {
    HangUp,
    Answer(u16, Vec<u8>),
}

/// A certificate authority and a machine config server that it has signed for.
struct Mcs {
    ca_pem: String,
    port: u16,
    requests: thread::JoinHandle<Vec<String>>,
}

impl Mcs {
    /// Takes one connection for each turn, then is gone.
    fn start(turns: Vec<Turn>) -> Self {
        let mut ca = CertificateParams::new([]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(ca, ca_key);
        let certificate = CertificateParams::new([HOST.to_owned()])
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = thread::spawn(move || {
            let serve = |turn: Turn| take(listener.accept().unwrap().0, Arc::clone(&config), turn);
            turns.into_iter().filter_map(serve).collect()
        });
        Self { ca_pem, port, requests }
    }

    /// As the installer's pointer names it, with the authorities in it.
    fn server(&self, ca_pem: &str) -> Server {
        use base64::Engine as _;
        let ca = base64::engine::general_purpose::STANDARD.encode(ca_pem);
        let pointer = json!({"ignition": {
            "config": {"merge": [{"source": format!("https://{HOST}:22623/config/master")}]},
            "security": {"tls": {"certificateAuthorities": [
                {"source": format!("data:text/plain;charset=utf-8;base64,{ca}")}]}},
            "version": "3.2.0",
        }});
        let mut server = pointer::server(&pointer).unwrap();
        assert_eq!((server.host.as_str(), server.port), (HOST, 22623));
        server.port = self.port;
        server
    }

    fn requests(self) -> Vec<String> {
        self.requests.join().unwrap()
    }
}

/// One connection; the head of its request, if it came so far.
fn take(mut socket: TcpStream, config: Arc<ServerConfig>, turn: Turn) -> Option<String> {
    let Turn::Answer(status, body) = turn else { return None };
    let mut tls = ServerConnection::new(config).unwrap();
    let mut stream = Stream::new(&mut tls, &mut socket);
    let mut head = String::new();
    let mut reader = BufReader::new(&mut stream);
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    // As the real one: without the version that a node reads it is another language.
    let accepts = head.contains("accept: application/vnd.coreos.ignition+json;version=3.2.0, */*;q=0.1\r\n");
    let status = if accepts && head.starts_with("GET /config/master ") {
        status
    } else {
        400
    };
    let answer = format!(
        "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes());
    let _ = stream.write_all(&body);
    tls.send_close_notify();
    let _ = tls.complete_io(&mut socket);
    Some(head)
}

fn ask(server: &Server, limit: Duration) -> Result<Vec<u8>, McsError> {
    let version = Version {
        major: ocpdeploy::ignition::Major::Three,
        minor: 2,
        patch: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(fetch(server, Ipv4Addr::LOCALHOST, version, limit))
}

#[test]
fn it_waits_until_the_config_is_rendered_and_trusts_the_installers_authority_only() {
    let config = br#"{"ignition":{"version":"3.2.0"}}"#.to_vec();
    let mcs = Mcs::start(vec![
        Turn::HangUp,
        Turn::Answer(500, Vec::new()),
        Turn::Answer(200, config.clone()),
    ]);
    let server = mcs.server(&mcs.ca_pem);
    assert_eq!(ask(&server, Duration::from_secs(30)).unwrap(), config);
    let requests = mcs.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].contains(&format!("host: {HOST}")), "{}", requests[1]);
}

#[test]
fn another_clusters_server_is_told_from_ours_at_once() {
    let mcs = Mcs::start(vec![Turn::Answer(200, b"{}".to_vec())]);
    let other = Mcs::start(Vec::new());
    let error = ask(&mcs.server(&other.ca_pem), Duration::from_secs(30)).unwrap_err();
    assert!(
        matches!(&error, McsError::Stranger { why, .. } if why.contains("certificate")),
        "{error}"
    );
    assert!(!error.is_timeout());
    assert_eq!(mcs.requests(), Vec::<String>::new());
}

#[test]
fn a_final_refusal_is_not_asked_again() {
    let mcs = Mcs::start(vec![Turn::Answer(404, Vec::new())]);
    let error = ask(&mcs.server(&mcs.ca_pem), Duration::from_secs(30)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the machine config server https://{HOST}:{}/config/master at 127.0.0.1 answers 404",
            mcs.port
        )
    );
}

#[test]
fn a_wait_in_vain_says_what_was_seen_last() {
    let mcs = Mcs::start(vec![Turn::Answer(500, Vec::new())]);
    let error = ask(&mcs.server(&mcs.ca_pem), Duration::from_millis(400)).unwrap_err();
    assert!(error.is_timeout());
    assert!(
        error
            .to_string()
            .ends_with("served nothing within 0 s: not rendered yet (500 Internal Server Error)"),
        "{error}"
    );
}

#[test]
fn a_pointer_without_authority_is_not_asked_blindly() {
    let mcs = Mcs::start(Vec::new());
    let mut server = mcs.server(&mcs.ca_pem);
    server.authorities.clear();
    let error = ask(&server, Duration::from_secs(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the pointer's machine config server cannot be asked: it names no certificate authority"
    );
}
