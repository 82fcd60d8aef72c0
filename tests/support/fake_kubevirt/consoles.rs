//! Guests with serial consoles: a login prompt on Enter, an echo of the input, and much output on request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};

use super::wire::lock;
use super::world::World;

/// kubevirt/kubevirt: staging/src/kubevirt.io/client-go/subresources/websocket.go.
const PROTOCOL: &str = "plain.kubevirt.io";
/// How often a session checks that the machine still runs and the console is still its own.
const LOOK: Duration = Duration::from_millis(10);
/// The number of lines that a guest writes after the input `flood`.
pub const FLOOD: usize = 20_000;

/// Who is attached to a console.
#[derive(Default)]
pub struct Seat {
    /// How many sessions have attached; the last of them still is.
    pub taken: u64,
    pub typed: Vec<u8>,
    /// The connection breaks without a close frame.
    pub is_cut: bool,
}

/// Upgrades to a websocket with the required protocol.
pub async fn open(world: Arc<Mutex<World>>, mut parts: Parts, namespace: String, name: String) -> Response<Body> {
    let asked = parts.headers.get("sec-websocket-protocol").cloned();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    match (upgrade, asked) {
        (Ok(upgrade), Some(asked)) if asked == PROTOCOL => upgrade
            .protocols([PROTOCOL])
            .on_upgrade(move |socket| sit(world, socket, namespace, name)),
        _ => {
            lock(&world)
                .unknown
                .push(format!("console of {name} without {PROTOCOL}"));
            let mut refused = Response::new(Body::from("websocket: bad handshake"));
            *refused.status_mut() = StatusCode::BAD_REQUEST;
            refused
        }
    }
}

async fn sit(world: Arc<Mutex<World>>, mut socket: WebSocket, namespace: String, name: String) {
    let instance = |world: &World| {
        let key = ("virtualmachineinstances", namespace.clone(), name.clone());
        world
            .objects
            .get(&key)
            .map(|instance| instance["metadata"]["uid"].clone())
    };
    let (at, mine) = {
        let mut world = lock(&world);
        let at = instance(&world);
        let seat = world.consoles.entry(name.clone()).or_default();
        seat.taken += 1;
        (at, seat.taken)
    };
    let mut line = Vec::new();
    loop {
        let heard = tokio::select! {
            message = socket.recv() => message,
            () = tokio::time::sleep(LOOK) => {
                let mut world = lock(&world);
                let is_there = instance(&world) == at;
                let seat = world.consoles.entry(name.clone()).or_default();
                if seat.is_cut {
                    return;
                }
                if is_there && seat.taken == mine {
                    continue;
                }
                None
            }
        };
        let typed = match heard {
            Some(Ok(Message::Binary(typed))) => typed,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Text(_))) => {
                lock(&world).unknown.push(format!("text on the console of {name}"));
                continue;
            }
            Some(Ok(Message::Close(_)) | Err(_)) => return,
            None => {
                let close = CloseFrame {
                    code: 1000,
                    reason: "".into(),
                };
                let _ = socket.send(Message::Close(Some(close))).await;
                return;
            }
        };
        lock(&world)
            .consoles
            .entry(name.clone())
            .or_default()
            .typed
            .extend(&typed);
        let mut said = Vec::new();
        for key in typed {
            match key {
                b'\r' => said.extend(answer(&std::mem::take(&mut line), &name).into_bytes()),
                key => {
                    line.push(key);
                    said.push(key);
                }
            }
        }
        // A guest writes in pieces as they come.
        for piece in said.chunks(1000) {
            if socket.send(Message::Binary(piece.to_vec().into())).await.is_err() {
                return;
            }
        }
    }
}

fn answer(line: &[u8], name: &str) -> String {
    let mut text = "\r\n".to_owned();
    if line.ends_with(b"flood") {
        for number in 0..FLOOD {
            text += &format!("line {number}\r\n");
        }
    }
    text + name + " login: "
}
