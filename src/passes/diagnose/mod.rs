//! Collects the consoles, journals, logs and API objects of a cluster: for `ocpdeploy logs`, and in one tar if its
//! installation failed.

mod fetched;
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

use self::fetched::{Fetched, File};
use crate::PROGRESS;
use crate::backend::PlatformError;
use crate::backend::platforms::Platforms;
use crate::cluster::{ClusterConfig, ClusterId, InstallerChoice, MachineName, NodeName, Role};
use crate::openshift::api::ApiError;
use crate::openshift::installer::fetch::Choice;
use crate::openshift::installer::{Installer, Mask, WaitContext};
use crate::openshift::wait::WaitError;
use crate::openshift::wait::seen::Operators;
use crate::openshift::wait::symptoms::{self, Found};
use crate::printable::{printable_console, printable_json};
use crate::state::home::ClusterDir;
use crate::state::journal::{self, BOOTSTRAP_REMOVED, is_done};
use crate::state::parameters::{NodeAddress, Parameters};

pub use self::fetched::NotFetched;

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
    let id = wait.config.id();
    let mut files: Vec<File> = consoles(backend, &id, |_| true).await.into_iter().flatten().collect();
    let text = |(name, bytes): &File| {
        let machine = name.trim_start_matches("consoles/").trim_end_matches(".txt");
        (
            format!("console of {machine}"),
            String::from_utf8_lossy(bytes).into_owned(),
        )
    };
    let mut texts: Vec<(String, String)> = files.iter().map(text).collect();
    match from_api(wait).await {
        Ok((objects, operators)) => {
            files.extend(objects);
            let said = operators.messages();
            texts.extend(said.map(|(name, why)| (format!("operator {name}"), why.to_owned())));
        }
        Err(why) => warn!(target: PROGRESS, step = "gather", "no {why}"),
    }
    // The guests of a rehearsal have no SSH server.
    if let Installer::OpenshiftInstall(_) = installer {
        let is_there = |node: &&NodeAddress| bootstrap_is_there || node.role != Role::Bootstrap;
        let nodes = wait.parameters.nodes.iter().filter(is_there);
        for journal in journals::journals(wait.config, wait.dir, nodes).await {
            match journal {
                Ok(file) => files.push(file),
                Err(why) => info!(target: PROGRESS, step = "gather", "no {why}"),
            }
        }
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

/// Passes each log of a cluster to `each`, secrets masked; returns what could not be fetched. With names of nodes, only
/// their logs are fetched.
pub async fn collect(
    backend: Result<&Platforms, &PlatformError>,
    config: &ClusterConfig,
    table: Option<&Parameters>,
    dir: &ClusterDir,
    nodes: &[NodeName],
    mut each: impl FnMut(&str, &[u8]) -> io::Result<()>,
) -> anyhow::Result<Vec<NotFetched>> {
    info!(target: PROGRESS, step = "gather", "gathering logs");
    let is_removed = is_done(&journal::read(&dir.journal())?, BOOTSTRAP_REMOVED);
    let is_wanted = |node: &&NodeAddress| match nodes {
        [] => !(is_removed && node.role == Role::Bootstrap),
        _ => nodes.contains(&node.name),
    };
    let tables = || table.into_iter();
    let planned: Vec<_> = tables().flat_map(|table| &table.nodes).filter(is_wanted).collect();
    let external = tables().flat_map(|table| &table.external).filter(is_wanted);
    let mut fetched = match backend {
        Ok(backend) => {
            let is_wanted = |node: &NodeName| nodes.is_empty() || nodes.contains(node);
            let consoles = consoles(backend, &config.id(), is_wanted).await;
            with_missing(
                consoles,
                planned
                    .iter()
                    .map(|node| MachineName::of_node(&config.name, &node.name)),
            )
        }
        Err(error) => vec![Err(NotFetched::new(CONSOLES, error))],
    };
    let log_bundles = files_in(&dir.installer(), is_log_bundle)?;
    match (table, &config.installer) {
        (_, InstallerChoice::Rehearsal) => {
            let why = "the guests of a rehearsal have no SSH server";
            fetched.push(Err(NotFetched::new("journals", why)));
        }
        (None, _) => fetched.push(Err(NotFetched::new("journals", "the addresses are not known yet"))),
        (Some(table), InstallerChoice::OpenshiftInstall(_)) => {
            let with_ssh = planned.iter().copied().chain(external);
            fetched.extend(journals::journals(config, dir, with_ssh).await);
            if nodes.is_empty() {
                let wait = WaitContext {
                    config,
                    parameters: table,
                    dir,
                    guests_answer: true,
                };
                let of_cluster = of_cluster(&wait, &fetched).await;
                fetched.extend(of_cluster);
            }
        }
    }
    let (mut files, mut missing) = (Vec::new(), Vec::new());
    for fetched in fetched {
        match fetched {
            Ok(file) => files.push(file),
            Err(why) => missing.push(why),
        }
    }
    if nodes.is_empty() {
        files.extend(local_files(dir)?);
        // Its secrets are masked.
        let bundles = files_in(dir.path(), |name| name.starts_with("bundle-") && name.ends_with(".tar"))?;
        if let Some(last) = bundles.last() {
            each(&name_of(last), &fs::read(last)?)?;
        }
    }
    let mut read = files_in(&dir.installer(), is_log_bundle)?;
    read.retain(|_| nodes.is_empty());
    for read in masked(config, dir, files, &read, each)? {
        // They contain secrets. Those that somebody else created are kept.
        if !log_bundles.contains(&read) {
            fs::remove_file(read)?;
        }
    }
    Ok(missing)
}

/// Adds the machines that the platform does not have.
fn with_missing(mut consoles: Vec<Fetched>, planned: impl Iterator<Item = MachineName>) -> Vec<Fetched> {
    let is_of = |fetched: &Fetched, machine: &MachineName| match fetched {
        Ok((name, _)) => *name == console_file(machine),
        Err(why) => [CONSOLES, &console_of(machine)].contains(&why.what.as_str()),
    };
    for machine in planned {
        if !consoles.iter().any(|console| is_of(console, &machine)) {
            let why = "the platform does not have this machine";
            consoles.push(Err(NotFetched::new(console_of(&machine), why)));
        }
    }
    consoles
}

/// Objects of the cluster's API, and if the bootstrap answers, the logs that the installer collects from it.
async fn of_cluster(wait: &WaitContext<'_>, fetched: &[Fetched]) -> Vec<Fetched> {
    let mut all = match from_api(wait).await {
        Ok((objects, _)) => objects.into_iter().map(Ok).collect(),
        Err(why) => vec![Err(why)],
    };
    let answers = |file: &Fetched| file.as_ref().is_ok_and(|(name, _)| name == "journals/bootstrap.txt");
    if fetched.iter().any(answers) {
        let gathered = match Installer::find(wait.config, wait.dir).await {
            Ok(Choice::Here { installer, .. }) => installer.gather(wait, INSTALLER_LIMIT).await.map_err(first_line),
            Ok(Choice::Published(_)) => Err("openshift-install is not on this computer".to_owned()),
            Err(error) => Err(first_line(error)),
        };
        all.extend(
            gathered
                .map_err(|why| Err(NotFetched::new("logs of the bootstrap's containers", why)))
                .err(),
        );
    }
    all
}

fn first_line(error: impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// What was not fetched, if no machine could be listed.
const CONSOLES: &str = "consoles";

fn console_of(machine: &MachineName) -> String {
    format!("console of {machine}")
}

fn console_file(machine: &MachineName) -> String {
    format!("{CONSOLES}/{machine}.txt")
}

/// The consoles of a cluster's machines.
async fn consoles(backend: &Platforms, id: &ClusterId, is_wanted: impl Fn(&NodeName) -> bool) -> Vec<Fetched> {
    let machines = match backend.list_machines(id).await {
        Ok(machines) => machines,
        Err(error) => return vec![Err(NotFetched::new(CONSOLES, error))],
    };
    let mut consoles = Vec::new();
    for machine in machines.into_iter().filter(|machine| is_wanted(&machine.node)) {
        consoles.push(match backend.console_tail(id, &machine.name).await {
            Ok(Some(text)) => Ok((console_file(&machine.name), text.into_bytes())),
            Ok(None) => Err(NotFetched::new(
                console_of(&machine.name),
                "the platform keeps none, or it is empty",
            )),
            Err(error) => Err(NotFetched::new(console_of(&machine.name), error)),
        });
    }
    consoles
}

/// Nodes, requests, operators, version, etcd, pools and events as JSON.
async fn from_api(wait: &WaitContext<'_>) -> Result<(Vec<File>, Operators), NotFetched> {
    let not_fetched = |why: String| NotFetched::new("objects of the cluster's API", why);
    match timeout(API_LIMIT, read_api(wait)).await {
        Ok(read) => read.map_err(|error| not_fetched(first_line(error))),
        Err(_) => Err(not_fetched(format!("no response within {} s", API_LIMIT.as_secs()))),
    }
}

async fn read_api(wait: &WaitContext<'_>) -> Result<(Vec<File>, Operators), ApiError> {
    let api = wait.api().await?;
    let nodes = api.nodes().await?;
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
    Ok((files.collect(), seen))
}

/// Writes the tar with mode 0600 and masked secrets: the collected files, the journal, the logs, and the installer's
/// bundles.
fn write(wait: &WaitContext<'_>, mut files: Vec<File>) -> io::Result<PathBuf> {
    let dir = wait.dir;
    files.extend(local_files(dir)?);
    let log_bundles = files_in(&dir.installer(), is_log_bundle)?;
    let time = Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    let path = dir.path().join(format!("bundle-{time}.tar"));
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let mut tar = tar::Builder::new(file);
    let read = masked(wait.config, dir, files, &log_bundles, |name, bytes| {
        append(&mut tar, name, bytes)
    })?;
    tar.into_inner()?.sync_all()?;
    read.into_iter().try_for_each(fs::remove_file)?;
    Ok(path)
}

/// The journal, and the logs of the installer.
fn local_files(dir: &ClusterDir) -> io::Result<Vec<File>> {
    let mut files = vec![("journal.jsonl".to_owned(), fs::read(dir.journal()).unwrap_or_default())];
    for path in files_in(&dir.log(), |name| name.ends_with(".log"))? {
        files.push((format!("log/{}", name_of(&path)), fs::read(&path)?));
    }
    // With all details (openshift/installer: `cmd/openshift-install/command/log.go`).
    for path in files_in(&dir.installer(), |name| name == ".openshift_install.log")? {
        files.push((
            format!("log/{}", name_of(&path).trim_start_matches('.')),
            fs::read(&path)?,
        ));
    }
    Ok(files)
}

/// Passes all files, and those of the installer's bundles, to `each` with masked secrets. Returns the bundles that were
/// not damaged.
fn masked(
    config: &ClusterConfig,
    dir: &ClusterDir,
    files: Vec<File>,
    log_bundles: &[PathBuf],
    mut each: impl FnMut(&str, &[u8]) -> io::Result<()>,
) -> io::Result<Vec<PathBuf>> {
    let mask = Mask::new(config, &dir.installer());
    // It may be read in a terminal (`tar -xO`, `less -R`), so control characters are removed. Masking is last: a
    // removed character may have split a secret.
    let safe = |name: &str, text: &str| match name.contains(".json") {
        true => mask.apply(&printable_json(text)),
        false => mask.apply(&printable_console(text)),
    };
    for (name, bytes) in files {
        each(&name, safe(&name, &String::from_utf8_lossy(&bytes)).as_bytes())?;
    }
    let mut whole = Vec::new();
    for bundle in log_bundles {
        let read = log_bundle::read(bundle, |name, text| each(name, safe(name, text).as_bytes()))?;
        for left_out in &read.left_out {
            info!(target: PROGRESS, step = "gather", "{}: skipped {left_out}", name_of(bundle));
        }
        match read.whole {
            true => whole.push(bundle.clone()),
            false => warn!(target: PROGRESS, step = "gather", "{} is damaged; it is kept", bundle.display()),
        }
    }
    Ok(whole)
}

/// Adds a private file to an archive.
pub fn append(tar: &mut tar::Builder<impl io::Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(Timestamp::now().as_second().unsigned_abs());
    tar.append_data(&mut header, name, bytes)
}

fn is_log_bundle(name: &str) -> bool {
    name.starts_with("log-bundle-")
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
