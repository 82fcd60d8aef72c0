//! A release: programs that report a version, in archives as the real mirror has them.

use std::io::Write;

use ocpdeploy::digest::sha256;

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
fn archive(members: &[(&str, &str)]) -> Vec<u8> {
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
