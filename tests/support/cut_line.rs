//! A proxy between the program and a cloud: counts the calls that change something, can cut the connection after one,
//! and can remove queries, so that services ignore filters.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::response::Response;
use ocpdeploy::digest::sha256;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The services' ports on the cloud's loopback: Keystone, Nova, Placement, Glance, Neutron.
const SERVICES: [u16; 5] = [5000, 8774, 8778, 9292, 9696];

/// The addresses of the lab for programs on its computer, and for guests, which reach it through their router.
const HOSTS: [&str; 2] = ["127.0.0.1", "203.0.113.1"];

/// What a proxy must not pass on.
const HOP: [HeaderName; 4] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
];

/// A proxy for the cloud. It ends when this is dropped.
pub struct Line {
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Shared {
    client: reqwest::Client,
    /// The cloud's port of each service, and the proxy's port for it.
    ports: Vec<(u16, u16)>,
    /// Answered calls that changed something: what was asked, the first of its digest, and the status.
    operations: Mutex<Vec<String>>,
    /// After this many operations the connection is cut: the last is done, but its response is lost.
    cut_at: AtomicUsize,
    /// `GET` requests are sent without their query.
    strips: AtomicBool,
}

impl Line {
    pub fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let shared = runtime.block_on(async {
            let mut listeners = Vec::new();
            for service in SERVICES {
                let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
                listeners.push((service, listener));
            }
            let ports = listeners
                .iter()
                .map(|(service, listener)| (*service, listener.local_addr().unwrap().port()));
            let shared = Arc::new(Shared {
                // A new connection for each call: one that a service has just closed would look like another fault.
                client: reqwest::Client::builder()
                    .no_proxy()
                    .pool_max_idle_per_host(0)
                    .build()
                    .unwrap(),
                ports: ports.collect(),
                operations: Mutex::default(),
                cut_at: AtomicUsize::new(usize::MAX),
                strips: AtomicBool::new(false),
            });
            for (service, listener) in listeners {
                let app = Router::new().fallback(relay).with_state((shared.clone(), service));
                tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
            }
            shared
        });
        Self {
            shared,
            _runtime: runtime,
        }
    }

    /// The proxy's port for the cloud's service at this port.
    pub fn port_of(&self, service: u16) -> u16 {
        self.shared.mine(service)
    }

    /// Restores the connection, forgets the operations, and cuts it again after this many.
    pub fn cut_after(&self, operations: usize) {
        let mut done = self.shared.operations.lock().unwrap();
        done.clear();
        self.shared.cut_at.store(operations, Ordering::SeqCst);
    }

    /// From now on no query of a `GET` is passed on.
    pub fn strip_queries(&self) {
        self.shared.strips.store(true, Ordering::SeqCst);
    }

    pub fn mend(&self) {
        self.cut_after(usize::MAX);
    }

    pub fn is_cut(&self) -> bool {
        self.shared.is_cut()
    }

    pub fn operations(&self) -> Vec<String> {
        self.shared.operations.lock().unwrap().clone()
    }
}

impl Shared {
    fn mine(&self, service: u16) -> u16 {
        let found = self.ports.iter().find(|(theirs, _)| *theirs == service);
        found.expect("a service of the lab").1
    }

    fn is_cut(&self) -> bool {
        self.operations.lock().unwrap().len() >= self.cut_at.load(Ordering::SeqCst)
    }

    /// Notes an operation; returns whether its response is delivered.
    fn note(&self, operation: String) -> bool {
        let mut operations = self.operations.lock().unwrap();
        operations.push(operation);
        operations.len() < self.cut_at.load(Ordering::SeqCst)
    }
}

/// Never returns, as on a connection without answers; it ends with its caller.
async fn silence<T>() -> T {
    std::future::pending().await
}

async fn relay(State((shared, service)): State<(Arc<Shared>, u16)>, request: Request) -> Response {
    if shared.is_cut() {
        return silence().await;
    }
    let (parts, body) = request.into_parts();
    let path = match parts.method == Method::GET && shared.strips.load(Ordering::SeqCst) {
        true => parts.uri.path(),
        false => parts.uri.path_and_query().map_or("/", |path| path.as_str()),
    };
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method);
    let operation = (!reads && !path.ends_with("/auth/tokens")).then(|| format!("{} :{service}{path}", parts.method));
    let mut headers = parts.headers;
    for hop in HOP {
        headers.remove(hop);
    }
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let said = sha256(&body)[..8].to_owned();
    // The cloud still completes calls that are not awaited any more: a killed program's last request arrives.
    let call = shared
        .client
        .request(parts.method, format!("http://127.0.0.1:{service}{path}"))
        .headers(headers)
        .body(body)
        .send();
    let Ok(Ok(answer)) = tokio::spawn(call).await else {
        return failed();
    };
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    let Ok(bytes) = answer.bytes().await else {
        return failed();
    };
    if let Some(operation) = operation
        && !shared.note(format!("{operation} {said} {}", status.as_u16()))
    {
        return silence().await;
    }
    for hop in HOP {
        headers.remove(hop);
    }
    let mut response = Response::new(Body::from(shared.rewritten(&headers, &bytes)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

impl Shared {
    /// Makes catalogs and links point to this proxy, too.
    fn rewritten(&self, headers: &axum::http::HeaderMap, bytes: &[u8]) -> Vec<u8> {
        let is_json = headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with("application/json"));
        match std::str::from_utf8(bytes) {
            Ok(text) if is_json => {
                let mut text = text.to_owned();
                for (theirs, mine) in &self.ports {
                    for host in HOSTS {
                        text = text.replace(&format!("{host}:{theirs}"), &format!("{host}:{mine}"));
                    }
                }
                text.into_bytes()
            }
            _ => bytes.to_vec(),
        }
    }
}

fn failed() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
