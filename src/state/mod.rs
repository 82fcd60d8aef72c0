//! The state on this computer: a directory for each cluster with its journal and its address table.

pub mod archive;
pub mod dir;
pub mod durations;
pub mod home;
pub mod inventory;
pub mod journal;
pub mod parameters;
pub mod registry_cache;
