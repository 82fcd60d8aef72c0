//! Objects of other owners with the name or the id of ours: never used, never deleted.

use ocpdeploy::backend::{BackendErrorKind as Kind, ImageRequest, MachineSpec, PlatformError};
use ocpdeploy::cluster::{Architecture, ClusterId, Role};
use ocpdeploy::digest;

use crate::support::cluster::cluster_id;
use crate::support::fake_engine::{Agent, FakeEngine, Fault, GIB, World};
use crate::support::ovirt_client::{Client, words};

const MIB: u64 = 1 << 20;
/// The size that a guest of `Client::image` sees.
const SIZE: u64 = 64 * MIB;

fn engine() -> FakeEngine {
    FakeEngine::with(|world| world.tick = 3_000)
}

fn cluster() -> ClusterId {
    cluster_id("lab", "example.com")
}

fn digest_of(image: &ImageRequest) -> String {
    match image {
        ImageRequest::File { sha256, .. } => sha256.clone(),
        ImageRequest::Platform(name) => panic!("{name} is no file"),
    }
}

/// As this program names the template of an image.
fn name_of(image: &ImageRequest) -> String {
    format!("ocpdeploy-image-{}", &digest_of(image)[..32])
}

fn mark_of(image: &ImageRequest) -> String {
    format!("ocpdeploy image, sha256 {}", digest_of(image))
}

fn upload(client: &Client, image: &ImageRequest, cluster: &ClusterId) -> Result<String, PlatformError> {
    let made = client.run(async |backend| backend.ensure_image(Role::Worker, cluster, image).await);
    made.map(|handle| handle.0)
}

fn destroy(client: &Client, cluster: &ClusterId) {
    client.run(async |backend| backend.delete_remaining(cluster).await.unwrap());
}

/// A template with these descriptions of itself and of its disk, named like the image.
fn plant(world: &mut World, image: &ImageRequest, descriptions: [&str; 2], size: u64) -> String {
    let name = name_of(image);
    let id = world.put_template(&name, size, "rhcos_x64", Agent::Never);
    let disk = world.disks.last_mut().unwrap();
    (disk.name, disk.description) = (name, descriptions[1].to_owned());
    world.templates.last_mut().unwrap().description = descriptions[0].to_owned();
    id
}

#[test]
fn a_template_of_an_images_name_that_is_not_its_upload_is_neither_used_nor_deleted() {
    let other = format!("ocpdeploy image, sha256 {}", "1".repeat(64));
    for case in ["no mark", "another mark", "another size", "another disk", "two disks"] {
        let engine = engine();
        let client = Client::of(&engine, |_| ());
        let image = client.image("coreos.qcow2", 1 << 20);
        let mark = mark_of(&image);
        let disk_mark = format!("{mark}, brought for other.example.com");
        let planted = engine.edit(|world| match case {
            "no mark" => plant(world, &image, ["", ""], SIZE),
            "another mark" => plant(world, &image, [&other, &disk_mark], SIZE),
            "another size" => plant(world, &image, [&mark, &disk_mark], 2 * SIZE),
            "another disk" => plant(world, &image, [&mark, &other], SIZE),
            _ => {
                let id = plant(world, &image, [&mark, &disk_mark], SIZE);
                let centos = world.templates.iter().find(|template| template.name == "centos");
                let second = centos.unwrap().disks[0].clone();
                world.templates.last_mut().unwrap().disks.push(second);
                id
            }
        });
        let refused = words(&upload(&client, &image, &cluster()).unwrap_err());
        assert!(
            refused.contains(&name_of(&image))
                && refused.contains(&planted)
                && refused.contains("set image or harvest_image"),
            "{case}: {refused}"
        );
        destroy(&client, &cluster());
        engine.look(|world| {
            let left = world.templates.iter().find(|template| template.id == planted);
            let disk = &left.unwrap_or_else(|| panic!("{case}: it was deleted")).disks[0].disk;
            assert!(world.disk(disk).is_some(), "{case}: its disk was deleted");
            assert_eq!((world.vms.len(), world.tags.len()), (0, 0), "{case}");
        });
    }
}

/// Whoever may create templates may add a version to any of them (oVirt/ovirt-engine:
/// `AddVmTemplateCommand.getPermissionCheckSubjects` asks for the data center only).
#[test]
fn a_version_that_somebody_added_to_an_uploaded_template_is_neither_used_nor_deleted() {
    for is_marked in [false, true] {
        let engine = engine();
        let client = Client::of(&engine, |_| ());
        let image = client.image("coreos.qcow2", 1 << 20);
        let mark = if is_marked { mark_of(&image) } else { String::new() };
        let handle = upload(&client, &image, &cluster()).unwrap();
        let ours = engine.look(|world| world.templates.last().unwrap().id.clone());
        let version = engine.edit(|world| {
            let id = plant(world, &image, [&mark, &mark], SIZE);
            world.templates.last_mut().unwrap().version = 2;
            id
        });
        let spec = MachineSpec {
            image: ocpdeploy::backend::ImageHandle(handle),
            ..client.spec("lab")
        };
        upload(&client, &image, &cluster_id("other", "example.com")).unwrap();
        client.run(async |backend| backend.create_machine(&spec).await.unwrap());
        engine.look(|world| assert_eq!(world.vms[0].template, ours, "marked: {is_marked}"));
        client.run(async |backend| backend.delete_machine(&spec.cluster, &spec.name).await.unwrap());
        destroy(&client, &cluster());
        destroy(&client, &cluster_id("other", "example.com"));
        engine.look(|world| {
            let is_there = |id: &str| world.templates.iter().any(|template| template.id == id);
            assert!(is_there(&version) && !is_there(&ours), "marked: {is_marked}");
        });
    }
}

/// The id of an image's disk comes from its digest, so others can compute it.
#[test]
fn a_disk_with_the_id_of_an_images_disk_is_neither_used_nor_deleted() {
    let engine = engine();
    let client = Client::of(&engine, |_| ());
    let image = client.image("coreos.qcow2", 1 << 20);
    engine.fault(Fault::on("POST", "/imagetransfers").refused(400, "no"));
    upload(&client, &image, &cluster()).unwrap_err();
    let disk = engine.edit(|world| {
        let disk = world.disks.last_mut().unwrap();
        disk.description = "of somebody else".to_owned();
        disk.id.clone()
    });
    let body = format!(
        "<image_transfer><direction>upload</direction><format>cow</format><disk id=\"{disk}\"/></image_transfer>"
    );
    engine.ask("POST", "/imagetransfers", &body);
    let refused = upload(&client, &image, &cluster()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict, "{}", words(&refused));
    assert!(words(&refused).contains(&disk), "{}", words(&refused));
    destroy(&client, &cluster());
    engine.look(|world| {
        assert!(world.disk(&disk).is_some(), "the disk was deleted");
        let phase = &world.transfers[0].phase;
        assert!(
            !phase.starts_with("cancelled"),
            "the upload of another owner was cancelled"
        );
        assert!(world.tags.is_empty());
    });
}

#[test]
fn a_machine_of_an_images_name_neither_blocks_destroy_nor_is_deleted() {
    let engine = engine();
    let client = Client::of(&engine, |_| ());
    let image = client.image("coreos.qcow2", 1 << 20);
    upload(&client, &image, &cluster()).unwrap();
    engine.edit(|world| world.put_vm(&name_of(&image)));
    destroy(&client, &cluster());
    engine.look(|world| assert_eq!((world.vms.len(), world.templates.len(), world.tags.len()), (1, 3, 0)));
}

#[test]
fn a_disk_with_the_id_of_an_extra_disk_is_not_attached() {
    let engine = engine();
    let client = Client::of(&engine, |_| ());
    let spec = client.spec("lab");
    let extra = |world: &World| {
        let disk = world.disks.iter().find(|disk| disk.name == "lab-master-0-extra-0");
        disk.unwrap().clone()
    };
    client.run(async |backend| backend.create_machine(&spec).await.unwrap());
    let mut disk = engine.look(extra);
    client.run(async |backend| backend.delete_machine(&spec.cluster, &spec.name).await.unwrap());
    disk.description = "of somebody else".to_owned();
    engine.edit(|world| world.disks.push(disk));
    let refused = client.run(async |backend| backend.create_machine(&spec).await.unwrap_err());
    assert_eq!(refused.kind(), Kind::Conflict, "{}", words(&refused));
    client.run(async |backend| backend.delete_machine(&spec.cluster, &spec.name).await.unwrap());
    engine.look(|world| assert_eq!(extra(world).description, "of somebody else"));
}

/// vdsm rounds the size of a disk, so that of the template is not that of the file.
#[test]
fn an_image_whose_size_the_engine_rounds_is_shared() {
    let engine = engine();
    let client = Client::of(&engine, |_| ());
    client.image("coreos.qcow2", 1 << 20);
    let path = client.path("coreos.qcow2");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[24..32].copy_from_slice(&(GIB + 512).to_be_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let (sha256, bytes) = (digest::sha256(&bytes), bytes.len() as u64);
    let image = ImageRequest::File {
        path,
        sha256,
        bytes,
        arch: Architecture::X86_64,
    };
    for cluster in ["lab", "other"] {
        upload(&client, &image, &cluster_id(cluster, "example.com")).unwrap();
    }
    engine.look(|world| assert_eq!(world.templates.len(), 4));
}

/// A downloaded image can be removed from the cache once it was uploaded.
#[test]
fn an_uploaded_image_is_used_without_its_file() {
    let engine = engine();
    let client = Client::of(&engine, |_| ());
    let image = client.image("coreos.qcow2", 1 << 20);
    let first = upload(&client, &image, &cluster()).unwrap();
    std::fs::remove_file(client.path("coreos.qcow2")).unwrap();
    assert_eq!(upload(&client, &image, &cluster()).unwrap(), first);
}
