//! The two calls of libvirt that `virt` does not wrap: DHCP leases of a network, and memory of the host.

#![expect(unsafe_code, reason = "C calls that return arrays of C structs")]

use std::ffi::CStr;
use std::net::Ipv4Addr;
use std::os::raw::{c_char, c_int};

use virt::connect::Connect;
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
pub(super) fn dhcp_leases(network: &Network) -> Result<Vec<DhcpLease>, Error> {
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

/// The memory of the host in KiB that machines can use, including what the page cache would release.
///
/// The fields are those of `/proc/meminfo` (libvirt/libvirt: src/util/virhostmem.c, `virHostMemGetStatsLinux`); there is
/// none for MemAvailable.
pub(super) fn available_memory(connect: &Connect) -> Result<u64, Error> {
    let all = sys::VIR_NODE_MEMORY_STATS_ALL_CELLS;
    let mut count: c_int = 0;
    // SAFETY: the connection is alive as long as `connect`; a null array with count 0 makes libvirt set `count` only.
    if unsafe { sys::virNodeGetMemoryStats(connect.as_ptr(), all, std::ptr::null_mut(), &mut count, 0) } < 0 {
        return Err(Error::last_error());
    }
    let empty = sys::virNodeMemoryStats {
        field: [0; 80],
        value: 0,
    };
    let mut stats = vec![empty; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the array has `count` elements; libvirt writes at most as many.
    if unsafe { sys::virNodeGetMemoryStats(connect.as_ptr(), all, stats.as_mut_ptr(), &mut count, 0) } < 0 {
        return Err(Error::last_error());
    }
    let is_available = |stat: &&sys::virNodeMemoryStats| {
        // SAFETY: libvirt terminates each field with a NUL; the array was zero before.
        let field = unsafe { text(stat.field.as_ptr()) };
        matches!(field.as_deref(), Some("free" | "buffers" | "cached"))
    };
    Ok(stats.iter().filter(is_available).map(|stat| stat.value).sum())
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
