//! A server on plain sockets, with or without TLS: it sends any bytes, and records all that it receives.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The CA of both the server and the other host, so that TLS does not prevent a connection there.
pub struct Authority {
    pub pem: String,
    config: Arc<ServerConfig>,
}

impl Authority {
    pub fn new() -> Self {
        let mut ca = rcgen::CertificateParams::new([]).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let names = ["localhost", "127.0.0.1", "127.0.0.2", super::API, super::MCS].map(str::to_owned);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap()];
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                chain,
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            );
        Self {
            pem,
            config: Arc::new(config.unwrap()),
        }
    }
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Without its query.
    pub path: String,
    /// The whole request, to search for secrets.
    pub raw: String,
}

/// The response to a request.
pub enum Reply {
    /// A well-formed answer.
    Whole(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// A head with this declared length, if any, then these bytes.
    Claims(u16, Option<u64>, Vec<u8>),
    /// A start, then the same bytes as long as the client reads them, each time after a pause.
    Endless(u16, Option<u64>, Vec<u8>, Vec<u8>, Duration),
}

impl Reply {
    pub fn json(status: u16, value: &serde_json::Value) -> Self {
        Self::Whole(status, Vec::new(), value.to_string().into_bytes())
    }
}

/// Maps a request and the number of previous requests to a response.
pub type Plan = Box<dyn Fn(&Request, usize) -> Reply + Send + Sync>;

/// Listens until the process ends.
pub struct Server {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(address: SocketAddr, authority: Option<&Authority>, plan: Plan) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (tls, plan, seen) = (authority.map(|it| it.config.clone()), Arc::new(plan), asked.clone());
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (tls, plan, seen) = (tls.clone(), plan.clone(), seen.clone());
                // The client is expected to close the connection.
                std::thread::spawn(move || serve(socket, tls, &plan, &seen).ok());
            }
        });
        Self { address, asked }
    }

    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(socket: TcpStream, tls: Option<Arc<ServerConfig>>, plan: &Plan, seen: &Mutex<Vec<Request>>) -> io::Result<()> {
    // No client is served for longer than a test lasts.
    socket.set_read_timeout(Some(Duration::from_secs(300)))?;
    socket.set_write_timeout(Some(Duration::from_secs(300)))?;
    socket.set_nodelay(true)?;
    match tls {
        None => talk(socket, plan, seen),
        Some(config) => talk(
            StreamOwned::new(ServerConnection::new(config).map_err(io::Error::other)?, socket),
            plan,
            seen,
        ),
    }
}

fn talk(stream: impl Read + Write, plan: &Plan, seen: &Mutex<Vec<Request>>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut raw = String::new();
    let mut length = 0;
    loop {
        let begin = raw.len();
        if stream.read_line(&mut raw)? == 0 {
            return Ok(());
        }
        let line = raw[begin..].trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        // A client that waits for `100 Continue`.
        if line.starts_with("expect:") {
            stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
    }
    let mut body = Vec::new();
    stream.by_ref().take(length).read_to_end(&mut body)?;
    raw += &String::from_utf8_lossy(&body);
    let url = raw.split(' ').nth(1).unwrap_or_default();
    let request = Request {
        path: url.split('?').next().unwrap_or_default().to_owned(),
        raw: raw.clone(),
    };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        seen.len() - 1
    };
    send(stream.get_mut(), plan(&request, number))
}

fn send(stream: &mut impl Write, reply: Reply) -> io::Result<()> {
    let head = |status: u16, length: Option<u64>, headers: &[(&str, String)]| {
        let mut head = format!("HTTP/1.1 {status} Whatever\r\nContent-Type: application/json\r\nConnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(length) = length {
            head += &format!("Content-Length: {length}\r\n");
        }
        head + "\r\n"
    };
    match reply {
        Reply::Whole(status, headers, body) => {
            stream.write_all(head(status, Some(body.len() as u64), &headers).as_bytes())?;
            stream.write_all(&body)?;
        }
        Reply::Claims(status, length, body) => {
            stream.write_all(head(status, length, &[]).as_bytes())?;
            stream.write_all(&body)?;
        }
        Reply::Endless(status, length, first, again, pause) => {
            stream.write_all(head(status, length, &[]).as_bytes())?;
            stream.write_all(&first)?;
            stream.flush()?;
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(600) {
                stream.write_all(&again)?;
                stream.flush()?;
                std::thread::sleep(pause);
            }
        }
    }
    stream.flush()
}
