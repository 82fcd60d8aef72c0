//! Errors that several passes return. All others are created where they occur.

use std::time::Duration;

use crate::backend::Finding;
use crate::cluster::{AddressRange, ClusterConfig, MachineName, NodeName, Pass};
use crate::error::{ErrorKind, OperationError};
use crate::plan::connections::ConnectionsError;
use crate::plan::harvest::Seen;
use crate::printable::count;
use crate::state::parameters::{NodeAddress, Parameters};

/// The hint if a network has too few addresses for the nodes.
pub(super) const FEW_ADDRESSES: &str = "enlarge the DHCP range of the network (in OpenStack the allocation pools of the \
     subnet), use another network, or set the addresses in the env file with harvest=static";

/// Problems that the checks found, with the hints of each.
pub(super) fn preflight(findings: Vec<Finding>) -> OperationError {
    let lines: String = findings.iter().map(|finding| format!("\n  {}", finding.text)).collect();
    let problems = count(findings.len(), "problem");
    let text = format!("{problems} found before anything was created:{lines}");
    OperationError {
        hints: findings.into_iter().filter_map(|finding| finding.hint).collect(),
        ..OperationError::new(ErrorKind::Tool, text)
    }
    .hint("fix these problems and run the same command again")
}

/// Fails if there are any problems.
pub(super) fn refuse(findings: Vec<Finding>) -> Result<(), OperationError> {
    match findings.is_empty() {
        true => Ok(()),
        false => Err(preflight(findings)),
    }
}

/// The error for a parameter file that does not match the settings.
pub(super) fn unfit_table(cluster: &str, what: &str) -> OperationError {
    let text = format!("the parameter file of {cluster} does not match the settings: {what}");
    OperationError::new(ErrorKind::Settings, text).hint("restore the settings, or repeat pass one with `--harvest`")
}

pub(super) fn not_installed(cluster: &str) -> OperationError {
    let text = format!("cluster {cluster} is not installed yet");
    OperationError::new(ErrorKind::Tool, text).hint(format!(
        "`ocpdeploy deploy` starts or continues the installation; `ocpdeploy status {cluster}` shows its progress"
    ))
}

pub(super) fn no_range(network: &str) -> OperationError {
    let text = format!("network {network} does not report its address range");
    OperationError::new(ErrorKind::Settings, text)
        .hint("set machine_network in the env file, e.g. machine_network=192.168.122.0/24")
}

pub(super) fn no_router_id(network: &str) -> OperationError {
    let text = format!("no free VRRP id is left on network {network}");
    OperationError::new(ErrorKind::Platform, text)
        .hint("use another network; `ocpdeploy list` shows which clusters use the ids of this one")
}

pub(super) fn ranges_exhausted(config: &ClusterConfig, node: &NodeName) -> OperationError {
    let ranges: Vec<_> = config.address_ranges.iter().map(AddressRange::to_string).collect();
    let ranges = ranges.join(", ");
    let text = format!("no free address is left in address_ranges {ranges} for {node}");
    OperationError::new(ErrorKind::Platform, text)
        .hint("enlarge address_ranges in the env file, then run the same command again")
}

pub(super) fn network_config(error: ConnectionsError<'_>) -> OperationError {
    let text = format!("network_config: {error}");
    OperationError {
        hints: error.fault.help.into_iter().collect(),
        ..OperationError::new(ErrorKind::Settings, text)
    }
}

/// The error for a name that no node of the table has.
pub fn no_node(table: &Parameters, node: &NodeName) -> OperationError {
    not_among(&table.cluster, node, table.all_nodes())
}

pub(super) fn not_among<'n>(
    cluster: &str,
    node: &NodeName,
    known: impl Iterator<Item = &'n NodeAddress>,
) -> OperationError {
    let known: Vec<_> = known.map(|node| &node.name).collect();
    let text = format!("{node} is not a node of the cluster: {}", names(&known));
    let error = OperationError::new(ErrorKind::Usage, text);
    let given = node.as_str();
    // Also the name of its machine.
    let given = given.strip_prefix(&format!("{cluster}-")).unwrap_or(given);
    let number = |name: &str| name.trim_start_matches(|c: char| !c.is_ascii_digit()).to_owned();
    let likeness = |name: &&&NodeName| match number(given) == number(name.as_str()) {
        true => strsim::jaro_winkler(given, name.as_str()),
        // Another node.
        false => 0.0,
    };
    let near = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match near.filter(|name| likeness(name) > 0.9) {
        _ if given == cluster => error.hint(format!("after the cluster, name one of its nodes: `{cluster} NODE`")),
        Some(name) => error.hint(format!(
            "did you mean {name}? `ocpdeploy status {cluster}` shows all nodes"
        )),
        None => error.hint(format!("`ocpdeploy status {cluster}` shows its nodes")),
    }
}

/// The cluster that an error is about. An installed cluster works, and no hint may suggest destroying it.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) cluster: &'a str,
    pub(super) is_installed: bool,
}

impl Subject<'_> {
    /// Machines that did not show their addresses in time.
    pub(super) fn late(self, pass: Pass, total: usize, waited: Duration, missing: &[Missing]) -> OperationError {
        let Self { cluster, is_installed } = self;
        let text = format!(
            "pass {pass}: {} of {total} without the expected address after {} s:{}",
            count(missing.len(), "machine"),
            waited.as_secs(),
            lines(missing)
        );
        let agent = match missing.iter().any(|missing| missing.seen == Seen::Silent) {
            true => {
                "a machine whose image has no qemu-guest-agent must download it, and a platform can report the \
                 addresses of a late agent minutes later; "
            }
            false => "",
        };
        let instead = match is_installed {
            true => String::new(),
            false => format!(". The cluster is not installed yet: `ocpdeploy destroy {cluster}` removes them"),
        };
        OperationError::new(ErrorKind::Waited, text).hint(format!(
            "{agent}the machines are kept: run the same command again to wait longer{instead}"
        ))
    }

    /// Machines that cannot recover.
    pub(super) fn hopeless(self, pass: Pass, machines: &[Missing]) -> OperationError {
        let Self { cluster, is_installed } = self;
        let number = count(machines.len(), "machine");
        let text = format!("pass {pass}: {number} cannot get an address:{}", lines(machines));
        OperationError::new(ErrorKind::Platform, text).hint(match is_installed {
            true => "fix the cause, delete this machine on the platform, and run the same command again; the other \
                     nodes are not affected"
                .to_owned(),
            false => format!(
                "fix the cause, then run the same command again, which also creates missing machines. If that does not \
                 help, run `ocpdeploy destroy {cluster}`, then deploy again: the cluster is not installed yet"
            ),
        })
    }

    /// A machine that permanently has another address than planned, as `text` says.
    pub(super) fn moved(self, text: String) -> OperationError {
        let Self { cluster, is_installed } = self;
        OperationError::new(ErrorKind::Platform, text).hint(match is_installed {
            true => format!(
                "reserve the planned address for this MAC (`ocpdeploy verify {cluster} --repair` does it where the \
                 platform can), restart the machine and run the same command again"
            ),
            false => format!(
                "reserve the planned address for this MAC. The cluster is not installed yet: `ocpdeploy destroy \
                 {cluster}`, then deploy again"
            ),
        })
    }

    /// The hint for throwaway machines whose network was deleted or stopped.
    pub(super) fn without_network(self) -> String {
        let Self { cluster, is_installed } = self;
        let then = match is_installed {
            true => format!("delete the machines {cluster}-harvest-* on the platform, then run the same command again"),
            false => format!("run `ocpdeploy destroy {cluster}`, then deploy again"),
        };
        format!("machines do not return to a network that was stopped: start the network again, {then}")
    }
}

/// A machine whose address was not found in time.
pub(super) struct Missing {
    pub(super) name: MachineName,
    pub(super) seen: Seen,
    /// The last lines of its console.
    pub(super) console: Option<String>,
}

fn lines(missing: &[Missing]) -> String {
    let mut text = String::new();
    for Missing { name, seen, console } in missing {
        text.push_str(&format!("\n  {name} {seen}"));
        for line in console.iter().flat_map(|console| console.lines()) {
            text.push_str(&format!("\n    console: {line}"));
        }
    }
    text
}

pub(super) fn names<T: ToString>(names: &[T]) -> String {
    names.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn is_or_are(number: usize) -> &'static str {
    match number {
        1 => "is",
        _ => "are",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::journal::JournalError;

    #[test]
    fn no_hint_suggests_destroying_an_installed_cluster() {
        let name = MachineName::of_node("prod7", &NodeName::bootstrap());
        let (seen, console) = (Seen::Silent, None);
        let missing = [Missing { name, seen, console }];
        for is_installed in [false, true] {
            let cluster = "prod7";
            let of = Subject { cluster, is_installed };
            let other_input = JournalError::OtherInput {
                cluster: cluster.to_owned(),
                step: "assets".to_owned(),
                installed: is_installed,
            };
            for hint in [
                of.late(Pass::One, 1, Duration::ZERO, &missing).hints.concat(),
                of.hopeless(Pass::Two, &missing).hints.concat(),
                of.moved(String::new()).hints.concat(),
                of.without_network(),
                other_input.hint(),
            ] {
                assert_eq!(hint.contains("`ocpdeploy destroy prod7"), !is_installed, "{hint}");
            }
        }
    }
}
