//! What this program records on this computer: a folder for each cluster, its journal and its table of addresses.

pub mod dir;
pub mod home;
pub mod inventory;
pub mod journal;
pub mod parameters;
