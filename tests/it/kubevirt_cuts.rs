//! Deployments on the fake KubeVirt that end after their n-th change, on both networks: the same command continues, and
//! `destroy` leaves nothing. A usual run takes samples; `OCPDEPLOY_CUTS=all` takes every n (`make reliability`).

use crate::support::fake_kubevirt::World;
use crate::support::kubevirt_sandbox::Sandbox;

const SAMPLES: usize = 3;

fn sandbox(lines: &str) -> Sandbox {
    let sandbox = Sandbox::new(World::with_tenants(&["blue", "red"]));
    sandbox.env("lab", lines);
    sandbox
}

fn cut_after_each_change(lines: &str) {
    let untouched = sandbox(lines);
    let before = untouched.inventory("blue");
    untouched.deploy("lab").unwrap();
    let whole = untouched.inventory("blue");
    let count = untouched.server.with(|world| world.changes);
    assert!(count > 20, "{count}");
    let step = match std::env::var("OCPDEPLOY_CUTS").as_deref() {
        Ok("all") => 1,
        _ => count.div_ceil(SAMPLES),
    };
    let mut cuts = 0;
    for changes in (1..=count).step_by(step) {
        let sandbox = sandbox(lines);
        cuts += usize::from(sandbox.cut("lab", changes));
        sandbox.deploy("lab").unwrap();
        assert_eq!(sandbox.inventory("blue"), whole, "continued after change {changes}");
        sandbox.destroy("lab");
        assert_eq!(sandbox.inventory("blue"), before, "destroyed after change {changes}");
        // At once, with a state folder that may have no record of it.
        cuts += usize::from(sandbox.cut("lab", changes));
        sandbox.destroy("lab");
        assert_eq!(
            sandbox.inventory("blue"),
            before,
            "cut and destroyed after change {changes}"
        );
        sandbox.server.was_asked_well();
    }
    // Requests with a conflict are repeated, so runs differ by a change or two.
    assert!(cuts + 4 >= 2 * (1..=count).step_by(step).count(), "{cuts} of {count}");
    println!("reliability: {cuts} cuts on KubeVirt");
}

#[test]
fn a_run_on_a_secondary_network_that_is_cut_is_continued_and_destroyed() {
    cut_after_each_change("masters=1\nworkers=1");
}

#[test]
fn a_run_on_pods_that_is_cut_is_continued_and_destroyed() {
    cut_after_each_change("network=pod\nkubevirt_pod_networks=10.128.0.0/14\nmasters=1\nworkers=1");
}
