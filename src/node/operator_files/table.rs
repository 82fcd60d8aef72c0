//! Written by `tests/operator_files.py`; do not edit.
//!
//! Source: openshift/machine-config-operator, `templates` and `pkg/server` of these branches:
//! release-4.6 at 348938f0ce (2023-06-20),
//! release-4.7 at 9bbeff52a9 (2023-06-20),
//! release-4.8 at 38ffe7535a (2023-06-20),
//! release-4.9 at 850ad08672 (2023-06-20),
//! release-4.10 at 46b93e64de (2023-09-08),
//! release-4.11 at 15d0b0288a (2023-11-13),
//! release-4.12 at 1d4cfffaad (2026-03-13),
//! release-4.13 at a57ca29123 (2025-09-05),
//! release-4.14 at 00b2e0b1cc (2025-06-23),
//! release-4.15 at 1ffa8341fb (2026-07-20),
//! release-4.16 at 7327bb2359 (2026-07-17),
//! release-4.17 at 3bdd678e83 (2026-07-16),
//! release-4.18 at f313997e0b (2026-08-12),
//! release-4.19 at 1a6905d980 (2026-08-10),
//! release-4.20 at afed09939d (2026-08-18),
//! release-4.21 at db84d8368e (2026-08-17),
//! release-4.22 at 9027c94cde (2026-08-21),
//! release-4.23 at d20efd9b9b (2026-08-21),
//! release-5.0 at d20efd9b9b (2026-08-21),
//! release-5.1 at 7ff337a4ff (2026-08-20),
//! release-5.2 at 7ff337a4ff (2026-08-20).

use crate::cluster::Role::{self, Arbiter, Master, Worker};

/// Names with the same releases and roles.
pub(super) struct Group {
    /// The first and the last release that sets them; `None` if no known release follows.
    pub since: (u32, u32),
    pub until: Option<(u32, u32)>,
    pub roles: &'static [Role],
    /// Only on clusters with one master.
    pub single: bool,
    /// Paths of files, names of units, and drop-ins as `unit/drop-in`.
    pub names: &'static [&'static str],
}

#[rustfmt::skip]
pub(super) const ALL: &[Group] = &[
    Group { since: (4, 6), until: Some((4, 6)), roles: &[Master], single: false, names: &[
        "/etc/kubernetes/manifests/recycler-pod.yaml",
        "/etc/kubernetes/static-pod-resources/etcd-member/root-ca.crt",
    ] },
    Group { since: (4, 6), until: Some((4, 6)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/dispatcher.d/90-long-hostname",
    ] },
    Group { since: (4, 6), until: Some((4, 8)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/usr/local/sbin/set-valid-hostname.sh",
    ] },
    Group { since: (4, 6), until: Some((4, 13)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/sysctl.d/forward.conf",
    ] },
    Group { since: (4, 6), until: Some((4, 17)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/kubernetes/ca.crt",
        "pivot.service/10-mco-default-env.conf",
    ] },
    Group { since: (4, 6), until: None, roles: &[Master], single: false, names: &[
        "/usr/local/bin/recover-kubeconfig.sh",
        "rpm-ostreed.service/mco-controlplane-nice.conf",
    ] },
    Group { since: (4, 6), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/conf.d/sdn.conf",
        "/etc/containers/storage.conf",
        "/etc/ignition-machine-config-encapsulated.json",
        "/etc/kubernetes/kubeconfig",
        "/etc/kubernetes/kubelet-ca.crt",
        "/etc/kubernetes/kubelet-plugins/volume/exec/.dummy",
        "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
        "/etc/machine-config-daemon/node-annotations.json",
        "/etc/mcs-machine-config-content.json",
        "/etc/modules-load.d/iptables.conf",
        "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
        "/etc/sysctl.d/inotify.conf",
        "/etc/systemd/system.conf.d/10-default-env-godebug.conf",
        "/etc/tmpfiles.d/cleanup-cni.conf",
        "/usr/local/bin/configure-ovs.sh",
        "/var/lib/kubelet/config.json",
        "crio.service/10-mco-default-env.conf",
        "crio.service/10-mco-default-madv.conf",
        "docker.socket/mco-disabled.conf",
        "kubelet.service/10-mco-default-env.conf",
        "kubelet.service/10-mco-default-madv.conf",
        "machine-config-daemon-firstboot.service",
        "machine-config-daemon-pull.service",
        "node-valid-hostname.service",
        "nodeip-configuration.service",
        "openvswitch.service",
        "ovs-configuration.service",
        "ovs-vswitchd.service/10-ovs-vswitchd-restart.conf",
        "ovsdb-server.service",
        "ovsdb-server.service/10-ovsdb-restart.conf",
        "zincati.service/mco-disabled.conf",
    ] },
    Group { since: (4, 6), until: None, roles: &[Master, Worker], single: false, names: &[
        "/etc/containers/policy.json",
        "/etc/containers/registries.conf",
        "/etc/crio/crio.conf.d/00-default",
        "/etc/kubernetes/cloud.conf",
        "/etc/kubernetes/kubelet.conf",
        "/etc/systemd/system.conf.d/kubelet-cgroups.conf",
        "kubelet.service",
    ] },
    Group { since: (4, 7), until: Some((4, 9)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/conf.d/99-keyfiles.conf",
        "/etc/ssh/sshd_config.d/10-disable-ssh-key-dir.conf",
        "/etc/tmpfiles.d/nm.conf",
        "etc-NetworkManager-systemConnectionsMerged.mount",
    ] },
    Group { since: (4, 7), until: None, roles: &[Master], single: false, names: &[
        "/etc/kubernetes/apiserver-url.env",
    ] },
    Group { since: (4, 7), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/dispatcher.d/99-vsphere-disable-tx-udp-tnl",
        "/etc/audit/rules.d/mco-audit-quiet-containers.rules",
        "/etc/mco/proxy.env",
        "/etc/systemd/system/kubelet.service.d/20-logging.conf",
        "crio.service/10-mco-profile-unix-socket.conf",
    ] },
    Group { since: (4, 8), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/node-sizing-enabled.env",
        "/usr/local/sbin/dynamic-system-reserved-calc.sh",
        "kubelet-auto-node-size.service",
    ] },
    Group { since: (4, 9), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/usr/local/bin/mco-hostname",
    ] },
    Group { since: (4, 10), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/conf.d/20-keyfiles.conf",
    ] },
    Group { since: (4, 11), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/dispatcher.d/pre-up.d/10-ofport-request.sh",
    ] },
    Group { since: (4, 12), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/usr/local/bin/nm-clean-initrd-state.sh",
        "NetworkManager-clean-initrd-state.service",
        "crio.service/01-kubens.conf",
        "crio.service/05-mco-ordering.conf",
        "firstboot-osupdate.target",
        "kubelet-dependencies.target",
        "kubelet.service/01-kubens.conf",
        "kubens.service",
        "rpm-ostreed.service/10-mco-default-env.conf",
    ] },
    Group { since: (4, 12), until: None, roles: &[Master, Worker], single: false, names: &[
        "/usr/local/bin/kubenswrapper",
    ] },
    Group { since: (4, 13), until: Some((4, 13)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "kubelet-selinux-relabel.service",
    ] },
    Group { since: (4, 13), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/conf.d/01-ipv6.conf",
        "/etc/sysctl.d/arp.conf",
        "/etc/sysctl.d/enable-userfaultfd.conf",
        "/etc/sysctl.d/vm-max-map.conf",
    ] },
    Group { since: (4, 13), until: None, roles: &[Master], single: true, names: &[
        "/etc/NetworkManager/dispatcher.d/forcedns-rhel9-fix",
    ] },
    Group { since: (4, 13), until: None, roles: &[Master, Worker], single: true, names: &[
        "/etc/dnsmasq.conf",
    ] },
    Group { since: (4, 14), until: Some((4, 15)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/mco/internal-registry-pull-secret.json",
    ] },
    Group { since: (4, 14), until: None, roles: &[Master, Worker], single: false, names: &[
        "/etc/kubernetes/crio-metrics-proxy.cfg",
        "/etc/kubernetes/manifests/criometricsproxy.yaml",
        "kubelet-cleanup.service",
    ] },
    Group { since: (4, 15), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/dispatcher.d/99-esp-offload",
        "/etc/nmstate/nmstate.conf",
        "/etc/sysctl.d/gc-thresh.conf",
        "/usr/local/bin/ipsec-connect-wait.sh",
        "ipsec.service/01-after-configure-ovs.conf",
        "wait-for-ipsec-connect.service",
    ] },
    Group { since: (4, 16), until: Some((4, 16)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "disable-mglru.service",
    ] },
    Group { since: (4, 16), until: Some((4, 22)), roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/usr/local/bin/wait-for-primary-ip.sh",
        "wait-for-primary-ip.service",
    ] },
    Group { since: (4, 16), until: None, roles: &[Arbiter, Worker], single: false, names: &[
        "/etc/kubernetes/apiserver-url.env",
    ] },
    Group { since: (4, 16), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/usr/local/bin/nmstate-configuration.sh",
        "nmstate-configuration.service",
        "nmstate.service",
    ] },
    Group { since: (4, 17), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/NetworkManager/dispatcher.d/99-gcp-disable-idpf-tx-checksum-off",
        "/etc/docker/certs.d/.create",
        "/etc/machine-config-daemon/generate_podman_policy_args.sh",
    ] },
    Group { since: (4, 17), until: None, roles: &[Master, Worker], single: false, names: &[
        "/etc/machine-config-daemon/policy-for-old-podman.json",
    ] },
    Group { since: (4, 18), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/etc/systemd/system.conf.d/10-default-timeout-stop.conf",
    ] },
    Group { since: (4, 19), until: None, roles: &[Arbiter], single: false, names: &[
        "/etc/containers/policy.json",
        "/etc/containers/registries.conf",
        "/etc/crio/crio.conf.d/00-default",
        "/etc/kubernetes/cloud.conf",
        "/etc/kubernetes/crio-metrics-proxy.cfg",
        "/etc/kubernetes/kubelet.conf",
        "/etc/kubernetes/manifests/criometricsproxy.yaml",
        "/etc/systemd/system.conf.d/kubelet-cgroups.conf",
        "/usr/local/bin/kubenswrapper",
        "/usr/local/bin/recover-kubeconfig.sh",
        "kubelet-cleanup.service",
        "kubelet.service",
        "rpm-ostreed.service/mco-controlplane-nice.conf",
    ] },
    Group { since: (4, 20), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "chrony-wait.service/10-skip-on-first-join.conf",
    ] },
    Group { since: (4, 23), until: None, roles: &[Master, Arbiter, Worker], single: false, names: &[
        "/usr/local/bin/wait-for-node-ip.sh",
        "openvswitch-ipsec.service/01-after-pluto-start.conf",
        "wait-for-node-ip.service",
    ] },
];
