//! What openshift-install accepts: its own rules for an install-config of platform `none`, in the form in which it reads
//! them, so that `check` rejects what the installer would reject after pass one.
//!
//! Source: openshift/installer at f60f85a937 (2026-03-20), `pkg/types/validation/installconfig.go` unless a rule names
//! another file; the first release of a rule is that of the commit which added it.

mod certificates;
mod field;
mod networks;
mod text;

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde_json::Value;

pub use self::certificates::certificates;
use self::field::{list, text};
pub use self::networks::{JOIN_FIELD, OVN_CHECK, OvnNetwork, SERVICE_PREFIX, join_network_problem, ovn_networks};
pub use self::text::{is_name, is_no_proxy, proxy_url, repository, ssh_key_type};
use super::capabilities::{Capabilities, KNOWN, SETS};

/// The schemes of the URL of each proxy.
pub const HTTP_PROXY: &[&str] = &["http"];
pub const HTTPS_PROXY: &[&str] = &["http", "https"];

/// The longest name of a cluster: `*.apps` before it is a label of nine characters (`pkg/validate/validate.go`,
/// `ClusterName`).
const LONGEST_CLUSTER: usize = 63 - 9;

/// Why openshift-install rejects an install-config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Its place in the install-config, e.g. `networking.serviceNetwork`.
    pub field: &'static str,
    pub why: String,
    /// What a user can do about it, if that is more than to change the setting.
    pub hint: Option<&'static str>,
}

/// A rule of openshift-install.
struct Rule {
    field: &'static str,
    /// The first release that has the rule.
    since: (u32, u32),
    hint: Option<&'static str>,
    /// Returns a text for each violation. No text contains a secret.
    judge: fn(&Value, (u32, u32)) -> Vec<String>,
}

const ALWAYS: (u32, u32) = (4, 1);

const RULES: &[Rule] = &[
    // `validate.SSHPublicKey` of each line; `validateFIPSconfig`.
    rule("sshKey", ALWAYS, ssh_key),
    // `pkg/validate/validate.go`, `CABundle`.
    rule("additionalTrustBundle", ALWAYS, trust_bundle),
    rule("metadata.name", ALWAYS, name),
    rule("baseDomain", ALWAYS, domain),
    // `validateNetworking`; commit c781171412 of 2023-11-14, since which OpenShiftSDN is rejected, too.
    rule("networking.networkType", (4, 15), network_type),
    // `validateMachineNetwork`, `validateServiceNetwork`, `validateClusterNetwork`.
    rule("networking", ALWAYS, networks::overlaps),
    rule("networking.clusterNetwork", ALWAYS, networks::host_prefix),
    // `pkg/validate/validate.go`, `ServiceSubnetCIDR`; commit ac4f82b1db of 2021-07-14.
    rule("networking.serviceNetwork", (4, 9), networks::service_prefix),
    // `validateNetworkNotOverlapDefaultOVNSubnets`; commit 3aace091ca of 2025-02-03.
    Rule {
        hint: Some("set ovn_join_network to a network that nothing uses, such as 100.65.0.0/16"),
        ..rule("networking", networks::OVN_CHECK, networks::in_join_network)
    },
    Rule {
        hint: Some("use another network: openshift-install cannot move OVN-Kubernetes' own, not even by a manifest"),
        ..rule("networking", networks::OVN_CHECK, networks::in_other_networks)
    },
    // `pkg/types/installconfig.go`; commit 9b2cde583b of 2024-11-21, in 4.18.
    rule("networking.ovnKubernetesConfig", ALWAYS, networks::without_join_field),
    // `validateOVNIPv4InternalJoinSubnet`.
    rule(
        "networking.ovnKubernetesConfig",
        networks::JOIN_FIELD,
        networks::join_network,
    ),
    // `validateControlPlane`, `validateArbiter`, `pkg/types/validation/machinepools.go`.
    rule("controlPlane", ALWAYS, pools),
    // `pkg/validate/validate.go`, `ImagePullSecret`.
    rule("pullSecret", ALWAYS, pull_secret),
    // `validateProxy`.
    rule("proxy", ALWAYS, proxy),
    // `validateIPProxy`.
    rule("proxy", ALWAYS, proxy_address),
    // `validateImageContentSources`, `validateImageDigestSources`.
    rule("imageDigestSources", ALWAYS, mirrors),
    // `validateCapabilities`, and the requirements in `ValidateInstallConfig`.
    rule("capabilities", ALWAYS, capabilities),
];

const fn rule(field: &'static str, since: (u32, u32), judge: fn(&Value, (u32, u32)) -> Vec<String>) -> Rule {
    let hint = None;
    Rule {
        field,
        since,
        hint,
        judge,
    }
}

/// Why the openshift-install of a release rejects an install-config.
pub fn rejections(install_config: &Value, release: (u32, u32)) -> Vec<Rejection> {
    let of_release = RULES.iter().filter(|rule| rule.since <= release);
    let judged = of_release.flat_map(|Rule { field, hint, judge, .. }| {
        judge(install_config, release).into_iter().map(|why| Rejection {
            field,
            why,
            hint: *hint,
        })
    });
    judged.collect()
}

fn ssh_key(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let keys: Vec<_> = text(install_config, "/sshKey")
        .split('\n')
        .filter(|line| !line.is_empty())
        .collect();
    let mut found = Vec::new();
    if keys.iter().any(|line| ssh_key_type(line).is_none()) {
        found.push("a line is not a public key".to_owned());
    }
    let is_fips = install_config.get("fips").and_then(Value::as_bool) == Some(true);
    if let Some(kind) = keys.first().and_then(|line| ssh_key_type(line)).filter(|_| is_fips)
        && kind != "ssh-rsa"
        && !kind.starts_with("ecdsa-sha2-nistp")
    {
        found.push(format!("FIPS does not support keys of type {kind}"));
    }
    found
}

fn trust_bundle(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let bundle = text(install_config, "/additionalTrustBundle");
    if bundle.is_empty() {
        return Vec::new();
    }
    let after = bundle
        .rsplit_once("-----END CERTIFICATE-----")
        .and_then(|(_, line)| line.split_once('\n'));
    match certificates(bundle) {
        Err(why) => vec![format!("it {why}")],
        Ok(_) if after.is_some_and(|(_, after)| !after.is_empty()) => {
            vec!["text follows the last certificate".to_owned()]
        }
        Ok(_) => Vec::new(),
    }
}

fn name(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let name = text(install_config, "/metadata/name");
    match is_name(name) && name.len() <= LONGEST_CLUSTER {
        true => Vec::new(),
        false => vec![format!(
            "`{name}` is not a DNS name of at most {LONGEST_CLUSTER} characters"
        )],
    }
}

fn domain(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let domain = text(install_config, "/baseDomain");
    let whole = format!("{}.{domain}", text(install_config, "/metadata/name"));
    let whole = whole.strip_suffix('.').unwrap_or(&whole);
    match is_name(domain.strip_suffix('.').unwrap_or(domain)) && whole.len() <= 253 {
        true => Vec::new(),
        false => vec![format!("`{domain}` is not a DNS name")],
    }
}

fn network_type(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let kind = text(install_config, "/networking/networkType");
    let known = ["OpenShiftSDN", "Kuryr"]
        .iter()
        .find(|known| kind.eq_ignore_ascii_case(known));
    known
        .map(|known| format!("it no longer supports network_type={known}"))
        .into_iter()
        .collect()
}

fn pools(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let replicas = |pool: &str| {
        install_config
            .pointer(&format!("{pool}/replicas"))
            .and_then(Value::as_i64)
    };
    let mut found = Vec::new();
    if replicas("/controlPlane").is_some_and(|masters| masters < 1) {
        found.push("it requires a master".to_owned());
    }
    if install_config.get("arbiter").is_some() {
        if replicas("/controlPlane").is_none_or(|masters| masters < 2) {
            found.push("an arbiter requires at least two masters".to_owned());
        }
        if replicas("/arbiter").is_some_and(|arbiters| arbiters < 1) {
            found.push("an arbiter's pool requires a machine".to_owned());
        }
    }
    found
}

fn pull_secret(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let secret: Value = serde_json::from_str(text(install_config, "/pullSecret")).unwrap_or_default();
    let auths = secret.get("auths").and_then(Value::as_object);
    let is_usable = |entry: &Value| entry.get("auth").or(entry.get("credsStore")).is_some();
    match auths.is_some_and(|auths| !auths.is_empty() && auths.values().all(is_usable)) {
        true => Vec::new(),
        false => vec!["it has no `auths`, or one without `auth`".to_owned()],
    }
}

/// The proxies' URLs, each with its schemes.
fn proxies(install_config: &Value) -> impl Iterator<Item = (&'static str, &str, &'static [&'static str])> {
    let all = [("httpProxy", HTTP_PROXY), ("httpsProxy", HTTPS_PROXY)];
    all.into_iter().filter_map(|(key, schemes)| {
        let url = install_config.get("proxy")?.get(key)?.as_str()?;
        Some((key, url, schemes))
    })
}

fn proxy(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let Some(proxy) = install_config.get("proxy") else {
        return Vec::new();
    };
    let mut found: Vec<_> = proxies(install_config)
        .filter_map(|(key, url, schemes)| Some(format!("{key}: {}", proxy_url(url, schemes).err()?)))
        .collect();
    if proxies(install_config).next().is_none() {
        found.push("it has no proxy".to_owned());
    }
    let all = text(proxy, "/noProxy");
    if !all.is_empty() && all != "*" {
        let wrong = all
            .split(',')
            .filter(|entry| !is_no_proxy(entry.strip_suffix('.').unwrap_or(entry)));
        found.extend(wrong.map(|entry| format!("noProxy: `{entry}` is not a domain, an address or a network")));
    }
    found
}

fn proxy_address(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let mut found = Vec::new();
    for (key, url, schemes) in proxies(install_config) {
        let Some(ip) = proxy_url(url, schemes)
            .ok()
            .and_then(|host| host.parse::<IpAddr>().ok())
        else {
            continue;
        };
        for list in ["clusterNetwork", "serviceNetwork"] {
            if networks::of(install_config, list).any(|network| network.contains(ip)) {
                found.push(format!("{key}: {ip} is an address of {list}"));
            }
        }
        if networks::join(install_config).is_some_and(|network| IpNetwork::V4(network).contains(ip)) {
            found.push(format!("{key}: {ip} is an address of internalJoinSubnet"));
        }
    }
    found
}

fn mirrors(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let sources = ["/imageDigestSources", "/imageContentSources"]
        .into_iter()
        .flat_map(|key| list(install_config, key));
    let texts = sources.flat_map(|source| std::iter::once(&source["source"]).chain(list(source, "/mirrors")));
    let texts = texts.map(|text| text.as_str().unwrap_or_default());
    texts
        .filter_map(|text| Some(format!("`{text}` {}", repository(text).err()?)))
        .collect()
}

fn capabilities(install_config: &Value, release: (u32, u32)) -> Vec<String> {
    let Some(given) = install_config.get("capabilities") else {
        return Vec::new();
    };
    let baseline = text(given, "/baselineCapabilitySet");
    let additional = list(given, "/additionalEnabledCapabilities").filter_map(Value::as_str);
    let capabilities = Capabilities {
        baseline: (!baseline.is_empty()).then(|| baseline.to_owned()),
        additional: additional.map(str::to_owned).collect(),
    };
    let set = Some(baseline).filter(|set| !set.is_empty() && !SETS.contains(set));
    let is_known = |name: &str| KNOWN.iter().any(|(known, _)| *known == name);
    let names = capabilities
        .additional
        .iter()
        .map(String::as_str)
        .filter(|name| !is_known(name));
    let unknown = set.into_iter().chain(names).map(|name| format!("`{name}` is unknown"));
    unknown.chain(capabilities.problem(release)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_network_in_one_of_ovn_kubernetes_is_rejected_since_4_19() {
        let of = |machines: &str, join: Option<&str>| {
            let mut config = json!({"networking": {
                "networkType": "OVNKubernetes",
                "machineNetwork": [{"cidr": machines}],
                "clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}],
                "serviceNetwork": ["172.30.0.0/16"],
            }});
            if let Some(join) = join {
                config["networking"]["ovnKubernetesConfig"] = json!({"ipv4": {"internalJoinSubnet": join}});
            }
            config
        };
        let found = |machines, join, release| -> Vec<_> {
            let all = rejections(&of(machines, join), release).into_iter();
            all.filter(|found| found.field.starts_with("networking"))
                .map(|Rejection { why, hint, .. }| {
                    (why, hint.unwrap_or_default().split(' ').next().unwrap_or_default())
                })
                .collect()
        };
        let in_join = "machineNetwork: 100.64.7.0/24 overlaps with 100.64.0.0/16, the join network of OVN-Kubernetes";
        let in_transit =
            "machineNetwork: 100.88.7.0/24 overlaps with 100.88.0.0/16, the transit network of OVN-Kubernetes";
        for (machines, join, release, expected) in [
            ("100.64.7.0/24", None, (4, 18), vec![]),
            ("100.64.7.0/24", None, (4, 19), vec![(in_join, "set")]),
            ("100.64.7.0/24", Some("100.65.0.0/16"), (4, 19), vec![]),
            (
                "100.64.7.0/24",
                Some("100.64.0.0/17"),
                (4, 19),
                vec![("100.64.0.0/17 overlaps with machineNetwork 100.64.7.0/24", "")],
            ),
            (
                "100.88.7.0/24",
                Some("100.65.0.0/16"),
                (4, 19),
                vec![(in_transit, "use")],
            ),
            ("192.168.1.0/24", Some("100.65.0.0/22"), (4, 18), vec![]),
            (
                "192.168.1.0/24",
                Some("100.65.0.0/23"),
                (4, 18),
                vec![(
                    "100.65.0.0/23 is too small: clusterNetwork has subnets for 512 nodes",
                    "",
                )],
            ),
            (
                "192.168.1.0/24",
                Some("100.65.0.0/16"),
                (4, 17),
                vec![("it has no such field before 4.18", "")],
            ),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(why, hint)| (why.to_owned(), hint)).collect();
            assert_eq!(
                found(machines, join, release),
                expected,
                "{machines} {join:?} {release:?}"
            );
        }
    }
}
