//! A release on a loopback mirror: programs that tell a version, in archives as the real mirror has them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use ocpdeploy::digest::sha256;

use crate::security::users::{ALICE, Users};
use crate::support::mirror::{Mirror, Served};

/// Answers for a release as `oc adm release info` does.
pub const OC: &str = r#"#!/bin/sh
echo '{"metadata": {"version": "4.19.3"}, "references": {"spec": {"tags": [{"name": "coredns", "from": {"name": "registry.example.com/a@sha256:1"}}]}}}'
"#;

/// An openshift-install that knows its version.
pub fn installer(version: &str) -> String {
    format!(
        "#!/bin/sh\necho openshift-install {version}\necho built from commit 0a1b2c3d\n\
         echo release image registry.example.com/release@sha256:0\n"
    )
}

/// A gzipped tar of programs.
pub fn archive(members: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let mut packed = tar.into_inner().unwrap();
    packed.flush().unwrap();
    packed.finish().unwrap()
}

/// The files of a release by name, the list of sums last.
pub fn files(version: &str, installer: &str, oc: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for (start, program, content) in [
        ("openshift-client", "oc", oc),
        ("openshift-install", "openshift-install", installer),
    ] {
        for end in ["-linux-arm64", "-linux"] {
            files.push((format!("{start}{end}-{version}.tar.gz"), archive(&[(program, content)])));
        }
    }
    let line = |(name, content): &(String, Vec<u8>)| format!("{}  {name}\n", sha256(content));
    let list: String = files.iter().map(line).collect();
    files.push(("sha256sum.txt".to_owned(), list.into_bytes()));
    files
}

/// Publishes a release below `/clients`; tells the sha256 of its list.
pub fn publish(mirror: &Mirror, sandbox: &str, version: &str, installer: &str, oc: &str) -> String {
    let files = files(version, installer, oc);
    let sum = sha256(&files.last().unwrap().1);
    for (name, content) in files {
        mirror.serve(&format!("/clients/{sandbox}/{name}"), Served::new(content));
    }
    sum
}

/// An env file of Alice's on the pretend platform, with that mirror.
pub fn env(users: &Users, cache: &Path, mirror: &Mirror, lines: &str) -> PathBuf {
    let key = users.path("alice/key.pub");
    fs::write(
        &key,
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n",
    )
    .unwrap();
    let secret = users.path("alice/pull-secret.json");
    fs::write(&secret, r#"{"auths":{"quay.io":{"auth":"YTpi"}}}"#).unwrap();
    let path = users.path("alice/env.sh");
    let text = format!(
        "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state={}\nversion=4.19.3\nmirror={}\ncache={}\n\
         pub_key={}\npull_secret={}\n{lines}",
        users.path("alice/sim.json").display(),
        mirror.url("/clients"),
        cache.display(),
        key.display(),
        secret.display(),
    );
    fs::write(&path, text).unwrap();
    for path in [&key, &secret, &path] {
        chown(path, Some(ALICE), Some(ALICE)).unwrap();
        crate::security::users::mode(path, 0o600);
    }
    path
}
