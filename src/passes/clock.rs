//! Compares this computer's clock with the platform's.

use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::backend::platforms::Platforms;
use crate::backend::{Finding, Verdict};

/// A larger difference causes problems later, one above `TOO_FAR` at once.
const APART: Duration = Duration::from_secs(10);
const TOO_FAR: Duration = Duration::from_secs(300);

/// Compares both clocks, if the platform reports its time.
pub(super) async fn compare(backend: &Platforms) -> Result<Option<Finding>> {
    let there = backend.server_time().await?;
    Ok(there.map(|there| apart(SystemTime::now(), there)))
}

fn apart(here: SystemTime, there: SystemTime) -> Finding {
    let apart = here
        .duration_since(there)
        .or_else(|_| there.duration_since(here))
        .unwrap_or_default();
    let finding = |verdict, hint: Option<&str>| Finding {
        verdict,
        text: format!(
            "this computer's clock and the platform's are {} s apart",
            apart.as_secs()
        ),
        hint: hint.map(str::to_owned),
    };
    let hint = Some("synchronize both with NTP: the first certificates are valid from the moment they are created");
    match apart {
        apart if apart > TOO_FAR => finding(Verdict::Fail, hint),
        apart if apart > APART => finding(Verdict::Warn, hint),
        _ => finding(Verdict::Ok, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_clock_difference_is_reported_whichever_clock_is_ahead() {
        let here = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (seconds, expected) in [
            (0, Verdict::Ok),
            (10, Verdict::Ok),
            (11, Verdict::Warn),
            (301, Verdict::Fail),
        ] {
            let away = Duration::from_secs(seconds);
            assert_eq!(apart(here, here + away).verdict, expected, "{seconds} ahead");
            assert_eq!(apart(here, here - away).verdict, expected, "{seconds} behind");
        }
    }
}
