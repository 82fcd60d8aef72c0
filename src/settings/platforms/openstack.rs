//! Settings of the OpenStack backend.

use std::net::Ipv4Addr;

use crate::cluster::{Insecure, Lb, OpenStackConfig, OsBalancers, OsBoot, OsFlavors};
use crate::settings::values::{Values, read_all};
use crate::settings::{parse, pools};

pub(super) fn read(values: &mut Values<'_>) -> Option<OpenStackConfig> {
    let boot = values.choice("os_boot");
    let disks = ["extra_disks", "worker_extra_disks", "pool_extra_disks"];
    let volumes = boot == Some(OsBoot::Volume) || disks.into_iter().any(|name| values.is_given(name));
    Some(read_all!(OpenStackConfig {
        boot,
        volumes: Some(volumes),
        affinity: values.choice("os_affinity"),
        ignition: values.choice("os_ignition"),
        image_import: values.switch("os_image_import"),
        flavors: flavors(values),
        insecure: values.switch("os_insecure").map(Insecure),
        volume_timeout: values.duration("os_volume_timeout"),
        admit: values.list("os_admit", parse::any_network),
        ingress_floating_ip: Some(ingress_floating_ip(values)),
        balancers: Some((values.choice("lb") == Some(Lb::Platform)).then(|| OsBalancers {
            provider: values.text("os_lb_provider"),
        })),
        cloud: Some(values.text("os_cloud")),
        region: Some(values.text("os_region")),
        volume_type: Some(values.text("os_volume_type")),
        zone: Some(values.text("os_zone")),
        volume_zone: Some(values.text("os_volume_zone")),
        machine_network: Some(values.first_network("machine_network")),
        external_network: Some(values.text("os_external_network")),
        api_floating_ip: Some(values.ip4("os_api_floating_ip")),
        client_ip: Some(values.ip("os_client_ip")),
        rehearsal: Some(values.sources.rehearse),
    }))
}

fn flavors(values: &mut Values<'_>) -> Option<OsFlavors> {
    Some(read_all!(OsFlavors {
        pools: pools::flavors(values),
        bootstrap: Some(values.text("os_bootstrap_flavor")),
        master: Some(values.text("os_master_flavor")),
        arbiter: Some(values.text("os_arbiter_flavor")),
        worker: Some(values.text("os_worker_flavor")),
        helper: Some(values.text("os_harvest_flavor")),
    }))
}

fn ingress_floating_ip(values: &mut Values<'_>) -> Option<Ipv4Addr> {
    let ip = values.ip4("os_ingress_floating_ip")?;
    let vip = values.first_ip("api_ip");
    if vip.is_some() && vip == values.first_ip("ingress_ip") {
        values.problem(
            &["os_ingress_floating_ip", "ingress_ip"],
            "`os_ingress_floating_ip` has no VIP of its own: `api_ip` and `ingress_ip` are the same",
            "remove it: os_api_floating_ip is used for both",
        );
    }
    Some(ip)
}
