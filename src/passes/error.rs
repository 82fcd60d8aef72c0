//! Errors of the passes, with hints.
//!
//! More than 500 lines: every error and its hint in one enum, with a test that lists them all.

use std::net::IpAddr;
use std::time::Duration;

use crate::backend::{Finding, Owned};
use crate::cluster::{AddressRange, ClusterConfig, LOCK_FILE, MachineName, NodeName, Pass, Role};
use crate::node::budget::TooLarge;
use crate::plan::connections::ConnectionsError;
use crate::plan::harvest::Seen;
use crate::printable::count;

/// Why the passes stopped, unless a platform rejected a request or a tool failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("{} found before anything was created:{}", count(findings.len(), "problem"), lines(findings))]
    Preflight { findings: Vec<Finding> },
    #[error("cluster {cluster} exists with {what}")]
    OtherCluster { cluster: String, what: String },
    #[error("{}", other_kind(cluster, *rehearsal))]
    OtherKind {
        cluster: String,
        /// What exists under this name.
        rehearsal: bool,
    },
    #[error("{} of cluster {cluster} {} switched off: {}", count(machines.len(), "machine"), is_or_are(machines.len()), names(machines))]
    SwitchedOff {
        cluster: String,
        machines: Vec<MachineName>,
    },
    #[error("the record of cluster {cluster} is out of date: it lacks {}, which {} on the platform", names(machines), is_or_are(machines.len()))]
    StaleRecord {
        cluster: String,
        machines: Vec<MachineName>,
    },
    #[error("no master of cluster {cluster} is on the platform any more")]
    NoMasters { cluster: String },
    #[error("the parameter file of {cluster} does not fit the settings: {what}")]
    Mismatch { cluster: String, what: String },
    #[error("{what} is {is}, and {LOCK_FILE} requires {locked}")]
    Locked { what: String, is: String, locked: String },
    #[error("cluster {cluster} has machines of pass two; it cannot be harvested again under them")]
    Running { cluster: String },
    #[error("cluster {cluster} is installed, and the settings differ from it: {what}")]
    Complete {
        cluster: String,
        what: String,
        /// The options of `scale` for the requested number of workers, if nothing else differs.
        scale: Option<String>,
    },
    #[error("pass {pass}: {} of {total} without the expected address after {} s:{}", count(missing.len(), "machine"), waited.as_secs(), missing_lines(missing))]
    Addresses {
        of: Subject,
        pass: Pass,
        total: usize,
        waited: Duration,
        missing: Vec<Missing>,
    },
    #[error("pass {pass}: {} cannot get an address:{}", count(machines.len(), "machine"), missing_lines(machines))]
    Hopeless {
        of: Subject,
        pass: Pass,
        machines: Vec<Missing>,
    },
    #[error("pass two: {machine} has address {seen}, planned is {planned}: {why}")]
    Moved {
        of: Subject,
        machine: MachineName,
        planned: IpAddr,
        seen: String,
        why: &'static str,
    },
    #[error("pass one: {machine} cannot reach {}", endpoints.join(", "))]
    NoEgress {
        cluster: String,
        machine: MachineName,
        /// Each `HOST:PORT`.
        endpoints: Vec<String>,
    },
    #[error("no free VRRP id is left on network {network}")]
    NoRouterId { network: String },
    #[error("no free address is left on network {network} for {node}")]
    NoAddress { network: String, node: NodeName },
    #[error("no free address is left in address_pool {pool} for {node}")]
    PoolExhausted { pool: String, node: NodeName },
    #[error("cluster {cluster} is on the simulated platform: none of its real machines has {ip}")]
    Simulated { cluster: String, ip: IpAddr },
    #[error("network {network} does not report its address range")]
    NoRange { network: String },
    #[error(
        "the installer's files are {hours} hours old; their certificates are valid for 24 hours, and machines were created with them"
    )]
    StaleAssets { cluster: String, hours: i64 },
    #[error("network_config: {what}")]
    NetworkConfig { what: String, help: Option<String> },
    #[error("the Ignition config of {node} is {too_large}")]
    TooLarge { node: NodeName, too_large: TooLarge },
    #[error("{} could not be deleted:{}", count(left.len(), "object"), owned_lines(left))]
    Leftovers { left: Vec<Owned> },
    #[error("cluster {cluster} is not installed yet")]
    NotInstalled { cluster: String },
    #[error("cluster {cluster} has no addresses yet")]
    NotHarvested { cluster: String },
    #[error("cluster {cluster} was installed, and scaled or adopted since: there is nothing to deploy")]
    Scaled { cluster: String },
    #[error("cluster {cluster} was installed with workers, and its routers run on them: one worker must remain")]
    LastWorker { cluster: String },
    #[error(
        "the cluster has no pointer for a later {role}: neither Secret {role}-user-data-managed nor {role}-user-data is in openshift-machine-api"
    )]
    NoPointer { role: Role },
    #[error("cluster {cluster} has no release to renew its static pods from")]
    NoRelease { cluster: String },
    #[error("cluster {cluster} is being updated to {to}")]
    Updating { cluster: String, to: String },
    #[error("{node} is not a node of the cluster: {}", names(known))]
    NoNode {
        cluster: String,
        node: NodeName,
        known: Vec<NodeName>,
    },
    #[error("{node}: {why}")]
    External { node: NodeName, why: String, hint: String },
    #[error("{node} cannot be replaced now: {why}")]
    UnsafeMember { node: NodeName, why: String },
    #[error("{node} cannot be replaced now: {ip} still is a member of etcd")]
    StillMember { node: NodeName, ip: IpAddr },
    #[error("cluster {cluster} must not be stopped yet: {clock}")]
    TooYoung {
        cluster: String,
        clock: String,
        /// Whether the command has `--force`.
        may_force: bool,
    },
    #[error("no backup of etcd of cluster {cluster}:{}", refusals.iter().map(|why| format!("\n  {why}")).collect::<String>())]
    NoBackup {
        cluster: String,
        /// One line for each master.
        refusals: Vec<String>,
        /// The command that makes none.
        without: String,
    },
    #[error("{} still on after {} s: {}", count(machines.len(), "machine"), after.as_secs(), names(machines))]
    StillOn {
        cluster: String,
        machines: Vec<MachineName>,
        after: Duration,
    },
    #[error("{machine} started with {seen}, the table has {planned}")]
    CameBackElsewhere {
        cluster: String,
        machine: MachineName,
        planned: IpAddr,
        seen: IpAddr,
    },
    #[error("cluster {cluster} cannot have snapshots: {why}")]
    NoSnapshots { cluster: String, why: &'static str },
    #[error("cluster {cluster} has a snapshot {snapshot} already")]
    SnapshotExists { cluster: String, snapshot: String },
    #[error("cluster {cluster} has no snapshot {snapshot}{}", others(known))]
    NoSnapshot {
        cluster: String,
        snapshot: String,
        known: Vec<String>,
    },
    #[error(
        "snapshot {snapshot} of cluster {cluster} cannot be restored: it has no disks of {}",
        names(missing)
    )]
    IncompleteSnapshot {
        cluster: String,
        snapshot: String,
        missing: Vec<NodeName>,
    },
    #[error(
        "the restoration of snapshot {snapshot} of cluster {cluster} was interrupted: the disks of its nodes are from different times"
    )]
    HalfRestored { cluster: String, snapshot: String },
    #[error("{} started while the disks were saved: {}", count(machines.len(), "machine"), names(machines))]
    StartedMeanwhile {
        cluster: String,
        machines: Vec<MachineName>,
    },
    #[error("{} not running after {} s:{}", count(missing.len(), "machine"), after.as_secs(), seen_lines(missing))]
    NotBack {
        cluster: String,
        missing: Vec<(MachineName, Seen)>,
        after: Duration,
    },
}

impl PassError {
    pub(super) fn connections(error: ConnectionsError<'_>) -> Self {
        Self::NetworkConfig {
            what: error.to_string(),
            help: error.fault.help,
        }
    }

    pub(super) fn pool_exhausted(config: &ClusterConfig, node: NodeName) -> Self {
        let ranges: Vec<_> = config.address_pool.iter().map(AddressRange::to_string).collect();
        let pool = ranges.join(", ");
        Self::PoolExhausted { pool, node }
    }

    /// What a user can do about it, as a command where there is one.
    ///
    /// Suggests `destroy` only where the cluster cannot be an installed one;
    /// `tests::destroy_is_named_only_where_nothing_works` lists these cases with their reasons.
    pub fn hint(&self) -> String {
        match self {
            Self::OtherKind {
                cluster,
                rehearsal: true,
            } => format!(
                "OpenShift is not installed in a rehearsal: `ocpdeploy destroy {cluster}` removes it, then run the \
                 same command again; or choose another name with `--cluster NAME`"
            ),
            Self::OtherKind { cluster, .. } => {
                format!("use another name for the rehearsal: `ocpdeploy deploy --rehearse --cluster {cluster}-rehearsal`")
            }
            Self::SwitchedOff { cluster, .. } => format!("start the cluster with `ocpdeploy start {cluster}`"),
            Self::Locked { .. } => format!(
                "remove {LOCK_FILE} from the env file's folder to deploy with what is available now; \
                 `ocpdeploy config --lock > {LOCK_FILE}` writes it again"
            ),
            Self::Preflight { .. } => "fix these problems and run the same command again".to_owned(),
            Self::Complete {
                cluster,
                scale: Some(options),
                ..
            } => format!("`ocpdeploy scale {cluster} {options}`"),
            Self::Complete { cluster, .. } => format!(
                "restore the settings. `ocpdeploy scale {cluster} --workers N --pool POOL=N` changes the number of workers. New \
                 sizes take effect when a node is recreated: `ocpdeploy node replace {cluster} NODE`. The \
                 number of masters, networks and addresses of an installed cluster cannot be changed"
            ),
            Self::OtherCluster { cluster, .. } => format!(
                "choose another cluster name or restore the settings; `ocpdeploy status {cluster}` shows the cluster \
                 that has this name"
            ),
            Self::StaleRecord { cluster, .. } => format!(
                "another computer has changed the cluster: import its record with `ocpdeploy state import FILE --replace`; \
                 `ocpdeploy verify {cluster}` shows the differences"
            ),
            Self::NoMasters { cluster } => format!(
                "another computer may have removed the cluster, or its platform is another one: `ocpdeploy verify {cluster}` \
                 shows what is left of it"
            ),
            Self::Mismatch { .. } => {
                "restore the settings, or repeat pass one with `--harvest`".to_owned()
            }
            Self::Running { cluster } => format!(
                "`ocpdeploy deploy` without `--harvest` continues with its addresses. The cluster is not installed \
                 yet: `ocpdeploy destroy {cluster}` and then `ocpdeploy deploy` start over"
            ),
            Self::Addresses { of, missing, .. } => {
                let agent = match missing.iter().any(|missing| missing.seen == Seen::Silent) {
                    true => "an image without qemu-guest-agent needs the network to fetch it; ",
                    false => "",
                };
                let instead = match of.installed {
                    true => String::new(),
                    false => format!(
                        ". The cluster is not installed yet: `ocpdeploy destroy {}` removes them",
                        of.cluster
                    ),
                };
                format!("{agent}the machines are kept: run the same command again to wait longer{instead}")
            }
            Self::Hopeless { of, .. } if of.installed => "fix the cause, delete this machine on the platform, and run \
                                                          the same command again; the other nodes are not affected"
                .to_owned(),
            Self::Hopeless { of, .. } => format!(
                "fix the cause. The cluster is not installed yet: `ocpdeploy destroy {}`, then deploy again",
                of.cluster
            ),
            Self::Moved { of, .. } if of.installed => format!(
                "reserve the planned address for this MAC (`ocpdeploy verify {} --repair` does it where the platform \
                 can), restart the machine and run the same command again",
                of.cluster
            ),
            Self::Moved { of, .. } => format!(
                "reserve the planned address for this MAC. The cluster is not installed yet: `ocpdeploy destroy {}`, \
                 then deploy again",
                of.cluster
            ),
            Self::NoEgress { cluster, .. } => format!(
                "nodes would not pull their images. Check DNS and the route out of the network, on a libvirt host also \
                 `iptables -S FORWARD` and `nft list ruleset` (Docker drops forwarded packets), then run the same command \
                 again: the machines of {cluster} are kept and try again. egress_check=false skips this check"
            ),
            Self::NoRouterId { .. } => {
                "use another network; `ocpdeploy list` shows which clusters use the ids of this one".to_owned()
            }
            Self::NoAddress { .. } => {
                "use another network, or give the addresses in the env file with harvest=static".to_owned()
            }
            Self::NoRange { .. } => {
                "set machine_network in the env file, e.g. machine_network=192.168.122.0/24".to_owned()
            }
            Self::StaleAssets { cluster, .. } => format!(
                "the cluster is not installed and cannot be any more: `ocpdeploy destroy {cluster} --keep-addresses`, \
                 then deploy again: this creates new files and keeps the addresses"
            ),
            Self::Simulated { cluster, .. } => format!(
                "on a real network another machine may have this address, so nothing is sent to it and it is not \
                 published; `ocpdeploy status {cluster}` shows its addresses"
            ),
            Self::PoolExhausted { .. } => "enlarge address_pool in the env file, then run the same command again".to_owned(),
            Self::NetworkConfig { help, .. } => help.clone().unwrap_or_default(),
            Self::TooLarge { .. } => "remove files from your own configs, or make them smaller".to_owned(),
            Self::Leftovers { .. } => "run the same command again; the platform's log may show the cause".to_owned(),
            Self::NotInstalled { cluster } => format!(
                "`ocpdeploy deploy` starts or continues the installation; `ocpdeploy status {cluster}` shows its progress"
            ),
            Self::NotHarvested { .. } => "run `ocpdeploy harvest` or `ocpdeploy deploy`".to_owned(),
            Self::Scaled { cluster } => format!(
                "`ocpdeploy status {cluster}` shows its nodes; `ocpdeploy scale {cluster} --workers N` changes them"
            ),
            Self::LastWorker { cluster } => format!("`ocpdeploy scale {cluster} --workers 1`"),
            Self::NoPointer { .. } => "`oc -n openshift-machine-api get secrets` lists the existing secrets".to_owned(),
            Self::NoRelease { .. } => {
                "`oc get clusterversion version -o yaml` shows the releases of a cluster in status.history; a rehearsal has none"
                    .to_owned()
            }
            Self::Updating { cluster, .. } => format!(
                "`oc get clusterversion` shows the progress; when the update is complete, run `ocpdeploy renew {cluster}`"
            ),
            Self::External { hint, .. } => hint.clone(),
            Self::NoNode { cluster, .. } => format!("`ocpdeploy status {cluster}` shows its nodes"),
            // Removing a member is never suggested while the other members are in doubt.
            Self::UnsafeMember { .. } => {
                "the cluster needs two other nodes that are Ready and voting members of etcd. `oc get nodes` and `oc \
                 -n openshift-etcd get configmap etcd-endpoints -o yaml` show them; repair these first, and remove no member"
                    .to_owned()
            }
            Self::StillMember { .. } => {
                "the other members are healthy: switch the machine off, then remove its member from etcd as described \
                 in OpenShift's documentation (\"replacing an unhealthy etcd member\": `oc -n openshift-etcd rsh` into \
                 the etcd pod of another master, `etcdctl member list`, `etcdctl member remove ID`), and run the same command again"
                    .to_owned()
            }
            Self::TooYoung {
                cluster,
                may_force: false,
                ..
            } => format!(
                "the cluster replaces them within a day while it runs; `ocpdeploy status {cluster}` shows when it has, then \
                 run the same command again"
            ),
            Self::TooYoung { cluster, .. } => format!(
                "the requests of nodes that are off when these certificates expire must be approved by hand; to stop \
                 anyway, run `ocpdeploy stop {cluster} --force`"
            ),
            Self::NoBackup { cluster, without, .. } => format!(
                "nothing was stopped; check the login with `ocpdeploy node ssh {cluster} master-0`, or continue without a \
                 backup: `ocpdeploy {without}`"
            ),
            Self::NoSnapshots { cluster, .. } => format!(
                "nothing was stopped; `ocpdeploy stop {cluster} --backup FOLDER` saves etcd"
            ),
            Self::SnapshotExists { cluster, snapshot } => format!(
                "choose another name, or delete it first: `ocpdeploy snapshot delete {cluster} {snapshot}`"
            ),
            Self::NoSnapshot { cluster, .. } => format!("`ocpdeploy snapshot list {cluster}` shows its snapshots"),
            Self::IncompleteSnapshot { cluster, snapshot, .. } => format!(
                "nodes that joined or were recreated after a snapshot are not in it; `ocpdeploy scale {cluster} --workers N` \
                 removes workers that joined later. If the snapshot is of no use, delete it: `ocpdeploy snapshot delete \
                 {cluster} {snapshot}`"
            ),
            Self::HalfRestored { cluster, snapshot } => {
                format!("complete it first: `ocpdeploy snapshot restore {cluster} {snapshot}`")
            }
            Self::StartedMeanwhile { cluster, .. } => format!(
                "the snapshot is not consistent. Find out what starts the machines, for example high availability, and run \
                 the same command again; `ocpdeploy status {cluster}` shows them"
            ),
            Self::StillOn { cluster, .. } => format!(
                "run the same command again to wait longer, or power them off with \
                 `ocpdeploy stop {cluster} --power-off`"
            ),
            Self::CameBackElsewhere { cluster, .. } => {
                format!("`ocpdeploy verify {cluster} --repair` corrects the reservations; restart the machine afterwards")
            }
            Self::NotBack { cluster, .. } => format!(
                "run the same command again to wait longer; `ocpdeploy status {cluster}` shows the machines, and \
                 `ocpdeploy node console {cluster} NODE` a node's console"
            ),
        }
    }
}

/// The cluster that an error is about. An installed cluster works, and no hint may suggest to destroy it.
#[derive(Clone, Debug)]
pub struct Subject {
    pub cluster: String,
    pub installed: bool,
}

/// A machine whose address was not found in time.
#[derive(Debug)]
pub struct Missing {
    pub name: MachineName,
    pub seen: Seen,
    /// The last lines of its console.
    pub console: Option<String>,
}

fn other_kind(cluster: &str, rehearsal: bool) -> String {
    match rehearsal {
        true => format!("cluster {cluster} is a rehearsal; a real cluster cannot be deployed under its name"),
        false => format!("cluster {cluster} is a real cluster; it cannot be rehearsed under its name"),
    }
}

fn is_or_are(number: usize) -> &'static str {
    match number {
        1 => "is",
        _ => "are",
    }
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n  {}", finding.text)).collect()
}

fn names<T: ToString>(names: &[T]) -> String {
    names.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn seen_lines(missing: &[(MachineName, Seen)]) -> String {
    missing
        .iter()
        .map(|(name, seen)| format!("\n  {name} {seen}"))
        .collect()
}

fn others(known: &[String]) -> String {
    match known.is_empty() {
        true => String::new(),
        false => format!(", only {}", known.join(", ")),
    }
}

fn owned_lines(owned: &[Owned]) -> String {
    owned
        .iter()
        .map(|owned| format!("\n  {} {}", owned.kind, owned.name))
        .collect()
}

fn missing_lines(missing: &[Missing]) -> String {
    let mut text = String::new();
    for Missing { name, seen, console } in missing {
        text.push_str(&format!("\n  {name} {seen}"));
        for line in console.iter().flat_map(|console| console.lines()) {
            text.push_str(&format!("\n    console: {line}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::failure::explain;
    use crate::state::journal::JournalError;

    fn preflight() -> PassError {
        PassError::Preflight { findings: vec![] }
    }

    fn of(installed: bool) -> Subject {
        Subject {
            cluster: "prod7".to_owned(),
            installed,
        }
    }

    fn missing(seen: Seen) -> Vec<Missing> {
        let name = MachineName::of_node("prod7", &node());
        vec![Missing {
            name,
            seen,
            console: None,
        }]
    }

    fn node() -> NodeName {
        NodeName::node(Role::Worker, 0)
    }

    /// One of every variant, two where the hint depends on a field. A new variant does not compile until it is listed
    /// here.
    fn all() -> Vec<(&'static str, anyhow::Error)> {
        let cluster = || "prod7".to_owned();
        let machine = || MachineName::of_node("prod7", &node());
        let (ip, after) = (IpAddr::from([192, 0, 2, 7]), Duration::from_secs(60));
        let mut all: Vec<PassError> = vec![preflight()];
        for installed in [false, true] {
            all.push(PassError::Addresses {
                of: of(installed),
                pass: Pass::One,
                total: 1,
                waited: after,
                missing: missing(Seen::Silent),
            });
            all.push(PassError::Hopeless {
                of: of(installed),
                pass: Pass::Two,
                machines: missing(Seen::Absent),
            });
            all.push(PassError::Moved {
                of: of(installed),
                machine: machine(),
                planned: ip,
                seen: "192.0.2.8".to_owned(),
                why: "it moved",
            });
        }
        for scale in [Some("--workers 5".to_owned()), None] {
            let what = "it has 2 workers".to_owned();
            all.push(PassError::Complete {
                cluster: cluster(),
                what,
                scale,
            });
        }
        let network = || "lan".to_owned();
        let what = || "another".to_owned();
        all.extend([
            PassError::Locked {
                what: "worker_image".to_owned(),
                is: "sha256:0123".to_owned(),
                locked: "sha256:4567".to_owned(),
            },
            PassError::OtherCluster {
                cluster: cluster(),
                what: what(),
            },
            PassError::StaleRecord {
                cluster: cluster(),
                machines: vec![machine()],
            },
            PassError::NoMasters { cluster: cluster() },
            PassError::Mismatch {
                cluster: cluster(),
                what: what(),
            },
            PassError::OtherKind {
                cluster: cluster(),
                rehearsal: true,
            },
            PassError::OtherKind {
                cluster: cluster(),
                rehearsal: false,
            },
            PassError::SwitchedOff {
                cluster: cluster(),
                machines: vec![machine()],
            },
            PassError::Running { cluster: cluster() },
            PassError::NoEgress {
                cluster: cluster(),
                machine: machine(),
                endpoints: vec!["registry.example.com:443".to_owned()],
            },
            PassError::NoRouterId { network: network() },
            PassError::PoolExhausted {
                pool: "10.0.0.20-10.0.0.30".to_owned(),
                node: NodeName::bootstrap(),
            },
            PassError::NoAddress {
                network: network(),
                node: node(),
            },
            PassError::NoRange { network: network() },
            PassError::Simulated { cluster: cluster(), ip },
            PassError::StaleAssets {
                cluster: cluster(),
                hours: 30,
            },
            PassError::NetworkConfig {
                what: "net.yaml:3:5: no interface has IPv4 enabled".to_owned(),
                help: Some("enable it".to_owned()),
            },
            PassError::TooLarge {
                node: node(),
                too_large: crate::node::budget::fit(&tiny(), vec![0; 64]).expect_err("one byte holds nothing"),
            },
            PassError::Leftovers { left: vec![] },
            PassError::NotInstalled { cluster: cluster() },
            PassError::NotHarvested { cluster: cluster() },
            PassError::Scaled { cluster: cluster() },
            PassError::LastWorker { cluster: cluster() },
            PassError::NoPointer { role: Role::Worker },
            PassError::NoRelease { cluster: cluster() },
            PassError::Updating {
                cluster: cluster(),
                to: "4.20.1".to_owned(),
            },
            PassError::NoNode {
                cluster: cluster(),
                node: node(),
                known: vec![],
            },
            PassError::External {
                node: node(),
                why: what(),
                hint: "choose another name".to_owned(),
            },
            PassError::UnsafeMember {
                node: node(),
                why: what(),
            },
            PassError::StillMember {
                node: node(),
                ip: IpAddr::from([127, 0, 0, 1]),
            },
            PassError::TooYoung {
                cluster: cluster(),
                clock: what(),
                may_force: true,
            },
            PassError::TooYoung {
                cluster: cluster(),
                clock: what(),
                may_force: false,
            },
            PassError::NoBackup {
                cluster: cluster(),
                refusals: vec![what()],
                without: "stop prod7".to_owned(),
            },
            PassError::NoSnapshots {
                cluster: cluster(),
                why: "it has none",
            },
            PassError::SnapshotExists {
                cluster: cluster(),
                snapshot: what(),
            },
            PassError::NoSnapshot {
                cluster: cluster(),
                snapshot: what(),
                known: vec![],
            },
            PassError::IncompleteSnapshot {
                cluster: cluster(),
                snapshot: what(),
                missing: vec![node()],
            },
            PassError::HalfRestored {
                cluster: cluster(),
                snapshot: what(),
            },
            PassError::StartedMeanwhile {
                cluster: cluster(),
                machines: vec![machine()],
            },
            PassError::StillOn {
                cluster: cluster(),
                machines: vec![machine()],
                after,
            },
            PassError::CameBackElsewhere {
                cluster: cluster(),
                machine: machine(),
                planned: ip,
                seen: ip,
            },
            PassError::NotBack {
                cluster: cluster(),
                missing: vec![(machine(), Seen::NoLease)],
                after,
            },
        ]);
        let mut named: Vec<(&'static str, anyhow::Error)> = Vec::new();
        named.extend(all.into_iter().map(|error| (variant(&error), error.into())));
        named.extend(
            journal_errors()
                .into_iter()
                .map(|error| (journal_variant(&error), error.into())),
        );
        named
    }

    fn tiny() -> crate::backend::Carrier {
        crate::backend::Carrier {
            limit: Some(1),
            ..crate::backend::Carrier::FW_CFG
        }
    }

    fn journal_errors() -> Vec<JournalError> {
        let path = || PathBuf::from("/state/clusters/prod7/journal.jsonl");
        let mut all = vec![
            JournalError::ReservationState {
                cluster: "prod7".to_owned(),
                holder: "process 7".to_owned(),
            },
            JournalError::Damaged {
                path: path(),
                at: 7,
                source: serde_json::from_str::<u8>("x").expect_err("no number"),
            },
            JournalError::Version { path: path(), v: 9 },
            JournalError::Io {
                path: path(),
                source: std::io::Error::other("full"),
            },
        ];
        for installed in [false, true] {
            all.push(JournalError::OtherInput {
                cluster: "prod7".to_owned(),
                step: "assets".to_owned(),
                installed,
            });
        }
        all
    }

    fn variant(error: &PassError) -> &'static str {
        match error {
            PassError::Preflight { .. } => "Preflight",
            PassError::OtherCluster { .. } => "OtherCluster",
            PassError::OtherKind { rehearsal: true, .. } => "OtherKind, rehearsal",
            PassError::OtherKind { .. } => "OtherKind, real",
            PassError::SwitchedOff { .. } => "SwitchedOff",
            PassError::StaleRecord { .. } => "StaleRecord",
            PassError::NoMasters { .. } => "NoMasters",
            PassError::Mismatch { .. } => "Mismatch",
            PassError::Running { .. } => "Running",
            PassError::Locked { .. } => "Locked",
            PassError::Complete { .. } => "Complete",
            PassError::Addresses { of, .. } if of.installed => "Addresses, installed",
            PassError::Addresses { .. } => "Addresses",
            PassError::Hopeless { of, .. } if of.installed => "Hopeless, installed",
            PassError::Hopeless { .. } => "Hopeless",
            PassError::Moved { of, .. } if of.installed => "Moved, installed",
            PassError::Moved { .. } => "Moved",
            PassError::NoEgress { .. } => "NoEgress",
            PassError::NoRouterId { .. } => "NoRouterId",
            PassError::NoAddress { .. } => "NoAddress",
            PassError::PoolExhausted { .. } => "PoolExhausted",
            PassError::NoRange { .. } => "NoRange",
            PassError::Simulated { .. } => "Simulated",
            PassError::StaleAssets { .. } => "StaleAssets",
            PassError::NetworkConfig { .. } => "NetworkConfig",
            PassError::TooLarge { .. } => "TooLarge",
            PassError::Leftovers { .. } => "Leftovers",
            PassError::NotInstalled { .. } => "NotInstalled",
            PassError::NotHarvested { .. } => "NotHarvested",
            PassError::Scaled { .. } => "Scaled",
            PassError::LastWorker { .. } => "LastWorker",
            PassError::NoPointer { .. } => "NoPointer",
            PassError::NoRelease { .. } => "NoRelease",
            PassError::Updating { .. } => "Updating",
            PassError::NoNode { .. } => "NoNode",
            PassError::External { .. } => "External",
            PassError::UnsafeMember { .. } => "UnsafeMember",
            PassError::StillMember { .. } => "StillMember",
            PassError::TooYoung { .. } => "TooYoung",
            PassError::NoBackup { .. } => "NoBackup",
            PassError::NoSnapshots { .. } => "NoSnapshots",
            PassError::SnapshotExists { .. } => "SnapshotExists",
            PassError::NoSnapshot { .. } => "NoSnapshot",
            PassError::IncompleteSnapshot { .. } => "IncompleteSnapshot",
            PassError::HalfRestored { .. } => "HalfRestored",
            PassError::StartedMeanwhile { .. } => "StartedMeanwhile",
            PassError::StillOn { .. } => "StillOn",
            PassError::CameBackElsewhere { .. } => "CameBackElsewhere",
            PassError::NotBack { .. } => "NotBack",
        }
    }

    fn journal_variant(error: &JournalError) -> &'static str {
        match error {
            JournalError::ReservationState { .. } => "Held",
            JournalError::Damaged { .. } => "Damaged",
            JournalError::Version { .. } => "Version",
            JournalError::OtherInput { installed: true, .. } => "OtherInput, installed",
            JournalError::OtherInput { .. } => "OtherInput",
            JournalError::Io { .. } => "Io",
        }
    }

    /// Where a hint may suggest `destroy`, and why the cluster cannot be a working one.
    const DESTROYS: [(&str, &str); 8] = [
        (
            "OtherKind, rehearsal",
            "a rehearsal has no OpenShift; a real cluster gets another hint",
        ),
        ("Running", "nodes were made and never became a cluster"),
        ("Addresses", "machines that were waited for before the installation"),
        ("Hopeless", "a machine that cannot recover, before the installation"),
        ("Moved", "a node with another address, before the installation"),
        (
            "StaleAssets",
            "the bootstrap did not end within the certificates' day, so there is no cluster",
        ),
        (
            "Damaged",
            "said of a cluster that is not installed only; nothing else works without the journal",
        ),
        ("OtherInput", "settings that changed before the installation"),
    ];

    #[test]
    fn destroy_is_named_only_where_nothing_works() {
        let mut destroys = std::collections::BTreeSet::new();
        for (variant, error) in all() {
            for hint in explain(&error).hints {
                if hint.contains("destroy") {
                    assert!(hint.contains("not installed"), "{variant} says of what: {hint}");
                    destroys.insert(variant);
                }
            }
        }
        assert_eq!(destroys, DESTROYS.map(|(variant, _)| variant).into());
    }

    #[test]
    fn a_hint_is_a_command_with_the_clusters_own_name() {
        // These take no cluster, or use ./env.sh or another file.
        let without = ["config", "deploy", "harvest", "list", "state"];
        for (variant, error) in all() {
            let hints = explain(&error).hints;
            assert!(!hints.is_empty(), "{variant} has no hint");
            for hint in &hints {
                assert!(!hint.contains("CLUSTER"), "{variant}: {hint}");
                for command in hint.split('`').skip(1).step_by(2) {
                    let Some(rest) = command.strip_prefix("ocpdeploy ") else {
                        continue;
                    };
                    let needs = !without.contains(&rest.split(' ').next().unwrap_or_default());
                    assert!(!needs || rest.contains("prod7"), "{variant}: {hint}");
                }
            }
        }
    }
}
