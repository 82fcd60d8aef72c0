//! Configuration for the user's own services, in their own formats.
//!
//! Generated only from the cluster's folder, so that it can be exported at any time.

pub mod ansible;
pub mod dhcp;
pub mod haproxy;
pub mod hosts;
pub mod kcli;
pub mod kubeconfig;
pub mod resolver;
pub mod zone;
