//! This computer: child processes, coreos-installer, ssh, resolver, disk speed, network probes, registry cache.

pub mod client_dns;
pub mod coreos_installer;
pub mod disk;
pub mod network_probe;
pub mod registry;
pub mod ssh;
pub mod subprocess;
