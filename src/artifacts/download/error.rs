//! Why a download did not come to its end.

use std::io;
use std::path::{Path, PathBuf};

/// Why a download did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("the server refuses {url}: {status}")]
    Refused { url: String, status: u16 },
    #[error("cannot download {url}: {why}")]
    Unreachable { url: String, why: String, tries: u32 },
    #[error("{url} ends after {found} bytes, and the server said {said}")]
    Short { url: String, said: u64, found: u64 },
    #[error("{what} of {url} is not the published one: expected sha256 {expected}, found {found}")]
    WrongSum {
        url: String,
        /// `the sum`, `the sum of the content`.
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
    #[error("{url} is too large for what it should be")]
    TooLong { url: String },
    #[error("cache {} is not safe to use: {why}", path.display())]
    Unsafe { path: PathBuf, why: String },
}

impl DownloadError {
    /// The server has no such file.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: 404 | 410, .. })
    }

    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Refused { status: 404 | 410, .. } => {
                "is the version right, and does the mirror have it? settings version, mirror, image_mirror".to_owned()
            }
            Self::Refused { status: 401 | 403, .. } => {
                "the server wants a login or a proxy stands before it; a mirror of your own needs none".to_owned()
            }
            Self::Refused { .. } | Self::Short { .. } => {
                "the server is at fault; try later, or another mirror".to_owned()
            }
            Self::Unreachable { .. } => {
                "what came so far is kept, the same command goes on from there; https_proxy in the environment is \
                 obeyed, and mirrors are named by the settings mirror and image_mirror"
                    .to_owned()
            }
            Self::WrongSum { .. } | Self::Damaged { .. } => {
                "nothing of it is kept; a mirror or proxy changed the file, or serves another one by that name"
                    .to_owned()
            }
            Self::Disk { source, .. } if is_full(source) => {
                "free some space (`ocpdeploy image prune`), or set cache to a folder on another disk".to_owned()
            }
            Self::Disk { .. } => "set cache to a folder that you may write".to_owned(),
            Self::Unsafe { path, .. } => format!(
                "set cache to a folder of your own; `chmod go-w {0}` keeps yours to you, `chmod 1777 {0}` shares it",
                path.display()
            ),
            Self::TooLong { .. } => "is the mirror's URL right?".to_owned(),
            Self::Local { .. } => return None,
        })
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A URL as it may be shown: without what follows `?`, where keys to it may stand. In that of a file it is its state.
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
