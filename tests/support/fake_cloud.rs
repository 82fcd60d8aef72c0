//! A fake cloud for faults that real services do not show on demand: it answers few requests, and fails
//! the test after an unknown request. Everything else is tested with the real services.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Response, header};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

#[path = "fake_cloud_balancers.rs"]
mod balancers;
#[path = "fake_cloud_ports.rs"]
mod ports;
#[path = "fake_cloud_projects.rs"]
mod projects;
#[path = "fake_cloud_stores.rs"]
mod stores;

pub use balancers::Octavia;

pub use ports::ipv6_subnet;
pub use projects::THEIRS;
pub use stores::{ACCOUNT, Stores};

/// The fault of the next answer to a request.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Another answer; the operation is not done.
    Status(u16, Value),
    /// As `Status`, with a Retry-After in seconds.
    Later(u16, u32),
    /// The operation is done, but the answer is cut off.
    Half,
    /// The operation is done after this time.
    Slow(Duration),
    /// The token is no longer known.
    Expired,
    /// No fault: the next request has the next fault.
    None,
}

#[derive(Default)]
pub struct World {
    /// By the beginning of `METHOD /path`.
    troubles: BTreeMap<String, VecDeque<Trouble>>,
    /// Answers to `GET` of a path, in place of the usual ones.
    pub answers: BTreeMap<String, Value>,
    /// Lists contain everything, whatever their filters, as Contrail's Neutron does with most filters
    /// (tungstenfabric/tf-controller: neutron_plugin_db.py: port_list, floatingip_list, security_group_list).
    pub ignores_filters: bool,
    /// The user is an administrator, to whom some services list the objects of all projects.
    pub is_admin: bool,
    /// Service types missing in the catalog.
    pub lacking: Vec<&'static str>,
    pub ports: Vec<Value>,
    /// Ports that others create immediately before our first one.
    pub others_ports: Vec<Value>,
    pub neutron: ports::Ports,
    pub stores: Stores,
    pub octavia: Octavia,
    /// Service types beyond the usual ones.
    pub more: Vec<&'static str>,
    /// Where services are, other than here.
    pub elsewhere: BTreeMap<&'static str, &'static str>,
    /// The status of all responses of Cinder, Swift and Octavia.
    pub optional_fail: Option<u16>,
    /// The roles of the user in the project; `member` if empty.
    pub roles: Vec<&'static str>,
    /// How long tokens live, seconds.
    pub lifetime: Option<i64>,
    /// Tokens are numbered; those up to `ended` are no longer known.
    pub tokens: usize,
    /// Those that were revoked.
    pub revoked: Vec<usize>,
    ended: usize,
    log: Vec<String>,
    unknown: Vec<String>,
}

pub struct FakeCloud {
    world: Arc<Mutex<World>>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

pub const PASSWORD: &str = "hunter2-of-the-cloud";

impl FakeCloud {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(async { tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap() });
        let address = listener.local_addr().unwrap();
        let world = Arc::new(Mutex::new(World::default()));
        let served = world.clone();
        runtime.spawn(async move {
            let app = Router::new().fallback(move |request| handle(served.clone(), address, request));
            axum::serve(listener, app).await.unwrap();
        });
        Self {
            world,
            address,
            runtime: Some(runtime),
        }
    }

    pub fn auth_url(&self) -> String {
        format!("http://{}/identity/v3", self.address)
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.world.lock().unwrap())
    }

    /// The faults of the next requests that start with this text.
    pub fn trouble(&self, request: &str, troubles: impl IntoIterator<Item = Trouble>) {
        self.with(|world| world.troubles.entry(request.to_owned()).or_default().extend(troubles));
    }

    /// The number of requests that start with this text.
    pub fn asked(&self, request: &str) -> usize {
        self.with(|world| world.log.iter().filter(|line| line.starts_with(request)).count())
    }

    #[track_caller]
    pub fn was_asked_well(&self) {
        self.with(|world| assert_eq!(world.unknown, [""; 0], "the cloud got unknown requests"));
    }

    /// Ends it; fails if a fault was never used or a request was unknown.
    #[track_caller]
    pub fn finish(mut self) -> World {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
        self.was_asked_well();
        let world = std::mem::take(&mut *self.world.lock().unwrap());
        let unmet: Vec<_> = world.troubles.iter().filter(|(_, queue)| !queue.is_empty()).collect();
        assert!(unmet.is_empty(), "not requested: {unmet:?}\n{}", world.log.join("\n"));
        world
    }
}

async fn handle(world: Arc<Mutex<World>>, address: SocketAddr, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let query: Vec<(String, String)> = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(pair)
        .collect();
    let line = format!("{} {path}", parts.method);
    let token = parts.headers.get("x-auth-token").and_then(|value| value.to_str().ok());
    let trouble = {
        let mut world = world.lock().unwrap();
        world.log.push(line.clone());
        let queue = world
            .troubles
            .iter_mut()
            .find(|(begin, queue)| line.starts_with(*begin) && !queue.is_empty());
        queue.and_then(|(_, queue)| queue.pop_front())
    };
    match &trouble {
        Some(Trouble::Status(status, body)) => return reply(*status, body),
        Some(Trouble::Later(status, seconds)) => {
            let mut response = reply(*status, &json!({"error": "later"}));
            response.headers_mut().insert(header::RETRY_AFTER, (*seconds).into());
            return response;
        }
        Some(Trouble::Slow(pause)) => tokio::time::sleep(*pause).await,
        Some(Trouble::Expired) => {
            let mut world = world.lock().unwrap();
            world.ended = world.tokens;
        }
        Some(Trouble::Half | Trouble::None) | None => {}
    }
    let answer = {
        let mut world = world.lock().unwrap();
        world.answer(&parts.method, &path, &query, &body, (token, &parts.headers), address)
    };
    match trouble {
        Some(Trouble::Half) => {
            let first = Ok(Bytes::from_static(b"{\"port\": {\"id\": \"p"));
            // The first part is sent before the rest fails.
            let cut = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Err(io::ErrorKind::ConnectionReset.into())
            };
            let body = futures::stream::iter([first as io::Result<Bytes>]).chain(futures::stream::once(cut));
            let body = Body::from_stream(body);
            Response::builder().body(body).unwrap()
        }
        _ => answer,
    }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let value = value
        .replace("%3A", ":")
        .replace("%20", " ")
        .replace("%2C", ",")
        .replace("%24", "$");
    Some((name.to_owned(), value.replace("%5E", "^")))
}

fn reply(status: u16, body: &Value) -> Response<Body> {
    let body = match body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(body)
        .unwrap()
}

impl World {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: &[(String, String)],
        body: &[u8],
        (token, headers): (Option<&str>, &HeaderMap),
        address: SocketAddr,
    ) -> Response<Body> {
        let bytes = body;
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if path == "/identity/v3/auth/tokens" && method == Method::POST {
            return self.sign_in(&body, address);
        }
        let number = token.and_then(|token| token.strip_prefix("token-")?.parse().ok());
        // A temporary URL requires no token.
        let is_signed = query.iter().any(|(key, _)| key == "temp_url_sig");
        let is_known =
            |number: &usize| *number > self.ended && *number <= self.tokens && !self.revoked.contains(number);
        if !is_signed && !number.as_ref().is_some_and(is_known) {
            return reply(
                401,
                &json!({"error": {"code": 401, "message": "The request you have made requires authentication."}}),
            );
        }
        // openstack/keystone: keystone/api/auth.py: AuthTokenResource.delete
        if path == "/identity/v3/auth/tokens" && method == Method::DELETE {
            let subject = headers.get("x-subject-token").and_then(|value| value.to_str().ok());
            let subject: Option<usize> = subject.and_then(|token| token.strip_prefix("token-")?.parse().ok());
            self.revoked.extend(subject);
            return reply(if subject.is_some() { 204 } else { 404 }, &Value::Null);
        }
        let optional = ["/volume/", "/object/", "/load-balancer/"];
        if let Some(status) = self
            .optional_fail
            .filter(|_| optional.iter().any(|service| path.starts_with(service)))
        {
            return reply(
                status,
                &json!({"error": {"code": status, "message": "it does not work"}}),
            );
        }
        let query = match self.ignores_filters && method == Method::GET && !is_signed {
            true => &[],
            false => query,
        };
        let is_admin = self.is_admin;
        let show = |answer: Value| projects::show(answer, is_admin, query);
        if let Some(answer) = self.answers.get(path).filter(|_| method == Method::GET) {
            let mut answer = answer.clone();
            for list in answer
                .as_object_mut()
                .into_iter()
                .flat_map(|object| object.values_mut())
            {
                if let Value::Array(all) = list {
                    *all = filter(all, query);
                }
            }
            return reply(200, &show(answer));
        }
        let answer = |stores: &mut Stores, ports: &mut [Value]| {
            stores.answer((method.as_str(), path), query, bytes, headers, ports)
        };
        if let Some((status, body)) = answer(&mut self.stores, &mut self.ports) {
            let mut response = reply(status, &show(body));
            if let Some(key) = self.stores.key_of(path) {
                response.headers_mut().insert("x-container-meta-temp-url-key", key);
            }
            return response;
        }
        let others = (&mut self.ports, &mut self.others_ports);
        if let Some((status, body)) = self.neutron.answer((method.as_str(), path), query, &body, others) {
            return reply(status, &show(body));
        }
        if let Some((status, body)) = self
            .octavia
            .answer((method.as_str(), path), query, &body, &mut self.ports)
        {
            return reply(status, &show(body));
        }
        let value = match (method.as_str(), path) {
            ("GET", "/compute/v2.1/") => json!({"version": {"id": "v2.1", "min_version": "2.1", "version": "2.93"}}),
            ("GET", "/compute/v2.1/flavors/detail") => json!({"flavors": [flavor("small", 4, 16384, 120)]}),
            // openstack/nova: nova/policies/hypervisors.py, nova/api/openstack/compute/hypervisors.py
            ("GET", "/compute/v2.1/os-hypervisors/detail") if !is_admin => {
                let message = "Policy doesn't allow os_compute_api:os-hypervisors:list-detail to be performed.";
                return reply(403, &json!({"forbidden": {"code": 403, "message": message}}));
            }
            ("GET", "/compute/v2.1/os-hypervisors/detail") => json!({"hypervisors": [
                {"id": "h-1", "hypervisor_hostname": "compute-1", "cpu_info": {"arch": "x86_64", "model": "Nehalem"}},
                {"id": "h-2", "hypervisor_hostname": "metal-1", "cpu_info": {}},
            ]}),
            ("GET", "/compute/v2.1/limits") => json!({"limits": {"absolute": {
                "maxTotalCores": 100, "totalCoresUsed": 0, "maxTotalInstances": 20, "totalInstancesUsed": 0,
                "maxTotalRAMSize": -1, "totalRAMUsed": 0, "maxServerGroupMembers": 10,
            }}}),
            ("GET", "/network/v2.0/quotas/project-1/details.json") => json!({"quota": {
                "port": {"limit": 50, "used": 0, "reserved": 0}, "security_group": {"limit": 10, "used": 1, "reserved": 0},
                "security_group_rule": {"limit": 100, "used": 4, "reserved": 0},
            }}),
            _ => {
                self.unknown.push(format!("{method} {path} {query:?}"));
                return reply(599, &json!({"error": "unknown"}));
            }
        };
        reply(200, &value)
    }

    fn sign_in(&mut self, body: &Value, address: SocketAddr) -> Response<Body> {
        let auth = &body["auth"];
        let password = &auth["identity"]["password"]["user"]["password"];
        let secret = &auth["identity"]["application_credential"]["secret"];
        let scoped = auth.get("scope").is_some();
        let fault = |message: &str| {
            reply(
                401,
                &json!({"error": {"code": 401, "message": message, "title": "Unauthorized"}}),
            )
        };
        match (password == PASSWORD, secret == PASSWORD, scoped) {
            (true, _, true) | (_, true, false) => {}
            (_, true, true) => return fault("Application credentials cannot request a scope."),
            _ => return fault("The request you have made requires authentication."),
        }
        self.tokens += 1;
        let services = [
            ("compute", "/compute/v2.1"),
            ("network", "/network"),
            ("image", "/image"),
            ("identity", "/identity"),
            ("volumev3", "/volume/v3"),
            ("object-store", ACCOUNT),
            ("load-balancer", balancers::ENDPOINT),
        ];
        let optional = ["volumev3", "object-store", "load-balancer"];
        let beyond = |kind: &str| optional.contains(&kind) && !self.more.contains(&kind);
        let services = services
            .iter()
            .filter(|(kind, _)| !self.lacking.contains(kind) && !beyond(kind));
        let entry = |(kind, path): &(&str, &str)| {
            let url = match self.elsewhere.get(kind) {
                Some(elsewhere) => (*elsewhere).to_owned(),
                None => format!("http://{address}{path}"),
            };
            json!({"type": kind, "endpoints": [
                {"interface": "internal", "region": "one", "region_id": "one", "url": "http://127.0.0.1:1/"},
                {"interface": "public", "region": "one", "region_id": "one", "url": url},
            ]})
        };
        let roles = if self.roles.is_empty() {
            vec!["member"]
        } else {
            self.roles.clone()
        };
        let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(self.lifetime.unwrap_or(3600));
        let token = json!({"token": {
            "expires_at": expires.to_string(),
            "project": {"id": projects::OURS, "name": "demo"},
            "roles": roles.iter().map(|name| json!({"id": name, "name": name})).collect::<Vec<_>>(),
            "catalog": services.map(entry).collect::<Vec<_>>(),
        }});
        let mut response = reply(201, &token);
        let value = format!("token-{}", self.tokens).parse().unwrap();
        response.headers_mut().insert("x-subject-token", value);
        response
    }
}

pub fn flavor(name: &str, cpus: u32, memory_mib: u32, disk_gib: u32) -> Value {
    json!({"id": format!("id-{name}"), "name": name, "vcpus": cpus, "ram": memory_mib, "disk": disk_gib,
           "OS-FLV-EXT-DATA:ephemeral": 0})
}

/// Neutron's filters: a name may be repeated, and any value matches. Objects without the field match. Projects are
/// compared by `projects::show`.
fn filter(all: &[Value], query: &[(String, String)]) -> Vec<Value> {
    let fits = |one: &&Value| {
        let mut known = query
            .iter()
            .filter(|(name, _)| name != "fields" && name != "project_id" && one.get(name).is_some());
        known.all(|(name, _)| {
            let mut values = query.iter().filter(|(other, _)| other == name);
            values.any(|(_, value)| match &one[name] {
                Value::Number(number) => number.to_string() == *value,
                other => other == value.as_str(),
            })
        })
    };
    all.iter().filter(fits).cloned().collect()
}
