//! `verify` reads the actual settings of each node over a real sshd.

use std::fs::Permissions;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::support::fake_kube::world::Stage;
use crate::support::sandbox::{Outcome, outcome};
use crate::support::site::Site;
use crate::support::sshd::Sshd;

/// Writes a program of the nodes; all nodes are this computer, at different addresses.
fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// A process whose environment is that of kubelet and CRI-O.
struct Unit(Child);

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_node_is_compared_with_the_settings() {
    let site = Site::new(31, "mtu=1400\ndns_search=example.net\nntp_servers=ntp.example.com\n");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    outcome(child).succeeded();
    let table = site.sandbox.parameters("lab").unwrap();
    let nodes: Vec<IpAddr> = table.nodes.iter().map(|node| node.ip).collect();

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("programs")).unwrap();
    std::fs::create_dir_all(path("root/etc")).unwrap();
    std::fs::create_dir_all(path("root/run/ocpdeploy/dns")).unwrap();
    let programs = path("programs");
    program(&programs, "sudo", "[ \"$1\" = -n ] && shift && exec \"$@\"");
    program(
        &programs,
        "cat",
        &format!("exec /bin/cat \"{}/root$1\"", folder.path().display()),
    );
    let ip = |mtu: u16, prefix: u8| {
        let link = json!([{"ifname": "br-ex", "mtu": mtu, "addr_info": [{"local": "IP", "prefixlen": prefix}]}]);
        let route = json!([{"dst": "default", "gateway": "127.93.31.1", "dev": "br-ex"}]);
        let text = format!(
            "set -- $2 $3 $SSH_CONNECTION\n\
             case $1 in address) echo '{link}' | sed \"s/IP/$5/\" ;; *) echo '{route}' ;; esac"
        );
        program(&programs, "ip", &text);
    };
    ip(1400, 24);
    let write = |name: &str, text: &str| std::fs::write(path(&format!("root/{name}")), text).unwrap();
    write(
        "etc/resolv.conf",
        "search lab.example.com example.net\nnameserver 127.93.31.9\n",
    );
    write("run/ocpdeploy/dns/upstreams", "nameserver 127.93.31.1\n");
    write("etc/chrony.conf", "server ntp.example.com iburst\n");
    let unit = Command::new("sleep")
        .arg("1000")
        .env("HTTPS_PROXY", "http://proxy.example.com:3128")
        .spawn();
    let unit = Unit(unit.unwrap());
    program(&programs, "systemctl", &format!("echo {}", unit.0.id()));
    let Some(sshd) = Sshd::start(folder.path(), &nodes, &programs) else {
        return;
    };
    let verify = || -> Outcome {
        let mut command = site.sandbox.command(&["verify", "lab"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", sshd.tools.display()));
        outcome(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let env = site.sandbox.path().join("lab.sh");
    let settings = std::fs::read_to_string(&env).unwrap();

    let equal = verify().succeeded();
    assert!(!equal.stdout.contains("settings"), "{}", equal.stdout);

    // Other nodes than those of the deployment, and a changed secret, which only the env file has.
    let changed = "https_proxy=http://u:hunter2@new.example.com:3128\n";
    std::fs::write(&env, format!("{settings}\n{changed}")).unwrap();
    write("etc/chrony.conf", "pool 2.rhel.pool.ntp.org iburst\n");
    ip(1500, 16);
    write("run/ocpdeploy/dns/upstreams", "nameserver 127.93.31.2\n");
    write("etc/resolv.conf", "search lab.example.com\n");
    let differs = verify();
    assert_eq!(differs.code, Some(1), "{}", differs.stderr);
    let of_worker: Vec<_> = differs
        .stdout
        .lines()
        .filter(|line| line.starts_with("worker-1 "))
        .collect();
    insta::assert_snapshot!(of_worker.join("\n"));
    let told = differs
        .stdout
        .lines()
        .filter(|line| line.contains("MTU of br-ex"))
        .count();
    assert_eq!(
        told,
        nodes.len() - 1,
        "all nodes but the bootstrap:\n{}",
        differs.stdout
    );
    assert!(!format!("{}{}", differs.stdout, differs.stderr).contains("hunter2"));

    // A value that cannot be compared is not a difference.
    std::fs::write(&env, &settings).unwrap();
    program(&programs, "ip", "exit 1");
    let silent = verify().succeeded();
    let told = "not checked: settings of 5 nodes, such as master-0: cannot parse the output of `ip`";
    assert!(silent.stdout.contains(told), "{}", silent.stdout);
    drop(sshd);
    let unreachable = site.sandbox.run(&["verify", "lab"]).succeeded();
    let told = "not checked: settings of 5 nodes, such as master-0: cannot log in to master-0.lab.example.com";
    assert!(unreachable.stdout.contains(told), "{}", unreachable.stdout);
    // The record has the settings.
    std::fs::remove_file(&env).unwrap();
    let recorded = site.sandbox.run(&["verify", "lab"]).succeeded();
    assert!(recorded.stdout.contains(told), "{}", recorded.stdout);
    kube.finish();
}
