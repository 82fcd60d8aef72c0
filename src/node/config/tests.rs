use proptest::prelude::*;

use super::*;
use crate::cluster::NodeSpec;
use crate::ignition::contents::{self, Contents};
use crate::ignition::origins::merge_layers;
use crate::ignition::unpack::unpack;

const URL: &str = "https://api-int.lab.example.com:22623/config/";

/// A cluster's files in the form of an installer with spec 3.2.
struct Files {
    config: ClusterConfig,
    parameters: Parameters,
    installer: BTreeMap<Role, Value>,
    fragments: Vec<Fragment>,
}

impl Files {
    fn new() -> Self {
        let pointer = |role: Role| {
            json!({"ignition": {
                "config": {"merge": [{"source": format!("{URL}{role}")}]},
                "later": {"kept": [1, null]},
                "version": "3.2.0",
            }})
        };
        let bootstrap = json!({
            "ignition": {"version": "3.2.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa AAAA installer"]}]},
            "storage": {"files": [
                {"path": "/etc/motd", "append": [{"source": "data:,motd"}]},
                {"path": "/usr/local/bin/bootkube.sh", "mode": 365, "contents": {"source": "data:,x"}},
            ]},
            "systemd": {"units": [{"name": "kubelet.service", "enabled": true, "contents": "[Service]\nExecStart=/x\n"}]},
            "later": 1,
        });
        Self {
            config: ClusterConfig::example(),
            parameters: crate::state::parameters::tests::example(),
            installer: BTreeMap::from([
                (Role::Bootstrap, bootstrap),
                (Role::Master, pointer(Role::Master)),
                (Role::Worker, pointer(Role::Worker)),
            ]),
            fragments: Vec::new(),
        }
    }

    fn with(mut self, name: &str, role: Option<Role>, content: Value) -> Self {
        self.fragments.push(Fragment {
            origin: format!("ignition_extra: {name}"),
            role,
            content: content.to_string().into_bytes(),
        });
        self
    }

    /// Adds a manifest to bootstrap.ign.
    fn manifest(mut self, name: &str, text: &str) -> Self {
        let path = format!("/opt/openshift/openshift/{name}");
        let file = json!({"path": path, "contents": {"source": data_url(text.as_bytes())}});
        let files = &mut self.installer.get_mut(&Role::Bootstrap).unwrap()["storage"]["files"];
        files.as_array_mut().unwrap().push(file);
        self
    }

    fn all(&self) -> Result<NodeConfigs<'_>, IgnitionError> {
        let bytes = self
            .installer
            .iter()
            .map(|(role, config)| (*role, config.to_string().into_bytes()));
        NodeConfigs::new(
            &self.config,
            &self.parameters,
            &bytes.collect(),
            &self.fragments,
            &HostParts::default(),
        )
    }

    fn node(&self, role: Role) -> Result<Value, IgnitionError> {
        let bytes = self.all()?.node_config(&NodeName::node(role, 0), role)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    #[track_caller]
    fn refused(&self, role: Role) -> String {
        self.node(role).expect_err("it is rejected").to_string()
    }
}

fn file(path: &str) -> Value {
    json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": path, "contents": {"source": "data:,mine"}}]}})
}

fn unit(unit: Value) -> Value {
    json!({"ignition": {"version": "3.2.0"}, "systemd": {"units": [unit]}})
}

/// The config in the last entry of a pointer.
fn last(pointer: &Value) -> Value {
    let entry = pointer["ignition"]["config"]["merge"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    let Ok(Contents::Bytes(bytes)) = contents::of(entry) else {
        panic!("{entry}")
    };
    serde_json::from_slice(&bytes).unwrap()
}

fn paths(config: &Value) -> Vec<&str> {
    let files = config["storage"]["files"].as_array().unwrap();
    files.iter().map(|file| file["path"].as_str().unwrap()).collect()
}

const OWN: [&str; 2] = ["/etc/hostname", "/etc/default/nodeip-configuration"];

#[test]
fn a_pointer_keeps_the_installers_entries_and_merges_the_rest_last() {
    let mut files =
        Files::new()
            .with("w.ign", Some(Role::Worker), file("/etc/w"))
            .with("all.ign", None, file("/etc/all"));
    for (mcs, source) in [
        (Mcs::Tls, format!("{URL}worker")),
        (Mcs::Http, "http://192.168.122.10:22624/config/worker".to_owned()),
    ] {
        files.config.mcs = mcs;
        let pointer = files.node(Role::Worker).unwrap();
        assert_eq!(paths(&last(&pointer)), [&["/etc/w", "/etc/all"], &OWN[..]].concat());
        let mut expected = files.installer[&Role::Worker].clone();
        let ours = pointer["ignition"]["config"]["merge"][1].clone();
        expected["ignition"]["config"]["merge"] = json!([{"source": source}, ours]);
        // Compared as text, because the order of keys matters.
        assert_eq!(pointer.to_string(), expected.to_string());
    }
    assert_eq!(
        paths(&last(&files.node(Role::Master).unwrap())),
        [&["/etc/all"], &OWN[..]].concat()
    );
}

#[test]
fn bootstrap_ign_is_merged_into_one_config() {
    let dropin = json!({"name": "kubelet.service", "dropins": [{"name": "50-mine.conf", "contents": "[Service]\n"}]});
    let files = Files::new()
        .with("b.ign", Some(Role::Bootstrap), unit(dropin))
        .with("all.ign", None, file("/etc/all"));
    let merged = files.node(Role::Bootstrap).unwrap();
    assert_eq!(
        paths(&merged),
        [&["/etc/motd", "/usr/local/bin/bootkube.sh", "/etc/all"], &OWN[..]].concat()
    );
    let kubelet = &merged["systemd"]["units"][0];
    assert_eq!(kubelet["enabled"], true);
    assert_eq!(kubelet["dropins"][0]["name"], "50-mine.conf");
    let keys = ["ssh-rsa AAAA installer", &files.config.ssh_keys[0]];
    assert_eq!(
        merged["passwd"]["users"],
        json!([{"name": "core", "sshAuthorizedKeys": keys}])
    );
    assert_eq!(merged["later"], 1);
}

#[test]
fn the_layers_of_a_node_make_its_config() {
    let files = Files::new()
        .with("all.ign", None, file("/etc/all"))
        .with("m.ign", Some(Role::Master), file("/etc/m"));
    let all = files.all().unwrap();
    let kept = serde_json::to_vec(&all.kept_layers().unwrap()).unwrap();
    let kept = KeptLayers::parse(&kept).unwrap().unwrap();
    for NodeSpec { name: node, role, .. } in files.config.nodes() {
        let layers = all.layers(&node, role).unwrap();
        let origins: Vec<_> = layers.iter().map(|layer| layer.origin.clone()).collect();
        let mut expected = vec![format!("installer's {role}.ign"), "ignition_extra: all.ign".to_owned()];
        if role == Role::Master {
            expected.push("ignition_extra: m.ign".to_owned());
        }
        expected.push("ocpdeploy".to_owned());
        assert_eq!(origins, expected, "{node}");

        let config: Value = serde_json::from_slice(&all.node_config(&node, role).unwrap()).unwrap();
        let unpacked = unpack("node.ign", &config).unwrap().layers;
        assert_eq!(
            merge_layers(&unpacked).unwrap(),
            merge_layers(&layers).unwrap(),
            "{node}"
        );

        let kept = kept.layers(&node, role).unwrap();
        let pairs = |layers: &[Layer]| -> Vec<_> {
            layers
                .iter()
                .map(|layer| (layer.origin.clone(), layer.config.clone()))
                .collect()
        };
        assert_eq!(pairs(&kept), pairs(&layers[1..]), "{node}");
    }
    assert!(kept.layers(&NodeName::node(Role::Worker, 7), Role::Worker).is_none());
    let newer = br#"{"v": 2, "roles": {}, "nodes": {}}"#;
    assert!(KeptLayers::parse(newer).unwrap().is_none());
}

#[test]
fn two_authors_cannot_set_the_same_entry() {
    let mc = "kind: MachineConfig\nmetadata:\n  name: 99-worker-y\n  labels: {machineconfiguration.openshift.io/role: worker}\n\
        spec:\n  config:\n    ignition: {version: 3.2.0}\n    storage:\n      files: [{path: /etc/x}, {path: /etc/chrony.conf}]\n";
    let core = json!({"ignition": {"version": "3.2.0"}, "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa AAAA x"]}]}});
    let with = |content: Value| Files::new().manifest("99_y.yaml", mc).with("my.ign", None, content);
    for (content, role, words) in [
        (
            file("/etc/hostname"),
            Role::Worker,
            "conflict: file /etc/hostname is set by ignition_extra: my.ign and by ocpdeploy",
        ),
        (
            file("/etc/motd"),
            Role::Bootstrap,
            "conflict: file /etc/motd is set by installer's bootstrap.ign and by ignition_extra: my.ign",
        ),
        (
            unit(json!({"name": "kubelet.service", "mask": true})),
            Role::Bootstrap,
            "conflict: unit kubelet.service is set by installer's bootstrap.ign and by ignition_extra: my.ign",
        ),
        (
            file("/etc/x"),
            Role::Worker,
            "conflict: file /etc/x is set by MachineConfig 99-worker-y (openshift/99_y.yaml) and by ignition_extra: my.ign",
        ),
    ] {
        assert_eq!(with(content).refused(role), words);
    }
    with(core).node(Role::Bootstrap).unwrap();
    // A MachineConfig for workers does not affect masters.
    let files = Files::new()
        .manifest("99_y.yaml", mc)
        .with("my.ign", Some(Role::Master), file("/etc/x"));
    files.node(Role::Master).unwrap();
    // It also conflicts with our own files.
    let files = Files::new().manifest("99_h.yaml", &mc.replace("/etc/x", "/etc/hostname"));
    let words =
        "conflict: file /etc/hostname is set by MachineConfig 99-worker-y (openshift/99_h.yaml) and by ocpdeploy";
    assert_eq!(files.refused(Role::Worker), words);
    // Two configs of the user may overlap: the later one is effective.
    let mut second = file("/etc/u");
    second["storage"]["files"][0]["contents"]["source"] = json!("data:,second");
    let files = Files::new()
        .with("a.ign", None, file("/etc/u"))
        .with("b.ign", None, second);
    let own = last(&files.node(Role::Worker).unwrap());
    assert_eq!(own["storage"]["files"][0]["contents"]["source"], "data:,second");
}

#[test]
fn an_invalid_fragment_is_reported_with_its_location() {
    let text = |text: &str| Fragment {
        origin: "ignition_extra: my.ign".to_owned(),
        role: None,
        content: text.as_bytes().to_vec(),
    };
    for (fragment, words) in [
        ("{\n\"ignition\":", "ignition_extra: my.ign: line 2, column"),
        ("{}", "ignition_extra: my.ign: the config has no Ignition version"),
        (
            r#"{"ignition": {"version": "3.2"}}"#,
            "ignition_extra: my.ign: unsupported Ignition version `3.2`",
        ),
        (
            r#"{"ignition": {"version": "3.2.0", "config": {"merge": [{"source": "http://x/y"}]}}}"#,
            "ignition_extra: my.ign: $.ignition.config: a config that is fetched",
        ),
    ] {
        let error = check_fragments(&[text(fragment)]).unwrap_err().to_string();
        // File and position are reported by both the parser and the checks.
        assert!(error.starts_with("ignition_extra: my.ign"), "{error}");
        let reported = error.contains("line 2") || error.contains("ersion") || error.contains("$.");
        assert!(reported, "{error}\n{words}");
    }
    let two = r#"{"ignition": {"version": "2.2.0"}}"#;
    check_fragments(&[text(two)]).unwrap();
    let mut files = Files::new();
    files.fragments = vec![text(two)];
    let words = "ignition_extra: my.ign: Ignition 2.2.0 cannot be merged into Ignition 3.2.0";
    assert_eq!(files.refused(Role::Worker), words);
}

#[test]
fn a_fragment_keeps_a_version_that_its_coreos_reads() {
    let mut newer = file("/etc/n");
    newer["ignition"]["version"] = json!("3.3.0");
    newer["kernelArguments"] = json!({"shouldExist": ["quiet"]});
    let files = Files::new().with("n.ign", None, newer);
    let pointer = files.node(Role::Master).unwrap();
    assert_eq!(pointer["ignition"]["version"], "3.2.0");
    assert_eq!(last(&pointer)["ignition"]["version"], "3.3.0");
    let bootstrap = files.node(Role::Bootstrap).unwrap();
    assert_eq!(bootstrap["ignition"]["version"], "3.3.0");
    assert_eq!(bootstrap["kernelArguments"]["shouldExist"][0], "quiet");
}

#[test]
fn a_fragment_is_written_for_the_oldest_coreos_of_its_nodes() {
    let of_version = |version: &str, more: Value| {
        let mut config = file("/etc/n");
        config["ignition"]["version"] = json!(version);
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        config
    };
    let newest = |role| match role {
        Role::Worker => Version::newest_of_release((4, 12)),
        _ => Version::newest_of_release((4, 18)),
    };
    let versions = |version: &str, role| {
        let files = Files::new().with("n.ign", role, of_version(version, json!({})));
        let (written, lines) = for_coreos(&files.fragments, newest).unwrap();
        assert_eq!(
            lines.is_empty(),
            written[0].content == files.fragments[0].content,
            "{lines:?}"
        );
        let config: Value = serde_json::from_slice(&written[0].content).unwrap();
        config["ignition"]["version"].as_str().unwrap().to_owned()
    };
    assert_eq!(versions("3.6.0", Some(Role::Master)), "3.4.0");
    assert_eq!(versions("3.6.0", None), "3.2.0");
    assert_eq!(versions("3.1.0", None), "3.1.0");

    let arguments = json!({"kernelArguments": {"shouldExist": ["quiet"]}});
    let files = Files::new().with("n.ign", Some(Role::Worker), of_version("3.3.0", arguments));
    let error = for_coreos(&files.fragments, newest).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ignition_extra: n.ign is Ignition 3.3.0, and the CoreOS of its nodes reads 3.2.0 at most: $.kernelArguments: \
         3.2 ignores `kernelArguments`, which was added in 3.3"
    );
}

#[test]
fn spec_2_configs_are_appended() {
    let mut files = Files::new();
    files.config.mcs = Mcs::Http;
    let url = format!("{URL}master");
    let pointer = json!({"ignition": {"config": {"append": [{"source": url, "verification": {}}]}, "version": "2.2.0"},
        "networkd": {}, "passwd": {}, "storage": {}, "systemd": {}});
    files.installer.insert(Role::Master, pointer);
    let bootstrap = json!({
        "ignition": {"version": "2.2.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa AAAA installer"]}]},
        "storage": {"files": [{"filesystem": "root", "path": "/f", "contents": {"source": "data:,x"}}]},
    });
    files.installer.insert(Role::Bootstrap, bootstrap);
    files.installer.remove(&Role::Worker);

    let merged = files.node(Role::Master).unwrap();
    let entries = merged["ignition"]["config"]["append"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    let served = json!({"source": "http://192.168.122.10:22624/config/master", "verification": {}});
    assert_eq!(entries[0], served);
    assert_eq!(merged["ignition"]["config"].get("merge"), None);
    assert_eq!(merged["networkd"], json!({}));

    let merged = files.node(Role::Bootstrap).unwrap();
    assert_eq!(paths(&merged), [&["/f"], &OWN[..]].concat());
    // One entry, because Ignition 2 uses only the last one's keys.
    let keys = ["ssh-rsa AAAA installer", &files.config.ssh_keys[0]];
    assert_eq!(
        merged["passwd"]["users"],
        json!([{"name": "core", "sshAuthorizedKeys": keys}])
    );
}

#[test]
fn invalid_files_of_the_installer_are_rejected() {
    for (pointer, words) in [
        (
            json!({"ignition": {"version": "3.2.0", "config": {"merge": [{"source": "https://a:6443/x"}]}}}),
            "the pointer config has no URL of the machine config server, https://<host>:22623/config/<role>",
        ),
        (
            json!({"ignition": {"version": "3.2.0", "config": {"merge": {}}}}),
            "merge must be a list",
        ),
        (
            json!({"ignition": {"version": "3.2.0", "config": "x"}}),
            "$.ignition.config must be an object",
        ),
    ] {
        let mut files = Files::new();
        files.config.mcs = Mcs::Http;
        files.installer.insert(Role::Master, pointer);
        let error = files.refused(Role::Master);
        assert!(error.starts_with("installer's master.ign"), "{error}");
        assert!(error.contains(words) || error.contains("$.ignition.config"), "{error}");
    }
    let mut files = Files::new();
    files.installer.remove(&Role::Worker);
    assert_eq!(
        files.refused(Role::Worker),
        "no Ignition config from the installer for role worker"
    );
}

proptest! {
    #[test]
    fn any_json_is_merged_or_rejected(odd in any_json()) {
        let mut odd = json!({"storage": odd, "systemd": odd, "passwd": odd});
        odd["ignition"] = json!({"version": "3.2.0"});
        for config in [odd.clone(), json!({"ignition": {"version": "3.2.0", "config": odd["storage"]}})] {
            let mut files = Files::new();
            for role in ROLES {
                files.installer.insert(role, config.clone());
                let _ = files.node(role);
            }
            let _ = Files::new().with("odd.ign", None, config.clone()).node(Role::Bootstrap);
        }
    }
}

const NAMES: [&str; 10] = [
    "files",
    "links",
    "units",
    "users",
    "merge",
    "path",
    "name",
    "source",
    "sshAuthorizedKeys",
    "core",
];

/// Any JSON, with significant names at any position.
fn any_json() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        name().prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// A machine config server's config for workers.
fn served() -> Value {
    json!({
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{"path": "/etc/kubernetes/kubeconfig", "contents": {"source": "data:,k"}}]},
        "later": {"served": true},
    })
}

#[test]
fn a_config_that_embeds_the_served_one_fetches_nothing_and_keeps_the_order() {
    let files = Files::new().with("all.ign", None, file("/etc/all"));
    let mut all = files.all().unwrap();
    all.serve(Role::Worker, served().to_string().as_bytes()).unwrap();
    let node = NodeName::node(Role::Worker, 0);
    let config: Value = serde_json::from_slice(&all.node_config(&node, Role::Worker).unwrap()).unwrap();
    assert_eq!(config["ignition"]["config"]["merge"], json!([]));
    assert_eq!(
        paths(&config),
        [&["/etc/kubernetes/kubeconfig", "/etc/all"], &OWN[..]].concat()
    );
    assert_eq!(config["ignition"]["later"], json!({"kept": [1, null]}));
    assert_eq!(config["later"], json!({"served": true}));
    let origins = |layers: Vec<Layer>| layers.into_iter().map(|layer| layer.origin).collect::<Vec<_>>();
    let expected = [
        "installer's worker.ign",
        "the machine config server's worker",
        "ignition_extra: all.ign",
        OURS,
    ];
    assert_eq!(origins(all.layers(&node, Role::Worker).unwrap()), expected);
    let kept = all.kept_layers().unwrap().layers(&node, Role::Worker).unwrap();
    assert_eq!(origins(kept), expected[1..]);
    // Masters still fetch it.
    let master: Value =
        serde_json::from_slice(&all.node_config(&NodeName::node(Role::Master, 0), Role::Master).unwrap()).unwrap();
    assert_eq!(
        master["ignition"]["config"]["merge"][0]["source"],
        format!("{URL}master")
    );
}

#[test]
fn the_served_config_is_an_author_of_its_own() {
    let files = Files::new().with("mine.ign", None, file("/etc/kubernetes/kubeconfig"));
    let serve = |files: &Files, served: Value| {
        let mut all = files.all().unwrap();
        all.serve(Role::Worker, served.to_string().as_bytes())?;
        all.node_config(&NodeName::node(Role::Worker, 0), Role::Worker)
    };
    let refused = |files: &Files, served| serve(files, served).unwrap_err().to_string();
    assert_eq!(
        refused(&files, served()),
        "conflict: file /etc/kubernetes/kubeconfig is set by the machine config server's worker and by ignition_extra: mine.ign"
    );
    assert_eq!(
        refused(&Files::new(), file("/etc/hostname")),
        "conflict: file /etc/hostname is set by the machine config server's worker and by ocpdeploy"
    );
    assert_eq!(
        refused(&Files::new(), json!({"ignition": {"version": "2.2.0"}})),
        "the machine config server's worker: Ignition 3.2.0 cannot be merged into Ignition 2.2.0"
    );
}
