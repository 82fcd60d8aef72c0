//! Connects to the configured platforms.

use std::path::Path;
use std::time::Duration;

use super::platforms::Platforms;
use super::sim::Sim;
use super::{Backend, BackendError, BackendErrorKind, Capabilities, PlatformError, SettingChoices};
use crate::cluster::{BackendConfig, WorkersOn, on_platform};

impl Capabilities {
    /// The capabilities of the configured platform. After connecting they may differ: the simulated platform reads its
    /// limits from its file.
    pub fn of(backend: &BackendConfig) -> Self {
        on_platform!(backend, config => config.into())
    }
}

/// Claims about a platform that the tests of this project cannot verify, and that its users have to verify.
pub fn unverified(backend: &BackendConfig) -> &'static [&'static str] {
    match backend {
        #[cfg(feature = "ovirt")]
        BackendConfig::Ovirt(_) => &super::ovirt::UNVERIFIED,
        _ => &[],
    }
}

/// Connects to the platforms of a cluster. Calls to an unresponsive platform are repeated for at most `limit`.
pub async fn connect(
    backend: &BackendConfig,
    workers: Option<&WorkersOn>,
    limit: Duration,
) -> Result<Platforms, PlatformError> {
    let mut platforms = Platforms::on(backend.place(), connect_one(backend).await?).for_at_most(limit);
    if let Some(workers) = workers {
        platforms = platforms.with_workers_on(connect_one(&workers.backend).await?, workers.clone());
    }
    Ok(platforms)
}

async fn connect_one(backend: &BackendConfig) -> Result<Box<dyn Backend>, PlatformError> {
    require(backend.name())?;
    let connected = open(backend).await;
    connected.map_err(|error| error.during(format!("connect to {}", backend.place())))
}

async fn open(backend: &BackendConfig) -> Result<Box<dyn Backend>, BackendError> {
    Ok(match backend {
        #[cfg(feature = "kubevirt")]
        BackendConfig::Kubevirt(config) => Box::new(super::kubevirt::Kubevirt::connect(config).await?),
        #[cfg(feature = "libvirt")]
        BackendConfig::Libvirt(config) => Box::new(super::libvirt::Libvirt::connect(config).await?),
        #[cfg(feature = "openstack")]
        BackendConfig::OpenStack(config) => Box::new(super::openstack::OpenStack::connect(config).await?),
        #[cfg(feature = "ovirt")]
        BackendConfig::Ovirt(config) => Box::new(super::ovirt::Ovirt::connect(config).await?),
        BackendConfig::Sim(config) => Box::new(Sim::open(config)?),
        #[allow(
            unreachable_patterns,
            reason = "of a build without all features; `require` refuses them"
        )]
        _ => return Err(BackendError::new(BackendErrorKind::NotBuiltIn, "")),
    })
}

/// The backends that this build includes, besides the simulated platform.
const BUILT_IN: &[&str] = &[
    #[cfg(feature = "kubevirt")]
    "kubevirt",
    #[cfg(feature = "libvirt")]
    "libvirt",
    #[cfg(feature = "openstack")]
    "openstack",
    #[cfg(feature = "ovirt")]
    "ovirt",
];

/// An error if this build does not include the backend.
pub fn require(backend: &str) -> Result<(), PlatformError> {
    if backend == "sim" || BUILT_IN.contains(&backend) {
        return Ok(());
    }
    let features = [BUILT_IN, &[backend, "openpgp"]].concat().join(",");
    let error = BackendError::new(BackendErrorKind::NotBuiltIn, "").hint(format!(
        "build ocpdeploy with it: `cargo install --locked --path . --no-default-features --features {features}`"
    ));
    Err(error.during(format!("backend {backend}")))
}

/// The choices for a setting that is required to connect to a platform, from files of this computer; `None` for other
/// settings.
#[allow(unused_variables, reason = "a build without KubeVirt uses no kubeconfig")]
pub fn local_choices(setting: &str, kubeconfig: Option<&Path>) -> Result<Option<SettingChoices>, PlatformError> {
    Ok(match setting {
        #[cfg(feature = "kubevirt")]
        "kubevirt_context" => Some(super::kubevirt::contexts(kubeconfig)?),
        #[cfg(feature = "openstack")]
        "os_cloud" => Some(super::openstack::clouds()?),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_is_not_built_in_is_refused_with_the_command_that_builds_it() {
        assert!(require("sim").is_ok());
        for backend in BUILT_IN {
            assert!(require(backend).is_ok(), "{backend}");
        }
        let error = require("new").unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::NotBuiltIn);
        let hint = error.source.hint.unwrap();
        let features: Vec<&str> = BUILT_IN.iter().copied().chain(["new", "openpgp"]).collect();
        assert!(hint.ends_with(&format!("--features {}`", features.join(","))), "{hint}");
    }
}
