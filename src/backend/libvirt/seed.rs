//! cloud-init's NoCloud seed: a small file system with three documents.
//!
//! cloud-init takes it as ISO 9660 or as FAT, by the label `cidata`; FAT can be made in-process with a kept crate.

use std::io::{self, Cursor, Write};

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions, format_volume};

const SECTOR: usize = 512;
/// FAT's own tables, and room for rounding each file up to a cluster.
const OVERHEAD: usize = 128 * 1024;

/// The bytes of a seed disk.
pub(super) fn image(user_data: &str, meta_data: &str, network_config: &str) -> io::Result<Vec<u8>> {
    let files = [
        ("user-data", user_data),
        ("meta-data", meta_data),
        ("network-config", network_config),
    ];
    let content: usize = files.iter().map(|(_, text)| text.len()).sum();
    // The file allocation table takes 2 bytes a cluster of at least 512.
    let length = (content + content / 64 + OVERHEAD).next_multiple_of(SECTOR);
    let mut disk = Cursor::new(vec![0; length]);
    // In lower case as cloud-init's first versions want it; they look for nothing else.
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

    /// What a program outside says about a seed, or nothing where it is not installed.
    fn ask(program: &str, arguments: &[&str], seed: &std::path::Path) -> Option<String> {
        let output = Command::new(program).args(arguments).arg("-i").arg(seed).output();
        match output {
            Ok(output) => {
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{program} {arguments:?}: {errors}");
                Some(String::from_utf8(output.stdout).unwrap())
            }
            Err(_) => {
                eprintln!("skipped: no {program} here");
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
                eprintln!("skipped: no mtype here");
                return;
            };
            assert_eq!(String::from_utf8(output.stdout).unwrap(), content, "{name}");
        }
        let listing = ask("mdir", &["-b"], file.path()).unwrap();
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
