//! The input of openshift-install: install-config.yaml for platform `none`, on which it creates no machines.
//!
//! Its format: openshift/installer `pkg/types/installconfig.go`.

use ipnetwork::IpNetwork;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::backend::Finding;
use crate::cluster::{Capabilities, ClusterConfig, IPV6_HOST_PREFIX, Ipv6Settings, limits, major_minor};
use crate::node::overlay::ssh_keys;

/// First release with an architecture of machine pools that is known to accept it.
const ARCHITECTURE: (u32, u32) = (4, 5);
/// First release that lists mirrors under `imageDigestSources`.
const DIGEST_SOURCES: (u32, u32) = (4, 14);
/// First release with a setting to trust certificates everywhere, not only for proxies.
const BUNDLE_POLICY: (u32, u32) = (4, 12);
/// Why this version of the installer, or the cluster, would reject the settings; empty if they are accepted.
pub(super) fn check(config: &ClusterConfig, machine_network: IpNetwork, version: &str) -> Vec<Finding> {
    let Some(release) = major_minor(version) else {
        return Vec::new();
    };
    let hint = "change the setting, or choose another version";
    let rejections = limits::rejections(&install_config(config, machine_network, version), release).into_iter();
    let mut found: Vec<_> = rejections
        .map(|rejected| {
            let text = format!(
                "openshift-install {version} rejects {}: {}",
                rejected.field, rejected.why
            );
            Finding::fail(text).hint(rejected.hint.unwrap_or(hint))
        })
        .collect();
    if let Some(problem) = config.capabilities.gated(release) {
        found.push(Finding::fail(format!("OpenShift {version}: {problem}")).hint("remove it"));
    }
    found
}

/// The whole file, pull secret included.
pub(super) fn install_config(config: &ClusterConfig, machine_network: IpNetwork, version: &str) -> Value {
    let networks = &config.networks;
    let release = major_minor(version).unwrap_or((4, 99));
    let mut install_config = json!({
        "apiVersion": "v1",
        "metadata": {"name": config.name},
        "baseDomain": config.domain,
        // Without workers the installer itself makes the masters schedulable.
        "controlPlane": {"name": "master", "replicas": config.masters},
        "compute": [{"name": "worker", "replicas": config.all_workers()}],
        "networking": {
            "networkType": networks.network_type,
            "clusterNetwork": [{"cidr": networks.cluster_network, "hostPrefix": networks.host_prefix}],
            "serviceNetwork": [networks.service_network],
            "machineNetwork": [{"cidr": machine_network}],
        },
        "platform": {"none": {}},
        "pullSecret": config.node_pull_secret().expose_secret(),
    });
    if release >= ARCHITECTURE {
        // That of the release is the default, and a release for several has none. All pools must have the same; nodes of
        // another architecture join as workers (`pkg/types/validation/installconfig.go`, `validateCompute`).
        for pool in ["/controlPlane", "/compute/0"] {
            if let Some(pool) = install_config.pointer_mut(pool) {
                pool["architecture"] = json!(config.arch.go());
            }
        }
    }
    if config.arbiter {
        // The installer accepts no other name (`pkg/types/validation/installconfig.go`, `validateArbiter`).
        install_config["arbiter"] = json!({"name": "arbiter", "replicas": 1});
    }
    if let Some(join) = networks.ovn_join_network {
        install_config["networking"]["ovnKubernetesConfig"] = json!({"ipv4": {"internalJoinSubnet": join}});
    }
    if let Some(ipv6) = &config.ipv6 {
        add_ipv6(&mut install_config["networking"], ipv6);
    }
    let keys = ssh_keys(config);
    if !keys.is_empty() {
        install_config["sshKey"] = json!(keys.join("\n"));
    }
    if let Some(ca) = config.trusted() {
        install_config["additionalTrustBundle"] = json!(ca);
        if release >= BUNDLE_POLICY {
            install_config["additionalTrustBundlePolicy"] = json!("Always");
        }
    }
    if let Some(proxy) = proxy(config) {
        install_config["proxy"] = proxy;
    }
    let mirrors = config.mirrors();
    if !mirrors.is_empty() {
        let key = match release >= DIGEST_SOURCES {
            true => "imageDigestSources",
            false => "imageContentSources",
        };
        install_config[key] = json!(mirrors);
    }
    if config.fips {
        install_config["fips"] = json!(true);
    }
    let capabilities = &config.capabilities;
    if *capabilities != Capabilities::default() {
        // Not every installer has a default for the set.
        install_config["capabilities"] = json!({
            "baselineCapabilitySet": capabilities.baseline.as_deref().unwrap_or("vCurrent"),
            "additionalEnabledCapabilities": capabilities.additional,
        });
    }
    install_config
}

/// Adds the second item of each list. On platform `none` only later installers accept IPv6 first (openshift/installer:
/// `pkg/types/validation/installconfig.go`, `validateNetworkingIPVersion`).
fn add_ipv6(networking: &mut Value, ipv6: &Ipv6Settings) {
    for (list, item) in [
        (
            "clusterNetwork",
            json!({"cidr": ipv6.cluster_network, "hostPrefix": IPV6_HOST_PREFIX}),
        ),
        ("serviceNetwork", json!(ipv6.service_network)),
        ("machineNetwork", json!({"cidr": ipv6.machine_network})),
    ] {
        if let Some(items) = networking[list].as_array_mut() {
            items.push(item);
        }
    }
}

/// The installer adds the cluster's networks and the names of its API to `noProxy`, but not those of its applications,
/// such as `oauth-openshift.apps` (openshift/installer: `pkg/asset/manifests/proxy.go`, `createNoProxy`).
fn proxy(config: &ClusterConfig) -> Option<Value> {
    let proxy = &config.proxy;
    let mut value = json!({});
    for (key, url) in [("httpProxy", &proxy.http), ("httpsProxy", &proxy.https)] {
        if let Some(url) = url {
            value[key] = json!(url.expose_secret());
        }
    }
    if value.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    let mut no_proxy = proxy.no_proxy.clone();
    let own = format!(".{}", config.cluster_domain());
    if !no_proxy
        .iter()
        .any(|name| name.starts_with('.') && own.ends_with(name.as_str()))
    {
        no_proxy.push(own);
    }
    no_proxy.extend(config.registry_cache.iter().map(|cache| cache.address.to_string()));
    value["noProxy"] = json!(no_proxy.join(","));
    Some(value)
}

/// The same without secrets, to be stored: the installer deletes the file that it reads.
pub(super) fn without_secrets(mut install_config: Value) -> Value {
    if let Some(fields) = install_config.as_object_mut() {
        fields.shift_remove("pullSecret");
    }
    for key in ["httpProxy", "httpsProxy"] {
        if let Some(url) = install_config.pointer_mut(&format!("/proxy/{key}"))
            && let Some((scheme, password, host)) = url.as_str().and_then(parts)
            && !password.is_empty()
        {
            *url = json!(format!("{scheme}://***@{host}"));
        }
    }
    install_config
}

/// Scheme, user with password, and the rest of a URL.
fn parts(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let at = rest[..end].rfind('@');
    Some(match at {
        Some(at) => (scheme, &rest[..at], &rest[at + 1..]),
        None => (scheme, "", rest),
    })
}

/// Passwords of proxies, which must not be displayed.
pub(super) fn proxy_secrets(config: &ClusterConfig) -> Vec<String> {
    let urls = [&config.proxy.http, &config.proxy.https].into_iter().flatten();
    let password = |url: &SecretString| {
        let (_, user, _) = parts(url.expose_secret())?;
        user.split_once(':').map(|(_, password)| password.to_owned())
    };
    urls.filter_map(password).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Architecture, NodeCache, Proxy, RegistryMirror};

    fn made(config: &ClusterConfig, version: &str) -> Value {
        install_config(config, "192.168.122.0/24".parse().unwrap(), version)
    }

    #[test]
    fn the_install_config_of_the_example() {
        let mut config = ClusterConfig::example();
        config.ca = Some("-----BEGIN".to_owned());
        let expected = json!({
            "apiVersion": "v1",
            "metadata": {"name": "lab"},
            "baseDomain": "example.com",
            "controlPlane": {"name": "master", "replicas": 3, "architecture": "amd64"},
            "compute": [{"name": "worker", "replicas": 2, "architecture": "amd64"}],
            "networking": {
                "networkType": "OVNKubernetes",
                "clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}],
                "serviceNetwork": ["172.30.0.0/16"],
                "machineNetwork": [{"cidr": "192.168.122.0/24"}],
            },
            "platform": {"none": {}},
            "pullSecret": "{\"auths\":{}}",
            "sshKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJZ lab",
            "additionalTrustBundle": "-----BEGIN",
            "additionalTrustBundlePolicy": "Always",
        });
        assert_eq!(made(&config, "4.19.0"), expected);
        assert_eq!(made(&config, "4.5.0").get("additionalTrustBundlePolicy"), None);
        for (masters, workers) in [(1, 0), (3, 0)] {
            (config.masters, config.workers) = (masters, workers);
            let made = made(&config, "4.19.0");
            assert_eq!(made["controlPlane"]["replicas"], masters);
            assert_eq!(made["compute"][0]["replicas"], workers);
            assert_eq!(made.get("arbiter"), None);
        }
        config.arch = Architecture::Aarch64;
        let arm = made(&config, "4.19.0");
        assert_eq!(
            (&arm["controlPlane"]["architecture"], &arm["compute"][0]["architecture"]),
            (&json!("arm64"), &json!("arm64"))
        );
        (config.masters, config.arbiter) = (2, true);
        let made = made(&config, "4.22.0");
        assert_eq!(made["arbiter"], json!({"name": "arbiter", "replicas": 1}));
        assert_eq!(made["controlPlane"]["replicas"], 2);
    }

    #[test]
    fn two_address_families_are_listed_with_ipv4_first() {
        let mut config = ClusterConfig::example();
        config.ipv6 = Some(Ipv6Settings {
            machine_network: "fd00:1::/64".parse().unwrap(),
            cluster_network: "fd01::/48".parse().unwrap(),
            service_network: "fd02::/112".parse().unwrap(),
            gateway: None,
            api_ip: None,
            ingress_ip: None,
        });
        assert_eq!(
            made(&config, "4.19.0")["networking"],
            json!({
                "networkType": "OVNKubernetes",
                "clusterNetwork": [
                    {"cidr": "10.128.0.0/14", "hostPrefix": 23},
                    {"cidr": "fd01::/48", "hostPrefix": 64},
                ],
                "serviceNetwork": ["172.30.0.0/16", "fd02::/112"],
                "machineNetwork": [{"cidr": "192.168.122.0/24"}, {"cidr": "fd00:1::/64"}],
            })
        );
    }

    #[test]
    fn proxies_mirrors_and_certificates_have_the_fields_of_the_version() {
        let mut config = ClusterConfig::example();
        config.proxy = Proxy {
            http: Some("http://me:p%40ss@proxy.example.com:3128/".into()),
            https: Some("http://proxy.example.com:3128".into()),
            no_proxy: vec![".example.com".to_owned(), "10.0.0.0/8".to_owned()],
        };
        config.registry_mirrors = vec![RegistryMirror {
            source: "registry.example.com/ocp".to_owned(),
            mirrors: vec!["a.example.com/ocp".to_owned(), "b.example.com/ocp".to_owned()],
        }];
        config.fips = true;
        config.capabilities = Capabilities {
            baseline: Some("None".to_owned()),
            additional: vec!["Console".to_owned()],
        };
        let new = made(&config, "4.19.0");
        let old = made(&config, "4.10.3");
        let mirrors =
            json!([{"source": "registry.example.com/ocp", "mirrors": ["a.example.com/ocp", "b.example.com/ocp"]}]);
        assert_eq!(
            (&new["imageDigestSources"], new.get("imageContentSources")),
            (&mirrors, None)
        );
        assert_eq!(
            (&old["imageContentSources"], old.get("imageDigestSources")),
            (&mirrors, None)
        );
        assert_eq!(
            new["proxy"],
            json!({"httpProxy": "http://me:p%40ss@proxy.example.com:3128/",
                "httpsProxy": "http://proxy.example.com:3128", "noProxy": ".example.com,10.0.0.0/8"})
        );
        // The cluster's own names, unless they are part of another entry.
        config.proxy.no_proxy = vec!["10.0.0.0/8".to_owned()];
        assert_eq!(
            made(&config, "4.19.0")["proxy"]["noProxy"],
            "10.0.0.0/8,.lab.example.com"
        );
        assert_eq!(new["fips"], true);
        assert_eq!(
            new["capabilities"],
            json!({"baselineCapabilitySet": "None", "additionalEnabledCapabilities": ["Console"]})
        );
        let kept = without_secrets(new);
        assert_eq!(kept["proxy"]["httpProxy"], "http://***@proxy.example.com:3128/");
        let text = kept.to_string();
        assert!(!text.contains("p%40ss") && !text.contains("auths"), "{text}");
        assert_eq!(proxy_secrets(&config), ["p%40ss"]);
    }

    /// Nodes try the cache, then the source: AllowContactingSource is the default of `mirrorSourcePolicy`
    /// (openshift/machine-config-operator: `pkg/controller/container-runtime-config/helpers.go`), and it is not set.
    #[test]
    fn nodes_pull_through_the_cache_and_from_the_source_without_it() {
        let mut config = ClusterConfig::example();
        config.proxy.https = Some("http://proxy.example.com:3128".into());
        config.registry_cache = Some(NodeCache {
            address: [192, 0, 2, 1].into(),
            ca: "-----BEGIN".to_owned(),
            user: "ocpdeploy".to_owned(),
            password: "secret".into(),
            mirrors: vec![RegistryMirror {
                source: "quay.io/okd".to_owned(),
                mirrors: vec!["192.0.2.1:5443/okd".to_owned()],
            }],
        });
        let made = made(&config, "4.19.0");
        assert_eq!(
            made["imageDigestSources"],
            json!([{"source": "quay.io/okd", "mirrors": ["192.0.2.1:5443/okd"]}])
        );
        assert_eq!(made["additionalTrustBundle"], "-----BEGIN");
        assert_eq!(
            made["pullSecret"],
            r#"{"auths":{"192.0.2.1:5443":{"auth":"b2NwZGVwbG95OnNlY3JldA=="}}}"#
        );
        // Nodes reach the cache without the proxy, because the proxy would not reach it.
        assert_eq!(made["proxy"]["noProxy"], ".lab.example.com,192.0.2.1");
    }

    #[test]
    fn settings_that_a_version_does_not_support_are_rejected() {
        let sdn = |config: &mut ClusterConfig| config.networks.network_type = "OpenShiftSDN".to_owned();
        let set = |config: &mut ClusterConfig| config.capabilities.baseline = Some("v4.18".to_owned());
        let join = |config: &mut ClusterConfig| {
            config.networks.ovn_join_network = Some("100.65.0.0/16".parse().unwrap());
        };
        let gated = |config: &mut ClusterConfig| {
            config.capabilities.additional = vec!["ClusterAPI".to_owned(), "CompatibilityRequirements".to_owned()];
        };
        type Change = fn(&mut ClusterConfig);
        let cases: [(Change, &str, Option<&str>); 9] = [
            (sdn, "4.14.9", None),
            (
                sdn,
                "4.15.0",
                Some(
                    "openshift-install 4.15.0 rejects networking.networkType: it no longer supports \
                     network_type=OpenShiftSDN",
                ),
            ),
            (set, "4.19.0-rc.1", None),
            (
                set,
                "4.17.0",
                Some("openshift-install 4.17.0 rejects capabilities: capabilities=v4.18 requires 4.18"),
            ),
            (
                set,
                "4.10.0",
                Some("openshift-install 4.10.0 rejects capabilities: the setting capabilities requires 4.11"),
            ),
            (join, "4.18.0", None),
            (
                join,
                "4.17.0",
                Some(
                    "openshift-install 4.17.0 rejects networking.ovnKubernetesConfig: it has no such field before 4.18",
                ),
            ),
            (
                gated,
                "4.23.0",
                Some("OpenShift 4.23.0: capability ClusterAPI requires the feature set TechPreviewNoUpgrade"),
            ),
            (|_| {}, "4.6.0", None),
        ];
        for (change, version, expected) in cases {
            let mut config = ClusterConfig::example();
            config.pull_secret = r#"{"auths":{"quay.io":{"auth":"YTpi"}}}"#.into();
            config.ssh_keys.clear();
            change(&mut config);
            let found = check(&config, "192.168.122.0/24".parse().unwrap(), version);
            let texts: Vec<_> = found.iter().map(|finding| finding.text.as_str()).collect();
            assert_eq!(texts, Vec::from_iter(expected), "{version}");
        }
    }
}
