"""Uploads an image to oVirt as oVirt's own examples do: with its SDK, and one PUT of the whole file.

upload_by_sdk.py upload|clean URL USER PASSWORD CA FILE NAME. See oVirt/ovirt-engine-sdk:
sdk/examples/upload_disk.py for the order of the calls.
"""

import json
import os
import subprocess
import sys
import time

import ovirtsdk4 as sdk
from ovirtsdk4 import types


def until(condition):
    end = time.monotonic() + 300
    while not condition():
        if time.monotonic() > end:
            sys.exit("upload_by_sdk.py: the engine did not finish within 300 s")
        time.sleep(0.5)


def upload(system, ca, file, name):
    info = json.loads(subprocess.run(["qemu-img", "info", "--output", "json", file], check=True, capture_output=True).stdout)
    added = system.disks_service().add(types.Disk(
        name=name, format=types.DiskFormat.COW, initial_size=os.path.getsize(file), provisioned_size=info["virtual-size"],
        sparse=True, content_type=types.DiskContentType.DATA, storage_domains=[types.StorageDomain(name="data")]))
    disk = system.disks_service().disk_service(added.id)
    until(lambda: disk.get().status == types.DiskStatus.OK)
    transfers = system.image_transfers_service()
    transfer = transfers.image_transfer_service(transfers.add(types.ImageTransfer(
        disk=types.Disk(id=added.id), direction=types.ImageTransferDirection.UPLOAD, format=types.DiskFormat.COW)).id)
    until(lambda: transfer.get().phase == types.ImageTransferPhase.TRANSFERRING)
    subprocess.run(["curl", "-sSf", "--cacert", ca, "--upload-file", file, transfer.get().transfer_url], check=True)
    transfer.finalize()
    until(lambda: disk.get().status == types.DiskStatus.OK)


def clean(system, name):
    disks = system.disks_service()
    for disk in disks.list(search=f"name={name}"):
        disks.disk_service(disk.id).remove()
    # While a disk is being removed, the engine still lists it and refuses to remove it again.
    until(lambda: not disks.list(search=f"name={name}"))


def main():
    what, url, user, password, ca, file, name = sys.argv[1:]
    connection = sdk.Connection(url=f"{url}/api", username=user, password=password, ca_file=ca)
    system = connection.system_service()
    if what == "upload":
        upload(system, ca, file, name)
    else:
        clean(system, name)
    connection.close()


main()
