//! The attacks of the hostile server: one entry for each way in which an answer can be wrong.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{Reply, Request};

/// A text with escape sequences: clear the screen, set the title, also in the 8-bit form.
pub const ESCAPES: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\u{202e}\u{8}pwned";

/// The format that the client parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Json,
    Xml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// A string that never ends, with this status.
    Endless(u16),
    /// The same, with a Content-Length of a terabyte.
    Announced,
    /// A document of another shape with a million values, and in XML, which the program limits, with fifteen.
    Wide,
    /// 100 000 nested brackets or elements.
    Deep,
    /// More bytes than the declared length, and fewer.
    TooLong,
    TooShort,
    /// Single bytes with pauses, without an end.
    Slow,
    /// A redirect to another host, with this status.
    Redirect(u16),
    /// Escape sequences in every string, with this status.
    Escapes(u16),
    /// Lists whose pages never end, form a loop, or continue at another host.
    EndlessPages,
    CirclingPages,
    ForeignPages,
}

/// The attacks on every client.
pub const ALL: &[Attack] = &[
    Attack::Endless(200),
    Attack::Endless(403),
    Attack::Endless(500),
    Attack::Announced,
    Attack::Wide,
    Attack::Deep,
    Attack::TooLong,
    Attack::TooShort,
    Attack::Redirect(301),
    Attack::Redirect(302),
    Attack::Redirect(303),
    Attack::Redirect(307),
    Attack::Redirect(308),
    Attack::Escapes(200),
    Attack::Escapes(400),
    Attack::Escapes(403),
    Attack::Escapes(404),
    Attack::Escapes(409),
    Attack::Escapes(500),
];

impl Attack {
    pub fn reply(self, language: Language, request: &Request, number: usize, other: &str) -> Reply {
        let xml = language == Language::Xml;
        match self {
            Attack::Endless(status) => endless(status, None, xml),
            Attack::Announced => endless(200, Some(1 << 40), xml),
            Attack::Wide => {
                let body = match xml {
                    true => format!("<a>{}</a>", "<b/>".repeat(15 << 20)),
                    false => format!("[{}{{}}]", "{},".repeat(1 << 20)),
                };
                Reply::Whole(200, Vec::new(), body.into_bytes())
            }
            Attack::Deep => {
                let body = match xml {
                    true => "<a>".repeat(100_000) + &"</a>".repeat(100_000),
                    false => "[".repeat(100_000) + &"]".repeat(100_000),
                };
                Reply::Whole(200, Vec::new(), body.into_bytes())
            }
            Attack::TooLong => Reply::Claims(200, Some(10), vec![b' '; 100_000]),
            Attack::TooShort => Reply::Claims(200, Some(1_000_000), vec![b' '; 1000]),
            Attack::Slow => {
                let first = if xml { "<a>" } else { "{\"a\": \"" };
                Reply::Endless(200, None, first.into(), b"x".to_vec(), Duration::from_millis(500))
            }
            Attack::Redirect(status) => {
                let to = format!("{other}{}", request.path);
                Reply::Whole(status, vec![("Location", to)], b"{}".to_vec())
            }
            Attack::Escapes(status) => {
                let body = match xml {
                    true => escapes_in_xml(),
                    false => escapes_in_json(&request.path).to_string(),
                };
                Reply::Whole(
                    status,
                    vec![("X-OpenStack-Request-Id", "req-\u{9b}31m".to_owned())],
                    body.into(),
                )
            }
            Attack::EndlessPages => page(request, &format!("?marker={number}")),
            Attack::CirclingPages => page(request, &format!("?marker={}", number % 2)),
            Attack::ForeignPages => page(request, &format!("{other}{}?marker={}", request.path, number.min(20))),
        }
    }
}

fn endless(status: u16, length: Option<u64>, xml: bool) -> Reply {
    let first = if xml { "<a>" } else { "{\"a\": \"" };
    Reply::Endless(status, length, first.into(), vec![b'x'; 1 << 20], Duration::ZERO)
}

/// The name of what a path leads to, as OpenStack's answers have it.
fn key(path: &str) -> String {
    let name = path
        .rsplit('/')
        .find(|part| !["detail", "details.json", ""].contains(part));
    name.unwrap_or_default().replace("os-", "").replace('-', "_")
}

fn page(request: &Request, next: &str) -> Reply {
    let key = key(&request.path);
    Reply::json(
        200,
        &json!({
            key.clone(): [{"id": "one", "name": "one"}],
            format!("{key}_links"): [{"rel": "next", "href": next}],
            "next": next,
        }),
    )
}

/// A valid answer to many requests of OpenStack and Kubernetes, with only hostile strings.
fn escapes_in_json(path: &str) -> Value {
    let thing = json!({
        "id": ESCAPES, "name": ESCAPES, "description": ESCAPES, "status": ESCAPES, "message": ESCAPES,
        "metadata": {"name": ESCAPES, "uid": ESCAPES, "labels": {ESCAPES: ESCAPES}, "annotations": {"a": ESCAPES}},
        "spec": {"a": ESCAPES}, "vcpus": 1, "ram": 1, "disk": 1, "cidr": ESCAPES, "tags": [ESCAPES],
    });
    json!({
        "kind": ESCAPES, "apiVersion": "v1", "status": "Failure", "code": 403, "reason": ESCAPES, "message": ESCAPES,
        "error": {"message": ESCAPES, "code": 403, "title": ESCAPES},
        "error_code": "access_denied", "error_description": ESCAPES,
        "gitVersion": ESCAPES, "major": "1", "minor": ESCAPES, "metadata": {"name": ESCAPES, "resourceVersion": ESCAPES},
        "items": [thing], key(path): [thing], "hostname": ESCAPES, "mac": ESCAPES, "ip": ESCAPES, "ipv6": ESCAPES,
        "config_sha512": ESCAPES, "config_bytes": 1, "ignition": ESCAPES,
    })
}

fn escapes_in_xml() -> String {
    // XML 1.0 has no such characters, but some of them can be written as references.
    let text = "&#27;[2J&#155;31m&#8238;&#13;\u{9b}32m\u{202e}pwned";
    format!(
        "<api><fault><reason>{text}</reason><detail>[{text}]</detail></fault><name>{text}</name><reason>{text}</reason>\
         <detail>{text}</detail><product_info><version><major>4</major><minor>5</minor></version><name>{text}</name>\
         </product_info><cluster id='{text}'><name>{text}</name><description>{text}</description></cluster></api>"
    )
}

/// Where the other host is, as a URL.
pub fn url(address: SocketAddr, is_tls: bool) -> String {
    format!("{}://{address}", if is_tls { "https" } else { "http" })
}
