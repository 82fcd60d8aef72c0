//! Configuration for the user's own services, in their own formats.
//!
//! It depends only on the cluster's directory, so you can export it at any time.

pub mod ansible;
pub mod dhcp;
pub mod haproxy;
pub mod hosts;
pub mod kcli;
pub mod kubeconfig;
pub mod resolver;
pub mod zone;
