//! `dhcp=none`: a network without a DHCP server.

use crate::backend::Capabilities;
use crate::cluster::{BackendConfig, Dhcp, WorkersOn};
use crate::settings::parse;
use crate::settings::values::Values;

/// Reads `dhcp`, and sets or checks what depends on it.
pub fn dhcp(values: &mut Values<'_>, backend: Option<&BackendConfig>, workers_on: Option<&WorkersOn>) -> Option<Dhcp> {
    let dhcp = values.choice("dhcp");
    match dhcp {
        Some(Dhcp::None) => without_dhcp(values, backend, workers_on),
        _ => with_dhcp(values),
    }
    dhcp
}

/// Checks that the platforms support dhcp=none. Sets `harvest` and `mcs`, and rejects other values of them.
///
/// A node has no address until it has applied its config, so its platform must pass the whole config without a network.
fn without_dhcp(values: &mut Values<'_>, backend: Option<&BackendConfig>, workers_on: Option<&WorkersOn>) {
    let backends = [
        ("backend", backend),
        ("worker_backend", workers_on.map(|workers| &workers.backend)),
    ];
    for (name, backend) in backends {
        let Some(backend) = backend else { continue };
        let capabilities = Capabilities::of(backend);
        let help = if capabilities.simulated {
            "the simulated platform always has a DHCP server: remove dhcp to try a deployment"
        } else if capabilities.carrier.requires_network {
            "CoreOS reads its configuration on this platform over the network, with an address from DHCP: use a network \
             with a DHCP server, or libvirt or KubeVirt"
        } else {
            continue;
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
fn with_dhcp(values: &mut Values<'_>) {
    let has_ipv4 = |text: &str| parse::gateways(text).is_ok_and(|(ipv4, _)| ipv4.is_some());
    let gateway = values.value("gateway").filter(|value| value.is_given());
    if gateway.is_some_and(|value| has_ipv4(&value.text)) {
        values.warn("gateway", "the IPv4 address in gateway has no effect unless dhcp=none");
    }
    if values.is_given("name_servers") {
        values.warn("name_servers", "name_servers has no effect unless dhcp=none");
    }
}
