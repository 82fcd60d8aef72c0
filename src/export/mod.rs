//! What the user's own services need to know of a cluster, as text in their own languages.
//!
//! All of it is made from the cluster's folder alone, so that it can be asked for on any day.

pub mod ansible;
pub mod dhcp;
pub mod haproxy;
pub mod hosts;
pub mod kcli;
pub mod kubeconfig;
pub mod resolver;
pub mod zone;
