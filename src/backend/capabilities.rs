//! What a platform can do, known from its configuration alone, even in a build without its backend.

use std::time::Duration;

use crate::cluster::{KubevirtConfig, LibvirtConfig, OpenStackConfig, OvirtConfig};

/// Concurrent calls. libvirtd has 20 workers by default, and each waits until an emulator has started or ended.
pub(super) const LIBVIRT_CONCURRENCY: usize = 16;

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a platform supports, and its limits.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The number of concurrent calls.
    pub concurrency: usize,
    /// The shortest pause between two queries of all machines. See `pause_after`.
    pub poll_interval: Duration,
    pub carrier: Carrier,
    /// Whether `reserve_address` can reserve addresses on the platform.
    pub reserves_addresses: bool,
    /// Whether the DHCP lease of a deleted machine remains: until it expires, the machine's MAC gets the same address.
    pub leases_outlive_machines: bool,
    /// Whether this computer is the machines' host, and so on the platform's own networks.
    pub host_is_here: bool,
    /// Whether the platform is simulated: no machine runs, and its addresses may be in use on a real network.
    pub simulated: bool,
    /// Whether this computer can reach machines over the network.
    pub guests_reachable: bool,
    /// Whether the platform learns addresses only from an agent in the guest. CoreOS has none.
    pub addresses_from_agent: bool,
    /// The CoreOS image that boots on this platform: `qemu`, `openstack` or `kubevirt`.
    pub image_artifact: &'static str,
    /// Whether the platform itself downloads images that are given by URL.
    pub fetches_images: bool,
    /// Whether the platform has load balancers for the VIPs (`lb=platform`).
    pub load_balancers: bool,
    /// Whether nodes can have static IPv6 addresses that the cluster chooses.
    pub static_ipv6: bool,
    /// Whether `console_tail` returns the output of serial consoles.
    pub console_tail: bool,
    /// Whether the platform has snapshots of machines that are off, or why not.
    pub snapshots: Result<(), &'static str>,
}

impl Capabilities {
    /// The pause after a query of all machines that took this long: three times as long, because some platforms, such
    /// as oVirt, require several requests for each machine. At most one second, because a user is waiting.
    pub fn pause_after(&self, query: Duration) -> Duration {
        (query * 3).min(LONGEST_PAUSE).max(self.poll_interval)
    }
}

impl From<&LibvirtConfig> for Capabilities {
    fn from(config: &LibvirtConfig) -> Self {
        Self {
            concurrency: LIBVIRT_CONCURRENCY,
            // A query is three calls, which take one or two milliseconds.
            poll_interval: Duration::from_millis(150),
            carrier: Carrier::FW_CFG,
            reserves_addresses: true,
            // dnsmasq frees a lease when it ends, or when the guest releases it (dnsmasq: `src/lease.c`, `lease_prune`). A guest
            // that is destroyed does not.
            leases_outlive_machines: true,
            // `qemu:///system`. The URI of another host contains its name: `qemu+ssh://host/system`.
            host_is_here: config.uri.contains(":///"),
            simulated: false,
            guests_reachable: true,
            addresses_from_agent: false,
            image_artifact: "qemu",
            fetches_images: false,
            load_balancers: false,
            static_ipv6: true,
            console_tail: true,
            snapshots: Ok(()),
        }
    }
}

impl From<&KubevirtConfig> for Capabilities {
    fn from(config: &KubevirtConfig) -> Self {
        Self {
            concurrency: 8,
            // Two lists, which the server answers from memory.
            poll_interval: Duration::from_millis(500),
            carrier: Carrier::SECRET,
            reserves_addresses: config.pods.is_some(),
            leases_outlive_machines: false,
            host_is_here: false,
            simulated: false,
            // Guests behind pods cannot be reached from outside.
            guests_reachable: config.pods.is_none(),
            addresses_from_agent: config.pods.is_none(),
            image_artifact: "kubevirt",
            fetches_images: false,
            load_balancers: config.pods.is_some(),
            static_ipv6: false,
            console_tail: true,
            snapshots: Ok(()),
        }
    }
}

impl From<&OpenStackConfig> for Capabilities {
    fn from(config: &OpenStackConfig) -> Self {
        Self {
            concurrency: 8,
            // Two lists of the cluster's objects. The cloud sets its own rate limits, which `transport.rs` obeys.
            poll_interval: Duration::from_millis(700),
            carrier: Carrier::USER_DATA,
            reserves_addresses: true,
            // The ports of a machine are deleted with it, unless they are reserved.
            leases_outlive_machines: false,
            host_is_here: false,
            simulated: false,
            guests_reachable: true,
            addresses_from_agent: false,
            image_artifact: "openstack",
            fetches_images: config.image_import,
            load_balancers: true,
            static_ipv6: true,
            console_tail: true,
            // A server that is rebuilt from an image of its disk is started by Nova, which then stops it again
            // (openstack/nova: `nova/compute/manager.py`, `_do_rebuild_instance`). Cinder reverts volumes that are not
            // attached, and Nova does not detach root volumes (`nova/api/openstack/compute/volume_attachments.py`).
            snapshots: Err("OpenStack cannot restore the root disk of a server that is off"),
        }
    }
}

impl From<&OvirtConfig> for Capabilities {
    fn from(_: &OvirtConfig) -> Self {
        Self {
            concurrency: 6,
            poll_interval: Duration::from_millis(700),
            carrier: Carrier::CUSTOM_SCRIPT,
            reserves_addresses: false,
            leases_outlive_machines: false,
            host_is_here: false,
            simulated: false,
            guests_reachable: true,
            addresses_from_agent: true,
            // The engine writes the config to a config drive, which this image reads (openshift/installer:
            // pkg/asset/rhcos/image.go, `case ovirt.Name, openstack.Name`).
            image_artifact: "openstack",
            fetches_images: false,
            load_balancers: false,
            static_ipv6: false,
            console_tail: false,
            snapshots: Ok(()),
        }
    }
}

/// How the platform passes Ignition configs to machines, and its size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// E.g. `fw_cfg`.
    pub name: &'static str,
    /// The size limit in bytes, as the platform counts them; `None`: unlimited.
    pub limit: Option<usize>,
    /// The size in bytes above which a compressed config is preferred; `None`: only above the limit.
    pub compress_above: Option<usize>,
    /// Whether the limit is for the base64 form of a config.
    pub counts_base64: bool,
    /// Whether the backend stores a larger config where the machine fetches it.
    pub fetches: bool,
    /// Whether Ignition starts the network, by DHCP, to read it: its provider `openstack` always does
    /// (coreos/ignition: internal/providers/openstack/openstack.go), `qemu` and `kubevirt` do not.
    pub requires_network: bool,
}

impl Carrier {
    /// libvirt: QEMU loads the file. Neither libvirt nor CoreOS has a limit.
    ///
    /// A guest's kernel reads each page byte by byte from the start, so the time grows with the square of the size
    /// (torvalds/linux: drivers/firmware/qemu_fw_cfg.c, `fw_cfg_read_blob`; coreos/ignition: issue 1259).
    pub const FW_CFG: Self = Self {
        name: "fw_cfg",
        limit: None,
        compress_above: Some(64 << 10),
        counts_base64: false,
        fetches: false,
        requires_network: false,
    };
    /// oVirt: the engine does not check the size (oVirt/ovirt-engine: VmInfoBuildUtils, cloud-init payload).
    pub const CUSTOM_SCRIPT: Self = Self {
        name: "custom_script",
        limit: None,
        compress_above: None,
        counts_base64: false,
        fetches: false,
        requires_network: true,
    };
    /// OpenStack: the compute API of Nova accepts 65535 bytes of base64.
    pub const USER_DATA: Self = Self {
        name: "user_data",
        limit: Some(65_535),
        compress_above: None,
        counts_base64: true,
        fetches: true,
        requires_network: true,
    };
    /// KubeVirt: `userData` in the machine itself (kubevirt/kubevirt: vmi-create-admitter.go).
    pub const INLINE_USER_DATA: Self = Self {
        name: "inline userData",
        limit: Some(2_048),
        compress_above: None,
        counts_base64: false,
        fetches: false,
        requires_network: false,
    };
    /// KubeVirt: a Secret. The limit is for the sum of decoded values (kubernetes/kubernetes: ValidateSecret); this one
    /// has one value.
    pub const SECRET: Self = Self {
        name: "Secret",
        limit: Some(1 << 20),
        compress_above: None,
        counts_base64: false,
        fetches: false,
        requires_network: false,
    };

    /// The largest config that a machine can get, in bytes; `None` if larger ones are stored for it to fetch.
    pub fn max_stored_bytes(&self) -> Option<usize> {
        self.max_config_bytes().filter(|_| !self.fetches)
    }

    /// The largest config that fits into the carrier itself, in bytes.
    pub fn max_config_bytes(&self) -> Option<usize> {
        // Base64 encodes each 3 bytes as 4 bytes, rounded up.
        self.limit
            .map(|limit| if self.counts_base64 { limit / 4 * 3 } else { limit })
    }
}
