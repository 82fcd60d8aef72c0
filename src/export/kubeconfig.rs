//! Changes the installer's kubeconfig. With the api VIP as the address, it requires no DNS and still verifies the
//! server's name. With the CA of the routers, `oc login` can use it for the cluster's OAuth server. Its context can be
//! added to the user's kubeconfig, and removed from it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use x509_parser::pem::Pem;

use crate::cluster::ApiEndpoint;
use crate::kubeconfig::Kubeconfig;
use crate::templates::yaml;

/// Why a context cannot be added to a kubeconfig.
#[derive(Debug, PartialEq, Eq)]
pub enum AddError {
    Invalid(String),
    /// An entry of another cluster has the name.
    Taken(String),
}

/// Parses a kubeconfig. The error has a position, but quotes no line: the file contains a private key.
fn parse(kubeconfig: &str) -> Result<Value, String> {
    serde_saphyr::from_str(kubeconfig).map_err(|error| error.without_snippet().to_string())
}

/// Replaces the servers of a kubeconfig by the api VIP. The error is the reason why the kubeconfig is invalid.
pub fn pinned(kubeconfig: &str, endpoint: &ApiEndpoint) -> Result<String, String> {
    let mut config = parse(kubeconfig)?;
    let clusters = config.get_mut("clusters").and_then(Value::as_array_mut);
    for cluster in clusters.ok_or("it has no clusters")? {
        let cluster = &mut cluster["cluster"];
        let server = cluster.get("server").and_then(Value::as_str).unwrap_or_default();
        let place = server
            .strip_prefix("https://")
            .ok_or("its server is not an https URL")?;
        let place = place.split('/').next().unwrap_or_default();
        let (name, port) = place.rsplit_once(':').unwrap_or((place, "443"));
        let port = port.parse().map_err(|_| format!("its server has no port: {place}"))?;
        let (name, server) = (name.to_owned(), format!("https://{}", endpoint.to(port)));
        cluster["server"] = json!(server);
        cluster["tls-server-name"] = json!(name);
    }
    Ok(yaml(&config) + "\n")
}

/// Adds the CA certificates of the routers (PEM) before those of each cluster, as openshift-install does
/// (openshift/installer: `cmd/openshift-install/command/waitfor.go`, `addRouterCAToClusterCA`); `None` if each cluster
/// already has them.
pub fn with_router_ca(kubeconfig: &str, ca: &str) -> Result<Option<String>, String> {
    let certificates = Pem::iter_from_buffer(ca.as_bytes()).collect::<Result<Vec<_>, _>>();
    if !certificates.is_ok_and(|all| !all.is_empty() && all.iter().all(|pem| pem.parse_x509().is_ok())) {
        return Err("the CA of the routers is not a list of PEM certificates".to_owned());
    }
    let mut config = parse(kubeconfig)?;
    let clusters = config.get_mut("clusters").and_then(Value::as_array_mut);
    let mut is_changed = false;
    for cluster in clusters.ok_or("it has no clusters")? {
        let data = cluster["cluster"]["certificate-authority-data"]
            .as_str()
            .unwrap_or_default();
        let own = STANDARD.decode(data).ok().filter(|own| !own.is_empty());
        let own = own.and_then(|own| String::from_utf8(own).ok());
        let own = own.ok_or("one of its clusters has no certificate-authority-data")?;
        if own.contains(ca.trim()) {
            continue;
        }
        let both = format!("{}\n{own}", ca.trim_end());
        cluster["cluster"]["certificate-authority-data"] = json!(STANDARD.encode(both));
        is_changed = true;
    }
    Ok(is_changed.then(|| yaml(&config) + "\n"))
}

/// Adds the current context of a cluster's kubeconfig to another one, with cluster and user, all with this name; `None`
/// if it has them already. An entry of the same name that is not of this cluster is an error.
///
/// What else the entries contain, such as the namespace that the user chose, is kept. If there is no current context, it
/// becomes the current one.
pub fn with_context(kubeconfig: &str, of_cluster: &str, name: &str) -> Result<Option<String>, AddError> {
    let [cluster, user, context] = entries(of_cluster, name).map_err(AddError::Invalid)?;
    let mut config = complete(kubeconfig).map_err(AddError::Invalid)?;
    let before = config.clone();
    let has_cluster = is_of_cluster(content(&config, &cluster, name), &cluster.content);
    for entry in [cluster, user, context] {
        let theirs = content(&config, &entry, name);
        if !theirs.is_null() && !entry.is_ours(theirs, has_cluster) {
            return Err(AddError::Taken(format!(
                "it already has a {} {name} that is not of this cluster",
                entry.kind
            )));
        }
        let mut content = theirs.as_object().cloned().unwrap_or_default();
        // Without it, the name in the server's URL is verified.
        content.remove("tls-server-name");
        content.extend(entry.content);
        let entries = list(&mut config, entry.list).map_err(AddError::Invalid)?;
        match entries.iter_mut().find(|entry| entry["name"] == name) {
            Some(theirs) => theirs[entry.kind] = content.into(),
            None => entries.push(json!({"name": name, entry.kind: content})),
        }
    }
    if config
        .get(CURRENT)
        .is_none_or(|current| current.is_null() || current == "")
    {
        config.insert(CURRENT.to_owned(), json!(name));
    }
    (config != before)
        .then(|| block_yaml(&config))
        .transpose()
        .map_err(AddError::Invalid)
}

/// Removes what `with_context` added, if it is still of this cluster; `None` if there is none.
pub fn without_context(kubeconfig: &str, of_cluster: &str, name: &str) -> Result<Option<String>, String> {
    let ours = entries(of_cluster, name)?;
    let mut config = complete(kubeconfig)?;
    let has_cluster = is_of_cluster(content(&config, &ours[0], name), &ours[0].content);
    let mut is_changed = false;
    for entry in ours {
        let theirs = content(&config, &entry, name);
        if theirs.is_null() || !entry.is_ours(theirs, has_cluster) {
            continue;
        }
        list(&mut config, entry.list)?.retain(|entry| entry["name"] != name);
        if entry.kind == "context" && config.get(CURRENT).is_some_and(|current| current == name) {
            config.insert(CURRENT.to_owned(), json!(""));
        }
        is_changed = true;
    }
    is_changed.then(|| block_yaml(&config)).transpose()
}

const CURRENT: &str = "current-context";

/// An entry of a kubeconfig (kubernetes/client-go: `tools/clientcmd/api/v1/types.go`).
struct Entry {
    list: &'static str,
    kind: &'static str,
    content: Map<String, Value>,
}

impl Entry {
    /// Whether the entry of this name is of this cluster. `has_cluster`: the cluster of this name is.
    fn is_ours(&self, theirs: &Value, has_cluster: bool) -> bool {
        let same = |key| theirs[key].is_string() && self.content.get(key) == Some(&theirs[key]);
        match self.kind {
            "cluster" => has_cluster,
            "user" => has_cluster || same("client-certificate-data") || same("token"),
            _ => has_cluster && same("cluster") && same("user"),
        }
    }
}

/// Cluster, user and context of a kubeconfig's current context, with this name.
fn entries(kubeconfig: &str, name: &str) -> Result<[Entry; 3], String> {
    let config = complete(kubeconfig)?;
    let current = config.get(CURRENT).and_then(Value::as_str).unwrap_or_default();
    let find = |list, kind, name: &str| {
        let entry = Entry {
            list,
            kind,
            content: Map::new(),
        };
        let content = content(&config, &entry, name).as_object().cloned();
        let content = content.ok_or_else(|| format!("it has no {kind} {name}"))?;
        Ok::<_, String>(Entry { content, ..entry })
    };
    let mut context = find("contexts", "context", current)?;
    let named = |kind: &str| context.content.get(kind).and_then(Value::as_str).unwrap_or_default();
    let cluster = find("clusters", "cluster", named("cluster"))?;
    let user = find("users", "user", named("user"))?;
    context.content = json!({"cluster": name, "user": name})
        .as_object()
        .cloned()
        .unwrap_or_default();
    Ok([cluster, user, context])
}

/// Whether an entry is this cluster's: its CA certificates are the last ones of the cluster's, before which
/// `with_router_ca` adds others, or it has the same server with the same name.
fn is_of_cluster(theirs: &Value, ours: &Map<String, Value>) -> bool {
    let ours = Value::from(ours.clone());
    let ca = |entry: &Value| {
        let data = entry["certificate-authority-data"].as_str()?;
        STANDARD.decode(data).ok().filter(|ca| !ca.is_empty())
    };
    let has_ca = ca(theirs)
        .zip(ca(&ours))
        .is_some_and(|(theirs, ours)| ours.ends_with(&theirs));
    let is_same = |key| theirs[key] == ours[key];
    has_ca || (theirs["server"].is_string() && is_same("server") && is_same("tls-server-name"))
}

/// The whole content of a kubeconfig that client-go accepts; that of an empty file is an empty kubeconfig.
fn complete(kubeconfig: &str) -> Result<Map<String, Value>, String> {
    Kubeconfig::parse(kubeconfig.as_bytes(), "".as_ref())?;
    match parse(kubeconfig)? {
        Value::Object(config) => Ok(config),
        Value::Null => Ok(Map::from_iter([
            ("apiVersion".to_owned(), json!("v1")),
            ("kind".to_owned(), json!("Config")),
        ])),
        _ => Err("it is not a kubeconfig".to_owned()),
    }
}

/// A list of a kubeconfig. kubectl writes an empty one as `null`.
fn list<'a>(config: &'a mut Map<String, Value>, list: &str) -> Result<&'a mut Vec<Value>, String> {
    let value = config.entry(list).or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or_else(|| format!("{list} is not a list"))
}

/// The content of the entry with this name, otherwise null.
fn content<'a>(config: &'a Map<String, Value>, entry: &Entry, name: &str) -> &'a Value {
    let entries = config.get(entry.list).and_then(Value::as_array);
    let found = entries.into_iter().flatten().find(|entry| entry["name"] == name);
    found.map_or(&Value::Null, |found| &found[entry.kind])
}

/// YAML as people and kubectl write it, which has the same content when it is read. The error quotes nothing.
fn block_yaml(config: &Map<String, Value>) -> Result<String, String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(config, options).ok();
    let is_same = |text: &String| parse(text).is_ok_and(|read| read.as_object() == Some(config));
    text.filter(is_same)
        .ok_or_else(|| "it cannot be written as YAML".to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const GIVEN: &str = "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    \
                         server: https://api.lab.example.com:6443\n  name: lab\nkind: Config\nusers: []\n";

    #[test]
    fn the_server_is_the_vip_and_its_name_is_verified() {
        let pinned = pinned(GIVEN, &IpAddr::from([192, 168, 122, 9]).into()).unwrap();
        let read: Value = serde_saphyr::from_str(&pinned).unwrap();
        let cluster = json!({"certificate-authority-data": "QQ==", "server": "https://192.168.122.9:6443",
            "tls-server-name": "api.lab.example.com"});
        let wanted = json!({"clusters": [{"cluster": cluster, "name": "lab"}], "kind": "Config", "users": []});
        assert_eq!(read, wanted);
    }

    #[test]
    fn the_routers_ca_is_added_once_before_the_clusters_own() {
        let ca = || {
            let key = rcgen::KeyPair::generate().unwrap();
            rcgen::CertificateParams::default().self_signed(&key).unwrap().pem()
        };
        let (own, routers) = (ca(), ca());
        let given = GIVEN.replace("QQ==", &STANDARD.encode(&own));
        let with = with_router_ca(&given, &routers).unwrap().unwrap();
        let read: Value = serde_saphyr::from_str(&with).unwrap();
        let data = read["clusters"][0]["cluster"]["certificate-authority-data"]
            .as_str()
            .unwrap();
        let both = format!("{}\n{own}", routers.trim_end());
        assert_eq!(String::from_utf8(STANDARD.decode(data).unwrap()).unwrap(), both);
        assert_eq!(
            read["clusters"][0]["cluster"]["server"],
            "https://api.lab.example.com:6443"
        );
        assert_eq!(with_router_ca(&with, &routers), Ok(None));

        let no_ca = GIVEN.replace("QQ==", "");
        for (kubeconfig, ca) in [
            (&no_ca, routers.as_str()),
            (&given, ""),
            (&given, "x"),
            (&"a: b".to_owned(), &routers),
        ] {
            assert!(with_router_ca(kubeconfig, ca).is_err(), "{kubeconfig} {ca}");
        }
    }

    #[test]
    fn the_error_of_a_damaged_kubeconfig_does_not_quote_it() {
        for end in ["a: [CANARY\n", "a: 'CANARY\n"] {
            let why = pinned(&(GIVEN.to_owned() + end), &IpAddr::from([192, 168, 122, 9]).into()).unwrap_err();
            assert!(!why.contains("CANARY"), "{end:?}: {why}");
        }
    }

    #[test]
    fn invalid_kubeconfigs_are_rejected() {
        for text in ["", "a: b", "clusters: [{cluster: {server: 'http://a:1'}}]", "{"] {
            assert!(
                pinned(text, &IpAddr::from([192, 168, 122, 9]).into()).is_err(),
                "{text}"
            );
        }
    }
}
