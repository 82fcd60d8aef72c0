//! The command line: clap's types only. The doc comments are the help texts, at most 80 columns wide.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use crate::cluster::{DeploymentId, NodeName};

mod args;
mod cache;
mod dns;
mod export;
mod ignition;
mod image;
mod node;
mod snapshot;
mod state;
mod util;

pub use self::args::*;
pub use self::cache::*;
pub use self::dns::*;
pub use self::export::*;
pub use self::ignition::*;
pub use self::image::*;
pub use self::node::*;
pub use self::snapshot::*;
pub use self::state::*;
pub use self::util::*;

/// Deploys OpenShift 4 in two passes, on networks where you do not control DNS,
/// DHCP or load balancers.
///
/// 1. `ocpdeploy init` prompts for settings and writes env.sh.
///    `ocpdeploy config` lists all settings.
/// 2. `ocpdeploy plan` shows what would be created and changes nothing;
///    `ocpdeploy check` checks all requirements.
/// 3. `ocpdeploy deploy`, pass one: boots temporary machines to learn which MAC
///    and IP addresses the platform assigns, then deletes them.
/// 4. Pass two: creates the cluster's machines with the same addresses, which
///    are now part of their configuration, and waits for the cluster.
/// 5. To resume after an interruption, run the same command again.
#[derive(Debug, Parser)]
#[command(
    name = "ocpdeploy",
    version,
    verbatim_doc_comment,
    max_term_width = 80,
    disable_help_subcommand = true,
    after_long_help = "\
Examples:
  ocpdeploy init                     # prompts for settings, writes env.sh
  ocpdeploy deploy --rehearse        # both passes with tiny guests, in minutes
  ocpdeploy deploy lab.sh            # the cluster that lab.sh describes
  ocpdeploy status lab               # planned and actual state of each node
  ocpdeploy scale lab --workers 4    # add or remove workers
  ocpdeploy destroy lab              # remove everything created for the cluster

Exit codes:
  0   success
  1   `ignition diff` or `verify` found a difference, `audit` found leftovers,
      or the deployment that `status --watch` followed is not complete
  2   invalid command line
  3   invalid env file, profile, or other input file
  4   a tool is missing, or a preflight check failed
  5   the platform rejected a request
  6   timed out
  7   interrupted by a signal; to resume, run the same command again
  8   another process works on the cluster
  70  internal error in ocpdeploy"
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Show every request to the platform and every status poll
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Show only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Progress on stderr: auto, plain or json [default: auto]
    #[arg(
        long,
        global = true,
        value_name = "STYLE",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub progress: ProgressStyle,
    /// Colors: auto, always or never [default: auto]
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub color: ColorChoice,
    /// State directory [default: ~/.local/share/ocpdeploy]
    #[arg(long, global = true, value_name = "DIR", env = "OCPDEPLOY_HOME", hide_env_values = true, value_hint = ValueHint::DirPath, value_parser = path_or_nothing())]
    pub home: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProgressStyle {
    /// One moving line for each node on a terminal, otherwise plain lines
    #[default]
    Auto,
    /// One line for each event
    Plain,
    /// One JSON object for each event, and for the error
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Init(Init),
    Check(Check),
    Deploy(Deploy),
    Plan(Plan),
    Harvest(Harvest),
    Config(Config),
    Status(Status),
    List(List),
    Logs(Logs),
    Report(Report),
    Destroy(Destroy),
    Audit(Audit),
    Adopt(Adopt),
    Ignition(Ignition),
    Image(Image),
    Cache(Cache),
    Export(Export),
    Dns(Dns),
    Scale(Scale),
    Renew(Renew),
    Node(Node),
    Stop(Stop),
    Start(Start),
    Snapshot(SnapshotCommand),
    State(StateCommand),
    Verify(Verify),
    Kubeconfig(Kubeconfig),
    Util(Util),
}

/// Prompt for a cluster's settings and write its env file
///
/// Connects to the platform first and offers its networks, storage and images as
/// choices. Validates each answer as `deploy` does. On a terminal, select with the
/// arrow keys; otherwise, answers are read from stdin, one per line.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy init                       # writes ./env.sh
  ocpdeploy init --backend openstack -o lab.sh
  ocpdeploy init --backend sim         # no hypervisor needed")]
pub struct Init {
    /// Platform: libvirt, ovirt, openstack, kubevirt or sim [default: prompt]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub backend: Option<String>,
    /// Env file to write
    #[arg(short, long, value_name = "FILE", default_value = "env.sh", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
}

/// Check all requirements of a deployment; creates nothing
///
/// Checks platform, permissions, quotas, capacity, networks, addresses, clocks, disk
/// latency for etcd, installer, image, pull secret and names, with a hint for each
/// problem. `deploy` runs the same checks and stops at the first failure; `check`
/// shows all results. Exits with 4 if a check fails.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy check                    # what ./env.sh describes
  ocpdeploy check lab.sh --format json
  ocpdeploy check --rehearse")]
pub struct Check {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub output: Output,
}

/// Deploy a cluster: pass one, pass two, wait until it is installed
///
/// Runs all checks before it creates anything. If the addresses are known from an
/// earlier run, keeps them and skips pass one. To resume after an interruption, run
/// the same command again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy deploy                             # what ./env.sh describes
  ocpdeploy deploy lab.sh --workers 2          # override the number of workers
  ocpdeploy deploy --set api_ip=192.168.122.9  # any setting of the env file
  ocpdeploy deploy --rehearse --backend sim    # no hypervisor needed")]
pub struct Deploy {
    #[command(flatten)]
    pub source: Source,
    /// Repeat pass one even if the addresses are known
    #[arg(long)]
    pub harvest: bool,
    /// Keep the bootstrap machine after bootstrapping is complete
    #[arg(long)]
    pub keep_bootstrap: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Show what `deploy` would create; changes nothing
///
/// Shows machines with sizes, MACs and known addresses, virtual IPs, VRRP ids, and
/// the total resources of both passes. Compares with the cluster's objects on the
/// platform: what `deploy` creates, keeps and deletes, and what differs.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy plan                     # what ./env.sh describes
  ocpdeploy plan lab.sh --workers 5
  ocpdeploy plan --offline --format json")]
pub struct Plan {
    #[command(flatten)]
    pub source: Source,
    /// Do not connect to the platform
    #[arg(long)]
    pub offline: bool,
    /// Write the objects of pass two, Secrets included, as YAML to DIR [KubeVirt]
    #[arg(long = "manifests", value_name = "DIR")]
    pub write_manifests: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// Run pass one only: learn the addresses, write the parameter file
///
/// Boots temporary machines, records the MAC and IP address of each, reserves them
/// where the platform supports it, and deletes the machines. A later `deploy` uses
/// the parameter file for pass two. An existing parameter file is replaced.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy harvest                  # what ./env.sh describes
  ocpdeploy harvest lab.sh --network lan0
  ocpdeploy harvest --rehearse")]
pub struct Harvest {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub output: Output,
}

/// Show every setting, its value and its origin
///
/// Precedence, highest first: flags, environment (OCPDEPLOY_<NAME>), env file,
/// profile, default. Secrets are masked.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy config                   # of ./env.sh, or without it all defaults
  ocpdeploy config --sample          # an env file with all settings
  ocpdeploy config --lock >ocpdeploy.lock.yaml   # the same versions next time
  ocpdeploy config lab.sh --profile compact
  ocpdeploy config --format json")]
pub struct Config {
    #[command(flatten)]
    pub source: Source,
    /// Print an env file with all settings, their defaults and explanations
    #[arg(long, conflicts_with_all = ["env", "rehearse", "allow_downgrade", "sets", "cluster", "masters", "workers", "backend", "profile", "network", "libvirt_uri", "lock", "format"])]
    pub sample: bool,
    /// Print the versions that the last deployment used, as YAML
    ///
    /// If you save them as ocpdeploy.lock.yaml beside the env file, the next deployment
    /// uses the same versions.
    #[arg(long, conflicts_with_all = ["format", "sample"])]
    pub lock: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Show the planned and the actual state of a cluster's nodes
///
/// Queries the platform once. A node is ok, moved (its address differs from the
/// planned one), missing, or in the state that the platform reports. The phase shows
/// which process is working on the cluster, or where the last one stopped.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy status                   # every cluster in the state directory
  ocpdeploy status lab
  ocpdeploy status lab --watch       # exits with 1 if the deployment stops
  ocpdeploy status lab --format json")]
pub struct Status {
    /// Name of the cluster [default: all clusters in the state directory]
    #[arg(value_parser = name_or_id)]
    pub cluster: Option<String>,
    /// Refresh until no process is working on the cluster
    ///
    /// On a terminal, updates the table in place; otherwise, prints a line for each change.
    #[arg(short, long)]
    pub watch: bool,
    #[command(flatten)]
    pub output: Output,
}

/// List the clusters in the state directory, by network
///
/// Grouped by network, because virtual IPs and VRRP ids must be unique on a network.
/// CERTS is the remaining validity of the installer's certificates. Waits at most 3
/// seconds for each platform to report which machines are running; without an
/// answer, STATE is the result of the last `start` or `stop`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy list
  ocpdeploy list --format json")]
pub struct List {
    #[command(flatten)]
    pub output: Output,
}

/// Collect the logs of a cluster and its nodes in one archive, without secrets
///
/// Collects the nodes' journals over SSH, their consoles, the log of openshift-install,
/// objects of the cluster's API, and the bundle of a failed deployment. Secrets are
/// masked. Lists what could not be fetched, and why; the rest is written in any case.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy logs lab                        # writes lab-logs-TIME.tar.gz
  ocpdeploy logs worker-1                   # only its journal and console
  ocpdeploy logs lab -o logs                # a directory")]
pub struct Logs {
    #[command(flatten)]
    pub of: OneCluster,
    /// Nodes, e.g. worker-1 [default: all nodes, and everything about the cluster]
    #[arg(value_name = "NODE", value_parser = args::node_name)]
    pub nodes: Vec<NodeName>,
    /// Archive to write (.tar.gz or .tgz), or a new directory
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub again: Again,
}

/// Write an HTML report: topology, timeline, addresses, sizes, warnings
///
/// Writes one HTML file without scripts or external resources, from the cluster's
/// journal and one query of the platform. If the platform cannot be reached, the
/// report leaves out the current state. Contains names and addresses, but no secrets.
/// The file has mode 0600.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy report lab                # writes report.html
  ocpdeploy report lab -o lab.html
  ocpdeploy report -o -               # the only cluster, to stdout")]
pub struct Report {
    #[command(flatten)]
    pub of: OneCluster,
    /// File to write; - is stdout
    #[arg(short, long, value_name = "FILE", default_value = "report.html", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
}

/// Remove a cluster: machines, disks, addresses, files
///
/// Removes only platform objects that carry the cluster's tag. If the cluster's
/// directory is lost, use --from-backend with the id that `ocpdeploy audit` shows.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy destroy lab --dry-run          # show what would be removed
  ocpdeploy destroy lab                    # prompts for confirmation
  ocpdeploy destroy lab --yes
  ocpdeploy destroy lab --keep-addresses   # a later deploy skips pass one
  ocpdeploy destroy lab.example.com --from-backend    # its directory is lost")]
pub struct Destroy {
    /// Name of the cluster [default: from ./env.sh, or the only cluster]
    #[arg(value_parser = name_or_id)]
    pub cluster: Option<String>,
    /// Show what would be removed, without removing it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub confirmation: Confirmation,
    /// Keep the address reservations and the parameter file
    #[arg(long)]
    pub keep_addresses: bool,
    /// Env file with the connection to the platform [default: as last used]
    #[arg(long, value_name = "ENV", value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
    /// Use only the tags on the platform; CLUSTER is NAME.DOMAIN
    ///
    /// Removes any cluster that `ocpdeploy audit` shows, also one whose directory is lost
    /// or that another computer deployed. Without --env, searches the platforms of the
    /// clusters in the state directory.
    #[arg(long, requires = "cluster")]
    pub from_backend: bool,
    /// Id of the deployment, as `ocpdeploy audit` and the checks show it
    ///
    /// With --from-backend, --yes requires it for a cluster that is not in the state
    /// directory.
    #[arg(long, value_name = "ID", requires = "from_backend")]
    pub id: Option<DeploymentId>,
    /// Root directory for changes to this computer's resolver, for tests
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    pub root: PathBuf,
    #[command(flatten)]
    pub output: Output,
}

/// Rebuild the record of an installed cluster from its objects on the platform
///
/// Use this command if the computer or the state directory with the record is lost.
/// Reads the cluster's machines and addresses by their tags and changes nothing on the
/// platform. The platform does not have the kubeconfig: prints the command that copies
/// it from a master. If you have an export of the record, use `ocpdeploy state import`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy adopt                              # the cluster of ./env.sh
  ocpdeploy adopt lab.sh --id x7k2pqrs         # one of several of this name
  ocpdeploy adopt lab.sh --kubeconfig backup/kubeconfig")]
pub struct Adopt {
    #[command(flatten)]
    pub source: Source,
    /// Id of the deployment, as `ocpdeploy audit` and the checks show it
    #[arg(long, value_name = "ID")]
    pub id: Option<DeploymentId>,
    /// The cluster's kubeconfig, to copy into the record
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// Show all objects of clusters on the platforms, and find leftovers
///
/// Identifies objects by their tags. Distinguishes clusters that are running,
/// incomplete or unfinished, machines that are no longer needed, and clusters whose
/// directory is lost or on another computer, with the `destroy` command for each.
/// Exits with 1 if it finds anything but running clusters of the state directory.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy audit                    # platforms of ./env.sh and of all clusters
  ocpdeploy audit --env lab.sh       # the platform of lab.sh
  ocpdeploy audit --format json")]
pub struct Audit {
    /// Env file of the only platform to search; its cluster is ignored
    #[arg(long, value_name = "ENV", value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// Add workers to an installed cluster, or remove workers
///
/// To add workers, learns their addresses with temporary machines, starts the workers
/// with a current pointer config from the cluster, and approves their certificates.
/// To remove workers, prompts for confirmation and starts with the highest number:
/// drains the node, then removes node, machine, disks and address. Masters are not
/// changed. Uses the settings of the deployment.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy scale lab --workers 4
  ocpdeploy scale lab --pool infra=3
  ocpdeploy scale lab --workers 2 --dry-run    # show what would change
  ocpdeploy scale lab --workers 2 --yes    # removes workers without a prompt
  ocpdeploy scale lab --workers 2 --drain-timeout 30m --delete-emptydir-data
  ocpdeploy scale lab --workers 3 --env lab.sh    # use the settings in lab.sh")]
pub struct Scale {
    #[command(flatten)]
    pub of: OneCluster,
    /// New number of workers outside of pools
    #[arg(long, value_name = "N", required_unless_present = "pools")]
    pub workers: Option<usize>,
    /// New number of nodes of a pool; repeatable
    #[arg(long = "pool", value_name = "POOL=N", value_parser = args::name_and_number)]
    pub pools: Vec<(String, usize)>,
    /// Show which nodes would be added and removed, without a change
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub confirmation: Confirmation,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub drain: Drain,
    #[command(flatten)]
    pub output: Output,
}

/// Update the static pods of a cluster after an update of OpenShift
///
/// keepalived, haproxy and CoreDNS run on the nodes with images of the release that
/// was installed. Finds the images of the release that the cluster runs now, and
/// updates the MachineConfigs. From OpenShift 4.17, new images require no reboot; in
/// earlier releases, the nodes reboot one after the other. `ocpdeploy verify` shows
/// when this command is needed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy renew lab
  ocpdeploy renew lab --env lab.sh    # with its pull secret and mirrors")]
pub struct Renew {
    #[command(flatten)]
    pub of: OneCluster,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub output: Output,
}

/// Shut down an installed cluster: workers first, then masters
///
/// Refuses while the cluster still uses the installer's certificates: they are valid
/// for 24 hours, and only a running cluster replaces them. Cordons the nodes, so that
/// no pod moves during the shutdown; `ocpdeploy start` uncordons them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy stop lab
  ocpdeploy stop lab --timeout 20m --power-off
  ocpdeploy stop lab --backup ~/backups     # save etcd first
  ocpdeploy stop lab --force                # less than a day after installation")]
pub struct Stop {
    #[command(flatten)]
    pub of: OneCluster,
    /// Time limit for the machines of each role
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
    /// Power off machines that do not shut down in time
    #[arg(long)]
    pub power_off: bool,
    /// Stop even before the first certificate rotation
    #[arg(long)]
    pub force: bool,
    /// Show which machines would be shut down, without a change
    #[arg(long)]
    pub dry_run: bool,
    /// First save etcd and the static pods' resources in this directory, over SSH
    #[arg(long, value_name = "DIR")]
    pub backup: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// Start a stopped cluster: masters first, then workers
///
/// Waits until each machine has its planned address and each node is Ready. Approves
/// the nodes' requests for certificates that expired in the meantime.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy start lab
  ocpdeploy start lab --timeout 1h")]
pub struct Start {
    #[command(flatten)]
    pub of: OneCluster,
    /// Time limit
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub output: Output,
}

/// Compare the parameter file with the platform, DHCP leases and the cluster
///
/// Prints one line per difference, with the reason; exits with 1 if there is any. For
/// an installed cluster, also compares the settings with each node over SSH: address,
/// gateway, MTU, DNS, NTP servers and proxies.
/// --repair corrects the address reservations, which take effect at a machine's next
/// start, and removes machines that are no longer needed: those of pass one, and the
/// bootstrap machine.
/// --adopt adds workers of this cluster that the table lacks, for example because the
/// state directory was restored from a backup: shows them, prompts for confirmation, and
/// changes nothing on the platform.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy verify lab
  ocpdeploy verify lab --repair
  ocpdeploy verify lab --adopt
  ocpdeploy verify lab --format json")]
pub struct Verify {
    #[command(flatten)]
    pub of: OneCluster,
    /// Correct reservations, and remove machines that are no longer needed
    #[arg(long)]
    pub repair: bool,
    /// Add workers that the table lacks
    #[arg(long)]
    pub adopt: bool,
    #[command(flatten)]
    pub confirmation: Confirmation,
    #[command(flatten)]
    pub output: Output,
}

/// Print a kubeconfig that works without DNS on this computer
///
/// Connects to the api VIP and verifies the server's certificate by name
/// (tls-server-name). Requires oc 4.7 or kubectl 1.20, or later.
///
/// With --merge, adds it as a context to the file that kubectl changes: the first
/// existing file in KUBECONFIG, otherwise ~/.kube/config. Other entries are kept, but as
/// with kubectl, comments are not. `destroy` removes the context.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy kubeconfig lab -o lab.kubeconfig
  ocpdeploy kubeconfig lab --merge           # for kubectl --context lab
  ocpdeploy kubeconfig lab --by-name         # as openshift-install wrote it")]
pub struct Kubeconfig {
    #[command(flatten)]
    pub of: OneCluster,
    /// Write to FILE with mode 0600 [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Keep the server's name, which must resolve on this computer
    #[arg(long)]
    pub by_name: bool,
    /// Add a context for the cluster to the kubeconfig of kubectl, or update it
    #[arg(long, conflicts_with = "output")]
    pub merge: bool,
    /// Name of the context [default: the cluster's name]
    #[arg(long, value_name = "NAME", requires = "merge", value_parser = NonEmptyStringValueParser::new())]
    pub context: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(arguments: &[&str]) -> Source {
        match Cli::try_parse_from([&["ocpdeploy", "plan"], arguments].concat()) {
            Ok(Cli {
                command: Command::Plan(plan),
                ..
            }) => plan.source,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_become_settings_and_win_over_set() {
        let source = source(&["--set", "workers=1", "--workers", "4", "--set", "motto=a=b"]);
        assert_eq!(source.env, None);
        let overrides: std::collections::BTreeMap<_, _> = source.overrides().into_iter().collect();
        assert_eq!(overrides["workers"], "4");
        assert_eq!(overrides["motto"], "a=b");
        assert_eq!(overrides.len(), 2);
    }

    #[test]
    fn a_setting_without_name_or_value_is_refused() {
        for bad in ["workers", "=3", ""] {
            let error = Cli::try_parse_from(["ocpdeploy", "plan", "--set", bad]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad}");
        }
    }
}
