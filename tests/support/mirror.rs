//! An HTTP server that misbehaves on demand, on plain sockets: it sends responses that a library would not send.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How a file is served.
#[derive(Clone)]
pub struct Served {
    pub body: Arc<Vec<u8>>,
    pub etag: Option<String>,
    /// Supports range requests.
    pub ranges: bool,
    /// Supports `If-Range`.
    pub if_range: bool,
    /// Each connection ends after so many bytes of body, one after another; then none does.
    pub cuts: Vec<usize>,
    /// The Content-Length instead of the true one.
    pub claims: Option<u64>,
    /// Answers before the file is served, e.g. 503.
    pub statuses: Vec<u16>,
    /// Milliseconds between blocks of 64 KiB.
    pub slow: u64,
}

impl Served {
    pub fn new(body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: Arc::new(body.into()),
            etag: Some("\"one\"".to_owned()),
            ranges: true,
            if_range: true,
            cuts: vec![],
            claims: None,
            statuses: vec![],
            slow: 0,
        }
    }
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub range: Option<String>,
}

/// The server; it ends with the process.
#[derive(Clone)]
pub struct Mirror {
    address: SocketAddr,
    files: Arc<Mutex<BTreeMap<String, Served>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Mirror {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mirror = Self {
            address: listener.local_addr().unwrap(),
            files: Arc::default(),
            asked: Arc::default(),
        };
        let server = mirror.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                // Tests also close connections early.
                std::thread::spawn(move || server.answer(stream).ok());
            }
        });
        mirror
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn serve(&self, path: &str, served: Served) {
        self.files.lock().unwrap().insert(path.to_owned(), served);
    }

    pub fn change(&self, path: &str, change: impl FnOnce(&mut Served)) {
        change(self.files.lock().unwrap().get_mut(path).unwrap());
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().unwrap_or(Ok(String::new()))?;
        let mut headers = BTreeMap::new();
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let path = path.split('?').next().unwrap().to_owned();
        let range = headers.get("range").cloned();
        self.asked.lock().unwrap().push(Asked { range: range.clone() });
        let (served, cut, status) = {
            let mut files = self.files.lock().unwrap();
            let Some(served) = files.get_mut(&path) else {
                return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            };
            let status = (!served.statuses.is_empty()).then(|| served.statuses.remove(0));
            let cut = (status.is_none() && !served.cuts.is_empty()).then(|| served.cuts.remove(0));
            (served.clone(), cut, status)
        };
        if let Some(status) = status {
            let head = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return stream.write_all(head.as_bytes());
        }
        let total = served.body.len();
        let claims = served.claims.unwrap_or(total as u64);
        let same = !served.if_range
            || headers
                .get("if-range")
                .is_none_or(|tag| Some(tag) == served.etag.as_ref());
        let start: Option<usize> = range
            .filter(|_| served.ranges && same)
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let mut head = match start {
            Some(start) if start >= total => {
                let head = format!(
                    "HTTP/1.1 416 No\r\nContent-Range: bytes */{claims}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                return stream.write_all(head.as_bytes());
            }
            Some(start) => format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{claims}\r\nContent-Length: {}\r\n",
                claims - 1,
                claims.saturating_sub(start as u64)
            ),
            None => format!("HTTP/1.1 200 OK\r\nContent-Length: {claims}\r\n"),
        };
        if let Some(etag) = &served.etag {
            head += &format!("ETag: {etag}\r\n");
        }
        head += "Connection: close\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        let body = &served.body[start.unwrap_or_default()..];
        let body = &body[..cut.unwrap_or(body.len()).min(body.len())];
        for block in body.chunks(64 << 10) {
            stream.write_all(block)?;
            if served.slow > 0 {
                std::thread::sleep(std::time::Duration::from_millis(served.slow));
            }
        }
        stream.flush()
    }
}
