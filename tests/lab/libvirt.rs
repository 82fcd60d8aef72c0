//! The libvirt backend on a real libvirtd, checked with an independent client: `virsh`.
//!
//! Each test creates its own clusters and removes them; tests also check that nothing else on the host changes.

#![cfg(feature = "libvirt")]

use crate::support::cluster::cluster_id;
use crate::support::left_out::left_out;
use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use ocpdeploy::backend::libvirt::Libvirt;
use ocpdeploy::backend::{
    Action, AddressReservation, Backend, BackendErrorKind, ImageHandle, ImageRequest, MachineSpec, Nic, Payload, Power,
    Requirements, ReservationState,
};
use ocpdeploy::cluster::{
    AddressAssignment, Architecture, ClusterId, LibvirtConfig, Mac, MachineName, NodeName, Pass, Role, VirtType,
};
use ocpdeploy::digest;

const POOL: &str = "default";
const NETWORK: &str = "default";

fn uri() -> Option<String> {
    let uri = std::env::var("OCPDEPLOY_LAB_URI").ok();
    if uri.is_none() {
        eprintln!("skipped: OCPDEPLOY_LAB_URI names no libvirt");
    }
    uri
}

/// A unique name for each test, so that tests can run in parallel.
pub(super) fn cluster(test: &str) -> ClusterId {
    cluster_id(&format!("lv-{test}-{}", std::process::id()), "lab.test")
}

fn name_of(cluster: &ClusterId) -> &str {
    cluster.domain().name()
}

pub(super) async fn connect() -> Option<Libvirt> {
    let config = LibvirtConfig {
        uri: uri()?,
        pool: POOL.to_owned(),
        virt_type: VirtType::Qemu,
        disk_cache: Default::default(),
    };
    Some(Libvirt::connect(&config).await.unwrap())
}

pub(super) fn try_virsh(arguments: &[&str]) -> Output {
    let uri = uri().unwrap();
    Command::new("virsh")
        .args(["-q", "-c", &uri])
        .args(arguments)
        .output()
        .unwrap()
}

pub(super) fn virsh(arguments: &[&str]) -> String {
    let output = try_virsh(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "virsh {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// All objects of a host whose name contains `part`: domains, volumes, reservations and DNS records.
fn inventory(part: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for domain in virsh(&["list", "--all", "--name"]).split_whitespace() {
        all.insert(format!("domain {domain}"));
    }
    // Rejected while any client creates a volume.
    let begun = Instant::now();
    while !try_virsh(&["pool-refresh", POOL]).status.success() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the pool is always busy");
    }
    for line in virsh(&["vol-list", POOL]).lines() {
        all.extend(line.split_whitespace().next().map(|volume| format!("volume {volume}")));
    }
    for flags in [&["net-dumpxml", NETWORK][..], &["net-dumpxml", NETWORK, "--inactive"]] {
        for line in virsh(flags).lines() {
            if line.contains("<host ") || line.contains("<hostname>") {
                all.insert(format!("{} {}", flags.join(" "), line.trim()));
            }
        }
    }
    all.retain(|thing| thing.contains(part));
    all
}

/// The bytes of a volume, downloaded by another client.
fn download(volume: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    virsh(&["vol-download", "--pool", POOL, volume, file.path().to_str().unwrap()]);
    std::fs::read(file.path()).unwrap()
}

/// A unique qcow2 image that does not boot.
struct TestImage {
    folder: tempfile::TempDir,
    request: ImageRequest,
    key: String,
}

impl TestImage {
    fn new(unique: &str, mib: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let raw = folder.path().join("raw");
        let path = folder.path().join("image.qcow2");
        let mut bytes = vec![0; mib << 20];
        // Differs from every other test's in each block, so that QEMU keeps all of them.
        for (index, block) in bytes.chunks_mut(64).enumerate() {
            let digest = digest::sha256(format!("{unique} {index}"));
            block.copy_from_slice(digest.as_bytes());
        }
        std::fs::write(&raw, bytes).unwrap();
        let made = Command::new("qemu-img")
            .args(["convert", "-f", "raw", "-O", "qcow2"])
            .args([&raw, &path])
            .status();
        assert!(made.unwrap().success());
        let bytes = std::fs::read(&path).unwrap();
        let sha256 = digest::sha256(&bytes);
        let key = sha256[..32].to_owned();
        let bytes = bytes.len() as u64;
        Self {
            folder,
            request: ImageRequest::File {
                path,
                sha256,
                bytes,
                arch: Architecture::X86_64,
            },
            key,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image.qcow2")
    }
}

fn mac(cluster: &ClusterId, node: &str) -> Mac {
    let digest = digest::sha256(format!("{cluster} {node}"));
    format!("52:54:00:{}:{}:{}", &digest[..2], &digest[2..4], &digest[4..6])
        .parse()
        .unwrap()
}

pub(super) fn spec(cluster: &ClusterId, index: usize, image: &ImageHandle) -> MachineSpec {
    let node = NodeName::node(Role::Master, index);
    MachineSpec {
        cluster: cluster.clone(),
        name: MachineName::of_node(name_of(cluster), &node),
        role: Role::Master,
        pass: Pass::Two,
        arch: Architecture::X86_64,
        cpus: 1,
        memory_mib: 128,
        disk_gib: 1,
        extra_disks_gib: vec![],
        image: image.clone(),
        nics: vec![Nic {
            network: NETWORK.to_owned(),
            mac: mac(cluster, node.as_str()),
        }],
        node,
        payload: Payload::Ignition(br#"{"ignition":{"version":"3.1.0"}}"#.to_vec()),
        autostart: false,
        ipv6: None,
        creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
    }
}

/// Destroys a cluster, and checks with virsh that nothing remains.
pub(super) async fn destroy(backend: &Libvirt, cluster: &ClusterId) {
    let machines = backend.list_machines(cluster).await.unwrap();
    for outcome in join_all(
        machines
            .iter()
            .map(|machine| backend.delete_machine(cluster, &machine.name)),
    )
    .await
    {
        outcome.unwrap();
    }
    backend.delete_remaining(cluster).await.unwrap();
    assert_eq!(backend.list_owned(cluster).await.unwrap(), []);
    assert_eq!(inventory(name_of(cluster)), BTreeSet::new());
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn machines_are_created_adopted_and_deleted() {
    let Some(backend) = connect().await else { return };
    let cluster = cluster("life");
    let image = TestImage::new(cluster.domain().as_str(), 1);
    let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
    let mut specs: Vec<_> = (0..8).map(|index| spec(&cluster, index, &handle)).collect();
    specs[0].extra_disks_gib = vec![1, 2];
    specs[1].autostart = true;
    let begun = Instant::now();
    for made in join_all(specs.iter().map(|spec| backend.create_machine(spec))).await {
        assert!(matches!(made.unwrap(), Action::Done(machine) if machine.power == Power::Running));
    }
    println!("8 machines made in {:?}", begun.elapsed());
    let begun = Instant::now();
    let listed = backend.list_machines(&cluster).await.unwrap();
    println!("listed in {:?}", begun.elapsed());
    assert_eq!(listed.len(), 8);
    let begun = Instant::now();
    backend.list_machines(&cluster).await.unwrap();
    println!("listed again in {:?}", begun.elapsed());

    let first = specs[0].name.as_str();
    let described = virsh(&["dumpxml", first]);
    for part in [
        "<domain type='qemu'",
        "machine='pc-q35-",
        "<acpi/>",
        "opt/com.coreos/config",
        "dev='vdc'",
    ] {
        assert!(described.contains(part), "no {part} in {described}");
    }
    assert!(virsh(&["dominfo", specs[1].name.as_str()]).contains("Autostart:      enable"));
    assert_eq!(virsh(&["domstate", first]).trim(), "running");

    // The same machine is adopted; if it is off, it is started.
    let again = backend.create_machine(&specs[0]).await.unwrap();
    assert!(matches!(again, Action::Unchanged(_)));
    virsh(&["destroy", first]);
    let off = backend.list_machines(&cluster).await.unwrap();
    assert_eq!(off[0].power, Power::Off);
    let again = backend.create_machine(&specs[0]).await.unwrap();
    assert!(matches!(again, Action::Done(machine) if machine.power == Power::Running));

    // Another machine with this name is not adopted.
    let mut other = specs[0].clone();
    other.memory_mib += 1;
    let before = virsh(&["dumpxml", first]);
    let refused = backend.create_machine(&other).await.unwrap_err();
    assert_eq!(refused.kind, BackendErrorKind::Conflict);
    assert_eq!(virsh(&["dumpxml", first]), before);

    let begun = Instant::now();
    for outcome in join_all(specs.iter().map(|spec| backend.delete_machine(&cluster, &spec.name))).await {
        assert_eq!(outcome.unwrap(), Action::Done(()));
    }
    println!("8 machines deleted in {:?}", begun.elapsed());
    let left = inventory(name_of(&cluster));
    assert_eq!(left.len(), 1, "only the mark on the image: {left:?}");
    let again = backend.delete_machine(&cluster, &specs[0].name).await.unwrap();
    assert_eq!(again, Action::Unchanged(()));
    destroy(&backend, &cluster).await;
    assert_eq!(inventory(&image.key), BTreeSet::new());
}

/// libvirt validates each definition with its schema; QEMU starts the machine's firmware, which finds no system.
#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn machines_of_each_architecture_are_defined_and_started() {
    let Some(backend) = connect().await else { return };
    let cluster = cluster("arch");
    let image = TestImage::new(cluster.domain().as_str(), 1);
    let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
    for (index, (arch, expected)) in [
        (
            Architecture::X86_64,
            ["machine='pc-q35-", "<sysinfo type='fwcfg'>", "isa-serial"],
        ),
        (
            Architecture::Aarch64,
            ["machine='virt-", "<sysinfo type='fwcfg'>", "pl011"],
        ),
        (
            Architecture::Ppc64le,
            ["machine='pseries-", "<serial>ignition</serial>", "spapr-vty"],
        ),
        (
            Architecture::S390x,
            ["machine='s390-ccw-virtio-", "<serial>ignition</serial>", "sclpconsole"],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut spec = spec(&cluster, index, &handle);
        (spec.arch, spec.memory_mib) = (arch, 512);
        let needs = Requirements {
            architectures: [arch].into(),
            ..Requirements::default()
        };
        let findings = backend.preflight(&needs).await.unwrap();
        if let Some(missing) = findings
            .iter()
            .find(|finding| finding.text.contains("cannot run machines of"))
        {
            left_out(format!("machines of {arch}: {}", missing.text));
            continue;
        }
        backend.create_machine(&spec).await.unwrap();
        let described = virsh(&["dumpxml", spec.name.as_str()]);
        for part in expected {
            assert!(described.contains(part), "no {part} in {described}");
        }
        // Firmware that writes nothing would have another console.
        let console = async || backend.console_tail(&cluster, &spec.name).await.unwrap();
        let is_quiet = arch == Architecture::X86_64;
        let begun = Instant::now();
        while !is_quiet && console().await.is_none() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{arch}: nothing on the console"
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        backend.delete_machine(&cluster, &spec.name).await.unwrap();
    }
    destroy(&backend, &cluster).await;
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn a_machine_that_changes_its_state_is_in_every_listing() {
    let Some(backend) = connect().await else { return };
    let cluster = cluster("look");
    let image = TestImage::new(cluster.domain().as_str(), 1);
    let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
    let spec = spec(&cluster, 0, &handle);
    backend.create_machine(&spec).await.unwrap();

    // Changed by another client as fast as possible, until the last listing.
    let looking = Arc::new(AtomicBool::new(true));
    let changes = Arc::new(AtomicUsize::new(0));
    let script = format!("suspend {0}; resume {0}", spec.name.as_str());
    let restless = std::thread::spawn({
        let (looking, changes) = (Arc::clone(&looking), Arc::clone(&changes));
        move || {
            while looking.load(Ordering::Relaxed) {
                virsh(&[&script]);
                changes.fetch_add(2, Ordering::Relaxed);
            }
        }
    });
    // As many changes as listings: either may be faster.
    let (mut looks, mut absent) = (0, 0);
    while (looks < 100 || changes.load(Ordering::Relaxed) < 100) && !restless.is_finished() {
        absent += usize::from(backend.list_machines(&cluster).await.unwrap().is_empty());
        looks += 1;
    }
    looking.store(false, Ordering::Relaxed);
    restless.join().unwrap();
    assert_eq!(absent, 0, "of {looks} listings during {changes:?} changes");
    destroy(&backend, &cluster).await;
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn objects_of_other_owners_are_left_alone() {
    let Some(backend) = connect().await else { return };
    let (lab, lookalike) = (cluster("own"), cluster("own2"));
    let nested = cluster_id(name_of(&lookalike), lab.domain().as_str());
    let image = TestImage::new(lab.domain().as_str(), 1);
    let mut all = Vec::new();
    for id in [&lab, &lookalike, &nested] {
        let handle = backend.ensure_image(id, &image.request).await.unwrap();
        let mut spec = spec(id, 0, &handle);
        if id == &nested {
            spec.name = format!("{}-nested", spec.name).parse().unwrap();
        }
        backend.create_machine(&spec).await.unwrap();
        all.push(spec);
    }
    // Created manually: a domain with a node's name, a volume that resembles one of ours, and an overlay on our image.
    let stranger = format!("{}-master-9", name_of(&lab));
    let xml = tempfile::NamedTempFile::new().unwrap();
    let domain = format!(
        "<domain type='qemu'><name>{stranger}</name><memory unit='MiB'>64</memory><os><type arch='x86_64'>hvm</type></os></domain>"
    );
    std::fs::write(xml.path(), domain).unwrap();
    virsh(&["define", xml.path().to_str().unwrap()]);
    let decoy = format!("{}-master-0.qcow2", name_of(&lab));
    virsh(&["vol-create-as", POOL, &decoy, "1M", "--format", "qcow2"]);
    let base = format!("ocpdeploy_image_{}.qcow2", image.key);
    let by_hand = format!("{}-by-hand.qcow2", name_of(&lab));
    virsh(&[
        "vol-create-as",
        POOL,
        &by_hand,
        "1G",
        "--format",
        "qcow2",
        "--backing-vol",
        &base,
        "--backing-vol-format",
        "qcow2",
    ]);

    let name: MachineName = stranger.parse().unwrap();
    let refused = backend.delete_machine(&lab, &name).await.unwrap_err();
    assert_eq!(refused.kind, BackendErrorKind::Conflict);
    let refused = backend.delete_machine(&lab, &all[1].name).await.unwrap_err();
    assert_eq!(refused.kind, BackendErrorKind::Conflict);

    let before = inventory(name_of(&lookalike));
    backend.delete_machine(&lab, &all[0].name).await.unwrap();
    backend.delete_remaining(&lab).await.unwrap();
    assert_eq!(backend.list_owned(&lab).await.unwrap(), []);
    assert_eq!(inventory(name_of(&lookalike)), before);
    for id in [&lookalike, &nested] {
        assert_eq!(backend.list_machines(id).await.unwrap().len(), 1);
    }
    for (id, spec) in [(&lookalike, &all[1]), (&nested, &all[2])] {
        backend.delete_machine(id, &spec.name).await.unwrap();
        backend.delete_remaining(id).await.unwrap();
    }
    let expected = [
        format!("domain {stranger}"),
        format!("volume {decoy}"),
        format!("volume {by_hand}"),
    ];
    assert_eq!(inventory(&format!("{}-", name_of(&lab))), expected.clone().into());
    // The manually created overlay keeps the image.
    assert_eq!(inventory(&image.key), [format!("volume {base}")].into());
    virsh(&["undefine", &stranger]);
    for volume in [&decoy, &by_hand, &base] {
        virsh(&["vol-delete", "--pool", POOL, volume]);
    }
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn an_interrupted_creation_is_completed() {
    let Some(backend) = connect().await else { return };
    let cluster = cluster("cut");
    let image = TestImage::new(cluster.domain().as_str(), 1);
    let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
    let spec = spec(&cluster, 0, &handle);
    // Killed between the volumes and the domain: a partial Ignition file, a disk of another size, and an unneeded one.
    let volume = |part: &str| format!("ocpdeploy_{}_{}_{part}", cluster.tag(), spec.name);
    for (part, format) in [
        ("disk.qcow2", "qcow2"),
        ("config.ign", "raw"),
        ("extra-7.qcow2", "qcow2"),
    ] {
        virsh(&["vol-create-as", POOL, &volume(part), "3", "--format", format]);
    }
    backend.create_machine(&spec).await.unwrap();
    assert_eq!(download(&volume("config.ign")), br#"{"ignition":{"version":"3.1.0"}}"#);
    assert!(virsh(&["vol-info", "--pool", POOL, &volume("disk.qcow2")]).contains("1.00 GiB"));
    backend.delete_machine(&cluster, &spec.name).await.unwrap();

    // Killed between the domain and its start.
    backend.create_machine(&spec).await.unwrap();
    virsh(&["destroy", spec.name.as_str()]);
    assert!(matches!(backend.create_machine(&spec).await.unwrap(), Action::Done(_)));
    backend.delete_machine(&cluster, &spec.name).await.unwrap();

    // Killed in the middle and never repeated: no domain refers to the volumes.
    virsh(&["vol-create-as", POOL, &volume("disk.qcow2"), "1M", "--format", "qcow2"]);
    assert_eq!(backend.list_owned(&cluster).await.unwrap().len(), 2);
    destroy(&backend, &cluster).await;
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn an_interrupted_upload_is_repeated() {
    let Some(backend) = connect().await else { return };
    let cluster = cluster("upload");
    let image = TestImage::new(cluster.domain().as_str(), 3);
    let length = std::fs::metadata(image.path()).unwrap().len().to_string();
    let name = format!("ocpdeploy_image_{}.qcow2", image.key);
    // As an upload of a killed process: of full length, with a body and without a header.
    virsh(&["vol-create-as", POOL, &name, &length, "--format", "raw"]);
    let half = image.folder.path().join("half");
    let bytes = std::fs::read(image.path()).unwrap();
    std::fs::write(&half, &bytes[65536..1 << 20]).unwrap();
    virsh(&[
        "vol-upload",
        "--pool",
        POOL,
        &name,
        half.to_str().unwrap(),
        "--offset",
        "65536",
    ]);
    let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
    assert_eq!(handle.0, name);
    assert!(download(&name) == bytes, "the image is not the file");

    // A file with another digest never becomes an image.
    let mut wrong = TestImage::new(&format!("{cluster} wrong"), 1);
    if let ImageRequest::File { path, .. } = &mut wrong.request {
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let refused = backend.ensure_image(&cluster, &wrong.request).await.unwrap_err();
    assert_eq!(refused.kind, BackendErrorKind::LocalFile);
    assert!(!inventory(&wrong.key).iter().any(|thing| thing.contains("_image_")));
    destroy(&backend, &cluster).await;
    assert_eq!(inventory(&image.key), BTreeSet::new());
}

/// Runs in a process of its own, which `an_upload_whose_process_dies_is_taken_over` kills.
#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn upload_for_another_process() {
    let Some(path) = std::env::var_os("OCPDEPLOY_LAB_UPLOAD").map(PathBuf::from) else {
        return;
    };
    let Some(backend) = connect().await else { return };
    let bytes = std::fs::read(&path).unwrap();
    let request = ImageRequest::File {
        path,
        sha256: digest::sha256(&bytes),
        bytes: bytes.len() as u64,
        arch: Architecture::X86_64,
    };
    let cluster = cluster_id("lv-killed", "lab.test");
    backend.ensure_image(&cluster, &request).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn an_upload_whose_process_dies_is_taken_over() {
    let Some(backend) = connect().await else { return };
    let (cluster, killed) = (cluster("taken"), cluster_id("lv-killed", "lab.test"));
    let image = TestImage::new(cluster.domain().as_str(), 24);
    let name = format!("ocpdeploy_image_{}.qcow2", image.key);
    let mut uploader = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "libvirt::upload_for_another_process"])
        .env("OCPDEPLOY_LAB_UPLOAD", image.path())
        .spawn()
        .unwrap();
    let file = Path::new("/var/lib/libvirt/images").join(&name);
    let written = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&file).ok()?).checked_sub(8);
    let begun = Instant::now();
    while written().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was uploaded");
    }
    uploader.kill().unwrap();
    uploader.wait().unwrap();
    assert!(
        !std::fs::read(&file).unwrap().starts_with(b"QFI"),
        "the upload was complete before it was killed"
    );
    let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
    assert!(
        download(&handle.0) == std::fs::read(image.path()).unwrap(),
        "the image is not the file"
    );
    destroy(&backend, &killed).await;
    assert!(
        inventory(&image.key).contains(&format!("volume {name}")),
        "the other cluster still uses it"
    );
    destroy(&backend, &cluster).await;
    assert_eq!(inventory(&image.key), BTreeSet::new());
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn clusters_that_upload_and_delete_an_image_at_once_do_not_disturb_each_other() {
    let image = TestImage::new(&format!("share {}", std::process::id()), 8);
    let bytes = std::fs::read(image.path()).unwrap();
    let name = format!("ocpdeploy_image_{}.qcow2", image.key);
    for round in 0..3 {
        // Separate connections, as three programs have.
        let one = async |who: usize| {
            let backend = connect().await?;
            let cluster = cluster(&format!("share{who}"));
            // They start and end at different times in each round.
            tokio::time::sleep(Duration::from_millis((who * round * 20) as u64)).await;
            let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
            assert_eq!(handle.0, name);
            let spec = spec(&cluster, 0, &handle);
            backend.create_machine(&spec).await.unwrap();
            assert!(download(&name) == bytes, "the image is not the file");
            destroy(&backend, &cluster).await;
            Some(())
        };
        if join_all((0..3).map(one)).await.contains(&None) {
            return;
        }
        assert_eq!(inventory(&image.key), BTreeSet::new());
    }
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn payloads_arrive_unchanged() {
    let Some(backend) = connect().await else { return };
    let cluster = cluster("payload");
    let image = TestImage::new(cluster.domain().as_str(), 1);
    let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
    let mut ignition = spec(&cluster, 0, &handle);
    // The size of a real bootstrap.ign, and no multiple of a block size.
    let config = format!("{{\"x\":\"{}\"}}", "z".repeat(300_001)).into_bytes();
    ignition.payload = Payload::Ignition(config.clone());
    backend.create_machine(&ignition).await.unwrap();
    let volume = format!("ocpdeploy_{}_{}_config.ign", cluster.tag(), ignition.name);
    assert!(download(&volume) == config, "the Ignition file differs");
    assert!(virsh(&["vol-dumpxml", "--pool", POOL, &volume]).contains("<mode>0600</mode>"));

    let mut seeded = spec(&cluster, 1, &handle);
    (seeded.pass, seeded.role) = (Pass::One, Role::Helper);
    seeded.payload = Payload::CloudInit {
        user_data: "#cloud-config\nusers: []\n".to_owned(),
        meta_data: "instance-id: x\n".to_owned(),
        network_config: "version: 2\n".to_owned(),
    };
    backend.create_machine(&seeded).await.unwrap();
    let seed = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        seed.path(),
        download(&format!("ocpdeploy_{}_{}_seed.img", cluster.tag(), seeded.name)),
    )
    .unwrap();
    let label = Command::new("blkid")
        .args(["-p", "-s", "LABEL", "-o", "value"])
        .arg(seed.path())
        .output();
    assert_eq!(String::from_utf8(label.unwrap().stdout).unwrap(), "cidata\n");
    let read = Command::new("mtype")
        .arg("-i")
        .arg(seed.path())
        .arg("::user-data")
        .output();
    assert_eq!(
        String::from_utf8(read.unwrap().stdout).unwrap(),
        "#cloud-config\nusers: []\n"
    );
    destroy(&backend, &cluster).await;
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn the_console_is_read_and_its_log_deleted_with_its_machine() {
    let Some(backend) = connect().await else { return };
    let cluster = cluster("console");
    let image = TestImage::new(cluster.domain().as_str(), 1);
    let handle = backend.ensure_image(&cluster, &image.request).await.unwrap();
    let spec = spec(&cluster, 0, &handle);
    backend.create_machine(&spec).await.unwrap();
    // The image does not boot, and SeaBIOS writes nothing to the serial port by default: the test plays the guest.
    let log = format!(
        "/var/lib/libvirt/images/ocpdeploy_{}_{}_console.log",
        cluster.tag(),
        spec.name
    );
    assert!(Path::new(&log).exists(), "{log}");
    let lines: String = (0..5000).map(|line| format!("line {line}\r\n")).collect();
    std::fs::write(&log, lines).unwrap();
    // A rotated log is next to it.
    std::fs::write(format!("{log}.0"), "older").unwrap();
    let tail = backend.console_tail(&cluster, &spec.name).await.unwrap().unwrap();
    assert_eq!(tail.lines().count(), 20);
    assert!(tail.ends_with("line 4999"), "{tail}");
    let other = cluster_id("other", "lab.test");
    let refused = backend.console_tail(&other, &spec.name).await.unwrap_err();
    assert_eq!(refused.kind, BackendErrorKind::Conflict);
    destroy(&backend, &cluster).await;
    assert!(!Path::new(&log).exists());
}

/// Free addresses from the top of the network; the first `skip` are for other tests.
async fn free_addresses(backend: &Libvirt, skip: usize) -> impl Iterator<Item = IpAddr> {
    let facts = backend.network_facts(NETWORK).await.unwrap();
    let cidr = facts.cidr.unwrap();
    let IpAddr::V4(broadcast) = cidr.broadcast() else {
        panic!("{cidr}");
    };
    let all = (1..u32::from(broadcast)).rev().map(|bits| IpAddr::V4(bits.into()));
    all.filter(move |ip| !facts.taken.contains_key(ip)).skip(skip)
}

fn hold(cluster: &ClusterId, node: &str, ip: IpAddr) -> AddressReservation {
    let names: Vec<_> = match node {
        "api" => vec![cluster.domain().fqdn("api"), cluster.domain().fqdn("api-int")],
        "ingress" => vec![cluster.domain().fqdn("console-openshift-console.apps")],
        node => vec![cluster.domain().fqdn(node)],
    };
    AddressReservation {
        cluster: cluster.clone(),
        network: NETWORK.to_owned(),
        assignment: AddressAssignment {
            name: serde_json::from_value(node.into()).unwrap(),
            mac: mac(cluster, node),
            ip,
        },
        ipv6: None,
        dns_names: names,
        dns_later: false,
        allowed: vec![],
    }
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn addresses_are_reserved_for_exactly_one_cluster() {
    let Some(backend) = connect().await else { return };
    let lab = cluster("hold");
    let lookalike = cluster("hold-2");
    let nested = cluster_id("a", lab.domain().as_str());
    let everything = || inventory(name_of(&lab));
    let mut free = free_addresses(&backend, 40).await;
    let mut holds = Vec::new();
    for id in [&lab, &lookalike, &nested] {
        for node in ["master-0", "api", "ingress"] {
            let hold = hold(id, node, free.next().unwrap());
            let record = format!("<hostname>{}</hostname>", hold.dns_names[0]);
            // In the running and in the persistent network.
            for (dns_later, records) in [(true, 0), (false, 2), (false, 2), (true, 2)] {
                let hold = AddressReservation {
                    dns_later,
                    ..hold.clone()
                };
                assert_eq!(
                    backend.reserve_address(&hold).await.unwrap(),
                    ReservationState::ByPlatform
                );
                assert_eq!(inventory(&record).len(), records, "{record}, later: {dns_later}");
            }
            holds.push(hold);
        }
        assert_eq!(backend.list_reservations(id).await.unwrap().len(), 3);
    }
    let api = &holds[1];
    let AddressAssignment { mac, ip, .. } = api.assignment;
    let facts = backend.network_facts(NETWORK).await.unwrap();
    assert_eq!(facts.taken[&ip], Some(mac));
    assert!(facts.answers_dns && facts.resolvers.len() == 1, "{facts:?}");
    let now = everything();
    let entry = format!("<host mac='{mac}' name='api.{}.ocpdeploy' ip='{ip}'/>", lab.tag());
    for form in ["net-dumpxml default ", "net-dumpxml default --inactive "] {
        for wanted in [&entry, &format!("<hostname>api-int.{lab}</hostname>")] {
            assert!(now.contains(&format!("{form}{wanted}")), "no {wanted} in {now:?}");
        }
    }
    // A part was changed only in the running network, as by an older tool.
    virsh(&["net-update", NETWORK, "delete", "ip-dhcp-host", &entry, "--config"]);
    assert_ne!(everything(), now);
    backend.reserve_address(api).await.unwrap();
    assert_eq!(everything(), now);

    let clash = backend
        .reserve_address(&hold(&lookalike, "worker-0", ip))
        .await
        .unwrap_err();
    assert_eq!(clash.kind, BackendErrorKind::Conflict);
    let words = clash.message;
    assert!(words.contains(&format!("api.{lab}")), "{words}");

    for gone in [&lookalike, &nested, &lab] {
        let others: Vec<_> = [&lab, &lookalike, &nested]
            .into_iter()
            .filter(|id| *id != gone)
            .collect();
        let mut held = Vec::new();
        for other in &others {
            held.push(backend.list_reservations(other).await.unwrap());
        }
        backend.delete_remaining(gone).await.unwrap();
        assert_eq!(backend.list_reservations(gone).await.unwrap(), []);
        for (other, held) in others.iter().zip(held) {
            assert_eq!(backend.list_reservations(other).await.unwrap(), held);
        }
    }
    assert_eq!(everything(), BTreeSet::new());
}

/// A name server's answer for one name's IPv4 address, with the address at its end; `None` without an answer.
fn ask_dns(server: IpAddr, name: &str) -> Option<Vec<u8>> {
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.send_to(&query, (server, 53)).ok()?;
    let mut answer = vec![0; 512];
    let length = socket.recv(&mut answer).ok()?;
    answer.truncate(length);
    Some(answer)
}

#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn the_name_server_resolves_reserved_addresses() {
    let Some(backend) = connect().await else { return };
    let lab = cluster("dns");
    let ip = free_addresses(&backend, 60).await.next().unwrap();
    backend.reserve_address(&hold(&lab, "api", ip)).await.unwrap();
    // dnsmasq rereads its files with a delay.
    let begun = Instant::now();
    let server = backend.network_facts(NETWORK).await.unwrap().resolvers[0];
    loop {
        match ask_dns(server, &lab.domain().fqdn("api-int")) {
            None => {
                eprintln!("skipped: the network cannot be reached from here");
                break;
            }
            Some(answer) if matches!(ip, IpAddr::V4(ip) if answer.ends_with(&ip.octets())) => break,
            Some(answer) => assert!(begun.elapsed() < Duration::from_secs(10), "{answer:?}"),
        }
    }
    backend.delete_remaining(&lab).await.unwrap();
    assert_eq!(inventory(name_of(&lab)), BTreeSet::new());
}

/// The guest's terminal driver echoes input, so an echo shows that both directions work.
async fn sits_at_the_console(backend: &Libvirt, cluster: &ClusterId, name: &MachineName) {
    for keys in ["first seat", "second seat"] {
        let mut console = backend.attach_console(cluster, name).await.unwrap().unwrap();
        // The console is in use.
        let refused = backend.attach_console(cluster, name).await.map(drop).unwrap_err();
        assert!(
            refused
                .hint
                .as_deref()
                .is_some_and(|hint| hint.contains("the console is in use")),
            "{refused:?}"
        );
        console.keys.send(keys.as_bytes().to_vec()).await.unwrap();
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(keys) {
            let written = tokio::time::timeout(Duration::from_secs(60), console.screen.recv()).await;
            let written = written.unwrap_or_else(|_| panic!("no echo in {}", String::from_utf8_lossy(&seen)));
            seen.extend(written.unwrap().unwrap());
        }
        // After detaching, the console is free for the next session.
        drop(console.keys);
        while console.screen.recv().await.is_some() {}
    }
    let mut console = backend.attach_console(cluster, name).await.unwrap().unwrap();
    virsh(&["destroy", name.as_str()]);
    let end = async { while let Some(Ok(_)) = console.screen.recv().await {} };
    tokio::time::timeout(Duration::from_secs(60), end)
        .await
        .expect("it continues without a guest");
    let refused = backend.attach_console(cluster, name).await.map(drop).unwrap_err();
    assert!(
        refused
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("start the machine")),
        "{refused:?}"
    );
}

/// The address of the cluster's only machine, as soon as it is reported.
async fn address(backend: &dyn Backend, cluster: &ClusterId) -> IpAddr {
    let begun = Instant::now();
    loop {
        let machines = backend.list_machines(cluster).await.unwrap();
        if let Some(ip) = machines[0].nics[0].addresses.first() {
            return *ip;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "no address");
        tokio::time::sleep(backend.capabilities().poll_interval).await;
    }
}

/// Boots a real guest if `make` has built the rehearsal's images.
#[tokio::test]
#[ignore = "needs a libvirtd: make test-labs runs it"]
async fn a_guest_is_seen_with_its_address_and_its_console() {
    let Some(backend) = connect().await else { return };
    let path = std::env::var_os("OCPDEPLOY_LAB_IMAGE").map_or("target/images/helper.qcow2".into(), PathBuf::from);
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("skipped: no {}", path.display());
        return;
    };
    let cluster = cluster("guest");
    let request = ImageRequest::File {
        path,
        sha256: digest::sha256(&bytes),
        bytes: bytes.len() as u64,
        arch: Architecture::X86_64,
    };
    let handle = backend.ensure_image(&cluster, &request).await.unwrap();
    let mut spec = spec(&cluster, 0, &handle);
    spec.memory_mib = 192;
    spec.payload = Payload::CloudInit {
        user_data: String::new(),
        meta_data: String::new(),
        network_config: String::new(),
    };
    backend.create_machine(&spec).await.unwrap();
    let ip = address(&backend, &cluster).await;
    let leases = virsh(&["net-dhcp-leases", NETWORK, "--mac", &spec.nics[0].mac.to_string()]);
    assert!(leases.contains(&ip.to_string()), "{ip} is not in {leases}");
    let facts = backend.network_facts(NETWORK).await.unwrap();
    assert_eq!(facts.taken[&ip], Some(spec.nics[0].mac));
    let tail = backend.console_tail(&cluster, &spec.name).await.unwrap().unwrap();
    assert!(tail.contains(&ip.to_string()) || tail.lines().count() > 1, "{tail}");
    println!("{tail}");
    sits_at_the_console(&backend, &cluster, &spec.name).await;
    // The leased address of a deleted machine cannot be reserved by others until the lease ends.
    let mut other = hold(&cluster, "worker-0", ip);
    let clash = backend.reserve_address(&other).await.unwrap_err();
    assert_eq!(clash.kind, BackendErrorKind::Conflict);
    other.assignment.mac = spec.nics[0].mac;
    assert_eq!(
        backend.reserve_address(&other).await.unwrap(),
        ReservationState::ByPlatform
    );
    // Nor does its lease count as an address of the next machine with its MAC.
    backend.delete_machine(&cluster, &spec.name).await.unwrap();
    backend.create_machine(&spec).await.unwrap();
    let machines = backend.list_machines(&cluster).await.unwrap();
    assert!(machines[0].nics[0].addresses.is_empty(), "before it has booted");
    assert_eq!(
        backend.network_facts(NETWORK).await.unwrap().taken[&ip],
        Some(spec.nics[0].mac)
    );
    assert_eq!(address(&backend, &cluster).await, ip);
    destroy(&backend, &cluster).await;
}
