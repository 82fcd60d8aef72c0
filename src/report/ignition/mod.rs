//! Ignition configs for people and scripts: what was found in them, what is in them, how two differ.

pub mod check;
pub mod differences;
pub mod show;
mod value;
