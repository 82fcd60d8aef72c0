//! Creates, writes, reads and deletes the volumes of one pool through libvirt, so remote hosts need no file access.

use std::io::Read;
use std::thread::sleep;
use std::time::{Duration, Instant};

use virt::connect::Connect;
use virt::error::{Error, ErrorNumber};
use virt::storage_pool::StoragePool;
use virt::storage_vol::StorageVol;
use virt::stream::Stream;
use virt::sys;

use super::session::{CallProgress, checked_text, document, if_supported};
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind};
use crate::printable::shell_word;
use crate::xml::Element;

/// The bytes of one write to a stream. More are not faster.
const CHUNK: usize = 1 << 20;
/// The longest time that a volume may be busy, and the pause between two attempts.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Storage<'a> {
    connect: &'a Connect,
    pool: StoragePool,
}

/// The content of a new volume.
pub(super) enum VolumeContent<'a> {
    /// Exactly this many bytes, zero until written. Only the user of QEMU and root can read it.
    Raw(u64),
    /// An empty disk of this size.
    Disk(u64),
    /// A disk of this size that stores the differences from another volume.
    Overlay { bytes: u64, base: &'a Base },
}

/// A volume on which overlays are created.
pub(super) struct Base {
    pub path: String,
    pub format: String,
    /// The virtual size in bytes.
    pub virtual_size: u64,
}

impl<'a> Storage<'a> {
    pub fn open(connect: &'a Connect, pool: &str) -> Result<Self, BackendError> {
        let Some(found) = if_exists(connect.lookup_storage_pool_by_name(checked_text("pool name", pool)?))? else {
            let failure = BackendError::new(
                BackendErrorKind::NotFound,
                format!("storage pool `{pool}` does not exist"),
            );
            let pool = shell_word(pool);
            return Err(failure.hint(format!(
                "set `libvirt_storage_pool` to an existing one: list them with `virsh pool-list --all`; or create it: `virsh pool-define-as \
                 {pool} dir --target /var/lib/libvirt/images`, `virsh pool-autostart {pool}`, `virsh pool-start {pool}`"
            )));
        };
        if !found.is_active()? {
            let failure = BackendError::new(
                BackendErrorKind::Rejected,
                format!("storage pool `{pool}` is not active"),
            );
            return Err(failure.hint(format!("start it with `virsh pool-start {}`", shell_word(pool))));
        }
        Ok(Self { connect, pool: found })
    }

    pub fn describe(&self) -> Result<Element, BackendError> {
        document(self.pool.xml_desc(0))
    }

    pub fn find(&self, name: &str) -> Result<Option<StorageVol>, BackendError> {
        if_exists(self.pool.lookup_storage_vol_by_name(checked_text("volume name", name)?))
    }

    /// All volumes with their names.
    pub fn list(&self) -> Result<Vec<(String, StorageVol)>, BackendError> {
        let volumes = self.pool.list_all_volumes(0)?;
        volumes.into_iter().map(|volume| Ok((volume.name()?, volume))).collect()
    }

    /// The volumes of the other active pools, as far as they can be listed.
    pub fn volumes_elsewhere(&self) -> Result<Vec<StorageVol>, BackendError> {
        let own = self.pool.name()?;
        let active = sys::VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE;
        let pools = self.connect.list_all_storage_pools(active)?;
        let others = pools.iter().filter(|pool| pool.name().is_ok_and(|name| name != own));
        Ok(others.flat_map(|pool| pool.list_all_volumes(0)).flatten().collect())
    }

    /// Makes libvirt list files that were created by other programs in the directory of the pool.
    pub fn refresh(&self) -> Result<(), BackendError> {
        retry_while_busy(|| self.pool.refresh(0))
    }

    pub fn create(&self, name: &str, content: &VolumeContent) -> Result<StorageVol, BackendError> {
        let volume = volume_xml(checked_text("volume name", name)?, content);
        Ok(StorageVol::create_xml(&self.pool, &volume.to_string(), 0)?)
    }

    /// Like `create`, but first deletes a volume of this name that remains after a crash. No machine may use it.
    pub fn recreate(&self, name: &str, content: &VolumeContent) -> Result<StorageVol, BackendError> {
        match self.create(name, content) {
            Err(failure) if failure.is(ErrorNumber::StorageVolExist) => {
                self.delete(name)?;
                self.create(name, content)
            }
            other => other,
        }
    }

    /// Creates an empty volume. An existing one is success.
    pub fn create_marker(&self, name: &str) -> Result<(), BackendError> {
        match self.create(name, &VolumeContent::Raw(0)) {
            Err(failure) if failure.is(ErrorNumber::StorageVolExist) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Deletes a volume. Returns whether it existed.
    pub fn delete(&self, name: &str) -> Result<bool, BackendError> {
        match self.find(name)? {
            Some(volume) => delete(&volume),
            None => Ok(false),
        }
    }

    pub fn upload(&self, volume: &StorageVol, bytes: &[u8], progress: &CallProgress) -> Result<(), BackendError> {
        let mut upload = self.begin_upload(volume, 0, bytes.len() as u64)?;
        match upload.send(bytes, progress) {
            Ok(()) => upload.finish(),
            Err(failure) => {
                upload.abort();
                Err(failure)
            }
        }
    }

    /// Opens the volume for writing. If the volume is deleted or replaced later, the bytes still go to this one.
    pub fn begin_upload(&self, volume: &StorageVol, offset: u64, length: u64) -> Result<VolumeUpload, BackendError> {
        let stream = Stream::new(self.connect, 0)?;
        retry_while_busy(|| volume.upload(&stream, offset, length, 0))?;
        Ok(VolumeUpload { stream })
    }

    /// Reads at most `length` bytes from `offset`; fewer at the end of the volume.
    pub fn read(&self, volume: &StorageVol, offset: u64, length: u64) -> Result<Vec<u8>, BackendError> {
        let stream = Stream::new(self.connect, 0)?;
        retry_while_busy(|| volume.download(&stream, offset, length, 0))?;
        let mut bytes = Vec::new();
        let mut buffer = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK))];
        loop {
            match stream.recv(&mut buffer).map(usize::try_from) {
                Ok(Ok(0)) => break,
                Ok(Ok(count)) => bytes.extend_from_slice(&buffer[..count]),
                Ok(Err(_)) => return Err(BackendError::new(BackendErrorKind::Rejected, "the stream would block")),
                Err(error) => {
                    // The first error is the cause.
                    let _ = stream.abort();
                    return Err(error.into());
                }
            }
        }
        stream.finish()?;
        Ok(bytes)
    }

    /// The properties of a volume that an overlay on it requires.
    pub fn base(&self, name: &str) -> Result<Base, BackendError> {
        let Some(volume) = self.find(name)? else {
            let failure = BackendError::new(BackendErrorKind::NotFound, format!("volume `{name}` does not exist"));
            return Err(failure.hint("list the volumes with `virsh vol-list POOL`"));
        };
        let described = document(volume.xml_desc(0))?;
        let capacity = described.find("capacity").and_then(|element| element.text.parse().ok());
        let reported = described.value("target/format", "type").unwrap_or("raw").to_owned();
        // libvirt detects the format only when it refreshes the pool, so an uploaded volume may still be reported as raw.
        let header = if_supported(self.header(&volume))?.flatten();
        let (format, virtual_size) = match header {
            Some(header) => ("qcow2".to_owned(), Some(header.virtual_size)),
            None => (reported, capacity),
        };
        Ok(Base {
            path: volume.path()?,
            format,
            virtual_size: virtual_size.unwrap_or(0),
        })
    }

    /// `None` if the volume is not qcow2, such as an incomplete upload.
    pub fn header(&self, volume: &StorageVol) -> Result<Option<Qcow2>, BackendError> {
        Ok(Qcow2::read(&self.read(volume, 0, Qcow2::BYTES as u64)?))
    }
}

/// Deletes a volume. Returns whether it still existed.
pub(super) fn delete(volume: &StorageVol) -> Result<bool, BackendError> {
    match retry_while_busy(|| volume.delete(0)) {
        Err(failure) if failure.kind == BackendErrorKind::NotFound => Ok(false),
        other => other.map(|()| true),
    }
}

/// Repeats a call while libvirt is busy with the volume, which takes milliseconds.
fn retry_while_busy<T>(call: impl Fn() -> Result<T, Error>) -> Result<T, BackendError> {
    let begun = Instant::now();
    loop {
        match call().map_err(BackendError::from) {
            Err(failure) if failure.is_temporary() && begun.elapsed() < PATIENCE => sleep(PAUSE),
            other => return other,
        }
    }
}

/// An upload to a volume.
pub(super) struct VolumeUpload {
    stream: Stream,
}

impl VolumeUpload {
    pub fn send(&mut self, mut bytes: &[u8], progress: &CallProgress) -> Result<(), BackendError> {
        while !bytes.is_empty() {
            let sent = self.stream.send(&bytes[..bytes.len().min(CHUNK)])?;
            progress.report();
            bytes = &bytes[usize::try_from(sent).unwrap_or(0)..];
        }
        Ok(())
    }

    pub fn send_all(
        &mut self,
        mut source: impl Read,
        progress: &CallProgress,
        mut see: impl FnMut(&[u8]),
    ) -> Result<u64, BackendError> {
        let mut buffer = vec![0; CHUNK];
        let mut total = 0;
        loop {
            let count = source
                .read(&mut buffer)
                .map_err(|error| BackendError::new(BackendErrorKind::Rejected, error.to_string()))?;
            if count == 0 {
                return Ok(total);
            }
            see(&buffer[..count]);
            self.send(&buffer[..count], progress)?;
            total += count as u64;
        }
    }

    /// Waits until libvirt has written all bytes.
    pub fn finish(self) -> Result<(), BackendError> {
        Ok(self.stream.finish()?)
    }

    pub fn abort(self) {
        // The error that led here is reported instead.
        let _ = self.stream.abort();
    }
}

/// The header of a qcow2 file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Qcow2 {
    /// The virtual size in bytes.
    pub virtual_size: u64,
}

impl Qcow2 {
    /// The length of the header's first part: magic, version, backing file (8 + 4 + 4), size.
    pub const BYTES: usize = 32;

    pub fn read(bytes: &[u8]) -> Option<Self> {
        let size = bytes.strip_prefix(b"QFI\xfb")?.get(20..28)?;
        Some(Self {
            virtual_size: u64::from_be_bytes(size.try_into().ok()?),
        })
    }
}

fn volume_xml(name: &str, content: &VolumeContent) -> Element {
    let (format, bytes) = match content {
        VolumeContent::Raw(bytes) => ("raw", bytes),
        VolumeContent::Disk(bytes) | VolumeContent::Overlay { bytes, .. } => ("qcow2", bytes),
    };
    let target = Element::new("target")
        .child(Element::new("format").attr("type", format))
        .child(Element::new("permissions").child(Element::new("mode").text("0600")));
    let volume = Element::new("volume")
        .child(Element::new("name").text(name))
        .child(Element::new("capacity").attr("unit", "bytes").text(bytes))
        .child(Element::new("allocation").text(0))
        .child(target);
    match content {
        VolumeContent::Overlay { base, .. } => volume.child(
            Element::new("backingStore")
                .child(Element::new("path").text(&base.path))
                .child(Element::new("format").attr("type", &base.format)),
        ),
        _ => volume,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_has_the_path_and_format_of_its_base() {
        let base = Base {
            path: "/pool/R&D.qcow2".to_owned(),
            format: "qcow2".to_owned(),
            virtual_size: 1,
        };
        let xml = volume_xml(
            "ocpdeploy_lab.example.com_lab-master-0_disk.qcow2",
            &VolumeContent::Overlay {
                bytes: 16 << 30,
                base: &base,
            },
        );
        insta::assert_snapshot!(xml.to_string());
        insta::assert_snapshot!(volume_xml("x.ign", &VolumeContent::Raw(1234)).to_string());
    }

    #[test]
    fn the_virtual_size_is_read_from_the_header() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let made = std::process::Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .args([file.path().as_os_str(), "5368709120".as_ref()])
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("skipped: qemu-img is missing");
            return;
        }
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(
            Qcow2::read(&bytes[..Qcow2::BYTES]),
            Some(Qcow2 { virtual_size: 5 << 30 })
        );
        assert_eq!(Qcow2::read(&bytes[..Qcow2::BYTES - 1]), None);
        assert_eq!(Qcow2::read(&[0; Qcow2::BYTES]), None);
        assert_eq!(Qcow2::read(b""), None);
    }
}
