//! `ocpdeploy dns` with a folder as the root: what it writes, what it keeps, and what `destroy` removes.

use crate::support::cluster;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ocpdeploy::cluster::{BackendConfig, ClusterConfig, SimConfig};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::inventory::Known;

const HOSTS: &str = "127.0.0.1 localhost\n# mine\n192.168.122.253 printer.example.com";

/// A computer and a state folder.
struct Computer(tempfile::TempDir);

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Computer {
    fn new() -> Self {
        let computer = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(computer.path("root/etc")).unwrap();
        computer.write("etc/hosts", HOSTS);
        computer
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes one of the computer's own files.
    fn write(&self, name: &str, text: &str) {
        let path = self.path("root").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path("root").join(name)).unwrap()
    }

    /// A cluster with a table, as after pass one.
    fn cluster(&self, name: &str, api_ip: [u8; 4]) {
        let config = ClusterConfig {
            name: name.to_owned(),
            backend: BackendConfig::Sim(SimConfig {
                state: self.path("sim.json"),
            }),
            ..cluster::config()
        };
        let dir = Home::new(self.path("state")).cluster(name);
        dir.create().unwrap();
        Known::of(&config).write(&dir).unwrap();
        let parameters = cluster::parameters(&config, Ipv4Addr::from(api_ip));
        parameters.write(&dir.parameters()).unwrap();
    }

    fn command(&self, program: &Path, arguments: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments.split_whitespace())
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.0.path())
            .env("OCPDEPLOY_HOME", self.path("state"))
            .current_dir(self.0.path());
        command
    }

    /// Runs `ocpdeploy …` on this computer.
    fn run(&self, arguments: &str) -> Ran {
        let root = format!("--root {}", self.path("root").display());
        self.ran(self.command(
            Path::new(env!("CARGO_BIN_EXE_ocpdeploy")),
            &format!("{arguments} {root}"),
        ))
    }

    fn ran(&self, mut command: Command) -> Ran {
        let output = command.output().unwrap();
        let sandbox = self.0.path().to_str().unwrap().to_owned();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(&sandbox, "$PLACE");
        Ran {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Ran {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    #[track_caller]
    fn fails(self, code: i32, words: &str) -> String {
        assert_eq!(self.code, Some(code), "{}", self.err);
        assert!(self.err.contains(words), "{}", self.err);
        self.err
    }
}

#[test]
fn names_are_added_once_and_removed_completely_and_other_clusters_keep_theirs() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    computer.cluster("lab2", [192, 168, 123, 253]);
    fs::set_permissions(computer.path("root/etc/hosts"), fs::Permissions::from_mode(0o640)).unwrap();

    computer.run("dns apply lab2").ok();
    let neighbour = computer.read("etc/hosts");
    assert!(neighbour.starts_with(&format!("{HOSTS}\n# BEGIN ocpdeploy lab2.example.com\n")));
    computer.run("dns apply lab").ok();
    let both = computer.read("etc/hosts");
    assert!(
        both.contains("192.168.122.25 api.lab.example.com api-int.lab.example.com\n"),
        "{both}"
    );
    assert!(
        both.contains(" console-openshift-console.apps.lab.example.com\n"),
        "{both}"
    );

    let inode = fs::metadata(computer.path("root/etc/hosts")).unwrap().ino();
    let said = computer.run("dns apply lab").ok();
    assert_eq!(
        said,
        "$PLACE/root/etc/hosts already has the names of cluster lab.example.com\n"
    );
    let file = fs::metadata(computer.path("root/etc/hosts")).unwrap();
    assert_eq!((file.ino(), file.mode() & 0o777), (inode, 0o640));

    computer.run("dns remove lab").ok();
    assert_eq!(computer.read("etc/hosts"), neighbour);
    assert_eq!(
        computer.run("dns remove lab").ok(),
        "the local resolver has no names of cluster lab.example.com\n"
    );
    computer.run("dns remove lab2").ok();
    assert_eq!(computer.read("etc/hosts"), format!("{HOSTS}\n"));
    let left: Vec<_> = fs::read_dir(computer.path("root/etc")).unwrap().collect();
    assert_eq!(left.len(), 1, "a temporary file remains");
}

#[test]
fn a_dry_run_shows_the_lines_and_changes_nothing() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    let shown = computer.run("dns apply lab --dry-run").ok();
    assert!(
        shown.contains("+192.168.122.25 api.lab.example.com api-int.lab.example.com\n"),
        "{shown}"
    );
    assert!(
        computer
            .run("dns show lab")
            .ok()
            .starts_with("the local resolver is not configured for cluster lab.example.com")
    );
    assert_eq!(computer.read("etc/hosts"), HOSTS);
    computer.run("dns apply lab").ok();
    assert_eq!(
        computer.run("dns show lab").ok(),
        "$PLACE/root/etc/hosts has the names of cluster lab.example.com\n"
    );
    let shown = computer.run("dns remove lab --dry-run").ok();
    assert!(
        shown.contains("-192.168.122.25 api.lab.example.com api-int.lab.example.com\n"),
        "{shown}"
    );
}

#[test]
fn a_broken_marker_is_an_error_with_file_and_line_and_changes_nothing() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    let broken = format!("{HOSTS}\n# BEGIN ocpdeploy lab.example.com\n10.0.0.1 x\n");
    computer.write("etc/hosts", &broken);
    for command in ["dns apply lab", "dns remove lab", "dns apply lab --dry-run"] {
        let words = "$PLACE/root/etc/hosts:4: `# BEGIN ocpdeploy lab.example.com` has no END line";
        computer.run(command).fails(3, words);
        assert_eq!(computer.read("etc/hosts"), broken);
    }
}

#[test]
fn without_write_access_the_lines_are_printed() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    let etc = computer.path("root/etc");
    fs::set_permissions(&etc, fs::Permissions::from_mode(0o555)).unwrap();
    let program = env!("CARGO_BIN_EXE_ocpdeploy");
    let arguments = format!("dns apply lab --root {}", computer.path("root").display());
    // Root may write everywhere, unless it lacks that capability.
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let ran = match is_root {
        false => computer.ran(computer.command(Path::new(program), &arguments)),
        true => {
            let drop = "--inh-caps=-dac_override --bounding-set=-dac_override";
            let arguments = format!("{drop} {program} {arguments}");
            computer.ran(computer.command(Path::new("/usr/bin/setpriv"), &arguments))
        }
    };
    fs::set_permissions(&etc, fs::Permissions::from_mode(0o755)).unwrap();
    let said = ran.fails(4, "error: cannot write $PLACE/root/etc/hosts: root is required\n");
    assert!(said.contains("sudo"), "{said}");
    assert!(
        said.contains("\n  192.168.122.25 api.lab.example.com api-int.lab.example.com\n"),
        "{said}"
    );
    assert_eq!(computer.read("etc/hosts"), HOSTS);
}

#[test]
fn a_lock_of_another_user_delays_no_change() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    fs::create_dir(computer.path("root/run")).unwrap();
    // Everybody can open these, and so lock them.
    let held = ["root/etc", "root/etc/hosts", "root/run"].map(|path| {
        let file = fs::File::open(computer.path(path)).unwrap();
        file.lock().unwrap();
        file
    });
    computer.run("dns apply lab").ok();
    computer.run("dns remove lab").ok();
    drop(held);
    let lock = fs::metadata(computer.path("root/run/ocpdeploy-dns.lock")).unwrap();
    assert_eq!(lock.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_line_of_another_author_is_reported_and_kept() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    computer.write("etc/hosts", "10.9.9.9 api.lab.example.com\n");
    let ran = computer.run("dns apply lab");
    assert!(
        ran.err.contains("root/etc/hosts:1: 10.9.9.9 api.lab.example.com"),
        "{}",
        ran.err
    );
    ran.ok();
    assert!(
        computer
            .read("etc/hosts")
            .starts_with("10.9.9.9 api.lab.example.com\n# BEGIN ocpdeploy")
    );
}

#[test]
fn the_target_of_a_symbolic_link_is_changed() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    fs::rename(computer.path("root/etc/hosts"), computer.path("root/hosts.real")).unwrap();
    symlink("../hosts.real", computer.path("root/etc/hosts")).unwrap();
    computer.run("dns apply lab").ok();
    assert!(
        fs::symlink_metadata(computer.path("root/etc/hosts"))
            .unwrap()
            .is_symlink()
    );
    assert!(computer.read("hosts.real").contains("BEGIN ocpdeploy lab.example.com"));
}

#[test]
fn a_resolver_that_is_not_in_use_is_rejected() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    for (how, words) in [
        (
            "networkmanager",
            "networkmanager is not available on this computer: NetworkManager is not configured with dns=dnsmasq",
        ),
        (
            "resolved",
            "resolved is not available on this computer: /etc/resolv.conf does not point to systemd-resolved",
        ),
    ] {
        computer.run(&format!("dns apply lab --how {how}")).fails(4, words);
    }
    // A later file of NetworkManager overrides an earlier one.
    computer.write("etc/NetworkManager/NetworkManager.conf", "[main]\ndns=dnsmasq\n");
    computer.write("etc/NetworkManager/conf.d/9.conf", "[main]\ndns=default\n");
    computer
        .run("dns apply lab --how networkmanager")
        .fails(4, "is not configured with dns=dnsmasq");
    assert!(!computer.path("root/etc/NetworkManager/dnsmasq.d").exists());
}

#[test]
fn another_method_replaces_the_previous_one_and_remove_finds_it() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    computer.write("etc/NetworkManager/conf.d/dns.conf", "[main]\ndns=dnsmasq\n");
    symlink(
        "../run/systemd/resolve/stub-resolv.conf",
        computer.path("root/etc/resolv.conf"),
    )
    .unwrap();
    let piece = "etc/NetworkManager/dnsmasq.d/ocpdeploy-lab.example.com.conf";

    computer.run("dns apply lab").ok();
    computer.run("dns apply lab --how networkmanager").ok();
    assert_eq!(computer.read("etc/hosts"), format!("{HOSTS}\n"));
    assert!(
        computer
            .read(piece)
            .contains("address=/apps.lab.example.com/192.168.122.9\n")
    );
    computer.run("dns apply lab --how resolved").ok();
    assert!(!computer.path("root").join(piece).exists());
    let piece = "etc/systemd/dns-delegate.d/ocpdeploy-lab.example.com.dns-delegate";
    let text = computer.read(piece);
    let servers = "192.168.122.12 192.168.122.13 192.168.122.14";
    // No global server, which would also get all other queries.
    let delegate = format!("\n[Delegate]\nDNS={servers}\nDomains=~lab.example.com\nDefaultRoute=no\n");
    assert!(text.ends_with(&delegate), "{text}");
    computer.run("dns remove").ok();
    assert!(!computer.path("root").join(piece).exists());
}

#[test]
fn masters_that_answer_no_queries_are_not_configured_as_name_servers() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    symlink(
        "../run/systemd/resolve/stub-resolv.conf",
        computer.path("root/etc/resolv.conf"),
    )
    .unwrap();
    let deployed_with = |dns: &str| {
        let file = serde_json::json!({"cluster": "lab", "domain": "example.com", "backend": "sim", "dns": dns});
        let kept = serde_json::json!({"v": 3, "env": computer.path("env.sh"), "file": file, "flags": {}, "environment": {},
            "current_dir": computer.path(""), "rehearse": true, "workers": 2, "values": {}});
        fs::write(computer.path("state/clusters/lab/settings.json"), kept.to_string()).unwrap();
    };
    deployed_with("user");
    let words = "the masters of cluster lab.example.com answer no queries: it has dns=user";
    computer.run("dns apply lab --how resolved").fails(3, words);
    computer.run("dns apply lab --how resolved --dry-run").fails(3, words);
    assert!(!computer.path("root/etc/systemd").exists());
    computer.run("dns apply lab").ok();
    deployed_with("coredns");
    computer.run("dns apply lab --how resolved").ok();
}

#[test]
fn destroy_removes_the_names_and_without_a_folder_by_id() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    computer.cluster("lab2", [192, 168, 123, 253]);
    computer.run("dns apply lab").ok();
    let only_lab = computer.read("etc/hosts");
    computer.run("dns apply lab2").ok();
    computer.run("destroy lab2 --yes").ok();
    assert_eq!(computer.read("etc/hosts"), only_lab);

    fs::remove_dir_all(computer.path("state/clusters/lab")).unwrap();
    computer
        .run("dns remove lab")
        .fails(2, "no cluster lab in the state directory");
    computer.run("dns remove lab.example.org").ok();
    assert_eq!(computer.read("etc/hosts"), only_lab);
    computer.run("dns remove lab.example.com").ok();
    assert_eq!(computer.read("etc/hosts"), format!("{HOSTS}\n"));
}

/// A container's hosts file is a mount of its own.
#[test]
#[ignore = "needs the lab"]
fn a_hosts_file_that_is_a_mount_is_written_in_place() {
    let computer = Computer::new();
    computer.cluster("lab", [192, 168, 122, 25]);
    let hosts = computer.path("root/etc/hosts").display().to_string();
    let program = env!("CARGO_BIN_EXE_ocpdeploy");
    let root = computer.path("root").display().to_string();
    let script = format!(
        "set -e; cp {hosts} {hosts}.below; mount --bind {hosts}.below {hosts}; \
         {program} dns apply lab --root {root}; {program} dns remove lab --root {root}; {program} dns apply lab --root {root}"
    );
    let mut command = computer.command(Path::new("/usr/bin/unshare"), "--mount bash -c");
    command.arg(script);
    let ran = computer.ran(command);
    assert!(ran.err.contains("is a mount point; writing it in place"), "{}", ran.err);
    ran.ok();
    assert_eq!(computer.read("etc/hosts"), HOSTS);
    let below = computer.read("etc/hosts.below");
    assert!(
        below.starts_with(&format!("{HOSTS}\n# BEGIN")) && below.ends_with("# END ocpdeploy lab.example.com\n"),
        "{below}"
    );
    let left: Vec<_> = fs::read_dir(computer.path("root/etc")).unwrap().collect();
    assert_eq!(left.len(), 2, "a temporary file remains");
}
