//! Snapshots inside the qcow2 files of domains that are off, by `qemu-img snapshot` on the host.
//!
//! libvirt stores name and description (libvirt/libvirt: src/qemu/qemu_snapshot.c, `qemuSnapshotCreateInactiveInternal`,
//! `qemuSnapshotRevertInactive`). The name has the snapshot's name and time, the description the cluster.

use jiff::Timestamp;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::domain_snapshot::DomainSnapshot;
use virt::sys;

use super::domain::TaggedDomain;
use super::machines::{existing, find};
use super::session::{document, if_supported};
use super::storage::Storage;
use crate::backend::error::if_exists;
use crate::backend::findings::Findings;
use crate::backend::{Action, BackendError, BackendErrorKind, Finding, MachineSnapshot, Snapshot, Verdict};
use crate::cluster::{ClusterId, MachineName};
use crate::xml::{self, Element};

const GIB: u64 = 1 << 30;

/// The name of a snapshot: `ocpdeploy_<name>_<milliseconds>`. None of the parts contains an underscore.
///
/// The time makes it unique: qcow2 accepts two snapshots of one name, and libvirtd may have ended before it recorded the
/// first.
fn name_of(snapshot: &Snapshot) -> String {
    format!("ocpdeploy_{}_{}", snapshot.name, snapshot.taken.as_millisecond())
}

fn read_name(name: &str) -> Option<Snapshot> {
    let (name, taken) = name.strip_prefix("ocpdeploy_")?.split_once('_')?;
    let taken = Timestamp::from_millisecond(taken.parse().ok()?).ok()?;
    Some(Snapshot::new(name.parse().ok()?, taken))
}

/// The ownership tag of a snapshot.
fn tag(cluster: &ClusterId) -> String {
    format!("ocpdeploy: cluster {}", cluster.tag())
}

fn is_tagged(snapshot: &DomainSnapshot, cluster: &ClusterId) -> Result<bool, BackendError> {
    let described = document(snapshot.xml_desc(0))?;
    Ok(described.text_of("description") == Some(tag(cluster).as_str()))
}

/// Checks the disks of the machines, and the space of the pool.
pub(super) fn check(
    storage: &Storage,
    connect: &Connect,
    pool: &str,
    cluster: &ClusterId,
    names: &[MachineName],
) -> Result<Vec<Finding>, BackendError> {
    let mut findings = Findings(Vec::new());
    let mut allocated = 0;
    for name in names {
        let domain = existing(connect, cluster, name)?;
        let described = document(domain.xml_desc(sys::VIR_DOMAIN_XML_INACTIVE))?;
        for problem in problems(&described) {
            findings.add(Verdict::Fail, format!("{name}: {problem}"), None);
        }
        for path in disks(&described).filter_map(|disk| disk.value("source", "file")) {
            if let Some(volume) = if_exists(connect.lookup_storage_vol_by_path(path))? {
                allocated += volume.info()?.allocation;
            }
        }
    }
    // It fails while a volume is being created; then the last known space is used.
    let _ = storage.refresh();
    let described = storage.describe()?;
    let available = described.text_of("available").and_then(|bytes| bytes.parse().ok());
    let available: u64 = available.unwrap_or(0);
    let text = format!(
        "pool {pool} has {} GiB free; the snapshot takes up to {} GiB when the nodes overwrite their present data",
        available / GIB,
        allocated.div_ceil(GIB)
    );
    match available {
        ..GIB => findings.add(Verdict::Fail, text, Some("free space in the pool")),
        _ if available < allocated => findings.add(Verdict::Warn, text, None),
        _ => findings.ok(text),
    }
    Ok(findings.0)
}

/// The disks that a guest can write to, except removable ones.
fn disks(domain: &Element) -> impl Iterator<Item = &Element> {
    let is_disk =
        |disk: &&Element| matches!(disk.get("device"), None | Some("disk")) && disk.find("readonly").is_none();
    domain.all("devices/disk").into_iter().filter(is_disk)
}

/// Why the state of a domain is not only in qcow2 files.
fn problems(domain: &Element) -> Vec<String> {
    let is_qcow2 = |disk: &&Element| disk.get("type") == Some("file") && disk.value("driver", "type") == Some("qcow2");
    let others = disks(domain).filter(|disk| !is_qcow2(disk));
    let mut problems: Vec<String> = others
        .map(|disk| {
            let device = disk.value("target", "dev").unwrap_or("unknown");
            format!("disk {device} is not a qcow2 file, so it cannot have snapshots")
        })
        .collect();
    // Before libvirt 9.2, the variables of firmware that libvirt chooses are not in the definition.
    if domain.find("os/nvram").is_some() || domain.value("os", "firmware") == Some("efi") {
        problems.push("its UEFI variables are not on its disks, so snapshots do not include them".to_owned());
    }
    problems
}

/// Creates the snapshot of a domain that is off.
pub(super) fn save(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<Action<()>, BackendError> {
    let domain = off(connect, cluster, name)?;
    if lookup(&domain, cluster, snapshot)?.is_some() {
        return Ok(Action::Unchanged(()));
    }
    let described = document(domain.xml_desc(sys::VIR_DOMAIN_XML_INACTIVE))?;
    if let Some(problem) = problems(&described).into_iter().next() {
        return Err(BackendError::new(BackendErrorKind::Rejected, problem));
    }
    domain.create_snapshot_xml(&to_xml(cluster, snapshot, &described).to_string(), 0)?;
    Ok(Action::Done(()))
}

fn to_xml(cluster: &ClusterId, snapshot: &Snapshot, domain: &Element) -> Element {
    let disk = |disk: &Element| {
        Element::new("disk")
            .attr("name", disk.value("target", "dev").unwrap_or_default())
            .attr("snapshot", "internal")
    };
    Element::new("domainsnapshot")
        .with("name", name_of(snapshot))
        .with("description", tag(cluster))
        .child(Element::new("disks").children(disks(domain).map(disk)))
}

/// Restores the disks of a domain that is off.
///
/// libvirt also restores the domain's definition, which contains the tag.
pub(super) fn revert(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<(), BackendError> {
    let domain = off(connect, cluster, name)?;
    match lookup(&domain, cluster, snapshot)? {
        Some(found) => Ok(found.revert(0)?),
        None => Err(BackendError::new(
            BackendErrorKind::NotFound,
            format!("domain {name} has no snapshot {}", snapshot.name),
        )),
    }
}

pub(super) fn delete(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<Action<()>, BackendError> {
    let Some((domain, _)) = find(connect, cluster, name)? else {
        return Ok(Action::Unchanged(()));
    };
    match lookup(&domain, cluster, snapshot)? {
        Some(found) => {
            found.delete(0)?;
            Ok(Action::Done(()))
        }
        None => Ok(Action::Unchanged(())),
    }
}

/// The snapshots of a cluster's machines.
pub(super) fn list(connect: &Connect, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
    let mut all = Vec::new();
    for domain in connect.list_all_domains(0)? {
        let Some(described) = if_exists(domain.xml_desc(0))? else {
            continue;
        };
        let tag = TaggedDomain::read(&xml::parse(&described)?).filter(|tagged| tagged.ownership.cluster == *cluster);
        let Some(tag) = tag else { continue };
        for snapshot in of_domain(&domain, cluster)? {
            all.push(MachineSnapshot {
                machine: tag.ownership.machine.clone(),
                snapshot,
                // libvirt records a snapshot when it is complete.
                is_complete: true,
            });
        }
    }
    all.sort();
    Ok(all)
}

/// The cluster's snapshots of one domain; none if the driver has no snapshots.
fn of_domain(domain: &Domain, cluster: &ClusterId) -> Result<Vec<Snapshot>, BackendError> {
    let listed = if_supported(if_exists(domain.list_all_snapshots(0)))?.flatten();
    let mut all = Vec::new();
    for found in listed.into_iter().flatten() {
        if let Some(snapshot) = read_name(&found.name()?)
            && is_tagged(&found, cluster)?
        {
            all.push(snapshot);
        }
    }
    Ok(all)
}

/// The cluster's domain of this name, which must be off.
fn off(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Domain, BackendError> {
    let domain = existing(connect, cluster, name)?;
    match domain.is_active()? {
        true => Err(BackendError::new(
            BackendErrorKind::Rejected,
            format!("domain {name} is not switched off"),
        )),
        false => Ok(domain),
    }
}

/// The snapshot of a domain. One that the cluster does not own is a conflict.
fn lookup(domain: &Domain, cluster: &ClusterId, snapshot: &Snapshot) -> Result<Option<DomainSnapshot>, BackendError> {
    let name = name_of(snapshot);
    match if_exists(Domain::lookup_snapshot_by_name(domain, &name, 0))? {
        Some(found) if is_tagged(&found, cluster)? => Ok(Some(found)),
        Some(_) => Err(BackendError::new(
            BackendErrorKind::Conflict,
            format!("snapshot {name} is not owned by cluster {cluster}"),
        )),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(name: &str) -> Snapshot {
        let taken = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        Snapshot::new(name.parse().unwrap(), taken)
    }

    #[test]
    fn a_name_is_read_back_and_others_are_ignored() {
        for name in ["a", "before-update"] {
            assert_eq!(read_name(&name_of(&snapshot(name))), Some(snapshot(name)));
        }
        for other in [
            "before",
            "ocpdeploy_before",
            "ocpdeploy_before_",
            "ocpdeploy_before_1_2",
            "ocpdeploy_Before_1790000000123",
            "my_ocpdeploy_before_1790000000123",
        ] {
            assert_eq!(read_name(other), None, "{other}");
        }
    }

    #[test]
    fn only_disks_that_are_qcow2_files_can_have_snapshots() {
        let domain = |rest: &str| {
            let text = format!(
                "<domain><os>{}</os><devices><disk type='file'><driver type='qcow2'/><source file='/a'/>\
                 <target dev='vda'/></disk><disk type='file' device='cdrom'><driver type='raw'/>\
                 <target dev='sda'/></disk><disk type='file' device='disk'><driver type='raw'/><readonly/>\
                 <target dev='vdz'/></disk>{rest}</devices></domain>",
                if rest.is_empty() { "" } else { "<nvram>/v</nvram>" }
            );
            xml::parse(&text).unwrap()
        };
        assert_eq!(problems(&domain("")), [""; 0]);
        let raw = "<disk type='file' device='disk'><driver type='raw'/><target dev='vdb'/></disk>\
                   <disk type='block'><driver type='qcow2'/><target dev='vdc'/></disk>";
        let found = problems(&domain(raw));
        assert!(found[0].contains("disk vdb"), "{found:?}");
        assert!(found[1].contains("disk vdc"), "{found:?}");
        assert!(found[2].contains("UEFI"), "{found:?}");
    }

    #[test]
    fn each_disk_is_named() {
        let text = "<domain><devices><disk type='file' device='disk'><target dev='vda'/></disk>\
                    <disk type='file'><target dev='vdb'/></disk></devices></domain>";
        let cluster = ClusterId::read("lab.example.com.x7k2pqrs").unwrap();
        insta::assert_snapshot!(to_xml(&cluster, &snapshot("before"), &xml::parse(text).unwrap()).to_string(), @r#"
        <domainsnapshot>
          <name>ocpdeploy_before_1790000000123</name>
          <description>ocpdeploy: cluster lab.example.com.x7k2pqrs</description>
          <disks>
            <disk name="vda" snapshot="internal"/>
            <disk name="vdb" snapshot="internal"/>
          </disks>
        </domainsnapshot>
        "#);
    }
}
