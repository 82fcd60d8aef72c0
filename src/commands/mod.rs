//! One file for each subcommand. What they print goes through `output`, what moves on the screen through `progress`.

mod audit;
mod check;
pub mod config;
mod console;
mod deploy;
mod destroy;
mod dns;
mod export;
mod harvest;
mod ignition;
mod image;
mod init;
mod kubeconfig;
mod list;
mod machine;
mod manifests;
mod node;
pub mod output;
mod plan;
mod power;
mod progress;
mod report;
mod saved_settings;
mod scale;
mod status;
mod terminal;
mod util;
mod verify;

use std::ffi::OsString;
use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::backend::retry::DEFAULT_LIMIT;
use crate::backend::{self, Backend};
use crate::cli::{Cli, Command, Config, Format, Global, Source};
use crate::cluster::{BackendConfig, ClusterConfig, WorkersOn};
use crate::failure::{CommandError, Kind};
use crate::settings::envfile;
use crate::settings::{self, Loaded, ResolvedValue, Sources, Whereabouts};
use crate::state::home::Home;
use crate::state::inventory::{self, InventoryError, Known};
use crate::state::parameters::Parameters;
use output::{print, print_json};
use progress::{Progress, Verbosity};

/// Runs one command; the exit code is that of its answer.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let session = || Session::new(&cli.global);
    match &cli.command {
        Command::Init(command) => init::run(&session()?, command),
        Command::Check(command) => return check::run(&session()?, command),
        Command::Deploy(command) => deploy::run(&session()?, command),
        Command::Plan(command) => plan::run(&session()?, command),
        Command::Harvest(command) => harvest::run(&session()?, command),
        Command::Config(command) => session()?.show_config(command),
        Command::Status(command) => return status::run(&session()?, command),
        Command::List(command) => list::run(&session()?, command),
        Command::Report(command) => report::run(&session()?, command),
        Command::Destroy(command) => destroy::run(&session()?, command),
        Command::Audit(command) => return audit::run(&session()?, command),
        Command::Image(command) => image::run(&session()?, command),
        // Most of its verbs need no state, and so no home folder either.
        Command::Export(command) => export::run(&session()?, command),
        Command::Dns(command) => dns::run(&session()?, command),
        Command::Scale(command) => scale::run(&session()?, command),
        Command::Node(command) => return node::run(&session()?, command),
        Command::Machine(command) => machine::run(&session()?, command),
        Command::Stop(command) => power::stop(&session()?, command),
        Command::Start(command) => power::start(&session()?, command),
        Command::Verify(command) => return verify::run(&session()?, command),
        Command::Kubeconfig(command) => kubeconfig::run(&session()?, command),
        // Neither needs any state.
        Command::Ignition(command) => return ignition::run(&cli.global, command),
        Command::Util(command) => util::run(command),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Connects to a cluster's platforms, with the settings' limit for repeating calls.
async fn connect_for(config: &ClusterConfig) -> Result<Box<dyn Backend>> {
    connect(&config.backend, config.workers_on.as_ref(), config.timeouts.platform).await
}

/// As `connect_for`, with the limit that a cluster's settings had, where that is kept.
async fn connect_known(known: &Known) -> Result<Box<dyn Backend>> {
    connect(&known.backend, known.workers_on.as_ref(), retry_limit(known)).await
}

fn retry_limit(known: &Known) -> Duration {
    known.platform_timeout.map_or(DEFAULT_LIMIT, Duration::from_secs)
}

async fn connect(backend: &BackendConfig, workers: Option<&WorkersOn>, limit: Duration) -> Result<Box<dyn Backend>> {
    Ok(backend::connect::connect(backend, workers, limit).await?)
}

/// What every command starts from.
struct Session {
    home: Home,
    progress: Progress,
}

impl Session {
    fn new(global: &Global) -> Result<Self> {
        let root = match &global.home {
            Some(home) if !home.as_os_str().is_empty() => home.clone(),
            _ => default_home(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME")).ok_or_else(|| {
                CommandError::new(Kind::Usage, "cannot determine the state directory: HOME is not set")
                    .hint("set OCPDEPLOY_HOME or use --home")
            })?,
        };
        let root = std::path::absolute(&root).with_context(|| format!("find directory {}", root.display()))?;
        let home = Home::new(root);
        if let Some(why) = home.distrust() {
            let text = format!("the state directory is not safe for secrets: {why}");
            let hint = "make it private with chown and chmod, or choose another directory with --home";
            return Err(CommandError::new(Kind::Tool, text).hint(hint).into());
        }
        let verbosity = match (global.quiet, global.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        };
        Ok(Self {
            home,
            progress: Progress::start(verbosity),
        })
    }

    /// Reads and checks the settings; warnings go to the screen.
    fn load(&self, source: &Source) -> Result<Loaded> {
        self.load_from(&self.sources(source)?)
    }

    fn load_from(&self, sources: &Sources<'_>) -> Result<Loaded> {
        let loaded = settings::load(sources)?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        if let Some((path, _)) = &sources.env_file {
            warn_of_readable_secrets(path, &loaded);
        }
        Ok(loaded)
    }

    /// Reads a cluster's name, domain and platforms, whatever else the settings lack.
    fn load_whereabouts(&self, source: &Source) -> Result<Whereabouts> {
        Ok(settings::load_whereabouts(&self.sources(source)?)?)
    }

    /// All that settings are made of, from this process's surroundings.
    fn sources(&self, source: &Source) -> Result<Sources<'static>> {
        Ok(Sources {
            env_file: env_file(source)?,
            flags: source.overrides().into_iter().collect(),
            rehearse: source.rehearse,
            ..self.surroundings()?
        })
    }

    /// As `sources`, with nothing said by the user.
    fn surroundings(&self) -> Result<Sources<'static>> {
        Ok(Sources {
            env_file: None,
            // A name or value that is no UTF-8 is none of ours.
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            flags: Default::default(),
            current_dir: std::env::current_dir().context("find the current directory")?,
            home: self.home.root().to_owned(),
            rehearse: false,
            read_file: &|path| std::fs::read_to_string(path),
            is_file: &Path::is_file,
            is_dir: &Path::is_dir,
        })
    }

    /// The cluster of this name, or of `./env.sh`, or else the only one that is known here.
    fn cluster_name(&self, name: Option<&str>) -> Result<String> {
        if let Some(name) = name {
            return Ok(name.to_owned());
        }
        if Path::new("env.sh").exists() {
            return Ok(self.load_whereabouts(&Source::default())?.cluster);
        }
        let clusters = inventory::clusters(&self.home)?;
        let names: Vec<&str> = clusters.iter().map(|cluster| cluster.known.name.as_str()).collect();
        match names.as_slice() {
            [name] => Ok((*name).to_owned()),
            [] => Err(CommandError::new(Kind::Tool, "no cluster in the state directory")
                .hint("`ocpdeploy deploy` creates one")
                .into()),
            several => {
                let text = format!("there are several clusters: {}", several.join(", "));
                Err(CommandError::new(Kind::Usage, text)
                    .hint("choose one; most commands take `--cluster NAME`")
                    .into())
            }
        }
    }

    /// A cluster with its table of addresses.
    fn harvested(&self, name: Option<&str>) -> Result<(Known, Parameters)> {
        let cluster = self.cluster_name(name)?;
        let found = inventory::find(&self.home, &cluster)?;
        let found = found.ok_or_else(|| InventoryError::Unknown {
            cluster: cluster.clone(),
        })?;
        let parameters = found.parameters.ok_or_else(|| {
            CommandError::new(
                Kind::Tool,
                format!("the addresses of cluster {cluster} are not known yet"),
            )
            .hint("run `ocpdeploy harvest` or `ocpdeploy deploy`")
        })?;
        Ok((found.known, parameters))
    }

    /// What is known of a cluster here.
    fn known(&self, name: &str) -> Result<Known> {
        let known = Known::read(&self.home.cluster(name))?;
        Ok(known.ok_or_else(|| InventoryError::Unknown {
            cluster: name.to_owned(),
        })?)
    }

    fn show_config(&self, command: &Config) -> Result<()> {
        let loaded = self.load(&command.source)?;
        print(&config::render(&loaded, command.output.output == Format::Json))
    }

    /// Runs `work` to its end, or to a signal: being stopped is like losing power, there is nothing to clean up.
    fn finish_or_stop<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let runtime = runtime()?;
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let signals = async move { signal(kind) };
            let mut signals = runtime.block_on(signals).context("listen for signals")?;
            // On a thread of its own: the work may be inside a call that does not yield.
            runtime.spawn(async move {
                signals.recv().await;
                output::end(Kind::Stopped, "interrupted; to resume, run the same command again");
            });
        }
        let result = runtime.block_on(work);
        // A blocking call that was given up must not hold the program.
        runtime.shutdown_background();
        self.progress.finish();
        result
    }
}

/// Says it when others can read a secret that stands in the env file itself.
fn warn_of_readable_secrets(env: &Path, loaded: &Loaded) {
    let shown = env.display().to_string();
    let is_in_it = |value: &&ResolvedValue| value.value == "***" && value.origin.starts_with(&format!("{shown}:"));
    let is_readable = std::fs::metadata(env).is_ok_and(|file| file.mode() & 0o044 != 0);
    if let Some(secret) = loaded.values.iter().find(is_in_it)
        && is_readable
    {
        tracing::warn!(
            "other users can read {} in {shown}, which is a secret; run `chmod 600 {shown}`",
            secret.name
        );
    }
}

/// The env file's path as given, and its text. Only a rehearsal goes without one.
fn env_file(source: &Source) -> Result<Option<(PathBuf, String)>> {
    let path = source.env.clone().unwrap_or_else(|| "env.sh".into());
    match text_of(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == ErrorKind::NotFound && source.env.is_none() && source.rehearse => Ok(None),
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::NotFound => "no such file".to_owned(),
                _ => error.to_string(),
            };
            let text = format!("cannot read the env file {}: {why}", path.display());
            let hint = "create one with `ocpdeploy init`, or from env.sh.sample; `ocpdeploy deploy --rehearse --backend sim` works without one";
            Err(CommandError::new(Kind::Settings, text).hint(hint).into())
        }
    }
}

/// The text of a file, and no more of it than an env file may have and a byte: the parser refuses that at its place.
fn text_of(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(envfile::MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() > envfile::MOST_BYTES {
        true => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        false => String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error)),
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("start the runtime")
}

/// The XDG data folder; a relative one counts as not set, as the specification wants it.
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
    fn state_lives_in_the_data_folder() {
        let home = |xdg: Option<&str>, home: Option<&str>| default_home(xdg.map(Into::into), home.map(Into::into));
        assert_eq!(home(Some("/data"), Some("/me")), Some("/data/ocpdeploy".into()));
        for unusable in [None, Some(""), Some("data")] {
            assert_eq!(home(unusable, Some("/me")), Some("/me/.local/share/ocpdeploy".into()));
            assert_eq!(home(unusable, Some("")), None);
            assert_eq!(home(unusable, None), None);
        }
    }
}
