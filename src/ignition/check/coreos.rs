//! What the root of every CoreOS has and forbids. No config shows it, and Ignition fails on it.
//!
//! Sources: coreos/rpm-ostree, `rust/src/composepost.rs` (the links of the root, the directories of the root);
//! coreos/fedora-coreos-config, `manifests` and `overlay.d`, which openshift/os builds on; coreos/ignition,
//! `internal/exec/stages`.

use super::at::{At, quoted};
use super::judge::Judge;
use super::nodes::{LISTS, path_fault};

/// Links, and where they lead: `TOPLEVEL_SYMLINKS` and `TOPLEVEL_LINKS` of rpm-ostree, and `usr/local`.
const LINKS: [(&str, &str); 12] = [
    ("/bin", "/usr/bin"),
    ("/home", "/var/home"),
    ("/lib", "/usr/lib"),
    ("/lib64", "/usr/lib64"),
    ("/media", "/run/media"),
    ("/mnt", "/var/mnt"),
    ("/opt", "/var/opt"),
    ("/ostree", "/sysroot/ostree"),
    ("/root", "/var/roothome"),
    ("/sbin", "/usr/sbin"),
    ("/srv", "/var/srv"),
    ("/usr/local", "/var/usrlocal"),
];

/// File systems of the kernel or in memory: what Ignition writes there is hidden or lost at the next boot. `/tmp` is in
/// memory if `tmp.mount` is enabled; otherwise, it is cleared (systemd/systemd: `tmpfiles.d/tmp.conf`).
const NOT_KEPT: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];

/// Files in every CoreOS, from the packages `chrony`, `containers-common`, `glibc`, `openssh`, `setup`, `sudo` and
/// `systemd`, and from its release package; for /etc/resolv.conf, see slauger/hcloud-okd4, issue 246. /etc/hostname and
/// /etc/localtime do not exist, /etc/motd only in some releases.
const FILES: [&str; 18] = [
    "/etc/bashrc",
    "/etc/chrony.conf",
    "/etc/containers/policy.json",
    "/etc/containers/registries.conf",
    "/etc/environment",
    "/etc/group",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/profile",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/shells",
    "/etc/ssh/ssh_config",
    "/etc/ssh/sshd_config",
    "/etc/sudoers",
    "/etc/sysctl.conf",
];

/// The disk from which CoreOS boots (`80-coreos-boot-disk.rules`).
const BOOT_DISK: &str = "/dev/disk/by-id/coreos-boot-disk";

/// The usual names of that disk.
const FIRST_DISKS: [&str; 2] = ["/dev/vda", "/dev/sda"];

/// The link of CoreOS that a path goes through or is, and where the path leads.
pub fn through_link(path: &str) -> Option<(&'static str, String)> {
    LINKS.iter().find_map(|(link, target)| {
        let rest = path.strip_prefix(link)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| (*link, format!("{target}{rest}")))
    })
}

pub fn storage(judge: &mut Judge, storage: &At) {
    let has_boot = storage
        .entries("filesystems")
        .any(|filesystem| filesystem.text("path") == Some("/boot"));
    for list in LISTS {
        for node in storage.entries(list) {
            one_node(judge, list, &node, has_boot);
        }
    }
    for filesystem in storage.entries("filesystems") {
        mounted(judge, &filesystem);
    }
    // Butane's `boot_device` wipes disks, and creates the file systems of CoreOS again.
    let has_root = storage
        .entries("filesystems")
        .any(|filesystem| filesystem.text("label") == Some("root"));
    for disk in storage.entries("disks") {
        if disk.flag("wipeTable") != Some(true) || has_root {
            continue;
        }
        match disk.text("device").unwrap_or_default() {
            BOOT_DISK => judge.error(
                &disk.get("wipeTable"),
                "this deletes CoreOS: no file system of the config has the label `root`",
            ),
            first if FIRST_DISKS.contains(&first) => judge.warning(
                &disk.get("wipeTable"),
                "this deletes CoreOS if it is on this disk, which is usually the first one",
            ),
            _ => {}
        }
    }
}

/// A file, directory or link.
fn one_node(judge: &mut Judge, list: &str, node: &At, has_boot: bool) {
    let path = node.text("path").unwrap_or_default();
    if path == "/" || path_fault(path).is_some() {
        return;
    }
    let (at, link) = (node.get("path"), through_link(path));
    // Ignition follows links, except the last component of a path.
    let place = match &link {
        Some((link, target)) if *link == path => {
            return judge.error(&at, format_args!("{link} is a link in CoreOS: use {}", quoted(target)));
        }
        Some((_, target)) => target.as_str(),
        None => path,
    };
    match top(place) {
        "boot" if !has_boot => {
            let text = "hidden at the next boot: mount the boot partition with a file system whose path is `/boot`";
            judge.warning(&at, text);
        }
        directory if NOT_KEPT.contains(&directory) => {
            judge.warning(
                &at,
                format_args!("/{directory} is not kept: use a path below /etc or /var"),
            );
        }
        _ => writable(judge, &at, place),
    }
    let is_written = list != "files" || node.get("contents").text("source").is_some();
    if is_written && FILES.contains(&place) && node.flag("overwrite") != Some(true) {
        judge.error(&at, "CoreOS has this file: set `overwrite` to true, or use `append`");
    }
}

/// A file system that Ignition mounts: it follows no link (`internal/exec/stages/mount/mount.go`).
fn mounted(judge: &mut Judge, filesystem: &At) {
    let path = filesystem.words("path").filter(|path| path_fault(path).is_none());
    let (Some(path), Some(format)) = (path, filesystem.words("format")) else {
        return;
    };
    if matches!(format, "none" | "swap") {
        return;
    }
    let at = filesystem.get("path");
    match through_link(path) {
        Some((link, target)) => {
            let target = quoted(&target);
            judge.error(
                &at,
                format_args!("{link} is a link in CoreOS, and Ignition mounts nothing behind a link: use {target}"),
            );
        }
        None => writable(judge, &at, path),
    }
}

/// Ignition cannot create a path below the root or /usr (coreos/fedora-coreos-tracker, issue 270; openshift/os, issue
/// 123).
fn writable(judge: &mut Judge, at: &At, path: &str) {
    match top(path) {
        "usr" => judge.error(
            at,
            "/usr is read-only in CoreOS: use a path below /etc, /var or /usr/local",
        ),
        "" | "boot" | "etc" | "sysroot" | "var" => {}
        directory if NOT_KEPT.contains(&directory) => {}
        _ => judge.error(
            at,
            "the root directory is read-only in CoreOS: use a path below /etc or /var",
        ),
    }
}

/// The first component of an absolute path.
fn top(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}
