//! The command line: clap's types only. The doc comments are the help texts, at most 80 columns wide.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

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
/// CERTS is how long the installer's certificates last. No platform is asked.
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
  ocpdeploy scale lab --workers 2 --drain-timeout 30m
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
    /// Lose the pods that do not leave in time
    #[arg(long)]
    pub force: bool,
}

/// Make a node anew, log on to it, or read its console
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node replace worker-1
  ocpdeploy node ssh master-0
  ocpdeploy node console worker-1 --follow")]
pub struct Node {
    #[command(subcommand)]
    pub verb: NodeVerb,
}

#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    Replace(NodeReplace),
    Ssh(NodeSsh),
    Console(NodeConsole),
}

/// Make a node anew: same name, MAC and address, an empty disk
///
/// It is emptied and removed, then made with a pointer that the cluster gives now. A
/// master is replaced only when etcd does without it already and all others are well.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node replace worker-1
  ocpdeploy node replace worker-1 --cluster lab --force   # its kubelet is dead")]
pub struct NodeReplace {
    /// The node, e.g. worker-1
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub drain: Drain,
}

/// Log on to a node as user core
///
/// Your own ssh is started, with your agent and settings; the keys by which it knows the
/// nodes are kept in the cluster's folder. What follows -- is for ssh.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node ssh master-0
  ocpdeploy node ssh worker-1 --key ~/.ssh/lab -- journalctl -b -u kubelet")]
pub struct NodeSsh {
    /// The node, e.g. master-0
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// The private key [default: as ssh finds it]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
    /// What to run there instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Show the last lines of a node's serial console, or sit down at it
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node console bootstrap
  ocpdeploy node console worker-1 --follow          # until Ctrl-C
  ocpdeploy node console worker-1 --interactive     # until Ctrl-]")]
pub struct NodeConsole {
    /// The node, e.g. master-0
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Go on with what comes
    #[arg(short, long)]
    pub follow: bool,
    /// Sit down at it: what is typed goes to the node [libvirt, KubeVirt]
    #[arg(short, long, conflicts_with = "follow")]
    pub interactive: bool,
}

/// Machines as the platform has them
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy machine show master-0
  ocpdeploy machine show bootstrap --output json")]
pub struct Machine {
    #[command(subcommand)]
    pub verb: MachineVerb,
}

#[derive(Debug, Subcommand)]
pub enum MachineVerb {
    Show(MachineShow),
}

/// Show a node's machine: where it may run, what it does, how it is made
///
/// The same on every platform, and the platform's own description at its end: domain
/// XML or oVirt's. What the machine is told at its first boot is left out.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy machine show master-0
  ocpdeploy machine show worker-1 --cluster lab --output json")]
pub struct MachineShow {
    /// The node, e.g. master-0
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub output: Output,
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

/// Merge, check, show and compare Ignition configs
///
/// The merge is Ignition's own, entry by entry: files by path, units and users by
/// name, and what the last config says wins. No cluster, platform or network is needed,
/// except that `show` reads the folder of a cluster that was deployed from here.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition check master.ign               # would a machine boot with it?
  ocpdeploy ignition merge master.ign mine.ign -o merged.ign
  ocpdeploy ignition diff master.ign merged.ign     # what did it change?
  ocpdeploy ignition show master-0                  # what a node really gets")]
pub struct Ignition {
    #[command(subcommand)]
    pub verb: IgnitionVerb,
}

#[derive(Debug, Subcommand)]
pub enum IgnitionVerb {
    Merge(IgnitionMerge),
    Check(IgnitionCheck),
    Show(IgnitionShow),
    Diff(IgnitionDiff),
}

/// Merge configs; each one wins over those before it
///
/// Each config is checked alone and the result as a whole, the way Ignition does on
/// the machine. Where one is refused, nothing is written. Configs of spec 2 (up to
/// OpenShift 4.5) and of spec 3 are different languages and cannot be mixed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition merge base.ign mine.ign                # to stdout
  ocpdeploy ignition merge base.ign site.ign mine.ign -o node.ign
  ocpdeploy ignition merge --pretty base.ign -              # the last from stdin
  ocpdeploy ignition merge base.ign mine.ign -o base.ign    # replaced as a whole

A file's `contents` are merged field by field: a child that sets only `source`
keeps the parent's `compression` and `verification`. Set `compression` to an empty
text in every file of yours.")]
pub struct IgnitionMerge {
    /// Configs, the lowest first; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Write here, readable by you alone, instead of to stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Indent the result
    #[arg(long)]
    pub pretty: bool,
}

/// Tell what Ignition would refuse or misread; exit code 3 if it would not boot
///
/// An error is what Ignition refuses: the machine would stop in an emergency shell.
/// A warning is what it takes without doing what it looks like, e.g. mode 644 without
/// its leading 0, which is another number in JSON. One line a finding, with its place.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition check master.ign worker.ign
  ocpdeploy ignition check --strict mine.ign            # warnings count as well
  ocpdeploy ignition check --output json mine.ign
  ocpdeploy ignition check -                            # from stdin

JSON: `files` with `file`, `ok`, `version`, `bytes`, and `findings` with `severity`
(error or warning), `path`, `line`, `column` and `text`.")]
pub struct IgnitionCheck {
    /// Configs; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Major version that the CoreOS reads: 2 for OpenShift 4.1 to 4.5, else 3
    #[arg(long, value_name = "2|3", default_value = "3", value_parser = clap::value_parser!(u8).range(2..=3))]
    pub spec: u8,
    /// Fail on warnings, too
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Show a node's config: files, units and users, and where each comes from
///
/// Our part of a pointer lies packed within it; here it is unpacked and merged. What
/// the node fetches on its first boot is named and not fetched. Contents, which may be
/// secret, are shown only on demand.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition show master-0                      # of the only cluster here
  ocpdeploy ignition show worker-1 --cluster lab --output json
  ocpdeploy ignition show bootstrap --decode            # with all contents
  ocpdeploy ignition show master-0 --file /etc/hostname
  ocpdeploy ignition show ./master.ign                  # any config")]
pub struct IgnitionShow {
    /// A node, e.g. master-0, or a config: a path with a / or ending in .ign
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Show the contents of files and units as well; they may be secret
    #[arg(long)]
    pub decode: bool,
    /// Print what is in this file of the node, and nothing else
    #[arg(long, value_name = "PATH", conflicts_with_all = ["decode", "output"])]
    pub file: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// Compare what two configs ask for; exit code 1 if they differ
///
/// The order of keys and entries does not count, nor how contents are packed: base64,
/// percent signs and gzip are undone first. An overlay within a pointer is compared as a
/// config. Contents, which may be secret, are shown only on demand.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition diff before.ign after.ign
  ocpdeploy ignition diff --decode before.ign after.ign # with changed lines
  ocpdeploy ignition diff --output json before.ign -    # the second from stdin

JSON: `equal`, and `differences` with `path`, `change` (added, removed, changed,
contents or order), `old` and `new`.")]
pub struct IgnitionDiff {
    /// The first config; - is stdin
    #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
    pub old: PathBuf,
    /// The second config; - is stdin
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    pub new: PathBuf,
    /// Show changed lines of contents as well; they may be secret
    #[arg(long)]
    pub decode: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Write what your own DNS, DHCP or load balancer needs to know of a cluster
///
/// Made from the table of addresses that pass one wrote; no platform is asked. With
/// dns=user, lb=user or dhcp=user the cluster counts on these services of yours.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export hosts                       # see also `ocpdeploy dns apply`
  ocpdeploy export dns --cluster lab -o lab.zone
  ocpdeploy export dhcp --format isc
  ocpdeploy export kcli -o lab.yml")]
pub struct Export {
    #[command(subcommand)]
    pub verb: ExportVerb,
}

#[derive(Debug, Subcommand)]
pub enum ExportVerb {
    Hosts(ExportHosts),
    Dns(ExportDns),
    Haproxy(ExportHaproxy),
    Dhcp(ExportDhcp),
    Kcli(ExportKcli),
    Ansible(ExportAnsible),
}

/// Which cluster, and where to write.
#[derive(Debug, Args)]
pub struct ExportTarget {
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Write here instead of to stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// Lines for a hosts file, between markers that name the cluster
///
/// API, nodes and the usual names beneath apps, e.g. the console: a hosts file knows no
/// wildcards.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export hosts
  ocpdeploy export hosts --cluster lab -o lab.hosts")]
pub struct ExportHosts {
    #[command(flatten)]
    pub target: ExportTarget,
}

/// A DNS zone of the cluster's names, or updates for a server
///
/// The zone is <cluster>.<domain>, in the format of BIND; the name of its name server
/// is a guess, to be replaced by yours.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export dns -o lab.zone                       # A records
  ocpdeploy export dns --reverse -o 122.168.192.zone     # PTR records
  ocpdeploy export dns --etcd                            # OpenShift 4.1 to 4.3
  ocpdeploy export dns --format nsupdate                 # for a pipe to nsupdate -k KEY")]
pub struct ExportDns {
    /// A zone file, or the input of nsupdate
    #[arg(long, value_enum, default_value_t)]
    pub format: DnsFormat,
    /// The names of the addresses, which are another zone's
    #[arg(long)]
    pub reverse: bool,
    /// Names and SRV records of etcd as well, which OpenShift up to 4.3 needs
    #[arg(long, conflicts_with = "reverse")]
    pub etcd: bool,
    #[command(flatten)]
    pub target: ExportTarget,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DnsFormat {
    #[default]
    Bind,
    Nsupdate,
}

/// haproxy.cfg of a load balancer outside of the cluster
///
/// The balancer has both virtual IPs as addresses of its own: 6443 and 22623 lead to the
/// bootstrap and the masters, 80 and 443 to nodes with a router.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export haproxy -o haproxy.cfg
  ocpdeploy export haproxy --cluster lab")]
pub struct ExportHaproxy {
    #[command(flatten)]
    pub target: ExportTarget,
}

/// Fixed addresses for a DHCP server: each MAC with its IP
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export dhcp -o /etc/dnsmasq.d/lab.conf
  ocpdeploy export dhcp --format isc       # for ISC's dhcpd.conf")]
pub struct ExportDhcp {
    /// The server's language
    #[arg(long, value_enum, default_value_t)]
    pub format: DhcpFormat,
    #[command(flatten)]
    pub target: ExportTarget,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DhcpFormat {
    #[default]
    Dnsmasq,
    Isc,
}

/// A parameter file that `kcli create cluster openshift` takes
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export kcli -o lab.yml
  ocpdeploy export kcli --cluster lab")]
pub struct ExportKcli {
    #[command(flatten)]
    pub target: ExportTarget,
}

/// Playbook and inventory that create the same machines on oVirt by Ansible
///
/// The inventory has names, MACs and sizes; the playbook uses the collection ovirt.ovirt
/// and starts each machine with its Ignition config from the cluster's folder.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export ansible -o playbook.yaml
  ocpdeploy export ansible --format inventory -o inventory.yaml")]
pub struct ExportAnsible {
    /// Which of the two files
    #[arg(long, value_enum, default_value_t)]
    pub format: AnsibleFormat,
    #[command(flatten)]
    pub target: ExportTarget,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AnsibleFormat {
    #[default]
    Playbook,
    Inventory,
}

/// Tell this computer a cluster's names, and take them away again
///
/// In /etc/hosts only lines between the cluster's own markers are ever touched. What was
/// done is noted, and `ocpdeploy destroy` undoes it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy dns show lab
  sudo ocpdeploy --home ~/.local/share/ocpdeploy dns apply lab
  ocpdeploy dns apply lab --dry-run
  ocpdeploy dns remove lab")]
pub struct Dns {
    #[command(subcommand)]
    pub verb: DnsVerb,
}

#[derive(Debug, Subcommand)]
pub enum DnsVerb {
    Apply(DnsApply),
    Remove(DnsRemove),
    Show(DnsShow),
}

/// Tell this computer a cluster's names; needs root
///
/// hosts: lines in /etc/hosts, with the usual names beneath apps. networkmanager: for
/// the dnsmasq that NetworkManager runs, with every name. resolved: systemd-resolved asks
/// the cluster's masters, so names are known only while these run.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  sudo ocpdeploy --home ~/.local/share/ocpdeploy dns apply lab
  ocpdeploy dns apply lab --dry-run
  ocpdeploy dns apply --how networkmanager")]
pub struct DnsApply {
    #[command(flatten)]
    pub target: DnsTarget,
    /// Where the names are told
    #[arg(long, value_enum, default_value_t)]
    pub how: DnsHow,
    /// Show what would change; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Take a cluster's names away from this computer; needs root
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy dns remove lab --dry-run
  ocpdeploy dns remove lab.example.com     # of a cluster whose folder is gone")]
pub struct DnsRemove {
    #[command(flatten)]
    pub target: DnsTarget,
    /// Show what would change; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Show whether and how this computer was told a cluster's names
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy dns show
  ocpdeploy dns show lab")]
pub struct DnsShow {
    #[command(flatten)]
    pub target: DnsTarget,
}

#[derive(Debug, Args)]
pub struct DnsTarget {
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(value_parser = name_or_id)]
    pub cluster: Option<String>,
    /// A folder in place of /, for tests
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    pub root: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DnsHow {
    #[default]
    Hosts,
    #[value(name = "networkmanager")]
    NetworkManager,
    Resolved,
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
    /// Platform: libvirt, or sim for a pretend one
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
fn duration(text: &str) -> Result<Duration, String> {
    crate::settings::parse::duration(text)
}

/// The name of a cluster is one of a folder, too: nothing in it leads out of there.
fn name_or_id(text: &str) -> Result<String, String> {
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
fn cluster_name(text: &str) -> Result<String, String> {
    match text.contains('.') {
        true => Err("the name alone is wanted, without the domain".to_owned()),
        false => name_or_id(text),
    }
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it has the form NAME=VALUE".to_owned()),
    }
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

/// What makes this program at home on a computer
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy util completion bash
  ocpdeploy util man /usr/local/share/man/man1")]
pub struct Util {
    #[command(subcommand)]
    pub verb: UtilVerb,
}

#[derive(Debug, Subcommand)]
pub enum UtilVerb {
    Completion(UtilCompletion),
    Man(UtilMan),
}

/// Print what lets a shell complete this program's commands and flags
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy util completion bash    # into /etc/bash_completion.d/ocpdeploy
  ocpdeploy util completion fish    # into ~/.config/fish/completions/ocpdeploy.fish
  ocpdeploy util completion zsh     # into _ocpdeploy in a folder of $fpath")]
pub struct UtilCompletion {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Write a manual page for each command into a folder
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy util man man1
  ocpdeploy util man /usr/local/share/man/man1")]
pub struct UtilMan {
    /// The folder; it is made where it is not there
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}
