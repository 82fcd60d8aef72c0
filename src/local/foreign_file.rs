//! Files that other programs own, such as the hosts file and the user's kubeconfig.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use tempfile::NamedTempFile;

/// Replaces a file, atomically if possible, with its mode, owner and SELinux label; a new file has this mode.
pub fn replace(path: &Path, text: &str, new_mode: u32) -> io::Result<()> {
    // A link's target is replaced.
    let path = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    let mut new = NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    match std::fs::metadata(&path) {
        Ok(old) => {
            new.as_file().set_permissions(old.permissions())?;
            fchown(new.as_file(), Some(old.uid()), Some(old.gid()))?;
            copy_label(&path, new.as_file())?;
        }
        Err(_) => new.as_file().set_permissions(PermissionsExt::from_mode(new_mode))?,
    }
    new.as_file().sync_all()?;
    match new.persist(&path) {
        Ok(_) => File::open(folder)?.sync_all(),
        // In a container the file is a mount point, which can be written, but not replaced.
        Err(error) if matches!(error.error.kind(), ErrorKind::ResourceBusy | ErrorKind::CrossesDevices) => {
            tracing::warn!("{} is a mount point; writing it in place", path.display());
            let mut file = File::options().write(true).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.set_len(text.len() as u64)?;
            file.sync_all()
        }
        Err(error) => Err(error.error),
    }
}

/// With its directory's label a hosts file would be unreadable for confined services.
fn copy_label(from: &Path, to: &File) -> io::Result<()> {
    const LABEL: &str = "security.selinux";
    let mut label = [0; 256];
    match rustix::fs::getxattr(from, LABEL, &mut label) {
        Ok(length) => {
            rustix::fs::fsetxattr(to, LABEL, &label[..length], rustix::fs::XattrFlags::empty()).map_err(Into::into)
        }
        // Without SELinux there is no label.
        Err(_) => Ok(()),
    }
}
