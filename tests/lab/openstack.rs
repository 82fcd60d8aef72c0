//! Whole rehearsals of the program on a real OpenStack with real guests, checked with OpenStack's own library.
//!
//! `tests/lab/openstack/test.sh` runs these where services and guests can be reached.

/// The name distinguishes these tests from those on libvirt, whose lab skips them.
mod on_openstack {
    use std::collections::BTreeSet;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::Path;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use futures::stream::{self, StreamExt};
    use ocpdeploy::backend::openstack::OpenStack;
    use ocpdeploy::backend::{Backend, ImageRequest, MachineSpec, Nic, Payload, Power};
    use ocpdeploy::cluster::{
        Affinity, Architecture, Insecure, MachineName, NodeName, OpenStackConfig, OsBoot, OsFlavors, OsIgnition, Pass,
        Role,
    };
    use ocpdeploy::digest;
    use ocpdeploy::state::parameters::Parameters;

    use crate::support::cluster::cluster_id;
    use crate::support::cut_line::Line;
    use crate::support::openstack_lab::{DOMAIN, Lab, Seen, addresses, judge, succeeded, text};
    use crate::support::until::until;

    /// A cluster as it must be on the cloud after a deployment.
    #[track_caller]
    fn is_deployed(lab: &Lab, cluster: &str) {
        let table = lab.parameters(cluster);
        let seen = Seen::of("demo", &format!("{cluster}.{DOMAIN}"));
        let servers = seen.servers();
        let wanted: BTreeSet<String> = table
            .nodes
            .iter()
            .filter(|node| node.name.as_str() != "bootstrap")
            .map(|node| format!("{cluster}-{}", node.name))
            .collect();
        assert_eq!(servers.keys().cloned().collect::<BTreeSet<_>>(), wanted);
        for node in &table.nodes {
            let Some(server) = servers.get(&format!("{cluster}-{}", node.name)) else {
                continue;
            };
            assert_eq!(text(server, "status"), "ACTIVE", "{}", node.name);
            assert_eq!(seen.nics_of(server), [(node.mac, vec![node.ip])], "{}", node.name);
        }
        let ips: BTreeSet<_> = seen.kind("ports").iter().flat_map(addresses).collect();
        for vip in [table.api_ip, table.ingress_ip] {
            assert!(ips.contains(&vip), "no port reserves the VIP {vip}");
        }
        // The bootstrap's config has secrets, and is deleted with the bootstrap.
        for image in seen.kind("images") {
            let name = text(image, "name");
            assert!(!name.contains("bootstrap") && !name.contains(".ign"), "{name} remains");
            assert_eq!(text(image, "visibility"), "private", "{name}");
        }
    }

    #[track_caller]
    fn nothing_is_left(lab: &Lab) {
        for cloud in ["demo", "other"] {
            assert_eq!(Seen::of(cloud, &lab.mark).names(), [""; 0], "left in project {cloud}");
        }
    }

    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn throwaway_machines_harvest_the_same_addresses() {
        let lab = Lab::new("osb");
        let cluster = lab.cluster("", "masters=1\nworkers=0\nharvest=boot\n");
        let printed = succeeded(lab.start_deploy(&cluster));
        assert_eq!(printed.matches(" yes ").count(), 2, "{printed}");
        is_deployed(&lab, &cluster);
        let floating = Seen::of("demo", &format!("{cluster}.{DOMAIN}"));
        assert_eq!(
            floating.kind("floating_ips"),
            [] as [serde_json::Value; 0],
            "none was requested"
        );
        lab.destroy(&cluster);
        nothing_is_left(&lab);
    }

    /// The name of the guest that answers at an address.
    fn host_name_at(ip: &str) -> Option<String> {
        let mut guest =
            TcpStream::connect_timeout(&format!("{ip}:8080").parse().unwrap(), Duration::from_secs(2)).ok()?;
        guest.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        guest.write_all(b"GET /report.json HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        guest.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let report: serde_json::Value = serde_json::from_str(body).ok()?;
        Some(text(&report, "hostname").to_owned())
    }

    /// Ends the QEMU of a cluster's node, as a compute node's failure does.
    #[track_caller]
    fn kill_guest(seen: &Seen, node: &str) {
        let servers = seen.servers();
        let (_, server) = servers.iter().find(|(name, _)| name.ends_with(node)).unwrap();
        let id = text(server, "id");
        let is_its = |pid: &str| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = words.split(|byte| *byte == 0);
            words.any(|word| word == b"-uuid") && words.next() == Some(id.as_bytes())
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids: Vec<_> = all
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()) && is_its(pid))
            .collect();
        let [pid] = pids.as_slice() else {
            panic!("processes of server {id}: {pids:?}")
        };
        assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    }

    /// Masters and workers are on different hosts, and may use the virtual IPs of their role.
    #[track_caller]
    fn nodes_are_placed_and_addressed_by_role(seen: &Seen, table: &Parameters) {
        let hosts = |role: &str| -> BTreeSet<String> {
            let of_role = seen.servers().into_iter().filter(|(name, _)| name.contains(role));
            of_role.map(|(_, server)| text(server, "host_id").to_owned()).collect()
        };
        assert_eq!(hosts("-master-").len(), 2, "masters are on different hosts");
        assert_eq!(hosts("-worker-").len(), 2, "workers are on different hosts");
        // Masters may use both VIPs, workers the ingress VIP.
        for (name, server) in seen.servers() {
            let port = seen
                .kind("ports")
                .iter()
                .find(|port| port["device_id"] == server["id"])
                .unwrap();
            let pairs = port["allowed_address_pairs"].as_array().unwrap();
            let pairs: BTreeSet<_> = pairs
                .iter()
                .map(|pair| text(pair, "ip_address"))
                .map(str::to_owned)
                .collect();
            let mut wanted = BTreeSet::from([table.ingress_ip.to_string()]);
            if name.contains("-master-") {
                wanted.insert(table.api_ip.to_string());
            }
            assert_eq!(pairs, wanted, "{name}");
        }
    }

    /// The user's floating IP reaches the API, one of ours the routers.
    #[track_caller]
    fn floating_addresses_lead_to_the_virtual_ips(own: &str, cluster: &str, table: &Parameters) {
        let is_ours = |one: &&serde_json::Value| text(one, "description").contains(cluster);
        let seen = Seen::of("demo", "");
        let leads_to = |ours: bool| -> Vec<_> {
            let floating = seen.kind("floating_ips").iter();
            let chosen =
                floating.filter(|one| is_ours(one) == ours && (ours || text(one, "floating_ip_address") == own));
            chosen.map(|one| text(one, "fixed_ip_address").to_owned()).collect()
        };
        assert_eq!(
            (leads_to(false), leads_to(true)),
            (vec![table.api_ip.to_string()], vec![table.ingress_ip.to_string()])
        );
    }

    /// The largest cluster of this lab, in one deployment: placement, addresses, floating IPs, the loss of a master.
    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn a_deployment_is_on_the_cloud_as_planned_and_destroy_deletes_only_its_objects() {
        let before = Seen::of("demo", "").names();
        let lab = Lab::new("osd");
        let own = judge(&["demo", "floating-put", "public"]);
        let own = own.trim();
        // This computer queries the floating IP from the provider's network, on OVN the nodes from their own network.
        let lines = format!(
            "masters=3\nworkers=2\nos_external_network=public\nos_api_floating_ip={own}\nos_admit=203.0.113.0/24\n"
        );
        let cluster = lab.cluster("", &lines);
        let printed = succeeded(lab.start_deploy(&cluster));
        assert_eq!(
            printed.matches(" yes ").count(),
            6,
            "a guest is not as planned:\n{printed}"
        );
        is_deployed(&lab, &cluster);
        let table = lab.parameters(&cluster);
        nodes_are_placed_and_addressed_by_role(&Seen::of("demo", &format!("{cluster}.{DOMAIN}")), &table);
        floating_addresses_lead_to_the_virtual_ips(own, &cluster, &table);

        let mut holder = None;
        until(Duration::from_secs(120), "an answer at the floating IP", || {
            holder = host_name_at(own);
            holder.is_some()
        });
        let holder = holder.unwrap();
        kill_guest(&Seen::of("demo", &cluster), holder.split('.').next().unwrap());
        until(Duration::from_secs(180), "another master's answer", || {
            host_name_at(own).is_some_and(|name| name.contains("master") && name != holder)
        });
        lab.destroy(&cluster);
        nothing_is_left(&lab);
        judge(&["demo", "floating-drop", own]);
        assert_eq!(Seen::of("demo", "").names(), before);
    }

    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn three_clusters_at_once_share_nothing_and_are_destroyed_one_by_one() {
        let lab = Lab::new("ost");
        let clusters = ["a", "a-2", "b"].map(|name| lab.cluster(name, "masters=1\nworkers=0\n"));
        let runs: Vec<_> = clusters.iter().map(|cluster| lab.start_deploy(cluster)).collect();
        for run in runs {
            let printed = succeeded(run);
            assert_eq!(
                printed.matches(" yes ").count(),
                2,
                "a guest is not as planned:\n{printed}"
            );
        }
        let tables: Vec<_> = clusters.iter().map(|cluster| lab.parameters(cluster)).collect();
        let leases: Vec<_> = tables.iter().flat_map(Parameters::leases).collect();
        let ips: BTreeSet<_> = leases.iter().map(|lease| lease.ip).collect();
        let macs: BTreeSet<_> = leases.iter().map(|lease| lease.mac).collect();
        let vrids: BTreeSet<_> = tables
            .iter()
            .flat_map(|table| [table.virtual_router_id, table.ingress_virtual_router_id])
            .collect();
        assert_eq!((ips.len(), macs.len(), vrids.len()), (12, 12, 6));

        for gone in 0..clusters.len() {
            for cluster in &clusters[gone..] {
                is_deployed(&lab, cluster);
            }
            lab.destroy(&clusters[gone]);
            let id = format!("{}.{DOMAIN}", clusters[gone]);
            assert_eq!(Seen::of("demo", &id).names(), [""; 0]);
        }
        nothing_is_left(&lab);
    }

    /// Runs the program until it ends by itself, killed after each change on the cloud; its last response is lost.
    ///
    /// A run may first undo an incomplete change; if runs only repeat each other, one more change is permitted.
    #[track_caller]
    fn killed_after_each_deed(lab: &Lab, line: &Line, arguments: &[&str]) -> usize {
        let (mut seen, mut allowed, mut kills) = (BTreeSet::new(), 1, 0);
        loop {
            line.cut_after(allowed);
            let mut child = lab.start_through(line, arguments);
            if ends_or(&mut child, || line.is_cut()) {
                let output = child.wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "after {kills} kills:\n{said}\n{seen:#?}");
                line.mend();
                return kills;
            }
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().code(), None, "it was not killed");
            kills += 1;
            let operations: Vec<String> = line
                .operations()
                .iter()
                .map(|operation| without_ids(operation))
                .collect();
            assert!(
                kills < 300,
                "it makes no progress; the last operations: {operations:#?}"
            );
            allowed = if seen.insert(operations) { 1 } else { allowed + 1 };
        }
    }

    /// An operation in which recreated objects have the names of the old ones.
    fn without_ids(operation: &str) -> String {
        let parts = operation.split_inclusive(['/', ' ', '?']);
        parts
            .map(|part| {
                if part.len() > 35 && part.contains('-') {
                    "ID"
                } else {
                    part
                }
            })
            .collect()
    }

    /// Waits for the child's end (true) or another condition (false).
    #[track_caller]
    fn ends_or(child: &mut Child, mut moment: impl FnMut() -> bool) -> bool {
        let mut ended = false;
        until(Duration::from_secs(600), "an end or a cut", || {
            ended = child.try_wait().unwrap().is_some();
            ended || moment()
        });
        ended
    }

    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn killed_after_each_change_the_same_command_finishes() {
        let (lab, line) = (Lab::new("osk"), Line::new());
        let cluster = lab.cluster("", "masters=1\nworkers=0\n");
        let deploy = lab.deploy(&cluster);
        let kills = killed_after_each_deed(&lab, &line, &deploy.each_ref().map(String::as_str));
        assert!(kills > 10, "only {kills} changes were seen");
        is_deployed(&lab, &cluster);
        let kills = killed_after_each_deed(&lab, &line, &["destroy", &cluster, "--yes"]);
        assert!(kills > 5, "only {kills} changes were seen");
        nothing_is_left(&lab);
    }

    /// Each eighth change; `OCPDEPLOY_CUT_STEP=1` takes every change.
    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn interrupted_after_any_change_destroy_leaves_nothing() {
        let (lab, line) = (Lab::new("osx"), Line::new());
        // The fake compute service: servers exist immediately, and no guest boots.
        let cluster = lab.cluster("", "masters=1\nworkers=0\nos_zone=fake\n");
        let deploy = lab.deploy(&cluster);
        let step = std::env::var("OCPDEPLOY_CUT_STEP").map_or(8, |step| step.parse().unwrap());
        for operations in (1..).step_by(step) {
            line.cut_after(operations);
            let mut child = lab.start_through(&line, &deploy.each_ref().map(String::as_str));
            let mut seen = (0, Instant::now());
            let mut is_idle = false;
            let ended = ends_or(&mut child, || {
                let done = line.operations().len();
                if done != seen.0 {
                    seen = (done, Instant::now());
                }
                // Everything is created, and no guest will answer.
                is_idle = done > 0 && seen.1.elapsed() > Duration::from_secs(30);
                is_idle || line.is_cut()
            });
            assert!(!ended, "it ended: {:?}", child.wait_with_output());
            child.kill().unwrap();
            child.wait().unwrap();
            let operations = line.operations();
            line.mend();
            lab.destroy(&cluster);
            let left = Seen::of("demo", &cluster).names();
            assert_eq!(left, [""; 0], "interrupted after {operations:#?}");
            if is_idle {
                assert!(operations.len() > 10, "only {operations:?} changes were seen");
                break;
            }
        }
    }

    /// Real services whose lists are queried without filters; objects of each kind of other owners exist, too.
    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn services_that_ignore_filters_lead_to_no_change_of_foreign_objects() {
        let (lab, line) = (Lab::new("osn"), Line::new());
        let cluster = lab.cluster("", "masters=1\nworkers=0\nos_external_network=public\n");
        let id = format!("{cluster}.{DOMAIN}");
        let marks = [
            "=".to_owned(),
            format!("=my ocpdeploy {id} copy"),
            format!("{cluster}2.{DOMAIN}"),
            format!("x{id}"),
            format!("{id}.au"),
            format!("{cluster}.example.org"),
            format!("a.{id}"),
            id.to_uppercase(),
        ];
        let prefix = format!("{cluster}-master-0");
        let mut put = vec!["demo", "foreign-put", "private", "public", &prefix];
        put.extend(marks.iter().map(String::as_str));
        let ids: Vec<String> = serde_json::from_str(&judge(&put)).unwrap();
        let foreign = || (Seen::of("demo", "").with_ids(&ids), judge(&["demo", "default-rules"]));
        let before = foreign();
        assert_eq!(before.0.len(), marks.len() * 6, "{:#?}", before.0);

        line.strip_queries();
        let deploy = lab.deploy(&cluster);
        let deploy = deploy.each_ref().map(String::as_str);
        for arguments in [&deploy[..], &["destroy", &cluster, "--yes"]] {
            let output = lab.start_through(&line, arguments).wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            for service in ["Neutron", "Nova", "Glance"] {
                let warned = |line: &&str| line.contains("this server ignores filters") && line.contains(service);
                assert_eq!(said.lines().filter(warned).count(), 1, "{service}:\n{said}");
            }
            let after = foreign();
            assert_eq!(after, before, "changed by {arguments:?}");
            if arguments == deploy {
                let printed = String::from_utf8_lossy(&output.stdout);
                assert_eq!(
                    printed.matches(" yes ").count(),
                    2,
                    "a guest is not as planned:\n{printed}"
                );
            }
        }
        let left = Seen::of("demo", &id);
        let is_ours = |name: &String| !ids.iter().any(|id| name.ends_with(id.as_str()));
        let left: Vec<_> = left.names().into_iter().filter(is_ours).collect();
        assert_eq!(left, [""; 0]);
        println!("reliability: {} foreign objects among unfiltered listings", ids.len());
        println!("reliability: 0 foreign objects changed");
        let mut drop = vec!["demo", "foreign-drop"];
        drop.extend(ids.iter().map(String::as_str));
        judge(&drop);
    }

    /// A backend with the settings of the env file above, for the fake compute service.
    async fn pretend_computes() -> OpenStack {
        let config = OpenStackConfig {
            cloud: Some("demo".to_owned()),
            region: None,
            boot: OsBoot::Image,
            volumes: true,
            volume_type: None,
            zone: Some("fake".to_owned()),
            affinity: Affinity::Off,
            flavors: OsFlavors::default(),
            machine_network: None,
            external_network: None,
            api_floating_ip: None,
            ingress_floating_ip: None,
            balancers: None,
            ignition: OsIgnition::Auto,
            image_import: false,
            volume_zone: None,
            volume_timeout: std::time::Duration::from_secs(600),
            admit: Vec::new(),
            client_ip: None,
            rehearsal: true,
            insecure: Insecure(false),
        };
        OpenStack::connect(&config).await.unwrap()
    }

    /// `OCPDEPLOY_MACHINES=150` creates that many.
    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn many_machines_are_created_listed_and_deleted() {
        let machines = std::env::var("OCPDEPLOY_MACHINES").map_or(30, |number| number.parse().unwrap());
        let lab = Lab::new("osm");
        lab.cluster("", "masters=1\nos_zone=fake\n");
        let cluster = cluster_id(&lab.mark, DOMAIN);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let backend = &pretend_computes().await;
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/images/helper.qcow2");
            let bytes = std::fs::read(&path).unwrap();
            let request = ImageRequest::File {
                path,
                sha256: digest::sha256(&bytes),
                bytes: bytes.len() as u64,
                arch: Architecture::X86_64,
            };
            let image = &backend.ensure_image(&cluster, &request).await.unwrap();
            let spec = |index: usize| {
                let node = NodeName::node(Role::Worker, index);
                let digest = digest::sha256(format!("{cluster} {index}"));
                let mac = format!("52:54:00:{}:{}:{}", &digest[..2], &digest[2..4], &digest[4..6]);
                MachineSpec {
                    cluster: cluster.clone(),
                    name: MachineName::of_node(&lab.mark, &node),
                    node,
                    role: Role::Worker,
                    pass: Pass::Two,
                    arch: Architecture::X86_64,
                    cpus: 1,
                    memory_mib: 192,
                    disk_gib: 1,
                    extra_disks_gib: vec![],
                    image: image.clone(),
                    nics: vec![Nic {
                        network: "quiet".to_owned(),
                        mac: mac.parse().unwrap(),
                    }],
                    payload: Payload::Ignition(br#"{"ignition":{"version":"3.1.0"}}"#.to_vec()),
                    autostart: false,
                    ipv6: None,
                    creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
                }
            };
            let at_once = backend.capabilities().concurrency;
            stream::iter((0..machines).map(spec))
                .map(async |spec| backend.create_machine(&spec).await.unwrap())
                .buffer_unordered(at_once)
                .for_each(async |_| ())
                .await;
            let made = Instant::now();
            let seen = loop {
                let seen = backend.list_machines(&cluster).await.unwrap();
                if seen.iter().all(|machine| machine.power == Power::Running) {
                    break seen;
                }
                assert!(made.elapsed() < Duration::from_secs(600), "they do not run");
                tokio::time::sleep(backend.capabilities().poll_interval).await;
            };
            let names: BTreeSet<_> = seen.iter().map(|machine| &machine.name).collect();
            let addresses: BTreeSet<_> = seen.iter().flat_map(|machine| &machine.nics[0].addresses).collect();
            assert_eq!((names.len(), addresses.len()), (machines, machines));
            let judged = Seen::of("demo", cluster.tag());
            assert_eq!(judged.kind("servers").len(), machines);

            stream::iter(&seen)
                .map(async |machine| backend.delete_machine(&cluster, &machine.name).await.unwrap())
                .buffer_unordered(at_once)
                .for_each(async |_| ())
                .await;
            backend.delete_remaining(&cluster).await.unwrap();
        });
        nothing_is_left(&lab);
    }

    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn an_image_that_glance_fetches_is_compared_and_shared() {
        let lab = Lab::new("osi");
        lab.cluster("", "masters=1\n");
        let cluster = cluster_id(&lab.mark, DOMAIN);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/images/helper.qcow2");
        let bytes = std::fs::read(&file).unwrap();
        let sum = digest::sha512(&bytes);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            // Glance connects only to the usual ports, and not to loopback.
            let listener = tokio::net::TcpListener::bind("203.0.113.1:80").await.unwrap();
            let bytes = axum::body::Bytes::from(bytes);
            let app = axum::Router::new().route("/guest.qcow2", axum::routing::get(move || async move { bytes }));
            tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
            let backend = &pretend_computes().await;
            let fetch = async |url: String| backend.ensure_image(&cluster, &ImageRequest::Platform(url)).await;
            let url = "http://203.0.113.1/guest.qcow2";
            let first = fetch(format!("{url}#sha512={sum}")).await.unwrap();
            let seen = Seen::of("demo", cluster.tag());
            let [image] = seen.kind("images") else {
                panic!("{:?}", seen.names())
            };
            assert_eq!(
                (text(image, "status"), text(image, "visibility")),
                ("active", "private")
            );
            assert_eq!(image["size"], std::fs::metadata(&file).unwrap().len());
            assert_eq!(fetch(url.to_owned()).await.unwrap(), first, "it already exists");
            backend.delete_remaining(&cluster).await.unwrap();
            nothing_is_left(&lab);
            for (url, words) in [
                (format!("{url}#sha512={}", "0".repeat(128)), "expected "),
                ("http://203.0.113.1/none.qcow2".to_owned(), "Glance could not download"),
            ] {
                let error = fetch(url).await.unwrap_err();
                let said = error.message;
                assert!(said.contains(words), "{said}");
                nothing_is_left(&lab);
            }
        });
    }

    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn a_member_who_may_not_choose_addresses_gets_an_error_before_anything_is_created() {
        let lab = Lab::new("oso");
        let cluster = lab.cluster("", "masters=1\nworkers=0\n");
        let [deploy, env, rehearse] = &lab.deploy(&cluster);
        let elsewhere = ["--set", "os_cloud=other", "--set", "network=public"];
        let run = lab.start(&[&[deploy.as_str(), env, rehearse][..], &elsewhere].concat());
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        for words in ["network public", "macs", "allowed_address_pairs"] {
            assert!(said.to_lowercase().contains(words), "{words}: {said}");
        }
        nothing_is_left(&lab);
    }

    /// The rules of the documentation: one a line, as JSON.
    fn documented_rules() -> String {
        let page = std::fs::read_to_string("docs/how-to/openstack.md").unwrap();
        let (_, rest) = page.split_once("```json\n").expect("the page has the rules");
        let (rules, _) = rest.split_once("```").unwrap();
        rules.to_owned()
    }

    /// Services that the settings do not use reject all requests of this credential, with 401.
    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn a_credential_with_exactly_the_documented_rules_deploys_and_destroys() {
        let before = Seen::of("demo", "").names();
        let mut lab = Lab::new("osr");
        let credential = lab.mark.clone();
        let made = judge(&["demo", "restrict", &credential, &documented_rules()]);
        let [id, secret]: [String; 2] = serde_json::from_str(&made).unwrap();
        lab.sign_in_with(&id, &secret);
        let cluster = lab.cluster("", "masters=1\nworkers=0\nos_external_network=public\n");
        let printed = succeeded(lab.start_deploy(&cluster));
        assert_eq!(printed.matches(" yes ").count(), 2, "{printed}");
        is_deployed(&lab, &cluster);
        lab.destroy(&cluster);
        assert_eq!(Seen::of("demo", "").names(), before);
        judge(&["demo", "unrestrict", &credential]);
    }

    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn a_quota_that_is_short_by_one_is_reported_before_anything_is_created() {
        let lab = Lab::new("osq");
        // At most three nodes at a time.
        let cluster = lab.cluster("", "masters=1\nworkers=1\n");
        for (quota, unlimited) in [
            ("instances=2", "instances=-1"),
            ("cores=2", "cores=-1"),
            ("ram=575", "ram=-1"),
        ] {
            judge(&["admin", "quota", quota]);
            let output = lab.start_deploy(&cluster).wait_with_output().unwrap();
            judge(&["admin", "quota", unlimited]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(4), "{quota}: {said}");
            nothing_is_left(&lab);
        }
    }
}
