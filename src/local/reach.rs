//! Which addresses of a cluster's VIPs this computer uses: the external ones, such as floating IPs, unless it is on the
//! machine network.

use crate::cluster::{ApiEndpoint, ExternalVips};
use crate::local::network_probe;
use crate::state::parameters::Parameters;

/// Where this computer reaches the API.
pub fn api_endpoint(table: &Parameters) -> ApiEndpoint {
    seen_from_here(table.clone()).api_endpoint()
}

/// The table without external addresses, if this computer does not need them.
///
/// A router might not forward packets from its own network to a floating IP, and machines of the network can use the
/// machine config server only at its own address.
pub fn seen_from_here(mut table: Parameters) -> Parameters {
    let own = network_probe::own_address(table.api_ip);
    if own.is_ok_and(|own| table.machine_network.contains(own)) {
        table.external_vips = ExternalVips::default();
    }
    table
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::state::parameters::tests::example;

    /// This computer's own address is on the loopback network, and never in the reserved 240.0.0.0/4.
    #[test]
    fn only_a_computer_outside_of_the_machine_network_uses_the_floating_ip() {
        let floating = IpAddr::from([203, 0, 113, 7]);
        let endpoint = |vip: [u8; 4], network: &str, api| {
            let mut table = example();
            (table.api_ip, table.machine_network) = (vip.into(), network.parse().unwrap());
            table.external_vips = ExternalVips { api, ingress: None };
            api_endpoint(&table)
        };
        let inside = [127, 0, 0, 9];
        assert_eq!(endpoint(inside, "127.0.0.0/8", Some(floating)).ip, IpAddr::from(inside));
        let outside = [240, 0, 0, 9];
        assert_eq!(endpoint(outside, "240.0.0.0/24", Some(floating)).ip, floating);
        assert_eq!(endpoint(outside, "240.0.0.0/24", None).ip, IpAddr::from(outside));
    }
}
