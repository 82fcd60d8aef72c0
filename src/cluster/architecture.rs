//! The architectures of OpenShift, and their names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The architecture of a machine. Its text is the name that RPM, CoreOS and libvirt use (libvirt/libvirt:
/// `src/util/virarch.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Also that of records without an architecture, which are older than the setting `arch`.
    #[default]
    #[serde(rename = "x86_64")]
    X86_64,
    Aarch64,
    Ppc64le,
    S390x,
}

impl Architecture {
    pub const ALL: [Self; 4] = [Self::X86_64, Self::Aarch64, Self::Ppc64le, Self::S390x];

    /// That of the computer on which this program runs.
    pub const THIS_COMPUTER: Self = match () {
        () if cfg!(target_arch = "aarch64") => Self::Aarch64,
        () if cfg!(all(target_arch = "powerpc64", target_endian = "little")) => Self::Ppc64le,
        () if cfg!(target_arch = "s390x") => Self::S390x,
        () => Self::X86_64,
    };

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Ppc64le => "ppc64le",
            Self::S390x => "s390x",
        }
    }

    /// The name in Go, OCI images, Kubernetes and install-config.yaml.
    pub const fn go(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
            Self::Ppc64le | Self::S390x => self.as_str(),
        }
    }

    /// The architecture in the name of a file or an image, by any of its names.
    pub fn in_name(name: &str) -> Option<Self> {
        let name = name
            .to_ascii_lowercase()
            .replace(Self::X86_64.as_str(), Self::X86_64.go());
        let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
        words.find_map(|word| {
            Self::ALL
                .into_iter()
                .find(|arch| [arch.as_str(), arch.go()].contains(&word))
        })
    }

    /// The name of a local image file: `rhcos.qcow2` for x86_64, otherwise such as `rhcos-aarch64.qcow2`.
    pub fn image_file(self, name: &str) -> String {
        match self {
            Self::X86_64 => format!("{name}.qcow2"),
            other => format!("{name}-{other}.qcow2"),
        }
    }

    /// For records and digests that older versions wrote without an architecture.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// For which architectures a release is: for one, or, as release `multi`, for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ReleaseArchitecture {
    Single(Architecture),
    Multi,
}

impl ReleaseArchitecture {
    /// By its name in the metadata of a release and in the output of openshift-install; `None` if it is another word.
    pub fn read(name: &str) -> Option<Self> {
        let single = Architecture::ALL.into_iter().find(|arch| arch.go() == name);
        match name {
            "multi" => Some(Self::Multi),
            _ => single.map(Self::Single),
        }
    }

    /// Whether it is for all architectures that are wanted.
    pub fn covers(self, wanted: Self) -> bool {
        self == Self::Multi || self == wanted
    }
}

impl fmt::Display for ReleaseArchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(arch) => arch.fmt(f),
            Self::Multi => f.pad("multi"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_is_found_in_a_name_by_each_of_its_names() {
        for (name, expected) in [
            ("rhcos-4.19.0-x86_64-qemu.x86_64.qcow2", Some(Architecture::X86_64)),
            ("rhcos-4.19.0-aarch64-qemu.aarch64.qcow2", Some(Architecture::Aarch64)),
            (
                "fedora-coreos-42.20250609.3.0-qemu.s390x.qcow2.xz",
                Some(Architecture::S390x),
            ),
            ("debian-12-genericcloud-ARM64.qcow2", Some(Architecture::Aarch64)),
            ("debian-12-genericcloud-amd64.qcow2", Some(Architecture::X86_64)),
            ("registry.example.com/ocp:4.19.3-ppc64le", Some(Architecture::Ppc64le)),
            ("mine_arm64.qcow2", Some(Architecture::Aarch64)),
            ("mine.qcow2", None),
        ] {
            assert_eq!(Architecture::in_name(name), expected, "{name}");
        }
    }

    #[test]
    fn text_and_serialized_form_are_the_same() {
        for arch in Architecture::ALL {
            assert_eq!(serde_json::to_value(arch).unwrap(), arch.to_string());
        }
    }
}
