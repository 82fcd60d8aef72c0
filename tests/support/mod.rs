//! The parts that tests share: sandboxes, fake servers, real judges.
#![allow(dead_code, unused_imports, reason = "each of the two test programs uses its part")]

pub mod backup;
pub mod clean;
pub mod cluster;
pub mod configs;
pub mod contract;
pub mod cut_line;
pub mod engine;
pub mod fake_cloud;
pub mod fake_engine;
pub mod fake_installer;
pub mod fake_kube;
pub mod fake_kubevirt;
pub mod faulty;
pub mod folder;
pub mod ground_kubevirt;
pub mod ground_libvirt;
pub mod ground_openstack;
pub mod ground_ovirt;
pub mod ground_sim;
pub mod installer_files;
pub mod kubevirt_sandbox;
pub mod lab_site;
pub mod mcs_server;
pub mod mirror;
pub mod netns;
pub mod openstack_lab;
pub mod ovirt_client;
pub mod ovirt_sdk;
pub mod qcow2;
pub mod sandbox;
pub mod shape;
pub mod site;
pub mod sshd;
pub mod terminal;
pub mod tls_listener;
