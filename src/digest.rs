//! Digests of bytes, in lower-case hexadecimal.

use std::io::{self, Read, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

/// SHA-256 of `bytes`: 64 digits.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-512 of `bytes`: 128 digits, as in Ignition's `verification.hash` after `sha512-`.
pub fn sha512(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha512::digest(bytes))
}

/// SHA-256 of all bytes of a reader.
pub fn sha256_of(reader: impl Read) -> io::Result<String> {
    digest_of(Sha256::new(), reader)
}

/// SHA-512 of all bytes of a reader.
pub fn sha512_of(reader: impl Read) -> io::Result<String> {
    digest_of(Sha512::new(), reader)
}

fn digest_of(digest: impl Digest, mut reader: impl Read) -> io::Result<String> {
    let mut writer = DigestWriter(digest);
    io::copy(&mut reader, &mut writer)?;
    Ok(hex(&writer.0.finalize()))
}

struct DigestWriter<D>(D);

impl<D: Digest> Write for DigestWriter<D> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// HMAC-SHA-256 of `text` (RFC 2104): 64 digits.
#[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104)")]
pub fn hmac_sha256(key: impl AsRef<[u8]>, text: impl AsRef<[u8]>) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_ref()).expect("a key of any length");
    mac.update(text.as_ref());
    hex(&mac.finalize().into_bytes())
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test cases 2 and 6.
    #[test]
    fn hmac_sha256_matches_rfc_4231() {
        assert_eq!(
            hmac_sha256("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hmac_sha256([0xaa; 131], "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
