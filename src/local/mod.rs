//! What this computer itself runs or shows: programs, ssh, its resolver, its disk, its view of the machine network.

pub mod client_dns;
pub mod disk;
pub mod network_probe;
pub mod ssh;
pub mod subprocess;
