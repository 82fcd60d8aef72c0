//! Looks up settings by name in `table`.

pub use super::entry::{Group, Kind, Variable};
use super::parse;
use super::table::CONNECTIONS;
pub use super::table::{GROUPS, VARIABLES};

/// Prefix of settings in the environment.
pub(crate) const ENVIRONMENT: &str = "OCPDEPLOY_";

/// Settings with their own flag; `--set` sets all others.
pub const OWN_FLAGS: [&str; 7] = [
    "backend",
    "cluster",
    "libvirt_uri",
    "masters",
    "network",
    "profile",
    "workers",
];

/// The setting of this name or alias. `<name>_file` means the secret `<name>`.
pub fn find(name: &str) -> Option<&'static Variable> {
    let named = |name: &str| VARIABLES.iter().find(|v| v.name == name || v.aliases.contains(&name));
    named(name).or_else(|| {
        name.strip_suffix("_file")
            .and_then(named)
            .filter(|variable| variable.is_secret())
    })
}

/// How to set a secret, or a URL with a password, so that neither a flag nor the state directory contains it.
pub(super) fn how_to_set(variable: &Variable) -> String {
    let name = variable.name;
    let place = match variable.is_secret() {
        true => format!("`{name}_file=FILE`"),
        false => format!("`{name}` in the env file"),
    };
    format!(
        "set {place}, or {ENVIRONMENT}{} in the environment",
        name.to_ascii_uppercase()
    )
}

/// The settings that a connection to this platform requires, in the order of the questions.
pub fn connection_settings(platform: &str) -> &'static [&'static str] {
    let found = CONNECTIONS.iter().find(|(name, _)| *name == platform);
    found.map_or(&[], |(_, settings)| settings)
}

/// Names of the same settings in kcli (karmab/kcli: `kvirt/cluster/openshift/kcli_default.yml`) and install-config.yaml
/// (openshift/installer: `pkg/types/installconfig.go`), in lower case and without `_`.
const FOREIGN: &[(&str, &str)] = &[
    ("additionaltrustbundle", "ca"),
    ("apivips", "api_ip"),
    ("architecture", "arch"),
    ("basedomain", "domain"),
    ("compute", "workers"),
    ("controlplane", "masters"),
    ("ctlplanes", "masters"),
    ("ctlplanememory", "master_memory"),
    ("ctlplanenumcpus", "master_numcpus"),
    ("imagecontentsources", "registry_mirrors"),
    ("imagedigestsources", "registry_mirrors"),
    ("ingressvips", "ingress_ip"),
    ("mastercpus", "master_numcpus"),
    ("memory", "master_memory"),
    ("metadata", "cluster"),
    ("openshiftversion", "version"),
    ("release", "version"),
    ("replicas", "workers"),
    ("sno", "masters"),
    ("sshkey", "pub_key"),
    ("storagepool", "libvirt_storage_pool"),
    ("tag", "version"),
    ("workercpus", "worker_numcpus"),
];

/// Former names of settings, see `docs/decisions/0041-names-of-settings.md`.
const FORMER: &[(&str, &str)] = &[
    ("address_pool", "address_ranges"),
    ("cache", "downloads_dir"),
    ("extra_disk", "extra_disks"),
    ("extra_disk_size", "extra_disks"),
    ("helper_memory", "harvest_memory"),
    ("helper_numcpus", "harvest_numcpus"),
    ("helper_disk_size", "harvest_disk_size"),
    ("helper_image", "harvest_image"),
    ("helper_template", "harvest_image"),
    ("worker_helper_image", "worker_harvest_image"),
    ("os_helper_flavor", "os_harvest_flavor"),
    ("pool", "libvirt_storage_pool"),
    ("worker_pool", "libvirt_worker_storage_pool"),
    ("worker_libvirt_uri", "libvirt_worker_uri"),
    ("virt_type", "libvirt_virt_type"),
    ("mirror", "installer_mirror"),
    ("mirror_key", "installer_mirror_key"),
    ("mirror_sha256", "installer_mirror_sha256"),
    ("mirror_insecure", "installer_mirror_insecure"),
    ("mirror_timeout", "installer_mirror_timeout"),
    ("launch_timeout", "restart_window"),
    ("launch_retries", "restart_limit"),
    ("virtual_router_id", "api_virtual_router_id"),
    ("kubeconfig", "kubevirt_kubeconfig"),
    ("kube_context", "kubevirt_context"),
    ("namespace", "kubevirt_namespace"),
    ("storage_class", "kubevirt_storage_class"),
    ("access_mode", "kubevirt_access_mode"),
    ("volume_mode", "kubevirt_volume_mode"),
    ("upload_proxy", "kubevirt_upload_proxy"),
    ("upload_ca", "kubevirt_upload_ca"),
    ("eviction_strategy", "kubevirt_eviction_strategy"),
    ("make_namespace", "kubevirt_make_namespace"),
    ("expose", "kubevirt_expose"),
    ("node_address", "kubevirt_node_address"),
    ("pod_networks", "kubevirt_pod_networks"),
    ("admit", "kubevirt_admit"),
    ("routes", "kubevirt_routes"),
    ("route_names", "kubevirt_route_names"),
];

/// The present name of a setting with this former name.
pub(super) fn renamed(name: &str) -> Option<&'static str> {
    let found = FORMER.iter().find(|(former, _)| *former == name);
    found.map(|(_, now)| *now)
}

/// What to write in place of a name that is not that of a setting.
pub(super) fn hint(name: &str) -> Option<String> {
    match renamed(name) {
        Some(now) => Some(format!("its name is now `{now}`")),
        None => nearest(name).map(|near| format!("did you mean `{near}`?")),
    }
}

/// The setting to which another program gives this name, otherwise the most similar known name, if there is one.
pub fn nearest(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let plain = lower.replace('_', "");
    if let Some((_, ours)) = FOREIGN.iter().find(|(foreign, _)| *foreign == plain) {
        return Some(ours);
    }
    let known = VARIABLES
        .iter()
        .flat_map(|variable| std::iter::once(&variable.name).chain(variable.aliases));
    parse::most_similar(known.copied(), 0.85, |known| strsim::jaro_winkler(&lower, known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::BackendConfig;
    use crate::settings::choices::choices;

    #[test]
    fn names_of_other_programs_lead_to_ours() {
        for (foreign, ours) in FOREIGN {
            assert!(find(ours).is_some_and(|variable| variable.name == *ours), "{ours}");
            assert!(find(foreign).is_none(), "{foreign}");
        }
        for (given, ours) in [
            ("baseDomain", "domain"),
            ("base_domain", "domain"),
            ("ctlplanes", "masters"),
            ("storage_pool", "libvirt_storage_pool"),
            ("master_cpus", "master_numcpus"),
            ("sshKey", "pub_key"),
            ("masterz", "masters"),
        ] {
            assert_eq!(nearest(given), Some(ours), "{given}");
        }
    }

    #[test]
    fn a_former_name_leads_to_its_present_one() {
        for (former, now) in FORMER {
            assert!(find(former).is_none(), "{former}");
            assert!(find(now).is_some_and(|variable| variable.name == *now), "{now}");
        }
    }

    /// So a name says on which platform it has an effect.
    #[test]
    fn the_settings_of_a_platform_begin_with_its_name() {
        for variable in VARIABLES {
            let prefix = match variable.group.platform {
                Some("openstack") => "os_".to_owned(),
                Some(platform) => format!("{platform}_"),
                None => continue,
            };
            assert!(variable.name.starts_with(&prefix), "{}", variable.name);
        }
    }

    #[test]
    fn each_name_and_alias_is_unique() {
        let mut names: Vec<&str> = VARIABLES
            .iter()
            .flat_map(|variable| std::iter::once(&variable.name).chain(variable.aliases))
            .copied()
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn groups_are_contiguous_and_in_order() {
        let mut seen: Vec<Group> = VARIABLES.iter().map(|variable| variable.group).collect();
        seen.dedup();
        assert_eq!(seen, GROUPS);
    }

    #[test]
    fn a_connection_uses_settings_of_its_platform() {
        for platform in choices::<BackendConfig>() {
            let settings = connection_settings(platform);
            assert!(!settings.is_empty(), "{platform}");
            for name in settings {
                let group = find(name).map(|variable| variable.group);
                assert_eq!(group.and_then(|group| group.platform), Some(*platform), "{name}");
            }
        }
    }

    #[test]
    fn a_typo_gets_a_suggestion_and_noise_gets_none() {
        for (typo, meant) in [
            ("workrs", Some("workers")),
            ("Masters", Some("masters")),
            ("master_memroy", Some("master_memory")),
            ("apiip", Some("api_ip")),
            ("xyzzy", None),
            ("PATH", None),
        ] {
            assert_eq!(nearest(typo), meant, "{typo}");
        }
    }

    #[test]
    fn only_secrets_accept_the_suffix_file() {
        assert_eq!(
            find("pull_secret_file").map(|variable| variable.name),
            Some("pull_secret")
        );
        assert!(find("cluster_file").is_none());
    }
}
