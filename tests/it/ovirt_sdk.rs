//! The fake engine and our requests, compared with oVirt's official SDK and its image daemon.

use crate::support::cluster::cluster_id;
use crate::support::ovirt_sdk;
use serde_json::json;

use crate::support::fake_engine::{FakeEngine, Fault, What};
use crate::support::ovirt_client::Client;
use crate::support::ovirt_sdk::Sdk;
use ocpdeploy::backend::{Power, Stop};
use ocpdeploy::cluster::Role;

#[test]
fn the_official_sdk_drives_the_fake_engine() {
    let Some(sdk) = Sdk::find() else { return };
    let engine = FakeEngine::start();
    let seen = sdk.drive(&engine);
    assert!(seen.starts_with("the SDK saw "), "{seen}");
}

#[test]
fn the_real_image_daemon_takes_the_data() {
    let Some(sdk) = Sdk::find() else { return };
    let engine = FakeEngine::start();
    engine.start_imageio(&sdk.imageio());
    sdk.drive(&engine);
    // No data went through the engine.
    let images = engine
        .requests()
        .into_iter()
        .filter(|request| request.path.contains("/images/"));
    assert_eq!(images.count(), 0);
}

#[test]
fn the_comparison_finds_each_difference() {
    let Some(sdk) = Sdk::find() else { return };
    let engine = FakeEngine::start();
    sdk.drive(&engine);
    let good = engine.recorded();
    let made = |request: &&serde_json::Value| request["method"] == "POST" && request["path"] == "/ovirt-engine/api/vms";
    let vm = good.as_array().unwrap().iter().find(made).unwrap().clone();
    let body = vm["body"].as_str().unwrap();
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut changed = vm.clone();
        change(&mut changed);
        sdk.compare(&json!([changed]))
    };
    assert_eq!(with(&|_| ()).unwrap(), "1 requests are compared with the SDK's\n");
    // An unknown element, one in the wrong place, a query, a header, a path.
    assert!(with(&|vm| vm["body"] = body.replace("<vm>", "<vm><bogus>1</bogus>").into()).is_err());
    assert!(with(&|vm| vm["body"] = body.replace("<vm>", "<vm><cores>1</cores>").into()).is_err());
    assert!(with(&|vm| vm["body"] = body.replace("<type>server</type>", "<type>servant</type>").into()).is_err());
    assert!(with(&|vm| vm["query"] = json!({"copy": "true"})).is_err());
    assert!(with(&|vm| vm["headers"]["version"] = "3".into()).is_err());
    assert!(with(&|vm| vm["headers"]["authorization"] = "Basic x".into()).is_err());
    assert!(with(&|vm| vm["path"] = "/ovirt-engine/api/machines".into()).is_err());
    // The SDK's own requests have no differences.
    let all = sdk.compare(&good).unwrap_or_else(|why| panic!("{why}"));
    assert!(all.ends_with(" requests are compared with the SDK's\n"), "{all}");
}

/// Finished uploads can still be seen at the end of a test.
const FOR_EVER: u64 = 1 << 40;

/// Larger than what is sent in one request.
const IMAGE: usize = (40 << 20) + 4096;

#[test]
fn the_real_image_daemon_takes_our_upload() {
    let Some(sdk) = Sdk::find() else { return };
    let engine = FakeEngine::with(|world| {
        world.tick = 3_000;
        world.times.transfer_shown = FOR_EVER;
    });
    engine.start_imageio(&sdk.imageio());
    let client = Client::of(&engine, |_| ());
    let cluster = cluster_id("lab", "example.com");
    let image = client.image("coreos.qcow2", IMAGE);
    client.run(async |backend| backend.ensure_image(Role::Worker, &cluster, &image).await.unwrap());
    let daemon_has = engine.look(|world| {
        let daemon = world.imageio.as_ref().unwrap();
        world
            .transfers
            .iter()
            .map(|transfer| daemon.read(&transfer.ticket))
            .collect::<Vec<_>>()
    });
    assert!(
        daemon_has == [std::fs::read(client.path("coreos.qcow2")).unwrap()],
        "the daemon has other data"
    );
    // The engine verified it: a disk that is no qcow2 would be illegal, and no template would be.
    let templates = engine.look(|world| {
        world
            .templates
            .iter()
            .map(|template| template.name.clone())
            .collect::<Vec<_>>()
    });
    assert!(
        templates.iter().any(|name| name.starts_with("ocpdeploy-image-")),
        "{templates:?}"
    );
    let past_the_daemon = engine
        .requests()
        .into_iter()
        .filter(|request| request.path.contains("/images/"));
    assert_eq!(past_the_daemon.count(), 0);
    ovirt_sdk::judge(&engine, 15);
}

#[test]
fn an_upload_goes_through_the_engine_when_its_hosts_cannot_be_reached() {
    let engine = FakeEngine::with(|world| {
        world.tick = 3_000;
        // Nothing listens there.
        world.direct_origin = Some("https://127.0.0.1:1".to_owned());
    });
    let client = Client::of(&engine, |_| ());
    let image = client.image("coreos.qcow2", IMAGE);
    client.run(async |backend| {
        backend
            .ensure_image(Role::Worker, &cluster_id("lab", "example.com"), &image)
            .await
            .unwrap()
    });
    let data = engine
        .requests()
        .into_iter()
        .filter(|request| request.path.contains("/images/"));
    let (puts, others): (Vec<_>, Vec<_>) = data.partition(|request| request.method == "PUT");
    assert_eq!((puts.len(), others.len()), (2, 1));
    assert!(
        puts.iter().all(|request| request.path.starts_with("/proxied/")),
        "{puts:?}"
    );
}

#[test]
fn an_interrupted_upload_is_resumed_and_arrives_complete() {
    let engine = FakeEngine::with(|world| {
        world.tick = 3_000;
        world.times.transfer_shown = FOR_EVER;
    });
    let client = Client::of(&engine, |_| ());
    let image = client.image("coreos.qcow2", IMAGE);
    engine.fault(Fault::on("PUT", "/images/*").what(What::LostRequest));
    engine.fault(Fault::on("PUT", "/images/*").skip(1).what(What::LostAnswer));
    engine.fault(Fault::on("POST", "/imagetransfers/*/finalize").what(What::Expired));
    client.run(async |backend| {
        backend
            .ensure_image(Role::Worker, &cluster_id("lab", "example.com"), &image)
            .await
            .unwrap()
    });
    let sent = std::fs::read(client.path("coreos.qcow2")).unwrap();
    let arrived = engine.look(|world| world.transfers.iter().any(|transfer| transfer.data == sent));
    assert!(arrived, "the received data differ from those that were sent");
}

#[test]
fn an_upload_that_its_cluster_left_is_finished_by_another() {
    let engine = FakeEngine::with(|world| world.tick = 3_000);
    let client = Client::of(&engine, |_| ());
    let image = client.image("coreos.qcow2", IMAGE);
    let [first, second] = ["lab", "other"].map(|name| cluster_id(name, "example.com"));
    // The first cluster's run ends after one part, with its transfer paused, as the engine does when the host fails.
    engine.fault(Fault::on("PUT", "/images/*").skip(1).times(5).what(What::LostRequest));
    client.run(async |backend| backend.ensure_image(Role::Worker, &first, &image).await.unwrap_err());
    engine.edit(|world| {
        let [transfer] = world.transfers.as_mut_slice() else {
            panic!("{:?}", world.transfers)
        };
        assert_eq!(transfer.data.len(), 32 << 20);
        transfer.phase = "paused_system".to_owned();
        transfer.timeout_policy = "pause".to_owned();
    });
    client.run(async |backend| backend.ensure_image(Role::Worker, &second, &image).await.unwrap());
    let pieces: Vec<_> = engine
        .requests()
        .into_iter()
        .filter(|request| request.method == "PUT" && request.path.contains("/images/"))
        .map(|request| request.headers["content-range"].clone())
        .collect();
    assert_eq!(pieces.len(), 1 + 5 + 1, "{pieces:?}");
    assert_eq!(
        pieces.last().unwrap(),
        &format!("bytes {}-{}/*", 32 << 20, IMAGE - 1),
        "the first part was sent again"
    );
    // Both use it: it is kept until the second cluster is deleted, too.
    client.run(async |backend| backend.delete_remaining(&first).await.unwrap());
    assert_eq!(engine.look(|world| world.templates.len()), 4);
    client.run(async |backend| backend.delete_remaining(&second).await.unwrap());
    assert_eq!(engine.look(|world| (world.templates.len(), world.tags.len())), (3, 0));
}

#[test]
fn what_our_client_asks_of_a_machine_is_what_the_sdk_would_ask() {
    let engine = FakeEngine::with(|world| world.tick = 3_000);
    let client = Client::of(&engine, |_| ());
    let spec = client.spec("lab");
    client.run(async |backend| {
        backend.create_machine(&spec).await.unwrap();
        let described = backend.describe_machine(&spec.cluster, &spec.name).await.unwrap();
        assert_eq!(described.form.unwrap().name, "oVirt XML");
        let power = async || backend.list_machines(&spec.cluster).await.unwrap()[0].power.clone();
        while power().await != Power::Running {}
        backend
            .stop_machine(&spec.cluster, &spec.name, Stop::Graceful)
            .await
            .unwrap();
        while power().await != Power::Off {}
        backend.start_machine(&spec.cluster, &spec.name).await.unwrap();
        backend
            .stop_machine(&spec.cluster, &spec.name, Stop::Force)
            .await
            .unwrap();
        assert_eq!(power().await, Power::Off);
        assert!(!backend.list_owned(&spec.cluster).await.unwrap().is_empty());
        backend.delete_machine(&spec.cluster, &spec.name).await.unwrap();
        backend.delete_remaining(&spec.cluster).await.unwrap();
    });
    ovirt_sdk::judge(&engine, 35);
}
