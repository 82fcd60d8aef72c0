//! The real `ovirt-imageio` daemon of the package registry, without root, on the loopback, with the engine's certificate.
//!
//! Tickets go through its control socket, data through TLS; the fake does not process the data.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::http::Tls;

/// A daemon that runs as long as this lives.
pub struct Daemon {
    pub origin: String,
    child: Child,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts `program`, an `ovirt-imageio`, and waits until it answers.
    pub fn start(program: &Path, tls: &Tls) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, pem) in [
            ("key.pem", &tls.key_pem),
            ("cert.pem", &tls.certificate_pem),
            ("ca.pem", &tls.ca_pem),
        ] {
            fs::write(at(name), pem).unwrap();
        }
        let conf = at("conf.d");
        fs::create_dir(&conf).unwrap();
        let run = folder.path().display();
        let text = format!(
            "[daemon]\nsystemd_enable = false\ndrop_privileges = false\nrun_dir = {run}\npoll_interval = 0.1\n\
             [tls]\nenable = true\nkey_file = {run}/key.pem\ncert_file = {run}/cert.pem\nca_file = {run}/ca.pem\n\
             [remote]\nhost = 127.0.0.1\nport = 0\n[local]\nenable = false\n\
             [control]\ntransport = unix\nsocket = {run}/sock\nremove_timeout = 5\n\
             [handlers]\nkeys = stderr\n[logger_root]\nlevel = INFO\nhandlers = stderr\n"
        );
        fs::write(conf.join("10-test.conf"), text).unwrap();
        let mut child = Command::new(program)
            .arg("--conf-dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(at("log")).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let begun = Instant::now();
        let port = loop {
            let log = fs::read_to_string(at("log")).unwrap_or_default();
            if let Some(port) = port_of(&log)
                && at("sock").exists()
                && TcpStream::connect(("127.0.0.1", port)).is_ok()
            {
                break port;
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "ovirt-imageio ended: {log}");
            if begun.elapsed() > Duration::from_secs(20) {
                let _ = child.kill();
                panic!("ovirt-imageio does not start: {log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Self {
            origin: format!("https://127.0.0.1:{port}"),
            child,
            folder,
        }
    }

    fn file(&self, ticket: &str) -> PathBuf {
        self.folder.path().join(format!("{ticket}.img"))
    }

    /// Accepts data for a ticket; earlier data are kept.
    pub fn open(&self, ticket: &str, size: u64) -> Result<(), String> {
        let file = self.file(ticket);
        let known = fs::OpenOptions::new().create(true).append(true).open(&file);
        known.map_err(|error| error.to_string())?;
        let body = serde_json::json!({
            "uuid": ticket, "size": size, "url": format!("file://{}", file.display()), "timeout": 300,
            "ops": ["read", "write"], "sparse": true, "dirty": false,
        });
        self.control("PUT", ticket, &body.to_string()).map(drop)
    }

    pub fn close(&self, ticket: &str) {
        let _ = self.control("DELETE", ticket, "");
    }

    pub fn received(&self, ticket: &str) -> u64 {
        fs::metadata(self.file(ticket)).map_or(0, |file| file.len())
    }

    pub fn read(&self, ticket: &str) -> Vec<u8> {
        fs::read(self.file(ticket)).unwrap_or_default()
    }

    /// Whether a client has used the ticket in the last seconds.
    pub fn moved(&self, ticket: &str) -> bool {
        let answer = self.control("GET", ticket, "").unwrap_or_default();
        let ticket: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        ticket["active"] == true || ticket["idle_time"].as_u64().is_some_and(|idle| idle < 30)
    }

    fn control(&self, method: &str, ticket: &str, body: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("ovirt-imageio's control: {error}");
        let mut socket = UnixStream::connect(self.folder.path().join("sock")).map_err(failed)?;
        let length = body.len();
        write!(socket, "{method} /tickets/{ticket} HTTP/1.1\r\nHost: control\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .map_err(failed)?;
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        reader.read_line(&mut line).map_err(failed)?;
        let is_good = line.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
        let mut answer = String::new();
        let _ = reader.read_to_string(&mut answer);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
        if is_good {
            Ok(body)
        } else {
            Err(format!("ovirt-imageio's control: {} {body}", line.trim()))
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port of the remote service, from a log.
fn port_of(log: &str) -> Option<u16> {
    let line = log.lines().find(|line| line.contains("remote.service listening on"))?;
    line.trim_end()
        .rsplit(|character: char| !character.is_ascii_digit())
        .find(|part| !part.is_empty())?
        .parse()
        .ok()
}
