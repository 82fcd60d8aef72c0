//! Settings of the KubeVirt backend.

use std::path::Path;

use http::Uri;

use crate::cluster::{BackendConfig, Insecure, KubevirtConfig, PodNetwork, WorkersOn};
use crate::kubeconfig::Kubeconfig;
use crate::settings::sources::Sources;
use crate::settings::values::{Values, read_all};
use crate::settings::{choices, parse};

pub(super) fn read(values: &mut Values<'_>) -> Option<KubevirtConfig> {
    Some(read_all!(KubevirtConfig {
        namespace: values.optional("kubevirt_namespace", parse::kube_name),
        storage_class: values.optional("kubevirt_storage_class", parse::kube_name),
        access_mode: values.optional("kubevirt_access_mode", choices::choice),
        volume_mode: values.optional("kubevirt_volume_mode", choices::choice),
        kubeconfig: Some(values.file("kubevirt_kubeconfig", "")),
        upload_ca: Some(values.file("kubevirt_upload_ca", "")),
        upload_proxy: values.optional("kubevirt_upload_proxy", upload_proxy),
        affinity: values.choice("kubevirt_affinity"),
        eviction: values.choice("kubevirt_eviction_strategy"),
        makes_namespace: makes_namespace(values),
        insecure: values.switch("kubevirt_insecure").map(Insecure),
        pods: match values.text("network").as_deref() {
            Some("pod") => pod_network(values).map(Some),
            _ => Some(None),
        },
        context: Some(values.text("kubevirt_context")),
    }))
}

fn makes_namespace(values: &mut Values<'_>) -> Option<bool> {
    let makes_namespace = values.switch("kubevirt_make_namespace")?;
    if makes_namespace && values.value("kubevirt_namespace").is_none() {
        let help = "set it to the name of the namespace to create";
        values.problem(
            &["kubevirt_make_namespace"],
            "kubevirt_make_namespace requires `kubevirt_namespace`",
            help,
        );
    }
    Some(makes_namespace)
}

/// The host of the API server and the namespace, from which MACs are derived, too: KubeVirt does not compare MACs, and
/// a user of one namespace does not see the machines of another, so equal names must not lead to equal MACs.
///
/// An unreadable kubeconfig is reported by the connection.
pub fn tenant(sources: &Sources<'_>, config: &KubevirtConfig) -> String {
    // On the pod network, each guest shares its network only with its own pod.
    if config.pods.is_some() {
        return String::new();
    }
    let read = |path: &Path| (sources.read_file)(path).map(String::into_bytes);
    let kubeconfig = Kubeconfig::read(config.kubeconfig.as_deref(), |name| sources.variable(name), read);
    let kubeconfig = kubeconfig.unwrap_or_default();
    let (server, namespace) = kubeconfig.server(config.context.as_deref());
    let server = server.parse::<Uri>().ok();
    let host = server.as_ref().and_then(Uri::host).unwrap_or_default();
    let namespace = config.namespace.as_deref().unwrap_or(namespace);
    format!("{host}#{}", if namespace.is_empty() { "default" } else { namespace })
}

fn pod_network(values: &mut Values<'_>) -> Option<PodNetwork> {
    Some(read_all!(PodNetwork {
        expose: values.choice("kubevirt_expose"),
        routes: values.choice("kubevirt_routes"),
        node_address: Some(values.ip4("kubevirt_node_address")),
        pod_networks: values.list("kubevirt_pod_networks", parse::network),
        admit: values.list("kubevirt_admit", parse::network),
        route_names: values.list("kubevirt_route_names", parse::kube_name),
    }))
}

/// Settings of a cluster on the pod network, where addresses do not depend on MACs, and only the platform can be the
/// load balancer.
pub fn on_pods(values: &mut Values<'_>, backend: Option<&BackendConfig>, workers_on: Option<&WorkersOn>) {
    const ADDRESSES: &str = "on the pod network, a machine has the address of its pod, which does not depend on its MAC: \
                             remove this setting, or set network to a NetworkAttachmentDefinition";
    const VIPS: &str = "on the pod network, Services of the platform hold the virtual IPs: remove this setting, or set \
                        network to a NetworkAttachmentDefinition";
    if backend.and_then(BackendConfig::pod_network).is_none() {
        return;
    }
    for (name, only, help) in [
        ("harvest", Some("reserve"), ADDRESSES),
        ("lb", Some("platform"), VIPS),
        ("dhcp", Some("platform"), ADDRESSES),
        ("api_ip", None, VIPS),
        ("ingress_ip", None, VIPS),
        ("bootstrap_ip", None, ADDRESSES),
        ("master_ips", None, ADDRESSES),
        ("arbiter_ip", None, ADDRESSES),
        ("worker_ips", None, ADDRESSES),
    ] {
        let given = values.value(name).filter(|value| value.is_given());
        match (given, only) {
            (Some(given), only) if only != Some(given.text.as_str()) => {
                let text = format!("network=pod and {name}={} cannot be combined", given.text);
                values.problem(&[name], text, help);
            }
            (None, Some(only)) => values.replace(name, "network pod", only.to_owned()),
            _ => {}
        }
    }
    // Each node uses four addresses of the machine network. The other networks are not OpenShift's defaults, because
    // the platform may be an OpenShift cluster that uses them.
    values.replace_default("machine_network", "network pod", "10.0.2.0/24");
    values.replace_default("cluster_network", "network pod", "10.196.0.0/14");
    values.replace_default("service_network", "network pod", "172.31.0.0/16");
    if workers_on.is_some() {
        let message = "worker_backend is not supported with network=pod";
        let help = "nodes on the pod network can reach only each other";
        values.problem(&["worker_backend", "network"], message, help);
    }
}

/// CDI's upload proxy: a host, or an https URL.
fn upload_proxy(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").unwrap_or(text);
    match host.is_empty() || host.contains("://") || host.contains(['@', '?', '#']) {
        true => Err(format!("`{text}` is not a host or an https URL")),
        false => Ok(text.to_owned()),
    }
}

/// Whether this names an image that KubeVirt already has or downloads itself.
pub fn is_image(text: &str) -> bool {
    const KINDS: [&str; 5] = ["pvc:", "datasource:", "containerdisk:", "docker://", "import:"];
    KINDS.iter().any(|kind| text.starts_with(kind))
}
