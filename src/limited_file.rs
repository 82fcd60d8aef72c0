//! Reads small files that users name, with limits: `/dev/zero` has no end, and a FIFO may have no writer.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

/// Limit for a file; keys, CA bundles and network configurations are far smaller.
const MOST_BYTES: u64 = 16 << 20;

/// How long a FIFO may have no writer. The writer of a shell's `<(command)` exists from the start.
const NO_WRITER: Duration = Duration::from_secs(5);

/// How long a writer may send nothing: its command may prompt for a passphrase.
const SILENCE: Duration = Duration::from_secs(120);

/// The byte order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Pause between two attempts to read.
const PAUSE: Duration = Duration::from_millis(10);

/// The content of a file. A pipe, such as a shell's `<(command)`, is read to its end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_open(open(path)?)
}

/// As `read`, for text.
pub fn read_text(path: &Path) -> io::Result<String> {
    text(read(path)?)
}

/// The content of a file that `open` or `found_file` has opened.
pub fn read_open(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Patient::new(file)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MOST_BYTES {
        true => Err(too_large()),
        false => Ok(bytes),
    }
}

/// Whether a library that reads a whole file at once can read this one.
pub fn check(path: &Path) -> io::Result<()> {
    let file = path.metadata()?;
    match () {
        () if !file.is_file() => Err(io::Error::other("it is not a regular file")),
        () if file.len() > MOST_BYTES => Err(too_large()),
        () => Ok(()),
    }
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {} MiB", MOST_BYTES >> 20))
}

/// Converts UTF-8 to text, and removes a byte order mark, which editors on Windows write. An error names the encoding.
pub fn text(mut bytes: Vec<u8>) -> io::Result<String> {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    let why = match &bytes[..] {
        // UTF-16 with a byte order mark, or ASCII text in UTF-16 without one.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [1..=255, 0, 1..=255, 0, ..] | [0, 1..=255, 0, 1..=255, ..] => {
            "it is UTF-16; save it as UTF-8".to_owned()
        }
        _ => match String::from_utf8(bytes) {
            Ok(text) => return Ok(text),
            Err(error) => other_encoding(error.as_bytes(), error.utf8_error().valid_up_to()),
        },
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Why bytes are not UTF-8; `at` is the position of the first one that is not.
fn other_encoding(bytes: &[u8], at: usize) -> String {
    if bytes.contains(&0) {
        return "it is not a text file".to_owned();
    }
    let line = 1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count();
    format!("line {line} is not UTF-8: perhaps a Windows-1252 character, such as a curly quote; save it as UTF-8")
}

/// Opens a file without waiting for a FIFO's writer.
pub fn open(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
}

/// A file of any size that was opened without waiting; each read waits with limits.
pub struct Patient {
    file: File,
    is_fifo: bool,
    has_begun: bool,
    no_writer: Duration,
}

impl Patient {
    pub fn new(file: File) -> io::Result<Self> {
        let is_fifo = file.metadata()?.file_type().is_fifo();
        Ok(Self {
            file,
            is_fifo,
            has_begun: false,
            no_writer: NO_WRITER,
        })
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        loop {
            let (limit, what) = match self.file.read(buffer) {
                // Without a writer, a FIFO is at its end (fifo(7)).
                Ok(0) if self.is_fifo && !self.has_begun => (self.no_writer, "no program wrote to this FIFO"),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (SILENCE, "no more data arrived"),
                read => {
                    self.has_begun = true;
                    return read;
                }
            };
            if begun.elapsed() > limit {
                let text = format!("{what} within {} s", limit.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_endless_file_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, is_read) in [(0, true), (MOST_BYTES, true), (MOST_BYTES + 1, false)] {
            file.as_file().set_len(bytes).unwrap();
            assert_eq!(
                read(file.path()).is_ok_and(|read| read.len() as u64 == bytes),
                is_read,
                "{bytes}"
            );
        }
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 16 MiB");
        assert!(check(file.path()).is_err() && check(Path::new("/dev/zero")).is_err());
        file.as_file().set_len(1).unwrap();
        check(file.path()).unwrap();
    }

    #[test]
    fn the_encodings_of_windows_are_read_or_named() {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        for (bytes, expected) in [
            (b"\xef\xbb\xbfa=1\r\n".to_vec(), Ok("a=1\r\n")),
            (utf16("\u{feff}a=1"), Err("it is UTF-16; save it as UTF-8")),
            (utf16("a=1"), Err("it is UTF-16; save it as UTF-8")),
            (
                b"a=1\nb=\x93x\x94".to_vec(),
                Err("line 2 is not UTF-8: perhaps a Windows-1252 character, such as a curly quote; save it as UTF-8"),
            ),
            (b"\x7fELF\x02\x01\x01\0\xff".to_vec(), Err("it is not a text file")),
            ("ü".into(), Ok("ü")),
        ] {
            let found = text(bytes).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        }
    }

    #[test]
    fn a_fifo_is_read_to_its_end_and_without_a_writer_it_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let mut silent = Patient::new(open(&path).unwrap()).unwrap();
        silent.no_writer = Duration::ZERO;
        let error = silent.read(&mut [0]).unwrap_err();
        assert_eq!(error.to_string(), "no program wrote to this FIFO within 0 s");
        let to = path.clone();
        let writer = std::thread::spawn(move || {
            // Waits for the reader.
            let mut file = File::options().write(true).open(to).unwrap();
            for part in ["first ", "second"] {
                file.write_all(part.as_bytes()).unwrap();
                sleep(PAUSE * 2);
            }
        });
        assert_eq!(read_text(&path).unwrap(), "first second");
        writer.join().unwrap();
    }
}
