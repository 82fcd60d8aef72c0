//! The wire: TLS with a certificate of our own, and a kubeconfig with a token for each user.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Response, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use tls_listener::TlsListener;

use super::consoles;
use super::requests::{Answer, Asked};
use super::world::World;

#[path = "../tls_listener.rs"]
mod tls_listener;

/// How often the controllers look.
const TICK: Duration = Duration::from_millis(10);

/// The server, until it is dropped.
pub struct FakeKubevirt {
    pub world: Arc<Mutex<World>>,
    pub address: SocketAddr,
    pub ca: String,
    runtime: Option<Runtime>,
}

impl FakeKubevirt {
    pub fn start(mut world: World) -> Self {
        let (ca, tls) = certificates();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        world.place = format!("localhost:{}", address.port());
        world.ca.clone_from(&ca);
        let key = ("cdiconfigs", String::new(), "config".to_owned());
        if let Some(mut config) = world.objects.get(&key).cloned() {
            config["status"] = json!({"uploadProxyURL": world.place, "uploadProxyCA": ca});
            world.store(key, config, "MODIFIED");
        }
        let world = Arc::new(Mutex::new(world));
        let (served, ticking) = (world.clone(), world.clone());
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                lock(&ticking).tick();
            }
        });
        runtime.spawn(async move {
            let app = Router::new().fallback(move |request| handle(served.clone(), request));
            axum::serve(TlsListener::new(listener, TlsAcceptor::from(tls)), app)
                .await
                .unwrap();
        });
        Self {
            world,
            address,
            ca,
            runtime: Some(runtime),
        }
    }

    /// Looks at the world, or changes it.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut lock(&self.world))
    }

    /// Writes a kubeconfig for the user with this token.
    pub fn kubeconfig(&self, path: &Path, token: &str, namespace: &str) {
        self.kubeconfig_with(path, &json!({"token": token}), namespace);
    }

    pub fn kubeconfig_with(&self, path: &Path, user: &Value, namespace: &str) {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "infra", "cluster": {
                "server": format!("https://localhost:{}", self.address.port()),
                "certificate-authority-data": STANDARD.encode(&self.ca),
            }}],
            "users": [{"name": "me", "user": user}],
            "contexts": [{"name": "mine", "context": {"cluster": "infra", "user": "me", "namespace": namespace}}],
            "current-context": "mine",
        });
        std::fs::write(path, config.to_string()).unwrap();
    }

    /// Fails when the server was asked what it does not know, or not at all.
    #[track_caller]
    pub fn was_asked_well(&self) {
        self.with(|world| {
            assert_eq!(world.unknown, [""; 0], "the API was asked what it does not know");
            assert!(!world.asked.is_empty(), "the API was never asked");
        });
    }
}

impl Drop for FakeKubevirt {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A test that failed inside leaves the world as it was.
pub fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn certificates() -> (String, Arc<ServerConfig>) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    (ca, Arc::new(config))
}

async fn handle(world: Arc<Mutex<World>>, request: Request) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.unwrap_or_default();
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let content_type = text(header::CONTENT_TYPE).unwrap_or_default();
    let asked = Asked {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        token: text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")),
        content_type: content_type.split(';').next().unwrap_or_default(),
        accept: text(header::ACCEPT).unwrap_or_default(),
        body: &body,
    };
    let answer = lock(&world).answer(&asked);
    let mut response = match answer {
        Answer::Json(code, value) => Response::builder()
            .status(StatusCode::from_u16(code).unwrap())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(value.to_string()))
            .unwrap(),
        Answer::Text(text) => Response::new(Body::from(text)),
        Answer::Console { namespace, name } => return Ok(consoles::open(world, parts, namespace, name).await),
        Answer::Watch {
            plural,
            namespace,
            from,
            seconds,
        } => Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from_stream(watch(world, plural, namespace, from, seconds)))
            .unwrap(),
    };
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

/// One line for each event since `from`, and a bookmark when it is quiet.
fn watch(
    world: Arc<Mutex<World>>,
    plural: &'static str,
    namespace: String,
    from: u64,
    seconds: u64,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    futures::stream::unfold((world, from), move |(world, from)| {
        let namespace = namespace.clone();
        async move {
            tokio::time::sleep(TICK * 5).await;
            if tokio::time::Instant::now() >= end {
                return None;
            }
            let (lines, now) = {
                let world = lock(&world);
                let news = world.events.iter().filter(|event| {
                    let here = namespace.is_empty() || event.namespace == namespace;
                    event.version > from && event.plural == plural && here
                });
                let mut lines: Vec<Value> = news
                    .map(|event| json!({"type": event.word, "object": event.object}))
                    .collect();
                if lines.is_empty() {
                    let version = world.version().to_string();
                    lines.push(json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}));
                }
                (lines, world.version())
            };
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            Some((Ok(Bytes::from(text)), (world, now)))
        }
    })
}
