//! The HTTP server: TLS with client certificates, one handler, and stops and starts of the server.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Response, StatusCode, header};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use tls_listener::TlsListener;

use super::authority::{Authority, Signed};
use super::world::{Answer, World};

#[path = "../tls_listener.rs"]
mod tls_listener;

/// How often the world advances, and a watch checks for changes.
const TICK: Duration = Duration::from_millis(20);

/// An API server; its world outlives it.
pub struct FakeKube {
    pub world: Arc<Mutex<World>>,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    running: Option<Runtime>,
}

impl FakeKube {
    /// Serves a world at an address; clients must bring a certificate of the CA.
    pub fn start(world: World, address: SocketAddr, authority: &Authority, certificate: &Signed) -> Self {
        let mut kube = Self {
            world: Arc::new(Mutex::new(world)),
            address,
            tls: Arc::new(tls(authority, certificate)),
            running: None,
        };
        kube.again();
        kube
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server and every connection at once; nothing is lost.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.running.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// Starts the server at the same address.
    pub fn again(&mut self) {
        self.stop();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(async { listen(self.address) });
        self.address = listener.local_addr().unwrap();
        let (world, tls) = (self.world.clone(), TlsAcceptor::from(self.tls.clone()));
        runtime.spawn(ticks(world.clone()));
        runtime.spawn(async move {
            let app = Router::new().fallback(move |request| handle(world.clone(), request));
            axum::serve(TlsListener::new(listener, tls), app).await.unwrap();
        });
        self.running = Some(runtime);
    }

    /// Reads or changes the world.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.world.lock().unwrap())
    }

    /// Ends the server; fails if it got an unknown request, or none at all.
    #[track_caller]
    pub fn finish(mut self) -> World {
        self.stop();
        let world = std::mem::take(&mut *self.world.lock().unwrap());
        assert_eq!(world.unknown, [""; 0], "the API got unknown requests");
        assert!(world.asked > 0, "the API got no request");
        assert!(
            !world.bootstrap_lost,
            "the bootstrap was removed while it was a member of etcd"
        );
        world
    }
}

impl Drop for FakeKube {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    // A restarted server reuses its address while old connections linger.
    socket.set_reuseaddr(true).unwrap();
    socket
        .bind(address)
        .unwrap_or_else(|error| panic!("bind {address}: {error}"));
    socket.listen(64).unwrap()
}

fn tls(authority: &Authority, certificate: &Signed) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap())
        .unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let chain = vec![CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap()
}

async fn ticks(world: Arc<Mutex<World>>) {
    let mut ticks = tokio::time::interval(TICK);
    // On a busy machine time passes more slowly here; ticks that were missed must not keep requests waiting.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        world.lock().unwrap().tick();
    }
}

async fn handle(world: Arc<Mutex<World>>, request: Request) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let query = parts.uri.query().unwrap_or_default();
    let answer = world
        .lock()
        .unwrap()
        .answer(parts.method.as_str(), parts.uri.path(), query, &body);
    Ok(match answer {
        Answer::Json(code, value) => json_response(code, &value),
        Answer::Text(code, text) => Response::builder()
            .status(StatusCode::from_u16(code).unwrap())
            .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
            .body(Body::from(text))
            .unwrap(),
        Answer::Reset => {
            let (first, error) = (
                Ok(Bytes::from_static(b"{\"kind\":")),
                Err(io::ErrorKind::ConnectionReset.into()),
            );
            let body = Body::from_stream(futures::stream::iter([first, error] as [io::Result<Bytes>; 2]));
            Response::builder().body(body).unwrap()
        }
        Answer::Watch { path, from, limit } => {
            let body = Body::from_stream(watch(world, path, from, limit));
            Response::builder()
                .header(header::CONTENT_TYPE, "application/json")
                .body(body)
                .unwrap()
        }
    })
}

fn json_response(code: u16, value: &Value) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(value.to_string()))
        .unwrap()
}

/// One line for each event since `from`, and a bookmark now and then, until the time is over.
fn watch(
    world: Arc<Mutex<World>>,
    path: String,
    from: u64,
    limit: Duration,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    let end = tokio::time::Instant::now() + limit;
    let begin = (world, path, from, 0);
    futures::stream::unfold(begin, move |(world, path, from, mut quiet)| async move {
        loop {
            tokio::time::sleep(TICK).await;
            let (news, now) = world.lock().unwrap().news(&path, from);
            if !news.is_empty() {
                let lines: String = news.iter().map(|event| format!("{event}\n")).collect();
                return Some((Ok(Bytes::from(lines)), (world, path, now, 0)));
            }
            if tokio::time::Instant::now() >= end {
                return None;
            }
            quiet += 1;
            if quiet == 10 {
                let bookmark = world.lock().unwrap().bookmark(&path);
                return Some((Ok(Bytes::from(format!("{bookmark}\n"))), (world, path, now, 0)));
            }
        }
    })
}

/// A Status object as the API server returns it.
pub fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": message})
}
