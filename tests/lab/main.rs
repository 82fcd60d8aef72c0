//! The tests on a real libvirt, a real OpenStack or network namespaces: all of them require their lab.

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

mod architectures;
mod cloud;
mod deployments;
mod dns;
mod dual_stack;
mod hosts;
mod kubernetes;
mod lan;
mod leases;
mod libvirt;
mod life;
mod nodes;
#[cfg(feature = "openstack")]
mod openstack;
#[cfg(feature = "openstack")]
mod openstack_balancers;
#[cfg(feature = "openstack")]
mod openstack_dual_stack;
#[cfg(feature = "openstack")]
mod openstack_projects;
#[cfg(feature = "openstack")]
mod openstack_storage;
mod other_hosts;
mod services;
mod snapshots;
mod static_addresses;
#[path = "../support/mod.rs"]
mod support;
mod two_passes;
