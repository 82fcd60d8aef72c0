//! The engine's control interface for tests that are not written in Rust: JSON, next to the API.
//!
//! `POST /control/advance {"seconds"}`, `/control/expire`, `/control/fault {"method", "path", "status", "detail" | "html"
//! | "lost"}`, `/control/guest {"mac", "gets_none"}`, `/control/version [4, 3, 10]`;
//! `GET /control/boots`, `/control/requests`, `/control/shapes`.

use serde_json::{Value, json};

use super::faults::{Fault, What};
use super::guests::Given;
use super::http::{Answer, Request};
use super::world::World;

pub fn serve(world: &mut World, request: &Request) -> Answer {
    let given: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
    let mut answer = json!({});
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/control/advance") => world.advance(given["seconds"].as_u64().unwrap_or(0) * 1000),
        ("POST", "/control/expire") => world.tokens.clear(),
        ("POST", "/control/fault") => {
            let fault = Fault::on(&text("method"), &text("path"));
            let status = given["status"].as_u64().unwrap_or(409) as u16;
            world.faults.push(match given.get("html") {
                Some(_) => fault.what(What::Html(status)),
                None => fault.refused(status, &text("detail")),
            });
        }
        ("POST", "/control/version") => {
            let number = |at: usize| given[at].as_u64().unwrap_or(0) as u32;
            world.of_version([number(0), number(1), number(2)]);
        }
        ("GET", "/control/boots") => {
            answer = world
                .boots
                .iter()
                .map(|boot| {
                    let (kind, text) = match &boot.given {
                        Given::Nothing(why) => ("nothing", (*why).to_owned()),
                        Given::Ignition(text) => ("ignition", text.clone()),
                        Given::CloudInit { user_data, .. } => ("cloud-init", user_data.clone()),
                    };
                    json!({"name": boot.name, "given": kind, "text": text})
                })
                .collect();
        }
        ("GET", "/control/shapes") => {
            let paths = |shape: super::shapes::Shape| shape.iter().map(|(path, _)| *path).collect::<Vec<_>>();
            answer = super::shapes::ALL
                .iter()
                .map(|(name, shape)| ((*name).to_owned(), json!(paths(shape))))
                .collect();
        }
        _ => return Answer::new(404, "application/json", "{}"),
    }
    Answer::new(200, "application/json", answer.to_string())
}

/// A request as JSON for other programs.
pub fn recorded(request: &Request) -> Value {
    json!({
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "headers": request.headers,
        "body": String::from_utf8_lossy(&request.body),
    })
}
