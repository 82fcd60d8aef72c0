//! What a person or a script reads of a cluster: pure functions from values to text and JSON.

pub mod audit;
pub mod check;
pub mod deployed;
pub mod ignition;
pub mod list;
pub mod machine;
pub mod plan;
pub mod status;

use std::fmt::Display;
use std::path::Path;

use serde::Serialize;

use crate::backend::Owned;
use crate::cluster::{ClusterId, NodeName, Role};
use crate::parameters::Parameters;
use crate::passes::{Scaled, Verified};

/// Version of every JSON form.
const VERSION: u32 = 1;

/// Aligns rows in columns two spaces apart; the first row is the head.
///
/// Cells are one line each; an empty cell is shown as `-`.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| width(cell))
                .max()
        })
        .map(|width| width.unwrap_or(0).max(1))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, wide) in row.iter().zip(&widths) {
            let cell = if cell.is_empty() { "-" } else { cell };
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', wide.saturating_sub(width(cell)) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// The table of pass one.
pub fn parameters(parameters: &Parameters, path: &Path) -> String {
    let head = row([&"NAME", &"MAC", &"IP"]);
    let leases = parameters.leases().into_iter();
    let rows = leases.map(|lease| row([&lease.name, &lease.mac, &lease.ip]));
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    format!("{}\nwritten to {}\n", table(&rows), path.display())
}

/// What a cluster has on the platform, before it is removed.
pub fn owned(cluster: &ClusterId, owned: &[Owned]) -> String {
    if owned.is_empty() {
        return format!("nothing on the platform belongs to {cluster}\n");
    }
    let head = row([&"KIND", &"NAME"]);
    let rows = owned.iter().map(|owned| row([&owned.kind, &owned.name]));
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// What came and went.
pub fn scaled(scaled: &Scaled) -> String {
    let names = |names: &[NodeName]| names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
    let mut text = String::new();
    if !scaled.came.is_empty() {
        text += &format!("came: {}\n", names(&scaled.came));
    }
    if !scaled.went.is_empty() {
        text += &format!("went: {}\n", names(&scaled.went));
    }
    let count = scaled.table.of_role(Role::Worker).count();
    let workers = if count == 1 { "worker" } else { "workers" };
    text += &format!("cluster {} has {count} {workers}\n", scaled.table.id());
    if scaled.is_rehearsal {
        text += "a rehearsal: nothing was drained, no certificate was approved and no MachineConfig was renewed\n";
    }
    for role in &scaled.renewed {
        text += &format!("the {role} nodes are renewed one after the other now; `oc get mcp {role}` shows how far\n");
    }
    text
}

/// What is not as the table says, one line each.
pub fn verified(verified: &Verified) -> String {
    let mut text = String::new();
    for lease in &verified.repaired {
        text += &format!("repaired: {} is held for {} {}\n", lease.ip, lease.name, lease.mac);
    }
    for machine in &verified.removed {
        text += &format!("removed: {machine} had done its work\n");
    }
    if verified.differences.is_empty() {
        text += &format!("all {} lines of the table are as they should be\n", verified.lines);
    } else {
        let head = row([&"NAME", &"WHERE", &"DIFFERENCE"]);
        let rows = verified.differences.iter();
        let rows = rows.map(|found| row([&found.name, &found.place, &found.text]));
        text += &table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    }
    for left_out in &verified.left_out {
        text += &format!("not looked at: {left_out}\n");
    }
    text
}

/// A row of texts.
fn row<const N: usize>(cells: [&dyn Display; N]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

/// The text of a value, or nothing.
fn or_nothing<T: Display>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The JSON form of a report: its own keys after `v`, the version of the form, and a new line at the end.
pub fn json<T: Serialize>(report: &T) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Versioned<'a, T> {
        v: u32,
        #[serde(flatten)]
        report: &'a T,
    }
    serde_json::to_string_pretty(&Versioned { v: VERSION, report }).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let text = table(&[
            row([&"NODE", &"IP", &"STATE"]),
            row([&"master-0", &"", &"ok"]),
            row([&"ü", &"192.168.122.15", &""]),
        ]);
        insta::assert_snapshot!(text, @r"
        NODE      IP              STATE
        master-0  -               ok
        ü         192.168.122.15  -
        ");
    }
}
