//! The serial console of a machine: its log, which virtlogd stores in a volume, and a stream to attach to it.

use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use virt::connect::Connect;
use virt::stream::Stream;

use super::machines;
use super::session::{if_supported, open_connection};
use super::storage::Storage;
use super::volumes::Part;
use crate::backend::{BackendError, Console};
use crate::cluster::{ClusterId, MachineName};

/// The bytes that are read for the last lines.
const TAIL: u64 = 4096;

/// How long to listen to a console without a log: machines of pass one write their state every 5 s.
const LISTEN: Duration = Duration::from_secs(7);

/// The last lines of the log. `None` if the machine has no log.
pub(super) fn read_log(
    storage: &Storage,
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Option<String>, BackendError> {
    machines::existing(connect, cluster, name)?;
    let Some(volume) = storage.find(&Part::Console.volume(cluster, name))? else {
        return Ok(None);
    };
    let size = volume.info()?.capacity;
    let bytes = if_supported(storage.read(&volume, size.saturating_sub(TAIL), TAIL))?;
    Ok(bytes.map(|bytes| last_lines(&bytes)))
}

/// The last lines of what the machine writes in the next seconds.
pub(super) async fn listen(mut console: Console) -> String {
    let mut bytes = Vec::new();
    let collect = async {
        while let Some(Ok(more)) = console.screen.recv().await {
            bytes.extend(more);
        }
    };
    // The output is returned both at the end of the machine and after a timeout.
    let _ = timeout(LISTEN, collect).await;
    last_lines(&bytes)
}

/// At most 20 lines, without control characters.
fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<String> = text
        .lines()
        .map(|line| strip_control(line).trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn strip_control(line: &str) -> String {
    let mut plain = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\x1b' && characters.peek() == Some(&'[') {
            characters.next();
            // Parameters end with a letter or one of @ [ \ ] ^ _ ` { | } ~.
            for parameter in characters.by_ref() {
                if ('@'..='~').contains(&parameter) {
                    break;
                }
            }
        } else if !character.is_control() || character == '\t' {
            plain.push(character);
        }
    }
    plain
}

/// Attaches to the console on a separate connection, because reading blocks. `None` if the driver has no consoles.
pub(super) fn open(uri: &str, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
    let connect = open_connection(uri)?;
    let domain = machines::existing(&connect, cluster, name)?;
    let stream = Stream::new(&connect, 0)?;
    let opened = domain.open_console(None, &stream, 0).map_err(explain);
    if if_supported(opened)?.is_none() {
        return Ok(None);
    }
    let (keys, typed) = mpsc::channel(16);
    let (written, screen) = mpsc::channel(16);
    let guest = stream.clone();
    thread::spawn(move || forward_output(&guest, &written));
    thread::spawn(move || {
        forward_input(&stream, typed);
        // Also ends the reader. Fails if the guest has ended first.
        let _ = stream.abort();
        drop(connect);
    });
    Ok(Some(Console { keys, screen }))
}

fn explain(error: virt::error::Error) -> BackendError {
    let failure = BackendError::from(error);
    let message = failure.message.to_lowercase();
    // libvirt has no error codes for these cases.
    if message.contains("not running") {
        failure.hint("only running machines have a console: start the machine with `ocpdeploy start`")
    } else if message.contains("active console session") {
        failure.hint("the console is in use: end the other session, for example `virsh console`")
    } else {
        failure
    }
}

/// Forwards the output of the guest until the guest ends or the console is detached.
fn forward_output(stream: &Stream, written: &mpsc::Sender<Result<Vec<u8>, BackendError>>) {
    let mut bytes = [0; 4096];
    loop {
        let received = match stream.recv(&mut bytes) {
            Ok(count) if count > 0 => Ok(bytes[..count.unsigned_abs()].to_vec()),
            Ok(_) => return,
            Err(error) => Err(BackendError::from(error)),
        };
        let is_last = received.is_err();
        if written.blocking_send(received).is_err() || is_last {
            return;
        }
    }
}

/// Forwards input until the console is detached.
fn forward_input(stream: &Stream, mut typed: mpsc::Receiver<Vec<u8>>) {
    while let Some(keys) = typed.blocking_recv() {
        let mut rest = keys.as_slice();
        while !rest.is_empty() {
            match stream.send(rest) {
                Ok(count) if count > 0 => rest = &rest[count.unsigned_abs()..],
                // The reader reports the reason.
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_plain_text() {
        let mut log = String::new();
        for line in 0..100 {
            log += &format!("\x1b[0;32m line {line}\x1b[0m\r\n\r\n");
        }
        let tail = last_lines(log.as_bytes());
        assert_eq!(tail.lines().count(), 20);
        assert!(tail.starts_with(" line 80\n") && tail.ends_with(" line 99"), "{tail}");
        assert_eq!(last_lines(b"\x1b[2J\x1b[H\x00"), "");
        assert_eq!(last_lines(b"\xff\x1b"), "\u{fffd}");
    }
}
