//! Why the passes stop, in words.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::backend::{Finding, Owned};
use crate::cluster::{MachineName, NodeName, Pass, Role};
use crate::harvest::Seen;
use crate::ignition::budget::TooLarge;

/// Why the passes stopped, where it is neither a platform's refusal nor a tool's failure.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("{} found before anything was made:{}", count(findings.len(), "problem"), lines(findings))]
    Preflight { findings: Vec<Finding> },
    #[error("cluster {cluster} is known here with {what}")]
    OtherCluster { cluster: String, what: String },
    #[error("the parameter file of {cluster} does not fit the settings: {what}")]
    Mismatch { cluster: String, what: String },
    #[error("cluster {cluster} has machines of pass two; it cannot be harvested again under them")]
    Running { cluster: String },
    #[error("pass {pass}: {} of {total} without the expected address after {} s:{}", count(missing.len(), "machine"), waited.as_secs(), missing_lines(missing))]
    Addresses {
        pass: Pass,
        total: usize,
        waited: Duration,
        missing: Vec<Missing>,
    },
    #[error("pass {pass}: {} cannot get an address:{}", count(machines.len(), "machine"), missing_lines(machines))]
    Hopeless { pass: Pass, machines: Vec<Missing> },
    #[error("pass two: {machine} has address {seen}, pass one found {planned}: {why}")]
    Moved {
        machine: MachineName,
        planned: Ipv4Addr,
        seen: String,
        why: &'static str,
    },
    #[error("no free VRRP id is left on network {network}")]
    NoRouterId { network: String },
    #[error("no free address is left on network {network} for {node}")]
    NoAddress { network: String, node: NodeName },
    #[error("network {network} does not tell its address range")]
    NoRange { network: String },
    #[error(
        "the installer's files are {hours} hours old; the certificates in them last 24, and machines were made with them"
    )]
    StaleAssets { hours: i64 },
    #[error("the Ignition config of {node} is {too_large}")]
    TooLarge { node: NodeName, too_large: TooLarge },
    #[error("{} not wanted to go:{}", count(left.len(), "thing"), owned_lines(left))]
    Leftovers { left: Vec<Owned> },
    #[error("cluster {cluster} is not installed yet")]
    NotInstalled { cluster: String },
    #[error("the addresses of cluster {cluster} are not known yet")]
    NotHarvested { cluster: String },
    #[error("cluster {cluster} was installed and has been scaled since: there is nothing to deploy")]
    Scaled { cluster: String },
    #[error("cluster {cluster} was installed with workers, and its routers run on them: one must stay")]
    LastWorker { cluster: String },
    #[error(
        "the cluster has no pointer for a later {role}: neither Secret {role}-user-data-managed nor {role}-user-data is in openshift-machine-api"
    )]
    NoPointer { role: Role },
    #[error("{node} is none of the cluster's nodes: {}", names(known))]
    NoNode { node: NodeName, known: Vec<NodeName> },
    #[error("{node} cannot be replaced now: {why}")]
    UnsafeMaster { node: NodeName, why: String },
    #[error("cluster {cluster} must not be off yet: {clock}")]
    TooYoung { cluster: String, clock: String },
    #[error("{} still on after {} s: {}", count(machines.len(), "machine"), after.as_secs(), names(machines))]
    StillOn {
        machines: Vec<MachineName>,
        after: Duration,
    },
    #[error("{machine} came back with {seen}, the table has {planned}")]
    CameBackElsewhere {
        machine: MachineName,
        planned: Ipv4Addr,
        seen: Ipv4Addr,
    },
    #[error("{} not back after {} s:{}", count(missing.len(), "machine"), after.as_secs(), seen_lines(missing))]
    NotBack {
        missing: Vec<(MachineName, Seen)>,
        after: Duration,
    },
}

impl PassError {
    /// What a user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Preflight { .. } => "mend these and run the same command again",
            Self::OtherCluster { .. } => "choose another cluster name, or destroy that cluster first",
            Self::Mismatch { .. } => "put the settings back, or run again with `--harvest` to harvest anew",
            Self::Running { .. } => "`ocpdeploy destroy CLUSTER`, then deploy again",
            Self::Addresses { missing, .. } if missing.iter().any(|missing| missing.seen == Seen::Silent) => {
                "an image without qemu-guest-agent needs the network to fetch it; the machines are kept: run the same command again to wait longer, or destroy the cluster"
            }
            Self::Addresses { .. } => {
                "the machines are kept: run the same command again to wait longer, or destroy the cluster"
            }
            Self::Hopeless { .. } => "mend the cause, `ocpdeploy destroy CLUSTER`, and deploy again",
            Self::Moved { .. } => {
                "`ocpdeploy destroy CLUSTER` and deploy again, or reserve the planned address for this MAC"
            }
            Self::NoRouterId { .. } => "destroy a cluster that is not needed, or use another network",
            Self::NoAddress { .. } => "use another network, or give the addresses in the env file with harvest=static",
            Self::NoRange { .. } => "set machine_network in the env file, e.g. machine_network=192.168.122.0/24",
            Self::StaleAssets { .. } => {
                "`ocpdeploy destroy CLUSTER --keep-addresses`, then deploy again: new files are made, addresses stay"
            }
            Self::TooLarge { .. } => "leave out files of your own, or make them smaller",
            Self::Leftovers { .. } => "run destroy again; the platform's own log may say more",
            Self::NotInstalled { .. } => {
                "`ocpdeploy deploy` begins or goes on with it; `ocpdeploy status` shows how far it is"
            }
            Self::NotHarvested { .. } => "`ocpdeploy harvest` learns them, and so does `ocpdeploy deploy`",
            Self::Scaled { .. } => {
                "`ocpdeploy status CLUSTER` shows its nodes; `ocpdeploy scale CLUSTER --workers N` changes them"
            }
            Self::LastWorker { .. } => "scale to 1, or destroy the cluster",
            Self::NoPointer { .. } => "`oc -n openshift-machine-api get secrets` shows what there is",
            Self::NoNode { .. } => "`ocpdeploy status CLUSTER` shows them",
            Self::UnsafeMaster { .. } => {
                "with 3 masters or more: switch the machine off, then take its member out of etcd as OpenShift's \
                 documentation tells (\"replacing an unhealthy etcd member\": `oc -n openshift-etcd rsh` into the etcd pod \
                 of another master, `etcdctl member list`, `etcdctl member remove ID`), and run the same command again"
            }
            Self::TooYoung { .. } => {
                "nodes that are off when these certificates end must be let in by hand; if that is meant, stop with --force"
            }
            Self::StillOn { .. } => {
                "they may take longer: run the same command again, or with --power-off to take their power"
            }
            Self::CameBackElsewhere { .. } => {
                "`ocpdeploy verify CLUSTER --repair` makes reservations right; then start it anew"
            }
            Self::NotBack { .. } => {
                "run the same command again to wait longer; `ocpdeploy node console NODE` shows what one does"
            }
        }
    }
}

/// A machine that was waited for in vain.
#[derive(Debug)]
pub struct Missing {
    pub name: MachineName,
    pub seen: Seen,
    /// The last lines of its console.
    pub console: Option<String>,
}

fn count(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
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
