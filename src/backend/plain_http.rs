//! Detects URLs without TLS, whose credentials and responses can be read and changed on the network.

use std::net::IpAddr;

use http::Uri;

/// Whether a URL is plain HTTP to another computer. Local connections, such as `kubectl proxy`, need no TLS.
pub(super) fn is_plain_http(url: &str) -> bool {
    let Ok(url) = url.parse::<Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    url.scheme_str() == Some("http") && !is_here
}

#[cfg(test)]
mod tests {
    use super::is_plain_http;

    #[test]
    fn plain_http_to_other_computers_is_detected() {
        for (url, expected) in [
            ("http://cloud.example.com:5000/v3", true),
            ("HTTP://10.0.0.1", true),
            ("http://[2001:db8::1]:80/", true),
            ("http://0.0.0.0:1/", true),
            ("http://localhost.example.com/", true),
            ("http://user@10.0.0.1/", true),
            ("https://cloud.example.com", false),
            ("http://127.0.0.1:8001", false),
            ("http://127.8.0.1", false),
            ("http://[::1]:8001", false),
            ("http://localhost:8001/x", false),
        ] {
            assert_eq!(is_plain_http(url), expected, "{url}");
        }
    }
}
