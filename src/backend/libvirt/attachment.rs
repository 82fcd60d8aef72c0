//! What a NIC is attached to: a libvirt network, or a device of its host.

use virt::connect::Connect;
use virt::error::ErrorNumber;

use super::session::{checked_text, if_supported};
use crate::backend::{BackendError, BackendErrorKind, Finding};
use crate::xml::Element;

/// As given by `network` and `extra_networks`; the elements are those of libvirt: docs/formatdomain.rst, "Network
/// interfaces".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attachment<'a> {
    /// A libvirt network.
    Network(&'a str),
    /// `bridge:br0`: a Linux bridge.
    Bridge(&'a str),
    /// `ovs:br-ex`: an Open vSwitch bridge.
    OpenVswitch(&'a str),
    /// `macvtap:eth0`: a device of the host, shared with it.
    Macvtap(&'a str),
}

impl<'a> Attachment<'a> {
    pub fn read(network: &'a str) -> Self {
        match network.split_once(':') {
            Some(("bridge", device)) => Self::Bridge(device),
            Some(("ovs", device)) => Self::OpenVswitch(device),
            Some(("macvtap", device)) => Self::Macvtap(device),
            _ => Self::Network(network),
        }
    }

    /// The device of the host; `None` for a libvirt network.
    pub fn device(self) -> Option<&'a str> {
        match self {
            Self::Network(_) => None,
            Self::Bridge(device) | Self::OpenVswitch(device) | Self::Macvtap(device) => Some(device),
        }
    }

    /// The NIC without its MAC and model.
    pub fn to_xml(self) -> Element {
        let interface = |kind| Element::new("interface").attr("type", kind);
        match self {
            Self::Network(name) => interface("network").child(Element::new("source").attr("network", name)),
            Self::Bridge(device) => interface("bridge").child(Element::new("source").attr("bridge", device)),
            Self::OpenVswitch(device) => interface("bridge")
                .child(Element::new("source").attr("bridge", device))
                .child(Element::new("virtualport").attr("type", "openvswitch")),
            Self::Macvtap(device) => {
                let source = Element::new("source").attr("dev", device).attr("mode", "bridge");
                interface("direct").child(source)
            }
        }
    }

    /// The setting that led to a NIC.
    pub fn setting(interface: &Element) -> Option<String> {
        let source = |attribute| interface.value("source", attribute);
        match interface.get("type")? {
            // A running domain also has the bridge of its network.
            "network" => source("network").map(str::to_owned),
            "bridge" if interface.value("virtualport", "type") == Some("openvswitch") => {
                source("bridge").map(|device| format!("ovs:{device}"))
            }
            "bridge" => source("bridge").map(|device| format!("bridge:{device}")),
            "direct" => source("dev").map(|device| format!("macvtap:{device}")),
            _ => None,
        }
    }
}

/// Whether the host has a network device of this name. `None` where this libvirt cannot list devices.
pub(super) fn host_has(connect: &Connect, device: &str) -> Result<Option<bool>, BackendError> {
    let found = connect.lookup_interface_by_name(checked_text("device name", device)?);
    match if_supported(found.map_err(BackendError::from)) {
        Ok(found) => Ok(found.map(|_| true)),
        Err(failure) if failure.is(ErrorNumber::NoInterface) => Ok(Some(false)),
        Err(failure) => Err(failure),
    }
}

/// Rejects a device that the host does not have.
pub(super) fn require_device(connect: &Connect, device: &str) -> Result<(), BackendError> {
    match host_has(connect, device)? {
        Some(false) => {
            let failure = BackendError::new(
                BackendErrorKind::NotFound,
                format!("network device `{device}` does not exist on the host"),
            );
            Err(failure.hint("set `network` to an existing device: list them with `ip -br link` on the host"))
        }
        _ => Ok(()),
    }
}

/// The finding of preflight about a NIC on this device.
pub(super) fn finding(attachment: Attachment<'_>, device: &str) -> Finding {
    match attachment {
        Attachment::Macvtap(_) => Finding::warn(format!(
            "machines on macvtap:{device} and their host cannot reach each other"
        ))
        .hint("run ocpdeploy on another computer of this network, or use a bridge: network=bridge:br0"),
        _ => Finding::ok(format!("network device {device} exists")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_back_from_its_nic() {
        for setting in [
            "default",
            "R&D <net>",
            "bridge:br0",
            "ovs:br-ex",
            "macvtap:enp1s0",
            "other:x",
        ] {
            let interface = Attachment::read(setting).to_xml();
            let read = crate::xml::parse(&interface.to_string()).unwrap();
            assert_eq!(Attachment::setting(&read).as_deref(), Some(setting));
        }
    }
}
