//! Files that this program finds by a fixed name, such as `./env.sh`: they are used only if no other user can have
//! written them. Files that the user names are not judged.
//!
//! Such a file and its folder may be writable for the user's private group: many distributions create files so.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, getxattr};
use rustix::io::Errno;

/// The access control list of a file, see acl(5).
const ACL: &str = "system.posix_acl_access";

/// Another user can have written a file, or can replace it.
#[derive(Debug)]
struct Untrusted(String);

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not safe to use: {}", self.0)
    }
}

impl std::error::Error for Untrusted {}

/// Whether a file was not opened because another user can have written it. The error's text says who.
pub fn is_untrusted(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Untrusted>())
}

/// Opens a file that was found in this folder, to be read by `limited_file`.
pub fn open(path: &Path) -> io::Result<File> {
    // First, so that a missing file is reported as missing, even in an unsafe directory.
    path.symlink_metadata()?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The directory is checked before the file is opened: in a trusted one, no other user has placed a FIFO.
    judge(folder, &folder.metadata()?, "its directory")?;
    open_ours(path)
}

/// As `open`, in any directory.
pub fn open_ours(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    judge(path, &file.metadata()?, "it")?;
    Ok(file)
}

/// Whether no other user can have written a file.
pub fn is_ours(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| judge(path, &file, "it").is_ok())
}

fn judge(path: &Path, file: &Metadata, what: &str) -> io::Result<()> {
    let access = Access {
        owner: file.uid(),
        group: file.gid(),
        mode: file.mode(),
    };
    let judged = access.judge(what, is_trusted, || access.has_private_group(path));
    judged.map_err(|why| io::Error::other(Untrusted(why)))
}

/// What determines who can change a file or folder.
#[derive(Clone, Copy)]
pub struct Access {
    pub owner: u32,
    pub group: u32,
    pub mode: u32,
}

impl Access {
    /// Whether only users whose id `is_trusted` accepts can change a file or folder, and members of its group only if
    /// `group_is_harmless`.
    ///
    /// # Errors
    /// Who else can change `what`.
    pub fn judge(
        &self,
        what: impl fmt::Display,
        is_trusted: impl Fn(u32) -> bool,
        group_is_harmless: impl FnOnce() -> bool,
    ) -> Result<(), String> {
        let Self { owner, group, mode } = self;
        if !is_trusted(*owner) {
            Err(format!("{what} belongs to user {owner}"))
        } else if mode & 0o002 != 0 {
            Err(format!("everyone can write to {what}"))
        } else if mode & 0o020 != 0 && !group_is_harmless() {
            Err(format!("members of group {group} can write to {what}"))
        } else {
            Ok(())
        }
    }

    /// Whether the owner is the only member of the group of the file at this path, and it has no access control list.
    pub fn has_private_group(&self, path: &Path) -> bool {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        is_private(self.owner, self.group, &read("/etc/passwd"), &read("/etc/group")) && has_no_acl(path)
    }
}

/// Whether this is the id of this user or of root, or, if root runs this program, of the user who called sudo.
pub fn is_trusted(user: u32) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let caller = || std::env::var("SUDO_UID").ok()?.parse().ok();
    user == me || user == 0 || (me == 0 && Some(user) == caller())
}

/// Whether a file has no access control list. With one, the group's permission bits limit other users and groups, too.
fn has_no_acl(path: &Path) -> bool {
    matches!(
        getxattr(path, ACL, &mut [0_u8; 1]),
        Err(Errno::NODATA | Errno::OPNOTSUPP)
    )
}

/// Whether a user is the only member of a group, by the contents of `/etc/passwd` and `/etc/group`.
///
/// A group that is not in these files but, for example, in LDAP counts as private if its id is that of the user,
/// because directory services number private groups so (SSSD/sssd: `src/man/sssd.conf.5.xml`, `auto_private_groups`).
fn is_private(user: u32, group: u32, users: &str, groups: &str) -> bool {
    let (user, group) = (user.to_string(), group.to_string());
    // passwd(5): name:password:UID:GID:...; group(5): name:password:GID:members
    let primary = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let primary: Vec<_> = primary.filter(|user| user.get(3) == Some(&group.as_str())).collect();
    let entries = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entries: Vec<_> = entries.filter(|entry| entry.get(2) == Some(&group.as_str())).collect();
    match (primary.as_slice(), entries.as_slice()) {
        ([only], [entry]) => {
            let members = entry.get(3).copied().unwrap_or_default();
            only[2] == user && (members.is_empty() || members == only[0])
        }
        ([], []) => user == group,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_group_is_private_if_its_only_member_is_the_user() {
        const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n\
                             bob:x:1001:1500::/home/bob:/bin/sh\neve:x:1002:100::/home/eve:/bin/sh\n\
                             sam:x:1003:100::/home/sam:/bin/sh\n";
        const GROUPS: &str = "root:x:0:\nann:x:1000:ann\nbob:x:1500:\nusers:x:100:\nstaff:x:50:ann,bob\n";
        for (user, group, groups, expected) in [
            (0, 0, GROUPS, true),
            (1000, 1000, GROUPS, true),
            // The ids of a user and of the private group may differ.
            (1001, 1500, GROUPS, true),
            (1000, 1500, GROUPS, false),
            // Two users have it as their primary group.
            (1002, 100, GROUPS, false),
            (1000, 50, GROUPS, false),
            (1000, 1000, "ann:x:1000:ann,bob\n", false),
            (1000, 1000, "ann:x:1000:bob\n", false),
            (1000, 1000, "", false),
            // Neither is in the files.
            (2000, 2000, GROUPS, true),
            (2000, 2001, GROUPS, false),
            (2000, 50, GROUPS, false),
        ] {
            let found = is_private(user, group, USERS, groups);
            assert_eq!(found, expected, "{user} {group} {groups:?}");
        }
        assert!(!is_private(1000, 1000, "", GROUPS));
    }

    #[test]
    fn a_file_that_others_can_write_or_replace_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        for (of_folder, of_file, why, is_ours_expected) in [
            (0o700, 0o600, None, true),
            (0o755, 0o644, None, true),
            (0o755, 0o646, Some("everyone can write to it"), false),
            (0o777, 0o644, Some("everyone can write to its directory"), true),
            (0o1777, 0o644, Some("everyone can write to its directory"), true),
        ] {
            mode(folder.path(), of_folder);
            mode(&path, of_file);
            let found = open(&path).map(drop).map_err(|error| {
                assert!(is_untrusted(&error), "{error}");
                error.to_string()
            });
            let expected = why.map_or(Ok(()), |why| Err(format!("not safe to use: {why}")));
            assert_eq!(found, expected, "{of_folder:o} {of_file:o}");
            assert_eq!(is_ours(&path), is_ours_expected, "{of_folder:o} {of_file:o}");
            // A missing file is reported as missing.
            let missing = open(&folder.path().join("missing")).unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        }
    }
}
