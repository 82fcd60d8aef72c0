//! This computer: child processes, coreos-installer, ssh, resolver, kubeconfig, disk speed, network probes, the
//! addresses it uses, registry cache.

pub mod client_dns;
pub mod client_kubeconfig;
pub mod coreos_installer;
pub mod disk;
pub mod foreign_file;
pub mod network_probe;
pub mod reach;
pub mod registry;
pub mod ssh;
pub mod subprocess;
