//! Files from elsewhere: which images exist, and how they reach the cache, verified.

pub mod catalogue;
pub mod download;
