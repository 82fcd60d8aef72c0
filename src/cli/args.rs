//! Arguments that several commands have, and how they are read.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

/// Where the settings of a cluster come from that was deployed before.
#[derive(Debug, Args)]
pub struct Again {
    /// Env file with the cluster's settings [default: as at its deployment]
    #[arg(long, value_name = "ENV", value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
}

/// How nodes that go are emptied.
#[derive(Debug, Args)]
pub struct Drain {
    /// How long the pods of a node may take to leave
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Lose the pods that do not leave in time, or that nothing would start elsewhere
    #[arg(long)]
    pub force: bool,
    /// Lose what pods keep in emptyDir volumes
    #[arg(long)]
    pub delete_emptydir_data: bool,
}

/// Where a cluster's settings come from.
#[derive(Debug, Default, Args)]
pub struct Source {
    /// The env file: lines of NAME=VALUE, read without a shell [default: env.sh]
    #[arg(value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
    /// Use tiny guests and a stand-in for openshift-install
    ///
    /// Everything else is the real thing: addresses, Ignition, virtual IPs, rights and
    /// quotas are proven in minutes.
    #[arg(long)]
    pub rehearse: bool,
    /// Override a setting; may be repeated
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
    /// Named defaults: laptop, compact, standard, …
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub profile: Option<String>,
    /// Network of every machine's first NIC
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub network: Option<String>,
    /// Where libvirt is, e.g. qemu+ssh://root@host/system
    #[arg(long, value_name = "URI", help_heading = "Settings")]
    pub libvirt_uri: Option<String>,
}

impl Source {
    /// The settings given as flags, by the env file's names; `--set` first, a flag of its own wins.
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

/// How a result is printed.
#[derive(Debug, Args)]
pub struct Output {
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For scripts
    Json,
}

/// `90s`, `10m`, `2h`, as in an env file.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    crate::settings::parse::duration(text)
}

/// The name of a cluster is one of a folder, too: nothing in it leads out of there.
pub(super) fn name_or_id(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_letter = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        !label.is_empty() && label.bytes().all(is_letter)
    };
    match text.split('.').all(is_label) {
        true => Ok(text.to_owned()),
        false => Err("a name is of lower-case letters, digits and hyphens".to_owned()),
    }
}

/// As `name_or_id`, for one label.
pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    match text.contains('.') {
        true => Err("the name alone is wanted, without the domain".to_owned()),
        false => name_or_id(text),
    }
}

pub(super) fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it has the form NAME=VALUE".to_owned()),
    }
}
