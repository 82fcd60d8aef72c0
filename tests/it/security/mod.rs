//! Attacks by a hostile guest, platform, mirror, file or other user of the computer.
//!
//! One module for each attacked surface; each test performs the attack and asserts that it failed.

mod bundle;
mod cache;
mod children;
mod core_file;
mod csr;
mod disk_space;
mod env_file;
mod found_files;
#[cfg(all(feature = "kubevirt", feature = "openstack", feature = "ovirt"))]
mod hostile;
mod libvirt_uri;
#[cfg(all(feature = "kubevirt", feature = "openstack", feature = "ovirt"))]
mod limited_files;
#[cfg(all(feature = "kubevirt", feature = "openstack"))]
mod plain_http;
mod release;
mod release_images;
mod signatures;
mod state;
mod terminal;
mod trust;

/// The id of another user.
const MALLORY: u32 = 61002;

fn mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
