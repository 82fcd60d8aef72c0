//! Creates, starts, stops, lists and deletes machines.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

use tracing::warn;
use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::ErrorNumber;
use virt::sys;

use super::addresses::{addresses, leases_before};
use super::attachment::{self, Attachment};
use super::domain::{self, HostPlatform, Paths, TaggedDomain, uuid_of};
use super::ffi::DhcpLease;
use super::power::power_of;
use super::session::{CallProgress, checked_text, document, lock};
use super::storage::{self, Storage, VolumeContent};
use super::volumes::{Part, Volume};
use super::{network, seed};
use crate::backend::error::if_exists;
use crate::backend::ownership::Ownership;
use crate::backend::{
    Action, BackendError, BackendErrorKind, Description, Form, Machine, MachineSpec, Nic, Payload, Power, Stop,
};
use crate::cluster::{ClusterId, DiskCache, MachineName};
use crate::xml;

const GIB: u64 = 1 << 30;

/// The ownership tags of running domains, by UUID and id, so that repeated queries read each document only once.
#[derive(Default)]
pub(super) struct TagCache(Mutex<HashMap<(Uuid, u32), Option<TaggedDomain>>>);

impl TagCache {
    fn read(&self, domain: &Domain) -> Result<Option<TaggedDomain>, BackendError> {
        // A domain gets a new id at each start. One that is off can be redefined at any time.
        let key = match domain.id() {
            Some(id) => Some((domain.uuid()?, id)),
            None => None,
        };
        if let Some(known) = key.and_then(|key| lock(&self.0).get(&key).cloned()) {
            return Ok(known);
        }
        let tag = read(domain)?;
        if let Some(key) = key {
            lock(&self.0).insert(key, tag.clone());
        }
        Ok(tag)
    }
}

fn read(domain: &Domain) -> Result<Option<TaggedDomain>, BackendError> {
    Ok(TaggedDomain::read(&document(domain.xml_desc(0))?))
}

/// Creates and starts a machine, or adopts an existing one.
pub(super) fn create(
    storage: &Storage,
    connect: &Connect,
    platform: &HostPlatform,
    cache: DiskCache,
    spec: &MachineSpec,
    progress: &CallProgress,
) -> Result<Action<Machine>, BackendError> {
    if let Some(there) = lookup(connect, &spec.cluster, &spec.name)? {
        let tagged = read(&there)?;
        let (is_kvm, old_leases) = match &tagged {
            Some(tagged) => (tagged.is_kvm, tagged.old_leases.clone()),
            None => Default::default(),
        };
        let ownership = Ownership::adopt(tagged.map(|tagged| tagged.ownership), spec)?;
        let tagged = TaggedDomain {
            ownership,
            is_kvm,
            old_leases,
        };
        return adopt(connect, &there, tagged, spec);
    }
    for nic in &spec.nics {
        match Attachment::read(&nic.network).device() {
            Some(device) => attachment::require_device(connect, device)?,
            None => drop(network::find(connect, &nic.network)?),
        }
    }
    // Without the domain nothing uses its volumes. Those of an interrupted attempt are created again.
    let mut paths = create_volumes(storage, spec, progress)?;
    let define = |paths: &Paths| {
        let xml = domain::to_xml(spec, platform, paths, cache).to_string();
        connect.define_domain_xml_flags(&xml, sys::VIR_DOMAIN_DEFINE_VALIDATE)
    };
    let mut domain = define(&paths)?;
    match start(connect, &domain, spec) {
        Err(failure) if is_of_console(&failure, &paths) => {
            warn!(
                "{}: libvirt cannot write the log of the serial console, so the machine has none: {}",
                spec.name, failure.message
            );
            paths.console = None;
            storage.delete(&Part::Console.volume(&spec.cluster, &spec.name))?;
            domain = define(&paths)?;
            start(connect, &domain, spec)?;
        }
        other => other?,
    }
    let tagged = read(&domain)?.ok_or_else(|| {
        let message = "libvirt did not store the metadata of the domain";
        BackendError::new(BackendErrorKind::Rejected, message)
    })?;
    let power = power_of(&domain, &tagged)?;
    Ok(Action::Done(tagged.ownership.machine(power, &BTreeMap::new())))
}

/// Whether a machine did not start only because of the log of its console.
///
/// virtlogd opens it, and SELinux does not let it write into every pool: on Fedora it can only search the directories
/// of images (libvirt/libvirt: src/util/virrotatingfile.c, `virRotatingFileWriterEntryNew`, names the file it cannot
/// open).
fn is_of_console(failure: &BackendError, paths: &Paths) -> bool {
    paths
        .console
        .as_ref()
        .is_some_and(|console| failure.message.contains(console.as_str()))
}

/// A domain is defined after its volumes, so at most its start is missing.
fn adopt(
    connect: &Connect,
    domain: &Domain,
    tagged: TaggedDomain,
    spec: &MachineSpec,
) -> Result<Action<Machine>, BackendError> {
    let off = domain.id().is_none();
    if off {
        start(connect, domain, spec)?;
    }
    let power = power_of(domain, &tagged)?;
    let machine = tagged.ownership.machine(power, &BTreeMap::new());
    Ok(if off {
        Action::Done(machine)
    } else {
        Action::Unchanged(machine)
    })
}

fn start(connect: &Connect, domain: &Domain, spec: &MachineSpec) -> Result<(), BackendError> {
    if spec.autostart {
        domain.set_autostart(true)?;
    }
    switch_on(connect, domain, &spec.nics)
}

/// Starts a domain that is off. Its metadata has the leases from before.
fn switch_on(connect: &Connect, machine: &Domain, nics: &[Nic]) -> Result<(), BackendError> {
    keep_leases(machine, &leases_before(connect, nics)?)?;
    match machine.create().map_err(BackendError::from) {
        // It was started meanwhile.
        Err(failure) if failure.is(ErrorNumber::OperationInvalid) && machine.is_active()? => Ok(()),
        other => other,
    }
}

fn keep_leases(machine: &Domain, leases: &[DhcpLease]) -> Result<(), BackendError> {
    let (uri, prefix) = domain::LEASES;
    let kind = sys::VIR_DOMAIN_METADATA_ELEMENT.cast_signed();
    let leases = domain::leases_xml(leases).to_string();
    Ok(machine.set_metadata(
        kind,
        Some(&leases),
        Some(prefix),
        Some(uri),
        sys::VIR_DOMAIN_AFFECT_CONFIG,
    )?)
}

/// Starts a machine that is off.
pub(super) fn start_again(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Action<()>, BackendError> {
    let domain = existing(connect, cluster, name)?;
    if domain.is_active()? {
        return Ok(Action::Unchanged(()));
    }
    let nics = read(&domain)?.map(|tagged| tagged.ownership.nics).unwrap_or_default();
    switch_on(connect, &domain, &nics)?;
    Ok(Action::Done(()))
}

/// Requests a shutdown, or switches off.
pub(super) fn stop(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
    how: Stop,
) -> Result<Action<()>, BackendError> {
    let domain = existing(connect, cluster, name)?;
    if !domain.is_active()? {
        return Ok(Action::Unchanged(()));
    }
    let stopped = match how {
        Stop::Graceful => domain.shutdown().map(drop),
        Stop::Force => domain.destroy().map(drop),
    };
    match stopped.map_err(BackendError::from) {
        // It was switched off meanwhile.
        Err(failure) if failure.is(ErrorNumber::OperationInvalid) && !domain.is_active()? => Ok(Action::Unchanged(())),
        Err(failure) => Err(failure),
        Ok(()) => Ok(Action::Done(())),
    }
}

/// The cluster's domain of this name; an error if there is none.
pub(super) fn existing(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Domain, BackendError> {
    let absent = || BackendError::new(BackendErrorKind::NotFound, format!("domain {name} does not exist"));
    Ok(find(connect, cluster, name)?.ok_or_else(absent)?.0)
}

fn create_volumes(storage: &Storage, spec: &MachineSpec, progress: &CallProgress) -> Result<Paths, BackendError> {
    let base = storage.base(&spec.image.0)?;
    let name = |part: Part| part.volume(&spec.cluster, &spec.name);
    let make =
        |part: Part, content: &VolumeContent| Ok::<_, BackendError>(storage.recreate(&name(part), content)?.path()?);
    let fill = |part: Part, bytes: &[u8]| {
        // A disk has whole sectors. Ignition ignores zeros at its end.
        let length = match part == Part::Ignition && domain::reads_fw_cfg(spec.arch) {
            true => bytes.len(),
            false => bytes.len().next_multiple_of(512),
        };
        let volume = storage.recreate(&name(part), &VolumeContent::Raw(length as u64))?;
        storage.upload(&volume, bytes, progress)?;
        Ok::<_, BackendError>(Some(volume.path()?))
    };
    let overlay = VolumeContent::Overlay {
        bytes: (spec.disk_gib * GIB).max(base.virtual_size),
        base: &base,
    };
    let mut paths = Paths {
        disk: make(Part::Disk, &overlay)?,
        console: Some(make(Part::Console, &VolumeContent::Raw(0))?),
        ..Paths::default()
    };
    for (index, gib) in spec.extra_disks_gib.iter().enumerate() {
        paths
            .extra_disks
            .push(make(Part::Extra(index), &VolumeContent::Disk(gib * GIB))?);
    }
    match &spec.payload {
        // An empty config needs no volume.
        Payload::Ignition(config) if config.is_empty() => {}
        Payload::Ignition(config) => paths.ignition = fill(Part::Ignition, config)?,
        Payload::CloudInit {
            user_data,
            meta_data,
            network_config,
        } => {
            let seed = seed::image(user_data, meta_data, network_config)
                .map_err(|error| BackendError::new(BackendErrorKind::TooLarge, format!("create the seed: {error}")))?;
            paths.seed = fill(Part::Seed, &seed)?;
        }
    }
    Ok(paths)
}

/// All machines of a cluster, by two calls, one for each machine that is off, and one for each network.
pub(super) fn list(connect: &Connect, tags: &TagCache, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
    let mut found = Vec::new();
    // One call for all states. With one call for each state, a machine that starts or stops meanwhile would be missing.
    let all = connect.list_all_domains(0)?;
    let running: HashSet<Uuid> = connect
        .list_all_domains(sys::VIR_CONNECT_LIST_DOMAINS_RUNNING)?
        .iter()
        .map(Domain::uuid)
        .collect::<Result<_, _>>()?;
    for domain in all {
        if let Some(tagged) = if_exists(tags.read(&domain))?.flatten()
            && tagged.ownership.cluster == *cluster
        {
            let power = match running.contains(&domain.uuid()?) {
                true => Some(Power::Running),
                false => if_exists(power_of(&domain, &tagged))?,
            };
            found.extend(power.map(|power| (domain, tagged, power)));
        }
    }
    let addresses = addresses(connect, &found)?;
    let mut machines: Vec<Machine> = found
        .into_iter()
        .map(|(_, tagged, power)| tagged.ownership.machine(power, &addresses))
        .collect();
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(machines)
}

/// Deletes a machine of this cluster with its volumes.
pub(super) fn delete(
    storage: &Storage,
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Action<()>, BackendError> {
    let mut changed = false;
    let mut uuid = uuid_of(cluster, name);
    if let Some((domain, _)) = find(connect, cluster, name)? {
        // A domain that was renamed has the volumes of its first name.
        uuid = domain.uuid()?;
        remove(&domain)?;
        changed = true;
    }
    for (volume_name, volume) in storage.list()? {
        if let Some(Volume::OfMachine { cluster: of, machine }) = Volume::read(&volume_name)
            && of == *cluster
            && (machine == *name || uuid_of(cluster, &machine) == uuid)
        {
            changed |= storage::delete(&volume)?;
        }
    }
    Ok(if changed {
        Action::Done(())
    } else {
        Action::Unchanged(())
    })
}

/// The domain of this name. A conflict if the machine's domain has another name now.
///
/// A renamed domain keeps its UUID, its tag and its disks (libvirt/libvirt: src/qemu/qemu_driver.c,
/// `qemuDomainRenameCallback`). It is listed and deleted by its new name; by the old one, its disks would be deleted or
/// created again.
fn lookup(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Option<Domain>, BackendError> {
    let Some(domain) = if_exists(connect.lookup_domain_by_uuid(uuid_of(cluster, name)))? else {
        return if_exists(connect.lookup_domain_by_name(checked_text("machine name", name.as_str())?));
    };
    match domain.name()? {
        same if same == name.as_str() => Ok(Some(domain)),
        other => {
            let message = format!("the domain of machine {name} was renamed to {other}");
            let hint = format!(
                "switch it off and rename it back: `virsh domrename {} {name}`",
                domain.uuid()?
            );
            Err(BackendError::new(BackendErrorKind::Conflict, message).hint(hint))
        }
    }
}

/// The cluster's domain of this name. One that it does not own is a conflict.
pub(super) fn find(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Option<(Domain, Ownership)>, BackendError> {
    let Some(domain) = lookup(connect, cluster, name)? else {
        return Ok(None);
    };
    let Some(tagged) = if_exists(read(&domain))? else {
        return Ok(None);
    };
    let ownership = tagged.map(|tagged| tagged.ownership);
    Ok(Some((domain, Ownership::require(ownership, cluster, name)?)))
}

/// Switches off and undefines a domain.
fn remove(domain: &Domain) -> Result<(), BackendError> {
    // Waits until the emulator has ended. A domain that is off already is success.
    match if_exists(domain.destroy()) {
        Err(failure) if failure.is(ErrorNumber::OperationInvalid) => {}
        other => drop(other?),
    }
    let (save, nvram) = (sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE, sys::VIR_DOMAIN_UNDEFINE_NVRAM);
    let (snapshots, checkpoints) = (
        sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA,
        sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA,
    );
    // Other drivers and older versions reject unknown flags.
    let mut answer = Ok(None);
    for flags in [
        save | snapshots | checkpoints | nvram,
        save | snapshots | nvram,
        save | snapshots,
        0,
    ] {
        answer = if_exists(domain.undefine_flags(flags));
        match &answer {
            Err(failure) if failure.is_unsupported() || failure.is(ErrorNumber::InvalidArg) => {}
            _ => break,
        }
    }
    answer.map(drop)
}

/// The domain XML. Its secrets are in files.
pub(super) fn describe(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Description, BackendError> {
    let domain = existing(connect, cluster, name)?;
    let text = domain.xml_desc(0)?;
    let document = xml::parse(&text)?;
    let mut described = Description::default();
    described.dynamic.insert("host".to_owned(), connect.hostname()?.into());
    for (key, path, attribute) in [("kind", "", "type"), ("console", "devices/console", "tty")] {
        let element = if path.is_empty() {
            Some(&document)
        } else {
            document.find(path)
        };
        if let Some(value) = element.and_then(|element| element.get(attribute)) {
            described.dynamic.insert(key.to_owned(), value.into());
        }
    }
    if let Some(cpus) = document.value("vcpu", "cpuset") {
        described.scheduling.insert("cpus".to_owned(), cpus.into());
    }
    described.form = Some(Form {
        name: "domain XML",
        text,
    });
    Ok(described)
}

#[cfg(test)]
mod tests {
    use virt::storage_vol::StorageVol;

    use super::super::session::open_test_driver;
    use super::*;
    use crate::backend::ImageHandle;
    use crate::cluster::{Architecture, NodeName, Pass, Role, VirtType};

    fn spec(name: &str) -> MachineSpec {
        MachineSpec {
            cluster: ClusterId::read("lab.example.com.x7k2pqrs").unwrap(),
            name: name.parse().unwrap(),
            node: NodeName::node(Role::Worker, 0),
            role: Role::Worker,
            pass: Pass::Two,
            arch: Architecture::X86_64,
            cpus: 1,
            memory_mib: 64,
            disk_gib: 1,
            extra_disks_gib: vec![1],
            image: ImageHandle("base.qcow2".to_owned()),
            nics: Vec::new(),
            payload: Payload::Ignition(Vec::new()),
            autostart: false,
            ipv6: None,
            creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
        }
    }

    fn volumes(storage: &Storage) -> Vec<String> {
        let listed = storage.list().unwrap().into_iter().map(|(name, _)| name);
        let mut ours: Vec<_> = listed.filter(|name| name.contains("_lab-worker-")).collect();
        ours.sort();
        ours
    }

    #[test]
    fn each_command_knows_the_leases_from_before_the_last_start_of_a_machine() {
        let connect = open_test_driver();
        let xml = "<domain type='test'><name>test</name><uuid>6695eb01-f6a4-8304-79aa-97f2502e193f</uuid>\
                   <memory>1024</memory><os><type>hvm</type></os></domain>";
        let tag = "<metadata><o:machine xmlns:o='https://ocpdeploy.dev/1' cluster='lab.example.com.x7k2pqrs' \
                   node='worker-0' role='worker' pass='two' fingerprint='f'/></metadata>";
        let tagged = xml.replace("</uuid>", &format!("</uuid>{tag}"));
        let domain = connect.define_domain_xml(&tagged).unwrap();
        let lease = |last, expires| DhcpLease {
            mac: "52:54:00:00:00:01".parse().unwrap(),
            ip: [192, 168, 122, last].into(),
            expires,
        };
        for leases in [vec![lease(2, 100)], vec![lease(2, 3700), lease(3, 0)], Vec::new()] {
            keep_leases(&domain, &leases).unwrap();
            domain.create().unwrap();
            let known = TagCache::default().read(&domain).unwrap().unwrap();
            assert_eq!(known.old_leases, leases);
            domain.destroy().unwrap();
        }
    }

    /// A host with the base image.
    fn host() -> (Connect, HostPlatform) {
        let connect = open_test_driver();
        let pool = connect.lookup_storage_pool_by_name("default-pool").unwrap();
        let base = "<volume><name>base.qcow2</name><capacity unit='MiB'>1</capacity></volume>";
        StorageVol::create_xml(&pool, base, 0).unwrap();
        let platform = HostPlatform::of(&connect, Architecture::X86_64, VirtType::Auto).unwrap();
        (connect, platform)
    }

    #[test]
    fn another_clusters_volumes_for_a_machine_of_this_name_remain() {
        let (connect, platform) = host();
        let storage = Storage::open(&connect, "default-pool").unwrap();
        let progress = CallProgress::default();
        let create = |spec: &MachineSpec| create(&storage, &connect, &platform, DiskCache::Default, spec, &progress);
        let ours = spec("lab-worker-0");
        let mut theirs = spec("lab-worker-0");
        theirs.cluster = ClusterId::read("lab.example.com.p2k7xqrs").unwrap();
        create(&theirs).unwrap();
        // Somebody removed the domain, but not its volumes.
        let (domain, _) = find(&connect, &theirs.cluster, &theirs.name).unwrap().unwrap();
        remove(&domain).unwrap();
        let before = volumes(&storage);
        assert_ne!(before, [""; 0]);
        create(&ours).unwrap();
        delete(&storage, &connect, &ours.cluster, &ours.name).unwrap();
        assert_eq!(volumes(&storage), before);
    }

    #[test]
    fn a_renamed_domain_keeps_its_disks_until_it_is_deleted_itself() {
        let (connect, platform) = host();
        let storage = Storage::open(&connect, "default-pool").unwrap();
        let progress = CallProgress::default();
        let create = |spec: &MachineSpec| create(&storage, &connect, &platform, DiskCache::Default, spec, &progress);
        let (spec, other) = (spec("lab-worker-0"), spec("lab-worker-1"));
        create(&spec).unwrap();
        create(&other).unwrap();
        let (cluster, name) = (&spec.cluster, &spec.name);
        let (domain, _) = find(&connect, cluster, name).unwrap().unwrap();
        domain.destroy().unwrap();
        domain.rename("set-aside", 0).unwrap();
        let before = volumes(&storage);
        let is_renamed = |failure: BackendError| {
            assert_eq!(failure.kind, BackendErrorKind::Conflict, "{}", failure.message);
            assert!(failure.message.contains("renamed to set-aside"), "{}", failure.message);
        };
        is_renamed(delete(&storage, &connect, cluster, name).unwrap_err());
        is_renamed(create(&spec).map(drop).unwrap_err());
        is_renamed(existing(&connect, cluster, name).map(drop).unwrap_err());
        assert_eq!(volumes(&storage), before);
        // By the name under which it is listed, it is deleted with all that it has.
        delete(&storage, &connect, cluster, &"set-aside".parse().unwrap()).unwrap();
        let left = volumes(&storage);
        assert!(
            !left.is_empty() && left.iter().all(|name| name.contains("_lab-worker-1_")),
            "{left:?}"
        );
        delete(&storage, &connect, cluster, &other.name).unwrap();
        assert_eq!(volumes(&storage), [""; 0]);
    }
}
