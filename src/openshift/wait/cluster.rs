//! A cluster that is waited for, and the polling interval.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use super::seen::Status;
use crate::cluster::Pool;
use crate::openshift::api::{ApiError, ClusterApi};
use crate::state::parameters::Parameters;

/// Shortest pause between two queries: used after a change; later pauses are longer.
const SOONEST: Duration = Duration::from_millis(200);

/// Longest pause between two queries that are only for the status.
pub(super) const LATEST: Duration = Duration::from_secs(5);

/// Longest pause between two queries of a wait's condition: a change is noticed within a second. Conditions are polled,
/// not watched: when the VIP moves, a watch hangs at a server that no longer answers.
pub(super) const PROMPT: Duration = Duration::from_millis(800);

/// As `PROMPT`, for a condition that lists this many nodes: the pause is longer with more than 20.
pub(super) fn prompt_for(nodes: usize) -> Duration {
    let size = Duration::from_millis(40) * u32::try_from(nodes).unwrap_or(u32::MAX);
    size.clamp(PROMPT, LATEST)
}

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
    /// Pools whose nodes get labels and taints as soon as these nodes exist.
    pub pools: &'a [Pool],
}

/// Pauses that grow while nothing changes.
pub struct PollInterval {
    pause: Duration,
    latest: Duration,
}

impl Default for PollInterval {
    fn default() -> Self {
        Self::up_to(LATEST)
    }
}

impl PollInterval {
    pub(super) fn up_to(latest: Duration) -> Self {
        Self { pause: SOONEST, latest }
    }

    /// The pause after a query.
    pub fn next(&mut self, news: bool) -> Duration {
        self.pause = if news {
            SOONEST
        } else {
            (self.pause * 3 / 2).min(self.latest)
        };
        self.pause
    }
}

/// A part of a status that is queried less often than the wait's condition.
#[derive(Default)]
pub(super) struct PolledStatus {
    interval: PollInterval,
    due: Option<Instant>,
    last: Status,
}

impl PolledStatus {
    /// The status, queried again if it is due.
    pub async fn get(&mut self, query: impl Future<Output = Result<Status, ApiError>>) -> Result<Status, ApiError> {
        if self.due.is_none_or(|due| due <= Instant::now()) {
            let status = query.await?;
            self.due = Some(Instant::now() + self.interval.next(status != self.last));
            self.last = status;
        }
        Ok(self.last.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_noticed_within_a_second_even_after_a_long_wait() {
        let mut interval = PollInterval::up_to(PROMPT);
        let pauses: Vec<Duration> = (0..50).map(|_| interval.next(false)).collect();
        assert!(pauses.iter().all(|pause| *pause < Duration::from_secs(1)), "{pauses:?}");
        assert_eq!(interval.next(true), SOONEST);
    }

    #[test]
    fn the_nodes_of_a_large_cluster_are_listed_less_often() {
        for (nodes, milliseconds) in [(1, 800), (20, 800), (50, 2000), (1000, 5000)] {
            assert_eq!(prompt_for(nodes), Duration::from_millis(milliseconds), "{nodes}");
        }
    }

    #[tokio::test]
    async fn a_status_is_queried_when_it_is_due() {
        let (mut status, mut queries) = (PolledStatus::default(), 0);
        for (wait, expected) in [(0, 1), (0, 1), (250, 2)] {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let query = async {
                queries += 1;
                Ok(Status::from("a line".to_owned()))
            };
            assert_eq!(status.get(query).await.unwrap().lines, ["a line"]);
            assert_eq!(queries, expected);
        }
    }
}
