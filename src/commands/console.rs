//! Interactive serial consoles: connects this terminal to the guest.

use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::output::{pass_on, tell, tell_raw};
use super::platform::connect_known;
use super::session::runtime;
use super::terminal;
use crate::backend::Console;
use crate::cluster::MachineName;
use crate::error::{ErrorKind, OperationError};
use crate::state::inventory::Known;

/// The byte of Ctrl-], the key that detaches, as in telnet, virsh and virtctl.
const LEAVE: u8 = 0x1d;

/// Time limit for sending the last keys on detaching.
const FAREWELL: Duration = Duration::from_secs(2);

const LINES: &str = "`ocpdeploy node console NODE` shows the last lines; --follow continues with new output";

/// Why the console session ended.
enum End {
    Left,
    Closed,
    /// A signal, by its name.
    Ended(&'static str),
}

pub(super) fn attach(known: &Known, machine: &MachineName) -> Result<()> {
    for (is_one, what) in [
        (std::io::stdin().is_terminal(), "stdin"),
        (terminal::is_there(), "stdout"),
    ] {
        if !is_one {
            let text = format!("an interactive console requires a terminal, but {what} is not one");
            return Err(OperationError::new(ErrorKind::Usage, text).hint(LINES).into());
        }
    }
    let runtime = runtime()?;
    let end = runtime.block_on(async {
        let backend = connect_known(known).await?;
        let attached = backend.attach_console(&known.id(), machine).await?;
        let console = attached.ok_or_else(|| {
            let text = format!("the platform of {machine} does not support interactive consoles");
            OperationError::new(ErrorKind::Platform, text).hint(LINES)
        })?;
        let signals = signals()?;
        let end = {
            // Dropped on every exit, also by a panic.
            let _raw = Raw::of(std::io::stdin()).context("set the terminal to raw mode")?;
            // Printed only now: from here on, input goes to the guest.
            tell_raw(&format!("attached to the console of {machine}; press Ctrl-] to detach"));
            carry(machine, console, signals).await
        };
        tell("");
        end
    });
    // A call that waits for the guest must not block the exit.
    runtime.shutdown_background();
    match end? {
        End::Left => Ok(()),
        End::Closed => Err(OperationError::new(
            ErrorKind::Platform,
            format!("the platform closed the console of {machine}"),
        )
        .hint("the machine was powered off, or another client attached to its console")
        .into()),
        End::Ended(signal) => Err(OperationError::new(
            ErrorKind::Stopped,
            format!("detached from the console of {machine} by {signal}"),
        )
        .into()),
    }
}

type Signals = [(&'static str, Signal); 4];

/// Signals that would end the program and leave the terminal raw.
fn signals() -> Result<Signals> {
    let listen = |kind| signal(kind).context("listen for signals");
    Ok([
        ("SIGINT", listen(SignalKind::interrupt())?),
        ("SIGTERM", listen(SignalKind::terminate())?),
        ("SIGHUP", listen(SignalKind::hangup())?),
        ("SIGQUIT", listen(SignalKind::quit())?),
    ])
}

async fn any(signals: &mut Signals) -> &'static str {
    let waits = signals.iter_mut().map(|(name, signal)| {
        Box::pin(async move {
            signal.recv().await;
            *name
        })
    });
    futures::future::select_all(waits).await.0
}

/// Copies bytes between this terminal and the guest until the session ends.
async fn carry(machine: &MachineName, mut console: Console, mut signals: Signals) -> Result<End> {
    let (typed, mut keys) = mpsc::channel(16);
    std::thread::spawn(move || type_on(&typed));
    loop {
        tokio::select! {
            signal = any(&mut signals) => return Ok(End::Ended(signal)),
            written = console.screen.recv() => match written {
                Some(Ok(bytes)) => pass_on(&bytes).context("write to this terminal")?,
                Some(Err(error)) => return Err(error.during(format!("read the console of machine {machine}")).into()),
                None => return Ok(End::Closed),
            },
            typed = keys.recv() => {
                let Some(typed) = typed else { return Ok(End::Left) };
                let (for_guest, leaves) = until_leave(&typed);
                // Fails if the console was closed, which `screen` reports.
                let _ = console.keys.send(for_guest.to_vec()).await;
                if leaves {
                    drop(console.keys);
                    // Earlier keys may not have been sent yet.
                    let rest = async { while console.screen.recv().await.is_some() {} };
                    let _ = tokio::time::timeout(FAREWELL, rest).await;
                    return Ok(End::Left);
                }
            }
        }
    }
}

/// Reads keys until stdin or the session ends.
fn type_on(typed: &mpsc::Sender<Vec<u8>>) {
    let mut keys = [0; 1024];
    let mut stdin = std::io::stdin();
    while let Ok(count) = stdin.read(&mut keys) {
        if count == 0 || typed.blocking_send(keys[..count].to_vec()).is_err() {
            return;
        }
    }
}

/// The input before the key that detaches, and whether that key was pressed.
fn until_leave(typed: &[u8]) -> (&[u8], bool) {
    match typed.iter().position(|key| *key == LEAVE) {
        Some(place) => (&typed[..place], true),
        None => (typed, false),
    }
}

/// Sets a terminal to raw mode; dropping it restores the earlier mode.
struct Raw<F: AsFd> {
    terminal: F,
    before: Termios,
}

impl<F: AsFd> Raw<F> {
    fn of(terminal: F) -> rustix::io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl<F: AsFd> Drop for Raw<F> {
    fn drop(&mut self) {
        // A closed terminal needs no restoring.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::termios::LocalModes;

    use super::*;

    fn terminal() -> (OwnedFd, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let outside = openpt(flags).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let inside = ioctl_tiocgptpeer(&outside, flags).unwrap();
        (outside, inside)
    }

    #[test]
    fn the_key_that_detaches_is_not_sent_to_the_guest() {
        for (typed, for_guest, leaves) in [
            (&b"ls\r"[..], &b"ls\r"[..], false),
            (b"\x1d", b"", true),
            (b"exit\r\x1dls", b"exit\r", true),
            // Ctrl-C and Ctrl-Z go to the guest.
            (b"\x03\x1a", b"\x03\x1a", false),
        ] {
            assert_eq!(until_leave(typed), (for_guest, leaves));
        }
    }

    #[test]
    fn a_terminal_is_restored_even_after_a_panic() {
        let (_outside, inside) = terminal();
        let cooked = |terminal: &OwnedFd| {
            let modes = tcgetattr(terminal).unwrap().local_modes;
            modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
        };
        assert!(cooked(&inside));
        let within = std::panic::catch_unwind(|| {
            let _raw = Raw::of(&inside).unwrap();
            assert!(!cooked(&inside));
            panic!("intended panic");
        });
        assert_eq!(within.unwrap_err().downcast_ref(), Some(&"intended panic"));
        assert!(cooked(&inside));
    }
}
