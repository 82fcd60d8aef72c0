//! What a deployment would change on the platform, compared with the existing objects.

use std::path::Path;

use crate::backend::Machine;
use crate::cluster::{AddressAssignment, MachineName, NodeName, Pass, Role, Size, Sizes};
use crate::plan::machines::Planned;
use crate::plan::preview::Plan;
use crate::plan::{Action, Change};
use crate::printable::shell_path;

/// The objects of the cluster on its platforms.
#[derive(Debug, Default)]
pub struct There<'a> {
    pub machines: &'a [Machine],
    pub reservations: &'a [AddressAssignment],
    /// The platform can reserve addresses.
    pub reserves: bool,
    /// The sizes of the existing machines; `None` if the cluster has no record.
    pub sizes: Option<&'a Sizes>,
    /// The bootstrap is no longer needed.
    pub bootstrapped: bool,
    /// The deployment is complete: it creates nothing more.
    pub installed: bool,
    /// The env file, for suggested commands: without it, they would use the settings of the deployment.
    pub env_file: Option<&'a Path>,
    /// The nodes of an installed cluster.
    pub nodes: Vec<&'a NodeName>,
}

/// All changes: machines of pass one, machines of pass two, addresses.
pub fn changes(plan: &Plan, table: &[AddressAssignment], there: &There<'_>) -> Vec<Change> {
    let exists = |name: &MachineName| there.machines.iter().any(|machine| machine.name == *name);
    let mut changes = Vec::new();
    for planned in &plan.pass_one {
        let (action, why) = match exists(&planned.name) {
            true => (Action::Keep, "until its address is known"),
            false => (Action::Create, "temporary, to learn an address"),
        };
        changes.push(Change::of_machine(action, &planned.name, Some(why.to_owned())));
    }
    for planned in &plan.pass_two {
        changes.extend(of_pass_two(plan, planned, exists(&planned.name), there));
    }
    let planned = || plan.pass_one.iter().chain(&plan.pass_two);
    for machine in there.machines {
        if planned().all(|planned| planned.name != machine.name) {
            changes.push(match machine.pass {
                Pass::One => Change::of_machine(Action::Delete, &machine.name, Some("left from pass one".to_owned())),
                Pass::Two => {
                    let why = format!("not in the settings; {}", changed_by(plan, machine.role, &machine.node));
                    Change::of_machine(Action::Differs, &machine.name, Some(why))
                }
            });
        }
    }
    if there.reserves {
        let address = |action, assignment: &AddressAssignment| Change {
            action,
            object: "address",
            name: format!("{} {} {}", assignment.name, assignment.mac, assignment.ip),
            why: None,
        };
        for assignment in table {
            match there.reservations.contains(assignment) {
                true => changes.push(address(Action::Keep, assignment)),
                // Its reservation was released with it.
                false if there.bootstrapped && assignment.name == NodeName::bootstrap() => {}
                false => changes.push(address(Action::Create, assignment)),
            }
        }
        let others = there
            .reservations
            .iter()
            .filter(|reservation| !table.contains(reservation));
        changes.extend(others.map(|reservation| address(Action::Delete, reservation)));
    }
    changes
}

fn of_pass_two(plan: &Plan, planned: &Planned, exists: bool, there: &There<'_>) -> Option<Change> {
    let replace = |options: &str| format!("`ocpdeploy node replace {} {}{options}`", plan.cluster, planned.node);
    let (action, why) = match (planned.role, there.installed, exists) {
        (Role::Bootstrap, _, false) if there.bootstrapped => return None,
        (Role::Bootstrap, _, true) if there.bootstrapped => {
            (Action::Delete, Some("bootstrapping is complete".to_owned()))
        }
        (role, true, false) if !there.nodes.contains(&&planned.node) => {
            let why = format!("not in the cluster; {}", changed_by(plan, role, &planned.node));
            (Action::Differs, Some(why))
        }
        (_, true, false) => (Action::Differs, Some(format!("missing; {} recreates it", replace("")))),
        (_, false, false) => (Action::Create, None),
        (_, _, true) => match there.sizes.and_then(|sizes| other_size(sizes, planned)) {
            Some(size) => {
                let env = there.env_file.map(|path| format!(" --env {}", shell_path(path)));
                let replace = replace(&env.unwrap_or_default());
                (Action::Differs, Some(format!("has {size}; {replace} changes it")))
            }
            None => (Action::Keep, None),
        },
    };
    Some(Change::of_machine(action, &planned.name, why))
}

/// How an installed cluster gets the number of nodes that the settings have.
fn changed_by(plan: &Plan, role: Role, node: &NodeName) -> String {
    if role != Role::Worker {
        return format!("an installed cluster keeps its {role} nodes: restore the settings");
    }
    let planned = plan.pass_two.iter().filter(|machine| machine.role == Role::Worker);
    let nodes = planned.filter(|machine| machine.node.pool() == node.pool()).count();
    match node.pool() {
        Some(pool) => format!("`ocpdeploy scale {} --pool {pool}={nodes}` changes it", plan.cluster),
        None => format!("`ocpdeploy scale {} --workers {nodes}` changes it", plan.cluster),
    }
}

/// The size of the existing machine, if it is not the planned one.
fn other_size<'a>(sizes: &'a Sizes, planned: &Planned) -> Option<&'a Size> {
    sizes
        .of(&planned.node, planned.role)
        .filter(|size| **size != planned.size)
}

/// E.g. `12 to create, 3 to keep`; zero counts are left out.
pub fn summary(changes: &[Change]) -> String {
    let words = [
        (Action::Create, "to create"),
        (Action::Keep, "to keep"),
        (Action::Differs, "that differ"),
        (Action::Delete, "to delete"),
        (Action::Stop, "to shut down"),
    ];
    let counts = words.iter().filter_map(|(action, words)| {
        let found = changes.iter().filter(|change| change.action == *action).count();
        (found > 0).then(|| format!("{found} {words}"))
    });
    counts.collect::<Vec<_>>().join(", ")
}
