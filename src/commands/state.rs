//! `ocpdeploy state`.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;

use age::secrecy::SecretString;
use age::{Identity, IdentityFile, Recipient};
use anyhow::{Context, Result};
use inquire::{Password, PasswordDisplayMode};
use jiff::Timestamp;

use super::output::{make_way, print};
use super::session::Session;
use crate::cli::{self, StateCommand, StateExport, StateImport, StateVerb};
use crate::cluster::{BackendConfig, Role};
use crate::error::{ErrorKind, OperationError};
use crate::limited_file::{self, Patient};
use crate::printable::{count, printable_line, shell_path};
use crate::state::archive;
use crate::state::home::{self, ClusterDir, Home};
use crate::state::inventory::{self, Cluster, Known};
use crate::state::journal;

pub fn run(session: &Session, command: &StateCommand) -> Result<()> {
    match &command.verb {
        StateVerb::Export(command) => export(session, command),
        StateVerb::Import(command) => import(session, command),
    }
}

fn export(session: &Session, command: &StateExport) -> Result<()> {
    let known = session.cluster(&command.of)?;
    let path = std::path::absolute(&command.output)?;
    let shown = command.output.display();
    if !command.force && path.symlink_metadata().is_ok() {
        let text = format!("{shown} already exists");
        return Err(OperationError::new(ErrorKind::Usage, text)
            .hint("choose another file, or add --force to replace it")
            .into());
    }
    let recipients = recipients(command)?;
    let dir = session.home.cluster(&known.name);
    let _lock = journal::lock(&dir, &known.name)?;
    let packed = archive::pack(&dir, &recipients).with_context(|| format!("cannot export cluster {}", known.id()))?;
    home::write_where_asked(&path, &packed)?;
    let files = archive::files(&dir)?;
    print(&format!(
        "{shown}: record of cluster {}, {}\n\
         content: {}\n\
         secrets: it contains those of the cluster; keep it apart from its passphrase or private key\n\
         next: `ocpdeploy state import {}` on the other computer\n",
        known.id(),
        count(files.len(), "file"),
        content(&files),
        shell_path(&command.output),
    ))
}

/// What the files of a record contain; a rehearsal, for example, has no kubeconfig.
fn content(files: &[String]) -> String {
    let parts = [
        ("parameters.yaml", "addresses"),
        ("journal.jsonl", "journal"),
        ("settings.json", "origin of the settings"),
        ("installer/auth/kubeconfig", "kubeconfig"),
        ("ignition/", "Ignition configs"),
    ];
    let has = |path: &str| files.iter().any(|file| file.starts_with(path));
    let parts = parts.into_iter().filter(|(path, _)| has(path));
    Vec::from_iter(parts.map(|(_, part)| part)).join(", ")
}

fn recipients(command: &StateExport) -> Result<Vec<Box<dyn Recipient>>> {
    let mut keys = command.recipients.clone();
    if let Some(path) = &command.recipients_file {
        let text = text_of(path)?;
        let lines = text.lines().enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')) {
            let invalid = |why| invalid(path, &format!("line {}: {why}", number + 1));
            keys.push(cli::recipient(line.trim()).map_err(invalid)?);
        }
        if keys.is_empty() {
            return Err(invalid(path, "it contains no key").into());
        }
    }
    if keys.is_empty() {
        return Ok(vec![archive::passphrase(passphrase(
            command.passphrase_file.as_deref(),
            true,
        )?)]);
    }
    Ok(keys
        .into_iter()
        .map(|key| Box::new(key) as Box<dyn Recipient>)
        .collect())
}

fn import(session: &Session, command: &StateImport) -> Result<()> {
    let path = &command.file;
    let cannot = || format!("cannot import {}", path.display());
    let file = limited_file::open(path).and_then(Patient::new);
    let file = file.map_err(|error| invalid(path, &error.to_string()))?;
    let sealed = archive::open(std::io::BufReader::new(file)).with_context(cannot)?;
    let identities: Vec<Box<dyn Identity>> = match (sealed.is_scrypt(), &command.identity) {
        (true, None) => vec![archive::with_passphrase(passphrase(
            command.passphrase_file.as_deref(),
            false,
        )?)],
        (false, Some(path)) => identities(path)?,
        (true, Some(_)) => return Err(other_key(path, "with a passphrase", "leave out --identity")),
        (false, None) => return Err(other_key(path, "to the keys of recipients", "add --identity FILE")),
    };
    let decrypted = archive::decrypt(sealed, &identities).with_context(cannot)?;
    let _allocation = inventory::allocate(&session.home)?;
    let unpacked = session.home.importing();
    home::remove_folder(unpacked.path())?;
    unpacked.create()?;
    let imported = archive::unpack(decrypted, &unpacked).and_then(|cluster| {
        let replaced = install(&session.home, &cluster.known, &unpacked, command)?;
        Ok((cluster, replaced))
    });
    // What remains there: an incomplete record after an error, the previous record after --replace.
    home::remove_folder(unpacked.path())?;
    let (cluster, replaced) = imported.with_context(cannot)?;
    print(&imported_text(&cluster, replaced))
}

fn identities(path: &Path) -> Result<Vec<Box<dyn Identity>>> {
    let text = text_of(path)?;
    let file = IdentityFile::from_buffer(text.as_bytes()).map_err(|error| invalid(path, &error.to_string()))?;
    let identities = file.into_identities()?;
    let identities = identities.into_iter().map(|identity| identity as Box<dyn Identity>);
    Ok(identities.collect())
}

/// Installs an unpacked record, and reports the differences from the record that it replaces.
fn install(home: &Home, known: &Known, unpacked: &ClusterDir, command: &StateImport) -> Result<Option<String>> {
    let dir = home.cluster(&known.name);
    let _lock = dir.exists().then(|| journal::lock(&dir, &known.name)).transpose()?;
    let differences = match Known::read(&dir)? {
        Some(here) if here.id() != known.id() => {
            let text = format!(
                "the state directory has another deployment of cluster {}: {}, not {}",
                known.name,
                here.id().tag(),
                known.id().tag()
            );
            return Err(OperationError::new(ErrorKind::Usage, text)
                .hint("import it into another state directory, with --home DIR")
                .into());
        }
        Some(_) => Some(differences(&dir, unpacked)?),
        None => None,
    };
    if let (Some(differences), false) = (&differences, command.replace) {
        let text = format!(
            "cluster {} is already in the state directory; {differences}",
            known.id()
        );
        let file = shell_path(&command.file);
        let hint = match last_change(&dir) > last_change(unpacked) {
            true => format!(
                "keep the record here, which is newer; `ocpdeploy state import {file} --replace` loses its newer data"
            ),
            false => format!("`ocpdeploy state import {file} --replace` replaces it"),
        };
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    dir.replace_with(unpacked)?;
    Ok(differences)
}

/// The differences of two records, in one line.
fn differences(here: &ClusterDir, there: &ClusterDir) -> Result<String> {
    let files: BTreeSet<String> = archive::files(here)?
        .into_iter()
        .chain(archive::files(there)?)
        .collect();
    let differ = |file: &String| archive::read(here, file).ok() != archive::read(there, file).ok();
    let files: Vec<String> = files.into_iter().filter(differ).collect();
    let last = |dir: &ClusterDir| last_change(dir).map_or("never".to_owned(), |time| format!("{time:.0}"));
    Ok(match files.is_empty() {
        true => "both records are the same".to_owned(),
        false => format!(
            "last change {} here, {} in the file; {} differ: {}",
            last(here),
            last(there),
            count(files.len(), "file"),
            files.join(", ")
        ),
    })
}

fn last_change(dir: &ClusterDir) -> Option<Timestamp> {
    let entries = journal::read(&dir.journal()).unwrap_or_default();
    entries.last().map(|entry| entry.time)
}

fn imported_text(cluster: &Cluster, replaced: Option<String>) -> String {
    let known = &cluster.known;
    let counts = cluster.parameters.iter().flat_map(|table| {
        let of = |role| (table.of_role(role).count(), role.to_string());
        [Role::Master, Role::Arbiter, Role::Worker].map(of)
    });
    let counts = counts.filter(|(nodes, _)| *nodes > 0);
    let nodes = Vec::from_iter(counts.map(|(nodes, role)| count(nodes, &role))).join(", ");
    let needed = known.all_platforms().flat_map(BackendConfig::files);
    let missing = needed.filter(|(_, path)| !path.exists());
    let missing: Vec<String> = missing
        .map(|(what, path)| format!("{} ({what})", path.display()))
        .collect();
    let places: Vec<String> = known.all_platforms().map(BackendConfig::place).collect();
    let credentials: BTreeSet<&str> = known.all_platforms().map(BackendConfig::credentials).collect();
    let rows = [
        ("cluster", known.id().to_string()),
        ("platform", places.join(", workers on ")),
        ("nodes", nodes),
        ("replaced", replaced.unwrap_or_default()),
        ("credentials", Vec::from_iter(credentials).join("; ")),
        ("missing", missing.join(", ")),
        ("next", format!("ocpdeploy status {}", known.name)),
    ];
    let rows = rows.iter().filter(|(_, value)| !value.is_empty());
    rows.map(|(name, value)| format!("{name}: {}\n", printable_line(value)))
        .collect()
}

/// Reads a passphrase from a file or a terminal. A new one is entered twice.
fn passphrase(file: Option<&Path>, is_new: bool) -> Result<SecretString> {
    let text = match file {
        Some(path) => text_of(path)?.trim_end_matches(['\n', '\r']).to_owned(),
        None if !std::io::stdin().is_terminal() => {
            let text = "cannot prompt for a passphrase: stdin is not a terminal";
            return Err(OperationError::new(ErrorKind::Usage, text)
                .hint("add --passphrase-file FILE")
                .into());
        }
        None => {
            make_way();
            let prompt = Password::new("Passphrase:").with_display_mode(PasswordDisplayMode::Hidden);
            let prompt = prompt.with_custom_confirmation_message("Repeat the passphrase:");
            let prompt = if is_new { prompt } else { prompt.without_confirmation() };
            prompt
                .prompt()
                .map_err(|_| OperationError::new(ErrorKind::Stopped, "canceled; nothing was written"))?
        }
    };
    match text.is_empty() {
        true => Err(OperationError::new(ErrorKind::Settings, "the passphrase is empty").into()),
        false => Ok(text.into()),
    }
}

fn text_of(path: &Path) -> Result<String, OperationError> {
    limited_file::read_text(path).map_err(|error| invalid(path, &error.to_string()))
}

fn invalid(path: &Path, why: &str) -> OperationError {
    OperationError::new(
        ErrorKind::Settings,
        format!("cannot read {}: {}", path.display(), printable_line(why)),
    )
}

fn other_key(path: &Path, how: &str, hint: &str) -> anyhow::Error {
    let text = format!("{} is encrypted {how}", path.display());
    OperationError::new(ErrorKind::Usage, text).hint(hint).into()
}
