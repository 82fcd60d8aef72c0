use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::*;
use crate::backend::{BackendErrorKind, ImageHandle, LoadBalancer, MachineSpec, Nic, Payload, Power};
use crate::cluster::{AddressAssignment, Architecture, ClusterId, Mac, MachineName, NodeName, OsBoot, Pass, Role, Vip};

fn lab() -> ClusterId {
    ClusterId::read("lab.example.com.x7k2pqrs").unwrap()
}

fn spec(node: NodeName, role: Role) -> MachineSpec {
    MachineSpec {
        cluster: lab(),
        name: MachineName::of_node("lab", &node),
        node,
        role,
        pass: Pass::Two,
        arch: Architecture::X86_64,
        cpus: 4,
        memory_mib: 16384,
        disk_gib: 100,
        extra_disks_gib: vec![],
        image: ImageHandle("image-1".to_owned()),
        nics: vec![Nic {
            network: "private net".to_owned(),
            mac: "52:54:00:00:00:01".parse().unwrap(),
        }],
        payload: Payload::Ignition(b"{}".to_vec()),
        autostart: false,
        ipv6: None,
        creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
    }
}

fn flavor(name: &str, cpus: u64, memory_mib: u64, disk_gib: u64) -> Flavor {
    Flavor {
        id: format!("id-{name}"),
        name: name.to_owned(),
        cpus,
        memory_mib,
        disk_gib,
        ephemeral_gib: 0,
        is_special: false,
        arch: None,
    }
}

fn parts<'a>(flavor: &'a Flavor, ports: &'a [String]) -> Parts<'a> {
    Parts {
        flavor,
        ports,
        user_data: "e30=",
        boot: OsBoot::Image,
        volumes: &[],
        zone: None,
        group: None,
    }
}

/// Responses of real services.
#[test]
fn each_service_has_its_own_error_format() {
    for (body, message) in [
        (
            r#"{"error":{"code":401,"message":"The request you have made requires authentication.","title":"Unauthorized"}}"#,
            "The request you have made requires authentication",
        ),
        (
            r#"{"badRequest":{"code":400,"message":"Invalid imageRef provided."}}"#,
            "Invalid imageRef provided",
        ),
        (
            r#"{"NeutronError":{"type":"NetworkInUse","message":"Unable to complete operation on network x.","detail":""}}"#,
            "Unable to complete operation on network x",
        ),
        (
            r#"{"message":"A body is not expected with this request.<br /><br />\n\n\n","code":"400 Bad Request","title":"Bad Request"}"#,
            "A body is not expected with this request",
        ),
        (
            "<html>\n <head>\n  <title>409 Conflict</title>\n </head>\n <body>Image is in use</body></html>",
            "409 Conflict Image is in use",
        ),
        (
            r#"{"debuginfo": null, "faultcode": "Client", "faultstring": "Quota has been met for resources: Load Balancer"}"#,
            "Quota has been met for resources: Load Balancer",
        ),
        ("", "no message"),
    ] {
        assert_eq!(fault(body.as_bytes()), message, "{body}");
    }
    let secret = r#"{"badRequest":{"code":400,"message":"Invalid input for field/attribute user_data. Value: c2VjcmV0. 'c2VjcmV0' is too long"}}"#;
    assert_eq!(fault(secret.as_bytes()), "Invalid input for field/attribute user_data");
    let long = format!(r#"{{"badRequest":{{"message":"{}"}}}}"#, "ä ".repeat(1000));
    assert_eq!(fault(long.as_bytes()).chars().count(), MESSAGE_LIMIT + 1);
}

#[test]
fn status_and_message_determine_the_kind() {
    use BackendErrorKind::*;
    for (status, message, kind) in [
        (
            403,
            "Quota exceeded for cores: Requested 4, but already used 18 of 20 cores",
            Quota,
        ),
        (409, "Quota exceeded for resources: ['port']", Quota),
        (
            403,
            "Project p is over a limit for [Resource servers is over limit of 2 due to current usage 2 and delta 1]",
            Quota,
        ),
        (403, "Quota has been met for resources: Load Balancer", Quota),
        (403, "Policy does not allow this request to be performed", Denied),
        (403, "rule:create_port:mac_address is disallowed by policy", Denied),
        (
            409,
            "Unable to complete operation for network x. The mac address is in use",
            Conflict,
        ),
        (404, "Port x could not be found", NotFound),
        (400, "Flavor's disk is too small for requested image", Rejected),
        (413, "Request image storage quota", Quota),
        (503, "no message", Unreachable),
        (500, "Unexpected API Error", Rejected),
    ] {
        assert_eq!(kind_of(status, message), kind, "{status} {message}");
    }
}

#[test]
fn only_the_marker_of_a_link_is_used() {
    let nova = |href: &str| json!({"servers": [], "servers_links": [{"rel": "next", "href": href}]});
    for href in [
        "http://n/v2.1/servers?limit=2&marker=1",
        "http://127.0.0.2:1/elsewhere?marker=1&x=y",
        "?marker=1",
    ] {
        assert_eq!(next_marker(&nova(href), "servers"), Ok(Some("1".to_owned())), "{href}");
    }
    let glance = json!({"images": [], "first": "/v2/images", "next": "/v2/images?marker=a%20b"});
    assert_eq!(next_marker(&glance, "images"), Ok(Some("a%20b".to_owned())));
    assert_eq!(next_marker(&json!({"ports": []}), "ports"), Ok(None));
    for odd in [
        "http://n/x",
        "http://n/x?marker=",
        "http://n/x?marker=1#/../y",
        "http://n/x?a=b",
    ] {
        assert!(next_marker(&nova(odd), "servers").is_err(), "{odd}");
    }
    assert_eq!(with_marker("/images", "1"), "/images?marker=1");
    assert_eq!(
        with_marker("/images?status=active", "1"),
        "/images?status=active&marker=1"
    );
    assert_eq!(
        query("/ports", &[("name", "a b:c"), ("x", "^y$")]),
        "/ports?name=a%20b%3Ac&x=%5Ey%24"
    );
}

#[test]
fn a_server_is_read_back_as_its_spec() {
    let (flavor, ports) = (flavor("m", 4, 16384, 100), ["port-1".to_owned()]);
    let spec = spec(NodeName::node(Role::Master, 0), Role::Master);
    let body = server(&spec, &parts(&flavor, &ports));
    let mut there = body["server"].clone();
    there["status"] = json!("ACTIVE");
    there["addresses"] = json!({"private net": [
        {"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "52:54:00:00:00:01"},
        {"addr": "203.0.113.9", "version": 4, "OS-EXT-IPS:type": "floating", "OS-EXT-IPS-MAC:mac_addr": "52:54:00:00:00:01"},
        {"addr": "fd00::5", "version": 6, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "52:54:00:00:00:01"},
    ]});
    let seen = machine(&there).unwrap();
    assert_eq!(
        (seen.name, seen.node, seen.role, seen.pass),
        (spec.name.clone(), spec.node.clone(), spec.role, spec.pass)
    );
    assert_eq!((seen.fingerprint, seen.power), (spec.fingerprint(), Power::Running));
    assert_eq!(seen.nics.len(), 1);
    assert_eq!(seen.nics[0].network, "private net");
    assert_eq!(seen.nics[0].addresses, [Ipv4Addr::new(10, 0, 0, 5)]);
    // Before it runs, an address is only assigned.
    there["status"] = json!("BUILD");
    assert_eq!(machine(&there).unwrap().nics[0].addresses, [Ipv4Addr::UNSPECIFIED; 0]);
    there["status"] = json!("ERROR");
    there["fault"] = json!({"code": 500, "message": "No valid host was found."});
    assert_eq!(
        machine(&there).unwrap().power,
        Power::Broken("No valid host was found".to_owned())
    );
    there["metadata"] = json!({});
    assert_eq!(machine(&there), None, "no tag");
}

#[test]
fn the_body_of_a_new_server() {
    let (flavor, ports) = (flavor("m", 4, 16384, 100), ["port-1".to_owned(), "port-2".to_owned()]);
    let mut spec = spec(NodeName::node(Role::Worker, 1), Role::Worker);
    let mut all = format!("{:#}\n", server(&spec, &parts(&flavor, &ports)));
    spec.extra_disks_gib = vec![10];
    let volumes = ["volume-0", "volume-1"].map(str::to_owned);
    let full = Parts {
        boot: OsBoot::Volume,
        volumes: &volumes,
        zone: Some("nova"),
        group: Some("group-1"),
        ..parts(&flavor, &ports)
    };
    all += &format!("{:#}\n", server(&spec, &full));
    let beside = Parts {
        volumes: &volumes[1..],
        ..parts(&flavor, &ports)
    };
    for parts in [beside, parts(&flavor, &ports)] {
        let devices = &server(&spec, &parts)["server"]["block_device_mapping_v2"];
        all += &format!("{devices:#}\n");
    }
    for volume in [
        volume(&spec, 0, 100, Some("image-1"), Some("ssd"), Some("az1,az2")),
        volume(&spec, 1, 10, None, None, None),
    ] {
        all += &format!("{volume:#}\n");
    }
    insta::assert_snapshot!(all);
}

#[test]
fn the_smallest_sufficient_flavor_is_chosen() {
    let flavors = [
        flavor("xl", 16, 65536, 200),
        flavor("m", 4, 16384, 120),
        flavor("thin", 4, 16384, 0),
        flavor("s", 2, 8192, 120),
    ];
    let wanted = |boot, extra: &[u64], has_volumes| FlavorRequirements::of(4, 16000, 100, extra, boot, has_volumes);
    assert_eq!(wanted(OsBoot::Image, &[], true).choose(&flavors).unwrap().name, "m");
    assert_eq!(wanted(OsBoot::Volume, &[], true).choose(&flavors).unwrap().name, "thin");
    assert_eq!(wanted(OsBoot::Image, &[10], true).choose(&flavors).unwrap().name, "m");
    let message = wanted(OsBoot::Image, &[10], false).choose(&flavors).unwrap_err();
    assert_eq!(
        message,
        "no flavor has 4 CPUs, 16000 MiB, 100 GiB of disk, 10 GiB of ephemeral disks; the largest, xl, has only 0 of 10 GiB of ephemeral disks"
    );
    assert_eq!(
        wanted(OsBoot::Image, &[], true).choose(&[]).unwrap_err(),
        "no flavor has 4 CPUs, 16000 MiB, 100 GiB of disk"
    );
    // CPUs and memory of a configured flavor are not checked.
    assert_eq!(
        wanted(OsBoot::Image, &[], true).named("id-s", &flavors).unwrap().name,
        "s"
    );
    assert_eq!(
        wanted(OsBoot::Image, &[], true).named("thin", &flavors).unwrap_err(),
        "flavor thin has only 0 of 100 GiB of disk"
    );
    assert_eq!(
        wanted(OsBoot::Image, &[], true).named("q", &flavors).unwrap_err(),
        "flavor q does not exist"
    );
}

#[test]
fn groups_of_servers_are_no_larger_than_the_quota() {
    let name = |index, members| group_name(&spec(NodeName::node(Role::Worker, index), Role::Worker), members).unwrap();
    assert_eq!(
        [name(0, 10), name(9, 10), name(10, 10)].map(|name| name.rsplit(' ').next().unwrap().to_owned()),
        ["0", "0", "1"]
    );
    assert_eq!(name(7, usize::MAX), "ocpdeploy lab.example.com.x7k2pqrs workers 0");
    assert_eq!(group_name(&spec(NodeName::bootstrap(), Role::Bootstrap), 10), None);
    let arbiter = spec(NodeName::node(Role::Arbiter, 0), Role::Arbiter);
    assert_eq!(
        group_name(&arbiter, 10).as_deref(),
        Some("ocpdeploy lab.example.com.x7k2pqrs masters")
    );
    assert_eq!(group_of(&name(0, 10)), Some(lab()));
    assert_eq!(group_of("ocpdeploy lab.example.com.x7k2pqrs masters"), Some(lab()));
    for other in [
        "ocpdeploy a.lab.example.com masters",
        "ocpdeploy lab.example.com.org masters",
        "ocpdeploy lab.example.com.x7k2pqrs",
        "ocpdeploy lab.example.com my databases",
        "ocpdeploy lab.example.com.x7k2pqrs workers",
        "ocpdeploy lab.example.com.x7k2pqrs workers x",
        "ocpdeploy lab.example.com Masters",
        "my ocpdeploy lab.example.com.x7k2pqrs masters",
    ] {
        assert_ne!(group_of(other), Some(lab()), "{other}");
    }
}

#[test]
fn special_hardware_is_used_only_by_name() {
    let listed = |name: &str, memory_mib: u64, specs: Value| {
        Flavor::read(&json!({
            "id": name, "name": name, "vcpus": 4, "ram": memory_mib, "disk": 100, "extra_specs": specs,
        }))
    };
    let special = [
        json!({"pci_passthrough:alias": "a1:2"}),
        json!({"resources:VGPU": "1"}),
        json!({"resources:CUSTOM_BAREMETAL_GOLD": "1", "resources:VCPU": "0"}),
        json!({"trait:CUSTOM_LICENSED": "required"}),
        json!({"hw:cpu_policy": "dedicated"}),
        json!({"capabilities:hypervisor_type": "ironic"}),
    ];
    let mut flavors: Vec<_> = special
        .into_iter()
        .map(|specs| listed("special", 8192, specs))
        .collect();
    let wanted = FlavorRequirements::of(4, 8192, 100, &[], OsBoot::Image, false);
    let refusal = wanted.choose(&flavors).unwrap_err();
    assert!(refusal.ends_with("are used only if they are named)"), "{refusal}");
    assert_eq!(wanted.named("special", &flavors).unwrap().name, "special");
    flavors.push(listed(
        "usual",
        16384,
        json!({"hw:cpu_policy": "shared", "aggregate_instance_extra_specs:ssd": "true"}),
    ));
    assert_eq!(wanted.choose(&flavors).unwrap().name, "usual");
}

#[test]
fn a_flavor_requires_the_architecture_of_its_required_trait() {
    for (specs, expected) in [
        (
            json!({"trait:HW_ARCH_AARCH64": "required"}),
            Some(Architecture::Aarch64),
        ),
        (
            json!({"trait_hosts:HW_ARCH_X86_64": "required"}),
            Some(Architecture::X86_64),
        ),
        (json!({"trait:HW_ARCH_AARCH64": "forbidden"}), None),
        (json!({"trait:HW_CPU_X86_AVX2": "required"}), None),
    ] {
        assert_eq!(Flavor::read(&json!({"extra_specs": specs})).arch, expected, "{specs}");
    }
}

#[test]
fn a_shelved_server_is_unshelved_to_start_it() {
    for (status, action) in [
        ("SHUTOFF", "os-start"),
        ("SHELVED", "unshelve"),
        ("SHELVED_OFFLOADED", "unshelve"),
    ] {
        let server = json!({"status": status});
        assert_eq!(power(&server), Some(Power::Off), "{status}");
        assert_eq!(start(&server), json!({action: null}), "{status}");
    }
}

#[test]
fn nodes_take_turns_in_zones() {
    let zone = |role, index, zones| zone_of(&spec(NodeName::node(role, index), role), zones).map(str::to_owned);
    for (role, index, expected) in [
        (Role::Master, 0, "a"),
        (Role::Master, 1, "b"),
        (Role::Master, 2, "c"),
        (Role::Arbiter, 0, "c"),
        (Role::Worker, 3, "a"),
    ] {
        assert_eq!(
            zone(role, index, Some("a, b,c")).as_deref(),
            Some(expected),
            "{role}-{index}"
        );
    }
    let bootstrap = spec(NodeName::bootstrap(), Role::Bootstrap);
    assert_eq!(zone_of(&bootstrap, Some("a,b")), Some("a"));
    assert_eq!(zone(Role::Worker, 7, Some("one:host")).as_deref(), Some("one:host"));
    assert_eq!(zone(Role::Worker, 7, None), None);
}

#[test]
fn a_flavor_too_small_for_an_image_is_reported() {
    let image = json!({"name": "rhcos", "min_disk": 10, "min_ram": 2048, "virtual_size": 17_179_869_185_u64});
    let flavor = flavor("m", 4, 2048, 16);
    assert_eq!(too_small(&flavor, 17, &image), None);
    assert_eq!(
        too_small(&flavor, 16, &image).unwrap(),
        "image rhcos requires 17 GiB of disk, a machine of flavor m has 16"
    );
    let small = Flavor {
        memory_mib: 1024,
        ..flavor
    };
    assert_eq!(
        too_small(&small, 17, &image).unwrap(),
        "image rhcos requires 2048 MiB of memory, a machine of flavor m has 1024"
    );
    assert_eq!(too_small(&small, 0, &json!({"name": "x", "virtual_size": null})), None);
}

fn load_balancer(vip: Vip, checked: bool) -> LoadBalancer {
    LoadBalancer {
        cluster: lab(),
        network: "private".to_owned(),
        vip,
        ip: None,
        ports: Vec::new(),
        roles: Vec::new(),
        members: None,
        checked,
    }
}

#[test]
fn a_health_monitor_uses_openshifts_paths_as_far_as_the_provider_supports_them() {
    let (amphora, ovn) = (json!({"provider": "amphora"}), json!({"provider": "ovn"}));
    for (vip, port, provider, kind, path) in [
        (Vip::Api, 6443, &amphora, "HTTPS", Some("/readyz")),
        (Vip::Api, 22623, &amphora, "TCP", None),
        (Vip::Api, 22624, &amphora, "TCP", None),
        (Vip::Ingress, 80, &amphora, "HTTP", Some("/healthz/ready")),
        (Vip::Ingress, 443, &amphora, "HTTP", Some("/healthz/ready")),
        (Vip::Api, 6443, &ovn, "TCP", None),
        (Vip::Ingress, 443, &ovn, "TCP", None),
    ] {
        let monitor = &monitor(&load_balancer(vip, true), provider, "pool-1", port)["healthmonitor"];
        assert_eq!(
            (monitor["type"].as_str(), monitor["url_path"].as_str()),
            (Some(kind), path),
            "{monitor}"
        );
        // Octavia rejects a timeout that exceeds the delay.
        assert!(monitor["timeout"].as_u64() <= monitor["delay"].as_u64());
    }
}

#[test]
fn members_have_a_monitor_port_only_for_checked_routers() {
    let node = AddressAssignment {
        name: NodeName::node(Role::Worker, 0),
        mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
        ip: [10, 0, 0, 5].into(),
    };
    let elsewhere = AddressAssignment {
        ip: [192, 0, 2, 5].into(),
        ..node.clone()
    };
    let subnet = ("sub", "10.0.0.0/24".parse().unwrap());
    for (vip, checked, provider, port) in [
        (Vip::Ingress, true, "amphora", json!(1936)),
        (Vip::Ingress, false, "amphora", Value::Null),
        (Vip::Ingress, true, "ovn", Value::Null),
        (Vip::Api, true, "amphora", Value::Null),
    ] {
        let balancer = json!({"provider": provider});
        let all = members(
            &load_balancer(vip, checked),
            &balancer,
            &[node.clone(), elsewhere.clone()],
            443,
            subnet,
        );
        assert_eq!(all[0]["monitor_port"], port, "{vip} {checked} {provider}");
        assert_eq!(
            (&all[0]["subnet_id"], &all[1]["subnet_id"]),
            (&json!("sub"), &Value::Null)
        );
        assert!(has_members(&all, &all) && !has_members(&all[..1], &all) && !has_members(&all, &all[..1]));
    }
}

#[test]
fn the_newest_version_is_a_number_not_a_text() {
    let root = |ids: &[&str]| json!({"versions": ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>()});
    assert_eq!(newest_version(&root(&["v2.0", "v2.9", "v2.13"])), Some((2, 13)));
    assert_eq!(newest_version(&root(&["v1"])), None);
    assert_eq!(newest_version(&Value::Null), None);
}
