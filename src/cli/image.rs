//! `ocpdeploy image`: images that are downloaded, cached and uploaded.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{Output, Source, path_or_nothing};

/// List, download, upload and remove the images that clusters use
///
/// `deploy` downloads and uploads images automatically. Use these commands to inspect
/// images, to download and upload them in advance, or to work offline later.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image list                     # pass-one images and the cache
  ocpdeploy image pull                     # download what ./env.sh needs
  ocpdeploy image push                     # upload it to the platform
  ocpdeploy image prune                    # remove images unused for 30 days")]
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
pub struct DownloadsDir {
    /// Directory of downloaded files [default: ~/.cache/ocpdeploy]
    #[arg(long, value_name = "DIR", env = "OCPDEPLOY_DOWNLOADS_DIR", hide_env_values = true, value_hint = ValueHint::DirPath, value_parser = path_or_nothing())]
    pub downloads_dir: Option<PathBuf>,
}

/// List the pass-one images of the catalog and the contents of the cache
///
/// Does not use the network. The CoreOS image is not in the catalog: `image pull`
/// and `deploy` look it up in the release.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image list
  ocpdeploy image list --downloads-dir /srv/ocpdeploy --format json")]
pub struct ImageList {
    #[command(flatten)]
    pub folder: DownloadsDir,
    #[command(flatten)]
    pub output: Output,
}

/// Download images, verify them and store them in the cache
///
/// Verifies sha256 of the download and of the decompressed content. To resume after
/// an interruption, run the same command again. Prints the path of each image.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image pull                          # what ./env.sh needs
  ocpdeploy image pull lab.sh --set version=4.19
  ocpdeploy image pull --image centos10stream   # without an env file
  ocpdeploy image pull lab.sh --image centos10stream   # from its image_mirror
  ocpdeploy image pull --image https://mirror.example.com/rhcos.qcow2.gz

Append #sha256=SUM to a URL to verify the decompressed content.")]
pub struct ImagePull {
    #[command(flatten)]
    pub source: Source,
    /// Image name from `image list`, or URL [default: images of the env file]
    #[arg(long = "image", value_name = "NAME|URL")]
    pub images: Vec<String>,
    #[command(flatten)]
    pub folder: DownloadsDir,
    #[command(flatten)]
    pub output: Output,
}

/// Upload a cluster's images to its platform
///
/// Skips images whose digest the platform already has. Tags each image with the
/// cluster; `destroy` of the last cluster that uses an image removes it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image push                     # for ./env.sh
  ocpdeploy image push lab.sh")]
pub struct ImagePush {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub output: Output,
}

/// Remove downloads that have not been used recently
///
/// Also removes incomplete downloads. Keeps files that a running process uses.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image prune --dry-run
  ocpdeploy image prune --days 0           # everything")]
pub struct ImagePrune {
    /// Keep files used within the last N days
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub days: u64,
    /// Show what would be removed, without removing it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub folder: DownloadsDir,
    #[command(flatten)]
    pub output: Output,
}

/// List the release images that ocpdeploy's services on the nodes use
///
/// Prints one image per line, by digest. A mirror needs these images in addition to
/// those of the cluster. Queries the release's registry with the pull secret; creates
/// nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy image payload                  # for ./env.sh
  ocpdeploy image payload lab.sh --format json")]
pub struct ImagePayload {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub output: Output,
}
