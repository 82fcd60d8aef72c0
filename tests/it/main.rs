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
mod check;
mod cli;
mod client_dns;
mod cluster_api;
mod console;
mod contract;
mod crash;
mod day_two;
mod docs;
mod download;
mod drain;
mod env_file;
mod export;
mod faults;
mod fetch_installer;
mod guests;
mod ignition_check;
mod ignition_commands;
mod ignition_corpus;
mod ignition_engine;
mod ignition_layers;
mod ignition_merge;
mod init;
mod installer;
mod kubevirt;
mod kubevirt_cuts;
mod kubevirt_fake;
mod kubevirt_life;
mod kubevirt_named;
mod kubevirt_pods;
mod layering;
mod machine_configs;
mod many;
mod mcs;
mod mixed;
mod node_ssh;
mod openstack;
mod ovirt_ansible;
mod ovirt_client;
mod ovirt_fake;
mod ovirt_passes;
mod ovirt_rules;
mod ovirt_sdk;
mod readme;
mod record;
mod reference;
mod report;
mod screen;
mod secrets;
mod security;
mod sequences;
#[path = "../support/mod.rs"]
mod support;
mod two_passes;
mod util;
mod vips;
mod wait;
mod whole_life;
mod whole_run;
