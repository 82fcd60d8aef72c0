//! libvirt's library: it is loaded here, and the two calls that `virt` does not wrap are made here: DHCP leases of a network,
//! and memory of the host.

#![expect(
    unsafe_code,
    reason = "a library loaded at run time; C calls that return arrays of C structs"
)]

use std::ffi::CStr;
use std::net::Ipv4Addr;
use std::os::raw::{c_char, c_int};
use std::sync::OnceLock;

use virt::connect::Connect;
use virt::error::Error;
use virt::network::Network;
use virt::sys;

use crate::cluster::Mac;

/// Loads libvirt's library when it is first needed, and stops it from writing to stderr. The error is the dynamic
/// linker's text.
///
/// A program that is linked to the library starts only where it is installed, and loads it and 50 others at each start.
/// That takes longer than the rest of most commands. So this program itself defines each function of libvirt that
/// `virt` calls: it jumps to the address that [`load`] has found in the library. The linker then omits the library,
/// which is no longer required. This works only on x86-64; on other processors the library stays linked.
pub(super) fn load() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    let load = || {
        #[cfg(target_arch = "x86_64")]
        library::load()?;
        // The default handler of libvirt writes all errors to stderr, including expected ones.
        virt::error::clear_error_callback();
        Ok(())
    };
    LOADED.get_or_init(load).clone()
}

#[cfg(target_arch = "x86_64")]
mod library {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicPtr, Ordering};

    /// What a function jumps to until the library is loaded.
    extern "C" fn not_loaded() -> ! {
        std::process::abort()
    }

    macro_rules! functions {
        ($($name:ident)*) => {
            #[expect(non_upper_case_globals, reason = "the names of C functions")]
            mod addresses {
                use super::{AtomicPtr, c_void, not_loaded};
                $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(not_loaded as *mut c_void);)*
            }

            mod jumps {
                $(
                    // SAFETY: no other object of this program has a symbol of this name; the arguments stay where they are.
                    #[unsafe(no_mangle)]
                    #[unsafe(naked)]
                    extern "C" fn $name() {
                        std::arch::naked_asm!("jmp qword ptr [rip + {}]", sym super::addresses::$name)
                    }
                )*
            }

            const FUNCTIONS: &[(&str, &AtomicPtr<c_void>)] =
                &[$((concat!(stringify!($name), "\0"), &addresses::$name)),*];
        };
    }

    // All functions that the program and its tests call, by name or through `virt`. If one is missing, the library is
    // linked again, which a test detects.
    functions! {
        virConnectClose virConnectCompareCPU virConnectGetCapabilities virConnectGetDomainCapabilities
        virConnectGetHostname virConnectGetLibVersion
        virConnectGetURI virConnectIsAlive virConnectListAllDomains virConnectListAllNetworks
        virConnectListAllStoragePools virConnectOpen virDomainCreate virDomainDefineXML virDomainDefineXMLFlags
        virDomainDestroy virDomainFree virDomainGetID virDomainGetName virDomainGetState virDomainGetUUID
        virDomainGetXMLDesc virDomainInterfaceAddresses virDomainIsActive virDomainListAllSnapshots
        virDomainLookupByName virDomainLookupByUUID virDomainOpenConsole virDomainRename virDomainRevertToSnapshot
        virDomainSetAutostart virDomainSetMetadata virDomainShutdown virDomainSnapshotCreateXML virDomainSnapshotDelete virDomainSnapshotFree
        virDomainSnapshotGetName virDomainSnapshotGetXMLDesc virDomainSnapshotLookupByName virDomainUndefine
        virDomainUndefineFlags virGetLastError virInterfaceFree virInterfaceLookupByName virNetworkDHCPLeaseFree
        virNetworkDestroy virNetworkFree virNetworkGetAutostart virNetworkGetDHCPLeases virNetworkGetName
        virNetworkGetUUID virNetworkGetXMLDesc virNetworkIsActive virNetworkIsPersistent virNetworkLookupByName
        virNetworkUndefine virNetworkUpdate virNodeGetInfo virNodeGetMemoryStats virSetErrorFunc virStoragePoolCreateXML
        virStoragePoolFree virStoragePoolGetName virStoragePoolGetXMLDesc virStoragePoolIsActive
        virStoragePoolListAllVolumes virStoragePoolLookupByName virStoragePoolRefresh virStorageVolCreateXML
        virStorageVolDelete virStorageVolDownload virStorageVolFree virStorageVolGetInfo virStorageVolGetName
        virStorageVolGetPath virStorageVolGetXMLDesc virStorageVolLookupByName virStorageVolLookupByPath
        virStorageVolUpload virStreamAbort virStreamEventRemoveCallback virStreamFinish virStreamFree virStreamNew
        virStreamRecv virStreamRef virStreamSend
    }

    pub(super) fn load() -> Result<(), String> {
        // SAFETY: libvirt's library may be loaded at any time, and stays loaded.
        let library = unsafe { libc::dlopen(c"libvirt.so.0".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(error());
        }
        for (name, address) in FUNCTIONS {
            // SAFETY: the library is loaded, and the name ends with a NUL.
            let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
            if found.is_null() {
                return Err(error());
            }
            address.store(found, Ordering::Relaxed);
        }
        Ok(())
    }

    fn error() -> String {
        // SAFETY: null, or a string that is valid until this thread's next call of these functions.
        let text = unsafe { super::text(libc::dlerror()) };
        text.unwrap_or_else(|| "libvirt.so.0 cannot be loaded".to_owned())
    }
}

/// A lease of libvirt's DHCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DhcpLease {
    pub mac: Mac,
    pub ip: Ipv4Addr,
    /// Seconds since 1970; 0 for an infinite lease.
    pub expires: i64,
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
                let expires = (*lease).expirytime;
                leases.push(DhcpLease { mac, ip, expires });
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
