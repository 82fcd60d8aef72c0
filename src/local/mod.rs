//! This computer: child processes, ssh, resolver, disk speed, network probes.

pub mod client_dns;
pub mod disk;
pub mod network_probe;
pub mod ssh;
pub mod subprocess;
