//! A pseudo-terminal on which a program runs.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Its size.
pub const COLUMNS: u16 = 120;
pub const ROWS: u16 = 100;

/// The limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Terminal {
    keyboard: File,
    inside: OwnedFd,
    /// The output so far.
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let outside = openpt(flags).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let inside = ioctl_tiocgptpeer(&outside, flags).unwrap();
        let size = Winsize {
            ws_row: ROWS,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&inside, size).unwrap();
        let (keyboard, shown) = (File::from(outside), Arc::new(Mutex::new(Vec::new())));
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = screen.read(&mut bytes) {
                seen.lock().unwrap().extend(&bytes[..count]);
            }
        });
        Self {
            keyboard,
            inside,
            shown,
        }
    }

    pub fn start(&self, command: &mut Command) -> Child {
        let end = || self.inside.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub fn shows(&self, words: &str) {
        let begin = Instant::now();
        while !self.shown().contains(words) {
            assert!(begin.elapsed() < PATIENCE, "no `{words}` in:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The complete output, when nothing more is written.
    #[track_caller]
    pub fn shown_at_last(&self) -> String {
        const END: &str = "<end>";
        // It comes out after everything that was written before it.
        File::from(self.inside.try_clone().unwrap())
            .write_all(END.as_bytes())
            .unwrap();
        self.shows(END);
        self.shown().replace(END, "")
    }

    /// Whether the terminal is in raw mode.
    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.inside).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

/// Waits until the program has ended.
#[track_caller]
pub fn ended(mut child: Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
