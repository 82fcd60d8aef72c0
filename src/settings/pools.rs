//! Node pools: `pools` names them, and each `pool_*` setting lists values as `POOL:VALUE`.

use std::collections::{BTreeMap, BTreeSet};

use super::checks::MOST_MACHINES;
use super::values::{self, Values};
use super::{choices, parse};
use crate::cluster::{Architecture, ClusterDomain, Effect, NodeName, Pool, Size, Taint};
use crate::printable::count;

/// Longest name of a pool: its machines' names must not be longer than those of pass one.
const LONGEST: usize = 15;

/// Names that nodes, hosts, machines of pass one, or OpenShift's own MachineConfigPools use.
const RESERVED: [&str; 10] = [
    "all",
    "api",
    "apps",
    "arbiter",
    "bootstrap",
    "harvest",
    "helper",
    "ingress",
    "master",
    "worker",
];

/// Labels by which OpenShift identifies masters and workers.
const ROLES_OF_OPENSHIFT: [&str; 4] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/worker",
    "node-role.kubernetes.io/arbiter",
];

/// The names of the pools, with the number of nodes of each.
pub(super) fn counts(values: &mut Values<'_>) -> Option<Vec<(String, usize)>> {
    let pools = values.list("pools", |item| {
        let (name, nodes) = item.split_once(':').unwrap_or((item, ""));
        let name = pool_name(name)?;
        match nodes.parse::<u64>() {
            Ok(nodes) if nodes <= MOST_MACHINES => Ok((name, usize::try_from(nodes).unwrap_or_default())),
            _ => Err(format!(
                "`{item}` is not NAME:COUNT such as infra:2, with at most {MOST_MACHINES} nodes"
            )),
        }
    })?;
    let mut seen = BTreeSet::new();
    if let Some((twice, _)) = pools.iter().find(|(name, _)| !seen.insert(name.clone())) {
        values.problem(&["pools"], format!("`pools`: {twice} is listed twice"), "");
        return None;
    }
    Some(pools)
}

/// All pools. Values that a pool does not set are those of the other workers.
pub(super) fn pools(
    values: &mut Values<'_>,
    id: Option<&ClusterDomain>,
    arch: Option<Architecture>,
    worker_size: Option<&Size>,
    extra_networks: Option<&[String]>,
) -> Option<Vec<Pool>> {
    let counts = counts(values);
    let names: Option<Vec<&str>> = counts
        .as_ref()
        .map(|counts| counts.iter().map(|(name, _)| name.as_str()).collect());
    let names = names.as_deref();
    let number = |values: &mut Values<'_>, setting, least, most| {
        let unit = values.unit(setting);
        let entries = entries(values, setting, names, |text| {
            let number = parse::number(text, values::kind_of(setting))?;
            match (least..=most).contains(&number) {
                true => Ok(number),
                false => Err(format!("{number}{unit} is not between {least} and {most}{unit}")),
            }
        });
        single(values, setting, entries?)
    };
    let archs = entries(values, "pool_arch", names, choices::choice::<Architecture>)
        .and_then(|archs| single(values, "pool_arch", archs));
    let cpus = number(values, "pool_numcpus", 1, 512);
    let memory = number(values, "pool_memory", 128, 16 << 20);
    let disk = number(values, "pool_disk_size", 1, 64 << 10);
    let extra_disks = entries(values, "pool_extra_disks", names, |text| {
        parse::number(text, values::kind_of("pool_extra_disks"))
    });
    let networks = entries(values, "pool_extra_networks", names, |text| {
        Ok::<_, String>(text.to_owned())
    });
    let labels = entries(values, "pool_labels", names, label);
    let taints = entries(values, "pool_taints", names, taint);
    let macs = entries(values, "pool_macs", names, parse::nic_mac);
    let ips = entries(values, "pool_ips", names, parse::ip);
    let own_configs = values.texts("machine_config_pools").filter(|pools| {
        let known = |pool: &&String| is_pool(values, "machine_config_pools", names, pool);
        pools.iter().filter(known).count() == pools.len()
    });
    warn_of_little_memory(values, memory.as_ref());

    let (counts, id, size, extra_networks) = (counts?, id?, worker_size?, extra_networks?);
    let (arch, archs) = (arch?, archs?);
    let (cpus, memory, disk, extra_disks) = (cpus?, memory?, disk?, extra_disks?);
    let (networks, labels, taints, macs, ips) = (networks?, labels?, taints?, macs?, ips?);
    let own_configs = own_configs?;
    let mut pools = Vec::new();
    for (name, nodes) in counts {
        let longest = id.fqdn(NodeName::of_pool(&name, 100).as_str());
        if longest.len() > parse::LONGEST_NAME {
            values.problem(
                &["pools", "cluster", "domain"],
                format!("`pools`: the name {name} is too long for this cluster and domain"),
                &format!(
                    "a node name has at most {} characters, and one would be {longest}",
                    parse::LONGEST_NAME
                ),
            );
            return None;
        }
        let extra_disks = of(&extra_disks, &name);
        let of_pool = Pool {
            size: Size {
                cpus: cpus
                    .get(&name)
                    .map_or(size.cpus, |cpus| u32::try_from(*cpus).unwrap_or(size.cpus)),
                memory_mib: memory.get(&name).copied().unwrap_or(size.memory_mib),
                disk_gib: disk.get(&name).copied().unwrap_or(size.disk_gib),
                extra_disks_gib: match extra_disks.is_empty() {
                    true => size.extra_disks_gib.clone(),
                    // 0 means no disk.
                    false => extra_disks.into_iter().filter(|size| *size > 0).collect(),
                },
            },
            extra_networks: Some(of(&networks, &name))
                .filter(|networks| !networks.is_empty())
                .unwrap_or_else(|| extra_networks.to_vec()),
            labels: of(&labels, &name).into_iter().collect(),
            taints: of(&taints, &name).into_iter().collect(),
            own_configs: own_configs.contains(&name),
            macs: of(&macs, &name),
            ips: of(&ips, &name),
            arch: archs.get(&name).copied().unwrap_or(arch),
            name,
            nodes,
        };
        pools.push(of_pool);
    }
    Some(pools)
}

/// The flavor of each pool for which one is set.
pub(super) fn flavors(values: &mut Values<'_>) -> Option<BTreeMap<String, String>> {
    let counts = counts(values);
    let names: Option<Vec<&str>> = counts
        .as_ref()
        .map(|counts| counts.iter().map(|(name, _)| name.as_str()).collect());
    let flavors = entries(values, "os_pool_flavors", names.as_deref(), |text| {
        Ok::<_, String>(text.to_owned())
    })?;
    single(values, "os_pool_flavors", flavors)
}

/// Checks that lists of addresses have an entry for every node.
pub(super) fn check_addresses(values: &mut Values<'_>, pools: &[Pool]) {
    for pool in pools {
        for (setting, length) in [("pool_macs", pool.macs.len()), ("pool_ips", pool.ips.len())] {
            if length != 0 && length != pool.nodes {
                let (entries, nodes) = (count(length, "entry"), count(pool.nodes, "node"));
                let message = format!("`{setting}` has {entries} for {nodes} of pool {}", pool.name);
                values.problem(&[setting, "pools"], message, "list one for each, or none");
            }
        }
    }
}

/// Whether user workloads may run on masters. Checks that at least one node can run the routers.
pub(super) fn masters_schedulable(values: &mut Values<'_>, pools: &[Pool], workers: Option<usize>) -> Option<bool> {
    let schedulable = values.switch("masters_schedulable")?;
    let repel = |pool: &Pool| pool.nodes == 0 || pool.repels_pods();
    let has_nodes = pools.iter().any(|pool| pool.nodes > 0);
    if workers == Some(0) && !schedulable && has_nodes && pools.iter().all(repel) {
        values.problem(
            &["pool_taints", "pools", "workers"],
            "no node is left for the routers: workers=0, and every pool has a taint",
            "set workers to 1 or more, or remove the taints of one pool",
        );
    }
    Some(schedulable)
}

fn warn_of_little_memory(values: &mut Values<'_>, memory: Option<&BTreeMap<String, u64>>) {
    const LEAST: u64 = 8192;
    if values.sources.rehearse {
        return;
    }
    for (pool, memory) in memory.into_iter().flatten().filter(|(_, memory)| **memory < LEAST) {
        let message = format!("pool_memory={pool}:{memory} is below the minimum of OpenShift, {LEAST} MiB");
        values.warn("pool_memory", &message);
    }
}

/// The values of one pool, in order.
fn of<T: Clone>(entries: &[(String, T)], pool: &str) -> Vec<T> {
    let of_pool = entries.iter().filter(|(name, _)| name == pool);
    of_pool.map(|(_, value)| value.clone()).collect()
}

/// The entries `POOL:VALUE` of a setting.
fn entries<T>(
    values: &mut Values<'_>,
    setting: &'static str,
    pools: Option<&[&str]>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<Vec<(String, T)>> {
    let entries = values.list(setting, |item| match item.split_once(':') {
        Some((pool, value)) if !pool.is_empty() && !value.is_empty() => Ok((pool.to_owned(), parse(value)?)),
        _ => Err(format!("`{item}` is not POOL:VALUE")),
    })?;
    let known = |(pool, _): &&(String, T)| is_pool(values, setting, pools, pool);
    (entries.iter().filter(known).count() == entries.len()).then_some(entries)
}

/// Whether the pool exists. If not, adds a problem, unless `pools` itself is invalid.
fn is_pool(values: &mut Values<'_>, setting: &'static str, pools: Option<&[&str]>, pool: &str) -> bool {
    let Some(pools) = pools else { return true };
    if pools.contains(&pool) {
        return true;
    }
    let near = parse::most_similar(pools.iter().copied(), 0.8, |known| strsim::jaro_winkler(pool, known));
    let help = match (near, pools.is_empty()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, true) => format!("add it, such as `pools={pool}:1`"),
        (None, false) => format!("the pools are {}", pools.join(", ")),
    };
    let message = format!("`{setting}`: `pools` has no pool {pool}");
    values.problem(&[setting, "pools"], message, &help);
    false
}

/// The value of each pool; more than one is a problem.
fn single<T>(values: &mut Values<'_>, setting: &'static str, entries: Vec<(String, T)>) -> Option<BTreeMap<String, T>> {
    let mut by_pool = BTreeMap::new();
    for (pool, value) in entries {
        if by_pool.insert(pool.clone(), value).is_some() {
            let message = format!("`{setting}` has more than one value for pool {pool}");
            values.problem(&[setting], message, "");
            return None;
        }
    }
    Some(by_pool)
}

/// Letters and digits only: a node is `<pool>-<number>`.
fn pool_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if RESERVED.contains(&text) {
        return Err(format!(
            "`{text}` cannot be the name of a pool: it is used by OpenShift or ocpdeploy"
        ));
    }
    match text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_plain) && text.len() <= LONGEST {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` cannot be the name of a pool: lower-case letters and digits, a letter first, at most {LONGEST} characters"
        )),
    }
}

/// `KEY=VALUE`, or `KEY` for an empty value.
fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let key = label_key(key)?;
    if ROLES_OF_OPENSHIFT.contains(&key.as_str()) {
        return Err(format!("the label {key} is set by OpenShift itself"));
    }
    Ok((key, label_value(value)?))
}

/// `KEY=VALUE:EFFECT` or `KEY:EFFECT`, as for `oc adm taint`.
fn taint(text: &str) -> Result<Taint, String> {
    let bad = || {
        format!(
            "`{text}` is not KEY=VALUE:EFFECT; effects are {}",
            Effect::ALL.map(|effect| effect.to_string()).join(", ")
        )
    };
    let (taint, effect) = text.rsplit_once(':').ok_or_else(bad)?;
    let effect = Effect::ALL
        .into_iter()
        .find(|known| known.to_string() == effect)
        .ok_or_else(bad)?;
    let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
    Ok(Taint {
        key: label_key(key)?,
        value: label_value(value)?,
        effect,
    })
}

/// A qualified name: a name, perhaps with a DNS name and `/` before it (kubernetes/apimachinery:
/// `pkg/util/validation/validation.go`, `IsQualifiedName`).
fn label_key(text: &str) -> Result<String, String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    match prefix.is_none_or(|prefix| parse::kube_name(prefix).is_ok()) && is_label_text(name) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is not the key of a label or taint, such as example.com/gpu"
        )),
    }
}

fn label_value(text: &str) -> Result<String, String> {
    match text.is_empty() || is_label_text(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is not the value of a label or taint: letters, digits and inner `-`, `_`, `.`, at most 63 characters"
        )),
    }
}

fn is_label_text(text: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    let is_inner = |c: char| is_edge(c) || matches!(c, '-' | '_' | '.');
    (1..=63).contains(&text.len()) && text.chars().all(is_inner) && text.starts_with(is_edge) && text.ends_with(is_edge)
}

/// Pools with new numbers of nodes, as the value of `pools`.
pub fn pools_text<'a>(counts: impl Iterator<Item = (&'a str, usize)>) -> String {
    let items: Vec<_> = counts.map(|(name, nodes)| format!("{name}:{nodes}")).collect();
    items.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Role;

    #[test]
    fn taints_and_labels_are_read_as_oc_reads_them() {
        let read = |text: &str| taint(text).map(|taint| taint.to_string());
        for good in [
            "dedicated=infra:NoSchedule",
            "node-role.kubernetes.io/infra:NoExecute",
            "a.b/c_d=x.y:PreferNoSchedule",
        ] {
            assert_eq!(read(good).as_deref(), Ok(good));
        }
        for bad in [
            "dedicated",
            "dedicated=infra",
            "dedicated:Never",
            ":NoSchedule",
            "a/b/c:NoSchedule",
            "a=b=c:NoSchedule",
            "-a:NoSchedule",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(label("gpu"), Ok(("gpu".to_owned(), String::new())));
        assert_eq!(
            label("example.com/zone=a"),
            Ok(("example.com/zone".to_owned(), "a".to_owned()))
        );
        for bad in [
            "node-role.kubernetes.io/worker",
            "Example.com/zone=a",
            "zone=a b",
            &"a".repeat(64),
        ] {
            assert!(label(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pool_cannot_have_a_reserved_name() {
        for reserved in RESERVED {
            assert!(pool_name(reserved).is_err(), "{reserved}");
        }
        for role in [Role::Bootstrap, Role::Master, Role::Arbiter, Role::Worker, Role::Helper] {
            assert!(RESERVED.contains(&role.to_string().as_str()), "{role}");
        }
        for bad in ["", "0", "gpu-1", "Infra", "a234567890123456"] {
            assert!(pool_name(bad).is_err(), "{bad}");
        }
        for good in ["infra", "gpu1", "a23456789012345"] {
            assert_eq!(pool_name(good).as_deref(), Ok(good));
        }
    }
}
