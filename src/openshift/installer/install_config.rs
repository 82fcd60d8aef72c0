//! The input of openshift-install: install-config.yaml for platform `none`, on which it creates no machines.
//!
//! Its format: openshift/installer `pkg/types/installconfig.go`.

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::error::InstallerError;
use crate::cluster::{Capabilities, ClusterConfig, major_minor};
use crate::node::overlay::ssh_keys;
use crate::state::parameters::Parameters;

/// First release that lists mirrors under `imageDigestSources`.
const DIGEST_SOURCES: (u32, u32) = (4, 14);
/// First release with a setting to trust certificates everywhere, not only for proxies.
const BUNDLE_POLICY: (u32, u32) = (4, 12);
/// First release whose new clusters cannot use OpenShiftSDN.
const WITHOUT_SDN: (u32, u32) = (4, 15);

/// Rejects settings that this version of the installer does not support, before anything is created.
pub(super) fn check(config: &ClusterConfig, version: &str) -> Result<(), InstallerError> {
    let Some(release) = major_minor(version) else {
        return Ok(());
    };
    let refuse = |what: String| {
        Err(InstallerError::Unsupported(format!(
            "openshift-install {version} {what}"
        )))
    };
    let network_type = &config.networks.network_type;
    if network_type == "OpenShiftSDN" && release >= WITHOUT_SDN {
        return refuse("no longer supports network_type=OpenShiftSDN".to_owned());
    }
    match config.capabilities.problem(release) {
        Some(problem) => refuse(format!("rejects these settings: {problem}")),
        None => Ok(()),
    }
}

/// The whole file, pull secret included.
pub(super) fn install_config(config: &ClusterConfig, parameters: &Parameters, version: &str) -> Value {
    let networks = &config.networks;
    let release = major_minor(version).unwrap_or((4, 99));
    let mut install_config = json!({
        "apiVersion": "v1",
        "metadata": {"name": config.name},
        "baseDomain": config.domain,
        // Without workers the installer itself makes the masters schedulable.
        "controlPlane": {"name": "master", "replicas": config.masters},
        "compute": [{"name": "worker", "replicas": config.workers}],
        "networking": {
            "networkType": networks.network_type,
            "clusterNetwork": [{"cidr": networks.cluster_network, "hostPrefix": networks.host_prefix}],
            "serviceNetwork": [networks.service_network],
            "machineNetwork": [{"cidr": parameters.machine_network}],
        },
        "platform": {"none": {}},
        "pullSecret": config.pull_secret.expose_secret(),
    });
    let keys = ssh_keys(config);
    if !keys.is_empty() {
        install_config["sshKey"] = json!(keys.join("\n"));
    }
    if let Some(ca) = &config.ca {
        install_config["additionalTrustBundle"] = json!(ca);
        if release >= BUNDLE_POLICY {
            install_config["additionalTrustBundlePolicy"] = json!("Always");
        }
    }
    if let Some(proxy) = proxy(config) {
        install_config["proxy"] = proxy;
    }
    if !config.registry_mirrors.is_empty() {
        let key = match release >= DIGEST_SOURCES {
            true => "imageDigestSources",
            false => "imageContentSources",
        };
        install_config[key] = json!(config.registry_mirrors);
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

/// The installer adds the cluster's networks and the names of its API to `noProxy`, but not those of its applications, such
/// as `oauth-openshift.apps` (openshift/installer: `pkg/asset/manifests/proxy.go`, `createNoProxy`).
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
    let own = format!(".{}", config.id());
    if !no_proxy
        .iter()
        .any(|name| name.starts_with('.') && own.ends_with(name.as_str()))
    {
        no_proxy.push(own);
    }
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
    use crate::cluster::{Proxy, RegistryMirror};

    fn made(config: &ClusterConfig, version: &str) -> Value {
        install_config(config, &crate::state::parameters::tests::example(), version)
    }

    #[test]
    fn the_install_config_of_the_example() {
        let mut config = ClusterConfig::example();
        config.ca = Some("-----BEGIN".to_owned());
        let expected = json!({
            "apiVersion": "v1",
            "metadata": {"name": "lab"},
            "baseDomain": "example.com",
            "controlPlane": {"name": "master", "replicas": 3},
            "compute": [{"name": "worker", "replicas": 2}],
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
        }
    }

    #[test]
    fn what_lies_between_the_nodes_and_the_world_is_reported_in_the_words_of_the_version() {
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

    #[test]
    fn settings_that_a_version_does_not_know_are_refused() {
        let sdn = |config: &mut ClusterConfig| config.networks.network_type = "OpenShiftSDN".to_owned();
        let set = |config: &mut ClusterConfig| config.capabilities.baseline = Some("v4.18".to_owned());
        type Change = fn(&mut ClusterConfig);
        let cases: [(Change, &str, bool); 6] = [
            (sdn, "4.14.9", true),
            (sdn, "4.15.0", false),
            (set, "4.19.0-rc.1", true),
            (set, "4.17.0", false),
            (set, "4.10.0", false),
            (|_| {}, "4.1.0", true),
        ];
        for (change, version, fits) in cases {
            let mut config = ClusterConfig::example();
            change(&mut config);
            assert_eq!(check(&config, version).is_ok(), fits, "{version}");
        }
    }
}
