//! Downloaded files: available images, and their verified way into the cache.

pub mod catalogue;
pub mod download;
pub mod format;
