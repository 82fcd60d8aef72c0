//! Volumes of one pool: made, filled, read and deleted through libvirt, so that remote hosts need no file access.

use std::io::Read;
use std::thread::sleep;
use std::time::{Duration, Instant};

use virt::connect::Connect;
use virt::error::{Error, ErrorNumber};
use virt::storage_pool::StoragePool;
use virt::storage_vol::StorageVol;
use virt::stream::Stream;

use super::session::{Pulse, document, if_supported, if_there, plain};
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::xml::Element;

/// Bytes handed to a stream at once; more gains nothing.
const CHUNK: usize = 1 << 20;
/// Longest time that a volume may be busy, and how often it is asked for.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Storage<'a> {
    connect: &'a Connect,
    pool: StoragePool,
}

/// The formats in which we make volumes.
pub(super) enum Content<'a> {
    /// Exactly this many bytes, all zero until written; only QEMU's user and root may read it.
    Raw(u64),
    /// An empty disk of this size.
    Disk(u64),
    /// A disk of this size that holds only what differs from another volume.
    Overlay { bytes: u64, base: &'a Base },
}

/// A volume on which overlays are made.
pub(super) struct Base {
    pub path: String,
    pub format: String,
    /// Bytes that a machine sees.
    pub virtual_size: u64,
}

impl<'a> Storage<'a> {
    pub fn open(connect: &'a Connect, pool: &str) -> Result<Self, Failure> {
        let Some(found) = if_there(connect.lookup_storage_pool_by_name(plain("the pool's name", pool)?))? else {
            let failure = Failure::new(BackendErrorKind::NotFound, format!("there is no storage pool `{pool}`"));
            return Err(failure.hint(format!(
                "`virsh pool-list --all` shows the pools; set `pool`, or make one: `virsh pool-define-as {pool} dir --target \
                 /var/lib/libvirt/images`, `virsh pool-autostart {pool}`, `virsh pool-start {pool}`"
            )));
        };
        if !found.is_active()? {
            let failure = Failure::new(
                BackendErrorKind::Rejected,
                format!("storage pool `{pool}` is not active"),
            );
            return Err(failure.hint(format!("virsh pool-start {pool}")));
        }
        Ok(Self { connect, pool: found })
    }

    pub fn describe(&self) -> Result<Element, Failure> {
        document(self.pool.xml_desc(0))
    }

    pub fn find(&self, name: &str) -> Result<Option<StorageVol>, Failure> {
        if_there(self.pool.lookup_storage_vol_by_name(plain("the volume's name", name)?))
    }

    /// All volumes with their names.
    pub fn list(&self) -> Result<Vec<(String, StorageVol)>, Failure> {
        let volumes = self.pool.list_all_volumes(0)?;
        volumes.into_iter().map(|volume| Ok((volume.name()?, volume))).collect()
    }

    /// Makes libvirt see files that others made in the pool's folder.
    pub fn refresh(&self) -> Result<(), Failure> {
        patiently(|| self.pool.refresh(0))
    }

    pub fn create(&self, name: &str, content: &Content) -> Result<StorageVol, Failure> {
        let volume = volume_xml(plain("the volume's name", name)?, content);
        Ok(StorageVol::create_xml(&self.pool, &volume.to_string(), 0)?)
    }

    /// As `create`, in place of what a crash may have left under this name; no machine may use that.
    pub fn create_anew(&self, name: &str, content: &Content) -> Result<StorageVol, Failure> {
        match self.create(name, content) {
            Err(failure) if failure.is(ErrorNumber::StorageVolExist) => {
                self.delete(name)?;
                self.create(name, content)
            }
            other => other,
        }
    }

    /// As `create`; one that is there already is as good.
    pub fn create_mark(&self, name: &str) -> Result<(), Failure> {
        match self.create(name, &Content::Raw(0)) {
            Err(failure) if failure.is(ErrorNumber::StorageVolExist) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether there was such a volume.
    pub fn delete(&self, name: &str) -> Result<bool, Failure> {
        match self.find(name)? {
            Some(volume) => delete(&volume),
            None => Ok(false),
        }
    }

    pub fn upload(&self, volume: &StorageVol, bytes: &[u8], pulse: &Pulse) -> Result<(), Failure> {
        let mut upload = self.begin_upload(volume, 0, bytes.len() as u64)?;
        match upload.send(bytes, pulse) {
            Ok(()) => upload.finish(),
            Err(failure) => {
                upload.abort();
                Err(failure)
            }
        }
    }

    /// Opens the volume for writing now; what becomes of its name later does not change where the bytes go.
    pub fn begin_upload(&self, volume: &StorageVol, offset: u64, length: u64) -> Result<Upload, Failure> {
        let stream = Stream::new(self.connect, 0)?;
        patiently(|| volume.upload(&stream, offset, length, 0))?;
        Ok(Upload { stream })
    }

    /// At most `length` bytes from `offset`; fewer at the end of the volume.
    pub fn read(&self, volume: &StorageVol, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
        let stream = Stream::new(self.connect, 0)?;
        patiently(|| volume.download(&stream, offset, length, 0))?;
        let mut bytes = Vec::new();
        let mut buffer = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK))];
        loop {
            match stream.recv(&mut buffer).map(usize::try_from) {
                Ok(Ok(0)) => break,
                Ok(Ok(count)) => bytes.extend_from_slice(&buffer[..count]),
                Ok(Err(_)) => return Err(Failure::new(BackendErrorKind::Rejected, "the stream would block")),
                Err(error) => {
                    // The first error is the one to tell.
                    let _ = stream.abort();
                    return Err(error.into());
                }
            }
        }
        stream.finish()?;
        Ok(bytes)
    }

    /// What an overlay needs to know of the volume under it.
    pub fn base(&self, name: &str) -> Result<Base, Failure> {
        let Some(volume) = self.find(name)? else {
            let failure = Failure::new(BackendErrorKind::NotFound, format!("there is no volume `{name}`"));
            return Err(failure.hint("`virsh vol-list POOL` shows the volumes"));
        };
        let described = document(volume.xml_desc(0))?;
        let capacity = described.find("capacity").and_then(|element| element.text.parse().ok());
        let told = described.value("target/format", "type").unwrap_or("raw").to_owned();
        // libvirt looks into a volume only when it refreshes the pool, so an upload may still count as raw.
        let header = if_supported(self.header(&volume))?.flatten();
        let (format, virtual_size) = match header {
            Some(header) => ("qcow2".to_owned(), Some(header.virtual_size)),
            None => (told, capacity),
        };
        Ok(Base {
            path: volume.path()?,
            format,
            virtual_size: virtual_size.unwrap_or(0),
        })
    }

    /// None for what is not qcow2, such as an image whose upload is not complete.
    pub fn header(&self, volume: &StorageVol) -> Result<Option<Qcow2>, Failure> {
        Ok(Qcow2::read(&self.read(volume, 0, Qcow2::BYTES as u64)?))
    }
}

/// Whether it was still there.
pub(super) fn delete(volume: &StorageVol) -> Result<bool, Failure> {
    match patiently(|| volume.delete(0)) {
        Err(failure) if failure.kind == BackendErrorKind::NotFound => Ok(false),
        other => other.map(|()| true),
    }
}

/// Asks again while libvirt is busy with the volume, which takes it milliseconds.
fn patiently<T>(ask: impl Fn() -> Result<T, Error>) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        match ask().map_err(Failure::from) {
            Err(failure) if failure.is_passing() && begun.elapsed() < PATIENCE => sleep(PAUSE),
            other => return other,
        }
    }
}

/// A volume that is being written.
pub(super) struct Upload {
    stream: Stream,
}

impl Upload {
    pub fn send(&mut self, mut bytes: &[u8], pulse: &Pulse) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let sent = self.stream.send(&bytes[..bytes.len().min(CHUNK)])?;
            pulse.beat();
            bytes = &bytes[usize::try_from(sent).unwrap_or(0)..];
        }
        Ok(())
    }

    pub fn send_all(
        &mut self,
        mut source: impl Read,
        pulse: &Pulse,
        mut see: impl FnMut(&[u8]),
    ) -> Result<u64, Failure> {
        let mut buffer = vec![0; CHUNK];
        let mut total = 0;
        loop {
            let count = source
                .read(&mut buffer)
                .map_err(|error| Failure::new(BackendErrorKind::Rejected, error.to_string()))?;
            if count == 0 {
                return Ok(total);
            }
            see(&buffer[..count]);
            self.send(&buffer[..count], pulse)?;
            total += count as u64;
        }
    }

    /// Waits until libvirt has written everything.
    pub fn finish(self) -> Result<(), Failure> {
        Ok(self.stream.finish()?)
    }

    pub fn abort(self) {
        // Only the reason for aborting is of interest.
        let _ = self.stream.abort();
    }
}

/// What the header of a qcow2 file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Qcow2 {
    /// Bytes that a machine sees.
    pub virtual_size: u64,
}

impl Qcow2 {
    /// Of the header, as much as is read here: magic, version, backing file (8 + 4 + 4), size.
    pub const BYTES: usize = 32;

    pub fn read(bytes: &[u8]) -> Option<Self> {
        let size = bytes.strip_prefix(b"QFI\xfb")?.get(20..28)?;
        Some(Self {
            virtual_size: u64::from_be_bytes(size.try_into().ok()?),
        })
    }
}

fn volume_xml(name: &str, content: &Content) -> Element {
    let (format, bytes) = match content {
        Content::Raw(bytes) => ("raw", bytes),
        Content::Disk(bytes) | Content::Overlay { bytes, .. } => ("qcow2", bytes),
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
        Content::Overlay { base, .. } => volume.child(
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
    fn an_overlay_names_its_base_and_the_bases_format() {
        let base = Base {
            path: "/pool/R&D.qcow2".to_owned(),
            format: "qcow2".to_owned(),
            virtual_size: 1,
        };
        let xml = volume_xml(
            "ocpdeploy_lab.example.com_lab-master-0_disk.qcow2",
            &Content::Overlay {
                bytes: 16 << 30,
                base: &base,
            },
        );
        insta::assert_snapshot!(xml.to_string());
        insta::assert_snapshot!(volume_xml("x.ign", &Content::Raw(1234)).to_string());
    }

    #[test]
    fn the_virtual_size_is_read_from_the_header() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let made = std::process::Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .args([file.path().as_os_str(), "5368709120".as_ref()])
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no qemu-img here");
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
