//! From the configuration of the platforms to a backend.

use std::time::Duration;

use super::placement::Platforms;
use super::retry::Retrying;
use super::{Backend, BackendError, Capabilities};
use crate::cluster::{BackendConfig, WorkersOn, on_platform};

/// The configuration of a platform, which its folder can connect to.
pub(super) trait Connect {
    async fn connect(&self) -> Result<Box<dyn Backend>, BackendError>;
}

/// A configuration stays readable in builds without libvirt.
#[cfg(not(feature = "libvirt"))]
impl Connect for crate::cluster::LibvirtConfig {
    async fn connect(&self) -> Result<Box<dyn Backend>, BackendError> {
        let error = BackendError::new(super::BackendErrorKind::Rejected, "connect to libvirt");
        Err(error
            .because("this build does not support libvirt")
            .hint("build it with the feature `libvirt`, or choose another backend"))
    }
}

impl Capabilities {
    /// The capabilities of the configured platform. After connecting they may differ: the simulated platform reads its
    /// limits from its file.
    pub fn of(backend: &BackendConfig) -> Self {
        on_platform!(backend, config => config.into())
    }
}

/// Connects to the platforms of a cluster. Calls to an unresponsive platform are repeated for at most `limit`.
pub async fn connect(
    backend: &BackendConfig,
    workers: Option<&WorkersOn>,
    limit: Duration,
) -> Result<Box<dyn Backend>, BackendError> {
    let mut platforms = Platforms::on(connect_one(backend).await?);
    if let Some(workers) = workers {
        platforms = platforms.with_workers_on(connect_one(&workers.backend).await?, workers.network.clone());
    }
    Ok(Box::new(Retrying::new(platforms).for_at_most(limit)))
}

async fn connect_one(backend: &BackendConfig) -> Result<Box<dyn Backend>, BackendError> {
    on_platform!(backend, config => config.connect().await)
}
