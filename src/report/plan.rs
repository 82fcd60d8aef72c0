//! The plan as text; its JSON form is the plan itself.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{or_nothing, row, table};
use crate::cluster::{Harvest, Pass, Size};
use crate::plan::changes;
use crate::plan::machines::Planned;
use crate::plan::preview::Plan;
use crate::plan::{Action, Change};
use crate::printable::{count, printable_line};
use crate::state::durations::about;

/// The machines of both passes and their total resources.
pub fn text(plan: &Plan) -> String {
    let network = printable_line(&plan.network);
    let mut text = format!(
        "cluster {}.{} on {}, network {network}\n",
        plan.cluster, plan.domain, plan.backend
    );
    if let Some(workers) = &plan.workers_on {
        let network = printable_line(&workers.network);
        text += &format!("{} on {}, network {network}\n", workers.machines, workers.backend);
    }
    text += &additional_nics(plan);
    for line in plan.nodes.lines() {
        text += &format!("nodes: {}\n", printable_line(&line));
    }
    text += &match (plan.harvested, plan.harvest) {
        (true, _) => "pass one is skipped: the addresses are already known\n".to_owned(),
        (false, Harvest::Boot) => format!(
            "pass one boots {} to learn the addresses\n",
            count(plan.pass_one.len(), "temporary machine")
        ),
        (false, Harvest::Reserve) => "pass one reserves the addresses and boots no machines\n".to_owned(),
        (false, Harvest::Static) if plan.pass_two.iter().any(|machine| machine.ip.is_none()) => {
            "pass one is skipped: the addresses are chosen from address_ranges\n".to_owned()
        }
        (false, Harvest::Static) => "pass one is skipped: the addresses are set in the env file\n".to_owned(),
    };
    let mut head = row([&"PASS", &"MACHINE", &"CPUS", &"MEMORY", &"DISKS", &"MAC", &"IP"]);
    let has_ipv6 = plan.nodes.ipv6.is_some();
    head.extend(has_ipv6.then(|| "IPV6".to_owned()));
    let machines = plan.pass_one.iter().chain(&plan.pass_two).map(|planned| {
        let ipv6 = has_ipv6.then(|| or_nothing(planned.ipv6));
        machine(planned).into_iter().chain(ipv6).collect()
    });
    text += &format!(
        "\n{}",
        table(&std::iter::once(head).chain(machines).collect::<Vec<_>>())
    );

    let mut head = row([&"VIP", &"MAC", &"IP", &"VRID"]);
    head.extend(has_ipv6.then(|| "IPV6".to_owned()));
    let vips = plan.vips.iter().map(|vip| {
        let mut cells = row([
            &vip.name,
            &vip.mac,
            &or_nothing(vip.ip),
            &or_nothing(vip.virtual_router_id),
        ]);
        cells.extend(has_ipv6.then(|| or_nothing(vip.ipv6)));
        cells
    });
    text += &format!("\n{}", table(&std::iter::once(head).chain(vips).collect::<Vec<_>>()));
    for vip in &plan.vips {
        text += &vip
            .kept
            .map(|kept| format!("{}: {kept}\n", vip.name))
            .unwrap_or_default();
    }
    if !plan.limits.is_empty() {
        text += &format!("\nlimitations of this network:\n  {}\n", plan.limits.join("\n  "));
    }
    if let Some(address) = plan.registry_cache {
        text += &format!(
            "\nnodes pull images through the registry cache at {address}, which they trust; to change it, set registry_cache=off\n"
        );
    }
    text += &format!(
        "\npeak usage: {} memory, {} GiB disk\n",
        memory(plan.memory_mib),
        plan.disk_gib
    );
    if let Some(workers) = &plan.workers_on {
        text += &format!(
            "on {}: {} memory, {} GiB disk\n",
            workers.backend,
            memory(workers.memory_mib),
            workers.disk_gib
        );
    }
    if let Some(expected) = &plan.expected {
        text += &format!(
            "takes {}, like {} on {}\n",
            about(Duration::from_secs(expected.seconds)),
            expected.source,
            plan.backend
        );
        let head = row([&"PHASE", &"USUALLY", &"BEST"]);
        let time = |seconds| about(Duration::from_secs(seconds));
        let phases = expected.phases.iter();
        let phases = phases.map(|phase| row([&phase.phase, &time(phase.seconds), &time(phase.best_seconds)]));
        text += &format!("\n{}", table(&std::iter::once(head).chain(phases).collect::<Vec<_>>()));
    }
    if let Some(changes) = &plan.changes {
        text += &format!("\ncompared with the platform: {}\n", changes::summary(changes));
        // What a deployment creates and keeps is in the tables above.
        let is_other = |change: &&Change| matches!(change.action, Action::Differs | Action::Delete);
        let others: Vec<_> = changes.iter().filter(is_other).collect();
        if !others.is_empty() {
            text += &format!("\n{}", changes_table(&others));
        }
    }
    text
}

/// The networks of the additional NICs, and of pools that have others.
fn additional_nics(plan: &Plan) -> String {
    let networks = |machine: &Planned| {
        let names = machine.nics.iter().skip(1).map(|nic| nic.network.as_str());
        printable_line(&names.collect::<Vec<_>>().join(", "))
    };
    let each = plan.pass_two.first().map(networks).unwrap_or_default();
    let mut text = match each.is_empty() {
        true => String::new(),
        false => format!("additional NICs of each node on {each}\n"),
    };
    let mut seen = BTreeSet::new();
    for machine in &plan.pass_two {
        let of_machine = networks(machine);
        let pool = machine.node.pool().filter(|_| of_machine != each);
        if let Some(pool) = pool.filter(|pool| seen.insert(pool.to_owned())) {
            text += &format!("additional NICs of pool {pool} on {of_machine}\n");
        }
    }
    text
}

/// These changes, one line each.
pub(super) fn changes_table(changes: &[&Change]) -> String {
    let head = row([&"ACTION", &"OBJECT", &"NAME", &"WHY"]);
    let rows = changes.iter().map(|it| change(it));
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

fn change(change: &Change) -> Vec<String> {
    let action = match change.action {
        Action::Create => "create",
        Action::Keep => "keep",
        Action::Differs => "differs",
        Action::Delete => "delete",
        Action::Stop => "stop",
    };
    row([&action, &change.object, &change.name, &or_nothing(change.why.as_ref())])
}

fn machine(planned: &Planned) -> Vec<String> {
    let pass = match planned.pass {
        Pass::One => 1,
        Pass::Two => 2,
    };
    row([
        &pass,
        &planned.name,
        &planned.size.cpus,
        &memory(planned.size.memory_mib),
        &disks(&planned.size),
        &planned.mac,
        &or_nothing(planned.ip),
    ])
}

fn disks(size: &Size) -> String {
    let all: Vec<String> = std::iter::once(size.disk_gib)
        .chain(size.extra_disks_gib.iter().copied())
        .map(|gib| gib.to_string())
        .collect();
    format!("{} GiB", all.join("+"))
}

fn memory(mib: u64) -> String {
    match mib % 1024 {
        0 => format!("{} GiB", mib / 1024),
        _ => format!("{mib} MiB"),
    }
}
