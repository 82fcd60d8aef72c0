//! The files of keepalived and haproxy, checked by keepalived, haproxy, bash and shellcheck.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::shape::{Made, Shape};
use ocpdeploy::cluster::{Role, Vip};
use ocpdeploy::node::host::HostParts;
use ocpdeploy::node::services::{Input, Release, keepalived, lease};

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 168, 122, 10);
const ROLES: [Role; 4] = [Role::Bootstrap, Role::Master, Role::Arbiter, Role::Worker];

const SHAPE: Shape = Shape {
    masters: 3,
    workers: 2,
    one_vip: false,
    prefix: 24,
    use_br: false,
    masters_schedulable: false,
};

/// 1, 3 and 5 masters, and 2 with an arbiter, with 0, 1, 2 and 50 workers, with 1 and 2 VIPs; other values alternate.
fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for masters in [1, 2, 3, 5] {
        for workers in [0, 1, 2, 50] {
            for one_vip in [false, true] {
                let turn = shapes.len();
                let prefix = if workers == 50 { 23 } else { [24, 23, 26][turn % 3] };
                shapes.push(Shape {
                    masters,
                    workers,
                    one_vip,
                    prefix,
                    use_br: turn % 2 == 1,
                    masters_schedulable: turn % 4 == 2,
                });
            }
        }
    }
    shapes
}

/// Writes files below `root` as on the node.
fn write(root: &Path, parts: &HostParts) {
    for file in &parts.files {
        let path = root.join(file.path.strip_prefix('/').unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &file.content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode)).unwrap();
    }
}

/// The node's own configuration, made by the node's own script at the files' own paths, read by keepalived.
///
/// Each argument is a folder: its file `nodes` has lines of address and interface, `host` is the node's file system.
const KEEPALIVED_READS: &str = r#"
set -eu
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
mkdir -p /etc/ocpdeploy
ip link add nic type veth peer name other
ip link add br1 type bridge
for shape; do
    mount --bind "$shape/host/etc/ocpdeploy" /etc/ocpdeploy
    while read -r address interface; do
        ip addr add "$address" dev "$interface"
        /etc/ocpdeploy/keepalived/run render >/mnt/keepalived.conf
        keepalived -t -f /mnt/keepalived.conf || echo "REFUSED: $shape at $address"
        cp /mnt/keepalived.conf "$shape/${address%/*}.conf"
        ip addr del "$address" dev "$interface"
    done <"$shape/nodes"
    umount /etc/ocpdeploy
done
"#;

/// Runs it where it is root over mounts and interfaces of its own.
fn keepalived_reads(folders: &[String]) -> String {
    let output = Command::new("unshare")
        .args([
            "--map-root-user",
            "--mount",
            "--net",
            "bash",
            "-c",
            KEEPALIVED_READS,
            "-",
        ])
        .args(folders)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text.into_owned()
}

#[test]
fn keepalived_and_haproxy_accept_what_every_shape_of_cluster_gets() {
    let folder = tempfile::tempdir().unwrap();
    let (mut folders, mut configs, mut nodes) = (Vec::new(), Vec::new(), 0);
    for (turn, shape) in shapes().into_iter().enumerate() {
        let mut made = Made::new("lab", shape, FIRST);
        made = match turn % 3 {
            1 => made.with_ipv6(),
            2 => made.of_ipv6(),
            _ => made,
        };
        for role in ROLES {
            let parts = made.parts(role);
            let is_nothing = parts == HostParts::default();
            assert!(is_nothing || role != Role::Arbiter, "an arbiter has no VIP");
            for arbiter in made.parameters.of_role(Role::Arbiter) {
                let ip = arbiter.ip.to_string();
                let named = parts.files.iter().find(|file| file.content.contains(&ip));
                assert!(
                    named.is_none(),
                    "{shape}: {role} sends requests to the arbiter: {named:?}"
                );
            }
            if is_nothing {
                continue;
            }
            let folder = folder.path().join(format!("{shape}-{role}"));
            write(&folder.join("host"), &parts);
            // The first and the last of many.
            let all: Vec<_> = made.parameters.nodes.iter().filter(|node| node.role == role).collect();
            let some: BTreeSet<_> = all.first().into_iter().chain(all.last()).map(|node| node.ip).collect();
            let interface = if shape.use_br { "br1" } else { "nic" };
            let prefix = made.parameters.machine_network.prefix();
            let lines = some.iter().map(|ip| format!("{ip}/{prefix} {interface}\n"));
            fs::write(folder.join("nodes"), lines.collect::<String>()).unwrap();
            nodes += some.len();
            folders.push(folder.to_str().unwrap().to_owned());
            let config = folder.join("host/etc/ocpdeploy/haproxy/haproxy.cfg");
            configs.extend(config.is_file().then_some(config));
        }
    }
    assert!(
        folders.len() > 40 && nodes > 60 && configs.len() > 15,
        "{} {nodes}",
        folders.len()
    );

    let said = keepalived_reads(&folders);
    // The older name, which all versions accept.
    let said: Vec<_> = said
        .lines()
        .filter(|line| !line.contains("\"vrrp_track_file\" is deprecated"))
        .collect();
    assert!(said.is_empty(), "{said:?}");
    for folder in &folders {
        let table = fs::read_to_string(format!("{folder}/host/etc/ocpdeploy/keepalived/keepalived.conf.in")).unwrap();
        for line in fs::read_to_string(format!("{folder}/nodes")).unwrap().lines() {
            let (ip, interface) = line.split_once(' ').unwrap();
            let ip = ip.split('/').next().unwrap();
            let config = fs::read_to_string(format!("{folder}/{ip}.conf")).unwrap();
            let count = |text: &str, word: &str| text.lines().filter(|line| line.trim().starts_with(word)).count();
            let instances = count(&table, "vrrp_instance ");
            assert_eq!(count(&config, "priority "), instances, "one priority each: {config}");
            assert_eq!(count(&config, &format!("interface {interface}")), instances);
            assert!(!config.contains(['#', '@']), "{config}");
            // keepalived itself says nothing of a node that is its own peer.
            let peers = config.lines().filter_map(|line| line.trim().parse::<IpAddr>().ok());
            let peers: Vec<String> = peers.map(|peer| peer.to_string()).collect();
            let own = table.matches(&format!("#not {ip}\n")).count();
            assert!(!peers.contains(&ip.to_owned()), "{config}");
            assert_eq!(peers.len(), table.matches(" #not ").count() - own, "{config}");
            assert_eq!(count(&config, &format!("unicast_src_ip {ip}")), own);
        }
    }
    for config in configs {
        let output = Command::new("haproxy")
            .arg("-c")
            .arg("-f")
            .arg(&config)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !text.contains("WARNING"),
            "{}: {text}",
            config.display()
        );
    }
}

#[test]
fn bash_and_shellcheck_accept_the_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let made = Made::new("lab", SHAPE, FIRST);
    let mut scripts = BTreeSet::new();
    for role in ROLES {
        let parts = made.parts(role);
        write(folder.path(), &parts);
        let of_bash = |content: &str| content.starts_with("#!/bin/bash\n");
        scripts.extend(
            parts
                .files
                .into_iter()
                .filter(|file| of_bash(&file.content))
                .map(|file| file.path),
        );
    }
    assert_eq!(scripts.len(), 3, "{scripts:?}");
    for script in scripts {
        let path = folder.path().join(&script[1..]);
        for tool in [&["bash", "-n"][..], &["shellcheck"]] {
            let output = Command::new(tool[0]).args(&tool[1..]).arg(&path).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool:?} {script}: {text}");
        }
    }
}

/// The script runs with fakes of haproxy, with given answers, and of nft, which counts rules.
#[test]
fn redirects_are_added_after_3_successes_and_removed_after_11_failures_or_without_haproxy() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let place = root.to_str().unwrap();
    let parts = Made::new("lab", SHAPE, FIRST).parts(Role::Master);
    let script = parts
        .files
        .iter()
        .find(|file| file.path.ends_with("/ocpdeploy-redirect"));
    let script = script.unwrap().content.as_str();
    let script = ["/etc/ocpdeploy", "/run/ocpdeploy"]
        .into_iter()
        .fold(script.to_owned(), |script, path| {
            script.replace(path, &format!("{place}{path}"))
        });
    let tool = |name: &str, text: &str| {
        let path = root.join(name);
        fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write(root, &parts);
    let haproxy = format!(
        "ask() {{ cd {place}; read -r code <codes || {{ kill $$; return 1; }}; sed -i 1d codes; echo \"$code\" >>log; return $code; }}"
    );
    let main_loop = "written=none looks=0\n";
    assert!(script.contains(main_loop));
    let script = script.replace(main_loop, &format!("{haproxy}\n{main_loop}"));
    fs::write(root.join("script"), script).unwrap();
    tool("sleep", "");
    tool(
        "nft",
        &format!(
            "if [ \"$1\" = list ]; then echo redirect; exit; fi
            case $(cat) in *'dport 6443 redirect'*) echo + ;; *) echo - ;; esac >>{place}/log"
        ),
    );
    let repeat = |code: &'static str, times: usize| std::iter::repeat_n(code, times);
    let (refused, unready) = ("2", "1");
    let expected: Vec<&str> = std::iter::empty()
        .chain(["0", "-", "0", unready, "0", "0", "0", "+"])
        .chain(repeat(unready, 10))
        .chain(["0"])
        .chain(repeat(unready, 11))
        .chain(["-", "0", "0", "0", "+", refused, "-"])
        .chain(repeat(refused, 3))
        .chain(["0", "0", "0", "+"])
        .collect();
    let codes: Vec<&str> = expected
        .iter()
        .copied()
        .filter(|code| !["+", "-"].contains(code))
        .collect();
    fs::write(root.join("codes"), codes.join("\n") + "\n").unwrap();
    let path = format!("{place}:{}", std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .arg(root.join("script"))
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = fs::read_to_string(root.join("log")).unwrap();
    // The end: SIGTERM removes the redirect.
    let seen: Vec<&str> = log.lines().collect();
    assert_eq!(seen, [expected, vec!["-"]].concat());
}

#[test]
fn leases_are_renewed_where_virtual_ips_are_leases_and_nowhere_else() {
    let made = Made::new("lab", SHAPE, FIRST);
    let vip = made.parameters.vip(Vip::Ingress);
    let input = |leased| Input { leased, ..made.input() };
    assert_eq!(lease::parts(&input(&[])), HostParts::default());
    let leased = [vip.clone()];
    let parts = lease::parts(&input(&leased));
    let [table, script] = &parts.files[..] else {
        panic!("{:?}", parts.files)
    };
    assert_eq!(table.content, format!("{} {}\n", vip.ip, vip.mac));
    for tool in [&["bash", "-n"][..], &["shellcheck"]] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &parts);
        let path = folder.path().join(&script.path[1..]);
        let output = Command::new(tool[0]).args(&tool[1..]).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool:?}: {text}");
    }
    let started: Vec<_> = parts.units.iter().filter(|unit| unit.enabled == Some(true)).collect();
    assert_eq!(started.len(), 1, "the timer, which starts the service");
    assert!(started[0].name.ends_with(".timer"));
}

/// All files of a cluster, each text once and without the scripts, which are the same everywhere.
fn shown(made: &Made) -> String {
    let (mut text, mut seen) = (String::new(), BTreeSet::new());
    for role in ROLES {
        let parts = made.parts(role);
        for file in parts.files {
            text += &format!("\n──── {role} {:04o} {}\n", file.mode, file.path);
            if file.content.starts_with("#!") {
                continue;
            }
            let new = seen.insert(file.content.clone());
            text += if new { &file.content } else { "(as before)\n" };
        }
        for unit in parts.units {
            text += &format!("\n──── {role} {} enabled: {:?}\n", unit.name, unit.enabled);
        }
    }
    text
}

#[test]
fn the_files_of_3_masters_and_2_workers() {
    insta::assert_snapshot!(shown(&Made::new("lab", SHAPE, FIRST)));
}

/// What the second address family adds to the files of the previous test.
#[test]
fn the_files_of_two_address_families() {
    let (one, two) = (
        shown(&Made::new("lab", SHAPE, FIRST)),
        shown(&Made::new("lab", SHAPE, FIRST).with_ipv6()),
    );
    let changes = similar::TextDiff::from_lines(&one, &two);
    insta::assert_snapshot!(changes.unified_diff().context_radius(1).to_string());
}

/// What is different without IPv4.
#[test]
fn the_files_without_ipv4() {
    let (one, other) = (
        shown(&Made::new("lab", SHAPE, FIRST)),
        shown(&Made::new("lab", SHAPE, FIRST).of_ipv6()),
    );
    let changes = similar::TextDiff::from_lines(&one, &other);
    insta::assert_snapshot!(changes.unified_diff().context_radius(1).to_string());
}

#[test]
fn the_files_of_1_master_and_1_worker_with_one_vip() {
    let shape = Shape {
        masters: 1,
        workers: 1,
        one_vip: true,
        ..SHAPE
    };
    insta::assert_snapshot!(shown(&Made::new("lab", shape, FIRST)));
}

#[test]
fn the_bootstrap_has_a_higher_priority_than_masters_and_all_priorities_differ() {
    for shape in shapes() {
        let made = Made::new("lab", shape, FIRST);
        for role in ROLES {
            let parts = made.parts(role);
            let Some(table) = parts.files.iter().find(|file| file.path.ends_with(".conf.in")) else {
                continue;
            };
            let weights: u32 = numbers(&table.content, "weight ").iter().sum();
            for instance in table.content.split("vrrp_instance ").skip(1) {
                let priorities = numbers(instance, "priority ");
                let api = instance.starts_with("api ");
                let distinct: BTreeSet<_> = priorities.iter().collect();
                assert!(
                    shape.workers == 50 || distinct.len() == priorities.len(),
                    "{shape} {priorities:?}"
                );
                assert!(priorities.iter().all(|priority| (1..=254).contains(priority)));
                if api && role == Role::Master {
                    assert!(
                        priorities[0] > priorities[1] + weights,
                        "{shape} {priorities:?} {weights}"
                    );
                }
            }
        }
    }
}

/// The numbers that follow a word at the beginning of a line.
fn numbers(text: &str, word: &str) -> Vec<u32> {
    let after = text.lines().filter_map(|line| line.trim().strip_prefix(word));
    after
        .map(|rest| rest.split(' ').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn a_release_without_the_image_is_an_error_that_names_it() {
    let made = Made::new("lab", SHAPE, FIRST);
    let input = Input {
        config: &made.config,
        parameters: &made.parameters,
        release: &Release {
            version: (4, 1),
            ..Release::default()
        },
        leased: &[],
    };
    let error = keepalived::parts(&input, Role::Master).unwrap_err();
    assert_eq!(error.to_string(), "release 4.1 has no image keepalived-ipfailover");
}
