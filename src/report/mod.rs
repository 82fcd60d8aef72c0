//! Output for users and scripts: pure functions from values to text and JSON.

pub mod audit;
pub mod cache;
pub mod changes;
pub mod check;
pub mod deployed;
pub mod html;
pub mod ignition;
pub mod list;
pub mod machine;
pub mod plan;
pub mod settings;
pub mod snapshots;
pub mod state;
pub mod status;

use std::fmt::Display;

use anyhow::Result;
use serde::Serialize;

use crate::backend::Owned;
use crate::cluster::ClusterDomain;
use crate::passes::Verified;
use crate::printable::{count, printable_json, printable_line, printable_text};

/// Version of every JSON form.
const VERSION: u32 = 1;

/// Aligns rows in columns two spaces apart; the first row is the header.
///
/// Cells are one line each; an empty cell is shown as `-`.
pub fn table(rows: &[Vec<String>]) -> String {
    fitted(rows, None, &[])
}

/// A table with a maximum width in characters; `None` is unlimited.
///
/// If it does not fit, the columns of `spare` are removed in this order; then the last column is wrapped, and if that
/// is not sufficient each row becomes a block of lines with all of its cells.
pub fn fitted(rows: &[Vec<String>], limit: Option<usize>, spare: &[usize]) -> String {
    for least in [None, Some(NARROWEST)] {
        for lost in 0..=spare.len() {
            let lost = &spare[..lost];
            let kept: Vec<Vec<&str>> = rows.iter().map(|row| without(row, lost)).collect();
            let mut widths = widths(&kept);
            let wide = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
            let over = limit.map_or(0, |limit| wide.saturating_sub(limit));
            let fits = |last: usize| over == 0 || least.is_some_and(|least| last >= over + least);
            if let Some(last) = widths.last_mut().filter(|last| fits(**last)) {
                *last -= over;
                return kept.iter().map(|row| aligned(row, &widths)).collect();
            }
        }
    }
    blocks(rows, limit)
}

/// Between two columns.
const GAP: usize = 2;

/// Minimum width of a wrapped column.
const NARROWEST: usize = 20;

fn without<'a>(row: &'a [String], lost: &[usize]) -> Vec<&'a str> {
    let kept = row.iter().enumerate().filter(|(column, _)| !lost.contains(column));
    kept.map(|(_, cell)| if cell.is_empty() { "-" } else { cell }).collect()
}

fn widths(rows: &[Vec<&str>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column| rows.iter().filter_map(|row| row.get(column).copied()).map(width).max();
    (0..columns).map(|column| widest(column).unwrap_or(0)).collect()
}

/// One row, wrapped if its last cell is wider than its column.
fn aligned(row: &[&str], widths: &[usize]) -> String {
    let mut line = String::new();
    for (column, (cell, wide)) in row.iter().zip(widths).enumerate() {
        if column + 1 == widths.len() {
            let indent = width(&line);
            line += &wrap(cell, *wide).join(&format!("\n{}", " ".repeat(indent)));
        } else {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', wide.saturating_sub(width(cell)) + GAP));
        }
    }
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// Each row as lines: the first cell, and below it the others with their columns' names.
fn blocks(rows: &[Vec<String>], limit: Option<usize>) -> String {
    let Some((head, rows)) = rows.split_first() else {
        return String::new();
    };
    let wide = head.iter().skip(1).map(|name| width(name)).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let mut cells = row.iter().zip(head);
        text.extend(cells.next().map(|(title, _)| format!("{title}\n")));
        for (cell, name) in cells.filter(|(cell, _)| !cell.is_empty()) {
            text += &labelled(&format!("  {name:wide$}  "), cell, limit);
        }
    }
    text
}

/// A label and its value, wrapped and aligned with the beginning of the value.
fn labelled(label: &str, value: &str, limit: Option<usize>) -> String {
    let indent = width(label);
    let available = limit.map_or(usize::MAX, |limit| limit.saturating_sub(indent).max(NARROWEST));
    let lines = wrap(&printable_line(value), available);
    format!("{label}{}\n", lines.join(&format!("\n{}", " ".repeat(indent))))
}

/// Wraps a text between words, and inside of words that are too long, into lines of at most this length.
fn wrap(text: &str, available: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if let Some(line) = lines.last_mut() {
            let used = width(line);
            if used == 0 || used + 1 + word.len() <= available {
                line.extend((used > 0).then_some(' '));
            } else {
                lines.push(String::new());
            }
        }
        while !word.is_empty() {
            let Some(line) = lines.last_mut() else { break };
            let free = available.saturating_sub(width(line)).min(word.len());
            line.extend(word.drain(..free.max(1)));
            if !word.is_empty() {
                lines.push(String::new());
            }
        }
    }
    lines
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// A cluster's objects on the platform, before they are removed.
pub fn owned(cluster: &ClusterDomain, owned: &[Owned]) -> String {
    if owned.is_empty() {
        return format!("no objects of {cluster} on the platform\n");
    }
    let head = row([&"KIND", &"NAME"]);
    let rows = owned.iter().map(|owned| row([&owned.kind, &owned.name]));
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// How the kinds of objects that are on this computer begin.
const OF_THIS_COMPUTER: &str = "client ";

/// As `owned`, but only machines and changes of this computer by name; of all other kinds the number.
pub fn owned_briefly(cluster: &ClusterDomain, owned: &[Owned], is_machine: impl Fn(&str) -> bool) -> String {
    let machine = owned.iter().find(|owned| is_machine(&owned.name));
    let of_machines = machine.map(|machine| machine.kind.as_str());
    let is_named = |kind: &str| Some(kind) == of_machines || kind.starts_with(OF_THIS_COMPUTER);
    let mut shown: Vec<Owned> = owned.iter().filter(|owned| is_named(&owned.kind)).cloned().collect();
    let mut numbers: Vec<(&str, usize)> = Vec::new();
    for kind in owned
        .iter()
        .map(|owned| owned.kind.as_str())
        .filter(|kind| !is_named(kind))
    {
        match numbers.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, number)) => *number += 1,
            None => numbers.push((kind, 1)),
        }
    }
    shown.extend(numbers.into_iter().map(|(kind, number)| Owned {
        kind: kind.to_owned(),
        name: count(number, "object"),
    }));
    self::owned(cluster, &shown)
}

/// The differences from the table, one line each.
pub fn verified(verified: &Verified) -> String {
    let mut text = String::new();
    for node in &verified.adopted {
        text += &format!("added to the table: {} {} {}\n", node.name, node.mac, node.ip);
    }
    for lease in &verified.repaired {
        text += &format!("repaired: {} is reserved for {} {}\n", lease.ip, lease.name, lease.mac);
    }
    for machine in &verified.removed {
        text += &format!("removed: {}, no longer needed\n", printable_line(machine.as_str()));
    }
    if verified.differences.is_empty() {
        text += &format!(
            "no differences in {} of the parameter file\n",
            count(verified.lines, "entry")
        );
    } else {
        let head = row([&"NAME", &"WHERE", &"DIFFERENCE"]);
        let rows = verified.differences.iter();
        let rows = rows.map(|found| row([&found.name, &found.place, &found.text]));
        text += &table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    }
    for left_out in &verified.left_out {
        text += &format!("not checked: {}\n", printable_line(left_out));
    }
    text
}

/// A row of single-line texts.
fn row<const N: usize>(cells: [&dyn Display; N]) -> Vec<String> {
    cells.iter().map(|cell| printable_line(&cell.to_string())).collect()
}

/// The text of a value, or an empty one.
fn or_nothing<T: Display>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The JSON form of a report: its own keys after `v`, the version of the form, with a trailing line break.
pub fn json<T: Serialize>(report: &T) -> Result<String> {
    Ok(printable_json(&serde_json::to_string_pretty(&versioned(report))?) + "\n")
}

/// As [`json`], as YAML.
pub fn yaml<T: Serialize>(report: &T) -> Result<String> {
    // Through JSON: the same names and values, whatever a type serializes for other formats.
    let document = serde_json::to_value(versioned(report))?;
    Ok(printable_text(&serde_saphyr::to_string(&document)?))
}

/// As [`json`], in one line.
pub fn json_line<T: Serialize>(report: &T) -> Result<String> {
    Ok(printable_json(&serde_json::to_string(&versioned(report))?) + "\n")
}

/// A report with the version of its form.
fn versioned<T: Serialize>(report: &T) -> impl Serialize {
    #[derive(Serialize)]
    struct Versioned<'a, T> {
        v: u32,
        #[serde(flatten)]
        report: &'a T,
    }
    Versioned { v: VERSION, report }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_loses_columns_then_wraps_then_becomes_blocks() {
        let rows = [
            row([&"NODE", &"ROLE", &"MAC", &"STATE"]),
            row([
                &"master-0",
                &"master",
                &"52:54:00:00:00:0a",
                &"paused: KVM does not work here",
            ]),
            row([&"master-1", &"master", &"52:54:00:00:00:0b", &"ok"]),
        ];
        let at = |limit| {
            let text = fitted(&rows, Some(limit), &[1]);
            let widest = text.lines().map(width).max().unwrap();
            assert!(widest <= limit, "{widest} > {limit}\n{text}");
            text
        };
        assert_eq!(at(67), table(&rows));
        insta::assert_snapshot!(at(60), @r"
        NODE      MAC                STATE
        master-0  52:54:00:00:00:0a  paused: KVM does not work here
        master-1  52:54:00:00:00:0b  ok
        ");
        insta::assert_snapshot!(at(50), @r"
        NODE      MAC                STATE
        master-0  52:54:00:00:00:0a  paused: KVM does not
                                     work here
        master-1  52:54:00:00:00:0b  ok
        ");
        insta::assert_snapshot!(at(31), @r"
        master-0
          ROLE   master
          MAC    52:54:00:00:00:0a
          STATE  paused: KVM does not
                 work here
        master-1
          ROLE   master
          MAC    52:54:00:00:00:0b
          STATE  ok
        ");
        assert_eq!(wrap("abcdefg hi", 3), ["abc", "def", "g", "hi"]);
    }

    #[test]
    fn objects_are_summarized_except_machines_and_changes_of_this_computer() {
        let objects = [
            ("domain", "lab-master-0"),
            ("volume", "lab-master-0.qcow2"),
            ("domain", "lab-harvest-worker-0"),
            ("volume", "lab-master-0-seed"),
            ("dhcp host", "master-0 10.0.0.2"),
            ("client dns", "/etc/hosts: 10.0.0.9 api.lab.example.com"),
        ];
        let objects = objects.map(|(kind, name)| Owned {
            kind: kind.to_owned(),
            name: name.to_owned(),
        });
        let shown = owned_briefly(&ClusterDomain::new("lab", "example.com"), &objects, |name| {
            name == "lab-master-0"
        });
        insta::assert_snapshot!(shown, @r"
        KIND        NAME
        domain      lab-master-0
        domain      lab-harvest-worker-0
        client dns  /etc/hosts: 10.0.0.9 api.lab.example.com
        volume      2 objects
        dhcp host   1 object
        ");
    }

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
