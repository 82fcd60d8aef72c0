//! A machine's serial console by a stream of libvirt.

use std::thread;

use tokio::sync::mpsc;
use virt::connect::Connect;
use virt::stream::Stream;

use super::machines;
use super::session::if_supported;
use crate::backend::failure::Failure;
use crate::backend::{BackendError, Console};
use crate::cluster::{ClusterId, MachineName};

/// Opens the console on a connection of its own, since reading waits for the guest. `None` where the driver has none.
pub(super) fn open(uri: &str, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, Failure> {
    let connect = Connect::open(Some(uri))?;
    let domain = machines::existing(&connect, cluster, name)?;
    let stream = Stream::new(&connect, 0)?;
    let opened = domain.open_console(None, &stream, 0).map_err(explain);
    if if_supported(opened)?.is_none() {
        return Ok(None);
    }
    let (keys, typed) = mpsc::channel(16);
    let (written, screen) = mpsc::channel(16);
    let (operation, guest) = (format!("read the console of machine {name}"), stream.clone());
    thread::spawn(move || show(&guest, &written, &operation));
    thread::spawn(move || {
        carry(&stream, typed);
        // Ends the reading as well. It is an error where the guest has ended first.
        let _ = stream.abort();
        drop(connect);
    });
    Ok(Some(Console { keys, screen }))
}

fn explain(error: virt::error::Error) -> Failure {
    let failure = Failure::from(error);
    let words = failure.words.to_lowercase();
    // libvirt has no codes of their own for these.
    if words.contains("not running") {
        failure.hint("a machine has a console while it runs: `ocpdeploy start` starts what was stopped")
    } else if words.contains("active console session") {
        failure.hint("somebody else is at it, e.g. `virsh console` in another window")
    } else {
        failure
    }
}

/// What the guest writes, until it ends or nobody looks.
fn show(stream: &Stream, written: &mpsc::Sender<Result<Vec<u8>, BackendError>>, operation: &str) {
    let mut bytes = [0; 4096];
    loop {
        let heard = match stream.recv(&mut bytes) {
            Ok(count) if count > 0 => Ok(bytes[..count.unsigned_abs()].to_vec()),
            Ok(_) => return,
            Err(error) => Err(Failure::from(error).during(operation)),
        };
        let is_last = heard.is_err();
        if written.blocking_send(heard).is_err() || is_last {
            return;
        }
    }
}

/// What is typed, until the console is left.
fn carry(stream: &Stream, mut typed: mpsc::Receiver<Vec<u8>>) {
    while let Some(keys) = typed.blocking_recv() {
        let mut rest = keys.as_slice();
        while !rest.is_empty() {
            match stream.send(rest) {
                Ok(count) if count > 0 => rest = &rest[count.unsigned_abs()..],
                // The reader tells why.
                _ => return,
            }
        }
    }
}
