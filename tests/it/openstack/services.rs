//! Servers, volumes, objects, images and tokens that a cluster makes.

use super::*;

fn user_data(server: &Value) -> Value {
    let text = server["server"]["user_data"].as_str().unwrap();
    serde_json::from_slice(&STANDARD.decode(text).unwrap()).unwrap()
}

#[test]
fn volumes_have_the_clusters_tag_and_are_deleted_with_it() {
    let (cloud, sandbox) = cloud_with(&["volumev3"]);
    sandbox.deploy_in_vain("os_boot=volume\nos_volume_type=ssd\nextra_disks=5,6\n");
    cloud.with(|world| {
        let mut volumes: Vec<_> = world
            .stores
            .volumes
            .iter()
            .map(|volume| {
                assert_eq!(volume["metadata"], json!({"ocpdeploy.cluster": sandbox.tag()}));
                assert_eq!(
                    (volume["status"].as_str(), volume["volume_type"].as_str()),
                    (Some("in-use"), Some("ssd"))
                );
                let has_image = if volume["imageRef"].is_null() {
                    ""
                } else {
                    " of an image"
                };
                format!("{} {}{has_image}", volume["name"].as_str().unwrap(), volume["size"])
            })
            .collect();
        volumes.sort();
        assert_eq!(
            volumes,
            [
                "lab-bootstrap:disk0 1 of an image",
                "lab-master-0:disk0 1 of an image",
                "lab-master-0:disk1 5",
                "lab-master-0:disk2 6",
            ]
        );
        for body in &world.stores.bodies {
            assert_eq!(body["server"]["imageRef"], Value::Null);
            let devices = body["server"]["block_device_mapping_v2"].as_array().unwrap();
            assert!(devices.iter().all(|device| device["delete_on_termination"] == true));
        }
        // A volume that Nova left: its server is deleted, and its name identifies the owner.
        let mut lost = world.stores.volumes[0].clone();
        lost["id"] = json!("volume-lost");
        lost["status"] = json!("available");
        lost["attachments"] = json!([]);
        world.stores.volumes.push(lost);
        let mut strangers = world.stores.volumes[0].clone();
        strangers["id"] = json!("volume-stranger");
        strangers["metadata"] = json!({});
        strangers["attachments"] = json!([]);
        world.stores.volumes.push(strangers);
    });
    let listed = sandbox.run(&["destroy", "lab", "--dry-run"], &[]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(
        listed.lines().filter(|line| line.starts_with("volume ")).count(),
        4,
        "{listed}"
    );
    sandbox.destroy();
    cloud.with(|world| {
        let left: Vec<_> = world
            .stores
            .volumes
            .drain(..)
            .map(|volume| volume["id"].clone())
            .collect();
        assert_eq!(left, ["volume-stranger"]);
    });
    let world = cloud.finish();
    assert_eq!(world.ports, [Value::Null; 0]);
    is_empty(&world.stores);
}

#[test]
fn servers_that_nova_keeps_after_their_deletion_are_deleted_for_good() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| world.stores.keeps_deleted = true);
    sandbox.deploy_in_vain("");
    // A `destroy` that was killed deleted one of them: no list has it, and its port is in use.
    cloud.with(|world| world.stores.servers[0]["status"] = json!("SOFT_DELETED"));
    sandbox.destroy();
    let forced = cloud.asked("POST /compute/v2.1/servers/server-");
    let world = cloud.finish();
    assert!(forced >= 2, "{forced}");
    assert_eq!(world.ports, [Value::Null; 0]);
    is_empty(&world.stores);
}

#[test]
fn an_unreachable_swift_that_is_not_used_is_skipped() {
    for (lines, is_skipped) in [("os_ignition=glance\n", false), ("", true)] {
        let (cloud, sandbox) = cloud_with(&["object-store"]);
        // Nothing listens there.
        cloud.with(|world| {
            world.elsewhere.insert("object-store", "http://127.0.0.1:1/v1/AUTH_1");
        });
        sandbox.deploy_in_vain(lines);
        let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
        let text = succeeded(&output);
        let told = text.matches("object storage (Swift) is skipped").count();
        assert_eq!(told, usize::from(is_skipped), "{lines}: {text}");
        is_empty(&cloud.finish().stores);
    }
    // If the settings require it, its failure is an error.
    let (cloud, sandbox) = cloud_with(&["object-store"]);
    sandbox.deploy_in_vain("os_ignition=swift\n");
    cloud.with(|world| {
        world.elsewhere.insert("object-store", "http://127.0.0.1:1/v1/AUTH_1");
    });
    let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
    assert_ne!(output.status.code(), Some(0));
    cloud.with(|world| world.elsewhere.clear());
    destroys_all(cloud, &sandbox);
}

/// Services that the settings do not use may be closed to this user, broken or missing.
#[test]
fn services_that_are_not_used_are_skipped_with_one_warning() {
    let optional = [
        ("load-balancer", "load balancer (Octavia) is skipped"),
        ("volumev3", "block storage (Cinder) is skipped"),
        ("object-store", "object storage (Swift) is skipped"),
    ];
    let kinds = optional.map(|(kind, _)| kind);
    let broken = |status: Option<u16>| {
        let (cloud, sandbox) = cloud_with(&kinds);
        cloud.with(|world| match status {
            Some(status) => world.optional_fail = Some(status),
            // Nothing listens there.
            None => world.elsewhere.extend(kinds.map(|kind| (kind, "http://127.0.0.1:1/x"))),
        });
        for arguments in [&["check"][..], &["harvest"], &["destroy", "lab", "--yes"]] {
            let output = sandbox.run(arguments, &[("OCPDEPLOY_DNS", "user")]);
            let said = String::from_utf8_lossy(&output.stderr);
            let results = String::from_utf8_lossy(&output.stdout);
            let failed: Vec<_> = results.lines().filter(|line| line.starts_with("FAIL")).collect();
            let is_as_usual = match arguments {
                ["check"] => failed.len() == 1 && failed[0].contains("cannot find openshift-install"),
                _ => output.status.success(),
            };
            assert!(is_as_usual, "{status:?} {arguments:?}: {said}{results}");
            for (_, warning) in optional {
                let told = said.matches(warning).count();
                // Of Swift, not found also means that there is no container.
                let may_be_empty = status == Some(404) && warning.starts_with("object storage");
                let is_told_once = told == 1 || told == 0 && may_be_empty;
                assert!(is_told_once, "{status:?} {arguments:?} {warning}: {said}");
            }
        }
        assert_eq!(cloud.finish().ports, [Value::Null; 0], "{status:?}");
    };
    std::thread::scope(|scope| {
        for status in [Some(401), Some(403), Some(404), Some(503), None] {
            scope.spawn(move || broken(status));
        }
    });
}

#[test]
fn a_service_that_is_used_must_work_to_destroy_the_cluster() {
    for (kind, lines, name) in [
        ("volumev3", "os_boot=volume\n", "block storage (Cinder)"),
        ("volumev3", "extra_disks=5\n", "block storage (Cinder)"),
        ("load-balancer", "lb=platform\n", "load balancer (Octavia)"),
    ] {
        let (cloud, sandbox) = cloud_with(&[kind]);
        sandbox.add(lines);
        succeeded(&sandbox.harvest());
        cloud.with(|world| {
            world.elsewhere.insert(kind, "http://127.0.0.1:1/x");
        });
        let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{lines}: {said}");
        assert!(said.contains(name) && !said.contains("is skipped"), "{lines}: {said}");
        cloud.with(|world| world.elsewhere.clear());
        sandbox.destroy();
        cloud.finish();
    }
}

/// Nova had no host for a server: the cause is gone, and perhaps the server, too.
#[test]
fn a_server_that_never_ran_is_created_again() {
    for is_deleted_by_the_user in [false, true] {
        let (cloud, sandbox) = cloud();
        cloud.with(|world| world.stores.unschedulable = vec!["lab-master-0"]);
        let output = sandbox.begin_to_deploy("");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{said}");
        assert!(
            said.contains("No valid host was found") && said.contains("run the same command again"),
            "{said}"
        );
        let bootstrap = cloud.with(|world| {
            world.stores.unschedulable.clear();
            let of_master = |server: &Value| server["name"] == "lab-master-0";
            if is_deleted_by_the_user {
                let id = world.stores.servers.iter().find(|server| of_master(server)).unwrap()["id"].clone();
                world.stores.servers.retain(|server| !of_master(server));
                for port in world.ports.iter_mut().filter(|port| port["device_id"] == id) {
                    port["device_id"] = json!("");
                }
            }
            id_of_server(world, "lab-bootstrap")
        });
        let said = sandbox.deploy_in_vain("");
        let warning = "server lab-master-0 never ran and is created again: No valid host was found";
        assert_eq!(said.contains(warning), !is_deleted_by_the_user, "{said}");
        cloud.with(|world| {
            let names = |server: &Value| server["name"].as_str().unwrap().to_owned();
            let mut servers: Vec<_> = world.stores.servers.iter().map(names).collect();
            servers.sort();
            assert_eq!(servers, ["lab-bootstrap", "lab-master-0"]);
            assert_eq!(id_of_server(world, "lab-bootstrap"), bootstrap, "the other one is kept");
            assert_eq!(world.ports.len(), 4);
        });
        destroys_all(cloud, &sandbox);
    }
}

fn id_of_server(world: &World, name: &str) -> Value {
    let mut servers = world.stores.servers.iter();
    servers.find(|server| server["name"] == name).unwrap()["id"].clone()
}

#[test]
fn a_failed_volume_is_reported_and_deleted() {
    let (cloud, sandbox) = cloud_with(&["volumev3"]);
    cloud.with(|world| world.stores.bad_volumes = vec!["lab-bootstrap:disk0", "lab-master-0:disk0"]);
    let text = sandbox.failed_rehearsal("os_boot=volume\n", 5);
    assert!(text.contains("of 1 GiB has status error"), "{text}");
    cloud.with(|world| assert_eq!(world.stores.volumes, [Value::Null; 0]));
    destroys_all(cloud, &sandbox);
}

#[test]
fn the_wait_for_a_volume_is_limited() {
    let (cloud, sandbox) = cloud_with(&["volumev3"]);
    cloud.with(|world| world.stores.slow_volumes = true);
    let text = sandbox.failed_rehearsal("os_boot=volume\nos_volume_timeout=2s\n", 6);
    assert!(
        text.contains("is still creating after 2 s") && text.contains("hint: set os_volume_timeout to a longer time"),
        "{text}"
    );
    cloud.with(|world| world.stores.slow_volumes = false);
    destroys_all(cloud, &sandbox);
}

#[test]
fn the_bootstraps_config_is_a_private_image_or_an_object_with_a_random_name() {
    for (lines, refusal, in_swift) in [
        ("", None, false),
        ("os_ignition=glance\n", None, false),
        ("os_ignition=swift\n", None, true),
        // Glance rejects one more image, and Swift stores it.
        ("", Some(Trouble::Status(413, json!("quota of images"))), true),
    ] {
        let (cloud, sandbox) = cloud_with(&["object-store"]);
        if let Some(refusal) = refusal {
            // The system's image is the first.
            cloud.trouble("POST /image/v2/images", [Trouble::None, refusal]);
        }
        sandbox.deploy_in_vain(lines);
        cloud.with(|world| {
            let stores = &world.stores;
            let bodies = &stores.bodies;
            let bootstrap = bodies
                .iter()
                .find(|body| body["server"]["name"] == "lab-bootstrap")
                .unwrap();
            let fetched = &user_data(bootstrap)["ignition"]["config"]["merge"][0];
            let source = fetched["source"].as_str().unwrap();
            let contents: Vec<_> = stores
                .images
                .iter()
                .filter(|image| !image["ocpdeploy_content"].is_null())
                .collect();
            let hash = match in_swift {
                true => {
                    assert_eq!(contents, [&Value::Null; 0]);
                    let (name, config) = stores.objects.first_key_value().unwrap();
                    assert!(source.contains(&format!("{ACCOUNT}/{name}?temp_url_sig=")), "{source}");
                    assert_eq!(fetched["httpHeaders"], Value::Null, "it needs no token");
                    assert_eq!(
                        stores.fetched,
                        [name.as_str()],
                        "it was fetched once, as a machine does"
                    );
                    let random = name.rsplit('/').next().unwrap();
                    assert!(random.len() == 32 && !name.contains(stores.containers.values().next().unwrap()));
                    ocpdeploy::digest::sha512(config)
                }
                false => {
                    assert!(stores.objects.is_empty() && stores.containers.is_empty());
                    assert_eq!(
                        (contents.len(), contents[0]["visibility"].as_str()),
                        (1, Some("private"))
                    );
                    assert!(source.ends_with(&format!("/images/{}/file", contents[0]["id"].as_str().unwrap())));
                    contents[0]["os_hash_value"].as_str().unwrap().to_owned()
                }
            };
            assert_eq!(fetched["verification"]["hash"], format!("sha512-{hash}"));
        });
        sandbox.destroy();
        let world = cloud.finish();
        assert_eq!(world.ports, [Value::Null; 0]);
        is_empty(&world.stores);
    }
}

#[test]
fn objects_of_others_in_the_container_survive() {
    let (cloud, sandbox) = cloud_with(&["object-store"]);
    sandbox.deploy_in_vain("os_ignition=swift\n");
    let container = format!("ocpdeploy-{}", sandbox.tag());
    let foreign = ["notes", "lab-bootstrap/backup.ign"].map(|name| format!("{container}/{name}"));
    cloud.with(|world| {
        for name in &foreign {
            world.stores.objects.insert(name.clone(), b"theirs".to_vec());
        }
    });
    sandbox.destroy();
    let stores = cloud.finish().stores;
    assert_eq!(stores.objects.keys().collect::<Vec<_>>(), [&foreign[1], &foreign[0]]);
    assert_eq!(stores.containers.len(), 1);
}

#[test]
fn an_object_store_without_temporary_urls_is_reported_before_a_machine_needs_it() {
    let (cloud, sandbox) = cloud_with(&["object-store"]);
    let tag = sandbox.known_tag("os_ignition=swift\n");
    let object = format!("HEAD {ACCOUNT}/ocpdeploy-{tag}/");
    cloud.trouble(&object, [Trouble::Status(401, Value::Null)]);
    let text = sandbox.failed_rehearsal("os_ignition=swift\n", 5);
    assert!(text.contains("does not support temporary URLs"), "{text}");
    assert!(!text.contains("temp_url_sig"), "{text}");
    destroys_all(cloud, &sandbox);
}

#[test]
fn the_temporary_urls_of_other_machines_stay_valid() {
    let (cloud, sandbox) = cloud_with(&["object-store"]);
    let container = format!("ocpdeploy-{}", sandbox.known_tag("os_ignition=swift\n"));
    cloud.with(|world| {
        let stores = &mut world.stores;
        stores.fetched.clear();
        stores.objects.clear();
        stores.containers.insert(container.clone(), "their-key".to_owned());
        let config = format!("{container}/lab-worker-0/{}", "0".repeat(32));
        stores.objects.insert(config, b"{}".to_vec());
    });
    sandbox.deploy_in_vain("os_ignition=swift\n");
    cloud.with(|world| {
        let stores = &world.stores;
        assert_eq!(stores.containers.values().collect::<Vec<_>>(), ["their-key"]);
        assert_eq!((stores.objects.len(), stores.fetched.len()), (2, 1));
    });
    destroys_all(cloud, &sandbox);
}

#[test]
fn members_of_a_soft_group_are_created_one_after_the_other() {
    let (cloud, sandbox) = cloud();
    sandbox.deploy_in_vain("masters=3\n");
    cloud.with(|world| {
        let servers = world.stores.servers.iter();
        let masters = servers.filter(|server| server["name"].as_str().unwrap().contains("-master-"));
        let mut hosts: Vec<_> = masters.map(|server| server["hostId"].as_str().unwrap()).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["host-0", "host-0", "host-1"]);
    });
    destroys_all(cloud, &sandbox);
}

#[test]
fn a_volume_with_snapshots_and_a_group_on_a_port_of_the_user_are_named() {
    let (cloud, sandbox) = cloud_with(&["volumev3"]);
    sandbox.deploy_in_vain("os_boot=volume\n");
    cloud.with(|world| {
        let mut lost = world.stores.volumes[0].clone();
        (lost["id"], lost["status"]) = (json!("volume-lost"), json!("available"));
        (lost["attachments"], lost["snapshots"]) = (json!([]), json!(["s"]));
        world.stores.volumes.push(lost);
    });
    let refused = || {
        let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{said}");
        said
    };
    let said = refused();
    assert!(
        said.contains("have snapshots") && said.contains("snapshot list --volume volume-lost"),
        "{said}"
    );
    cloud.with(|world| {
        let lost = world
            .stores
            .volumes
            .iter_mut()
            .find(|volume| volume["id"] == "volume-lost")
            .unwrap();
        (lost["status"], lost["snapshots"]) = (json!("error_extending"), Value::Null);
        let group = &world.stores.groups[0]["id"];
        world.ports.push(
            json!({"id": "their-port", "name": "database", "description": "", "network_id": "net-1",
            "mac_address": "fa:16:3e:00:00:09", "device_id": "", "fixed_ips": [], "security_groups": [group]}),
        );
    });
    let said = refused();
    let expected = "is in use by port their-port database, which belongs to another owner";
    assert!(
        said.contains(expected) && said.contains("openstack port unset --security-group"),
        "{said}"
    );
    cloud.with(|world| world.ports.retain(|port| port["id"] != "their-port"));
    destroys_all(cloud, &sandbox);
}

/// Without the setting, nobody on the network can become root on the nodes.
#[test]
fn nodes_get_their_config_unencrypted_only_on_request() {
    for lines in ["", "mcs=auto\n", "mcs=http\n", "dns=user\n"] {
        let (cloud, sandbox) = cloud();
        // After the checks, the run fails at this image.
        sandbox.add(&format!("harvest=boot\nharvest_image=centos\n{lines}"));
        image(&cloud, json!({"status": "queued"}));
        let output = sandbox.run(&["harvest"], &[]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(5), "{lines}: {text}");
        let risk = "mcs=http is not encrypted: anyone on the network can read the secrets";
        assert_eq!(text.contains(risk), lines.starts_with("mcs=http"), "{lines}: {text}");
        cloud.finish();
    }
}

/// A node's whole configuration is too large for user data.
#[test]
fn a_large_config_is_fetched_with_a_token_of_its_own() {
    let (cloud, sandbox) = cloud();
    // It cannot be compressed.
    let noise: Vec<u8> = (0..1700_u32)
        .flat_map(|n| ocpdeploy::digest::sha256(n.to_string()).into_bytes())
        .collect();
    let file =
        json!({"path": "/etc/noise", "contents": {"source": format!("data:,{}", String::from_utf8(noise).unwrap())}});
    let config = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [file]}});
    sandbox.write("noise.ign", &config.to_string());
    sandbox.deploy_in_vain("ignition_extra=master:noise.ign\n");
    let tokens = cloud.with(|world| {
        let stores = &world.stores;
        let mut tokens = Vec::new();
        for name in ["lab-bootstrap", "lab-master-0"] {
            let body = stores
                .bodies
                .iter()
                .find(|body| body["server"]["name"] == name)
                .unwrap();
            let fetched = &user_data(body)["ignition"]["config"]["merge"][0];
            let image = stores
                .images
                .iter()
                .find(|image| image["ocpdeploy_content"] == name)
                .unwrap();
            assert_eq!(image["visibility"], "private");
            let file = format!("/images/{}/file", image["id"].as_str().unwrap());
            assert!(fetched["source"].as_str().unwrap().ends_with(&file), "{fetched}");
            let header = &fetched["httpHeaders"][0];
            assert_eq!(header["name"], "X-Auth-Token");
            let token = header["value"].as_str().unwrap().strip_prefix("token-").unwrap();
            tokens.push(token.parse::<usize>().unwrap());
        }
        tokens
    });
    assert_ne!(tokens[0], tokens[1]);
    // Nothing else uses these tokens: revoking them breaks nothing else.
    cloud.with(|world| world.revoked.extend(&tokens));
    destroys_all(cloud, &sandbox);
}

#[test]
fn a_token_of_a_machine_that_is_not_created_is_revoked() {
    let (cloud, sandbox) = cloud();
    // The system's image is the first, the config of the bootstrap the second.
    let refusal = Trouble::Status(413, json!("quota of images"));
    cloud.trouble("POST /image/v2/images", [Trouble::None, refusal]);
    let output = sandbox.begin_to_deploy("");
    assert_ne!(output.status.code(), Some(0));
    let (revoked, tokens) = cloud.with(|world| (world.revoked.clone(), world.tokens));
    assert_eq!(revoked.len(), 1, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(revoked[0] <= tokens);
    destroys_all(cloud, &sandbox);
}
