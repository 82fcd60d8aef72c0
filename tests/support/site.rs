//! An environment to deploy a whole cluster: fake machines, a fake of openshift-install, a fake API on the VIP.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Child;

use serde_json::{Value, json};

use crate::support::fake_installer;
use crate::support::fake_kube::authority::Authority;
use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{Stage, World};
use crate::support::sandbox::{Outcome, Sandbox, outcome};
use crate::support::until::{LONG, until};

/// A site whose simulated network is on the loopback, with everything else that a real deployment requires.
pub struct Site {
    pub sandbox: Sandbox,
    pub authority: Authority,
}

impl Site {
    pub fn new(network: u8, lines: &str) -> Self {
        let ip = |last: u8| format!("127.93.{network}.{last}");
        let sandbox = Sandbox::new(json!({"script": {"boot_ms": 10}, "networks": {"default": {
            "cidr": format!("{}/24", ip(0)), "gateway": ip(1), "dhcp_from": ip(2), "dhcp_to": ip(254)}}}));
        let authority = fake_installer::install(sandbox.path());
        sandbox.env(
            "lab",
            &format!(
                "{}image=./node.qcow2\nharvest_image=./helper.qcow2\n{lines}",
                fake_installer::LINES
            ),
        );
        Self { sandbox, authority }
    }

    pub fn start(&self, flags: &[&str]) -> Child {
        let arguments: Vec<&str> = ["deploy", "lab.sh"].iter().chain(flags).copied().collect();
        self.sandbox.start(&arguments)
    }

    pub fn deploy(&self) -> Outcome {
        outcome(self.start(&[]))
    }

    /// The cluster's API on its VIP, as soon as that is known; nodes exist while their machines do.
    pub fn kube(&self, child: &mut Child, gate: Stage) -> FakeKube {
        until(LONG, "the parameter file", || {
            self.sandbox.parameters("lab").is_some() || child.try_wait().unwrap().is_some()
        });
        let Some(table) = self.sandbox.parameters("lab") else {
            let mut text = String::new();
            child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("{text}");
        };
        let address = SocketAddr::from((table.api_ip, 6443));
        let certificate = self.authority.server("api.lab.example.com", |_| {});
        let mut world = World::new(table).hostile();
        world.gate = gate;
        world.present = Some(fake_installer::is_on(self.sandbox.path().join("sim.json")));
        world.manifests = Some(self.sandbox.path().join("openshift.json"));
        FakeKube::start(world, address, &self.authority, &certificate)
    }

    pub fn machines(&self) -> Vec<String> {
        self.sandbox.of_pass("lab", "two")
    }

    pub fn holds_bootstrap(&self) -> bool {
        self.sandbox
            .reservations(Some("lab"))
            .iter()
            .any(|(_, kept)| kept["name"] == "bootstrap")
    }

    /// Kills a deployment in this step, once it has queried the API.
    pub fn kill_within(&self, mut child: Child, kube: &FakeKube, step: &str) {
        until(LONG, step, || {
            self.sandbox.is_within("lab", step) || child.try_wait().unwrap().is_some()
        });
        let before = kube.with(|world| world.asked);
        until(LONG, "questions", || {
            kube.with(|world| world.asked) > before + 5 || child.try_wait().unwrap().is_some()
        });
        child.kill().unwrap();
        let outcome = outcome(child);
        assert_eq!(outcome.code, None, "it was not killed: {}", outcome.stderr);
    }

    /// Changes the recorded age of the files to these hours.
    pub fn age_assets(&self, hours: i64) {
        let path = self.sandbox.home().cluster("lab").journal();
        let made_at = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours);
        let aged = |line: &str| {
            let mut entry: Value = serde_json::from_str(line).unwrap();
            if entry["step"] == "assets" && entry["event"] == "done" {
                entry["output"]["made_at"] = json!(made_at);
            }
            format!("{entry}\n")
        };
        let text: String = std::fs::read_to_string(&path).unwrap().lines().map(aged).collect();
        std::fs::write(&path, text).unwrap();
    }
}
