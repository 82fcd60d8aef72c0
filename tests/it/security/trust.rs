//! What was downloaded is used again only by runs that trust it for the same reason.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use ocpdeploy::digest::sha256;
use ocpdeploy::passes::EffectiveSettings;
use ocpdeploy::state::home::Home;
use ocpdeploy::state::journal::Journal;
use serde_json::json;

use crate::security::signatures::{Bench, key_line};
use crate::security::{mode, release};

const INSECURE: &str = "installer_mirror_insecure=true\n";
const SIGNATURE: &str = "sha256sum.txt.gpg";
const HELPER: &str = "CentOS-Stream-GenericCloud-9-latest.x86_64.qcow2";

/// A reason to trust programs: what the mirror serves, and the settings.
struct Reason {
    name: &'static str,
    scheme: &'static str,
    lines: String,
    list: Vec<u8>,
    signature: Option<Vec<u8>>,
}

impl Reason {
    fn serve(&self, bench: &Bench) {
        bench.serve("sha256sum.txt", self.list.clone());
        match &self.signature {
            Some(signature) => bench.serve(SIGNATURE, signature.clone()),
            None => bench.remove(SIGNATURE),
        }
    }
}

fn reasons(bench: &Bench) -> Vec<Reason> {
    let pinned = |name, list: Vec<u8>| Reason {
        name,
        scheme: "http",
        lines: format!("installer_mirror_sha256={}\n", sha256(&list)),
        list,
        signature: None,
    };
    let signed = |name, key| Reason {
        name,
        scheme: "https",
        lines: key_line(&bench.key(key)),
        list: bench.list.clone(),
        signature: Some(bench.gpg.sign(key, &["--detach-sign"], &bench.list)),
    };
    let insecure = |name, scheme| Reason {
        name,
        scheme,
        lines: INSECURE.to_owned(),
        list: bench.list.clone(),
        signature: None,
    };
    vec![
        insecure("nothing, http", "http"),
        insecure("nothing, https", "https"),
        pinned("a pin", bench.list.clone()),
        pinned("another pin", [&bench.list[..], b"# another\n"].concat()),
        signed("a key", "ed"),
        signed("another key", "other"),
    ]
}

/// The programs in the cache, for a bench that has those of one reason.
fn programs(bench: &Bench) -> PathBuf {
    let mut reasons = fs::read_dir(bench.path("cache/installers")).unwrap();
    let one = reasons.next().unwrap().unwrap().path();
    assert!(reasons.next().is_none());
    one.join("4.19.3")
}

/// In this order and in the reverse one, each reason comes both before and after each other reason.
#[test]
fn programs_are_used_again_only_if_the_settings_trust_them_for_the_same_reason() {
    let bench = Bench::new();
    let mut reasons = reasons(&bench);
    for _ in 0..2 {
        bench.clear_cache();
        for (archives, outcome) in [(2, "downloaded anew"), (0, "reused")] {
            for reason in &reasons {
                reason.serve(&bench);
                bench.asked();
                let (code, said) = bench.run(reason.scheme, &reason.lines);
                assert_eq!(code, Some(0), "{}: {said}", reason.name);
                assert!(bench.has_run(), "{}", reason.name);
                let is_announced = said.contains("because of installer_mirror_insecure=true");
                assert_eq!(is_announced, reason.lines == INSECURE, "{}: {said}", reason.name);
                let asked = bench.asked();
                let found = asked.iter().filter(|name| name.ends_with(".tar.gz")).count();
                assert_eq!(found, archives, "{} should be {outcome}: {asked:?}", reason.name);
            }
        }
        reasons.reverse();
    }
    // The cache has all of these, and none is trusted because of the vendor's key.
    bench.remove(SIGNATURE);
    for (lines, why) in [
        ("", "is neither signed nor pinned"),
        ("installer_mirror_key=missing.asc\n", "installer_mirror_key"),
    ] {
        let (code, said) = bench.run("https", lines);
        assert_eq!(code, Some(4), "{said}");
        assert!(said.contains(why) && !bench.has_run(), "{said}");
    }
}

/// The link in the cluster's directory leads to what an earlier run trusted.
#[test]
fn the_program_of_a_cluster_is_skipped_if_the_settings_no_longer_trust_it() {
    let bench = Bench::new();
    let (code, said) = bench.run("http", INSECURE);
    assert_eq!(code, Some(0), "{said}");
    let bin = bench.path("home/clusters/lab/bin");
    fs::create_dir_all(&bin).unwrap();
    for folder in bin.ancestors().take(4) {
        mode(folder, 0o700);
    }
    for name in ["openshift-install", "oc"] {
        symlink(programs(&bench).join(name), bin.join(name)).unwrap();
    }
    let (code, said) = bench.run("http", "");
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("; skipping it") && !bench.has_run(), "{said}");
    bench.asked();
    let (code, said) = bench.run("http", INSECURE);
    assert_eq!(code, Some(0), "{said}");
    assert!(bench.has_run() && bench.asked().is_empty(), "{said}");
}

#[test]
fn a_program_that_the_user_names_is_not_verified_by_its_path() {
    let bench = Bench::new();
    let pin = format!("installer_mirror_sha256={}\n", sha256(&bench.list));
    let not_verified = "is not verified: it has no sha256 digest";
    let (code, said) = bench.run("http", &pin);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains(not_verified), "{said}");
    let program = programs(&bench).join("openshift-install");
    let (code, said) = bench.run("http", &format!("{pin}installer={}\n", program.display()));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(not_verified), "{said}");
}

#[test]
fn a_program_that_has_changed_is_not_run_and_downloaded_again() {
    let bench = Bench::new();
    let pin = format!("installer_mirror_sha256={}\n", sha256(&bench.list));
    bench.run("http", &pin);
    let (oc, evil) = (programs(&bench).join("oc"), bench.path("evil"));
    fs::write(&oc, format!("#!/bin/sh\ntouch {}\n", evil.display())).unwrap();
    let (code, said) = bench.run("http", &pin);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("oc has changed since it was verified"), "{said}");
    assert!(!evil.exists());
    assert_eq!(fs::read_to_string(oc).unwrap(), release::OC);
}

/// The list of a pass-one image is kept for the time when its URL cannot be reached.
#[test]
fn a_helper_image_is_reused_without_its_list_only_if_the_same_list_vouched_for_it() {
    let bench = Bench::new();
    let helper = |url: &str, ca: &str| {
        let lines = format!("harvest=boot\nimage=coreos\nharvest_image=centos9stream\nimage_mirror={url}\n");
        bench.write_env("https", &lines);
        let output = bench.command(&["image", "pull", "env.sh"], ca);
        let said = String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let list = format!("SHA256 ({HELPER}) = {}\n", sha256("helper"));
    bench.serve(HELPER, b"helper".to_vec());
    bench.serve(&format!("{HELPER}.SHA256SUM"), list.into_bytes());
    let https = format!("{}/images", bench.url("https"));
    let other = https.replace("localhost", "127.0.0.1");

    // An image that no list vouched for.
    let image = format!("{https}/{HELPER}");
    let output = bench.command(
        &["image", "pull", "--downloads-dir", "cache", "--image", &image],
        "ca.pem",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // An untrusted server counts as unreachable.
    let (code, said) = helper(&https, "other-ca.pem");
    assert_eq!(code, Some(4), "{said}");

    let (code, said) = helper(&https, "ca.pem");
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("plain http"), "{said}");
    for (url, ca, expected) in [(&https, "other-ca.pem", Some(0)), (&other, "other-ca.pem", Some(4))] {
        let (code, said) = helper(url, ca);
        assert_eq!(code, expected, "{url}: {said}");
        let reused = said.contains("cannot be reached; using image centos9stream");
        assert_eq!(reused, code == Some(0), "{url}: {said}");
    }
    bench.serve(&format!("{HELPER}.SHA256SUM"), b"nothing".to_vec());
    let (code, said) = helper(&https, "ca.pem");
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains(&format!("{HELPER}.SHA256SUM has no checksum of {HELPER}")),
        "{said}"
    );
}

/// A mirror, or who imitates it, serves an old list with a valid signature.
#[test]
fn a_channel_never_goes_back_behind_the_newest_version_that_it_has_selected() {
    let bench = Bench::new();
    let publish = |version: &str| {
        for (name, content) in release::files(version, &release::installer(version), release::OC) {
            if name == "sha256sum.txt" {
                bench.serve(SIGNATURE, bench.gpg.sign("ed", &["--detach-sign"], &content));
            }
            bench.serve(&name, content);
        }
    };
    bench.write_env("https", &key_line(&bench.key("ed")));
    let run = |command: &[&str], version: &str, more: &[&str]| {
        let version = format!("version={version}");
        let arguments = [command, &["env.sh", "--set", &version], more].concat();
        let output = bench.command(&arguments, "ca.pem");
        let said = String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let select = |version: &str, more: &[&str]| run(&["image", "payload"], version, more);
    let older = |channel: &str| format!("version={channel} selects 4.12.0, which is older than 4.19.3");
    publish("4.19.3");
    assert_eq!(select("stable", &[]).0, Some(0));
    publish("4.12.0");
    for (version, more, code) in [
        ("stable", &[][..], 4),
        // Another channel.
        ("4.12", &[], 0),
        ("4.12.0", &[], 0),
        ("stable", &[], 4),
        ("stable", &["--allow-downgrade"], 0),
        ("stable", &[], 0),
    ] {
        let (found, said) = select(version, more);
        assert_eq!(found, Some(code), "{version} {more:?}: {said}");
        assert_eq!(said.contains(&older(version)), code == 4, "{version} {more:?}: {said}");
    }
    publish("4.19.3");
    assert_eq!(select("stable", &[]).0, Some(0));
    publish("4.12.0");
    assert_eq!(select("stable", &[]).0, Some(4));

    // Another cache, and a deployment that has begun.
    bench.clear_cache();
    let dir = Home::new(bench.path("home")).cluster("lab");
    let chosen = json!({"program": "0", "installer": "4.19.3", "lb": "keepalived", "dns": "coredns",
        "dhcp": "platform", "mcs": "tls", "routers": [], "carriers": {}});
    Journal::open(&dir, "lab")
        .unwrap()
        .note(EffectiveSettings::STEP, &chosen)
        .unwrap();
    for (more, is_rejected) in [(&[][..], true), (&["--allow-downgrade"], false)] {
        let (_, said) = run(&["check"], "stable", more);
        assert_eq!(said.contains(&older("stable")), is_rejected, "{said}");
    }
}
