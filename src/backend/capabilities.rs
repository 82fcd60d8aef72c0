//! What a platform can do, known from its configuration alone: nothing is asked. Each platform says it in its folder,
//! but libvirt, of which it is known in programs built without it, too.

use std::time::Duration;

use crate::cluster::LibvirtConfig;

/// Calls under way at once. libvirtd has 20 workers by default and lets each wait for an emulator's start or end.
pub(super) const LIBVIRT_CONCURRENCY: usize = 16;

/// What a backend can do and how hard it may be pushed.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Calls under way at once.
    pub concurrency: usize,
    /// Pause between two bulk looks: short where a look is cheap.
    pub poll_interval: Duration,
    pub carrier: Carrier,
    /// Whether `reserve_address` can make the platform keep an address.
    pub holds_addresses: bool,
    /// Whether nothing is real: no machine runs, and its addresses mean something else on a real network.
    pub pretend: bool,
    /// Whether machines can be asked over the network, from this computer.
    pub guests_answer: bool,
    /// Whether addresses are what an agent in the guest reports: CoreOS has none.
    pub agent_reports: bool,
    /// Which CoreOS image boots here: `qemu`, `openstack` or `kubevirt`.
    pub image_artifact: &'static str,
    /// Whether the platform fetches images by itself that are given by URL.
    pub fetches_images: bool,
}

impl From<&LibvirtConfig> for Capabilities {
    fn from(_: &LibvirtConfig) -> Self {
        Self {
            concurrency: LIBVIRT_CONCURRENCY,
            // A look is three calls, and costs a millisecond or two.
            poll_interval: Duration::from_millis(150),
            carrier: Carrier::FW_CFG,
            holds_addresses: true,
            pretend: false,
            guests_answer: true,
            agent_reports: false,
            image_artifact: "qemu",
            fetches_images: false,
        }
    }
}

/// How Ignition reaches a machine, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// E.g. `fw_cfg`.
    pub name: &'static str,
    /// Most bytes that it takes, as the platform counts them; `None`: it sets no bound.
    pub limit: Option<usize>,
    /// From how many bytes on a compressed config is preferred; `None`: only over the limit.
    pub compress_above: Option<usize>,
    /// The platform counts the base64 of a config, not the config.
    pub counts_base64: bool,
    /// A bootstrap's config over the limit is put by the backend where the machine fetches it.
    pub bootstrap_fetches: bool,
}

impl Carrier {
    /// libvirt: QEMU loads the file, and neither libvirt nor CoreOS sets a bound.
    ///
    /// A guest's kernel reads each page of it byte by byte from the start, so the time grows with the square of the
    /// size (torvalds/linux: drivers/firmware/qemu_fw_cfg.c, `fw_cfg_read_blob`; coreos/ignition: issue 1259).
    pub const FW_CFG: Self = Self {
        name: "fw_cfg",
        limit: None,
        compress_above: Some(64 << 10),
        counts_base64: false,
        bootstrap_fetches: false,
    };
    /// oVirt: the engine checks no size (oVirt/ovirt-engine: VmInfoBuildUtils, cloud-init payload).
    pub const CUSTOM_SCRIPT: Self = Self {
        name: "custom_script",
        limit: None,
        compress_above: None,
        counts_base64: false,
        bootstrap_fetches: false,
    };
    /// OpenStack: Nova's compute API takes 65535 bytes of base64.
    pub const USER_DATA: Self = Self {
        name: "user_data",
        limit: Some(65_535),
        compress_above: None,
        counts_base64: true,
        bootstrap_fetches: true,
    };
    /// KubeVirt: `userData` in the machine itself (kubevirt/kubevirt: vmi-create-admitter.go).
    pub const INLINE_USER_DATA: Self = Self {
        name: "inline userData",
        limit: Some(2_048),
        compress_above: None,
        counts_base64: false,
        bootstrap_fetches: false,
    };
    /// KubeVirt: a Secret. The API server adds up decoded values (kubernetes/kubernetes: ValidateSecret), and ours has one.
    pub const SECRET: Self = Self {
        name: "Secret",
        limit: Some(1 << 20),
        compress_above: None,
        counts_base64: false,
        bootstrap_fetches: false,
    };

    /// The largest config that fits, in bytes.
    pub fn room(&self) -> Option<usize> {
        // Base64 makes 4 of each 3 bytes begun.
        self.limit
            .map(|limit| if self.counts_base64 { limit / 4 * 3 } else { limit })
    }
}
