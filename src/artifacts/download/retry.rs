//! How often a download is retried.

use std::time::Duration;

use crate::backoff::jittered;

/// Longest pause between two attempts, even if the server asks for more.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// How often a download is retried while no data arrives.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    pub tries: u32,
    /// Doubled with each failed attempt, and randomly reduced by up to half.
    pub first_pause: Duration,
}

impl Default for RetryPolicy {
    /// The pauses take 30 to 52 s in total.
    fn default() -> Self {
        Self {
            tries: 8,
            first_pause: Duration::from_millis(500),
        }
    }
}

impl RetryPolicy {
    pub(super) async fn pause(&self, tried: u32, asked: Option<Duration>) {
        let whole = self.first_pause * 2u32.saturating_pow(tried.min(16).saturating_sub(1));
        let pause = jittered(whole).max(asked.unwrap_or_default());
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
    }
}
