//! Why the API of a cluster did not do what it was asked, and what kube and TLS say of it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use jiff::Timestamp;

use crate::http_limits::{self, innermost};

/// The longest words of the server that are repeated.
const MOST_WORDS: usize = 1000;

/// Why the API did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("cannot use kubeconfig {}: {why}", path.display())]
    Kubeconfig { path: PathBuf, why: String },
    #[error("the client certificate in {} ended at {since:.0}", path.display())]
    ClientExpired { path: PathBuf, since: Timestamp },
    #[error("{operation}: the API of the cluster at {address} is not reached: {why}")]
    Unreachable {
        operation: String,
        address: SocketAddr,
        why: String,
    },
    #[error("{operation}: who answers at {address} is not {name}: {why}")]
    Untrusted {
        operation: String,
        address: SocketAddr,
        name: String,
        why: String,
    },
    #[error("{operation}: the certificate of {name} at {address} is not valid at this time: {why}")]
    ServerExpired {
        operation: String,
        address: SocketAddr,
        name: String,
        why: String,
    },
    #[error("{operation}: {name} answers with {code}: {why}")]
    Refused {
        operation: String,
        name: String,
        /// HTTP status.
        code: u16,
        /// The server's own words.
        why: String,
    },
}

impl ApiError {
    /// What a user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Kubeconfig { .. } => {
                "openshift-install writes it beside the Ignition files; `ocpdeploy deploy` makes them".to_owned()
            }
            Self::ClientExpired { .. } => {
                "use a newer kubeconfig of the cluster, or check the clock of this computer".to_owned()
            }
            Self::Unreachable { address, .. } => format!(
                "{} is the api VIP: `ocpdeploy status` shows whether its machines run; from this computer there must be a \
                 route to it and no firewall on port {}",
                address.ip(),
                address.port()
            ),
            Self::Untrusted { address, .. } => format!(
                "something else may have {}, or the cluster was made with other files than the ones here",
                address.ip()
            ),
            Self::ServerExpired { .. } => {
                "compare this computer's clock with the cluster's; a cluster that was off for a day renews its \
                 certificates when its pending requests are approved"
                    .to_owned()
            }
            Self::Refused { code: 401 | 403, .. } => {
                "the kubeconfig must be the one that openshift-install wrote for this very cluster".to_owned()
            }
            Self::Refused { .. } => "the server's own words are above".to_owned(),
        }
    }

    /// No further call can go better: a file of this computer is wrong.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Kubeconfig { .. } | Self::ClientExpired { .. })
    }

    /// Time alone may mend it: nobody answers yet, or the server is busy or on its way up or down.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }

    /// As `is_passing`, for a cluster that was off.
    ///
    /// Its server's certificates last 30 days, and the running cluster makes new ones by itself (openshift/
    /// cluster-kube-apiserver-operator: `pkg/operator/certrotationcontroller`, `pkg/cmd/certregenerationcontroller`).
    pub fn is_passing_at_start(&self) -> bool {
        self.is_passing() || matches!(self, Self::ServerExpired { .. })
    }

    /// HTTP status, where the API server answered at all.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// What kube says of a call.
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
                        "the CA in the kubeconfig has not signed it".to_owned()
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
                why: innermost(error),
            },
        }
    }
}

/// What TLS has to say in a chain of causes; an `io::Error` hides it from `source`.
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
