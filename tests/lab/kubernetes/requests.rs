//! The same requests to the fake and to the real API server: status, content type, reason, message and shape of the answers.

use super::*;
use crate::support::fake_kubevirt::FakeKubevirt;

/// A request; `NS` stands for the tenant's namespace, `UID` for the uid of the object that was created last.
struct Ask {
    method: &'static str,
    path: String,
    kind: &'static str,
    accept: &'static str,
    body: Value,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn ask(method: &'static str, path: &str, body: Value) -> Ask {
    let kind = match method {
        "PATCH" if path.contains("fieldManager=apply") || path.contains("nomanager") => APPLY,
        "PATCH" => MERGE,
        _ => JSON,
    };
    let path = path.replace("nomanager", "");
    Ask {
        method,
        path,
        kind,
        accept: "application/json, */*",
        body,
    }
}

fn core(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

fn machine(name: &str) -> Value {
    let spec = json!({"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}});
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec})
}

fn may(verb: &str, group: &str, resource: &str) -> Ask {
    let about = json!({"namespace": "NS", "verb": verb, "group": group, "resource": resource});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": about}});
    ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
}

fn all() -> Vec<Ask> {
    const MAPS: &str = "/api/v1/namespaces/NS/configmaps";
    const SECRETS: &str = "/api/v1/namespaces/NS/secrets";
    const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/NS/virtualmachines";
    const SERVICES: &str = "/api/v1/namespaces/NS/services";
    const VERBS: &str = "/apis/subresources.kubevirt.io/v1/namespaces/NS/virtualmachines";
    let one = |folder: &str, name: &str| format!("{folder}/{name}");
    let other = json!({"metadata": {"uid": "00000000-0000-4000-8000-00000000ffff", "labels": {"a": "b"}}});
    let same = json!({"metadata": {"uid": "UID", "labels": {"a": "b"}}});
    let options = |given: Value| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": given});
    let foreign_uid = json!({"uid": "00000000-0000-4000-8000-00000000ffff"});
    let port = json!({"ports": [{"port": 80}]});
    let map = |metadata: Value| with(core("ConfigMap", "b"), "metadata", metadata);
    let mut all = vec![
        ask("GET", &one(MAPS, "none"), Value::Null),
        ask("POST", MAPS, with(core("ConfigMap", "a"), "data", json!({"k": "v"}))),
        ask("POST", MAPS, core("ConfigMap", "a")),
        ask("GET", &one(MAPS, "a"), Value::Null),
        ask("GET", &format!("{MAPS}?labelSelector=a%3Db"), Value::Null),
        Ask {
            accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            ..ask("GET", MAPS, Value::Null)
        },
        ask("PATCH", &one(MAPS, "a?fieldManager=ocpdeploy"), other.clone()),
        ask("PATCH", &one(MAPS, "a?fieldManager=ocpdeploy"), same.clone()),
        ask("PATCH", &one(MAPS, "none?fieldManager=ocpdeploy"), same.clone()),
        ask("PATCH", &one(MAPS, "anomanager"), core("ConfigMap", "a")),
        ask(
            "PATCH",
            &one(MAPS, "a?fieldManager=apply"),
            with(core("ConfigMap", "a"), "data", json!({"k": "w"})),
        ),
        ask(
            "PATCH",
            &one(MAPS, "a?fieldManager=apply&force=true"),
            with(core("ConfigMap", "a"), "data", json!({"k": "w"})),
        ),
        Ask {
            kind: "text/plain",
            ..ask("PATCH", &one(MAPS, "a"), json!({}))
        },
        ask("PUT", &one(MAPS, "a"), core("ConfigMap", "a")),
        ask("DELETE", &one(MAPS, "a"), options(foreign_uid.clone())),
        ask("DELETE", &one(MAPS, "a"), options(json!({"resourceVersion": "1"}))),
        ask("DELETE", &one(MAPS, "a"), options(json!({"uid": "UID"}))),
        ask("DELETE", &one(MAPS, "a"), options(json!({"uid": "UID"}))),
        ask("POST", MAPS, core("ConfigMap", "Bad_Name")),
        ask("POST", MAPS, map(json!({"name": "b", "namespace": "other"}))),
        ask("POST", MAPS, core("Secret", "b")),
        ask("POST", MAPS, map(json!({"name": "b", "labels": {"a": "no/slash"}}))),
        ask("POST", SECRETS, with(core("Secret", "s"), "data", json!({"k": "YQ=="}))),
        ask(
            "POST",
            SECRETS,
            with(core("Secret", "t"), "data", json!({"k": "no base64!"})),
        ),
        ask(
            "POST",
            SECRETS,
            with(core("Secret", "t"), "data", json!({"k": "AAAA".repeat(360_000)})),
        ),
        ask("DELETE", &one(SECRETS, "s"), options(json!({}))),
        ask("GET", &one(MACHINES, "none"), Value::Null),
        ask("POST", MACHINES, machine("m")),
        ask("POST", MACHINES, machine("m")),
        ask("PATCH", &one(MACHINES, "m?fieldManager=ocpdeploy"), other),
        ask("PATCH", &one(MACHINES, "m?fieldManager=ocpdeploy"), same),
        ask(
            "PATCH",
            &one(MACHINES, "none?fieldManager=ocpdeploy"),
            json!({"metadata": {"labels": {}}}),
        ),
        ask(
            "POST",
            MACHINES,
            with(machine("n"), "spec", json!({"runStrategy": "Halted"})),
        ),
        ask(
            "POST",
            MACHINES,
            with(machine("n"), "spec", json!({"runStrategy": 7, "template": {}})),
        ),
        ask("PUT", &one(VERBS, "none/start"), json!({})),
        ask("PUT", &one(VERBS, "m/stop"), json!({})),
        Ask {
            accept: "application/json",
            ..ask("PUT", &one(VERBS, "m/start"), json!({}))
        },
        ask("DELETE", &one(MACHINES, "m"), options(foreign_uid)),
        ask("DELETE", &one(MACHINES, "none"), options(json!({}))),
        ask("POST", SERVICES, with(core("Service", "web"), "spec", port.clone())),
        ask(
            "POST",
            &format!("{SERVICES}?dryRun=All"),
            with(core("Service", "dry"), "spec", port),
        ),
        ask(
            "POST",
            SERVICES,
            with(
                core("Service", "far"),
                "spec",
                json!({"clusterIP": "10.9.9.9", "ports": [{"port": 80}]}),
            ),
        ),
        ask("POST", SERVICES, with(core("Service", "none"), "spec", json!({}))),
        ask("DELETE", &one(SERVICES, "web"), options(json!({}))),
        ask("GET", "/apis/route.openshift.io/v1/namespaces/NS/routes", Value::Null),
        ask("GET", "/apis/none.example.com/v1/namespaces/NS/things", Value::Null),
        ask("GET", "/api/v1/namespaces/NS", Value::Null),
        ask("GET", "/api/v1/nodes", Value::Null),
        ask("GET", "/apis/storage.k8s.io/v1/storageclasses", Value::Null),
        ask("GET", "/api/v1/namespaces/NS/resourcequotas", Value::Null),
        ask("GET", "/api/v1/namespaces/NS/limitranges", Value::Null),
        ask(
            "GET",
            "/apis/k8s.cni.cncf.io/v1/namespaces/NS/network-attachment-definitions/none",
            Value::Null,
        ),
        ask("POST", "/api/v1/namespaces", core("Namespace", "mine")),
        ask("DELETE", "/api/v1/namespaces/NS/pods/none", options(json!({}))),
        ask("GET", "/api/v1/namespaces/NS/pods/none/log?container=c", Value::Null),
        ask("GET", "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/none", Value::Null),
        may("create", "kubevirt.io", "virtualmachines"),
        may("delete", "", "pods"),
    ];
    let token = json!({"apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": {"name": "t"}, "spec": {"pvcName": "none"}});
    let tokens = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/NS/uploadtokenrequests";
    all.push(ask("POST", tokens, token));
    all
}

/// The compared parts of an answer, and its other parts to explain a difference.
fn seen(status: u16, kind: &str, body: &str) -> Value {
    let kind = kind.split(';').next().unwrap_or_default();
    let Ok(parsed) = serde_json::from_str::<Value>(body) else {
        return json!({"status": status, "type": kind, "text": body.trim()});
    };
    let mut seen = json!({"status": status, "type": kind, "kind": parsed["kind"], "apiVersion": parsed["apiVersion"]});
    if parsed["kind"] == "Status" {
        let keys: BTreeSet<&String> = parsed.as_object().unwrap().keys().collect();
        seen["keys"] = json!(keys);
        seen["reason"] = parsed["reason"].clone();
        seen["message"] = plain(parsed["message"].as_str().unwrap_or_default()).into();
    }
    if parsed["status"]["allowed"].is_boolean() {
        seen["allowed"] = parsed["status"]["allowed"].clone();
    }
    seen
}

/// Messages of Kubernetes 1.20, and the current ones, which the fake has.
const OLDER: [(&str, &str); 5] = [
    ("must have at most", "may not be more than"),
    ("[]string{\"10.9.9.9\"}", "[\"10.9.9.9\"]"),
    (
        "failed to allocated ip:10.9.9.9 with error:provided",
        "failed to allocate IP 10.9.9.9: the provided",
    ),
    // Decoders report more in newer versions.
    ("v1.Secret.Data: decode base64: ", ""),
    ("data.k: ", ""),
];

/// Without uids and versions.
fn plain(message: &str) -> String {
    let message = OLDER
        .iter()
        .fold(message.to_owned(), |text, (old, new)| text.replace(old, new));
    // A decoder quotes invalid input.
    let cut = ["illegal base64 data", "cannot be handled as a ConfigMap"];
    let end = cut.iter().find_map(|words| Some(message.find(words)? + words.len()));
    let message = &message[..end.unwrap_or(message.len())];
    let words = message.split(' ').map(|word| {
        let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_uid = core.len() == 36 && core.matches('-').count() == 4;
        let is_number = !core.is_empty() && core.bytes().all(|byte| byte.is_ascii_digit());
        match is_uid || is_number {
            true => word.replace(core, "#"),
            false => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

async fn answers(kubeconfig: &Path, namespace: &str) -> Vec<Value> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let mut uid = String::new();
    let mut all_seen = Vec::new();
    for ask in all() {
        let fill = |text: String| text.replace("NS", namespace).replace("UID", &uid);
        let body = match ask.body.is_null() {
            true => Vec::new(),
            false => fill(ask.body.to_string()).into_bytes(),
        };
        let request = http::Request::builder()
            .method(ask.method)
            .uri(fill(ask.path))
            .header("content-type", ask.kind)
            .header("accept", ask.accept)
            .body(kube::client::Body::from(body))
            .unwrap();
        let answer = client.send(request).await.unwrap();
        let (status, kind) = (answer.status().as_u16(), answer.headers().get("content-type").cloned());
        let bytes = answer.into_body().collect_bytes().await.unwrap();
        let text = String::from_utf8_lossy(&bytes);
        if status == 201
            && let Ok(made) = serde_json::from_str::<Value>(&text)
            && made["metadata"]["uid"].is_string()
        {
            uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        }
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default();
        all_seen.push(seen(status, &kind, &text));
    }
    all_seen
}

#[test]
#[ignore = "needs the lab"]
fn the_fake_answers_as_the_real_server_does() {
    let tenant = Tenant::new("asked");
    let mut world = World::with_tenants(&[&tenant.name]);
    world.has_mac_pool = false;
    world.groups_absent.insert("route.openshift.io");
    let mut user = User::tenant(
        &format!("system:serviceaccount:{}:ocpdeploy", tenant.name),
        &tenant.name,
    );
    user.edits.clear();
    user.more = documented(&[0, 1, 2], &tenant.name).into_iter().collect();
    world.users.insert("asked".to_owned(), user);
    let fake = FakeKubevirt::start(world);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fake.kubeconfig(&kubeconfig, "asked", &tenant.name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let fake = runtime.block_on(answers(&kubeconfig, &tenant.name));
    let real = runtime.block_on(answers(&tenant.kubeconfig, &tenant.name));
    let mut differences = 0;
    for ((ask, fake), real) in all().iter().zip(&fake).zip(&real) {
        if fake != real {
            differences += 1;
            println!("{} {}\n  fake {fake}\n  real {real}", ask.method, ask.path);
        }
    }
    println!("{} requests, {differences} differences", real.len());
    assert_eq!(differences, 0);
}
