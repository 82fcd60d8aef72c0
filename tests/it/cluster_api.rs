//! The cluster's API through its VIP: against a real TLS server whose certificate has a DNS name and no address.

use crate::support::{cluster, fake_kube};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ocpdeploy::failure::explain;
use ocpdeploy::openshift::api::{ApiError, Approval, ClusterApi, Eviction};
use rcgen::date_time_ymd;
use serde_json::json;

use crate::support::fake_kube::authority::{Authority, Signed};
use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{NODES, PODS, REQUESTS, Stage, World};

const NAME: &str = "api.lab.example.com";

/// A fake API on a loopback address of its own, and a folder for kubeconfigs.
struct Bench {
    authority: Authority,
    kube: FakeKube,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(vip: Ipv4Addr, certificate: impl FnOnce(&Authority) -> Signed) -> Self {
        let config = cluster::config();
        let authority = Authority::new();
        let mut world = World::new(cluster::parameters(&config, vip));
        world.gate = Stage::Masters;
        let certificate = certificate(&authority);
        let kube = FakeKube::start(world, SocketAddr::from((vip, 0)), &authority, &certificate);
        Self {
            authority,
            kube,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn usual(vip: Ipv4Addr) -> Self {
        Self::new(vip, |authority| authority.server(NAME, |_| {}))
    }

    fn server(&self) -> String {
        format!("https://{NAME}:{}", self.kube.address().port())
    }

    fn kubeconfig(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn vip(&self) -> IpAddr {
        self.kube.address().ip()
    }

    fn open(&self) -> ClusterApi {
        let path = self.kubeconfig(&self.authority.kubeconfig("lab", &self.server()));
        run(ClusterApi::open(&path, self.vip())).unwrap()
    }

    /// The error of a version query with this kubeconfig.
    fn failure(&self, kubeconfig: &str) -> (u8, String) {
        let path = self.kubeconfig(kubeconfig);
        let error = run(async { ClusterApi::open(&path, self.vip()).await?.version().await }).unwrap_err();
        let failure = explain(&error.into());
        let port = self.kube.address().port().to_string();
        let text = failure.render(false).replace(&port, "<port>");
        (
            failure.kind.exit_code(),
            text.replace(&self.folder.path().display().to_string(), "<folder>"),
        )
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        // Connections are pooled and belong to the runtime that opened them.
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

#[test]
fn the_vip_is_reached_by_address_and_verified_by_name() {
    let bench = Bench::usual(Ipv4Addr::new(127, 91, 0, 1));
    let api = bench.open();
    assert_eq!(run(api.version()).unwrap(), "v1.32.5");
    assert_eq!((api.name(), api.address()), (NAME, bench.kube.address()));
    bench.kube.finish();
}

#[test]
fn both_http_clients_of_the_program_share_one_tls_provider() {
    let bench = Bench::usual(Ipv4Addr::new(127, 91, 0, 2));
    let api = bench.open();
    run(async {
        reqwest::Client::builder().build().unwrap();
        api.version().await.unwrap();
    });
    bench.kube.finish();
}

#[test]
fn a_server_that_is_not_the_cluster_gets_no_request() {
    let vip = Ipv4Addr::new(127, 91, 0, 3);
    let other_name = Bench::new(vip, |authority| authority.server("api.lab2.example.com", |_| {}));
    let usual = |bench: &Bench| bench.authority.kubeconfig("lab", &bench.server());
    let (code, text) = other_name.failure(&usual(&other_name));
    assert_eq!(code, 5);
    insta::assert_snapshot!("other_name", text);

    let (code, text) = other_name.failure(&Authority::new().kubeconfig("lab", &other_name.server()));
    assert_eq!(code, 5);
    insta::assert_snapshot!("other_ca", text);
    assert_eq!(other_name.kube.with(|world| world.asked), 0);
    drop(other_name);

    let ended = Bench::new(vip, |authority| {
        authority.server(NAME, |params| params.not_after = date_time_ymd(2024, 2, 3))
    });
    let (code, text) = ended.failure(&usual(&ended));
    assert_eq!(code, 5);
    assert!(text.contains("has expired or is not yet valid"), "{text}");
    assert_eq!(ended.kube.with(|world| world.asked), 0);
}

#[test]
fn an_unusable_kubeconfig_is_reported_before_any_request() {
    let bench = Bench::usual(Ipv4Addr::new(127, 91, 0, 4));
    let admin = bench
        .authority
        .admin(|params| params.not_after = date_time_ymd(2024, 2, 3));
    let ended = bench.authority.kubeconfig_of("lab", &bench.server(), &admin);
    let usual = bench.authority.kubeconfig("lab", &bench.server());
    let mut unverified = Vec::from_iter(
        usual
            .lines()
            .filter(|line| !line.contains("certificate-authority-data")),
    );
    unverified.insert(2, "    insecure-skip-tls-verify: true");
    let no_ca = Vec::from_iter(
        usual
            .lines()
            .filter(|line| !line.contains("certificate-authority-data")),
    );
    for (kubeconfig, words) in [
        (
            ended,
            "the client certificate in <folder>/kubeconfig expired at 2024-02-03T00:00:00Z",
        ),
        (
            unverified.join("\n"),
            "cannot use kubeconfig <folder>/kubeconfig: its cluster lab sets insecure-skip-tls-verify",
        ),
        (
            no_ca.join("\n"),
            "cannot use kubeconfig <folder>/kubeconfig: it has no CA certificate",
        ),
        ("not: [a".to_owned(), "cannot use kubeconfig <folder>/kubeconfig: "),
    ] {
        let (code, text) = bench.failure(&kubeconfig);
        assert_eq!(code, 4, "{text}");
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(bench.kube.with(|world| world.asked), 0);
}

#[test]
fn an_unused_vip_is_reported_with_cause_and_hint() {
    let mut bench = Bench::usual(Ipv4Addr::new(127, 91, 0, 5));
    bench.kube.stop();
    let (code, text) = bench.failure(&bench.authority.kubeconfig("lab", &bench.server()));
    assert_eq!(code, 6);
    insta::assert_snapshot!("nobody", text);
}

#[test]
fn the_connection_is_reopened_after_a_restart() {
    let mut bench = Bench::usual(Ipv4Addr::new(127, 91, 0, 6));
    let api = bench.open();
    run(api.version()).unwrap();
    bench.kube.stop();
    assert!(matches!(run(api.version()), Err(ApiError::Unreachable { .. })));
    bench.kube.again();
    run(api.version()).unwrap();
}

#[test]
fn each_call_has_its_effect() {
    let bench = Bench::usual(Ipv4Addr::new(127, 91, 0, 7));
    let api = bench.open();
    let host = "worker-0.lab.example.com";
    let pod = |name: &str, budget: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "annotations": {"test/budget": budget}},
            "spec": {"nodeName": host, "containers": []}})
    };
    bench.kube.with(|world| {
        world.put(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": host}, "spec": {}}));
        world.put(PODS, pod("kept", "none"));
        world.put(PODS, pod("free", ""));
        world.put(PODS, json!({"metadata": {"name": "elsewhere", "namespace": "default"}, "spec": {"nodeName": "x", "containers": []}}));
    });
    run(api.cordon(host)).unwrap();
    assert_eq!(
        bench.kube.with(|world| world.get(NODES, host).unwrap()["spec"].clone()),
        json!({"unschedulable": true})
    );
    run(api.uncordon(host)).unwrap();
    let pods = run(api.pods_on(host)).unwrap();
    let names: Vec<_> = pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["free", "kept"]);
    assert_eq!(run(api.evict("default", "free")).unwrap(), Eviction::Begun);
    assert_eq!(run(api.evict("default", "free")).unwrap(), Eviction::Gone);
    assert!(matches!(run(api.evict("default", "kept")).unwrap(), Eviction::NotNow(why) if why.contains("budget")));
    assert!(run(api.node(host)).unwrap().is_some());
    run(api.delete_node(host)).unwrap();
    run(api.delete_node(host)).unwrap();
    assert!(run(api.node(host)).unwrap().is_none());
    let secret = run(api.secret("openshift-machine-api", "worker-user-data-managed"))
        .unwrap()
        .unwrap();
    assert!(secret.data.unwrap()["userData"].0.starts_with(b"{\"ignition\""));
    assert!(run(api.config_map("kube-system", "bootstrap")).unwrap().is_none());
    assert!(run(api.cluster_version()).unwrap().is_none());
    assert!(run(api.cluster_operators()).unwrap().is_empty());
    bench.kube.finish();
}

#[test]
fn an_approval_applies_only_to_the_request_that_was_read() {
    let bench = Bench::usual(Ipv4Addr::new(127, 91, 0, 8));
    let api = bench.open();
    let request = fake_kube::requests::client("worker-0.lab.example.com").object("csr-1");
    bench.kube.with(|world| world.put(REQUESTS, request));
    let of_name = |requests: Vec<k8s_openapi::api::certificates::v1::CertificateSigningRequest>| {
        requests
            .into_iter()
            .find(|request| request.metadata.name.as_deref() == Some("csr-1"))
            .unwrap()
    };
    let seen = of_name(run(api.requests()).unwrap().0);
    bench.kube.with(|world| {
        world.edit(REQUESTS, "csr-1", |request| {
            request["metadata"]["labels"] = json!({"a": "b"})
        })
    });
    assert_eq!(run(api.approve(&seen, "known")).unwrap(), Approval::Overtaken);
    let seen = of_name(run(api.requests()).unwrap().0);
    assert_eq!(run(api.approve(&seen, "known")).unwrap(), Approval::Given);
    let world = bench.kube.finish();
    assert_eq!(world.approved, ["csr-1"]);
}

#[test]
fn the_watch_returns_on_changes_and_on_expired_versions() {
    let mut bench = Bench::usual(Ipv4Addr::new(127, 91, 0, 9));
    let api = bench.open();
    bench.kube.with(|world| world.gate = Stage::Api);
    let long = Duration::from_secs(60);
    let (_, version) = run(api.requests()).unwrap();
    // No change: it waits for the whole time, with or without bookmarks.
    let begun = std::time::Instant::now();
    run(api.requests_change(&version, Duration::from_secs(1)));
    assert!(begun.elapsed() >= Duration::from_millis(900));
    let world = bench.kube.world.clone();
    let news = std::thread::spawn(move || {
        while world.lock().unwrap().watched < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let request = fake_kube::requests::client("worker-0.lab.example.com").object("csr-1");
        world.lock().unwrap().put(REQUESTS, request);
    });
    let rings = |version: &str| {
        let begun = std::time::Instant::now();
        run(api.requests_change(version, long));
        assert!(begun.elapsed() < long / 2);
    };
    rings(&version);
    news.join().unwrap();
    bench.kube.with(World::forget);
    rings(&version);
    bench.kube.stop();
    rings(&version);
}
