//! `ocpdeploy plan --manifests`: the objects of pass two as files, for users who want to read or compare them.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::session::Session;
use crate::backend::{ImageHandle, Payload, kubevirt};
use crate::cluster::{BackendConfig, ClusterConfig, ImageSource, KubevirtConfig, Lb, Role, Routes, Vip};
use crate::error::{ErrorKind, OperationError};
use crate::plan::machines::{self, MacTable};
use crate::state::home;
use crate::state::journal::{self, Event};
use crate::state::parameters::Parameters;

/// Writes one file for each object. For a deployed cluster, the objects are exactly those that were created.
pub fn write(
    session: &Session,
    config: &ClusterConfig,
    parameters: Option<&Parameters>,
    macs: &MacTable,
    folder: &Path,
) -> Result<usize> {
    let BackendConfig::Kubevirt(site) = &config.backend else {
        let text = format!("machines on {} are not created from manifests", config.backend.name());
        return Err(OperationError::new(ErrorKind::Usage, text)
            .hint("--manifests requires backend=kubevirt")
            .into());
    };
    let resolve_config = match parameters {
        Some(_) if site.pods.is_some() => resolve_config(session, config, site),
        _ => site.clone(),
    };
    let site = &resolve_config;
    if site.pods.as_ref().is_some_and(|pods| pods.routes == Routes::Auto) {
        tracing::warn!(
            "kubevirt_routes=auto: the platform decides which routes are created, so the manifests contain none"
        );
    }
    fs_err::create_dir_all(folder)?;
    let dir = session.home.cluster(&config.name);
    let entries = journal::read(&dir.journal())?;
    let image = image(config, &entries)?;
    // After bootstrapping, the bootstrap machine is deleted, and `kubectl apply` must not create it again.
    let is_bootstrapped = journal::is_done(&entries, "bootstrap-complete");
    let remains = |role: Role| role != Role::Bootstrap || !is_bootstrapped;
    let mut objects = vec![kubevirt::manifests::anchor(&config.id())];
    if config.lb == Lb::Platform {
        for vip in Vip::ALL {
            objects.extend(kubevirt::manifests::of_vip(
                site,
                &machines::balancer(config, vip, None, false),
            ));
        }
        let nodes = parameters.iter().flat_map(|parameters| &parameters.nodes);
        for node in nodes.filter(|node| remains(node.role)) {
            objects.push(kubevirt::manifests::of_node(&config.id(), &node.lease()));
        }
    }
    // A cloned disk is never smaller than its image. Before a deployment, the platform may not have the image.
    let image_bytes = match parameters {
        Some(_) => image_bytes(session, site, &image),
        None => 0,
    };
    let machines = machines::pass_two(config, macs, parameters);
    for planned in machines.into_iter().filter(|planned| remains(planned.role)) {
        let ignition = match fs_err::read(dir.ignition(planned.node.as_str())) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            read => Some(read?),
        };
        let is_known = ignition.is_some();
        let spec = planned.spec(config, &image, Payload::Ignition(ignition.unwrap_or_default()));
        objects.extend(kubevirt::manifests::of_machine(
            site,
            &spec,
            image_bytes,
            planned.ip,
            is_known,
        ));
    }
    for object in &objects {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_ascii_lowercase();
        let name = format!("{}-{}.yaml", word(&object["kind"]), word(&object["metadata"]["name"]));
        let path = folder.join(name);
        let text = serde_saphyr::to_string(object).with_context(|| format!("write {}", path.display()))?;
        // Some objects are Secrets.
        home::write_where_asked(&path, text.as_bytes()).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(objects.len())
}

/// The settings with the platform's choices, or unchanged if the platform does not answer.
fn resolve_config(session: &Session, config: &ClusterConfig, site: &KubevirtConfig) -> KubevirtConfig {
    let asked = session.finish_or_stop(async {
        let platform = kubevirt::Kubevirt::connect(site).await?;
        Ok(platform.resolve_config(&config.id()).await?)
    });
    asked.unwrap_or_else(|error| {
        tracing::warn!("cannot read the platform's choices; the manifests have the values of the settings: {error:#}");
        site.clone()
    })
}

/// The size of the image on the platform; 0 if the platform does not answer.
fn image_bytes(session: &Session, site: &KubevirtConfig, image: &ImageHandle) -> u64 {
    let asked = session.finish_or_stop(async {
        let platform = kubevirt::Kubevirt::connect(site).await?;
        Ok(platform.image_bytes(image).await?)
    });
    asked.unwrap_or_else(|error| {
        tracing::warn!("cannot read the size of the image, so disks have the size of the settings: {error:#}");
        0
    })
}

/// The image that is on the platform, or the one that a deployment would provide.
fn image(config: &ClusterConfig, entries: &[journal::Entry]) -> Result<ImageHandle> {
    let brought = entries
        .iter()
        .rfind(|entry| entry.step == "pass-two/image" && entry.event == Event::Done);
    if let Some(entry) = brought {
        return Ok(serde_json::from_value(entry.output.clone())?);
    }
    Ok(ImageHandle(match &config.images.coreos {
        ImageSource::Platform(name) => name.clone(),
        // The name of its volume contains the image's digest, which is not known before the file is available.
        other => format!("pvc:{other}"),
    }))
}
