//! Connections to a cluster's platforms.

use std::time::Duration;

use crate::backend::PlatformError;
use crate::backend::connect::connect;
use crate::backend::platforms::Platforms;
use crate::cluster::ClusterConfig;
use crate::state::inventory::Known;

/// Connects to a cluster's platforms, with the settings' limit for repeating calls.
pub async fn connect_for(config: &ClusterConfig) -> Result<Platforms, PlatformError> {
    connect(&config.backend, config.workers_on.as_ref(), config.timeouts.platform).await
}

/// As `connect_for`, for a cluster of the state directory.
pub async fn connect_known(known: &Known) -> Result<Platforms, PlatformError> {
    connect(&known.backend, known.workers_on.as_ref(), retry_limit(known)).await
}

/// How long calls are repeated: the limit of the cluster's settings.
pub fn retry_limit(known: &Known) -> Duration {
    Duration::from_secs(known.platform_timeout)
}
