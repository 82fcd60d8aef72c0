//! `ocpdeploy image`: what is fetched, kept and uploaded.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{Output, Source};

/// What images a cluster needs; fetch them, upload them, clean up
///
/// `deploy` does all of it by itself. These commands are for looking, for doing the
/// slow part beforehand, and for computers that are not always connected.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image list                     # what there is, and what is here
  ocpdeploy image pull                     # what ./env.sh needs, nothing else
  ocpdeploy image push                     # the same, onto the platform
  ocpdeploy image prune                    # what was not used for 30 days")]
pub struct Image {
    #[command(subcommand)]
    pub verb: ImageVerb,
}

#[derive(Debug, Subcommand)]
pub enum ImageVerb {
    List(ImageList),
    Pull(ImagePull),
    Push(ImagePush),
    Prune(ImagePrune),
    Payload(ImagePayload),
}

/// Where downloads are kept.
#[derive(Debug, Args)]
pub struct CacheFolder {
    /// Folder of downloads [default: ~/.cache/ocpdeploy]
    #[arg(long, value_name = "DIR", env = "OCPDEPLOY_CACHE", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub cache: Option<PathBuf>,
}

/// List the helper images of the catalogue, and what is in the cache
///
/// No server is asked. The CoreOS image is not in the list: the release says which
/// one it is, and `image pull` and `deploy` ask it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image list
  ocpdeploy image list --cache /srv/ocpdeploy --output json")]
pub struct ImageList {
    #[command(flatten)]
    pub folder: CacheFolder,
    #[command(flatten)]
    pub output: Output,
}

/// Fetch images, verify them and keep them in the cache
///
/// One pass: sha256 of what comes, decompressed, sha256 of the content. Stopped at
/// any point, the same command goes on from there. Prints the path of each image.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image pull                          # what ./env.sh needs
  ocpdeploy image pull lab.sh --set version=4.19
  ocpdeploy image pull --image centos10stream   # no env file is read
  ocpdeploy image pull --image https://mirror.example.com/rhcos.qcow2.gz

A URL may end in #sha256= and the sum of its content, decompressed.")]
pub struct ImagePull {
    #[command(flatten)]
    pub source: Source,
    /// A name that `image list` shows, or a URL, in place of the env file's
    #[arg(long = "image", value_name = "NAME|URL")]
    pub images: Vec<String>,
    #[command(flatten)]
    pub folder: CacheFolder,
}

/// Bring a cluster's images onto its platform
///
/// An image that the platform has already, by its digest, is not uploaded again. It is
/// marked as used by the cluster and goes with the last cluster that uses it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image push                     # for what ./env.sh describes
  ocpdeploy image push lab.sh")]
pub struct ImagePush {
    #[command(flatten)]
    pub source: Source,
}

/// Remove downloads that were not used for some time
///
/// Also what is left of broken downloads. What a running process is at stays.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image prune --dry-run
  ocpdeploy image prune --days 0           # everything")]
pub struct ImagePrune {
    /// Keep what was used within so many days
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub days: u64,
    /// Show what would be removed; remove nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub folder: CacheFolder,
}

/// List the release's images that ocpdeploy's own services run
///
/// By digest, one a line: what a mirror must have besides what the cluster itself
/// pulls. The release's registry is asked, with the pull secret; nothing is made.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image payload                  # for what ./env.sh describes
  ocpdeploy image payload lab.sh --output json")]
pub struct ImagePayload {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub output: Output,
}
