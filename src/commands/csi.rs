//! `ocpdeploy export csi`: kubevirt-csi-driver for a cluster on KubeVirt.

use anyhow::Result;

use super::session::Session;
use crate::backend::kubevirt::Kubevirt;
use crate::backend::kubevirt::csi::Csi;
use crate::cli::CsiPart;
use crate::cluster::{BackendConfig, MachineName, NodeName, Role};
use crate::error::{ErrorKind, OperationError};
use crate::state::inventory::Known;
use crate::state::parameters::Parameters;

/// The manifests of a part. Reads the kubeconfig, and sends no request.
pub fn manifests(session: &Session, known: &Known, parameters: &Parameters, part: CsiPart) -> Result<String> {
    let config = known.all_platforms().find_map(|platform| match platform {
        BackendConfig::Kubevirt(config) => Some(config),
        _ => None,
    });
    let Some(config) = config else {
        let text = format!(
            "cluster {} has no machines on KubeVirt: it is on {}",
            known.name,
            known.platforms()
        );
        return Err(OperationError::new(ErrorKind::Usage, text)
            .hint("kubevirt-csi-driver is for clusters with backend=kubevirt")
            .into());
    };
    let is_there = |node: &NodeName| matches!(known.backend_of(node), BackendConfig::Kubevirt(_));
    let nodes = parameters.nodes.iter().filter(|node| node.role != Role::Bootstrap);
    let nodes = nodes.filter(|node| is_there(&node.name));
    let (domain, id) = (known.cluster_domain(), known.id());
    let platform = session.finish_or_stop(async { Ok(Kubevirt::connect(config).await?) })?;
    let (server, namespace) = platform.place();
    let csi = Csi {
        cluster: &id,
        server,
        namespace,
        class: config.storage_class.as_deref(),
        nodes: nodes
            .map(|node| {
                (
                    domain.fqdn(node.name.as_str()),
                    MachineName::of_node(&known.name, &node.name),
                )
            })
            .collect(),
    };
    Ok(match part {
        CsiPart::Platform => csi.platform()?,
        CsiPart::Cluster => csi.cluster()?,
    })
}
