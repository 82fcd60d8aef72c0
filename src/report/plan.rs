//! The plan as text; its JSON form is the plan itself.

use std::time::Duration;

use super::{or_nothing, row, table};
use crate::cluster::{Harvest, Pass, Size};
use crate::plan::changes;
use crate::plan::machines::{Plan, Planned};
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
        text += &format!("workers on {}, network {network}\n", workers.backend);
    }
    let nics = plan.pass_two.first().map_or(&[][..], |machine| &machine.nics);
    let additional: Vec<&str> = nics.iter().skip(1).map(|nic| nic.network.as_str()).collect();
    if !additional.is_empty() {
        text += &format!(
            "additional NICs of each node on {}\n",
            printable_line(&additional.join(", "))
        );
    }
    text += &match (plan.harvested, plan.harvest) {
        (true, _) => "pass one is skipped: the addresses are already known\n".to_owned(),
        (false, Harvest::Boot) => format!(
            "pass one boots {} to learn the addresses\n",
            count(plan.pass_one.len(), "temporary machine")
        ),
        (false, Harvest::Reserve) => "pass one reserves the addresses and boots no machines\n".to_owned(),
        (false, Harvest::Static) => "pass one is skipped: the addresses are set in the env file\n".to_owned(),
    };
    let head = row([&"PASS", &"MACHINE", &"CPUS", &"MEMORY", &"DISKS", &"MAC", &"IP"]);
    let machines = plan.pass_one.iter().chain(&plan.pass_two).map(machine);
    text += &format!(
        "\n{}",
        table(&std::iter::once(head).chain(machines).collect::<Vec<_>>())
    );

    let head = row([&"VIP", &"MAC", &"IP", &"VRID"]);
    let vips = plan.vips.iter().map(|vip| {
        row([
            &vip.name,
            &vip.mac,
            &or_nothing(vip.ip),
            &or_nothing(vip.virtual_router_id),
        ])
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
            count(expected.deployments, "earlier deployment"),
            plan.backend
        );
    }
    if let Some(changes) = &plan.changes {
        text += &format!("\ncompared with the platform: {}\n", changes::summary(changes));
        // What a deployment creates and keeps is in the tables above.
        let is_other = |change: &&Change| matches!(change.action, Action::Differs | Action::Delete);
        let rows: Vec<_> = changes.iter().filter(is_other).map(change).collect();
        if !rows.is_empty() {
            let head = row([&"ACTION", &"OBJECT", &"NAME", &"WHY"]);
            text += &format!("\n{}", table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
        }
    }
    text
}

fn change(change: &Change) -> Vec<String> {
    let action = match change.action {
        Action::Create => "create",
        Action::Keep => "keep",
        Action::Differs => "differs",
        Action::Delete => "delete",
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
        &or_nothing(planned.mac()),
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
