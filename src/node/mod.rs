//! What a node receives: its Ignition config, with the files and services of this program. Pure.

pub mod budget;
mod claims;
pub mod cloud_init;
pub mod config;
pub mod host;
pub mod machine_configs;
pub mod network_config;
mod operator_files;
pub mod overlay;
pub mod pointer;
pub mod services;
pub mod user_manifests;
