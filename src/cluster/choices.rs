//! Settings with a fixed list of choices.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The source of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageSource {
    /// A file on this computer; uploaded once and identified by its digest.
    File(PathBuf),
    /// An existing volume, template or image of the platform.
    Platform(String),
    /// The CoreOS image of the release for the platform.
    Release,
    /// An image of the catalog, by name.
    Catalogue(String),
    /// An HTTP or HTTPS URL; a trailing `#sha256=<hex>` is the checksum of the decompressed content.
    Url(String),
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageSource::File(path) => write!(f, "{}", path.display()),
            ImageSource::Release => f.write_str("CoreOS of the release"),
            ImageSource::Platform(text) | ImageSource::Catalogue(text) | ImageSource::Url(text) => f.write_str(text),
        }
    }
}

/// How pass one determines the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Harvest {
    /// Boots machines of pass one and finds their addresses by MAC.
    Boot,
    /// The platform allocates addresses without a boot.
    Reserve,
    /// The settings contain all addresses.
    Static,
}

impl fmt::Display for Harvest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Harvest::Boot => "boot",
            Harvest::Reserve => "reserve",
            Harvest::Static => "static",
        })
    }
}

/// How the address of a running machine became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    Platform,
    PlannedAddress,
    Network,
    Console,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Platform => "reported by the platform",
            Evidence::PlannedAddress => "answers at the planned address",
            Evidence::Network => "found on the network by its MAC",
            Evidence::Console => "read from its serial console",
        })
    }
}

/// How masters and workers get their config from the machine config server.
///
/// Its certificate has only the name `api-int.<cluster>.<domain>`, so `tls` requires a network DNS that resolves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mcs {
    /// `tls` or `embed`, depending on the platform; see `resolve_mcs`. Never `http`.
    Auto,
    /// `https://api-int.<cluster>.<domain>:22623`, as the installer writes it.
    Tls,
    /// `http://<api_ip>:22624`: anyone on the network can read the secrets in a node's configuration, and can replace
    /// it by another one, which the node applies as root.
    Http,
    /// This program fetches the config from the API's virtual IP with verified TLS, and embeds it in the nodes'
    /// configs.
    Embed,
}

/// The size limit for configs, in bytes, that a platform must have at least for an embedded rendered config. That of
/// openshift/machine-config-operator at 7ff337a4ff has 530 KB, and 111 KB compressed.
const RENDERED: usize = 512 << 10;

impl Mcs {
    /// The effective mode of `Auto`: depends on whether the network's DNS resolves api-int, and on the platform's size
    /// limit for configs in bytes, `None` for no limit.
    ///
    /// `None` if neither `tls` nor `embed` works: only the user may give up the integrity of the nodes' configuration.
    pub fn resolve_mcs(self, dns_knows: bool, limit: Option<usize>) -> Option<Self> {
        match self {
            Mcs::Auto if dns_knows => Some(Mcs::Tls),
            Mcs::Auto if limit.is_none_or(|limit| limit >= RENDERED) => Some(Mcs::Embed),
            Mcs::Auto => None,
            chosen => Some(chosen),
        }
    }
}

/// What creates the Ignition files and waits for the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstallerChoice {
    /// The `openshift-install` at this path, or the one in PATH.
    OpenshiftInstall(Option<PathBuf>),
    /// The built-in fake of a rehearsal.
    Rehearsal,
}

impl InstallerChoice {
    /// The choice without the path, because the same program at another path creates the same cluster.
    pub fn without_path(&self) -> Self {
        match self {
            Self::OpenshiftInstall(_) => Self::OpenshiftInstall(None),
            Self::Rehearsal => Self::Rehearsal,
        }
    }
}

/// Storage of the cluster's own image registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registry {
    /// Its pod's directory; images are lost with the pod.
    EmptyDir,
    /// No registry until storage is configured.
    Removed,
}

/// What resolves the cluster's names on its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dns {
    /// Each node's own dnsmasq, which CoreOS contains.
    Dnsmasq,
    /// The release's CoreDNS, as a static pod on each node.
    Coredns,
    /// The user's name servers; nothing is added to the nodes.
    User,
}

/// When the workers' machines are created.
///
/// By default at once: their addresses are compared before the long wait, and they boot while the masters install.
/// Until the masters are installed, no server has the workers' config; Ignition retries without a limit. Creating
/// them later saves resources in the meantime, such as memory on a small host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkersWhen {
    /// Together with all other machines.
    Now,
    /// When the control plane runs and the bootstrap machine is deleted.
    Ready,
}

/// What forwards requests for the VIPs to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lb {
    /// keepalived and haproxy on the nodes.
    Keepalived,
    /// The user's load balancer, which has the VIPs; nothing is added to the nodes.
    User,
    /// The platform's own load balancers; nothing is added to the nodes.
    Platform,
}

/// What reserves each address for its MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dhcp {
    /// The platform, if it can.
    Platform,
    /// The user's DHCP server; the platform is not used.
    User,
    /// Nothing: the network has no DHCP server, and each node's config has its address.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn auto_selects_only_authenticated_modes() {
        let user_data = Some(49_149);
        for (wish, dns_knows, limit, expected) in [
            (Mcs::Auto, true, user_data, Some(Mcs::Tls)),
            (Mcs::Auto, true, None, Some(Mcs::Tls)),
            (Mcs::Auto, false, None, Some(Mcs::Embed)),
            (Mcs::Auto, false, Some(1 << 20), Some(Mcs::Embed)),
            (Mcs::Auto, false, user_data, None),
            (Mcs::Tls, false, None, Some(Mcs::Tls)),
            (Mcs::Http, true, None, Some(Mcs::Http)),
            (Mcs::Embed, true, user_data, Some(Mcs::Embed)),
        ] {
            assert_eq!(
                wish.resolve_mcs(dns_knows, limit),
                expected,
                "{wish:?} {dns_knows} {limit:?}"
            );
        }
    }
}
