//! Images: from what the settings name to what a backend is asked for.

use std::io::{self, Read};
use std::path::Path;

use fs_err::File;
use sha2::{Digest, Sha256};

use crate::backend::ImageRequest;
use crate::cluster::ImageSource;
use crate::digest::hex;

/// Reads a file image's digest, its identity on every platform. Reads the whole file.
pub async fn request(source: &ImageSource) -> io::Result<ImageRequest> {
    match source {
        ImageSource::Platform(name) => Ok(ImageRequest::Platform(name.clone())),
        ImageSource::Release | ImageSource::Catalogue(_) | ImageSource::Url(_) => {
            Err(io::Error::other("it is not fetched yet"))
        }
        ImageSource::File(path) => {
            let path = path.clone();
            tokio::task::spawn_blocking(move || {
                let (sha256, bytes) = digest(&path)?;
                Ok(ImageRequest::File { path, sha256, bytes })
            })
            .await
            .map_err(io::Error::other)?
        }
    }
}

fn digest(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0u64, vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((hex(&hash.finalize()), bytes)),
            count => {
                hash.update(&buffer[..count]);
                bytes += count as u64;
            }
        }
    }
}
