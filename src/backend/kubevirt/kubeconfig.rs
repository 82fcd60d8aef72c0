//! The kubeconfig of the API server: finds and reads it, and rejects one that would send credentials unprotected.

use std::path::Path;
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tracing::warn;

use crate::backend::plain_http::is_plain_http;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::KubevirtConfig;
use crate::http_limits::innermost;
use crate::kube_client;

/// Allows insecure connections, for commands that read no env file.
const INSECURE_VARIABLE: &str = "OCPDEPLOY_KUBEVIRT_INSECURE";

/// Loads the connection settings of the API server.
pub(super) async fn load(config: &KubevirtConfig) -> Result<Config, BackendError> {
    let options = KubeConfigOptions {
        context: config.context.clone(),
        ..KubeConfigOptions::default()
    };
    let loaded = match kube_client::read_kubeconfig(config.kubeconfig.as_deref()) {
        Ok(kubeconfig) => {
            let may_be_insecure =
                config.insecure.0 || std::env::var(INSECURE_VARIABLE).is_ok_and(|value| value == "true");
            if let Some(insecure) = insecure(&kubeconfig, config) {
                match may_be_insecure {
                    true => warn!("{insecure}"),
                    false => return Err(refused(insecure)),
                }
            }
            Config::from_custom_kubeconfig(kubeconfig, &options).await
        }
        Err(error) => Err(error),
    };
    let loaded = match (loaded, &config.kubeconfig, &config.context) {
        // No kubeconfig exists and none is set: this may be a pod.
        (Err(error), None, None) => Config::incluster().map_err(|_| {
            let words = format!("no kubeconfig found, and not running in a pod: {}", innermost(&error));
            BackendError::new(BackendErrorKind::Denied, words).hint("set kubeconfig, or log in with `oc login`")
        }),
        (loaded, ..) => loaded.map_err(|error| unusable(config, &error)),
    };
    let mut loaded = loaded?;
    loaded.connect_timeout = Some(Duration::from_secs(10));
    loaded.read_timeout = Some(Duration::from_secs(60));
    // The session repeats requests itself, for seconds and not for minutes.
    loaded.default_retry = false;
    Ok(loaded)
}

/// Why the connection to a kubeconfig's cluster is insecure; `None` if it is secure.
fn insecure(kubeconfig: &Kubeconfig, config: &KubevirtConfig) -> Option<String> {
    let context = config.context.as_ref().or(kubeconfig.current_context.as_ref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *context)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|named| named.name == *name)?
        .cluster
        .as_ref()?;
    let server = cluster.server.as_deref().unwrap_or_default();
    let why = if is_plain_http(server) {
        format!("its server {server} is http, so others on the network can read the token and change responses")
    } else if cluster.insecure_skip_tls_verify == Some(true) {
        format!("insecure-skip-tls-verify is set, so another server can impersonate {server} and read the token")
    } else {
        return None;
    };
    Some(format!(
        "cluster {name} in {}: {why}",
        place(config.kubeconfig.as_deref())
    ))
}

fn refused(why: String) -> BackendError {
    BackendError::new(BackendErrorKind::Denied, why).hint(format!(
        "put the server's CA into the kubeconfig (certificate-authority-data), or accept the risk with \
         kubevirt_insecure=true; for commands without an env file {INSECURE_VARIABLE}=true"
    ))
}

fn place(path: Option<&Path>) -> String {
    match (path, std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty())) {
        (Some(path), _) => format!("kubeconfig {}", path.display()),
        (None, Some(paths)) => format!("kubeconfig {}", Path::new(&paths).display()),
        (None, None) => "kubeconfig ~/.kube/config".to_owned(),
    }
}

fn unusable(config: &KubevirtConfig, error: &KubeconfigError) -> BackendError {
    let place = match &config.kubeconfig {
        Some(path) => format!("kubeconfig {}", path.display()),
        None => "the kubeconfig".to_owned(),
    };
    let words = format!("cannot use {place}: {}", innermost(error));
    BackendError::new(BackendErrorKind::Denied, words)
        .hint("`kubectl config get-contexts` lists the contexts; select one with kubeconfig and kube_context")
}
