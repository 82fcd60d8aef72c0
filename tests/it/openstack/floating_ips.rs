//! Floating IPs of the API and of ingress.

use super::*;

#[test]
fn a_floating_ip_without_a_router_to_its_network_is_a_warning_of_the_checks() {
    for gateway in ["ext-1", "ext-2"] {
        let (cloud, sandbox) = cloud();
        sandbox.add("os_api_floating_ip=203.0.113.9\n");
        cloud.with(|world| {
            world
                .stores
                .floating_ips
                .push(json!({"id": "f", "floating_ip_address": "203.0.113.9", "port_id": null,
                "floating_network_id": "ext-1", "description": ""}));
            let gateway = json!({"network_id": gateway});
            world
                .stores
                .routers
                .push(json!({"id": "router-1", "external_gateway_info": gateway}));
            world.ports.push(
                json!({"id": "gateway", "name": "", "description": "", "network_id": "net-1",
                "mac_address": "fa:16:3e:00:00:01", "device_id": "router-1", "device_owner": "network:router_interface",
                "fixed_ips": [{"subnet_id": "sub-1", "ip_address": "10.20.0.1"}]}),
            );
        });
        let output = sandbox.run(&["check"], &[]);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let warning = "no router of this project connects network private with external network ext-1";
        assert_eq!(text.contains(warning), gateway == "ext-2", "{gateway}: {text}");
        assert!(!text.contains("203.0.113.9 is in use"), "{text}");
        cloud.finish();
    }
}

/// A floating IP of the user for the API, and one that is created for ingress.
#[test]
fn floating_ips_are_in_the_table_and_in_all_results() {
    let (cloud, sandbox) = cloud();
    sandbox.add("os_external_network=public\nos_api_floating_ip=203.0.113.9\n");
    cloud.with(|world| {
        world.stores.floating_ips.push(
            json!({"id": "own", "floating_ip_address": "203.0.113.9", "port_id": null, "description": "",
            "floating_network_id": "ext-1"}),
        );
        world.neutron.others.push(
            json!({"id": "ext-1", "name": "public", "project_id": "project-2", "router:external": true,
            "port_security_enabled": true}),
        );
    });
    succeeded(&sandbox.harvest());
    let home = Home::new(sandbox.0.path().join("home"));
    let table = Parameters::read(&home.cluster("lab").parameters()).unwrap().unwrap();
    let ingress = cloud.with(|world| {
        let port_of = |vip: &str| {
            let name = format!("{vip}.lab.example.com");
            world.ports.iter().find(|port| port["name"] == name).unwrap()["id"].clone()
        };
        let [own, made] = world.stores.floating_ips.as_slice() else {
            panic!("{:?}", world.stores.floating_ips)
        };
        assert_eq!(
            (&own["port_id"], &made["port_id"]),
            (&port_of("api"), &port_of("ingress"))
        );
        made["floating_ip_address"].as_str().unwrap().to_owned()
    });
    let external = table.external_vips;
    assert_eq!(external.api, Some([203, 0, 113, 9].into()));
    assert_eq!(external.ingress.map(|ip| ip.to_string()), Some(ingress.clone()));

    let (api, int) = ("203.0.113.9".to_owned(), table.api_ip.to_string());
    let said = |arguments: &[&str]| {
        let output = sandbox.run(arguments, &[]);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    for (arguments, wanted) in [
        (&["status", "lab"][..], vec![api.clone(), ingress.clone()]),
        (
            &["list"],
            vec![format!("{int} ({api})"), format!("{} ({ingress})", table.ingress_ip)],
        ),
        (
            &["export", "hosts", "lab"],
            vec![
                format!("{api} api.lab.example.com\n"),
                format!("{int} api-int.lab.example.com\n"),
                format!("{ingress} console-openshift-console.apps.lab.example.com\n"),
            ],
        ),
        (
            &["export", "dns", "lab"],
            vec![
                format!("api                      IN A    {api}\n"),
                format!("api-int                  IN A    {int}\n"),
                format!("*.apps                   IN A    {ingress}\n"),
            ],
        ),
        (
            &["dns", "apply", "lab", "--dry-run", "--root", "."],
            vec![format!("+{api} api.lab.example.com\n")],
        ),
        (&["export", "kcli", "lab"], vec![format!("public_api_ip: \"{api}\"\n")]),
    ] {
        let said = said(arguments);
        for wanted in wanted {
            assert!(said.contains(&wanted), "{arguments:?}: {wanted}: {said}");
        }
    }
    let kubeconfig = home.cluster("lab").kubeconfig();
    std::fs::create_dir_all(kubeconfig.parent().unwrap()).unwrap();
    let text = "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: https://api.lab.example.com:6443\n  name: lab\n";
    std::fs::write(&kubeconfig, text).unwrap();
    assert!(said(&["kubeconfig", "lab"]).contains("https://203.0.113.9:6443"));

    sandbox.destroy();
    let left: Vec<_> = cloud
        .finish()
        .stores
        .floating_ips
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert_eq!(left, ["own"], "only the one that was created is deleted");
}
