//! A fake oVirt engine: the REST API of version 4 over TLS on the loopback, with the engine's rules and faults.
//!
//! It is written from oVirt's sources, and compared with oVirt's SDK (`tests/it/ovirt_sdk.rs`). It shares
//! nothing with the client. It cannot show a real engine's timing or what vdsm writes for a guest; see README.md.
//!
//! ```ignore
//! let engine = FakeEngine::start();
//! // engine.url (ends in /ovirt-engine), engine.ca_pem, engine.user, engine.password
//! // A fresh site: cluster `Default`, storage `data` and `slow`, networks and vNIC profiles `ovirtmgmt`, `filtered`
//! // and `plain`, hosts `host-1` and `host-2`, templates `centos` (10 GiB) and `rhcos` (16 GiB).
//! engine.edit(|world| world.version = [4, 3, 10]);             // anything can be changed directly
//! engine.edit(|world| { world.put_vm("stranger"); });
//! engine.guest("52:54:00:00:00:01", Guest { gets_none: true, ..Guest::default() });
//! engine.fault(Fault::on("POST", "/vms").times(2));            // 409, related operation in progress
//! engine.fault(Fault::on("GET", "/vms").what(What::Html(503)));
//! engine.fault(Fault::on("POST", "/vms/*/start").what(What::LostAnswer));
//! engine.advance(Duration::from_secs(60));                     // each request also takes `world.tick`
//! engine.boots();                                              // the configuration of each started guest
//! engine.look(|world| world.vms.len());
//! ```
//!
//! Dropping it fails the test if the engine got an unknown request, or if a fault never happened.

#![allow(dead_code, reason = "each test file uses its part")]

mod around;
mod control;
mod devices;
mod entities;
mod faults;
mod groups;
mod guests;
mod http;
mod imageio;
mod images;
mod init;
mod routes;
mod search;
mod shapes;
mod show;
mod site;
mod snapshots;
mod sso;
mod vms;
mod world;
mod xml;

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[allow(unused_imports, reason = "each test file uses its part")]
pub use self::{
    faults::{Fault, Refusal, What},
    guests::{Boot, Dhcp, Given, Guest},
    http::Request,
    snapshots::Snapshot,
    world::*,
    xml::paths,
};
use faults::Outcome;
use http::{Answer, Tls};
use shapes::Shape;
use xml::Node;

/// How long a command without a lock takes, in real time.
const RACE: Duration = Duration::from_millis(20);

/// A running engine. Its threads end with the process.
pub struct FakeEngine {
    /// `https://127.0.0.1:PORT/ovirt-engine`
    pub url: String,
    /// Of the CA that signed its certificate, and of nothing else.
    pub ca_pem: String,
    pub user: String,
    pub password: String,
    tls: Tls,
    world: Arc<Mutex<World>>,
}

impl FakeEngine {
    /// Starts an engine with a fresh site (see `World::site`).
    pub fn start() -> Self {
        Self::with(|_| ())
    }

    /// Starts an engine with a site that is changed first.
    pub fn with(change: impl FnOnce(&mut World)) -> Self {
        let (listener, tls) = (TcpListener::bind("127.0.0.1:0").unwrap(), Tls::fresh());
        let origin = format!("https://{}", listener.local_addr().unwrap());
        let mut world = World::site();
        world.origin.clone_from(&origin);
        world.ca_pem.clone_from(&tls.ca_pem);
        change(&mut world);
        let (user, password) = (sso::USER.to_owned(), world.password.clone());
        let world = Arc::new(Mutex::new(world));
        let served = world.clone();
        http::serve(listener, &tls, move |request| {
            let seen = lock(&served).sees(&request);
            if seen.is_some() {
                // Parallel requests run between its read and its write.
                std::thread::sleep(RACE);
            }
            let mut world = lock(&served);
            world.seen = seen;
            let answer = serve(&mut world, request);
            world.seen = None;
            answer
        });
        Self {
            url: format!("{origin}/ovirt-engine"),
            ca_pem: tls.ca_pem.clone(),
            user,
            password,
            tls,
            world,
        }
    }

    /// From now on, the real daemon receives image data; `program` is an installed `ovirt-imageio`.
    pub fn start_imageio(&self, program: &Path) {
        let daemon = imageio::Daemon::start(program, &self.tls);
        self.edit(|world| world.imageio = Some(daemon));
    }

    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&lock(&self.world))
    }

    pub fn edit<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut lock(&self.world))
    }

    pub fn advance(&self, time: Duration) {
        self.edit(|world| world.advance(time.as_millis() as Instant));
    }

    pub fn fault(&self, fault: Fault) {
        self.edit(|world| world.faults.push(fault));
    }

    /// Sets the behavior of the guest with a MAC.
    pub fn guest(&self, mac: &str, guest: Guest) {
        self.edit(|world| world.guests.insert(mac.to_lowercase(), guest));
    }

    pub fn boots(&self) -> Vec<Boot> {
        self.look(|world| world.boots.clone())
    }

    /// The last start of a machine.
    pub fn last_boot(&self, name: &str) -> Option<Boot> {
        self.look(|world| world.boots.iter().rev().find(|boot| boot.name == name).cloned())
    }

    /// One request of another administrator without TLS and session; returns status and body. It is not recorded.
    pub fn ask(&self, method: &str, target: &str, body: &str) -> (u16, String) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = Request {
            method: method.to_owned(),
            path: format!("{}{path}", show::API),
            query: http::form(query),
            headers: [("content-type".to_owned(), "application/xml".to_owned())].into(),
            body: body.as_bytes().to_vec(),
        };
        let answer = self.edit(|world| {
            world.advance(world.tick);
            world.answer(&request)
        });
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// All requests so far, those of sessions and, without their bytes, of image data included.
    pub fn requests(&self) -> Vec<Request> {
        self.look(|world| world.requests.clone())
    }

    /// The same as other programs read them (`tests/ovirt/echo.py`).
    pub fn recorded(&self) -> serde_json::Value {
        self.look(|world| world.requests.iter().map(control::recorded).collect())
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        let (surprises, faults) = self.edit(|world| {
            world.imageio = None;
            (std::mem::take(&mut world.surprises), std::mem::take(&mut world.faults))
        });
        if std::thread::panicking() {
            return;
        }
        assert!(surprises.is_empty(), "the engine got unknown requests: {surprises:?}");
        let unused: Vec<_> = faults.iter().filter(|fault| fault.times > 0).collect();
        assert!(unused.is_empty(), "these faults never happened: {unused:?}");
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    // A test that panicked while it held the lock has already failed.
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one request: image data, sessions, test control, then the API with its faults.
fn serve(world: &mut World, request: Request) -> Answer {
    if request.path.starts_with("/control/") {
        return control::serve(world, &request);
    }
    let images = request.path.strip_prefix("/proxied").unwrap_or(&request.path);
    world.requests.push(match images.starts_with("/images/") {
        true => Request {
            body: Vec::new(),
            ..request.clone()
        },
        false => request.clone(),
    });
    let what = take_fault(world, &request);
    match what {
        Some(What::Refuse(refusal)) => {
            let is_action = request.method == "POST" && request.path.matches('/').count() > 4;
            return refusal.answer(is_action && !COLLECTIONS_BELOW.iter().any(|name| request.path.ends_with(name)));
        }
        Some(What::Html(status)) => return faults::html(status, "Service Temporarily Unavailable"),
        Some(What::Later(status, seconds)) => {
            let answer = faults::html(status, "Service Temporarily Unavailable");
            return answer.header("Retry-After", seconds.to_string());
        }
        Some(What::Expired) => world.tokens.clear(),
        Some(What::LostRequest) => {
            return Answer {
                is_lost: true,
                ..Answer::new(0, "", "")
            };
        }
        Some(What::LostAnswer | What::HalfAnswer) | None => {}
    }
    let answer = match images.strip_prefix("/images/") {
        Some(ticket) => world.image_data(ticket, &request),
        None if request.path.starts_with("/ovirt-engine/api") => {
            let tick = world.tick;
            world.advance(tick);
            match world.authorize(&request) {
                Ok(()) => world.answer(&request),
                Err(refused) => refused,
            }
        }
        None => world.session(&request),
    };
    Answer {
        is_lost: matches!(what, Some(What::LostAnswer)),
        is_cut: matches!(what, Some(What::HalfAnswer)),
        ..answer
    }
}

/// Collections below an entity, whose POST creates something and is not an action.
const COLLECTIONS_BELOW: &[&str] = &["/nics", "/diskattachments", "/tags", "/affinitygroups", "/vms"];

fn take_fault(world: &mut World, request: &Request) -> Option<What> {
    let fits = |fault: &&mut Fault| fault.times > 0 && fault.matches(&request.method, &request.path);
    let fault = world.faults.iter_mut().find(fits)?;
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    fault.times -= 1;
    Some(fault.what.clone())
}

/// A request's document; unknown elements are rejected.
fn read(request: &Request, name: &str, shape: Shape, usage: &str) -> Outcome<Node> {
    let Some(body) = xml::parse(&request.body).filter(|body| body.name == name) else {
        return Err(Refusal::syntax(usage, name));
    };
    match shapes::unknown(&body, shape) {
        Some(sandbox) => Err(Refusal::syntax(usage, &sandbox)),
        None => Ok(body),
    }
}

/// A malformed id is another error than a missing entity.
fn check_guid(id: &str) -> Outcome<()> {
    let is_guid = id.len() == 36
        && id
            .chars()
            .all(|character| character.is_ascii_hexdigit() || character == '-');
    match is_guid {
        true => Ok(()),
        false => Err(Refusal::Fault {
            status: 400,
            reason: "Operation failed",
            detail: format!("Invalid UUID string: {id}"),
        }),
    }
}
