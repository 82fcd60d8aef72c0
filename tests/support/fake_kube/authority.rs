//! The CA of a cluster, and the certificates that it signs: the API server's and the admin's.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// A CA.
pub struct Authority {
    pem: String,
    key: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, PEM.
pub struct Signed {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let pem = params().self_signed(&key).unwrap().pem();
        Self::of(pem, key)
    }

    /// Reads a CA that `write` has stored.
    pub fn read(folder: &Path) -> Self {
        let pem = fs::read_to_string(folder.join("ca.crt")).unwrap();
        let key = fs::read_to_string(folder.join("ca.key")).unwrap();
        Self::of(pem, KeyPair::from_pem(&key).unwrap())
    }

    fn of(pem: String, key: KeyPair) -> Self {
        Self {
            pem,
            key: key.serialize_pem(),
            issuer: Issuer::new(params(), key),
        }
    }

    pub fn write(&self, folder: &Path) {
        fs::write(folder.join("ca.crt"), &self.pem).unwrap();
        fs::write(folder.join("ca.key"), &self.key).unwrap();
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server's certificate with one DNS name and no address, as the installer's load balancer certificate.
    pub fn server(&self, dns_name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let mut params = CertificateParams::new([dns_name.to_owned()]).unwrap();
        params.distinguished_name = name(dns_name, &["kube-apiserver"]);
        change(&mut params);
        self.sign(params)
    }

    /// The admin's certificate, which the kubeconfig carries.
    pub fn admin(&self, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let mut params = CertificateParams::default();
        params.distinguished_name = name("system:admin", &["system:masters"]);
        change(&mut params);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Signed {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Signed {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// `auth/kubeconfig` as openshift-install writes it.
    pub fn kubeconfig(&self, cluster: &str, server: &str) -> String {
        self.kubeconfig_of(cluster, server, &self.admin(|_| {}))
    }

    pub fn kubeconfig_of(&self, cluster: &str, server: &str, admin: &Signed) -> String {
        let [ca, certificate, key] = [&self.pem, &admin.certificate, &admin.key].map(|pem| STANDARD.encode(pem));
        format!(
            "clusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: {server}\n  name: {cluster}\n\
             contexts:\n- context:\n    cluster: {cluster}\n    user: admin\n  name: admin\n\
             current-context: admin\npreferences: {{}}\n\
             users:\n- name: admin\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
        )
    }
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name("root-ca", &["openshift"]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

/// A subject with one common name and up to two organizations.
pub fn name(common_name: &str, organizations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // rcgen keeps one value of a kind; the same kind by its number is another to it.
    let kinds = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (kind, organization) in kinds.into_iter().zip(organizations) {
        name.push(kind, *organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}
