//! KubeVirt and CDI of a real API server: the controllers move its objects, and it asks for the verbs of machines, for tokens
//! of uploads and for what webhooks have to say.
//!
//! The world holds copies of the server's objects. After each round of the controllers the differences are written to the
//! server; what it refuses is known to the controllers as they know it of their own server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{self, Method, Response};
use futures::StreamExt;
use kube::core::{Status, WatchEvent};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;

use super::admission::no_clone;
use super::resources::Resource;
use super::wire::{self, TICK, TlsListener, lock};
use super::world::{Key, World};

/// The kinds that the controllers use.
const WATCHED: [&str; 14] = [
    "cdiconfigs",
    "datasources",
    "datavolumes",
    "namespaces",
    "persistentvolumeclaims",
    "pods",
    "routes",
    "secrets",
    "services",
    "storageclasses",
    "virtualmachineinstances",
    "virtualmachinerestores",
    "virtualmachines",
    "virtualmachinesnapshots",
];

/// The names under which the API server knows this one: Services of these namespaces.
const SERVICES: [(&str, &str); 2] = [("virt-api", "kubevirt"), ("cdi-api", "cdi")];

/// An event of a watch.
enum News {
    All(&'static Resource, Vec<Value>),
    Is(&'static Resource, Value),
    Gone(&'static Resource, Value),
}

struct Known {
    objects: BTreeMap<Key, Arc<Value>>,
    news: UnboundedReceiver<News>,
}

pub struct Beside {
    client: Client,
    world: Arc<Mutex<World>>,
    /// Its lock is required to change objects: for one round of the controllers, or one request.
    known: tokio::sync::Mutex<Known>,
}

/// Serves until the process ends.
pub async fn serve(client: Client) {
    let names: Vec<String> = SERVICES
        .iter()
        .map(|(name, namespace)| format!("{name}.{namespace}.svc"))
        .collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.push("localhost");
    let (ca, tls) = wire::certificates(&names);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut world = World::with_tenants(&[]);
    world.objects.clear();
    world.is_beside = true;
    world.has_mac_pool = false;
    let (sender, news) = unbounded_channel();
    let beside = Arc::new(Beside {
        client: client.clone(),
        world: Arc::new(Mutex::new(world)),
        known: tokio::sync::Mutex::new(Known {
            objects: BTreeMap::new(),
            news,
        }),
    });
    for plural in WATCHED {
        tokio::spawn(watch(client.clone(), Resource::of(plural), sender.clone()));
    }
    let served = beside.clone();
    tokio::spawn(async move {
        let app = Router::new().fallback(move |request| served.clone().answer(request));
        axum::serve(TlsListener::new(listener, TlsAcceptor::from(tls)), app)
            .await
            .unwrap();
    });
    for object in registration(port, &ca) {
        register(&client, &object).await;
    }
    loop {
        tokio::time::sleep(TICK).await;
        let mut known = beside.known.lock().await;
        beside.learn(&mut known);
        lock(&beside.world).tick();
        beside.write(&mut known).await;
    }
}

fn folder(resource: &Resource, namespace: &str) -> String {
    let root = if resource.group.is_empty() { "api" } else { "apis" };
    let version = resource.api_version();
    match namespace {
        "" => format!("/{root}/{version}/{}", resource.plural),
        namespace => format!("/{root}/{version}/namespaces/{namespace}/{}", resource.plural),
    }
}

async fn request(client: &Client, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value, Error> {
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(bytes)
        .unwrap();
    let text = client.request_text(request).await?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Sends all objects of a kind, and then each change; starts again whenever a watch ends.
async fn watch(client: Client, resource: &'static Resource, sender: UnboundedSender<News>) {
    loop {
        let path = folder(resource, "");
        if let Ok(mut list) = request(&client, Method::GET, &path, "application/json", &Value::Null).await {
            let version = list["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let _ = sender.send(News::All(resource, items));
            let path = format!("{path}?watch=true&resourceVersion={version}");
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            if let Ok(events) = client.request_events::<Value>(request).await {
                let mut events = Box::pin(events);
                while let Some(Ok(event)) = events.next().await {
                    let _ = sender.send(match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => News::Is(resource, object),
                        WatchEvent::Deleted(object) => News::Gone(resource, object),
                        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => break,
                    });
                }
            }
        }
        tokio::time::sleep(TICK * 10).await;
    }
}

/// The same as the one before, or the one before.
fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn key(resource: &Resource, object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (Resource::of(resource.plural).plural, text("namespace"), text("name"))
}

impl Beside {
    fn learn(&self, known: &mut Known) {
        while let Ok(news) = known.news.try_recv() {
            match news {
                News::All(resource, items) => {
                    let there: BTreeSet<Key> = items.iter().map(|item| key(resource, item)).collect();
                    let gone: Vec<Key> = known
                        .objects
                        .keys()
                        .filter(|key| key.0 == resource.plural && !there.contains(*key))
                        .cloned()
                        .collect();
                    gone.iter().for_each(|key| self.forget(known, key));
                    items.into_iter().for_each(|item| self.keep(known, resource, item));
                }
                News::Is(resource, object) => self.keep(known, resource, object),
                News::Gone(resource, object) => {
                    let key = key(resource, &object);
                    if known
                        .objects
                        .get(&key)
                        .is_some_and(|there| version(there) <= version(&object))
                    {
                        self.forget(known, &key);
                    }
                }
            }
        }
    }

    fn forget(&self, known: &mut Known, key: &Key) {
        known.objects.remove(key);
        let mut world = lock(&self.world);
        world.objects.remove(key);
        world.since.remove(key);
        world.stopped.remove(key);
        world.refused.remove(key);
    }

    /// Lists of the API server omit the kind of their items.
    fn keep(&self, known: &mut Known, resource: &Resource, mut object: Value) {
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        let key = key(resource, &object);
        if known
            .objects
            .get(&key)
            .is_some_and(|there| version(there) > version(&object))
        {
            return;
        }
        let object = Arc::new(object);
        known.objects.insert(key.clone(), object.clone());
        lock(&self.world).objects.insert(key, object);
    }

    /// Writes differences to the server, and updates the copies from it.
    async fn write(&self, known: &mut Known) {
        let ours: BTreeMap<Key, Arc<Value>> = {
            let mut world = lock(&self.world);
            world.events.clear();
            let watched = world.objects.iter().filter(|(key, _)| WATCHED.contains(&key.0));
            watched.map(|(key, object)| (key.clone(), object.clone())).collect()
        };
        let keys: BTreeSet<Key> = ours.keys().chain(known.objects.keys()).cloned().collect();
        for key in keys {
            let resource = Resource::of(key.0);
            let (ours, theirs) = (ours.get(&key), known.objects.get(&key).cloned());
            if ours == theirs.as_ref() {
                continue;
            }
            let outcome = match (ours, &theirs) {
                (Some(ours), None) => self.make(resource, ours).await,
                (Some(ours), Some(theirs)) => self.change(resource, ours, theirs).await,
                (None, Some(theirs)) => self.remove(resource, theirs).await,
                (None, None) => continue,
            };
            match outcome {
                Ok(Some(stored)) => {
                    lock(&self.world).refused.remove(&key);
                    self.keep(known, resource, stored);
                }
                Err(Error::Api(status)) if theirs.is_none() && status.code == 403 => {
                    let refusal = (Instant::now(), status.message.clone());
                    lock(&self.world).refused.insert(key.clone(), refusal);
                }
                // A conflict, or the server is unreachable: the next round reads the current state.
                Ok(None) | Err(_) => {}
            }
            let mut world = lock(&self.world);
            match known.objects.get(&key) {
                Some(theirs) => drop(world.objects.insert(key, theirs.clone())),
                None => drop(world.objects.remove(&key)),
            }
        }
    }

    async fn make(&self, resource: &Resource, object: &Value) -> Result<Option<Value>, Error> {
        let (_, namespace, _) = key(resource, object);
        if !self.has_volume(&namespace, object).await? {
            return Ok(None);
        }
        self.may_clone(resource, &namespace, object).await?;
        let mut sent = object.clone();
        let about = sent["metadata"].as_object_mut().unwrap();
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            about.remove(field);
        }
        let status = sent.as_object_mut().unwrap().remove("status");
        let path = folder(resource, &namespace);
        let stored = request(&self.client, Method::POST, &path, "application/json", &sent).await?;
        match status {
            None => Ok(Some(stored)),
            Some(status) => self.set_status(resource, &stored, &status).await.map(Some),
        }
    }

    /// Whether the data volume of a claim still exists: it may have been deleted during this round, and a test does not
    /// wait until the garbage collector deletes the claim.
    async fn has_volume(&self, namespace: &str, object: &Value) -> Result<bool, Error> {
        let owner = &object["metadata"]["ownerReferences"][0];
        let (true, Some(name)) = (owner["kind"] == "DataVolume", owner["name"].as_str()) else {
            return Ok(true);
        };
        let path = format!("{}/{name}", folder(Resource::of("datavolumes"), namespace));
        let volume = request(&self.client, Method::GET, &path, "application/json", &Value::Null).await?;
        Ok(volume["metadata"]["uid"] == owner["uid"])
    }

    /// Asks the server as KubeVirt does before it creates the volume of a machine, see `World::cloner`.
    async fn may_clone(&self, resource: &Resource, namespace: &str, volume: &Value) -> Result<(), Error> {
        let from = lock(&self.world).cloned_from(volume);
        let Some(from) = from.filter(|_| resource.plural == "datavolumes") else {
            return Ok(());
        };
        let user = World::cloner(namespace);
        let groups = json!([
            "system:serviceaccounts",
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated"
        ]);
        let access = json!({"namespace": from, "verb": "create", "group": "cdi.kubevirt.io", "resource": "datavolumes",
            "subresource": "source"});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": access}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = request(&self.client, Method::POST, path, "application/json", &review).await?;
        if answer["status"]["allowed"] == true {
            return Ok(());
        }
        let why = format!("not authorized to create DataVolume: {}", no_clone(&user, &from));
        Err(Error::Api(Status::failure(&why, "Forbidden").with_code(403).boxed()))
    }

    async fn set_status(&self, resource: &Resource, stored: &Value, status: &Value) -> Result<Value, Error> {
        let (_, namespace, name) = key(resource, stored);
        // An instance is written as a whole (kubevirt/kubevirt: pkg/virt-operator/resource/generate/components/crds.go).
        let sub = if resource.plural == "virtualmachineinstances" {
            ""
        } else {
            "/status"
        };
        let path = format!("{}/{name}{sub}", folder(resource, &namespace));
        let mut sent = stored.clone();
        sent["status"] = status.clone();
        request(&self.client, Method::PUT, &path, "application/json", &sent).await
    }

    async fn change(&self, resource: &Resource, ours: &Value, theirs: &Value) -> Result<Option<Value>, Error> {
        if ours["metadata"]["finalizers"] != theirs["metadata"]["finalizers"] {
            return self
                .set_finalizers(resource, theirs, &ours["metadata"]["finalizers"])
                .await;
        }
        // A restored machine has other volumes.
        if ours["spec"] != theirs["spec"] {
            let (_, namespace, name) = key(resource, theirs);
            let path = format!("{}/{name}", folder(resource, &namespace));
            let mut sent = theirs.clone();
            sent["spec"] = ours["spec"].clone();
            sent["metadata"]["annotations"] = ours["metadata"]["annotations"].clone();
            return request(&self.client, Method::PUT, &path, "application/json", &sent)
                .await
                .map(Some);
        }
        if ours["status"] != theirs["status"] {
            return self.set_status(resource, theirs, &ours["status"]).await.map(Some);
        }
        Ok(None)
    }

    /// An object that is being deleted loses its finalizers; all others are deleted.
    async fn remove(&self, resource: &Resource, theirs: &Value) -> Result<Option<Value>, Error> {
        if theirs["metadata"]["deletionTimestamp"].is_string() {
            self.set_finalizers(resource, theirs, &json!([])).await?;
            return Ok(None);
        }
        let (_, namespace, name) = key(resource, theirs);
        let path = format!("{}/{name}", folder(resource, &namespace));
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": theirs["metadata"]["uid"]}});
        request(&self.client, Method::DELETE, &path, "application/json", &options).await?;
        Ok(None)
    }

    async fn set_finalizers(
        &self,
        resource: &Resource,
        theirs: &Value,
        finalizers: &Value,
    ) -> Result<Option<Value>, Error> {
        let (_, namespace, name) = key(resource, theirs);
        let path = format!("{}/{name}", folder(resource, &namespace));
        let patch = json!({"metadata": {"finalizers": finalizers, "uid": theirs["metadata"]["uid"],
            "resourceVersion": theirs["metadata"]["resourceVersion"]}});
        let kind = "application/merge-patch+json";
        request(&self.client, Method::PATCH, &path, kind, &patch)
            .await
            .map(Some)
    }

    /// A request that the API server passed on, or one to the upload proxy.
    async fn answer(self: Arc<Self>, request: Request) -> Result<Response<Body>, std::convert::Infallible> {
        if request.uri().path().ends_with("/console") {
            return wire::handle(self.world.clone(), request).await;
        }
        let mut known = self.known.lock().await;
        self.learn(&mut known);
        self.look_anew(&mut known, request.uri().path()).await;
        let answer = wire::handle(self.world.clone(), request).await;
        self.write(&mut known).await;
        answer
    }

    /// virt-api reads the machine itself, and CDI the claim, where the watches may lag behind.
    async fn look_anew(&self, known: &mut Known, path: &str) {
        let parts: Vec<&str> = path.split('/').collect();
        let [.., "namespaces", namespace, "virtualmachines", name, _] = parts.as_slice() else {
            return;
        };
        for plural in ["virtualmachines", "virtualmachineinstances"] {
            let resource = Resource::of(plural);
            let path = format!("{}/{name}", folder(resource, namespace));
            match request(&self.client, Method::GET, &path, "application/json", &Value::Null).await {
                Ok(object) => self.keep(known, resource, object),
                Err(Error::Api(status)) if status.code == 404 => {
                    self.forget(known, &(resource.plural, (*namespace).to_owned(), (*name).to_owned()));
                }
                Err(_) => {}
            }
        }
    }
}

/// What makes the API server ask this one, as the operators of KubeVirt and CDI do it. A Service of type ExternalName leads
/// out of the pods' network: kubernetes/kubernetes: staging/src/k8s.io/apiserver/pkg/util/proxy/proxy.go, ResolveCluster.
fn registration(port: u16, ca: &str) -> Vec<(String, Value)> {
    use base64::Engine;
    let bundle = base64::engine::general_purpose::STANDARD.encode(ca);
    let mut all = Vec::new();
    for (name, namespace) in SERVICES {
        let about = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        all.push(("/api/v1/namespaces".to_owned(), about));
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}});
        all.push((format!("/api/v1/namespaces/{namespace}/services"), service));
    }
    for (group, version, (name, namespace)) in [
        ("subresources.kubevirt.io", "v1", SERVICES[0]),
        ("upload.cdi.kubevirt.io", "v1beta1", SERVICES[1]),
    ] {
        let service = json!({"name": name, "namespace": namespace, "port": port});
        let spec = json!({"group": group, "version": version, "caBundle": bundle, "service": service,
            "groupPriorityMinimum": 1000, "versionPriority": 15});
        let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")}, "spec": spec});
        all.push(("/apis/apiregistration.k8s.io/v1/apiservices".to_owned(), object));
    }
    let address = format!("localhost:{port}");
    let config = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": {"name": "config"},
        "spec": {}, "status": {"uploadProxyURL": address, "uploadProxyCA": ca}});
    all.push(("/apis/cdi.kubevirt.io/v1beta1/cdiconfigs".to_owned(), config));
    all
}

async fn register(client: &Client, (path, object): &(String, Value)) {
    let stored = request(client, Method::POST, path, "application/json", object).await;
    let mut stored = stored.unwrap_or_else(|error| panic!("{path}: {error}"));
    if object["kind"] == "CDIConfig" {
        stored["status"] = object["status"].clone();
        let path = format!("{path}/config/status");
        request(client, Method::PUT, &path, "application/json", &stored)
            .await
            .unwrap();
    }
}
