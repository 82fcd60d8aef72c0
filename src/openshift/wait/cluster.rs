//! A cluster that is waited for, and the polling interval.

use std::time::Duration;

use crate::openshift::api::{ApiError, ClusterApi};
use crate::state::parameters::Parameters;

/// Shortest pause between two queries: used after a change; later pauses are longer.
const SOONEST: Duration = Duration::from_millis(200);

pub(super) const LATEST: Duration = Duration::from_secs(5);

/// How long a wrong server or a rejection is tolerated: a VIP moves, and an API server starts.
pub(super) const DOUBT: Duration = Duration::from_secs(60);

/// Whether an error that has lasted for this time is permanent.
pub(super) fn is_hopeless(error: &ApiError, is_passing: fn(&ApiError) -> bool, lasted: Duration) -> bool {
    !is_passing(error) && lasted > DOUBT
}

/// A cluster that is waited for.
#[derive(Clone, Copy)]
pub struct Cluster<'a> {
    pub api: &'a ClusterApi,
    pub table: &'a Parameters,
}

/// Pauses that grow while nothing changes.
pub struct PollInterval(Duration);

impl Default for PollInterval {
    fn default() -> Self {
        Self(SOONEST)
    }
}

impl PollInterval {
    /// The pause after a query.
    pub fn next(&mut self, news: bool) -> Duration {
        self.0 = if news { SOONEST } else { (self.0 * 3 / 2).min(LATEST) };
        self.0
    }
}
