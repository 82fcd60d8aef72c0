//! The files and units that the machine config operator's own templates set on every node of platform `none`.
//!
//! A config of a user that sets one of them boots, and then the operator reports the node as Degraded, because the file
//! differs from what it wrote. Source: openshift/machine-config-operator, `templates/{common,master,worker}` of
//! release-4.5, 4.12, 4.16 and 4.20, without the directories of other platforms; a unit to which it adds only drop-ins
//! is not here. Templates without content count: the operator writes an empty file.

use serde_json::{Value, json};

use crate::cluster::Role;

struct Group {
    /// The first and last minor version of OpenShift 4 that is known to set them.
    since: u32,
    until: u32,
    /// Paths of files, and names of units.
    names: &'static [&'static str],
}

const OPEN: u32 = u32::MAX;

const ALL: [Group; 7] = [
    Group {
        since: 6,
        until: OPEN,
        names: &[
            "/etc/NetworkManager/conf.d/sdn.conf",
            "/etc/containers/storage.conf",
            "/etc/kubernetes/cloud.conf",
            "/etc/kubernetes/kubelet-plugins/volume/exec/.dummy",
            "/etc/kubernetes/kubelet.conf",
            "/etc/modules-load.d/iptables.conf",
            "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
            "/etc/sysctl.d/forward.conf",
            "/etc/sysctl.d/inotify.conf",
            "/etc/systemd/system.conf.d/kubelet-cgroups.conf",
            "/etc/tmpfiles.d/cleanup-cni.conf",
            "/var/lib/kubelet/config.json",
            "kubelet.service",
        ],
    },
    Group {
        since: 6,
        until: 16,
        names: &["/etc/kubernetes/ca.crt"],
    },
    Group {
        since: 6,
        until: 12,
        names: &[
            "/etc/kubernetes/kubelet-ca.crt",
            "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
        ],
    },
    Group {
        since: 12,
        until: OPEN,
        names: &[
            "/etc/NetworkManager/conf.d/20-keyfiles.conf",
            "/etc/NetworkManager/dispatcher.d/pre-up.d/10-ofport-request.sh",
            "/etc/audit/rules.d/mco-audit-quiet-containers.rules",
            "/etc/mco/proxy.env",
            "/etc/node-sizing-enabled.env",
            "/etc/systemd/system.conf.d/10-default-env-godebug.conf",
            "/etc/systemd/system/kubelet.service.d/20-logging.conf",
            "/usr/local/bin/configure-ovs.sh",
            "/usr/local/bin/kubenswrapper",
            "/usr/local/bin/mco-hostname",
            "/usr/local/bin/mtu-migration.sh",
            "/usr/local/bin/nm-clean-initrd-state.sh",
            "/usr/local/sbin/dynamic-system-reserved-calc.sh",
            "NetworkManager-clean-initrd-state.service",
            "kubelet-auto-node-size.service",
            "kubelet-dependencies.target",
            "kubens.service",
            "machine-config-daemon-firstboot.service",
            "machine-config-daemon-pull.service",
            "mtu-migration.service",
            "node-valid-hostname.service",
            "nodeip-configuration.service",
            "openvswitch.service",
            "ovs-configuration.service",
            "ovsdb-server.service",
        ],
    },
    Group {
        since: 16,
        until: OPEN,
        names: &[
            "/etc/NetworkManager/conf.d/01-ipv6.conf",
            "/etc/NetworkManager/dispatcher.d/99-esp-offload",
            "/etc/kubernetes/apiserver-url.env",
            "/etc/kubernetes/crio-metrics-proxy.cfg",
            "/etc/kubernetes/manifests/criometricsproxy.yaml",
            "/etc/nmstate/nmstate.conf",
            "/etc/sysctl.d/arp.conf",
            "/etc/sysctl.d/enable-userfaultfd.conf",
            "/etc/sysctl.d/gc-thresh.conf",
            "/etc/sysctl.d/vm-max-map.conf",
            "/usr/local/bin/ipsec-connect-wait.sh",
            "/usr/local/bin/nmstate-configuration.sh",
            "/usr/local/bin/wait-for-primary-ip.sh",
            "kubelet-cleanup.service",
            "nmstate-configuration.service",
            "wait-for-ipsec-connect.service",
            "wait-for-primary-ip.service",
        ],
    },
    Group {
        since: 16,
        until: 16,
        names: &["disable-mglru.service"],
    },
    Group {
        since: 20,
        until: OPEN,
        names: &[
            "/etc/docker/certs.d/.create",
            "/etc/machine-config-daemon/generate_podman_policy_args.sh",
            "/etc/systemd/system.conf.d/10-default-timeout-stop.conf",
        ],
    },
];

const MASTERS: [Group; 3] = [
    Group {
        since: 6,
        until: OPEN,
        names: &["/usr/local/bin/recover-kubeconfig.sh"],
    },
    Group {
        since: 12,
        until: 15,
        names: &["/etc/kubernetes/apiserver-url.env"],
    },
    Group {
        since: 16,
        until: OPEN,
        names: &["/etc/NetworkManager/dispatcher.d/forcedns-rhel9-fix"],
    },
];

/// For messages.
pub fn origin((major, minor): (u32, u32)) -> String {
    format!("the machine config operator of OpenShift {major}.{minor}")
}

/// The entries of a release on nodes of a role, as an Ignition config without contents. The bootstrap has no operator.
pub fn config((_, minor): (u32, u32), role: Role) -> Value {
    let masters = match role {
        Role::Master => &MASTERS[..],
        _ => &[],
    };
    let groups = ALL.iter().chain(masters).filter(|_| role != Role::Bootstrap);
    let of_release = groups.filter(|group| (group.since..=group.until).contains(&minor));
    let names = of_release.flat_map(|group| group.names);
    let (files, units): (Vec<&str>, Vec<&str>) = names.partition(|name| name.starts_with('/'));
    let entries = |key: &str, names: Vec<&str>| names.into_iter().map(|name| json!({key: name})).collect::<Vec<_>>();
    json!({"storage": {"files": entries("path", files)}, "systemd": {"units": entries("name", units)}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_those_of_the_release_and_the_role() {
        let has = |minor, role, entry: Value| {
            let config = config((4, minor), role);
            let lists = [&config["storage"]["files"], &config["systemd"]["units"]];
            lists.iter().any(|list| list.as_array().unwrap().contains(&entry))
        };
        let file = |path: &str| json!({"path": path});
        let kubelet = json!({"name": "kubelet.service"});
        for role in [Role::Master, Role::Worker] {
            assert!(
                has(6, role, kubelet.clone()) && has(20, role, kubelet.clone()),
                "{role}"
            );
        }
        assert!(!has(20, Role::Bootstrap, kubelet));
        let url = file("/etc/kubernetes/apiserver-url.env");
        assert!(has(12, Role::Master, url.clone()) && !has(12, Role::Worker, url.clone()));
        assert!(has(16, Role::Worker, url));
        let sysctl = file("/etc/sysctl.d/vm-max-map.conf");
        assert!(!has(15, Role::Worker, sysctl.clone()) && has(17, Role::Worker, sysctl));
        let ca = file("/etc/kubernetes/ca.crt");
        assert!(has(16, Role::Master, ca.clone()) && !has(17, Role::Master, ca));
    }

    #[test]
    fn no_name_is_listed_twice_for_a_role() {
        for role in [Role::Master, Role::Worker] {
            for minor in 6..30 {
                let config = config((4, minor), role);
                let mut names = std::collections::BTreeSet::new();
                for list in [&config["storage"]["files"], &config["systemd"]["units"]] {
                    for entry in list.as_array().unwrap() {
                        assert!(names.insert(entry.to_string()), "{entry} in 4.{minor}");
                    }
                }
            }
        }
    }
}
