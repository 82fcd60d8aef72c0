//! Base images that clusters share: uploaded once, deleted with the last cluster that uses them.
//!
//! There is no lock on a libvirt host, so two rules keep processes from harming each other.
//! An image is whole exactly when it has a qcow2 header: the header is written last, through a stream that was
//! opened first, so it can never get into a volume that another process made under the same name meanwhile.
//! And a cluster marks its use *before* it looks for the image, while one that leaves marks that *before* it looks
//! for other users: whichever comes second sees the first.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use virt::storage_vol::StorageVol;

use super::session::{Pulse, if_there};
use super::storage::{Content, Qcow2, Storage};
use super::volumes::{ImageKey, Volume};
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::cluster::ClusterId;
use crate::digest::hex;
use crate::xml;

/// Written last; more than any header that matters here.
const HEAD: u64 = 64 * 1024;
/// How often another process's upload is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// An incomplete image that has not grown for so long is nobody's any more.
const STALLED: Duration = Duration::from_secs(3);
/// Longest wait for another cluster that is just leaving the image.
const LEAVING: Duration = Duration::from_secs(5);

/// A local file with its digest.
pub(super) struct LocalImage<'a> {
    pub path: &'a Path,
    pub sha256: &'a str,
    pub bytes: u64,
}

/// Gives the name of the volume that holds the image, whole.
pub(super) fn ensure(
    storage: &Storage,
    cluster: &ClusterId,
    image: &LocalImage,
    pulse: &Pulse,
) -> Result<String, Failure> {
    let key = ImageKey::of_digest(image.sha256)
        .ok_or_else(|| Failure::new(BackendErrorKind::Rejected, format!("`{}` is no sha256", image.sha256)))?;
    let name = key.volume();
    storage.create_mark(&key.uses(cluster))?;
    // From a destroy of this very cluster that was cut.
    storage.delete(&key.leaves(cluster))?;
    wait_for_leavers(storage, &key, pulse)?;
    let mut seen = (0, Instant::now());
    loop {
        match storage.find(&name)? {
            None => {
                let content = Content::Raw(image.bytes);
                match storage.create(&name, &content) {
                    Ok(volume) => upload(storage, &volume, image, pulse)?,
                    Err(failure) if failure.kind == BackendErrorKind::Conflict => {}
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
                    pulse.beat();
                    seen = (written, Instant::now());
                } else if seen.1.elapsed() > STALLED {
                    storage.delete(&name)?;
                } else {
                    sleep(LOOK);
                }
            }
        }
    }
}

fn upload(storage: &Storage, volume: &StorageVol, image: &LocalImage, pulse: &Pulse) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(
            BackendErrorKind::Rejected,
            format!("cannot read {}: {error}", image.path.display()),
        )
    };
    let mut file = File::open(image.path).map_err(unreadable)?;
    let mut head = Vec::new();
    (&mut file).take(HEAD).read_to_end(&mut head).map_err(unreadable)?;
    if Qcow2::read(&head).is_none() {
        let failure = Failure::new(
            BackendErrorKind::Rejected,
            format!("{} is not a qcow2 image", image.path.display()),
        );
        return Err(failure.hint("`qemu-img convert -O qcow2` makes one"));
    }
    let mut digest = Sha256::new();
    digest.update(&head);
    let mut first = storage.begin_upload(volume, 0, head.len() as u64)?;
    let sent = send_body(storage, volume, head.len() as u64, file, &mut digest, pulse);
    let whole = sent.and_then(|sent| {
        let found = hex(&digest.finalize());
        match found == image.sha256 && head.len() as u64 + sent == image.bytes {
            true => first.send(&head, pulse),
            false => Err(Failure::new(
                BackendErrorKind::Rejected,
                format!("{} changed while it was uploaded", image.path.display()),
            )),
        }
    });
    match whole {
        Ok(()) => first.finish(),
        Err(failure) => {
            first.abort();
            // It would only be taken for an upload that has stalled.
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
    pulse: &Pulse,
) -> Result<u64, Failure> {
    let mut body = storage.begin_upload(volume, offset, 0)?;
    match body.send_all(file, pulse, |bytes| digest.update(bytes)) {
        Ok(sent) => body.finish().map(|()| sent),
        Err(failure) => {
            body.abort();
            Err(failure)
        }
    }
}

fn wait_for_leavers(storage: &Storage, key: &ImageKey, pulse: &Pulse) -> Result<(), Failure> {
    let begun = Instant::now();
    let leaving = |name: &str| matches!(Volume::read(name), Some(Volume::Leaves { image, .. }) if image == *key);
    while begun.elapsed() < LEAVING {
        if !storage.list()?.iter().any(|(name, _)| leaving(name)) {
            break;
        }
        pulse.beat();
        sleep(LOOK);
    }
    Ok(())
}

/// Ends a cluster's use of all images, and deletes those that nobody uses any more.
pub(super) fn leave(storage: &Storage, cluster: &ClusterId, pulse: &Pulse) -> Result<(), Failure> {
    for key in used_by(storage, cluster)? {
        pulse.beat();
        storage.create_mark(&key.leaves(cluster))?;
        storage.delete(&key.uses(cluster))?;
        if !is_used(storage, &key)? {
            storage.delete(&key.volume())?;
        }
        storage.delete(&key.leaves(cluster))?;
    }
    Ok(())
}

fn used_by(storage: &Storage, cluster: &ClusterId) -> Result<BTreeSet<ImageKey>, Failure> {
    let volumes = storage.list()?;
    let ours = volumes.iter().filter_map(|(name, _)| match Volume::read(name) {
        Some(Volume::Uses { cluster: by, image } | Volume::Leaves { cluster: by, image }) => {
            (by == *cluster).then_some(image)
        }
        _ => None,
    });
    Ok(ours.collect())
}

/// Whether a cluster says so, or any volume lies over it, be it made by hand.
fn is_used(storage: &Storage, key: &ImageKey) -> Result<bool, Failure> {
    let volumes = storage.list()?;
    let marked = |name: &str| matches!(Volume::read(name), Some(Volume::Uses { image, .. }) if image == *key);
    if volumes.iter().any(|(name, _)| marked(name)) {
        return Ok(true);
    }
    let Some(base) = storage.find(&key.volume())? else {
        return Ok(false);
    };
    let path = base.path()?;
    for (_, volume) in &volumes {
        // A volume that vanishes meanwhile uses nothing.
        let Some(described) = if_there(volume.xml_desc(0))? else {
            continue;
        };
        let described = xml::parse(&described)?;
        if described
            .find("backingStore/path")
            .is_some_and(|backing| backing.text == path)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
