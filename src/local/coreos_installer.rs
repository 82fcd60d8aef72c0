//! coreos-installer, which adds a node's config to CoreOS's live image.
//!
//! Options: coreos/coreos-installer: `docs/cmd/iso.md`, `iso customize`.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::subprocess;
use crate::state::home::{create_private_dir, remove_folder};

/// The program's name.
pub const PROGRAM: &str = "coreos-installer";

/// The files of one machine, and the disk that CoreOS is installed on.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    pub ignition: &'a Path,
    /// NetworkManager's files, for the live system and the first boot.
    pub keyfiles: &'a [PathBuf],
    pub device: &'a str,
}

/// Why no image was created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create {} from {}: {why}", output.display(), base.display())]
pub struct CoreosInstallerError {
    base: PathBuf,
    output: PathBuf,
    why: String,
}

impl CoreosInstallerError {
    pub fn hint(&self) -> &'static str {
        "use the live ISO of the cluster's release as it was downloaded; `openshift-install coreos print-stream-json` has its URL"
    }
}

impl Installation<'_> {
    /// The arguments that create `output` from `base`. The image installs CoreOS without a prompt.
    pub fn arguments(&self, base: &Path, output: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = ["iso", "customize", "--dest-device", self.device]
            .map(Into::into)
            .into();
        arguments.extend(["--dest-ignition".into(), self.ignition.into()]);
        for keyfile in self.keyfiles {
            arguments.extend(["--network-keyfile".into(), keyfile.into()]);
        }
        arguments.extend(["-o".into(), output.into(), base.into()]);
        arguments
    }

    /// Creates `output` from CoreOS's live image, readable by its owner only. `false` if the program is not installed.
    pub fn customize(&self, base: &Path, output: &Path) -> Result<bool, CoreosInstallerError> {
        let failed = |why: String| CoreosInstallerError {
            base: base.to_owned(),
            output: output.to_owned(),
            why,
        };
        // The program creates a file that others can read: therefore in a directory that they cannot enter.
        let mut folder = output.as_os_str().to_owned();
        folder.push(format!(".{:016x}", getrandom::u64().unwrap_or_default()));
        let folder = PathBuf::from(folder);
        let made = create_private_dir(&folder)
            .map_err(|error| error.to_string())
            .and_then(|()| self.make(base, &folder.join("image.iso"), output));
        let removed = remove_folder(&folder).map_err(|error: io::Error| error.to_string());
        made.and_then(|made| removed.map(|()| made)).map_err(failed)
    }

    fn make(&self, base: &Path, new: &Path, output: &Path) -> Result<bool, String> {
        let run = match subprocess::command(PROGRAM, &[])
            .args(self.arguments(base, new))
            .output()
        {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            run => run.map_err(|error| format!("{PROGRAM}: {error}"))?,
        };
        if !run.status.success() {
            let said = String::from_utf8_lossy(&run.stderr);
            let last = said.trim().lines().last().unwrap_or("it gave no reason");
            return Err(format!("{PROGRAM}: {last}"));
        }
        let private = fs_err::set_permissions(new, PermissionsExt::from_mode(0o600));
        private
            .and_then(|()| fs_err::rename(new, output))
            .map_err(|error| error.to_string())
            .map(|()| true)
    }
}
