//! Names of machines and nodes; roles, passes, MACs and address assignments.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::identity::is_label;
use super::text_type::text_type;

/// The name of a machine on the platform, e.g. `lab-master-0` or `lab-harvest-master-0`.
///
/// A DNS label, so that it needs no escaping in paths, URLs and files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineName(String);

impl MachineName {
    /// The machine of pass two: `<cluster>-<node>`.
    pub fn of_node(cluster: &str, node: &NodeName) -> Self {
        Self(format!("{cluster}-{node}"))
    }

    /// The machine of pass one, which never has a node's name: `<cluster>-harvest-<role>-<n>`.
    pub fn of_harvest(cluster: &str, role: Role, index: usize) -> Self {
        Self(format!("{cluster}-harvest-{role}-{index}"))
    }

    /// The machine of pass one for a node of a pool: `<cluster>-harvest-<pool>-<n>`.
    pub fn of_harvest_in_pool(cluster: &str, pool: &str, index: usize) -> Self {
        Self(format!("{cluster}-harvest-{pool}-{index}"))
    }

    /// The machine of pass one that an object belongs to, by the object's name, e.g. that of a disk; `None` for others.
    pub fn of_harvest_in(cluster: &str, thing: &str) -> Option<Self> {
        let (_, rest) = thing.split_once(&format!("{cluster}-harvest-"))?;
        let (role_or_pool, rest) = rest.split_once('-')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let is_name = !role_or_pool.is_empty() && role_or_pool.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let index = rest[..end].parse().ok().filter(|_| is_name)?;
        Some(Self::of_harvest_in_pool(cluster, role_or_pool, index))
    }

    /// The name of its node, for a machine of pass two of this cluster.
    pub fn node_in(&self, cluster: &str) -> &str {
        let node = self.0.strip_prefix(cluster).and_then(|node| node.strip_prefix('-'));
        node.unwrap_or(&self.0)
    }

    /// The role: names of both passes end in role or pool and number. All but workers count as masters.
    pub fn role(&self) -> Role {
        let mut parts = self.0.rsplit('-');
        let is_number = parts.next().is_some_and(|last| last.parse::<usize>().is_ok());
        match parts.next().map(str::parse) {
            Some(Ok(Role::Worker) | Err(_)) if is_number => Role::Worker,
            _ => Role::Master,
        }
    }

    /// The pool of the machine's node; `None` for nodes outside of pools, and for most machines of pass one.
    pub fn pool(&self) -> Option<&str> {
        let (name, number) = self.0.rsplit_once('-')?;
        let (_, pool) = name.rsplit_once('-')?;
        let is_number = number.parse::<usize>().is_ok();
        (is_number && pool.parse::<Role>().is_err()).then_some(pool)
    }
}

text_type!(MachineName, is_label, "a machine's name, such as lab-master-0");

/// The name of a node or VIP in its cluster: `bootstrap`, `master-0`, `worker-1`, `api`, `ingress`.
///
/// A DNS label, so that it needs no escaping in paths, URLs and files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    /// A node's name begins with its role or its pool; other names, such as `api`, count as masters.
    pub fn role(&self) -> Role {
        let role = self.0.split('-').next().and_then(|role| role.parse().ok());
        let of_pool = self.pool().map(|_| Role::Worker);
        role.or(of_pool).unwrap_or(Role::Master)
    }

    /// The pool of the node: `infra` of `infra-0`; `None` for all names that begin with a role or have no number.
    pub fn pool(&self) -> Option<&str> {
        let (pool, _) = self.0.rsplit_once('-')?;
        (self.number().is_some() && pool.parse::<Role>().is_err()).then_some(pool)
    }

    /// The number at the end: 1 of `worker-1`.
    pub fn number(&self) -> Option<usize> {
        let (_, number) = self.0.rsplit_once('-')?;
        number.parse().ok()
    }

    pub fn bootstrap() -> Self {
        Self("bootstrap".to_owned())
    }

    pub fn node(role: Role, index: usize) -> Self {
        match role {
            Role::Bootstrap => Self::bootstrap(),
            _ => Self(format!("{role}-{index}")),
        }
    }

    /// A node of a pool, whose name is no role and contains no hyphen.
    pub fn of_pool(pool: &str, index: usize) -> Self {
        Self(format!("{pool}-{index}"))
    }

    pub fn vip(vip: Vip) -> Self {
        Self(vip.to_string())
    }
}

text_type!(NodeName, is_label, "a node's name, such as master-0");

/// The purpose of a machine. A `helper` is the pass-one machine that obtains a virtual IP.
///
/// The arbiter is a member of etcd without an API server, a machine config server or routers (openshift/enhancements:
/// `enhancements/arbiter-clusters.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Bootstrap,
    Master,
    Arbiter,
    Worker,
    Helper,
}

impl Role {
    /// Whether each of its nodes is a member of etcd.
    pub fn has_etcd(self) -> bool {
        matches!(self, Self::Master | Self::Arbiter)
    }

    /// The VIPs that a node of this role may have.
    pub fn vips(self) -> &'static [Vip] {
        match self {
            Self::Bootstrap | Self::Master => &Vip::ALL,
            Self::Worker => &[Vip::Ingress],
            Self::Arbiter | Self::Helper => &[],
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Bootstrap => "bootstrap",
            Role::Master => "master",
            Role::Arbiter => "arbiter",
            Role::Worker => "worker",
            Role::Helper => "helper",
        })
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bootstrap" => Ok(Role::Bootstrap),
            "master" => Ok(Role::Master),
            "arbiter" => Ok(Role::Arbiter),
            "worker" => Ok(Role::Worker),
            "helper" => Ok(Role::Helper),
            other => Err(format!("`{other}` is not a role")),
        }
    }
}

/// A virtual IP of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vip {
    Api,
    Ingress,
}

impl Vip {
    pub const ALL: [Vip; 2] = [Vip::Api, Vip::Ingress];
}

impl fmt::Display for Vip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Vip::Api => "api",
            Vip::Ingress => "ingress",
        })
    }
}

/// One of the two passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    One,
    Two,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pass::One => "one",
            Pass::Two => "two",
        })
    }
}

impl FromStr for Pass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "one" => Ok(Pass::One),
            "two" => Ok(Pass::Two),
            other => Err(format!("`{other}` is not a pass")),
        }
    }
}

/// An Ethernet address; written in lower case with colons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether it is a unicast address other than zero, as a NIC requires.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a MAC address; example: 52:54:00:12:34:56");
        let mut bytes = [0u8; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(bad)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Mac(bytes))
    }
}

impl Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The address of one node or VIP: found by pass one, used by pass two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressAssignment {
    pub name: NodeName,
    pub mac: Mac,
    pub ip: IpAddr,
}

/// `(4, 19)` of `4.19.3-rc.1`.
pub fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_of_pass_one_is_found_in_the_names_of_its_objects() {
        for (thing, machine) in [
            (
                "ocpdeploy_lab.example.com_lab-harvest-master-12_disk.qcow2",
                Some("lab-harvest-master-12"),
            ),
            ("lab-harvest-helper-0", Some("lab-harvest-helper-0")),
            ("lab-harvest-bootstrap-0:port0", Some("lab-harvest-bootstrap-0")),
            ("lab-harvest-gpu-0", Some("lab-harvest-gpu-0")),
            ("lab-harvest-a.b-0", None),
            ("lab-harvest-master-", None),
            ("lab-master-0", None),
        ] {
            let found = MachineName::of_harvest_in("lab", thing);
            assert_eq!(found.as_ref().map(MachineName::as_str), machine, "{thing}");
        }
    }

    #[test]
    fn a_name_says_role_and_pool() {
        for (node, role, pool) in [
            ("bootstrap", Role::Bootstrap, None),
            ("master-0", Role::Master, None),
            ("arbiter-0", Role::Arbiter, None),
            ("worker-12", Role::Worker, None),
            ("infra-0", Role::Worker, Some("infra")),
            ("api", Role::Master, None),
            ("ingress", Role::Master, None),
        ] {
            let name = node.parse::<NodeName>().unwrap();
            assert_eq!((name.role(), name.pool()), (role, pool), "{node}");
            // All but workers are on one platform.
            let expected = if role == Role::Worker { role } else { Role::Master };
            assert_eq!(MachineName::of_node("lab-7", &name).role(), expected, "{node}");
        }
        assert_eq!(MachineName::of_harvest("lab", Role::Worker, 3).role(), Role::Worker);
        for other in ["lab-harvest-helper-0", "lab-harvest-bootstrap-0", "lab-bootstrap"] {
            assert_eq!(other.parse::<MachineName>().unwrap().role(), Role::Master, "{other}");
        }
    }

    #[test]
    fn macs_are_read_strictly_and_written_in_lower_case() {
        assert_eq!(
            "52:54:00:AB:cd:0f".parse::<Mac>().unwrap().to_string(),
            "52:54:00:ab:cd:0f"
        );
        for bad in [
            "",
            "52:54:00:ab:cd",
            "52:54:00:ab:cd:0f:00",
            "52-54-00-ab-cd-0f",
            "52:54:00:ab:cd:g0",
            "52:54:00:ab:cd:+1",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
        assert!(!"01:00:5e:00:00:01".parse::<Mac>().unwrap().is_unicast());
    }
}
