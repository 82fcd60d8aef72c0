use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn sources(folders: &[&tempfile::TempDir], variables: &[(&str, &str)]) -> Sources {
    Sources {
        variables: variables
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        folders: folders.iter().map(|folder| folder.path().to_owned()).collect(),
        read: |path| std::fs::read_to_string(path),
    }
}

const CLOUDS: &str = "clouds:\n  a:\n    profile: vendor\n    region_name: one\n    auth:\n      username: demo\n      project_name: p\n  \
                      b:\n    interface: internal\n    auth: {auth_url: 'https://b/v3', token: tok, project_id: 7}\n";
const SECURE: &str = "clouds:\n  a:\n    auth:\n      password: pw\n";
const PUBLIC: &str = "public-clouds:\n  vendor:\n    region_name: two\n    auth:\n      auth_url: https://vendor.example.com:5000/v2.0/\n      \
                      user_domain_name: Users\n";

#[test]
fn the_first_folder_wins_and_files_add_to_each_other() {
    let first = folder(&[("clouds.yaml", CLOUDS), ("secure.yaml", SECURE)]);
    let second = folder(&[("clouds.yaml", "clouds: {c: {}}"), ("clouds-public.yaml", PUBLIC)]);
    let sources = sources(&[&first, &second], &[("OS_CLOUD", "b")]);
    let a = Access::read(Some("a"), None, &sources).unwrap();
    assert_eq!(a.auth_url, "https://vendor.example.com:5000/v3");
    assert_eq!(
        a.region.as_deref(),
        Some("one"),
        "the settings of the cloud override those of its vendor"
    );
    let user = json!({"name": "demo", "domain": {"name": "Users"}, "password": "pw"});
    let scope = json!({"project": {"name": "p", "domain": {"id": "default"}}});
    let identity = json!({"methods": ["password"], "password": {"user": user}});
    assert_eq!(a.sign_in(), json!({"auth": {"identity": identity, "scope": scope}}));
    let b = Access::read(None, Some("three"), &sources).unwrap();
    assert_eq!((b.region.as_deref(), b.interface.as_str()), (Some("three"), "internal"));
    assert_eq!(b.sign_in()["auth"]["identity"]["token"]["id"], "tok");
    assert_eq!(b.sign_in()["auth"]["scope"]["project"]["id"], "7");
}

#[test]
fn an_application_credential_is_sent_without_scope() {
    let variables = [
        ("OS_AUTH_URL", "https://k:5000"),
        ("OS_APPLICATION_CREDENTIAL_NAME", "deploy"),
        ("OS_APPLICATION_CREDENTIAL_SECRET", "s"),
        ("OS_USERNAME", "demo"),
        ("OS_PROJECT_NAME", "p"),
    ];
    let access = Access::read(None, None, &sources(&[], &variables)).unwrap();
    let body = access.sign_in();
    assert_eq!(body["auth"].get("scope"), None);
    let user = json!({"name": "demo", "domain": {"id": "default"}});
    let credential = json!({"name": "deploy", "user": user, "secret": "s"});
    assert_eq!(body["auth"]["identity"]["application_credential"], credential);
}

#[test]
fn no_secret_is_shown() {
    let folder = folder(&[
        ("clouds.yaml", CLOUDS),
        ("secure.yaml", SECURE),
        ("clouds-public.yaml", PUBLIC),
    ]);
    for cloud in ["a", "b"] {
        let access = Access::read(Some(cloud), None, &sources(&[&folder], &[])).unwrap();
        let shown = format!("{access:?}");
        assert!(!shown.contains("pw") && !shown.contains("tok\""), "{shown}");
    }
    let broken = self::folder(&[("clouds.yaml", "clouds:\n  a:\n    password: hunter2\n   x: [")]);
    let error = Access::read(Some("a"), None, &sources(&[&broken], &[])).unwrap_err();
    assert!(error.message.ends_with("is not valid YAML"), "{error}");
}

#[test]
fn missing_settings_are_named() {
    let whole = [
        ("OS_AUTH_URL", "https://k/v3"),
        ("OS_USERNAME", "u"),
        ("OS_PASSWORD", "p"),
        ("OS_PROJECT_NAME", "x"),
    ];
    assert!(Access::read(None, None, &sources(&[], &whole)).is_ok());
    for (gone, what) in [
        ("OS_USERNAME", "username"),
        ("OS_PASSWORD", "password, token or application credential"),
        ("OS_PROJECT_NAME", "project_name"),
    ] {
        let rest: Vec<_> = whole.iter().filter(|(name, _)| *name != gone).copied().collect();
        let error = Access::read(None, None, &sources(&[], &rest)).unwrap_err();
        assert_eq!(error.message, format!("the cloud of OS_AUTH_URL has no {what}"));
    }
    let two = folder(&[("clouds.yaml", CLOUDS)]);
    let error = Access::read(None, None, &sources(&[&two], &[])).unwrap_err();
    assert!(
        error.message.ends_with("has 2 clouds, and os_cloud is not set"),
        "{error}"
    );
    assert_eq!(error.hint, "set os_cloud to one of a, b");
    let insecure = [whole.as_slice(), &[("OS_INSECURE", "true")]].concat();
    assert!(
        Access::read(None, None, &sources(&[], &insecure))
            .unwrap_err()
            .message
            .contains("verification of certificates")
    );
}

#[test]
fn endpoints_get_the_version_that_the_catalog_leaves_out() {
    let endpoint = |kind: &str, url: &str| {
        json!({"type": kind, "endpoints": [
            {"interface": "public", "region": "one", "url": url},
            {"interface": "internal", "region_id": "one", "url": "https://inner"},
        ]})
    };
    let catalog = json!([
        endpoint("network", "https://n:9696/"),
        endpoint("image", "https://i/image/v2"),
        endpoint("compute", "https://c/v2.1/"),
        endpoint("volumev3", "https://v/v3/7"),
    ]);
    let variables = [
        ("OS_AUTH_URL", "https://k/v3"),
        ("OS_TOKEN", "t"),
        ("OS_PROJECT_ID", "7"),
        ("OS_REGION_NAME", "one"),
        ("OS_COMPUTE_ENDPOINT_OVERRIDE", "https://other/v2.1"),
    ];
    let access = Access::read(None, None, &sources(&[], &variables)).unwrap();
    let at = |service| access.endpoint(service, "public", &catalog);
    assert_eq!(at(Service::Network).as_deref(), Some("https://n:9696/v2.0"));
    assert_eq!(at(Service::Image).as_deref(), Some("https://i/image/v2"));
    assert_eq!(at(Service::Volume).as_deref(), Some("https://v/v3/7"));
    assert_eq!(at(Service::Compute).as_deref(), Some("https://other/v2.1"));
    assert_eq!(
        access.endpoint(Service::Network, "internal", &catalog).as_deref(),
        Some("https://inner/v2.0")
    );
    assert_eq!(access.endpoint(Service::Network, "admin", &catalog), None);
    let elsewhere = Access::read(None, Some("two"), &sources(&[], &variables)).unwrap();
    assert_eq!(elsewhere.endpoint(Service::Network, "public", &catalog), None);
}
