//! This computer: child processes, coreos-installer, ssh, resolver, disk speed, network probes, the addresses it
//! uses, registry cache.

pub mod client_dns;
pub mod coreos_installer;
pub mod disk;
pub mod network_probe;
pub mod reach;
pub mod registry;
pub mod ssh;
pub mod subprocess;
