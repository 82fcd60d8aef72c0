//! A guest that requests a certificate for another node: Go, which signs it, must read requests as we do.

mod hostile;

use crate::support::addresses::ipv4;
use crate::support::cluster;
use crate::support::left_out::no_judge;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::Role;
use ocpdeploy::openshift::csr::{self, Judgement, Request, Wave};
use ocpdeploy::state::parameters::{NodeAddress, Parameters};
use serde_json::Value;

use hostile::{Dice, Maker, Node, Signer, dns, extension_request, name_part};

const HOST: &str = "worker-1.lab.example.com";
const SHORT: &str = "worker-1";

fn table() -> Parameters {
    cluster::parameters(&cluster::config(), Ipv4Addr::new(192, 168, 122, 10))
}

fn node(table: &Parameters) -> &NodeAddress {
    table.nodes.iter().find(|node| node.name.as_str() == SHORT).unwrap()
}

/// A valid request of our node with this PEM.
fn request(wave: Wave, pem: Vec<u8>) -> Request {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    match wave {
        Wave::Client => Request {
            signer: "kubernetes.io/kube-apiserver-client-kubelet".to_owned(),
            username: "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper".to_owned(),
            groups: texts(&[
                "system:serviceaccounts",
                "system:serviceaccounts:openshift-machine-config-operator",
                "system:authenticated",
            ]),
            usages: texts(&["digital signature", "client auth"]),
            pem,
        },
        Wave::Serving => Request {
            signer: "kubernetes.io/kubelet-serving".to_owned(),
            username: format!("system:node:{HOST}"),
            groups: texts(&["system:nodes", "system:authenticated"]),
            usages: texts(&["digital signature", "server auth"]),
            pem,
        },
    }
}

fn judge(wave: Wave, pem: &[u8], table: &Parameters) -> Judgement {
    csr::judge(&request(wave, pem.to_vec()), table, &BTreeSet::new())
}

/// Go's parser, built for this test.
struct Go(PathBuf);

impl Go {
    /// `None` where there is no Go.
    fn build() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        if Command::new("go").arg("version").output().is_err() {
            no_judge("Go is not installed: apt-get install golang-go");
            return None;
        }
        let folder = tempfile::tempdir().unwrap().keep();
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(folder.join("csr_judge"))
            .arg(root.join("tests/support/csr_judge/main.go"))
            .env("GO111MODULE", "off")
            .env("GOPROXY", "off")
            .env("GOFLAGS", "")
            .env("GOCACHE", root.join("target/go-cache"))
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(Self(folder.join("csr_judge")))
    }

    /// Its output for this input.
    fn run(&self, arguments: &[&str], input: Vec<u8>) -> String {
        let mut child = Command::new(&self.0)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    fn judge(&self, pems: &[Vec<u8>]) -> Vec<Value> {
        let lines: Vec<String> = pems.iter().map(|pem| STANDARD.encode(pem) + "\n").collect();
        let answers = self.run(&["judge"], lines.concat().into_bytes());
        let seen: Vec<Value> = answers
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(seen.len(), pems.len());
        seen
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

/// The node of the table that may have the certificate that a signer would issue, according to what Go reads.
fn rightful<'a>(seen: &Value, wave: Wave, table: &'a Parameters) -> Option<&'a NodeAddress> {
    let host = |node: &NodeAddress| table.cluster_domain().fqdn(node.name.as_str());
    let asks = |node: &&NodeAddress| seen["common_name"] == format!("system:node:{}", host(node));
    let node = table
        .nodes
        .iter()
        .find(asks)
        .filter(|node| node.role != Role::Bootstrap)?;
    let list = |key: &str| seen[key].as_array().cloned().unwrap_or_default();
    let (names, addresses) = (list("names"), list("addresses"));
    let nothing_asked = names.is_empty() && addresses.is_empty();
    let is_so = seen["error"] == ""
        && list("groups") == ["system:nodes"]
        && seen["parts"] == 2
        && seen["others"] == 0
        && names
            .iter()
            .all(|name| *name == host(node) || name == node.name.as_str())
        && addresses
            .iter()
            .all(|address| *address == serde_json::json!(ipv4(node.ip).octets()))
        && match wave {
            Wave::Client => nothing_asked && list("extensions").is_empty(),
            // Its own, by the name of who asks.
            Wave::Serving => node.name.as_str() == SHORT && !nothing_asked && list("extensions") == ["2.5.29.17"],
        };
    is_so.then_some(node)
}

/// The first form of the attack: the names of the first attribute are our node's own, but its set has the number of a
/// set in another class (0xB1). A parser that compares only the number checks these; Go skips the attribute and signs
/// the names of the second.
fn another_class(signer: &Signer) -> Vec<u8> {
    let Node::Of(tag, mut first) = extension_request(&[dns(HOST)]) else {
        unreachable!()
    };
    let Node::Of(set, _) = &mut first[1] else {
        unreachable!()
    };
    *set = 0xb1;
    let second = extension_request(&[dns("api.lab.example.com")]);
    let subject = [(10, "system:nodes".to_owned()), (3, format!("system:node:{HOST}"))];
    let subject = subject.map(|(kind, text)| Node::Of(0x31, vec![name_part(kind, 0x13, text.as_bytes())]));
    let info = signer.info(subject.to_vec(), vec![Node::Of(tag, first), second]);
    hostile::pem(&signer.sign(info).der())
}

#[test]
fn an_attribute_that_go_ignores_hides_no_names() {
    let (table, pem) = (table(), another_class(&Signer::new()));
    if let Some(go) = Go::build() {
        let seen = go.judge(std::slice::from_ref(&pem));
        assert_eq!(seen[0]["names"], serde_json::json!(["api.lab.example.com"]), "{seen:?}");
        assert_eq!(seen[0]["error"], "", "a signer accepts it");
    }
    let judged = judge(Wave::Serving, &pem, &table);
    assert!(matches!(judged, Judgement::Refuse(_)), "{judged:?}");
}

#[test]
fn go_reads_every_approved_request_as_we_do() {
    let Some(go) = Go::build() else { return };
    let number = std::env::var("OCPDEPLOY_CSRS").map_or(5_000, |number| number.parse().unwrap());
    let (table, signer) = (table(), Signer::new());
    let node = node(&table);
    let maker = Maker {
        signer: &signer,
        host: HOST,
        short: SHORT,
        address: ipv4(node.ip).octets(),
    };
    let mut dice = Dice(std::env::var("OCPDEPLOY_CSR_SEED").map_or(1, |seed| seed.parse().unwrap()));
    let (mut approved, mut foreign, mut tried) = (0, 0, 0);
    while tried < number {
        let pems: Vec<Vec<u8>> = (0..1_000).map(|_| maker.request(&mut dice)).collect();
        tried += pems.len();
        for (pem, seen) in pems.iter().zip(go.judge(&pems)) {
            let mut hostile = true;
            for wave in [Wave::Client, Wave::Serving] {
                let rightful = rightful(&seen, wave, &table).map(|node| node.name.clone());
                hostile &= rightful.is_none();
                match judge(wave, pem, &table) {
                    Judgement::Approve(of, granted) => {
                        let shown = String::from_utf8_lossy(pem);
                        assert_eq!((Some(of), wave), (rightful, granted), "Go sees {seen}\n{shown}");
                        approved += 1;
                    }
                    Judgement::Refuse(_) => {}
                    Judgement::Leave => panic!("left"),
                }
            }
            foreign += usize::from(seen["error"] == "" && hostile);
        }
    }
    // Otherwise nothing was tested: some must be valid, and many of those that Go accepts must be hostile.
    assert!(approved > number / 50, "only {approved} were approved");
    assert!(foreign > number / 20, "only {foreign} that Go accepts were hostile");
    println!("reliability: {tried} hostile certificate requests tried, {foreign} of them such as Go signs");
}

#[test]
fn requests_of_kubelets_are_approved() {
    let Some(go) = Go::build() else { return };
    let table = table();
    let node = node(&table);
    let made = go.run(&["make", HOST, SHORT, &node.ip.to_string()], Vec::new());
    for line in made.lines() {
        let (wave, pem) = line.split_once(' ').unwrap();
        let wave = match wave {
            "client" => Wave::Client,
            _ => Wave::Serving,
        };
        let pem = STANDARD.decode(pem).unwrap();
        let judged = judge(wave, &pem, &table);
        assert_eq!(
            judged,
            Judgement::Approve(node.name.clone(), wave),
            "{}",
            String::from_utf8_lossy(&pem)
        );
    }
    assert_eq!(made.lines().count(), 4 * 15);
}
