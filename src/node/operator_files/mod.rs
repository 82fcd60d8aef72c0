//! The files, units and drop-ins that the machine config operator sets on every node of platform `none`: its own
//! templates, and what its server adds to the config that it serves.
//!
//! A config of a user that sets one of them boots, and then the operator reports the node as Degraded, because the file
//! differs from what it wrote, or the node cannot join. A MachineConfig may set them: it becomes part of what the
//! operator writes.

mod table;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::table::Group;
use crate::cluster::Role;

/// For messages.
pub fn origin((major, minor): (u32, u32)) -> String {
    format!("the machine config operator of OpenShift {major}.{minor}")
}

/// The entries of a release on nodes of a role, as an Ignition config without contents. The bootstrap has no operator.
pub fn config(release: (u32, u32), role: Role, masters: usize) -> Value {
    let (mut files, mut units, mut dropins) = (Vec::new(), Vec::new(), BTreeMap::<_, Vec<_>>::new());
    let is_set = |group: &&Group| {
        group.since <= release
            && group.until.is_none_or(|until| release <= until)
            && group.roles.contains(&role)
            && (!group.single || masters == 1)
    };
    for name in table::ALL.iter().filter(is_set).flat_map(|group| group.names) {
        match name.split_once('/') {
            Some(("", _)) => files.push(json!({"path": name})),
            Some((unit, dropin)) => dropins.entry(unit).or_default().push(json!({"name": dropin})),
            None => units.push(json!({"name": name})),
        }
    }
    units.extend(
        dropins
            .into_iter()
            .map(|(unit, dropins)| json!({"name": unit, "dropins": dropins})),
    );
    json!({"storage": {"files": files}, "systemd": {"units": units}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(release: (u32, u32), role: Role, masters: usize, name: &str) -> bool {
        let config = config(release, role, masters);
        let lists = [&config["storage"]["files"], &config["systemd"]["units"]];
        let mut all = lists.into_iter().flat_map(|list| list.as_array().unwrap());
        all.any(|entry| match name.split_once('/') {
            Some((unit, dropin)) if !unit.is_empty() => {
                let dropins = entry["dropins"].as_array();
                entry["name"] == unit && dropins.is_some_and(|dropins| dropins.contains(&json!({"name": dropin})))
            }
            _ => entry == &json!({"path": name}) || entry == &json!({"name": name}),
        })
    }

    #[test]
    fn entries_are_those_of_the_release_and_the_role() {
        use Role::{Arbiter, Bootstrap, Master, Worker};
        for (name, role, masters, first, last) in [
            ("kubelet.service", Master, 3, Some((4, 6)), None),
            ("kubelet.service", Arbiter, 2, Some((4, 19)), None),
            ("kubelet.service", Bootstrap, 3, None, None),
            ("/etc/containers/registries.conf", Worker, 3, Some((4, 6)), None),
            ("/etc/containers/policy.json", Master, 3, Some((4, 6)), None),
            ("/etc/crio/crio.conf.d/00-default", Arbiter, 2, Some((4, 19)), None),
            ("firstboot-osupdate.target", Worker, 3, Some((4, 12)), None),
            ("nmstate.service", Worker, 3, Some((4, 16)), None),
            ("/usr/local/bin/recover-kubeconfig.sh", Arbiter, 2, Some((4, 19)), None),
            ("/usr/local/bin/recover-kubeconfig.sh", Worker, 3, None, None),
            ("/etc/sysctl.d/forward.conf", Worker, 3, Some((4, 6)), Some((4, 13))),
            ("wait-for-primary-ip.service", Worker, 3, Some((4, 16)), Some((4, 22))),
            ("wait-for-node-ip.service", Worker, 3, Some((4, 23)), None),
            ("mtu-migration.service", Worker, 3, None, None),
            // What the machine config server adds, on every node that it serves.
            ("/etc/kubernetes/kubeconfig", Worker, 3, Some((4, 6)), None),
            ("/etc/kubernetes/apiserver-url.env", Worker, 3, Some((4, 16)), None),
            ("kubelet.service/10-mco-default-env.conf", Worker, 3, Some((4, 6)), None),
            ("/etc/dnsmasq.conf", Worker, 1, Some((4, 13)), None),
            ("/etc/dnsmasq.conf", Worker, 3, None, None),
        ] {
            for release in (6..=23).map(|minor| (4, minor)).chain([(5, 0), (5, 9)]) {
                let expected = first.is_some_and(|first| first <= release) && last.is_none_or(|last| release <= last);
                assert_eq!(
                    has(release, role, masters, name),
                    expected,
                    "{name} of {role} in {release:?}"
                );
            }
        }
    }

    #[test]
    fn no_name_is_listed_twice_for_a_role() {
        for (role, masters) in [
            (Role::Master, 1),
            (Role::Master, 3),
            (Role::Arbiter, 2),
            (Role::Worker, 1),
        ] {
            for release in (6..30).map(|minor| (4, minor)) {
                let config = config(release, role, masters);
                let mut names = std::collections::BTreeSet::new();
                for list in [&config["storage"]["files"], &config["systemd"]["units"]] {
                    for entry in list.as_array().unwrap() {
                        assert!(names.insert(entry.to_string()), "{entry} in {release:?}");
                    }
                }
            }
        }
    }
}
