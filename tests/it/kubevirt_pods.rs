//! Whole runs on the pod network of the fake KubeVirt: Services instead of a harvest, policies that isolate
//! clusters, and messages about missing requirements.

use crate::support::addresses::ipv4;
use crate::support::cluster::{cluster_id, without_ids};
use crate::support::{fake_kubevirt, kubevirt_sandbox};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;

use crate::support::fake_kubevirt::{FakeKubevirt, World};
use crate::support::kubevirt_sandbox::Sandbox;
use ipnetwork::Ipv4Network;
use ocpdeploy::backend::{AddressReservation, Backend, BackendErrorKind, ReservationState};
use ocpdeploy::cluster::AddressAssignment;
use serde_json::{Value, json};

const SMALL: &str = "network=pod\nkubevirt_pod_networks=10.128.0.0/14\nmasters=1\nworkers=1";

fn sandbox() -> Sandbox {
    Sandbox::new(World::with_tenants(&["blue", "red"]))
}

/// What a deployed cluster of one master and one worker has in its namespace, images aside.
fn small(cluster: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([
        format!("configmaps/ocpdeploy.{cluster}.example.com"),
        format!("routes/{cluster}-apps"),
        format!("services/{cluster}-api-vip"),
        format!("services/{cluster}-ingress-vip"),
        format!("networkpolicies/{cluster}-machines"),
        format!("networkpolicies/{cluster}-api"),
        format!("networkpolicies/{cluster}-ingress"),
    ]);
    for node in ["master-0", "worker-0"] {
        all.insert(format!("datavolumes/{cluster}-{node}-root"));
        all.insert(format!("persistentvolumeclaims/{cluster}-{node}-root"));
        all.insert(format!("pods/virt-launcher-{cluster}-{node}"));
        all.insert(format!("secrets/{cluster}-{node}-first-boot"));
        all.insert(format!("services/{cluster}-{node}"));
        all.insert(format!("virtualmachineinstances/{cluster}-{node}"));
        all.insert(format!("virtualmachines/{cluster}-{node}"));
    }
    all
}

fn without_images(inventory: Vec<String>) -> BTreeSet<String> {
    inventory
        .into_iter()
        .filter(|name| !name.contains("ocpdeploy-image-"))
        .collect()
}

#[track_caller]
fn is_deployed(sandbox: &Sandbox, cluster: &str) {
    let found = without_images(sandbox.inventory("blue"));
    let missing: Vec<_> = small(cluster).difference(&found).cloned().collect();
    assert_eq!(missing, [""; 0], "{cluster} lacks these");
    let table = sandbox.parameters(cluster);
    assert_eq!(table.peer_domain.as_deref(), Some("blue.svc"));
    let mut addresses = BTreeSet::new();
    for node in &table.nodes {
        assert!(addresses.insert(node.ip), "{} is used twice", node.ip);
        if node.name.as_str() == "bootstrap" {
            continue;
        }
        let machine = sandbox.object("virtualmachines", "blue", &format!("{cluster}-{}", node.name));
        let guest = &machine["spec"]["template"]["spec"];
        let range: Ipv4Network = guest["networks"][0]["pod"]["vmNetworkCIDR"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!((range.prefix(), range.nth(2)), (30, Some(ipv4(node.ip))));
        assert!(guest["domain"]["devices"]["interfaces"][0]["masquerade"].is_object());
    }
    let service = sandbox.object("services", "blue", &format!("{cluster}-api-vip"));
    let ip = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
    assert_eq!(ip, &json!(table.api_ip.to_string()));
}

#[test]
fn a_cluster_is_deployed_and_destroyed_without_a_harvest() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    let before = sandbox.inventory("blue");
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
    assert_eq!(without_images(sandbox.inventory("blue")), small("lab"));
    let harvested = sandbox.server.with(|world| {
        world
            .events
            .iter()
            .any(|event| event.object.to_string().contains("harvest"))
    });
    assert!(!harvested, "a machine of pass one was created");
    assert!(sandbox.deploy("lab").unwrap().skipped_pass_one);
    is_deployed(&sandbox, "lab");
    sandbox.destroy("lab");
    assert_eq!(sandbox.inventory("blue"), before);
    sandbox.server.was_asked_well();
}

/// The files of a node's Ignition config.
fn files(sandbox: &Sandbox, node: &str) -> Value {
    let path = sandbox.home().cluster("lab").ignition(node);
    let config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    config["storage"]["files"].clone()
}

#[test]
fn nodes_know_their_own_address_and_where_to_find_the_others() {
    use base64::Engine;
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").unwrap();
    let table = sandbox.parameters("lab");
    let bootstrap = table
        .nodes
        .iter()
        .find(|node| node.name.as_str() == "bootstrap")
        .unwrap();
    let hint = files(&sandbox, "bootstrap");
    let hint = hint
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["path"] == "/etc/default/nodeip-configuration");
    let source = hint.unwrap()["contents"]["source"].as_str().unwrap();
    let text = base64::engine::general_purpose::STANDARD
        .decode(source.split_once(',').unwrap().1)
        .unwrap();
    let gateway = Ipv4Addr::from_bits(ipv4(bootstrap.ip).to_bits() - 1);
    assert!(
        String::from_utf8(text)
            .unwrap()
            .contains(&format!("NODEIP_HINT={gateway}\n"))
    );
    let all = files(&sandbox, "bootstrap").to_string();
    for path in [
        "/etc/ocpdeploy/peers",
        "/usr/local/bin/ocpdeploy-peers",
        "99_ocpdeploy-network.yaml",
    ] {
        assert!(all.contains(path), "no {path}");
    }
    for absent in ["keepalived", "haproxy", "vip-leases"] {
        let found = files(&sandbox, "bootstrap").as_array().unwrap().iter().any(|file| {
            let path = file["path"].as_str().unwrap();
            path.starts_with("/etc/") && path.contains(absent)
        });
        assert!(!found, "{absent} exists, although a Service has the virtual IP");
    }
}

#[test]
fn a_run_in_which_every_change_fails_once_has_the_same_result() {
    let (untouched, sandbox) = (sandbox(), sandbox());
    for sandbox in [&untouched, &sandbox] {
        sandbox.env("lab", SMALL);
    }
    untouched.deploy("lab").unwrap();
    sandbox.deploy_through_faults("lab", &untouched);
    is_deployed(&sandbox, "lab");
    assert_eq!(sandbox.inventory("blue"), untouched.inventory("blue"));
}

#[test]
fn a_run_that_is_killed_is_continued() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    let deploy = ["deploy", "lab.sh", "--rehearse"];
    sandbox.kill(&deploy, |world| !world.names("networkpolicies", "blue").is_empty());
    sandbox.kill(&deploy, |world| world.names("services", "blue").len() >= 3);
    sandbox.kill(&deploy, |world| !world.names("virtualmachines", "blue").is_empty());
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
    assert_eq!(without_images(sandbox.inventory("blue")), small("lab"));
}

#[test]
fn three_clusters_at_once_share_only_images() {
    let sandbox = sandbox();
    let clusters = ["lab", "lab-2", "blab"];
    std::thread::scope(|scope| {
        for cluster in clusters {
            sandbox.env(cluster, SMALL);
            let sandbox = &sandbox;
            scope.spawn(move || sandbox.deploy(cluster).unwrap());
        }
    });
    for (gone, cluster) in clusters.iter().enumerate() {
        is_deployed(&sandbox, cluster);
        sandbox.destroy(cluster);
        for left in &clusters[gone + 1..] {
            is_deployed(&sandbox, left);
        }
    }
    assert_eq!(sandbox.inventory("blue"), [""; 0]);
}

/// The sender of a packet.
struct Sender {
    /// Namespace and labels of a pod; `None` if the sender is not a pod.
    pod: Option<(String, Value)>,
    ip: Ipv4Addr,
}

fn chooses(selector: &Value, labels: &Value) -> bool {
    assert!(
        selector.get("matchExpressions").is_none(),
        "the test knows no expressions"
    );
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    wanted.into_iter().all(|(label, value)| labels[label] == *value)
}

/// Whether a peer of a rule is this sender, for a policy of a namespace (networking.k8s.io/v1, NetworkPolicyPeer).
fn is_peer(world: &World, namespace: &str, peer: &Value, sender: &Sender) -> bool {
    if peer["ipBlock"].is_object() {
        let within = |range: &Value| {
            range
                .as_str()
                .unwrap()
                .parse::<Ipv4Network>()
                .unwrap()
                .contains(sender.ip)
        };
        let except = peer["ipBlock"]["except"].as_array().into_iter().flatten();
        return within(&peer["ipBlock"]["cidr"]) && !except.into_iter().any(within);
    }
    let Some((of, labels)) = &sender.pod else { return false };
    let in_namespace = match &peer["namespaceSelector"] {
        Value::Null => of == namespace,
        selector => {
            let key = ("namespaces", String::new(), of.clone());
            chooses(selector, &world.objects[&key]["metadata"]["labels"])
        }
    };
    in_namespace && (peer["podSelector"].is_null() || chooses(&peer["podSelector"], labels))
}

/// Whether policies admit a packet to a pod; without a policy that selects the pod, all packets are admitted.
fn comes_in(world: &World, to: &(String, Value), sender: &Sender, protocol: &str, port: u16) -> bool {
    let policies: Vec<Arc<Value>> = world
        .all("networkpolicies")
        .into_iter()
        .filter(|((_, namespace, _), policy)| *namespace == to.0 && chooses(&policy["spec"]["podSelector"], &to.1))
        .map(|(_, policy)| policy)
        .collect();
    let lets = |policy: &Value| {
        policy["spec"]["ingress"].as_array().into_iter().flatten().any(|rule| {
            let peers = rule["from"].as_array();
            let from = peers.is_none_or(|peers| peers.iter().any(|peer| is_peer(world, &to.0, peer, sender)));
            let ports = rule["ports"].as_array();
            from && ports.is_none_or(|ports| {
                ports
                    .iter()
                    .any(|open| open["protocol"] == protocol && open["port"] == port)
            })
        })
    };
    policies.is_empty() || policies.iter().any(|policy| lets(policy))
}

/// Namespace and labels, name and address of each pod.
fn pods(world: &World) -> Vec<((String, Value), String, Ipv4Addr)> {
    let read = |((_, namespace, name), pod): (fake_kubevirt::world::Key, Arc<Value>)| {
        let ip = pod["status"]["podIP"].as_str().unwrap().parse().unwrap();
        ((namespace, pod["metadata"]["labels"].clone()), name, ip)
    };
    world.all("pods").into_iter().map(read).collect()
}

#[test]
fn network_policies_separate_clusters_and_tenants() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    // One with the same name in another tenant's namespace, and a second cluster in the first namespace.
    let red = sandbox.kubeconfig("red").display().to_string();
    sandbox.env("red", &format!("{SMALL}\nkubevirt_kubeconfig={red}"));
    sandbox.env("next", SMALL);
    for cluster in ["lab", "red", "next"] {
        sandbox.deploy(cluster).unwrap();
    }
    sandbox.server.with(|world| {
        let routers = json!({"network.openshift.io/policy-group": "ingress"});
        world.force(
            "namespaces",
            json!({"metadata": {"name": "routers", "labels": routers}}),
        );
        world.force("namespaces", json!({"metadata": {"name": "others"}}));
        let pods = pods(world);
        assert_eq!(pods.len(), 6);
        let cluster = |labels: &Value| labels["ocpdeploy.io/cluster"].as_str().unwrap().to_owned();
        let within = [
            ("TCP", 2379),
            ("TCP", 10250),
            ("UDP", 6082),
            ("TCP", 30_000),
            ("TCP", 22),
            ("TCP", 22624),
        ];
        let open = [("TCP", 6443), ("TCP", 22623), ("TCP", 80), ("TCP", 443)];
        for (to, name, _) in &pods {
            for (from, of, ip) in &pods {
                let sender = Sender {
                    pod: Some(from.clone()),
                    ip: *ip,
                };
                let is_own = cluster(&from.1) == cluster(&to.1);
                for (protocol, port) in within.into_iter().chain(open) {
                    let found = comes_in(world, to, &sender, protocol, port);
                    assert_eq!(found, is_own, "{of} to {name} {port}");
                }
            }
            let is_master = name.contains("master");
            let pod = |namespace: &str| Some((namespace.to_owned(), json!({"app": "any"})));
            let outside = Sender {
                pod: None,
                ip: Ipv4Addr::new(198, 51, 100, 7),
            };
            let router = Sender {
                pod: pod("routers"),
                ip: Ipv4Addr::new(10, 129, 0, 9),
            };
            let other = Sender {
                pod: pod("others"),
                ip: Ipv4Addr::new(10, 130, 0, 9),
            };
            for (protocol, port) in within.into_iter().chain(open) {
                // A rehearsal has mcs=http, which adds 22624.
                let of_api = is_master && [6443, 22623, 22624].contains(&port);
                let of_ingress = !is_master && [80, 443].contains(&port);
                let comes = |sender| comes_in(world, to, sender, protocol, port);
                assert_eq!(comes(&outside), of_api || of_ingress, "the world to {name} {port}");
                assert_eq!(comes(&router), of_ingress, "a router to {name} {port}");
                assert!(!comes(&other), "an unrelated pod to {name} {port}");
            }
        }
    });
}

/// The result of reserving an address.
fn hold(
    sandbox: &Sandbox,
    cluster: &str,
    node: &str,
    ip: &str,
    mac: &str,
) -> Result<ReservationState, BackendErrorKind> {
    let hold = AddressReservation {
        cluster: cluster_id(cluster, "example.com"),
        network: "pod".to_owned(),
        assignment: AddressAssignment {
            name: node.parse().unwrap(),
            mac: mac.parse().unwrap(),
            ip: ip.parse().unwrap(),
        },
        ipv6: None,
        dns_names: vec![],
        dns_later: false,
        allowed: vec![],
    };
    let held = sandbox.on_backend(async |backend| backend.reserve_address(&hold).await);
    held.map_err(|error| error.kind)
}

#[test]
fn each_node_of_a_cluster_has_an_address_of_its_own() {
    use BackendErrorKind::Conflict;
    let sandbox = sandbox();
    let [one, two] = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
    for (cluster, node, ip, mac, expected) in [
        ("lab", "master-0", "10.0.2.2", one, Ok(ReservationState::ByPlatform)),
        ("lab", "master-0", "10.0.2.2", one, Ok(ReservationState::ByPlatform)),
        // Addresses that no guest has: the gateway and the ends of its network.
        ("lab", "master-1", "10.0.2.5", two, Err(Conflict)),
        ("lab", "master-1", "10.0.2.2", two, Err(Conflict)),
        ("lab", "master-1", "10.0.2.6", one, Err(Conflict)),
        ("lab", "master-0", "10.0.2.6", two, Err(Conflict)),
        ("lab", "api", "172.30.0.9", two, Err(Conflict)),
        // Another cluster has its own addresses.
        ("other", "master-0", "10.0.2.2", one, Ok(ReservationState::ByPlatform)),
    ] {
        assert_eq!(
            hold(&sandbox, cluster, node, ip, mac),
            expected,
            "{cluster} {node} {ip} {mac}"
        );
    }
    sandbox.server.with(|world| {
        let about = json!({"namespace": "blue", "name": "lab-master-7"});
        world.force("services", json!({"metadata": about, "spec": {}}));
    });
    assert_eq!(hold(&sandbox, "lab", "master-7", "10.0.2.30", two), Err(Conflict));
}

#[test]
fn services_select_their_machines() {
    for (nodes, ingress) in [("masters=1\nworkers=1", "worker"), ("masters=1\nworkers=0", "master")] {
        let sandbox = sandbox();
        sandbox.env("lab", &SMALL.replace("masters=1\nworkers=1", nodes));
        sandbox.deploy("lab").unwrap();
        let behind = |service: &str| {
            let service = sandbox.object("services", "blue", service);
            sandbox.server.with(|world| {
                let selector = json!({"matchLabels": service["spec"]["selector"]});
                let chosen = pods(world).into_iter().filter(|(of, ..)| chooses(&selector, &of.1));
                chosen.map(|(_, name, _)| name).collect::<Vec<_>>()
            })
        };
        assert_eq!(behind("lab-api-vip"), ["virt-launcher-lab-master-0"]);
        assert_eq!(behind("lab-ingress-vip"), [format!("virt-launcher-lab-{ingress}-0")]);
        assert_eq!(behind("lab-master-0"), ["virt-launcher-lab-master-0"]);
    }
}

#[test]
fn services_are_exposed_as_the_platform_allows() {
    let kind = |sandbox: &Sandbox| {
        let service = sandbox.object("services", "blue", "lab-api-vip");
        service["spec"]["type"].as_str().unwrap().to_owned()
    };
    for (lines, has_balancers, expected) in [
        ("", true, "LoadBalancer"),
        ("kubevirt_node_address=192.0.2.10", false, "NodePort"),
        (
            "kubevirt_expose=nodeport\nkubevirt_node_address=192.0.2.10",
            true,
            "NodePort",
        ),
        ("kubevirt_expose=clusterip", true, "ClusterIP"),
    ] {
        let sandbox = sandbox();
        sandbox.server.with(|world| world.has_balancers = has_balancers);
        sandbox.env("lab", &format!("{SMALL}\n{lines}"));
        sandbox.deploy("lab").unwrap();
        assert_eq!(kind(&sandbox), expected, "{lines}");
        let table = sandbox.parameters("lab");
        let inside = sandbox.object("services", "blue", "lab-api-vip")["spec"]["clusterIP"].clone();
        assert_eq!(expected != "LoadBalancer", inside == table.api_ip.to_string());
        let endpoint = table.api_endpoint().to(6443);
        match expected {
            "NodePort" => assert!(endpoint.to_string().starts_with("192.0.2.10:30"), "{endpoint}"),
            _ => assert_eq!(endpoint, std::net::SocketAddr::new(table.api_ip, 6443)),
        }
    }
}

#[test]
fn routes_are_one_for_all_names_or_one_for_each() {
    for (lines, wildcards, served, expected) in [
        ("", true, true, vec!["lab-apps"]),
        (
            "",
            false,
            true,
            vec!["lab-console-openshift-console", "lab-oauth-openshift"],
        ),
        (
            "kubevirt_routes=names\nkubevirt_route_names=shop",
            true,
            true,
            vec!["lab-shop"],
        ),
        ("kubevirt_routes=off", true, true, vec![]),
        ("", true, false, vec![]),
    ] {
        let sandbox = sandbox();
        sandbox.server.with(|world| {
            world.takes_wildcards = wildcards;
            if !served {
                world.groups_absent.insert("route.openshift.io");
            }
        });
        sandbox.env("lab", &format!("{SMALL}\n{lines}"));
        sandbox.deploy("lab").unwrap();
        let routes = sandbox.server.with(|world| world.names("routes", "blue"));
        assert_eq!(routes, expected, "{lines}");
        for name in expected {
            let route = sandbox.object("routes", "blue", name);
            let host = route["spec"]["host"].as_str().unwrap();
            assert!(host.ends_with(".apps.lab.example.com"), "{host}");
            assert_eq!(route["spec"]["tls"]["termination"], "passthrough");
        }
        sandbox.destroy("lab");
        assert_eq!(sandbox.inventory("blue"), [""; 0]);
    }
}

/// The commands of docs/how-to/kubevirt.md, with a second server as the API of the deployed cluster.
#[test]
fn the_documented_commands_add_a_route_for_each_route_of_the_cluster() {
    let sandbox = sandbox();
    sandbox.server.with(|world| world.takes_wildcards = false);
    sandbox.env("lab", SMALL);
    let before = sandbox.inventory("blue");
    sandbox.deploy("lab").unwrap();
    let mut world = World::with_tenants(&["inside"]);
    for host in ["console-openshift-console", "shop"] {
        let spec = json!({"host": format!("{host}.apps.lab.example.com")});
        world.force(
            "routes",
            json!({"metadata": {"namespace": "inside", "name": host}, "spec": spec}),
        );
    }
    let inside = FakeKubevirt::start(world);
    inside.kubeconfig(&sandbox.path().join("lab.kubeconfig"), "admin-token", "inside");
    let page = include_str!("../../docs/how-to/kubevirt.md");
    let mut blocks = page.split("```").filter_map(|block| block.strip_prefix("sh\n"));
    let commands = blocks.find(|block| block.contains("get routes")).unwrap();
    let commands = commands
        .strip_prefix("ocpdeploy kubeconfig lab -o lab.kubeconfig\n")
        .unwrap();
    // The fake has no OpenAPI schema.
    let create = "create) command kubectl create --validate=false \"${@:2}\";;";
    let script = format!("kubectl() {{ case $1 in {create} *) command kubectl \"$@\";; esac; }}\n{commands}");
    for _ in 0..2 {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .env("KUBECONFIG", sandbox.kubeconfig("blue"))
            .env("HOME", sandbox.path())
            .current_dir(sandbox.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let routes = sandbox.server.with(|world| world.names("routes", "blue"));
    assert_eq!(
        routes,
        ["lab-console-openshift-console", "lab-oauth-openshift", "lab-shop"]
    );
    let spec = |name: &str| sandbox.object("routes", "blue", name)["spec"].clone();
    let mut shop = spec("lab-console-openshift-console");
    shop["host"] = "shop.apps.lab.example.com".into();
    // It is the default.
    assert_eq!(
        shop.as_object_mut().unwrap().remove("wildcardPolicy"),
        Some(json!("None"))
    );
    assert_eq!(spec("lab-shop"), shop);
    sandbox.destroy("lab");
    assert_eq!(sandbox.inventory("blue"), before);
}

#[test]
fn the_documented_role_is_enough() {
    let sandbox = sandbox();
    sandbox.server.with(|world| {
        let user = world.users.get_mut("blue-token").unwrap();
        user.edits.clear();
        user.more.extend(kubevirt_sandbox::documented(&[0, 1], "blue"));
    });
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
    sandbox.destroy("lab");
}

#[test]
fn the_manifests_of_a_plan_are_all_objects_and_change_nothing() {
    for (lines, takes_wildcards, routes) in [
        ("", true, &["lab-apps"][..]),
        ("", false, &["lab-console-openshift-console", "lab-oauth-openshift"]),
        ("kubevirt_routes=off", true, &[]),
    ] {
        let sandbox = sandbox();
        sandbox.server.with(|world| world.takes_wildcards = takes_wildcards);
        sandbox.env("lab", &format!("{SMALL}\n{lines}"));
        sandbox.deploy("lab").unwrap();
        let planned = sandbox.run(&["plan", "lab.sh", "--rehearse", "--manifests", "manifests"]);
        assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
        let folder = sandbox.path().join("manifests");
        let mut written = BTreeSet::new();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let (kind, name) = name.split_once('-').unwrap();
            written.insert(format!("{}/{name}", kind.replace("policy", "policie") + "s"));
        }
        // Objects that controllers create from these.
        let theirs = [
            "datavolumes/",
            "persistentvolumeclaims/",
            "pods/",
            "virtualmachineinstances/",
        ];
        let mut made = without_images(sandbox.inventory("blue"));
        made.retain(|name| !theirs.iter().any(|kind| name.starts_with(kind)));
        let written: BTreeSet<_> = written.iter().map(|name| without_ids(name, "example.com")).collect();
        assert_eq!(written, made, "{lines}");
        let found: Vec<_> = made.iter().filter_map(|name| name.strip_prefix("routes/")).collect();
        assert_eq!(found, routes, "{lines}");
        let before = sandbox.server.with(|world| world.version());
        let folder = folder.display().to_string();
        let diff = [
            "diff",
            "--server-side",
            "--force-conflicts",
            "--field-manager=ocpdeploy",
            "-f",
            &folder,
        ];
        let dry = ["--dry-run=server", "--validate=false", "-f", &folder];
        let dry = [&["apply", "--server-side", "--force-conflicts"][..], &dry].concat();
        for asked in [&diff[..], &dry] {
            let (succeeded, text) = kubevirt_sandbox::kubectl(&sandbox, asked);
            assert!(succeeded, "{lines}: {text}");
        }
        assert_eq!(sandbox.server.with(|world| world.version()), before);
    }
}

#[test]
fn the_plan_states_the_limits() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    let planned = sandbox.run(&["plan", "lab.sh", "--rehearse"]);
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    insta::assert_snapshot!(String::from_utf8(planned.stdout).unwrap());
}

macro_rules! tells {
    ($($name:ident: $lines:expr, |$world:ident| $change:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let sandbox = sandbox();
                sandbox.server.with(|$world: &mut World| { $change; });
                insta::assert_snapshot!(kubevirt_sandbox::told(&sandbox, &format!("{SMALL}\n{}", $lines)));
            }
        )+
    };
}

tells! {
    a_harvest_by_mac_is_asked_for: "harvest=boot", |world| world.faults.clear();
    keepalived_is_asked_for: "lb=keepalived", |world| world.faults.clear();
    a_virtual_ip_is_given: "api_ip=10.0.2.9", |world| world.faults.clear();
    the_platform_s_range_is_the_cluster_s_as_well: "service_network=172.30.0.0/16", |world| world.faults.clear();
    services_may_not_be_made: "", |world| {
        let lacks = ["create services".to_owned(), "patch networkpolicies".to_owned()];
        world.users.get_mut("blue-token").unwrap().lacks.extend(lacks);
    };
    no_node_s_address_is_known: "kubevirt_expose=nodeport", |world| world.faults.clear();
    routes_may_have_no_host: "", |world| {
        world.users.get_mut("blue-token").unwrap().lacks.insert("create routes/custom-host".to_owned());
    };
    the_namespace_has_a_network_of_its_own: "", |world| {
        let blue = ("namespaces", String::new(), "blue".to_owned());
        let mut namespace = serde_json::Value::clone(&world.objects[&blue]);
        namespace["metadata"]["labels"]["k8s.ovn.org/primary-user-defined-network"] = "".into();
        world.store(blue, namespace, "MODIFIED");
    };
    a_wildcard_that_is_refused: "kubevirt_routes=wildcard", |world| world.takes_wildcards = false;
}

#[test]
fn the_pods_range_is_not_known() {
    let sandbox = sandbox();
    let lines = SMALL.replace("kubevirt_pod_networks=10.128.0.0/14\n", "");
    insta::assert_snapshot!(kubevirt_sandbox::told(&sandbox, &lines));
    // OpenShift can report it.
    sandbox.server.with(|world| {
        let status = json!({"clusterNetwork": [{"cidr": "10.128.0.0/14"}]});
        world.force("networks", json!({"metadata": {"name": "cluster"}, "status": status}));
        let user = world.users.get_mut("blue-token").unwrap();
        user.more.insert("get networks ".to_owned());
    });
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
}
