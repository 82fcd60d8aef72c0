//! `dhcp=none`: a network without a DHCP server.

use crate::backend::Capabilities;
use crate::cluster::{BackendConfig, WorkersOn};
use crate::settings::values::Values;

/// Where such a node's config comes from, which settings follow from that, and which cannot be combined with it.
///
/// Until a node has applied its config, it has no address: its platform must pass all of it without a network.
pub fn without_dhcp(values: &mut Values<'_>, backend: Option<&BackendConfig>, workers_on: Option<&WorkersOn>) {
    let backends = [
        ("backend", backend),
        ("worker_backend", workers_on.map(|workers| &workers.backend)),
    ];
    for (name, backend) in backends {
        let Some(backend) = backend else { continue };
        let help = match backend {
            BackendConfig::Sim(_) => "the simulated platform always has a DHCP server: remove dhcp to try a deployment",
            _ if Capabilities::of(backend).carrier.requires_network => {
                "CoreOS reads its configuration on this platform over the network, with an address from DHCP: use a \
                 network with a DHCP server, or libvirt or KubeVirt"
            }
            _ => continue,
        };
        let message = format!("dhcp=none is not supported on {}", backend.name());
        values.problem(&["dhcp", name], message, help);
    }
    for (name, implied, help) in [
        (
            "harvest",
            "static",
            "remove this setting: with dhcp=none, the addresses are those in this file (harvest=static)",
        ),
        (
            "mcs",
            "embed",
            "remove this setting: with dhcp=none, nodes get their whole configuration embedded (mcs=embed)",
        ),
    ] {
        let given = values.value(name).filter(|value| value.is_given());
        match given.map(|given| given.text.clone()) {
            Some(text) if text != implied && text != "auto" => {
                values.problem(
                    &["dhcp", name],
                    format!("dhcp=none and {name}={text} cannot be combined"),
                    help,
                );
            }
            _ => values.replace(name, "dhcp none", implied.to_owned()),
        }
    }
}

/// Settings that only nodes without DHCP use.
pub fn with_dhcp(values: &mut Values<'_>) {
    for name in ["gateway", "name_servers"] {
        if values.is_given(name) {
            values.warn(name, &format!("{name} has no effect unless dhcp=none"));
        }
    }
}
