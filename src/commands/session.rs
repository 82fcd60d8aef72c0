//! The common start of all commands: state directory, screen, settings, and work that a signal can interrupt.

use std::ffi::OsString;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::output;
use super::progress::{Progress, Verbosity};
use crate::cli::{Global, OneCluster, OneNode, Source};
use crate::cluster::{LOCK_FILE, NodeName, Role};
use crate::error::{ErrorKind, OperationError};
use crate::found_file;
use crate::limited_file::{self, Patient};
use crate::openshift::installer;
use crate::passes::no_node;
use crate::printable::{shell_path, shell_word};
use crate::settings::{self, Loaded, ResolvedValue, SettingsError, Sources, Whereabouts, envfile};
use crate::state::dir::me;
use crate::state::home::Home;
use crate::state::inventory::{self, InventoryError, Known};
use crate::state::journal::{self, BOOTSTRAP_REMOVED, is_done};
use crate::state::parameters::{NodeAddress, Parameters};

/// The default env file.
pub(super) const ENV_FILE: &str = "env.sh";

/// The state directory and the screen of one command.
pub struct Session {
    pub home: Home,
    pub progress: Progress,
}

const OTHER_CLUSTER: &str = "give the name of the cluster as the first argument; `ocpdeploy list` shows all names";

impl Session {
    pub fn new(global: &Global) -> Result<Self> {
        let home = home(global.home.as_deref())?;
        if let Some(why) = home.distrust() {
            let text = format!("the state directory is not safe for secrets: {why}");
            let owner = home.root().metadata().map_or(0, |folder| folder.uid());
            let hint = match me() == 0 && owner != 0 {
                // su and doas do not say who called them.
                true => format!(
                    "if you trust user {owner}, run the command with SUDO_UID={owner} in the environment, as sudo sets it"
                ),
                false => "make it private with chown and chmod, or choose another directory with --home".to_owned(),
            };
            return Err(OperationError::new(ErrorKind::Tool, text).hint(hint).into());
        }
        if let Some(path) = home.root_owned() {
            let text = format!("cannot use the state directory: {} belongs to root", path.display());
            let hint = format!(
                "after a command with sudo, give its files back to this user: `sudo chown -Rh $(id -u):$(id -g) {}`",
                shell_path(home.root())
            );
            return Err(OperationError::new(ErrorKind::Tool, text).hint(hint).into());
        }
        let verbosity = match (global.quiet, global.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        };
        Ok(Self {
            home,
            progress: Progress::start(verbosity, global.progress),
        })
    }

    /// Reads and checks the settings; warnings go to the screen.
    pub fn load_from(&self, sources: &Sources<'_>) -> Result<Loaded> {
        let loaded = self.load_settings(sources)?;
        warn(sources, &loaded);
        Ok(loaded)
    }

    /// Reads and checks the settings. The deployment's id comes from the cluster's record, if there is one.
    pub fn load_settings(&self, sources: &Sources<'_>) -> Result<Loaded> {
        let loaded = self.load_without_credentials(sources)?;
        match loaded.missing.is_empty() {
            true => Ok(loaded),
            false => Err(SettingsError {
                problems: loaded.missing,
            }
            .into()),
        }
    }

    /// As `load_settings`, but without an error if only credentials cannot be read.
    pub fn load_without_credentials(&self, sources: &Sources<'_>) -> Result<Loaded> {
        let mut loaded = settings::load_without_credentials(sources)?;
        let config = &mut loaded.config;
        if let Some(known) = Known::read(&self.home.cluster(&config.name))?
            && known.domain == config.domain
        {
            config.deployment = known.deployment;
        }
        Ok(loaded)
    }

    /// Reads a cluster's name, domain and platforms, even if other settings are missing.
    pub fn load_whereabouts(&self, source: &Source) -> Result<Whereabouts> {
        Ok(settings::load_whereabouts(&self.sources(source)?)?)
    }

    /// The sources of the settings: this process's environment, and the env file and flags of the user.
    pub fn sources(&self, source: &Source) -> Result<Sources<'static>> {
        self.sources_with_hint(source, &this_command_with("./env.sh"))
    }

    /// As `sources`; `hint` says how to trust a `./env.sh` that is not safe to use.
    pub fn sources_with_hint(&self, source: &Source, hint: &str) -> Result<Sources<'static>> {
        let env_file = env_file(source, hint)?;
        let mut sources = self.flags(source)?;
        // The user does not name the lock file: it is found beside the env file. If the user names an env file that
        // another user can write to, the lock file is trusted as well.
        if env_file.as_ref().is_some_and(|(path, _)| found_file::is_ours(path)) {
            sources.read_file = &read_but_judge_lock;
        }
        Ok(Sources { env_file, ..sources })
    }

    /// As `sources`, without the env file.
    pub fn flags(&self, source: &Source) -> Result<Sources<'static>> {
        Ok(Sources {
            flags: source.overrides().into_iter().collect(),
            rehearse: source.rehearse,
            allow_downgrade: source.allow_downgrade,
            ..self.surroundings()?
        })
    }

    /// As `sources`, without env file and flags.
    pub fn surroundings(&self) -> Result<Sources<'static>> {
        Ok(Sources {
            env_file: None,
            // A setting is UTF-8; other variables are skipped.
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            flags: Default::default(),
            current_dir: std::env::current_dir().context("find the current directory")?,
            home: self.home.root().to_owned(),
            rehearse: false,
            allow_downgrade: false,
            deployment: inventory::new_deployment()?,
            read_file: &limited_file::read_text,
            is_file: &Path::is_file,
            is_dir: &Path::is_dir,
        })
    }

    /// The given name, otherwise the cluster of `./env.sh`, which must be in the state directory, or the only one there.
    pub fn cluster_name(&self, name: Option<&str>) -> Result<String> {
        let found = self.wanted_name(name)?;
        if name.is_none() && Known::read(&self.home.cluster(&found))?.is_none() {
            let text = format!("no cluster {found} in the state directory; {ENV_FILE} in this directory describes it");
            return Err(OperationError::new(ErrorKind::Usage, text).hint(OTHER_CLUSTER).into());
        }
        Ok(found)
    }

    /// As `cluster_name`, but the cluster of `./env.sh` need not be in the state directory.
    pub fn wanted_name(&self, name: Option<&str>) -> Result<String> {
        if let Some(given) = name {
            // `list` shows names with their domains.
            let (name, domain) = given.split_once('.').unwrap_or((given, ""));
            let known = Known::read(&self.home.cluster(name))?;
            let is_it = known.is_some_and(|known| known.domain == domain);
            return Ok(if is_it { name } else { given }.to_owned());
        }
        if Path::new(ENV_FILE).exists() {
            let sources = self.sources_with_hint(&Source::default(), OTHER_CLUSTER)?;
            return Ok(settings::load_whereabouts(&sources)?.cluster);
        }
        let clusters = inventory::clusters(&self.home)?;
        let names: Vec<&str> = clusters.iter().map(|cluster| cluster.known.name.as_str()).collect();
        match names.as_slice() {
            [name] => Ok((*name).to_owned()),
            [] => Err(
                OperationError::new(ErrorKind::Usage, "no cluster in the state directory")
                    .hint("`ocpdeploy deploy` creates one")
                    .into(),
            ),
            several => {
                let text = format!("there are several clusters: {}", several.join(", "));
                Err(OperationError::new(ErrorKind::Usage, text)
                    .hint("give the name of one as the first argument")
                    .into())
            }
        }
    }

    /// A cluster with its address table.
    pub fn harvested(&self, name: Option<&str>) -> Result<(Known, Parameters)> {
        let cluster = self.cluster_name(name)?;
        let found = inventory::find(&self.home, &cluster)?;
        let found = found.ok_or_else(|| InventoryError::Unknown {
            cluster: cluster.clone(),
        })?;
        let parameters = found.parameters.ok_or_else(|| {
            OperationError::new(
                ErrorKind::Tool,
                format!("the addresses of cluster {cluster} are not known yet"),
            )
            .hint("run `ocpdeploy harvest` or `ocpdeploy deploy`")
        })?;
        Ok((found.known, parameters))
    }

    /// The table without the bootstrap, if the deployment has removed it.
    pub fn without_removed(&self, mut parameters: Parameters) -> Result<Parameters> {
        if self.is_bootstrap_removed(&parameters.cluster)? {
            parameters.nodes.retain(|node| node.role != Role::Bootstrap);
        }
        Ok(parameters)
    }

    /// The cluster of a node: as `cluster_name`, but of several clusters the only one with a node of this name.
    pub fn cluster_of_node(&self, node: &OneNode) -> Result<String> {
        if node.of.cluster.is_none() && !Path::new(ENV_FILE).exists() {
            let clusters = inventory::clusters(&self.home)?;
            let tables = clusters.iter().filter_map(|cluster| cluster.parameters.as_ref());
            let with_node: Vec<&str> = tables
                .filter(|table| table.node(&node.node).is_some())
                .map(|table| table.cluster.as_str())
                .collect();
            match with_node.as_slice() {
                [] => {}
                [cluster] => return Ok((*cluster).to_owned()),
                several => {
                    let text = format!("several clusters have a node {}: {}", node.node, several.join(", "));
                    let hint = "give the name of the cluster before that of the node";
                    return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
                }
            }
        }
        self.cluster_name(node.of.cluster.as_deref())
    }

    /// A cluster and one of its nodes. Before pass one, any name may become that of a machine.
    pub fn node(&self, node: &OneNode) -> Result<(Known, NodeName)> {
        let known = self.known(&self.cluster_of_node(node)?)?;
        let name = node.node.clone();
        let table = Parameters::read(&self.home.cluster(&known.name).parameters())?;
        if let Some(table) = &table {
            self.node_of(table, &name)?;
        }
        match table {
            Some(table) if table.is_external(&name) => {
                let text = format!("{name} is an external node: ocpdeploy did not create its machine");
                let hint = format!("`ocpdeploy node ssh {} {name}` logs in to it", table.cluster);
                Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into())
            }
            _ => Ok((known, name)),
        }
    }

    /// A node of the table; an error if its machine was removed.
    pub fn node_of<'t>(&self, table: &'t Parameters, name: &NodeName) -> Result<&'t NodeAddress> {
        let node = table.node(name).ok_or_else(|| no_node(table, name))?;
        if node.role != Role::Bootstrap || !self.is_bootstrap_removed(&table.cluster)? {
            return Ok(node);
        }
        let text = format!(
            "the bootstrap machine of cluster {} was removed, because its control plane is complete",
            table.cluster
        );
        let hint = "`ocpdeploy deploy --keep-bootstrap` keeps it";
        Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into())
    }

    fn is_bootstrap_removed(&self, cluster: &str) -> Result<bool> {
        let journal = journal::read(&self.home.cluster(cluster).journal())?;
        Ok(is_done(&journal, BOOTSTRAP_REMOVED))
    }

    /// The named cluster, or the one that `cluster_name` finds.
    pub fn cluster(&self, of: &OneCluster) -> Result<Known> {
        self.known(&self.cluster_name(of.cluster.as_deref())?)
    }

    /// A cluster of the state directory.
    pub fn known(&self, name: &str) -> Result<Known> {
        let known = Known::read(&self.home.cluster(name))?;
        Ok(known.ok_or_else(|| InventoryError::Unknown {
            cluster: name.to_owned(),
        })?)
    }

    /// Runs `work` until it ends or a signal arrives. A signal is like a power failure, except that child processes are
    /// stopped and unfinished files with secrets are removed.
    pub fn finish_or_stop<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let runtime = runtime()?;
        let hangup = (!ignores_hangup()).then(SignalKind::hangup);
        for kind in [SignalKind::interrupt(), SignalKind::terminate()]
            .into_iter()
            .chain(hangup)
        {
            let signals = async move { signal(kind) };
            let mut signals = runtime.block_on(signals).context("listen for signals")?;
            // On another thread, because the work may be in a call that does not yield.
            runtime.spawn(async move {
                signals.recv().await;
                installer::end_all().await;
                output::end(ErrorKind::Stopped, "interrupted; to resume, run the same command again");
            });
        }
        let result = runtime.block_on(work);
        end(runtime);
        self.progress.finish();
        result
    }
}

/// Waits at most one second for abandoned blocking calls: at exit, the libraries that libvirt uses free memory that
/// such a call may still use.
pub(super) fn end(runtime: Runtime) {
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// The state directory: as given by `--home` or OCPDEPLOY_HOME, otherwise the XDG data directory.
pub(super) fn home(given: Option<&Path>) -> Result<Home> {
    let root = match given {
        Some(home) if !home.as_os_str().is_empty() => home.to_owned(),
        _ => default_home(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME")).ok_or_else(|| {
            OperationError::new(
                ErrorKind::Usage,
                "cannot determine the state directory: HOME is not set",
            )
            .hint("set OCPDEPLOY_HOME or use --home")
        })?,
    };
    let root = std::path::absolute(&root).with_context(|| format!("find directory {}", root.display()))?;
    Ok(Home::new(root))
}

/// Whether this program ignores the closing of its terminal, e.g. because of nohup: see proc_pid_status(5).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Shows the warnings about settings.
pub(super) fn warn(sources: &Sources<'_>, loaded: &Loaded) {
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    if let Some((path, _)) = &sources.env_file {
        warn_of_readable_secrets(path, loaded);
    }
}

/// Warns if other users can read a secret in the env file itself.
fn warn_of_readable_secrets(env: &Path, loaded: &Loaded) {
    let shown = env.display().to_string();
    let is_in_it =
        |value: &&ResolvedValue| settings::is_left_out(&value.value) && value.origin.starts_with(&format!("{shown}:"));
    let is_readable = std::fs::metadata(env).is_ok_and(|file| file.mode() & 0o044 != 0);
    if let Some(secret) = loaded.values.iter().find(is_in_it)
        && is_readable
    {
        tracing::warn!(
            "other users can read {} in {shown}, which is a secret; run `chmod 600 {}`",
            secret.name,
            shell_path(env)
        );
    }
}

/// How to trust `./env.sh`: this command with an argument that names it.
pub(super) fn this_command_with(argument: &str) -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| shell_word(&word.to_string_lossy()) + " ");
    format!(
        "if you trust it, name it: `ocpdeploy {}{argument}`",
        words.collect::<String>()
    )
}

/// The env file's path as given, and its text. Only a rehearsal works without one.
fn env_file(source: &Source, hint: &str) -> Result<Option<(PathBuf, String)>> {
    let path = source.env.clone().unwrap_or_else(|| ENV_FILE.into());
    let file = match source.env {
        Some(_) => limited_file::open(&path),
        None => found_file::open(&path),
    };
    match file.and_then(text_of) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && source.env.is_none() && source.rehearse => Ok(None),
        Err(error) if found_file::is_untrusted(&error) => {
            let text = format!("the env file {ENV_FILE} in this directory is {error}");
            Err(OperationError::new(ErrorKind::Settings, text).hint(hint).into())
        }
        Err(error) => {
            let error_kind = error.kind();
            let why = match error_kind {
                io::ErrorKind::NotFound => "no such file".to_owned(),
                _ => error.to_string(),
            };
            let text = format!("cannot read the env file {}: {why}", path.display());
            let error = OperationError::new(ErrorKind::Settings, text);
            let named = path.with_extension("sh");
            Err(match error_kind {
                io::ErrorKind::NotFound if path != named && named.is_file() => {
                    error.hint(format!("did you mean `{}`? This command takes an env file", shell_path(&named)))
                }
                io::ErrorKind::NotFound => error.hint(
                    "create one with `ocpdeploy init` or `ocpdeploy config --sample >env.sh`; `ocpdeploy deploy --rehearse \
                     --backend sim` works without one",
                ),
                _ => error,
            }
            .into())
        }
    }
}

/// The text of a file, at most one byte longer than an env file may be: the parser reports the excess with its place.
fn text_of(file: File) -> io::Result<String> {
    let (mut bytes, most) = (Vec::new(), envfile::MOST_BYTES as u64 + 1);
    Patient::new(file)?.take(most).read_to_end(&mut bytes)?;
    match bytes.len() > envfile::MOST_BYTES {
        true => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        false => limited_file::text(bytes),
    }
}

/// Reads a file that settings name, or the lock file, if no other user can have written it.
fn read_but_judge_lock(path: &Path) -> io::Result<String> {
    match path.file_name().is_some_and(|name| name == LOCK_FILE) {
        true => limited_file::text(limited_file::read_open(found_file::open_ours(path)?)?),
        false => limited_file::read_text(path),
    }
}

/// The runtime of a command that needs no signals: one worker thread besides the main one.
pub fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("start the runtime")
}

/// The XDG data directory. A relative path counts as not set, as the XDG specification requires.
fn default_home(xdg_data_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let data = xdg_data_home
        .and_then(absolute)
        .or_else(|| Some(home.and_then(absolute)?.join(".local/share")))?;
    Some(data.join("ocpdeploy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_in_the_data_folder() {
        let home = |xdg: Option<&str>, home: Option<&str>| default_home(xdg.map(Into::into), home.map(Into::into));
        assert_eq!(home(Some("/data"), Some("/me")), Some("/data/ocpdeploy".into()));
        for unusable in [None, Some(""), Some("data")] {
            assert_eq!(home(unusable, Some("/me")), Some("/me/.local/share/ocpdeploy".into()));
            assert_eq!(home(unusable, Some("")), None);
            assert_eq!(home(unusable, None), None);
        }
    }
}
