//! `ocpdeploy report`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

use super::output::{print, print_file};
use super::output_file::OutputFile;
use super::session::Session;
use super::status::Eyes;
use crate::cli::Report;
use crate::failure;
use crate::report::html::{self, Input, Warning};
use crate::state::durations;
use crate::state::home::ClusterDir;
use crate::state::inventory::{self, InventoryError};
use crate::state::journal;

pub fn run(session: &Session, command: &Report) -> Result<()> {
    let name = session.cluster_name(command.of.cluster.as_deref())?;
    let cluster =
        inventory::find(&session.home, &name)?.ok_or_else(|| InventoryError::Unknown { cluster: name.clone() })?;
    let dir = session.home.cluster(&name);
    // If the platform cannot be queried, the report is written without its part.
    let machines = Eyes::new(session)?.machines(&cluster);
    let holder = journal::holder(&dir);
    let page = html::page(&Input {
        cluster: &cluster,
        journal: &journal::read(&dir.journal())?,
        holder,
        machines: match &machines {
            Ok(machines) => Ok(machines),
            Err(error) => Err(failure::explain(error).chain.join(": ")),
        },
        warnings: &warnings(&dir)?,
        now: Timestamp::now(),
        deployments: &durations::read(&session.home),
    })?;
    if command.output == Path::new("-") {
        return print_file(page.as_bytes());
    }
    OutputFile::check(&command.output, "use -o -")?.write(page.as_bytes())?;
    print(&format!("report written to {}\n", command.output.display()))
}

/// The warnings in the cluster's log, without duplicates.
fn warnings(dir: &ClusterDir) -> Result<Vec<Warning>> {
    #[derive(Deserialize)]
    struct Line {
        timestamp: Timestamp,
        level: String,
        fields: Fields,
    }
    #[derive(Deserialize)]
    struct Fields {
        #[serde(default)]
        message: String,
    }
    let path = dir.log().join("ocpdeploy.jsonl");
    let Ok(file) = std::fs::File::open(&path) else {
        return Ok(Vec::new());
    };
    let mut told = BTreeSet::new();
    let mut warnings = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.with_context(|| format!("read {}", path.display()))?;
        // The last line may be incomplete.
        let Ok(Line {
            timestamp,
            level,
            fields,
        }) = serde_json::from_slice(&line)
        else {
            continue;
        };
        if matches!(level.as_str(), "WARN" | "ERROR") && told.insert(fields.message.clone()) {
            warnings.push(Warning {
                time: format!("{timestamp:.0}"),
                text: fields.message,
            });
        }
    }
    Ok(warnings)
}
