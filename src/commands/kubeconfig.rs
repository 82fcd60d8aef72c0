//! `ocpdeploy kubeconfig`.

use std::path::Path;

use anyhow::Result;

use super::output::{print, print_file};
use super::output_file::{NO_OUTPUT, OutputFile};
use super::session::Session;
use crate::cli::Kubeconfig;
use crate::error::{ErrorKind, OperationError};
use crate::export::kubeconfig;
use crate::local::client_kubeconfig::{self, AddedContext};
use crate::local::reach;
use crate::passes::refuse_simulated;
use crate::printable::shell_word;

pub fn run(session: &Session, command: &Kubeconfig) -> Result<()> {
    let (known, parameters) = session.harvested(command.of.cluster.as_deref())?;
    let path = session.home.cluster(&known.name).kubeconfig();
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error, known.rehearsal))?;
    let text = match command.by_name {
        true => text,
        false => {
            refuse_simulated(&known.name, &known.backend, parameters.api_ip)?;
            kubeconfig::pinned(&text, &reach::api_endpoint(&parameters))
                .map_err(|why| OperationError::new(ErrorKind::Settings, format!("{}: {why}", path.display())))?
        }
    };
    match &command.output {
        None if command.merge => {
            let context = AddedContext {
                file: client_kubeconfig::default_file()?,
                name: command.context.clone().unwrap_or_else(|| known.name.clone()),
            };
            let is_changed = context.add(&session.home.cluster(&known.name), &text)?;
            let (file, name) = (context.file.display(), shell_word(&context.name));
            print(&match is_changed {
                true => format!("context {name} written to {file}; use it with `kubectl --context {name}`\n"),
                false => format!("{file} already has context {name}\n"),
            })
        }
        None => print_file(text.as_bytes()),
        Some(path) => Ok(OutputFile::check(path, NO_OUTPUT)?.write(text.as_bytes())?),
    }
}

fn unreadable(path: &Path, error: &std::io::Error, rehearsal: bool) -> OperationError {
    let hint = match rehearsal {
        true => "a rehearsal has no API and no kubeconfig",
        false => "openshift-install writes it together with the Ignition files during `ocpdeploy deploy`",
    };
    OperationError::new(ErrorKind::Tool, format!("cannot read {}: {error}", path.display())).hint(hint)
}
