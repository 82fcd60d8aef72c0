//! A mirror whose list of programs somebody else wrote: nothing of it is run.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use ocpdeploy::digest::sha256;

use crate::security::release;
use crate::support::fake_kube::authority::{Authority, Signed};
use crate::support::tls_listener::TlsListener;

/// Keys made by GnuPG, which also signs: somebody else's program tells what a signature is.
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
    /// gpg starts an agent, which would stay.
    fn drop(&mut self) {
        let _ = Command::new("gpgconf")
            .args(["--kill", "gpg-agent"])
            .env("GNUPGHOME", self.home.path())
            .status();
    }
}

/// A mirror with https, a state folder, and a program that must not be run unless its list is right.
struct Bench {
    folder: tempfile::TempDir,
    files: BTreeMap<String, Vec<u8>>,
    list: Vec<u8>,
    /// Keys take seconds to make, and not each mirror signs.
    gpg: LazyCell<Gpg>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ran = folder.path().join("ran");
        let installer = release::installer("4.19.3").replacen('\n', &format!("\ntouch {}\n", ran.display()), 1);
        let files: BTreeMap<_, _> = release::files("4.19.3", &installer, release::OC).into_iter().collect();
        let list = files["sha256sum.txt"].clone();
        Self {
            folder,
            files,
            list,
            gpg: LazyCell::new(Gpg::new),
        }
    }

    fn serve(&mut self, name: &str, content: Vec<u8>) {
        self.files.insert(name.to_owned(), content);
    }

    fn key(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.asc"));
        fs::write(&path, self.gpg.export(name)).unwrap();
        path
    }

    /// Runs `image payload` with a mirror by this scheme and these further settings; its exit code and words.
    fn run(&self, scheme: &str, lines: &str) -> (Option<i32>, String) {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let authority = Authority::new();
        let Signed { certificate, key } = authority.server("localhost", |_| {});
        let ca = self.folder.path().join("ca.pem");
        fs::write(&ca, authority.pem()).unwrap();
        let app = axum::Router::new()
            .fallback(answer)
            .with_state(Arc::new(self.files.clone()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_tls = scheme == "https";
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            match is_tls {
                true => axum::serve(TlsListener::new(listener, acceptor(&certificate, &key)), app).await,
                false => axum::serve(listener, app).await,
            }
        });
        let at = self.folder.path();
        fs::write(at.join("key.pub"), KEY).unwrap();
        fs::write(at.join("secret"), r#"{"auths":{"quay.io":{"auth":"YTpi"}}}"#).unwrap();
        let env = format!(
            "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\nversion=4.19.3\n\
             mirror={scheme}://localhost:{port}/clients\ncache=cache\npub_key=key.pub\npull_secret=secret\n{lines}"
        );
        fs::write(at.join("env.sh"), env).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(["image", "payload", "env.sh"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", at)
            .env("OCPDEPLOY_HOME", at.join("home"))
            .env("SSL_CERT_FILE", &ca)
            .current_dir(at)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        drop(fs::remove_dir_all(at.join("cache")));
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    #[track_caller]
    fn accepts(&self, scheme: &str, lines: &str) -> String {
        let (code, said) = self.run(scheme, lines);
        assert_eq!(code, Some(0), "{lines}: {said}");
        let ran = self.folder.path().join("ran");
        assert!(fs::remove_file(ran).is_ok());
        said
    }

    #[track_caller]
    fn refuses(&self, scheme: &str, lines: &str, why: &[&str]) {
        let (code, said) = self.run(scheme, lines);
        assert_eq!(code, Some(4), "{lines}: {said}");
        assert!(
            !self.folder.path().join("ran").exists(),
            "{lines}: its program was run: {said}"
        );
        for why in why {
            assert!(said.contains(why), "{lines}: no `{why}` in {said}");
        }
        assert!(said.contains("hint: "), "{said}");
    }
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n";

async fn answer(State(files): State<Arc<BTreeMap<String, Vec<u8>>>>, uri: Uri) -> Response {
    match uri
        .path()
        .strip_prefix("/clients/ocp/4.19.3/")
        .and_then(|name| files.get(name))
    {
        Some(content) => content.clone().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
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

fn key_line(path: &Path) -> String {
    format!("mirror_key={}\n", path.display())
}

#[test]
fn a_list_that_a_trusted_key_has_signed_is_taken_in_every_form() {
    let mut bench = Bench::new();
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
            bench.files.remove(name);
        }
    }
}

#[test]
fn a_list_without_the_signature_of_a_trusted_key_is_refused() {
    let mut bench = Bench::new();
    let line = key_line(&bench.key("ed"));
    let missing = ["sha256sum.txt: it is neither signed nor pinned", "https://localhost"];
    bench.refuses("https", &line, &missing);
    // With no key named it is the vendor's that must have signed.
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
        (weak, &by_weak, "its digest algorithm is too weak"),
        (cut, &line, "cannot verify signature"),
        (Vec::new(), &line, "cannot verify signature"),
        (list.clone(), &line, "cannot verify signature"),
    ] {
        bench.serve("sha256sum.txt.gpg", signature.clone());
        bench.refuses("https", line, &["cannot verify signature", why]);
        // Nor by those who would take none.
        bench.refuses("https", &format!("{line}mirror_insecure=true\n"), &[why]);
    }
    // One of several is enough.
    bench.serve("sha256sum.txt.gpg", two);
    bench.accepts("https", &line);
    // Whoever signs the list cannot be replaced by who serves the programs.
    let evil = release::files("4.19.3", "#!/bin/sh\ntouch ran\n", release::OC).swap_remove(3);
    let name = evil.0.clone();
    bench.serve(&name, evil.1);
    if cfg!(target_arch = "x86_64") {
        bench.refuses("https", &line, &["checksum mismatch"]);
    }
}

#[test]
fn plain_http_and_a_missing_signature_need_a_pin_or_an_opt_in() {
    let mut bench = Bench::new();
    let line = key_line(&bench.key("ed"));
    let plain = ["plain http does not protect", "mirror_sha256=", "http://localhost"];
    bench.refuses("http", "", &plain);
    let signature = bench.gpg.sign("ed", &["--detach-sign"], &bench.list);
    bench.serve("sha256sum.txt.gpg", signature);
    bench.refuses("http", &line, &plain);
    bench.accepts("http", &format!("{line}mirror_insecure=true\n"));
    bench.files.clear();
    let fresh = Bench::new();
    for scheme in ["http", "https"] {
        let said = fresh.accepts(scheme, "mirror_insecure=true\n");
        assert!(
            said.contains("is not signed") && said.contains("mirror_insecure=true"),
            "{said}"
        );
        fresh.accepts(scheme, &format!("mirror_sha256={}\n", sha256(&fresh.list)));
        let wrong = format!("mirror_sha256={}\n", sha256("another"));
        fresh.refuses(
            scheme,
            &wrong,
            &["which differs from mirror_sha256", &sha256(&fresh.list)],
        );
    }
}
