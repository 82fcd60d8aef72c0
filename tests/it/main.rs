//! All tests that need no lab, in one program: it is linked once.
#![allow(
    clippy::disallowed_methods,
    clippy::duplicate_mod,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unimplemented,
    clippy::unwrap_used,
    reason = "tests may panic and print"
)]
mod audit;
#[cfg(all(feature = "kubevirt", feature = "openstack"))]
mod check;
mod cli;
mod client_dns;
mod client_kubeconfig;
#[cfg(feature = "openstack")]
mod clouds_yaml;
mod cluster_api;
mod commands;
mod confirm;
#[cfg(feature = "kubevirt")]
mod console;
mod contract;
mod crash;
mod day_two;
mod deployments;
mod docs;
mod download;
mod drain;
mod dual_stack;
mod env_file;
mod export;
mod external;
mod faults;
mod fetch_installer;
mod guests;
mod hints;
mod ignition_check;
mod ignition_commands;
mod ignition_corpus;
mod ignition_engine;
mod ignition_layers;
mod ignition_merge;
#[cfg(all(feature = "kubevirt", feature = "openstack", feature = "ovirt"))]
mod init;
mod install_config;
mod installer;
mod interrupted;
#[cfg(feature = "kubevirt")]
mod kubeconfigs;
#[cfg(feature = "kubevirt")]
mod kubevirt;
#[cfg(feature = "kubevirt")]
mod kubevirt_csi;
#[cfg(feature = "kubevirt")]
mod kubevirt_cuts;
#[cfg(feature = "kubevirt")]
mod kubevirt_fake;
#[cfg(feature = "kubevirt")]
mod kubevirt_life;
#[cfg(feature = "kubevirt")]
mod kubevirt_named;
#[cfg(feature = "kubevirt")]
mod kubevirt_pods;
#[cfg(feature = "kubevirt")]
mod kubevirt_snapshots;
mod layering;
mod machine_configs;
mod many;
mod mcs;
#[cfg(feature = "ovirt")]
mod mixed;
mod nmcli;
mod node_settings;
mod node_ssh;
#[cfg(feature = "openstack")]
mod octavia;
#[cfg(feature = "openstack")]
mod openstack;
#[cfg(feature = "openstack")]
mod openstack_dual_stack;
#[cfg(feature = "openstack")]
mod openstack_projects;
#[cfg(feature = "ovirt")]
mod ovirt_ansible;
#[cfg(feature = "ovirt")]
mod ovirt_client;
#[cfg(feature = "ovirt")]
mod ovirt_fake;
#[cfg(feature = "ovirt")]
mod ovirt_ownership;
#[cfg(feature = "ovirt")]
mod ovirt_passes;
#[cfg(feature = "ovirt")]
mod ovirt_refusals;
#[cfg(feature = "ovirt")]
mod ovirt_rules;
#[cfg(feature = "ovirt")]
mod ovirt_sdk;
#[cfg(feature = "ovirt")]
mod ovirt_snapshots;
mod pass_one;
mod pools;
mod progress;
mod readme;
mod record;
mod reference;
mod registry_cache;
mod report;
mod screen;
mod second_computer;
#[cfg(all(feature = "kubevirt", feature = "openstack", feature = "ovirt"))]
mod secrets;
mod security;
mod sequences;
mod snapshot;
#[path = "../support/mod.rs"]
mod support;
mod two_passes;
mod util;
mod version_lock;
mod vips;
mod wait;
mod whole_life;
mod whole_run;
