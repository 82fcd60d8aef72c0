//! Collects the consoles, journal, logs and API objects of a cluster whose installation failed, in one tar.

mod journals;
mod log_bundle;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt;
use jiff::Timestamp;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::openshift::installer::{Installer, Mask, WaitContext};
use crate::openshift::wait::WaitError;
use crate::openshift::wait::seen::Operators;
use crate::openshift::wait::symptoms::{self, Found};
use crate::printable::{printable_console, printable_json};

/// The installer's own gathering connects to every master over SSH.
const INSTALLER_LIMIT: Duration = Duration::from_secs(300);

/// Limit for all API requests.
const API_LIMIT: Duration = Duration::from_secs(30);

/// A failed installation, with its probable causes.
#[derive(Debug, thiserror::Error)]
#[error("cluster {cluster} did not come up{}", lines(found))]
pub struct InstallFailed {
    pub cluster: String,
    pub found: Vec<Found>,
    /// Path of the bundle; `None` if it could not be written.
    pub bundle: Option<PathBuf>,
    pub source: WaitError,
}

impl InstallFailed {
    /// Suggestions for the user, the most probable first.
    pub fn hints(&self) -> Vec<String> {
        let mut hints: Vec<String> = self.found.iter().map(|found| found.hint.to_owned()).collect();
        hints.extend(
            self.bundle
                .as_ref()
                .map(|path| format!("consoles, logs and the journal are in {}", path.display())),
        );
        hints
    }
}

fn lines(found: &[Found]) -> String {
    found
        .iter()
        .map(|found| format!("\n  {}: {}", found.place, found.cause))
        .collect()
}

/// Collects all diagnostics of a failed wait and derives its probable causes.
///
/// Never adds an error to the failed run: what is not available is skipped.
pub async fn explain(
    backend: &Platforms,
    installer: &Installer,
    wait: &WaitContext<'_>,
    bootstrap_is_there: bool,
    error: WaitError,
) -> InstallFailed {
    info!(target: PROGRESS, step = "gather", "gathering logs");
    let mut texts = consoles(backend, wait).await;
    let mut files = texts_as_files("consoles", &texts);
    match timeout(API_LIMIT, from_api(wait)).await {
        Ok(Some((objects, operators))) => {
            files.extend(objects);
            let said = operators.messages();
            texts.extend(said.map(|(name, why)| (format!("operator {name}"), why.to_owned())));
        }
        _ => warn!(target: PROGRESS, step = "gather", "no diagnostics from the cluster API"),
    }
    // The guests of a rehearsal have no SSH server.
    if let Installer::OpenshiftInstall(_) = installer {
        files.extend(journals::journals(wait, bootstrap_is_there).await);
    }
    if bootstrap_is_there && let Err(error) = installer.gather(wait, INSTALLER_LIMIT).await {
        let first = error.to_string();
        let first = first.lines().next().unwrap_or_default();
        warn!(target: PROGRESS, step = "gather", "no logs from the nodes: {first}");
    }
    let said = texts.iter().map(|(place, text)| (place.as_str(), text.as_str()));
    let found = symptoms::find(said);
    let bundle = match write(wait, files) {
        Ok(path) => Some(path),
        Err(error) => {
            warn!(target: PROGRESS, step = "gather", "cannot write the bundle: {error}");
            None
        }
    };
    InstallFailed {
        cluster: wait.config.id().to_string(),
        found,
        bundle,
        source: error,
    }
}

/// The consoles of all machines, as `console of <machine>`.
async fn consoles(backend: &Platforms, wait: &WaitContext<'_>) -> Vec<(String, String)> {
    let id = wait.config.id();
    let machines = backend.list_machines(&id).await.unwrap_or_default();
    let mut consoles = Vec::new();
    for machine in machines {
        if let Ok(Some(text)) = backend.console_tail(&id, &machine.name).await {
            consoles.push((format!("console of {}", machine.name), text));
        }
    }
    consoles
}

fn texts_as_files(folder: &str, texts: &[(String, String)]) -> Vec<(String, Vec<u8>)> {
    let file = |(place, text): &(String, String)| {
        let name = place.rsplit(' ').next().unwrap_or_default();
        (format!("{folder}/{name}.txt"), text.clone().into_bytes())
    };
    texts.iter().map(file).collect()
}

/// Nodes, requests, operators, version, etcd, pools and events as JSON; `None` if the API does not answer.
async fn from_api(wait: &WaitContext<'_>) -> Option<(Vec<(String, Vec<u8>)>, Operators)> {
    let api = wait.api().await.ok()?;
    let nodes = api.nodes().await.ok()?;
    let operators = api.cluster_operators().await.unwrap_or_default();
    let version = api.cluster_version().await.ok().flatten();
    let requests = api.requests().await.map(|(requests, _)| requests).unwrap_or_default();
    let (etcd, pools, events) = tokio::join!(api.etcd(), api.machine_config_pools(), api.events());
    let seen = Operators::of(&operators);
    let files = [
        ("nodes", serde_json::to_vec_pretty(&nodes)),
        ("clusteroperators", serde_json::to_vec_pretty(&operators)),
        ("clusterversion", serde_json::to_vec_pretty(&version)),
        ("certificatesigningrequests", serde_json::to_vec_pretty(&requests)),
        ("etcd", serde_json::to_vec_pretty(&etcd.ok().flatten())),
        (
            "machineconfigpools",
            serde_json::to_vec_pretty(&pools.unwrap_or_default()),
        ),
        ("events", serde_json::to_vec_pretty(&events.unwrap_or_default())),
    ];
    let files = files
        .into_iter()
        .filter_map(|(name, json)| Some((format!("api/{name}.json"), json.ok()?)));
    Some((files.collect(), seen))
}

/// Writes the tar with mode 0600 and masked secrets: the collected files, the journal, the logs, and the installer's
/// bundles.
fn write(wait: &WaitContext<'_>, mut files: Vec<(String, Vec<u8>)>) -> io::Result<PathBuf> {
    let dir = wait.dir;
    let time = Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    files.push(("journal.jsonl".to_owned(), fs::read(dir.journal()).unwrap_or_default()));
    for path in files_in(&dir.log(), |name| name.ends_with(".log"))? {
        files.push((format!("log/{}", name_of(&path)), fs::read(&path)?));
    }
    let bundles = files_in(&dir.installer(), |name| name.starts_with("log-bundle-"))?;
    let path = dir.path().join(format!("bundle-{time}.tar"));
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let mut tar = tar::Builder::new(file);
    let mask = Mask::new(wait.config, &dir.installer());
    // It may be read in a terminal (`tar -xO`, `less -R`), so control characters are removed. Masking is last: a
    // removed character may have split a secret.
    let safe = |name: &str, text: &str| match name.contains(".json") {
        true => mask.apply(&printable_json(text)),
        false => mask.apply(&printable_console(text)),
    };
    for (name, bytes) in files {
        let text = safe(&name, &String::from_utf8_lossy(&bytes));
        append(&mut tar, &name, text.as_bytes())?;
    }
    for bundle in bundles {
        let read = log_bundle::read(&bundle, |name, text| {
            append(&mut tar, name, safe(name, text).as_bytes())
        })?;
        for left_out in &read.left_out {
            info!(target: PROGRESS, step = "gather", "{}: skipped {left_out}", name_of(&bundle));
        }
        match read.whole {
            true => fs::remove_file(bundle)?,
            false => warn!(target: PROGRESS, step = "gather", "{} is damaged; it is kept", bundle.display()),
        }
    }
    tar.into_inner()?.sync_all()?;
    Ok(path)
}

fn append(tar: &mut tar::Builder<impl io::Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(Timestamp::now().as_second().unsigned_abs());
    tar.append_data(&mut header, name, bytes)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Files of a directory by name; a missing directory has none.
fn files_in(folder: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_file() && wanted(&name_of(&path)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
