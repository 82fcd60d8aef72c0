//! The installer's kubeconfig with the api VIP as its address: requires no DNS, and still verifies the server's name.

use serde_json::{Value, json};

use crate::cluster::ApiEndpoint;
use crate::templates::yaml;

/// Points the servers of a kubeconfig to the api VIP; the error says what is wrong with it.
pub fn pinned(kubeconfig: &str, endpoint: &ApiEndpoint) -> Result<String, String> {
    let mut config: Value = serde_saphyr::from_str(kubeconfig).map_err(|error| error.to_string())?;
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const GIVEN: &str = "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    \
                         server: https://api.lab.example.com:6443\n  name: lab\nkind: Config\nusers: []\n";

    #[test]
    fn the_server_is_the_vip_and_its_name_is_verified() {
        let pinned = pinned(GIVEN, &Ipv4Addr::from([192, 168, 122, 9]).into()).unwrap();
        let read: Value = serde_saphyr::from_str(&pinned).unwrap();
        let cluster = json!({"certificate-authority-data": "QQ==", "server": "https://192.168.122.9:6443",
            "tls-server-name": "api.lab.example.com"});
        let wanted = json!({"clusters": [{"cluster": cluster, "name": "lab"}], "kind": "Config", "users": []});
        assert_eq!(read, wanted);
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused() {
        for text in ["", "a: b", "clusters: [{cluster: {server: 'http://a:1'}}]", "{"] {
            assert!(
                pinned(text, &Ipv4Addr::from([192, 168, 122, 9]).into()).is_err(),
                "{text}"
            );
        }
    }
}
