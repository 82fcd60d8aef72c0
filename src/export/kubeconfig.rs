//! Changes the installer's kubeconfig. With the api VIP as the address, it requires no DNS and still verifies the
//! server's name. With the CA of the routers, `oc login` can use it for the cluster's OAuth server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use x509_parser::pem::Pem;

use crate::cluster::ApiEndpoint;
use crate::templates::yaml;

/// Parses a kubeconfig. The error has a position, but quotes no line: the file contains a private key.
fn parse(kubeconfig: &str) -> Result<Value, String> {
    serde_saphyr::from_str(kubeconfig).map_err(|error| error.without_snippet().to_string())
}

/// Replaces the servers of a kubeconfig by the api VIP. The error is the reason why the kubeconfig is invalid.
pub fn pinned(kubeconfig: &str, endpoint: &ApiEndpoint) -> Result<String, String> {
    let mut config = parse(kubeconfig)?;
    let clusters = config.get_mut("clusters").and_then(Value::as_array_mut);
    for cluster in clusters.ok_or("it has no clusters")? {
        let cluster = &mut cluster["cluster"];
        let server = cluster.get("server").and_then(Value::as_str).unwrap_or_default();
        let place = server
            .strip_prefix("https://")
            .ok_or("its server is not an https URL")?;
        let place = place.split('/').next().unwrap_or_default();
        let (name, port) = place.rsplit_once(':').unwrap_or((place, "443"));
        let port = port.parse().map_err(|_| format!("its server has no port: {place}"))?;
        let (name, server) = (name.to_owned(), format!("https://{}", endpoint.to(port)));
        cluster["server"] = json!(server);
        cluster["tls-server-name"] = json!(name);
    }
    Ok(yaml(&config) + "\n")
}

/// Adds the CA certificates of the routers (PEM) before those of each cluster, as openshift-install does
/// (openshift/installer: `cmd/openshift-install/command/waitfor.go`, `addRouterCAToClusterCA`); `None` if each cluster
/// already has them.
pub fn with_router_ca(kubeconfig: &str, ca: &str) -> Result<Option<String>, String> {
    let certificates = Pem::iter_from_buffer(ca.as_bytes()).collect::<Result<Vec<_>, _>>();
    if !certificates.is_ok_and(|all| !all.is_empty() && all.iter().all(|pem| pem.parse_x509().is_ok())) {
        return Err("the CA of the routers is not a list of PEM certificates".to_owned());
    }
    let mut config = parse(kubeconfig)?;
    let clusters = config.get_mut("clusters").and_then(Value::as_array_mut);
    let mut is_changed = false;
    for cluster in clusters.ok_or("it has no clusters")? {
        let data = cluster["cluster"]["certificate-authority-data"]
            .as_str()
            .unwrap_or_default();
        let own = STANDARD.decode(data).ok().filter(|own| !own.is_empty());
        let own = own.and_then(|own| String::from_utf8(own).ok());
        let own = own.ok_or("one of its clusters has no certificate-authority-data")?;
        if own.contains(ca.trim()) {
            continue;
        }
        let both = format!("{}\n{own}", ca.trim_end());
        cluster["cluster"]["certificate-authority-data"] = json!(STANDARD.encode(both));
        is_changed = true;
    }
    Ok(is_changed.then(|| yaml(&config) + "\n"))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const GIVEN: &str = "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    \
                         server: https://api.lab.example.com:6443\n  name: lab\nkind: Config\nusers: []\n";

    #[test]
    fn the_server_is_the_vip_and_its_name_is_verified() {
        let pinned = pinned(GIVEN, &IpAddr::from([192, 168, 122, 9]).into()).unwrap();
        let read: Value = serde_saphyr::from_str(&pinned).unwrap();
        let cluster = json!({"certificate-authority-data": "QQ==", "server": "https://192.168.122.9:6443",
            "tls-server-name": "api.lab.example.com"});
        let wanted = json!({"clusters": [{"cluster": cluster, "name": "lab"}], "kind": "Config", "users": []});
        assert_eq!(read, wanted);
    }

    #[test]
    fn the_routers_ca_is_added_once_before_the_clusters_own() {
        let ca = || {
            let key = rcgen::KeyPair::generate().unwrap();
            rcgen::CertificateParams::default().self_signed(&key).unwrap().pem()
        };
        let (own, routers) = (ca(), ca());
        let given = GIVEN.replace("QQ==", &STANDARD.encode(&own));
        let with = with_router_ca(&given, &routers).unwrap().unwrap();
        let read: Value = serde_saphyr::from_str(&with).unwrap();
        let data = read["clusters"][0]["cluster"]["certificate-authority-data"]
            .as_str()
            .unwrap();
        let both = format!("{}\n{own}", routers.trim_end());
        assert_eq!(String::from_utf8(STANDARD.decode(data).unwrap()).unwrap(), both);
        assert_eq!(
            read["clusters"][0]["cluster"]["server"],
            "https://api.lab.example.com:6443"
        );
        assert_eq!(with_router_ca(&with, &routers), Ok(None));

        let no_ca = GIVEN.replace("QQ==", "");
        for (kubeconfig, ca) in [
            (&no_ca, routers.as_str()),
            (&given, ""),
            (&given, "x"),
            (&"a: b".to_owned(), &routers),
        ] {
            assert!(with_router_ca(kubeconfig, ca).is_err(), "{kubeconfig} {ca}");
        }
    }

    #[test]
    fn the_error_of_a_damaged_kubeconfig_does_not_quote_it() {
        for end in ["a: [CANARY\n", "a: 'CANARY\n"] {
            let why = pinned(&(GIVEN.to_owned() + end), &IpAddr::from([192, 168, 122, 9]).into()).unwrap_err();
            assert!(!why.contains("CANARY"), "{end:?}: {why}");
        }
    }

    #[test]
    fn invalid_kubeconfigs_are_rejected() {
        for text in ["", "a: b", "clusters: [{cluster: {server: 'http://a:1'}}]", "{"] {
            assert!(
                pinned(text, &IpAddr::from([192, 168, 122, 9]).into()).is_err(),
                "{text}"
            );
        }
    }
}
