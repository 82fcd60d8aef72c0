//! `signature.rs` of a build without OpenPGP, such as that of `make rehearse`: no signature is valid.

use std::path::Path;

use jiff::Timestamp;

use crate::error::OperationError;

const WHY: &str = "this build of ocpdeploy does not verify OpenPGP signatures (Cargo feature openpgp)";

/// Keys that may sign.
pub(super) struct SigningKeys;

impl SigningKeys {
    pub fn vendor() -> Result<Self, OperationError> {
        Ok(Self)
    }

    pub fn of_file(_path: &Path) -> Result<Self, OperationError> {
        Ok(Self)
    }

    pub fn and(self, _others: Self) -> Self {
        self
    }

    pub fn verify(&self, _content: &[u8], _signature: &[u8], _now: Timestamp) -> Result<String, String> {
        Err(WHY.to_owned())
    }

    pub fn content(
        &self,
        _message: &[u8],
        _limit: usize,
        _now: Timestamp,
    ) -> Result<Option<(Vec<u8>, String)>, String> {
        Err(WHY.to_owned())
    }
}
