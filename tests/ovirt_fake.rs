//! The pretend engine by itself: what its own rules are.

#[path = "support/fake_engine/mod.rs"]
mod fake_engine;

use fake_engine::FakeEngine;

#[test]
fn a_fresh_engine_has_a_site() {
    let engine = FakeEngine::start();
    assert!(engine.url.ends_with("/ovirt-engine"));
    assert_eq!(engine.look(|world| world.templates.len()), 3);
}
