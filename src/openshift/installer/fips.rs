//! Whether openshift-install would reject a cluster in FIPS mode, before anything is created.
//!
//! Source: openshift/installer `pkg/hostcrypt` and `pkg/types/validation/installconfig.go`.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use fs_err as fs;

use super::Installer;
use super::fetch::Choice;
use crate::cluster::{Architecture, ClusterConfig, major_minor};
use crate::error::{ErrorKind, OperationError};

/// First release whose ordinary openshift-install is statically linked, and so without validated cryptography.
const STATIC: (u32, u32) = (4, 16);
/// Set to any value, it makes the installer skip its check.
const SKIP: &str = "OPENSHIFT_INSTALL_SKIP_HOSTCRYPT_VALIDATION";
/// `1` if this computer is in FIPS mode.
const HOST: &str = "/proc/sys/crypto/fips_enabled";

/// Rejects `fips` with an installer or on a computer that the installer would reject.
pub fn check_fips(config: &ClusterConfig, choice: &Choice) -> Result<(), OperationError> {
    let skipped = std::env::var_os(SKIP).is_some_and(|value| !value.is_empty());
    let is_new = major_minor(choice.version()).is_none_or(|release| release >= STATIC);
    let path = match choice {
        _ if !config.fips || skipped || !is_new => return Ok(()),
        Choice::Here {
            installer: Installer::OpenshiftInstall(found),
            ..
        } => Some(found.path()),
        Choice::Here { .. } => return Ok(()),
        // On mirrors, the FIPS-capable one has another name.
        Choice::Published(_) => None,
    };
    let problems = problems(
        choice.version(),
        // A program that cannot be read cannot be run either, which is reported elsewhere.
        path.is_none_or(|path| is_static(path).unwrap_or(false)),
        fs::read_to_string(HOST).is_ok_and(|mode| mode.trim() == "1"),
    );
    match problems.is_empty() {
        true => Ok(()),
        false => Err(OperationError::new(ErrorKind::Tool, problems.join("; ")).hint(format!(
            "on RHEL 9 in FIPS mode, download openshift-install-rhel9-{}.tar.gz from the mirror and set installer to the \
             openshift-install-fips in it; OPENSHIFT_INSTALL_SKIP_HOSTCRYPT_VALIDATION=1 skips this check",
            Architecture::THIS_COMPUTER.go()
        ))),
    }
}

fn problems(version: &str, is_static: bool, host: bool) -> Vec<String> {
    let program =
        format!("fips=true requires openshift-install-fips; this openshift-install {version} is not FIPS-capable");
    let mode = "fips=true requires FIPS mode on this computer, which runs openshift-install".to_owned();
    [(is_static, program), (!host, mode)]
        .into_iter()
        .filter_map(|(is_problem, text)| is_problem.then_some(text))
        .collect()
}

/// Whether a program is an ELF file that requires no dynamic linker. Fields: elf(5), in 64 bits, little-endian.
fn is_static(path: &Path) -> io::Result<bool> {
    const INTERPRETER: u32 = 3;
    let mut file = fs::File::open(path)?;
    let mut header = [0; 64];
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(false);
    }
    let number = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let mut first = [0; 8];
    first.copy_from_slice(&header[32..40]);
    let (first, size, count) = (u64::from_le_bytes(first), number(54), number(56));
    for index in 0..count {
        file.seek(SeekFrom::Start(first.saturating_add(index * size)))?;
        let mut kind = [0; 4];
        file.read_exact(&mut kind)?;
        if u32::from_le_bytes(kind) == INTERPRETER {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installer_and_the_computer_must_both_be_capable() {
        assert_eq!(problems("4.19.0", false, true), Vec::<String>::new());
        let text = problems("4.19.0", true, false).join("; ");
        insta::assert_snapshot!(text, @"fips=true requires openshift-install-fips; this openshift-install 4.19.0 is not FIPS-capable; fips=true requires FIPS mode on this computer, which runs openshift-install");
    }

    #[test]
    fn a_program_with_an_interpreter_is_dynamic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        // One header of a segment to load, then perhaps one of the dynamic linker.
        for (kinds, expected) in [(&[1u32][..], true), (&[1, 3], false)] {
            let mut elf = vec![0; 64 + 56 * kinds.len()];
            elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
            (elf[32], elf[54], elf[56]) = (64, 56, u8::try_from(kinds.len()).unwrap());
            for (index, kind) in kinds.iter().enumerate() {
                elf[64 + 56 * index..][..4].copy_from_slice(&kind.to_le_bytes());
            }
            fs::write(&path, elf).unwrap();
            assert_eq!(is_static(&path).unwrap(), expected, "{kinds:?}");
        }
        fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(!is_static(&path).unwrap());
        assert!(!is_static(&std::env::current_exe().unwrap()).unwrap());
    }
}
