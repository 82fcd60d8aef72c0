//! `ocpdeploy export`: what the user's own services need to know.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::args::cluster_name;

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
