//! Deploys OpenShift 4 in two passes on platforms whose DNS, DHCP and load balancers are not ours.
//!
//! ARCHITECTURE.md says which room does what; `passes` is the story, top to bottom.

pub mod addresses;
pub mod backend;
pub mod capped;
pub mod catalogue;
pub mod child;
pub mod cli;
pub mod client_dns;
pub mod cluster;
pub mod cluster_api;
pub mod commands;
pub mod csr;
pub mod digest;
pub mod dir;
pub mod disk;
pub mod download;
pub mod drain;
pub mod export;
pub mod failure;
pub mod gather;
pub mod harvest;
pub mod home;
pub mod host;
pub mod ignition;
pub mod images;
pub mod installer;
pub mod inventory;
pub mod journal;
pub mod lan;
pub mod machines;
pub mod mcs;
pub mod pace;
pub mod parameters;
pub mod passes;
pub mod patience;
pub mod platforms;
pub mod printable;
pub mod report;
pub mod services;
pub mod settings;
pub mod ssh;
pub mod survey;
pub mod templates;
pub mod wait;
mod xml;

/// Target of the events that a person watches: fields `machine`, `state`, `step`, `done`, `total`, and a message.
pub const PROGRESS: &str = "ocpdeploy::progress";
