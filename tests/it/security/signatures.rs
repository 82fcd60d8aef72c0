//! A mirror with a forged list of programs: none of them is run.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use ocpdeploy::digest::sha256;

use crate::security::release;
use crate::support::fake_kube::authority::{Authority, Signed};
use crate::support::tls_listener::TlsListener;

/// Keys and signatures by GnuPG, an independent program.
pub struct Gpg {
    home: tempfile::TempDir,
}

impl Gpg {
    pub fn new() -> Self {
        let gpg = Self {
            home: tempfile::tempdir().unwrap(),
        };
        for (name, algorithm, expires, time) in [
            ("rsa", "rsa3072", "never", None),
            ("ed", "ed25519", "never", None),
            ("other", "ed25519", "never", None),
            ("expired", "ed25519", "1d", Some("20240101T000000")),
            ("old", "ed25519", "never", Some("20230101T000000")),
            ("weak", "rsa2048", "never", None),
        ] {
            let mut arguments = vec!["--quick-gen-key", name, algorithm, "sign", expires];
            if let Some(time) = time {
                arguments.splice(0..0, ["--faked-system-time", time]);
            }
            gpg.run(&arguments, b"");
        }
        gpg
    }

    fn run(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let mut child = Command::new("gpg")
            .args([
                "--batch",
                "--yes",
                "--quiet",
                "--pinentry-mode",
                "loopback",
                "--passphrase",
                "",
            ])
            .args(arguments)
            .env("GNUPGHOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    pub fn sign(&self, key: &str, how: &[&str], content: &[u8]) -> Vec<u8> {
        self.run(&[&["-u", key][..], how, &["-o", "-"]].concat(), content)
    }

    pub fn export(&self, key: &str) -> Vec<u8> {
        self.run(&["--armor", "--export", key], b"")
    }
}

impl Drop for Gpg {
    /// Ends the agent that gpg starts.
    fn drop(&mut self) {
        let _ = Command::new("gpgconf")
            .args(["--kill", "gpg-agent"])
            .env("GNUPGHOME", self.home.path())
            .status();
    }
}

/// The files of a mirror by name, and the requested names.
struct Files {
    served: Mutex<BTreeMap<String, Vec<u8>>>,
    asked: Mutex<Vec<String>>,
    /// The server to which requests are redirected.
    redirected: Mutex<Option<String>>,
}

/// A mirror with http and https, a state folder, and a program that must not be run unless its list is valid.
pub struct Bench {
    folder: tempfile::TempDir,
    pub list: Vec<u8>,
    /// Generated on demand: it takes seconds, and not every mirror has signatures.
    pub gpg: LazyCell<Gpg>,
    files: Arc<Files>,
    ports: [u16; 2],
    _server: tokio::runtime::Runtime,
}

impl Bench {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ran = folder.path().join("ran");
        let installer = release::installer("4.19.3").replacen('\n', &format!("\ntouch {}\n", ran.display()), 1);
        let served: BTreeMap<_, _> = release::files("4.19.3", &installer, release::OC).into_iter().collect();
        let list = served["sha256sum.txt"].clone();
        let files = Arc::new(Files {
            served: Mutex::new(served),
            asked: Mutex::default(),
            redirected: Mutex::default(),
        });
        let authority = Authority::new();
        fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        fs::write(folder.path().join("other-ca.pem"), Authority::new().pem()).unwrap();
        let Signed { certificate, key } = authority.server("localhost", |_| {});
        let mut server = tokio::runtime::Builder::new_multi_thread();
        let server = server.worker_threads(1).enable_all().build().unwrap();
        let ports = [None, Some(acceptor(&certificate, &key))].map(|acceptor| {
            let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&files));
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let port = listener.local_addr().unwrap().port();
            server.spawn(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                match acceptor {
                    Some(acceptor) => axum::serve(TlsListener::new(listener, acceptor), app).await,
                    None => axum::serve(listener, app).await,
                }
            });
            port
        });
        Self {
            folder,
            list,
            gpg: LazyCell::new(Gpg::new),
            files,
            ports,
            _server: server,
        }
    }

    pub fn serve(&self, name: &str, content: Vec<u8>) {
        self.files.served.lock().unwrap().insert(name.to_owned(), content);
    }

    pub fn remove(&self, name: &str) {
        self.files.served.lock().unwrap().remove(name);
    }

    /// The requests to the mirror since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.files.asked.lock().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file of a public key.
    pub fn key(&self, name: &str) -> PathBuf {
        let path = self.path(&format!("{name}.asc"));
        fs::write(&path, self.gpg.export(name)).unwrap();
        path
    }

    /// The mirror by this scheme.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}", self.ports[usize::from(scheme == "https")])
    }

    /// Runs a command that trusts servers by the CA in this file.
    pub fn command(&self, arguments: &[&str], ca: &str) -> Output {
        drop(fs::remove_file(self.path("ran")));
        Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("OCPDEPLOY_HOME", self.path("home"))
            .env("SSL_CERT_FILE", self.path(ca))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    pub fn write_env(&self, scheme: &str, lines: &str) {
        fs::write(self.path("key.pub"), KEY).unwrap();
        fs::write(self.path("secret"), r#"{"auths":{"quay.io":{"auth":"YTpi"}}}"#).unwrap();
        let mirror = self.url(scheme);
        let env = format!(
            "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\nversion=4.19.3\n\
             installer_mirror={mirror}/clients\ndownloads_dir=cache\npub_key=key.pub\npull_secret=secret\n{lines}"
        );
        fs::write(self.path("env.sh"), env).unwrap();
    }

    /// Runs `image payload` with a mirror by this scheme and these further settings; its exit code and words.
    pub fn run(&self, scheme: &str, lines: &str) -> (Option<i32>, String) {
        self.write_env(scheme, lines);
        let output = self.command(&["image", "payload", "env.sh"], "ca.pem");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    }

    /// As `run`, with an empty cache.
    fn run_anew(&self, scheme: &str, lines: &str) -> (Option<i32>, String) {
        self.clear_cache();
        self.run(scheme, lines)
    }

    pub fn clear_cache(&self) {
        drop(fs::remove_dir_all(self.path("cache")));
    }

    /// Whether the last command ran the installer.
    pub fn has_run(&self) -> bool {
        self.path("ran").exists()
    }

    #[track_caller]
    fn accepts(&self, scheme: &str, lines: &str) -> String {
        let (code, said) = self.run_anew(scheme, lines);
        assert_eq!(code, Some(0), "{lines}: {said}");
        assert!(self.has_run());
        said
    }

    #[track_caller]
    fn refuses(&self, scheme: &str, lines: &str, why: &[&str]) {
        let (code, said) = self.run_anew(scheme, lines);
        assert_eq!(code, Some(4), "{lines}: {said}");
        assert!(!self.has_run(), "{lines}: its program was run: {said}");
        for why in why {
            assert!(said.contains(why), "{lines}: no `{why}` in {said}");
        }
        assert!(said.contains("hint: "), "{said}");
    }
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n";

async fn answer(State(files): State<Arc<Files>>, uri: Uri) -> Response {
    let of_release = uri
        .path()
        .strip_prefix("/clients/ocp/")
        .and_then(|rest| rest.split_once('/'));
    let name = of_release.map(|(_, name)| name).or(uri.path().strip_prefix("/images/"));
    let name = name.unwrap_or_default().to_owned();
    let found = files.served.lock().unwrap().get(&name).cloned();
    files.asked.lock().unwrap().push(name);
    if let Some(to) = files.redirected.lock().unwrap().as_ref() {
        return axum::response::Redirect::temporary(&format!("{to}{uri}")).into_response();
    }
    found.map_or(StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}

fn acceptor(certificate: &str, key: &str) -> tokio_rustls::TlsAcceptor {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    tokio_rustls::TlsAcceptor::from(Arc::new(config))
}

pub fn key_line(path: &Path) -> String {
    format!("installer_mirror_key={}\n", path.display())
}

#[test]
fn a_list_signed_by_a_trusted_key_is_accepted_in_every_form() {
    let bench = Bench::new();
    for key in ["rsa", "ed"] {
        let line = key_line(&bench.key(key));
        for (name, how) in [
            ("sha256sum.txt.gpg", &["--detach-sign"][..]),
            ("sha256sum.txt.gpg", &["--sign"]),
            ("sha256sum.txt.gpg", &["--sign", "--armor", "--compress-algo", "none"]),
            ("sha256sum.txt.asc", &["--detach-sign", "--armor"]),
        ] {
            let signature = bench.gpg.sign(key, how, &bench.list);
            bench.serve(name, signature);
            bench.accepts("https", &line);
            bench.remove(name);
        }
    }
}

#[test]
fn a_list_without_the_signature_of_a_trusted_key_is_rejected() {
    let bench = Bench::new();
    let line = key_line(&bench.key("ed"));
    let missing = ["sha256sum.txt: it is neither signed nor pinned", "https://localhost"];
    bench.refuses("https", &line, &missing);
    // Without a key in the settings, the vendor's key must have signed.
    bench.refuses("https", "", &missing);

    let list = bench.list.clone();
    let good = bench.gpg.sign("ed", &["--detach-sign"], &list);
    bench.serve("sha256sum.txt.gpg", good.clone());
    bench.refuses(
        "https",
        "",
        &[
            "sha256sum.txt.gpg: it is made with key",
            "567E347AD0044ADE55BA8A5F199E2F91FD431D51",
        ],
    );
    let other = bench.gpg.sign("other", &["--detach-sign"], &list);
    let of_other_file = [&list[..], b"\n"].concat();
    let expired = bench.gpg.sign(
        "expired",
        &["--faked-system-time", "20240101T010000", "--detach-sign"],
        &list,
    );
    let at = |key, time, more: &[&str]| {
        let how = [&["--faked-system-time", time][..], more, &["--detach-sign"]].concat();
        bench.gpg.sign(key, &how, &list)
    };
    let short = at("old", "20240101T010000", &["--default-sig-expire", "1d"]);
    let future = at("ed", "20500101T010000", &[]);
    let before_its_key = at(
        "ed",
        "20230101T010000",
        &["--ignore-time-conflict", "--ignore-valid-from"],
    );
    let weak = bench
        .gpg
        .sign("weak", &["--digest-algo", "SHA1", "--detach-sign"], &list);
    let mut cut = good.clone();
    cut.truncate(good.len() - 1);
    let mut changed = good;
    *changed.last_mut().unwrap() ^= 1;
    let two = [other.clone(), bench.gpg.sign("ed", &["--detach-sign"], &list)].concat();
    let by_old = key_line(&bench.key("old"));
    let (by_expired, by_weak) = (key_line(&bench.key("expired")), key_line(&bench.key("weak")));
    for (signature, line, why) in [
        (other, &line, "it is made with key"),
        (
            bench.gpg.sign("ed", &["--detach-sign"], &of_other_file),
            &line,
            "it does not match the file",
        ),
        (
            bench.gpg.sign("ed", &["--sign"], &of_other_file),
            &line,
            "it is a signature of another file",
        ),
        (
            bench.gpg.sign("ed", &["--sign"], &list[1..]),
            &line,
            "it is a signature of another file",
        ),
        (changed, &line, "it does not match the file"),
        (expired, &by_expired, "has expired"),
        (short, &by_old, "it has expired"),
        (future, &line, "its creation time is invalid"),
        (before_its_key, &line, "its creation time is invalid"),
        (weak, &by_weak, "its digest algorithm is too weak"),
        (cut, &line, "cannot verify signature"),
        (Vec::new(), &line, "cannot verify signature"),
        (list.clone(), &line, "cannot verify signature"),
    ] {
        bench.serve("sha256sum.txt.gpg", signature.clone());
        bench.refuses("https", line, &["cannot verify signature", why]);
        // Nor if a missing signature is allowed.
        bench.refuses("https", &format!("{line}installer_mirror_insecure=true\n"), &[why]);
    }
    // One of several is enough.
    bench.serve("sha256sum.txt.gpg", two);
    bench.accepts("https", &line);
    // The server of the programs cannot replace the signer of the list.
    let evil = release::files("4.19.3", "#!/bin/sh\ntouch ran\n", release::OC).swap_remove(3);
    let name = evil.0.clone();
    bench.serve(&name, evil.1);
    if cfg!(target_arch = "x86_64") {
        bench.refuses("https", &line, &["checksum mismatch"]);
    }
}

#[test]
fn plain_http_and_a_missing_signature_need_a_pin_or_an_opt_in() {
    let bench = Bench::new();
    let line = key_line(&bench.key("ed"));
    let plain = [
        "plain http does not protect",
        "installer_mirror_sha256=",
        "http://localhost",
    ];
    bench.refuses("http", "", &plain);
    let signature = bench.gpg.sign("ed", &["--detach-sign"], &bench.list);
    bench.serve("sha256sum.txt.gpg", signature);
    bench.refuses("http", &line, &plain);
    bench.accepts("http", &format!("{line}installer_mirror_insecure=true\n"));
    let fresh = Bench::new();
    for scheme in ["http", "https"] {
        let said = fresh.accepts(scheme, "installer_mirror_insecure=true\n");
        assert!(
            said.contains("is not signed") && said.contains("installer_mirror_insecure=true"),
            "{said}"
        );
        fresh.accepts(scheme, &format!("installer_mirror_sha256={}\n", sha256(&fresh.list)));
        let wrong = format!("installer_mirror_sha256={}\n", sha256("another"));
        fresh.refuses(
            scheme,
            &wrong,
            &["which differs from installer_mirror_sha256", &sha256(&fresh.list)],
        );
    }
}

#[test]
fn a_redirect_from_https_to_http_is_not_followed() {
    let bench = Bench::new();
    let pin = format!("installer_mirror_sha256={}\n", sha256(&bench.list));
    *bench.files.redirected.lock().unwrap() = Some(bench.url("http"));
    bench.refuses("https", &pin, &["a redirect from https to http"]);
    assert_eq!(bench.asked().len(), 1, "only the server with https was asked");
}
