//! `ocpdeploy cache`: the registry cache of this computer.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{Output, Source, name_and_value};

/// Cache the images of releases on this computer, for all clusters
///
/// The first cluster downloads some 20 GB of container images; later clusters get
/// them from the cache. Requires docker-registry or podman. Clusters that are
/// deployed while the cache is set up use it, unless they have registry_cache=off.
/// Nodes pull from the original registry if the cache does not answer.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy cache up                       # with the pull secret of ./env.sh
  ocpdeploy cache warm                     # download what ./env.sh needs
  ocpdeploy cache status
  ocpdeploy cache prune --max 40GiB
  ocpdeploy cache down")]
pub struct Cache {
    #[command(subcommand)]
    pub verb: CacheVerb,
}

#[derive(Debug, Subcommand)]
pub enum CacheVerb {
    Up(CacheUp),
    Status(CacheStatus),
    Warm(CacheWarm),
    Prune(CachePrune),
    Down(CacheDown),
}

/// Start the cache in the background
///
/// Starts one registry for each upstream registry, with the credentials of the pull
/// secret, and keeps those that run already. Nodes need a password, which only clusters
/// deployed afterwards have. After a restart of this computer, run the command again; it
/// remembers its options.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy cache up                       # with the pull secret of ./env.sh
  ocpdeploy cache up --address 192.168.122.1
  ocpdeploy cache up env.sh --repository registry.redhat.io/openshift4
  ocpdeploy cache up --set version=okd     # no pull secret")]
pub struct CacheUp {
    /// Env file with the pull secret and ca [default: env.sh; later runs keep both]
    #[arg(value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
    /// Override a setting, such as pull_secret; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub sets: Vec<(String, String)>,
    /// Address at which nodes reach this computer [default: that of its default route]
    #[arg(long, value_name = "IP")]
    pub address: Option<Ipv4Addr>,
    /// Port of the first registry; each further one gets the next port [default: 5443]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Registry or repository to cache, in addition to earlier ones; repeatable
    ///
    /// Default of the first `cache up`: the releases of OpenShift and OKD, which are
    /// quay.io/openshift-release-dev and quay.io/okd.
    #[arg(long = "repository", value_name = "NAME")]
    pub repositories: Vec<String>,
    /// Directory of the cached images [default: in the state directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub storage: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// Show whether the cache runs, its size, and its latest errors
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy cache status
  ocpdeploy cache status --format json")]
pub struct CacheStatus {
    #[command(flatten)]
    pub output: Output,
}

/// Download all images of a cluster's release into the cache
///
/// Downloads only what the cache does not have. To resume after an interruption, run
/// the same command again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy cache warm                     # the release of ./env.sh
  ocpdeploy cache warm lab.sh --set version=4.19.3")]
pub struct CacheWarm {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub output: Output,
}

/// Remove the least recently used images
///
/// The cache can keep running. A removed image is downloaded again when a node pulls it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy cache prune --max 40GiB --dry-run
  ocpdeploy cache prune --max 0GiB         # everything")]
pub struct CachePrune {
    /// Maximum size of the remaining images, in MiB, GiB or TiB
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub max: u64,
    /// Show what would be removed, without removing it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Stop the cache; later clusters do not use it
///
/// Existing clusters pull from the original registries. Keeps the images for the next
/// `cache up`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy cache down
  ocpdeploy cache down --delete   # also delete its images and certificate")]
pub struct CacheDown {
    /// Delete the cached images, the certificate and the credentials
    #[arg(long)]
    pub delete: bool,
    #[command(flatten)]
    pub output: Output,
}

/// `40GiB` in bytes.
fn bytes(text: &str) -> Result<u64, String> {
    let units = [("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let read = |(unit, shift): (&str, u32)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(1 << shift)
    };
    let found = units.into_iter().find_map(read);
    found.ok_or_else(|| "expected a number with MiB, GiB or TiB, such as 40GiB".to_owned())
}
