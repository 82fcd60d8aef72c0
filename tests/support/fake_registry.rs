//! An upstream registry with TLS, that answers as quay.io does: pulls require a token (quay/quay:
//! `endpoints/v2/v2auth.py`), and blobs are redirected to storage (quay/quay: `endpoints/v2/blob.py`). It counts the
//! bytes of content that it sends.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream::{self, StreamExt};
use ocpdeploy::digest::sha256;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::tls_listener::TlsListener;

const TOKEN: &str = "Bearer token-of-the-fake";
const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// What a node pulls.
#[derive(Clone)]
pub struct Image {
    /// `REPOSITORY@sha256:…`, without the registry.
    pub name: String,
    pub layers: Vec<String>,
    /// Of layers, configuration and manifest.
    pub bytes: u64,
}

struct World {
    /// The name with the port.
    name: String,
    address: SocketAddr,
    /// `user:password`.
    login: String,
    /// HTTP Basic authentication in place of tokens, as distribution's registry with `htpasswd`
    /// (distribution/distribution: `registry/auth/htpasswd/access.go`).
    is_basic: AtomicBool,
    content: Mutex<BTreeMap<String, Vec<u8>>>,
    sent: AtomicU64,
    /// Of blobs with more bytes, only the first half is sent.
    most: AtomicUsize,
}

pub struct FakeRegistry {
    world: Arc<World>,
    tls: Arc<ServerConfig>,
    /// PEM text of its certificate.
    pub certificate: String,
    running: Option<Runtime>,
    /// Its port, while it refuses connections.
    held: Option<socket2::Socket>,
}

impl FakeRegistry {
    /// One on loopback.
    pub fn start(login: &str) -> Self {
        Self::start_at("127.0.0.1", "localhost", login)
    }

    /// One at an address of this computer, which has this name or is its own name.
    pub fn start_at(ip: &str, name: &str, login: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let socket = std::net::TcpListener::bind((ip, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let mut registry = Self {
            world: Arc::new(World {
                name: format!("{name}:{}", address.port()),
                address,
                login: STANDARD.encode(login),
                is_basic: AtomicBool::new(false),
                content: Mutex::default(),
                sent: AtomicU64::new(0),
                most: AtomicUsize::new(usize::MAX),
            }),
            tls: Arc::new(tls),
            certificate: made.cert.pem(),
            running: None,
            held: None,
        };
        registry.serve(socket);
        registry
    }

    /// Its name in images.
    pub fn host(&self) -> String {
        self.world.name.clone()
    }

    /// Bytes of content that it has sent so far.
    pub fn sent(&self) -> u64 {
        self.world.sent.load(Ordering::SeqCst)
    }

    /// Of a blob, in bytes.
    pub fn size(&self, digest: &str) -> u64 {
        self.world.content.lock().unwrap()[digest].len() as u64
    }

    /// From now on, it requires HTTP Basic authentication.
    pub fn require_basic(&self) {
        self.world.is_basic.store(true, Ordering::SeqCst);
    }

    /// From now on, blobs with more bytes stop in the middle, until `hold_above(usize::MAX)`.
    pub fn hold_above(&self, bytes: usize) {
        self.world.most.store(bytes, Ordering::SeqCst);
    }

    /// Refuses connections from now on.
    pub fn cut_off(&mut self) {
        if let Some(runtime) = self.running.take() {
            runtime.shutdown_background();
        }
        while std::net::TcpStream::connect(self.world.address).is_ok() {
            std::thread::yield_now();
        }
        // Otherwise its port may become that of another test's connection.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&self.world.address.into()).unwrap();
        self.held = Some(socket);
    }

    pub fn restore(&mut self) {
        let socket = self.held.take().expect("it was cut off");
        socket.listen(64).unwrap();
        self.serve(socket.into());
    }

    fn serve(&mut self, socket: std::net::TcpListener) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let app = Router::new()
            .route("/v2/", get(root))
            .route("/v2/auth", get(token))
            .route("/v2/{*path}", get(pull))
            .route("/storage/{digest}", get(storage))
            .with_state(Arc::clone(&self.world));
        socket.set_nonblocking(true).unwrap();
        let tls = TlsAcceptor::from(Arc::clone(&self.tls));
        runtime.spawn(async move {
            let listener = TlsListener::new(tokio::net::TcpListener::from_std(socket).unwrap(), tls);
            axum::serve(listener, app).await.unwrap();
        });
        self.running = Some(runtime);
    }

    /// Makes an image; each of its layers has a file of random bytes, which has this size.
    pub fn add_image(&self, repository: &str, sizes: &[usize]) -> Image {
        let mut content = self.world.content.lock().unwrap();
        let mut add = |bytes: Vec<u8>| {
            let digest = format!("sha256:{}", sha256(&bytes));
            content.insert(digest.clone(), bytes);
            digest
        };
        let mut layers = Vec::new();
        let mut descriptors = Vec::new();
        let mut unpacked = Vec::new();
        let mut bytes = 0;
        for size in sizes {
            let tar = layer(*size);
            unpacked.push(format!("sha256:{}", sha256(&tar)));
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&tar).unwrap();
            let packed = packed.finish().unwrap();
            let size = packed.len();
            let digest = add(packed);
            let kind = "application/vnd.docker.image.rootfs.diff.tar.gzip";
            descriptors.push(json!({"mediaType": kind, "digest": digest, "size": size}));
            layers.push(digest);
            bytes += size as u64;
        }
        let rootfs = json!({"type": "layers", "diff_ids": unpacked});
        let config = json!({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs});
        let config = config.to_string().into_bytes();
        let size = config.len();
        let digest = add(config);
        let kind = "application/vnd.docker.container.image.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": kind, "digest": digest, "size": size}, "layers": descriptors});
        let manifest = manifest.to_string().into_bytes();
        bytes += (size + manifest.len()) as u64;
        layers.push(digest);
        let digest = add(manifest);
        Image {
            name: format!("{repository}@{digest}"),
            layers,
            bytes,
        }
    }
}

/// The tar of one file.
fn layer(size: usize) -> Vec<u8> {
    let mut content = vec![0; size];
    getrandom::fill(&mut content).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(size as u64);
    header.set_mode(0o644);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, "content", content.as_slice()).unwrap();
    tar.into_inner().unwrap()
}

async fn root(State(world): State<Arc<World>>, headers: HeaderMap) -> Response {
    match refuse(&world, &headers) {
        Some(refusal) => refusal,
        None => "{}".into_response(),
    }
}

fn refuse(world: &World, headers: &HeaderMap) -> Option<Response> {
    let basic = format!("Basic {}", world.login);
    let (expected, challenge) = match world.is_basic.load(Ordering::SeqCst) {
        true => (basic.as_str(), "Basic realm=\"registry\"".to_owned()),
        false => (
            TOKEN,
            format!("Bearer realm=\"https://{}/v2/auth\",service=\"registry\"", world.name),
        ),
    };
    if headers.get(AUTHORIZATION).is_some_and(|given| given == expected) {
        return None;
    }
    let body = json!({"errors": [{"code": "UNAUTHORIZED", "detail": {}, "message": "access to the requested resource is not authorized"}]});
    Some(
        (
            StatusCode::UNAUTHORIZED,
            [(WWW_AUTHENTICATE, challenge)],
            body.to_string(),
        )
            .into_response(),
    )
}

async fn token(State(world): State<Arc<World>>, headers: HeaderMap) -> Response {
    let expected = format!("Basic {}", world.login);
    match headers
        .get(AUTHORIZATION)
        .is_some_and(|given| given == expected.as_str())
    {
        true => json!({"token": TOKEN.trim_start_matches("Bearer ")})
            .to_string()
            .into_response(),
        false => StatusCode::UNAUTHORIZED.into_response(),
    }
}

async fn pull(State(world): State<Arc<World>>, headers: HeaderMap, Path(path): Path<String>) -> Response {
    if let Some(refusal) = refuse(&world, &headers) {
        return refusal;
    }
    let digest = path.rsplit('/').next().unwrap().to_owned();
    let Some(content) = world.content.lock().unwrap().get(&digest).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if path.contains("/blobs/") {
        return (StatusCode::FOUND, [(LOCATION, format!("/storage/{digest}"))]).into_response();
    }
    world.sent.fetch_add(content.len() as u64, Ordering::SeqCst);
    ([(CONTENT_TYPE, MANIFEST), (DIGEST, &digest)], content).into_response()
}

const DIGEST: axum::http::HeaderName = axum::http::HeaderName::from_static("docker-content-digest");

/// Counts only requests with a response body: axum answers HEAD with GET's handler.
async fn storage(State(world): State<Arc<World>>, method: axum::http::Method, Path(digest): Path<String>) -> Response {
    let mut first = Bytes::from(world.content.lock().unwrap()[&digest].clone());
    let size = first.len();
    let is_held = size > world.most.load(Ordering::SeqCst);
    let rest = first.split_off(if is_held { size / 2 } else { size });
    if method == axum::http::Method::GET {
        world.sent.fetch_add(first.len() as u64, Ordering::SeqCst);
    }
    let rest = async move {
        while size > world.most.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.sent.fetch_add(rest.len() as u64, Ordering::SeqCst);
        rest
    };
    let parts = stream::iter([first]).chain(stream::once(rest));
    let body = Body::from_stream(parts.map(Ok::<_, std::io::Error>));
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, size.to_string()),
    ];
    (headers, body).into_response()
}
