//! Requests that an engine refuses, at once or after it has accepted them: its reason is shown, and it gets few requests.

use std::time::Duration;

use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{BackendErrorKind as Kind, Payload, PlatformError, Power, Stop};
use ocpdeploy::cluster::Role;

use crate::ovirt_rules::{VERSIONS, engine, newest, node};
use crate::support::cluster::cluster_id;
use crate::support::fake_engine::{Agent, FakeEngine, Fault, GIB, Given, Init};
use crate::support::ovirt_client::{Client, words};
use crate::support::ovirt_sdk;

/// How long the tests let an operation try.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests within this time: an operation reads some objects first, and pauses grow to a second.
const FEW: usize = 40;

/// Everything that changes something. `lab-master-0` runs, `lab-worker-0` is down.
const CHANGES: [&str; 8] = [
    "upload",
    "create",
    "complete",
    "start",
    "stop",
    "shut down",
    "delete",
    "destroy",
];

async fn change(what: &str, client: &Client, backend: &Platforms) -> Result<(), PlatformError> {
    let master = client.spec("lab");
    let [worker, other] = [0, 1].map(|index| node(&master, Role::Worker, index));
    let cluster = &master.cluster;
    match what {
        "upload" => {
            let image = client.image("coreos.qcow2", 1 << 16);
            backend.ensure_image(Role::Worker, cluster, &image).await.map(drop)
        }
        "create" => backend.create_machine(&other).await.map(drop),
        "complete" => backend.create_machine(&worker).await.map(drop),
        "start" => backend.start_machine(cluster, &worker.name).await.map(drop),
        "stop" => backend.stop_machine(cluster, &master.name, Stop::Force).await.map(drop),
        "shut down" => backend
            .stop_machine(cluster, &master.name, Stop::Graceful)
            .await
            .map(drop),
        "delete" => backend.delete_machine(cluster, &worker.name).await.map(drop),
        _ => backend.delete_remaining(cluster).await.map(drop),
    }
}

/// A master that runs and a worker that is down.
fn two_machines(engine: &FakeEngine) -> Client {
    let client = Client::of(engine, |_| ());
    let master = client.spec("lab");
    let worker = node(&master, Role::Worker, 0);
    client.run(async |backend| {
        for spec in [&master, &worker] {
            backend.create_machine(spec).await.unwrap();
        }
        engine.advance(Duration::from_secs(120));
        let off = backend.stop_machine(&worker.cluster, &worker.name, Stop::Force).await;
        off.unwrap();
    });
    client
}

#[test]
fn an_engine_that_refuses_every_change_gets_few_requests_and_its_reason_is_shown() {
    let reasons = [
        (
            "ACTION_TYPE_FAILED_STORAGE_DOMAIN_STATUS_ILLEGAL2",
            "status is Maintenance",
            true,
        ),
        ("ACTION_TYPE_FAILED_NAME_ALREADY_USED", "already in use", false),
        // Lasts longer than the test.
        ("ACTION_TYPE_FAILED_OBJECT_LOCKED", "currently in progress", false),
    ];
    std::thread::scope(|scope| {
        for (code, reason, ends) in reasons {
            scope.spawn(move || {
                for what in CHANGES {
                    let engine = newest(|_| ());
                    let client = two_machines(&engine);
                    for method in ["POST", "PUT", "DELETE"] {
                        let refused = Fault::on(method, "/ovirt-engine/api/*").times(usize::MAX);
                        engine.fault(refused.because(code, "change it", &[("status", "Maintenance")]));
                    }
                    let before = engine.requests().len();
                    let tried = client.run(async |backend| {
                        let change = change(what, &client, backend);
                        tokio::time::timeout(PATIENCE, change).await
                    });
                    engine.edit(|world| world.faults.clear());
                    let requests = engine.requests().len() - before;
                    assert!(requests < FEW, "{what}, {code}: {requests} requests");
                    match tried {
                        Ok(done) => {
                            let words = words(&done.unwrap_err());
                            assert!(words.contains(reason), "{what}: {words}");
                        }
                        // The removal of disks waits for a conflict to end.
                        Err(_) => assert!(!ends || what == "destroy", "{what}, {code}: it does not end"),
                    }
                }
            });
        }
    });
}

// oVirt/ovirt-engine: AddVmCommand.validate, ErrorMessageHelper: all of these are HTTP 409.
#[test]
fn only_a_name_in_use_is_a_conflict_of_names() {
    for (code, values, words_of) in [
        (
            "ACTION_TYPE_FAILED_STORAGE_DOMAIN_STATUS_ILLEGAL2",
            &[("status", "Maintenance")][..],
            "The relevant Storage Domain's status is Maintenance",
        ),
        (
            "ACTION_TYPE_FAILED_STORAGE_POOL_STATUS_ILLEGAL",
            &[],
            "Unknown Data Center status",
        ),
        (
            "ACTION_TYPE_FAILED_TEMPLATE_IS_DISABLED",
            &[],
            "The Template is disabled",
        ),
        ("ACTION_TYPE_FAILED_NO_VDS_IN_POOL", &[], "There is no active Host"),
    ] {
        let engine = newest(|_| ());
        let client = Client::of(&engine, |_| ());
        engine.fault(Fault::on("POST", "/vms").because(code, "add VM", values));
        let refused = client.run(async |backend| backend.create_machine(&client.spec("lab")).await.unwrap_err());
        assert_eq!(refused.kind(), Kind::Rejected, "{}", words(&refused));
        let words = words(&refused);
        assert!(words.contains(words_of) && !words.contains("in use"), "{words}");
    }
    // The name of a machine that this user cannot read.
    let engine = newest(|_| ());
    let client = Client::of(&engine, |_| ());
    let used = "ACTION_TYPE_FAILED_NAME_ALREADY_USED";
    engine.fault(Fault::on("POST", "/vms").because(used, "add VM", &[]));
    let refused = client.run(async |backend| backend.create_machine(&client.spec("lab")).await.unwrap_err());
    assert_eq!(refused.kind(), Kind::Conflict, "{}", words(&refused));
    assert!(
        words(&refused).contains("machine name lab-master-0 is in use"),
        "{}",
        words(&refused)
    );
}

#[test]
fn what_fails_after_the_engine_has_accepted_it_has_the_reason_of_the_engines_events() {
    let engine = newest(|world| world.copies_fail = true);
    let client = Client::of(&engine, |_| ());
    let (spec, image) = (client.spec("lab"), client.image("coreos.qcow2", 1 << 16));
    let run = |at: &str| {
        let done = client.run(async |backend| match at {
            "machine" => backend.create_machine(&spec).await.map(drop),
            _ => backend
                .ensure_image(Role::Worker, &spec.cluster, &image)
                .await
                .map(drop),
        });
        done.map_err(|failure| words(&failure))
    };
    for (at, reason) in [
        ("machine", "Failed to complete VM lab-master-0 creation."),
        ("image", "Failed to complete creation of Template ocpdeploy-image-"),
    ] {
        let refused = run(at).unwrap_err();
        assert!(
            refused.contains("the engine removed") && refused.contains(reason),
            "{refused}"
        );
    }
    engine.edit(|world| world.copies_fail = false);
    for at in ["machine", "image"] {
        run(at).unwrap();
    }
    ovirt_sdk::judge(&engine, 30);
}

// oVirt/ovirt-engine: StopVmCommandBase.validate, RunVmCommand.validate.
#[test]
fn a_stop_that_is_refused_for_a_while_is_repeated_and_another_one_is_an_error() {
    let engine = newest(|_| ());
    let client = two_machines(&engine);
    let spec = client.spec("lab");
    let fault = |code: &str, times| {
        engine.fault(
            Fault::on("POST", "/vms/*/stop")
                .times(times)
                .because(code, "stop VM", &[("VmName", "m")]),
        );
    };
    fault("ACTION_TYPE_FAILED_VM_IS_NOT_DOWN_OR_UP", 1);
    client.run(async |backend| {
        let refused = backend.delete_machine(&spec.cluster, &spec.name).await.unwrap_err();
        assert!(
            words(&refused).contains("must be in status Down, Up or Paused"),
            "{}",
            words(&refused)
        );
    });
    assert_eq!(engine.look(|world| world.vms.len()), 2);
    fault("ACTION_TYPE_FAILED_MIGRATION_IN_PROGRESS", 1);
    fault("ACTION_TYPE_FAILED_VM_IS_DURING_BACKUP", 1);
    client.run(async |backend| backend.delete_machine(&spec.cluster, &spec.name).await.unwrap());
    assert_eq!(engine.look(|world| world.vms.len()), 1);
}

// oVirt/ovirt-engine: RemoveVmCommand.validate; StopVmCommandBase.validate refuses these.
#[test]
fn a_machine_that_can_neither_run_nor_be_stopped_is_removed() {
    for status in ["image_illegal", "unassigned"] {
        let engine = newest(|_| ());
        let client = two_machines(&engine);
        let spec = client.spec("lab");
        engine.edit(|world| world.vms[0].status = status.to_owned());
        if status == "image_illegal" {
            let refused = client.run(async |backend| backend.create_machine(&spec).await.unwrap_err());
            assert!(words(&refused).contains("have status illegal"), "{}", words(&refused));
        }
        client.run(async |backend| backend.delete_machine(&spec.cluster, &spec.name).await.unwrap());
        assert_eq!(engine.look(|world| world.vms.len()), 1, "{status}");
    }
}

#[test]
fn a_machine_that_is_shutting_down_is_started_after_it() {
    let engine = newest(|_| ());
    let client = two_machines(&engine);
    let spec = client.spec("lab");
    let power = client.run(async |backend| {
        let asked = backend.stop_machine(&spec.cluster, &spec.name, Stop::Graceful).await;
        asked.unwrap();
        backend.start_machine(&spec.cluster, &spec.name).await.unwrap();
        engine.advance(Duration::from_secs(60));
        let machines = backend.list_machines(&spec.cluster).await.unwrap();
        machines
            .into_iter()
            .find(|machine| machine.name == spec.name)
            .unwrap()
            .power
    });
    assert_eq!(power, Power::Running);
    let boots = engine.boots().into_iter().filter(|boot| boot.name == "lab-master-0");
    assert_eq!(boots.count(), 2);
}

/// A golden image, as administrators keep it for people.
fn golden(engine: &FakeEngine, os_type: &str) {
    engine.edit(|world| {
        world.put_template("golden", 16 * GIB, os_type, Agent::Installed);
        let quota = world.new_id();
        let template = world.templates.last_mut().unwrap();
        template.shape.is_stateless = true;
        template.shape.is_delete_protected = true;
        template.shape.starts_paused = true;
        template.shape.quota = Some(quota);
        let some = |text: &str| Some(text.to_owned());
        template.init = Some(Init {
            host_name: some("golden"),
            user_name: some("cloud"),
            root_password: some("golden"),
            authorized_ssh_keys: some("ssh-ed25519 AAAA golden"),
            dns_search: some("example.org"),
            dns_servers: some("192.0.2.1"),
            networks: vec!["192.0.2.2".to_owned()],
            custom_script: some("packages: [golden]"),
        });
    });
}

// oVirt/ovirt-engine: VmMapper.doMapVmBaseHwPartToVmStatic, VmBaseMapper, InitializationMapper.
#[test]
fn a_machine_inherits_nothing_of_its_template_that_would_harm_a_node() {
    for version in VERSIONS {
        for payload in [
            Payload::Ignition(br#"{"ignition":{"version":"3.2.0"}}"#.to_vec()),
            Payload::CloudInit {
                user_data: "#cloud-config\npackages: [qemu-guest-agent]\n".to_owned(),
                meta_data: String::new(),
                network_config: String::new(),
            },
        ] {
            let engine = engine(version, |_| ());
            golden(&engine, if version < [4, 4, 0] { "rhel_7x64" } else { "rhcos_x64" });
            let client = Client::of(&engine, |_| ());
            let mut spec = client.spec("lab");
            (spec.image.0, spec.payload) = ("golden".to_owned(), payload);
            client.run(async |backend| backend.create_machine(&spec).await.unwrap());
            engine.advance(Duration::from_secs(120));
            let vm = engine.look(|world| world.vms[0].clone());
            assert_eq!(vm.status, "up", "{version:?}");
            assert!(!vm.shape.is_stateless && !vm.shape.is_delete_protected && vm.shape.quota.is_none());
            match (engine.last_boot("lab-master-0").unwrap().given, &spec.payload) {
                (Given::Ignition(given), Payload::Ignition(config)) => assert_eq!(given.as_bytes(), config),
                (
                    Given::CloudInit {
                        user_data,
                        host_name,
                        authorized_ssh_keys,
                        networks,
                    },
                    Payload::CloudInit { .. },
                ) => {
                    assert!(
                        user_data.contains("qemu-guest-agent") && !user_data.contains("golden"),
                        "{user_data}"
                    );
                    assert_eq!((authorized_ssh_keys, networks), (None, Vec::new()));
                    assert_ne!(host_name.as_deref(), Some("golden"));
                }
                given => panic!("{version:?}: {given:?}"),
            }
            client.run(async |backend| backend.delete_machine(&spec.cluster, &spec.name).await.unwrap());
            assert_eq!(engine.look(|world| world.vms.len()), 0, "{version:?}");
            ovirt_sdk::judge(&engine, 15);
        }
    }
}

/// The other data center's cluster, where its machines, templates and storage are.
fn far(client: &mut Client) {
    client.config.cluster = "Far".to_owned();
    client.config.storage_domain = Some("far-data".to_owned());
}

// oVirt/ovirt-engine: AddVmCommand.isTemplateInValidDc, AddVmTemplateCommand.validate.
#[test]
fn templates_and_machines_of_another_data_center_are_of_others() {
    let engine = newest(|world| {
        let cluster = world.clusters[0].id.clone();
        for name in ["rhcos", "only-there"] {
            let mut template = world.templates.last().unwrap().clone();
            (template.id, template.name, template.cluster) = (world.new_id(), name.to_owned(), cluster.clone());
            // Found first.
            world.templates.insert(1, template);
        }
        world.put_vm("lab-master-0");
        world.vms[0].cluster = cluster;
    });
    let client = Client::of(&engine, |_| ());
    let spec = client.spec("lab");
    client.run(async |backend| {
        backend.create_machine(&spec).await.unwrap();
        let mut other = node(&spec, Role::Worker, 0);
        other.image.0 = "only-there".to_owned();
        let refused = backend.create_machine(&other).await.unwrap_err();
        assert!(
            words(&refused).contains("template only-there does not exist"),
            "{}",
            words(&refused)
        );
        let offered = backend.choices().await.unwrap().settings;
        let images = offered.iter().find(|setting| setting.setting == "image").unwrap();
        let names: Vec<_> = images.choices.iter().map(|choice| choice.value.as_str()).collect();
        assert!(names.contains(&"rhcos") && !names.contains(&"only-there"), "{names:?}");
        backend.delete_machine(&spec.cluster, &spec.name).await.unwrap();
    });
    assert_eq!(engine.look(|world| world.vms.len()), 1, "the other one stays");
}

#[test]
fn each_data_center_has_its_own_image_of_a_file() {
    let engine = newest(|_| ());
    let near = Client::of(&engine, |_| ());
    let mut far_away = Client::of(&engine, |_| ());
    far(&mut far_away);
    let ids = ["lab", "other"].map(|name| cluster_id(name, "example.com"));
    let clients = [&near, &far_away];
    for (client, cluster) in clients.iter().zip(&ids) {
        let image = client.image("coreos.qcow2", 1 << 16);
        client.run(async |backend| backend.ensure_image(Role::Worker, cluster, &image).await.unwrap());
    }
    let images = || -> Vec<String> {
        engine.look(|world| {
            let ours = world
                .templates
                .iter()
                .filter(|template| template.name.starts_with("ocpdeploy-image-"));
            let center = |cluster: &str| world.data_center_of(cluster).to_owned();
            ours.map(|template| center(&template.cluster)).collect()
        })
    };
    let both = images();
    assert!(both.len() == 2 && both[0] != both[1], "{both:?}");
    // No other cluster of this data center uses it.
    near.run(async |backend| backend.delete_remaining(&ids[0]).await.unwrap());
    assert_eq!(images(), both[1..]);
    far_away.run(async |backend| backend.delete_remaining(&ids[1]).await.unwrap());
    engine.advance(Duration::from_secs(60));
    assert_eq!(
        engine.look(|world| (world.templates.len(), world.disks.len(), world.tags.len())),
        (3, 2, 0)
    );
}

/// oVirt/ovirt-engine: ClusterMapper, `threads_as_cores`; a host of the fake has 64 threads of 32 cores.
#[test]
fn threads_are_cpus_where_the_cluster_counts_them() {
    for counted in [false, true] {
        let engine = newest(|world| world.clusters[1].threads_as_cores = counted);
        let client = Client::of(&engine, |_| ());
        let mut spec = client.spec("lab");
        spec.cpus = 48;
        let made = client.run(async |backend| backend.create_machine(&spec).await);
        assert_eq!(made.is_ok(), counted, "{made:?}");
    }
}
