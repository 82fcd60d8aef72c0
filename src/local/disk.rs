//! Measures the latency of synced writes, which etcd depends on.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// etcd's hardware guide requires this for 99 of 100 syncs.
pub const ETCD_WANTS: Duration = Duration::from_millis(10);

/// The write size of etcd's log, as in its documentation's benchmark (etcd: op-guide/hardware, `fio` with 2300 bytes).
const WRITE: [u8; 2300] = [0; 2300];
const MOST_WRITES: usize = 1000;
const MOST_TIME: Duration = Duration::from_secs(3);

/// Durations of a write and its sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    pub median: Duration,
    /// 99 of 100 are not longer.
    pub p99: Duration,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        write!(
            f,
            "fdatasync latency: 99th percentile {:.1} ms, median {:.1} ms",
            ms(self.p99),
            ms(self.median)
        )
    }
}

/// Writes and syncs in a directory for some seconds at most; nothing remains. Blocks.
pub fn latency(folder: &Path) -> io::Result<Latency> {
    // An unnamed file: the kernel removes it in any case.
    let mut file = tempfile::tempfile_in(folder)?;
    let begun = Instant::now();
    let mut times = Vec::with_capacity(MOST_WRITES);
    while times.len() < MOST_WRITES && begun.elapsed() < MOST_TIME {
        let before = Instant::now();
        file.write_all(&WRITE)?;
        file.sync_data()?;
        times.push(before.elapsed());
    }
    Ok(of(times))
}

fn of(mut times: Vec<Duration>) -> Latency {
    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(index).copied().unwrap_or_default()
    };
    Latency {
        median: at(50),
        p99: at(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_sync_in_a_hundred_is_tolerated() {
        let times = |slow: usize| {
            let all = (0..100).map(|index| Duration::from_millis(if index < slow { 500 } else { 2 }));
            of(all.collect())
        };
        assert_eq!(times(1).p99, Duration::from_millis(2));
        assert_eq!(times(2).p99, Duration::from_millis(500));
        assert_eq!(times(2).median, Duration::from_millis(2));
        assert_eq!(
            times(2).to_string(),
            "fdatasync latency: 99th percentile 500.0 ms, median 2.0 ms"
        );
    }

    #[test]
    fn a_measurement_leaves_the_folder_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let measured = latency(folder.path()).unwrap();
        assert!(measured.p99 >= measured.median && measured.median > Duration::ZERO);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(latency(&folder.path().join("absent")).is_err());
    }
}
