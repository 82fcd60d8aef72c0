//! Faults that the checks must detect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ocpdeploy::state::parameters::NodeAddress;

use super::cluster::Nodes;
use super::{LONG, answers_within, until};

/// A check of one node.
type Check = fn(&Nodes, &NodeAddress);

/// A fault, its command, the command that repairs it, and the check that must detect it.
const FAULTS: [(&str, &str, &str, Check); 6] = [
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
    (
        "a virtual IP without the label by which OVN-Kubernetes recognizes it",
        "cd /etc/ocpdeploy/keepalived; cp -p keepalived.conf.in /run/kept; sed -i 's/ label vip//' keepalived.conf.in; \
         pkill -x keepalived; sleep 15",
        "cp -p /run/kept /etc/ocpdeploy/keepalived/keepalived.conf.in; pkill -x keepalived",
        |nodes, _| nodes.check_virtual_ips(),
    ),
];

impl Nodes {
    /// Each check detects its fault.
    pub(super) fn check_the_checks(&self, node: &NodeAddress) {
        for (what, fault, mend, check) in FAULTS {
            self.on(node, fault);
            let found = catch_unwind(AssertUnwindSafe(|| check(self, node)));
            self.on(node, mend);
            assert!(found.is_err(), "{what} is not detected");
            eprintln!("found: {what}");
            // On a busy computer a virtual IP may move for a moment.
            let is_mended = || catch_unwind(AssertUnwindSafe(|| check(self, node))).is_ok();
            until("it is repaired", LONG, is_mended);
        }
    }

    /// A missing order of units is detected after a reboot.
    pub(super) fn check_the_order_of_units(&self, node: &NodeAddress) {
        // Without default dependencies: a target is ordered after what it wants (systemd/systemd: man/systemd.target.xml).
        let unit = "/etc/systemd/system/ocpdeploy-resolver.service";
        self.on(node, &format!("cp -p {unit} /etc/kept.service; sed -i -e /^Before=/d -e '/^\\[Unit\\]/a DefaultDependencies=no' {unit}"));
        self.reboot(node);
        let found = catch_unwind(AssertUnwindSafe(|| self.check_units(node)));
        self.on(node, &format!("mv /etc/kept.service {unit}; systemctl daemon-reload"));
        assert!(found.is_err(), "a resolver that nothing waits for is not detected");
        eprintln!("found: a resolver that nothing waits for");
    }

    /// A master that has a virtual IP and lost the services behind it releases the IP, and would not do so without the
    /// checks of its keepalived.
    pub(super) fn check_the_checks_of_keepalived(&self) {
        let table = self.table();
        let holders = self.holders(table.api_ip);
        assert_eq!(holders.len(), 1, "{holders:?}");
        let holder = self.node(holders[0].as_str());
        let url = format!("https://{}:6443/readyz", table.api_ip);
        let unchecked = "cp -p keepalived.conf.in /run/kept; sed -i '/track_file {/,/}/d' keepalived.conf.in";
        self.on(&holder, &format!("cd /etc/ocpdeploy/keepalived; {unchecked}; sleep 10"));
        assert_eq!(self.holders(table.api_ip), std::slice::from_ref(&holder.name));
        // The fake operators would write the API server's manifest again.
        self.on(
            &holder,
            "systemctl stop operators; mkdir -p /run/pods; cd /etc/kubernetes/manifests; mv kube-apiserver.json *haproxy* /run/pods",
        );
        // A busy kubelet starts them again before it notices that it has to end them.
        until("its services have ended", LONG, || {
            let them = "'relay.cfg|ocpdeploy/haproxy'";
            let gone = format!("pkill -f {them}; sleep 5; ! pgrep -f {them}");
            self.try_on(&holder, &gone).status.success()
        });
        // A holder with checks releases the address within 5 s.
        std::thread::sleep(Duration::from_secs(20));
        assert!(
            !answers_within(&url, 1),
            "an unchecked holder without its services answers"
        );
        assert_eq!(self.holders(table.api_ip), std::slice::from_ref(&holder.name));
        eprintln!("found: a keepalived without its checks");
        self.on(&holder, "cp -p /run/kept /etc/ocpdeploy/keepalived/keepalived.conf.in");
        until("another master has the virtual IP", Duration::from_secs(60), || {
            answers_within(&url, 1)
        });
        assert!(!self.holders(table.api_ip).contains(&holder.name));
        self.on(
            &holder,
            "mv /run/pods/* /etc/kubernetes/manifests; systemctl start operators",
        );
        self.check_balancing();
    }
}
