use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn sources(folders: &[&tempfile::TempDir], variables: &[(&str, &str)]) -> CloudSources {
    CloudSources {
        variables: variables
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        folders: folders.iter().map(|folder| folder.path().to_owned()).collect(),
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
    let a = CloudAccess::read(Some("a"), None, &sources).unwrap();
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
    let b = CloudAccess::read(None, Some("three"), &sources).unwrap();
    assert_eq!((b.region.as_deref(), b.interface.as_str()), (Some("three"), "internal"));
    assert_eq!(b.sign_in()["auth"]["identity"]["token"]["id"], "tok");
    assert_eq!(b.sign_in()["auth"]["scope"]["project"]["id"], "7");
}

#[test]
fn a_password_is_only_added_to_a_cloud_in_the_same_folder() {
    let clouds = folder(&[("clouds.yaml", CLOUDS), ("clouds-public.yaml", PUBLIC)]);
    let own = folder(&[("clouds.yaml", "clouds: {c: {}}"), ("secure.yaml", SECURE)]);
    let read = |variables: &[(&str, &str)]| CloudAccess::read(Some("a"), None, &sources(&[&clouds, &own], variables));
    let error = read(&[]).unwrap_err();
    assert_eq!(
        error.message,
        "cloud a has no password, token or application credential"
    );
    assert!(error.hint.contains("OS_CLIENT_SECURE_FILE"), "{}", error.hint);
    let named = own.path().join("secure.yaml").display().to_string();
    let access = read(&[("OS_CLIENT_SECURE_FILE", named.as_str())]).unwrap();
    assert_eq!(
        access.sign_in()["auth"]["identity"]["password"]["user"]["password"],
        "pw"
    );
    // One beside a clouds.yaml that a variable refers to is found.
    std::fs::write(clouds.path().join("secure.yaml"), SECURE).unwrap();
    let named = clouds.path().join("clouds.yaml").display().to_string();
    assert!(read(&[("OS_CLIENT_CONFIG_FILE", named.as_str())]).is_ok());
}

#[test]
fn a_found_file_that_others_can_write_is_rejected_unless_named() {
    let found = folder(&[
        ("clouds.yaml", CLOUDS),
        ("secure.yaml", SECURE),
        ("clouds-public.yaml", PUBLIC),
    ]);
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for (name, variable) in [
        ("clouds.yaml", "OS_CLIENT_CONFIG_FILE"),
        ("secure.yaml", "OS_CLIENT_SECURE_FILE"),
        ("clouds-public.yaml", "OS_CLIENT_VENDOR_FILE"),
    ] {
        let path = found.path().join(name);
        mode(&path, 0o646);
        let read = |variables: &[(&str, &str)]| CloudAccess::read(Some("a"), None, &sources(&[&found], variables));
        let error = read(&[]).unwrap_err();
        let shown = path.display().to_string();
        assert_eq!(
            error.message,
            format!("{shown} is not safe to use: everyone can write to it")
        );
        assert!(
            error.hint.contains(&format!("`export {variable}={shown}`")),
            "{}",
            error.hint
        );
        assert!(read(&[(variable, shown.as_str())]).is_ok(), "{name}");
        mode(&path, 0o644);
    }
    for bits in [0o777, 0o1777] {
        mode(found.path(), bits);
        let error = CloudAccess::read(Some("a"), None, &sources(&[&found], &[])).unwrap_err();
        assert!(
            error.message.ends_with("everyone can write to its directory"),
            "{error}"
        );
    }
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
    let access = CloudAccess::read(None, None, &sources(&[], &variables)).unwrap();
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
        let access = CloudAccess::read(Some(cloud), None, &sources(&[&folder], &[])).unwrap();
        let shown = format!("{access:?}");
        assert!(!shown.contains("pw") && !shown.contains("tok\""), "{shown}");
    }
    let broken = self::folder(&[("clouds.yaml", "clouds:\n  a:\n    password: hunter2\n   x: [")]);
    let error = CloudAccess::read(Some("a"), None, &sources(&[&broken], &[])).unwrap_err();
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
    assert!(CloudAccess::read(None, None, &sources(&[], &whole)).is_ok());
    for (gone, what) in [
        ("OS_USERNAME", "username"),
        ("OS_PASSWORD", "password, token or application credential"),
        ("OS_PROJECT_NAME", "project_name"),
    ] {
        let rest: Vec<_> = whole.iter().filter(|(name, _)| *name != gone).copied().collect();
        let error = CloudAccess::read(None, None, &sources(&[], &rest)).unwrap_err();
        assert_eq!(error.message, format!("the cloud of OS_AUTH_URL has no {what}"));
    }
    let two = folder(&[("clouds.yaml", CLOUDS)]);
    let error = CloudAccess::read(None, None, &sources(&[&two], &[])).unwrap_err();
    assert!(
        error.message.ends_with("has 2 clouds, and os_cloud is not set"),
        "{error}"
    );
    assert_eq!(error.hint, "set os_cloud to one of a, b");
    let insecure = [whole.as_slice(), &[("OS_INSECURE", "true")]].concat();
    assert!(
        CloudAccess::read(None, None, &sources(&[], &insecure))
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
        endpoint("load-balancer", "https://l/load-balancer/v2.0"),
    ]);
    let variables = [
        ("OS_AUTH_URL", "https://k/v3"),
        ("OS_TOKEN", "t"),
        ("OS_PROJECT_ID", "7"),
        ("OS_REGION_NAME", "one"),
        ("OS_COMPUTE_ENDPOINT_OVERRIDE", "https://other/v2.1"),
    ];
    let access = CloudAccess::read(None, None, &sources(&[], &variables)).unwrap();
    let at = |service| access.endpoint(service, "public", &catalog);
    assert_eq!(at(Service::Network).as_deref(), Some("https://n:9696/v2.0"));
    assert_eq!(at(Service::Image).as_deref(), Some("https://i/image/v2"));
    assert_eq!(at(Service::Volume).as_deref(), Some("https://v/v3/7"));
    assert_eq!(at(Service::Balancer).as_deref(), Some("https://l/load-balancer"));
    assert_eq!(at(Service::Compute).as_deref(), Some("https://other/v2.1"));
    assert_eq!(
        access.endpoint(Service::Network, "internal", &catalog).as_deref(),
        Some("https://inner/v2.0")
    );
    assert_eq!(access.endpoint(Service::Network, "admin", &catalog), None);
    let inner = [&variables[..], &[("OS_INTERFACE", "internal")]].concat();
    let inner = CloudAccess::read(None, None, &sources(&[], &inner)).unwrap();
    let compute = |interface| inner.endpoint(Service::Compute, interface, &catalog);
    assert_eq!(compute("internal").as_deref(), Some("https://other/v2.1"));
    assert_eq!(compute("public").as_deref(), Some("https://c/v2.1"), "for machines");
    let elsewhere = CloudAccess::read(None, Some("two"), &sources(&[], &variables)).unwrap();
    assert_eq!(elsewhere.endpoint(Service::Network, "public", &catalog), None);
}

#[test]
fn one_of_several_regions_must_be_named() {
    let clouds = "clouds:\n  \
                  many:\n    regions: [one, {name: two, values: {interface: internal, auth: {project_id: 2}}}]\n    \
                  auth: {auth_url: 'https://{region_name}.k/v3', token: t, project_id: 1}\n  \
                  ours:\n    profile: vendor\n    auth: {token: t, project_id: 1}\n  \
                  single:\n    regions: [one]\n    auth: {auth_url: 'https://k/v3', token: t, project_id: 1}\n";
    let public = "public-clouds:\n  vendor:\n    regions: [north, south]\n    auth: {auth_url: 'https://v/v3'}\n";
    // Other suffixes than .yaml are read, too.
    let folder = folder(&[("clouds.yml", clouds), ("clouds-public.json", public)]);
    let read = |cloud, region: Option<&str>, variables: &[(&str, &str)]| {
        CloudAccess::read(Some(cloud), region, &sources(&[&folder], variables))
    };
    for (cloud, list) in [("many", "one, two"), ("ours", "north, south")] {
        let error = read(cloud, None, &[]).unwrap_err();
        assert_eq!(
            error.message,
            format!("cloud {cloud} has 2 regions, and os_region is not set")
        );
        assert_eq!(error.hint, format!("set os_region to one of {list}"));
        assert_eq!(
            read(cloud, Some("three"), &[]).unwrap_err().message,
            format!("cloud {cloud} has no region three")
        );
    }
    // The variable also counts for a named cloud, and the setting more than the variable.
    let two = read("many", None, &[("OS_REGION_NAME", "two")]).unwrap();
    assert_eq!(
        (two.region.as_deref(), two.interface.as_str()),
        (Some("two"), "internal")
    );
    assert_eq!(two.auth_url, "https://two.k/v3");
    assert_eq!(
        two.sign_in()["auth"]["scope"]["project"]["id"],
        "2",
        "values of the region"
    );
    let one = read("many", Some("one"), &[("OS_REGION_NAME", "two")]).unwrap();
    assert_eq!((one.region.as_deref(), one.interface.as_str()), (Some("one"), "public"));
    let single = read("single", None, &[]).unwrap();
    assert_eq!(single.region.as_deref(), Some("one"));
}

#[test]
fn a_service_in_several_regions_requires_a_region() {
    let endpoint =
        |region: &str| json!({"interface": "public", "region_id": region, "url": format!("https://{region}")});
    let catalog = json!([
        {"type": "compute", "endpoints": [endpoint("one"), endpoint("two")]},
        {"type": "image", "endpoints": [endpoint("one")]},
    ]);
    let variables = [
        ("OS_AUTH_URL", "https://k/v3"),
        ("OS_TOKEN", "t"),
        ("OS_PROJECT_ID", "7"),
    ];
    let undecided = |region, service| {
        let access = CloudAccess::read(None, region, &sources(&[], &variables)).unwrap();
        access.undecided_regions(service, "public", &catalog).len()
    };
    assert_eq!(undecided(None, Service::Compute), 2);
    assert_eq!(undecided(None, Service::Image), 0);
    assert_eq!(undecided(Some("two"), Service::Compute), 0);
}

#[test]
fn an_unsupported_auth_type_is_rejected_and_never_becomes_a_password() {
    let whole = [
        ("OS_AUTH_URL", "https://k/v3"),
        ("OS_USERNAME", "u"),
        ("OS_PASSWORD", "p"),
        ("OS_PROJECT_NAME", "x"),
        ("OS_TOKEN", "t"),
        ("OS_APPLICATION_CREDENTIAL_ID", "a"),
        ("OS_APPLICATION_CREDENTIAL_SECRET", "s"),
    ];
    let read = |kind: &str| {
        let variables = [&whole[..], &[("OS_AUTH_TYPE", kind)]].concat();
        CloudAccess::read(None, None, &sources(&[], &variables)).map(|access| access.sign_in())
    };
    for kind in [
        "v3oidcpassword",
        "v3totp",
        "v3multifactor",
        "v2password",
        "none",
        "http_basic",
    ] {
        let error = read(kind).unwrap_err();
        assert_eq!(
            error.message,
            format!("the cloud of OS_AUTH_URL has auth_type {kind}, which is not supported")
        );
        assert!(error.hint.contains("application credential"), "{}", error.hint);
    }
    for (kind, method) in [
        ("password", "password"),
        ("v3password", "password"),
        ("v3token", "token"),
        ("v3applicationcredential", "application_credential"),
    ] {
        assert_eq!(read(kind).unwrap()["auth"]["identity"]["methods"], json!([method]));
    }
    let error = CloudAccess::read(
        None,
        None,
        &sources(&[], &[&whole[..4], &[("OS_AUTH_TYPE", "token")]].concat()),
    );
    assert_eq!(error.unwrap_err().message, "the cloud of OS_AUTH_URL has no token");
}

#[test]
fn a_domain_without_a_role_is_that_of_user_and_project() {
    let whole = [
        ("OS_AUTH_URL", "https://k/v3"),
        ("OS_USERNAME", "u"),
        ("OS_PASSWORD", "p"),
    ];
    let read = |more: &[(&str, &str)]| {
        let variables = [&whole[..], more].concat();
        CloudAccess::read(None, None, &sources(&[], &variables))
            .unwrap()
            .sign_in()["auth"]
            .take()
    };
    let project = ("OS_PROJECT_NAME", "x");
    for (more, user, of_project) in [
        (
            &[("OS_DOMAIN_NAME", "d")][..],
            json!({"name": "d"}),
            json!({"name": "d"}),
        ),
        (&[("OS_DOMAIN_ID", "d")], json!({"id": "d"}), json!({"id": "d"})),
        (
            &[("OS_DEFAULT_DOMAIN_NAME", "d")],
            json!({"name": "d"}),
            json!({"name": "d"}),
        ),
        (
            &[("OS_DOMAIN_ID", "d"), ("OS_USER_DOMAIN_NAME", "users")],
            json!({"name": "users"}),
            json!({"id": "d"}),
        ),
        (
            &[("OS_USER_DOMAIN_NAME", "users")],
            json!({"name": "users"}),
            json!({"id": "default"}),
        ),
    ] {
        let auth = read(&[more, &[project]].concat());
        assert_eq!(auth["identity"]["password"]["user"]["domain"], user, "{more:?}");
        assert_eq!(auth["scope"]["project"]["domain"], of_project, "{more:?}");
    }
    assert_eq!(
        read(&[("OS_TRUST_ID", "t")])["scope"],
        json!({"OS-TRUST:trust": {"id": "t"}})
    );
}

#[test]
fn a_profile_that_only_openstacksdk_knows_is_named() {
    let clouds = folder(&[(
        "clouds.yaml",
        "clouds:\n  a:\n    profile: ovh\n    auth: {token: t, project_id: 1}\n",
    )]);
    let error = CloudAccess::read(None, None, &sources(&[&clouds], &[])).unwrap_err();
    assert_eq!(
        error.message,
        "cloud a has no auth_url, and clouds-public.yaml has no profile ovh"
    );
    assert!(error.hint.contains("get_profile('ovh')"), "{}", error.hint);
}
