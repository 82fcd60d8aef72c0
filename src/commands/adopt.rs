//! `ocpdeploy adopt`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings;
use super::session::Session;
use crate::cli::Adopt;
use crate::cluster::{ClusterDomain, Creation, Deployment, DeploymentId};
use crate::error::{ErrorKind, OperationError};
use crate::limited_file;
use crate::openshift::api::check_kubeconfig;
use crate::passes;
use crate::printable::{count, shell_path};
use crate::state::home::write_private;
use crate::state::inventory::Known;

/// The file with an administrator's kubeconfig on each master; its API address is also valid outside of the node
/// (openshift-kni/lifecycle-agent: `internal/common/consts.go`, `KubeconfigFile`).
const ON_MASTERS: &str =
    "/etc/kubernetes/static-pod-resources/kube-apiserver-certs/secrets/node-kubeconfigs/lb-ext.kubeconfig";

pub fn run(session: &Session, command: &Adopt) -> Result<()> {
    let sources = session.sources(&command.source)?;
    let loaded = session.load_from(&sources)?;
    let record = saved_settings::record(session, &sources, &loaded)?;
    let mut config = loaded.config;
    let domain = config.cluster_domain();
    let dir = session.home.cluster(&config.name);
    if Known::read(&dir)?.is_some() {
        let text = format!("the state directory already has a record of a cluster {}", config.name);
        let hint = format!(
            "`ocpdeploy status {}` shows it; another state directory is set with --home",
            config.name
        );
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    let (adopted, kubeconfig) = session.finish_or_stop(async {
        let kubeconfig = match &command.kubeconfig {
            Some(path) => Some(read_kubeconfig(path, &domain)?),
            None => None,
        };
        let backend = connect_for(&config).await?;
        let found = passes::adoptable(&backend, &config, command.id.as_ref()).await?;
        config.deployment = Deployment {
            id: found.id.deployment().clone(),
            creation: found.creation.unwrap_or(config.deployment.creation.clone()),
        };
        Ok((passes::adopt(&backend, &config, &session.home).await?, kubeconfig))
    })?;
    saved_settings::keep(&dir, &record)?;
    let mut report = Report {
        cluster: domain,
        id: config.deployment.id.clone(),
        begun_by: config.deployment.creation.clone(),
        nodes: adopted.table.nodes.len() - 1,
        missing: adopted.missing,
        kubeconfig: dir.kubeconfig(),
        next: vec![format!("ocpdeploy verify {}", config.name)],
    };
    match kubeconfig {
        Some(text) => write_private(&report.kubeconfig, text.as_bytes()).context("write the kubeconfig")?,
        None if config.is_rehearsal() => {}
        None => {
            report
                .missing
                .insert(0, "the kubeconfig, required to query the cluster's API".to_owned());
            let folder = report.kubeconfig.parent().unwrap_or(&report.kubeconfig);
            let (folder, file) = (shell_path(folder), shell_path(&report.kubeconfig));
            let master = format!("ocpdeploy node ssh {} master-0 -- sudo cat {ON_MASTERS}", config.name);
            report
                .next
                .insert(0, format!("(umask 077; mkdir -p {folder}; {master} >{file})"));
        }
    }
    print_result(&command.output, &report, || report.text())
}

/// The text of the user's kubeconfig, which every later command uses.
fn read_kubeconfig(path: &Path, cluster: &ClusterDomain) -> Result<String> {
    let text = limited_file::read_text(path).with_context(|| format!("read {}", path.display()))?;
    let checked = check_kubeconfig(path, &text, cluster);
    checked.map_err(|error| {
        OperationError::new(ErrorKind::Settings, error.to_string()).hint(
            "use the kubeconfig of an administrator of this cluster; `kubectl config view --minify --flatten` writes \
             the current one as one file",
        )
    })?;
    Ok(text)
}

/// The result of `adopt`.
#[derive(Serialize)]
struct Report {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    cluster: ClusterDomain,
    id: DeploymentId,
    /// Who began the deployment, and when.
    begun_by: Creation,
    /// Without the bootstrap, which no longer exists.
    nodes: usize,
    /// What is not available from the platform.
    missing: Vec<String>,
    /// The path that later commands use.
    kubeconfig: PathBuf,
    /// Commands to run, in order.
    next: Vec<String>,
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "cluster {} with id {}, begun by {}, has a new record: {}\n\
             from now on, use only this record: records on other computers are not updated\n",
            self.cluster,
            self.id,
            self.begun_by,
            count(self.nodes, "node")
        );
        for missing in &self.missing {
            text += &format!("not available from the platform: {missing}\n");
        }
        for next in &self.next {
            text += &format!("next: {next}\n");
        }
        text
    }
}
