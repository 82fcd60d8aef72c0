//! The HTTP server: TLS with a generated certificate, and a kubeconfig with a token for each user.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Response, StatusCode, header};
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

pub use tls_listener::TlsListener;

use super::consoles;
use super::requests::{Answer, Asked, Watch, status};
use super::world::World;

#[path = "../tls_listener.rs"]
mod tls_listener;

/// The administrator's token.
const ADMIN: &str = "admin-token";
/// How often the controllers run.
pub const TICK: Duration = Duration::from_millis(10);

/// The server, until it is dropped.
pub struct FakeKubevirt {
    pub world: Arc<Mutex<World>>,
    pub address: SocketAddr,
    pub ca: String,
    runtime: Option<Runtime>,
}

impl FakeKubevirt {
    pub fn start(mut world: World) -> Self {
        let (ca, tls) = certificates(&["localhost"]);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        world.sandbox = format!("localhost:{}", address.port());
        world.ca.clone_from(&ca);
        let key = ("cdiconfigs", String::new(), "config".to_owned());
        if let Some(config) = world.objects.get(&key) {
            let mut config = Value::clone(config);
            config["status"] = json!({"uploadProxyURL": world.sandbox, "uploadProxyCA": ca});
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

    /// Reads or changes the world.
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

    /// Fails if the server got an unknown request, or none at all.
    #[track_caller]
    pub fn was_asked_well(&self) {
        self.with(|world| {
            assert_eq!(world.unknown, [""; 0], "the API got unknown requests");
            assert!(!world.asked.is_empty(), "the API got no request");
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

/// Also after a panic of a test that held the lock.
pub fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A CA and a server's TLS with a certificate for these names.
pub fn certificates(names: &[&str]) -> (String, Arc<ServerConfig>) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let params = CertificateParams::new(names).unwrap();
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

/// Waits while the server is silent.
async fn speaks(world: &Mutex<World>) {
    while {
        let world = lock(world);
        world.changes >= world.silent_after
    } {
        tokio::time::sleep(TICK).await;
    }
}

pub async fn handle(world: Arc<Mutex<World>>, request: Request) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.unwrap_or_default();
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let content_type = text("content-type").unwrap_or_default();
    let asked = Asked {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        // The API server has authenticated the user, and passes on only the name.
        token: match text("x-remote-user") {
            Some(_) => Some(ADMIN),
            None => text("authorization").and_then(|value| value.strip_prefix("Bearer ")),
        },
        content_type: content_type.split(';').next().unwrap_or_default(),
        accept: text("accept").unwrap_or_default(),
        body: &body,
    };
    speaks(&world).await;
    let answer = lock(&world).answer(&asked);
    speaks(&world).await;
    Ok(match answer {
        Answer::Json(code, value) => Response::builder()
            .status(StatusCode::from_u16(code).unwrap())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(value.to_string()))
            .unwrap(),
        Answer::Text(text) => Response::new(Body::from(text)),
        Answer::NoPage => Response::builder()
            .status(StatusCode::NOT_FOUND)
            .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
            .body(Body::from("404 page not found\n"))
            .unwrap(),
        Answer::Busy => Response::builder()
            .status(StatusCode::TOO_MANY_REQUESTS)
            .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
            .header(header::RETRY_AFTER, "1")
            .body(Body::from("Too many requests, please try again later.\n"))
            .unwrap(),
        Answer::Console { namespace, name } => return Ok(consoles::open(world, parts, namespace, name).await),
        Answer::Watch(asked) => Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from_stream(watch(world, asked)))
            .unwrap(),
    })
}

/// One line for each event since a version, and a bookmark when it is quiet. It ends with its time, with an error once
/// what comes next was forgotten, or in the middle of nothing.
fn watch(world: Arc<Mutex<World>>, asked: Watch) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> {
    let end = tokio::time::Instant::now() + Duration::from_secs(asked.seconds);
    futures::stream::unfold((world, asked, false), move |(world, mut asked, ends)| async move {
        if ends {
            return None;
        }
        tokio::time::sleep(TICK * 5).await;
        if tokio::time::Instant::now() >= end {
            return None;
        }
        let told = lock(&world).tell(&mut asked);
        let ends = told.as_ref().map_or(true, |(_, ends)| *ends);
        Some((told.map(|(lines, _)| Bytes::from(lines)), (world, asked, ends)))
    })
}

impl World {
    /// The new events of a watch, one in each line, and whether it ends after them.
    fn tell(&self, asked: &mut Watch) -> Result<(String, bool), std::io::Error> {
        let (resource, from) = (asked.resource, asked.from);
        if from != 0 && from < self.cut {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        if from != 0 && from < self.forgotten {
            let gone = status(
                410,
                "Expired",
                &format!("too old resource version: {from} ({})", self.forgotten),
            );
            return Ok((format!("{}\n", json!({"type": "ERROR", "object": gone})), true));
        }
        let mut lines: Vec<Value> = match from {
            0 => {
                let there = self.list(resource, &asked.namespace, |object| asked.chosen.has(object));
                let there = there["items"].as_array().cloned().unwrap_or_default();
                there
                    .into_iter()
                    .map(|object| json!({"type": "ADDED", "object": object}))
                    .collect()
            }
            _ => {
                let here = |namespace: &str| asked.namespace.is_empty() || namespace == asked.namespace;
                let news = self.events.iter().filter(|event| {
                    event.version > from
                        && event.plural == resource.plural
                        && here(&event.namespace)
                        && asked.chosen.has(&event.object)
                });
                news.map(|event| json!({"type": event.word, "object": *event.object}))
                    .collect()
            }
        };
        asked.from = self.version();
        if lines.is_empty() && asked.bookmarks {
            lines.push(json!({"type": "BOOKMARK", "object": {
                "kind": resource.kind, "apiVersion": resource.api_version(),
                "metadata": {"resourceVersion": self.version().to_string()}}}));
        }
        Ok((lines.iter().map(|line| format!("{line}\n")).collect(), false))
    }
}
