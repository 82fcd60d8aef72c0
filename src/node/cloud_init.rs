//! cloud-init documents for the machines of pass one.

use serde_json::json;

use crate::backend::Payload;
use crate::cluster::Mac;
use crate::templates::{TemplateError, render};

/// Starts the line that a guest of pass one writes to its serial console. Its MAC and its IPv4 address follow.
pub const ADDRESS_LINE: &str = "ocpdeploy-address";

/// Starts the line that it writes there for each endpoint. The endpoint and `ok` or `failed` follow.
pub const EGRESS_LINE: &str = "ocpdeploy-egress";

/// The cloud-init documents of a machine of pass one: its name, its SSH keys, and the use of its MAC as DHCP
/// client id, as in CoreOS in pass two.
///
/// The machine tries to connect to each endpoint of `egress`: `HOST:PORT` of letters, digits, dots and hyphens.
pub fn throwaway_payload(
    host_name: &str,
    mac: Mac,
    ssh_keys: &[String],
    egress: &[String],
) -> Result<Payload, TemplateError> {
    let values = json!({"host_name": host_name, "mac": mac, "ssh_keys": ssh_keys, "address_line": ADDRESS_LINE,
        "egress_line": EGRESS_LINE, "egress": egress.join(" ")});
    Ok(Payload::CloudInit {
        user_data: render("user-data.yaml", include_str!("templates/user-data.yaml"), &values)?,
        meta_data: render("meta-data.yaml", include_str!("templates/meta-data.yaml"), &values)?,
        network_config: render(
            "network-config.yaml",
            include_str!("templates/network-config.yaml"),
            &values,
        )?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use serde_json::Value;

    use super::*;

    /// Parses documents with PyYAML, cloud-init's own parser; one process for all of them.
    fn python_reads(documents: &[String]) -> Vec<Value> {
        let script = "import json,sys,yaml\nprint(json.dumps([yaml.safe_load(d) for d in json.load(sys.stdin)]))";
        let mut python = std::process::Command::new("python3")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("this test needs PyYAML: apt-get install python3-yaml");
        let input = serde_json::to_vec(documents).unwrap();
        python.stdin.take().unwrap().write_all(&input).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "this test needs PyYAML: apt-get install python3-yaml"
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    const EGRESS: [&str; 2] = ["a.example.com:443", "b.example.com:5000"];

    fn documents(host_name: &str, keys: &[String]) -> [String; 3] {
        let mac = Mac([0x52, 0x54, 0, 1, 2, 3]);
        match throwaway_payload(host_name, mac, keys, &EGRESS.map(str::to_owned)).unwrap() {
            Payload::CloudInit {
                user_data,
                meta_data,
                network_config,
            } => [user_data, meta_data, network_config],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_documents_of_a_helper() {
        let keys = [
            "ssh-ed25519 AAAA me@home: \"x\"".to_owned(),
            "ssh-rsa BBBB # b".to_owned(),
        ];
        let [user_data, meta_data, network_config] = documents("lab-harvest-master-0", &keys);
        assert_eq!(
            user_data.lines().next(),
            Some("#cloud-config"),
            "cloud-init recognizes it by the first line"
        );
        let read = python_reads(&[user_data.clone(), meta_data, network_config]);
        assert_eq!(read[0]["hostname"], "lab-harvest-master-0");
        assert_eq!(read[0]["ssh_authorized_keys"], json!(keys));
        assert_eq!(
            read[1],
            json!({"instance-id": "lab-harvest-master-0", "local-hostname": "lab-harvest-master-0", "egress": EGRESS.join(" ")})
        );
        assert_eq!(
            read[2],
            json!({"version": 2, "ethernets": {"eth0": {
                "match": {"macaddress": "52:54:00:01:02:03"}, "set-name": "eth0",
                "dhcp4": true, "dhcp-identifier": "mac",
            }}})
        );
        for command in read[0]["bootcmd"].as_array().unwrap() {
            let checked = std::process::Command::new("sh")
                .args(["-n", "-c", command.as_str().unwrap()])
                .status();
            assert!(checked.unwrap().success(), "{command}");
        }
        // One word for each.
        assert!(
            user_data.contains("for endpoint in a.example.com:443 b.example.com:5000; do"),
            "{user_data}"
        );
        let without_keys = &python_reads(&documents("a", &[])[..1])[0];
        assert_eq!(
            without_keys.get("ssh_authorized_keys"),
            None,
            "cloud-init's schema forbids an empty list"
        );
    }

    #[test]
    fn any_text_is_read_back_unchanged() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let nasty = prop_oneof![
            any::<String>(),
            "[\"'\\\\{}%#:\n\r\t &*!|>@`\u{0}-\u{1f}\u{7f}-\u{a0}\u{2028}\u{2029}\u{feff}\u{fffe}😀{}-]{0,12}",
            Just("{{ ssh_keys }}".to_owned()),
            Just("\u{85}- a\n# b: {c}".to_owned()),
            Just("no".to_owned()),
            Just("0o17".to_owned()),
        ];
        let cases: Vec<(String, Vec<String>)> = (0..300)
            .map(|_| {
                let strategy = (nasty.clone(), prop::collection::vec(nasty.clone(), 0..3));
                strategy.new_tree(&mut runner).unwrap().current()
            })
            .collect();
        let texts: Vec<_> = cases.iter().flat_map(|(name, keys)| documents(name, keys)).collect();
        let read = python_reads(&texts);
        for (index, (name, keys)) in cases.iter().enumerate() {
            let [user_data, meta_data] = [&read[3 * index], &read[3 * index + 1]];
            assert_eq!(user_data["hostname"], json!(name));
            let read = user_data.get("ssh_authorized_keys").cloned();
            assert_eq!(read, (!keys.is_empty()).then(|| json!(keys)));
            assert_eq!(meta_data["local-hostname"], json!(name));
        }
    }
}
