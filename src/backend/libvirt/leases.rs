//! Tells the lease of a machine that runs from that of an earlier machine with the same MAC.

use std::collections::HashMap;
use std::sync::Mutex;

use virt::connect::Connect;

use super::attachment::Attachment;
use super::ffi::DhcpLease;
use super::network;
use super::session::{checked_text, lock};
use crate::backend::error::if_exists;
use crate::backend::{BackendError, Nic};
use crate::cluster::Mac;

/// The leases that existed when this process started a machine: they do not show that it came up.
///
/// The machines of pass one leave theirs to those of pass two, and to the next deployment. dnsmasq gives a lease a new expiry
/// each time it confirms it, and libvirt records that (dnsmasq: src/lease.c, `lease_set_expires`, and `do_script_run` with
/// `OPT_LEASE_RO`; libvirt/libvirt: src/network/bridge_driver.c, `--leasefile-ro`, and src/network/leaseshelper.c).
#[derive(Default)]
pub(super) struct OldLeases(Mutex<HashMap<Mac, Vec<DhcpLease>>>);

impl OldLeases {
    /// Notes the leases of a machine that is about to start.
    pub(super) fn note(&self, connect: &Connect, nics: &[Nic]) -> Result<(), BackendError> {
        for nic in nics
            .iter()
            .filter(|nic| Attachment::read(&nic.network).device().is_none())
        {
            let network = if_exists(connect.lookup_network_by_name(checked_text("network name", &nic.network)?))?;
            // The start names a network that is missing.
            let leases = if_exists(network.map(|network| network::valid_leases(&network)).transpose())?;
            self.keep(nic.mac, leases.flatten().unwrap_or_default());
        }
        Ok(())
    }

    fn keep(&self, mac: Mac, mut leases: Vec<DhcpLease>) {
        leases.retain(|lease| lease.mac == mac);
        lock(&self.0).insert(mac, leases);
    }

    /// Whether a lease is one of those. An infinite one never changes, so it is believed.
    pub(super) fn contain(&self, lease: &DhcpLease) -> bool {
        let is_same = |old: &DhcpLease| old == lease && lease.expires != 0;
        lock(&self.0).get(&lease.mac).is_some_and(|old| old.iter().any(is_same))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_old_until_it_is_confirmed() {
        let mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
        let lease = |mac, last, expires| DhcpLease {
            mac,
            ip: [192, 168, 122, last].into(),
            expires,
        };
        let old = OldLeases::default();
        assert!(!old.contain(&lease(mac, 2, 100)), "nothing was started");
        let another = Mac([0x52, 0x54, 0, 0, 0, 2]);
        old.keep(mac, vec![lease(mac, 2, 100), lease(another, 4, 100), lease(mac, 5, 0)]);
        assert!(old.contain(&lease(mac, 2, 100)));
        for (new, why) in [
            (lease(mac, 2, 101), "confirmed"),
            (lease(mac, 3, 100), "another address"),
            (lease(another, 4, 100), "another machine"),
            (lease(mac, 5, 0), "infinite"),
        ] {
            assert!(!old.contain(&new), "{why}");
        }
        old.keep(mac, vec![lease(mac, 2, 200)]);
        assert!(
            old.contain(&lease(mac, 2, 200)) && !old.contain(&lease(mac, 2, 100)),
            "the next start"
        );
    }
}
