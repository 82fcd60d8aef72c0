//! Signatures of release images, made with GnuPG: a release that no verified program names must be signed.

use std::path::Path;
use std::process::Stdio;

use crate::security::signatures::Gpg;
use crate::support::fake_installer;
use crate::support::mirror::{Mirror, Served};
use crate::support::sandbox::{Outcome, Sandbox, outcome};
use serde_json::json;

const REPOSITORY: &str = "registry.example.com/ocp/release";

/// A release by digest that the fake `oc` finds, and a store of signatures.
struct Bench {
    sandbox: Sandbox,
    store: Mirror,
    digest: String,
    gpg: Gpg,
}

impl Bench {
    fn new() -> Self {
        let sandbox = Sandbox::new(json!({}));
        fake_installer::install(sandbox.path());
        let digest = format!("4190{}", "a".repeat(60));
        std::fs::write(
            sandbox.path().join("oc.images"),
            format!("{REPOSITORY}@sha256:{digest} {REPOSITORY}:4.19"),
        )
        .unwrap();
        let gpg = Gpg::new();
        std::fs::write(sandbox.path().join("key.asc"), gpg.export("ed")).unwrap();
        Self {
            sandbox,
            store: Mirror::start(),
            digest,
            gpg,
        }
    }

    /// The document of a signature, in the form of the vendor's.
    fn document(&self, kind: &str, digest: &str) -> Vec<u8> {
        let document = json!({"critical": {"image": {"docker-manifest-digest": format!("sha256:{digest}")},
            "type": kind, "identity": {"docker-reference": REPOSITORY}}, "optional": {"creator": "Example"}});
        document.to_string().into_bytes()
    }

    fn serve(&self, number: usize, message: Vec<u8>) {
        let path = format!("/store/sha256={}/signature-{number}", self.digest);
        self.store.serve(&path, Served::new(message));
    }

    /// Runs `check` with a release in place of the installer's.
    fn check(&self, image: &str, store: &str) -> Outcome {
        let lines = format!(
            "{}image=coreos\nharvest_image=helper\ninstaller_mirror_key=key.asc\nsignature_store={store}\n",
            fake_installer::LINES
        );
        self.sandbox.env("lab", &lines);
        let mut command = self.sandbox.command(&["check", "lab.sh"]);
        command.env("OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE", image);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        outcome(command.spawn().unwrap())
    }

    fn by_digest(&self) -> Outcome {
        self.check(
            &format!("{REPOSITORY}@sha256:{}", self.digest),
            &self.store.url("/store"),
        )
    }
}

const KIND: &str = "atomic container signature";

/// Whether `oc` was run to read the release's images.
fn was_read(folder: &Path) -> bool {
    std::fs::remove_file(folder.join("oc.seen")).is_ok()
}

#[test]
fn a_release_is_read_if_a_trusted_key_has_signed_its_digest() {
    let bench = Bench::new();
    let signed = |key: &str, document: &[u8]| bench.gpg.sign(key, &["--sign"], document);
    let good = signed("ed", &bench.document(KIND, &bench.digest));
    bench.serve(1, good.clone());
    let said = bench.by_digest();
    assert!(said.stderr.contains("is signed with key"), "{}", said.stderr);
    assert!(was_read(bench.sandbox.path()));

    // Another key's signature comes first.
    bench.serve(1, signed("other", &bench.document(KIND, &bench.digest)));
    bench.serve(2, good);
    let said = bench.by_digest();
    assert!(said.stderr.contains("is signed with key"), "{}", said.stderr);
    assert!(was_read(bench.sandbox.path()));
}

#[test]
fn a_release_with_invalid_signatures_is_not_read() {
    let bench = Bench::new();
    let other_digest = format!("4190{}", "b".repeat(60));
    for (key, document, why) in [
        ("other", bench.document(KIND, &bench.digest), "it is made with key"),
        ("expired", bench.document(KIND, &bench.digest), "has expired"),
        (
            "ed",
            bench.document(KIND, &other_digest),
            "it is a signature of sha256:4190b",
        ),
        (
            "ed",
            bench.document("cosign container image signature", &bench.digest),
            "it is of type cosign",
        ),
        ("ed", b"{}".to_vec(), "missing field `critical`"),
        ("ed", vec![b' '; 100_000], "it is too long"),
    ] {
        let how: &[&str] = match key {
            "expired" => &["--faked-system-time", "20240101T010000", "--sign"],
            _ => &["--sign"],
        };
        bench.serve(1, bench.gpg.sign(key, how, &document));
        let said = bench.by_digest();
        assert_eq!(said.code, Some(4), "{}", said.stderr);
        assert!(said.stdout.contains(why), "{why}: {}", said.stdout);
        assert!(!was_read(bench.sandbox.path()), "{why}");
    }
    bench.serve(1, b"no signature".to_vec());
    assert!(bench.by_digest().stdout.contains("not an OpenPGP signature"));
}

#[test]
fn a_release_that_cannot_be_verified_is_read_with_a_warning() {
    let bench = Bench::new();
    let by_digest = format!("{REPOSITORY}@sha256:{}", bench.digest);
    for (image, store, why) in [
        (by_digest.clone(), bench.store.url("/store"), "has no signature of it"),
        (by_digest, "http://127.0.0.1:1/store".to_owned(), "http://127.0.0.1:1"),
        (
            format!("{REPOSITORY}:4.19"),
            bench.store.url("/store"),
            "it has no sha256 digest",
        ),
    ] {
        let said = bench.check(&image, &store);
        assert!(
            said.stderr.contains("is not verified: ") && said.stderr.contains(why),
            "{why}: {}",
            said.stderr
        );
        assert!(was_read(bench.sandbox.path()), "{why}");
    }
}
