//! The tests on a real libvirt, a real OpenStack or network namespaces: all of them are ignored without their lab.

mod dns;
mod lan;
mod leases;
mod libvirt;
mod life;
mod openstack;
mod services;
#[path = "../support/mod.rs"]
mod support;
mod two_passes;
