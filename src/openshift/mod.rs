//! The cluster's own software: the installer, the cluster's API, and what is asked of both.

pub mod api;
pub mod csr;
pub mod drain;
pub mod installer;
pub mod mcs;
pub mod wait;
