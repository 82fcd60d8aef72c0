//! Settings of the OpenStack backend.

use crate::cluster::{Insecure, Lb, OpenStackConfig, OsBalancers, OsFlavors};
use crate::settings::values::Values;
use crate::settings::{parse, pools};

pub(super) fn read(values: &mut Values<'_>) -> Option<OpenStackConfig> {
    let boot = values.choice("os_boot");
    let affinity = values.choice("os_affinity");
    let ignition = values.choice("os_ignition");
    let image_import = values.switch("os_image_import");
    let pool_flavors = pools::flavors(values);
    let insecure = values.switch("os_insecure");
    let volume_timeout = values.duration("os_volume_timeout");
    let admit = values.list("os_admit", parse::any_network);
    let ingress_floating_ip = values.ip4("os_ingress_floating_ip");
    let lb = values.choice("lb");
    let balancers = (lb == Some(Lb::Platform)).then(|| OsBalancers {
        provider: values.text("os_lb_provider"),
    });
    let vip = values.first_ip("api_ip");
    if ingress_floating_ip.is_some() && vip.is_some() && vip == values.first_ip("ingress_ip") {
        values.problem(
            &["os_ingress_floating_ip", "ingress_ip"],
            "`os_ingress_floating_ip` has no VIP of its own: `api_ip` and `ingress_ip` are the same",
            "remove it: os_api_floating_ip is used for both",
        );
    }
    Some(OpenStackConfig {
        cloud: values.text("os_cloud"),
        region: values.text("os_region"),
        volume_type: values.text("os_volume_type"),
        zone: values.text("os_zone"),
        volume_zone: values.text("os_volume_zone"),
        flavors: OsFlavors {
            bootstrap: values.text("os_bootstrap_flavor"),
            master: values.text("os_master_flavor"),
            arbiter: values.text("os_arbiter_flavor"),
            worker: values.text("os_worker_flavor"),
            helper: values.text("os_helper_flavor"),
            pools: pool_flavors?,
        },
        external_network: values.text("os_external_network"),
        api_floating_ip: values.ip4("os_api_floating_ip"),
        ingress_floating_ip,
        balancers,
        boot: boot?,
        affinity: affinity?,
        ignition: ignition?,
        image_import: image_import?,
        volume_timeout: volume_timeout?,
        admit: admit?,
        rehearsal: values.sources.rehearse,
        insecure: Insecure(insecure?),
    })
}
