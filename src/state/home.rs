//! The layout of the state directory, and durable private writes.
//!
//! `$OCPDEPLOY_HOME/clusters/<name>/` contains all files of a cluster; directories have mode 0700, files 0600.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{CWD, OFlags, RenameFlags};

use crate::found_file::is_trusted;
use crate::state::dir::{self, Dir};

/// The directory of all clusters.
const CLUSTERS: &str = "clusters";

/// The directory in which an imported record is unpacked.
const IMPORT: &str = ".new-import";

/// The root of all state, `$OCPDEPLOY_HOME`.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Why no secret should be stored here: another user could read it or replace files.
    ///
    /// The root may be a link of this user; no directory below it may be a link.
    pub fn distrust(&self) -> Option<String> {
        if let Err(why) = dir::judge_path(&self.root, is_trusted) {
            return Some(why);
        }
        // A missing directory is judged when it is created; errors of opening it are reported when it is used.
        let root = Dir::open(&self.root).ok()?;
        let below = |folder: &Dir, name: &OsStr| match folder.is_link(name) {
            true => Err(format!("{} is a link", folder.join(name).display())),
            false => Ok(folder.look(name).ok()),
        };
        let judge = || {
            root.judge(is_trusted)?;
            let Some(clusters) = below(&root, CLUSTERS.as_ref())? else {
                return Ok(());
            };
            clusters.judge(is_trusted)?;
            for name in clusters.names().unwrap_or_default() {
                if let Some(cluster) = below(&clusters, &name)? {
                    cluster.judge(is_trusted)?;
                }
            }
            Ok(())
        };
        judge().err()
    }

    /// The first file that root has created with sudo in this user's state directory, and that the user cannot use.
    pub fn root_owned(&self) -> Option<PathBuf> {
        let me = dir::me();
        let is_root_owned = |path: &PathBuf| path.symlink_metadata().is_ok_and(|file| file.uid() == 0);
        if me == 0 || is_root_owned(&self.root) {
            return None;
        }
        let entries = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let clusters = entries(&self.clusters());
        let of_clusters = clusters.iter().flat_map(|cluster| entries(cluster));
        let mut all = entries(&self.root)
            .into_iter()
            .chain(clusters.clone())
            .chain(of_clusters);
        all.find(is_root_owned)
    }

    /// The git work tree that contains the state: a folder with `.git`, at or above it.
    pub fn work_tree(&self) -> Option<PathBuf> {
        let root = fs::canonicalize(&self.root).unwrap_or_else(|_| self.root.clone());
        let is_work_tree = |folder: &&Path| folder.join(".git").exists();
        root.ancestors().find(is_work_tree).map(Path::to_owned)
    }

    pub fn clusters(&self) -> PathBuf {
        self.root.join(CLUSTERS)
    }

    /// Removes the temporary files of interrupted writes beside the clusters. Requires the inventory's lock.
    pub fn sweep(&self) -> io::Result<()> {
        remove_folder(self.importing().path())?;
        sweep(&self.root).map(drop)
    }

    /// Where an imported record is unpacked. Requires the inventory's lock.
    pub fn importing(&self) -> ClusterDir {
        ClusterDir {
            path: self.root.join(IMPORT),
        }
    }

    pub fn cluster(&self, name: &str) -> ClusterDir {
        ClusterDir {
            path: self.clusters().join(name),
        }
    }

    /// Names of all clusters with a directory, sorted.
    pub fn cluster_names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.clusters()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Entries of a cluster's directory that belong to this computer; a record does not contain them.
const OF_THIS_COMPUTER: [&str; 5] = ["bin", "client-dns.json", "client-kubeconfig.json", "log", "snapshots"];

/// The directory of one cluster.
#[derive(Clone, Debug)]
pub struct ClusterDir {
    path: PathBuf,
}

impl ClusterDir {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// The address table of pass one.
    pub fn parameters(&self) -> PathBuf {
        self.path.join("parameters.yaml")
    }

    /// The cluster's identity: domain, backend.
    pub fn known(&self) -> PathBuf {
        self.path.join("cluster.json")
    }

    fn ignore(&self) -> PathBuf {
        self.path.join(".gitignore")
    }

    pub fn journal(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// openshift-install's own directory.
    pub fn installer(&self) -> PathBuf {
        self.path.join("installer")
    }

    /// The previous installer's files; kept until a cluster with the new ones is complete.
    pub fn old_installer(&self) -> PathBuf {
        self.path.join("installer.old")
    }

    /// The file with kubeadmin's password.
    pub fn kubeadmin_password(&self) -> PathBuf {
        self.installer().join("auth/kubeadmin-password")
    }

    /// The directory of all configs of pass two.
    pub fn ignition_folder(&self) -> PathBuf {
        self.path.join("ignition")
    }

    /// The config of a node in pass two.
    pub fn ignition(&self, node: &str) -> PathBuf {
        self.ignition_folder().join(format!("{node}.ign"))
    }

    /// The machine config server's config of a role.
    pub fn served(&self, role: &str) -> PathBuf {
        self.ignition_folder().join(format!("served-{role}.ign"))
    }

    /// The latest pointer of later nodes of a role.
    pub fn pointer(&self, role: &str) -> PathBuf {
        self.path.join("pointers").join(format!("{role}.ign"))
    }

    /// The layers of the nodes' configs.
    pub fn ignition_layers(&self) -> PathBuf {
        self.ignition_folder().join("layers.json")
    }

    /// The origins of the last deployment's settings.
    pub fn settings(&self) -> PathBuf {
        self.path.join("settings.json")
    }

    /// The nodes' SSH host keys.
    pub fn known_hosts(&self) -> PathBuf {
        self.path.join("known_hosts")
    }

    /// The admin's kubeconfig, as openshift-install wrote it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.installer().join("auth/kubeconfig")
    }

    /// How this computer resolves the cluster's names.
    pub fn client_dns(&self) -> PathBuf {
        self.path.join("client-dns.json")
    }

    /// Where the user's kubeconfigs have a context of the cluster.
    pub fn client_kubeconfig(&self) -> PathBuf {
        self.path.join("client-kubeconfig.json")
    }

    /// Writes a file of this directory as `write_private` does. Under sudo it belongs to the directory's owner, who will
    /// destroy the cluster.
    pub fn write_for_owner(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        write_private(path, content)?;
        let (owner, file) = (fs::metadata(&self.path)?, fs::metadata(path)?);
        match (owner.uid(), owner.gid()) == (file.uid(), file.gid()) {
            true => Ok(()),
            false => lchown(path, Some(owner.uid()), Some(owner.gid())),
        }
    }

    /// The backup of etcd that belongs to a snapshot.
    pub fn snapshot(&self, name: &str) -> PathBuf {
        self.path.join("snapshots").join(name)
    }

    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Creates the empty directory with private permissions.
    pub fn create_bare(&self) -> io::Result<()> {
        create_state_dir(&self.path)?;
        Dir::open_no_link(&self.path)?.set_mode(0o700)
    }

    /// Creates the directory with private permissions, and keeps its secrets out of a surrounding git repository.
    pub fn create(&self) -> io::Result<()> {
        self.create_bare()?;
        let ignore = self.ignore();
        if !ignore.exists() {
            write_private(&ignore, b"*\n")?;
        }
        Ok(())
    }

    /// Removes the temporary files of interrupted writes. Requires the cluster's lock.
    pub fn sweep(&self) -> io::Result<()> {
        let mut folders = vec![self.path.clone()];
        while let Some(folder) = folders.pop() {
            folders.extend(sweep(&folder)?);
        }
        Ok(())
    }

    /// Removes everything that a deployment created here, except the address table and the cluster's identity.
    pub fn remove_all_but_addresses(&self) -> io::Result<()> {
        // The journal first: it would be wrong without the files that it records.
        match fs::remove_file(self.journal()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ if !self.exists() => return Ok(()),
            _ => {}
        }
        let kept = [self.parameters(), self.known(), self.lock(), self.ignore()];
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let path = entry.path();
            if kept.contains(&path) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Makes an unpacked record this cluster's directory in one step. The previous directory takes its place, except
    /// for the entries that belong to this computer.
    pub fn replace_with(&self, unpacked: &Self) -> io::Result<()> {
        create_private_dir(parent(&self.path))?;
        let exists = self.exists();
        match exists {
            false => fs::rename(&unpacked.path, &self.path)?,
            true => rustix::fs::renameat_with(CWD, &unpacked.path, CWD, &self.path, RenameFlags::EXCHANGE)?,
        }
        for name in OF_THIS_COMPUTER.iter().filter(|_| exists) {
            match fs::rename(unpacked.path.join(name), self.path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Dir::open_no_link(parent(&self.path))?.sync()
    }

    /// Removes the previous installer's files. Missing is success.
    pub fn remove_old_installer(&self) -> io::Result<()> {
        remove_folder(&self.old_installer())
    }

    /// Removes the directory with its contents, the file that identifies the cluster for `destroy` last: an interrupted
    /// removal can be repeated. Missing is success.
    pub fn remove(&self) -> io::Result<()> {
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        };
        let folder = match Dir::open_no_link(&self.path) {
            Ok(folder) => folder,
            Err(error) => return gone(error),
        };
        let known = self.known();
        for name in folder.names()? {
            if Some(name.as_os_str()) != known.file_name() {
                folder.remove(name)?;
            }
        }
        fs::remove_dir_all(&self.path).or_else(gone)
    }
}

/// Removes a directory with its contents. Missing is success.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Name prefix of files that are not complete.
const NEW: &str = ".new-";

/// Removes the temporary files of interrupted writes from a directory; returns the directories in it.
fn sweep(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        } else if entry.file_name().to_string_lossy().starts_with(NEW) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(folders)
}

/// Creates a directory and its parents with mode 0700; an existing directory keeps its mode.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot create directory {}: {error}", path.display()),
            )
        })
}

/// Creates a directory of the state as `create_private_dir` does, then judges all that leads to it: since the start of
/// the program, another user may have created or replaced a part of the path.
pub fn create_state_dir(path: &Path) -> io::Result<()> {
    create_private_dir(path)?;
    dir::judge_path(path, is_trusted).map_err(|why| {
        let text = format!("{} is not safe for secrets: {why}", path.display());
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    })
}

/// Replaces a file with mode 0600, so that after a crash it has either the old content or the new one.
///
/// Neither its directory nor the existing entry may be a link.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = state_folder(path)?;
    replace(&folder, path, content, |file| file.sync_all())?;
    // A rename is only durable after the directory is synced as well.
    folder.sync()
}

/// Replaces a file as `write_private` does, but much faster: a crash of the computer (not of this program) may leave it
/// empty or old. For files that are compared with their digest when they are read, and can be recreated.
pub fn write_private_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(&state_folder(path)?, path, content, |_| Ok(()))
}

/// Opens a log with mode 0600 for appending; neither it nor its directory may be a link.
pub fn append_private(path: &Path) -> io::Result<std::fs::File> {
    state_folder(path)?.file(
        path.file_name().unwrap_or_default(),
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
    )
}

/// Replaces a file as `write_private` does, at the user's path: its directory may be a link.
pub fn write_where_asked(path: &Path, content: &[u8]) -> io::Result<()> {
    create_private_dir(parent(path))?;
    let folder = Dir::open(parent(path))?;
    replace(&folder, path, content, |file| file.sync_all())?;
    folder.sync()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

fn state_folder(path: &Path) -> io::Result<Dir> {
    create_state_dir(parent(path))?;
    Dir::open_no_link(parent(path))
}

fn replace(
    folder: &Dir,
    path: &Path,
    content: &[u8],
    sync: impl Fn(&std::fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()));
    let name = path.file_name().unwrap_or_default();
    let new = format!("{NEW}{:016x}", getrandom::u64().unwrap_or_default());
    let write = || {
        let mut file = folder.create(&new)?;
        file.write_all(content)?;
        sync(&file)?;
        folder.rename(&new, folder, name)
    };
    write().map_err(|error| {
        drop(folder.remove(&new));
        named(error)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_addresses_and_identity_are_kept_for_the_next_deployment() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Home::new(folder.path()).cluster("lab");
        dir.remove_all_but_addresses().unwrap();
        dir.create().unwrap();
        for path in [
            dir.parameters(),
            dir.known(),
            dir.journal(),
            dir.ignition("master-0"),
            dir.path().join("installer.old/x"),
        ] {
            write_private(&path, b"{}").unwrap();
        }
        dir.remove_all_but_addresses().unwrap();
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, [".gitignore", "cluster.json", "parameters.yaml"]);
    }

    #[test]
    fn a_work_tree_is_found_at_or_above_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(root.join("site/.git")).unwrap();
        std::fs::create_dir_all(root.join("site/state")).unwrap();
        std::fs::create_dir_all(root.join("elsewhere")).unwrap();
        // In a linked work tree `.git` is a file (git: Documentation/gitrepository-layout.adoc).
        std::fs::create_dir_all(root.join("linked")).unwrap();
        std::fs::write(root.join("linked/.git"), "gitdir: /repo/.git/worktrees/linked").unwrap();
        std::os::unix::fs::symlink(root.join("site/state"), root.join("link")).unwrap();
        for (home, found) in [
            ("site", Some("site")),
            ("site/state", Some("site")),
            ("site/not/yet/there", Some("site")),
            ("linked/state", Some("linked")),
            ("link", Some("site")),
            ("elsewhere", None),
        ] {
            let found = found.map(|found| root.join(found));
            assert_eq!(Home::new(root.join(home)).work_tree(), found, "{home}");
        }
    }

    #[test]
    fn a_folder_that_others_can_replace_is_rejected_when_it_is_used() {
        let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path().join("state"));
        assert_eq!(home.distrust(), None);
        // Another user creates it after the start of the program, or can replace it.
        std::fs::create_dir(home.root()).unwrap();
        mode(home.root(), 0o700);
        let dir = home.cluster("lab");
        for unsafe_folder in [home.root(), folder.path()] {
            mode(unsafe_folder, 0o777);
            let why = format!("everyone can write to {}", unsafe_folder.display());
            assert_eq!(home.distrust(), Some(why.clone()));
            for error in [
                create_state_dir(home.root()).unwrap_err(),
                dir.create_bare().unwrap_err(),
                write_private(&dir.known(), b"secret").unwrap_err(),
                write_private_unsynced(&dir.known(), b"secret").unwrap_err(),
                append_private(&dir.log().join("file")).unwrap_err(),
            ] {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
                assert!(error.to_string().ends_with(&why), "{error}");
            }
            assert!(!dir.known().exists() && !dir.log().join("file").exists());
            mode(unsafe_folder, 0o700);
        }
        write_private(&dir.known(), b"secret").unwrap();
    }

    #[test]
    fn written_files_are_private_and_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/file");
        write_private(&path, b"first, and longer").unwrap();
        write_private(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }
}
