//! The fake API server as a program of its own, for the lab: `cargo run --example fake-kube -- …`.
//!
//! `prepare FOLDER CLUSTER DOMAIN [PORT]` makes a CA and writes `ca.crt`, `ca.key` and `kubeconfig`; the fake
//! openshift-install uses the `kubeconfig` next to it.
//!
//! `serve FOLDER PARAMETERS [ADDRESS:PORT] [hostile]` waits until the parameter file exists and serves on its api VIP
//! the cluster that is in it. Nodes that are added to the file later join later. The requests are in
//! `FOLDER/seen.json`, updated with each change.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it serves tests"
)]

#[path = "mod.rs"]
mod fake_kube;

use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use fake_kube::authority::Authority;
use fake_kube::server::FakeKube;
use fake_kube::world::World;
use ocpdeploy::state::parameters::Parameters;

const USAGE: &str = "fake-kube prepare FOLDER CLUSTER DOMAIN [PORT] | serve FOLDER PARAMETERS [ADDRESS:PORT] [hostile]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["prepare", folder, cluster, domain] => prepare(folder.as_ref(), cluster, domain, "6443"),
        ["prepare", folder, cluster, domain, port] => prepare(folder.as_ref(), cluster, domain, port),
        ["serve", folder, parameters, rest @ ..] => serve(folder.as_ref(), parameters.as_ref(), rest),
        _ => panic!("usage: {USAGE}"),
    }
}

fn prepare(folder: &Path, cluster: &str, domain: &str, port: &str) {
    let authority = Authority::new();
    authority.write(folder);
    let server = format!("https://api.{cluster}.{domain}:{port}");
    std::fs::write(folder.join("kubeconfig"), authority.kubeconfig(cluster, &server)).unwrap();
}

fn serve(folder: &Path, parameters: &Path, rest: &[&str]) {
    let table = loop {
        match Parameters::read(parameters).unwrap() {
            Some(table) => break table,
            None => sleep(Duration::from_millis(200)),
        }
    };
    let given = rest.iter().find(|word| **word != "hostile");
    let address = given.map_or(SocketAddr::from((table.api_ip, 6443)), |given| given.parse().unwrap());
    let authority = Authority::read(folder);
    let certificate = authority.server(&table.cluster_domain().fqdn("api"), |_| {});
    let mut world = World::new(table);
    if rest.contains(&"hostile") {
        world = world.hostile();
    }
    let kube = FakeKube::start(world, address, &authority, &certificate);
    println!("serving on {}", kube.address());
    let mut told = String::new();
    loop {
        sleep(Duration::from_millis(100));
        // A file that is being replaced is read the next time.
        if let Ok(Some(table)) = Parameters::read(parameters) {
            kube.with(|world| world.learn(table));
        }
        let seen = kube.with(|world| world.seen()).to_string();
        if seen != told {
            let partial = folder.join("seen.partial");
            std::fs::write(&partial, &seen).unwrap();
            std::fs::rename(partial, folder.join("seen.json")).unwrap();
            told = seen;
        }
    }
}
