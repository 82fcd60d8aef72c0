//! Our client with a fake engine: users without rights, placement of machines, findings before anything is
//! created, and failures of the engine.

use crate::support::ovirt_sdk;
use std::time::{Duration, Instant};

use crate::support::fake_engine::{AffinityLabel, FakeEngine, Fault, GIB, Permission, What, World};
use crate::support::faulty::alone;
use crate::support::ovirt_client::{Client, words};
use ocpdeploy::backend::ovirt::Ovirt;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{
    BackendErrorKind as Kind, Finding, MachineSpec, PlatformError, Power, Requirements, Stop, Verdict,
};
use ocpdeploy::cluster::{Affinity, MachineName, NodeName, Pass, Role, Size};
use serde_json::json;

fn engine(change: impl FnOnce(&mut World)) -> FakeEngine {
    FakeEngine::with(|world| {
        world.tick = 3_000;
        change(world);
    })
}

/// A user with one role on the whole system.
fn user(world: &mut World, role: &str, is_administrator: bool) {
    world.is_administrator = is_administrator;
    world.permissions = vec![Permission {
        id: "00000000-0000-4000-8000-0000000000aa".to_owned(),
        role: role.to_owned(),
        on: None,
    }];
}

fn label(world: &mut World, name: &str, hosts: &[usize]) {
    let hosts = hosts.iter().map(|index| world.hosts[*index].id.clone()).collect();
    world.affinity_labels.push(AffinityLabel {
        id: "00000000-0000-4000-8000-0000000000bb".to_owned(),
        name: name.to_owned(),
        is_implicit: true,
        vms: Vec::new(),
        hosts,
    });
}

/// Three masters and two workers of 16 GiB and 4 CPUs.
fn needs(spec: &MachineSpec) -> Requirements {
    let size = Size {
        cpus: 4,
        memory_mib: 16_384,
        disk_gib: 120,
        extra_disks_gib: Vec::new(),
    };
    let roles = [Role::Master, Role::Master, Role::Master, Role::Worker, Role::Worker];
    Requirements {
        networks: vec!["ovirtmgmt".to_owned()],
        machines: vec![(spec.name.clone(), vec![spec.nics[0].mac])],
        cluster: Some(spec.cluster.clone()),
        memory_mib: 5 * 16_384,
        cpus_per_machine: 4,
        disk_gib: 600,
        sizes: roles.map(|role| (Pass::Two, role, size.clone())).to_vec(),
        ..Requirements::default()
    }
}

fn worker(client: &Client) -> MachineSpec {
    let node = NodeName::node(Role::Worker, 0);
    MachineSpec {
        name: MachineName::of_node("lab", &node),
        node,
        role: Role::Worker,
        ..client.spec("lab")
    }
}

/// The findings of a preflight that are not successes.
fn told(client: &Client) -> Vec<Finding> {
    let mut findings = client.run(async |backend| backend.preflight(&needs(&client.spec("lab"))).await.unwrap());
    findings.retain(|finding| finding.verdict != Verdict::Ok);
    findings
}

fn lines(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let hint = finding
            .hint
            .iter()
            .map(|hint| format!("\n  hint: {hint}"))
            .collect::<String>();
        format!("{:?}: {}{hint}\n", finding.verdict, finding.text)
    };
    findings.iter().map(line).collect()
}

/// As a guest that shuts itself down.
fn goes_down(engine: &FakeEngine) {
    engine.edit(|world| {
        let vm = &mut world.vms[0];
        (vm.status, vm.host, vm.boot, vm.is_busy) = ("down".to_owned(), None, None, false);
    });
}

/// The hosts on which a machine was started, one for each start.
fn ran_on(engine: &FakeEngine, name: &str) -> Vec<String> {
    let boots = engine.boots().into_iter().filter(|boot| boot.name == name);
    boots.map(|boot| boot.host).collect()
}

#[test]
fn an_administrator_gets_no_finding_except_addresses() {
    let engine = engine(|_| ());
    let findings = told(&Client::of(&engine, |_| ()));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].text.contains("cannot reserve addresses"), "{findings:?}");
}

#[test]
fn an_ordinary_user_makes_and_removes_machines_of_templates() {
    let engine = engine(|world| user(world, "PowerUserRole", false));
    let client = Client::of(&engine, |_| ());
    insta::assert_snapshot!(lines(&told(&client)));
    let (spec, image) = (client.spec("lab"), client.image("coreos.qcow2", 1 << 20));
    client.run(async |backend| {
        let refused = backend
            .ensure_image(Role::Worker, &spec.cluster, &image)
            .await
            .unwrap_err();
        let refused = words(&refused);
        assert!(
            refused.contains("requires an administrator") && refused.contains("harvest_image"),
            "{refused}"
        );
        backend.create_machine(&spec).await.unwrap();
        let machines = backend.list_machines(&spec.cluster).await.unwrap();
        assert_eq!(machines.len(), 1);
        backend.describe_machine(&spec.cluster, &spec.name).await.unwrap();
        let owned = backend.list_owned(&spec.cluster).await.unwrap();
        assert_eq!(owned.len(), 3, "a machine and two disks: {owned:?}");
    });
    let given = engine.last_boot("lab-master-0").unwrap().given;
    assert_eq!(given.ignition(), Some(r#"{"ignition":{"version":"3.2.0"}}"#));
    client.run(async |backend| {
        backend.delete_machine(&spec.cluster, &spec.name).await.unwrap();
        backend.delete_remaining(&spec.cluster).await.unwrap();
    });
    engine.advance(std::time::Duration::from_secs(60));
    engine.look(|world| assert_eq!((world.vms.len(), world.disks.len(), world.tags.len()), (0, 2, 0)));
    ovirt_sdk::judge(&engine, 35);
}

/// A tag names the images of its cluster, and users who may write tags can write other names into it.
#[test]
fn a_template_that_is_no_image_of_ours_stays_when_our_tag_names_it() {
    let engine = engine(|_| ());
    let client = Client::of(&engine, |_| ());
    let cluster = client.spec("lab").cluster;
    let (image, cluster_id) = (client.image("coreos.qcow2", 1 << 16), cluster.clone());
    client.run(async |backend| backend.ensure_image(Role::Worker, &cluster_id, &image).await.unwrap());
    // Named like an image of ours, with a machine and a disk of that name, and a digest of no image.
    let decoy = "ocpdeploy-image-00000000000000000000000000000000";
    engine.edit(|world| {
        let tag = world
            .tags
            .iter_mut()
            .find(|tag| tag.name == "ocpdeploy-lab.example.com.x7k2pqrs")
            .unwrap();
        tag.description = tag
            .description
            .replace("\"images\":[", &format!("\"images\":[\"centos\",\"{decoy}\","));
        let mut template = world
            .templates
            .iter()
            .find(|template| template.name == "centos")
            .unwrap()
            .clone();
        (template.id, template.name) = (world.new_id(), decoy.to_owned());
        template.description = "ocpdeploy image, sha256 11111111111111111111111111111111".to_owned();
        world.templates.push(template);
    });
    let names = || {
        engine.look(|world| {
            world
                .templates
                .iter()
                .map(|template| template.name.clone())
                .collect::<Vec<_>>()
        })
    };
    let before = names();
    client.run(async |backend| backend.delete_remaining(&cluster).await.unwrap());
    let after = names();
    assert!(
        after.contains(&"centos".to_owned()) && after.contains(&decoy.to_owned()),
        "{after:?}"
    );
    assert_eq!(
        after.len() + 1,
        before.len(),
        "only its own image is deleted: {after:?}"
    );
    engine.look(|world| assert!(world.tags.is_empty(), "{:?}", world.tags));
}

#[test]
fn settings_that_require_an_administrator_are_rejected_before_anything_is_made() {
    let engine = engine(|world| user(world, "UserRole", false));
    let findings = told(&Client::of(&engine, |config| {
        config.affinity = Affinity::Hard;
        config.hosts = vec!["host-1".to_owned()];
        config.worker_label = Some("workers".to_owned());
    }));
    insta::assert_snapshot!(lines(&findings));
}

#[test]
fn the_missing_rights_of_an_administrator_are_named() {
    let engine = engine(|world| user(world, "UserRole", true));
    insta::assert_snapshot!(lines(&told(&Client::of(&engine, |config| {
        config.hosts = vec!["host-1".to_owned()];
    }))));
}

#[test]
fn a_machine_is_not_started_without_a_suitable_host() {
    let engine = engine(|world| {
        world.hosts[0].status = "maintenance".to_owned();
        world.hosts[1].memory = 8 * GIB;
    });
    let client = Client::of(&engine, |_| ());
    let spec = client.spec("lab");
    let refused = client.run(async |backend| backend.create_machine(&spec).await.unwrap_err());
    insta::assert_snapshot!(format!("{}{}", lines(&told(&client)), words(&refused)));
    assert_eq!(engine.boots().len(), 0);
    // The same call succeeds when a host is available again.
    engine.edit(|world| world.hosts[0].status = "up".to_owned());
    client.run(async |backend| backend.create_machine(&spec).await.unwrap());
    assert_eq!(ran_on(&engine, "lab-master-0"), ["host-1"]);
}

#[test]
fn masters_that_must_not_share_a_host_need_hosts_enough() {
    let engine = engine(|_| ());
    let findings = told(&Client::of(&engine, |config| config.affinity = Affinity::Hard));
    let fails: Vec<_> = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Fail)
        .collect();
    assert_eq!(
        fails[0].text,
        "3 masters on different hosts require 3 suitable hosts, 2 found"
    );
    assert_eq!(fails.len(), 1);
}

#[test]
fn a_machine_that_went_down_is_started_on_another_host() {
    let engine = engine(|_| ());
    let client = Client::of(&engine, |_| ());
    let spec = client.spec("lab");
    client.run(async |backend| {
        backend.create_machine(&spec).await.unwrap();
        for _ in 0..2 {
            while backend.list_machines(&spec.cluster).await.unwrap()[0].power != Power::Running {}
            goes_down(&engine);
            backend.create_machine(&spec).await.unwrap();
        }
    });
    assert_eq!(ran_on(&engine, "lab-master-0"), ["host-1", "host-2", "host-1"]);
    assert!(engine.boots().windows(2).all(|two| two[0].given == two[1].given));
    // With only one suitable host, it stays there.
    goes_down(&engine);
    engine.edit(|world| world.hosts[1].status = "maintenance".to_owned());
    client.run(async |backend| backend.create_machine(&spec).await.unwrap());
    assert_eq!(ran_on(&engine, "lab-master-0").last().unwrap(), "host-1");
    ovirt_sdk::judge(&engine, 25);
}

/// oVirt/ovirt-engine: RunVmOnceCommand.getPermissionCheckSubjects.
#[test]
fn a_user_who_may_not_choose_a_host_leaves_it_to_the_engine() {
    let engine = engine(|_| ());
    let client = Client::of(&engine, |_| ());
    let spec = client.spec("lab");
    client.run(async |backend| {
        backend.create_machine(&spec).await.unwrap();
        while backend.list_machines(&spec.cluster).await.unwrap()[0].power != Power::Running {}
        goes_down(&engine);
        let denied = "USER_NOT_AUTHORIZED_TO_PERFORM_ACTION";
        engine.fault(Fault::on("POST", "/vms/*/start").because(denied, "run VM", &[]));
        backend.create_machine(&spec).await.unwrap();
    });
    assert_eq!(ran_on(&engine, "lab-master-0").len(), 2);
}

#[test]
fn machines_run_on_the_hosts_that_are_named() {
    let engine = engine(|_| ());
    let client = Client::of(&engine, |config| config.hosts = vec!["host-2".to_owned()]);
    let (spec, worker) = (client.spec("lab"), worker(&client));
    let shown = client.run(async |backend| {
        backend.create_machine(&spec).await.unwrap();
        let other = MachineSpec {
            nics: vec![ocpdeploy::backend::Nic {
                mac: "52:54:00:aa:bb:cd".parse().unwrap(),
                ..spec.nics[0].clone()
            }],
            ..worker
        };
        backend.create_machine(&other).await.unwrap();
        backend.describe_machine(&spec.cluster, &spec.name).await.unwrap()
    });
    assert!(
        engine.boots().iter().all(|boot| boot.host == "host-2"),
        "{:?}",
        engine.boots()
    );
    assert_eq!(shown.scheduling["hosts"], json!(["host-2"]));
    assert_eq!(shown.dynamic["host"], "host-2");
    ovirt_sdk::judge(&engine, 25);
    let wrong = told(&Client::of(&engine, |config| config.hosts = vec!["host-9".to_owned()]));
    assert!(
        wrong
            .iter()
            .any(|finding| finding.text == "cluster Default has no host host-9"),
        "{wrong:?}"
    );
}

#[test]
fn workers_run_where_their_label_is() {
    // Newer clusters require a group besides, see `ovirt_rules`.
    let engine = engine(|world| {
        world.of_version([4, 3, 10]);
        label(world, "workers", &[1]);
    });
    let client = Client::of(&engine, |config| config.worker_label = Some("workers".to_owned()));
    let worker = worker(&client);
    let shown = client.run(async |backend| {
        backend.create_machine(&worker).await.unwrap();
        backend.describe_machine(&worker.cluster, &worker.name).await.unwrap()
    });
    assert_eq!(ran_on(&engine, "lab-worker-0"), ["host-2"]);
    assert_eq!(shown.scheduling["label"], "workers");
    // A repetition adds no second membership, and masters have none.
    client.run(async |backend| {
        backend.create_machine(&worker).await.unwrap();
        let mut master = client.spec("lab");
        master.nics[0].mac = "52:54:00:aa:bb:cd".parse().unwrap();
        backend.create_machine(&master).await.unwrap();
    });
    assert_eq!(engine.look(|world| world.affinity_labels[0].vms.len()), 1);
    ovirt_sdk::judge(&engine, 30);
}

#[test]
fn a_label_without_hosts_is_reported_before_anything_is_made() {
    for (hosts, words) in [
        (None, "affinity label workers does not exist"),
        (Some(&[][..]), "affinity label workers selects no host"),
    ] {
        let engine = engine(|world| {
            world.of_version([4, 3, 10]);
            hosts.into_iter().for_each(|hosts| label(world, "workers", hosts));
        });
        let findings = told(&Client::of(&engine, |config| {
            config.worker_label = Some("workers".to_owned())
        }));
        assert!(
            findings
                .iter()
                .any(|finding| finding.text == words && finding.verdict == Verdict::Fail),
            "{findings:?}"
        );
    }
}

#[test]
fn nodes_that_start_with_their_host_are_highly_available_masters_first() {
    let engine = engine(|_| ());
    let client = Client::of(&engine, |_| ());
    let (master, mut worker) = (client.spec("lab"), worker(&client));
    worker.nics[0].mac = "52:54:00:aa:bb:cd".parse().unwrap();
    client.run(async |backend| {
        backend.create_machine(&master).await.unwrap();
        backend.create_machine(&worker).await.unwrap();
        let plain = MachineSpec {
            name: "lab-plain".parse().unwrap(),
            autostart: false,
            nics: Vec::new(),
            ..worker.clone()
        };
        backend.create_machine(&plain).await.unwrap();
    });
    let seen = engine.look(|world| {
        world
            .vms
            .iter()
            .map(|vm| (vm.is_highly_available, vm.priority))
            .collect::<Vec<_>>()
    });
    assert_eq!(seen, [(true, 100), (true, 50), (false, 0)]);
}

#[test]
fn a_mac_that_a_lax_pool_would_give_twice_is_found() {
    let engine = engine(|world| {
        world.mac_pools[0].allow_duplicates = true;
        world.put_vm("stranger");
    });
    let client = Client::of(&engine, |_| ());
    engine.ask(
        "POST",
        &format!("/vms/{}/nics", engine.look(|world| world.vms[0].id.clone())),
        "<nic><name>nic1</name><mac><address>52:54:00:aa:bb:cc</address></mac></nic>",
    );
    insta::assert_snapshot!(lines(&told(&client)));
}

/// A fault of one request, and whether the client repeats the request.
const FAULTS: [(What, bool); 8] = [
    (What::Later(503, 0), true),
    (What::Later(429, 0), true),
    (What::Html(503), true),
    (What::Html(429), true),
    (What::LostRequest, true),
    (What::LostAnswer, true),
    (What::HalfAnswer, true),
    (What::Html(500), false),
];

/// Repeats a call until it succeeds; collects the errors.
macro_rules! done {
    ($errors:expr, $call:expr) => {
        loop {
            match $call.await {
                Ok(value) => break value,
                Err(error) => $errors.push(error),
            }
            assert!($errors.len() < 5, "it never succeeds: {:?}", $errors);
        }
    };
}

/// A machine of an uploaded image, from the first query until it is completely deleted. Returns the errors.
async fn life(client: &Client, backend: &Platforms) -> Vec<PlatformError> {
    let (mut spec, image) = (client.spec("lab"), client.image("coreos.qcow2", 1 << 20));
    let (cluster, name, mut errors) = (spec.cluster.clone(), spec.name.clone(), Vec::new());
    done!(errors, backend.preflight(&needs(&spec)));
    done!(errors, backend.network_facts("ovirtmgmt"));
    spec.image = done!(errors, backend.ensure_image(Role::Worker, &cluster, &image));
    done!(errors, backend.create_machine(&spec));
    let machines = done!(errors, backend.list_machines(&cluster));
    assert_eq!(machines.len(), 1);
    done!(errors, backend.stop_machine(&cluster, &name, Stop::Force));
    done!(errors, backend.start_machine(&cluster, &name));
    done!(errors, backend.delete_machine(&cluster, &name));
    done!(errors, backend.delete_remaining(&cluster));
    assert_eq!(done!(errors, backend.list_owned(&cluster)), []);
    errors
}

/// The step between two requests that fail.
fn stride(usual: usize) -> usize {
    match std::env::var("OCPDEPLOY_FAULTS").as_deref() {
        Ok("all") => 1,
        _ => usual,
    }
}

/// A usual test run takes samples, as in `faults.rs`.
#[test]
fn each_request_may_fail_in_each_way() {
    let lives = |fault: Option<Fault>| {
        let engine = engine(|world| world.faults.extend(fault));
        let client = Client::of(&engine, |_| ());
        let errors = client.run(async |_| {
            let ovirt = Ovirt::connect(&client.config).await.unwrap();
            life(&client, &alone(ovirt).for_at_most(Duration::from_secs(60))).await
        });
        let left = engine.look(|world| {
            (
                world.vms.len(),
                world.disks.len(),
                world.tags.len(),
                world.templates.len(),
            )
        });
        assert_eq!(left, (0, 2, 0, 3), "only the objects of a fresh site");
        assert_eq!(
            ran_on(&engine, "lab-master-0").len(),
            2,
            "started when it was created, and once more"
        );
        (errors, engine.requests())
    };
    let (errors, requests) = lives(None);
    assert!(errors.is_empty(), "{errors:?}");
    let every = (0..requests.len()).flat_map(|at| FAULTS.map(|(what, passes)| (at, what, passes)));
    let mut tried = 0;
    for (at, what, passes) in every.step_by(stride(19)) {
        tried += 1;
        let why = format!("{what:?} at {at}: {} {}", requests[at].method, requests[at].path);
        println!("{why}");
        let (errors, _) = lives(Some(Fault::on("*", "*").skip(at).what(what)));
        for error in &errors {
            let words = words(error);
            assert!(!passes && errors.len() == 1, "{why}: {words}");
            assert!(
                error.kind() == Kind::Rejected && words.contains("HTTP 500"),
                "{why}: {words}"
            );
        }
    }
    println!("reliability: {tried} faults of an engine's answers");
}

#[test]
fn a_retry_after_header_is_obeyed_within_the_platform_timeout() {
    for status in [429, 503] {
        let engine = engine(|_| ());
        let client = Client::of(&engine, |_| ());
        let asked = || {
            engine
                .requests()
                .iter()
                .filter(|request| request.method == "POST" && request.path == "/ovirt-engine/api/vms")
                .count()
        };
        let spec = client.spec("lab");
        client.run(async |_| {
            let patient = Platforms::on("oVirt", Box::new(Ovirt::connect(&client.config).await.unwrap()));
            patient.list_machines(&spec.cluster).await.unwrap();
            engine.fault(Fault::on("POST", "/vms").what(What::Later(status, 600)));
            let error = patient.create_machine(&spec).await.unwrap_err();
            assert_eq!(
                (error.source.pause, asked()),
                (Some(Duration::from_secs(600)), 1),
                "{}",
                words(&error)
            );
            assert!(words(&error).contains(&format!("HTTP {status}")), "{}", words(&error));
            engine.fault(Fault::on("POST", "/vms").what(What::Later(status, 2)));
            let begun = Instant::now();
            patient.create_machine(&spec).await.unwrap();
            assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
            assert_eq!(asked(), 3);
        });
    }
}
