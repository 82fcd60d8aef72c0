//! A cluster that is waited for, and how often it is asked.

use std::time::Duration;

use crate::openshift::api::ClusterApi;
use crate::state::parameters::Parameters;

/// Pause between two looks: short after news, then longer.
const SOONEST: Duration = Duration::from_millis(200);

pub(super) const LATEST: Duration = Duration::from_secs(5);

/// A cluster that is waited for.
#[derive(Clone, Copy)]
pub struct Cluster<'a> {
    pub api: &'a ClusterApi,
    pub table: &'a Parameters,
}

/// Pauses that grow while nothing happens.
pub struct Pace(Duration);

impl Default for Pace {
    fn default() -> Self {
        Self(SOONEST)
    }
}

impl Pace {
    /// The pause after a look.
    pub fn next(&mut self, news: bool) -> Duration {
        self.0 = if news { SOONEST } else { (self.0 * 3 / 2).min(LATEST) };
        self.0
    }
}
