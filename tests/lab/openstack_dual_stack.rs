//! Two address families on a real Neutron, whose agent filters the packets of each port.

/// The name distinguishes these tests from those on libvirt, whose lab skips them.
mod on_openstack {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    use crate::support::left_out::left_out;
    use crate::support::openstack_lab::{DOMAIN, Lab, Seen, judge, succeeded, text};
    use crate::support::until::until;

    /// This computer has an address on the network only in this shape of the lab.
    fn is_reachable() -> bool {
        let lab = std::env::var("OCPDEPLOY_OPENSTACK_LAB").expect("`lab.sh exec` says where the lab is");
        let shape = std::fs::read_to_string(Path::new(&lab).join("state/shape")).unwrap();
        if shape.trim() != "linuxbridge" {
            left_out(format!(
                "with shape {} guests on network dual cannot be reached",
                shape.trim()
            ));
            return false;
        }
        true
    }

    /// What a guest reports at an address, if it answers.
    fn report_at(ip: &dyn std::fmt::Display) -> Option<String> {
        let url = format!("http://[{ip}]:8080/report.json");
        let output = Command::new("curl")
            .args(["-fsg", "--max-time", "5", &url])
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The program compares the addresses that each guest reports with the table.
    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn guests_answer_at_the_second_address_of_their_port_and_at_no_other() {
        if !is_reachable() {
            return;
        }
        let before = Seen::of("demo", "").names();
        let lab = Lab::new("osv");
        let cluster = lab.cluster("", "masters=1\nworkers=1\nharvest=boot\n");
        let text_of_env = std::fs::read_to_string(lab.env(&cluster)).unwrap();
        let network = "network=dual\nmachine_network=10.22.0.0/24,fd00:22::/64\n";
        std::fs::write(lab.env(&cluster), text_of_env.replace("network=private\n", network)).unwrap();
        let printed = succeeded(lab.start_deploy(&cluster));
        assert_eq!(
            printed.matches(" yes ").count(),
            3,
            "a guest is not as planned:\n{printed}"
        );

        let table = lab.parameters(&cluster);
        let ipv6 = table.ipv6.as_ref().unwrap();
        assert_eq!(ipv6.gateway.to_string(), "fd00:22::1", "the subnet's");
        let seen = Seen::of("demo", &format!("{cluster}.{DOMAIN}"));
        let of = |port: &serde_json::Value, list: &str| -> BTreeSet<String> {
            let all = port[list].as_array().into_iter().flatten();
            all.map(|ip| text(ip, "ip_address").to_owned()).collect()
        };
        for lease in table.leases().iter().filter(|lease| lease.name.as_str() != "bootstrap") {
            let name = format!("{}.{cluster}.{DOMAIN}", lease.name);
            let port = seen
                .kind("ports")
                .iter()
                .find(|port| text(port, "name") == name)
                .unwrap();
            let both = [lease.ip.to_string(), ipv6.address_of(&lease.name, lease.ip).to_string()];
            assert_eq!(of(port, "fixed_ips"), BTreeSet::from(both), "{name}");
            let vips = [table.ingress_ip.to_string(), ipv6.ingress_ip.to_string()];
            if lease.name.as_str() == "worker-0" {
                assert_eq!(of(port, "allowed_address_pairs"), BTreeSet::from(vips), "{name}");
            }
        }

        let worker = table
            .nodes
            .iter()
            .find(|node| node.name.as_str() == "worker-0")
            .unwrap();
        let second = ipv6.beside(worker.ip);
        let report = report_at(&second).expect("the worker answers at its second address");
        assert!(report.contains(&format!("\"{second}")), "{report}");
        // Its packets pass the port only because the port has the address.
        judge(&["demo", "port-keep", &worker.mac.to_string(), &worker.ip.to_string()]);
        until(Duration::from_secs(60), "the filter of the port", || {
            report_at(&second).is_none()
        });
        let found = lab.start(&["verify", &cluster]).wait_with_output().unwrap();
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert!(found.contains(&format!("{second} is not reserved for")), "{found}");
        succeeded(lab.start(&["verify", &cluster, "--repair"]));
        until(Duration::from_secs(60), "the repaired port", || {
            report_at(&second).is_some()
        });

        lab.destroy(&cluster);
        assert_eq!(Seen::of("demo", "").names(), before);
    }
}
