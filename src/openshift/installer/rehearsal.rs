//! The fake openshift-install: files of the same structure and size as the real ones, without a cluster in them.

use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use crate::cluster::{ClusterConfig, Lb, Role};
use crate::digest::sha256;
use crate::ignition::contents::data_url;
use crate::ignition::contents::{self, Contents};
use crate::ignition::merge::merge;
use crate::node::machine_configs::{self, MachineConfig};
use crate::node::overlay::ssh_keys;
use crate::node::services::{self, Combined, Release};
use crate::state::home;
use crate::state::parameters::Parameters;

/// The version that the fake reports.
pub const VERSION: &str = "4.19 (rehearsal)";

/// The spec version that 4.19's installer writes.
const SPEC: &str = "3.2.0";

/// The paths and sizes of a real bootstrap.ign.
const SHAPE: &str = include_str!("rehearsal-shape.txt");

/// A syntactically valid certificate whose key was discarded; it signs nothing.
const CA: &str = include_str!("rehearsal-ca.pem");

/// Directory from which a rehearsal's guest serves configs in place of the machine config server.
const MCS: &str = "/opt/openshift-rehearsal/mcs/config";

/// File with the addresses that a rehearsal's guest uses while no other machine has them.
const VIPS: &str = "/opt/openshift-rehearsal/vips";

/// Creates a rehearsal's files; the same input gives the same bytes.
#[derive(Clone, Copy, Debug)]
pub struct Rehearsal;

impl Rehearsal {
    /// A release whose images do not exist: a rehearsal's guest runs no containers.
    pub(super) fn release(self) -> Release {
        let image = |name: &&str| {
            let digest = sha256(name);
            (
                (*name).to_owned(),
                format!("registry.example.com/rehearsal@sha256:{digest}"),
            )
        };
        Release {
            version: (4, 19),
            images: services::IMAGES.iter().map(image).collect(),
        }
    }

    pub(super) fn write_assets(
        &self,
        config: &ClusterConfig,
        parameters: &Parameters,
        manifests: &Combined,
        folder: &Path,
    ) -> anyhow::Result<()> {
        let pointers = config.node_roles().map(|role| (role, pointer(config, role)));
        let bootstrap = (Role::Bootstrap, bootstrap(config, parameters, manifests)?);
        for (role, content) in std::iter::once(bootstrap).chain(pointers) {
            home::write_private(&folder.join(format!("{role}.ign")), content.to_string().as_bytes())?;
        }
        Ok(())
    }
}

/// The config that the bootstrap guest serves to nodes of a role; none for the bootstrap itself.
pub(super) fn served_to(bootstrap: &Value, role: Role) -> Option<Value> {
    let path = format!("{MCS}/{role}");
    let mut files = bootstrap.pointer("/storage/files")?.as_array()?.iter();
    let file = files.find(|file| file["path"] == path.as_str())?;
    match contents::of(&file["contents"]) {
        Ok(Contents::Bytes(bytes)) => serde_json::from_slice(&bytes).ok(),
        _ => None,
    }
}

/// The pointer of all nodes but the bootstrap: where to fetch the rest, and which CA to trust there.
fn pointer(config: &ClusterConfig, role: Role) -> Value {
    let url = format!(
        "https://{}:22623/config/{role}",
        config.cluster_domain().fqdn("api-int")
    );
    json!({"ignition": {
        "config": {"merge": [{"source": url}]},
        "security": {"tls": {"certificateAuthorities": [{"source": data_url(CA.as_bytes())}]}},
        "version": SPEC,
    }})
}

fn bootstrap(config: &ClusterConfig, parameters: &Parameters, manifests: &Combined) -> anyhow::Result<Value> {
    let (mut files, mut units) = (Vec::new(), Vec::new());
    for line in SHAPE.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        let fault = || format!("the rehearsal's shape has an invalid line: {line}");
        match words[..] {
            ["unit", name, enabled, bytes, ref dropins @ ..] => {
                units.push(unit(
                    name,
                    enabled == "enabled",
                    bytes.parse().with_context(fault)?,
                    dropins,
                ));
            }
            [path, mode, bytes] => {
                let mode = u32::from_str_radix(mode, 8).with_context(fault)?;
                let source = data_url(&filler(
                    path,
                    bytes.trim_start_matches('+').parse().with_context(fault)?,
                ));
                files.push(match bytes.starts_with('+') {
                    true => json!({"overwrite": false, "path": path, "user": {"name": "root"}, "append": [{"source": source}], "mode": mode}),
                    false => json!({"overwrite": true, "path": path, "user": {"name": "root"}, "contents": {"source": source}, "mode": mode}),
                });
            }
            _ => anyhow::bail!(fault()),
        }
    }
    for manifest in &manifests.ours {
        let path = format!("/opt/openshift/{}", manifest.path);
        files.retain(|file| file["path"] != path.as_str());
        files.push(file(&path, 0o644, manifest.content.as_bytes()));
    }
    for manifest in &manifests.users {
        let path = format!("/opt/openshift/openshift/{}", manifest.name);
        if files.iter().any(|file| file["path"] == path.as_str()) {
            return Err(manifest.conflict().into());
        }
        files.push(file(&path, 0o644, &manifest.content));
    }
    // The operator merges them in the order of their names.
    let mut machine_configs = machine_configs::find(&json!({"storage": {"files": files}})).configs;
    machine_configs.sort_by(|a, b| a.name.cmp(&b.name));
    for role in config.node_roles() {
        let served = served(config, parameters, &machine_configs, role)?.to_string();
        files.push(file(&format!("{MCS}/{role}"), 0o644, served.as_bytes()));
    }
    files.extend(vips(config, parameters));
    Ok(json!({
        "ignition": {"version": SPEC},
        "passwd": {"users": [core(config)]},
        "storage": {"files": files},
        "systemd": {"units": units},
    }))
}

/// The file with the VIP that a guest uses, unless the platform's load balancer has it.
fn vips(config: &ClusterConfig, parameters: &Parameters) -> Option<Value> {
    let vips = format!("{}\n", parameters.api_ip);
    (config.lb != Lb::Platform).then(|| file(VIPS, 0o644, vips.as_bytes()))
}

/// The machine config server's response: the common part of all nodes of a role.
fn served(
    config: &ClusterConfig,
    parameters: &Parameters,
    machine_configs: &[MachineConfig],
    role: Role,
) -> anyhow::Result<Value> {
    let mut files = vec![
        file(
            "/etc/kubernetes/kubelet.conf",
            0o644,
            &filler(&format!("kubelet.conf of a {role}"), 1600),
        ),
        file(
            "/usr/local/bin/configure-ovs.sh",
            0o755,
            &filler("configure-ovs.sh", 3000),
        ),
    ];
    if role == Role::Master {
        // Masters take over the api VIP when the bootstrap machine is deleted, and then serve late workers.
        let worker = served(config, parameters, machine_configs, Role::Worker)?.to_string();
        files.push(file(&format!("{MCS}/worker"), 0o644, worker.as_bytes()));
        files.extend(vips(config, parameters));
    }
    let mut rendered = json!({
        "ignition": {"version": SPEC},
        "passwd": {"users": [core(config)]},
        "storage": {"files": files},
        "systemd": {"units": [unit("kubelet.service", true, 1200, &[]), unit("crio.service", false, 0, &["10-mco-default-env.conf"])]},
    });
    for machine_config in machine_configs.iter().filter(|config| config.is_for(role)) {
        rendered = merge(&rendered, &machine_config.config)?;
    }
    Ok(rendered)
}

fn core(config: &ClusterConfig) -> Value {
    let mut user = json!({"name": "core"});
    let keys = ssh_keys(config);
    if !keys.is_empty() {
        user["sshAuthorizedKeys"] = json!(keys);
    }
    user
}

fn file(path: &str, mode: u32, content: &[u8]) -> Value {
    let contents = json!({"source": data_url(content)});
    json!({"overwrite": true, "path": path, "user": {"name": "root"}, "contents": contents, "mode": mode})
}

fn unit(name: &str, enabled: bool, bytes: usize, dropins: &[&str]) -> Value {
    let mut unit = json!({"name": name});
    if enabled {
        unit["enabled"] = json!(true);
    }
    if bytes > 0 {
        let head = format!("[Unit]\nDescription={name} of a rehearsal\n\n[Service]\nExecStart=/bin/true\n");
        let tail = "\n[Install]\nWantedBy=multi-user.target\n";
        let comment = "# filler\n".repeat(bytes.saturating_sub(head.len() + tail.len()) / 9);
        unit["contents"] = json!(head + &comment + tail);
    }
    if !dropins.is_empty() {
        let dropin = |name: &&str| json!({"name": name, "contents": "[Unit]\n# filler\n"});
        unit["dropins"] = dropins.iter().map(dropin).collect();
    }
    unit
}

/// Text of this size that names the file it replaces.
fn filler(name: &str, bytes: usize) -> Vec<u8> {
    format!("# rehearsal: in place of {name}\n")
        .bytes()
        .cycle()
        .take(bytes)
        .collect()
}
