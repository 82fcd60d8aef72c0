//! The choices of `init`: contexts, namespaces, networks and storage classes.

use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;

use super::kind::Kind;
use super::labels;
use super::network;
use super::objects::POD_NETWORK;
use super::preflight;
use super::session::{Session, if_allowed};
use crate::backend::error::if_exists;
use crate::backend::findings::Findings;
use crate::backend::{BackendError, BackendErrorKind, Choice, PlatformChoices, PlatformError, SettingChoices, Verdict};
use crate::cluster::KubevirtConfig;
use crate::kube_client;

/// The contexts of a kubeconfig, its current one first; none without a kubeconfig, as in a pod.
pub fn contexts(path: Option<&Path>) -> Result<SettingChoices, PlatformError> {
    let kubeconfig = kube_client::read_kubeconfig(path).map_err(|why| {
        let error = BackendError::new(BackendErrorKind::Denied, why);
        error
            .hint("use a file that `kubectl` accepts")
            .during("read the kubeconfig")
    })?;
    if path.is_none() && kubeconfig.is_empty() {
        return Ok(SettingChoices::new("kubevirt_context", Vec::new()).optional());
    }
    let current = kubeconfig.current_context();
    let mut choices: Vec<_> = kubeconfig
        .contexts()
        .map(|(name, cluster, namespace)| {
            let is_current = if name == current { ", current" } else { "" };
            Choice::new(name, format!("cluster {cluster}, namespace {namespace}{is_current}"))
        })
        .collect();
    choices.sort_by_key(|choice| choice.value != current);
    Ok(SettingChoices::new("kubevirt_context", choices))
}

/// Namespaces first; networks and storage classes once a namespace is chosen.
pub(super) async fn all(session: &Session, config: &KubevirtConfig) -> Result<PlatformChoices, BackendError> {
    let mut findings = Findings(Vec::new());
    if preflight::versions(session, &mut findings).await?.is_none() {
        let words: Vec<_> = findings.0.iter().map(|finding| finding.text.as_str()).collect();
        let failure = BackendError::new(BackendErrorKind::Rejected, words.join("; "));
        return Err(failure.hint(preflight::INSTALL));
    }
    let mut settings = vec![SettingChoices::new("kubevirt_namespace", namespaces(session).await?).decides()];
    if config.namespace.is_some() {
        preflight::rights(session, &mut findings).await?;
        settings.push(SettingChoices::new("network", networks(session, &mut findings).await?));
        settings.push(storage_classes(session).await?);
    }
    Ok(PlatformChoices {
        host: None,
        seen: findings.0,
        settings,
    })
}

/// The namespaces that this user can list, the context's first; only the context's if the user cannot list any.
async fn namespaces(session: &Session) -> Result<Vec<Choice>, BackendError> {
    let mut names: Vec<String> = Vec::new();
    // An OpenShift user can list its own projects, but no namespaces.
    for path in ["/api/v1/namespaces", "/apis/project.openshift.io/v1/projects"] {
        if let Some(list) = if_allowed(if_exists(session.read(path).await))?.flatten() {
            let items = list["items"].as_array().into_iter().flatten();
            names.extend(items.map(|item| labels::name(item).to_owned()));
            break;
        }
    }
    names.retain(|name| *name != session.namespace && !name.starts_with("kube-") && !name.starts_with("openshift-"));
    names.sort();
    let own = Choice::new(&session.namespace, "namespace of the context");
    let others = names.iter().map(|name| Choice::new(name, ""));
    Ok(std::iter::once(own).chain(others).collect())
}

/// The networks of the namespace, and the pod network.
async fn networks(session: &Session, findings: &mut Findings) -> Result<Vec<Choice>, BackendError> {
    let all = if_allowed(session.list(Kind::Network, "").await)?;
    if all.is_none() {
        let text = format!(
            "this user cannot list the networks of namespace {}: enter the name of a NetworkAttachmentDefinition, or {POD_NETWORK}",
            session.namespace
        );
        findings.add(Verdict::Warn, text, None);
    }
    let choice = |definition: &Value| {
        let config = network::config(definition).unwrap_or_default();
        let kind = config["type"].as_str().unwrap_or("of unknown kind");
        let mut about = kind.to_owned();
        for key in ["bridge", "master", "vlan"] {
            match &config[key] {
                Value::Null => {}
                Value::String(text) => about += &format!(", {key} {text}"),
                other => about += &format!(", {key} {other}"),
            }
        }
        let choice = Choice::new(labels::name(definition), about);
        match network::vip_trouble(&config) {
            Some(trouble) => choice.warn(trouble),
            None => choice,
        }
    };
    let pods = Choice::new(POD_NETWORK, "the pod network").warn("experimental");
    Ok(all.unwrap_or_default().iter().map(choice).chain([pods]).collect())
}

/// Optional if one of them is the default, or if this user cannot list them.
async fn storage_classes(session: &Session) -> Result<SettingChoices, BackendError> {
    let list = if_allowed(session.read("/apis/storage.k8s.io/v1/storageclasses").await)?;
    let Some(list) = list else {
        return Ok(SettingChoices::new("kubevirt_storage_class", Vec::new()).optional());
    };
    let items: Vec<_> = list["items"].as_array().into_iter().flatten().collect();
    let choice = |class: &&Value| {
        let is_default = if preflight::is_default(class) { ", default" } else { "" };
        let provisioner = class["provisioner"].as_str().unwrap_or_default();
        Choice::new(labels::name(class), format!("{provisioner}{is_default}"))
    };
    let offered = SettingChoices::new("kubevirt_storage_class", items.iter().map(choice).collect());
    Ok(match items.iter().any(|class| preflight::is_default(class)) {
        true => offered.optional(),
        false => offered,
    })
}

/// The server's time.
pub(super) async fn time(session: &Session) -> Result<Option<SystemTime>, BackendError> {
    Ok(session.date().await?.as_deref().and_then(crate::backoff::time_of))
}
