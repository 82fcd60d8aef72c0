//! How kubeconfigs are read, and which proxy is used, compared with kubectl in many small configurations: which request
//! arrives at a server, in which way, and with which credentials. kubectl 1.20 and 1.32 agree in all of them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::support::fake_kubevirt::wire::certificates;
use crate::support::left_out::no_judge;
use crate::support::qcow2;
use crate::support::tls_listener::TlsListener;

/// What arrives at the server.
#[derive(Clone, Copy)]
enum Expected {
    /// A request of kubectl and of this program, in this way and with these credentials.
    Arrives(&'static str),
    /// Nothing of both; this program fails with these words.
    Fails(&'static str),
    /// Nothing of this program, which fails with these words. kubectl prompts for a password, newer ones after a request
    /// without credentials.
    Refuses(&'static str),
}

use Expected::{Arrives, Fails, Refuses};

struct Case {
    name: &'static str,
    /// The content by path. `@NAME@` is a value of the bench.
    files: Vec<(&'static str, String)>,
    variables: Vec<(&'static str, &'static str)>,
    expected: Expected,
}

/// A kubeconfig with one context: fields of its cluster besides the CA, and its user.
fn one(cluster: &str, user: &str) -> String {
    whole(&format!("certificate-authority-data: @ca@, {cluster}"), user)
}

fn whole(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c1, cluster: {{{cluster}}}}}]\nusers: [{{name: u1, user: \
         {{{user}}}}}]\ncontexts: [{{name: x, context: {{cluster: c1, user: u1, namespace: lab}}}}]\ncurrent-context: x\n"
    )
}

const SERVER: &str = "server: \"https://localhost:@port@\"";
const NAMED: &str = "server: \"https://api.lab.example:@port@\"";
const TOKEN: &str = "token: abc";
const USUAL: Expected = Arrives("direct Bearer abc");

fn usual() -> String {
    one(SERVER, TOKEN)
}

fn case(name: &'static str, content: impl Into<String>, expected: Expected) -> Case {
    Case {
        name,
        files: vec![("kc", content.into())],
        variables: Vec::new(),
        expected,
    }
}

impl Case {
    fn file(mut self, path: &'static str, content: impl Into<String>) -> Self {
        self.files.push((path, content.into()));
        self
    }

    fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }
}

fn encodings() -> Vec<Case> {
    vec![
        case("YAML", usual(), USUAL),
        case(
            "JSON",
            r#"{"clusters": [{"name": "c", "cluster": {"server": "https://localhost:@port@", "certificate-authority-data": "@ca@"}}],
                "users": [{"name": "u", "user": {"token": "abc"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}"#,
            USUAL,
        ),
        case("a byte order mark", format!("\u{feff}{}", usual()), USUAL),
        case("UTF-16", format!("@utf16@{}", usual()), USUAL),
        case(
            "UTF-16, cut off",
            format!("@utf16@@odd@{}", usual()),
            Fails("it is not text"),
        ),
        case("CRLF", usual().replace('\n', "\r\n"), USUAL),
        case(
            "two documents",
            format!("{}---\n{}", usual(), one(SERVER, "token: other")),
            USUAL,
        ),
        case("only a comment", "# none\n", Fails("no kubeconfig with content at kc")),
        case("an equal key", format!("current-context: other\n{}", usual()), USUAL),
        case("a tab", format!("{}\tx: 1\n", usual()), Fails("kc: ")),
        case(
            "a page",
            "<!DOCTYPE html>\n<html>\n<body>Log in</body></html>\n",
            Fails("it is not a kubeconfig"),
        ),
        case(
            "another kind",
            usual().replace("kind: Config", "kind: List"),
            Fails("its kind is List"),
        ),
        case(
            "another version",
            usual().replace(": v1", ": v1beta1"),
            Fails("its apiVersion is v1beta1"),
        ),
        case(
            "no kind",
            usual().replace("kind: Config\n", "").replace("apiVersion: v1\n", ""),
            USUAL,
        ),
        case(
            "unknown fields",
            format!(
                "{}more: 1\n",
                one(&format!("{SERVER}, more: 1"), "token: abc, more: {}")
            ),
            USUAL,
        ),
        case(
            "null",
            format!("{}preferences: null\nextensions: null\n", usual()),
            USUAL,
        ),
    ]
}

fn lists() -> Vec<Case> {
    let other = || usual().replace("abc", "other");
    let context = "contexts: [{name: x, context: {cluster: c1, user: u1}}]\n";
    vec![
        case("a missing file before", usual(), USUAL).variable("KUBECONFIG", "missing:kc"),
        case("a missing file after", usual(), USUAL).variable("KUBECONFIG", "kc:missing"),
        case("empty names", usual(), USUAL).variable("KUBECONFIG", ":kc::"),
        case("an empty file before", usual(), USUAL)
            .file("empty", "")
            .variable("KUBECONFIG", "empty:kc"),
        case(
            "only missing files",
            usual(),
            Fails("no kubeconfig with content at missing, gone"),
        )
        .variable("KUBECONFIG", "missing:gone"),
        case("only separators", usual(), Fails("KUBECONFIG names no file")).variable("KUBECONFIG", ":"),
        case("a directory", usual(), Fails("it is not a regular file")).variable("KUBECONFIG", "."),
        case("the default file", "", USUAL)
            .file(".kube/config", usual())
            .variable("KUBECONFIG", ""),
        case("the first user wins", usual(), USUAL)
            .file("b", other())
            .variable("KUBECONFIG", "kc:b"),
        case("the first context wins", usual(), Fails("it has no context other"))
            .file("b", other().replace("t: x", "t: other"))
            .variable("KUBECONFIG", "b:kc"),
        case("an empty current context before", usual(), USUAL)
            .file("b", "current-context: \"\"\n")
            .variable("KUBECONFIG", "b:kc"),
        case(
            "one file for each part",
            usual().replace("current-context: x\n", ""),
            USUAL,
        )
        .file("b", format!("current-context: x\n{context}"))
        .variable("KUBECONFIG", "b:kc"),
        case("an invalid file after", usual(), Fails("b: it is not a kubeconfig"))
            .file("b", "text\n")
            .variable("KUBECONFIG", "kc:b"),
    ]
}

fn entries() -> Vec<Case> {
    let contexts = |text: &str| usual().replace("contexts: [", &format!("contexts: [{text}, "));
    let context = |text: &str| usual().replace("{cluster: c1, user: u1, namespace: lab}", text);
    vec![
        case(
            "equal names",
            usual().replace("users: [", "users: [{name: u1, user: {token: other}}, "),
            Fails("users has two entries with the name u1"),
        ),
        case(
            "another incomplete context",
            contexts("{name: other, context: {user: u1}}"),
            USUAL,
        ),
        case("another empty context", contexts("{name: other}"), USUAL),
        case(
            "a wrong current context",
            usual().replace("current-context: x", "current-context: other"),
            Fails("it has no context other, only x"),
        ),
        case(
            "no current context",
            usual().replace("current-context: x\n", ""),
            Fails("it has no current context"),
        ),
        case(
            "a context without a user",
            context("{cluster: c1}"),
            Refuses("context x has no user"),
        ),
        case(
            "a missing user",
            context("{cluster: c1, user: u2}"),
            Refuses("user u2 of context x does not exist"),
        ),
        case(
            "a missing cluster",
            context("{cluster: c2, user: u1}"),
            Fails("cluster c2 of context x does not exist"),
        ),
        case(
            "no server",
            one("tls-server-name: x", TOKEN),
            Fails("cluster c1: it has no server"),
        ),
        case(
            "a server without a scheme",
            one("server: \"localhost:@port@\"", TOKEN),
            Fails("invalid HTTP version parsed"),
        ),
        case(
            "a server with a space",
            one("server: \"https://localhost:@port@ \"", TOKEN),
            Fails("server https://localhost"),
        ),
        case(
            "a server with a path",
            one("server: \"https://localhost:@port@/k8s/clusters/c-1\"", TOKEN),
            USUAL,
        ),
        case("a number as a token", one(SERVER, "token: 123"), Fails("user u1: ")),
        case(
            "a user without credentials",
            one(SERVER, ""),
            Refuses("user u1: it has no credentials"),
        ),
        case(
            "an empty namespace",
            usual().replace("namespace: lab", "namespace: \"\""),
            USUAL,
        ),
    ]
}

fn credentials() -> Vec<Case> {
    const EXEC: &str = "apiVersion: client.authentication.k8s.io/v1beta1";
    let plugin = |text: &str| {
        format!(
            "@executable@#!/bin/sh\necho '{{\"apiVersion\": \"client.authentication.k8s.io/v1beta1\", \"kind\": \
                 \"ExecCredential\", \"status\": {{\"token\": \"'{text}'\"}}}}'\n"
        )
    };
    vec![
        case("a relative token file", one(SERVER, "tokenFile: t"), USUAL).file("t", "abc\n"),
        case("a token file in the file's directory", "", USUAL)
            .file("d/kc", one(SERVER, "tokenFile: t"))
            .file("d/t", "abc")
            .variable("KUBECONFIG", "d/kc"),
        case("a missing token file", one(SERVER, "tokenFile: t"), Fails("token file t: No such file")),
        case("an empty token file", one(SERVER, "tokenFile: t"), Fails("token file t does not contain one token"))
            .file("t", "\n"),
        case("a token file and a token", one(SERVER, "tokenFile: t, token: other"), USUAL).file("t", "abc\n"),
        case("a missing token file and a token", one(SERVER, "tokenFile: t, token: abc"), USUAL),
        case("a token with a line break", one(SERVER, "token: \"abc\\n\""), Fails("its token contains a line break")),
        case("a password", one(SERVER, "username: me, password: p"), Arrives("direct Basic me:p")),
        case("a user name", one(SERVER, "username: me"), Arrives("direct Basic me:")),
        case("a token and a password", one(SERVER, "token: abc, username: me, password: p"),
             Fails("it has both a token and a password")),
        case("a plugin", one(SERVER, &format!("exec: {{{EXEC}, command: ./plugin}}")), USUAL)
            .file("plugin", plugin("abc")),
        case("a plugin with arguments", one(SERVER, &format!(
                "exec: {{{EXEC}, command: ./plugin, args: [b], env: [{{name: A, value: a}}, {{name: E, value: \"\"}}]}}")),
             USUAL)
            .file("plugin", plugin("\"$A$1${E-unset}c\"")),
        case("a plugin without a command", one(SERVER, &format!("exec: {{{EXEC}}}")), Fails("its exec has no command")),
        case("a plugin without a version", one(SERVER, "exec: {command: ./plugin}"), Fails("its exec has no apiVersion"))
            .file("plugin", plugin("abc")),
        case("a plugin that fails", one(SERVER, &format!("exec: {{{EXEC}, command: ./plugin, interactiveMode: Never}}")),
             Fails("exec command ended with exit status: 3: run `login` first"))
            .file("plugin", "@executable@#!/bin/sh\necho 'run `login` first' >&2; exit 3\n"),
        case("a certificate without a key", one(SERVER, "client-certificate-data: @ca@"),
             Fails("it has a client certificate, but no key")),
        case("a key without a certificate", one(SERVER, "client-key-data: @ca@, token: abc"), USUAL),
        case("two certificates", one(SERVER, "client-certificate-data: @ca@, client-certificate: ca.pem, client-key: k"),
             Fails("it has both client-certificate and client-certificate-data"))
            .file("k", ""),
        case("another user", one(SERVER, "token: abc, as: bob"), Arrives("direct Bearer abc as bob")),
        case("groups of no user", one(SERVER, "token: abc, as-groups: [g]"), Fails("but not `as`")),
    ]
}

fn tls() -> Vec<Case> {
    let address = "server: \"https://127.0.0.1:@port@\"";
    let lines = usual().replace(
        "certificate-authority-data: @ca@, ",
        "certificate-authority-data: \"@lines@\", ",
    );
    vec![
        case(
            "a CA file",
            whole(&format!("{SERVER}, certificate-authority: ca.pem"), TOKEN),
            USUAL,
        ),
        case("a CA file in the file's directory", "", USUAL)
            .file(
                "d/kc",
                whole(&format!("{SERVER}, certificate-authority: ../ca.pem"), TOKEN),
            )
            .variable("KUBECONFIG", "d/kc"),
        case(
            "a missing CA file",
            whole(&format!("{SERVER}, certificate-authority: c"), TOKEN),
            Fails("c: No such file"),
        ),
        case(
            "a CA file without a certificate",
            whole(&format!("{SERVER}, certificate-authority: c"), TOKEN),
            Fails("its CA contains no certificate"),
        )
        .file("c", "text\n"),
        case(
            "a CA file with text",
            whole(&format!("{SERVER}, certificate-authority: c"), TOKEN),
            USUAL,
        )
        .file("c", "# ours\n@pem@\n# end\n"),
        case(
            "two CAs",
            one(&format!("{SERVER}, certificate-authority: ca.pem"), TOKEN),
            Fails("it has both certificate-authority and certificate-authority-data"),
        ),
        case("a CA in several lines", lines, USUAL),
        case("no CA", whole(SERVER, TOKEN), Fails("certificate")),
        case(
            "insecure",
            whole(&format!("{SERVER}, insecure-skip-tls-verify: true"), TOKEN),
            USUAL,
        )
        .variable("OCPDEPLOY_KUBEVIRT_INSECURE", "true"),
        case(
            "insecure with a CA",
            one(&format!("{SERVER}, insecure-skip-tls-verify: true"), TOKEN),
            Fails("it has both a CA and insecure-skip-tls-verify"),
        )
        .variable("OCPDEPLOY_KUBEVIRT_INSECURE", "true"),
        case(
            "the name of the certificate",
            one(&format!("{address}, tls-server-name: localhost"), TOKEN),
            USUAL,
        ),
        case("no name of the certificate", one(address, TOKEN), Fails("certificate")),
        case(
            "another name of the certificate",
            one(&format!("{SERVER}, tls-server-name: other"), TOKEN),
            Fails("certificate"),
        ),
    ]
}

fn proxies() -> Vec<Case> {
    const HTTP: Expected = Arrives("http Bearer abc");
    const DIRECTLY: Expected = Fails("failed to lookup address");
    let via = |proxy: &str| one(&format!("{NAMED}, proxy-url: \"{proxy}\""), TOKEN);
    let named = || one(NAMED, TOKEN);
    vec![
        case("an http proxy", via("http://localhost:@http@"), HTTP),
        case(
            "an http proxy with a password",
            via("http://u:p%40s@localhost:@http@"),
            Arrives("http u:p@s Bearer abc"),
        ),
        case(
            "an https proxy",
            via("https://localhost:@https@"),
            Arrives("https Bearer abc"),
        ),
        case(
            "a SOCKS proxy",
            via("socks5://localhost:@socks@"),
            Arrives("socks5 Bearer abc"),
        ),
        case(
            "another proxy",
            via("ftp://localhost:@http@"),
            Fails("proxy-url: it is not an http, https or socks5 URL"),
        ),
        case("a proxy of the environment", named(), HTTP).variable("HTTPS_PROXY", "http://localhost:@http@"),
        case("a proxy in lower case", named(), HTTP).variable("https_proxy", "http://localhost:@http@"),
        case("a proxy without a scheme", named(), HTTP).variable("HTTPS_PROXY", "localhost:@http@"),
        case(
            "a SOCKS proxy of the environment",
            named(),
            Arrives("socks5 Bearer abc"),
        )
        .variable("HTTPS_PROXY", "socks5://localhost:@socks@"),
        case("a proxy for http", named(), DIRECTLY).variable("HTTP_PROXY", "http://localhost:@http@"),
        case("no proxy for the name", named(), DIRECTLY)
            .variable("HTTPS_PROXY", "http://localhost:@http@")
            .variable("NO_PROXY", "10.0.0.0/8, api.lab.example"),
        case("no proxy for the domain", named(), DIRECTLY)
            .variable("HTTPS_PROXY", "http://localhost:@http@")
            .variable("no_proxy", "lab.example"),
        case("no proxy for a wildcard", named(), DIRECTLY)
            .variable("HTTPS_PROXY", "http://localhost:@http@")
            .variable("NO_PROXY", "*.lab.example"),
        case("no proxy for its port", named(), DIRECTLY)
            .variable("HTTPS_PROXY", "http://localhost:@http@")
            .variable("NO_PROXY", "api.lab.example:@port@"),
        case("no proxy for another port", named(), HTTP)
            .variable("HTTPS_PROXY", "http://localhost:@http@")
            .variable("NO_PROXY", "api.lab.example:1"),
        case("no proxy for others", named(), HTTP)
            .variable("HTTPS_PROXY", "http://localhost:@http@")
            .variable("NO_PROXY", "localhost,.example.com,10.0.0.0/8,"),
        case("this computer", usual(), USUAL).variable("HTTPS_PROXY", "http://localhost:@http@"),
        case(
            "a proxy of the kubeconfig and the environment",
            via("http://localhost:@http@"),
            HTTP,
        )
        .variable("HTTPS_PROXY", "http://localhost:1")
        .variable("NO_PROXY", "*"),
    ]
}

/// A server and proxies in front of it. They note what they receive.
struct Bench {
    folder: tempfile::TempDir,
    values: BTreeMap<&'static str, String>,
    seen: Arc<Mutex<Seen>>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Seen {
    via: Option<String>,
    arrived: Option<String>,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (ca, tls) = certificates(&["localhost", "api.lab.example"]);
        let tls = TlsAcceptor::from(tls);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let bind = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let server = bind();
        let address = server.local_addr().unwrap();
        let mut values = BTreeMap::from([
            ("port", address.port().to_string()),
            ("ca", STANDARD.encode(&ca)),
            (
                "lines",
                STANDARD
                    .encode(&ca)
                    .as_bytes()
                    .chunks(64)
                    .map(|line| String::from_utf8_lossy(line) + "\\n")
                    .collect(),
            ),
            ("pem", ca),
        ]);
        let noted = seen.clone();
        let app = Router::new().fallback(move |request: Request| {
            let text = |name: &str| {
                request
                    .headers()
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            };
            let mut seen = noted.lock().unwrap();
            let user = text("impersonate-user").map_or(String::new(), |user| format!(" as {user}"));
            let authorization = readable(&text("authorization").unwrap_or_default());
            let via = seen.via.clone().unwrap_or("direct".to_owned());
            seen.arrived.get_or_insert(format!("{via} {authorization}{user}"));
            async { (StatusCode::NOT_FOUND, "404 page not found\n") }
        });
        let of_server = tls.clone();
        runtime.spawn(async move { axum::serve(TlsListener::new(server, of_server), app).await.unwrap() });
        for kind in ["http", "https", "socks"] {
            let listener = bind();
            values.insert(kind, listener.local_addr().unwrap().port().to_string());
            let (tls, seen) = (tls.clone(), seen.clone());
            runtime.spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (tls, seen) = (tls.clone(), seen.clone());
                    tokio::spawn(async move {
                        match kind {
                            "http" => tunnel("http", stream, address, &seen).await,
                            "https" => match tls.accept(stream).await {
                                Ok(stream) => tunnel("https", stream, address, &seen).await,
                                Err(error) => Err(error),
                            },
                            _ => socks(stream, address, &seen).await,
                        }
                    });
                }
            });
        }
        let folder = tempfile::tempdir().unwrap();
        Self {
            folder,
            values,
            seen,
            _runtime: runtime,
        }
    }

    fn fill(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("@{name}@"), value)
        })
    }

    /// Writes a file.
    fn write(&self, folder: &Path, path: &str, content: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let content = self.fill(content);
        match content.strip_prefix("@utf16@") {
            Some(text) => {
                let odd = text.strip_prefix("@odd@");
                let units = odd.unwrap_or(text).encode_utf16().flat_map(u16::to_le_bytes);
                let mut bytes: Vec<u8> = [0xff, 0xfe].into_iter().chain(units).collect();
                bytes.extend(odd.map(|_| b'x'));
                fs::write(path, bytes).unwrap();
            }
            None => match content.strip_prefix("@executable@") {
                Some(script) => {
                    use std::os::unix::fs::PermissionsExt;
                    fs::write(&path, script).unwrap();
                    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
                }
                None => fs::write(path, content).unwrap(),
            },
        }
    }

    /// Runs a program in a folder with the case's files: what has arrived at the server, the exit code, and the output.
    fn run(&self, case: &Case, program: &str, arguments: &[&str]) -> (Option<String>, i32, String) {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        for (path, content) in &case.files {
            self.write(folder.path(), path, content);
        }
        self.write(folder.path(), "ca.pem", "@pem@");
        self.write(folder.path(), "lab.sh", SITE);
        for image in ["coreos.qcow2", "helper.qcow2"] {
            fs::write(folder.path().join(image), qcow2::empty()).unwrap();
        }
        *self.seen.lock().unwrap() = Seen::default();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .env_clear();
        command
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", folder.path())
            .env("KUBECONFIG", "kc");
        for (name, value) in &case.variables {
            command.env(name, self.fill(value));
        }
        let output = command.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let arrived = self.seen.lock().unwrap().arrived.clone();
        (arrived, output.status.code().unwrap(), text)
    }
}

const SITE: &str = "cluster=lab\ndomain=example.com\nbackend=kubevirt\nnetwork=lan\nmachine_network=10.7.0.0/24\n\
                    images_dir=.\nplatform_timeout=0s\negress_check=false\n";

/// Basic authentication as text.
fn readable(authorization: &str) -> String {
    match authorization.strip_prefix("Basic ") {
        Some(basic) => format!("Basic {}", String::from_utf8(STANDARD.decode(basic).unwrap()).unwrap()),
        None => authorization.to_owned(),
    }
}

/// An HTTP proxy (RFC 9110, section 9.3.6).
async fn tunnel(
    kind: &str,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    server: SocketAddr,
    seen: &Mutex<Seen>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(
        head.starts_with(&format!("CONNECT api.lab.example:{} ", server.port())),
        "{head}"
    );
    let user = head
        .lines()
        .find(|line| line.to_lowercase().starts_with("proxy-authorization:"));
    let user = user
        .and_then(|line| line.split_once(": "))
        .map(|(_, basic)| readable(basic).replace("Basic", ""));
    seen.lock().unwrap().via = Some(format!("{kind}{}", user.unwrap_or_default()));
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    let mut upstream = TcpStream::connect(server).await?;
    copy_bidirectional(&mut client, &mut upstream).await.map(drop)
}

/// A SOCKS proxy without authentication (RFC 1928).
async fn socks(mut client: TcpStream, server: SocketAddr, seen: &Mutex<Seen>) -> std::io::Result<()> {
    assert_eq!(client.read_u8().await?, 5);
    let mut methods = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut methods).await?;
    client.write_all(&[5, 0]).await?;
    let mut request = [0; 5];
    client.read_exact(&mut request).await?;
    // A name, which the proxy resolves.
    assert_eq!(request[..4], [5, 1, 0, 3]);
    let mut name = vec![0; usize::from(request[4]) + 2];
    client.read_exact(&mut name).await?;
    assert!(name.starts_with(b"api.lab.example"));
    seen.lock().unwrap().via = Some("socks5".to_owned());
    client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).await?;
    let mut upstream = TcpStream::connect(server).await?;
    copy_bidirectional(&mut client, &mut upstream).await.map(drop)
}

#[test]
fn kubeconfigs_and_proxies_are_read_as_kubectl_reads_them() {
    let cases: Vec<Case> = [encodings(), lists(), entries(), credentials(), tls(), proxies()]
        .into_iter()
        .flatten()
        .collect();
    let has_kubectl = Command::new("kubectl").args(["version", "--client"]).output().is_ok();
    if !has_kubectl {
        no_judge("kubectl is not installed: nothing compares how kubeconfigs are read");
    }
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let judge = |cases| scope.spawn(move || judged(cases, has_kubectl));
        let all: Vec<_> = cases.chunks(cases.len().div_ceil(4)).map(judge).collect();
        all.into_iter().flat_map(|judged| judged.join().unwrap()).collect()
    });
    assert_eq!(wrong, [""; 0], "{}", wrong.join("\n"));
}

/// What differs from the expectation.
fn judged(cases: &[Case], has_kubectl: bool) -> Vec<String> {
    let bench = Bench::new();
    let mut wrong = Vec::new();
    for case in cases {
        let (expected, words) = match case.expected {
            Arrives(what) => (Some(what), ""),
            Fails(words) | Refuses(words) => (None, words),
        };
        if has_kubectl {
            let arguments = ["--request-timeout=20s", "get", "--raw", "/version"];
            let (arrived, _, text) = bench.run(case, "kubectl", &arguments);
            let is_prompt = matches!(case.expected, Refuses(_)) && arrived.as_deref() == Some("direct ");
            if !is_prompt && arrived.as_deref() != expected {
                wrong.push(format!("{}: kubectl: {arrived:?}: {text}", case.name));
            }
        }
        let (arrived, code, text) = bench.run(
            case,
            env!("CARGO_BIN_EXE_ocpdeploy"),
            &["check", "--rehearse", "lab.sh"],
        );
        let is_said = text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words);
        if arrived.as_deref() != expected || !is_said || code == 70 || text.contains(".rs:") || text.contains(".cargo")
        {
            wrong.push(format!("{}: {arrived:?} and exit code {code}: {text}", case.name));
        }
    }
    wrong
}
