//! Mistakes of users, and servers that are not trusted.

use super::*;

/// Each mistake, on a separate cloud, and the program's message.
#[test]
fn each_mistake_has_its_message() {
    type Mistake = (&'static str, i32, fn(&FakeCloud, &Sandbox));
    let mistakes: [Mistake; 24] = [
        ("unknown cloud", 5, |_, sandbox| {
            sandbox.add("os_cloud=lbo\n");
        }),
        ("wrong password", 5, |cloud, sandbox| {
            let url = cloud.auth_url();
            sandbox
                .clouds(&url, "")
                .write("secure.yaml", "clouds:\n  lab:\n    auth:\n      password: other\n");
        }),
        ("missing catalog entry", 4, |cloud, _| {
            cloud.with(|world| world.lacking = vec!["image"])
        }),
        ("unknown region", 4, |_, sandbox| {
            sandbox.add("os_region=two\n");
        }),
        ("not verified", 5, |cloud, sandbox| {
            sandbox.clouds(&cloud.auth_url(), "    verify: false\n");
        }),
        ("flavor too small", 4, |cloud, _| {
            let flavors = json!({"flavors": [flavor("tiny", 1, 512, 10), flavor("large", 8, 32768, 80)]});
            answer(cloud, "/compute/v2.1/flavors/detail", flavors);
        }),
        ("named flavor too small", 4, |cloud, sandbox| {
            sandbox.add("os_master_flavor=tiny\n");
            let flavors = json!({"flavors": [flavor("tiny", 1, 512, 10), flavor("large", 8, 32768, 120)]});
            answer(cloud, "/compute/v2.1/flavors/detail", flavors);
        }),
        ("machine network of no subnet", 4, |_, sandbox| {
            sandbox.add("machine_network=10.99.0.0/24\n");
        }),
        ("network without DHCP", 4, |cloud, _| {
            let subnet = json!({"id": "sub-1", "network_id": "net-1", "ip_version": 4, "cidr": "10.20.0.0/24",
                "enable_dhcp": false});
            answer(cloud, "/network/v2.0/subnets", json!({"subnets": [subnet]}));
        }),
        ("quota short by one", 4, |cloud, _| {
            let limits =
                json!({"maxTotalCores": 20, "totalCoresUsed": 13, "maxTotalInstances": -1, "maxTotalRAMSize": -1});
            answer(cloud, "/compute/v2.1/limits", json!({"limits": {"absolute": limits}}));
        }),
        ("quota of rules", 4, |cloud, _| {
            let quota = json!({"security_group_rule": {"limit": 100, "used": 90, "reserved": 0}});
            answer(
                cloud,
                "/network/v2.0/quotas/project-1/details.json",
                json!({"quota": quota}),
            );
        }),
        ("quota of a volume type", 4, |cloud, sandbox| {
            sandbox.add("os_boot=volume\nos_volume_type=ssd\ndisk_size=300\nmasters=3\nworkers=6\n");
            cloud.with(|world| world.more = vec!["volumev3"]);
        }),
        ("role reader", 4, |cloud, _| {
            cloud.with(|world| world.roles = vec!["reader"]);
        }),
        ("image still queued", 5, |cloud, sandbox| {
            sandbox.add("harvest=boot\nharvest_image=centos\n");
            image(cloud, json!({"status": "queued"}));
        }),
        ("flavor too small for the image", 5, |cloud, sandbox| {
            sandbox.add("harvest=boot\nharvest_image=centos\n");
            image(cloud, json!({"status": "active", "min_disk": 200}));
        }),
        ("floating IP in use", 4, |cloud, sandbox| {
            sandbox.add("os_api_floating_ip=203.0.113.9\n");
            let floating = json!({"id": "f", "floating_ip_address": "203.0.113.9", "port_id": "their-port",
                "floating_network_id": "ext-1", "description": ""});
            cloud.with(|world| world.stores.floating_ips.push(floating));
        }),
        ("floating IP without port security", 4, |cloud, sandbox| {
            sandbox.add("os_ingress_floating_ip=203.0.113.9\n");
            let network = json!({"id": "net-1", "name": "private", "project_id": "project-1", "router:external": false,
                "port_security_enabled": false});
            answer(cloud, "/network/v2.0/networks", json!({"networks": [network]}));
            let floating = json!({"id": "f", "floating_ip_address": "203.0.113.9", "port_id": null,
                "floating_network_id": "ext-1", "description": ""});
            cloud.with(|world| world.stores.floating_ips.push(floating));
        }),
        ("one VIP with two floating IPs", 3, |_, sandbox| {
            let lines = "api_ip=10.20.0.9\ningress_ip=10.20.0.9\nos_ingress_floating_ip=203.0.113.9\n";
            sandbox.add(lines);
        }),
        ("unknown zone", 4, |cloud, sandbox| {
            sandbox.add("os_zone=az1,az9\n");
            let zone = json!({"zoneName": "az1", "zoneState": {"available": true}, "hosts": null});
            answer(
                cloud,
                "/compute/v2.1/os-availability-zone",
                json!({"availabilityZoneInfo": [zone]}),
            );
        }),
        ("unknown volume type and zone", 4, |cloud, sandbox| {
            let lines = "os_boot=volume\nos_volume_type=fast\nos_volume_zone=far,farther\n";
            sandbox.add(lines);
            cloud.with(|world| world.more = vec!["volumev3"]);
        }),
        ("API without microversions", 4, |cloud, _| {
            let version = json!({"id": "v2.0", "status": "SUPPORTED", "version": "", "min_version": ""});
            answer(cloud, "/compute/v2.1/", json!({"version": version}));
        }),
        ("unified limit", 5, |cloud, _| {
            let fault = "Project project-1 is over a limit for [Resource port is over limit of 2 due to current usage 2 and delta 1]";
            let fault = json!({"NeutronError": {"type": "ProjectOverLimit", "message": fault, "detail": ""}});
            cloud.trouble("POST /network/v2.0/ports", [Trouble::Status(403, fault)]);
        }),
        ("token too short-lived for user data", 4, |cloud, _| {
            cloud.with(|world| world.lifetime = Some(600));
        }),
        ("another project's network", 4, |cloud, _| {
            let network = json!({"id": "net-1", "name": "private", "project_id": "project-2"});
            answer(cloud, "/network/v2.0/networks", json!({"networks": [network]}));
            let fault = "((rule:create_port and rule:create_port:mac_address)) is disallowed by policy";
            let fault = json!({"NeutronError": {"type": "PolicyNotAuthorized", "message": fault, "detail": ""}});
            cloud.trouble("POST /network/v2.0/ports", [Trouble::Status(403, fault)]);
        }),
    ];
    let mut all = String::new();
    for (name, code, make) in mistakes {
        let (cloud, sandbox) = cloud();
        make(&cloud, &sandbox);
        let said = told(&sandbox.refusal(code), &sandbox);
        let said = match name {
            "flavor too small for the image" => without_machine(said),
            _ => said,
        };
        all += &format!("-- {name}\n{said}\n");
        let made = cloud.finish().ports;
        // The checks fail before anything is created; the platform may reject requests later.
        assert!(code != 4 || made.is_empty(), "{name}: {made:?} was created");
    }
    insta::assert_snapshot!(all);
}

/// All machines of pass one are created in parallel: any of them may be reported.
fn without_machine(mut said: String) -> String {
    for (role, number) in [("bootstrap", 0), ("master", 0), ("helper", 0), ("helper", 1)] {
        said = said
            .replace(&format!("lab-harvest-{role}-{number}"), "MACHINE")
            .replace(&format!("os_{role}_flavor"), "os_ROLE_flavor");
    }
    said
}

#[test]
fn an_untrusted_server_gets_no_request() {
    let sandbox = Sandbox::new();
    let (ours, others) = (certificate(), certificate());
    let (address, heard) = serve_tls(&ours);
    let url = format!("https://localhost:{}/v3", address.port());
    sandbox
        .write("ours.pem", &ours.cert.pem())
        .write("others.pem", &others.cert.pem());
    let mut all = String::new();
    for (name, more, code) in [
        ("no CA", "", 5),
        ("wrong CA", "    cacert: others.pem\n", 5),
        ("no file", "    cacert: none.pem\n", 3),
    ] {
        sandbox.clouds(&url, more);
        let text = sandbox.refusal(code).replace(&address.port().to_string(), "PORT");
        all += &format!("-- {name}\n{text}\n");
        assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 0, "{name}");
    }
    insta::assert_snapshot!(all);
    sandbox.clouds(&url, "    cacert: ours.pem\n");
    let text = sandbox.refusal(5);
    assert!(text.contains("authentication to cloud lab failed"), "{text}");
    assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 1);
}

fn certificate() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// Rejects all requests, and counts them.
fn serve_tls(
    certificate: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> (std::net::SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    use rustls::pki_types::PrivateKeyDer;
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::default());
    let count: Arc<std::sync::atomic::AtomicUsize> = Arc::clone(&heard);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _ = stream.write_all(answer).await;
                    let _ = stream.shutdown().await;
                }
            }
        });
    });
    (address, heard)
}
