//! The fake KubeVirt's watches, tested with other clients: kube's watcher, and `kubectl`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::fake_kubevirt::World;
use crate::support::kubevirt_sandbox::Sandbox;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

fn sandbox() -> Sandbox {
    Sandbox::new(World::with_tenants(&["blue", "red"]))
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work);
}

async fn config_maps(sandbox: &Sandbox) -> Api<ConfigMap> {
    let kubeconfig = Kubeconfig::read_from(sandbox.kubeconfig("blue")).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Api::default_namespaced(Client::try_from(config).unwrap())
}

/// Creates or deletes a config map.
fn put(sandbox: &Sandbox, namespace: &str, name: &str, word: &'static str) {
    sandbox.server.with(|world| {
        let about = json!({"namespace": namespace, "name": name, "labels": {"name": name}});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about});
        world.store(("configmaps", namespace.to_owned(), name.to_owned()), object, word);
    });
}

type Event = Result<WatchEvent<ConfigMap>, kube::Error>;

/// The next event as one word and a name; bookmarks only on request.
async fn next(watch: &mut (impl Stream<Item = Event> + Unpin), bookmarks: bool) -> String {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
        let name = |object: ConfigMap| object.metadata.name.unwrap_or_default();
        return match event.expect("no event") {
            None => "end".to_owned(),
            Some(Err(error)) => format!("failed: {error}"),
            Some(Ok(WatchEvent::Bookmark(_))) if !bookmarks => continue,
            Some(Ok(WatchEvent::Bookmark(mark))) => format!("bookmark {}", mark.metadata.resource_version),
            Some(Ok(WatchEvent::Added(object))) => format!("added {}", name(object)),
            Some(Ok(WatchEvent::Modified(object))) => format!("modified {}", name(object)),
            Some(Ok(WatchEvent::Deleted(object))) => format!("deleted {}", name(object)),
            Some(Ok(WatchEvent::Error(status))) => format!("error {}", status.code),
        };
    }
}

#[test]
fn a_watch_reports_changes_and_bookmarks() {
    let sandbox = sandbox();
    run(tells(&sandbox));
}

async fn tells(sandbox: &Sandbox) {
    let api = config_maps(sandbox).await;
    put(sandbox, "blue", "before", "ADDED");
    let version = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let all = WatchParams::default().timeout(20);
    let mut watch = Box::pin(api.watch(&all, &version).await.unwrap());
    put(sandbox, "red", "theirs", "ADDED");
    put(sandbox, "blue", "one", "ADDED");
    put(sandbox, "blue", "one", "MODIFIED");
    put(sandbox, "blue", "two", "ADDED");
    put(sandbox, "blue", "one", "DELETED");
    for expected in ["added one", "modified one", "added two", "deleted one"] {
        assert_eq!(next(&mut watch, false).await, expected);
    }
    let version = sandbox.server.with(|world| world.version());
    assert_eq!(next(&mut watch, true).await, format!("bookmark {version}"));
    // No bookmarks unless requested; labels select; without a version, all existing objects come first.
    let two = WatchParams::default().labels("name=two").disable_bookmarks().timeout(1);
    let mut watch = Box::pin(api.watch(&two, "0").await.unwrap());
    put(sandbox, "blue", "three", "ADDED");
    for expected in ["added two", "end"] {
        assert_eq!(next(&mut watch, true).await, expected);
    }
}

#[test]
fn no_change_is_lost_when_a_watch_expires_or_is_cut() {
    let sandbox = sandbox();
    run(expires(&sandbox));
}

async fn expires(sandbox: &Sandbox) {
    let api = config_maps(sandbox).await;
    // Longer than the wait for an event: a watch that ends earlier was ended by the server.
    let all = WatchParams::default().timeout(290);
    let now = || sandbox.server.with(|world| world.version().to_string());
    put(sandbox, "blue", "one", "ADDED");
    // A version that the server has forgotten.
    sandbox.server.with(|world| world.forgotten = world.version());
    let early = api.watch(&all, "1").await.map(drop).unwrap_err();
    assert!(
        matches!(&early, kube::Error::Api(status) if status.code == 410),
        "{early}"
    );
    // Forgotten during the watch: an error, and then the end.
    let mut watch = Box::pin(api.watch(&all, &now()).await.unwrap());
    put(sandbox, "blue", "two", "ADDED");
    assert_eq!(next(&mut watch, false).await, "added two");
    sandbox.server.with(|world| {
        world.force("nodes", json!({"metadata": {"name": "host"}}));
        world.forgotten = world.version() + 1;
    });
    put(sandbox, "blue", "three", "ADDED");
    for expected in ["error 410", "end"] {
        assert_eq!(next(&mut watch, false).await, expected);
    }
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 3);
    // Cut during the watch: a new watch from its last version misses nothing.
    let stood = list.metadata.resource_version.unwrap();
    let mut watch = Box::pin(api.watch(&all, &stood).await.unwrap());
    sandbox.server.with(|world| world.cut = world.version() + 1);
    // kube treats a lost connection as the end.
    assert_eq!(next(&mut watch, false).await, "end");
    put(sandbox, "blue", "four", "ADDED");
    sandbox.server.with(|world| world.cut = 0);
    let mut watch = Box::pin(api.watch(&all, &stood).await.unwrap());
    assert_eq!(next(&mut watch, false).await, "added four");
}

#[test]
fn kubectl_waits_through_expiry_and_cuts() {
    let sandbox = sandbox();
    sandbox.server.with(|world| {
        let about = json!({"namespace": "blue", "name": "held", "finalizers": ["example.com/hold"]});
        world.force("configmaps", json!({"metadata": about}));
    });
    let mut kubectl = Command::new("kubectl")
        .args(["delete", "configmap", "held", "--timeout=60s"])
        .env("KUBECONFIG", sandbox.kubeconfig("blue"))
        .env("HOME", sandbox.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test needs kubectl: apt-get install kubernetes-client");
    let asked = |times: usize| {
        let begin = Instant::now();
        let path = "GET /api/v1/namespaces/blue/configmaps";
        let count = || {
            sandbox
                .server
                .with(|world| world.asked.iter().filter(|asked| *asked == path).count())
        };
        while count() < times {
            assert!(begin.elapsed() < Duration::from_secs(60), "asked {} times", count());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    // A list, then a watch; each fault makes it list again.
    asked(2);
    put(&sandbox, "blue", "other", "ADDED");
    sandbox.server.with(|world| world.cut = world.version() + 1);
    asked(3);
    sandbox.server.with(|world| world.cut = 0);
    asked(4);
    sandbox.server.with(|world| world.forgotten = world.version() + 1);
    put(&sandbox, "blue", "other", "MODIFIED");
    asked(5);
    assert!(kubectl.try_wait().unwrap().is_none(), "it gave up");
    sandbox.server.with(|world| {
        let key = ("configmaps", "blue".to_owned(), "held".to_owned());
        let object = world.objects[&key].clone();
        world.store(key, object, "DELETED");
    });
    let ended = kubectl.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    sandbox.server.was_asked_well();
}
