//! Errors of the cluster's API, derived from kube's and TLS's errors.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use jiff::Timestamp;

use crate::http_limits::{self, innermost};
use crate::openshift::cluster_of_host;

/// Longest text of the server that an error repeats.
const MOST_WORDS: usize = 1000;

/// Why a request to the API failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("cannot use kubeconfig {}: {why}", path.display())]
    Kubeconfig { path: PathBuf, why: String },
    #[error("the client certificate in {} expired at {since:.0}", path.display())]
    ClientExpired { path: PathBuf, since: Timestamp },
    #[error("{operation}: cannot reach the cluster's API at {address}: {why}")]
    Unreachable {
        operation: String,
        address: SocketAddr,
        name: String,
        why: String,
    },
    #[error("{operation}: the server at {address} is not {name}: {why}")]
    Untrusted {
        operation: String,
        address: SocketAddr,
        name: String,
        why: String,
    },
    #[error("{operation}: the certificate of {name} at {address} has expired or is not yet valid: {why}")]
    ServerExpired {
        operation: String,
        address: SocketAddr,
        name: String,
        why: String,
    },
    #[error("{operation}: {name} returned {code}: {why}")]
    Refused {
        operation: String,
        name: String,
        /// HTTP status.
        code: u16,
        /// The server's own text.
        why: String,
    },
}

impl ApiError {
    /// What a user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Kubeconfig { .. } => {
                "openshift-install writes it together with the Ignition files during `ocpdeploy deploy`".to_owned()
            }
            Self::ClientExpired { .. } => {
                "use a newer kubeconfig of the cluster, and check this computer's clock".to_owned()
            }
            Self::Unreachable { address, name, .. } => format!(
                "check with `ocpdeploy status {}` that the cluster's machines are running, and that this computer has a \
                 route to {} and no firewall blocks port {}",
                cluster_of_host(name),
                address.ip(),
                address.port()
            ),
            Self::Untrusted { address, .. } => format!(
                "check that no other machine uses {}, and that the kubeconfig belongs to this deployment of the cluster",
                address.ip()
            ),
            Self::ServerExpired { name, .. } => format!(
                "compare this computer's clock with the cluster's; if the cluster was off for a day or more, \
                 `ocpdeploy start {}` approves the certificate requests of its nodes",
                cluster_of_host(name)
            ),
            Self::Refused { code: 401 | 403, .. } => {
                "use the kubeconfig that openshift-install wrote for this deployment of the cluster".to_owned()
            }
            Self::Refused { name, .. } => format!(
                "check the cluster with `ocpdeploy status {}`, then run the same command again",
                cluster_of_host(name)
            ),
        }
    }

    /// Retrying cannot help: a file on this computer is wrong.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Kubeconfig { .. } | Self::ClientExpired { .. })
    }

    /// May resolve itself: no server answers yet, or it is busy, starting or stopping.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }

    /// As `is_passing`, for a cluster that was off.
    ///
    /// The certificates of its servers are valid for 30 days, and the running cluster creates new ones itself
    /// (openshift/cluster-kube-apiserver-operator: `pkg/operator/certrotationcontroller`,
    /// `pkg/cmd/certregenerationcontroller`).
    pub fn is_passing_at_start(&self) -> bool {
        self.is_passing() || matches!(self, Self::ServerExpired { .. })
    }

    /// HTTP status, if the API server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Classifies kube's error of a call.
    pub(super) fn of(error: &kube::Error, operation: &str, name: &str, address: SocketAddr) -> Self {
        let (operation, name) = (operation.to_owned(), name.to_owned());
        if let kube::Error::Api(status) = error {
            return Self::Refused {
                operation,
                name,
                code: status.code,
                why: http_limits::words(&status.message, MOST_WORDS),
            };
        }
        match tls_fault(error) {
            Some(rustls::Error::InvalidCertificate(fault)) => {
                use rustls::CertificateError as Fault;
                let why = match fault {
                    Fault::UnknownIssuer | Fault::BadSignature => {
                        "its certificate is not signed by the CA in the kubeconfig".to_owned()
                    }
                    fault => fault.to_string(),
                };
                match fault {
                    Fault::Expired
                    | Fault::ExpiredContext { .. }
                    | Fault::NotValidYet
                    | Fault::NotValidYetContext { .. } => Self::ServerExpired {
                        operation,
                        address,
                        name,
                        why,
                    },
                    _ => Self::Untrusted {
                        operation,
                        address,
                        name,
                        why,
                    },
                }
            }
            _ => Self::Unreachable {
                operation,
                address,
                name,
                why: innermost(error),
            },
        }
    }
}

/// The TLS error in a chain of causes; an `io::Error` hides it from `source`.
fn tls_fault<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
}

/// An error with its causes.
pub(super) fn whole(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    match error.source().map(whole) {
        Some(why) if !text.contains(&why) => format!("{text}: {why}"),
        _ => text,
    }
}
