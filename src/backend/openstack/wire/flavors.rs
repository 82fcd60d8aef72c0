//! Flavors, and which of them is large enough.

use std::fmt::Write;

use serde_json::Value;

use super::common::text;
use crate::cluster::{Architecture, OsBoot};
use crate::printable::count;

/// A flavor of Nova.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flavor {
    pub id: String,
    pub name: String,
    pub cpus: u64,
    pub memory_mib: u64,
    pub disk_gib: u64,
    pub ephemeral_gib: u64,
    /// It requires special hardware, so it is used only if it is named.
    pub is_special: bool,
    /// The architecture of the hosts, if a trait requires it.
    pub arch: Option<Architecture>,
}

impl Flavor {
    pub fn read(flavor: &Value) -> Self {
        let number = |key: &str| flavor[key].as_u64().unwrap_or_default();
        Self {
            id: text(flavor, "id").to_owned(),
            name: text(flavor, "name").to_owned(),
            cpus: number("vcpus"),
            memory_mib: number("ram"),
            disk_gib: number("disk"),
            ephemeral_gib: number("OS-FLV-EXT-DATA:ephemeral"),
            is_special: is_special(&flavor["extra_specs"]),
            arch: required_arch(&flavor["extra_specs"]),
        }
    }
}

/// The architecture of a required trait, such as HW_ARCH_AARCH64 (openstack/os-traits: `os_traits/hw/arch.py`).
fn required_arch(extra_specs: &Value) -> Option<Architecture> {
    let mut required = extra_specs
        .as_object()?
        .iter()
        .filter(|(_, value)| *value == "required");
    required.find_map(|(key, _)| {
        let (_, name) = key.split_once(":HW_ARCH_")?;
        Architecture::ALL
            .into_iter()
            .find(|arch| arch.as_str().eq_ignore_ascii_case(name))
    })
}

/// Whether a flavor requires devices, bare metal, traits or dedicated CPUs (openstack/nova:
/// `doc/source/user/flavors.rst`, extra specs; in lists since microversion 2.61, unless a policy hides them).
fn is_special(extra_specs: &Value) -> bool {
    let is_special = |(key, value): (&String, &Value)| {
        // A number may follow: `trait1:`, `resources_NIC:`.
        let group = key.split(':').next().unwrap_or_default();
        let value = value.as_str().unwrap_or_default();
        group.starts_with("resources")
            || group.starts_with("trait")
            || matches!(key.as_str(), "pci_passthrough:alias" | "accel:device_profile")
            || key == "hw:cpu_policy" && matches!(value, "dedicated" | "mixed")
            || key == "capabilities:hypervisor_type" && value.eq_ignore_ascii_case("ironic")
    };
    extra_specs.as_object().into_iter().flatten().any(is_special)
}

/// What a machine requires of a flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlavorRequirements {
    pub cpus: u64,
    pub memory_mib: u64,
    /// 0 if the boot disk is a volume.
    pub disk_gib: u64,
    pub ephemeral_gib: u64,
}

impl FlavorRequirements {
    pub fn of(
        cpus: u32,
        memory_mib: u64,
        disk_gib: u64,
        extra_disks_gib: &[u64],
        boot: OsBoot,
        has_volumes: bool,
    ) -> Self {
        Self {
            cpus: cpus.into(),
            memory_mib,
            disk_gib: match boot {
                OsBoot::Image => disk_gib,
                OsBoot::Volume => 0,
            },
            ephemeral_gib: match has_volumes {
                true => 0,
                false => extra_disks_gib.iter().sum(),
            },
        }
    }

    /// What is missing in a flavor, as part of a message.
    pub fn lacks(&self, flavor: &Flavor) -> Option<String> {
        let pairs = [
            (flavor.cpus, self.cpus, "CPUs"),
            (flavor.memory_mib, self.memory_mib, "MiB of memory"),
            (flavor.disk_gib, self.disk_gib, "GiB of disk"),
            (flavor.ephemeral_gib, self.ephemeral_gib, "GiB of ephemeral disks"),
        ];
        let short = pairs.iter().filter(|(has, wanted, _)| has < wanted);
        let message: Vec<_> = short
            .map(|(has, wanted, what)| format!("{has} of {wanted} {what}"))
            .collect();
        (!message.is_empty()).then(|| message.join(", "))
    }

    /// The smallest flavor that is large enough; the reason if there is none.
    pub fn choose<'a>(&self, flavors: &'a [Flavor]) -> Result<&'a Flavor, String> {
        let size = |flavor: &&Flavor| (flavor.memory_mib, flavor.cpus, flavor.disk_gib, flavor.ephemeral_gib);
        let is_fitting = |flavor: &&Flavor| !flavor.is_special && self.lacks(flavor).is_none();
        let fitting = flavors.iter().filter(is_fitting);
        fitting.min_by_key(size).ok_or_else(|| {
            let near = flavors.iter().filter(|flavor| !flavor.is_special).max_by_key(size);
            let near = near.and_then(|flavor| {
                Some(format!(
                    "; the largest, {}, has only {}",
                    flavor.name,
                    self.lacks(flavor)?
                ))
            });
            let Self { cpus, memory_mib, .. } = self;
            let mut message = format!("no flavor has {}, {memory_mib} MiB", count(*cpus, "CPU"));
            if self.disk_gib > 0 {
                let _ = write!(message, ", {} GiB of disk", self.disk_gib);
            }
            if self.ephemeral_gib > 0 {
                let _ = write!(message, ", {} GiB of ephemeral disks", self.ephemeral_gib);
            }
            if flavors
                .iter()
                .any(|flavor| flavor.is_special && self.lacks(flavor).is_none())
            {
                message += " (those with GPUs, bare metal, traits or dedicated CPUs are used only if they are named)";
            }
            message + &near.unwrap_or_default()
        })
    }

    /// The flavor of this name or id; the reason if it cannot be used.
    pub fn named<'a>(&self, name: &str, flavors: &'a [Flavor]) -> Result<&'a Flavor, String> {
        let named = flavors.iter().find(|flavor| flavor.id == name || flavor.name == name);
        let flavor = named.ok_or_else(|| format!("flavor {name} does not exist"))?;
        // CPUs and memory of a configured flavor are the user's choice. A disk that is too small does not boot.
        let disks = Self {
            cpus: 0,
            memory_mib: 0,
            ..*self
        };
        match disks.lacks(flavor) {
            Some(short) => Err(format!("flavor {name} has only {short}")),
            None => Ok(flavor),
        }
    }
}
