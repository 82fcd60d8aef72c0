"""scenario.py URL CA_FILE [UPLOAD_FILE]: oVirt's own SDK exercises the fake engine.

Every response is checked twice: by the SDK, and element by element against the elements that the SDK's readers know.
"""

import json
import re
import ssl
import sys
import urllib.request

import ovirtsdk4 as sdk
from ovirtsdk4 import types

import shapes

URL, CA = sys.argv[1], sys.argv[2]
ORIGIN = URL.removesuffix("/ovirt-engine")
TLS = ssl.create_default_context(cafile=CA)
IGNITION = '{"ignition":{"version":"3.2.0"}}'
GIB = 2**30


def control(deed, body=None):
    """Sends a command to the fake itself, not to its API."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{ORIGIN}/control/{deed}", data, context=TLS) as answer:
        return json.load(answer)


def connect(**changes):
    settings = dict(url=f"{URL}/api", username="admin@internal", password="letmein", ca_file=CA)
    connection = sdk.Connection(**(settings | changes))
    shapes.watch(connection)
    return connection


def refused(code, words, act):
    """The operation is rejected with this status, and the message contains this text."""
    try:
        act()
    except sdk.Error as error:
        text = str(error)
        assert getattr(error, "code", None) == code, (code, error.code, text)
        assert words in text, (words, text)
        return
    raise AssertionError(f"not refused: {words}")


def until(what, look, seconds=600):
    for _ in range(seconds):
        found = look()
        if found:
            return found
    raise AssertionError(f"never happened: {what}")


def vm_named(name, **changes):
    given = dict(
        name=name,
        comment="ocpdeploy:demo",
        description="a node",
        cluster=types.Cluster(name="Default"),
        template=types.Template(name="rhcos"),
        memory=4 * GIB,
        memory_policy=types.MemoryPolicy(guaranteed=4 * GIB),
        cpu=types.Cpu(topology=types.CpuTopology(sockets=1, cores=4, threads=1)),
        os=types.OperatingSystem(type="rhcos_x64", boot=types.Boot(devices=[types.BootDevice.HD])),
        type=types.VmType.SERVER,
        high_availability=types.HighAvailability(enabled=True, priority=1),
        initialization=types.Initialization(custom_script=IGNITION),
    )
    return types.Vm(**(given | changes))


def down(service):
    return until("down", lambda: service.get().status == types.VmStatus.DOWN)


def same(sent, shown, path=""):
    """The values that were sent are returned: the SDK silently drops values that it does not know."""
    for name, value in vars(sent).items():
        if value is None:
            continue
        seen = getattr(shown, name)
        name = f"{path}.{name}"
        if isinstance(value, sdk.Struct):
            same(value, seen, name)
        elif isinstance(value, list) and value and isinstance(value[0], sdk.Struct):
            continue
        else:
            assert seen == value, (name, value, seen)


def the_site(system):
    api = system.get()
    assert (api.product_info.version.major, api.product_info.version.minor) == (4, 5)
    clusters = system.clusters_service().list(search="name=Default")
    assert [cluster.name for cluster in clusters] == ["Default"]
    center = system.data_centers_service().data_center_service(clusters[0].data_center.id)
    assert center.get().status == types.DataCenterStatus.UP
    domains = center.storage_domains_service().list()
    assert {domain.name for domain in domains} == {"data", "slow", "iso"}
    assert all(domain.status == types.StorageDomainStatus.ACTIVE for domain in domains)
    system.storage_domains_service().list(search="name=data")
    profiles = system.vnic_profiles_service().list(follow="network")
    assert sum(profile.name == "ovirtmgmt" for profile in profiles) == 2, "names repeat"
    filters = {known.id: known.name for known in system.network_filters_service().list()}
    assert {profile.network_filter and filters[profile.network_filter.id] for profile in profiles} == {
        "vdsm-no-mac-spoofing", "clean-traffic", None}
    # One profile has no filter, but the engine follows the link anyway.
    refused(None, "isn't the expected XML", lambda: system.vnic_profiles_service().list(follow="network_filter"))
    pools = system.mac_pools_service().list()
    assert pools[0].allow_duplicates is False and pools[0].ranges[0].from_ < pools[0].ranges[0].to
    assert "rhcos_x64" in [known.name for known in system.operating_systems_service().list()]
    for service in [system.hosts_service(), system.network_filters_service(), system.affinity_labels_service()]:
        shapes.fine(service.list())
    return clusters[0], profiles


def machines(system, cluster, profiles):
    vms = system.vms_service()
    center = cluster.data_center.id
    profile = next(p for p in profiles if p.name == "ovirtmgmt" and p.network.data_center.id == center)
    asked = vm_named("demo-master-0")
    made = vms.add(asked, clone=False, query={"correlation_id": "ocpd_demo_1"})
    assert made.status == types.VmStatus.IMAGE_LOCKED
    vm = vms.vm_service(made.id)
    refused(409, "VM is locked. Please try again", lambda: vm.start(use_ignition=True))
    refused(409, "name is already in use", lambda: vms.add(asked))
    refused(409, "name is already in use", lambda: vms.add(asked, clone=True))
    down(vm)
    asked.cluster = asked.template = None
    same(asked, vm.get())

    nics = vm.nics_service()
    brought = nics.list()
    assert brought[0].mac.address.startswith("56:6f:f7:bb:"), "from the pool"
    mac = "52:54:00:00:00:10"
    nic = nics.nic_service(brought[0].id)
    nic.update(types.Nic(mac=types.Mac(address=mac), vnic_profile=types.VnicProfile(id=profile.id)))
    assert nic.get().mac.address == mac
    refused(409, "already in use by VM or snapshot: demo-master-0",
            lambda: nics.add(types.Nic(name="nic2", mac=types.Mac(address=mac.upper()))))
    refused(400, "required for add", lambda: nics.add(types.Nic(interface=types.NicInterface.VIRTIO)))
    second = nics.add(types.Nic(name="nic2", interface=types.NicInterface.VIRTIO,
                                vnic_profile=types.VnicProfile(id=profile.id)))
    nics.nic_service(second.id).remove()

    attachments = vm.disk_attachments_service()
    system_disk = attachments.list()[0]
    assert system_disk.id == system_disk.disk.id and system_disk.bootable
    one = attachments.attachment_service(system_disk.id)
    one.update(types.DiskAttachment(disk=types.Disk(provisioned_size=120 * GIB)))
    disk = system.disks_service().disk_service(system_disk.id)
    assert disk.get().status == types.DiskStatus.LOCKED
    refused(409, "The following disks are locked", lambda: vm.start(use_ignition=True))
    until("grown", lambda: disk.get().status == types.DiskStatus.OK)
    assert disk.get().provisioned_size == 120 * GIB
    refused(400, "must be larger", lambda: one.update(types.DiskAttachment(disk=types.Disk(provisioned_size=GIB))))
    extra = "e2e00000-0000-4000-8000-000000000001"
    system.disks_service().add(types.Disk(
        id=extra, name="extra", format=types.DiskFormat.COW, sparse=True, provisioned_size=50 * GIB,
        storage_domains=[types.StorageDomain(name="data")]))
    until("disk", lambda: system.disks_service().disk_service(extra).get().status == types.DiskStatus.OK)
    attachments.add(types.DiskAttachment(disk=types.Disk(id=extra), interface=types.DiskInterface.VIRTIO_SCSI,
                                         active=True, bootable=False))
    refused(409, "already attached", lambda: attachments.add(types.DiskAttachment(
        disk=types.Disk(id=extra), interface=types.DiskInterface.VIRTIO_SCSI, active=True, bootable=False)))

    system.tags_service().add(types.Tag(name="ocpdeploy-demo", description="x"))
    vm.tags_service().add(types.Tag(name="ocpdeploy-demo"))
    groups = system.clusters_service().cluster_service(cluster.id).affinity_groups_service()
    group = groups.add(types.AffinityGroup(name="demo-masters", vms_rule=types.AffinityRule(
        enabled=True, positive=False, enforcing=False)))
    member = groups.group_service(group.id).vms_service()
    member.add(types.Vm(id=made.id))
    assert [vm.id for vm in member.list()] == [made.id]
    assert groups.group_service(group.id).get().vms_rule.positive is False

    vm.start(use_ignition=True)
    assert vm.get().status == types.VmStatus.WAIT_FOR_LAUNCH
    until("up", lambda: vm.get().status == types.VmStatus.UP)
    assert control("boots")[-1] == {"name": "demo-master-0", "given": "ignition", "text": IGNITION}
    refused(409, "VM is running", lambda: vm.start(use_ignition=True))
    refused(409, "VM is running", vm.remove)
    assert vm.reported_devices_service().list() == [], "CoreOS has no agent"
    everything = "nics,disk_attachments,disk_attachments.disk,reported_devices,tags"
    found = vms.list(search="tag=ocpdeploy-demo", follow=everything, case_sensitive=True)
    assert [tag.name for tag in found[0].tags] == ["ocpdeploy-demo"]
    assert found[0].disk_attachments[0].disk.provisioned_size == 120 * GIB
    assert found[0].nics[0].mac.address == mac
    vm.stop()
    down(vm)
    vm.remove()
    refused(404, "", vm.get)
    assert disk.get().status == types.DiskStatus.LOCKED, "the row goes first"
    until("disk gone", lambda: not system.disks_service().list(search="name=extra"))
    refused(404, "", disk.get)
    assert member.list() == []
    groups.group_service(group.id).remove()


def harvest(system):
    """A machine of pass one: CentOS, cloud-init, an agent, addresses."""
    vms = system.vms_service()
    script = "bootcmd:\n- echo dhcp-client-id=mac\npackages:\n- qemu-guest-agent\n"
    made = vms.add(vm_named(
        "demo-harvest-0", template=types.Template(name="centos"), os=types.OperatingSystem(type="rhel_9x64"),
        initialization=types.Initialization(host_name="demo", user_name="core", authorized_ssh_keys="ssh-ed25519 A",
                                            custom_script=script)))
    vm = vms.vm_service(made.id)
    down(vm)
    mac = vm.nics_service().list()[0].mac.address
    vm.start(use_cloud_init=True)
    devices = until("reported", lambda: vm.reported_devices_service().list())
    mine = [device for device in devices if device.mac.address == mac]
    versions = {ip.version for ip in mine[0].ips}
    assert versions == {types.IpVersion.V4, types.IpVersion.V6} and len(devices) == 2
    boot = control("boots")[-1]
    assert boot["given"] == "cloud-init" and script in boot["text"]
    vm.shutdown()
    down(vm)
    # The machine was up once: a plain start passes no payload, and reports nothing.
    vm.start()
    assert control("boots")[-1]["given"] == "nothing"
    vm.stop()
    down(vm)
    vm.start(use_ignition=True)
    assert control("boots")[-1]["given"] == "nothing", "its system type is not CoreOS"
    vm.stop()
    down(vm)
    refused(409, "multiple initialization tags", lambda: vm.start(use_ignition=True, use_cloud_init=True))
    vm.remove()


def snapshots(system):
    vms = system.vms_service()
    vm = vms.vm_service(vms.add(vm_named("saved")).id)
    down(vm)
    kept = vm.snapshots_service()

    def regular():
        return [one for one in kept.list() if one.snapshot_type == types.SnapshotType.REGULAR]

    def save(description):
        made = kept.add(types.Snapshot(description=description, persist_memorystate=False))
        assert made.snapshot_status == types.SnapshotStatus.LOCKED and made.description == description
        refused(409, "VM is locked", lambda: kept.add(types.Snapshot(description="x", persist_memorystate=False)))
        one = kept.snapshot_service(made.id)
        until("saved", lambda: one.get().snapshot_status == types.SnapshotStatus.OK)
        down(vm)
        return one

    assert [one.snapshot_type for one in kept.list()] == [types.SnapshotType.ACTIVE]
    refused(400, "Snapshot [description] required for add", lambda: kept.add(types.Snapshot(persist_memorystate=False)))
    first, second = save("first"), save("second")
    assert [one.description for one in regular()] == ["first", "second"]
    assert regular()[0].date < regular()[1].date
    disks = vm.disk_attachments_service().list()
    assert [disk.id for disk in first.disks_service().list()] == [disk.id for disk in disks]
    vm.start()
    refused(409, "not down", lambda: first.restore(restore_memory=False))
    vm.stop()
    down(vm)
    # Later snapshots are deleted.
    first.restore(restore_memory=False)
    assert vm.get().status == types.VmStatus.IMAGE_LOCKED
    down(vm)
    assert [one.description for one in regular()] == ["first"]
    refused(404, "", second.get)
    refused(409, "not being previewed", vm.commit_snapshot)
    first.remove()
    assert first.get().snapshot_status == types.SnapshotStatus.LOCKED
    until("merged", lambda: not regular())
    refused(404, "", first.get)
    vm.remove()


def images(system, file):
    with open(file, "rb") as opened:
        data = opened.read()
    disks, transfers = system.disks_service(), system.image_transfers_service()
    disk_id = "e2e00000-0000-4000-8000-000000000002"
    disks.add(types.Disk(id=disk_id, name="image", format=types.DiskFormat.COW, initial_size=len(data), sparse=True,
                         content_type=types.DiskContentType.DATA, provisioned_size=GIB,
                         storage_domains=[types.StorageDomain(name="data")]))
    disk = disks.disk_service(disk_id)
    refused(409, "locked", lambda: transfers.add(types.ImageTransfer(disk=types.Disk(id=disk_id))))
    until("disk", lambda: disk.get().status == types.DiskStatus.OK)

    def begin():
        made = transfers.add(types.ImageTransfer(
            disk=types.Disk(id=disk_id), direction=types.ImageTransferDirection.UPLOAD,
            format=types.DiskFormat.COW, inactivity_timeout=120,
            timeout_policy=types.ImageTransferTimeoutPolicy.CANCEL))
        service = transfers.image_transfer_service(made.id)
        assert service.get().phase == types.ImageTransferPhase.INITIALIZING
        until("open", lambda: service.get().phase == types.ImageTransferPhase.TRANSFERRING)
        return service

    transfer = begin()
    refused(409, "is being transferred", begin)
    url = transfer.get().transfer_url
    send(url, "PUT", data[:100], {"Content-Range": "bytes 0-99/*"})
    send(url, "OPTIONS")
    send(url, "PUT", data[100:], {"Content-Range": f"bytes 100-{len(data) - 1}/*"})
    assert transfer.get().transferred == len(data)
    transfer.finalize()
    until("finished", lambda: transfer.get().phase == types.ImageTransferPhase.FINISHED_SUCCESS)
    assert disk.get().status == types.DiskStatus.OK
    until("gone", lambda: not transfers.list())
    refused(404, "", transfer.get)

    vms, templates = system.vms_service(), system.templates_service()
    made = vms.add(types.Vm(name="scaffold", cluster=types.Cluster(name="Default"),
                            template=types.Template(name="Blank")))
    vm = vms.vm_service(made.id)
    vm.disk_attachments_service().add(types.DiskAttachment(
        disk=types.Disk(id=disk_id), interface=types.DiskInterface.VIRTIO_SCSI, bootable=True, active=True))
    template = templates.add(types.Template(name="image", description="sha256", vm=types.Vm(id=made.id)))
    assert template.status == types.TemplateStatus.LOCKED
    refused(409, "locked", vm.remove)
    one = templates.template_service(template.id)
    until("template", lambda: one.get().status == types.TemplateStatus.OK)
    refused(409, "Template name is already in use",
            lambda: templates.add(types.Template(name="image", vm=types.Vm(id=made.id))))
    assert one.disk_attachments_service().list()[0].id != disk_id
    vm.remove()
    thin = vms.add(vm_named("thin", template=types.Template(id=template.id)))
    refused(409, "currently in use to create VM thin", one.remove)
    down(vms.vm_service(thin.id))
    refused(409, "being used by the following VMs: thin", one.remove)
    vms.vm_service(thin.id).remove()
    copy = vms.add(vm_named("copy", template=types.Template(id=template.id)), clone=True)
    down(vms.vm_service(copy.id))
    one.remove()
    vms.vm_service(copy.id).remove()

    # Not a qcow2 file: the engine verifies the volume.
    disk_id = "e2e00000-0000-4000-8000-000000000003"
    disks.add(types.Disk(id=disk_id, name="broken", format=types.DiskFormat.COW, provisioned_size=GIB,
                         storage_domains=[types.StorageDomain(name="data")]))
    disk = disks.disk_service(disk_id)
    until("disk", lambda: disk.get().status == types.DiskStatus.OK)
    transfer = begin()
    send(transfer.get().transfer_url, "PUT", b"no image")
    transfer.finalize()
    until("failed", lambda: transfer.get().phase == types.ImageTransferPhase.FINISHED_FAILURE)
    until("disk gone", lambda: not disks.list(search="name=broken"))
    disk_id = "e2e00000-0000-4000-8000-000000000004"
    disks.add(types.Disk(id=disk_id, name="cancelled", format=types.DiskFormat.COW, provisioned_size=GIB,
                         storage_domains=[types.StorageDomain(name="data")]))
    until("disk", lambda: disks.disk_service(disk_id).get().status == types.DiskStatus.OK)
    transfer = begin()
    transfer.cancel()
    until("illegal", lambda: disks.disk_service(disk_id).get().status == types.DiskStatus.ILLEGAL)
    refused(409, "is being transferred", lambda: disks.disk_service(disk_id).remove())
    until("disk gone", lambda: not disks.list(search="name=cancelled"))


def send(url, method, data=None, headers=None):
    request = urllib.request.Request(url, data, headers or {}, method=method)
    with urllib.request.urlopen(request, context=TLS) as answer:
        return answer.read()


def searches(system):
    vms = system.vms_service()
    for name in ["find-a", "find-B", "find-c"]:
        vms.add(vm_named(name, template=types.Template(name="Blank")))

    def found(search, **more):
        return [vm.name for vm in vms.list(search=search, **more)]

    assert found('name="find-b"') == ["find-B"], "letters' case does not count"
    assert found('name="find-b"', case_sensitive=True) == []
    assert found("name=find-*", max=2) == ["find-a", "find-B"]
    assert found('name="find-a" or name="find-c" and status=down') == ["find-a", "find-c"]
    assert found("comment=ocpdeploy:demo and name!=find-a and name=find-*") == ["find-B", "find-c"]
    refused(400, "", lambda: found("name='find-a'"))
    refused(400, "", lambda: found('name="find-*"'))
    refused(400, "", lambda: found("mac=52:54:00:00:00:01"))
    for vm in vms.list(search="name=find-*"):
        vms.vm_service(vm.id).remove()


def faults(system):
    vms = system.vms_service()
    wrong = lambda **changes: connect(**changes).system_service().get()
    refused(None, "Cannot authenticate user", lambda: wrong(password="wrong"))
    refused(400, "too long", lambda: vms.add(vm_named("n" * 65)))
    refused(400, "special characters", lambda: vms.add(vm_named("a b")))
    refused(400, "Vm [name] required for add", lambda: vms.add(vm_named(None)))
    refused(400, "syntactically incorrect", lambda: vms.add(vm_named("x", soundcard_enabled=True)))
    refused(404, "", lambda: vms.add(vm_named("x", template=types.Template(name="none"))))
    refused(404, "", lambda: vms.vm_service("00000000-0000-4000-8000-0000000000ff").get())
    refused(400, "Operation failed", lambda: vms.vm_service("nothing").get())
    refused(400, "The correlation ID", lambda: vms.list(query={"correlation_id": "a@b"}))
    control("fault", {"method": "GET", "path": "/vms", "status": 503, "html": True})
    refused(None, "isn't the expected XML", lambda: vms.list())
    control("fault", {"method": "GET", "path": "/vms", "status": 409, "detail": "Related operation is currently in progress."})
    refused(409, "Related operation", lambda: vms.list())
    # The SDK itself requests a new token once.
    control("expire", {})
    vms.list()
    # Version 4.3 does not support CoreOS, and takes an unknown type for another one without an error.
    control("version", [4, 3, 10])
    made = vms.add(vm_named("unknown"))
    assert made.os.type == "other", made.os.type
    down(vms.vm_service(made.id))
    vms.vm_service(made.id).remove()
    made = vms.add(vm_named("old", os=types.OperatingSystem(type="rhel_7x64")))
    vm = vms.vm_service(made.id)
    down(vm)
    refused(400, "syntactically incorrect", lambda: vm.start(use_ignition=True))
    vm.start(use_cloud_init=True)
    assert control("boots")[-1] == {"name": "old", "given": "ignition", "text": IGNITION}
    vm.stop()
    down(vm)
    vm.remove()
    control("version", [4, 5, 7])


def main():
    shapes.requests_exist(control("shapes"))
    with connect() as connection:
        system = connection.system_service()
        cluster, profiles = the_site(system)
        machines(system, cluster, profiles)
        harvest(system)
        snapshots(system)
        images(system, sys.argv[3])
        searches(system)
        faults(system)
    print(f"the SDK saw {shapes.ANSWERS} answers, {len(shapes.SEEN)} kinds of elements")


main()
