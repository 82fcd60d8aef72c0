//! Objects of the fake cloud for whole deployments: images, groups, servers and, where the lab has no service for them,
//! volumes (Cinder) and objects (Swift), with strict checks.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderValue};
use ocpdeploy::digest::{hmac_sha256, sha512};
use serde_json::{Value, json};

use super::filter;

/// An answer: status and body.
pub type Answer = (u16, Value);

#[derive(Default)]
pub struct Stores {
    pub images: Vec<Value>,
    pub groups: Vec<Value>,
    pub floating_ips: Vec<Value>,
    pub routers: Vec<Value>,
    pub server_groups: Vec<Value>,
    pub servers: Vec<Value>,
    /// The bodies of the requests.
    pub bodies: Vec<Value>,
    pub volumes: Vec<Value>,
    /// No host has room for servers of these names.
    pub unschedulable: Vec<&'static str>,
    /// Volumes of these names fail during their creation.
    pub bad_volumes: Vec<&'static str>,
    /// Volumes remain in creation.
    pub slow_volumes: bool,
    /// Temporary URL keys of containers.
    pub containers: BTreeMap<String, String>,
    pub objects: BTreeMap<String, Vec<u8>>,
    pub fetched: Vec<String>,
    /// Nova's `reclaim_instance_interval`: deleted servers are kept, and no list has them, until their deletion is forced
    /// (openstack/nova: nova/api/openstack/compute/servers.py: _delete; nova/db/main/api.py: not_soft_deleted).
    pub keeps_deleted: bool,
    /// Whether guests write their address on their console.
    pub consoles_tell: bool,
    made: usize,
}

/// Of Cinder; the first is the default.
const ZONES: [&str; 2] = ["nova", "far"];
const TYPES: [&str; 2] = ["__DEFAULT__", "ssd"];

/// The account of Swift, as its endpoint has it.
pub const ACCOUNT: &str = "/object/v1/AUTH_1";

/// Each query of a server lets time pass: it gets its host, then it runs.
fn get_on(server: &mut Value) {
    if server["status"] != "BUILD" {
        return;
    }
    if server["goes to"].is_null() {
        // openstack/nova: nova/conductor/manager.py: _bury_in_cell0.
        server["status"] = json!("ERROR");
        server["fault"] =
            json!({"code": 500, "message": "No valid host was found. There are not enough hosts available."});
    } else if server["hostId"] == "" {
        server["hostId"] = server["goes to"].clone();
    } else {
        server["status"] = json!("ACTIVE");
        server["OS-SRV-USG:launched_at"] = json!("2026-11-28T09:12:13.000000");
    }
}

/// Nova's filters that are known here: all of some tags, and a pattern of the name that is a whole name.
fn is_asked_for(server: &Value, query: &[(String, String)]) -> bool {
    query.iter().all(|(key, value)| match key.as_str() {
        "tags" => value
            .split(',')
            .all(|tag| server["tags"].as_array().unwrap().iter().any(|other| other == tag)),
        "name" => value.strip_prefix('^').and_then(|name| name.strip_suffix('$')) == server["name"].as_str(),
        _ => true,
    })
}

fn nova(status: u16, message: &str) -> Answer {
    (status, json!({"badRequest": {"code": status, "message": message}}))
}

fn no_volume(id: &str) -> Answer {
    let fault = format!("Volume {id} could not be found.");
    (404, json!({"itemNotFound": {"code": 404, "message": fault}}))
}

impl Stores {
    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}", self.made)
    }

    /// What a container's owner sees of its key.
    pub fn key_of(&self, path: &str) -> Option<HeaderValue> {
        let container = path.strip_prefix(ACCOUNT)?.trim_start_matches('/');
        Some(self.containers.get(container)?.parse().unwrap())
    }

    pub fn answer(
        &mut self,
        (method, path): (&str, &str),
        query: &[(String, String)],
        bytes: &[u8],
        headers: &HeaderMap,
        ports: &mut [Value],
    ) -> Option<Answer> {
        let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let (service, rest) = path.trim_start_matches('/').split_once('/')?;
        let parts: Vec<_> = rest.split('/').skip(1).collect();
        Some(match (service, method, parts.as_slice()) {
            ("image", ..) => self.image((method, &parts), query, &body, bytes)?,
            ("network", "GET", ["security-groups"]) => (200, json!({"security_groups": filter(&self.groups, query)})),
            ("network", "GET", ["floatingips"]) => (200, json!({"floatingips": filter(&self.floating_ips, query)})),
            ("network", "GET", ["routers"]) => (200, json!({"routers": self.routers})),
            // Without a port, it leads nowhere (openstack/neutron: neutron/db/l3_db.py: create_floatingip).
            ("network", "POST", ["floatingips"]) => {
                let mut floating = body["floatingip"].clone();
                floating["id"] = json!(self.id("floating"));
                floating["floating_ip_address"] = json!(format!("203.0.113.{}", 100 + self.made));
                floating["port_id"] = body["floatingip"]["port_id"].clone();
                self.floating_ips.push(floating.clone());
                (201, json!({"floatingip": floating}))
            }
            ("network", "PUT", ["floatingips", id]) => {
                let floating = self.floating_ips.iter_mut().find(|one| one["id"] == *id)?;
                floating["port_id"] = body["floatingip"]["port_id"].clone();
                (200, json!({"floatingip": floating}))
            }
            ("network", "DELETE", ["floatingips", id]) => {
                self.floating_ips.retain(|floating| floating["id"] != *id);
                (204, Value::Null)
            }
            ("network", "POST", ["security-groups"]) => {
                let mut group = body["security_group"].clone();
                group["id"] = json!(self.id("sg"));
                group["security_group_rules"] = json!([]);
                self.groups.push(group.clone());
                (201, json!({"security_group": group}))
            }
            ("network", "POST", ["security-group-rules"]) => {
                for rule in body["security_group_rules"].as_array()? {
                    let mut rule = rule.clone();
                    // openstack/neutron: neutron/db/securitygroups_db.py: _validate_ip_prefix,
                    // _make_canonical_ipv6_icmp_protocol.
                    let is_ipv6 = rule["ethertype"] == "IPv6";
                    let prefix = rule["remote_ip_prefix"].as_str();
                    if prefix.is_some_and(|prefix| prefix.contains(':') != is_ipv6) {
                        let message = "Conflicting value ethertype for CIDR";
                        let fault =
                            json!({"type": "SecurityGroupRuleParameterConflict", "message": message, "detail": ""});
                        return Some((400, json!({"NeutronError": fault})));
                    }
                    if is_ipv6 && rule["protocol"] == "icmp" {
                        rule["protocol"] = json!("ipv6-icmp");
                    }
                    rule["id"] = json!(self.id("rule"));
                    let group = self
                        .groups
                        .iter_mut()
                        .find(|group| group["id"] == rule["security_group_id"])?;
                    group["security_group_rules"].as_array_mut()?.push(rule);
                }
                (201, body)
            }
            ("network", "DELETE", ["security-group-rules", id]) => {
                for group in &mut self.groups {
                    group["security_group_rules"]
                        .as_array_mut()?
                        .retain(|rule| rule["id"] != *id);
                }
                (204, Value::Null)
            }
            // openstack/neutron: neutron/db/securitygroups_db.py: delete_security_group.
            ("network", "DELETE", ["security-groups", id])
                if ports.iter().any(|port| {
                    port["security_groups"]
                        .as_array()
                        .is_some_and(|all| all.iter().any(|one| one == id))
                }) =>
            {
                let message = format!("Security Group {id} in use.");
                let fault = json!({"type": "SecurityGroupInUse", "message": message, "detail": ""});
                (409, json!({"NeutronError": fault}))
            }
            ("network", "DELETE", ["security-groups", id]) => {
                self.groups.retain(|group| group["id"] != *id);
                (204, Value::Null)
            }
            ("compute", "GET", ["os-server-groups"]) => (200, json!({"server_groups": self.server_groups})),
            ("compute", "POST", ["os-server-groups"]) => {
                let mut group = body["server_group"].clone();
                group["id"] = json!(self.id("group"));
                group["members"] = json!([]);
                self.server_groups.push(group.clone());
                (200, json!({"server_group": group}))
            }
            ("compute", "DELETE", ["os-server-groups", id]) => {
                self.server_groups.retain(|group| group["id"] != *id);
                (204, Value::Null)
            }
            ("compute", "GET", ["servers", "detail"]) => {
                let shown: Vec<_> = self
                    .servers
                    .iter()
                    .filter(|server| server["status"] != "SOFT_DELETED" && is_asked_for(server, query))
                    .cloned()
                    .collect();
                self.servers.iter_mut().for_each(get_on);
                (200, json!({"servers": shown}))
            }
            ("compute", "GET", ["servers", id]) => match self.servers.iter_mut().find(|server| server["id"] == *id) {
                Some(server) => {
                    let shown = server.clone();
                    get_on(server);
                    (200, json!({"server": shown}))
                }
                None => nova(404, "no such server"),
            },
            ("compute", "POST", ["servers"]) => self.new_server(&body, ports),
            // openstack/nova: nova/api/openstack/compute/deferred_delete.py: _force_delete
            ("compute", "POST", ["servers", id, "action"]) if body.get("forceDelete").is_some() => {
                self.remove_server(id, ports);
                (202, Value::Null)
            }
            ("compute", "POST", ["servers", id, "action"]) => {
                let server = self.servers.iter().find(|server| server["id"] == *id)?;
                let address = &server["addresses"]["private"][0]["addr"];
                let told = if self.consoles_tell {
                    address.as_str()?
                } else {
                    "nothing"
                };
                (200, json!({"output": format!("eth0 has {told}\n")}))
            }
            ("compute", "DELETE", ["servers", id]) => {
                match self.servers.iter_mut().find(|server| server["id"] == *id) {
                    Some(server) if self.keeps_deleted => server["status"] = json!("SOFT_DELETED"),
                    _ => self.remove_server(id, ports),
                }
                (204, Value::Null)
            }
            ("volume", ..) => self.volume((method, &parts), &body)?,
            ("object", ..) => self.object((method, path), query, bytes, headers)?,
            _ => return None,
        })
    }

    fn image(
        &mut self,
        (method, parts): (&str, &[&str]),
        query: &[(String, String)],
        body: &Value,
        bytes: &[u8],
    ) -> Option<Answer> {
        let index = |images: &[Value], id: &str| images.iter().position(|image| image["id"] == id);
        Some(match (method, parts) {
            ("GET", ["images"]) => {
                let has = |image: &&Value| {
                    query.iter().all(|(key, value)| match key.as_str() {
                        "tag" => image["tags"].as_array().unwrap().iter().any(|tag| tag == value),
                        // `projects::show` compares it.
                        "owner" => true,
                        "sort" => true,
                        key => image[key] == value.as_str(),
                    })
                };
                let images: Vec<_> = self.images.iter().filter(has).collect();
                (200, json!({"images": images}))
            }
            ("POST", ["images"]) => {
                let mut image = body.clone();
                image["id"] = json!(self.id("image"));
                image["status"] = json!("queued");
                self.images.push(image.clone());
                (201, image)
            }
            ("PUT", ["images", id, "file"]) => {
                let at = index(&self.images, id)?;
                let image = &mut self.images[at];
                image["status"] = json!("active");
                image["os_hash_algo"] = json!("sha512");
                image["os_hash_value"] = json!(sha512(bytes));
                (204, Value::Null)
            }
            ("PUT", ["images", id, "tags", tag]) => {
                let at = index(&self.images, id)?;
                self.images[at]["tags"].as_array_mut()?.push(json!(tag));
                (204, Value::Null)
            }
            ("GET", ["images", id]) => match index(&self.images, id) {
                Some(at) => (200, self.images[at].clone()),
                None => (404, json!("no such image")),
            },
            ("DELETE", ["images", id]) => {
                self.images.remove(index(&self.images, id)?);
                (204, Value::Null)
            }
            _ => return None,
        })
    }

    fn remove_server(&mut self, id: &str, ports: &mut [Value]) {
        self.servers.retain(|server| server["id"] != id);
        for port in ports.iter_mut().filter(|port| port["device_id"] == id) {
            port["device_id"] = json!("");
        }
        // Nova deletes volumes that are marked for deletion with the server.
        self.volumes
            .retain(|volume| volume["attachments"][0]["server_id"] != id);
    }

    fn new_server(&mut self, body: &Value, ports: &mut [Value]) -> Answer {
        let mut server = body["server"].clone();
        let id = self.id("server");
        let devices = server["block_device_mapping_v2"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for device in devices.iter().filter(|device| device["source_type"] == "volume") {
            let volume = self.volumes.iter().find(|volume| volume["id"] == device["uuid"]);
            let id = device["uuid"].as_str().unwrap();
            let Some(volume) = volume else {
                let fault = format!("Block Device Mapping is Invalid: failed to get volume {id}.");
                return nova(400, &fault);
            };
            if device["boot_index"] == 0 && volume["bootable"] != "true" {
                return nova(400, &format!("Block Device {id} is not bootable."));
            }
            if volume["status"] != "available" {
                return nova(400, &format!("Invalid volume: volume {id} is {}", volume["status"]));
            }
        }
        if server["imageRef"].is_null() && devices.iter().all(|device| device["boot_index"] != 0) {
            return nova(400, "nothing to boot from");
        }
        let mut addresses = Vec::new();
        for port in server["networks"].as_array().unwrap() {
            let Some(port) = ports
                .iter_mut()
                .find(|one| one["id"] == port["port"] && one["device_id"] == "")
            else {
                return nova(400, "no such port, or it is in use");
            };
            port["device_id"] = json!(id);
            for ip in port["fixed_ips"].as_array().unwrap() {
                addresses.push(json!({"addr": ip["ip_address"], "OS-EXT-IPS:type": "fixed",
                    "OS-EXT-IPS-MAC:mac_addr": port["mac_address"]}));
            }
        }
        for device in &devices {
            for volume in self.volumes.iter_mut().filter(|volume| volume["id"] == device["uuid"]) {
                volume["status"] = json!("in-use");
                volume["attachments"] = json!([{"server_id": id}]);
            }
        }
        self.bodies.push(body.clone());
        server["id"] = json!(id);
        server["status"] = json!("BUILD");
        server["hostId"] = json!("");
        server["group"] = body["os:scheduler_hints"]["group"].clone();
        server["OS-SRV-USG:launched_at"] = Value::Null;
        server["goes to"] = match self.unschedulable.iter().any(|name| server["name"] == *name) {
            true => Value::Null,
            false => json!(self.host_for(&server["group"])),
        };
        server["addresses"] = json!({"private": addresses});
        server["flavor"] = json!({"vcpus": 4, "ram": 16384, "original_name": "small"});
        self.servers.push(server);
        (202, json!({"server": {"id": id}}))
    }

    /// The first of two hosts that has the fewest of a soft group, of those members that are on a host by now.
    fn host_for(&self, group: &Value) -> &'static str {
        let members = |host: &str| {
            let is_there = |server: &&Value| server["hostId"] == host && server["group"] == *group;
            self.servers.iter().filter(is_there).count()
        };
        if members("host-1") < members("host-0") {
            "host-1"
        } else {
            "host-0"
        }
    }

    fn volume(&mut self, (method, parts): (&str, &[&str]), body: &Value) -> Option<Answer> {
        let at = |volumes: &[Value], id: &str| volumes.iter().position(|volume| volume["id"] == id);
        Some(match (method, parts) {
            // openstack/cinder: cinder/api/contrib/quotas.py: show.
            ("GET", ["os-quota-sets", "project-1"]) => {
                let row = |limit: i64, used: u64| json!({"limit": limit, "in_use": used, "reserved": 0});
                let used: u64 = self.volumes.iter().map(|volume| volume["size"].as_u64().unwrap()).sum();
                let count = self.volumes.len() as u64;
                let quota = json!({"id": "project-1", "volumes": row(10, count), "gigabytes": row(1000, used),
                    "per_volume_gigabytes": row(200, 0), "volumes_ssd": row(8, count), "gigabytes_ssd": row(-1, used)});
                (200, json!({"quota_set": quota}))
            }
            ("GET", ["volumes", "detail"]) => (200, json!({"volumes": self.volumes})),
            ("GET", ["os-availability-zone"]) => {
                let zones = ZONES.map(|name| json!({"zoneName": name, "zoneState": {"available": true}}));
                (200, json!({"availabilityZoneInfo": zones}))
            }
            ("GET", ["types"]) => {
                let types = TYPES.map(|name| json!({"id": format!("type-{name}"), "name": name, "is_public": true}));
                (200, json!({"volume_types": types}))
            }
            ("POST", ["volumes"]) => {
                let mut volume = body["volume"].clone();
                let image = &volume["imageRef"];
                let has_image = self
                    .images
                    .iter()
                    .any(|one| one["id"] == *image && one["status"] == "active");
                if volume["size"].as_u64().is_none_or(|size| size == 0) {
                    let size = &volume["size"];
                    let fault = format!(
                        "Invalid input for field/attribute size. Value: {size}. {size} is less than the minimum of 1"
                    );
                    return Some(nova(400, &fault));
                }
                if !image.is_null() && !has_image {
                    let fault = "Invalid image identifier or unable to access requested image.";
                    return Some(nova(400, fault));
                }
                for (key, all) in [("volume_type", TYPES), ("availability_zone", ZONES)] {
                    match volume[key].as_str() {
                        None => volume[key] = json!(all[0]),
                        Some(name) if all.contains(&name) => {}
                        Some(name) if key == "volume_type" => {
                            let fault = format!("Volume type with name {name} could not be found.");
                            return Some((404, json!({"itemNotFound": {"code": 404, "message": fault}})));
                        }
                        Some(name) => return Some(nova(400, &format!("Availability zone '{name}' is invalid."))),
                    }
                }
                volume["id"] = json!(self.id("volume"));
                volume["status"] = json!("creating");
                volume["bootable"] = json!("false");
                volume["attachments"] = json!([]);
                self.volumes.push(volume.clone());
                (202, json!({"volume": volume}))
            }
            ("GET", ["volumes", id]) => match at(&self.volumes, id) {
                None => no_volume(id),
                Some(at) => {
                    let shown = self.volumes[at].clone();
                    // Each query lets time pass.
                    let bad = self.bad_volumes.iter().any(|name| shown["name"] == *name);
                    match shown["status"].as_str().unwrap() {
                        "creating" if self.slow_volumes => {}
                        "creating" | "downloading" if bad => self.volumes[at]["status"] = json!("error"),
                        "creating" if !shown["imageRef"].is_null() => self.volumes[at]["status"] = json!("downloading"),
                        "creating" => self.volumes[at]["status"] = json!("available"),
                        "downloading" => {
                            self.volumes[at]["bootable"] = json!("true");
                            self.volumes[at]["status"] = json!("available");
                        }
                        "deleting" => drop(self.volumes.remove(at)),
                        _ => {}
                    }
                    (200, json!({"volume": shown}))
                }
            },
            ("DELETE", ["volumes", id]) => {
                let Some(at) = at(&self.volumes, id) else {
                    return Some(no_volume(id));
                };
                let volume = &mut self.volumes[at];
                match volume["status"].as_str().unwrap() {
                    "available" | "error" | "error_extending" if volume["snapshots"].is_null() => {
                        volume["status"] = json!("deleting");
                    }
                    _ => {
                        let fault = "Invalid volume: Volume status must be available or error or error_restoring or \
                                     error_extending or error_managing and must not be migrating, attached, belong to a \
                                     group, have snapshots, awaiting a transfer, or be disassociated from snapshots after \
                                     volume transfer.";
                        return Some(nova(400, fault));
                    }
                }
                (202, Value::Null)
            }
            _ => return None,
        })
    }

    fn object(
        &mut self,
        (method, path): (&str, &str),
        query: &[(String, String)],
        bytes: &[u8],
        headers: &HeaderMap,
    ) -> Option<Answer> {
        let rest = path.strip_prefix(ACCOUNT)?.trim_start_matches('/');
        let (container, object) = rest
            .split_once('/')
            .map_or((rest, None), |(box_, name)| (box_, Some(name)));
        let is_there = self.containers.contains_key(container);
        Some(match (method, object) {
            ("GET", None) if container.is_empty() => {
                let names = self.containers.keys();
                (200, names.map(|name| json!({"name": name})).collect())
            }
            ("HEAD", None) => (if is_there { 204 } else { 404 }, Value::Null),
            ("PUT", None) => {
                let key = headers.get("x-container-meta-temp-url-key")?.to_str().unwrap();
                self.containers.insert(container.to_owned(), key.to_owned());
                (if is_there { 202 } else { 201 }, Value::Null)
            }
            ("PUT", Some(_)) if !is_there => (404, Value::Null),
            ("PUT", Some(_)) if headers.contains_key("x-delete-after") => {
                self.objects.insert(rest.to_owned(), bytes.to_vec());
                (201, Value::Null)
            }
            ("GET", None) if is_there => {
                let begin = format!("{container}/");
                let names = self.objects.keys().filter_map(|name| name.strip_prefix(&begin));
                (200, names.map(|name| json!({"name": name})).collect())
            }
            ("GET", None) => (404, Value::Null),
            ("DELETE", None)
                if self
                    .objects
                    .keys()
                    .any(|name| name.starts_with(&format!("{container}/"))) =>
            {
                (409, Value::Null)
            }
            ("DELETE", None) => match self.containers.remove(container) {
                Some(_) => (204, Value::Null),
                None => (404, Value::Null),
            },
            ("DELETE", Some(_)) => match self.objects.remove(rest) {
                Some(_) => (204, Value::Null),
                None => (404, Value::Null),
            },
            ("GET" | "HEAD", Some(_)) => {
                let get = |name: &str| {
                    query
                        .iter()
                        .find(|(key, _)| key == name)
                        .map(|(_, value)| value.as_str())
                };
                let expires = get("temp_url_expires")?;
                // A container that does not exist has no key.
                let key = self.containers.get(container);
                let wanted = key.map(|key| hmac_sha256(key, format!("GET\n{expires}\n{path}")));
                if wanted.is_none() || get("temp_url_sig") != wanted.as_deref() {
                    return Some((401, Value::Null));
                }
                if !self.objects.contains_key(rest) {
                    return Some((404, Value::Null));
                }
                self.fetched.push(rest.to_owned());
                (200, Value::Null)
            }
            _ => return None,
        })
    }
}
