//! The part of HTTP/1.1 over TLS that a client without pipelining requires.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// The connection breaks instead of this answer.
    pub is_lost: bool,
    /// The connection breaks before the last byte of the answer.
    pub is_cut: bool,
}

impl Answer {
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            content_type,
            headers: Vec::new(),
            body: body.into(),
            is_lost: false,
            is_cut: false,
        }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

pub struct Tls {
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
    config: Arc<ServerConfig>,
}

impl Tls {
    /// A CA made for this one engine, and a certificate of it for 127.0.0.1 and localhost.
    pub fn fresh() -> Self {
        let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        ca.distinguished_name
            .push(rcgen::DnType::CommonName, "fake engine's CA");
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let host = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = host.signed_by(&key, &issuer).unwrap().pem();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key_pem = key.serialize_pem();
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self {
            ca_pem,
            certificate_pem: certificate,
            key_pem,
            config: Arc::new(config),
        }
    }
}

/// Serves until the process ends; each connection has a thread of its own.
pub fn serve(listener: TcpListener, tls: &Tls, answer: impl Fn(Request) -> Answer + Send + Sync + 'static) {
    let (answer, config) = (Arc::new(answer), tls.config.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (answer, config) = (answer.clone(), config.clone());
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                let connection = ServerConnection::new(config).unwrap();
                let mut stream = BufReader::new(StreamOwned::new(connection, stream));
                while let Some(request) = read(&mut stream) {
                    let answer = answer(request);
                    if answer.is_lost || write(stream.get_mut(), &answer).is_none() || answer.is_cut {
                        break;
                    }
                }
            });
        }
    });
}

fn read<S: Read + Write>(stream: &mut BufReader<S>) -> Option<Request> {
    let mut line = String::new();
    let mut next = |stream: &mut BufReader<S>| {
        line.clear();
        (stream.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let first = next(stream)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let line = next(stream)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    if headers.contains_key("expect") {
        let stream = stream.get_mut();
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
        stream.flush().ok()?;
    }
    // A body of unknown length is not read; its bytes would then be no request, and the connection ends.
    let length = headers
        .get("content-length")
        .map_or(Some(0), |text| text.parse().ok())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Request {
        method,
        path: path.to_owned(),
        query: form(query),
        headers,
        body,
    })
}

fn write(stream: &mut impl Write, answer: &Answer) -> Option<()> {
    let mut head = format!(
        "HTTP/1.1 {} x\r\nContent-Length: {}\r\n",
        answer.status,
        answer.body.len()
    );
    if !answer.content_type.is_empty() {
        head += &format!("Content-Type: {}\r\n", answer.content_type);
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let body = match answer.is_cut {
        true => &answer.body[..answer.body.len() / 2],
        false => &answer.body,
    };
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    stream.flush().ok()
}

/// `a=1&b=2%203`.
pub fn form(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

fn decode(text: &str) -> String {
    let (bytes, mut plain, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'+' => plain.push(b' '),
            b'%' => {
                plain.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
                at += 2;
            }
            byte => plain.push(byte),
        }
        at += 1;
    }
    String::from_utf8(plain).unwrap()
}
