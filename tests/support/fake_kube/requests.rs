//! Certificate requests of kubelets, and hostile ones.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::state::parameters::{NodeAddress, Parameters};
use rcgen::{Attribute, CertificateParams, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use super::authority::name;

pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
pub const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";

/// A request that can be changed before it is signed.
#[derive(Clone)]
pub struct Wish {
    pub signer: String,
    pub username: String,
    pub groups: Vec<String>,
    pub usages: Vec<String>,
    pub common_name: String,
    pub organizations: Vec<&'static str>,
    pub sans: Vec<SanType>,
    /// Of the document, besides the one with `sans`.
    pub attributes: Vec<Attribute>,
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// The request of a node without any certificate.
pub fn client(host: &str) -> Wish {
    Wish {
        signer: CLIENT_SIGNER.to_owned(),
        username: BOOTSTRAPPER.to_owned(),
        groups: texts(&[
            "system:serviceaccounts",
            "system:serviceaccounts:openshift-machine-config-operator",
            "system:authenticated",
        ]),
        usages: texts(&["digital signature", "client auth"]),
        common_name: format!("system:node:{host}"),
        organizations: vec!["system:nodes"],
        sans: vec![],
        attributes: vec![],
    }
}

/// The request of a node with a client certificate.
pub fn serving(host: &str, node: &NodeAddress) -> Wish {
    Wish {
        signer: SERVING_SIGNER.to_owned(),
        username: format!("system:node:{host}"),
        groups: texts(&["system:nodes", "system:authenticated"]),
        usages: texts(&["digital signature", "server auth"]),
        sans: vec![dns(host), SanType::IpAddress(node.ip)],
        ..client(host)
    }
}

impl Wish {
    pub fn but(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The object, without a decision on it.
    pub fn object(&self, object_name: &str) -> Value {
        self.signed(object_name, &KeyPair::generate().unwrap())
    }

    /// As `object`, for this key.
    pub fn signed(&self, object_name: &str, key: &KeyPair) -> Value {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(&self.common_name, &self.organizations);
        if self.organizations.is_empty() {
            params.distinguished_name.remove(DnType::OrganizationName);
        }
        params.subject_alt_names = self.sans.clone();
        let request = params.serialize_request_with_attributes(key, self.attributes.clone());
        let request = request.unwrap();
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": object_name, "creationTimestamp": "2026-11-21T10:00:00Z"},
            "spec": {"request": STANDARD.encode(request.pem().unwrap()), "signerName": self.signer, "username": self.username,
                "groups": self.groups, "usages": self.usages},
            "status": {},
        })
    }
}

/// An attribute that requests one DNS name of less than 80 bytes; its set has this tag.
fn extension_request(set: u8, name: &str) -> Attribute {
    let element = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()], content].concat();
    let names = element(0x30, &element(0x82, name.as_bytes()));
    let extension = [&[6, 3, 0x55, 0x1d, 0x11][..], &element(4, &names)].concat();
    Attribute {
        oid: &[1, 2, 840, 113549, 1, 9, 14],
        values: element(set, &element(0x30, &element(0x30, &extension))),
    }
}

/// One request for each way to obtain another node's certificate, named after it.
pub fn hostile(table: &Parameters) -> Vec<Value> {
    let fqdn = |host: &str| table.cluster_domain().fqdn(host);
    let mut nodes = table.nodes.iter();
    let node = nodes.rfind(|node| node.name.as_str() != "bootstrap").unwrap();
    let host = fqdn(node.name.as_str());
    let (client, serving) = (client(&host), serving(&host, node));
    let spoilt: Vec<(&str, Wish)> = vec![
        (
            "foreign-name",
            client
                .clone()
                .but(|w| w.common_name = format!("system:node:{}", fqdn("worker-99"))),
        ),
        (
            "neighbour",
            client
                .clone()
                .but(|w| w.common_name = "system:node:worker-0.other.example.com".to_owned()),
        ),
        (
            "bootstrap",
            client
                .clone()
                .but(|w| w.common_name = format!("system:node:{}", fqdn("bootstrap"))),
        ),
        (
            "masters-group",
            client.clone().but(|w| w.organizations = vec!["system:masters"]),
        ),
        (
            "both-groups",
            client
                .clone()
                .but(|w| w.organizations = vec!["system:nodes", "system:masters"]),
        ),
        (
            "admin-signer",
            client
                .clone()
                .but(|w| w.signer = "kubernetes.io/kube-apiserver-client".to_owned()),
        ),
        (
            "requestor",
            client
                .clone()
                .but(|w| w.username = "system:serviceaccount:default:default".to_owned()),
        ),
        (
            "requestor-groups",
            client.clone().but(|w| w.groups.push("system:masters".to_owned())),
        ),
        ("usages", client.clone().but(|w| w.usages.push("cert sign".to_owned()))),
        ("client-sans", client.clone().but(|w| w.sans.push(dns(&fqdn("api"))))),
        (
            "foreign-ip",
            serving
                .clone()
                .but(|w| w.sans[1] = SanType::IpAddress("192.0.2.66".parse().unwrap())),
        ),
        (
            "vip",
            serving.clone().but(|w| w.sans.push(SanType::IpAddress(table.api_ip))),
        ),
        ("extra-san", serving.clone().but(|w| w.sans.push(dns(&fqdn("api-int"))))),
        (
            "other-node",
            serving
                .clone()
                .but(|w| w.username = format!("system:node:{}", fqdn("master-0"))),
        ),
        (
            // Go, which signs, skips the first, since 0xb1 is not a set; the order is that of their lengths.
            "another-class",
            serving.clone().but(|w| {
                w.sans.clear();
                let foreign = fqdn("another-name-of-many-letters");
                w.attributes = vec![extension_request(0xb1, &host), extension_request(0x31, &foreign)];
            }),
        ),
        (
            "serving-by-stranger",
            serving.but(|w| w.username = "system:anonymous".to_owned()),
        ),
    ];
    spoilt
        .into_iter()
        .map(|(what, wish)| wish.object(&format!("csr-hostile-{what}")))
        .collect()
}
