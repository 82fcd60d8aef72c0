//! `lb=platform` on an OpenStack that has Octavia (`OCPDEPLOY_OPENSTACK_SERVICES=all`): its API, its worker and the ports in
//! Neutron are real. Amphorae do not run, so no rehearsal succeeds there. OpenStack's own library checks the objects.

/// The name distinguishes these tests from those on libvirt, whose lab skips them.
mod on_openstack {
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::Child;
    use std::time::Duration;

    use ocpdeploy::backend::openstack::OpenStack;
    use ocpdeploy::backend::{Backend, LoadBalancer};
    use ocpdeploy::cluster::{
        AddressAssignment, Affinity, Insecure, Mac, NodeName, OpenStackConfig, OsBalancers, OsBoot, OsFlavors,
        OsIgnition, Role, Vip,
    };
    use serde_json::{Value, json};

    use crate::support::cluster::cluster_id;
    use crate::support::left_out::left_out;
    use crate::support::openstack_lab::{DOMAIN, Lab, Seen, judge, text};
    use crate::support::until::until;

    fn has_octavia() -> bool {
        let has = judge(&["demo", "has", "load-balancer"]).trim() == "true";
        if !has {
            left_out("this OpenStack has no Octavia");
        }
        has
    }

    /// The cluster's load balancers, by the VIP in their name, without those of others.
    fn balancers(id: &str) -> BTreeMap<String, Value> {
        let seen = Seen::of("demo", id);
        let ours = seen.kind("load_balancers").iter();
        let ours = ours.filter(|one| one["tags"] == json!(["ocpdeploy", id]));
        ours.map(|one| (text(one, "name").replace(&format!(".{id}"), ""), one.clone()))
            .collect()
    }

    /// Ports of VIPs and of amphorae, which have no cluster's tag.
    fn ports_of_octavia() -> BTreeSet<String> {
        let seen = Seen::of("demo", "octavia-lb-");
        let ports = seen.kind("ports").iter();
        ports.map(|port| text(port, "name").to_owned()).collect()
    }

    #[track_caller]
    fn nothing_is_left(lab: &Lab, before: &BTreeSet<String>) {
        assert_eq!(Seen::of("demo", &lab.mark).names(), [""; 0]);
        assert_eq!(ports_of_octavia(), *before);
    }

    /// The names of members by VIP and port.
    type Members = BTreeMap<(String, u64), BTreeSet<String>>;

    fn members(id: &str) -> Members {
        let mut found = Members::new();
        for (vip, balancer) in balancers(id) {
            for listener in balancer["listeners"].as_array().unwrap() {
                let names = listener["members"].as_array().unwrap().iter();
                let names = names.map(|member| text(member, "name").to_owned()).collect();
                found.insert((vip.clone(), listener["protocol_port"].as_u64().unwrap()), names);
            }
        }
        found
    }

    fn wanted(all: &[(&str, &[u64], &[&str])]) -> Members {
        let mut wanted = Members::new();
        for (vip, ports, names) in all {
            for port in *ports {
                let names = names.iter().map(|name| (*name).to_owned()).collect();
                wanted.insert(((*vip).to_owned(), *port), names);
            }
        }
        wanted
    }

    const API: &[u64] = &[6443, 22623, 22624];
    const INGRESS: &[u64] = &[80, 443];
    const LIMIT: Duration = Duration::from_secs(300);

    #[track_caller]
    fn runs(run: &mut Child) {
        if run.try_wait().unwrap().is_some() {
            let mut said = String::new();
            let _ = std::io::Read::read_to_string(run.stderr.as_mut().unwrap(), &mut said);
            panic!("{said}");
        }
    }

    fn kill(mut run: Child) {
        let _ = run.kill();
        let _ = run.wait_with_output();
    }

    #[test]
    #[ignore = "needs the OpenStack lab with all services"]
    fn each_vip_is_a_load_balancer_and_is_deleted_with_the_cluster() {
        if !has_octavia() {
            return;
        }
        let before = ports_of_octavia();
        let lab = Lab::new("osl");
        let lines = "masters=1\nworkers=1\nlb=platform\nos_external_network=public\n";
        let cluster = lab.cluster("", lines);
        let id = &format!("{cluster}.{DOMAIN}");
        let foreign = judge(&["demo", "balancer-put", "private", &format!("api.{id}"), "ocpdeploy"]);
        let foreign = foreign.trim();
        let complete = wanted(&[
            ("api", API, &["bootstrap", "master-0"]),
            ("ingress", INGRESS, &["worker-0"]),
        ]);
        let mut run = lab.start_deploy(&cluster);
        until(LIMIT, "all members", || {
            runs(&mut run);
            members(id) == complete && !Seen::of("demo", id).servers().is_empty()
        });
        kill(run);

        let table = lab.parameters(&cluster);
        let ours = balancers(id);
        let whole = Seen::of("demo", id);
        for (name, ip) in [("api", table.api_ip), ("ingress", table.ingress_ip)] {
            let balancer = &ours[name];
            assert_eq!(text(balancer, "provisioning_status"), "ACTIVE", "{name}");
            assert_eq!(text(balancer, "vip_address"), ip.to_string());
            let on_port = |floating: &&Value| floating["port_id"] == balancer["vip_port_id"];
            assert_eq!(whole.kind("floating_ips").iter().filter(on_port).count(), 1, "{name}");
            for listener in balancer["listeners"].as_array().unwrap() {
                let is_mcs = matches!(listener["protocol_port"].as_u64(), Some(22623 | 22624));
                let cidrs = listener["allowed_cidrs"].as_array().cloned().unwrap_or_default();
                assert_eq!(cidrs.contains(&json!("10.20.0.0/16")), is_mcs, "{listener}");
                assert!(is_mcs || cidrs.is_empty(), "{listener}");
            }
        }

        // A second run changes none of them.
        let mut run = lab.start_deploy(&cluster);
        std::thread::sleep(Duration::from_secs(20));
        runs(&mut run);
        kill(run);
        assert_eq!(balancers(id), ours);

        lab.destroy(&cluster);
        let left = Seen::of("demo", id);
        let left: Vec<_> = left.kind("load_balancers").iter().map(|one| text(one, "id")).collect();
        assert_eq!(left, [foreign], "the other one is kept");
        judge(&["demo", "balancer-drop", foreign]);
        nothing_is_left(&lab, &before);
    }

    #[test]
    #[ignore = "needs the OpenStack lab with all services"]
    fn a_killed_run_continues_with_one_load_balancer_for_both_vips() {
        if !has_octavia() {
            return;
        }
        let before = ports_of_octavia();
        let lab = Lab::new("osk");
        let lines = "masters=1\nworkers=0\nlb=platform\napi_ip=10.20.0.77\ningress_ip=10.20.0.77\n";
        let cluster = lab.cluster("", lines);
        let id = &format!("{cluster}.{DOMAIN}");
        let complete = wanted(&[
            ("api", API, &["bootstrap", "master-0"]),
            ("api", INGRESS, &["master-0"]),
        ]);
        // While Octavia creates it, while its parts are created, and at the end.
        let phases: [&dyn Fn() -> bool; 3] = [&|| !balancers(id).is_empty(), &|| members(id).len() > 1, &|| {
            members(id) == complete
        }];
        for reached in phases {
            let mut run = lab.start_deploy(&cluster);
            until(LIMIT, "a load balancer", || {
                runs(&mut run);
                reached()
            });
            kill(run);
        }
        assert_eq!(balancers(id).len(), 1);
        lab.destroy(&cluster);
        nothing_is_left(&lab, &before);
    }

    #[test]
    #[ignore = "needs the OpenStack lab with all services"]
    fn members_and_monitors_are_correct_after_each_change() {
        if !has_octavia() {
            return;
        }
        let before = ports_of_octavia();
        let lab = Lab::new("osn");
        lab.cluster("", "");
        let cluster = cluster_id(&lab.mark, DOMAIN);
        let id = cluster.tag();
        let config = OpenStackConfig {
            cloud: Some("demo".to_owned()),
            region: None,
            boot: OsBoot::Image,
            volumes: true,
            volume_type: None,
            zone: None,
            affinity: Affinity::Off,
            flavors: OsFlavors::default(),
            machine_network: None,
            external_network: None,
            api_floating_ip: None,
            ingress_floating_ip: None,
            balancers: Some(OsBalancers {
                provider: Some("amphora".to_owned()),
            }),
            ignition: OsIgnition::Auto,
            image_import: false,
            volume_zone: None,
            volume_timeout: Duration::from_secs(600),
            admit: Vec::new(),
            client_ip: None,
            rehearsal: false,
            insecure: Insecure(false),
        };
        let nodes: Vec<_> = ["bootstrap", "master-0", "worker-0", "worker-1"]
            .into_iter()
            .zip(1..)
            .map(|(name, last)| AddressAssignment {
                name: serde_json::from_value::<NodeName>(json!(name)).unwrap(),
                mac: Mac([0x52, 0x54, 0, 0, 0, last]),
                ip: [10, 20, 200, last].into(),
            })
            .collect();
        let balancer = |vip, names: Option<&[&str]>| LoadBalancer {
            cluster: cluster.clone(),
            network: "private".to_owned(),
            vip,
            ip: None,
            ports: match vip {
                Vip::Api => vec![6443, 22623, 22624],
                Vip::Ingress => vec![80, 443],
            },
            roles: vec![Role::Master],
            members: names.map(|names| {
                let is_in = |node: &&AddressAssignment| names.contains(&node.name.as_str());
                nodes.iter().filter(is_in).cloned().collect()
            }),
            checked: true,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let backend = OpenStack::connect(&config).await.unwrap();
            let ensure = async |balancer| backend.ensure_load_balancer(&balancer).await.unwrap().unwrap();
            let first = ensure(balancer(Vip::Api, None)).await;
            assert!(first.mac.is_some(), "the port of the VIP is this project's");
            for (vip, name, ports, names) in [
                (Vip::Api, "api", API, &["bootstrap", "master-0"][..]),
                (Vip::Api, "api", API, &["master-0"]),
                (Vip::Ingress, "ingress", INGRESS, &["worker-0"]),
                (Vip::Ingress, "ingress", INGRESS, &["worker-0", "worker-1"]),
                (Vip::Ingress, "ingress", INGRESS, &["worker-0"]),
            ] {
                let ensured = ensure(balancer(vip, Some(names))).await;
                assert!(vip == Vip::Ingress || ensured == first);
                let mut of_vip = members(id);
                of_vip.retain(|(vip, _), _| vip == name);
                assert_eq!(of_vip, wanted(&[(name, ports, names)]));
            }
            let all = balancers(id);
            let mut monitors = Vec::new();
            for balancer in all.values() {
                for listener in balancer["listeners"].as_array().unwrap() {
                    let monitor = &listener["monitor"];
                    let path = monitor["url_path"].as_str().unwrap_or_default();
                    let port = listener["protocol_port"].as_u64().unwrap();
                    monitors.push((port, text(monitor, "type").to_owned(), path.to_owned()));
                    let asked = &listener["members"][0]["monitor_port"];
                    assert_eq!(*asked == 1936, INGRESS.contains(&port), "{listener}");
                }
            }
            monitors.sort();
            let monitor = |port, kind: &str, path: &str| (port, kind.to_owned(), path.to_owned());
            assert_eq!(
                monitors,
                [
                    monitor(80, "HTTP", "/healthz/ready"),
                    monitor(443, "HTTP", "/healthz/ready"),
                    monitor(6443, "HTTPS", "/readyz"),
                    monitor(22623, "TCP", ""),
                    monitor(22624, "TCP", ""),
                ]
            );
            ensure(balancer(Vip::Ingress, Some(&["worker-0"]))).await;
            assert_eq!(balancers(id), all, "no change was required");
            backend.delete_remaining(&cluster).await.unwrap();
        });
        nothing_is_left(&lab, &before);
    }
}
