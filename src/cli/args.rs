//! Arguments that several commands share, and their parsers.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};

use crate::cluster::NodeName;

/// Where the settings of an already deployed cluster come from.
#[derive(Debug, Default, Args)]
pub struct Again {
    /// Env file with the cluster's settings [default: as deployed]
    #[arg(long, value_name = "ENV", value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
}

/// How nodes are drained before they are removed.
#[derive(Debug, Args)]
pub struct Drain {
    /// Time limit for draining each node
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Delete pods that have no controller or are not evicted in time
    #[arg(long)]
    pub force: bool,
    /// Delete data of pods in emptyDir volumes
    #[arg(long)]
    pub delete_emptydir_data: bool,
}

/// Where a cluster's settings come from.
#[derive(Debug, Default, Args)]
pub struct Source {
    /// Env file with lines of NAME=VALUE, or a deployed cluster [default: env.sh]
    #[arg(value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
    /// Rehearse with tiny guests and a simulated openshift-install
    ///
    /// Tests addresses, Ignition, virtual IPs, permissions and quotas of the real
    /// platform in minutes.
    #[arg(long)]
    pub rehearse: bool,
    /// Accept an older release than the channel in `version` selected before
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Override a setting; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = name_and_value, help_heading = "Settings")]
    pub sets: Vec<(String, String)>,
    /// Name of the cluster
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub cluster: Option<String>,
    /// Number of masters
    #[arg(long, value_name = "N", help_heading = "Settings")]
    pub masters: Option<usize>,
    /// Number of workers
    #[arg(long, value_name = "N", help_heading = "Settings")]
    pub workers: Option<usize>,
    /// Platform: libvirt, ovirt, openstack, kubevirt or sim
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub backend: Option<String>,
    /// Set of defaults: laptop, compact, standard, …
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub profile: Option<String>,
    /// Network of every machine's first NIC
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub network: Option<String>,
    /// URI of libvirt, e.g. qemu+ssh://root@host/system
    #[arg(long, value_name = "URI", help_heading = "Settings")]
    pub libvirt_uri: Option<String>,
}

impl Source {
    /// The settings given as flags, by their names in the env file. A setting's own flag comes after `--set`, and so
    /// overrides it.
    pub fn overrides(&self) -> Vec<(String, String)> {
        let number = |n: &Option<usize>| n.map(|n| n.to_string());
        let flags = [
            ("cluster", self.cluster.clone()),
            ("masters", number(&self.masters)),
            ("workers", number(&self.workers)),
            ("backend", self.backend.clone()),
            ("profile", self.profile.clone()),
            ("network", self.network.clone()),
            ("libvirt_uri", self.libvirt_uri.clone()),
        ];
        let given = flags
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        self.sets.iter().cloned().chain(given).collect()
    }
}

/// Confirmation of an operation that loses data.
#[derive(Debug, Args)]
pub struct Confirmation {
    /// Do not prompt for confirmation; requires CLUSTER
    #[arg(short, long, requires = "cluster")]
    pub yes: bool,
}

/// How a result is printed.
#[derive(Debug, Args)]
pub struct Output {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs; `v` is the version of the layout
    Json,
    /// The content of JSON as YAML
    Yaml,
}

/// The cluster of a command on one cluster.
#[derive(Debug, Args)]
pub struct OneCluster {
    /// Name of the cluster [default: from ./env.sh, or the only cluster]
    #[arg(value_parser = name_or_id)]
    pub cluster: Option<String>,
}

/// One node of a cluster.
#[derive(Debug, Args)]
pub struct OneNode {
    #[command(flatten)]
    pub of: OneCluster,
    /// Node, e.g. worker-1
    #[arg(value_parser = node_name)]
    pub node: NodeName,
}

/// A path, or the empty value of a variable, which means that it is not set.
pub(super) fn path_or_nothing() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// `90s`, `10m`, `2h`, as in an env file.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    crate::settings::parse::duration(text)
}

/// A cluster's name, alone or with the domain. It is also the name of its directory: it cannot lead out of the state
/// directory.
pub fn name_or_id(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_letter = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        !label.is_empty() && label.bytes().all(is_letter)
    };
    match text.split('.').all(is_label) {
        true => Ok(text.to_owned()),
        false => Err("a name has only lower-case letters, digits and hyphens".to_owned()),
    }
}

/// A node's name becomes part of names and URLs on the platform.
pub(super) fn node_name(text: &str) -> Result<NodeName, String> {
    let help = |_| "a node's name has lowercase letters, digits and `-` only, e.g. worker-1".to_owned();
    text.parse().map_err(help)
}

/// Reads `NAME=N`.
pub(super) fn name_and_number(text: &str) -> Result<(String, usize), String> {
    let number = |text: &str| text.parse().map_err(|_| "expected POOL=N".to_owned());
    let (name, text) = name_and_value(text).map_err(|_| "expected POOL=N".to_owned())?;
    Ok((name, number(&text)?))
}

pub(super) fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
