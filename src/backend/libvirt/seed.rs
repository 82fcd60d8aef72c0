//! cloud-init's NoCloud seed: a small file system with three documents.
//!
//! cloud-init accepts ISO 9660 or FAT with the label `cidata`. FAT can be written by a maintained crate.

use std::io::{self, Cursor, Write};

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions, format_volume};

const SECTOR: usize = 512;
/// The space for FAT's tables, and for rounding each file up to a cluster.
const OVERHEAD: usize = 128 * 1024;

/// The bytes of a seed disk.
pub(super) fn image(user_data: &str, meta_data: &str, network_config: &str) -> io::Result<Vec<u8>> {
    let files = [
        ("user-data", user_data),
        ("meta-data", meta_data),
        ("network-config", network_config),
    ];
    let content: usize = files.iter().map(|(_, text)| text.len()).sum();
    // The file allocation table has 2 bytes for each cluster of at least 512 bytes.
    let length = (content + content / 64 + OVERHEAD).next_multiple_of(SECTOR);
    let mut disk = Cursor::new(vec![0; length]);
    // Lower case, because old versions of cloud-init accept no other label.
    format_volume(&mut disk, FormatVolumeOptions::new().volume_label(*b"cidata     "))?;
    {
        let system = FileSystem::new(&mut disk, FsOptions::new())?;
        for (name, text) in files {
            system.root_dir().create_file(name)?.write_all(text.as_bytes())?;
        }
        system.unmount()?;
    }
    Ok(disk.into_inner())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The output of a program for a seed; `None` if it is not installed.
    fn output_of(program: &str, arguments: &[&str], seed: &std::path::Path) -> Option<String> {
        let output = Command::new(program).args(arguments).arg("-i").arg(seed).output();
        match output {
            Ok(output) => {
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{program} {arguments:?}: {errors}");
                Some(String::from_utf8(output.stdout).unwrap())
            }
            Err(_) => {
                eprintln!("skipped: {program} is missing");
                None
            }
        }
    }

    #[test]
    fn mtools_reads_the_seed_as_it_was_written() {
        let user_data = format!("#cloud-config\n# {}\nssh_authorized_keys: [äöü]\n", "x".repeat(300_000));
        let seed = image(&user_data, "instance-id: a\n", "version: 2\n").unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), seed).unwrap();
        for (name, content) in [
            ("::user-data", user_data.as_str()),
            ("::meta-data", "instance-id: a\n"),
            ("::network-config", "version: 2\n"),
        ] {
            let output = Command::new("mtype").arg("-i").arg(file.path()).arg(name).output();
            let Ok(output) = output else {
                eprintln!("skipped: mtype is missing");
                return;
            };
            assert_eq!(String::from_utf8(output.stdout).unwrap(), content, "{name}");
        }
        let listing = output_of("mdir", &["-b"], file.path()).unwrap();
        assert_eq!(listing.lines().count(), 3, "{listing}");
        if let Ok(output) = Command::new("blkid")
            .args(["-p", "-o", "export"])
            .arg(file.path())
            .output()
        {
            let export = String::from_utf8(output.stdout).unwrap();
            assert!(export.contains("LABEL=cidata\n"), "{export}");
            assert!(export.contains("TYPE=vfat\n"), "{export}");
        }
    }

    #[test]
    fn a_seed_of_any_size_fits() {
        for length in [0, 1, 511, 512, 70_000, 1 << 20, 5 << 20] {
            let text = "y".repeat(length);
            let seed = image(&text, &text, &text).unwrap();
            let system = FileSystem::new(Cursor::new(seed), FsOptions::new()).unwrap();
            let mut read = String::new();
            io::Read::read_to_string(&mut system.root_dir().open_file("meta-data").unwrap(), &mut read).unwrap();
            assert!(read == text, "{length}");
        }
    }
}
