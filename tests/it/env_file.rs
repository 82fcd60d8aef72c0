//! The env file and all other sources of a configuration: the reader against real bash, the exact messages about
//! invalid files, precedence, aliases, profiles and the sample.

use crate::support::cluster::deployment;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use ocpdeploy::cluster::{
    Architecture, BackendConfig, ClusterConfig, FragmentSource, Harvest, ImageSource, InstallerChoice, Mcs,
    ReleaseArchitecture, Role,
};
use ocpdeploy::report;
use ocpdeploy::report::settings::Settings;
use ocpdeploy::settings::variables::{self, Kind, VARIABLES};
use ocpdeploy::settings::{self, Loaded, SettingsError, Sources, envfile, profile};
use proptest::prelude::*;
use secrecy::ExposeSecret;

const TOKEN: &str = "bWU6c2VjcmV0LXRva2Vu";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";
const OTHER_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICAfHh0cGxoZGBcWFRQTEhEQDw4NDAsKCQgHBgUEAwIB other";
const REQUIRED: &str = "cluster=lab\ndomain=example.com\n";

fn bond(mode: &str) -> String {
    format!(
        "interfaces:\n- name: bond0\n  type: bond\n  link-aggregation:\n    mode: {mode}\n    port: [nic0, nic1]\n  \
         ipv4: {{enabled: true}}\n"
    )
}

fn nic0(ipv4: &str) -> String {
    format!("interfaces:\n- name: nic0\n  type: ethernet\n  ipv4: {ipv4}\n")
}

/// The files that a test's settings may name. Relative paths start at the env file's directory.
fn files() -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (
            "openshift_pull.json",
            format!("{{\n  \"auths\": {{\"quay.io\": {{\"auth\": \"{TOKEN}\"}}}}\n}}\n"),
        ),
        (
            "broken.json",
            format!("{{\"auths\": {{\"quay.io\": {{\"auth\": \"{TOKEN}\"}}}}"),
        ),
        ("no-auths.json", format!("{{\"quay.io\": \"{TOKEN}\"}}")),
        ("empty-auths.json", "{\"auths\": {}}".to_owned()),
        ("/home/u/.ssh/id_ed25519.pub", format!("{KEY}\n")),
        ("other.pub", format!("# a second one\n{OTHER_KEY}\n{KEY}\n")),
        ("id_ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----\n".to_owned()),
        ("not-a-key.pub", "ssh-ed25519 AAAA lab\n".to_owned()),
        ("empty.pub", "\n".to_owned()),
        (
            "ca.pem",
            format!("# ours\n{}\n# end\n", include_str!("../fixtures/ca-one.pem")),
        ),
        (
            "not-a-ca.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
        ),
        ("/state/images/rhcos.qcow2", String::new()),
        ("/state/images/centos.qcow2", String::new()),
        ("/state/images/coreos.qcow2", String::new()),
        ("/state/images/helper.qcow2", String::new()),
        ("images/mine.qcow2", String::new()),
        ("bin/openshift-install", String::new()),
        ("loop/profile.yaml", "about: a\nextends: ../loop\n".to_owned()),
        (
            "mine/profile.yaml",
            "about: a\nextends: compact\nvariables:\n  numcpus: 6\n  ca: ca.pem\n".to_owned(),
        ),
        (
            "mine/ca.pem",
            include_str!("../fixtures/ca-two.pem").to_owned(),
        ),
        (
            "typo/profile.yaml",
            "about: a\nvariables:\n  workrs: 3\n  pull_secret: x\n  template: y\n".to_owned(),
        ),
        ("own.ign", String::new()),
        ("bond.yaml", bond("active-backup")),
        ("lacp.yaml", bond("802.3ad")),
        ("unknown-network.yaml", bond("active-backup").replace("  ipv4", "  ipv5")),
        ("broken-network.yaml", "interfaces:\n- name: nic0\n ipv4: {\n".to_owned()),
        ("tab-network.yaml", "interfaces:\n- name: nic0\n\ttype: ethernet\n".to_owned()),
        ("open-network.yaml", "interfaces:\n- name: nic0\n  ipv4: {enabled: true\n\n".to_owned()),
        ("mtu-network.yaml", nic0("{enabled: true}") + "  mtu: 1500\n"),
        (
            "field-network.yaml",
            nic0("{enabled: true}") + "routes:\n  config:\n  - destination: 10.1.0.0/16\n    gateway: 10.0.0.254\n",
        ),
        (
            "type-network.yaml",
            nic0("{enabled: true}") + "dns-resolver:\n  config:\n    server: 10.0.0.2\n",
        ),
        ("hostname-network.yaml", nic0("{enabled: true}") + "hostname:\n  config: worker\n"),
        ("nic1-network.yaml", nic0("{enabled: true}").replace("nic0", "nic1")),
        (
            "two-network.yaml",
            nic0("{enabled: true}") + "- name: nic1\n  type: ethernet\n  ipv4: {enabled: true}\n",
        ),
        (
            "vlan.yaml",
            "interfaces:\n- name: nic0.100\n  type: vlan\n  vlan: {base-iface: nic0, id: 100}\n  ipv4: {enabled: true}\n".to_owned(),
        ),
        (
            "bridge-network.yaml",
            "interfaces:\n- name: br1\n  type: linux-bridge\n  bridge: {port: [{name: nic0}]}\n  ipv4: {enabled: true}\n".to_owned(),
        ),
        ("network-nic0.yaml", nic0("{enabled: true}")),
        ("dhcp-network.yaml", nic0("{enabled: true, dhcp: true}")),
        (
            "static-network.yaml",
            nic0("\n    enabled: true\n    address:\n    - ip: 10.0.0.99\n      prefix-length: 24"),
        ),
        (
            "route-network.yaml",
            nic0("{enabled: true}")
                + "routes:\n  config:\n  - destination: 0.0.0.0/0\n    next-hop-address: 10.0.0.254\n    next-hop-interface: nic0\n",
        ),
        (
            "ipv6-address-network.yaml",
            nic0("{enabled: true}") + "  ipv6:\n    enabled: true\n    address:\n    - ip: fd00:1::99\n      prefix-length: 64\n",
        ),
        (
            "ipv6-autoconf-network.yaml",
            nic0("{enabled: true}") + "  ipv6: {enabled: true, dhcp: false, autoconf: true}\n",
        ),
        (
            "ipv6-route-network.yaml",
            nic0("{enabled: true}")
                + "routes:\n  config:\n  - destination: ::/0\n    next-hop-address: fe80::1\n    next-hop-interface: nic0\n",
        ),
        ("idms-oc-mirror.yaml", idms()),
        (
            "icsp.yaml",
            "kind: ImageContentSourcePolicy\nspec:\n  repositoryDigestMirrors:\n  - {source: a.example.com/b, mirrors: [m.example.com/b]}\n"
                .to_owned(),
        ),
        (
            "printed.yaml",
            "imageDigestSources:\n- mirrors: [m.example.com/c]\n  source: a.example.com/c\nimageContentSources:\n- mirrors:\n  - \
             m.example.com/b\n  source: a.example.com/b\n"
                .to_owned(),
        ),
        (
            "list.yaml",
            "apiVersion: v1\nkind: List\nitems:\n- kind: ImageDigestMirrorSet\n  spec:\n    imageDigestMirrors:\n    - {source: \
             a.example.com/b, mirrors: [m.example.com/b]}\n"
                .to_owned(),
        ),
        (
            "results-1/imageContentSourcePolicy.yaml",
            "---\nkind: ImageContentSourcePolicy\nspec:\n  repositoryDigestMirrors:\n  - {source: a.example.com/b, mirrors: \
             [m.example.com/b]}\n"
                .to_owned(),
        ),
        ("work/cluster-resources/idms-oc-mirror.yaml", idms()),
        ("work/cluster-resources/itms-oc-mirror.yaml", String::new()),
        ("work/cluster-resources/signature-configmap.json", String::new()),
        ("work/cluster-resources/signature-configmap.yaml", String::new()),
        ("tags/itms-oc-mirror.yaml", String::new()),
        ("itms.yaml", "kind: ImageTagMirrorSet\nspec: {imageTagMirrors: []}\n".to_owned()),
        ("catalog.yaml", "kind: CatalogSource\nspec: {}\n".to_owned()),
        ("odd-idms.yaml", idms().replace("ocp/release-images", "ocp/https://release")),
        ("broken-idms.yaml", "kind: ImageDigestMirrorSet\nspec: {imageDigestMirrors: [\n".to_owned()),
        ("mine/w:2.ign", String::new()),
        ("odd/profile.yaml", "about: a\nvariable:\n  workers: 3\n".to_owned()),
        (
            "float/profile.yaml",
            "about: a\nvariables:\n  workers: 1.5\n".to_owned(),
        ),
    ])
}

/// As oc-mirror writes it (openshift/oc-mirror: `v2/internal/pkg/clusterresources/clusterresources_test.go`).
fn idms() -> String {
    let set = |name: &str, source: &str, mirror: &str| {
        format!(
            "---\napiVersion: config.openshift.io/v1\nkind: ImageDigestMirrorSet\nmetadata:\n  name: {name}\nspec:\n  \
             imageDigestMirrors:\n  - mirrors:\n    - {mirror}\n    source: {source}\nstatus: {{}}\n"
        )
    };
    set(
        "idms-operator-0",
        "registry.example.com/rhel9",
        "mirror.example.com:8443/rhel9",
    ) + &set(
        "idms-release-0",
        "quay.example.com/ocp/release",
        "mirror.example.com:8443/ocp/release-images",
    )
}

/// The sources of settings, empty by default.
#[derive(Default)]
struct Given<'a> {
    env: &'a str,
    environment: &'a [(&'a str, &'a str)],
    flags: &'a [(&'a str, &'a str)],
    rehearse: bool,
}

impl Given<'_> {
    fn load(&self) -> Result<Loaded, SettingsError> {
        let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let files = files();
        let mut environment: BTreeMap<String, String> = owned(self.environment);
        environment.insert("HOME".to_owned(), "/home/u".to_owned());
        let find = |path: &Path| files.get(without_dots(path).to_str()?).cloned();
        settings::load(&Sources {
            env_file: Some((PathBuf::from("env.sh"), self.env.to_owned())),
            environment,
            flags: owned(self.flags),
            current_dir: PathBuf::new(),
            home: PathBuf::from("/state"),
            rehearse: self.rehearse,
            allow_downgrade: false,
            deployment: deployment(),
            read_file: &|path| find(path).ok_or_else(|| io::ErrorKind::NotFound.into()),
            is_file: &|path| find(path).is_some(),
            is_dir: &|path| {
                [
                    "manifests",
                    "mine/nodes",
                    "results-1",
                    "tags",
                    "work",
                    "work/cluster-resources",
                ]
                .contains(&without_dots(path).to_str().unwrap_or_default())
            },
        })
    }

    fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|error| panic!("error: {error}"))
    }
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            part => plain.push(part),
        }
    }
    plain
}

fn load(env: &str) -> Loaded {
    Given {
        env: &format!("{REQUIRED}{env}"),
        ..Given::default()
    }
    .loaded()
}

#[test]
fn the_architecture_selects_the_images_and_the_release() {
    let of = |env: &str| load(env).config;
    assert_eq!(of("").arch, Architecture::THIS_COMPUTER, "of the local host");
    let remote = of("libvirt_uri=qemu+ssh://kvm.example.com/system");
    assert_eq!(remote.arch, Architecture::X86_64);
    let single = ReleaseArchitecture::Single(Architecture::X86_64);
    assert_eq!(remote.downloads.arch, single);
    let mixed = of("arch=aarch64\npools=infra:1,old:1\npool_arch=old:x86_64");
    let nodes = mixed.nodes().into_iter().map(|node| (node.name.to_string(), node.arch));
    let foreign: Vec<_> = nodes.filter(|(_, arch)| *arch != Architecture::Aarch64).collect();
    assert_eq!(foreign, [("old-0".to_owned(), Architecture::X86_64)]);
    assert_eq!(mixed.downloads.arch, ReleaseArchitecture::Multi);
    let file = ImageSource::File(PathBuf::from("/state/images/rhcos.qcow2"));
    assert_eq!(mixed.foreign_images[&Architecture::X86_64].coreos, file);
    let env = format!("{REQUIRED}arch=s390x\nharvest_image=centos7");
    let given = Given {
        env: &env,
        ..Given::default()
    };
    let error = given.load().map(drop).unwrap_err().to_string();
    assert!(error.contains("the catalog has no image centos7 for s390x"), "{error}");
}

fn value_and_origin<'a>(loaded: &'a Loaded, name: &str) -> (&'a str, &'a str) {
    let value = loaded
        .values
        .iter()
        .find(|value| value.name == name)
        .expect("a value for each used variable");
    (&value.value, &value.origin)
}

// Compare the reader with bash.

/// The variables after bash has sourced the text; `None` if bash fails.
fn bash(text: &str, folder: &Path) -> Option<BTreeMap<String, String>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-c", "set -aeu; . \"$0\"; env -0"])
        .arg(file.path())
        .current_dir(folder)
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("HOME", "/home/u"), ("LC_ALL", "C.UTF-8")])
        .output()
        .unwrap();
    let pairs = String::from_utf8(output.stdout).unwrap();
    let pairs = pairs.split('\0').filter_map(|pair| pair.split_once('='));
    output
        .status
        .success()
        .then(|| pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn environment_of_bash(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/u".to_owned()),
        "PATH" => Some("/usr/bin:/bin".to_owned()),
        _ => None,
    }
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[a-z0-9._/:,@%+-]{1,5}",
        2 => Just("\"".to_owned()),
        2 => Just("'".to_owned()),
        1 => Just("\\".to_owned()),
        2 => "\\$\\{?[abc]\\}?",
        2 => "\\$\\{[abc]:-[a-z$ ~/{}]{0,4}\\}",
        1 => "\\{[a-c]?[,.]{1,2}[a-c1-3]?\\}",
        1 => "[ \t\r\n#~*?={}\\[\\]!^|&;<>()`$]",
        1 => Just("é".to_owned()),
        1 => Just(" b=".to_owned()),
        1 => Just("\na=".to_owned()),
        1 => Just("\nexport b=".to_owned()),
        1 => "\\$\\{?(HOME|PATH|UID|RANDOM|LINENO|_|BASH_VERSION|HOSTNAME|IFS)(:-x)?\\}?",
    ]
}

/// The number of cases; `OCPDEPLOY_TEST_CASES` sets a larger one.
fn cases() -> u32 {
    std::env::var("OCPDEPLOY_TEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(3000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bash_reads_every_accepted_file_the_same_way(pieces in proptest::collection::vec(piece(), 0..9), export in any::<bool>()) {
        let text = format!("a=1\n{}c={}\n", if export { "export " } else { "" }, pieces.concat());
        if let Ok(assignments) = envfile::parse(&text, &environment_of_bash) {
            let folder = tempfile::tempdir().unwrap();
            let theirs = bash(&text, folder.path());
            prop_assert!(theirs.is_some(), "bash rejects {text:?}, which is read as {assignments:?}");
            let ours: BTreeMap<_, _> = assignments.iter().map(|a| (&a.name, &a.value)).collect();
            for (name, value) in ours {
                prop_assert_eq!(theirs.as_ref().and_then(|theirs| theirs.get(name)), Some(value), "{} in {:?}", name, text);
            }
        }
    }
}

#[test]
fn all_documented_forms_are_accepted() {
    let text = "# a comment\n\
        \tcluster=lab # after a value\n\
        export domain='example.com'\n\
        _base=\"/data/$cluster\"\n\
        image=${_base}/rhcos.qcow2\n\
        network=${net:-default}\n\
        pub_key=~/.ssh/id.pub\n\
        version=a\\ b'c'\"d$cluster\"#e\n\
        tag=\n";
    let read: Vec<(String, String)> = envfile::parse(text, &environment_of_bash)
        .unwrap()
        .into_iter()
        .map(|a| (a.name, a.value))
        .collect();
    let expected = [
        ("cluster", "lab"),
        ("domain", "example.com"),
        ("_base", "/data/lab"),
        ("image", "/data/lab/rhcos.qcow2"),
        ("network", "default"),
        ("pub_key", "/home/u/.ssh/id.pub"),
        ("version", "a bcdlab#e"),
        ("tag", ""),
    ];
    assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let folder = tempfile::tempdir().unwrap();
    let theirs = bash(text, folder.path()).expect("bash reads it too");
    for (name, value) in expected {
        assert_eq!(theirs[name], value, "{name}");
    }
}

#[test]
fn nothing_in_an_env_file_is_ever_run() {
    let folder = tempfile::tempdir().unwrap();
    let pwned = folder.path().join("pwned");
    let touch = format!("touch {}", pwned.display());
    for text in [
        format!("cluster=$({touch})\n"),
        format!("cluster=`{touch}`\n"),
        format!("cluster=\"$({touch})\"\n"),
        format!("cluster=\"`{touch}`\"\n"),
        format!("cluster=${{x:-$({touch})}}\n"),
        format!("cluster=${{x:-`{touch}`}}\n"),
        format!("cluster=lab; {touch}\n"),
        format!("cluster=lab {touch}\n"),
        format!("{touch}\n"),
        format!("cluster=lab & {touch}\n"),
        format!("cluster=<({touch})\n"),
        format!("cluster=(a $({touch}))\n"),
        format!("PROMPT_COMMAND='{touch}'\n"),
    ] {
        let given = Given {
            env: &text,
            ..Given::default()
        };
        assert!(given.load().is_err(), "{text:?} is accepted");
        assert!(!pwned.exists(), "{text:?} was run");
        // A shell would have run it.
        let _ = bash(&text, folder.path());
        let ran = pwned.exists();
        assert!(
            ran || text.starts_with("PROMPT_COMMAND"),
            "{text:?} runs nothing in bash either, so it tests nothing"
        );
        let _ = std::fs::remove_file(&pwned);
    }
}

// The exact messages about invalid files.

#[test]
fn each_faulty_env_file_has_its_exact_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/env");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut names: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sh"))
        .collect();
    names.sort();
    assert!(names.len() >= 40, "{} invalid env files", names.len());
    let mut messages = BTreeSet::new();
    for path in names {
        let text = std::fs::read_to_string(&path).unwrap();
        let given = Given {
            env: &text,
            ..Given::default()
        };
        let Err(error) = given.load() else {
            panic!("{} is valid", path.display());
        };
        let message = format!("error: {error}\n");
        assert!(
            !message.contains(TOKEN),
            "{} shows the secret:\n{message}",
            path.display()
        );
        let golden = path.with_extension("txt");
        if update {
            std::fs::write(&golden, &message).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(
            message,
            expected,
            "{}; UPDATE_GOLDEN=1 writes it again",
            golden.display()
        );
        assert!(
            messages.insert(message),
            "{} has the same message as another one",
            path.display()
        );
    }
}

#[test]
fn all_syntax_errors_are_reported_together_without_follow_up_errors() {
    const NOT_CLOSED: &str = "this quote is not closed";
    const ONE: &str = "a line can have only one assignment";
    const NONE: &str = "this is not an assignment";
    for (text, expected) in [
        (
            "cluster=$(hostname)\ndomain=example.com\ntag=a b\nnetwork = lan\nworkers=2;\n",
            &[
                (1, "command substitution is not supported"),
                (3, ONE),
                (4, NONE),
                (5, "`;` is shell syntax"),
            ][..],
        ),
        // The quote is closed by the opening quote of the next value.
        ("cluster=\"lab\ndomain=\"example.com\"\nworkers=3\n", &[(1, NOT_CLOSED)]),
        (
            "cluster=\"lab\ndomain=\"a b\"\nnetwork=\"c d\"\ntag=`x`\n",
            &[(1, NOT_CLOSED), (4, "command substitution is not supported")],
        ),
        (
            "cluster='lab\ndomain='example.com'\nexport tag='a b'\nworkers=3\n",
            &[(1, NOT_CLOSED)],
        ),
        // It is never closed.
        (
            "cluster='lab\ndomain=example.com\nworkers=(1)\n",
            &[(1, NOT_CLOSED), (3, "`(` is shell syntax")],
        ),
        ("pull_secret='{\n  \"auths\": {}\n}\ncluster=lab\n", &[(1, NOT_CLOSED)]),
        (
            "tag=\"a\n$(b)\nc\"\ncluster=lab\nnetwork\n",
            &[(2, "command substitution is not supported"), (5, NONE)],
        ),
        // Several lines without an assignment are one error.
        ("pull_secret={\n  \"auths\": {}\n}\ncluster=lab\n", &[(2, NONE)]),
        ("if true; then\n  echo x\nfi\n\nset -e\n", &[(1, NONE), (5, NONE)]),
        (
            "cluster: lab\ndomain: example.com\nworkers 3\n",
            &[(1, NONE), (2, NONE), (3, NONE)],
        ),
        // An invalid value is not reported as missing.
        (
            "_a=(1)\ncluster=$_a\ndomain=$_b\ntag=$_b$_c\n",
            &[
                (1, "`(` is shell syntax"),
                (3, "`_b` is not set"),
                (4, "`_c` is not set"),
            ],
        ),
        (
            "cluster=lab\r\ndomain=example.com\r\nworkers=$(x)\r\n\r\n",
            &[
                (1, "a value cannot contain a carriage return"),
                (3, "command substitution is not supported"),
            ],
        ),
    ] {
        let errors = envfile::parse(text, &|_| None).unwrap_err();
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        let found: Vec<(usize, &str)> = errors
            .iter()
            .map(|error| (line(error.span.start), error.message.as_str()))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
    let most = envfile::parse(&"a=$(b)\n".repeat(1_000), &|_| None).unwrap_err();
    assert_eq!(most.len(), 20, "the number of reported errors is limited");
}

#[test]
fn independent_problems_are_reported_together_with_their_positions() {
    let env = "cluster=Lab\ndomain=example.com\nmasters=2\nworkrs=3\nmaster_macs=none\napi_ip=10.0.0\n";
    let given = Given {
        env,
        environment: &[("OCPDEPLOY_NUMCPUS", "many")],
        flags: &[("harvest", "guess")],
        ..Given::default()
    };
    let error = given.load().unwrap_err();
    let mut places: Vec<&str> = error
        .problems
        .iter()
        .flat_map(|problem| &problem.places)
        .map(String::as_str)
        .collect();
    places.sort_unstable();
    let expected = [
        "env.sh:1",
        "env.sh:3",
        "env.sh:4",
        "env.sh:5",
        "env.sh:6",
        "environment OCPDEPLOY_NUMCPUS",
        "flag --set harvest",
    ];
    assert_eq!(places, expected, "{error}");
}

#[test]
fn an_unknown_backend_is_the_only_problem_with_it() {
    for (backend, meant) in [
        ("simm", Some("sim")),
        ("libvrit", Some("libvirt")),
        ("openstak", Some("openstack")),
        ("vsphere", None),
    ] {
        let env = format!("{REQUIRED}backend={backend}\nimage=images/absent.qcow2\nlb=platform\nnetwork=pod\n");
        let flags = [("backend", backend)];
        for (env, flags) in [(env.as_str(), &[][..]), (REQUIRED, &flags[..])] {
            for rehearse in [false, true] {
                let given = Given {
                    env,
                    flags,
                    rehearse,
                    ..Given::default()
                };
                let error = given.load().unwrap_err();
                assert_eq!(error.problems.len(), 1, "{error}");
                assert_eq!(error.problems[0].message, format!("`{backend}` is not a backend"));
                let help = error.problems[0].help.as_deref().unwrap();
                let suggested = meant.map(|meant| format!("did you mean `{meant}`? "));
                assert_eq!(
                    help.strip_suffix("supported are libvirt, kubevirt, openstack, ovirt, sim"),
                    Some(suggested.as_deref().unwrap_or_default())
                );
            }
        }
    }
}

#[test]
fn the_highest_layer_wins_and_is_shown_as_the_origin() {
    let env = format!("{REQUIRED}workers=4\n");
    let environment: &[(&str, &str)] = &[("OCPDEPLOY_WORKERS", "5")];
    let flags: &[(&str, &str)] = &[("workers", "6")];
    for (env, environment, flags, workers, origin) in [
        (env.as_str(), environment, flags, 6, "flag --workers"),
        (env.as_str(), environment, &[][..], 5, "environment OCPDEPLOY_WORKERS"),
        (env.as_str(), &[][..], flags, 6, "flag --workers"),
        (env.as_str(), &[][..], &[][..], 4, "env.sh:3"),
        (REQUIRED, &[][..], &[("profile", "compact")][..], 0, "profile base"),
        (REQUIRED, &[][..], &[][..], 2, "profile standard"),
    ] {
        let loaded = Given {
            env,
            environment,
            flags,
            rehearse: false,
        }
        .loaded();
        assert_eq!(loaded.config.workers, workers, "{origin}");
        assert_eq!(
            value_and_origin(&loaded, "workers"),
            (workers.to_string().as_str(), origin)
        );
    }
    assert_eq!(value_and_origin(&load(""), "numcpus"), ("4", "default"));
}

#[test]
fn an_empty_value_counts_as_unset() {
    let loaded = Given {
        env: &format!("{REQUIRED}workers=4\nnetwork=\n"),
        environment: &[("OCPDEPLOY_WORKERS", "")],
        flags: &[("workers", "")],
        rehearse: false,
    }
    .loaded();
    assert_eq!(value_and_origin(&loaded, "workers"), ("4", "env.sh:3"));
    assert_eq!(value_and_origin(&loaded, "network"), ("default", "default"));
}

/// Otherwise the value would be ignored.
#[test]
fn a_former_name_in_the_environment_or_a_flag_is_an_error() {
    let given = Given {
        env: REQUIRED,
        environment: &[("OCPDEPLOY_POOL", "fast")],
        flags: &[("helper_memory", "4096")],
        ..Given::default()
    };
    let error = given.load().unwrap_err();
    let found = error
        .problems
        .iter()
        .map(|problem| (problem.places[0].as_str(), problem.help.as_deref()));
    let expected = [
        (
            "environment OCPDEPLOY_POOL",
            Some("its name is now `libvirt_storage_pool`"),
        ),
        ("flag --set helper_memory", Some("its name is now `harvest_memory`")),
    ];
    assert_eq!(Vec::from_iter(found), expected);
}

#[test]
fn each_alias_means_its_variable_and_excludes_it() {
    let mut tried = Vec::new();
    for variable in VARIABLES {
        for alias in variable.aliases {
            let value = match variable.kind {
                Kind::Path => "other.pub",
                Kind::Secret => "openshift_pull.json",
                _ => "word",
            };
            let loaded = load(&format!("{alias}={value}\n"));
            assert_eq!(value_and_origin(&loaded, variable.name), (value, "env.sh:3"), "{alias}");
            let both = Given {
                env: &format!("{REQUIRED}{alias}={value}\n{}={value}\n", variable.name),
                ..Given::default()
            };
            let error = both.load().unwrap_err();
            assert_eq!(error.problems.len(), 1, "{error}");
            assert_eq!(error.problems[0].places, ["env.sh:4", "env.sh:3"], "{alias}");
            tried.push(*alias);
        }
    }
    assert_eq!(tried, ["template", "pullsecret", "pubkey"]);
}

#[test]
fn an_alias_in_a_higher_layer_overrides_the_name_in_a_lower_one() {
    let loaded = Given {
        env: &format!("{REQUIRED}image=rhcos-a\n"),
        environment: &[("OCPDEPLOY_TEMPLATE", "rhcos-b")],
        ..Given::default()
    }
    .loaded();
    assert_eq!(loaded.config.images.coreos, ImageSource::Platform("rhcos-b".to_owned()));
}

#[test]
fn a_users_profile_extends_a_shipped_one() {
    let loaded = load("profile=./mine\n");
    assert_eq!(loaded.config.masters, 3);
    assert_eq!(loaded.config.workers, 0);
    assert_eq!(loaded.config.master_size.cpus, 6);
    assert_eq!(value_and_origin(&loaded, "numcpus"), ("6", "profile ./mine"));
    assert!(
        loaded.config.ca.as_deref() == Some(include_str!("../fixtures/ca-two.pem")),
        "its paths start at its folder"
    );
}

#[test]
fn ignition_configs_come_from_the_profile_and_then_from_the_setting() {
    let given = |env: &str| load(env).config.fragments;
    let file = |role, path: &str| FragmentSource::File {
        role,
        path: path.into(),
    };
    let folder = FragmentSource::Folder {
        profile: "./mine".to_owned(),
        path: "./mine/nodes".into(),
    };
    assert_eq!(given(""), []);
    assert_eq!(
        given("ignition_extra=own.ign,worker:own.ign,all:own.ign,mine/w:2.ign\n"),
        [
            file(None, "own.ign"),
            file(Some(Role::Worker), "own.ign"),
            file(None, "own.ign"),
            file(None, "mine/w:2.ign")
        ]
    );
    assert_eq!(
        given("profile=./mine\nignition_extra=master:own.ign\n"),
        [folder, file(Some(Role::Master), "own.ign")]
    );
}

#[test]
fn two_masters_with_an_arbiter_have_a_small_third_machine() {
    let loaded =
        load("masters=2\nworkers=0\narbiter=1\nversion=4.22\ndisk_size=200\nnumcpus=8\narbiter_ip=192.168.122.30\n");
    assert_eq!(loaded.warnings, [""; 0]);
    let config = loaded.config;
    let names: Vec<_> = config.nodes().iter().map(|node| node.name.to_string()).collect();
    assert_eq!(names, ["bootstrap", "master-0", "master-1", "arbiter-0"]);
    let size = &config.arbiter_size;
    // The documented minimum, whatever size the masters have.
    assert_eq!((size.cpus, size.memory_mib, size.disk_gib), (2, 8192, 50));
    let small = load("masters=2\narbiter=1\narbiter_numcpus=1\narbiter_memory=4096\narbiter_disk_size=20\n");
    for least in [
        "arbiter_numcpus=1 is below",
        "arbiter_memory=4096 is",
        "arbiter_disk_size=20 is",
    ] {
        assert!(
            small.warnings.iter().any(|warning| warning.contains(least)),
            "{least}: {:?}",
            small.warnings
        );
    }
}

#[test]
fn every_shipped_profile_loads_and_has_its_documented_values() {
    let load = |profile| {
        Given {
            env: REQUIRED,
            flags: &[("profile", profile)],
            ..Given::default()
        }
        .loaded()
        .config
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let mut folders: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(
        folders,
        profile::SHIPPED.map(|(name, _)| name),
        "profiles/ and the program have the same profiles"
    );
    let nodes = |config: &ClusterConfig| (config.masters, config.workers);
    assert_eq!(nodes(&load("base")), (1, 0));
    assert_eq!(nodes(&load("laptop")), (1, 0));
    assert_eq!(nodes(&load("compact")), (3, 0));
    assert_eq!(nodes(&load("standard")), (3, 2));
    assert_eq!(load("rook").worker_size.extra_disks_gib, [100]);
    assert!(load("bridge").use_br && !load("standard").use_br);
}

// The resulting configuration.

#[test]
fn registry_mirrors_are_pairs_or_files_of_oc_mirror() {
    let mirrors = |value: &str| {
        let loaded = load(&format!("registry_mirrors={value}\n"));
        assert_eq!(loaded.warnings, [""; 0]);
        let mirrors = loaded.config.registry_mirrors.into_iter();
        mirrors
            .map(|mirror| format!("{} {}", mirror.source, mirror.mirrors.join(" ")))
            .collect::<Vec<_>>()
    };
    let (rhel, release) = (
        "registry.example.com/rhel9 mirror.example.com:8443/rhel9",
        "quay.example.com/ocp/release mirror.example.com:8443/ocp/release-images",
    );
    assert_eq!(mirrors("idms-oc-mirror.yaml"), [rhel, release]);
    let (b, c) = ("a.example.com/b m.example.com/b", "a.example.com/c m.example.com/c");
    // As `oc adm release mirror` and `oc get` print it.
    assert_eq!(mirrors("printed.yaml"), [c, b]);
    assert_eq!(mirrors("list.yaml"), [b]);
    assert_eq!(mirrors("results-1"), [b]);
    assert_eq!(mirrors("idms-oc-mirror.yaml,./idms-oc-mirror.yaml"), [rhel, release]);
    assert_eq!(
        mirrors(
            "a.example.com/b=n.example.com/b,icsp.yaml,quay.example.com/ocp/release=n.example.com/r,idms-oc-mirror.yaml"
        ),
        [
            "a.example.com/b n.example.com/b m.example.com/b",
            "quay.example.com/ocp/release n.example.com/r mirror.example.com:8443/ocp/release-images",
            rhel,
        ]
    );
}

#[test]
fn the_folder_of_oc_mirror_has_mirrors_and_manifests() {
    let found = |value: &str| {
        let config = load(&format!("registry_mirrors={value}\n")).config;
        let manifests = config.mirror_manifests.iter().map(|path| path.display().to_string());
        (config.registry_mirrors.len(), manifests.collect::<Vec<_>>())
    };
    let folder = "work/cluster-resources";
    let manifests = ["itms-oc-mirror.yaml", "signature-configmap.yaml"]
        .map(|name| format!("{folder}/{name}"))
        .to_vec();
    assert_eq!(found(folder), (2, manifests.clone()));
    assert_eq!(found("work"), (2, manifests.clone()));
    assert_eq!(
        found("work,idms-oc-mirror.yaml,a.example.com=b.example.com"),
        (3, manifests)
    );
    assert_eq!(found("tags"), (0, vec!["tags/itms-oc-mirror.yaml".to_owned()]));
}

#[test]
fn a_real_env_file_becomes_a_configuration() {
    let loaded = load(
        "backend=libvirt\nlibvirt_uri=qemu+ssh://root@host/system\nmasters=3\nworkers=1\n\
         extra_disks=20,30\nextra_networks=\"storage backup\"\nimage=images/mine.qcow2\nharvest_image=centos9\n\
         installer=bin/openshift-install\nkeys=other.pub\nca=ca.pem\nmanifests=manifests\nmcs=http\n\
         machine_network=192.168.122.0/24\napi_ip=192.168.122.9\ningress_ip=192.168.122.9\n\
         master_macs=52:54:00:00:00:01,52:54:00:00:00:02,52:54:00:00:00:03\napi_virtual_router_id=9\n\
         harvest_timeout=1h30m\nautostart=true\n",
    );
    let config = &loaded.config;
    let BackendConfig::Libvirt(libvirt) = &config.backend else {
        panic!("{:?}", config.backend);
    };
    assert_eq!(libvirt.uri, "qemu+ssh://root@host/system");
    assert_eq!(config.worker_size.extra_disks_gib, [20, 30]);
    assert!(config.bootstrap_size.extra_disks_gib.is_empty());
    assert_eq!(config.extra_networks, ["storage", "backup"]);
    assert_eq!(config.images.coreos, ImageSource::File("images/mine.qcow2".into()));
    assert_eq!(config.images.harvest, ImageSource::Platform("centos9".to_owned()));
    assert_eq!(
        config.installer,
        InstallerChoice::OpenshiftInstall(Some("bin/openshift-install".into()))
    );
    assert_eq!(config.ssh_keys, [KEY, OTHER_KEY]);
    assert_eq!(config.mcs, Mcs::Http);
    assert_eq!(config.harvest, Harvest::Boot);
    assert_eq!(config.given.api_ip, config.given.ingress_ip);
    assert_eq!(config.given.master_macs.len(), 3);
    assert_eq!(config.given.api_virtual_router_id, Some(9));
    assert_eq!(config.timeouts.harvest.as_secs(), 5400);
    assert_eq!(config.manifests.as_deref(), Some(Path::new("manifests")));
    assert!(config.autostart);
    let secret = config.pull_secret.expose_secret();
    assert_eq!(
        secret,
        &format!("{{\"auths\":{{\"quay.io\":{{\"auth\":\"{TOKEN}\"}}}}}}"),
        "one line of JSON"
    );
    assert_eq!(
        loaded.warnings,
        [
            "env.sh:15: mcs=http is not encrypted: anyone on the network can read the secrets in the nodes' configuration, and replace the configuration that nodes apply as root",
        ]
    );
}

#[test]
fn settings_without_effect_are_reported() {
    let loaded = Given {
        env: &format!("{REQUIRED}backend=sim\nlibvirt_storage_pool=fast\nos_zone=a\nmasters=4\n"),
        environment: &[
            ("OCPDEPLOY_WORKRS", "3"),
            ("OCPDEPLOY_HOME", "/state"),
            ("OCPDEPLOY_CONTRACT_X", "1"),
        ],
        ..Given::default()
    }
    .loaded();
    let expected = [
        "`OCPDEPLOY_WORKRS` in the environment is not a setting; did you mean `OCPDEPLOY_WORKERS`?",
        "env.sh:6: four masters tolerate no more failures than three",
        "env.sh:4: `libvirt_storage_pool` has no effect with the other settings",
        "env.sh:5: `os_zone` has no effect with the other settings",
    ];
    assert_eq!(loaded.warnings, expected);
}

#[test]
fn sizes_below_openshifts_minimum_are_a_warning_except_in_a_rehearsal() {
    let env = format!("{REQUIRED}master_memory=8192\nnumcpus=2\ndisk_size=30\n");
    let given = |rehearse| Given {
        env: &env,
        rehearse,
        ..Given::default()
    };
    let warnings = given(false).loaded().warnings;
    assert_eq!(
        warnings[0],
        "env.sh:3: master_memory=8192 is below the minimum of OpenShift, 16384 MiB"
    );
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(given(true).loaded().warnings.is_empty());
}

#[test]
fn a_rehearsal_has_small_defaults_and_keeps_given_values() {
    let loaded = Given {
        env: &format!("{REQUIRED}profile=rook\nworker_memory=512\nimage=images/mine.qcow2\npull_secret=\n"),
        rehearse: true,
        ..Given::default()
    }
    .loaded();
    let config = &loaded.config;
    assert_eq!(config.master_size.memory_mib, 256);
    assert_eq!(config.worker_size.memory_mib, 512);
    assert_eq!(config.harvest_size.memory_mib, 192);
    assert_eq!((config.master_size.cpus, config.master_size.disk_gib), (1, 1));
    assert_eq!(
        config.images.coreos,
        ImageSource::File("/state/images/coreos.qcow2".into())
    );
    assert_eq!(
        config.images.harvest,
        ImageSource::File("/state/images/helper.qcow2".into())
    );
    assert_eq!(config.installer, InstallerChoice::Rehearsal);
    assert_eq!(config.mcs, Mcs::Http);
    assert_eq!(value_and_origin(&loaded, "master_memory"), ("256", "rehearsal"));
    assert_eq!(value_and_origin(&loaded, "worker_memory"), ("512", "env.sh:4"));
    assert_eq!(
        value_and_origin(&loaded, "image"),
        ("/state/images/coreos.qcow2", "rehearsal")
    );
}

#[test]
fn a_rehearsal_needs_no_env_file_no_pull_secret_and_no_key() {
    let load = |home: &str, rehearse: bool| {
        settings::load(&Sources {
            env_file: (!rehearse).then(|| ("env.sh".into(), format!("{REQUIRED}backend=sim\n"))),
            environment: BTreeMap::from([("HOME".to_owned(), home.to_owned())]),
            flags: BTreeMap::from([("backend".to_owned(), "sim".to_owned())]),
            current_dir: "/nowhere".into(),
            home: "/state".into(),
            rehearse,
            allow_downgrade: false,
            deployment: deployment(),
            read_file: &|_| Err(io::ErrorKind::NotFound.into()),
            is_file: &|_| false,
            is_dir: &|_| false,
        })
    };
    let config = load("/home/nobody", true).unwrap().config;
    assert_eq!(config.pull_secret.expose_secret(), "{\"auths\":{}}");
    assert!(config.ssh_keys.is_empty());
    assert_eq!(config.cluster_domain().as_str(), "rehearsal.example.com");
    let error = load("/home/nobody", false).unwrap_err();
    let places: Vec<_> = error.problems.iter().flat_map(|problem| &problem.places).collect();
    assert_eq!(places, ["default of pub_key", "default of pull_secret"], "{error}");
}

#[test]
fn a_rehearsal_finds_the_guests_of_the_installed_package() {
    let load = |folder: &'static str| {
        settings::load(&Sources {
            env_file: None,
            environment: BTreeMap::from([("HOME".to_owned(), "/nowhere".to_owned())]),
            flags: BTreeMap::from([("backend".to_owned(), "libvirt".to_owned())]),
            current_dir: "/nowhere".into(),
            home: "/state".into(),
            rehearse: true,
            allow_downgrade: false,
            deployment: deployment(),
            read_file: &|_| Err(io::ErrorKind::NotFound.into()),
            is_file: &|path| path.parent().is_some_and(|parent| parent == Path::new(folder)),
            is_dir: &|_| false,
        })
    };
    for folder in [
        "/state/images",
        "/usr/local/share/ocpdeploy/rehearsal",
        "/usr/share/ocpdeploy/rehearsal",
    ] {
        let config = load(folder).unwrap_or_else(|error| panic!("{error}")).config;
        let images = ["coreos.qcow2", "helper.qcow2"].map(|file| ImageSource::File(Path::new(folder).join(file)));
        assert_eq!([config.images.coreos, config.images.harvest], images);
    }
    let error = load("/elsewhere").unwrap_err().to_string();
    assert!(error.contains("/state/images/coreos.qcow2 does not exist"), "{error}");
    assert!(error.contains("install the package ocpdeploy-rehearsal"), "{error}");
}

#[test]
fn okd_needs_no_pull_secret() {
    let load = |version: &str| {
        settings::load(&Sources {
            env_file: Some(("env.sh".into(), format!("{REQUIRED}version={version}\n"))),
            environment: BTreeMap::from([("HOME".to_owned(), "/home/u".to_owned())]),
            flags: BTreeMap::new(),
            current_dir: "/nowhere".into(),
            home: "/state".into(),
            rehearse: false,
            allow_downgrade: false,
            deployment: deployment(),
            read_file: &|path| match path.extension().is_some_and(|extension| extension == "pub") {
                true => Ok(KEY.to_owned()),
                false => Err(io::ErrorKind::NotFound.into()),
            },
            is_file: &|_| false,
            is_dir: &|_| false,
        })
    };
    for version in ["okd", "okd-4.20", "okd-scos-4.20", "4.19.0-okd-scos.9"] {
        let config = load(version).unwrap_or_else(|error| panic!("{error}")).config;
        let secret = r#"{"auths":{"fake":{"auth":"aWQ6cGFzcwo="}}}"#;
        assert_eq!(config.pull_secret.expose_secret(), secret, "{version}");
    }
    let error = load("stable").unwrap_err().to_string();
    assert!(error.contains("cannot read the pull secret"), "{error}");
}

#[test]
fn secrets_are_never_shown() {
    let inline = format!("{{\"auths\":{{\"quay.io\":{{\"auth\":\"{TOKEN}\"}}}}}}");
    let loaded = load(&format!("pull_secret='{inline}'\n"));
    assert!(loaded.config.pull_secret.expose_secret().contains(TOKEN));
    assert_eq!(value_and_origin(&loaded, "pull_secret"), ("***", "env.sh:3"));
    assert!(!format!("{loaded:?}").contains(TOKEN));
    let settings = Settings::from(loaded);
    assert!(!settings.text().contains(TOKEN));
    assert!(!report::json(&settings).unwrap().contains(TOKEN));
    let from_file = load("pull_secret_file=openshift_pull.json\n");
    assert!(from_file.config.pull_secret.expose_secret().contains(TOKEN));
    assert_eq!(
        value_and_origin(&from_file, "pull_secret"),
        ("openshift_pull.json", "env.sh:3")
    );
}

#[test]
fn config_shows_every_value_with_its_origin() {
    let loaded = load("workers=1\n");
    let settings = Settings::from(loaded);
    let text = settings.text();
    let line = |name: &str| {
        text.lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap_or_default()
    };
    assert_eq!(
        line("workers").split_whitespace().collect::<Vec<_>>(),
        ["workers", "1", "env.sh:3"]
    );
    assert_eq!(
        line("api_ip").split_whitespace().collect::<Vec<_>>(),
        ["api_ip", "-", "default"]
    );
    let json: serde_json::Value = serde_json::from_str(&report::json(&settings).unwrap()).unwrap();
    assert_eq!(json["settings"].as_array().map(Vec::len), Some(VARIABLES.len()));
    assert_eq!(
        json["settings"][0],
        serde_json::json!({"name": "cluster", "value": "lab", "origin": "env.sh:1"})
    );
}

#[test]
fn flags_of_the_command_line_are_known_to_settings() {
    let command = ocpdeploy::cli::Cli::command();
    let plan = command.find_subcommand("plan").unwrap();
    let flags: BTreeSet<&str> = plan
        .get_arguments()
        .map(|argument| argument.get_id().as_str())
        .collect();
    for name in variables::OWN_FLAGS {
        assert!(flags.contains(name), "--{name} is no flag");
    }
    let settings = VARIABLES
        .iter()
        .map(|variable| variable.name)
        .filter(|name| flags.contains(name));
    assert_eq!(settings.collect::<BTreeSet<_>>(), BTreeSet::from(variables::OWN_FLAGS));
}

// The sample.

/// `env.sh.sample`, generated from the table.
fn sample() -> String {
    let mut text = "\
# All settings of a cluster, with their defaults under profile=standard.
# Copy this file to env.sh. To change a setting, remove the `#` before it.
#
# The file is read without a shell: NAME=VALUE lines, `export`, quotes, $x, ${x}, ${x:-default}, ~/ and comments.
# A name that begins with `_` is a variable for use in this file. Relative paths start at the directory of this file.
# `ocpdeploy config` shows the value of every setting and where it comes from.
"
    .to_owned();
    for group in variables::GROUPS {
        text += &format!("\n\n## {}\n", group.title);
        for variable in VARIABLES.iter().filter(|variable| variable.group == *group) {
            let also = match variable.aliases {
                [] => String::new(),
                aliases => format!(" Also: {}.", aliases.join(", ")),
            };
            text += &match variable.name {
                "cluster" => format!("\n# {}{also}\ncluster=lab\n", variable.doc),
                "domain" => format!("\n# {}{also}\ndomain=example.com\n", variable.doc),
                name => format!("\n# {}{also}\n#{name}={}\n", variable.doc, variable.default),
            };
        }
    }
    text
}

#[test]
fn the_sample_lists_every_variable_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("env.sh.sample");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, sample()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, sample(), "UPDATE_GOLDEN=1 writes it again");

    // As it is, and with all lines uncommented, it results in the defaults.
    let bare = load("");
    let all: String = text
        .lines()
        .map(|line| {
            line.strip_prefix('#')
                .filter(|l| !l.starts_with([' ', '#']))
                .unwrap_or(line)
        })
        .fold(String::new(), |text, line| text + line + "\n");
    for env in [text, all] {
        let loaded = Given {
            env: &env,
            ..Given::default()
        }
        .loaded();
        for value in &bare.values {
            assert_eq!(value_and_origin(&loaded, &value.name).0, value.value, "{}", value.name);
        }
    }
}
