//! Queries to the machine config server: a real TLS server with the one name that the real server has.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::support::mcs_server::McsServer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::ignition::Version;
use ocpdeploy::node::pointer::{self, Server};
use ocpdeploy::openshift::mcs::{Limits, McsError, fetch};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;

const HOST: &str = "api-int.lab.example.com";

/// A certificate authority and a machine config server with a certificate of it.
struct Mcs {
    ca_pem: String,
    server: McsServer,
}

impl Mcs {
    /// Gives these answers in order; a further request fails the test.
    fn start(answers: Vec<Option<(u16, Vec<u8>)>>) -> Self {
        let mut ca = CertificateParams::new([]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(ca, ca_key);
        let names = CertificateParams::new([HOST.to_owned()]).unwrap();
        let certificate = names.signed_by(&key, &issuer).unwrap();
        let mut answers = answers.into_iter();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let server = McsServer::start(
            address,
            &certificate.pem(),
            &key.serialize_pem(),
            move |path, version| {
                assert_eq!((path, version), ("/config/master", "3.5.0"));
                answers.next().expect("more requests than answers")
            },
        );
        Self { ca_pem, server }
    }

    /// The server as a pointer config with this authority names it.
    fn named(&self, ca_pem: &str) -> Server {
        let ca = STANDARD.encode(ca_pem);
        let pointer = json!({"ignition": {
            "config": {"merge": [{"source": format!("https://{HOST}:22623/config/master")}]},
            "security": {"tls": {"certificateAuthorities": [
                {"source": format!("data:text/plain;charset=utf-8;base64,{ca}")}]}},
            "version": "3.2.0",
        }});
        let mut server = pointer::server(&pointer).unwrap();
        assert_eq!((server.host.as_str(), server.port), (HOST, 22623));
        server.port = self.server.address.port();
        server
    }

    fn url(&self) -> String {
        format!("https://{HOST}:{}/config/master", self.server.address.port())
    }
}

fn ask(server: &Server, limit: Duration) -> Result<Vec<u8>, McsError> {
    let limits = Limits {
        all: limit,
        failing: Duration::from_secs(1),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(fetch(
        server,
        Ipv4Addr::LOCALHOST.into(),
        Version::newest_of_release((4, 19)),
        limits,
    ))
}

#[test]
fn the_config_is_waited_for_and_only_the_installers_authority_is_trusted() {
    let config = br#"{"ignition":{"version":"3.2.0"}}"#.to_vec();
    let mcs = Mcs::start(vec![None, Some((500, Vec::new())), Some((200, config.clone()))]);
    assert_eq!(ask(&mcs.named(&mcs.ca_pem), Duration::from_secs(30)).unwrap(), config);
    let heads = mcs.server.heads();
    assert_eq!(heads.len(), 3);
    assert!(heads[2].contains(&format!("host: {HOST}")), "{}", heads[2]);
}

#[test]
fn another_clusters_server_is_rejected_at_once() {
    let mcs = Mcs::start(vec![Some((200, b"{}".to_vec()))]);
    let other = Mcs::start(Vec::new());
    let error = ask(&mcs.named(&other.ca_pem), Duration::from_secs(30)).unwrap_err();
    assert!(
        matches!(&error, McsError::Untrusted { why, .. } if why.contains("certificate")),
        "{error}"
    );
    assert!(!error.is_timeout());
    assert_eq!(mcs.server.heads(), Vec::<String>::new());
}

#[test]
fn a_request_is_not_repeated_after_a_final_rejection() {
    let mcs = Mcs::start(vec![Some((404, Vec::new()))]);
    let error = ask(&mcs.named(&mcs.ca_pem), Duration::from_secs(30)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the machine config server {} at 127.0.0.1 returned 404", mcs.url())
    );
}

#[test]
fn a_timeout_reports_the_last_response() {
    let mcs = Mcs::start(vec![Some((500, Vec::new()))]);
    let error = ask(&mcs.named(&mcs.ca_pem), Duration::from_millis(400)).unwrap_err();
    assert!(error.is_timeout());
    assert!(
        error
            .to_string()
            .ends_with("served no config within 0 s: it answers 500 Internal Server Error"),
        "{error}"
    );
}

/// The real server does so for a MachineConfig that it cannot express in the requested spec, with an empty body.
#[test]
fn a_server_that_answers_only_500_is_not_waited_for_until_the_end() {
    let mcs = Mcs::start(vec![Some((500, Vec::new())); 10]);
    let error = ask(&mcs.named(&mcs.ca_pem), Duration::from_secs(600)).unwrap_err();
    assert!(
        matches!(&error, McsError::Failing { status, .. } if status.as_u16() == 500),
        "{error}"
    );
    assert!(
        error.to_string().ends_with("s when asked for Ignition 3.5.0"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("machine-config-server"));
}

#[test]
fn a_pointer_config_without_a_certificate_authority_is_an_error() {
    let mcs = Mcs::start(Vec::new());
    let mut server = mcs.named(&mcs.ca_pem);
    server.authorities.clear();
    let error = ask(&server, Duration::from_secs(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot query the machine config server of the pointer config: it has no certificate authority"
    );
}
