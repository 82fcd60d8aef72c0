//! Names of volumes. The name is the only place for the ownership tag of a volume.
//!
//! Names of clusters, machines and parts contain no underscore. So `lab.example.com` cannot be confused with
//! `a.lab.example.com`, nor machine `lab-master-1` with `lab-master-10`.

use crate::cluster::{ClusterId, MachineName};

/// The purpose of a volume, read from its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Volume {
    /// A volume of one machine.
    OfMachine { cluster: ClusterId, machine: MachineName },
    /// A marker that a cluster uses an image: an empty volume, created before the search for the image.
    Uses { cluster: ClusterId, image: ImageKey },
    /// A marker that a cluster is about to release an image, and may delete it.
    Leaves { cluster: ClusterId, image: ImageKey },
    /// A shared image.
    Image(ImageKey),
}

/// The first half of the sha256 of an image's bytes, hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ImageKey(String);

impl ImageKey {
    const DIGITS: usize = 32;

    /// From the complete digest; `None` if it is invalid.
    pub fn of_digest(sha256: &str) -> Option<Self> {
        sha256.get(..Self::DIGITS).and_then(Self::read)
    }

    fn read(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (digits && text.len() == Self::DIGITS).then(|| Self(text.to_owned()))
    }

    pub fn volume(&self) -> String {
        format!("ocpdeploy_image_{}.qcow2", self.0)
    }

    pub fn uses(&self, cluster: &ClusterId) -> String {
        format!("ocpdeploy_{}_uses-{}", cluster.tag(), self.0)
    }

    pub fn leaves(&self, cluster: &ClusterId) -> String {
        format!("ocpdeploy_{}_leaves-{}", cluster.tag(), self.0)
    }
}

/// The volumes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Disk,
    /// An extra disk, from 0.
    Extra(usize),
    Ignition,
    Seed,
    Console,
}

impl Part {
    pub fn volume(self, cluster: &ClusterId, machine: &MachineName) -> String {
        let part = match self {
            Part::Disk => "disk.qcow2".to_owned(),
            Part::Extra(index) => format!("extra-{index}.qcow2"),
            Part::Ignition => "config.ign".to_owned(),
            Part::Seed => "seed.img".to_owned(),
            Part::Console => "console.log".to_owned(),
        };
        format!("ocpdeploy_{}_{machine}_{part}", cluster.tag())
    }
}

impl Volume {
    /// `None` if the name has another form.
    pub fn read(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split('_').collect();
        match parts.as_slice() {
            ["ocpdeploy", "image", file] => {
                let key = file.strip_suffix(".qcow2").and_then(ImageKey::read)?;
                Some(Volume::Image(key))
            }
            ["ocpdeploy", cluster, mark] => {
                let cluster = ClusterId::read(cluster)?;
                let (verb, image) = mark.split_once('-')?;
                let image = ImageKey::read(image)?;
                match verb {
                    "uses" => Some(Volume::Uses { cluster, image }),
                    "leaves" => Some(Volume::Leaves { cluster, image }),
                    _ => None,
                }
            }
            // There may be other parts than those of `Part`: virtlogd appends `.0` to a full console log.
            ["ocpdeploy", cluster, machine, part] if !part.is_empty() => Some(Volume::OfMachine {
                cluster: ClusterId::read(cluster)?,
                machine: machine.parse().ok()?,
            }),
            _ => None,
        }
    }

    /// The only cluster that uses the volume.
    pub fn owner(&self) -> Option<&ClusterId> {
        match self {
            Volume::OfMachine { cluster, .. } | Volume::Uses { cluster, .. } | Volume::Leaves { cluster, .. } => {
                Some(cluster)
            }
            Volume::Image(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_belongs_to_exactly_one_cluster_and_machine() {
        let clusters = [
            "lab.example.com.x7k2pqrs",
            "lab.example.com.x7k2pqrt",
            "lab-2.example.com.x7k2pqrs",
            "a.lab.example.com.x7k2pqrs",
            "lab.example.co.x7k2pqrs",
        ];
        let machines = ["lab-master-1", "lab-master-10", "lab-master", "lab", "uses", "image"];
        let parts = [
            Part::Disk,
            Part::Extra(0),
            Part::Extra(10),
            Part::Ignition,
            Part::Seed,
            Part::Console,
        ];
        for cluster in clusters.map(|tag| ClusterId::read(tag).unwrap()) {
            for machine in machines.map(|name| name.parse::<MachineName>().unwrap()) {
                for part in parts {
                    let read = Volume::read(&part.volume(&cluster, &machine));
                    let (cluster, machine) = (cluster.clone(), machine.clone());
                    assert_eq!(read, Some(Volume::OfMachine { cluster, machine }));
                }
            }
        }
    }

    #[test]
    fn images_and_markers_are_distinguished() {
        let digest = "ab".repeat(32);
        let key = ImageKey::of_digest(&digest).unwrap();
        let cluster = ClusterId::read("lab.example.com.x7k2pqrs").unwrap();
        let image = key.clone();
        assert_eq!(Volume::read(&key.volume()), Some(Volume::Image(key.clone())));
        assert_eq!(
            Volume::read(&key.leaves(&cluster)),
            Some(Volume::Leaves {
                cluster: cluster.clone(),
                image: key.clone()
            })
        );
        assert_eq!(Volume::read(&key.uses(&cluster)), Some(Volume::Uses { cluster, image }));
        assert_eq!(ImageKey::of_digest("abc"), None);
        assert_eq!(ImageKey::of_digest(&"ABCD".repeat(16)), None);
    }

    #[test]
    fn other_volumes_have_no_owner() {
        for name in [
            "lab-master-0.qcow2",
            "ocpdeploy_lab.example.com_lab-master-0_disk.qcow2",
            "ocpdeploy",
            "ocpdeploy_lab.example.com.x7k2pqrs",
            "ocpdeploy_lab.example.com.x7k2pqrs_lab-master-0",
            "ocpdeploy_lab.example.com.x7k2pqrs_lab-master-0_",
            "ocpdeploy__lab-master-0_disk.qcow2",
            "ocpdeploy_lab.example.com.x7k2pqrs_lab-master-0_disk_qcow2",
            "my_ocpdeploy_lab.example.com.x7k2pqrs_lab-master-0_disk.qcow2",
            "ocpdeploy-lab.example.com.x7k2pqrs_lab-master-0_disk.qcow2",
            "ocpdeploy_image_backup.qcow2",
            "ocpdeploy_lab.example.com.x7k2pqrs_uses-1234",
            "ocpdeploy_lab example_lab-master-0_disk.qcow2",
        ] {
            assert_eq!(Volume::read(name), None, "{name}");
        }
    }
}
