//! What ocpdeploy adds to a node's Ignition: only what is the node's own. What a whole role shares is a MachineConfig's business.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Major, Version};
use crate::cluster::{ClusterConfig, NodeName};
use crate::parameters::Parameters;

/// A file of the overlay, owned by root, in place of any that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayFile {
    pub path: &'static str,
    pub mode: u32,
    pub content: String,
}

/// The files that a node gets from us.
pub fn files(config: &ClusterConfig, parameters: &Parameters, node: &NodeName) -> Vec<OverlayFile> {
    // kubelet and etcd would bind a VIP that happens to be on the node. The hint is taken for a VIP: its
    // subnet's other address is chosen. The first spelling is read from 4.8, the second from 4.12.
    let hint = format!("KUBELET_NODEIP_HINT={ip}\nNODEIP_HINT={ip}\n", ip = parameters.api_ip);
    vec![
        OverlayFile {
            path: "/etc/hostname",
            mode: 0o644,
            content: config.id().fqdn(node.as_str()) + "\n",
        },
        OverlayFile {
            path: "/etc/default/nodeip-configuration",
            mode: 0o644,
            content: hint,
        },
    ]
}

/// Our part of a node's config: the files, and the ssh keys of `core`.
///
/// It is written at the installer's version, but with words of 3.0 only, or of 2.2.
pub fn overlay(config: &ClusterConfig, parameters: &Parameters, node: &NodeName, version: Version) -> Value {
    let files: Vec<_> = files(config, parameters, node)
        .iter()
        .map(|file| file_entry(file, version.major))
        .collect();
    let mut overlay = Map::new();
    overlay.insert("ignition".to_owned(), json!({"version": version.to_string()}));
    let keys = ssh_keys(config);
    if !keys.is_empty() {
        let core = json!({"name": "core", "sshAuthorizedKeys": keys});
        overlay.insert("passwd".to_owned(), json!({"users": [core]}));
    }
    overlay.insert("storage".to_owned(), json!({"files": files}));
    Value::Object(overlay)
}

/// The keys that may log in, each once: a key twice in one list is an error to Ignition.
pub fn ssh_keys(config: &ClusterConfig) -> Vec<&str> {
    let mut keys = Vec::new();
    for key in config.ssh_keys.iter().map(|key| key.trim()) {
        if !key.is_empty() && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn file_entry(file: &OverlayFile, major: Major) -> Value {
    let mut entry = json!({
        "path": file.path,
        "overwrite": true,
        "user": {"name": "root"},
        // Said aloud, or an entry for this path beneath ours would lend its own compression to our plain text.
        "contents": {"compression": "", "source": data_url(file.content.as_bytes())},
        "mode": file.mode,
    });
    if major == Major::Two {
        entry["filesystem"] = json!("root");
    }
    entry
}

/// Bytes as a URL in the installer's own form: base64, padded.
pub fn data_url(bytes: &[u8]) -> String {
    format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: Version, keys: &[&str]) -> Value {
        let mut config = ClusterConfig::example();
        config.ssh_keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let node = NodeName::node(crate::cluster::Role::Master, 0);
        overlay(&config, &crate::parameters::tests::example(), &node, version)
    }

    const V3: Version = Version {
        major: Major::Three,
        minor: 2,
        patch: 0,
    };
    const V2: Version = Version {
        major: Major::Two,
        minor: 2,
        patch: 0,
    };

    #[test]
    fn the_overlay_of_a_master() {
        let expected = json!({
            "ignition": {"version": "3.2.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a", "ssh-rsa BBBB b"]}]},
            "storage": {"files": [
                {
                    "path": "/etc/hostname", "overwrite": true, "user": {"name": "root"},
                    "contents": {"compression": "", "source": data_url(b"master-0.lab.example.com\n")},
                    "mode": 420,
                },
                {
                    "path": "/etc/default/nodeip-configuration", "overwrite": true, "user": {"name": "root"},
                    "contents": {"compression": "", "source":
                        data_url(b"KUBELET_NODEIP_HINT=192.168.122.10\nNODEIP_HINT=192.168.122.10\n")},
                    "mode": 420,
                },
            ]},
        });
        let keys = ["ssh-ed25519 AAAA a", " ssh-ed25519 AAAA a\n", "ssh-rsa BBBB b", ""];
        // As text: the order counts, since the same input must give the same bytes.
        assert_eq!(at(V3, &keys).to_string(), expected.to_string());
    }

    #[test]
    fn spec_2_names_the_file_system() {
        let (two, three) = (at(V2, &[]), at(V3, &[]));
        assert_eq!(two["ignition"]["version"], "2.2.0");
        assert_eq!(two.get("passwd"), None);
        let files = two["storage"]["files"].as_array().unwrap();
        assert!(files.iter().all(|file| file["filesystem"] == "root"), "{files:#?}");
        let files = three["storage"]["files"].as_array().unwrap();
        assert!(files.iter().all(|file| file.get("filesystem").is_none()), "{files:#?}");
    }

    #[test]
    fn data_urls_are_padded() {
        for (bytes, url) in [
            ("", ""),
            ("a", "YQ=="),
            ("ab", "YWI="),
            ("abc", "YWJj"),
            ("\u{fe}?", "w74/"),
        ] {
            assert_eq!(
                data_url(bytes.as_bytes()),
                format!("data:text/plain;charset=utf-8;base64,{url}")
            );
        }
    }
}
