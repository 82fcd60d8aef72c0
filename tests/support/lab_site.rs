//! An environment in which one cluster, `lab`, can be rehearsed and installed: fake machines, a strict fake of
//! openshift-install, and a fake API at the VIP as long as a table of addresses exists.

use std::net::SocketAddr;
use std::process::Child;
use std::time::{Duration, Instant};

use ocpdeploy::cluster::Role;
use ocpdeploy::state::parameters::Parameters;
use serde_json::json;

use super::fake_installer;
use super::fake_kube::authority::{Authority, Signed};
use super::fake_kube::server::FakeKube;
use super::fake_kube::world::{REQUESTS, Stage, World};
use super::sandbox::{Outcome, Sandbox, outcome};
use super::until::{LONG, until};

/// The settings of every env file of a site.
pub const LINES: &str = "installer=openshift-install\npull_secret=pull-secret.json\npub_key=key.pub\n\
    harvest_timeout=60s\naddress_timeout=10s\nbootstrap_timeout=60s\ninstall_timeout=60s\n";

pub struct Site {
    pub sandbox: Sandbox,
    authority: Authority,
    certificate: Signed,
    /// Stays at its address for the next cluster there.
    kube: Option<FakeKube>,
    /// What the API knows.
    table: Option<Parameters>,
}

/// Whether a process has this in its environment.
fn is_parent_of_any(parent: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut environments = processes.filter_map(|process| std::fs::read(process.path().join("environ")).ok());
    environments.any(|environment| environment.windows(parent.len()).any(|part| part == parent.as_bytes()))
}

impl Site {
    /// Its machines' network is 127.`network`.0/24, so that the VIP is on this computer.
    pub fn new(network: &str) -> Self {
        let ip = |last: u8| format!("127.{network}.{last}");
        let sandbox = Sandbox::new(json!({"script": {"boot_ms": 1}, "networks": {"default": {
            "cidr": format!("{}/24", ip(0)), "gateway": ip(1), "dhcp_from": ip(2), "dhcp_to": ip(254)}}}));
        let authority = fake_installer::install(sandbox.path());
        let certificate = authority.server("api.lab.example.com", |_| {});
        Self {
            sandbox,
            authority,
            certificate,
            kube: None,
            table: None,
        }
    }

    /// Runs the program while the API follows the table; kills the program after `life`.
    pub fn run_for(&mut self, arguments: &[&str], life: Option<Duration>) -> Outcome {
        self.forget_api_of_no_machines();
        let (begun, mut child) = (Instant::now(), self.sandbox.start(arguments));
        while child.try_wait().unwrap().is_none() {
            self.keep_api();
            match life {
                Some(life) if begun.elapsed() >= life => child.kill().unwrap(),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        if life.is_some() {
            // Its openshift-install or oc outlives it until the next run, and still writes to the cluster's folder.
            let parent = format!("OCPDEPLOY_PARENT={} ", child.id());
            until(LONG, "the children of a killed run end", || !is_parent_of_any(&parent));
        }
        self.ended(child)
    }

    pub fn run(&mut self, arguments: &[&str]) -> Outcome {
        self.run_for(arguments, None)
    }

    fn ended(&mut self, child: Child) -> Outcome {
        let outcome = outcome(child);
        self.keep_api();
        outcome
    }

    /// Removes the API of a cluster without machines.
    fn forget_api_of_no_machines(&mut self) {
        if self.sandbox.of_pass("lab", "two").is_empty() {
            self.forget_api();
        }
    }

    fn forget_api(&mut self) {
        self.table = None;
        if let Some(kube) = &self.kube {
            kube.with(|world| *world = World::default());
        }
    }

    /// Updates the API from the current table, and starts it if there is none.
    fn keep_api(&mut self) {
        let Some(table) = self.sandbox.parameters("lab") else {
            if self.table.is_some() {
                self.forget_api();
            }
            return;
        };
        if self.table.as_ref() == Some(&table) {
            return;
        }
        let address = SocketAddr::from((table.api_ip, 6443));
        let kube = self.kube.take().filter(|kube| kube.address() == address);
        let kube = match (kube, &self.table) {
            (Some(kube), Some(_)) => {
                kube.with(|world| world.learn(table.clone()));
                kube
            }
            (Some(kube), None) => {
                let new = self.world(&table);
                kube.with(|world| *world = new);
                kube
            }
            (None, _) => FakeKube::start(self.world(&table), address, &self.authority, &self.certificate),
        };
        (self.kube, self.table) = (Some(kube), Some(table));
    }

    /// A cluster whose nodes exist while their machines are on.
    fn world(&self, table: &Parameters) -> World {
        let mut world = World::new(table.clone());
        world.gate = Stage::Installed;
        world.present = Some(fake_installer::is_on(self.sandbox.path().join("sim.json")));
        world
    }

    /// Resets the API to the present cluster; its nodes join once their machines are seen.
    pub fn restore_api(&mut self) {
        self.forget_api();
        self.keep_api();
        let (Some(kube), Some(table)) = (&self.kube, &self.table) else {
            return;
        };
        let workers: Vec<String> = table
            .of_role(Role::Worker)
            .map(|node| format!("csr-client-{}", node.name))
            .collect();
        kube.with(|world| {
            for _ in 0..100 {
                world.tick();
                for request in &workers {
                    if world
                        .get(REQUESTS, request)
                        .is_some_and(|request| request["status"]["conditions"].is_null())
                    {
                        let approved = json!([{"type": "Approved", "status": "True", "reason": "Test"}]);
                        world.edit(REQUESTS, request, |request| request["status"]["conditions"] = approved);
                    }
                }
            }
        });
    }
}
