//! The fake engine alone: rules that oVirt's SDK cannot test, and its failure after an unknown request.

use crate::support::fake_engine;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::support::fake_engine::{Agent, FakeEngine, Fault, GIB, Given, Guest, What};

const IGNITION: &str = r#"{"ignition":{"version":"3.2.0"}}"#;
const AGENT: &str = "packages:\n- qemu-guest-agent\nbootcmd:\n- echo dhcp-client-id=mac\n";

/// The first id in an answer.
fn id_of((status, body): (u16, String)) -> String {
    assert!((200..300).contains(&status), "{status} {body}");
    body.split("id=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned()
}

fn refused(answer: (u16, String), status: u16, words: &str) {
    assert_eq!(answer.0, status, "{}", answer.1);
    assert!(answer.1.contains(words), "{words} is not in {}", answer.1);
}

/// A machine of a template, switched off.
fn machine(engine: &FakeEngine, name: &str, template: &str, os: &str, more: &str) -> String {
    let body = format!(
        "<vm><name>{name}</name><cluster><name>Default</name></cluster><template><name>{template}</name></template>\
         <os><type>{os}</type></os>{more}</vm>"
    );
    let id = id_of(engine.ask("POST", "/vms", &body));
    engine.advance(Duration::from_secs(60));
    id
}

fn start(engine: &FakeEngine, id: &str, flags: &str) -> (u16, String) {
    engine.ask(
        "POST",
        &format!("/vms/{id}/start"),
        &format!("<action>{flags}</action>"),
    )
}

fn init(script: &str) -> String {
    format!(
        "<initialization><custom_script>{}</custom_script></initialization>",
        script.replace('"', "&quot;")
    )
}

/// Each shape is compared with upstream's document of the same entity: what is a link there is a link here.
#[test]
fn the_fake_shows_no_more_than_upstreams_documents() {
    let engine = FakeEngine::start();
    let vm = machine(&engine, "m", "rhcos", "rhcos_x64", "");
    engine.ask("POST", "/tags", "<tag><name>t</name></tag>");
    // A template that cannot be copied is an event.
    engine.edit(|world| world.copies_fail = true);
    engine.ask(
        "POST",
        "/templates",
        &format!("<template><name>t</name><vm id=\"{vm}\"/></template>"),
    );
    let (_, permissions) = engine.ask("GET", "/users/x/permissions", "");
    let role = permissions.split("/roles/").nth(1).unwrap().split('"').next().unwrap();
    let (_, cluster) = engine.ask("GET", "/clusters?search=name%3DDefault", "");
    let center = cluster
        .split("/datacenters/")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let documents = include_str!("../fixtures/ovirt-examples.txt");
    for (file, entity, path, newer) in [
        (
            "SystemService",
            "api",
            "",
            &["link ", "authenticated_user", "effective_user"][..],
        ),
        ("ClusterService", "cluster", "/clusters", &["mac_pool"]),
        (
            "DataCenterService",
            "data_center",
            &format!("/datacenters/{center}"),
            &[],
        ),
        ("NetworkFiltersService", "network_filter", "/networkfilters", &["@href"]),
        ("PermitsService", "permit", &format!("/roles/{role}/permits"), &[]),
        (
            "AssignedPermissionsService",
            "permission",
            "/users/x/permissions",
            &["@href", "role/@href"],
        ),
        ("TagsService", "tag", "/tags", &[]),
        ("VnicProfilesService", "vnic_profile", "/vnicprofiles", &[]),
        ("NetworkService", "network", "/clusters/{cluster}/networks", &[]),
        ("EventsService", "event", "/events", &[]),
        (
            "DiskAttachmentService",
            "disk_attachment",
            &format!("/vms/{vm}/diskattachments"),
            &["pass_discard"],
        ),
        // The document of a change.
        (
            "MacPoolService",
            "mac_pool",
            "/macpools",
            &["@id", "@href", "default_pool"],
        ),
    ] {
        let cluster = cluster.split("/clusters/").nth(1).unwrap().split('"').next().unwrap();
        let (status, shown) = engine.ask("GET", &path.replace("{cluster}", cluster), "");
        assert_eq!(status, 200, "{path}");
        let mut parts = documents.split("\n# ").filter_map(|part| part.split_once('\n'));
        let (_, document) = parts
            .find(|(path, _)| path.ends_with(&format!("/{file}.java")))
            .unwrap();
        let upstreams = fake_engine::paths(document, entity);
        let shown = fake_engine::paths(&shown, entity);
        assert!(shown.len() > 1, "{path} shows no {entity}");
        let more: Vec<_> = shown
            .difference(&upstreams)
            .filter(|path| !newer.iter().any(|newer| path.starts_with(newer)))
            .collect();
        assert!(more.is_empty(), "{entity}: {more:?} is not in {upstreams:?}");
    }
}

#[test]
fn what_a_guest_is_given_follows_the_table() {
    let (cloud_init, ignition) = (
        "<use_cloud_init>true</use_cloud_init>",
        "<use_ignition>true</use_ignition>",
    );
    let plain = "<use_initialization>true</use_initialization>";
    let no_ignition = "<use_ignition>false</use_ignition>";
    for (version, os, has_script, was_up, flags, wanted) in [
        ([4, 5, 6], "rhcos_x64", true, false, ignition, "ignition"),
        ([4, 5, 6], "rhcos_x64", true, false, "", "ignition"),
        ([4, 5, 6], "rhcos_x64", true, false, plain, "ignition"),
        ([4, 5, 6], "rhcos_x64", true, true, ignition, "ignition"),
        ([4, 5, 6], "rhcos_x64", true, true, plain, "ignition"),
        ([4, 5, 6], "rhcos_x64", true, true, "", "nothing"),
        ([4, 5, 6], "rhcos_x64", true, false, no_ignition, "nothing"),
        ([4, 5, 6], "rhcos_x64", false, false, "", "nothing"),
        ([4, 5, 6], "rhcos_x64", true, false, cloud_init, "nothing"),
        ([4, 5, 6], "rhel_9x64", true, false, ignition, "nothing"),
        ([4, 5, 6], "rhel_9x64", true, false, cloud_init, "cloud-init"),
        ([4, 5, 6], "rhel_9x64", true, false, "", "cloud-init"),
        ([4, 5, 6], "rhel_9x64", true, true, "", "nothing"),
        ([4, 5, 6], "other", true, false, "", "nothing"),
        ([4, 5, 6], "other", true, false, ignition, "nothing"),
        ([4, 3, 10], "rhel_7x64", true, false, cloud_init, "ignition"),
        ([4, 3, 3], "rhel_7x64", true, false, cloud_init, "cloud-init"),
    ] {
        let engine = FakeEngine::with(|world| world.version = version);
        let more = if has_script { init(IGNITION) } else { String::new() };
        let id = machine(&engine, "m", "rhcos", os, &more);
        engine.edit(|world| world.vm_mut(&id).unwrap().is_initialized = was_up);
        let (status, body) = start(&engine, &id, flags);
        assert_eq!(status, 200, "{body}");
        let given = engine.last_boot("m").unwrap().given;
        let kind = match &given {
            Given::Nothing(_) => "nothing",
            Given::Ignition(_) => "ignition",
            Given::CloudInit { .. } => "cloud-init",
        };
        assert_eq!(
            kind, wanted,
            "{version:?} {os} script={has_script} was_up={was_up} {flags}: {given:?}"
        );
        if wanted == "ignition" {
            assert_eq!(given.ignition(), Some(IGNITION));
        }
    }
}

#[test]
fn ignition_that_the_engine_would_edit_is_not_given() {
    let engine = FakeEngine::start();
    let with = |name: &str, script: &str, more: &str| {
        let more = init(script).replace("</initialization>", &format!("{more}</initialization>"));
        let id = machine(&engine, name, "rhcos", "rhcos_x64", &more);
        start(&engine, &id, "<use_ignition>true</use_ignition>")
    };
    for (name, script, more) in [
        ("a", r#"{"ignition":{}}"#, ""),
        ("b", IGNITION, "<host_name>h</host_name>"),
        (
            "c",
            IGNITION,
            "<user_name>core</user_name><root_password>secret</root_password>",
        ),
    ] {
        assert_eq!(with(name, script, more).0, 200);
        assert!(
            matches!(engine.last_boot(name).unwrap().given, Given::Nothing(_)),
            "{name}"
        );
    }
    refused(with("d", "no json", ""), 500, "Internal Engine Error");
    refused(
        with("e", IGNITION, "<user_name>core</user_name>"),
        500,
        "Internal Server Error",
    );
}

#[test]
fn a_guest_without_agent_reports_nothing_and_takes_a_minute_to_be_up() {
    let engine = FakeEngine::start();
    let look = |name: &str| engine.look(|world| world.vm_named(name).unwrap().status.clone());
    let reported = |id: &str| {
        engine
            .ask("GET", &format!("/vms/{id}/reporteddevices"), "")
            .1
            .contains("192.168.99.")
    };
    let without = machine(&engine, "without", "centos", "rhel_9x64", &init("packages: []\n"));
    let with = machine(&engine, "with", "centos", "rhel_9x64", &init(AGENT));
    for id in [&without, &with] {
        start(&engine, id, "<use_cloud_init>true</use_cloud_init>");
    }
    engine.advance(Duration::from_secs(20));
    assert_eq!((look("without").as_str(), look("with").as_str()), ("powering_up", "up"));
    engine.advance(Duration::from_secs(60));
    assert_eq!(look("without"), "up");
    assert_eq!((reported(&without), reported(&with)), (false, true));
}

#[test]
fn guests_get_the_leases_that_a_test_chooses() {
    let engine = FakeEngine::start();
    let mac = |number: u8| format!("52:54:00:00:00:{number:02x}");
    let boot = |number: u8, script: &str, os: &str, flag: &str| {
        let id = machine(&engine, &format!("m{number}"), "centos", os, &init(script));
        engine.edit(|world| {
            let vm = world.vm_mut(&id).unwrap();
            vm.nics[0].mac = mac(number);
            vm.agent = Agent::Installed;
        });
        start(&engine, &id, flag);
        id
    };
    let addresses = |id: &str| {
        engine.edit(|world| {
            let vm = world.vm(id).unwrap().clone();
            world
                .addresses(&vm)
                .into_iter()
                .map(|(_, address)| address.to_string())
                .collect::<Vec<_>>()
        })
    };
    let cloud_init = "<use_cloud_init>true</use_cloud_init>";
    engine.guest(
        &mac(2),
        Guest {
            gets_none: true,
            ..Guest::default()
        },
    );
    engine.guest(
        &mac(3),
        Guest {
            after: 300_000,
            ..Guest::default()
        },
    );
    let moves = Some((100_000, "10.9.9.9".parse().unwrap()));
    engine.guest(
        &mac(4),
        Guest {
            address: Some("10.1.1.1".parse().unwrap()),
            moves,
            ..Guest::default()
        },
    );
    let ids = [1, 2, 3, 4].map(|number| boot(number, AGENT, "rhel_9x64", cloud_init));
    engine.advance(Duration::from_secs(30));
    let seen = ids.each_ref().map(|id| addresses(id).join(","));
    assert_eq!(seen, ["192.168.99.50", "", "", "10.1.1.1"]);
    engine.advance(Duration::from_secs(600));
    let seen = ids.each_ref().map(|id| addresses(id).join(","));
    assert_eq!(seen, ["192.168.99.50", "", "192.168.99.51", "10.9.9.9"]);

    // CoreOS sends its MAC: it gets the address of a harvest that sent the MAC, and not of one that did not.
    let again = |name: u8, of: u8, script: &str, os: &str, flag: &str| {
        let id = boot(name, script, os, flag);
        engine.edit(|world| world.vm_mut(&id).unwrap().nics[0].mac = mac(of));
        engine.advance(Duration::from_secs(30));
        addresses(&id).join(",")
    };
    let ignition = "<use_ignition>true</use_ignition>";
    assert_eq!(again(11, 1, IGNITION, "rhcos_x64", ignition), "192.168.99.50");
    let untold = again(12, 12, "packages: []\n", "rhel_9x64", cloud_init);
    assert_ne!(again(13, 12, IGNITION, "rhcos_x64", ignition), untold);
}

#[test]
fn macs_are_of_one_pool_and_free_again_when_their_machine_is_gone() {
    let engine = FakeEngine::with(|world| {
        let pool = &mut world.mac_pools[0];
        pool.range.1 = pool.range.0;
    });
    let first = machine(&engine, "a", "rhcos", "rhcos_x64", "");
    let body = "<vm><name>b</name><cluster><name>Default</name></cluster><template><name>rhcos</name></template></vm>";
    refused(
        engine.ask("POST", "/vms", body),
        409,
        "Not enough MAC addresses left in MAC Address Pool",
    );
    assert!(engine.look(|world| world.vm_named("b").is_none()));
    assert_eq!(engine.ask("DELETE", &format!("/vms/{first}"), "").0, 200);
    // At once, although its disks are still being deleted.
    assert_eq!(engine.ask("POST", "/vms", body).0, 202);
}

#[test]
fn storage_that_is_full_takes_nothing() {
    let engine = FakeEngine::with(|world| {
        world
            .storage_domains
            .iter_mut()
            .for_each(|domain| domain.available = 5 * GIB);
    });
    let count = |engine: &FakeEngine| engine.look(|world| (world.disks.len(), world.vms.len()));
    let before = count(&engine);
    let vm = "<vm><name>b</name><cluster><name>Default</name></cluster><template><name>rhcos</name></template></vm>";
    refused(
        engine.ask("POST", "/vms", vm),
        409,
        "Low disk space on Storage Domain data",
    );
    let disk = "<disk><name>d</name><format>cow</format><provisioned_size>1</provisioned_size>\
                <storage_domains><storage_domain><name>data</name></storage_domain></storage_domains></disk>";
    refused(
        engine.ask("POST", "/disks", disk),
        409,
        "Low disk space on Storage Domain data",
    );
    assert_eq!(count(&engine), before);

    // One of two disks fits, and is removed again.
    engine.edit(|world| {
        let disk = world.disks[0].clone();
        let id = world.new_id();
        world.disks.push(fake_engine::Disk { id: id.clone(), ..disk });
        let template = world
            .templates
            .iter_mut()
            .find(|template| template.name == "rhcos")
            .unwrap();
        let attachment = template.disks[0].clone();
        template.disks.push(fake_engine::Attachment { disk: id, ..attachment });
        world
            .storage_domains
            .iter_mut()
            .for_each(|domain| domain.available = 6 * GIB);
    });
    let before = count(&engine);
    refused(
        engine.ask("POST", "/vms", vm),
        409,
        "Low disk space on Storage Domain data",
    );
    assert_eq!(count(&engine), before);
    let free = |world: &fake_engine::World| world.storage_domains.iter().all(|domain| domain.available == 6 * GIB);
    assert!(engine.look(free));
}

#[test]
fn what_the_engine_does_not_know_is_refused_and_named() {
    let engine = FakeEngine::start();
    let vm = |more: &str| {
        format!(
            "<vm><name>a</name><cluster><name>Default</name></cluster><template><name>rhcos</name></template>{more}</vm>"
        )
    };
    for (body, sandbox) in [
        (vm("<bogus>1</bogus>"), "bogus"),
        (vm("<cpu><cores>1</cores></cpu>"), "cpu/cores"),
        (vm("<type>servant</type>"), "type"),
        (vm("<memory>much</memory>"), "memory"),
        (
            vm("<os><boot><devices><device>tape</device></devices></boot></os>"),
            "os/boot/devices/device",
        ),
        ("<nic/>".to_owned(), "vm"),
        ("no xml".to_owned(), "vm"),
    ] {
        refused(engine.ask("POST", "/vms", &body), 400, &format!("(at {sandbox})"));
    }
}

#[test]
fn members_of_a_negative_group_run_on_different_hosts() {
    for (is_hard, third) in [("false", 200), ("true", 409)] {
        let engine = FakeEngine::start();
        let cluster = engine.look(|world| world.clusters[1].id.clone());
        let group = format!(
            "<affinity_group><name>g</name><vms_rule><enabled>true</enabled><enforcing>{is_hard}</enforcing>\
             <positive>false</positive></vms_rule></affinity_group>"
        );
        let group = id_of(engine.ask("POST", &format!("/clusters/{cluster}/affinitygroups"), &group));
        let ids = ["a", "b", "c"].map(|name| machine(&engine, name, "rhcos", "rhcos_x64", &init(IGNITION)));
        let statuses = ids.each_ref().map(|id| {
            let path = format!("/clusters/{cluster}/affinitygroups/{group}/vms");
            engine.ask("POST", &path, &format!("<vm id=\"{id}\"/>"));
            start(&engine, id, "<use_ignition>true</use_ignition>").0
        });
        assert_eq!(statuses, [200, 200, third]);
        let boots = engine.boots();
        assert_ne!(boots[0].host, boots[1].host);
        let (_, shown) = engine.ask("GET", &format!("/clusters/{cluster}/affinitygroups/{group}"), "");
        assert!(shown.contains(&format!("<broken>{}</broken>", third == 200)), "{shown}");
    }
}

#[test]
fn a_transfer_without_data_is_cancelled_and_its_disk_goes() {
    let engine = FakeEngine::start();
    let disk = "<disk><name>d</name><format>cow</format><provisioned_size>1000000</provisioned_size>\
                <storage_domains><storage_domain><name>data</name></storage_domain></storage_domains></disk>";
    let disk = id_of(engine.ask("POST", "/disks", disk));
    engine.advance(Duration::from_secs(10));
    for (policy, phase) in [("pause", "paused_system"), ("cancel", "finished_failure")] {
        let body = format!(
            "<image_transfer><disk id=\"{disk}\"/><direction>upload</direction>\
             <inactivity_timeout>60</inactivity_timeout><timeout_policy>{policy}</timeout_policy></image_transfer>"
        );
        let transfer = id_of(engine.ask("POST", "/imagetransfers", &body));
        engine.advance(Duration::from_secs(10));
        let (_, shown) = engine.ask("GET", &format!("/imagetransfers/{transfer}"), "");
        assert!(shown.contains("<phase>transferring</phase>"), "{shown}");
        // The engine detects that it is idle, and cleans up in several steps.
        engine.advance(Duration::from_secs(58));
        engine.advance(Duration::from_secs(10));
        let (_, shown) = engine.ask("GET", &format!("/imagetransfers/{transfer}"), "");
        assert!(shown.contains(&format!("<phase>{phase}</phase>")), "{shown}");
        engine.edit(|world| {
            world.transfers.clear();
            world
                .disks
                .iter_mut()
                .filter(|known| known.id == disk)
                .for_each(|disk| disk.status = "ok".to_owned());
        });
    }
    engine.advance(Duration::from_secs(10));
    assert_eq!(engine.ask("GET", &format!("/disks/{disk}"), "").0, 404);
}

#[test]
fn a_machine_that_dies_is_down_and_may_be_started_again() {
    let engine = FakeEngine::start();
    let id = machine(&engine, "m", "rhcos", "rhcos_x64", &init(IGNITION));
    let mac = engine.look(|world| world.vm_named("m").unwrap().nics[0].mac.clone());
    engine.guest(
        &mac,
        Guest {
            dies: Some((1, 5_000)),
            ..Guest::default()
        },
    );
    let status = || engine.look(|world| world.vm_named("m").unwrap().status.clone());
    start(&engine, &id, "<use_ignition>true</use_ignition>");
    engine.advance(Duration::from_secs(90));
    assert_eq!(status(), "down");
    // It was never up, so it gets its config again.
    start(&engine, &id, "");
    engine.advance(Duration::from_secs(90));
    assert_eq!(status(), "up");
    assert!(
        engine
            .boots()
            .iter()
            .all(|boot| boot.given.ignition() == Some(IGNITION))
    );
}

#[test]
fn an_unknown_request_fails_the_test() {
    let fails = |work: &dyn Fn(&FakeEngine)| {
        let engine = FakeEngine::start();
        work(&engine);
        catch_unwind(AssertUnwindSafe(|| drop(engine))).is_err()
    };
    assert!(!fails(&|_| ()));
    assert!(!fails(&|engine| drop(engine.ask("GET", "/vms?max=1", ""))));
    assert!(fails(&|engine| drop(engine.ask("GET", "/machines", ""))));
    assert!(fails(&|engine| drop(engine.ask("GET", "/vms?limit=1", ""))));
    assert!(fails(&|engine| drop(engine.ask("PATCH", "/vms", ""))));
    assert!(fails(&|engine| engine.fault(Fault::on("GET", "/vms"))));
}

/// An HTTP client: one connection pool, one token.
struct Desk {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Desk {
    async fn at(engine: &FakeEngine) -> Self {
        let ca = reqwest::Certificate::from_pem(engine.ca_pem.as_bytes()).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([ca]).build().unwrap();
        let form = [
            ("grant_type", "password"),
            ("scope", "ovirt-app-api"),
            ("username", engine.user.as_str()),
            ("password", engine.password.as_str()),
        ];
        let url = format!("{}/sso/oauth/token", engine.url);
        let request = http.post(url).header("Accept", "application/json").form(&form);
        let answer: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
        let token = answer["access_token"].as_str().unwrap().to_owned();
        Self {
            http,
            url: format!("{}/api", engine.url),
            token,
        }
    }

    async fn add_vm(&self, name: &str) -> Result<u16, reqwest::Error> {
        let body = format!(
            "<vm><name>{name}</name><cluster><name>Default</name></cluster><template><name>Blank</name></template></vm>"
        );
        let request = self.http.post(format!("{}/vms", self.url)).bearer_auth(&self.token);
        let answer = request
            .header("Content-Type", "application/xml")
            .body(body)
            .send()
            .await?;
        Ok(answer.status().as_u16())
    }
}

#[tokio::test]
async fn faults_hit_the_requests_that_a_test_chooses() {
    let engine = FakeEngine::start();
    let desk = Desk::at(&engine).await;
    let has = |name: &str| engine.look(|world| world.vm_named(name).is_some());
    engine.fault(Fault::on("POST", "/vms").what(What::LostRequest));
    assert!(desk.add_vm("a").await.is_err() && !has("a"));
    engine.fault(Fault::on("POST", "/vms").what(What::LostAnswer));
    assert!(desk.add_vm("b").await.is_err() && has("b"));
    engine.fault(Fault::on("POST", "/vms").skip(1).times(2));
    let statuses = [
        desk.add_vm("c").await,
        desk.add_vm("d").await,
        desk.add_vm("d").await,
        desk.add_vm("d").await,
    ];
    assert_eq!(statuses.map(Result::unwrap), [201, 409, 409, 201]);
    engine.fault(Fault::on("POST", "/vms").what(What::Html(503)));
    assert_eq!(desk.add_vm("e").await.unwrap(), 503);
}

#[tokio::test]
async fn sessions_end_by_idleness_and_by_force() {
    let engine = FakeEngine::start();
    let desk = Desk::at(&engine).await;
    assert_eq!(desk.add_vm("a").await.unwrap(), 201);
    engine.advance(Duration::from_secs(29 * 60));
    assert_eq!(desk.add_vm("b").await.unwrap(), 201);
    engine.advance(Duration::from_secs(31 * 60));
    assert_eq!(desk.add_vm("c").await.unwrap(), 401);
    let desk = Desk::at(&engine).await;
    engine.fault(Fault::on("POST", "/vms").skip(1).what(What::Expired));
    assert_eq!(desk.add_vm("d").await.unwrap(), 201);
    assert_eq!(desk.add_vm("e").await.unwrap(), 401);
}
