//! The choices that the simulated platform offers to `ocpdeploy init`.

use std::path::Path;

use super::world::World;
use crate::backend::{Choice, Finding, PlatformChoices, SettingChoices};

pub(super) fn of(world: &World, path: &Path) -> PlatformChoices {
    let networks = world.networks.iter().map(|(name, network)| {
        let (from, to) = (network.dhcp_from, network.dhcp_to);
        Choice::new(name, format!("{}, DHCP {from} to {to}", network.cidr))
    });
    let seen = Finding::ok(format!("simulated platform {} is usable", path.display()));
    PlatformChoices {
        seen: vec![seen],
        settings: vec![SettingChoices::new("network", networks.collect())],
    }
}
