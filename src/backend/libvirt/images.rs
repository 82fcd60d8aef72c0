//! Base images that clusters share. They are uploaded once, and deleted with the last cluster that uses them.
//!
//! libvirt has no locks between clients, so two rules protect concurrent processes:
//!
//! * An image is complete if and only if it has a qcow2 header. The header is written last, through a stream that was
//!   opened first. So it is never written to a volume that another process has created under the same name since.
//! * A cluster creates its marker *before* it searches for the image. A cluster that releases an image creates its
//!   marker *before* it searches for other users. So the second process always sees the marker of the first.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use virt::storage_vol::StorageVol;

use super::session::CallProgress;
use super::storage::{Qcow2, Storage, VolumeContent};
use super::volumes::{ImageKey, Volume};
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::ClusterId;
use crate::digest::hex;
use crate::xml;

/// The number of bytes that are written last: more than any header.
const HEAD: u64 = 64 * 1024;
/// The pause between two checks of another process's upload.
const CHECK_PAUSE: Duration = Duration::from_millis(100);
/// An incomplete image that has not grown for this time is abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(3);
/// The longest wait for another cluster that is releasing the image.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// A local file with its digest.
pub(super) struct ImageFile<'a> {
    pub path: &'a Path,
    pub sha256: &'a str,
    pub bytes: u64,
}

/// Returns the name of the volume with the complete image.
pub(super) fn ensure(
    storage: &Storage,
    cluster: &ClusterId,
    image: &ImageFile,
    progress: &CallProgress,
) -> Result<String, BackendError> {
    let key = ImageKey::of_digest(image.sha256).ok_or_else(|| {
        BackendError::new(
            BackendErrorKind::Rejected,
            format!("`{}` is not a sha256 digest", image.sha256),
        )
    })?;
    let name = key.volume();
    storage.create_marker(&key.uses(cluster))?;
    // Remains of an interrupted destroy of this cluster.
    storage.delete(&key.leaves(cluster))?;
    wait_for_releases(storage, &key, progress)?;
    let mut seen = (0, Instant::now());
    loop {
        match storage.find(&name)? {
            None => {
                let content = VolumeContent::Raw(image.bytes);
                match storage.create(&name, &content) {
                    Ok(volume) => upload(storage, &volume, image, progress)?,
                    // Another process creates it.
                    Err(failure) if failure.kind == BackendErrorKind::Conflict => sleep(CHECK_PAUSE),
                    Err(failure) => return Err(failure),
                }
                seen = (0, Instant::now());
            }
            Some(volume) => {
                if storage.header(&volume)?.is_some() {
                    return Ok(name);
                }
                let written = volume.info()?.allocation;
                if written != seen.0 {
                    progress.report();
                    seen = (written, Instant::now());
                } else if seen.1.elapsed() > ABANDONED_AFTER {
                    storage.delete(&name)?;
                } else {
                    sleep(CHECK_PAUSE);
                }
            }
        }
    }
}

fn upload(
    storage: &Storage,
    volume: &StorageVol,
    image: &ImageFile,
    progress: &CallProgress,
) -> Result<(), BackendError> {
    let unreadable = |error: std::io::Error| BackendError::unreadable(image.path, &error);
    let mut file = File::open(image.path).map_err(unreadable)?;
    let mut head = Vec::new();
    (&mut file).take(HEAD).read_to_end(&mut head).map_err(unreadable)?;
    if Qcow2::read(&head).is_none() {
        let failure = BackendError::new(
            BackendErrorKind::LocalFile,
            format!("{} is not a qcow2 image", image.path.display()),
        );
        return Err(failure.hint("convert it with `qemu-img convert -O qcow2`"));
    }
    let mut digest = Sha256::new();
    digest.update(&head);
    let mut first = storage.begin_upload(volume, 0, head.len() as u64)?;
    let sent = send_body(storage, volume, head.len() as u64, file, &mut digest, progress);
    let whole = sent.and_then(|sent| {
        let found = hex(&digest.finalize());
        match found == image.sha256 && head.len() as u64 + sent == image.bytes {
            true => first.send(&head, progress),
            false => Err(BackendError::new(
                BackendErrorKind::LocalFile,
                format!("{} changed while it was uploaded", image.path.display()),
            )),
        }
    });
    match whole {
        Ok(()) => first.finish(),
        Err(failure) => {
            first.abort();
            // Otherwise it would look like an abandoned upload.
            let _ = super::storage::delete(volume);
            Err(failure)
        }
    }
}

fn send_body(
    storage: &Storage,
    volume: &StorageVol,
    offset: u64,
    file: File,
    digest: &mut Sha256,
    progress: &CallProgress,
) -> Result<u64, BackendError> {
    let mut body = storage.begin_upload(volume, offset, 0)?;
    match body.send_all(file, progress, |bytes| digest.update(bytes)) {
        Ok(sent) => body.finish().map(|()| sent),
        Err(failure) => {
            body.abort();
            Err(failure)
        }
    }
}

fn wait_for_releases(storage: &Storage, key: &ImageKey, progress: &CallProgress) -> Result<(), BackendError> {
    let begun = Instant::now();
    let leaving = |name: &str| matches!(Volume::read(name), Some(Volume::Leaves { image, .. }) if image == *key);
    while begun.elapsed() < RELEASE_TIMEOUT {
        if !storage.list()?.iter().any(|(name, _)| leaving(name)) {
            break;
        }
        progress.report();
        sleep(CHECK_PAUSE);
    }
    Ok(())
}

/// Releases all images of a cluster, and deletes those without users.
pub(super) fn release(storage: &Storage, cluster: &ClusterId, progress: &CallProgress) -> Result<(), BackendError> {
    for key in used_by(storage, cluster)? {
        progress.report();
        storage.create_marker(&key.leaves(cluster))?;
        storage.delete(&key.uses(cluster))?;
        if !is_used(storage, &key)? {
            storage.delete(&key.volume())?;
        }
        storage.delete(&key.leaves(cluster))?;
    }
    Ok(())
}

fn used_by(storage: &Storage, cluster: &ClusterId) -> Result<BTreeSet<ImageKey>, BackendError> {
    let volumes = storage.list()?;
    let ours = volumes.iter().filter_map(|(name, _)| match Volume::read(name) {
        Some(Volume::Uses { cluster: by, image } | Volume::Leaves { cluster: by, image }) => {
            (by == *cluster).then_some(image)
        }
        _ => None,
    });
    Ok(ours.collect())
}

/// Whether a cluster has a marker for an image, or a volume of any active pool is an overlay of the image, even one
/// that a user created.
fn is_used(storage: &Storage, key: &ImageKey) -> Result<bool, BackendError> {
    let volumes = storage.list()?;
    let marked = |name: &str| matches!(Volume::read(name), Some(Volume::Uses { image, .. }) if image == *key);
    if volumes.iter().any(|(name, _)| marked(name)) {
        return Ok(true);
    }
    let Some(base) = storage.find(&key.volume())? else {
        return Ok(false);
    };
    let path = base.path()?;
    let is_overlay =
        |described: &str| Ok::<_, BackendError>(xml::parse(described)?.text_of("backingStore/path") == Some(&path));
    for (_, volume) in &volumes {
        // A volume that was deleted meanwhile is not an overlay.
        if let Some(described) = if_exists(volume.xml_desc(0))?
            && is_overlay(&described)?
        {
            return Ok(true);
        }
    }
    // A volume in another owner's pool that libvirt cannot read must not keep the image forever.
    let others = storage.volumes_elsewhere()?;
    let mut described = others.iter().filter_map(|volume| volume.xml_desc(0).ok());
    Ok(described.any(|described| is_overlay(&described).unwrap_or(false)))
}

#[cfg(test)]
mod tests {
    use super::super::session::open_test_driver;
    use super::*;

    #[test]
    fn an_image_that_another_pool_has_an_overlay_of_is_kept() {
        let connect = open_test_driver();
        let storage = Storage::open(&connect, "default-pool").unwrap();
        let key = ImageKey::of_digest(&"ab".repeat(32)).unwrap();
        let (cluster, progress) = (
            ClusterId::read("lab.example.com.x7k2pqrs").unwrap(),
            CallProgress::default(),
        );
        let path = storage
            .create(&key.volume(), &VolumeContent::Raw(1))
            .unwrap()
            .path()
            .unwrap();
        let pool = "<pool type='dir'><name>theirs</name><target><path>/theirs</path></target></pool>";
        let pool = connect.create_storage_pool_xml(pool, 0).unwrap();
        let overlay = format!(
            "<volume><name>mine.qcow2</name><capacity>1</capacity><backingStore><path>{path}</path></backingStore></volume>"
        );
        let overlay = StorageVol::create_xml(&pool, &overlay, 0).unwrap();
        let release = || {
            storage.create_marker(&key.uses(&cluster)).unwrap();
            release(&storage, &cluster, &progress).unwrap();
            storage.find(&key.volume()).unwrap().is_some()
        };
        assert!(release(), "it was deleted below an overlay");
        overlay.delete(0).unwrap();
        assert!(!release(), "nothing uses it");
    }
}
