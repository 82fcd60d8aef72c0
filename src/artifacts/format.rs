//! What a file is, by its first bytes.

use std::io;
use std::path::Path;

use super::download;

/// Enough bytes for each signature; the last one is that of an ISO image.
const BYTES: u64 = 0x8006;

/// The format of an image file, or of what the file often contains instead of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Qcow2,
    /// A disk with a partition table.
    Disk,
    Iso,
    /// A disk format of another hypervisor.
    Foreign(&'static str),
    Compressed(&'static str),
    /// HTML, XML, or JSON: usually the message of a web server.
    Page,
    Empty,
    Unknown,
}

impl Format {
    /// The format of a file; `is_packed` if it is decompressed before it is used.
    pub fn of_file(path: &Path, is_packed: bool) -> io::Result<Self> {
        Ok(Self::of_bytes(&download::beginning(path, is_packed, BYTES)?))
    }

    /// Sources of the signatures: qemu/qemu, `docs/interop/qcow2.rst` and `block`; the UEFI specification, section 5;
    /// ECMA-119; RFC 1952; tukaani.org/xz, `xz-file-format`; RFC 8878.
    fn of_bytes(bytes: &[u8]) -> Self {
        let is_at = |at: usize, signature: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(signature));
        let signatures: [(usize, &[u8], Self); 13] = [
            (0, b"QFI\xfb", Self::Qcow2),
            (0, b"\x1f\x8b", Self::Compressed("gzip")),
            (0, b"\xfd7zXZ\0", Self::Compressed("xz")),
            (0, b"\x28\xb5\x2f\xfd", Self::Compressed("zstd")),
            (0, b"BZh", Self::Compressed("bzip2")),
            (0, b"PK\x03\x04", Self::Compressed("zip")),
            (257, b"ustar", Self::Compressed("tar")),
            (0, b"KDMV", Self::Foreign("VMDK")),
            (0, b"# Disk DescriptorFile", Self::Foreign("VMDK")),
            (0, b"vhdxfile", Self::Foreign("VHDX")),
            (0x8001, b"CD001", Self::Iso),
            (512, b"EFI PART", Self::Disk),
            (510, b"\x55\xaa", Self::Disk),
        ];
        let known = signatures.iter().find(|(at, signature, _)| is_at(*at, signature));
        match (known, bytes.trim_ascii_start()) {
            (Some((.., format)), _) => *format,
            (None, []) => Self::Empty,
            (None, [b'<' | b'{', ..]) => Self::Page,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_recognized_by_its_signature() {
        let at = |offset: usize, signature: &[u8]| [&vec![0; offset], signature].concat();
        let hybrid = {
            let mut bytes = at(0x8001, b"CD001");
            bytes[510..512].copy_from_slice(b"\x55\xaa");
            bytes
        };
        for (bytes, expected) in [
            (b"QFI\xfb\0\0\0\x03".to_vec(), Format::Qcow2),
            ("QFI\u{fb}".into(), Format::Unknown),
            (at(510, b"\x55\xaaEFI PART"), Format::Disk),
            (hybrid, Format::Iso),
            (b"KDMV".to_vec(), Format::Foreign("VMDK")),
            (b"\n <!DOCTYPE html>".to_vec(), Format::Page),
            (b"{\"error\": 404}".to_vec(), Format::Page),
            (Vec::new(), Format::Empty),
            (b" \n".to_vec(), Format::Empty),
            (b"hello".to_vec(), Format::Unknown),
        ] {
            assert_eq!(Format::of_bytes(&bytes), expected, "{:?}", bytes.get(..8));
        }
    }

    #[test]
    fn a_compressed_file_is_judged_by_its_content_only_if_it_will_be_decompressed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.gz");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, b"QFI\xfb a disk").unwrap();
        std::fs::write(&path, packed.finish().unwrap()).unwrap();
        assert_eq!(Format::of_file(&path, true).unwrap(), Format::Qcow2);
        assert_eq!(Format::of_file(&path, false).unwrap(), Format::Compressed("gzip"));
    }
}
