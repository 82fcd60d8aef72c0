//! The kubeconfig of the API server: finds and reads it, and rejects one that would send credentials unprotected.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use tracing::warn;

use crate::backend::plain_http::is_plain_http;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::KubevirtConfig;
use crate::http_limits::innermost;
use crate::kube_client;
use crate::kubeconfig::{SelectedContext, default_files};

/// Allows insecure connections, for commands that read no env file.
const INSECURE_VARIABLE: &str = "OCPDEPLOY_KUBEVIRT_INSECURE";

/// Loads the connection settings of the API server.
pub(super) fn load(config: &KubevirtConfig) -> Result<Config, BackendError> {
    let path = config.kubeconfig.as_deref();
    let kubeconfig = kube_client::read_kubeconfig(path).map_err(|why| unusable(path, &why))?;
    let (mut loaded, proxy) = match path {
        // As client-go (kubernetes/client-go: `tools/clientcmd/merged_client_builder.go`).
        None if kubeconfig.is_empty() => (in_pod()?, None),
        path => {
            let selected = kubeconfig.select(config.context.as_deref());
            let mut selected = selected.map_err(|why| unusable(path, &why))?;
            if let Some(insecure) = insecure(&selected) {
                match config.insecure.0 || kube_client::variable(INSECURE_VARIABLE).is_some_and(|set| set == "true") {
                    true => warn!("{insecure}"),
                    false => return Err(refused(insecure)),
                }
            }
            let proxy = selected.cluster.proxy_url.take();
            let loaded = kube_client::config(selected).map_err(|why| unusable(path, &why))?;
            (loaded, proxy)
        }
    };
    loaded.proxy_url = match proxy {
        Some(url) => Some(proxy_of(&url).map_err(|why| unusable(path, &format!("proxy-url: {why}")))?),
        None => match proxy_of_environment(&loaded.cluster_url, kube_client::variable) {
            Some(url) => Some(proxy_of(&url).map_err(|why| {
                let words = format!("cannot use the proxy from the environment: {why}");
                BackendError::new(BackendErrorKind::Denied, words)
                    .hint("set HTTPS_PROXY to the URL of a proxy, or NO_PROXY to the host of the API server")
            })?),
            None => None,
        },
    };
    loaded.connect_timeout = Some(Duration::from_secs(10));
    loaded.read_timeout = Some(Duration::from_secs(60));
    // The session repeats requests itself, for seconds and not for minutes.
    loaded.default_retry = false;
    Ok(loaded)
}

/// The connection of a pod's service account.
fn in_pod() -> Result<Config, BackendError> {
    Config::incluster().map_err(|error| {
        let files = default_files(kube_client::variable);
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let words = match files.is_empty() {
            true => "KUBECONFIG names no file".to_owned(),
            false => format!("there is no kubeconfig with content at {}", files.join(", ")),
        };
        let words = format!("{words}, and this is not a pod: {}", innermost(&error));
        BackendError::new(BackendErrorKind::Denied, words).hint("set kubevirt_kubeconfig, or log in with `oc login`")
    })
}

/// The URL of the environment's proxy for a server, as Go finds it (golang/net: `http/httpproxy/proxy.go`), and from
/// `ALL_PROXY` as the other clients of this program.
fn proxy_of_environment(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let host = server.host()?.trim_matches(['[', ']']);
    if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        return None;
    }
    let first = |names: [&str; 2]| {
        names
            .into_iter()
            .find_map(|name| variable(name).filter(|set| !set.is_empty()))
    };
    let url = match server.scheme_str() {
        Some("http") => first(["HTTP_PROXY", "http_proxy"]),
        _ => first(["HTTPS_PROXY", "https_proxy"]),
    };
    let url = url.or_else(|| first(["ALL_PROXY", "all_proxy"]))?;
    let default_port = if server.scheme_str() == Some("http") { 80 } else { 443 };
    let port = server.port_u16().unwrap_or(default_port).to_string();
    let exceptions = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let exceptions: Vec<_> = exceptions
        .split(',')
        .filter_map(|entry| match entry.trim().rsplit_once(':') {
            Some((host, of_port)) if !host.contains(':') || host.ends_with(']') => {
                (of_port == port).then_some(host.trim_matches(['[', ']']))
            }
            _ => Some(entry.trim()),
        })
        .map(|entry| {
            entry
                .strip_prefix('*')
                .filter(|rest| rest.starts_with('.'))
                .unwrap_or(entry)
        })
        .collect();
    let matcher = Matcher::builder().all("http://proxy").no(exceptions.join(",")).build();
    matcher.intercept(server).map(|_| url)
}

/// A proxy from its URL, which may contain a password. kubeconfigs and Go accept these schemes (kubernetes/client-go:
/// `tools/clientcmd/helpers.go`, `parseProxyURL`).
fn proxy_of(url: &str) -> Result<Uri, String> {
    // In the environment a proxy may have no scheme.
    let with_scheme = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    let uri: Uri = with_scheme
        .parse()
        .map_err(|_| "it is not a URL; special characters of its password must be percent-encoded".to_owned())?;
    let host = uri.host().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| "it has no host".to_owned())?;
    match uri.scheme_str() {
        Some("http" | "https") => Ok(uri),
        Some("socks5" | "socks5h")
            if uri
                .authority()
                .is_some_and(|authority| authority.as_str().contains('@')) =>
        {
            Err("a SOCKS proxy with a user name is not supported".to_owned())
        }
        // The proxy resolves names in both cases.
        Some("socks5" | "socks5h") => {
            let port = uri.port_u16().unwrap_or(1080);
            format!("socks5://{host}:{port}/")
                .parse()
                .map_err(|_| "it is not a URL".to_owned())
        }
        _ => Err("it is not an http, https or socks5 URL".to_owned()),
    }
}

/// Why the connection to a cluster is insecure; `None` if it is secure.
fn insecure(selected: &SelectedContext) -> Option<String> {
    let server = selected.cluster.server.as_deref().unwrap_or_default();
    let why = if is_plain_http(server) {
        format!("its server {server} is http, so others on the network can read the token and change responses")
    } else if selected.cluster.insecure_skip_tls_verify == Some(true) {
        format!("insecure-skip-tls-verify is set, so another server can impersonate {server} and read the token")
    } else {
        return None;
    };
    let (name, file) = (&selected.cluster_name, selected.file.display());
    Some(format!("cluster {name} in kubeconfig {file}: {why}"))
}

fn refused(why: String) -> BackendError {
    BackendError::new(BackendErrorKind::Denied, why).hint(format!(
        "put the server's CA into the kubeconfig (certificate-authority-data), or accept the risk with \
         kubevirt_insecure=true; for commands without an env file {INSECURE_VARIABLE}=true"
    ))
}

fn unusable(path: Option<&Path>, why: &str) -> BackendError {
    let place = path.map_or("the default kubeconfig".to_owned(), |path| {
        format!("kubeconfig {}", path.display())
    });
    BackendError::new(BackendErrorKind::Denied, format!("cannot use {place}: {why}")).hint(
        "`kubectl config get-contexts` lists the contexts; select one with kubevirt_kubeconfig and kubevirt_context",
    )
}
