//! Rehearsals on an OpenStack that has Cinder and Swift, and a Nova that keeps deleted servers
//! (`OCPDEPLOY_OPENSTACK_SERVICES=all`), checked with OpenStack's own library.

/// The name distinguishes these tests from those on libvirt, whose lab skips them.
mod on_openstack {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use serde_json::Value;

    use crate::support::openstack_lab::{DOMAIN, Lab, Seen, judge, succeeded, text};
    use crate::support::until::until;

    #[track_caller]
    fn nothing_is_left(lab: &Lab) {
        assert_eq!(Seen::of("demo", &lab.mark).names(), [""; 0]);
    }

    /// The program must end with this exit code; returns its messages.
    #[track_caller]
    fn fails(run: Child, code: i32) -> String {
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        said
    }

    #[test]
    #[ignore = "needs the OpenStack lab with all services"]
    fn machines_boot_from_volumes_of_a_zone_and_leave_none() {
        // Of the whole project: a volume that Nova created itself has no name.
        let stored = || ["volumes", "objects"].map(|kind| Seen::of("demo", "").kind(kind).len());
        let before = stored();
        let lab = Lab::new("osv");
        let lines = "masters=1\nworkers=0\nos_boot=volume\nextra_disks=\"1 2\"\nos_volume_zone=far\n";
        let cluster = lab.cluster("", lines);
        let printed = succeeded(lab.start_deploy(&cluster));
        assert_eq!(
            printed.matches(" yes ").count(),
            2,
            "a guest is not as planned:\n{printed}"
        );
        let seen = Seen::of("demo", &format!("{cluster}.{DOMAIN}"));
        let servers = seen.servers();
        let [(name, server)] = servers.iter().collect::<Vec<_>>()[..] else {
            panic!("{:?}", seen.names())
        };
        // The bootstrap's volumes are deleted with it.
        let mut volumes: Vec<_> = seen.kind("volumes").iter().collect();
        volumes.sort_by_key(|volume| text(volume, "name"));
        let facts = |volume: &&Value| {
            let attached = volume["attachments"][0]["server_id"] == server["id"];
            let kind = ["name", "status", "availability_zone"].map(|key| text(volume, key).to_owned());
            (kind, volume["size"].as_u64().unwrap(), attached)
        };
        let wanted = |index: usize, gib| {
            (
                [format!("{name}:disk{index}"), "in-use".to_owned(), "far".to_owned()],
                gib,
                true,
            )
        };
        let seen_facts: Vec<_> = volumes.iter().map(facts).collect();
        let [(_, boot_gib, _), ..] = seen_facts[..] else {
            panic!("no volumes")
        };
        assert_eq!(seen_facts, [wanted(0, boot_gib), wanted(1, 1), wanted(2, 2)]);
        let boots = |volume: &&Value| [&volume["is_bootable"], &volume["bootable"]].map(|value| value.to_string());
        assert!(
            boots(&volumes[0]).iter().any(|text| text.contains("true")),
            "{:#?}",
            volumes[0]
        );
        assert!(text(&volumes[0]["volume_image_metadata"], "image_id").len() == 36);
        // Nova has no image of a server that boots from a volume.
        assert_ne!(server["image"]["id"], volumes[0]["volume_image_metadata"]["image_id"]);

        lab.destroy(&cluster);
        nothing_is_left(&lab);
        assert_eq!(stored(), before);
    }

    /// The bootstrap's config is too large for user data; here it also boots on a network that reaches Swift.
    #[test]
    #[ignore = "needs the OpenStack lab with all services"]
    fn a_config_that_is_too_large_is_fetched_from_swift_and_its_object_deleted() {
        let lab = Lab::new("osw");
        let cluster = lab.cluster("", "masters=1\nworkers=0\nos_ignition=swift\n");
        let mut run = lab.start_deploy(&cluster);
        let mut objects = Vec::new();
        until(Duration::from_secs(600), "an object in Swift", || {
            if run.try_wait().unwrap().is_some() {
                return true;
            }
            let seen = Seen::of("demo", &format!("{cluster}.{DOMAIN}"));
            let configs = seen
                .kind("images")
                .iter()
                .filter(|image| text(image, "name").contains("ignition"));
            assert_eq!(configs.count(), 0, "Glance has a config");
            objects = Seen::of("demo", &format!("{cluster}-bootstrap/"))
                .kind("objects")
                .to_vec();
            !objects.is_empty()
        });
        let printed = succeeded(run);
        assert_eq!(
            printed.matches(" yes ").count(),
            2,
            "a guest is not as planned:\n{printed}"
        );
        let [object] = &objects[..] else {
            panic!("no object was seen: {objects:?}")
        };
        assert!(object["content_length"].as_u64().unwrap() > 48 * 1024, "{object}");
        // Object and container are deleted with the bootstrap.
        assert_eq!(Seen::of("demo", &lab.mark).kind("objects"), [Value::Null; 0]);
        lab.destroy(&cluster);
        nothing_is_left(&lab);
    }

    #[test]
    #[ignore = "needs the OpenStack lab with all services"]
    fn a_quota_of_volumes_that_is_short_by_one_is_reported_before_anything_is_created() {
        let lab = Lab::new("osvq");
        // Three volumes and 5 GiB: the boot volumes of bootstrap and master, and an extra disk of the master.
        let cluster = lab.cluster("", "masters=1\nworkers=0\nos_boot=volume\nextra_disks=3\n");
        for (quota, unlimited, words) in [
            ("volumes=2", "volumes=-1", "volumes"),
            ("gigabytes=4", "gigabytes=-1", "GiB of volumes"),
        ] {
            judge(&["admin", "quota", quota]);
            let run = lab.start_deploy(&cluster);
            let run = run.wait_with_output().unwrap();
            judge(&["admin", "quota", unlimited]);
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            assert_eq!(run.status.code(), Some(4), "{quota}: {said}");
            assert!(said.contains(words), "{quota}: {said}");
            nothing_is_left(&lab);
        }
    }

    #[test]
    #[ignore = "needs the OpenStack lab with all services"]
    fn a_zone_or_type_of_volumes_that_does_not_exist_is_reported_and_leaves_nothing() {
        let lab = Lab::new("osvz");
        let cluster = lab.cluster("", "masters=1\nworkers=0\nos_boot=volume\n");
        let [deploy, env, rehearse] = &lab.deploy(&cluster);
        for (setting, code, words) in [
            (
                "os_volume_zone=nowhere",
                4,
                "set os_volume_zone to one or more of near, far",
            ),
            (
                "os_volume_type=none",
                4,
                "set os_volume_type to one of far, __DEFAULT__",
            ),
        ] {
            let said = fails(lab.start(&[deploy, env, rehearse, "--set", setting]), code);
            assert!(said.contains(words), "{said}");
            nothing_is_left(&lab);
        }
    }

    /// A Nova with `reclaim_instance_interval`: the deployment deletes its bootstrap, a user deletes a master, and the
    /// cluster is destroyed. Nova keeps each of them until its deletion is forced.
    #[test]
    #[ignore = "needs the OpenStack lab with all services"]
    fn servers_that_nova_keeps_after_their_deletion_are_deleted_for_good() {
        let lab = Lab::new("osr");
        let cluster = lab.cluster("", "masters=1\nworkers=0\nos_region=KeepsDeleted\n");
        succeeded(lab.start_deploy(&cluster));
        let kept = || -> Vec<String> {
            let all: Vec<String> = serde_json::from_str(&judge(&["admin", "kept"])).unwrap();
            all.into_iter().filter(|name| name.starts_with(&cluster)).collect()
        };
        assert_eq!(kept(), [""; 0], "the bootstrap is deleted for good");
        let master = format!("{cluster}-master-0");
        judge(&["keeps", "server-delete", &master]);
        until(Duration::from_secs(120), "a kept server", || kept() == [master.clone()]);
        lab.destroy(&cluster);
        assert_eq!(kept(), [""; 0]);
        nothing_is_left(&lab);
    }

    /// A network with a rate limit to the cloud, until it is dropped.
    struct Slow {
        name: String,
        forward: Option<Child>,
    }

    #[track_caller]
    fn ip(arguments: &str) {
        assert!(
            Command::new("ip")
                .args(arguments.split(' '))
                .status()
                .unwrap()
                .success(),
            "ip {arguments}"
        );
    }

    impl Slow {
        /// Data to the lab's public addresses have this rate, as in a home office; the other services are on loopback.
        fn new(rate: &str) -> Self {
            let name = format!("slow{}", std::process::id());
            ip(&format!("netns add {name}"));
            let mut slow = Self {
                name: name.clone(),
                forward: None,
            };
            ip(&format!("link add slow0 type veth peer name slow1 netns {name}"));
            ip("address add 198.51.100.1/30 dev slow0");
            ip("link set slow0 up");
            ip(&format!("-n {name} address add 198.51.100.2/30 dev slow1"));
            for device in ["slow1", "lo"] {
                ip(&format!("-n {name} link set {device} up"));
            }
            ip(&format!("-n {name} route add default via 198.51.100.1"));
            let shaper = format!("-n {name} qdisc add dev slow1 root tbf rate {rate} burst 64kb latency 200ms");
            assert!(
                Command::new("tc").args(shaper.split(' ')).status().unwrap().success(),
                "tc {shaper}"
            );
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/openstack/forward.py");
            let forward = Command::new("/usr/bin/python3")
                .args([script, "5000,8774,8776,8778,9696", &name])
                .stdin(Stdio::null())
                .spawn();
            slow.forward = Some(forward.unwrap());
            until(Duration::from_secs(30), "the services in the slow network", || {
                let mut curl = slow.command("curl");
                curl.args(["-s", "-o", "/dev/null", "http://127.0.0.1:5000/v3"])
                    .status()
                    .unwrap()
                    .success()
            });
            slow
        }

        fn command(&self, program: &str) -> Command {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &self.name, program]);
            command
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            if let Some(forward) = &mut self.forward {
                let _ = forward.kill();
                let _ = forward.wait();
            }
            let _ = Command::new("ip").args(["link", "del", "slow0"]).status();
            let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
        }
    }

    /// 320 MB at 20 Mbit/s: longer than the two minutes after which an upload without progress times out.
    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn an_upload_may_take_longer_than_the_limit_of_an_idle_one() {
        let (lab, folder) = (Lab::new("osu"), tempfile::tempdir().unwrap());
        let [raw, image] = ["random.raw", "large.qcow2"].map(|name| folder.path().join(name).display().to_string());
        let script =
            "head -c 320000000 /dev/urandom >\"$0\" && qemu-img convert -f raw -O qcow2 \"$0\" \"$1\" && rm \"$0\"";
        assert!(
            Command::new("sh")
                .args(["-c", script, &raw, &image])
                .status()
                .unwrap()
                .success()
        );
        let [key, secret] = ["key.pub", "pull.json"].map(|name| folder.path().join(name));
        let of_tests = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAUhvM1B7E8uC7sWWfU3Bv0pG0M1yB7U0Bo5pYxT1c2N lab";
        std::fs::write(&key, of_tests).unwrap();
        std::fs::write(&secret, r#"{"auths": {"registry.example.com": {"auth": "YTpi"}}}"#).unwrap();
        let (key, secret) = (key.display(), secret.display());
        let lines = format!("masters=1\nworkers=0\nimage={image}\npub_key={key}\npull_secret={secret}\n");
        let cluster = lab.cluster("", &lines);
        let slow = Slow::new("20mbit");
        let begun = Instant::now();
        let mut push = slow.command(env!("CARGO_BIN_EXE_ocpdeploy"));
        let run = push
            .args(["image", "push"])
            .arg(lab.env(&cluster))
            .env("OCPDEPLOY_HOME", lab.home().root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        succeeded(run);
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(125), "the network was not slow: {took:?}");
        let seen = Seen::of("demo", &cluster);
        let [pushed] = seen.kind("images") else {
            panic!("{:?}", seen.names())
        };
        assert_eq!(text(pushed, "status"), "active");
        assert_eq!(pushed["size"], std::fs::metadata(&image).unwrap().len());
        println!("reliability: an upload of {} s over 20 Mbit/s", took.as_secs());
        // Nothing of the cluster was saved here.
        let env = lab.env(&cluster).display().to_string();
        succeeded(lab.start(&["destroy", &cluster, "--env", &env, "--yes"]));
        nothing_is_left(&lab);
    }
}
