//! How often a download is tried.

use std::time::Duration;

use crate::backoff::jittered;

/// Longest pause between two tries, also when the server asks for more.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// How often a download is tried while no byte comes.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub tries: u32,
    /// It doubles with each try in vain, and up to a half of it is taken away by chance.
    pub first_pause: Duration,
}

impl Default for Patience {
    /// About a minute.
    fn default() -> Self {
        Self {
            tries: 8,
            first_pause: Duration::from_millis(500),
        }
    }
}

impl Patience {
    pub(super) async fn pause(&self, tried: u32, asked: Option<Duration>) {
        let whole = self.first_pause * 2u32.saturating_pow(tried.min(16).saturating_sub(1));
        let pause = jittered(whole).max(asked.unwrap_or_default());
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
    }
}
