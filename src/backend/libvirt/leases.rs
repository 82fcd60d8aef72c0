//! The DHCP leases of a network, by the only call that `virt` does not wrap.

#![expect(unsafe_code, reason = "one C call that returns an array of C structs")]

use std::ffi::CStr;
use std::net::Ipv4Addr;
use std::os::raw::c_char;

use virt::error::Error;
use virt::network::Network;
use virt::sys;

use crate::cluster::Mac;

/// A lease of libvirt's DHCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DhcpLease {
    pub mac: Mac,
    pub ip: Ipv4Addr,
}

/// All IPv4 leases, including those of deleted machines.
pub(super) fn of_network(network: &Network) -> Result<Vec<DhcpLease>, Error> {
    let mut array: *mut sys::virNetworkDHCPLeasePtr = std::ptr::null_mut();
    // SAFETY: the network is alive as long as `network`; a null MAC means all; libvirt fills `array` when it returns 0 or more.
    let count = unsafe { sys::virNetworkGetDHCPLeases(network.as_ptr(), std::ptr::null(), &mut array, 0) };
    if count < 0 {
        return Err(Error::last_error());
    }
    let mut leases = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the array has `count` pointers to leases, each ours to free once, its strings NUL-terminated or null.
        unsafe {
            let lease = *array.add(index);
            let mac = text((*lease).mac).and_then(|mac| mac.parse().ok());
            let ip = text((*lease).ipaddr).and_then(|ip| ip.parse().ok());
            if let (Some(mac), Some(ip)) = (mac, ip) {
                leases.push(DhcpLease { mac, ip });
            }
            sys::virNetworkDHCPLeaseFree(lease);
        }
    }
    // SAFETY: libvirt allocated the array itself with malloc, and it is not used after this.
    unsafe { libc::free(array.cast()) };
    Ok(leases)
}

/// # Safety
/// `string` is null or points to a NUL-terminated string.
unsafe fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: by the contract of this function.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().ok().map(str::to_owned)
}
