//! Properties of the simulated platform beyond the contract of all backends (`tests/it/contract.rs`).

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::backend::{Nic, Payload, Power, Verdict};
use crate::cluster::{Architecture, Mac, NodeName, Pass, Role};
use crate::digest;

const IMAGE: &str = "coreos";

/// A platform whose file contains `json`, with one image.
fn platform(json: serde_json::Value) -> (tempfile::TempDir, Sim) {
    let folder = tempfile::tempdir().unwrap();
    let mut world = serde_json::json!({"v": 1, "images": [IMAGE], "script": {"boot_ms": 0}});
    world.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    let state = folder.path().join("deep/sim.json");
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    std::fs::write(&state, world.to_string()).unwrap();
    let sim = Sim::open(&SimConfig { state }).unwrap();
    (folder, sim)
}

fn fresh() -> (tempfile::TempDir, Sim) {
    platform(serde_json::json!({}))
}

fn lab() -> ClusterId {
    ClusterId::read("lab.example.com.x7k2pqrs").unwrap()
}

/// A machine of pass two with MAC ...:`index`.
fn spec(index: u8) -> MachineSpec {
    let node = NodeName::node(Role::Worker, usize::from(index));
    MachineSpec {
        cluster: lab(),
        name: MachineName::of_node("lab", &node),
        node,
        role: Role::Worker,
        pass: Pass::Two,
        arch: Architecture::X86_64,
        cpus: 1,
        memory_mib: 1024,
        disk_gib: 1,
        extra_disks_gib: vec![],
        image: ImageHandle(IMAGE.to_owned()),
        nics: vec![Nic {
            network: "default".to_owned(),
            mac: Mac([0x52, 0x54, 0, 0, 0, index]),
        }],
        payload: Payload::Ignition(b"{}".to_vec()),
        autostart: false,
        ipv6: None,
        creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
    }
}

/// The machine of pass one for the same node.
fn pass_one_spec(index: u8, network_config: &str) -> MachineSpec {
    MachineSpec {
        name: MachineName::of_harvest("lab", Role::Worker, usize::from(index)),
        pass: Pass::One,
        payload: Payload::CloudInit {
            user_data: String::new(),
            meta_data: String::new(),
            network_config: network_config.to_owned(),
        },
        ..spec(index)
    }
}

fn reservation(index: u8, ip: IpAddr) -> AddressReservation {
    AddressReservation {
        cluster: lab(),
        network: "default".to_owned(),
        assignment: AddressAssignment {
            name: spec(index).node,
            mac: spec(index).nics[0].mac,
            ip,
        },
        ipv6: None,
        dns_names: vec![],
        dns_later: false,
        allowed: vec![],
    }
}

async fn only_machine(sim: &Sim) -> Machine {
    let mut machines = sim.list_machines(&lab()).await.unwrap();
    assert_eq!(machines.len(), 1);
    machines.remove(0)
}

/// Creates a machine, deletes it, and returns its addresses.
async fn addresses_of(sim: &Sim, spec: &MachineSpec) -> Vec<IpAddr> {
    sim.create_machine(spec).await.unwrap();
    let addresses = only_machine(sim).await.nics.remove(0).addresses;
    sim.delete_machine(&lab(), &spec.name).await.unwrap();
    addresses
}

fn kind_and_text(error: &BackendError) -> (BackendErrorKind, String) {
    (error.kind, error.message.clone())
}

#[tokio::test]
async fn invalid_machines_are_rejected() {
    use BackendErrorKind::{Conflict, NotFound, Quota, Rejected, TooLarge};
    let (_folder, sim) = platform(serde_json::json!({
        "limits": {"memory_mib": 4096, "carrier_bytes": 10},
        "foreign_machines": {"lab-worker-9": {"macs": ["52:54:00:00:00:77"]}},
    }));
    sim.create_machine(&spec(1)).await.unwrap();
    type Change = fn(&mut MachineSpec);
    let table: [(Change, BackendErrorKind, &str); 11] = [
        (
            |s| s.nics[0].mac = spec(1).nics[0].mac,
            Conflict,
            "MAC 52:54:00:00:00:01 is in use by machine lab-worker-1",
        ),
        (
            |s| s.nics[0].mac = Mac([0x52, 0x54, 0, 0, 0, 0x77]),
            Conflict,
            "in use by machine lab-worker-9",
        ),
        (
            |s| s.nics[0].mac = Mac([1, 0, 0x5e, 0, 0, 1]),
            Rejected,
            "01:00:5e:00:00:01 is not a unicast MAC",
        ),
        (|s| s.nics.push(s.nics[0].clone()), Rejected, "two NICs have MAC"),
        (|s| s.nics.clear(), Rejected, "a machine requires a NIC"),
        (|s| s.nics[0].network = "lan".to_owned(), NotFound, "no network lan"),
        (
            |s| s.image = ImageHandle("other".to_owned()),
            NotFound,
            "no image other",
        ),
        (
            |s| s.payload = Payload::Ignition(vec![b' '; 11]),
            TooLarge,
            "has 11 bytes, the limit is 10",
        ),
        (
            |s| s.name = "lab-worker-9".parse().unwrap(),
            Conflict,
            "belongs to another owner",
        ),
        (
            |s| s.memory_mib = 3073,
            Quota,
            "3073 MiB of memory requested, 3072 MiB free",
        ),
        (|s| s.disk_gib = 0, Rejected, "requires a CPU, memory and a disk"),
    ];
    for (change, kind, part) in table {
        let mut spec = spec(2);
        change(&mut spec);
        let error = sim.create_machine(&spec).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(part), "{error} lacks {part}");
    }
    only_machine(&sim).await;
}

#[tokio::test]
async fn invalid_reservations_are_rejected() {
    use BackendErrorKind::{Conflict, NotFound, Rejected};
    let (_folder, sim) = fresh();
    sim.create_machine(&spec(1)).await.unwrap();
    let leased = only_machine(&sim).await.nics[0].addresses[0];
    let held = IpAddr::from([192, 168, 122, 9]);
    sim.reserve_address(&reservation(3, held)).await.unwrap();
    let lan = AddressReservation {
        network: "lan".to_owned(),
        ..reservation(2, held)
    };
    for (reservation, kind, part) in [
        (
            reservation(2, IpAddr::from([192, 168, 122, 1])),
            Rejected,
            "192.168.122.1 is not a machine address",
        ),
        (
            reservation(2, IpAddr::from([192, 168, 122, 255])),
            Rejected,
            "192.168.122.255 is not a machine address",
        ),
        (
            reservation(2, IpAddr::from([10, 0, 0, 1])),
            Rejected,
            "machine address of 192.168.122.0/24",
        ),
        (reservation(2, leased), Conflict, "is leased to 52:54:00:00:00:01"),
        (
            reservation(2, held),
            Conflict,
            "is reserved for worker-3 of cluster lab.example.com",
        ),
        (
            reservation(3, IpAddr::from([192, 168, 122, 8])),
            Conflict,
            "MAC 52:54:00:00:00:03 has the reservation 192.168.122.9",
        ),
        (lan, NotFound, "no network lan"),
    ] {
        let (found, text) = kind_and_text(&sim.reserve_address(&reservation).await.unwrap_err());
        assert_eq!(found, kind, "{text}");
        assert!(text.contains(part), "{text} lacks {part}");
    }
    assert_eq!(sim.list_reservations(&lab()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn addresses_are_listed_only_after_the_boot() {
    let (_folder, sim) = platform(serde_json::json!({"script": {"boot_ms": 3_600_000}}));
    sim.create_machine(&spec(1)).await.unwrap();
    let machine = only_machine(&sim).await;
    assert_eq!((machine.power, machine.nics[0].addresses.len()), (Power::Running, 0));
    sim.store
        .update(|world| {
            let boots = world.machines[&machine.name].boots_ms;
            world.advance(boots - 1);
            assert!(world.machines[&machine.name].nics[0].addresses.is_empty());
            world.advance(boots);
            assert_eq!(world.machines[&machine.name].nics[0].addresses.len(), 1);
        })
        .unwrap();
}

#[tokio::test]
async fn the_second_pass_gets_the_address_of_the_first_when_both_send_the_mac() {
    let (_folder, sim) = fresh();
    let first = addresses_of(&sim, &pass_one_spec(1, "dhcp-identifier: mac")).await;
    assert_eq!(first, addresses_of(&sim, &spec(1)).await);
    // With a DUID in pass one the DHCP server sees another client, as with real CentOS guests.
    let first = addresses_of(&sim, &pass_one_spec(2, "dhcp4: true")).await;
    assert_ne!(first, addresses_of(&sim, &spec(2)).await);
    // Unless the address is reserved for the MAC.
    let first = addresses_of(&sim, &pass_one_spec(3, "dhcp4: true")).await;
    sim.reserve_address(&reservation(3, first[0])).await.unwrap();
    assert_eq!(first, addresses_of(&sim, &spec(3)).await);
}

#[tokio::test]
async fn guests_misbehave_as_scripted() {
    let held = IpAddr::from([192, 168, 122, 50]);
    for (does, wanted) in [
        ("no_lease", vec![]),
        ("paused", vec![]),
        ("wrong_network", vec![IpAddr::from([10, 255, 0, 1])]),
    ] {
        let script = serde_json::json!({"script": {"boot_ms": 0, "guests": {"lab-worker-1": {"does": does}}}});
        let (_folder, sim) = platform(script);
        assert_eq!(addresses_of(&sim, &spec(1)).await, wanted, "{does}");
    }
    let script = |does| serde_json::json!({"script": {"boot_ms": 0, "guests": {"lab-worker-1": {"does": does}}}});
    let (_folder, sim) = platform(script("second_address"));
    let two = addresses_of(&sim, &spec(1)).await;
    assert!(two.len() == 2 && two[0] != two[1], "{two:?}");

    let (_folder, sim) = platform(script("moves"));
    sim.reserve_address(&reservation(1, held)).await.unwrap();
    let moved = addresses_of(&sim, &spec(1)).await;
    assert!(moved.len() == 1 && moved[0] != held, "{moved:?}");

    let (_folder, sim) = platform(script("paused"));
    sim.create_machine(&spec(1)).await.unwrap();
    assert!(matches!(only_machine(&sim).await.power, Power::Paused(_)));
    let console = sim.console_tail(&lab(), &spec(1).name).await.unwrap().unwrap();
    assert!(console.contains("the guest hangs"), "{console}");
}

#[tokio::test]
async fn a_timeout_may_come_before_or_after_the_operation() {
    for (what, made) in [("timeout_before", 0), ("timeout_after", 1)] {
        let faults = serde_json::json!([{"call": "create_machine", "what": what}]);
        let (_folder, sim) = platform(serde_json::json!({"script": {"faults": faults}}));
        let error = sim.create_machine(&spec(1)).await.unwrap_err();
        assert_eq!(error.kind, BackendErrorKind::Timeout);
        assert_eq!(sim.list_machines(&lab()).await.unwrap().len(), made, "{what}");
        let again = sim.create_machine(&spec(1)).await.unwrap();
        assert_eq!(matches!(again, Action::Unchanged(_)), made == 1, "{what}");
    }
}

#[tokio::test]
async fn a_platform_without_reservations_reports_unreserved_and_creates_nothing() {
    let (_folder, sim) = platform(serde_json::json!({"limits": {"reserves_addresses": false}}));
    assert!(!sim.capabilities().reserves_addresses);
    let answer = sim
        .reserve_address(&reservation(1, IpAddr::from([192, 168, 122, 9])))
        .await
        .unwrap();
    assert_eq!(answer, ReservationState::Unreserved);
    assert!(sim.list_owned(&lab()).await.unwrap().is_empty());
}

#[tokio::test]
async fn preflight_counts_addresses_and_memory() {
    let (_folder, sim) = platform(serde_json::json!({
        "limits": {"memory_mib": 2048},
        "networks": {"default": {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1",
                                 "dhcp_from": "10.0.0.2", "dhcp_to": "10.0.0.3"}},
    }));
    let needs = |count: u8, memory_mib| Requirements {
        networks: vec!["default".to_owned()],
        machines: (0..count).map(|i| (spec(i).name, vec![spec(i).nics[0].mac])).collect(),
        cluster: Some(lab()),
        memory_mib,
        ..Requirements::default()
    };
    let fails = async |needs: &Requirements| {
        let findings = sim.preflight(needs).await.unwrap();
        let fails = findings.into_iter().filter(|finding| finding.verdict == Verdict::Fail);
        fails.map(|finding| finding.text).collect::<Vec<_>>()
    };
    assert_eq!(fails(&needs(2, 2048)).await, [""; 0]);
    assert_eq!(
        fails(&needs(3, 2049)).await,
        [
            "network default has 2 free DHCP addresses, 3 required",
            "2049 MiB of memory required, 2048 MiB free"
        ]
    );
    // Existing machines require nothing.
    sim.create_machine(&spec(0)).await.unwrap();
    sim.create_machine(&spec(1)).await.unwrap();
    sim.list_machines(&lab()).await.unwrap();
    assert_eq!(fails(&needs(2, 2048)).await, [""; 0]);
}

#[tokio::test]
async fn an_image_file_must_match_its_digest_and_size() {
    let (folder, sim) = fresh();
    let path = folder.path().join("coreos.qcow2");
    std::fs::write(&path, b"image").unwrap();
    let request = |sha256: String, bytes| ImageRequest::File {
        path: path.clone(),
        sha256,
        bytes,
        arch: Architecture::X86_64,
    };
    let digest = digest::sha256(b"image");
    for bad in [request(digest.clone(), 4), request("00".to_owned(), 5)] {
        assert_eq!(
            sim.ensure_image(&lab(), &bad).await.unwrap_err().kind,
            BackendErrorKind::Rejected
        );
    }
    let handle = sim.ensure_image(&lab(), &request(digest.clone(), 5)).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        sim.ensure_image(&lab(), &request(digest.clone(), 5)).await.unwrap(),
        handle,
        "it exists already"
    );
    let other = ClusterId::read("other.example.com.x7k2pqrs").unwrap();
    sim.ensure_image(&other, &request(digest.clone(), 5)).await.unwrap();
    sim.delete_remaining(&lab()).await.unwrap();
    assert!(sim.list_owned(&lab()).await.unwrap().is_empty());
    sim.ensure_image(&lab(), &request(digest.clone(), 5))
        .await
        .expect("it remains for the other cluster");
    sim.delete_remaining(&lab()).await.unwrap();
    sim.delete_remaining(&other).await.unwrap();
    sim.ensure_image(&lab(), &request(digest.clone(), 5))
        .await
        .expect_err("it was deleted with the last cluster");
    let missing = ImageRequest::Platform("centos".to_owned());
    assert_eq!(
        sim.ensure_image(&lab(), &missing).await.unwrap_err().kind,
        BackendErrorKind::NotFound
    );
}

#[tokio::test]
async fn a_config_never_gets_into_the_file() {
    let (_folder, sim) = fresh();
    let mut spec = spec(1);
    spec.payload = Payload::Ignition(b"{\"canary\": 1}".to_vec());
    sim.create_machine(&spec).await.unwrap();
    let text = std::fs::read_to_string(sim.store.path()).unwrap();
    assert!(!text.contains("canary"));
    assert!(text.contains(&digest::sha512(b"{\"canary\": 1}")));
    let mode = std::fs::metadata(sim.store.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Locks are per open file, so threads exclude each other like processes.
#[test]
fn concurrent_writers_lose_nothing_and_readers_see_complete_files() {
    let (_folder, sim) = fresh();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                sim.store.read().expect("a complete file at any moment");
            }
        });
        let writers: Vec<_> = (0..8u8)
            .map(|writer| {
                let sim = &sim;
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_time()
                        .build()
                        .unwrap();
                    for index in 0..5 {
                        runtime.block_on(sim.create_machine(&spec(writer * 5 + index))).unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    let world = sim.store.read().unwrap();
    assert_eq!(world.machines.len(), 40);
}

#[tokio::test]
async fn a_damaged_file_is_an_error_that_names_it() {
    let (_folder, sim) = fresh();
    std::fs::write(sim.store.path(), "{\n  \"v\": 1,\n  nonsense").unwrap();
    let error = sim.list_machines(&lab()).await.unwrap_err();
    let (kind, text) = kind_and_text(&error);
    assert_eq!(kind, BackendErrorKind::Rejected);
    assert!(text.contains("sim.json") && text.contains("line 3"), "{text}");
    let state = sim.store.path().to_owned();
    assert!(Sim::open(&SimConfig { state }).is_err());
}

#[tokio::test]
async fn a_query_without_change_writes_nothing() {
    use std::os::unix::fs::MetadataExt;
    let (_folder, sim) = fresh();
    sim.create_machine(&spec(1)).await.unwrap();
    sim.list_machines(&lab()).await.unwrap();
    let inode = || std::fs::metadata(sim.store.path()).unwrap().ino();
    let before = inode();
    sim.list_machines(&lab()).await.unwrap();
    assert_eq!(before, inode(), "a write would have replaced the file");
}
