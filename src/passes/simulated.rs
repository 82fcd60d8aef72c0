//! Addresses of the simulated platform, which no real machine has.

use std::net::IpAddr;

use crate::backend::Capabilities;
use crate::cluster::{BackendConfig, Vip};
use crate::error::{ErrorKind, OperationError};
use crate::state::inventory::Known;
use crate::state::parameters::Parameters;

/// Rejects an address of the simulated platform: on a real network it may belong to another machine.
///
/// Loopback addresses belong to this computer: tests use them.
pub fn refuse_simulated(cluster: &str, backend: &BackendConfig, ip: IpAddr) -> Result<(), OperationError> {
    if !Capabilities::of(backend).simulated || ip.is_loopback() {
        return Ok(());
    }
    let text = format!("cluster {cluster} is on the simulated platform: none of its real machines has {ip}");
    Err(OperationError::new(ErrorKind::Usage, text).hint(format!(
        "on a real network another machine may have this address, so nothing is sent to it and it is not published; \
         `ocpdeploy status {cluster}` shows its addresses"
    )))
}

/// As `refuse_simulated`, for all addresses of a cluster, before the whole table is published.
pub fn refuse_simulated_table(known: &Known, table: &Parameters) -> Result<(), OperationError> {
    for vip in Vip::ALL {
        refuse_simulated(&known.name, &known.backend, table.vip(vip).ip)?;
    }
    for node in &table.nodes {
        refuse_simulated(&known.name, known.backend_of(&node.name), node.ip)?;
    }
    Ok(())
}
