//! `ocpdeploy export`: configuration for the user's own services.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::args::OneCluster;

/// Write configuration for your own DNS, DHCP or load balancer
///
/// Uses the parameter file that pass one wrote; does not connect to the platform. With
/// dns=user, lb=user or dhcp=user, the cluster requires that you run these services.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export hosts                       # see also `ocpdeploy dns apply`
  ocpdeploy export dns lab -o lab.zone
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
    Csi(ExportCsi),
}

/// The cluster, and the output file.
#[derive(Debug, Args)]
pub struct ExportTarget {
    #[command(flatten)]
    pub of: OneCluster,
    /// Write to FILE with mode 0600 [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// Write lines for a hosts file, between markers with the cluster's name
///
/// Contains the API, the nodes and the common names under apps, such as the console,
/// because hosts files do not support wildcards.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export hosts
  ocpdeploy export hosts lab -o lab.hosts")]
pub struct ExportHosts {
    #[command(flatten)]
    pub target: ExportTarget,
}

/// Write a DNS zone with the cluster's names, or dynamic updates
///
/// The zone is <cluster>.<domain>, in BIND format. Replace the name server in its SOA
/// and NS records with yours.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export dns -o lab.zone                       # A records
  ocpdeploy export dns --reverse -o 122.168.192.zone     # PTR records
  ocpdeploy export dns --etcd                            # OpenShift 4.1 to 4.3
  ocpdeploy export dns --format nsupdate                 # for nsupdate -k KEY")]
pub struct ExportDns {
    /// Zone file, or input for nsupdate
    #[arg(long, value_enum, default_value_t)]
    pub format: DnsFormat,
    /// Write the PTR records, which belong to the reverse zone
    #[arg(long)]
    pub reverse: bool,
    /// With --reverse: the zone of the IPv6 addresses. nsupdate's input always has both
    #[arg(long, requires = "reverse")]
    pub ipv6: bool,
    /// Include etcd's names and SRV records, required up to OpenShift 4.3
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

/// Write haproxy.cfg for a load balancer outside the cluster
///
/// The load balancer owns both virtual IPs. It forwards ports 6443 and 22623 to the
/// bootstrap and the masters, 80 and 443 to the nodes with a router.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export haproxy -o haproxy.cfg
  ocpdeploy export haproxy lab")]
pub struct ExportHaproxy {
    #[command(flatten)]
    pub target: ExportTarget,
}

/// Write the MAC and IP address of each machine for a DHCP server
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export dhcp -o /etc/dnsmasq.d/lab.conf
  ocpdeploy export dhcp --format isc       # for ISC's dhcpd.conf")]
pub struct ExportDhcp {
    /// Configuration format of the server
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

/// Write a parameter file for `kcli create cluster openshift`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export kcli -o lab.yml
  ocpdeploy export kcli lab")]
pub struct ExportKcli {
    #[command(flatten)]
    pub target: ExportTarget,
}

/// Write an Ansible playbook or inventory that creates the machines on oVirt
///
/// The inventory contains names, MACs and sizes. The playbook uses the collection
/// ovirt.ovirt and starts each machine with its Ignition config from the cluster's
/// directory.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export ansible -o playbook.yaml
  ocpdeploy export ansible --format inventory -o inventory.yaml")]
pub struct ExportAnsible {
    /// File to write
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

/// Write manifests of kubevirt-csi-driver for a cluster on KubeVirt
///
/// The driver lets the cluster use storage classes of the platform. One part is for the
/// namespace of the machines: a service account with the driver's rights. The other is for
/// the cluster: the driver, a storage class, and annotations of the nodes. Also reads the
/// kubeconfig of the platform.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy export csi lab --part platform -o platform.yaml
  ocpdeploy export csi lab -o csi.yaml")]
pub struct ExportCsi {
    /// Where the manifests are applied
    #[arg(long, value_enum, default_value_t)]
    pub part: CsiPart,
    #[command(flatten)]
    pub target: ExportTarget,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CsiPart {
    #[default]
    Cluster,
    Platform,
}
