//! Ignition configs for users and scripts: findings, contents, differences.

pub mod check;
pub mod differences;
pub mod show;
mod value;
