//! The command line: clap's types only. The doc comments are the help texts, at most 80 columns wide.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};

mod args;
mod dns;
mod export;
mod ignition;
mod image;
mod node;
mod util;

pub use self::args::*;
pub use self::dns::*;
pub use self::export::*;
pub use self::ignition::*;
pub use self::image::*;
pub use self::node::*;
pub use self::util::*;

/// Deploys OpenShift 4 in two passes, where DNS, DHCP and load balancers are
/// not yours.
///
/// 1. `ocpdeploy init` asks, and writes env.sh. `ocpdeploy config` lists all settings.
/// 2. `ocpdeploy plan` shows what would be made, and touches nothing;
///    `ocpdeploy check` looks at all that it needs.
/// 3. `ocpdeploy deploy`, pass one: throwaway machines are booted to learn which
///    MAC and IP the platform gives them; then they are deleted.
/// 4. Pass two: the real machines start with exactly these addresses, and their
///    configuration knows all of them. The cluster comes up.
/// 5. Stopped half way? Run the same command again: it continues.
#[derive(Debug, Parser)]
#[command(
    name = "ocpdeploy",
    version,
    verbatim_doc_comment,
    max_term_width = 80,
    disable_help_subcommand = true,
    after_long_help = "\
Examples:
  ocpdeploy init                     # asks, and writes env.sh
  ocpdeploy deploy --rehearse        # both passes with tiny guests, in minutes
  ocpdeploy deploy lab.sh            # the cluster that lab.sh describes
  ocpdeploy status lab               # planned against seen, for each node
  ocpdeploy scale lab --workers 4    # more workers, or fewer
  ocpdeploy destroy lab              # all that was made for it, nothing else

Exit codes:
  0   done
  1   `ignition diff` or `verify` found a difference, `audit` something left
  2   the command line is wrong
  3   the env file, a profile, or a stored or given file is wrong
  4   a tool is missing, or a check before the start failed
  5   the platform refused
  6   waited too long
  7   stopped half way; the same command continues
  70  a fault of ocpdeploy"
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command knows.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Show each call and look as it happens
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Show results and errors only
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Folder of all state [default: ~/.local/share/ocpdeploy]
    #[arg(long, global = true, value_name = "DIR", env = "OCPDEPLOY_HOME", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub home: Option<PathBuf>,
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
    Report(Report),
    Destroy(Destroy),
    Audit(Audit),
    Ignition(Ignition),
    Image(Image),
    Export(Export),
    Dns(Dns),
    Scale(Scale),
    Node(Node),
    Machine(Machine),
    Stop(Stop),
    Start(Start),
    Verify(Verify),
    Kubeconfig(Kubeconfig),
    Util(Util),
}

/// Ask what a cluster is to be, and write its env file
///
/// The platform is reached first, and what it has is offered: networks, storage,
/// images. Each answer is judged as `deploy` would. On a terminal with arrow keys;
/// without one questions and answers are lines, answers from standard input.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy init                       # writes ./env.sh
  ocpdeploy init --backend openstack -o lab.sh
  ocpdeploy init --backend sim         # no hypervisor needed")]
pub struct Init {
    /// Platform: libvirt, ovirt, openstack, kubevirt or sim; asked for otherwise
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// The env file to write
    #[arg(short, long, value_name = "FILE", default_value = "env.sh", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
}

/// Look at everything that a deployment needs; makes nothing
///
/// Platform, rights, quotas, room, networks, addresses, clocks, the disk's speed for
/// etcd, installer, image, pull secret and names: each with its result and a hint.
/// `deploy` does the same checks and stops at the first that fails; here all are
/// shown. Exit code 4 when one fails.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy check                    # what ./env.sh describes
  ocpdeploy check lab.sh --output json
  ocpdeploy check --rehearse")]
pub struct Check {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub output: Output,
}

/// Deploy a cluster: pass one, pass two, wait until it is up
///
/// Checks everything it can before anything is made. A cluster whose addresses are
/// known from an earlier run keeps them and skips pass one. Stopped at any point,
/// the same command continues.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy deploy                             # what ./env.sh describes
  ocpdeploy deploy lab.sh --workers 2          # with another number of workers
  ocpdeploy deploy --set api_ip=192.168.122.9  # any setting of the env file
  ocpdeploy deploy --rehearse --backend sim    # no hypervisor needed")]
pub struct Deploy {
    #[command(flatten)]
    pub source: Source,
    /// Do pass one again, even if the addresses are known
    #[arg(long)]
    pub harvest: bool,
    /// Leave the bootstrap machine where it is when its work is done
    #[arg(long)]
    pub keep_bootstrap: bool,
}

/// Show what `deploy` would make; touches nothing
///
/// Machines with sizes, MACs, addresses where they are known, virtual IPs and VRRP
/// ids, and the sum of what both passes need. No platform is asked.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy plan                     # what ./env.sh describes
  ocpdeploy plan lab.sh --workers 5
  ocpdeploy plan --output json")]
pub struct Plan {
    #[command(flatten)]
    pub source: Source,
    /// Write the objects of pass two as YAML into this folder (KubeVirt); Secrets are among them
    #[arg(long = "manifests", value_name = "DIR")]
    pub write_manifests: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// Do pass one only: learn the addresses, write the parameter file
///
/// Boots throwaway machines, notes which MAC and IP each one gets, makes the
/// platform keep these where it can, deletes the machines. Pass two of a later
/// `deploy` uses the table. An existing table is made anew.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy harvest                  # what ./env.sh describes
  ocpdeploy harvest lab.sh --network lan0
  ocpdeploy harvest --rehearse")]
pub struct Harvest {
    #[command(flatten)]
    pub source: Source,
}

/// Show every setting, its value and where it came from
///
/// A flag wins over the environment (OCPDEPLOY_<NAME>), this over the env file, this
/// over the profile, this over the default. Secrets are masked.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy config                   # what ./env.sh describes
  ocpdeploy config lab.sh --profile compact
  ocpdeploy config --output json")]
pub struct Config {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub output: Output,
}

/// Show a cluster's nodes: what was planned and what is seen
///
/// Asks the platform once. Each node is ok, moved (another address than planned),
/// missing, or in the state the platform reports. The phase says whether a process
/// works on the cluster now, or where it stopped.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy status                   # every cluster known here
  ocpdeploy status lab
  ocpdeploy status lab --watch       # exit code 7 where it stops half way
  ocpdeploy status lab --output json")]
pub struct Status {
    /// Name of the cluster [default: all clusters known here]
    #[arg(value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Look again and again until no process works on it any more
    ///
    /// On a terminal the table stands in its place; elsewhere a line comes for each change.
    #[arg(short, long)]
    pub watch: bool,
    #[command(flatten)]
    pub output: Output,
}

/// List the clusters known here, by network
///
/// Virtual IPs and VRRP ids of one network stand together, since they must differ;
/// CERTS is how long the installer's certificates last. Each platform is asked for at
/// most 3 seconds which machines are on; without an answer STATE is as `start` and
/// `stop` left it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy list
  ocpdeploy list --output json")]
pub struct List {
    #[command(flatten)]
    pub output: Output,
}

/// Write a page about a cluster: topology, timeline, addresses, sizes, warnings
///
/// One HTML file that needs neither network nor script. Made from the cluster's journal
/// and one look at the platform; where that fails, the rest is there all the same. No
/// secret is in it, but names and addresses are. A new file is yours alone (0600).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy report lab                # writes report.html
  ocpdeploy report lab -o /srv/www/lab.html
  ocpdeploy report -o -               # to stdout, of the only cluster here")]
pub struct Report {
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    pub cluster: Option<String>,
    /// The file to write; - is stdout
    #[arg(short, long, value_name = "FILE", default_value = "report.html", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
}

/// Remove a cluster: machines, disks, addresses, files
///
/// Only what carries the cluster's tag on the platform is removed. Without the
/// cluster's folder: --from-backend, with the id that `ocpdeploy audit` shows.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy destroy lab --dry-run          # show what would be removed
  ocpdeploy destroy lab                    # asks first
  ocpdeploy destroy lab --yes
  ocpdeploy destroy lab --keep-addresses   # a later deploy skips pass one
  ocpdeploy destroy lab.example.com --from-backend    # without its folder")]
pub struct Destroy {
    /// Name of the cluster, as `ocpdeploy list` shows it
    #[arg(value_parser = name_or_id)]
    pub cluster: String,
    /// Show what would be removed; remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Keep the addresses: reservations and the parameter file stay
    #[arg(long)]
    pub keep_addresses: bool,
    /// Env file that says where the platform is [default: as last used]
    #[arg(long, value_name = "ENV", value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
    /// Go by the platform alone; CLUSTER is NAME.DOMAIN
    ///
    /// Any cluster that `ocpdeploy audit` shows: one whose folder is lost, or another
    /// computer's. Without --env it is looked for on the platforms known here.
    #[arg(long)]
    pub from_backend: bool,
    /// A folder in place of / when this computer's names are undone, for tests
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    pub root: PathBuf,
}

/// Show all that any cluster has on the platforms, and what of it is left over
///
/// Objects go by the tag that they carry. Told apart: clusters that are known here and
/// alive, half gone or unfinished; machines that have done their work; and clusters of
/// other computers or of folders that are lost, with the `destroy` that removes each.
/// Exit code 1 when anything but clusters alive and known here was found.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy audit                    # the platforms of ./env.sh and of all clusters here
  ocpdeploy audit --env lab.sh       # the platform of lab.sh
  ocpdeploy audit --output json")]
pub struct Audit {
    /// Env file of the only platform to look at; its cluster does not matter
    #[arg(long, value_name = "ENV", value_hint = ValueHint::FilePath)]
    pub env: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// Give an installed cluster more workers, or fewer
///
/// New ones: their addresses are harvested by throwaway machines, they start with a
/// pointer that the cluster gives now, and their certificates are approved. Those with
/// the highest numbers go: they are emptied first, then node, machine and address are
/// removed. Masters stay. The settings are those of the deployment.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy scale lab --workers 4
  ocpdeploy scale lab --workers 2 --drain-timeout 30m --delete-emptydir-data
  ocpdeploy scale lab --workers 3 --env lab.sh    # with other settings than before")]
pub struct Scale {
    /// Name of the cluster, as `ocpdeploy list` shows it
    #[arg(value_parser = cluster_name)]
    pub cluster: String,
    /// How many workers it is to have
    #[arg(long, value_name = "N")]
    pub workers: usize,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub drain: Drain,
}

/// Shut an installed cluster down: workers first, then masters
///
/// Refused while the cluster lives on the certificates that the installer made: they last
/// 24 hours, and only a cluster that runs replaces them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy stop lab
  ocpdeploy stop lab --timeout 20m --power-off
  ocpdeploy stop lab --force                # although it is younger than a day")]
pub struct Stop {
    /// Name of the cluster, as `ocpdeploy list` shows it
    #[arg(value_parser = cluster_name)]
    pub cluster: String,
    /// How long the machines of one role may take
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
    /// Take the power of machines that do not shut down in time
    #[arg(long)]
    pub power_off: bool,
    /// Also before the first renewal of the certificates
    #[arg(long)]
    pub force: bool,
}

/// Start a cluster that was stopped: masters first, then workers
///
/// Waits until each machine has the address it had and each node is Ready. Certificates
/// that ended meanwhile are asked for by the nodes, and approved.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy start lab
  ocpdeploy start lab --timeout 1h")]
pub struct Start {
    /// Name of the cluster, as `ocpdeploy list` shows it
    #[arg(value_parser = cluster_name)]
    pub cluster: String,
    /// How long it may take
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    pub timeout: Duration,
}

/// Compare the table of addresses with platform, leases and cluster
///
/// One line for each difference, with the reason; exit code 1 if there is any. --repair
/// makes reservations what the table says; machines have them after their next start.
/// It also removes machines that have done their work: of pass one, or the bootstrap.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy verify lab
  ocpdeploy verify lab --repair
  ocpdeploy verify lab --output json")]
pub struct Verify {
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Make the reservations right, and remove machines that have done their work
    #[arg(long)]
    pub repair: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Print a kubeconfig that needs no DNS on this computer
///
/// It leads to the api VIP, and the server's certificate is verified by its name. oc and
/// kubectl understand it since 1.20.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy kubeconfig lab -o lab.kubeconfig
  ocpdeploy kubeconfig lab --by-name         # as openshift-install wrote it")]
pub struct Kubeconfig {
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Write here, readable by you alone, instead of to stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Keep the server's name: DNS or /etc/hosts knows it here
    #[arg(long)]
    pub by_name: bool,
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
