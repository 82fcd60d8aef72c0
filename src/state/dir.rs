//! A directory accessed through a descriptor: renamed directories or added links cannot redirect operations in it.
//!
//! Every name is a single component and is opened without following a link. A directory is trusted if it belongs to
//! this user or to root and no other user can write to it: then no other user can replace its entries.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::found_file::Access;

/// For opening a file by its path: rejects a link as the last component.
pub const NO_LINK: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// The path at the time of opening; for messages and for programs that require paths.
    path: PathBuf,
}

impl Dir {
    /// Opens the directory at a path that the user chose: links are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path.as_os_str(), path.to_owned(), OFlags::empty())
    }

    /// Opens the directory at a path whose last component is not a link.
    pub fn open_no_link(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path.as_os_str(), path.to_owned(), OFlags::NOFOLLOW)
    }

    fn at(parent: impl AsFd, name: &OsStr, path: PathBuf, flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        match fs::openat(parent, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path }),
            // Linux returns ENOTDIR for a link here.
            Err(Errno::NOTDIR | Errno::LOOP) => Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                format!("{} is a link or not a directory", path.display()),
            )),
            Err(error) => Err(error.into()),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of an entry, for messages and for programs that require paths.
    pub fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Whether only users whose id `is_trusted` accepts own this directory and can write to it.
    ///
    /// # Errors
    /// Who else owns it or can write to it. The sticky bit makes no difference.
    pub fn judge(&self, is_trusted: impl Fn(u32) -> bool) -> Result<(), String> {
        let stat = fs::fstat(&self.fd).map_err(|error| format!("{}: {error}", self.path.display()))?;
        access(&stat).judge(self.path.display(), is_trusted, || false)
    }

    /// The existing directory of this name, which must not be a link; any owner.
    pub fn look(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        Self::at(&self.fd, name, self.join(name), OFlags::NOFOLLOW)
    }

    /// As `look`, but the directory must be trusted.
    pub fn look_ours(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let folder = self.look(name)?;
        let judged = folder.judge(me_or_root);
        judged.map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why))?;
        Ok(folder)
    }

    /// The trusted directory of this name; created with mode 0755 if missing.
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        match fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let folder = self.look_ours(name)?;
                // The umask removed permissions.
                folder.set_mode(0o755)?;
                Ok(folder)
            }
            Err(Errno::EXIST) => self.look_ours(name),
            Err(error) => Err(error.into()),
        }
    }

    /// An empty, trusted directory of this name; an existing entry is removed.
    pub fn fresh(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        self.remove(&name)?;
        self.folder(name)
    }

    /// Opens a regular file; does not follow a link or block on a FIFO.
    pub fn file(&self, name: impl AsRef<OsStr>, flags: OFlags) -> io::Result<File> {
        let name = single(name.as_ref())?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600)).map_err(|error| match error {
            Errno::LOOP => io::Error::other(format!("{} is a link", self.join(name).display())),
            other => other.into(),
        })?;
        match FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) {
            FileType::RegularFile => Ok(fd.into()),
            _ => Err(io::Error::other(format!("{} is not a file", self.join(name).display()))),
        }
    }

    /// Creates a file with mode 0600; an existing entry is removed.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.remove(&name)?;
        self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Reads a regular file, if it is not longer than `limit` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = self.file(&name, OFlags::RDONLY)?;
        file.take(limit + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > limit {
            true => Err(io::Error::other(format!("{} is too long", self.join(name).display()))),
            false => Ok(bytes),
        }
    }

    /// Whether this entry is a link.
    pub fn is_link(&self, name: impl AsRef<OsStr>) -> bool {
        let stat = single(name.as_ref()).and_then(|name| Ok(fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?));
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }

    /// Whether an entry of this name exists, including a broken link.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        single(name.as_ref()).is_ok_and(|name| fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// The inode of an entry.
    pub fn inode(&self, name: impl AsRef<OsStr>) -> io::Result<u64> {
        Ok(fs::statat(&self.fd, single(name.as_ref())?, AtFlags::SYMLINK_NOFOLLOW)?.st_ino)
    }

    /// Moves an entry, replacing an existing one of the same kind (a directory: if empty).
    pub fn rename(&self, name: impl AsRef<OsStr>, to: &Self, new: impl AsRef<OsStr>) -> io::Result<()> {
        fs::renameat(&self.fd, single(name.as_ref())?, &to.fd, single(new.as_ref())?).map_err(io::Error::from)
    }

    /// Creates a hard link to a file.
    pub fn link(&self, name: impl AsRef<OsStr>, new: impl AsRef<OsStr>) -> io::Result<()> {
        let (name, new) = (single(name.as_ref())?, single(new.as_ref())?);
        fs::linkat(&self.fd, name, &self.fd, new, AtFlags::empty()).map_err(io::Error::from)
    }

    /// Removes an entry with its contents; a link is removed, not followed. A missing entry is success.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = single(name.as_ref())?;
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = self.look(name)?;
        for entry in folder.names()? {
            folder.remove(entry)?;
        }
        match fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The names of all entries, sorted.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::fchmod(&self.fd, Mode::from_raw_mode(mode)).map_err(io::Error::from)
    }

    /// Makes renames in this directory durable.
    pub fn sync(&self) -> io::Result<()> {
        fs::fsync(&self.fd).map_err(io::Error::from)
    }
}

/// Sets the mode of an open file.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    fs::fchmod(file, Mode::from_raw_mode(mode)).map_err(io::Error::from)
}

/// Whether only this user or root can have written a file and can change it.
pub fn is_ours(file: &File) -> io::Result<bool> {
    Ok(access(&fs::fstat(file)?).judge("", me_or_root, || false).is_ok())
}

/// This user's id.
pub fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this is the id of this user or of root.
pub fn me_or_root(user: u32) -> bool {
    user == me() || user == 0
}

/// Whether only users whose id `is_trusted` accepts can replace what is at this path, or a directory or link that leads
/// to it. As long as this holds, using the path is as safe as using a descriptor.
///
/// A directory with the sticky bit, such as `/tmp`, may be writable for others, who cannot replace its entries. Any
/// directory may be writable for a user's private group. What is missing or cannot be read is accepted.
///
/// # Errors
/// Who else can replace it.
pub fn judge_path(path: &Path, is_trusted: impl Fn(u32) -> bool) -> Result<(), String> {
    judge_entries(path, &is_trusted, MOST_LINKS)
}

/// Largest number of links that lead to each other (path_resolution(7)).
const MOST_LINKS: u32 = 40;

fn judge_entries(path: &Path, is_trusted: &dyn Fn(u32) -> bool, links: u32) -> Result<(), String> {
    let mut entry = PathBuf::new();
    for component in path.components() {
        let folder = entry.clone();
        entry.push(component);
        let Ok(stat) = fs::lstat(entry.as_path()) else {
            return Ok(());
        };
        let mode = Mode::from_raw_mode(stat.st_mode);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            if !is_trusted(stat.st_uid) {
                return Err(format!("{} is a link of user {}", entry.display(), stat.st_uid));
            }
            match (links, std::fs::read_link(&entry)) {
                (0, _) | (_, Err(_)) => return Ok(()),
                (_, Ok(target)) => judge_entries(&folder.join(target), is_trusted, links - 1)?,
            }
            continue;
        }
        let mut access = access(&stat);
        if mode.contains(Mode::SVTX) {
            access.mode &= !(Mode::WGRP | Mode::WOTH).bits();
        }
        access.judge(entry.display(), is_trusted, || access.has_private_group(&entry))?;
    }
    Ok(())
}

fn access(stat: &Stat) -> Access {
    Access {
        owner: stat.st_uid,
        group: stat.st_gid,
        mode: stat.st_mode,
    }
}

/// A name without path components.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(io::Error::other("not a file name")),
        bytes if bytes.contains(&b'/') => Err(io::Error::other("a path instead of a file name")),
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_link_is_neither_entered_nor_opened_nor_written_through() {
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("inside"), place.path().join("outside"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("key"), "secret").unwrap();
        symlink(&outside, inside.join("folder")).unwrap();
        symlink(outside.join("key"), inside.join("file")).unwrap();
        let dir = Dir::open(&inside).unwrap();
        assert!(dir.look("folder").is_err() && dir.folder("folder").is_err());
        assert!(dir.file("file", OFlags::RDWR).is_err() && dir.read("file", 100).is_err());
        assert!(Dir::open_no_link(&inside.join("folder")).is_err());
        // A new file replaces the link.
        dir.create("file").unwrap();
        dir.fresh("folder").unwrap();
        assert_eq!(std::fs::read(outside.join("key")).unwrap(), b"secret");
        assert!(std::fs::symlink_metadata(inside.join("folder")).unwrap().is_dir());
    }

    #[test]
    fn a_fifo_is_rejected_without_blocking() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("fifo");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let error = Dir::open(place.path()).unwrap().read("fifo", 10).unwrap_err();
        assert!(error.to_string().ends_with("fifo is not a file"), "{error}");
    }

    #[test]
    fn names_with_path_components_are_rejected() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        for name in ["", ".", "..", "../x", "a/b", "/etc/passwd"] {
            assert!(dir.create(name).is_err() && dir.remove(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_folder_is_judged_by_its_owner_and_by_who_can_write_to_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().display().to_string();
        let judged = |bits, owner| {
            mode(place.path(), bits);
            Dir::open(place.path()).unwrap().judge(|user| user == owner)
        };
        assert_eq!(judged(0o700, me()), Ok(()));
        assert_eq!(judged(0o755, me()), Ok(()));
        let group = std::fs::metadata(place.path()).unwrap().gid();
        let by_group = format!("members of group {group} can write to {path}");
        assert_eq!(judged(0o775, me()), Err(by_group));
        for bits in [0o777, 0o1777] {
            assert_eq!(judged(bits, me()), Err(format!("everyone can write to {path}")));
        }
        let other = me() + 1;
        assert_eq!(judged(0o700, other), Err(format!("{path} belongs to user {}", me())));
    }

    #[test]
    fn a_path_is_judged_by_who_can_replace_what_leads_to_it() {
        let place = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(place.path()).unwrap();
        let parent = root.join("parent");
        std::fs::create_dir_all(parent.join("state")).unwrap();
        symlink(&parent, root.join("link")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let group = std::fs::metadata(&parent).unwrap();
        let access = Access {
            owner: group.uid(),
            group: group.gid(),
            mode: 0,
        };
        let own_group = match access.has_private_group(&parent) {
            true => Ok(()),
            false => Err(format!(
                "members of group {} can write to {}",
                group.gid(),
                parent.display()
            )),
        };
        for (bits, judged) in [
            (0o755, Ok(())),
            (0o1777, Ok(())),
            (0o777, Err(format!("everyone can write to {}", parent.display()))),
            (0o775, own_group),
        ] {
            mode(&parent, bits);
            for path in [
                "parent",
                "parent/state",
                "parent/missing/deep",
                "link/state",
                "link/../parent/state",
            ] {
                assert_eq!(judge_path(&root.join(path), me_or_root), judged, "{path} {bits:o}");
            }
        }
        mode(&parent, 0o700);
        assert_eq!(judge_path(&root.join("loop/state"), me_or_root), Ok(()));
        let error = judge_path(&parent, |_| false).unwrap_err();
        assert!(error.starts_with("/ belongs to user "), "{error}");
    }

    #[test]
    fn removing_a_tree_does_not_follow_links() {
        let place = tempfile::tempdir().unwrap();
        let kept = tempfile::tempdir().unwrap();
        std::fs::write(kept.path().join("file"), "kept").unwrap();
        std::fs::create_dir_all(place.path().join("tree/deep/er")).unwrap();
        symlink(kept.path(), place.path().join("tree/deep/link")).unwrap();
        Dir::open(place.path()).unwrap().remove("tree").unwrap();
        assert!(!place.path().join("tree").exists());
        assert!(kept.path().join("file").exists());
    }
}
