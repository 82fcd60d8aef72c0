//! Why a download failed.

use std::io;
use std::path::{Path, PathBuf};

use crate::printable::shell_path;

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("cannot download {url}: the server returned {status}")]
    Refused { url: String, status: u16 },
    #[error("cannot download {url}: {why}")]
    Unreachable { url: String, why: String, tries: u32 },
    #[error("cannot download {url}: received {found} bytes, but the server announced {said}")]
    Short { url: String, said: u64, found: u64 },
    #[error("checksum mismatch for {url}: {what} has sha256 {found}, expected {expected}")]
    WrongSum {
        url: String,
        /// `the download`, `the decompressed content`.
        what: &'static str,
        expected: String,
        found: String,
    },
    #[error("cannot decompress {url}: {source}")]
    Damaged { url: String, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Local { path: PathBuf, source: io::Error },
    #[error("cannot read installer_mirror_key {}: {source}", path.display())]
    KeyFile { path: PathBuf, source: io::Error },
    #[error("cannot download {url}: the file is larger than allowed")]
    TooLong { url: String },
    #[error("cannot use the cache: {why}")]
    Unsafe { path: PathBuf, why: String },
}

impl DownloadError {
    /// Whether the server does not have the file.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: 404 | 410, .. })
    }

    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Refused { status: 404 | 410, .. } => {
                "check the version, and that the mirror has it (settings: version, installer_mirror, image_mirror)".to_owned()
            }
            Self::Refused { status: 401 | 403, .. } => {
                "the server or a proxy requires authentication; use a mirror that does not (settings: installer_mirror, image_mirror)".to_owned()
            }
            Self::Refused { .. } | Self::Short { .. } => {
                "the server failed; try again later, or set another mirror".to_owned()
            }
            Self::Unreachable { .. } => {
                "the partial download is kept; to resume, run the same command again. Set https_proxy in the \
                 environment to use a proxy, or the settings mirror and image_mirror to use a mirror"
                    .to_owned()
            }
            Self::WrongSum { .. } | Self::Damaged { .. } => {
                "the download was deleted; the mirror or a proxy serves a modified file or another file under this name"
                    .to_owned()
            }
            Self::Disk { source, .. } if is_full(source) => {
                "free some space (`ocpdeploy image prune`), or set downloads_dir to a directory on another disk".to_owned()
            }
            Self::Disk { .. } => "set downloads_dir to a directory that you can write to".to_owned(),
            Self::Unsafe { path, .. } => format!(
                "set downloads_dir to a directory of your own, or make this one yours: `sudo chown $(id -u) {0} && chmod go-w {0}`",
                shell_path(path)
            ),
            Self::KeyFile { .. } => "create the file for installer_mirror_key with `gpg --export --armor KEY`".to_owned(),
            Self::TooLong { .. } => "check the mirror's URL".to_owned(),
            Self::Local { .. } => return None,
        })
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A URL for display: without the query, which may contain credentials. The query of a `file:` URL identifies the state
/// of the file, and is kept.
pub(super) fn shown(url: &str) -> &str {
    match url.starts_with("file:") {
        true => url,
        false => url.split('?').next().unwrap_or(url),
    }
}

pub(super) fn disk(path: &Path) -> impl Fn(io::Error) -> DownloadError + '_ {
    move |source| DownloadError::Disk {
        path: path.to_owned(),
        source,
    }
}
