//! Reads kubeconfigs and creates Kubernetes clients: files and responses are limited, and the plugins of kubeconfigs get
//! no secret of this program.

use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use kube::Config;
use kube::client::{ClientBuilder, DynBody};
use kube::config::{AuthInfo, Cluster, ExecAuthCluster};
use secrecy::SecretString;
use tower::BoxError;
use tower::util::MapResponseLayer;
use x509_parser::pem::Pem;

use crate::http_limits::{CapError, LARGEST, SMALL, innermost};
use crate::kubeconfig::{Kubeconfig, SelectedContext, one_line};
use crate::limited_file;

/// Variables that are not passed to a plugin that a kubeconfig names: settings of this program, and credentials of other
/// platforms.
///
/// There is no list of allowed variables: like `kubectl`, users pass a plugin's own variables, such as `AWS_PROFILE`
/// or `VAULT_TOKEN` (kubernetes/client-go: `plugin/pkg/client/auth/exec/exec.go`).
const WITHHELD: [&str; 3] = ["OCPDEPLOY_", "OS_", "OVIRT_"];

/// The plugin that reads `OS_*` (kubernetes/cloud-provider-openstack:
/// `docs/keystone-auth/using-client-keystone-auth.md`).
const KEYSTONE: &str = "client-keystone-auth";

/// The kubeconfig at this path, otherwise the default one.
pub fn read_kubeconfig(path: Option<&Path>) -> Result<Kubeconfig, String> {
    let read = |path: &Path| limited_file::check(path).and_then(|()| limited_file::read(path));
    Kubeconfig::read(path, variable, read)
}

/// A variable of the environment.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The connection of a context, without a proxy.
///
/// kube's own conversion also reads proxies from the environment, and fails if it does not understand `NO_PROXY`
/// (kube-rs/kube: `kube-client/src/config/file_loader.rs`).
pub fn config(context: SelectedContext) -> Result<Config, String> {
    let SelectedContext { cluster, mut user, .. } = context;
    let server = cluster.server.as_deref().unwrap_or_default();
    let url: Uri = server.parse().map_err(|error| format!("server {server}: {error}"))?;
    if url.host().is_none_or(str::is_empty) || !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(format!("server {server} is not an http or https URL"));
    }
    let of_cluster = |why| format!("cluster {}: {why}", context.cluster_name);
    let authority = authority(&cluster).map_err(of_cluster)?;
    read_token(&mut user)?;
    if let Some(exec) = &mut user.exec
        && exec.provide_cluster_info
    {
        let about = ExecAuthCluster::try_from(&cluster);
        exec.cluster = Some(about.map_err(|error| of_cluster(innermost(&error)))?);
    }
    let mut config = Config::new(url);
    config.default_namespace = context.namespace;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.disable_compression = cluster.disable_compression.unwrap_or_default();
    config.tls_server_name = cluster.tls_server_name;
    config.root_cert = authority;
    config.auth_info = user;
    Ok(config)
}

/// The CA certificates of a cluster, DER; without any, the system's are trusted.
fn authority(cluster: &Cluster) -> Result<Option<Vec<Vec<u8>>>, String> {
    let pem = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => STANDARD
            .decode(one_line(data))
            .map_err(|error| format!("certificate-authority-data: {error}"))?,
        (None, Some(path)) => limited_file::read(Path::new(path)).map_err(|error| format!("{path}: {error}"))?,
        (None, None) => return Ok(None),
    };
    // kubernetes/client-go: `transport/transport.go`, `TLSConfigFor`.
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err("it has both a CA and insecure-skip-tls-verify".to_owned());
    }
    let certificates = Pem::iter_from_buffer(&pem).filter_map(Result::ok);
    let certificates = certificates.filter(|pem| pem.label == "CERTIFICATE");
    let certificates: Vec<_> = certificates.map(|pem| pem.contents).collect();
    match certificates.is_empty() {
        true => Err("its CA contains no certificate in PEM".to_owned()),
        false => Ok(Some(certificates)),
    }
}

/// Reads a token file, which has priority over `token` (kubernetes/client-go: `transport/round_trippers.go`).
///
/// kube reads the file again when the token may have changed, but, unlike client-go, does not trim its content. So a
/// token that is followed by a line break is read only once, here.
fn read_token(user: &mut AuthInfo) -> Result<(), String> {
    let Some(path) = &user.token_file else { return Ok(()) };
    let text = match limited_file::read_text(Path::new(path)) {
        Ok(text) => text,
        Err(_) if user.token.is_some() => {
            user.token_file = None;
            return Ok(());
        }
        Err(error) => return Err(format!("token file {path}: {error}")),
    };
    let token = text.trim();
    if token.is_empty() || HeaderValue::from_str(token).is_err() {
        return Err(format!("token file {path} does not contain one token"));
    }
    user.token = (token != text).then(|| SecretString::from(token));
    if user.token.is_some() {
        user.token_file = None;
    }
    Ok(())
}

/// A Kubernetes client that aborts responses of more than `LARGEST` bytes, and whose plugin gets no secret of ours.
pub fn new(mut config: Config) -> kube::Result<kube::Client> {
    withhold(&mut config.auth_info);
    let capped = MapResponseLayer::new(|response: http::Response<Box<DynBody>>| {
        let left = if response.status().is_success() { LARGEST } else { SMALL };
        response.map(|body| Capped { body, left })
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&capped).build())
}

/// Limits what `kube` passes to the commands of a user's entry: `exec`, and `cmd-path` of the provider `gcp`.
fn withhold(user: &mut AuthInfo) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let names: Vec<String> = names
        .filter(|name| WITHHELD.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    if let Some(provider) = &mut user.auth_provider {
        let dropped = provider.config.entry("cmd-drop-env".to_owned()).or_default();
        *dropped = format!("{dropped} {}", names.join(" "));
    }
    if let Some(exec) = &mut user.exec {
        let command = exec.command.as_deref().map(Path::new).and_then(Path::file_name);
        let is_keystone = command.is_some_and(|command| command == KEYSTONE);
        // `kube` would also drop the variables that the kubeconfig itself sets, so these are not listed.
        let set = |name: &String| exec.env.iter().flatten().any(|set| set.get("name") == Some(name));
        let is_its_own = |name: &String| set(name) || (is_keystone && name.starts_with("OS_"));
        exec.drop_env = Some(names.into_iter().filter(|name| !is_its_own(name)).collect());
    }
}

/// A body that ends with an error after this number of bytes.
struct Capped {
    body: Box<DynBody>,
    left: usize,
}

impl Body for Capped {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            match self.left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(left) => self.left = left,
                None => return Poll::Ready(Some(Err(CapError::Large(LARGEST).into()))),
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
