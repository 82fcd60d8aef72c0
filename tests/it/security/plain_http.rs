//! Unauthenticated servers: a credential is sent to them only if the user allows it, each time with a warning.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::security::hostile::server::{Authority, Reply, Server};

const TOKEN: &str = "canary-token";
const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs `check` with an env file of these lines.
fn check(folder: &Path, lines: &str, variables: &[(&str, &str)]) -> (Output, String) {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";
    std::fs::write(folder.join("key.pub"), key).unwrap();
    let env = format!(
        "cluster=lab\ndomain=example.com\npub_key=key.pub\n\
         pull_secret='{{\"auths\":{{\"registry.example.com\":{{\"auth\":\"eDp5\"}}}}}}'\n{lines}"
    );
    std::fs::write(folder.join("env.sh"), env).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
        .arg("check")
        .env_clear()
        .env("HOME", folder)
        .env("OCPDEPLOY_HOME", folder.join("home"))
        .env("OCPDEPLOY_PLATFORM_TIMEOUT", "0s")
        .envs(variables.iter().copied())
        .current_dir(folder)
        .output()
        .unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    (
        output,
        String::from_utf8(text)
            .unwrap()
            .replace(&folder.display().to_string(), "FOLDER"),
    )
}

fn kubeconfig(folder: &Path, cluster: Value) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "mine",
        "clusters": [{"name": "infra", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": TOKEN}}],
        "contexts": [{"name": "mine", "context": {"cluster": "infra", "user": "me", "namespace": "blue"}}],
    });
    std::fs::write(folder.join("kubeconfig"), config.to_string()).unwrap();
}

const KUBEVIRT: &str = "backend=kubevirt\nkubevirt_kubeconfig=kubeconfig\nnetwork=lan\nmachine_network=10.7.0.0/24\n";

#[test]
fn an_insecure_kubeconfig_is_rejected_unless_allowed_and_then_is_a_warning() {
    let authority = Authority::new();
    for (tls, why) in [
        (true, "insecure-skip-tls-verify is set"),
        (false, "is http, so others on the network can read the token"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(
            HERE,
            tls.then_some(&authority),
            Box::new(|_, _| Reply::json(200, &json!({}))),
        );
        let port = server.address.port();
        // An address outside of the loopback range that still reaches it.
        kubeconfig(
            folder.path(),
            match tls {
                true => json!({"server": format!("https://localhost:{port}"), "insecure-skip-tls-verify": true}),
                false => json!({"server": format!("http://0.0.0.0:{port}")}),
            },
        );
        let (refused, text) = check(folder.path(), KUBEVIRT, &[]);
        assert_eq!(refused.status.code(), Some(4), "{text}");
        assert!(
            text.contains("cluster infra in kubeconfig FOLDER/kubeconfig: "),
            "{text}"
        );
        assert!(text.contains(why) && text.contains("kubevirt_insecure=true"), "{text}");
        assert_eq!(server.asked().len(), 0, "it got a request");

        let by_setting = (format!("{KUBEVIRT}kubevirt_insecure=true\n"), vec![]);
        let by_variable = (KUBEVIRT.to_owned(), vec![("OCPDEPLOY_KUBEVIRT_INSECURE", "true")]);
        for (lines, variables) in [by_setting, by_variable] {
            let before = server.asked().len();
            let (_, text) = check(folder.path(), &lines, &variables);
            assert!(server.asked().len() > before, "it got no request: {text}");
            let warning = text.lines().find(|line| line.contains("cluster infra in kubeconfig"));
            assert!(
                warning.is_some_and(|line| line.contains("warn") && line.contains(why)),
                "{text}"
            );
        }
        assert!(server.asked().iter().any(|request| request.raw.contains(TOKEN)));
    }
}

/// As `kubectl proxy` is reached.
#[test]
fn plain_http_on_this_computer_needs_no_permission() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(HERE, None, Box::new(|_, _| Reply::json(200, &json!({}))));
    kubeconfig(folder.path(), json!({"server": format!("http://{}", server.address)}));
    let (_, text) = check(folder.path(), KUBEVIRT, &[]);
    assert!(
        !server.asked().is_empty() && !text.contains("others on the network can read"),
        "{text}"
    );
}

#[test]
fn an_openstack_without_tls_is_rejected_unless_allowed_and_then_is_one_warning_for_each_service() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        HERE,
        None,
        Box::new(|request, _| {
            let Some(of_catalog) = request.path.strip_suffix("/v3/auth/tokens") else {
                return Reply::json(403, &json!({"error": {"message": "no"}}));
            };
            let mut lines = request.raw.lines();
            let host = lines.find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
            let host = match of_catalog {
                "/elsewhere" => host.replace("127.0.0.1", "0.0.0.0"),
                _ => host.to_owned(),
            };
            let entry = |kind: &str| {
                let url = format!("http://{host}/{kind}");
                json!({"type": kind, "endpoints": [{"interface": "public", "region": "one", "url": url}]})
            };
            let catalog = ["compute", "network", "image"].map(entry);
            let token = json!({"token": {
                "expires_at": "2199-01-01T00:00:00Z", "project": {"id": "p"}, "catalog": catalog,
            }});
            let headers = vec![("X-Subject-Token", TOKEN.to_owned())];
            Reply::Whole(201, headers, token.to_string().into_bytes())
        }),
    );
    let port = server.address.port();
    let clouds = |url: &str| {
        let clouds = format!(
            "clouds:\n  lab:\n    auth:\n      auth_url: {url}/v3\n      username: demo\n      project_name: demo\n      \
             password: x\n"
        );
        std::fs::write(folder.path().join("clouds.yaml"), clouds).unwrap();
    };
    const LINES: &str = "backend=openstack\nnetwork=private\nimage=rhcos\n";
    const WHY: &str = "is http, so others on the network can read";

    // An address outside of the loopback range that still reaches it.
    clouds(&format!("http://0.0.0.0:{port}"));
    let (refused, text) = check(folder.path(), LINES, &[]);
    assert_ne!(refused.status.code(), Some(0), "{text}");
    let auth_url = format!("auth_url http://0.0.0.0:{port}/v3 of cloud lab {WHY} the password");
    assert!(text.contains(&auth_url) && text.contains("os_insecure=true"), "{text}");
    assert_eq!(server.asked().len(), 0, "it got a request");
    let by_setting = (format!("{LINES}os_insecure=true\n"), vec![]);
    let by_variable = (LINES.to_owned(), vec![("OCPDEPLOY_OS_INSECURE", "true")]);
    for (lines, variables) in [by_setting, by_variable] {
        let before = server.asked().len();
        let (_, text) = check(folder.path(), &lines, &variables);
        assert!(server.asked().len() > before, "it got no request: {text}");
        for what in ["auth_url http://0.0.0.0", "compute (Nova)", "network (Neutron)"] {
            let said = text.lines().filter(|line| line.contains(what) && line.contains(WHY));
            assert_eq!(said.count(), 1, "{what}: {text}");
        }
    }

    // The catalog names the endpoints: no token is sent there.
    clouds(&format!("http://127.0.0.1:{port}/elsewhere"));
    let before = server.asked().len();
    let (refused, text) = check(folder.path(), LINES, &[]);
    assert_ne!(refused.status.code(), Some(0), "{text}");
    let endpoint = format!("the endpoint http://0.0.0.0:{port}/compute of compute (Nova) in cloud lab {WHY} the token");
    assert!(text.contains(&endpoint) && text.contains("os_insecure=true"), "{text}");
    let asked = server.asked().split_off(before);
    assert!(!asked.is_empty(), "it got no request");
    assert!(!asked.iter().any(|request| request.raw.contains(TOKEN)), "{asked:?}");

    // On this computer, it needs no permission.
    clouds(&format!("http://127.0.0.1:{port}"));
    let before = server.asked().len();
    let (_, text) = check(folder.path(), LINES, &[]);
    let asked = server.asked().split_off(before);
    assert!(asked.iter().any(|request| request.raw.contains(TOKEN)), "{asked:?}");
    assert!(!text.contains(WHY), "{text}");
}
