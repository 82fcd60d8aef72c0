//! A machine config server: TLS with the one name of the real certificate, strict about requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

/// Status and body for a path; `None`: it hangs up.
type Answer = Option<(u16, Vec<u8>)>;

pub struct McsServer {
    pub address: SocketAddr,
    ends: Arc<AtomicBool>,
    heads: Arc<Mutex<Vec<String>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl McsServer {
    /// Certificate and key in PEM. `answer` gets the path of a request and the version of Ignition that it asks for.
    pub fn start(
        address: SocketAddr,
        certificate: &str,
        key: &str,
        mut answer: impl FnMut(&str, &str) -> Answer + Send + 'static,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap());
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (ends_there, heads_there) = (Arc::clone(&ends), Arc::clone(&heads));
        let thread = thread::spawn(move || {
            for socket in listener.incoming() {
                if ends_there.load(Ordering::SeqCst) {
                    break;
                }
                if let Some(head) = serve(socket.unwrap(), Arc::clone(&config), &mut answer) {
                    heads_there.lock().unwrap().push(head);
                }
            }
        });
        Self {
            address,
            ends,
            heads,
            thread: Some(thread),
        }
    }

    /// The head of each request so far, in lower case.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

impl Drop for McsServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the thread; it may have panicked, which is reported here.
        let _ = TcpStream::connect(self.address);
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}

fn serve(
    mut socket: TcpStream,
    config: Arc<ServerConfig>,
    answer: &mut impl FnMut(&str, &str) -> Answer,
) -> Option<String> {
    let mut tls = ServerConnection::new(config).unwrap();
    let mut stream = Stream::new(&mut tls, &mut socket);
    let mut reader = BufReader::new(&mut stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let path = head
        .strip_prefix("get ")
        .and_then(|rest| rest.split(' ').next())
        .unwrap_or_default();
    // Strict: a request without the header of Ignition (coreos/ignition: `internal/resource/url.go`) gets another spec
    // from the real server.
    let accepts = head
        .split("accept: application/vnd.coreos.ignition+json;version=")
        .nth(1);
    let version = accepts.and_then(|rest| rest.split_once(", */*;q=0.1\r\n"));
    let answer = version.map_or(Some((400, Vec::new())), |(version, _)| answer(path, version));
    if let Some((status, body)) = answer {
        let length = body.len();
        let first = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(first.as_bytes());
        let _ = stream.write_all(&body);
        tls.send_close_notify();
        let _ = tls.complete_io(&mut socket);
    }
    Some(head)
}
