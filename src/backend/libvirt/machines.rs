//! Creates, starts, stops, lists and deletes machines.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Mutex;

use tracing::warn;
use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::ErrorNumber;
use virt::sys;

use super::attachment::{self, Attachment};
use super::domain::{self, OwnershipTag, Paths, Platform};
use super::leases::OldLeases;
use super::power::power_of;
use super::session::{Progress, checked_text, document, if_exists, lock, none_if_deleted};
use super::storage::{self, Content, Storage};
use super::volumes::{Part, Volume, is_name};
use super::{guest, network, seed};
use crate::backend::failure::Failure;
use crate::backend::{
    Action, BackendErrorKind, Description, Form, Machine, MachineSpec, Nic, Payload, Power, SeenNic, Stop,
};
use crate::cluster::{ClusterId, DiskCache, Mac, MachineName};
use crate::xml;

const GIB: u64 = 1 << 30;

/// The ownership tags of running domains, by UUID and id, so that repeated queries read each document only once.
#[derive(Default)]
pub(super) struct TagCache(Mutex<HashMap<(Uuid, u32), Option<OwnershipTag>>>);

impl TagCache {
    fn read(&self, domain: &Domain) -> Result<Option<OwnershipTag>, Failure> {
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

fn read(domain: &Domain) -> Result<Option<OwnershipTag>, Failure> {
    Ok(OwnershipTag::read(&document(domain.xml_desc(0))?))
}

/// Creates and starts a machine, or adopts an existing one.
pub(super) fn create(
    storage: &Storage,
    connect: &Connect,
    platform: &Platform,
    leases: &OldLeases,
    cache: DiskCache,
    spec: &MachineSpec,
    progress: &Progress,
) -> Result<Action<Machine>, Failure> {
    check_names(&spec.cluster, &spec.name)?;
    if let Some(there) = if_exists(connect.lookup_domain_by_name(spec.name.as_str()))? {
        let own_tag = read(&there)?.filter(|tag| tag.cluster == spec.cluster);
        return match own_tag {
            Some(tag) if tag.fingerprint == spec.fingerprint() => adopt(connect, leases, &there, &tag, spec),
            Some(_) => conflict(format!("machine {} of this cluster has other settings", spec.name)),
            None => conflict(format!("domain {} exists and is not owned by this cluster", spec.name)),
        };
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
    match start(connect, leases, &domain, spec) {
        Err(failure) if is_of_console(&failure, &paths) => {
            warn!(
                "{}: libvirt cannot write the log of the serial console, so the machine has none: {}",
                spec.name, failure.message
            );
            paths.console = None;
            storage.delete(&Part::Console.volume(&spec.cluster, &spec.name))?;
            domain = define(&paths)?;
            start(connect, leases, &domain, spec)?;
        }
        other => other?,
    }
    let tag = read(&domain)?.ok_or_else(|| {
        let message = "libvirt did not store the metadata of the domain";
        Failure::new(BackendErrorKind::Rejected, message)
    })?;
    Ok(Action::Done(machine(&tag, power_of(&domain, &tag)?, &BTreeMap::new())))
}

/// Whether a machine did not start only because of the log of its console.
///
/// virtlogd opens it, and SELinux does not let it write into every pool: on Fedora it can only search the folders of
/// images (libvirt/libvirt: src/util/virrotatingfile.c, `virRotatingFileWriterEntryNew`, names the file it cannot open).
fn is_of_console(failure: &Failure, paths: &Paths) -> bool {
    paths
        .console
        .as_ref()
        .is_some_and(|console| failure.message.contains(console.as_str()))
}

fn conflict<T>(message: String) -> Result<T, Failure> {
    Err(Failure::new(BackendErrorKind::Conflict, message))
}

/// Ownership is read from names, so only these characters are allowed.
fn check_names(cluster: &ClusterId, name: &MachineName) -> Result<(), Failure> {
    match [cluster.as_str(), name.as_str()]
        .into_iter()
        .find(|name| !is_name(name))
    {
        Some(bad) => Err(Failure::new(
            BackendErrorKind::Rejected,
            format!("`{bad}` must consist of letters, digits, dots and hyphens"),
        )),
        None => Ok(()),
    }
}

/// A domain is defined after its volumes, so at most its start is missing.
fn adopt(
    connect: &Connect,
    leases: &OldLeases,
    domain: &Domain,
    tag: &OwnershipTag,
    spec: &MachineSpec,
) -> Result<Action<Machine>, Failure> {
    let off = domain.id().is_none();
    if off {
        start(connect, leases, domain, spec)?;
    }
    let machine = machine(tag, power_of(domain, tag)?, &BTreeMap::new());
    Ok(if off {
        Action::Done(machine)
    } else {
        Action::Unchanged(machine)
    })
}

fn start(connect: &Connect, leases: &OldLeases, domain: &Domain, spec: &MachineSpec) -> Result<(), Failure> {
    if spec.autostart {
        domain.set_autostart(true)?;
    }
    switch_on(connect, leases, domain, &spec.nics)
}

fn switch_on(connect: &Connect, leases: &OldLeases, domain: &Domain, nics: &[Nic]) -> Result<(), Failure> {
    leases.note(connect, nics)?;
    match domain.create().map_err(Failure::from) {
        // It was started meanwhile.
        Err(failure) if failure.is(ErrorNumber::OperationInvalid) && domain.is_active()? => Ok(()),
        other => other,
    }
}

/// Starts a machine that is off.
pub(super) fn start_again(
    connect: &Connect,
    leases: &OldLeases,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Action<()>, Failure> {
    let domain = existing(connect, cluster, name)?;
    if domain.is_active()? {
        return Ok(Action::Unchanged(()));
    }
    let nics = read(&domain)?.map(|tag| tag.nics).unwrap_or_default();
    switch_on(connect, leases, &domain, &nics)?;
    Ok(Action::Done(()))
}

/// Requests a shutdown, or switches off.
pub(super) fn stop(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
    how: Stop,
) -> Result<Action<()>, Failure> {
    let domain = existing(connect, cluster, name)?;
    if !domain.is_active()? {
        return Ok(Action::Unchanged(()));
    }
    let stopped = match how {
        Stop::Graceful => domain.shutdown().map(drop),
        Stop::Force => domain.destroy().map(drop),
    };
    match stopped.map_err(Failure::from) {
        // It was switched off meanwhile.
        Err(failure) if failure.is(ErrorNumber::OperationInvalid) && !domain.is_active()? => Ok(Action::Unchanged(())),
        Err(failure) => Err(failure),
        Ok(()) => Ok(Action::Done(())),
    }
}

/// The cluster's domain of this name; an error if there is none.
pub(super) fn existing(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Domain, Failure> {
    let absent = || Failure::new(BackendErrorKind::NotFound, format!("domain {name} does not exist"));
    Ok(find(connect, cluster, name)?.ok_or_else(absent)?.0)
}

fn create_volumes(storage: &Storage, spec: &MachineSpec, progress: &Progress) -> Result<Paths, Failure> {
    let base = storage.base(&spec.image.0)?;
    let name = |part: Part| part.volume(&spec.cluster, &spec.name);
    let make = |part: Part, content: &Content| Ok::<_, Failure>(storage.recreate(&name(part), content)?.path()?);
    let fill = |part: Part, bytes: &[u8]| {
        let volume = storage.recreate(&name(part), &Content::Raw(bytes.len() as u64))?;
        storage.upload(&volume, bytes, progress)?;
        Ok::<_, Failure>(Some(volume.path()?))
    };
    let overlay = Content::Overlay {
        bytes: (spec.disk_gib * GIB).max(base.virtual_size),
        base: &base,
    };
    let mut paths = Paths {
        disk: make(Part::Disk, &overlay)?,
        console: Some(make(Part::Console, &Content::Raw(0))?),
        ..Paths::default()
    };
    for (index, gib) in spec.extra_disks_gib.iter().enumerate() {
        paths
            .extra_disks
            .push(make(Part::Extra(index), &Content::Disk(gib * GIB))?);
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
                .map_err(|error| Failure::new(BackendErrorKind::TooLarge, format!("create the seed: {error}")))?;
            paths.seed = fill(Part::Seed, &seed)?;
        }
    }
    Ok(paths)
}

/// All machines of a cluster, by two calls, one for each machine that is off, and one for each network.
pub(super) fn list(
    connect: &Connect,
    tags: &TagCache,
    old: &OldLeases,
    cluster: &ClusterId,
) -> Result<Vec<Machine>, Failure> {
    let mut found = Vec::new();
    // One call for all states. With one call for each state, a machine that starts or stops meanwhile would be missing.
    let all = connect.list_all_domains(0)?;
    let running: HashSet<Uuid> = connect
        .list_all_domains(sys::VIR_CONNECT_LIST_DOMAINS_RUNNING)?
        .iter()
        .map(Domain::uuid)
        .collect::<Result<_, _>>()?;
    for domain in all {
        if let Some(tag) = none_if_deleted(tags.read(&domain))?.flatten() {
            let power = match running.contains(&domain.uuid()?) {
                true => Some(Power::Running),
                false => none_if_deleted(power_of(&domain, &tag))?,
            };
            found.push((domain, tag, power));
        }
    }
    found.retain(|(_, tag, _)| tag.cluster == *cluster);
    let addresses = addresses(connect, old, &found)?;
    let mut machines: Vec<Machine> = found
        .iter()
        .filter_map(|(_, tag, power)| Some(machine(tag, power.clone()?, &addresses)))
        .collect();
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(machines)
}

type Addresses = BTreeMap<Mac, Vec<IpAddr>>;

/// All addresses of the machines' MACs, so that conflicts are detected: IPv4 ones, or IPv6 ones of a machine without.
/// None of a lease from before the machine's start.
fn addresses(
    connect: &Connect,
    old: &OldLeases,
    found: &[(Domain, OwnershipTag, Option<Power>)],
) -> Result<Addresses, Failure> {
    let mut addresses = Addresses::new();
    let mut learn = |mac: Mac, ip: IpAddr| {
        let known = addresses.entry(mac).or_default();
        if !known.contains(&ip) {
            known.push(ip);
        }
    };
    let mut served: HashMap<&str, bool> = HashMap::new();
    for nic in found.iter().flat_map(|(_, tag, _)| &tag.nics) {
        if served.contains_key(nic.network.as_str()) {
            continue;
        }
        if Attachment::read(&nic.network).device().is_some() {
            served.insert(&nic.network, false);
            continue;
        }
        // A deleted network has no leases.
        let network = if_exists(connect.lookup_network_by_name(checked_text("network name", &nic.network)?))?;
        let query = |network| {
            let leases = network::valid_leases(&network)?;
            let serves = !leases.is_empty() || network::has_dhcp(&network)?;
            Ok((leases, serves))
        };
        // It may also be deleted before the query.
        let answer = none_if_deleted(network.map(query).transpose())?.flatten();
        let (leases, serves) = answer.unwrap_or_default();
        let shown = leases.iter().filter(|lease| !old.contain(lease));
        shown.for_each(|lease| learn(lease.mac, lease.ip.into()));
        served.insert(&nic.network, serves);
    }
    for (domain, tag, power) in found {
        let unserved = tag.nics.iter().any(|nic| !served[nic.network.as_str()]);
        if unserved && *power == Some(Power::Running) {
            for (mac, ip) in guest::addresses(domain) {
                learn(mac, ip);
            }
        }
    }
    for known in addresses.values_mut() {
        if known.iter().any(IpAddr::is_ipv4) {
            known.retain(IpAddr::is_ipv4);
        }
    }
    Ok(addresses)
}

fn machine(tag: &OwnershipTag, power: Power, addresses: &Addresses) -> Machine {
    let nic = |nic: &Nic| SeenNic {
        network: nic.network.clone(),
        mac: nic.mac,
        addresses: addresses.get(&nic.mac).cloned().unwrap_or_default(),
    };
    Machine {
        name: tag.name.clone(),
        node: tag.node.clone(),
        role: tag.role,
        pass: tag.pass,
        fingerprint: tag.fingerprint.clone(),
        power,
        nics: tag.nics.iter().map(nic).collect(),
    }
}

/// Deletes a machine of this cluster with its volumes.
pub(super) fn delete(
    storage: &Storage,
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Action<()>, Failure> {
    check_names(cluster, name)?;
    let domain = find(connect, cluster, name)?;
    let mut changed = domain.is_some();
    if let Some((domain, _)) = domain {
        remove(&domain)?;
    }
    for (volume_name, volume) in storage.list()? {
        let read = Volume::read(&volume_name);
        let is_its =
            matches!(&read, Some(Volume::OfMachine { cluster: of, machine }) if of == cluster && machine == name);
        if is_its {
            changed |= storage::delete(&volume)?;
        }
    }
    Ok(if changed {
        Action::Done(())
    } else {
        Action::Unchanged(())
    })
}

/// The cluster's domain of this name. One that it does not own is a conflict.
pub(super) fn find(
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Option<(Domain, OwnershipTag)>, Failure> {
    let Some(domain) = if_exists(connect.lookup_domain_by_name(checked_text("machine name", name.as_str())?))? else {
        return Ok(None);
    };
    match none_if_deleted(read(&domain))? {
        None => Ok(None),
        Some(Some(tag)) if tag.cluster == *cluster => Ok(Some((domain, tag))),
        Some(_) => conflict(format!("domain {name} is not owned by cluster {cluster}")),
    }
}

/// Switches off and undefines a domain.
fn remove(domain: &Domain) -> Result<(), Failure> {
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
pub(super) fn describe(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Description, Failure> {
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
