//! How clouds.yaml and `OS_*` are read, compared with openstacksdk in many small configurations: the sign-in, the region,
//! and interface and endpoint of each service. `tests/openstacksdk/install.sh` installs it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ocpdeploy::backend::openstack::read_cloud;
use serde_json::{Value, json};

use crate::support::left_out::no_judge;

/// What this program does with a configuration.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// The same as openstacksdk: the same sign-in, or an error there and here.
    Same,
    /// An error with these words, although openstacksdk accepts it.
    Refused(&'static str),
    /// Something else, for this reason.
    Differs(&'static str),
}

use Expected::{Differs, Refused, Same};

struct Case {
    name: String,
    /// By their path: in the current folder `cwd`, in `home`, or in `xdg`.
    files: Vec<(&'static str, String)>,
    variables: Vec<(&'static str, String)>,
    cloud: Option<&'static str>,
    region: Option<&'static str>,
    expected: Expected,
}

const URL: &str = "https://k.example.com:5000/v3";
const HOME: &str = "home/.config/openstack/clouds.yaml";
const CWD: &str = "cwd/clouds.yaml";
const SECURE: &str = "cwd/secure.yaml";
const NOT_TEXT: Expected = Refused("is not text in YAML");

/// The usual settings in `auth`, by their name.
fn usual() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("auth_url", URL),
        ("username", "demo"),
        ("password", "pw"),
        ("project_name", "p"),
        ("user_domain_name", "Users"),
        ("project_domain_name", "Projects"),
    ])
}

/// A file with one cloud: these lines beside `auth`, and the usual settings with these instead.
fn one(beside: &[&str], auth: &[(&'static str, &'static str)]) -> String {
    let mut all = usual();
    for (key, value) in auth {
        match value.is_empty() {
            true => drop(all.remove(key)),
            false => drop(all.insert(key, value)),
        }
    }
    let beside: String = beside.iter().map(|line| format!("    {line}\n")).collect();
    let auth: String = all
        .iter()
        .map(|(key, value)| format!("      {key}: {value}\n"))
        .collect();
    format!("clouds:\n  a:\n{beside}    auth:\n{auth}")
}

fn case(name: impl Into<String>, files: Vec<(&'static str, String)>, expected: Expected) -> Case {
    Case {
        name: name.into(),
        files,
        variables: Vec::new(),
        cloud: None,
        region: None,
        expected,
    }
}

/// Scalars of the password, and of names and ids.
fn scalars() -> Vec<Case> {
    let passwords: &[(&str, Expected)] = &[
        ("plain text", Same),
        ("'quoted: #1'", Same),
        ("\"with \\u00e9 and \\\"quotes\\\"\"", Same),
        ("'0189'", Same),
        ("'yes'", Same),
        ("|-\n        block", Same),
        (">-\n        folded\n        lines", Same),
        ("!!str 012", Same),
        ("0189", Same),
        ("1e5", Same),
        ("5e12", Same),
        ("12345678901234567890123", Same),
        ("y", Same),
        ("n", Same),
        ("Y", Same),
        ("0", Same),
        ("7", Same),
        ("-7", Same),
        ("10.0.0.1", Same),
        ("1a", Same),
        ("0b2", Same),
        ("0xyz", Same),
        ("0o17", Same),
        ("1e5f", Same),
        ("-", Same),
        ("a: b", Same),
        ("p@ss#word", Same),
        ("017", NOT_TEXT),
        ("+1", NOT_TEXT),
        ("1_000", NOT_TEXT),
        ("0x1F", NOT_TEXT),
        ("0b11", NOT_TEXT),
        ("1:30", NOT_TEXT),
        ("12:34:56", NOT_TEXT),
        ("1.0", NOT_TEXT),
        ("1.10", NOT_TEXT),
        (".5", NOT_TEXT),
        ("1.5e+3", NOT_TEXT),
        (".inf", Refused("is not valid YAML")),
        ("2001-12-14", NOT_TEXT),
        ("yes", NOT_TEXT),
        ("No", NOT_TEXT),
        ("on", NOT_TEXT),
        ("OFF", NOT_TEXT),
        ("true", NOT_TEXT),
        ("False", NOT_TEXT),
        ("1.5", NOT_TEXT),
        ("~", Refused("has no password")),
        ("null", Refused("has no password")),
        ("{}", Refused("has no password")),
    ];
    let mut all = Vec::new();
    for (text, expected) in passwords {
        let file = one(&[], &[("password", text)]);
        all.push(case(format!("password: {text}"), vec![(CWD, file)], *expected));
    }
    for (key, text, expected) in [
        ("username", "n", Same),
        ("username", "0189", Same),
        ("username", "no", NOT_TEXT),
        ("project_name", "5e12", Same),
        ("project_name", "on", NOT_TEXT),
        ("project_id", "12345678901234567890123456789012", Same),
        ("project_id", "0b1e", Same),
        ("user_domain_name", "yes", NOT_TEXT),
    ] {
        let file = one(&[], &[(key, text)]);
        all.push(case(format!("{key}: {text}"), vec![(CWD, file)], expected));
    }
    all
}

/// The same setting beside `auth` and in it, and several names of one setting.
fn precedence() -> Vec<Case> {
    let mut all = Vec::new();
    for key in [
        "project_name",
        "project_id",
        "user_domain_name",
        "user_domain_id",
        "project_domain_name",
        "project_domain_id",
        "username",
        "user_id",
        "password",
        "auth_url",
    ] {
        let (inner, outer) = match key {
            "auth_url" => ("https://in.example.com/v3", "https://out.example.com/v3"),
            _ => ("inside", "outside"),
        };
        let line = format!("{key}: {outer}");
        let both = one(&[&line], &[(key, inner)]);
        all.push(case(format!("{key} in both places"), vec![(CWD, both)], Same));
        let outside = one(&[&line], &[(key, "")]);
        all.push(case(format!("{key} beside auth"), vec![(CWD, outside)], Same));
    }
    for (beside, auth, expected) in [
        (vec!["tenant_name: t"], vec![], Same),
        (vec!["tenant_name: t"], vec![("project_name", "")], Same),
        (vec![], vec![("tenant_name", "t"), ("project_name", "")], Same),
        (
            vec!["project_name: o"],
            vec![("tenant_name", "t"), ("project_name", "")],
            Same,
        ),
        (vec!["tenant_id: t"], vec![("project_id", "i")], Same),
        (vec!["user-domain-name: d"], vec![("user_domain_name", "")], Same),
        (vec!["project-name: q"], vec![("project_name", "")], Same),
        (vec![], vec![("user_name", "u"), ("username", "")], Same),
        (vec![], vec![("user-name", "u"), ("username", "")], Same),
        (vec![], vec![("user_name", "u")], Same),
        (
            vec![],
            vec![
                ("domain_name", "d"),
                ("user_domain_name", ""),
                ("project_domain_name", ""),
            ],
            Same,
        ),
        (
            vec![],
            vec![
                ("domain_id", "d"),
                ("user_domain_name", ""),
                ("project_domain_name", ""),
            ],
            Same,
        ),
        (vec![], vec![("domain_name", "d")], Same),
        (
            vec!["domain_name: d"],
            vec![("user_domain_name", ""), ("project_domain_name", "")],
            Same,
        ),
        (
            vec![],
            vec![("user_domain_name", ""), ("project_domain_name", "")],
            Differs("a missing domain is that with the id default"),
        ),
        (vec![], vec![("user_id", "i")], Same),
        (vec![], vec![("project_id", "i")], Same),
        (
            vec!["auth_type: v3token"],
            vec![
                ("token", "t"),
                ("password", ""),
                ("username", ""),
                ("user_domain_name", ""),
            ],
            Same,
        ),
        (
            vec!["auth_type: v3token", "token: outside"],
            vec![
                ("token", "t"),
                ("password", ""),
                ("username", ""),
                ("user_domain_name", ""),
            ],
            Same,
        ),
        (
            vec!["auth_type: v3token"],
            vec![
                ("auth_token", "t"),
                ("password", ""),
                ("username", ""),
                ("user_domain_name", ""),
            ],
            Same,
        ),
        (
            vec![],
            vec![("token", "t"), ("password", ""), ("username", "")],
            Differs("a token without auth_type is used, as the program openstack does"),
        ),
        (
            vec!["auth_type: v3applicationcredential"],
            vec![
                ("application_credential_id", "i"),
                ("application_credential_secret", "s"),
                ("username", ""),
                ("user_domain_name", ""),
                ("password", ""),
                ("project_name", ""),
                ("project_domain_name", ""),
            ],
            Same,
        ),
        (
            vec!["auth_type: v3applicationcredential"],
            vec![
                ("application_credential_name", "c"),
                ("application_credential_secret", "s"),
                ("password", ""),
                ("project_name", ""),
                ("project_domain_name", ""),
            ],
            Same,
        ),
        (
            vec!["auth_type: v3applicationcredential"],
            vec![
                ("application_credential_id", "i"),
                ("application_credential_secret", "s"),
            ],
            Differs("values that the credential does not need are ignored, keystoneauth rejects them"),
        ),
        (
            vec!["auth_type: v3applicationcredential", "application_credential_id: o"],
            vec![
                ("application_credential_id", "i"),
                ("application_credential_secret", "s"),
                ("username", ""),
                ("user_domain_name", ""),
                ("password", ""),
                ("project_name", ""),
                ("project_domain_name", ""),
            ],
            Same,
        ),
        (
            vec![],
            vec![("trust_id", "t"), ("project_name", ""), ("project_domain_name", "")],
            Same,
        ),
        (vec!["auth_type: v3password"], vec![], Same),
        (vec!["auth_type: password"], vec![], Same),
        (vec!["auth_plugin: v3password"], vec![], Same),
        (
            vec!["auth_type: v3oidcpassword"],
            vec![],
            Refused("auth_type v3oidcpassword, which is not supported"),
        ),
        (
            vec!["auth_type: v2password"],
            vec![],
            Refused("auth_type v2password, which is not supported"),
        ),
        (
            vec!["auth_type: none"],
            vec![],
            Refused("auth_type none, which is not supported"),
        ),
        (
            vec!["verify: false"],
            vec![],
            Refused("disables the verification of certificates"),
        ),
        (
            vec!["insecure: true"],
            vec![],
            Refused("disables the verification of certificates"),
        ),
        (vec!["verify: true"], vec![], Same),
        (vec!["cert: c.pem"], vec![], Refused("requires a client certificate")),
        (vec![], vec![("auth_url", "https://k.example.com:5000")], Same),
        (vec![], vec![("auth_url", "https://k.example.com:5000/")], Same),
        (vec![], vec![("auth_url", "https://k.example.com/identity/v3/")], Same),
        (vec![], vec![("auth_url", "https://k.example.com:5000/v2.0")], Same),
        (vec![], vec![("auth_url", "")], Same),
        (vec![], vec![("username", "")], Refused("has no username")),
        (vec![], vec![("password", "")], Same),
        (
            vec![],
            vec![("project_name", ""), ("project_domain_name", "")],
            Refused("has no project_name"),
        ),
    ] {
        let name = format!("{beside:?} {auth:?}");
        all.push(case(name, vec![(CWD, one(&beside, &auth))], expected));
    }
    all
}

/// Which files are found, and how they add to each other.
fn files() -> Vec<Case> {
    let plain = || one(&[], &[]);
    let other = || one(&[], &[("username", "other")]);
    let without = || one(&[], &[("password", "")]);
    let secret = || "clouds: {a: {auth: {password: secret}}}\n".to_owned();
    let vendor =
        "public-clouds:\n  v:\n    region_name: north\n    auth: {auth_url: https://v.example.com/v3}\n".to_owned();
    let profile = |word: &str| one(&[&format!("{word}: v")], &[("auth_url", "")]);
    let xdg = "xdg/openstack/clouds.yaml";
    let json = json!({"clouds": {"a": {"auth": usual()}}}).to_string();
    let mut all = vec![
        case("in the current folder", vec![(CWD, plain()), (HOME, other())], Same),
        case("in the home", vec![(HOME, plain())], Same),
        case("suffix yml", vec![("cwd/clouds.yml", plain())], Same),
        case("suffix json", vec![("cwd/clouds.json", json)], Same),
        case(
            "yaml before yml",
            vec![(CWD, plain()), ("cwd/clouds.yml", other())],
            Same,
        ),
        case("no file", vec![], Same),
        case("an empty file", vec![(CWD, String::new())], Same),
        case("no clouds", vec![(CWD, "clouds: {}\n".to_owned())], Same),
        case("a list", vec![(CWD, "- a\n".to_owned())], Same),
        case("invalid", vec![(CWD, "clouds: [\n".to_owned())], Same),
        case(
            "invalid before a valid one",
            vec![(CWD, "clouds: [\n".to_owned()), (HOME, plain())],
            Refused("is not valid YAML"),
        ),
        case("secure.yaml", vec![(CWD, without()), (SECURE, secret())], Same),
        case("secure.yaml replaces", vec![(CWD, plain()), (SECURE, secret())], Same),
        case(
            "an empty secure.yaml",
            vec![(CWD, plain()), (SECURE, String::new())],
            Same,
        ),
        case(
            "an invalid secure.yaml",
            vec![(CWD, plain()), (SECURE, "clouds: [\n".to_owned())],
            Refused("is not valid YAML"),
        ),
        case(
            "secure.yaml elsewhere",
            vec![(CWD, without()), ("home/.config/openstack/secure.yaml", secret())],
            Refused("has no password"),
        ),
        case(
            "profile",
            vec![(CWD, profile("profile")), ("cwd/clouds-public.yaml", vendor.clone())],
            Same,
        ),
        case(
            "cloud is a profile",
            vec![(CWD, profile("cloud")), ("cwd/clouds-public.yaml", vendor)],
            Same,
        ),
        case("an unknown profile", vec![(CWD, profile("profile"))], Same),
        case(
            "a profile of openstacksdk",
            vec![(CWD, one(&["profile: ovh"], &[("auth_url", "")]))],
            Refused("clouds-public.yaml has no profile ovh"),
        ),
        case("byte order mark", vec![(CWD, format!("\u{feff}{}", plain()))], Same),
        case("CRLF", vec![(CWD, plain().replace('\n', "\r\n"))], Same),
        case("document start", vec![(CWD, format!("---\n{}", plain()))], Same),
        case("comments", vec![(CWD, format!("# x\n{}# y\n", plain()))], Same),
        case("duplicate key", vec![(CWD, plain() + "      username: second\n")], Same),
        case(
            "duplicate cloud",
            vec![(CWD, plain() + &other()["clouds:\n".len()..])],
            Same,
        ),
        case(
            "duplicate auth",
            vec![(CWD, plain() + &other()["clouds:\n  a:\n".len()..])],
            Same,
        ),
        case(
            "anchors and merge keys",
            vec![(
                CWD,
                format!("x: &x\n  username: merged\n  password: pw\n{}", plain())
                    .replace("    auth:\n", "    auth:\n      <<: *x\n")
                    .replace("      username: demo\n", ""),
            )],
            Same,
        ),
        case(
            "alias",
            vec![(CWD, format!("x: &x 0189\n{}", one(&[], &[("password", "*x")])))],
            Same,
        ),
        case(
            "an alias of no text",
            vec![(CWD, format!("x: &x 017\n{}", one(&[], &[("password", "*x")])))],
            NOT_TEXT,
        ),
    ];
    let two = || {
        plain()
            + "  b:\n    auth: {auth_url: https://b.example.com/v3, username: u, password: 'x', project_id: i, user_domain_id: d}\n"
    };
    all.push(case("two clouds without a choice", vec![(CWD, two())], Same));
    for cloud in ["b", "c"] {
        all.push(Case {
            cloud: Some(cloud),
            ..case(format!("cloud {cloud}"), vec![(CWD, two())], Same)
        });
    }
    let with = |name: &str, files, variables: Vec<(&'static str, &str)>| Case {
        variables: variables
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
        ..case(name, files, Same)
    };
    all.extend([
        with("OS_CLOUD", vec![(CWD, two())], vec![("OS_CLOUD", "b")]),
        with(
            "XDG_CONFIG_HOME",
            vec![(xdg, plain()), (HOME, other())],
            vec![("XDG_CONFIG_HOME", "ROOT/xdg")],
        ),
        with(
            "XDG_CONFIG_HOME without a file",
            vec![(HOME, plain())],
            vec![("XDG_CONFIG_HOME", "ROOT/xdg")],
        ),
        with(
            "XDG_CONFIG_DIRS",
            vec![(xdg, plain())],
            vec![("XDG_CONFIG_DIRS", "ROOT/xdg")],
        ),
        with(
            "OS_CLIENT_CONFIG_FILE",
            vec![("other/x.yaml", plain()), (CWD, other())],
            vec![("OS_CLIENT_CONFIG_FILE", "ROOT/other/x.yaml")],
        ),
        with(
            "OS_CLIENT_SECURE_FILE",
            vec![(CWD, without()), ("other/x.yaml", secret())],
            vec![("OS_CLIENT_SECURE_FILE", "ROOT/other/x.yaml")],
        ),
    ]);
    all
}

/// Regions, interfaces and endpoints.
fn endpoints() -> Vec<Case> {
    let mut all = Vec::new();
    for (lines, region, expected) in [
        (vec!["region_name: one"], None, Same),
        (
            vec!["region_name: one"],
            Some("two"),
            Differs("the only region is a default, not a list"),
        ),
        (vec!["region-name: one"], None, Same),
        (vec!["regions: [one]"], None, Same),
        (vec!["regions: [one, two]"], Some("two"), Same),
        (vec!["regions: [one, two]"], Some("three"), Same),
        (vec!["regions: [one, two]"], None, Refused("has 2 regions")),
        (vec!["region_name: 'one,two'"], Some("two"), Same),
        (
            vec!["regions: [{name: one, values: {interface: internal}}]"],
            None,
            Same,
        ),
        (
            vec!["regions: [{name: one, values: {auth: {project_name: q}}}]"],
            None,
            Same,
        ),
        (vec!["regions: [{name: one, values: {project_name: q}}]"], None, Same),
        (vec![], Some("one"), Same),
        (vec!["interface: internal"], None, Same),
        (vec!["interface: internalURL"], None, Same),
        (vec!["endpoint_type: internalURL"], None, Same),
        (vec!["compute_interface: internal"], None, Same),
        (vec!["volume_interface: internal"], None, Same),
        (vec!["network_endpoint_type: internal", "interface: admin"], None, Same),
        (
            vec!["compute_endpoint_override: https://c.example.com/v2.1"],
            None,
            Same,
        ),
        (vec!["network_endpoint_override: https://n.example.com"], None, Same),
        (vec!["image_endpoint_override: https://i.example.com"], None, Same),
        (vec!["volume_endpoint_override: https://v.example.com/v3"], None, Same),
        (vec!["volumev3_endpoint_override: https://v.example.com/v3"], None, Same),
        (
            vec!["block_storage_endpoint_override: https://v.example.com/v3"],
            None,
            Same,
        ),
        (
            vec!["object_store_endpoint_override: https://o.example.com"],
            None,
            Same,
        ),
        (
            vec!["load_balancer_endpoint_override: https://l.example.com"],
            None,
            Same,
        ),
        (
            vec!["compute-endpoint-override: https://c.example.com/v2.1"],
            None,
            Same,
        ),
        (vec!["compute_endpoint: https://c.example.com/v2.1"], None, Same),
        (
            vec![
                "volume_endpoint_override: https://a.example.com",
                "volumev3_endpoint_override: https://b.example.com",
            ],
            None,
            Same,
        ),
    ] {
        all.push(Case {
            region,
            ..case(format!("{lines:?} {region:?}"), vec![(CWD, one(&lines, &[]))], expected)
        });
    }
    let template = one(
        &["region_name: one"],
        &[("auth_url", "https://{region_name}.example.com/v3")],
    );
    all.push(case("region in auth_url", vec![(CWD, template)], Same));
    all
}

/// Only variables.
fn variables() -> Vec<Case> {
    let usual = [
        ("OS_AUTH_URL", URL),
        ("OS_USERNAME", "demo"),
        ("OS_PASSWORD", "0189"),
        ("OS_PROJECT_NAME", "p"),
        ("OS_USER_DOMAIN_NAME", "Users"),
        ("OS_PROJECT_DOMAIN_NAME", "Projects"),
    ];
    let mut all = Vec::new();
    for (more, expected) in [
        (vec![], Same),
        (vec![("OS_PASSWORD", "yes")], Same),
        (vec![("OS_PROJECT_ID", "i")], Same),
        (vec![("OS_PROJECT_NAME", ""), ("OS_TENANT_NAME", "t")], Same),
        (vec![("OS_PROJECT_NAME", ""), ("OS_TENANT_ID", "t")], Same),
        (vec![("OS_USER_DOMAIN_NAME", ""), ("OS_USER_DOMAIN_ID", "d")], Same),
        (vec![("OS_USER_ID", "i")], Same),
        (vec![("OS_AUTH_URL", "https://k.example.com:5000")], Same),
        (vec![("OS_AUTH_URL", "https://k.example.com:5000/v2.0")], Same),
        (vec![("OS_REGION_NAME", "one")], Same),
        (vec![("OS_INTERFACE", "internal")], Same),
        (vec![("OS_ENDPOINT_TYPE", "internalURL")], Same),
        (vec![("OS_IDENTITY_API_VERSION", "3")], Same),
        (
            vec![("OS_COMPUTE_ENDPOINT_OVERRIDE", "https://c.example.com/v2.1")],
            Same,
        ),
        (vec![("OS_AUTH_TYPE", "v3password")], Same),
        (
            vec![
                ("OS_AUTH_TYPE", "v3applicationcredential"),
                ("OS_APPLICATION_CREDENTIAL_ID", "i"),
                ("OS_APPLICATION_CREDENTIAL_SECRET", "s"),
                ("OS_USERNAME", ""),
                ("OS_USER_DOMAIN_NAME", ""),
                ("OS_PASSWORD", ""),
                ("OS_PROJECT_NAME", ""),
                ("OS_PROJECT_DOMAIN_NAME", ""),
            ],
            Same,
        ),
        (
            vec![
                ("OS_AUTH_TYPE", "v3token"),
                ("OS_TOKEN", "t"),
                ("OS_USERNAME", ""),
                ("OS_USER_DOMAIN_NAME", ""),
                ("OS_PASSWORD", ""),
            ],
            Same,
        ),
        (
            vec![
                ("OS_PROJECT_NAME", ""),
                ("OS_PROJECT_DOMAIN_NAME", ""),
                ("OS_TRUST_ID", "t"),
            ],
            Same,
        ),
        (
            vec![("OS_INSECURE", "true")],
            Refused("disables the verification of certificates"),
        ),
        (
            vec![
                ("OS_USER_DOMAIN_NAME", ""),
                ("OS_PROJECT_DOMAIN_NAME", ""),
                ("OS_DOMAIN_NAME", "d"),
            ],
            Same,
        ),
    ] {
        let mut set = BTreeMap::from(usual);
        for (name, value) in &more {
            match value.is_empty() {
                true => drop(set.remove(name)),
                false => drop(set.insert(name, value)),
            }
        }
        all.push(Case {
            variables: set.into_iter().map(|(name, value)| (name, value.to_owned())).collect(),
            ..case(format!("{more:?}"), vec![], expected)
        });
    }
    all
}

/// The result in a comparable form; `None` for an error.
fn comparable(mut result: Value) -> Option<Value> {
    for interface in result["interfaces"].as_array_mut()? {
        *interface = json!(interface.as_str()?.trim_end_matches("URL"));
    }
    for endpoint in result["endpoints"].as_array_mut()? {
        *endpoint = json!(endpoint.as_str());
    }
    Some(result)
}

#[test]
fn clouds_are_read_as_openstacksdk_reads_them_or_rejected_by_name() {
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/openstacksdk");
    let all: Vec<Case> = [scalars(), precedence(), files(), endpoints(), variables()]
        .into_iter()
        .flatten()
        .collect();
    let roots: Vec<_> = all.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    let (mut ours, mut cases) = (Vec::new(), Vec::new());
    for (case, root) in all.iter().zip(&roots) {
        let root = root.path();
        for (path, text) in &case.files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let folder = root.join("cwd");
        std::fs::create_dir_all(&folder).unwrap();
        let mut variables = BTreeMap::from([("HOME".to_owned(), root.join("home").display().to_string())]);
        for (name, value) in &case.variables {
            variables.insert((*name).to_owned(), value.replace("ROOT", &root.display().to_string()));
        }
        cases.push(json!({"folder": folder, "variables": variables, "cloud": case.cloud, "region": case.region}));
        ours.push(read_cloud(variables, &folder, case.cloud, case.region));
    }
    // Without the judge, only what is rejected by name is tested.
    let theirs: Option<Vec<Value>> = judge.join("installed").exists().then(|| {
        let file = roots[0].path().join("cases.json");
        std::fs::write(&file, json!(cases).to_string()).unwrap();
        let output = Command::new(judge.join("bin/python"))
            .arg("-B")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openstacksdk/read.py"))
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
    });
    if theirs.is_none() {
        no_judge("OpenStack's SDK is not installed: run tests/openstacksdk/install.sh");
    }
    let mut wrong = Vec::new();
    let (mut same, mut refused, mut differ) = (0, 0, 0);
    for (index, (case, ours)) in all.iter().zip(ours).enumerate() {
        let theirs = theirs.as_ref().map(|theirs| &theirs[index]);
        let shown = || {
            format!(
                "{} ({:?}):\n  ours {ours:?}\n  theirs {theirs:?}",
                case.name, case.expected
            )
        };
        let is_right = match (case.expected, theirs.map(|theirs| comparable(theirs.clone()))) {
            (Refused(words), _) => {
                refused += 1;
                ours.as_ref().is_err_and(|message| message.contains(words))
            }
            (_, None) => true,
            (Same, Some(theirs)) => {
                same += 1;
                ours.clone().ok() == theirs
            }
            (Differs(reason), Some(theirs)) => {
                println!("{}: differs: {reason}", case.name);
                differ += 1;
                ours.clone().ok() != theirs
            }
        };
        if !is_right {
            wrong.push(shown());
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        all.len(),
        wrong.join("\n")
    );
    println!("clouds.yaml: {same} as openstacksdk, {refused} rejected by name, {differ} meant to differ");
}
