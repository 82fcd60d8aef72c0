//! Pauses between repeated requests: randomized, and at least as long as the service requests.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

/// A random part of a pause, at least half, so that clients that were rejected together do not retry together.
pub fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without random bytes the whole pause is used.
    let part = getrandom::fill(&mut byte).map_or(255, |()| byte[0]);
    pause / 2 + pause * u32::from(part) / 510
}

/// Growing pauses between attempts of the same operation.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    factor: u32,
    longest: Duration,
}

impl Backoff {
    /// Each pause is twice the one before it, from the first to the longest.
    pub fn doubling(first: Duration, longest: Duration) -> Self {
        Self {
            next: first,
            factor: 2,
            longest,
        }
    }

    /// Like `doubling`, but each pause is three times as long.
    pub fn tripling(first: Duration, longest: Duration) -> Self {
        Self {
            factor: 3,
            ..Self::doubling(first, longest)
        }
    }

    /// The next pause, randomized; the requested one, if that is longer.
    pub fn pause(&mut self, asked: Option<Duration>) -> Duration {
        let ours = jittered(self.next.min(self.longest));
        self.next = self.next.saturating_mul(self.factor).min(self.longest);
        asked.map_or(ours, |asked| asked.max(ours))
    }
}

/// The pause requested by a response after which nothing was done: too many requests, or temporarily unavailable
/// (RFC 6585, section 4; RFC 9110, section 10.2.3: seconds or a date).
pub fn asked_pause(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(time_of(text)?.duration_since(SystemTime::now()).unwrap_or_default()),
    }
}

/// The time in the `Date` of an HTTP response (RFC 9110, section 6.6.1).
pub fn time_of(date: &str) -> Option<SystemTime> {
    // HTTP uses mail's date format, with an obsolete name of the zone.
    let date = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(date.timestamp().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jittered_pause_is_at_least_half_as_long() {
        let whole = Duration::from_secs(8);
        let pauses: Vec<_> = (0..64).map(|_| jittered(whole)).collect();
        assert!(
            pauses.iter().all(|pause| (whole / 2..=whole).contains(pause)),
            "{pauses:?}"
        );
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
        assert_eq!(jittered(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn pauses_grow_up_to_the_longest() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(5));
        for (mut backoff, wholes) in [
            (Backoff::doubling(first, longest), [1, 2, 4, 5, 5]),
            (Backoff::tripling(first, longest), [1, 3, 5, 5, 5]),
        ] {
            for whole in wholes.map(Duration::from_secs) {
                let pause = backoff.clone().pause(Some(longest * 2));
                assert_eq!(pause, longest * 2, "the requested pause");
                let pause = backoff.pause(None);
                assert!((whole / 2..=whole).contains(&pause), "{pause:?}, of {whole:?}");
            }
        }
    }

    #[test]
    fn a_requested_pause_is_in_seconds_or_until_a_date() {
        for (status, text, seconds) in [
            (429, "7", Some(7)),
            (503, " 120 ", Some(120)),
            (503, "0", Some(0)),
            // Long ago.
            (503, "Wed, 21 Oct 2015 07:28:00 GMT", Some(0)),
            (503, "soon", None),
            (503, "-1", None),
            // Not such a response.
            (500, "7", None),
            (413, "7", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            let pause = asked_pause(StatusCode::from_u16(status).unwrap(), &headers);
            assert_eq!(pause, seconds.map(Duration::from_secs), "{status} {text}");
        }
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(90);
        let soon = jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&soon)
            .unwrap();
        let headers = HeaderMap::from_iter([(RETRY_AFTER, soon.parse().unwrap())]);
        let pause = asked_pause(StatusCode::SERVICE_UNAVAILABLE, &headers).unwrap();
        assert!(
            (Duration::from_secs(30)..=Duration::from_secs(90)).contains(&pause),
            "{soon}: {pause:?}"
        );
        assert_eq!(asked_pause(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new()), None);
    }
}
