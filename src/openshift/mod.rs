//! The cluster's software: the installer, and clients of the API server and the machine config server.

pub mod api;
pub mod csr;
pub mod drain;
pub mod installer;
pub mod mcs;
pub mod releases;
pub mod wait;

/// The cluster's name from the host name of its API server, `api.<cluster>.<domain>` or `api-int.…`, for hints.
fn cluster_of_host(host: &str) -> &str {
    let name = host.strip_prefix("api.").or_else(|| host.strip_prefix("api-int."));
    name.and_then(|name| name.split('.').next()).unwrap_or("CLUSTER")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_host_name_has_the_cluster_s_name() {
        for host in ["api.lab.example.com", "api-int.lab.example.com"] {
            assert_eq!(super::cluster_of_host(host), "lab");
        }
        assert_eq!(super::cluster_of_host("192.168.122.200"), "CLUSTER");
    }
}
