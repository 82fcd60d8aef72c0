//! Reads kubeconfigs and creates Kubernetes clients: files and responses are limited, and the plugins of kubeconfigs get
//! no secret of this program.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use kube::client::{ClientBuilder, DynBody};
use kube::config::{AuthInfo, Kubeconfig, KubeconfigError};
use tower::BoxError;
use tower::util::MapResponseLayer;

use crate::http_limits::{CapError, LARGEST, SMALL};
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

/// The kubeconfig at this path, otherwise the files of `KUBECONFIG`, otherwise `~/.kube/config`.
pub fn read_kubeconfig(path: Option<&Path>) -> Result<Kubeconfig, KubeconfigError> {
    // `kube` reads them without a limit.
    let check = |path: PathBuf| limited_file::check(&path).map_err(|error| KubeconfigError::ReadConfig(error, path));
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let mut listed = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty());
    match path {
        Some(path) => check(path.to_owned()).and_then(|()| Kubeconfig::read_from(path)),
        None => listed.try_for_each(check).and_then(|()| Kubeconfig::read()),
    }
}

/// A Kubernetes client that aborts responses of more than `LARGEST` bytes, and whose plugin gets no secret of ours.
pub fn new(mut config: kube::Config) -> kube::Result<kube::Client> {
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
        // `kube` would also remove those that the kubeconfig itself sets.
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
