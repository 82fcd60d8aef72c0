//! Reads the lock file, and fixes the settings that it determines.

use super::problem::Place;
use super::profile::yaml_message;
use super::sources::io_reason;
use super::values::Values;
use crate::cluster::{LOCK_FILE, VersionLock, Wanted};

/// The lock file in the env file's directory, if there is one. A rehearsal ignores it, because it installs no release.
pub(super) fn read(values: &mut Values<'_>) -> Option<VersionLock> {
    let sources = values.sources;
    let path = sources.folder().join(LOCK_FILE);
    if sources.rehearse || sources.env_file.is_none() || !(sources.is_file)(&path) {
        return None;
    }
    let mut problem = |message: String, place: String| {
        let help =
            format!("remove the file to deploy without it; `ocpdeploy config --lock > {LOCK_FILE}` writes it again");
        values.problems.add(message, &[Place::Named(place)], Some(help));
    };
    let text = match (sources.read_file)(&path) {
        Ok(text) => text,
        Err(error) => {
            problem(io_reason(&error), LOCK_FILE.to_owned());
            return None;
        }
    };
    let lock: VersionLock = match serde_saphyr::from_str(&text) {
        Ok(lock) => lock,
        Err(error) => {
            let place = error
                .location()
                .map(|at| format!("{LOCK_FILE}:{}:{}", at.line(), at.column()));
            problem(yaml_message(&error), place.unwrap_or(LOCK_FILE.to_owned()));
            return None;
        }
    };
    if lock.v != VersionLock::VERSION {
        problem(format!("unsupported version {}", lock.v), LOCK_FILE.to_owned());
        return None;
    }
    let wanted = values
        .value("version")
        .and_then(|value| value.text.parse::<Wanted>().ok());
    match wanted.is_none_or(|wanted| wanted.fits(&lock.installer)) {
        true => values.replace("version", LOCK_FILE, lock.installer.clone()),
        false => {
            let help = format!("remove {LOCK_FILE} to deploy another version");
            values.problem(&["version"], format!("{LOCK_FILE} requires {}", lock.installer), &help);
        }
    }
    Some(lock)
}
