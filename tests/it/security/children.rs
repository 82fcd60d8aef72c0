//! Secrets in the environment of this program: none reaches the programs that it starts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::fake_installer;
use crate::support::sandbox::Sandbox;
use crate::support::site::Site;

/// Variables with secrets of this program, of platforms, and of unrelated programs.
const SECRETS: [&str; 40] = [
    "ANSIBLE_VAULT_PASSWORD",
    "ARM_CLIENT_SECRET",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "BW_SESSION",
    "CI_JOB_TOKEN",
    "CLOUDFLARE_API_TOKEN",
    "CONSUL_HTTP_TOKEN",
    "DATABASE_URL",
    "DIGITALOCEAN_ACCESS_TOKEN",
    "DOCKER_AUTH_CONFIG",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GITLAB_TOKEN",
    "GOOGLE_CREDENTIALS",
    "GOVC_PASSWORD",
    "HCLOUD_TOKEN",
    "IBMCLOUD_API_KEY",
    "KUBE_TOKEN",
    "MYSQL_PWD",
    "MY_PASSWORD",
    "NPM_TOKEN",
    "OCPDEPLOY_CANARY",
    "OCPDEPLOY_OVIRT_PASSWORD",
    "OPENAI_API_KEY",
    "OS_APPLICATION_CREDENTIAL_SECRET",
    "OS_PASSWORD",
    "OS_TOKEN",
    "OVIRT_PASSWORD",
    "PASSWORD",
    "PATH_TOKEN",
    "PGPASSWORD",
    "PIP_INDEX_URL",
    "PULL_SECRET",
    "REGISTRY_PASSWORD",
    "SECRET",
    "SSHPASS",
    "TF_VAR_password",
    "VAULT_TOKEN",
];

/// Variables that some programs require.
const REQUIRED: [&str; 3] = ["NO_PROXY", "OPENSHIFT_INSTALL_INVOKER", "SSH_AUTH_SOCK"];

/// Runs a command with these variables, and with the programs of a folder first. It may fail.
fn run_with_secrets(command: &mut Command, folder: &Path) {
    command
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .envs(SECRETS.iter().map(|name| (name, format!("canary-of-{name}"))))
        .envs(REQUIRED.iter().map(|name| (name, "required")));
    command.output().unwrap();
}

/// A program that appends its environment to a file, and then runs these lines of a shell.
fn spy(folder: &Path, name: &str, lines: &str) {
    let path = folder.join(name);
    let script = format!("#!/bin/sh\nenv >>'{}.environment'\n{lines}\n", path.display());
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The environment of all runs of a spy.
fn environment(folder: &Path, name: &str) -> String {
    let path = folder.join(format!("{name}.environment"));
    let text = std::fs::read_to_string(path).unwrap_or_else(|_| panic!("{name} was not run"));
    assert!(text.contains("PATH="), "{text}");
    text
}

/// The names of the secrets in an environment, also as a part of other values.
fn secrets(environment: &str) -> Vec<&'static str> {
    let ends = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
    let holds = |name: &str| {
        let canary = format!("canary-of-{name}");
        environment.split(&canary).skip(1).any(ends)
    };
    SECRETS.into_iter().filter(|name| holds(name)).collect()
}

/// Each program got no secret, and these of the variables that programs require.
#[track_caller]
fn got_only(folder: &Path, programs: &[(&str, &[&str])]) {
    for (program, required) in programs {
        let environment = environment(folder, program);
        assert_eq!(secrets(&environment), [""; 0], "{program}: {environment}");
        let has = |name: &&str| environment.lines().any(|line| line == format!("{name}=required"));
        let found: Vec<&str> = REQUIRED.into_iter().filter(has).collect();
        assert_eq!(found, *required, "{program}: {environment}");
    }
}

#[test]
fn openshift_install_and_oc_get_no_secret() {
    let site = Site::new(32, "masters=1\nworkers=1\n");
    let folder = site.sandbox.path();
    for name in ["openshift-install", "oc"] {
        let real = folder.join(format!("{name}.real"));
        std::fs::rename(folder.join(name), &real).unwrap();
        spy(folder, name, &format!("exec '{}' \"$@\"", real.display()));
    }
    run_with_secrets(&mut site.sandbox.command(&["check", "lab.sh"]), folder);
    got_only(
        folder,
        &[
            (
                "openshift-install",
                &["NO_PROXY", "OPENSHIFT_INSTALL_INVOKER", "SSH_AUTH_SOCK"],
            ),
            ("oc", &["NO_PROXY"]),
        ],
    );
}

#[test]
fn ssh_and_coreos_installer_get_no_secret() {
    let network = json!({"cidr": "127.94.31.0/24", "gateway": "127.94.31.1", "dhcp_from": "127.94.31.2",
        "dhcp_to": "127.94.31.199"});
    let sandbox = Sandbox::new(json!({"networks": {"default": network}}));
    sandbox.env("lab", "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper");
    sandbox.deploy("lab").succeeded();
    let folder = sandbox.path();
    std::fs::write(folder.join("live.iso"), "live\n").unwrap();
    for name in ["ssh", "coreos-installer"] {
        spy(folder, name, "exit 1");
    }
    let join = "node join-file lab metal-0 --mac 02:00:00:00:00:01 --ip 127.94.31.220 --iso live.iso --device /dev/sda";
    for line in ["node ssh lab worker-0", "node ssh lab worker-0 -- true", join] {
        let words: Vec<&str> = line.split(' ').collect();
        run_with_secrets(&mut sandbox.command(&words), folder);
    }
    got_only(folder, &[("ssh", &["SSH_AUTH_SOCK"]), ("coreos-installer", &[])]);
}

#[test]
fn the_registry_of_the_cache_gets_no_secret() {
    let sandbox = Sandbox::new(json!({}));
    let folder = sandbox.path();
    fake_installer::install(folder);
    let env = "cluster=lab\ndomain=example.com\nbackend=sim\npull_secret=pull-secret.json\npub_key=key.pub\n";
    std::fs::write(folder.join("env.sh"), env).unwrap();
    let version = "docker-registry github.com/docker/distribution v2.8.2";
    spy(
        folder,
        "docker-registry",
        &format!("[ \"$1\" = --version ] && echo {version}"),
    );
    let line = "cache up --address 127.0.0.1 --port 9 --repository localhost:9/ocp";
    let words: Vec<&str> = line.split(' ').collect();
    run_with_secrets(&mut sandbox.command(&words), folder);
    // Not only `--version` was run.
    let environment = environment(folder, "docker-registry");
    assert!(environment.contains("OTEL_TRACES_EXPORTER=none"), "{environment}");
    got_only(folder, &[("docker-registry", &["NO_PROXY"])]);
}

/// A plugin may require the credentials of its own platform, but not those of the platforms of this program.
#[cfg(feature = "kubevirt")]
#[test]
fn the_plugin_of_a_kubeconfig_gets_no_secret_of_other_platforms() {
    use crate::support::fake_kubevirt::World;
    use crate::support::kubevirt_sandbox;

    let sandbox = kubevirt_sandbox::Sandbox::new(World::with_tenants(&["blue"]));
    let folder = sandbox.path();
    sandbox.env("lab", "masters=1\nworkers=1");
    let own = json!([{"name": "OS_PASSWORD", "value": "of the kubeconfig"}]);
    for (name, env, gets_openstack) in [
        ("login", json!([]), false),
        ("login-with-env", own, false),
        ("client-keystone-auth", json!([]), true),
        ("gcp", json!([]), false),
    ] {
        let credential = r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "blue-token"}}"#;
        spy(folder, name, &format!("echo '{credential}'"));
        let program = folder.join(name);
        let user = match name {
            "gcp" => json!({"auth-provider": {"name": "gcp",
                "config": {"cmd-path": program, "cmd-args": "login", "token-key": "{.status.token}"}}}),
            _ => json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": program, "env": env,
                "interactiveMode": "Never"}}),
        };
        sandbox
            .server
            .kubeconfig_with(&sandbox.kubeconfig("blue"), &user, "blue");
        run_with_secrets(&mut sandbox.command(&["check", "lab.sh", "--rehearse"]), folder);
        let environment = environment(folder, name);
        let may_get = |secret: &&str| match secret.split_once('_') {
            Some(("OCPDEPLOY" | "OVIRT", _)) => false,
            Some(("OS", _)) => gets_openstack,
            _ => true,
        };
        let expected: Vec<&str> = SECRETS.into_iter().filter(may_get).collect();
        assert_eq!(secrets(&environment), expected, "{name}: {environment}");
        let has_its_own = environment.contains("OS_PASSWORD=of the kubeconfig");
        assert_eq!(has_its_own, name == "login-with-env", "{name}: {environment}");
    }
}
