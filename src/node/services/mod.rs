//! What the nodes run themselves, so that VIPs, DNS and load balancing need nobody else's help.
//!
//! Every function takes the finished harvest and returns files and units; what a whole role shares becomes a
//! MachineConfig, what only bootstrap has goes into its Ignition config.

pub mod dns;
pub mod haproxy;
mod input;
pub mod keepalived;
pub mod lease;
mod manifests;
mod parts;
pub mod peers;
pub mod resolver;

pub use input::{IMAGES, Input, Release, ServiceError};
pub use manifests::{Manifest, manifests};
pub use parts::parts;
