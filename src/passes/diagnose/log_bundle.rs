//! Reads the installer's log bundle: a gzipped tar of files with unmasked secrets.
//!
//! It contains logs, rendered manifests and all MachineConfigs, which include the pull secret
//! (openshift/installer: `data/data/bootstrap/files/usr/local/bin/installer-gather.sh`).

use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

use flate2::bufread::MultiGzDecoder;
use fs_err::File;

/// Largest size of one unpacked file in bytes; larger files are skipped.
const MOST_OF_FILE: u64 = 64 << 20;

/// Largest size of all files in bytes; the rest is skipped.
const MOST: u64 = 1 << 30;

/// The result of reading a bundle.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Names of files that are not text or too large, so that secrets in them cannot be masked.
    pub left_out: Vec<String>,
    /// The archive was not damaged.
    pub whole: bool,
}

/// Passes the name and text of each file to `each`; a gzipped file without its `.gz`.
pub(super) fn read(bundle: &Path, mut each: impl FnMut(&str, &str) -> io::Result<()>) -> io::Result<Gathered> {
    let file = BufReader::new(File::open(bundle)?);
    let mut tar = tar::Archive::new(MultiGzDecoder::new(file).take(MOST));
    let mut read = Gathered::default();
    let mut entries = tar.entries()?;
    loop {
        let mut entry = match entries.next() {
            None => break,
            Some(Ok(entry)) => entry,
            Some(Err(_)) => return Ok(read),
        };
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some(name) = entry.path().ok().and_then(|path| inner_name(&path)) else {
            read.left_out
                .push("a file whose path is outside of the bundle".to_owned());
            continue;
        };
        let mut bytes = Vec::new();
        if entry.by_ref().take(MOST_OF_FILE + 1).read_to_end(&mut bytes).is_err() {
            return Ok(read);
        }
        match text(bytes) {
            Some(text) => each(name.strip_suffix(".gz").unwrap_or(&name), &text)?,
            None => read.left_out.push(name),
        }
    }
    read.whole = true;
    Ok(read)
}

/// The text of a file, unpacked if it is gzip; `None` for anything else.
fn text(mut bytes: Vec<u8>) -> Option<String> {
    if bytes.starts_with(&[0x1f, 0x8b]) && bytes.len() as u64 <= MOST_OF_FILE {
        let packed = std::mem::take(&mut bytes);
        let mut packed = MultiGzDecoder::new(&packed[..]).take(MOST_OF_FILE + 1);
        packed.read_to_end(&mut bytes).ok()?;
    }
    let is_text = bytes.len() as u64 <= MOST_OF_FILE && !bytes.contains(&0) && !bytes.starts_with(&[0x1f, 0x8b]);
    is_text.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The path within the tar; `None` if it is outside.
fn inner_name(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn bundle(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, *bytes).unwrap();
        }
        gzip(&tar.into_inner().unwrap())
    }

    fn all(bytes: &[u8]) -> (Vec<(String, String)>, Gathered) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let mut found = Vec::new();
        let read = read(file.path(), |name, text| {
            found.push((name.to_owned(), text.to_owned()));
            Ok(())
        });
        (found, read.unwrap())
    }

    #[test]
    fn text_files_are_read_and_all_others_are_skipped() {
        let bomb = gzip(&vec![b'a'; MOST_OF_FILE as usize + 1]);
        let bytes = bundle(&[
            ("b/a.log", b"text \xff"),
            ("b/openapi.json.gz", &gzip(b"{}")),
            ("b/binary", b"a\0b"),
            ("b/twice.gz", &gzip(&gzip(b"a"))),
            ("b/bomb.gz", &bomb),
            ("../../out", b"x"),
        ]);
        let (found, read) = all(&bytes);
        let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(found, [text("b/a.log", "text \u{fffd}"), text("b/openapi.json", "{}")]);
        let left_out = [
            "b/binary",
            "b/twice.gz",
            "b/bomb.gz",
            "a file whose path is outside of the bundle",
        ];
        assert_eq!(read.left_out, left_out);
        assert!(read.whole);
        let (found, read) = all(&bytes[..bytes.len() / 2]);
        assert!(!read.whole, "{found:?}");
    }
}
