//! Octavia of the fake cloud: load balancers allow one change at a time, as the real API requires.
//!
//! Sources (openstack/octavia): octavia/api/root_controller.py (versions, /v2 and /v2.0), octavia/api/v2/controllers
//! (order of checks, status codes), octavia/common/exceptions.py (faults), octavia/policies/base.py (roles),
//! octavia/network/drivers/neutron/allowed_address_pairs.py (ports of VIPs); openstack/ovn-octavia-provider:
//! ovn_octavia_provider/driver.py (what OVN refuses), helper.py (ports of VIPs).

use serde_json::{Value, json};

use super::stores::Answer;

/// Where it is, without a version.
pub const ENDPOINT: &str = "/load-balancer";

pub struct Octavia {
    pub load_balancers: Vec<Value>,
    pub listeners: Vec<Value>,
    pub pools: Vec<Value>,
    pub monitors: Vec<Value>,
    /// The provider of a load balancer that names none.
    pub provider: &'static str,
    /// The newest version of its API.
    pub version: u32,
    /// How often a load balancer is queried until a change of it is done.
    pub slowness: u32,
    /// The user's role: without one, nothing is allowed; an observer may read.
    pub role: Option<&'static str>,
    /// -1 is unlimited.
    pub quota: i64,
    /// Load balancers of these names fail in their next change.
    pub failing: Vec<&'static str>,
    /// How often a change was rejected because another one was not complete.
    pub refused: usize,
    made: usize,
}

impl Default for Octavia {
    fn default() -> Self {
        Self {
            load_balancers: Vec::new(),
            listeners: Vec::new(),
            pools: Vec::new(),
            monitors: Vec::new(),
            provider: "amphora",
            version: 26,
            slowness: 0,
            role: Some("load-balancer_member"),
            quota: -1,
            failing: Vec::new(),
            refused: 0,
            made: 0,
        }
    }
}

/// WSME's form.
fn fault(status: u16, message: &str) -> Answer {
    (
        status,
        json!({"debuginfo": null, "faultcode": "Client", "faultstring": message}),
    )
}

fn not_found(kind: &str, id: &str) -> Answer {
    fault(404, &format!("{kind} {id} not found."))
}

fn ids(all: &[Value], key: &str, id: &str) -> Vec<Value> {
    let of = all.iter().filter(|one| one[key] == id);
    of.map(|one| json!({"id": one["id"]})).collect()
}

fn find<'a>(all: &'a [Value], id: &str) -> Option<&'a Value> {
    all.iter().find(|one| one["id"] == id)
}

impl Octavia {
    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}", self.made)
    }

    /// A load balancer as it is shown.
    fn shown(&self, balancer: &Value) -> Value {
        let id = balancer["id"].as_str().unwrap();
        let mut shown = balancer.clone();
        shown.as_object_mut().unwrap().remove("looks");
        shown["listeners"] = json!(ids(&self.listeners, "of", id));
        shown["pools"] = json!(ids(&self.pools, "of", id));
        shown
    }

    /// The parts of a load balancer with their statuses.
    fn tree(&self, balancer: &Value) -> Value {
        let status = |part: &Value| {
            json!({"id": part["id"], "name": part["name"], "provisioning_status": part["provisioning_status"],
                "operating_status": part["operating_status"]})
        };
        let listeners = self
            .listeners
            .iter()
            .filter(|listener| listener["of"] == balancer["id"]);
        let listeners = listeners.map(|listener| {
            let pools = self
                .pools
                .iter()
                .filter(|pool| pool["id"] == listener["default_pool_id"]);
            let mut tree = status(listener);
            tree["pools"] = pools.map(status).collect();
            tree
        });
        let listeners: Vec<_> = listeners.collect();
        let mut tree = status(balancer);
        tree["listeners"] = json!(listeners);
        tree
    }

    /// Each query of a load balancer lets time pass.
    fn go_on(&mut self, id: &str, ports: &mut Vec<Value>) {
        let Some(at) = self.load_balancers.iter().position(|balancer| balancer["id"] == id) else {
            return;
        };
        let balancer = &mut self.load_balancers[at];
        let status = balancer["provisioning_status"].as_str().unwrap().to_owned();
        let looks = balancer["looks"].as_u64().unwrap_or_default();
        if !status.starts_with("PENDING_") || looks > 0 {
            balancer["looks"] = json!(looks.saturating_sub(1));
            return;
        }
        let name = balancer["name"].as_str().unwrap().to_owned();
        let fails = self.failing.iter().position(|failing| *failing == name);
        match (fails, status.as_str()) {
            (Some(at), _) => {
                self.failing.remove(at);
                balancer["provisioning_status"] = json!("ERROR");
            }
            (None, "PENDING_DELETE") => {
                let port = balancer["vip_port_id"].clone();
                ports.retain(|one| one["id"] != port);
                self.load_balancers.remove(at);
                let gone: Vec<_> = self.pools.iter().filter(|pool| pool["of"] == id).cloned().collect();
                self.listeners.retain(|listener| listener["of"] != id);
                self.pools.retain(|pool| pool["of"] != id);
                self.monitors
                    .retain(|monitor| gone.iter().all(|pool| pool["id"] != monitor["pool_id"]));
            }
            (None, _) => {
                balancer["provisioning_status"] = json!("ACTIVE");
                balancer["operating_status"] = json!("ONLINE");
            }
        }
    }

    /// Starts a change; rejected during another change, and after a failure.
    fn begin(&mut self, id: &str, what: &str) -> Result<(), Answer> {
        let slowness = self.slowness;
        let balancer = self.load_balancers.iter_mut().find(|balancer| balancer["id"] == id);
        let balancer = balancer.ok_or_else(|| not_found("Load Balancer", id))?;
        let status = balancer["provisioning_status"].as_str().unwrap().to_owned();
        let is_mutable = match what {
            "PENDING_DELETE" => matches!(status.as_str(), "ACTIVE" | "ERROR"),
            _ => status == "ACTIVE",
        };
        if !is_mutable {
            self.refused += 1;
            return Err(match what {
                "PENDING_DELETE" => fault(409, &format!("Invalid state {status} of loadbalancer resource {id}")),
                _ => fault(409, &format!("Load Balancer {id} is immutable and cannot be updated.")),
            });
        }
        balancer["provisioning_status"] = json!(what);
        balancer["looks"] = json!(slowness);
        Ok(())
    }

    pub fn answer(
        &mut self,
        (method, path): (&str, &str),
        query: &[(String, String)],
        body: &Value,
        ports: &mut Vec<Value>,
    ) -> Option<Answer> {
        let rest = path.strip_prefix(ENDPOINT)?;
        if rest == "/" && method == "GET" {
            let version = |minor| json!({"id": format!("v2.{minor}"), "status": "SUPPORTED", "links": []});
            let versions: Vec<_> = (0..=self.version).map(version).collect();
            return Some((200, json!({"versions": versions})));
        }
        let rest = rest.strip_prefix("/v2.0/lbaas/").or(rest.strip_prefix("/v2/lbaas/"))?;
        let reads = method == "GET";
        if self.role.is_none_or(|role| role == "load-balancer_observer" && !reads) {
            return Some(fault(403, "Policy does not allow this request to be performed."));
        }
        let parts: Vec<_> = rest.split('/').collect();
        let answer = match (method, parts.as_slice()) {
            ("GET", ["providers"]) => Ok((
                200,
                json!({"providers": [{"name": "amphora", "description": ""}, {"name": "octavia", "description": ""},
                    {"name": "ovn", "description": ""}]}),
            )),
            ("GET", ["quotas", _]) => Ok((
                200,
                json!({"quota": {"load_balancer": self.quota, "loadbalancer": self.quota, "listener": -1, "pool": -1,
                    "member": -1, "health_monitor": -1, "healthmonitor": -1}}),
            )),
            ("GET", ["loadbalancers"]) => {
                let tags = query.iter().find(|(key, _)| key == "tags");
                let has_tags = |balancer: &&Value| {
                    let there = balancer["tags"].as_array().unwrap();
                    tags.is_none_or(|(_, tags)| tags.split(',').all(|tag| there.iter().any(|one| one == tag)))
                };
                let listed: Vec<_> = self
                    .load_balancers
                    .iter()
                    .filter(has_tags)
                    .map(|one| self.shown(one))
                    .collect();
                Ok((200, json!({"loadbalancers": listed, "loadbalancers_links": []})))
            }
            ("GET", ["listeners"]) => Ok((200, json!({"listeners": self.listeners, "listeners_links": []}))),
            ("GET", ["pools"]) => Ok((200, json!({"pools": self.pools, "pools_links": []}))),
            ("GET", ["healthmonitors"]) => Ok((200, json!({"healthmonitors": self.monitors}))),
            ("POST", ["loadbalancers"]) => self.new_balancer(&body["loadbalancer"], ports),
            ("GET", ["loadbalancers", id]) => {
                self.go_on(id, ports);
                match find(&self.load_balancers, id) {
                    Some(balancer) => Ok((200, json!({"loadbalancer": self.shown(balancer)}))),
                    None => Err(not_found("Load Balancer", id)),
                }
            }
            ("GET", ["loadbalancers", id, "status"]) => match find(&self.load_balancers, id) {
                Some(balancer) => Ok((200, json!({"statuses": {"loadbalancer": self.tree(balancer)}}))),
                None => Err(not_found("Load Balancer", id)),
            },
            ("DELETE", ["loadbalancers", id]) => {
                let cascade = query.iter().any(|(key, value)| key == "cascade" && value == "true");
                let has_children = self.listeners.iter().chain(&self.pools).any(|part| part["of"] == *id);
                match has_children && !cascade {
                    true => Err(fault(
                        400,
                        &format!("Validation failure: Cannot delete Load Balancer {id} - it has children"),
                    )),
                    false => self.begin(id, "PENDING_DELETE").map(|()| (204, Value::Null)),
                }
            }
            ("POST", ["listeners"]) => self.new_listener(&body["listener"]),
            ("GET", ["listeners", id]) => match find(&self.listeners, id) {
                Some(listener) => Ok((200, json!({"listener": listener}))),
                None => Err(not_found("Listener", id)),
            },
            ("PUT", ["listeners", id]) => self.change_listener(id, &body["listener"]),
            ("POST", ["pools"]) => self.new_pool(&body["pool"]),
            ("GET", ["pools", id]) => match find(&self.pools, id) {
                Some(pool) => Ok((200, json!({"pool": pool}))),
                None => Err(not_found("Pool", id)),
            },
            ("GET", ["pools", id, "members"]) => match find(&self.pools, id) {
                Some(pool) => Ok((200, json!({"members": pool["its members"], "members_links": []}))),
                None => Err(not_found("Pool", id)),
            },
            ("PUT", ["pools", id, "members"]) => self.set_members(id, body["members"].as_array()?),
            ("POST", ["healthmonitors"]) => self.new_monitor(&body["healthmonitor"]),
            _ => return None,
        };
        Some(answer.unwrap_or_else(|refusal| refusal))
    }

    fn new_balancer(&mut self, wanted: &Value, ports: &mut Vec<Value>) -> Result<Answer, Answer> {
        if wanted["vip_subnet_id"] != "sub-1" {
            let message = "Validation failure: VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.";
            return Err(fault(400, message));
        }
        let provider = wanted["provider"].as_str().unwrap_or(self.provider);
        if !["amphora", "ovn", "other"].contains(&provider) {
            return Err(fault(400, &format!("Provider '{provider}' is not enabled.")));
        }
        if self.quota >= 0 && usize::try_from(self.quota).unwrap() <= self.load_balancers.len() {
            return Err(fault(403, "Quota has been met for resources: Load Balancer"));
        }
        let taken = |ip: &str| ports.iter().any(|port| port["fixed_ips"][0]["ip_address"] == ip);
        let ip = match wanted["vip_address"].as_str() {
            Some(ip) if taken(ip) => {
                let message = format!("IP address {ip} already allocated in subnet sub-1");
                return Err(fault(409, &message));
            }
            Some(ip) => ip.to_owned(),
            None => (200..)
                .map(|last| format!("10.20.0.{last}"))
                .find(|ip| !taken(ip))
                .unwrap(),
        };
        let id = self.id("lb");
        let port_id = format!("vip-of-{id}");
        let (name, owner, device) = match provider {
            "ovn" => (format!("ovn-lb-vip-{id}"), "", String::new()),
            _ => (format!("octavia-lb-{id}"), "Octavia", format!("lb-{id}")),
        };
        ports.push(
            json!({"id": port_id, "name": name, "description": "", "network_id": "net-1",
            "mac_address": format!("fa:16:3e:00:01:{:02x}", self.made), "device_owner": owner, "device_id": device,
            "fixed_ips": [{"subnet_id": "sub-1", "ip_address": ip}]}),
        );
        let balancer = json!({"id": id, "name": wanted["name"], "description": wanted["description"],
            "tags": wanted["tags"].as_array().cloned().unwrap_or_default(), "provider": provider,
            "provisioning_status": "PENDING_CREATE", "operating_status": "OFFLINE", "vip_address": ip,
            "vip_port_id": port_id, "vip_subnet_id": "sub-1", "vip_network_id": "net-1", "project_id": "project-1",
            "looks": self.slowness});
        self.load_balancers.push(balancer.clone());
        Ok((201, json!({"loadbalancer": self.shown(&balancer)})))
    }

    fn provider_of(&self, id: &str) -> String {
        let balancer = find(&self.load_balancers, id);
        balancer.map_or(String::new(), |balancer| {
            balancer["provider"].as_str().unwrap().to_owned()
        })
    }

    fn unsupported(&self, id: &str, what: &str) -> Answer {
        let provider = self.provider_of(id);
        fault(
            501,
            &format!("Provider '{provider}' does not support a requested option: {what}"),
        )
    }

    fn refuse_cidrs(&self, id: &str, listener: &Value) -> Result<(), Answer> {
        let has_cidrs = listener["allowed_cidrs"]
            .as_array()
            .is_some_and(|cidrs| !cidrs.is_empty());
        match has_cidrs && self.provider_of(id) != "amphora" {
            true => Err(self.unsupported(id, "OVN provider does not support allowed_cidrs option")),
            false => Ok(()),
        }
    }

    fn new_listener(&mut self, wanted: &Value) -> Result<Answer, Answer> {
        let of = wanted["loadbalancer_id"].as_str().unwrap_or_default().to_owned();
        if find(&self.load_balancers, &of).is_none() {
            return Err(not_found("Load Balancer", &of));
        }
        let port = &wanted["protocol_port"];
        let is_there = |one: &Value| one["of"] == of.as_str() && one["protocol_port"] == *port;
        if self.listeners.iter().any(is_there) {
            return Err(fault(
                409,
                &format!(
                    "Another Listener on this Load Balancer is already using protocol TCP and protocol_port {port}"
                ),
            ));
        }
        self.refuse_cidrs(&of, wanted)?;
        self.begin(&of, "PENDING_UPDATE")?;
        let mut listener = wanted.clone();
        listener["id"] = json!(self.id("listener"));
        listener["of"] = json!(of);
        listener["loadbalancers"] = json!([{"id": of}]);
        listener["default_pool_id"] = Value::Null;
        listener["provisioning_status"] = json!("ACTIVE");
        self.listeners.push(listener.clone());
        Ok((201, json!({"listener": listener})))
    }

    fn change_listener(&mut self, id: &str, wanted: &Value) -> Result<Answer, Answer> {
        let listener = find(&self.listeners, id).ok_or_else(|| not_found("Listener", id))?;
        let of = listener["of"].as_str().unwrap().to_owned();
        self.refuse_cidrs(&of, wanted)?;
        self.begin(&of, "PENDING_UPDATE")?;
        let listener = self.listeners.iter_mut().find(|one| one["id"] == id).unwrap();
        for (key, value) in wanted.as_object().unwrap() {
            listener[key] = value.clone();
        }
        Ok((200, json!({"listener": listener})))
    }

    fn new_pool(&mut self, wanted: &Value) -> Result<Answer, Answer> {
        let listener_id = wanted["listener_id"].as_str().unwrap_or_default();
        let listener = find(&self.listeners, listener_id).ok_or_else(|| not_found("Listener", listener_id))?;
        let of = listener["of"].as_str().unwrap().to_owned();
        if !listener["default_pool_id"].is_null() {
            return Err(fault(409, "This listener already has a default pool"));
        }
        let algorithm = wanted["lb_algorithm"].as_str().unwrap_or_default();
        if self.provider_of(&of) == "ovn" && algorithm != "SOURCE_IP_PORT" {
            return Err(self.unsupported(&of, &format!("OVN provider does not support {algorithm} algorithm")));
        }
        self.begin(&of, "PENDING_UPDATE")?;
        let mut pool = wanted.clone();
        pool["id"] = json!(self.id("pool"));
        pool["of"] = json!(of);
        pool["healthmonitor_id"] = Value::Null;
        pool["its members"] = json!([]);
        pool["provisioning_status"] = json!("ACTIVE");
        self.pools.push(pool.clone());
        let listener = self.listeners.iter_mut().find(|one| one["id"] == listener_id).unwrap();
        listener["default_pool_id"] = pool["id"].clone();
        Ok((201, json!({"pool": pool})))
    }

    fn set_members(&mut self, id: &str, wanted: &[Value]) -> Result<Answer, Answer> {
        let pool = find(&self.pools, id).ok_or_else(|| not_found("Pool", id))?;
        let of = pool["of"].as_str().unwrap().to_owned();
        if self.provider_of(&of) == "ovn" && wanted.iter().any(|member| !member["monitor_port"].is_null()) {
            return Err(self.unsupported(&of, "OVN provider does not support monitor options"));
        }
        self.begin(&of, "PENDING_UPDATE")?;
        let mut members = wanted.to_vec();
        for member in &mut members {
            member["id"] = json!(self.id("member"));
        }
        let pool = self.pools.iter_mut().find(|pool| pool["id"] == id).unwrap();
        pool["its members"] = json!(members);
        Ok((202, Value::Null))
    }

    fn new_monitor(&mut self, wanted: &Value) -> Result<Answer, Answer> {
        let pool_id = wanted["pool_id"].as_str().unwrap_or_default();
        let pool = find(&self.pools, pool_id).ok_or_else(|| not_found("Pool", pool_id))?;
        let of = pool["of"].as_str().unwrap().to_owned();
        if !pool["healthmonitor_id"].is_null() {
            return Err(fault(409, "This pool already has a health monitor"));
        }
        let kind = wanted["type"].as_str().unwrap_or_default();
        if self.provider_of(&of) == "ovn" && kind != "TCP" {
            return Err(self.unsupported(
                &of,
                &format!("OVN provider does not support {kind} health monitor type."),
            ));
        }
        let is_http = matches!(kind, "HTTP" | "HTTPS");
        if !is_http && !wanted["url_path"].is_null() {
            return Err(fault(
                400,
                "url_path is not a valid option for health monitors of type TCP",
            ));
        }
        self.begin(&of, "PENDING_UPDATE")?;
        let mut monitor = wanted.clone();
        monitor["id"] = json!(self.id("monitor"));
        self.monitors.push(monitor.clone());
        let pool = self.pools.iter_mut().find(|pool| pool["id"] == pool_id).unwrap();
        pool["healthmonitor_id"] = monitor["id"].clone();
        Ok((201, json!({"healthmonitor": monitor})))
    }

    /// Port, and names or addresses of the members, of each listener of a load balancer.
    pub fn members(&self, name: &str, key: &str) -> Vec<(u64, Vec<String>)> {
        let balancer = self.load_balancers.iter().find(|balancer| balancer["name"] == name);
        let id = balancer.unwrap_or_else(|| panic!("no {name}: {:#?}", self.load_balancers))["id"].clone();
        let listeners = self.listeners.iter().filter(|listener| listener["of"] == id);
        let all = listeners.map(|listener| {
            let pool = find(&self.pools, listener["default_pool_id"].as_str().unwrap()).unwrap();
            let members = pool["its members"].as_array().unwrap().iter();
            let mut members: Vec<_> = members
                .map(|member| member[key].as_str().unwrap_or_default().to_owned())
                .collect();
            members.sort();
            (listener["protocol_port"].as_u64().unwrap(), members)
        });
        all.collect()
    }
}
