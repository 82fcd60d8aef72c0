//! The pretend engine and our own requests before the judges: oVirt's official SDK, and its daemon that takes images.

use serde_json::json;

#[path = "support/fake_engine/mod.rs"]
mod fake_engine;
#[path = "support/ovirt_sdk.rs"]
mod ovirt_sdk;

use fake_engine::FakeEngine;
use ovirt_sdk::Sdk;

#[test]
fn the_official_sdk_drives_the_pretend_engine() {
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
    // All data went past the engine.
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
    // An element that nobody knows, one in the wrong place, a query, a header, a path.
    assert!(with(&|vm| vm["body"] = body.replace("<vm>", "<vm><bogus>1</bogus>").into()).is_err());
    assert!(with(&|vm| vm["body"] = body.replace("<vm>", "<vm><cores>1</cores>").into()).is_err());
    assert!(with(&|vm| vm["body"] = body.replace("<type>server</type>", "<type>servant</type>").into()).is_err());
    assert!(with(&|vm| vm["query"] = json!({"copy": "true"})).is_err());
    assert!(with(&|vm| vm["headers"]["version"] = "3".into()).is_err());
    assert!(with(&|vm| vm["headers"]["authorization"] = "Basic x".into()).is_err());
    assert!(with(&|vm| vm["path"] = "/ovirt-engine/api/machines".into()).is_err());
    // And what the SDK sent itself is what the SDK sends.
    let all = sdk.compare(&good).unwrap_or_else(|why| panic!("{why}"));
    assert!(all.ends_with(" requests are compared with the SDK's\n"), "{all}");
}
