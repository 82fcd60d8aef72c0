//! Reads small files that settings name, with a limit: a device such as `/dev/zero` has no end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Limit for a file; keys, CA bundles and network configurations are far smaller.
const MOST_BYTES: u64 = 16 << 20;

/// The content of a file. A pipe, such as a shell's `<(command)`, is read to its end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MOST_BYTES {
        true => Err(io::Error::other(format!("it is larger than {} MiB", MOST_BYTES >> 20))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
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
    }
}
