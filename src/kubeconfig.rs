//! Kubeconfigs by the rules of client-go: which files are read, which entries win, and what is invalid.
//!
//! Source: kubernetes/client-go: `tools/clientcmd/loader.go`, `validation.go` and `client_config.go`.
//! `tests/it/kubeconfigs.rs` compares this module with kubectl.

use std::collections::BTreeMap;
use std::io;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use http::HeaderValue;
use kube::config::{AuthInfo, Cluster};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

/// The keys of entries whose values are paths.
const FILES: [&str; 4] = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/// The merged content of kubeconfig files. Entries are converted only when they are selected: an invalid one that is not
/// used does not matter.
#[derive(Clone, Debug, Default)]
pub struct Kubeconfig {
    current_context: String,
    contexts: BTreeMap<String, Entry>,
    clusters: BTreeMap<String, Entry>,
    users: BTreeMap<String, Entry>,
}

/// An entry, and the file that contains it.
#[derive(Clone, Debug)]
struct Entry {
    file: PathBuf,
    content: Map<String, Value>,
}

/// One context with its cluster and user.
pub struct SelectedContext {
    /// The file with the cluster's entry.
    pub file: PathBuf,
    pub cluster_name: String,
    pub cluster: Cluster,
    pub user: AuthInfo,
    pub namespace: String,
}

/// The files of the default kubeconfig: those of `KUBECONFIG`, otherwise `~/.kube/config`.
pub fn default_files(variable: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    match variable("KUBECONFIG").filter(|listed| !listed.is_empty()) {
        Some(listed) => listed
            .split(':')
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .collect(),
        None => variable("HOME")
            .map(|home| Path::new(&home).join(".kube/config"))
            .into_iter()
            .collect(),
    }
}

impl Kubeconfig {
    /// Reads this file, or merges the files of the default kubeconfig, of which missing ones are skipped. Relative paths
    /// in a file are relative to its directory.
    pub fn read(
        path: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
        read_file: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Self, String> {
        let files = path.map_or_else(|| default_files(variable), |path| vec![path.to_owned()]);
        let mut merged = Self::default();
        for file in files {
            let added = match read_file(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_none() => continue,
                Err(error) => Err(error.to_string()),
                Ok(bytes) => merged.add(&bytes, &file),
            };
            // Callers know the name of a single file.
            added.map_err(|why| match path {
                Some(_) => why,
                None => format!("{}: {why}", file.display()),
            })?;
        }
        Ok(merged)
    }

    /// Parses the content of one file. `file` is for relative paths.
    pub fn parse(content: &[u8], file: &Path) -> Result<Self, String> {
        let mut parsed = Self::default();
        parsed.add(content, file)?;
        Ok(parsed)
    }

    /// Adds the entries of a file that earlier files do not have.
    fn add(&mut self, content: &[u8], file: &Path) -> Result<(), String> {
        let document = document(content)?;
        let text = |key: &str| match document.get(key) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(format!("{key} is not a string")),
        };
        for (key, expected) in [("kind", "Config"), ("apiVersion", "v1")] {
            let is = text(key)?;
            if !is.is_empty() && is != expected {
                return Err(format!("it is not a kubeconfig: its {key} is {is}"));
            }
        }
        if self.current_context.is_empty() {
            text("current-context")?.clone_into(&mut self.current_context);
        }
        let lists = [
            (&mut self.contexts, "contexts", "context"),
            (&mut self.clusters, "clusters", "cluster"),
            (&mut self.users, "users", "user"),
        ];
        for (entries, list, kind) in lists {
            let found = named(document.get(list), list, kind, file)?;
            for (name, entry) in found {
                entries.entry(name).or_insert(entry);
            }
        }
        Ok(())
    }

    /// Whether no file has an entry, as if there were none.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty() && self.clusters.is_empty() && self.users.is_empty() && self.current_context.is_empty()
    }

    pub fn current_context(&self) -> &str {
        &self.current_context
    }

    /// The names of the contexts with their clusters and namespaces.
    pub fn contexts(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.contexts
            .iter()
            .map(|(name, entry)| (name.as_str(), entry.text("cluster"), entry.namespace()))
    }

    /// The server of a context, otherwise of the current one, and its namespace; empty if it is not known.
    pub fn server(&self, context: Option<&str>) -> (&str, &str) {
        let context = self.contexts.get(context.unwrap_or(&self.current_context));
        let cluster = context.and_then(|context| self.clusters.get(context.text("cluster")));
        (
            cluster.map_or("", |cluster| cluster.text("server")),
            context.map_or("", Entry::namespace),
        )
    }

    /// A file that an entry refers to.
    pub fn referenced_file(&self) -> Option<&str> {
        let mut entries = self.clusters.values().chain(self.users.values());
        entries.find_map(|entry| FILES.iter().map(|key| entry.text(key)).find(|path| !path.is_empty()))
    }

    /// A context, otherwise the current one. The error is the reason why kubectl would reject it.
    pub fn select(&self, context: Option<&str>) -> Result<SelectedContext, String> {
        let name = context.unwrap_or(&self.current_context);
        if name.is_empty() {
            return Err("it has no current context".to_owned());
        }
        let context = self.contexts.get(name).ok_or_else(|| match self.contexts.is_empty() {
            true => format!("it has no context {name}, and no other"),
            false => format!("it has no context {name}, only {}", listed(self.contexts.keys())),
        })?;
        let of_context = |kind: &str, entries: &BTreeMap<String, Entry>| match context.text(kind) {
            "" => Err(format!("context {name} has no {kind}")),
            named => match entries.get(named) {
                Some(entry) => Ok((named.to_owned(), entry.clone())),
                None => Err(format!("{kind} {named} of context {name} does not exist")),
            },
        };
        let (cluster_name, cluster_entry) = of_context("cluster", &self.clusters)?;
        let of_cluster = |why| format!("cluster {cluster_name}: {why}");
        let mut cluster: Cluster = cluster_entry.read().map_err(of_cluster)?;
        let server = server(&cluster).map_err(of_cluster)?;
        let user = match of_context("user", &self.users) {
            Ok((name, user)) => user
                .read()
                .and_then(|user| credentials(user, &server))
                .map_err(|why| format!("user {name}: {why}"))?,
            // As with `kubectl proxy`, which adds credentials.
            Err(_) if server.starts_with("http://") => AuthInfo::default(),
            Err(why) => return Err(why),
        };
        cluster.server = Some(server);
        Ok(SelectedContext {
            file: cluster_entry.file,
            cluster,
            user,
            namespace: context.namespace().to_owned(),
            cluster_name,
        })
    }
}

impl Entry {
    fn text(&self, key: &str) -> &str {
        self.content.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        match self.text("namespace") {
            "" => "default",
            namespace => namespace,
        }
    }

    /// Converts the entry to one of kube's types.
    fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_value(Value::Object(self.content.clone())).map_err(|error| error.to_string())
    }
}

/// Base64 without line breaks, which Go skips (golang/go: `src/encoding/base64/base64.go`).
pub fn one_line(data: &str) -> String {
    data.replace(['\r', '\n'], "")
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The first YAML document of a file. If a key occurs twice, the last one counts. Errors do not quote lines, because
/// these may contain a secret.
fn document(content: &[u8]) -> Result<Map<String, Value>, String> {
    let text = text(content).ok_or("it is not text in UTF-8 or UTF-16")?;
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let documents = serde_saphyr::from_multiple_with_options::<Value>(&text, options);
    let documents = documents.map_err(|error| error.without_snippet().to_string())?;
    match documents.into_iter().next() {
        Some(Value::Object(document)) => Ok(document),
        None | Some(Value::Null) => Ok(Map::new()),
        Some(_) => Err("it is not a kubeconfig".to_owned()),
    }
}

/// The text of a YAML file, of which a byte order mark tells the encoding (yaml/go-yaml: `readerc.go`).
fn text(content: &[u8]) -> Option<String> {
    let wide = |pairs: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, rest) = pairs.as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().copied().map(unit).collect();
        rest.is_empty().then(|| String::from_utf16(&units).ok())?
    };
    match content {
        [0xff, 0xfe, pairs @ ..] => wide(pairs, u16::from_le_bytes),
        [0xfe, 0xff, pairs @ ..] => wide(pairs, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, text @ ..] | text => String::from_utf8(text.to_vec()).ok(),
    }
}

/// The entries of a list by their names, without values that mean the same as none, and with absolute paths.
fn named(list: Option<&Value>, list_name: &str, kind: &str, file: &Path) -> Result<BTreeMap<String, Entry>, String> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut entries = BTreeMap::new();
    let list = match list {
        None | Some(Value::Null) => return Ok(entries),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(format!("{list_name} is not a list")),
    };
    for named in list {
        let name = named["name"].as_str().unwrap_or_default().to_owned();
        let mut content = match &named[kind] {
            Value::Object(content) => content.clone(),
            Value::Null => Map::new(),
            _ => return Err(format!("{kind} {name} is not a mapping")),
        };
        content.retain(|_, value| !value.is_null() && value != "");
        for nested in content.values_mut().filter_map(Value::as_object_mut) {
            nested.retain(|_, value| !value.is_null());
        }
        for key in FILES {
            make_absolute(content.get_mut(key), folder);
        }
        let exec = content.get_mut("exec").and_then(Value::as_object_mut);
        let command = exec.and_then(|exec| exec.get_mut("command"));
        // A bare name is found in `PATH`.
        let is_path = |command: &&mut Value| command.as_str().is_some_and(|command| command.contains(MAIN_SEPARATOR));
        make_absolute(command.filter(is_path), folder);
        let entry = Entry {
            file: file.to_owned(),
            content,
        };
        if entries.insert(name.clone(), entry).is_some() {
            return Err(format!("{list_name} has two entries with the name {name}"));
        }
    }
    Ok(entries)
}

fn make_absolute(path: Option<&mut Value>, folder: &Path) {
    if let Some(Value::String(path)) = path {
        *path = folder.join(&*path).display().to_string();
    }
}

/// The URL of a cluster's server; http without a scheme (kubernetes/client-go: `rest/url_utils.go`, `DefaultServerURL`).
fn server(cluster: &Cluster) -> Result<String, String> {
    match cluster.server.as_deref() {
        None => Err("it has no server".to_owned()),
        Some(_) if cluster.certificate_authority.is_some() && cluster.certificate_authority_data.is_some() => {
            Err("it has both certificate-authority and certificate-authority-data".to_owned())
        }
        Some(server) if server.contains("://") => Ok(server.to_owned()),
        Some(server) => Ok(format!("http://{server}")),
    }
}

/// A user's credentials for this server as client-go uses them; kube has another order and is stricter with base64.
fn credentials(mut user: AuthInfo, server: &str) -> Result<AuthInfo, String> {
    let both = |one: &str, other: &str| Err(format!("it has both {one} and {other}"));
    if user.username.is_some() || user.password.is_some() {
        user.username.get_or_insert_default();
        user.password.get_or_insert_with(|| SecretString::from(""));
    }
    if user.token.is_some() && user.username.is_some() {
        return both("a token", "a password");
    }
    if let Some(token) = &user.token
        && HeaderValue::from_str(token.expose_secret()).is_err()
    {
        return Err("its token contains a line break or another control character".to_owned());
    }
    if user.client_certificate.is_some() && user.client_certificate_data.is_some() {
        return both("client-certificate", "client-certificate-data");
    }
    let has_certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    match (&user.client_key, &user.client_key_data) {
        // A key without a certificate has no effect.
        _ if !has_certificate => (user.client_key, user.client_key_data) = (None, None),
        (Some(_), Some(_)) => return both("client-key", "client-key-data"),
        (None, None) => return Err("it has a client certificate, but no key".to_owned()),
        _ => {}
    }
    if let Some(exec) = &user.exec {
        match () {
            () if user.auth_provider.is_some() => return both("exec", "auth-provider"),
            () if exec.command.as_ref().is_none_or(String::is_empty) => {
                return Err("its exec has no command".to_owned());
            }
            () if exec.api_version.as_ref().is_none_or(String::is_empty) => {
                return Err("its exec has no apiVersion".to_owned());
            }
            () => {}
        }
    }
    if user.impersonate.is_none() && (user.impersonate_groups.is_some() || user.impersonate_user_extra.is_some()) {
        return Err("it has as-groups or as-user-extra, but not `as`".to_owned());
    }
    let has_others = user.exec.is_some() || user.auth_provider.is_some() || user.token_file.is_some();
    if let Some(data) = &mut user.client_certificate_data {
        *data = one_line(data);
    }
    user.client_key_data = user
        .client_key_data
        .map(|data| SecretString::from(one_line(data.expose_secret())));
    let has_any = has_certificate || has_others || user.token.is_some() || user.username.is_some();
    match has_any || server.starts_with("http://") {
        true => Ok(user),
        // kubectl prompts for a password.
        false => Err("it has no credentials".to_owned()),
    }
}
