//! Decides which certificate requests of joining nodes are approved: only those of nodes in the table.
//!
//! On platform `none` no other approver acts: the cluster's own approver requires a Machine object.
//! Source: openshift/cluster-machine-approver: `pkg/controller/csr_check.go`.

use std::collections::BTreeSet;
use std::fmt;

use self::pkcs10::{RequestContent, exactly};
use crate::cluster::{NodeName, Role};
use crate::state::parameters::Parameters;

mod pkcs10;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// The user that requests certificates for nodes without one.
const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";

/// Prefix of nodes' user names (kubernetes/kubernetes: `staging/src/k8s.io/apiserver/pkg/authentication/user/user.go`).
const NODE_USERS: &str = "system:node:";

/// A group of `BOOTSTRAPPER` that requests of masters and the arbiter may lack.
///
/// Nodes send requests with the token of that service account, which has the group (openshift/machine-config-operator:
/// `pkg/server/cluster_server.go`). The masters and the arbiter of the installation send them with a certificate of the
/// installer, which the MCS of the bootstrap gives them (`pkg/server/bootstrap_server.go`). The certificate of an older
/// installer does not have the group (openshift/installer: `pkg/asset/tls/kubelet.go`, `KubeletClientCertKey`). These
/// nodes use that certificate again whenever their own has expired (openshift/hive:
/// `pkg/controller/hibernation/csr_utility.go`).
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The relevant fields of a CertificateSigningRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub signer: String,
    /// The requester, as authenticated by the API server.
    pub username: String,
    pub groups: Vec<String>,
    pub usages: Vec<String>,
    /// The PKCS#10 request, PEM: `spec.request` without base64.
    pub pem: Vec<u8>,
}

/// The kind of certificate that a node requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    /// For requests to the API server; comes first.
    Client,
    /// For the kubelet's own server.
    Serving,
}

impl fmt::Display for Wave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wave::Client => "client",
            Wave::Serving => "serving",
        })
    }
}

/// The user of a node once it has its client certificate.
pub fn user_of(node: &NodeName, table: &Parameters) -> String {
    format!("{NODE_USERS}{}", table.cluster_domain().fqdn(node.as_str()))
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    Approve(NodeName, Wave),
    /// Not a request of a joining node: other approvers decide.
    Leave,
    /// It looks like a joining node's request, but is not valid; with the reason.
    Refuse(String),
}

/// Decides about one request. `joined` are nodes already in the cluster: they need no first certificate.
pub fn judge(request: &Request, table: &Parameters, joined: &BTreeSet<NodeName>) -> Judgement {
    let judged = match (request.signer.as_str(), request.username.as_str()) {
        (CLIENT_SIGNER, BOOTSTRAPPER) => judge_client(request, table, joined),
        // Renewals are approved by the controller manager.
        (CLIENT_SIGNER, user) if user.starts_with(NODE_USERS) => return Judgement::Leave,
        (CLIENT_SIGNER, user) => Err(format!("{user} may not request certificates for joining nodes")),
        (SERVING_SIGNER, _) => judge_serving(request, table),
        _ => return Judgement::Leave,
    };
    judged.unwrap_or_else(Judgement::Refuse)
}

fn judge_client(request: &Request, table: &Parameters, joined: &BTreeSet<NodeName>) -> Result<Judgement, String> {
    exactly(
        "groups",
        &request.groups,
        &[
            "system:serviceaccounts:openshift-machine-config-operator",
            "system:authenticated",
        ],
        &[SERVICE_ACCOUNTS],
    )?;
    usages(request, "client auth")?;
    let asked = RequestContent::read(&request.pem)?;
    let node = asked.node(table)?;
    let has_etcd = table.node(&node).is_some_and(|node| node.role.has_etcd());
    if !has_etcd && !request.groups.iter().any(|group| group == SERVICE_ACCOUNTS) {
        return Err(format!("{SERVICE_ACCOUNTS} is missing from its groups"));
    }
    if !asked.names.is_empty() || !asked.addresses.is_empty() {
        return Err(format!(
            "a client certificate of {node} must not have alternative names"
        ));
    }
    if joined.contains(&node) {
        return Err(format!("{node} has already joined"));
    }
    Ok(Judgement::Approve(node, Wave::Client))
}

fn judge_serving(request: &Request, table: &Parameters) -> Result<Judgement, String> {
    exactly(
        "groups",
        &request.groups,
        &["system:nodes", "system:authenticated"],
        &[],
    )?;
    usages(request, "server auth")?;
    let asked = RequestContent::read(&request.pem)?;
    let node = asked.node(table)?;
    if request.username != asked.common_name {
        return Err(format!(
            "{} requests a certificate for {}",
            request.username, asked.common_name
        ));
    }
    let fqdn = table.cluster_domain().fqdn(node.as_str());
    if let Some(name) = asked
        .names
        .iter()
        .find(|name| **name != fqdn && **name != node.as_str())
    {
        return Err(format!("{name} is not a name of {node}"));
    }
    let own = table
        .node(&node)
        .map(|planned| table.both(planned.ip))
        .unwrap_or_default();
    if let Some(address) = asked.addresses.iter().find(|address| !own.contains(address)) {
        return Err(format!("{address} is not the address of {node}"));
    }
    if asked.names.is_empty() && asked.addresses.is_empty() {
        return Err(format!("the serving certificate of {node} has no names"));
    }
    Ok(Judgement::Approve(node, Wave::Serving))
}

/// A kubelet requests these usages; the second one not for a key that can only sign.
fn usages(request: &Request, wanted: &str) -> Result<(), String> {
    exactly(
        "usages",
        &request.usages,
        &["digital signature", wanted],
        &["key encipherment"],
    )
}

impl RequestContent {
    /// The node of the table that the subject names.
    fn node(&self, table: &Parameters) -> Result<NodeName, String> {
        let unknown = || format!("{} is not a node of {}", self.common_name, table.cluster_domain());
        let host = self.common_name.strip_prefix(NODE_USERS).ok_or_else(unknown)?;
        let id = table.cluster_domain();
        let short = id.host_of(host).ok_or_else(unknown)?;
        let mut nodes = table.all_nodes();
        let node = nodes.find(|node| node.name.as_str() == short && node.role != Role::Bootstrap);
        Ok(node.ok_or_else(unknown)?.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;
    use crate::cluster::Ipv6Table;
    use crate::state::parameters::tests::example;

    /// A valid request of a kubelet, to be modified by tests.
    #[derive(Clone)]
    struct Wish {
        request: Request,
        common_name: String,
        organizations: Vec<&'static str>,
        sans: Vec<SanType>,
        more: Option<DnType>,
    }

    /// The bytes as Go's `pem.Encode` writes them.
    fn framed(der: &[u8]) -> Vec<u8> {
        let body = STANDARD.encode(der);
        let lines: Vec<_> = body.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        let body = lines.join("\n");
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
    }

    const WORKER: &str = "system:node:worker-0.lab.example.com";

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn ip(text: &str) -> SanType {
        SanType::IpAddress(text.parse().unwrap())
    }

    fn address_of(node: &str) -> String {
        let node = NodeName::node(Role::Worker, node.trim_start_matches("worker-").parse().unwrap());
        example().node(&node).unwrap().ip.to_string()
    }

    fn client() -> Wish {
        Wish {
            request: Request {
                signer: CLIENT_SIGNER.to_owned(),
                username: BOOTSTRAPPER.to_owned(),
                groups: texts(&[
                    "system:serviceaccounts",
                    "system:serviceaccounts:openshift-machine-config-operator",
                    "system:authenticated",
                ]),
                usages: texts(&["digital signature", "client auth"]),
                pem: vec![],
            },
            common_name: WORKER.to_owned(),
            organizations: vec!["system:nodes"],
            sans: vec![],
            more: None,
        }
    }

    fn serving() -> Wish {
        Wish {
            request: Request {
                signer: SERVING_SIGNER.to_owned(),
                username: WORKER.to_owned(),
                groups: texts(&["system:nodes", "system:authenticated"]),
                usages: texts(&["digital signature", "key encipherment", "server auth"]),
                pem: vec![],
            },
            sans: vec![dns("worker-0.lab.example.com"), ip(&address_of("worker-0"))],
            ..client()
        }
    }

    impl Wish {
        fn pem(&self) -> String {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            // rcgen stores one value of each kind; the same kind by its number counts as another.
            let kinds = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
            for (kind, organization) in kinds.into_iter().zip(&self.organizations) {
                params.distinguished_name.push(kind, *organization);
            }
            params
                .distinguished_name
                .push(DnType::CommonName, self.common_name.as_str());
            if let Some(more) = &self.more {
                params.distinguished_name.push(more.clone(), "more");
            }
            params.subject_alt_names = self.sans.clone();
            params
                .serialize_request(&KeyPair::generate().unwrap())
                .unwrap()
                .pem()
                .unwrap()
        }

        fn judged(&self) -> Judgement {
            self.judged_in(&example())
        }

        fn judged_in(&self, table: &Parameters) -> Judgement {
            let mut request = self.request.clone();
            if request.pem.is_empty() {
                request.pem = self.pem().into_bytes();
            }
            judge(&request, table, &BTreeSet::new())
        }

        fn but(mut self, change: impl FnOnce(&mut Self)) -> Self {
            change(&mut self);
            self
        }
    }

    fn worker(index: usize) -> NodeName {
        NodeName::node(Role::Worker, index)
    }

    #[test]
    fn both_requests_of_a_known_node_are_approved() {
        assert_eq!(user_of(&worker(0), &example()), WORKER);
        assert_eq!(client().judged(), Judgement::Approve(worker(0), Wave::Client));
        assert_eq!(serving().judged(), Judgement::Approve(worker(0), Wave::Serving));
        let short = serving().but(|wish| wish.sans = vec![dns("worker-0")]);
        assert_eq!(short.judged(), Judgement::Approve(worker(0), Wave::Serving));
        let encipher = client().but(|wish| wish.request.usages.push("key encipherment".to_owned()));
        assert_eq!(encipher.judged(), Judgement::Approve(worker(0), Wave::Client));
    }

    #[test]
    fn only_an_etcd_member_of_an_older_installer_may_lack_a_group() {
        let of = |node: &str| {
            client().but(|wish| {
                wish.common_name = format!("system:node:{node}.lab.example.com");
                wish.request.groups.remove(0);
            })
        };
        let master = NodeName::node(Role::Master, 0);
        assert_eq!(of("master-0").judged(), Judgement::Approve(master, Wave::Client));
        let mut table = example();
        let arbiter = NodeName::node(Role::Arbiter, 0);
        (table.nodes[3].name, table.nodes[3].role) = (arbiter.clone(), Role::Arbiter);
        let judged = of("arbiter-0").judged_in(&table);
        assert_eq!(judged, Judgement::Approve(arbiter, Wave::Client));
        let more = of("master-0").but(|wish| wish.request.groups.push("system:masters".to_owned()));
        for wish in [of("worker-0"), more] {
            let judged = wish.judged();
            assert!(
                matches!(&judged, Judgement::Refuse(why) if why.contains("in its groups") || why.contains("from its groups")),
                "{judged:?}"
            );
        }
    }

    #[test]
    fn invalid_requests_are_rejected_with_the_reason() {
        let foreign = "system:node:worker-9.lab.example.com";
        let neighbour = "system:node:worker-0.lab2.example.com";
        let cases: Vec<(Wish, &str)> = vec![
            (
                client().but(|w| w.common_name = foreign.to_owned()),
                "worker-9.lab.example.com is not a node of lab.example.com",
            ),
            (
                client().but(|w| w.common_name = neighbour.to_owned()),
                "worker-0.lab2.example.com is not a node",
            ),
            (
                client().but(|w| w.common_name = "system:node:bootstrap.lab.example.com".to_owned()),
                "is not a node",
            ),
            (
                client().but(|w| w.common_name = "system:node:worker-0".to_owned()),
                "is not a node",
            ),
            (
                client().but(|w| w.common_name = "worker-0.lab.example.com".to_owned()),
                "is not a node",
            ),
            (
                client().but(|w| w.common_name = "system:admin".to_owned()),
                "is not a node",
            ),
            (
                client().but(|w| w.organizations = vec!["system:masters"]),
                "system:nodes is missing from its organizations",
            ),
            (
                client().but(|w| w.organizations.push("system:masters")),
                "system:masters is not allowed in its organizations",
            ),
            (
                client().but(|w| w.organizations.clear()),
                "system:nodes is missing from its organizations",
            ),
            (
                client().but(|w| w.more = Some(DnType::OrganizationalUnitName)),
                "fields other than organization and common name",
            ),
            (
                client().but(|w| w.request.groups.push("system:masters".to_owned())),
                "system:masters is not allowed in its groups",
            ),
            (client().but(|w| w.request.groups.clear()), "is missing from its groups"),
            (
                client().but(|w| w.request.username = "eve".to_owned()),
                "eve may not request certificates for joining nodes",
            ),
            (
                client().but(|w| w.request.usages.push("server auth".to_owned())),
                "server auth is not allowed in its usages",
            ),
            (
                client().but(|w| w.request.usages.retain(|u| u != "client auth")),
                "client auth is missing from its usages",
            ),
            (
                client().but(|w| w.sans = vec![dns("api.lab.example.com")]),
                "must not have alternative names",
            ),
            (
                client().but(|w| w.request.pem = framed(&[0; 3])),
                "not a certificate request",
            ),
            (
                client().but(|w| w.request.pem = b"x".to_vec()),
                "not a certificate request",
            ),
            (
                serving().but(|w| w.request.username = "system:node:worker-1.lab.example.com".to_owned()),
                "system:node:worker-1.lab.example.com requests a certificate for",
            ),
            (
                serving().but(|w| w.request.username = BOOTSTRAPPER.to_owned()),
                "requests a certificate for",
            ),
            (
                serving().but(|w| w.request.groups.push("system:masters".to_owned())),
                "system:masters is not allowed in its groups",
            ),
            (
                serving().but(|w| w.request.usages.push("client auth".to_owned())),
                "client auth is not allowed in its usages",
            ),
            (
                serving().but(|w| w.sans.push(dns("api.lab.example.com"))),
                "api.lab.example.com is not a name of worker-0",
            ),
            (
                serving().but(|w| w.sans.push(dns("worker-1"))),
                "worker-1 is not a name of worker-0",
            ),
            (
                serving().but(|w| w.sans.push(ip("192.168.122.10"))),
                "192.168.122.10 is not the address of worker-0",
            ),
            (
                serving().but(|w| w.sans.push(ip(&address_of("worker-1")))),
                "is not the address of worker-0",
            ),
            (
                serving().but(|w| w.sans.push(ip("fe80::1"))),
                "fe80::1 is not the address of worker-0",
            ),
            (
                serving().but(|w| w.sans.push(SanType::Rfc822Name("a@b.c".try_into().unwrap()))),
                "is not a host name or an address",
            ),
            (
                serving().but(|w| w.sans.push(SanType::URI("https://a".try_into().unwrap()))),
                "is not a host name or an address",
            ),
            (serving().but(|w| w.sans.clear()), "has no names"),
            (
                serving().but(|w| w.organizations.push("system:masters")),
                "system:masters is not allowed in its organizations",
            ),
        ];
        for (index, (wish, words)) in cases.iter().enumerate() {
            match wish.judged() {
                Judgement::Refuse(why) => assert!(why.contains(words), "case {index}: {why} has no {words}"),
                other => panic!("case {index}, {words}: {other:?}"),
            }
        }
    }

    #[test]
    fn other_requests_are_left_to_other_approvers() {
        let renewal = client().but(|wish| wish.request.username = WORKER.to_owned());
        assert_eq!(renewal.judged(), Judgement::Leave);
        for signer in ["kubernetes.io/kube-apiserver-client", "example.com/own", ""] {
            let other = client().but(|wish| wish.request.signer = signer.to_owned());
            assert_eq!(other.judged(), Judgement::Leave, "{signer}");
        }
    }

    #[test]
    fn a_serving_certificate_may_have_both_addresses_of_its_node() {
        let mut table = example();
        let ipv6 = Ipv6Table {
            machine_network: "fd00:1::/64".parse().unwrap(),
            gateway: "fd00:1::1".parse().unwrap(),
            api_ip: "fd00:1::2".parse().unwrap(),
            ingress_ip: "fd00:1::3".parse().unwrap(),
        };
        let node = table.node(&worker(0)).unwrap();
        let own = ipv6.address_of(&node.name, node.ip).to_string();
        table.ipv6 = Some(ipv6);
        let with = |address: &str| serving().but(|wish| wish.sans.push(ip(address)));
        let approved = Judgement::Approve(worker(0), Wave::Serving);
        assert_eq!(with(&own).judged_in(&table), approved);
        for (address, table) in [(own.as_str(), &example()), ("fd00:1::2", &table)] {
            let refused = format!("{address} is not the address of worker-0");
            assert_eq!(with(address).judged_in(table), Judgement::Refuse(refused));
        }
    }

    #[test]
    fn a_node_joins_once() {
        let mut request = client().request;
        request.pem = client().pem().into_bytes();
        let joined = BTreeSet::from([worker(0)]);
        let refused = Judgement::Refuse("worker-0 has already joined".to_owned());
        assert_eq!(judge(&request, &example(), &joined), refused);
        let mut request = serving().request;
        request.pem = serving().pem().into_bytes();
        assert_eq!(
            judge(&request, &example(), &joined),
            Judgement::Approve(worker(0), Wave::Serving),
            "its serving certificate is requested after it joined, and again each month"
        );
    }

    proptest! {
        #[test]
        fn bytes_from_anywhere_are_never_approved(bytes in prop::collection::vec(any::<u8>(), 0..400), in_pem in any::<bool>()) {
            let pem = if in_pem { framed(&bytes) } else { bytes };
            let request = Request { pem, ..client().request };
            prop_assert!(matches!(judge(&request, &example(), &BTreeSet::new()), Judgement::Refuse(_)));
        }

        #[test]
        fn a_flipped_bit_spoils_a_request(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut der = pkcs10::der(serving().pem().as_bytes()).unwrap();
            let at = at.index(der.len());
            der[at] ^= 1 << bit;
            let request = Request { pem: framed(&der), ..serving().request };
            prop_assert!(matches!(judge(&request, &example(), &BTreeSet::new()), Judgement::Refuse(_)));
        }
    }

    #[test]
    fn a_request_larger_than_16_kib_is_rejected() {
        // The two sizes next to the limit: base64 grows in steps of four bytes.
        let (fits, larger) = (framed(&[0; 12_045]), framed(&[0; 12_048]));
        assert_eq!((fits.len(), larger.len()), (16_381, 16_385));
        assert!(pkcs10::der(&fits).is_some() && pkcs10::der(&larger).is_none());
    }

    #[test]
    fn only_the_last_line_of_a_request_may_be_shorter_than_64_characters() {
        let line = "A".repeat(64);
        for (body, is_read) in [
            (line.clone(), true),
            (format!("{line}\nAAAA"), true),
            (format!("{line}\n"), false),
            (format!("AAAA\n{line}"), false),
            (format!("{line}{line}"), false),
            (String::new(), false),
        ] {
            let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
                .into_bytes();
            assert_eq!(pkcs10::der(&pem).is_some(), is_read, "{body:?}");
        }
    }

    #[test]
    fn progress_messages_name_the_certificate() {
        assert_eq!(
            [Wave::Client, Wave::Serving].map(|wave| wave.to_string()),
            ["client", "serving"]
        );
    }

    #[test]
    fn names_with_anything_but_visible_ascii_are_rejected() {
        for name in [
            format!("{WORKER}\n"),
            WORKER.replace("lab", "l a b"),
            WORKER.replace("lab", "läb"),
        ] {
            let judged = client().but(|wish| wish.common_name = name.clone()).judged();
            assert!(
                matches!(&judged, Judgement::Refuse(why) if why.contains("characters that are not allowed")),
                "{name:?}: {judged:?}"
            );
        }
    }
}
