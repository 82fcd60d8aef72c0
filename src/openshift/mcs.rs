//! Queries the machine config server, so that nodes whose DNS does not resolve it do not need to.
//!
//! Its certificate has one name, `api-int.<cluster>.<domain>`, and is signed by the installer's root CA. This program
//! knows the address of that name; a node at its first boot knows only what DHCP provides.
//! Source: openshift/machine-config-operator, `pkg/server/api.go`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reqwest::{Certificate, Client, StatusCode, Url, header};
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use crate::PROGRESS;
use crate::http_limits::{self, CapError, innermost};
use crate::ignition::Version;
use crate::node::pointer::Server;
use crate::openshift::cluster_of_host;

/// A rendered config has about 530 KB (openshift/machine-config-operator at 7ff337a4ff). It is an object in etcd, which
/// accepts at most 1.5 MiB (etcd-io/etcd: `server/embed/config.go`, `DefaultMaxRequestBytes`).
const LARGEST: usize = 4 << 20;
/// Limit for one request; the server answers from memory.
const ANSWER: Duration = Duration::from_secs(10);
const SOONEST: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_millis(800);
/// How long a server may answer only with status 500.
///
/// The bootstrap's server starts after its config is rendered (`manifests/bootstrap-pod-v2.yaml`), the cluster's after
/// the controller that renders it (`pkg/operator/operator.go`). If the status lasts, the server has the config, but
/// cannot parse it or cannot express it in the requested spec, and waiting does not help.
const FAILING: Duration = Duration::from_secs(300);

/// Why the machine config server returned no config.
#[derive(Debug, thiserror::Error)]
pub enum McsError {
    #[error("the machine config server {url} at {ip} served no config within {} s: {last}", waited.as_secs())]
    Silent {
        url: String,
        ip: IpAddr,
        waited: Duration,
        last: String,
    },
    #[error(
        "the machine config server {url} at {ip} has answered {status} for {} s when asked for Ignition {version}",
        waited.as_secs()
    )]
    Failing {
        url: String,
        ip: IpAddr,
        status: StatusCode,
        version: Version,
        waited: Duration,
    },
    #[error("the machine config server {url} at {ip} returned {status}")]
    Refused { url: String, ip: IpAddr, status: u16 },
    #[error("the machine config server {url} at {ip} does not belong to this cluster: {why}")]
    Untrusted { url: String, ip: IpAddr, why: String },
    #[error("the machine config server {url} at {ip} serves more than {LARGEST} bytes")]
    TooLarge { url: String, ip: IpAddr },
    #[error("cannot query the machine config server of the pointer config: {why}")]
    Pointer { why: String },
}

impl McsError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Silent { url, .. } => Some(format!(
                "it runs on the bootstrap machine first: `ocpdeploy node ssh {} bootstrap -- journalctl -b \
                 -u bootkube` shows the progress; check that this computer can reach port 22623, then run the same \
                 command again",
                cluster_of_host(host(url))
            )),
            // The server writes the reason only to its log (`pkg/server/api.go`).
            Self::Failing { url, version, .. } => Some(format!(
                "its log has the reason: `ocpdeploy node ssh {} bootstrap -- 'sudo crictl logs $(sudo crictl ps -aq \
                 --name machine-config-server)'`, or after the bootstrap `oc -n openshift-machine-config-operator logs \
                 -l k8s-app=machine-config-server`; usually a MachineConfig in the directory `manifests` has a field that \
                 Ignition {version} does not have",
                cluster_of_host(host(url))
            )),
            Self::Untrusted { .. } => Some(
                "check with `ocpdeploy list` that no other cluster uses the same virtual IP on this network".to_owned(),
            ),
            Self::Refused { .. } | Self::TooLarge { .. } | Self::Pointer { .. } => None,
        }
    }

    /// Whether a wait timed out.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Silent { .. })
    }
}

/// The host of a URL of this module.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split([':', '/']).next().unwrap_or(rest)
}

/// Why one attempt failed.
enum Failed {
    /// A later attempt may succeed.
    NotYet(String),
    /// Status 500: a later attempt may succeed, unless the status lasts.
    Fails(StatusCode),
    Never(McsError),
}

/// How long to wait for a config.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the server has a config.
    pub all: Duration,
    /// While it answers only 500.
    pub failing: Duration,
}

impl Limits {
    pub fn new(all: Duration) -> Self {
        let failing = FAILING;
        Self { all, failing }
    }
}

/// The server's config of a role, as for a node whose Ignition reads specs up to `version`. It contains secrets.
///
/// The server answers in that spec, or in its own newest one if that is older. Before it runs, it refuses connections.
pub async fn fetch(server: &Server, ip: IpAddr, version: Version, limits: Limits) -> Result<Vec<u8>, McsError> {
    let ask = Ask::new(server, ip, version)?;
    let begun = Instant::now();
    let (mut pause, mut reported) = (SOONEST, String::new());
    let mut failing = None;
    loop {
        let last = match ask.once().await {
            Ok(config) => return Ok(config),
            Err(Failed::Never(error)) => return Err(error),
            Err(Failed::NotYet(why)) => {
                failing = None;
                why
            }
            Err(Failed::Fails(status)) => {
                let waited = failing.get_or_insert_with(Instant::now).elapsed();
                if waited > limits.failing {
                    let url = ask.url.to_string();
                    return Err(McsError::Failing {
                        url,
                        ip,
                        status,
                        version,
                        waited,
                    });
                }
                format!("it answers {status}")
            }
        };
        if last != reported {
            info!(target: PROGRESS, step = "mcs", "{} at {ip}: {last}", ask.url);
            reported.clone_from(&last);
        }
        let waited = begun.elapsed();
        if waited + pause > limits.all {
            let url = ask.url.to_string();
            return Err(McsError::Silent { url, ip, waited, last });
        }
        sleep(pause).await;
        pause = (pause * 2).min(LATEST);
    }
}

struct Ask {
    client: Client,
    url: Url,
    ip: IpAddr,
    accept: String,
}

impl Ask {
    fn new(server: &Server, ip: IpAddr, version: Version) -> Result<Self, McsError> {
        let pointer = |why: String| McsError::Pointer { why };
        let Server { host, port, path, .. } = server;
        let scheme = if server.in_clear { "http" } else { "https" };
        let url = Url::parse(&format!("{scheme}://{host}:{port}{path}")).map_err(|error| pointer(error.to_string()))?;
        let mut roots = Vec::new();
        for pem in &server.authorities {
            roots.extend(Certificate::from_pem_bundle(pem).map_err(|error| pointer(innermost(&error)))?);
        }
        if roots.is_empty() && !server.in_clear {
            return Err(pointer("it has no certificate authority".to_owned()));
        }
        let client = Client::builder()
            .tls_certs_only(roots)
            .resolve(host, SocketAddr::new(ip, *port))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(ANSWER)
            .timeout(ANSWER)
            .build()
            .map_err(|error| pointer(innermost(&error)))?;
        // Without this header the server answers in spec 2.2.
        let accept = format!("application/vnd.coreos.ignition+json;version={version}, */*;q=0.1");
        Ok(Self {
            client,
            url,
            ip,
            accept,
        })
    }

    async fn once(&self) -> Result<Vec<u8>, Failed> {
        let (url, ip) = (self.url.to_string(), self.ip);
        let request = self.client.get(self.url.clone()).header(header::ACCEPT, &self.accept);
        let answer = request.send().await.map_err(|error| self.failed(&error))?;
        let status = answer.status();
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            return Err(Failed::Fails(status));
        }
        // These come from a load balancer in front of the server.
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Failed::NotYet(format!("it answers {status}")));
        }
        if status != StatusCode::OK {
            let status = status.as_u16();
            return Err(Failed::Never(McsError::Refused { url, ip, status }));
        }
        let config = http_limits::read(answer, LARGEST).await.map_err(|error| match error {
            CapError::Large(_) => Failed::Never(McsError::TooLarge { url: url.clone(), ip }),
            error => Failed::NotYet(error.to_string()),
        })?;
        debug!("{url} at {ip}: {} bytes", config.len());
        Ok(config)
    }

    fn failed(&self, error: &reqwest::Error) -> Failed {
        let why = innermost(error);
        // Ignition would retry forever, but waiting does not change a certificate.
        if why.contains("certificate") {
            let (url, ip) = (self.url.to_string(), self.ip);
            return Failed::Never(McsError::Untrusted { url, ip, why });
        }
        Failed::NotYet(why)
    }
}
