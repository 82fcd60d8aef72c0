//! Machines: made, looked at and deleted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Mutex;

use tracing::warn;
use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::{Domain, DomainPausedReason, DomainShutoffReason, DomainState, DomainStateReason};
use virt::enumutil::Enum;
use virt::error::ErrorNumber;
use virt::sys;

use super::attachment::{self, Attachment};
use super::domain::{self, OwnershipTag, Paths, Platform};
use super::session::{Pulse, document, if_supported, if_there, lock, plain};
use super::storage::{self, Content, Storage};
use super::volumes::{Part, Volume, is_name};
use super::{guest, network, seed};
use crate::backend::failure::Failure;
use crate::backend::{
    Action, BackendErrorKind, Description, Form, Machine, MachineSpec, Payload, Power, SeenNic, Stop,
};
use crate::cluster::{ClusterId, Mac, MachineName};
use crate::xml;

const GIB: u64 = 1 << 30;
/// Enough for the last lines of a console.
const TAIL: u64 = 4096;

/// What running domains are, by UUID and run, so that a look at many machines asks for each document only once.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<(Uuid, u32), Option<OwnershipTag>>>);

impl Known {
    fn read(&self, domain: &Domain) -> Result<Option<OwnershipTag>, Failure> {
        // A domain gets a new id with each start; one that is off can be redefined at any time.
        let key = match domain.id() {
            Some(id) => Some((domain.uuid()?, id)),
            None => None,
        };
        if let Some(known) = key.and_then(|key| lock(&self.0).get(&key).cloned()) {
            return Ok(known);
        }
        let ours = read(domain)?;
        if let Some(key) = key {
            lock(&self.0).insert(key, ours.clone());
        }
        Ok(ours)
    }
}

fn read(domain: &Domain) -> Result<Option<OwnershipTag>, Failure> {
    Ok(OwnershipTag::read(&document(domain.xml_desc(0))?))
}

/// Creates and starts, or adopts.
pub(super) fn create(
    storage: &Storage,
    connect: &Connect,
    platform: &Platform,
    spec: &MachineSpec,
    pulse: &Pulse,
) -> Result<Action<Machine>, Failure> {
    check_names(&spec.cluster, &spec.name)?;
    if let Some(there) = if_there(connect.lookup_domain_by_name(spec.name.as_str()))? {
        let is_ours = read(&there)?.filter(|ours| ours.cluster == spec.cluster);
        return match is_ours {
            Some(ours) if ours.fingerprint == spec.fingerprint() => adopt(&there, &ours, spec),
            Some(_) => conflict(format!("machine {} of this cluster has other settings", spec.name)),
            None => conflict(format!("a domain {} that is not of this cluster is there", spec.name)),
        };
    }
    for nic in &spec.nics {
        match Attachment::read(&nic.network).device() {
            Some(device) => attachment::require_device(connect, device)?,
            None => drop(network::find(connect, &nic.network)?),
        }
    }
    // Nothing can use volumes of a domain that is not there: those of a cut try are made anew.
    let mut paths = make_volumes(storage, spec, pulse)?;
    let define = |paths: &Paths| {
        let xml = domain::to_xml(spec, platform, paths).to_string();
        connect.define_domain_xml_flags(&xml, sys::VIR_DOMAIN_DEFINE_VALIDATE)
    };
    let mut domain = define(&paths)?;
    match start(&domain, spec) {
        Err(failure) if is_of_console(&failure, &paths) => {
            warn!(
                "{}: libvirt cannot write the log of its serial console, so it gets none: {}",
                spec.name, failure.words
            );
            paths.console = None;
            domain = define(&paths)?;
            start(&domain, spec)?;
        }
        other => other?,
    }
    let ours = read(&domain)?.ok_or_else(|| {
        let words = "libvirt did not keep the domain's metadata";
        Failure::new(BackendErrorKind::Rejected, words)
    })?;
    Ok(Action::Done(seen(&ours, power(&domain, &ours)?, &BTreeMap::new())))
}

/// Whether a machine did not start because of its console's log alone.
///
/// virtlogd opens it, and SELinux does not let it write into every pool: on Fedora it may only look into the folders of
/// images (libvirt/libvirt: src/util/virrotatingfile.c, `virRotatingFileWriterEntryNew`, names the file it cannot open).
fn is_of_console(failure: &Failure, paths: &Paths) -> bool {
    paths
        .console
        .as_ref()
        .is_some_and(|console| failure.words.contains(console.as_str()))
}

fn conflict<T>(words: String) -> Result<T, Failure> {
    Err(Failure::new(BackendErrorKind::Conflict, words))
}

/// Ownership is read from names, so they must keep to their alphabet.
fn check_names(cluster: &ClusterId, name: &MachineName) -> Result<(), Failure> {
    match [cluster.as_str(), name.as_str()]
        .into_iter()
        .find(|name| !is_name(name))
    {
        Some(bad) => Err(Failure::new(
            BackendErrorKind::Rejected,
            format!("`{bad}` is not made of letters, digits, dots and hyphens"),
        )),
        None => Ok(()),
    }
}

/// A domain is defined only after its volumes, so all that may lack is its start.
fn adopt(domain: &Domain, ours: &OwnershipTag, spec: &MachineSpec) -> Result<Action<Machine>, Failure> {
    let off = domain.id().is_none();
    if off {
        start(domain, spec)?;
    }
    let machine = seen(ours, power(domain, ours)?, &BTreeMap::new());
    Ok(if off {
        Action::Done(machine)
    } else {
        Action::Unchanged(machine)
    })
}

fn start(domain: &Domain, spec: &MachineSpec) -> Result<(), Failure> {
    if spec.autostart {
        domain.set_autostart(true)?;
    }
    switch_on(domain)
}

fn switch_on(domain: &Domain) -> Result<(), Failure> {
    match domain.create().map_err(Failure::from) {
        // Someone else started it in this moment.
        Err(failure) if failure.is(ErrorNumber::OperationInvalid) && domain.is_active()? => Ok(()),
        other => other,
    }
}

/// Starts a machine that is off.
pub(super) fn start_again(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, Failure> {
    let domain = existing(connect, cluster, name)?;
    if domain.is_active()? {
        return Ok(Action::Unchanged(()));
    }
    switch_on(&domain)?;
    Ok(Action::Done(()))
}

/// Presses the power button, or takes the power.
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
        Stop::Ask => domain.shutdown().map(drop),
        Stop::Force => domain.destroy().map(drop),
    };
    match stopped.map_err(Failure::from) {
        // It went off in this moment.
        Err(failure) if failure.is(ErrorNumber::OperationInvalid) && !domain.is_active()? => Ok(Action::Unchanged(())),
        Err(failure) => Err(failure),
        Ok(()) => Ok(Action::Done(())),
    }
}

/// The cluster's domain of this name, which must be there.
pub(super) fn existing(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Domain, Failure> {
    let absent = || Failure::new(BackendErrorKind::NotFound, format!("there is no domain {name}"));
    Ok(find(connect, cluster, name)?.ok_or_else(absent)?.0)
}

fn make_volumes(storage: &Storage, spec: &MachineSpec, pulse: &Pulse) -> Result<Paths, Failure> {
    let base = storage.base(&spec.image.0)?;
    let name = |part: Part| part.volume(&spec.cluster, &spec.name);
    let make = |part: Part, content: &Content| Ok::<_, Failure>(storage.create_anew(&name(part), content)?.path()?);
    let fill = |part: Part, bytes: &[u8]| {
        let volume = storage.create_anew(&name(part), &Content::Raw(bytes.len() as u64))?;
        storage.upload(&volume, bytes, pulse)?;
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
        // Nothing to tell needs no carrier.
        Payload::Ignition(config) if config.is_empty() => {}
        Payload::Ignition(config) => paths.ignition = fill(Part::Ignition, config)?,
        Payload::CloudInit {
            user_data,
            meta_data,
            network_config,
        } => {
            let seed = seed::image(user_data, meta_data, network_config)
                .map_err(|error| Failure::new(BackendErrorKind::TooLarge, format!("make the seed: {error}")))?;
            paths.seed = fill(Part::Seed, &seed)?;
        }
    }
    Ok(paths)
}

/// All machines of a cluster: two calls for all of them, one for each that does not run, one more for each network.
pub(super) fn list(connect: &Connect, known: &Known, cluster: &ClusterId) -> Result<Vec<Machine>, Failure> {
    let mut found = Vec::new();
    // All of them in one call: one that starts or stops between two calls by state would be in neither.
    let all = connect.list_all_domains(0)?;
    let running: HashSet<Uuid> = connect
        .list_all_domains(sys::VIR_CONNECT_LIST_DOMAINS_RUNNING)?
        .iter()
        .map(Domain::uuid)
        .collect::<Result<_, _>>()?;
    for domain in all {
        if let Some(ours) = gone_is_none(known.read(&domain))?.flatten() {
            let power = match running.contains(&domain.uuid()?) {
                true => Some(Power::Running),
                false => gone_is_none(power(&domain, &ours))?,
            };
            found.push((domain, ours, power));
        }
    }
    found.retain(|(_, ours, _)| ours.cluster == *cluster);
    let addresses = addresses(connect, &found)?;
    let mut machines: Vec<Machine> = found
        .iter()
        .filter_map(|(_, ours, power)| Some(seen(ours, power.clone()?, &addresses)))
        .collect();
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(machines)
}

/// A domain that goes while we look at all of them is none.
fn gone_is_none<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.kind == BackendErrorKind::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

type Addresses = BTreeMap<Mac, Vec<Ipv4Addr>>;

/// The addresses of the machines' MACs; all of them, so that a clash can be seen.
fn addresses(connect: &Connect, found: &[(Domain, OwnershipTag, Option<Power>)]) -> Result<Addresses, Failure> {
    let mut addresses = Addresses::new();
    let mut learn = |mac: Mac, ip: Ipv4Addr| {
        let known = addresses.entry(mac).or_default();
        if !known.contains(&ip) {
            known.push(ip);
        }
    };
    let mut served: HashMap<&str, bool> = HashMap::new();
    for nic in found.iter().flat_map(|(_, ours, _)| &ours.nics) {
        if served.contains_key(nic.network.as_str()) {
            continue;
        }
        if Attachment::read(&nic.network).device().is_some() {
            served.insert(&nic.network, false);
            continue;
        }
        // A network that was removed under its machines tells nothing.
        let network = if_there(connect.lookup_network_by_name(plain("the network's name", &nic.network)?))?;
        let serves = match network {
            Some(network) => {
                let leases = network::leases_now(&network)?;
                leases.iter().for_each(|lease| learn(lease.mac, lease.ip));
                !leases.is_empty() || network::has_dhcp(&network)?
            }
            None => false,
        };
        served.insert(&nic.network, serves);
    }
    for (domain, ours, power) in found {
        let unserved = ours.nics.iter().any(|nic| !served[nic.network.as_str()]);
        if unserved && *power == Some(Power::Running) {
            for (mac, ip) in guest::addresses(domain) {
                learn(mac, ip);
            }
        }
    }
    Ok(addresses)
}

fn seen(ours: &OwnershipTag, power: Power, addresses: &Addresses) -> Machine {
    let nic = |nic: &crate::backend::Nic| SeenNic {
        network: nic.network.clone(),
        mac: nic.mac,
        addresses: addresses.get(&nic.mac).cloned().unwrap_or_default(),
    };
    Machine {
        name: ours.name.clone(),
        node: ours.node.clone(),
        role: ours.role,
        pass: ours.pass,
        fingerprint: ours.fingerprint.clone(),
        power,
        nics: ours.nics.iter().map(nic).collect(),
    }
}

fn power(domain: &Domain, ours: &OwnershipTag) -> Result<Power, Failure> {
    let (state, reason) = domain.state()?;
    let reason = match reason {
        Enum::Known(reason) => Some(reason),
        Enum::Unknown(_) => None,
    };
    Ok(read_power(state.known(), reason, ours.is_kvm))
}

fn read_power(state: Option<DomainState>, reason: Option<DomainStateReason>, is_kvm: bool) -> Power {
    match (state, reason) {
        (Some(DomainState::Running | DomainState::Blocked), _) => Power::Running,
        (Some(DomainState::Paused), Some(DomainStateReason::Paused(reason))) => read_pause(reason.known(), is_kvm),
        (Some(DomainState::PMSuspended), _) => Power::Paused("the guest sleeps".to_owned()),
        (Some(DomainState::Shutoff), Some(DomainStateReason::Shutoff(reason))) => match reason.known() {
            Some(DomainShutoffReason::Crashed) => Power::Broken("its emulator died".to_owned()),
            Some(DomainShutoffReason::Failed) => Power::Broken("it did not start".to_owned()),
            _ => Power::Off,
        },
        (Some(DomainState::Crashed), _) => Power::Broken("the guest panicked".to_owned()),
        (Some(DomainState::Shutoff | DomainState::Shutdown), _) => Power::Off,
        _ => Power::Building,
    }
}

fn read_pause(reason: Option<DomainPausedReason>, is_kvm: bool) -> Power {
    let words = match reason {
        Some(DomainPausedReason::StartingUp) => return Power::Building,
        Some(DomainPausedReason::User) => "somebody paused it",
        Some(DomainPausedReason::IOError) => "an I/O error; the pool may be full",
        Some(DomainPausedReason::Watchdog) => "its watchdog fired",
        Some(DomainPausedReason::Crashed) => "the guest panicked",
        Some(
            DomainPausedReason::Migration
            | DomainPausedReason::Save
            | DomainPausedReason::Dump
            | DomainPausedReason::Snapshot
            | DomainPausedReason::FromSnapshot,
        ) => "somebody saves, copies or moves it",
        // QEMU stops a guest so when the accelerator fails.
        _ if is_kvm => "KVM does not work here, set virt_type=qemu",
        _ => "the emulator stopped it",
    };
    Power::Paused(words.to_owned())
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

/// The cluster's domain of this name; a stranger's is a conflict.
fn find(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Option<(Domain, OwnershipTag)>, Failure> {
    let Some(domain) = if_there(connect.lookup_domain_by_name(plain("the machine's name", name.as_str())?))? else {
        return Ok(None);
    };
    match gone_is_none(read(&domain))? {
        None => Ok(None),
        Some(Some(ours)) if ours.cluster == *cluster => Ok(Some((domain, ours))),
        Some(_) => conflict(format!("domain {name} is not of cluster {cluster}")),
    }
}

/// Powers off and forgets a domain.
fn remove(domain: &Domain) -> Result<(), Failure> {
    // Waits for the emulator's end; that a domain is off already is no news.
    match if_there(domain.destroy()) {
        Err(failure) if failure.is(ErrorNumber::OperationInvalid) => {}
        other => drop(other?),
    }
    let (save, nvram) = (sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE, sys::VIR_DOMAIN_UNDEFINE_NVRAM);
    let (snapshots, checkpoints) = (
        sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA,
        sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA,
    );
    // Older and other drivers refuse flags that they do not know.
    let mut answer = Ok(None);
    for flags in [
        save | snapshots | checkpoints | nvram,
        save | snapshots | nvram,
        save | snapshots,
        0,
    ] {
        answer = if_there(domain.undefine_flags(flags));
        match &answer {
            Err(failure) if failure.is_unsupported() || failure.is(ErrorNumber::InvalidArg) => {}
            _ => break,
        }
    }
    answer.map(drop)
}

/// The last lines of the serial console.
pub(super) fn console_tail(
    storage: &Storage,
    connect: &Connect,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Option<String>, Failure> {
    existing(connect, cluster, name)?;
    let Some(volume) = storage.find(&Part::Console.volume(cluster, name))? else {
        return Ok(None);
    };
    let size = volume.info()?.capacity;
    let bytes = if_supported(storage.read(&volume, size.saturating_sub(TAIL), TAIL))?;
    Ok(bytes.map(|bytes| last_lines(&bytes)).filter(|text| !text.is_empty()))
}

/// Up to 20 lines, without what would move a terminal's cursor or change its colours.
/// The domain as libvirt has it; what is secret in it stays in files.
pub(super) fn describe(connect: &Connect, cluster: &ClusterId, name: &MachineName) -> Result<Description, Failure> {
    let domain = existing(connect, cluster, name)?;
    let text = domain.xml_desc(0)?;
    let document = xml::parse(&text)?;
    let mut described = Description::default();
    described.dynamic.insert("host".to_owned(), connect.hostname()?);
    for (key, path, attribute) in [("kind", "", "type"), ("console", "devices/console", "tty")] {
        let element = if path.is_empty() {
            Some(&document)
        } else {
            document.find(path)
        };
        if let Some(value) = element.and_then(|element| element.get(attribute)) {
            described.dynamic.insert(key.to_owned(), value.to_owned());
        }
    }
    if let Some(cpus) = document.value("vcpu", "cpuset") {
        described.scheduling.insert("cpus".to_owned(), cpus.to_owned());
    }
    described.form = Some(Form {
        name: "domain XML",
        text,
    });
    Ok(described)
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<String> = text
        .lines()
        .map(|line| strip_control(line).trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn strip_control(line: &str) -> String {
    let mut plain = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\x1b' && characters.peek() == Some(&'[') {
            characters.next();
            // Parameters end with a letter or one of @ [ \ ] ^ _ ` { | } ~.
            for parameter in characters.by_ref() {
                if ('@'..='~').contains(&parameter) {
                    break;
                }
            }
        } else if !character.is_control() || character == '\t' {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use virt::domain::{DomainPausedReasonEnum, DomainShutoffReasonEnum};

    use super::*;

    #[test]
    fn a_pause_is_told_in_words() {
        let paused = |reason, is_kvm| {
            let reason = DomainStateReason::Paused(DomainPausedReasonEnum::Known(reason));
            read_power(Some(DomainState::Paused), Some(reason), is_kvm)
        };
        for reason in [DomainPausedReason::Unknown, DomainPausedReason::APIError] {
            assert!(matches!(paused(reason, true), Power::Paused(words) if words.contains("virt_type=qemu")));
            assert!(matches!(paused(reason, false), Power::Paused(words) if !words.contains("KVM")));
        }
        assert_eq!(paused(DomainPausedReason::StartingUp, true), Power::Building);
        assert!(
            matches!(paused(DomainPausedReason::User, true), Power::Paused(words) if words == "somebody paused it")
        );
        let crashed = DomainStateReason::Shutoff(DomainShutoffReasonEnum::Known(DomainShutoffReason::Crashed));
        assert!(matches!(
            read_power(Some(DomainState::Shutoff), Some(crashed), true),
            Power::Broken(_)
        ));
        assert_eq!(read_power(None, None, true), Power::Building);
    }

    #[test]
    fn the_tail_of_a_console_is_plain_text() {
        let mut log = String::new();
        for line in 0..100 {
            log += &format!("\x1b[0;32m line {line}\x1b[0m\r\n\r\n");
        }
        let tail = last_lines(log.as_bytes());
        assert_eq!(tail.lines().count(), 20);
        assert!(tail.starts_with(" line 80\n") && tail.ends_with(" line 99"), "{tail}");
        assert_eq!(last_lines(b"\x1b[2J\x1b[H\x00"), "");
        assert_eq!(last_lines(b"\xff\x1b"), "\u{fffd}");
    }
}
