//! The domain XML of a machine: writing and reading.

use uuid::Uuid;
use virt::connect::Connect;

use super::attachment::Attachment;
use super::ffi::DhcpLease;
use super::session::{document, if_supported};
use crate::backend::ownership::Ownership;
use crate::backend::{BackendError, BackendErrorKind, MachineSpec, Nic};
use crate::cluster::{Architecture, ClusterId, DiskCache, MachineName, VirtType};
use crate::xml::Element;

/// The namespace of the ownership tag in a domain's metadata.
const NAMESPACE: &str = "https://ocpdeploy.dev/1";

/// The namespace of the leases in a domain's metadata, and the prefix of their element. libvirt replaces all elements of
/// one namespace (libvirt/libvirt: src/conf/domain_conf.c, `virDomainDefSetMetadata`).
pub(super) const LEASES: (&str, &str) = ("https://ocpdeploy.dev/leases/1", "ocpdeploy-leases");

/// What the machines of an architecture have.
struct Hardware {
    /// QEMU's name of the machine type, without its version.
    machine: &'static str,
    /// The elements in `features`. Without ACPI, virtio NICs of q35 get no interrupts.
    features: &'static [&'static str],
    /// Whether it boots by UEFI, which the host must have. The others boot by firmware of QEMU itself.
    efi: bool,
    /// Whether Ignition reads its config from fw_cfg, otherwise from a disk with serial number `ignition`
    /// (coreos/ignition: `internal/providers/qemu`).
    fw_cfg: bool,
}

const fn hardware(arch: Architecture) -> Hardware {
    let (machine, features, efi, fw_cfg): (_, &[&str], _, _) = match arch {
        Architecture::X86_64 => ("q35", &["acpi", "apic"], false, true),
        Architecture::Aarch64 => ("virt", &["acpi"], true, true),
        Architecture::Ppc64le => ("pseries", &[], false, false),
        Architecture::S390x => ("s390-ccw-virtio", &[], false, false),
    };
    Hardware {
        machine,
        features,
        efi,
        fw_cfg,
    }
}

/// Whether machines read their Ignition config from fw_cfg, otherwise from a disk.
pub(super) const fn reads_fw_cfg(arch: Architecture) -> bool {
    hardware(arch).fw_cfg
}

/// The virtualization of this host for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPlatform {
    /// `kvm`, `qemu` or another type of this driver.
    pub domain_type: String,
    arch: Architecture,
    /// The architecture's name on this host.
    arch_name: String,
    /// That of `hardware` if supported, else the driver's default.
    machine: Option<&'static str>,
    cpu: Option<Element>,
    /// Whether its machines are emulated because the host has another architecture.
    pub is_foreign: bool,
}

impl HostPlatform {
    /// Reads the capabilities of the host, and of the domains of this architecture on it.
    pub fn of(connect: &Connect, arch: Architecture, virt_type: VirtType) -> Result<Self, BackendError> {
        let chosen = Self::choose(&document(connect.capabilities())?, arch, virt_type)?;
        let kind = Some(chosen.domain_type.as_str());
        let described = connect.domain_capabilities(None, Some(&chosen.arch_name), chosen.machine, kind, 0);
        let described = if_supported(described.map_err(BackendError::from))?;
        match described {
            Some(described) => chosen.with(&crate::xml::parse(&described)?),
            None => Ok(chosen),
        }
    }

    /// Selects from the host's capabilities.
    fn choose(capabilities: &Element, arch: Architecture, virt_type: VirtType) -> Result<Self, BackendError> {
        let rejected = |words: String| BackendError::new(BackendErrorKind::Rejected, words);
        let hvm = |guest: &&Element| guest.find("os_type").is_some_and(|os| os.text == "hvm");
        let guests = capabilities.all("guest").into_iter().filter(hvm);
        let archs: Vec<&Element> = guests.flat_map(|guest| guest.all("arch")).collect();
        let named = |name: &str| archs.iter().find(|arch| arch.get("name") == Some(name)).copied();
        let host = capabilities.text_of("host/cpu/arch");
        // libvirt's test driver has only i686.
        let i686 = (arch == Architecture::X86_64).then(|| named("i686")).flatten();
        let Some(found) = named(arch.as_str()).or(i686) else {
            let host = host.unwrap_or("unknown");
            let words = format!("the host, of architecture {host}, cannot run machines of {arch}");
            return Err(rejected(words).hint(format!("install QEMU for {arch} on the host, or set arch={host}")));
        };
        let domains = found.all("domain").into_iter();
        let offered: Vec<&str> = domains.filter_map(|domain| domain.get("type")).collect();
        let wanted = match virt_type {
            VirtType::Kvm => offered.iter().find(|offer| **offer == "kvm"),
            VirtType::Qemu => offered.iter().find(|offer| **offer == "qemu"),
            VirtType::Auto => ["kvm", "qemu"]
                .iter()
                .find(|wanted| offered.contains(wanted))
                .or(offered.first()),
        };
        let Some(domain_type) = wanted else {
            let words = format!("the host supports only domain type {} for {arch}", offered.join(", "));
            return Err(rejected(words).hint("set libvirt_virt_type=auto"));
        };
        let machines = found.all("machine").into_iter().chain(found.all("domain/machine"));
        let wanted = hardware(arch).machine;
        let has_machine = machines.into_iter().any(|machine| machine.text == wanted);
        let arch_name = found.get("name").unwrap_or(arch.as_str());
        Ok(Self {
            domain_type: (*domain_type).to_owned(),
            arch,
            arch_name: arch_name.to_owned(),
            machine: has_machine.then_some(wanted),
            cpu: None,
            is_foreign: *domain_type == "qemu" && host.is_some_and(|host| host != arch_name),
        })
    }

    /// Selects from the capabilities of the chosen domains.
    fn with(self, domain: &Element) -> Result<Self, BackendError> {
        let supported = |mode: &str| {
            let mut modes = domain.all("cpu/mode").into_iter();
            modes.any(|known| known.get("name") == Some(mode) && known.get("supported") == Some("yes"))
        };
        let cpu = Element::new("cpu");
        let cpu = match self.domain_type.as_str() {
            "kvm" => Some(cpu.attr("mode", "host-passthrough")),
            _ if supported("maximum") => Some(cpu.attr("mode", "maximum")),
            // x86-64-v2, which CoreOS requires; QEMU's default CPU is older. Before libvirt 7.1.
            "qemu" if self.arch == Architecture::X86_64 => {
                let cpu = cpu.attr("mode", "custom").attr("match", "exact");
                Some(cpu.child(Element::new("model").text("Nehalem")))
            }
            // QEMU's default for pseries is recent.
            _ => None,
        };
        let firmware = domain.all("os/enum/value");
        if hardware(self.arch).efi && firmware.iter().all(|value| value.text != "efi") {
            let words = format!("the host has no UEFI firmware for {}", self.arch);
            return Err(BackendError::new(BackendErrorKind::Rejected, words)
                .hint("install it on the host: package edk2-aarch64, on Debian and Ubuntu qemu-efi-aarch64"));
        }
        Ok(Self { cpu, ..self })
    }
}

/// The paths of a machine's volumes on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Paths {
    pub disk: String,
    pub extra_disks: Vec<String>,
    pub ignition: Option<String>,
    pub seed: Option<String>,
    pub console: Option<String>,
}

/// A machine has the same UUID in every attempt, so that its domain is never created twice.
pub(super) fn uuid_of(cluster: &ClusterId, machine: &MachineName) -> Uuid {
    let url = format!("{NAMESPACE}/{}/{machine}", cluster.tag());
    Uuid::new_v5(&Uuid::NAMESPACE_URL, url.as_bytes())
}

pub(super) fn to_xml(spec: &MachineSpec, platform: &HostPlatform, paths: &Paths, cache: DiskCache) -> Element {
    let hardware = hardware(platform.arch);
    let mut kind = Element::new("type").attr("arch", &platform.arch_name);
    if let Some(machine) = platform.machine {
        kind = kind.attr("machine", machine);
    }
    let mut os = Element::new("os");
    if hardware.efi {
        // Without Secure Boot, as on x86_64: libvirt prefers firmware that enforces it.
        let off = |name| Element::new("feature").attr("enabled", "no").attr("name", name);
        let firmware = Element::new("firmware").children(["enrolled-keys", "secure-boot"].map(off));
        os = os.attr("firmware", "efi").child(kind.text("hvm")).child(firmware);
    } else {
        os = os.child(kind.text("hvm"));
    }
    let os = os.child(Element::new("boot").attr("dev", "hd"));
    let features = hardware.features.iter().map(|name| Element::new(name));
    let features = (!hardware.features.is_empty()).then(|| Element::new("features").children(features));
    let fw_cfg = |file: &String| {
        let entry = Element::new("entry")
            .attr("name", "opt/com.coreos/config")
            .attr("file", file);
        Element::new("sysinfo").attr("type", "fwcfg").child(entry)
    };
    Element::new("domain")
        .attr("type", &platform.domain_type)
        .child(Element::new("name").text(&spec.name))
        .child(Element::new("uuid").text(uuid_of(&spec.cluster, &spec.name)))
        .child(Element::new("metadata").child(tag(spec)))
        .child(Element::new("memory").attr("unit", "MiB").text(spec.memory_mib))
        .child(Element::new("vcpu").text(spec.cpus))
        .children(paths.ignition.as_ref().filter(|_| hardware.fw_cfg).map(fw_cfg))
        .child(os)
        .children(features)
        .children(platform.cpu.clone())
        .child(Element::new("clock").attr("offset", "utc"))
        .child(Element::new("on_poweroff").text("destroy"))
        .child(Element::new("on_reboot").text("restart"))
        // A machine that panicked remains for inspection, and is reported as broken.
        .child(Element::new("on_crash").text("preserve"))
        .child(devices(spec, paths, cache, hardware.fw_cfg))
}

fn tag(spec: &MachineSpec) -> Element {
    Element::new("ocpdeploy:machine")
        .attr("xmlns:ocpdeploy", NAMESPACE)
        .attr("cluster", spec.cluster.tag())
        .attr("node", &spec.node)
        .attr("role", spec.role)
        .attr("pass", spec.pass)
        .attr("fingerprint", spec.fingerprint())
        .attr("creation", &spec.creation)
}

fn devices(spec: &MachineSpec, paths: &Paths, cache: DiskCache, fw_cfg: bool) -> Element {
    let disks = std::iter::once(&paths.disk).chain(&paths.extra_disks);
    let mut all: Vec<Element> = disks
        .enumerate()
        .map(|(index, path)| disk(index, path, "qcow2", cache))
        .collect();
    let read_only = |path: &String| disk(all.len(), path, "raw", cache).child(Element::new("readonly"));
    let ignition = paths.ignition.as_ref().filter(|_| !fw_cfg);
    let ignition = ignition.map(|path| read_only(path).with("serial", "ignition"));
    // A machine has one of them.
    let config = ignition.or_else(|| paths.seed.as_ref().map(read_only));
    all.extend(config);
    all.extend(spec.nics.iter().map(|nic| {
        Attachment::read(&nic.network)
            .to_xml()
            .child(Element::new("mac").attr("address", nic.mac))
            .child(Element::new("model").attr("type", "virtio"))
    }));
    let log = paths
        .console
        .as_ref()
        .map(|path| Element::new("log").attr("file", path).attr("append", "on"));
    all.push(Element::new("serial").attr("type", "pty").children(log));
    let agent = Element::new("target")
        .attr("type", "virtio")
        .attr("name", "org.qemu.guest_agent.0");
    all.push(Element::new("channel").attr("type", "unix").child(agent));
    let random = Element::new("backend").attr("model", "random").text("/dev/urandom");
    all.push(Element::new("rng").attr("model", "virtio").child(random));
    Element::new("devices").children(all)
}

fn disk(index: usize, path: &str, format: &str, cache: DiskCache) -> Element {
    // Blocks that a guest discards become free space in the pool.
    let driver = Element::new("driver")
        .attr("name", "qemu")
        .attr("type", format)
        .attr("discard", "unmap");
    let driver = match cache {
        DiskCache::Default => driver,
        DiskCache::None => driver.attr("cache", "none"),
        DiskCache::Unsafe => driver.attr("cache", "unsafe"),
    };
    Element::new("disk")
        .attr("type", "file")
        .attr("device", "disk")
        .child(driver)
        .child(Element::new("source").attr("file", path))
        .child(
            Element::new("target")
                .attr("dev", disk_name(index))
                .attr("bus", "virtio"),
        )
}

/// `vda` … `vdz`, `vdaa` …, like in Linux.
fn disk_name(index: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        rest -= 1;
        letters.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    format!("vd{}", letters.iter().rev().collect::<String>())
}

/// A domain with an ownership tag in its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaggedDomain {
    pub ownership: Ownership,
    pub is_kvm: bool,
    /// The leases of its NICs from before its last start.
    pub old_leases: Vec<DhcpLease>,
}

/// The leases from before a start, for the metadata of the domain.
pub(super) fn leases_xml(leases: &[DhcpLease]) -> Element {
    let entry = |lease: &DhcpLease| {
        Element::new("lease")
            .attr("mac", lease.mac)
            .attr("ip", lease.ip)
            .attr("expires", lease.expires)
    };
    Element::new("leases").children(leases.iter().map(entry))
}

fn old_leases(domain: &Element) -> Option<Vec<DhcpLease>> {
    let mut metadata = domain.find("metadata")?.iter();
    let leases = metadata.find(|element| is_of(element, "leases", LEASES.0))?;
    let lease = |entry: &Element| {
        Some(DhcpLease {
            mac: entry.get("mac")?.parse().ok()?,
            ip: entry.get("ip")?.parse().ok()?,
            expires: entry.get("expires")?.parse().ok()?,
        })
    };
    Some(leases.iter().filter_map(lease).collect())
}

/// Whether an element has this name in this namespace.
fn is_of(element: &Element, name: &str, namespace: &str) -> bool {
    element.name.strip_suffix(name).is_some_and(|prefix| {
        let space = match prefix.strip_suffix(':') {
            Some(prefix) => format!("xmlns:{prefix}"),
            None => "xmlns".to_owned(),
        };
        element.get(&space) == Some(namespace)
    })
}

impl TaggedDomain {
    /// `None` if the domain has no tag.
    pub fn read(domain: &Element) -> Option<Self> {
        let mut metadata = domain.find("metadata")?.iter();
        let mark = metadata.find(|element| is_of(element, "machine", NAMESPACE))?;
        let nic = |interface: &Element| {
            Some(Nic {
                network: Attachment::setting(interface)?,
                mac: interface.value("mac", "address")?.parse().ok()?,
            })
        };
        let ownership = Ownership {
            cluster: ClusterId::read(mark.get("cluster")?)?,
            machine: domain.find("name")?.text.parse().ok()?,
            node: mark.get("node")?.parse().ok()?,
            role: mark.get("role")?.parse().ok()?,
            pass: mark.get("pass")?.parse().ok()?,
            fingerprint: mark.get("fingerprint")?.to_owned(),
            nics: domain.all("devices/interface").into_iter().filter_map(nic).collect(),
            creation: mark.get("creation").and_then(|creation| creation.parse().ok()),
        };
        Some(Self {
            ownership,
            is_kvm: domain.get("type") == Some("kvm"),
            old_leases: old_leases(domain).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{ImageHandle, Payload};
    use crate::cluster::{Architecture, NodeName, Pass, Role};
    use crate::xml;

    fn spec() -> MachineSpec {
        MachineSpec {
            cluster: ClusterId::read("lab.example.com.x7k2pqrs").unwrap(),
            name: "lab-master-0".parse().unwrap(),
            node: NodeName::node(Role::Master, 0),
            role: Role::Master,
            pass: Pass::Two,
            arch: Architecture::X86_64,
            cpus: 4,
            memory_mib: 16384,
            disk_gib: 120,
            extra_disks_gib: vec![50, 60],
            image: ImageHandle("ocpdeploy_image_x.qcow2".to_owned()),
            nics: vec![
                Nic {
                    network: "default".to_owned(),
                    mac: "52:54:00:aa:bb:cc".parse().unwrap(),
                },
                Nic {
                    network: "R&D <\"storage\">".to_owned(),
                    mac: "52:54:00:aa:bb:cd".parse().unwrap(),
                },
            ],
            payload: Payload::Ignition(b"{}".to_vec()),
            autostart: true,
            ipv6: None,
            creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
        }
    }

    fn paths() -> Paths {
        Paths {
            disk: "/pool/it's & more/disk.qcow2".to_owned(),
            extra_disks: vec!["/pool/extra-0".to_owned(), "/pool/extra-1".to_owned()],
            ignition: Some("/pool/config.ign".to_owned()),
            seed: None,
            console: Some("/pool/console.log".to_owned()),
        }
    }

    #[test]
    fn all_disks_have_the_cache_of_the_settings() {
        for (cache, attribute) in [(DiskCache::None, "cache='none'"), (DiskCache::Unsafe, "cache='unsafe'")] {
            let document = to_xml(&spec(), &host_of(Architecture::X86_64, true), &paths(), cache).to_string();
            let disks = 1 + paths().extra_disks.len() + usize::from(paths().seed.is_some());
            assert_eq!(
                document.replace('"', "'").matches(attribute).count(),
                disks,
                "{document}"
            );
        }
    }

    #[test]
    fn a_node_of_coreos() {
        insta::assert_snapshot!(
            to_xml(
                &spec(),
                &host_of(Architecture::X86_64, true),
                &paths(),
                DiskCache::Default
            )
            .to_string()
        );
    }

    #[test]
    fn a_machine_of_pass_one() {
        let mut spec = spec();
        spec.name = MachineName::of_harvest("lab", Role::Helper, 1);
        (spec.role, spec.pass, spec.node) = (Role::Helper, Pass::One, "ingress".parse().unwrap());
        let paths = Paths {
            disk: "/pool/disk".to_owned(),
            seed: Some("/pool/seed.img".to_owned()),
            ..Paths::default()
        };
        insta::assert_snapshot!(
            to_xml(&spec, &host_of(Architecture::X86_64, false), &paths, DiskCache::Default).to_string()
        );
    }

    #[test]
    fn written_xml_is_read_back() {
        let spec = spec();
        let document = to_xml(
            &spec,
            &host_of(Architecture::X86_64, true),
            &paths(),
            DiskCache::Default,
        )
        .to_string();
        let ours = TaggedDomain::read(&xml::parse(&document).unwrap()).unwrap();
        assert_eq!(ours.ownership, Ownership::of(&spec));
        assert!(ours.is_kvm);
        // Other programs may use another prefix for the namespace.
        let other = document
            .replace("ocpdeploy:", "o:")
            .replace("xmlns:ocpdeploy", "xmlns:o");
        assert!(TaggedDomain::read(&xml::parse(&other).unwrap()).is_some());
    }

    #[test]
    fn domains_without_our_tag_are_ignored() {
        for metadata in [
            "",
            "<metadata/>",
            "<metadata><machine cluster='lab.example.com.x7k2pqrs'/></metadata>",
            "<metadata><o:machine xmlns:o='https://ocpdeploy.dev/2' cluster='lab.example.com.x7k2pqrs' node='a' role='master' pass='two' fingerprint='f'/></metadata>",
            "<metadata><o:machine xmlns:o='https://ocpdeploy.dev/1' cluster='lab.example.com.x7k2pqrs'/></metadata>",
        ] {
            let document = format!("<domain type='kvm'><name>lab-master-0</name>{metadata}</domain>");
            assert_eq!(TaggedDomain::read(&xml::parse(&document).unwrap()), None, "{metadata}");
        }
    }

    #[test]
    fn a_uuid_is_unique_for_machine_and_cluster() {
        let of = |cluster: &str, machine: &str| uuid_of(&ClusterId::read(cluster).unwrap(), &machine.parse().unwrap());
        let [one, other] = ["lab.example.com.x7k2pqrs", "lab.example.com.x7k2pqrt"];
        assert_eq!(of(one, "lab-master-0"), of(one, "lab-master-0"));
        assert_ne!(of(one, "lab-master-0"), of(other, "lab-master-0"));
        assert_ne!(of(one, "lab-master-1"), of(one, "lab-master-10"));
    }

    #[test]
    fn the_domain_type_is_chosen_from_the_hosts_capabilities() {
        let guest = |arch: &str, types: &[&str]| {
            let domains: String = types.iter().map(|kind| format!("<domain type='{kind}'/>")).collect();
            format!(
                "<guest><os_type>hvm</os_type><arch name='{arch}'><machine canonical='pc-q35-7.2'>q35</machine>{domains}</arch></guest>"
            )
        };
        let host = |guests: &str| {
            xml::parse(&format!("<capabilities><guest><os_type>xen</os_type><arch name='x86_64'><domain type='xen'/></arch></guest>{guests}</capabilities>")).unwrap()
        };
        let both = host(&(guest("i686", &["qemu"]) + &guest("x86_64", &["qemu", "kvm"])));
        let choose = |host, virt_type| {
            HostPlatform::choose(host, Architecture::X86_64, virt_type).map(|platform| platform.domain_type)
        };
        assert_eq!(choose(&both, VirtType::Auto).unwrap(), "kvm");
        assert_eq!(choose(&both, VirtType::Qemu).unwrap(), "qemu");
        let emulated = host(&guest("x86_64", &["qemu"]));
        assert_eq!(choose(&emulated, VirtType::Auto).unwrap(), "qemu");
        assert!(choose(&emulated, VirtType::Kvm).is_err());
        let other = host(&guest("i686", &["test"]));
        assert_eq!(choose(&other, VirtType::Auto).unwrap(), "test");
        assert!(choose(&other, VirtType::Qemu).is_err());
        assert!(choose(&host(""), VirtType::Auto).is_err());
        let error = HostPlatform::choose(&both, Architecture::Aarch64, VirtType::Auto).unwrap_err();
        assert_eq!(
            error.message,
            "the host, of architecture unknown, cannot run machines of aarch64"
        );
    }

    /// What libvirt 9.0 with QEMU 7.2 reports on an x86-64 host without KVM, shortened.
    fn domain_capabilities(arch: Architecture) -> Element {
        let (firmware, maximum) = match arch {
            Architecture::X86_64 | Architecture::S390x => ("", "yes"),
            Architecture::Aarch64 => ("<value>efi</value>", "yes"),
            Architecture::Ppc64le => ("", "no"),
        };
        let document = format!(
            "<domainCapabilities><os><enum name='firmware'>{firmware}</enum></os><cpu>\
             <mode name='host-passthrough' supported='no'/><mode name='maximum' supported='{maximum}'/></cpu>\
             </domainCapabilities>"
        );
        xml::parse(&document).unwrap()
    }

    /// A host of the architecture with KVM, or one of another without it.
    fn host_of(arch: Architecture, has_kvm: bool) -> HostPlatform {
        let (machine, kvm) = (
            hardware(arch).machine,
            if has_kvm { "<domain type='kvm'/>" } else { "" },
        );
        let guest = format!(
            "<capabilities><guest><os_type>hvm</os_type><arch name='{arch}'><machine>{machine}</machine>\
             <domain type='qemu'/>{kvm}</arch></guest></capabilities>"
        );
        let chosen = HostPlatform::choose(&xml::parse(&guest).unwrap(), arch, VirtType::Auto).unwrap();
        chosen.with(&domain_capabilities(arch)).unwrap()
    }

    #[test]
    fn each_architecture_has_the_machine_that_its_firmware_and_ignition_support() {
        let written = Architecture::ALL.map(|arch| {
            let spec = MachineSpec { arch, ..spec() };
            to_xml(&spec, &host_of(arch, false), &paths(), DiskCache::Default).to_string()
        });
        insta::assert_snapshot!(written.join("\n"));
    }

    #[test]
    fn the_cpu_is_the_best_one_that_the_host_supports() {
        for (arch, has_kvm, expected) in [
            (Architecture::X86_64, true, Some("mode=\"host-passthrough\"")),
            (Architecture::S390x, true, Some("mode=\"host-passthrough\"")),
            (Architecture::X86_64, false, Some("mode=\"maximum\"")),
            (Architecture::Aarch64, false, Some("mode=\"maximum\"")),
            (Architecture::Ppc64le, false, None),
        ] {
            let cpu = host_of(arch, has_kvm).cpu.map(|cpu| cpu.to_string());
            assert_eq!(cpu.is_some(), expected.is_some(), "{arch} {cpu:?}");
            assert!(cpu.unwrap_or_default().contains(expected.unwrap_or_default()), "{arch}");
        }
        // Before libvirt 7.1.
        let old = HostPlatform {
            cpu: None,
            ..host_of(Architecture::X86_64, false)
        };
        let old = old.with(&Element::new("domainCapabilities")).unwrap();
        assert!(old.cpu.unwrap().to_string().contains("<model>Nehalem</model>"));
    }

    #[test]
    fn machines_of_another_architecture_are_foreign_if_they_are_emulated() {
        for (host, domain_type, is_foreign) in [
            ("x86_64", "qemu", true),
            ("aarch64", "qemu", false),
            ("aarch64", "kvm", false),
        ] {
            let host = format!(
                "<capabilities><host><cpu><arch>{host}</arch></cpu></host><guest><os_type>hvm</os_type>\
                 <arch name='aarch64'><domain type='{domain_type}'/></arch></guest></capabilities>"
            );
            let host = xml::parse(&host).unwrap();
            let chosen = HostPlatform::choose(&host, Architecture::Aarch64, VirtType::Auto).unwrap();
            assert_eq!(chosen.is_foreign, is_foreign, "{host}");
        }
    }

    #[test]
    fn a_host_without_uefi_for_aarch64_is_rejected() {
        let platform = host_of(Architecture::Aarch64, false);
        let error = platform.with(&domain_capabilities(Architecture::S390x)).unwrap_err();
        assert_eq!(error.message, "the host has no UEFI firmware for aarch64");
    }

    #[test]
    fn disks_are_named_like_in_linux() {
        for (index, name) in [
            (0, "vda"),
            (1, "vdb"),
            (25, "vdz"),
            (26, "vdaa"),
            (51, "vdaz"),
            (52, "vdba"),
        ] {
            assert_eq!(disk_name(index), name);
        }
    }
}
