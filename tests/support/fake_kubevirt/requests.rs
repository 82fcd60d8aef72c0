//! Handles a request: authentication, authorization, and the operation.

use serde_json::{Value, json};

use super::discovery;
use super::resources::Resource;
use super::rights::User;
use super::world::{Meanwhile, Outcome, World, Write, selects};

/// A request, without HTTP.
pub struct Asked<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub token: Option<&'a str>,
    pub content_type: &'a str,
    pub accept: &'a str,
    pub body: &'a [u8],
}

pub enum Answer {
    Json(u16, Value),
    Text(String),
    /// A path without a handler: `404 page not found`, without a Status.
    NoPage,
    /// Priority and fairness: a header, and no Status (kubernetes/kubernetes: staging/src/k8s.io/apiserver/pkg/server/
    /// filters/maxinflight.go, `tooManyRequests`).
    Busy,
    /// The serial console of a machine, to a websocket.
    Console {
        namespace: String,
        name: String,
    },
    Watch(Watch),
}

/// Events of a kind since a version, for some seconds.
pub struct Watch {
    pub resource: &'static Resource,
    pub namespace: String,
    pub from: u64,
    pub seconds: u64,
    pub bookmarks: bool,
    pub chosen: Chosen,
}

/// A selector of objects by labels and name.
#[derive(Clone, Default)]
pub struct Chosen {
    labels: String,
    name: Option<String>,
}

impl Chosen {
    pub fn has(&self, object: &Value) -> bool {
        selects(&self.labels, object)
            && self
                .name
                .as_ref()
                .is_none_or(|name| object["metadata"]["name"] == **name)
    }
}

pub fn status(code: u16, reason: &str, message: &str) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": message});
    // kubernetes/apimachinery: pkg/api/errors/errors.go: what is about an object names it there.
    if !matches!(reason, "BadRequest" | "Unauthorized" | "NotAcceptable" | "Scripted") {
        status["details"] = json!({});
    }
    status
}

/// Of a deletion that left nothing.
fn deleted() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {}})
}

/// Group, namespace and resource of a path that the server authorizes whether it serves it or not, and the verb of `GET`.
fn unserved(path: &str) -> Option<(String, String, String, &'static str)> {
    let parts: Vec<&str> = path.split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["", "api", _, rest @ ..] => ("", rest),
        ["", "apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let (namespace, plural, names) = match rest {
        ["namespaces", namespace, plural, names @ ..] => (*namespace, plural, names),
        [plural, names @ ..] => ("", plural, names),
        [] => return None,
    };
    let verb = if names.is_empty() { "list" } else { "get" };
    Some((group.to_owned(), namespace.to_owned(), (*plural).to_owned(), verb))
}

/// kubernetes/apiserver: pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage.
fn forbidden(user: &User, verb: &str, resource: &str, group: &str, name: Option<&str>, space: &str) -> Answer {
    let plural = resource.split('/').next().unwrap_or_default();
    let qualified = match group {
        "" => plural.to_owned(),
        group => format!("{plural}.{group}"),
    };
    let name = name.map(|name| format!("\"{name}\" ")).unwrap_or_default();
    let place = match space {
        "" => "at the cluster scope".to_owned(),
        space => format!("in the namespace \"{space}\""),
    };
    let why = format!(
        "{qualified} {name}is forbidden: User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}",
        user.name
    );
    refused((403, "Forbidden", why))
}

fn refused((code, reason, message): (u16, &str, String)) -> Answer {
    Answer::Json(code, status(code, reason, &message))
}

impl Asked<'_> {
    fn chosen(&self) -> Result<Chosen, (u16, &'static str, String)> {
        let labels = self.parameter("labelSelector").unwrap_or_default();
        let name = match self.parameter("fieldSelector") {
            None => None,
            Some(fields) => match fields.strip_prefix("metadata.name=") {
                Some(name) => Some(name.to_owned()),
                None => return Err((400, "BadRequest", format!("field label not supported: {fields}"))),
            },
        };
        Ok(Chosen { labels, name })
    }

    pub fn parameter(&self, name: &str) -> Option<String> {
        self.query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| unescape(value))
        })
    }
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        match (
            first,
            tail.get(..2)
                .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()),
        ) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The parts of a path to a kind or an object.
struct Target {
    resource: &'static Resource,
    namespace: String,
    name: Option<String>,
    sub: Option<String>,
}

fn target(path: &str) -> Option<Target> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let mut rest: Vec<&str> = parts.collect();
    let mut namespace = "";
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        namespace = rest[1];
        rest.drain(..2);
    }
    let (group, version) = match group {
        // Verbs of the machines.
        "subresources.kubevirt.io" => ("kubevirt.io", "v1"),
        group => (group, version),
    };
    Some(Target {
        resource: Resource::find(group, version, rest.first()?)?,
        namespace: namespace.to_owned(),
        name: rest.get(1).map(|&name| name.to_owned()),
        sub: rest.get(2).map(|&sub| sub.to_owned()),
    })
}

impl World {
    pub fn answer(&mut self, asked: &Asked<'_>) -> Answer {
        self.asked.push(format!("{} {}", asked.method, asked.path));
        let only_asks =
            asked.method == "GET" || asked.path.contains("subjectaccessreviews") || asked.query.contains("dryRun");
        self.changes += usize::from(!only_asks);
        if asked.path == "/v1beta1/upload" {
            return self.take_upload(asked);
        }
        let is_now = |meanwhile: &Meanwhile| asked.method == meanwhile.method && asked.path.ends_with(meanwhile.path);
        if let Some(index) = self.meanwhile.iter().position(is_now) {
            let change = self.meanwhile.remove(index).change;
            change(self);
        }
        if let Some(sandbox) = self
            .faults
            .iter()
            .position(|fault| asked.method == fault.method && asked.path.contains(&fault.path))
        {
            let fault = self.faults.remove(sandbox);
            if fault.done {
                self.serve(asked);
            }
            return match fault.code {
                429 => Answer::Busy,
                code => refused((code, "Scripted", "scripted by the test".to_owned())),
            };
        }
        self.serve(asked)
    }

    fn serve(&mut self, asked: &Asked<'_>) -> Answer {
        let Some(user) = asked.token.and_then(|token| self.users.get(token)).cloned() else {
            return refused((401, "Unauthorized", "Unauthorized".to_owned()));
        };
        if asked.method == "GET"
            && let Some(told) = discovery::answer(self, asked.path)
        {
            return Answer::Json(200, told);
        }
        let body: Value = match asked.body {
            [] => Value::Null,
            body => serde_json::from_slice(body).unwrap_or_default(),
        };
        if asked.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
            return review(&user, &body);
        }
        if let Some(space) = asked.path.strip_suffix("/localsubjectaccessreviews") {
            let space = space.rsplit('/').next().unwrap_or_default();
            let (resource, group) = ("localsubjectaccessreviews", "authorization.k8s.io");
            if !user.may("create", resource, space) {
                return forbidden(&user, "create", resource, group, None, space);
            }
            let of = self
                .users
                .values()
                .find(|known| body["spec"]["user"] == known.name.as_str());
            return review(&of.cloned().unwrap_or_default(), &body);
        }
        let served = target(asked.path).filter(|target| !self.groups_absent.contains(target.resource.group));
        let Some(target) = served else {
            let known = asked.path.starts_with("/apis/") || asked.path.starts_with("/openapi");
            if !known {
                self.unknown.push(format!("{} {}", asked.method, asked.path));
            }
            return match unserved(asked.path) {
                Some((group, space, plural, verb)) if !user.may(verb, &plural, &space) => {
                    forbidden(&user, verb, &plural, &group, None, &space)
                }
                _ => Answer::NoPage,
            };
        };
        self.act(&user, asked, &target, &body)
    }

    fn act(&mut self, user: &User, asked: &Asked<'_>, target: &Target, body: &Value) -> Answer {
        let watches = matches!(asked.parameter("watch").as_deref(), Some("true" | "1"));
        let verb = match (asked.method, &target.name, &target.sub) {
            ("GET", Some(_), _) => "get",
            ("GET", None, _) if watches => "watch",
            ("GET", None, _) => "list",
            ("POST", None, _) => "create",
            ("PUT", Some(_), _) => "update",
            ("PATCH", Some(_), None) => "patch",
            ("DELETE", Some(_), None) => "delete",
            _ => {
                self.unknown.push(format!("{} {}", asked.method, asked.path));
                return refused((
                    405,
                    "MethodNotAllowed",
                    "the server does not allow this method".to_owned(),
                ));
            }
        };
        let resource = target.resource;
        let mut right = resource.plural.to_owned();
        if let Some(sub) = &target.sub {
            right += &format!("/{sub}");
        }
        // A namespace's own name is the namespace of the request.
        let space = match (resource.plural, &target.name) {
            ("namespaces" | "projects", Some(name)) => name,
            _ => &target.namespace,
        };
        if !user.may(verb, &right, space) {
            return forbidden(user, verb, &right, resource.group, target.name.as_deref(), space);
        }
        if verb == "update" && target.sub.is_none() {
            self.unknown.push(format!("{} {}", asked.method, asked.path));
        }
        let write = Write {
            strict: asked.parameter("fieldValidation").as_deref() == Some("Strict"),
            dry_run: asked.parameter("dryRun").is_some(),
            force: asked.parameter("force").as_deref() == Some("true"),
            manager: asked.parameter("fieldManager").unwrap_or_default(),
        };
        let (namespace, name) = (target.namespace.as_str(), target.name.as_deref().unwrap_or_default());
        if let Some(sub) = &target.sub {
            return self.subresource(asked, resource, namespace, name, sub);
        }
        let chosen = match asked.chosen() {
            Ok(chosen) => chosen,
            Err(refusal) => return refused(refusal),
        };
        let outcome: Outcome = match verb {
            "get" => self.get(resource, namespace, name),
            "list" => {
                let mut list = self.list(resource, namespace, |object| self.ignores_filters || chosen.has(object));
                if asked.accept.contains("as=PartialObjectMetadataList") {
                    for item in list["items"].as_array_mut().into_iter().flatten() {
                        *item = json!({"metadata": item["metadata"]});
                    }
                    list["kind"] = "PartialObjectMetadataList".into();
                    list["apiVersion"] = "meta.k8s.io/v1".into();
                }
                Ok(list)
            }
            "watch" => return self.watch(asked, resource, namespace, chosen),
            "create" => {
                return match self.create(user, resource, namespace, body, &write) {
                    Ok(made) => Answer::Json(201, made),
                    Err(refusal) => refused(refusal),
                };
            }
            "delete" => self.delete(resource, namespace, name, body).map(|left| {
                let stays = left["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
                if stays { left } else { deleted() }
            }),
            _ => match asked.content_type {
                "application/apply-patch+yaml" if write.manager.is_empty() => Err((
                    422,
                    "Invalid",
                    "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
                        .to_owned(),
                )),
                "application/apply-patch+yaml" => {
                    // JSON is YAML; kubectl sends the latter.
                    let sent: Value = serde_saphyr::from_slice(asked.body).unwrap_or_default();
                    self.apply(user, resource, namespace, name, &sent, &write)
                }
                "application/merge-patch+json" => self.merge(user, resource, namespace, name, body, &write),
                _ => Err((415, "UnsupportedMediaType", "415: Unsupported Media Type".to_owned())),
            },
        };
        match outcome {
            Ok(value) => Answer::Json(200, value),
            Err(refusal) => refused(refusal),
        }
    }

    fn subresource(
        &mut self,
        asked: &Asked<'_>,
        resource: &Resource,
        namespace: &str,
        name: &str,
        sub: &str,
    ) -> Answer {
        match (resource.plural, sub) {
            // These routes declare no media type (kubevirt/kubevirt: pkg/virt-api/api.go), and go-restful's router then takes
            // `*/*` alone (emicklei/go-restful: route.go, `matchesAccept`).
            ("virtualmachines", "start" | "stop") if !asked.accept.contains("*/*") => refused((
                406,
                "NotAcceptable",
                "the server was unable to respond with a content type that the client supports".to_owned(),
            )),
            ("virtualmachines", "start" | "stop") => match self.power(namespace, name, sub) {
                Ok(()) => Answer::Text(String::new()),
                Err(refusal) => refused(refusal),
            },
            ("pods", "log") => match self.get(resource, namespace, name) {
                Ok(_) => Answer::Text(format!("\u{1b}[0;32m[ ok ]\u{1b}[0m booted\r\n{name} login: ")),
                Err(refusal) => refused(refusal),
            },
            ("virtualmachineinstances", "console") => match self.get(resource, namespace, name) {
                Ok(instance) if instance["status"]["phase"] == "Running" => Answer::Console {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
                // kubevirt/kubevirt: pkg/virt-api/rest/console.go, `validateVMIForConsole`.
                Ok(instance) if instance["status"]["phase"] == "Failed" => {
                    let why = format!(
                        "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"{name}\": VMI is in failed status"
                    );
                    refused((409, "Conflict", why))
                }
                Ok(_) => refused((400, "BadRequest", "VMI is not running".to_owned())),
                Err(refusal) => refused(refusal),
            },
            _ => {
                self.unknown.push(format!("{} {}", asked.method, asked.path));
                refused((404, "NotFound", format!("no {sub} of {}", resource.plural)))
            }
        }
    }

    fn watch(&self, asked: &Asked<'_>, resource: &'static Resource, namespace: &str, chosen: Chosen) -> Answer {
        let number = |name: &str| asked.parameter(name).and_then(|text| text.parse().ok());
        // Without a version, a watch starts with all existing objects.
        let from = number("resourceVersion").unwrap_or(0);
        if from != 0 && from < self.forgotten {
            let why = format!("too old resource version: {from} ({})", self.forgotten);
            return refused((410, "Expired", why));
        }
        Answer::Watch(Watch {
            resource,
            namespace: namespace.to_owned(),
            from,
            seconds: number("timeoutSeconds").unwrap_or(5),
            bookmarks: asked.parameter("allowWatchBookmarks").as_deref() == Some("true"),
            chosen,
        })
    }

    /// CDI's upload proxy: a token is for one volume.
    fn take_upload(&mut self, asked: &Asked<'_>) -> Answer {
        let Some(sandbox) = asked.token.and_then(|token| token.strip_prefix("upload ")) else {
            return Answer::Json(401, json!("unauthorized"));
        };
        let volume = sandbox.split_once('/').and_then(|(namespace, name)| {
            self.objects
                .get(&("datavolumes", namespace.to_owned(), name.to_owned()))
        });
        if volume.is_none_or(|volume| volume["status"]["phase"] != "UploadReady") {
            return Answer::Json(503, json!("no upload is waited for"));
        }
        self.uploads.insert(sandbox.to_owned(), asked.body.len() as u64);
        Answer::Text(String::new())
    }
}

fn review(user: &User, question: &Value) -> Answer {
    let about = &question["spec"]["resourceAttributes"];
    let text = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
    let mut resource = text("resource");
    if !text("subresource").is_empty() {
        resource += &format!("/{}", text("subresource"));
    }
    let mut answer = question.clone();
    answer["status"] = json!({"allowed": user.may(&text("verb"), &resource, &text("namespace"))});
    Answer::Json(201, answer)
}
