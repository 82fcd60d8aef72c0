//! One node's config: its layers, the conflicts between them, and their merge.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::{ClusterConfig, Mcs, NodeName, Role};
use crate::ignition::check::{self, Finding, Severity};
use crate::ignition::contents::data_url;
use crate::ignition::merge::merge;
use crate::ignition::origins::Layer;
use crate::ignition::{self, IgnitionError, Major, OURS, Version, document, version};
use crate::node::claims::Claims;
use crate::node::host::{HostFile, HostParts};
use crate::node::machine_configs::{self, MachineConfigs};
use crate::node::{operator_files, overlay, pointer};
use crate::state::parameters::Parameters;

/// The roles with an Ignition config.
const ROLES: [Role; 4] = [Role::Bootstrap, Role::Master, Role::Arbiter, Role::Worker];

/// A config of the user, for nodes of one role or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// For display, e.g. `ignition_extra: my.ign`.
    pub origin: String,
    pub role: Option<Role>,
    pub content: Vec<u8>,
}

/// The inputs of all nodes' configs, read and checked once.
pub struct NodeConfigs<'a> {
    config: &'a ClusterConfig,
    parameters: &'a Parameters,
    roles: BTreeMap<Role, RoleConfig>,
    found: MachineConfigs,
    /// Of the nodes with a file of `network_config`.
    connections: BTreeMap<NodeName, Vec<HostFile>>,
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
}

/// The common part of all nodes of a role.
struct RoleConfig {
    /// The installer's file, with the address of the MCS set.
    installer: Layer,
    version: Version,
    /// The services' files that are in the nodes' own configs.
    services: HostParts,
    /// The config that the MCS serves, unless the nodes fetch it themselves.
    served: Option<Layer>,
    fragments: Fragments,
    /// The owners of all entries, except those of our own layer.
    claims: Claims,
}

impl<'a> NodeConfigs<'a> {
    /// Reads each role's installer file, the MachineConfigs in bootstrap.ign, and the user's fragments.
    ///
    /// `bootstrap` are that machine's service files; the other roles get theirs by MachineConfig.
    pub fn new(
        config: &'a ClusterConfig,
        parameters: &'a Parameters,
        installer: &BTreeMap<Role, Vec<u8>>,
        fragments: &[Fragment],
        bootstrap: &HostParts,
    ) -> Result<Self, IgnitionError> {
        let mut read = BTreeMap::new();
        for (role, bytes) in installer {
            let origin = format!("installer's {role}.ign");
            let config = document::parse(bytes).map_err(|error| IgnitionError::from(error).of(&origin))?;
            read.insert(*role, Layer { origin, config });
        }
        let found = read
            .get(&Role::Bootstrap)
            .map(|bootstrap| machine_configs::find(&bootstrap.config))
            .unwrap_or_default();
        let unread = |file: &String| format!("cannot read {file}, so conflicts with other configs cannot be detected");
        let mut warnings: Vec<_> = found.unread.iter().map(unread).collect();
        let mut roles = BTreeMap::new();
        for (role, mut installer) in read {
            let origin = installer.origin.clone();
            let version = version(&installer.config).map_err(|error| error.of(&origin))?;
            if role != Role::Bootstrap && config.mcs == Mcs::Http {
                pointer::fetch_by_http(&mut installer.config, parameters.api_ip).map_err(|error| error.of(&origin))?;
            }
            refuse_faults(&origin, check::check(&installer.config))?;
            let mut claims = Claims::default();
            claims.add(&origin, &installer.config);
            for owned in found.configs.iter().filter(|owned| owned.is_for(role)) {
                claims.add(&owned.origin(), &owned.config);
            }
            let fragments = Fragments::read(fragments, role)?;
            warnings.extend(fragments.warnings.iter().cloned());
            for layer in &fragments.layers {
                let theirs = ignition::version(&layer.config)?;
                if theirs.major != version.major {
                    return Err(IgnitionError::Majors {
                        ours: theirs,
                        theirs: version,
                    }
                    .of(&layer.origin));
                }
                claims.refuse(&layer.origin, &layer.config)?;
            }
            for layer in &fragments.layers {
                claims.add(&layer.origin, &layer.config);
            }
            roles.insert(
                role,
                RoleConfig {
                    installer,
                    version,
                    services: match role {
                        Role::Bootstrap => bootstrap.clone(),
                        _ => HostParts::default(),
                    },
                    served: None,
                    fragments,
                    claims,
                },
            );
        }
        let mut seen = BTreeSet::new();
        warnings.retain(|warning: &String| seen.insert(warning.clone()));
        Ok(Self {
            config,
            parameters,
            roles,
            found,
            connections: BTreeMap::new(),
            warnings,
        })
    }

    /// Sets the connections of nodes with a file of `network_config`.
    pub fn with_connections(self, connections: BTreeMap<NodeName, Vec<HostFile>>) -> Self {
        Self { connections, ..self }
    }

    /// Rejects MachineConfigs of the user that set what ocpdeploy's set; returns warnings.
    pub fn refuse_machine_configs(&self) -> Result<Vec<String>, IgnitionError> {
        self.found.refuse_conflicts()
    }

    /// Rejects user configs that set what the machine config operator of this release sets on every node.
    pub fn refuse_operator_files(&self, release: (u32, u32)) -> Result<(), IgnitionError> {
        for (role, common) in &self.roles {
            let mut claims = Claims::default();
            claims.add(
                &operator_files::origin(release),
                &operator_files::config(release, *role, self.config.masters),
            );
            for layer in &common.fragments.layers {
                claims.refuse(&layer.origin, &layer.config)?;
            }
        }
        Ok(())
    }

    /// The machine config server in a role's pointer.
    pub fn server(&self, role: Role) -> Result<pointer::Server, IgnitionError> {
        let installer = &self.role(role)?.installer;
        pointer::server(&installer.config).map_err(|error| error.of(&installer.origin))
    }

    /// Sets the MCS's config of a role: its nodes have it embedded and fetch nothing.
    pub fn serve(&mut self, role: Role, served: &[u8]) -> Result<(), IgnitionError> {
        let common = self.roles.get_mut(&role).ok_or(IgnitionError::NoRole(role))?;
        let origin = format!("the machine config server's {role}");
        let config = document::parse(served).map_err(|error| IgnitionError::from(error).of(&origin))?;
        refuse_faults(&origin, check::check(&config))?;
        let theirs = version(&config).map_err(|error| error.of(&origin))?;
        if theirs.major != common.version.major {
            let ours = common.version;
            return Err(IgnitionError::Majors { ours, theirs }.of(&origin));
        }
        common.claims.add(&origin, &config);
        let mut served = Claims::default();
        served.add(&origin, &config);
        for layer in &common.fragments.layers {
            served.refuse(&layer.origin, &layer.config)?;
        }
        common.served = Some(Layer { origin, config });
        Ok(())
    }

    /// The layers of a node's config, lowest first: the installer's file, the served config, the user's fragments,
    /// ours.
    pub fn layers(&self, node: &NodeName, role: Role) -> Result<Vec<Layer>, IgnitionError> {
        let common = self.role(role)?;
        let mut layers = vec![common.installer.clone()];
        layers.extend(common.served.iter().chain(&common.fragments.layers).cloned());
        layers.push(Layer {
            origin: OURS.to_owned(),
            config: self.own(common, node)?,
        });
        Ok(layers)
    }

    /// The complete config of one node, minified.
    ///
    /// A pointer keeps the installer's entry first and merges everything else last, as one config. For bootstrap, and
    /// if the served config is known, everything is merged into one. The same input always gives the same bytes. They
    /// contain secrets.
    pub fn node_config(&self, node: &NodeName, role: Role) -> Result<Vec<u8>, IgnitionError> {
        let common = self.role(role)?;
        let own = self.own(common, node)?;
        let own = match &common.fragments.merged {
            Some(fragments) => over(fragments, &own)?,
            None => own,
        };
        let installer = &common.installer;
        let config = if role == Role::Bootstrap {
            over(&installer.config, &own)?
        } else if let Some(served) = &common.served {
            let pointer = pointer::without_server(&installer.config)?;
            over(&over(&pointer, &served.config)?, &own)?
        } else {
            refuse_faults(&format!("ocpdeploy's overlay for {node}"), check::check_merged(&own))?;
            let mut pointer = installer.config.clone();
            let entries = pointer::entries(&mut pointer, common.version.major)?;
            // No earlier entry has this source, so no compression or hash is inherited.
            entries.push(json!({"source": data_url(&serde_json::to_vec(&own)?)}));
            pointer
        };
        refuse_faults(&format!("the config of {node}"), check::check_merged(&config))?;
        Ok(serde_json::to_vec(&config)?)
    }

    /// The `layers` of all nodes, in a form that can be stored.
    pub fn kept_layers(&self) -> Result<KeptLayers, IgnitionError> {
        let layers = |common: &RoleConfig| {
            let layers = common.served.iter().chain(&common.fragments.layers);
            layers.map(KeptLayer::of).collect()
        };
        let roles = self
            .roles
            .iter()
            .map(|(role, common)| (*role, layers(common)))
            .collect();
        let mut nodes = BTreeMap::new();
        for node in self.config.nodes() {
            let own = self.own(self.role(node.role)?, &node.name)?;
            nodes.insert(node.name, own);
        }
        Ok(KeptLayers {
            v: KEPT_VERSION,
            roles,
            nodes,
        })
    }

    fn role(&self, role: Role) -> Result<&RoleConfig, IgnitionError> {
        self.roles.get(&role).ok_or(IgnitionError::NoRole(role))
    }

    /// Our own layer of a node, checked by itself and for conflicts.
    fn own(&self, common: &RoleConfig, node: &NodeName) -> Result<Value, IgnitionError> {
        let mut parts = overlay::own_parts(self.config, self.parameters, node, self.connections.get(node));
        parts.extend(common.services.clone());
        let own = overlay::overlay(self.config, &parts, common.version);
        refuse_faults(OURS, check::check(&own))?;
        common.claims.refuse(OURS, &own)?;
        Ok(own)
    }
}

/// The user's fragments for one role.
#[derive(Default)]
struct Fragments {
    layers: Vec<Layer>,
    /// All of them merged, later ones over earlier ones.
    merged: Option<Value>,
    warnings: Vec<String>,
}

impl Fragments {
    fn read(all: &[Fragment], role: Role) -> Result<Self, IgnitionError> {
        let mut read = Self::default();
        for fragment in all {
            if fragment.role.is_some_and(|only| only != role) {
                continue;
            }
            let origin = &fragment.origin;
            let document::Document { config, warnings } =
                document::read(&fragment.content).map_err(|error| IgnitionError::from(error).of(origin))?;
            let mut findings = warnings;
            findings.extend(check::check_first_boot(&config));
            findings.extend(fetches(&config));
            let merged = match read.merged.take() {
                Some(below) => {
                    findings.extend(check::traps(&below, &config));
                    over(&below, &config).map_err(|error| error.of(origin))?
                }
                None => config.clone(),
            };
            read.warnings.extend(refuse_faults(origin, findings)?);
            read.merged = Some(merged);
            let origin = origin.clone();
            read.layers.push(Layer { origin, config });
        }
        if let (Some(merged), [before @ .., last]) = (&read.merged, &read.layers[..]) {
            let origin = match before {
                // A single config is checked as well: the node merges it with the installer's.
                [] => last.origin.clone(),
                _ => format!("{}, merged with the previous configs", last.origin),
            };
            refuse_faults(&origin, check::check_merged(merged))?;
        }
        Ok(read)
    }
}

/// A config that a fragment fetches would override everything, and cannot be checked.
fn fetches(config: &Value) -> Option<Finding> {
    let section = config.pointer("/ignition/config").and_then(Value::as_object)?;
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    section.values().any(|value| !empty(value)).then(|| Finding {
        severity: Severity::Error,
        path: "$.ignition.config".to_owned(),
        text: "a config from the network cannot be checked; add it as a separate file".to_owned(),
    })
}

/// Checks the fragments by themselves, before the installer's files exist; returns warnings.
pub fn check_fragments(fragments: &[Fragment]) -> Result<Vec<String>, IgnitionError> {
    let mut warnings = Vec::new();
    for role in ROLES {
        for warning in Fragments::read(fragments, role)?.warnings {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    Ok(warnings)
}

/// The fragments in versions that the CoreOS of their nodes reads, and a line for each that was rewritten; `newest` is the
/// newest one of a role's nodes.
pub fn for_coreos(
    fragments: &[Fragment],
    newest: impl Fn(Role) -> Version,
) -> Result<(Vec<Fragment>, Vec<String>), IgnitionError> {
    let mut lines = Vec::new();
    let one = |fragment: &Fragment| {
        let roles = match &fragment.role {
            Some(role) => std::slice::from_ref(role),
            None => ROLES.as_slice(),
        };
        let document::Document { config, .. } =
            document::read(&fragment.content).map_err(|error| IgnitionError::from(error).of(&fragment.origin))?;
        let (version, Some(newest)) = (version(&config)?, roles.iter().map(|role| newest(*role)).min()) else {
            return Ok(fragment.clone());
        };
        if version.major != newest.major || version <= newest {
            return Ok(fragment.clone());
        }
        let origin = fragment.origin.clone();
        match check::in_version(&config, newest) {
            Ok(older) => {
                lines.push(format!(
                    "{origin}: Ignition {version} is newer than the CoreOS of its nodes: it is written as {newest}"
                ));
                Ok(Fragment {
                    content: serde_json::to_vec(&older)?,
                    ..fragment.clone()
                })
            }
            Err(findings) => Err(IgnitionError::NewerThanCoreOs {
                origin,
                version,
                newest,
                findings,
            }),
        }
    };
    let written = fragments.iter().map(one).collect::<Result<_, _>>()?;
    Ok((written, lines))
}

/// Fails on errors; warnings become lines.
fn refuse_faults(origin: &str, findings: Vec<Finding>) -> Result<Vec<String>, IgnitionError> {
    let (faults, rest): (Vec<_>, Vec<_>) = findings
        .into_iter()
        .partition(|finding| finding.severity == Severity::Error);
    if !faults.is_empty() {
        let origin = origin.to_owned();
        return Err(IgnitionError::Faulty {
            origin,
            findings: faults,
        });
    }
    let line = |Finding { path, text, .. }: Finding| format!("{origin}: {path}: {text}");
    Ok(rest.into_iter().map(line).collect())
}

/// Merges one config over another.
fn over(below: &Value, config: &Value) -> Result<Value, IgnitionError> {
    let mut merged = merge(below, config)?;
    if version(&merged)?.major == Major::Two {
        join_users(&mut merged);
    }
    Ok(merged)
}

/// Joins the entries of one user: of two, a node with Ignition 2 uses only the last one's SSH keys.
fn join_users(config: &mut Value) {
    let Some(users) = config.pointer_mut("/passwd/users").and_then(Value::as_array_mut) else {
        return;
    };
    let mut joined: Vec<Value> = Vec::new();
    for user in std::mem::take(users) {
        match joined.iter_mut().find(|known| known["name"] == user["name"]) {
            Some(known) => join_user(known, user),
            None => joined.push(user),
        }
    }
    *users = joined;
}

fn join_user(known: &mut Value, more: Value) {
    let Value::Object(fields) = more else { return };
    for (field, value) in fields {
        match (&mut known[field.as_str()], value) {
            (Value::Array(list), Value::Array(more)) => {
                for item in more {
                    if !list.contains(&item) {
                        list.push(item);
                    }
                }
            }
            (known, value) => *known = value,
        }
    }
}

/// Format version of `KeptLayers`.
const KEPT_VERSION: u32 = 1;

/// The inputs of the nodes' configs, besides the installer's files. Contains secrets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptLayers {
    v: u32,
    /// The MCS's config if it is embedded, and the user's fragments.
    roles: BTreeMap<Role, Vec<KeptLayer>>,
    /// Our own layer.
    nodes: BTreeMap<NodeName, Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptLayer {
    origin: String,
    config: Value,
}

impl KeptLayer {
    fn of(layer: &Layer) -> Self {
        let Layer { origin, config } = layer.clone();
        Self { origin, config }
    }
}

impl KeptLayers {
    /// Parses stored layers; `None` if a newer version of the program wrote them.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        let kept: Self = serde_json::from_slice(bytes)?;
        Ok((kept.v == KEPT_VERSION).then_some(kept))
    }

    /// The layers of a node's config above the installer's file of its role, lowest first; `None` for an unknown node.
    pub fn layers(&self, node: &NodeName, role: Role) -> Option<Vec<Layer>> {
        let own = self.nodes.get(node)?.clone();
        let common = self.roles.get(&role).into_iter().flatten();
        let mut layers: Vec<Layer> = common
            .map(|KeptLayer { origin, config }| Layer {
                origin: origin.clone(),
                config: config.clone(),
            })
            .collect();
        layers.push(Layer {
            origin: OURS.to_owned(),
            config: own,
        });
        Some(layers)
    }
}

#[cfg(test)]
mod tests;
