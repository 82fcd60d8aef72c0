//! The lock file: printed after a deployment; the next deployment uses its versions.

use ocpdeploy::digest::sha256;

use crate::support::fake_kube::world::Stage;
use crate::support::sandbox::outcome;
use crate::support::site::Site;

const FILE: &str = "ocpdeploy.lock.yaml";

#[test]
fn the_next_deployment_uses_the_versions_of_the_lock_file() {
    let site = Site::new(8, "version=stable\n");
    let path = |name: &str| site.sandbox.path().join(name);
    let config = |flags: &[&str]| site.sandbox.run(&[&["config", "lab.sh"], flags].concat());
    let none = config(&["--lock"]);
    assert_eq!(none.code, Some(4));
    assert!(none.stderr.contains("hint: run `ocpdeploy deploy`"), "{}", none.stderr);

    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    outcome(child).succeeded();
    drop(kube);
    let image = sha256(std::fs::read(path("node.qcow2")).unwrap());
    let locked = config(&["--lock"]).succeeded().stdout;
    assert_eq!(
        locked,
        format!(
            "v: 1\nocpdeploy: \"{}\"\ninstaller: \"4.19.0\"\n\
             release_image: registry.example.com/ocp/release@sha256:4190\nimages:\n  image: sha256:{image}\n",
            env!("CARGO_PKG_VERSION")
        )
    );
    site.sandbox.run(&["destroy", "lab", "--yes"]).succeeded();

    let lock = |text: &str| std::fs::write(path(FILE), text).unwrap();
    lock(&locked);
    let shown = config(&[]).succeeded().stdout;
    let line = shown.lines().find(|line| line.starts_with("version "));
    assert!(
        line.is_some_and(|line| line.contains("4.19.0") && line.contains(FILE)),
        "{shown}"
    );

    // Other content of the files in the settings.
    std::fs::write(path("node.qcow2"), b"QFI\xfb a newer node").unwrap();
    let other = sha256(std::fs::read(path("node.qcow2")).unwrap());
    for (locked, told) in [
        (
            locked.clone(),
            format!("image is sha256:{other}, and {FILE} requires sha256:{image}"),
        ),
        (
            locked.replace("sha256:4190", "sha256:4180"),
            format!(
                "the release image is registry.example.com/ocp/release@sha256:4190, and {FILE} requires \
                 registry.example.com/ocp/release@sha256:4180"
            ),
        ),
    ] {
        lock(&locked);
        let refused = site.deploy();
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(&told), "{}", refused.stderr);
        assert_eq!(site.machines(), [""; 0]);
    }

    // An invalid file, or one that conflicts with the settings.
    for (locked, setting, told) in [
        (locked.as_str(), "--set=version=4.20", format!("{FILE} requires 4.19.0")),
        (
            "v: 2\nocpdeploy: 1\ninstaller: 4.19.0\nrelease_image: null\nimages: {}\n",
            "--set=version=4.19",
            "unsupported version 2".to_owned(),
        ),
        ("v: 1\ninstaler: 4.19.0\n", "--set=version=4.19", format!("{FILE}:2:")),
    ] {
        lock(locked);
        let refused = config(&[setting]);
        assert_eq!(refused.code, Some(3), "{}", refused.stderr);
        assert!(refused.stderr.contains(&told), "{}", refused.stderr);
        assert!(refused.stderr.contains("remove"), "{}", refused.stderr);
    }
}
