//! The one place that knows every platform: what a configuration chooses becomes a backend.

use std::time::Duration;

#[cfg(not(feature = "libvirt"))]
use super::BackendErrorKind;
use super::kubevirt::Kubevirt;
#[cfg(feature = "libvirt")]
use super::libvirt::Libvirt;
use super::openstack::OpenStack;
use super::ovirt::{self, Ovirt};
use super::placement::Platforms;
use super::retry::Retrying;
use super::sim::Sim;
use super::{Backend, BackendError, Capabilities};
use crate::cluster::{BackendConfig, WorkersOn};

impl Capabilities {
    /// Of the platform that a configuration chooses. A connected one may know better: the pretend platform sets bounds
    /// of its own.
    pub fn of(backend: &BackendConfig) -> Self {
        match backend {
            BackendConfig::Libvirt(config) => config.into(),
            BackendConfig::Kubevirt(config) => config.into(),
            BackendConfig::OpenStack(config) => config.into(),
            BackendConfig::Ovirt(config) => config.into(),
            BackendConfig::Sim(config) => config.into(),
        }
    }
}

/// The points of a platform that no test of this project confirms, for its first user to confirm.
pub fn unverified(backend: &BackendConfig) -> &'static [&'static str] {
    match backend {
        BackendConfig::Ovirt(_) => &ovirt::UNVERIFIED,
        _ => &[],
    }
}

/// Connects to the platforms of a cluster. Calls that get no answer are repeated for at most `limit`.
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
    Ok(match backend {
        #[cfg(feature = "libvirt")]
        BackendConfig::Libvirt(config) => Box::new(Libvirt::connect(config).await?),
        #[cfg(not(feature = "libvirt"))]
        BackendConfig::Libvirt(_) => {
            let error = BackendError::new(BackendErrorKind::Rejected, "connect to libvirt");
            return Err(error
                .because("this build does not support libvirt")
                .hint("build it with the feature `libvirt`, or choose another backend"));
        }
        BackendConfig::Kubevirt(config) => Box::new(Kubevirt::connect(config).await?),
        BackendConfig::OpenStack(config) => Box::new(OpenStack::connect(config).await?),
        BackendConfig::Ovirt(config) => Box::new(Ovirt::connect(config).await?),
        BackendConfig::Sim(config) => Box::new(Sim::open(config)?),
    })
}
