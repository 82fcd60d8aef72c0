//! Attacks: a hostile guest, platform, mirror, file or neighbour, and what it must not get.
//!
//! One module for each attacked surface; each test performs the attack and asserts that it failed.

#[expect(dead_code, reason = "shared with tests that need all of it")]
#[path = "../support/fake_kube/authority.rs"]
mod authority;
mod bundle;
mod cache;
#[path = "../support/cluster.rs"]
mod cluster;
mod core_file;
mod csr;
mod disk_space;
mod env_file;
mod hostile;
mod libvirt_uri;
#[expect(dead_code, reason = "shared with tests that need all of it")]
#[path = "../support/mirror.rs"]
mod mirror;
mod plain_http;
#[path = "../support/qcow2.rs"]
mod qcow2;
mod release;
mod signatures;
mod state;
mod terminal;
#[path = "../support/tls_listener.rs"]
mod tls_listener;
mod users;
