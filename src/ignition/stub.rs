//! A small config that fetches a large one, for platforms with a size limit.

use serde_json::{Value, json};

use super::contents::data_url;
use super::error::IgnitionError;
use super::version::{Major, Version};

/// Whether a config may be fetched compressed and with headers: since spec 3.1.
pub fn can_pack(version: &Version) -> bool {
    version.major == Major::Three && version.minor >= 1
}

/// A small config that fetches the whole one.
#[derive(Clone, Copy, Debug)]
pub struct Stub<'a> {
    pub version: Version,
    pub url: &'a str,
    /// Sent with the request, e.g. a token; requires spec 3.1.
    pub headers: &'a [(&'a str, &'a str)],
    /// Of the uncompressed config, in hex: Ignition decompresses first (coreos/ignition: `docs/configuration-v3_2.md`).
    pub sha512: &'a str,
    /// The served config is compressed; requires spec 3.1.
    pub gzip: bool,
    /// PEM of the CA of the server's certificate, if the image does not trust it.
    pub ca: Option<&'a str>,
}

/// The stub as a config. Ignition stops the boot if the served bytes differ.
pub fn stub(stub: &Stub<'_>) -> Result<Value, IgnitionError> {
    let lacks = |what| IgnitionError::NotInVersion {
        what,
        version: stub.version,
    };
    if !can_pack(&stub.version) {
        if !stub.headers.is_empty() {
            return Err(lacks("headers in a request"));
        }
        if stub.gzip {
            return Err(lacks("compressed configs"));
        }
    }
    let mut entry = json!({"source": stub.url, "verification": {"hash": format!("sha512-{}", stub.sha512)}});
    if stub.gzip {
        entry["compression"] = json!("gzip");
    }
    if !stub.headers.is_empty() {
        let header = |(name, value): &(&str, &str)| json!({"name": name, "value": value});
        entry["httpHeaders"] = stub.headers.iter().map(header).collect();
    }
    let mut ignition = json!({
        "version": stub.version.to_string(),
        "config": {stub.version.major.merge_list(): [entry]},
    });
    if let Some(ca) = stub.ca {
        ignition["security"] = json!({"tls": {"certificateAuthorities": [{"source": data_url(ca.as_bytes())}]}});
    }
    Ok(json!({"ignition": ignition}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha512;

    const V3_2: Version = Version {
        major: Major::Three,
        minor: 2,
        patch: 0,
    };

    #[test]
    fn a_stub_has_only_what_its_version_supports() {
        let hash = sha512("x");
        let full = Stub {
            version: V3_2,
            url: "https://glance.example.com/v2/images/1/file",
            headers: &[("X-Auth-Token", "secret")],
            sha512: &hash,
            gzip: true,
            ca: Some("PEM"),
        };
        let expected = json!({"ignition": {
            "version": "3.2.0",
            "config": {"merge": [{
                "source": full.url,
                "verification": {"hash": format!("sha512-{hash}")},
                "compression": "gzip",
                "httpHeaders": [{"name": "X-Auth-Token", "value": "secret"}],
            }]},
            "security": {"tls": {"certificateAuthorities": [{"source": data_url(b"PEM")}]}},
        }});
        assert_eq!(stub(&full).unwrap(), expected);
        assert!(stub(&full).unwrap().to_string().len() < 65535);
        let two = Version {
            major: Major::Two,
            minor: 2,
            patch: 0,
        };
        let three = Version { minor: 0, ..V3_2 };
        let bare = Stub {
            headers: &[],
            gzip: false,
            ca: None,
            version: two,
            ..full
        };
        let expected = json!({"ignition": {
            "version": "2.2.0",
            "config": {"append": [{"source": full.url, "verification": {"hash": format!("sha512-{hash}")}}]},
        }});
        assert_eq!(stub(&bare).unwrap(), expected);
        for (faulty, words) in [
            (
                Stub {
                    version: two,
                    gzip: false,
                    ..full
                },
                "Ignition 2.2.0 does not support headers in a request",
            ),
            (
                Stub { gzip: true, ..bare },
                "Ignition 2.2.0 does not support compressed configs",
            ),
            (
                Stub {
                    gzip: true,
                    version: three,
                    ..bare
                },
                "Ignition 3.0.0 does not support compressed configs",
            ),
        ] {
            assert_eq!(stub(&faulty).unwrap_err().to_string(), words);
        }
    }
}
