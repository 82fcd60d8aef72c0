//! `ocpdeploy ignition merge`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use super::input::{Input, is_stdin, read_all};
use crate::cli::{Global, IgnitionMerge};
use crate::commands::output::{print_file, tell};
use crate::commands::output_file::{NO_OUTPUT, OutputFile};
use crate::error::{ErrorKind, OperationError};
use crate::ignition::Major;
use crate::ignition::check::{Finding, Severity, check, check_merged, traps};
use crate::ignition::merge::merge;
use crate::ignition::origins::{Layer, merge_layers, origins};
use crate::report::ignition::check::Remark;

pub fn run(global: &Global, command: &IgnitionMerge) -> Result<ExitCode> {
    let output = command.output.as_deref().filter(|path| !is_stdin(path));
    let output = output.map(|path| OutputFile::check(path, NO_OUTPUT)).transpose()?;
    let mut inputs = read_all(&command.files)?;
    let mut remarks = Remarks::default();
    // Several configs of spec 2 are for an old CoreOS; a single one may be a mistake.
    let wanted = (inputs.len() == 1).then_some(Major::Three);
    for input in &inputs {
        remarks.add(input, input.findings(wanted, check));
    }
    remarks.refuse("Ignition would reject the config to be merged")?;
    // The files' bytes are kept, to locate findings in them.
    let layers: Vec<Layer> = inputs
        .iter_mut()
        .map(|input| Layer {
            origin: input.name.clone(),
            config: input.config.take(),
        })
        .collect();
    let merged = merged(&layers, &inputs, &mut remarks)?;
    if !global.quiet {
        remarks.warnings.iter().for_each(|line| tell(line));
    }
    let text = match command.pretty {
        true => format!("{merged:#}\n"),
        // Without a trailing line break, like the installer's files.
        false => merged.to_string(),
    };
    match output {
        Some(file) => file.write(text.as_bytes())?,
        None => print_file(text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Merges all layers, and checks each step and the result.
fn merged(layers: &[Layer], inputs: &[Input], remarks: &mut Remarks) -> Result<Value> {
    let mut merged = merge_layers(layers.get(..1).unwrap_or_default())?;
    for (layer, input) in layers.iter().zip(inputs).skip(1) {
        remarks.add(input, input.remarks(traps(&merged, &layer.config)));
        merged = merge(&merged, &layer.config).with_context(|| format!("cannot merge {}", layer.origin))?;
    }
    let names: Vec<&str> = layers.iter().map(|layer| layer.origin.as_str()).collect();
    let findings = check_merged(&merged);
    let origins = match findings.is_empty() {
        true => Vec::new(),
        false => origins(layers)?,
    };
    for finding in findings {
        // JSON pointers and Ignition's paths name the same steps.
        let pointer = format!("{}/", finding.path.trim_start_matches('$').replace('.', "/"));
        let around = origins
            .iter()
            .filter(|origin| pointer.starts_with(&format!("{}/", origin.pointer)));
        let origin = around.max_by_key(|origin| origin.pointer.len());
        let from = origin.map_or_else(|| names.join(" and "), |origin| origin.layers.join(" and "));
        remarks.add_merged(finding, &from);
    }
    remarks.refuse(&format!("merging {} gives an invalid config", names.join(" and ")))?;
    Ok(merged)
}

/// The findings, without duplicates.
#[derive(Default)]
struct Remarks {
    warnings: Vec<String>,
    errors: Vec<String>,
    /// Warnings about single files, which the check of the result repeats.
    seen: Vec<String>,
}

impl Remarks {
    fn add(&mut self, input: &Input, remarks: Vec<Remark>) {
        for remark in remarks {
            self.keep(remark.severity, remark.line(&input.name));
            self.seen.push(remark.text);
        }
    }

    /// Adds a finding of the result, with the files of its entry.
    fn add_merged(&mut self, finding: Finding, from: &str) {
        if finding.severity == Severity::Warning && self.seen.contains(&finding.text) {
            return;
        }
        let remark = Remark {
            severity: finding.severity,
            path: Some(finding.path),
            line: None,
            column: None,
            text: format!("{} (from {from})", finding.text),
        };
        self.keep(remark.severity, remark.line("merged"));
    }

    fn keep(&mut self, severity: Severity, line: String) {
        match severity {
            Severity::Warning => self.warnings.push(line),
            Severity::Error => self.errors.push(line),
        }
    }

    /// Fails with all errors, if there are any.
    fn refuse(&self, what: &str) -> Result<(), OperationError> {
        match self.errors.is_empty() {
            true => Ok(()),
            false => {
                let text = format!("{what}\n  {}", self.errors.join("\n  "));
                Err(OperationError::new(ErrorKind::Settings, text))
            }
        }
    }
}
