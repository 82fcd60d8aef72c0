//! Runs a process: its output and its peak memory.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A character that a terminal interprets.
pub fn is_obeyed(c: char) -> bool {
    (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How a process ended.
pub struct Ended {
    pub code: Option<i32>,
    /// Its stdout and stderr.
    pub said: String,
    pub peak_mib: u64,
}

/// Runs a command to its end, and measures its memory.
pub fn watch(command: &mut Command, input: &str, limit: Duration) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it read its input.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
    let pipes: [Box<dyn Read + Send>; 2] = [
        Box::new(child.stdout.take().unwrap()),
        Box::new(child.stderr.take().unwrap()),
    ];
    let readers = pipes.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).unwrap();
            // Bytes that are not UTF-8 become a text that `is_obeyed` rejects.
            String::from_utf8(bytes).unwrap_or_else(|error| format!("\u{7f}{error}"))
        })
    });
    let begun = Instant::now();
    let mut peak_mib = 0;
    let code = loop {
        peak_mib = peak_mib.max(peak(&child));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if begun.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let said = readers.map(|reader| reader.join().unwrap()).concat();
    Ended { code, said, peak_mib }
}

/// The peak memory of a process so far (linux: Documentation/filesystems/proc.rst, VmHWM).
fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        >> 10
}
