//! Faults that the checks must find.

use ocpdeploy::state::parameters::NodeAddress;

use super::cluster::Nodes;
use super::{LONG, until};

/// A check of one node.
type Check = fn(&Nodes, &NodeAddress);

/// What breaks a node, how it is mended, and the check that must find it.
const FAULTS: [(&str, &str, &str, Check); 5] = [
    (
        "a second writer of resolv.conf",
        "cp /etc/resolv.conf /run/kept; echo nameserver 192.0.2.1 >/etc/resolv.conf",
        "cp /run/kept /etc/resolv.conf",
        Nodes::check_names,
    ),
    (
        "a node without its name server",
        "systemctl stop ocpdeploy-dns",
        "systemctl start ocpdeploy-dns",
        Nodes::check_names,
    ),
    (
        "a file of the cluster that something else wrote",
        "cp /etc/kubernetes/kubelet.conf /run/kept; echo >>/etc/kubernetes/kubelet.conf",
        "cp /run/kept /etc/kubernetes/kubelet.conf",
        Nodes::check_machine_config,
    ),
    (
        "a unit that failed",
        "systemd-run --quiet --unit=broken /bin/false; sleep 2",
        "systemctl reset-failed broken",
        Nodes::check_units,
    ),
    (
        "a virtual IP on a second node",
        "ip addr add $(awk '$1 == \"vip\" { print $2; exit }' /etc/ocpdeploy/resolver)/32 dev lo",
        "ip addr del $(awk '$1 == \"vip\" { print $2; exit }' /etc/ocpdeploy/resolver)/32 dev lo",
        |nodes, _| nodes.check_virtual_ips(),
    ),
];

impl Nodes {
    /// Each check finds what it is for.
    pub(super) fn check_the_checks(&self, node: &NodeAddress) {
        for (what, fault, mend, check) in FAULTS {
            self.on(node, fault);
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(self, node)));
            self.on(node, mend);
            assert!(found.is_err(), "{what} is not found");
            eprintln!("found: {what}");
            // On a busy computer a virtual IP may move for a moment.
            let is_mended = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(self, node))).is_ok();
            until("it is mended", LONG, is_mended);
        }
    }
}
