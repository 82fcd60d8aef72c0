//! Rules from the engine's source, each with the request that fails if the client ignores the rule.

use crate::support::cluster::cluster_id;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{BackendErrorKind as Kind, Finding, ImageRequest, MachineSpec, Requirements, Verdict};
use ocpdeploy::cluster::{ClusterId, MachineName, NodeName, Role};

use crate::support::fake_engine::{
    AffinityGroup, AffinityLabel, FakeEngine, Fault, HostsRule, Instant, Named, Permission, What, World, id_of,
};
use crate::support::ovirt_client::{Client, words};
use crate::support::ovirt_sdk;

/// Engines whose rules differ.
pub const VERSIONS: [[u32; 3]; 4] = [[4, 3, 10], [4, 4, 4], [4, 4, 10], [4, 5, 7]];

pub fn engine(version: [u32; 3], change: impl FnOnce(&mut World)) -> FakeEngine {
    FakeEngine::with(|world| {
        world.tick = 3_000;
        world.of_version(version);
        change(world);
    })
}

pub fn newest(change: impl FnOnce(&mut World)) -> FakeEngine {
    engine([4, 5, 7], change)
}

fn role(world: &mut World, role: &str, on: &'static str, id: String) {
    let id_of_permission = world.new_id();
    world.permissions.push(Permission {
        id: id_of_permission,
        role: role.to_owned(),
        on: Some((on, id)),
    });
}

/// A user with the roles of the documentation except those on templates.
pub fn ordinary_user(world: &mut World) {
    world.is_administrator = false;
    world.permissions.clear();
    let cluster = world.clusters[1].id.clone();
    let storage = id_of(&world.storage_domains, "data");
    role(world, "PowerUserRole", "cluster", cluster);
    role(world, "PowerUserRole", "storage_domain", storage);
}

/// Lets the user create machines from a template.
pub fn permit_template(world: &mut World, name: &str) {
    let id = id_of(&world.templates, name);
    role(world, "UserTemplateBasedVm", "template", id);
}

fn needs(spec: &MachineSpec) -> Requirements {
    Requirements {
        networks: vec!["ovirtmgmt".to_owned()],
        machines: vec![(spec.name.clone(), vec![spec.nics[0].mac])],
        cluster: Some(spec.cluster.clone()),
        ..Requirements::default()
    }
}

/// The same machine as another node.
pub fn node(spec: &MachineSpec, role: Role, index: usize) -> MachineSpec {
    let node = NodeName::node(role, index);
    let mut spec = MachineSpec {
        name: MachineName::of_node("lab", &node),
        node,
        role,
        ..spec.clone()
    };
    let kind = if role == Role::Master { "a" } else { "b" };
    spec.nics[0].mac = format!("52:54:00:aa:{kind}0:0{index}").parse().unwrap();
    spec
}

fn lines(findings: &[Finding], verdict: Verdict) -> Vec<String> {
    let of = findings.iter().filter(|finding| finding.verdict == verdict);
    of.map(|finding| {
        format!(
            "{}\n  hint: {}",
            finding.text,
            finding.hint.as_deref().unwrap_or_default()
        )
    })
    .collect()
}

async fn create_all(backend: &Platforms, specs: &[MachineSpec]) {
    for made in join_all(specs.iter().map(|spec| backend.create_machine(spec))).await {
        made.unwrap();
    }
}

// 1. oVirt/ovirt-engine: LinkFollower.getHref.
#[test]
fn a_profile_without_a_filter_passes_the_check() {
    for version in VERSIONS {
        let engine = engine(version, |_| ());
        let client = Client::of(&engine, |_| ());
        let spec = client.spec("lab");
        let filtered = Requirements {
            networks: vec!["filtered".to_owned(), "plain".to_owned()],
            ..needs(&spec)
        };
        let findings = client.run(async |backend| backend.preflight(&filtered).await.unwrap());
        let warnings = lines(&findings, Verdict::Warn);
        assert!(
            warnings.iter().any(|line| line.contains("clean-traffic")),
            "{version:?}: {warnings:?}"
        );
        assert_eq!(lines(&findings, Verdict::Fail), Vec::<String>::new(), "{version:?}");
        // If the engine rejects the query, the value is unknown, which does not end the run.
        engine.fault(
            Fault::on("GET", "/networkfilters").refused(400, "Query execution failed due to insufficient permissions."),
        );
        let findings = client.run(async |backend| backend.preflight(&filtered).await.unwrap());
        let warnings = lines(&findings, Verdict::Warn);
        assert!(
            !warnings.iter().any(|line| line.contains("clean-traffic")),
            "{warnings:?}"
        );
    }
}

// 2. oVirt/ovirt-engine: ENGINE_API_FILTER_BY_DEFAULT, QueryType.GetAllTags.
#[test]
fn an_ordinary_user_is_known_by_the_first_request() {
    for by_default in [true, false] {
        let engine = newest(|world| {
            ordinary_user(world);
            permit_template(world, "rhcos");
            world.filters_by_default = by_default;
        });
        let client = Client::of(&engine, |_| ());
        let spec = client.spec("lab");
        let findings = client.run(async |backend| {
            let findings = backend.preflight(&needs(&spec)).await.unwrap();
            backend.create_machine(&spec).await.unwrap();
            findings
        });
        let warnings = lines(&findings, Verdict::Warn);
        assert!(
            warnings.iter().any(|line| line.contains("not an administrator")),
            "{warnings:?}"
        );
        let api = |request: &&crate::support::fake_engine::Request| request.path.starts_with("/ovirt-engine/api");
        let requests = engine.requests();
        let mut requests = requests.iter().filter(api);
        assert_eq!(requests.next().unwrap().path, "/ovirt-engine/api/tags");
        assert!(requests.all(|request| request.headers.get("filter").is_some_and(|value| value == "true")));
    }
    // An administrator sends no such header.
    let engine = newest(|_| ());
    let client = Client::of(&engine, |_| ());
    client.run(async |backend| backend.list_clusters().await.unwrap());
    assert!(
        engine
            .requests()
            .iter()
            .all(|request| !request.headers.contains_key("filter"))
    );
}

// 3. oVirt/ovirt-engine-api-model: ImageTransfer.timeoutPolicy, `@since 4.4.5`.
#[test]
fn every_engine_takes_an_upload() {
    for version in VERSIONS {
        let engine = engine(version, |_| ());
        let (client, image, cluster) = uploader(&engine, 1 << 20);
        client.run(async |backend| backend.ensure_image(Role::Worker, &cluster, &image).await.unwrap());
        let posts = |request: &&crate::support::fake_engine::Request| {
            request.method == "POST" && request.path.ends_with("/imagetransfers")
        };
        let requests = engine.requests();
        let body = String::from_utf8(requests.iter().find(posts).unwrap().body.clone()).unwrap();
        assert_eq!(
            body.contains("timeout_policy"),
            version >= [4, 4, 5],
            "{version:?}: {body}"
        );
        ovirt_sdk::judge(&engine, 15);
    }
}

// 4. oVirt/ovirt-engine: AddAffinityGroupCommand, EditAffinityGroupCommand.
#[test]
fn masters_that_are_made_at_once_are_in_one_group() {
    for version in VERSIONS {
        let engine = engine(version, |_| ());
        let client = Client::of(&engine, |_| ());
        let masters = [0, 1, 2].map(|index| node(&client.spec("lab"), Role::Master, index));
        client.run(async |backend| create_all(backend, &masters).await);
        let groups = engine.look(|world| {
            world
                .affinity_groups
                .iter()
                .map(|group| group.vms.len())
                .collect::<Vec<_>>()
        });
        assert_eq!(groups, [3], "{version:?}");
    }
}

/// Two runs as in two processes, as when a command is started twice.
#[test]
fn two_runs_at_once_leave_all_masters_in_one_group() {
    for version in VERSIONS {
        let engine = engine(version, |_| ());
        let client = Client::of(&engine, |_| ());
        let [first, second] = [0, 1].map(|index| node(&client.spec("lab"), Role::Master, index));
        std::thread::scope(|scope| {
            for spec in [&first, &second] {
                let client = &client;
                scope.spawn(move || client.run(async |backend| create_all(backend, std::slice::from_ref(spec)).await));
            }
        });
        // The next run repairs what the race left.
        client.run(async |backend| create_all(backend, &[first.clone(), second.clone()]).await);
        let groups = engine.look(|world| world.affinity_groups.clone());
        assert_eq!(groups.len(), 1, "{version:?}: {groups:?}");
        assert_eq!(groups[0].vms.len(), 2, "{version:?}: {groups:?}");
    }
}

#[test]
fn a_group_of_another_owner_with_our_name_is_a_conflict() {
    let engine = newest(|world| {
        world.affinity_groups.push(AffinityGroup {
            id: "00000000-0000-4000-8000-0000000000cc".to_owned(),
            name: "ocpdeploy-lab.example.com.x7k2pqrs-masters".to_owned(),
            // Of another oVirt cluster: the engine looks for names in all of them.
            cluster: world.clusters[0].id.clone(),
            ..AffinityGroup::default()
        });
    });
    let client = Client::of(&engine, |_| ());
    let refused = client.run(async |backend| backend.create_machine(&client.spec("lab")).await.unwrap_err());
    assert_eq!(refused.kind(), Kind::Conflict, "{}", words(&refused));
    assert!(
        words(&refused).contains("ocpdeploy-lab.example.com.x7k2pqrs-masters"),
        "{}",
        words(&refused)
    );
    engine.look(|world| assert!(world.affinity_groups[0].vms.is_empty()));
}

const LABEL: &str = "00000000-0000-4000-8000-0000000000bb";

/// A label on the second host, and the group that makes it count where the rule is given.
fn label(world: &mut World, is_implicit: bool, rule: Option<HostsRule>) {
    world.affinity_labels.push(AffinityLabel {
        id: LABEL.to_owned(),
        name: "workers".to_owned(),
        is_implicit,
        vms: Vec::new(),
        hosts: vec![world.hosts[1].id.clone()],
    });
    let id = world.new_id();
    world.affinity_groups.extend(rule.map(|hosts_rule| AffinityGroup {
        id,
        name: "workers".to_owned(),
        cluster: world.clusters[1].id.clone(),
        vm_labels: vec![LABEL.to_owned()],
        host_labels: vec![LABEL.to_owned()],
        hosts_rule,
        ..AffinityGroup::default()
    }));
}

const PLACES: HostsRule = HostsRule {
    enabled: true,
    positive: true,
    enforcing: true,
};

// 5. oVirt/ovirt-engine: FeatureSupported.isImplicitAffinityGroupSupported, AffinityRulesUtils.affinityGroupsFromLabels,
// AffinityLabelMapper, BackendAffinityLabelVmsResource.add.
#[test]
fn a_label_places_workers_where_the_engine_says_so() {
    let with_group = VERSIONS.map(|version| (version, false));
    for (version, is_implicit) in with_group.into_iter().chain([([4, 3, 10], true), ([4, 3, 5], true)]) {
        let engine = engine(version, |world| {
            label(world, is_implicit, (!is_implicit).then_some(PLACES));
        });
        let client = Client::of(&engine, |config| config.worker_label = Some("workers".to_owned()));
        let workers = [0, 1, 2].map(|index| node(&client.spec("lab"), Role::Worker, index));
        let findings = client.run(async |backend| {
            let findings = backend.preflight(&needs(&workers[0])).await.unwrap();
            create_all(backend, &workers).await;
            findings
        });
        assert_eq!(lines(&findings, Verdict::Fail), Vec::<String>::new(), "{version:?}");
        let hosts: BTreeSet<_> = engine.boots().into_iter().map(|boot| boot.host).collect();
        assert_eq!(hosts, ["host-2".to_owned()].into(), "{version:?}");
        assert_eq!(
            engine.look(|world| world.affinity_labels[0].vms.len()),
            3,
            "{version:?}"
        );
    }
}

#[test]
fn a_label_without_a_placing_group_is_reported_before_anything_is_made() {
    let newest = [4, 5, 7];
    let rules = [
        // Implicit groups are of compatibility 4.3, and off by default.
        (newest, true, None),
        ([4, 3, 10], false, None),
        (
            newest,
            false,
            Some(HostsRule {
                enabled: false,
                ..PLACES
            }),
        ),
        (
            newest,
            false,
            Some(HostsRule {
                positive: false,
                ..PLACES
            }),
        ),
        (
            newest,
            false,
            Some(HostsRule {
                enforcing: false,
                ..PLACES
            }),
        ),
    ];
    for (version, is_implicit, rule) in rules {
        let engine = engine(version, |world| label(world, is_implicit, rule));
        let client = Client::of(&engine, |config| config.worker_label = Some("workers".to_owned()));
        let worker = node(&client.spec("lab"), Role::Worker, 0);
        let findings = client.run(async |backend| backend.preflight(&needs(&worker)).await.unwrap());
        let fails = lines(&findings, Verdict::Fail);
        assert!(
            fails
                .iter()
                .any(|line| line.contains("affinity group") && line.contains("workers")),
            "{rule:?}: {fails:?}"
        );
        let is_hinted = fails.iter().any(|line| line.contains("sets `Implicit affinity group`"));
        assert_eq!(is_hinted, version < [4, 4, 0], "{fails:?}");
        client.run(async |backend| backend.create_machine(&worker).await.unwrap_err());
        assert!(
            engine.boots().is_empty(),
            "{rule:?}: it was started on a host without the label"
        );
    }
}

/// A client, an image of this many bytes, and the cluster that it is for.
fn uploader(engine: &FakeEngine, bytes: usize) -> (Client, ImageRequest, ClusterId) {
    let client = Client::of(engine, |_| ());
    let image = client.image("coreos.qcow2", bytes);
    (client, image, cluster_id("lab", "example.com"))
}

fn begun(client: &Client, engine: &FakeEngine, image: &ImageRequest, cluster: &ClusterId) {
    // No host can be reached: the upload fails after its start.
    engine.fault(Fault::on("PUT", "/images/*").what(What::Later(503, 600)));
    client.run(async |backend| backend.ensure_image(Role::Worker, cluster, image).await.unwrap_err());
    assert_eq!(engine.look(|world| world.transfers.len()), 1);
}

// 7. oVirt/ovirt-engine: TransferDiskImageCommand.getExclusiveLocks, RemoveDiskCommand, AddVmCommand.getSharedLocks.
#[test]
fn destroy_ends_an_upload_that_is_under_way() {
    for version in VERSIONS {
        let engine = engine(version, |_| ());
        let (client, image, cluster) = uploader(&engine, 1 << 20);
        begun(&client, &engine, &image, &cluster);
        client.run(async |backend| backend.delete_remaining(&cluster).await.unwrap());
        engine.look(|world| {
            assert_eq!(
                (world.disks.len(), world.tags.len(), world.vms.len()),
                (2, 0, 0),
                "{version:?}"
            );
            let is_open = world
                .transfers
                .iter()
                .any(|transfer| !transfer.phase.starts_with("finished"));
            assert!(!is_open, "{version:?}: {:?}", world.transfers);
        });
    }
}

#[test]
fn a_template_from_which_a_machine_is_just_made_is_removed_after_it() {
    let engine = newest(|_| ());
    let (client, image, cluster) = uploader(&engine, 1 << 20);
    client.run(async |backend| backend.ensure_image(Role::Worker, &cluster, &image).await.unwrap());
    // Gone before the engine looks for machines that depend on it.
    engine.fault(Fault::on("DELETE", "/templates/*").times(2).because(
        "ACTION_TYPE_FAILED_TEMPLATE_IS_USED_FOR_CREATE_VM",
        "remove Template",
        &[("VmName", "other")],
    ));
    client.run(async |backend| backend.delete_remaining(&cluster).await.unwrap());
    assert_eq!(engine.look(|world| (world.templates.len(), world.tags.len())), (3, 0));
}

// 8. oVirt/ovirt-engine: TransferDiskImageCommand.cleanup and endWithFailure.
#[test]
fn a_cancelled_upload_is_restarted() {
    for version in VERSIONS {
        for phase in ["cancelled_user", "cancelled_system", "finalizing_cleanup"] {
            let engine = engine(version, |_| ());
            let (client, image, cluster) = uploader(&engine, 1 << 20);
            begun(&client, &engine, &image, &cluster);
            engine.edit(|world| {
                let transfer = &mut world.transfers[0];
                (transfer.phase, transfer.timeout_policy) = (phase.to_owned(), "cancel".to_owned());
                let cleanup = crate::support::fake_engine::Effect::TransferCleanup(transfer.id.clone());
                let time: Instant = world.times.transfer;
                world.after(time, cleanup);
            });
            client.run(async |backend| {
                let made = backend.ensure_image(Role::Worker, &cluster, &image).await;
                made.unwrap_or_else(|error| panic!("{version:?} {phase}: {}", words(&error)));
            });
            assert_eq!(
                engine.look(|world| (world.templates.len(), world.vms.len())),
                (4, 0),
                "{version:?} {phase}"
            );
        }
    }
}

/// During the transfer, by a user in the Administration Portal.
#[test]
fn an_upload_that_is_cancelled_while_it_runs_is_restarted() {
    let engine = newest(|_| ());
    let (client, image, cluster) = uploader(&engine, (32 << 20) + 4096);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = std::time::Instant::now();
            let sends = || {
                engine.look(|world| {
                    world
                        .transfers
                        .first()
                        .map(|transfer| (transfer.id.clone(), transfer.data.len()))
                })
            };
            let id = loop {
                assert!(begun.elapsed() < Duration::from_secs(30), "nothing was sent");
                match sends() {
                    Some((id, bytes)) if bytes > 0 => break id,
                    _ => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            engine.ask("POST", &format!("/imagetransfers/{id}/cancel"), "<action/>");
        });
        client.run(async |backend| backend.ensure_image(Role::Worker, &cluster, &image).await.unwrap());
    });
    let sent = std::fs::read(client.path("coreos.qcow2")).unwrap();
    assert!(engine.look(|world| {
        world
            .transfers
            .iter()
            .all(|transfer| transfer.data == sent || transfer.phase == "finished_failure")
    }));
    assert_eq!(engine.look(|world| (world.templates.len(), world.vms.len())), (4, 0));
}

// 9. oVirt/ovirt-engine: AddVmCommand.getPermissionCheckSubjects.
#[test]
fn a_template_that_the_user_may_not_use_is_reported_before_anything_is_made() {
    let refused = |engine: &FakeEngine| {
        let client = Client::of(engine, |_| ());
        let spec = client.spec("lab");
        let needs = Requirements {
            templates: vec!["rhcos".to_owned()],
            ..needs(&spec)
        };
        client.run(async |backend| {
            let findings = lines(&backend.preflight(&needs).await.unwrap(), Verdict::Warn);
            let told = findings
                .iter()
                .any(|line| line.contains("template rhcos") && line.contains("UserTemplateBasedVm"));
            let made = backend.create_machine(&spec).await;
            assert_eq!(told, made.is_err(), "{findings:?} {made:?}");
            made.err()
        })
    };
    let engine = newest(ordinary_user);
    let error = refused(&engine).unwrap();
    assert_eq!(error.kind(), Kind::Denied, "{}", words(&error));
    assert!(words(&error).contains("UserTemplateBasedVm"), "{}", words(&error));
    assert!(engine.look(|world| world.vms.is_empty()));
    engine.edit(|world| permit_template(world, "rhcos"));
    assert!(refused(&engine).is_none());
    // A role on the data center counts for its templates, one on another template does not.
    let engine = newest(|world| {
        ordinary_user(world);
        let center = world.data_centers[1].id.clone();
        role(world, "PowerUserRole", "data_center", center);
    });
    assert!(refused(&engine).is_none());
    let engine = newest(|world| {
        ordinary_user(world);
        permit_template(world, "centos");
    });
    assert!(refused(&engine).is_some());
}

// 10. A template is created from the current disks of its machine.
#[test]
fn no_template_is_made_before_its_machine_has_the_disk() {
    let engine = newest(|_| ());
    let (client, image, cluster) = uploader(&engine, 1 << 20);
    engine.fault(
        Fault::on("POST", "/vms/*/diskattachments")
            .refused(409, "Cannot attach Virtual Disk. Something else is the matter."),
    );
    let refused = client.run(async |backend| backend.ensure_image(Role::Worker, &cluster, &image).await.unwrap_err());
    assert!(
        words(&refused).contains("Something else is the matter"),
        "{}",
        words(&refused)
    );
    assert_eq!(
        engine.look(|world| world.templates.len()),
        3,
        "a template without a disk"
    );
    // The next run continues, and a lost answer does not mean that the disk is missing.
    engine.fault(Fault::on("POST", "/vms/*/diskattachments").what(What::LostAnswer));
    let again = client.run(async |backend| backend.ensure_image(Role::Worker, &cluster, &image).await);
    if again.is_err() {
        client.run(async |backend| backend.ensure_image(Role::Worker, &cluster, &image).await.unwrap());
    }
    let disks = engine.look(|world| world.templates.last().unwrap().disks.len());
    assert_eq!(disks, 1);
}

// 11. oVirt/ovirt-engine-api-model: before 4.4 `DiskService.Update` has "the only field that can be updated is
// `qcow_version`".
#[test]
fn a_stalled_disk_of_another_cluster_is_taken_over_by_each_engine() {
    std::thread::scope(|scope| {
        // Whether 4.3 ignores the new description or rejects it is not known.
        for (version, is_rejected) in [([4, 3, 10], false), ([4, 3, 10], true), ([4, 5, 7], false)] {
            scope.spawn(move || {
                let engine = engine(version, |_| ());
                if is_rejected {
                    engine.fault(Fault::on("PUT", "/disks/*").refused(409, "Cannot edit Virtual Disk."));
                }
                let (client, image, first) = uploader(&engine, 1 << 20);
                let second = cluster_id("other", "example.com");
                // The first run ends between the disk and its upload.
                engine.fault(Fault::on("POST", "/imagetransfers").refused(400, "no"));
                client.run(async |backend| backend.ensure_image(Role::Worker, &first, &image).await.unwrap_err());
                client.run(async |backend| backend.ensure_image(Role::Worker, &second, &image).await.unwrap());
                assert_eq!(
                    engine.look(|world| (world.templates.len(), world.disks.len())),
                    (4, 3),
                    "{version:?}"
                );
            });
        }
    });
}

#[test]
fn a_session_is_ended_with_its_command() {
    let engine = newest(|_| ());
    let client = Client::of(&engine, |_| ());
    client.run(async |backend| {
        backend.list_clusters().await.unwrap();
        assert_eq!(engine.look(|world| world.tokens.len()), 1);
    });
    assert_eq!(engine.look(|world| world.tokens.len()), 0, "the session was left open");
}

/// The page and `ocpdeploy check` have the same list of points to confirm on a real engine.
#[test]
fn the_page_has_each_point_that_is_to_be_confirmed() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/how-to/ovirt.md")).unwrap();
    let list = page.split("## Not yet tested").nth(1).unwrap();
    let points = list.split("- [ ] ").skip(1).map(|point| {
        let point = point.split("\n\n").next().unwrap();
        point.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    assert_eq!(points.collect::<Vec<_>>(), ocpdeploy::backend::ovirt::UNVERIFIED);
}

/// The page has the same list of answers without a source as the fake engine, where each is a comment; each shape names the
/// class of the engine that it follows.
#[test]
fn the_page_has_each_answer_of_the_fake_that_is_assumed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut assumed, mut nameless, mut comment) = (BTreeSet::new(), Vec::new(), String::new());
    for file in std::fs::read_dir(root.join("tests/support/fake_engine")).unwrap() {
        for line in std::fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let line = line.trim_start();
            assumed.extend(
                line.strip_prefix("// Assumed: ")
                    .map(|words| words.trim_end_matches('.').to_owned()),
            );
            let is_shape = ["fn show_", "pub fn show_"].iter().any(|begin| line.starts_with(begin));
            if is_shape && line.contains("-> Node") && !comment.contains("oVirt/ovirt-engine:") {
                nameless.push(line.to_owned());
            }
            match line.starts_with("//") {
                true => comment += line,
                false => comment.clear(),
            }
        }
    }
    assert_eq!(nameless, [""; 0]);
    let page = std::fs::read_to_string(root.join("docs/how-to/ovirt.md")).unwrap();
    let (_, list) = page.split_once("These answers of the fake engine are assumed").unwrap();
    let list = list.split("\n* ").skip(1).map(|point| {
        let point = point.split("\n\n").next().unwrap();
        point.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    assert_eq!(list.collect::<BTreeSet<_>>(), assumed);
}

/// Filtered requests are searched as well: what they do not ask for is a fault worth a warning, and is left out.
#[test]
fn a_filtered_request_is_searched_too() {
    let engine = newest(|world| {
        ordinary_user(world);
        permit_template(world, "rhcos");
        world.put_vm("elsewhere");
        let id = world.new_id();
        world.filters.push(Named {
            id,
            name: "unused".to_owned(),
            description: String::new(),
        });
    });
    let (_, shown) = engine.ask("GET", "/vms?search=name%3Dlab-master-0", "");
    assert!(!shown.contains("elsewhere"), "{shown}");
}
