//! The function with which tests wait.

use std::time::{Duration, Instant};

/// Longer than any step without a real platform.
pub const LONG: Duration = Duration::from_secs(120);

/// Polls until the condition holds, for at most `limit`, and returns how long that took.
#[track_caller]
pub fn until(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        let waited = begun.elapsed();
        assert!(waited < limit, "not within {limit:?}: {what}");
        // Often at first, for short waits; then seldom, because a poll may start a process.
        std::thread::sleep((waited / 20).clamp(Duration::from_millis(5), Duration::from_millis(50)));
    }
    begun.elapsed()
}
