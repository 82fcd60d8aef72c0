//! Digests by which bytes are named, in lower-case hexadecimal.

use sha2::{Digest, Sha256, Sha512};

/// sha256 of `bytes`: 64 digits.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// sha512 of `bytes`: 128 digits, as Ignition's `verification.hash` has it after `sha512-`.
pub fn sha512(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha512::digest(bytes))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
