//! The nodes' own services for VIPs, DNS and load balancing, which require nothing from the network.
//!
//! Every function takes the complete table and returns files and units; the common ones of a role become a
//! MachineConfig, those of the bootstrap are in its Ignition config.

mod combined;
mod disruption;
pub mod dns;
pub mod haproxy;
mod input;
pub mod keepalived;
pub mod lease;
mod manifests;
mod parts;
pub mod peers;
pub mod resolver;

pub use combined::{Combined, UserManifest, combine};
pub use disruption::{disruption_policies, disruption_policy, needs_reboot};
pub use input::{IMAGES, Input, Release, ServiceError};
pub use manifests::{Manifest, has_static_pods, manifests};
pub use parts::parts;
