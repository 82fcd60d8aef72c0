//! Deploys OpenShift 4 in two passes, on networks where you do not control DNS, DHCP or load balancers.
//!
//! ARCHITECTURE.md describes the modules; start with `passes`, the workflow.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::expect_used,
        clippy::panic,
        clippy::print_stderr,
        clippy::print_stdout,
        clippy::unwrap_used,
        reason = "tests may panic and print"
    )
)]
#![cfg_attr(
    not(all(feature = "kubevirt", feature = "libvirt", feature = "openstack", feature = "ovirt")),
    allow(
        dead_code,
        reason = "parts that backends share, and that no backend of this build uses"
    )
)]

pub mod artifacts;
pub mod backend;
pub mod backoff;
pub mod cli;
pub mod cluster;
pub mod commands;
pub mod digest;
pub mod error;
pub mod export;
pub mod failure;
pub mod found_file;
pub mod http_limits;
pub mod http_upload;
pub mod ignition;
pub mod kube_client;
pub mod kubeconfig;
pub mod limited_file;
pub mod local;
pub mod node;
pub mod openshift;
pub mod passes;
pub mod plan;
pub mod printable;
pub mod report;
pub mod settings;
pub mod state;
pub mod templates;
#[cfg(any(feature = "libvirt", feature = "ovirt"))]
mod xml;

/// Target of progress events: fields `machine`, `state`, `step`, `done`, `total`, and a message.
pub const PROGRESS: &str = "ocpdeploy::progress";
