#!/usr/bin/env python3
"""Compares programs that upload a compressed CoreOS image to a platform. The programs alternate.

`ocpdeploy image push` downloads, decompresses and verifies the image. The others are `curl | gunzip`, which verifies
nothing, followed by the platform's usual program. A second cluster pushes the same image, which uploads nothing.

upload.py PLATFORM [ROUNDS]: libvirt and openstack in their labs, ovirt with the fake engine and the real ovirt-imageio.
PROGRAM is the program [target/release/ocpdeploy], MIB the size of the image's contents [1100]; its disk has 16 GiB.
SMALL=1 only shows that the benchmark works. Prints the result as JSON, for record.py.
"""

import contextlib
import functools
import hashlib
import http.server
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / os.environ.get("PROGRAM", "target/release/ocpdeploy")
SMALL = bool(os.environ.get("SMALL"))
MIB = 1 if SMALL else int(os.environ.get("MIB", "1100"))
# One directory for each platform, so that several can be measured at the same time.
WORK = ROOT / "target/bench/upload" / sys.argv[1]
PACKED = WORK.parent / f"www/coreos-{MIB}.qcow2.gz"
IMAGE = WORK / "image.qcow2"
NAME = "bench-upload"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, capture_output=True, **options).stdout


def shell(script):
    run("bash", "-euo", "pipefail", "-c", script, cwd=WORK)


def make_image():
    """Creates a mostly empty disk with a file system of typical system content."""
    shell(f"""
        rm -rf content; mkdir -p {PACKED.parent} content
        {{ tar c /usr/lib /usr/bin /usr/share 2>/dev/null; cat /dev/urandom; }} | head -c {MIB << 20} >content/system || true
        truncate -s 16G disk.raw
        /sbin/mke2fs -q -t ext4 -E lazy_itable_init=1,lazy_journal_init=1 -d content disk.raw
        qemu-img convert -O qcow2 disk.raw disk.qcow2
        gzip -6 <disk.qcow2 >packed
        rm -r content disk.raw disk.qcow2
        mv packed {PACKED}""")


def digest_and_size():
    digest, size, unpack = hashlib.sha256(), 0, zlib.decompressobj(wbits=31)
    with open(PACKED, "rb") as file:
        while piece := file.read(1 << 20):
            plain = unpack.decompress(piece)
            digest.update(plain)
            size += len(plain)
    return digest.hexdigest(), size


@contextlib.contextmanager
def served():
    """The image's address on the loopback."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=PACKED.parent))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/{PACKED.name}"
    server.shutdown()


class Libvirt:
    """The lab's pool `default`."""
    settings = "libvirt_virt_type=qemu\nlibvirt_storage_pool=default\n"
    note = ""

    def __init__(self):
        path = "".join(line for line in self.virsh("pool-dumpxml", "default").splitlines() if "<path>" in line)
        self.volume = Path(path.replace("<path>", "").replace("</path>", "").strip()) / f"{NAME}.qcow2"

    @staticmethod
    def virsh(*arguments):
        return run("virsh", "-q", "-c", "qemu:///system", *arguments)

    def others(self):
        return {"virsh vol-upload --sparse": self.by_virsh, "qemu-img convert": self.by_qemu_img}

    def by_virsh(self):
        self.virsh("vol-create-as", "default", self.volume.name, IMAGE.stat().st_size, "--format", "raw")
        self.virsh("vol-upload", "--pool", "default", self.volume.name, IMAGE, "--sparse")

    def by_qemu_img(self):
        run("qemu-img", "convert", "-O", "qcow2", IMAGE, self.volume)
        self.virsh("pool-refresh", "default")

    def clean(self):
        if self.volume.exists():
            self.virsh("vol-delete", "--pool", "default", self.volume.name)

    def close(self):
        pass


class OpenStack:
    """The lab's Glance, which stores images in files."""
    settings = "backend=openstack\nos_cloud=demo\nnetwork=private\n"
    note = "The lab's Glance; its clients and servers are on the same two cores."

    def others(self):
        return {"openstack image create": self.by_client}

    def by_client(self):
        run("openstack", "--os-cloud", "demo", "image", "create", "--disk-format", "qcow2", "--container-format", "bare",
            "--file", IMAGE, NAME)

    def clean(self):
        for image in json.loads(run("openstack", "--os-cloud", "demo", "image", "list", "--private", "-f", "json")):
            if image["Name"] == NAME:
                run("openstack", "--os-cloud", "demo", "image", "delete", image["ID"])

    def close(self):
        pass


class OVirt:
    """The fake engine, whose data goes to the real ovirt-imageio."""
    note = "The engine is the fake one, so the times of its own work are not real; ovirt-imageio is real."

    def __init__(self):
        run("cargo", "build", "--example", "fake-engine", cwd=ROOT)
        venv = ROOT / "target/ovirt-sdk/bin"
        self.python = venv / "python"
        self.engine = subprocess.Popen(
            [ROOT / "target/debug/examples/fake-engine", WORK / "ca.pem", venv / "ovirt-imageio"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        given = dict(self.engine.stdout.readline().split() for _ in range(4))
        self.access = [given["url"], given["user"], given["password"], WORK / "ca.pem"]
        (WORK / "password").write_text(given["password"])
        self.settings = (f"backend=ovirt\novirt_url={given['url']}\novirt_user={given['user']}\novirt_password_file=password\n"
                         "ovirt_ca=ca.pem\novirt_storage_domain=data\nmachine_network=192.168.99.0/24\n")

    def others(self):
        return {"the SDK, curl --upload-file": self.by_sdk}

    def by_sdk(self):
        run(self.python, ROOT / "tests/bench/upload_by_sdk.py", "upload", *self.access, IMAGE, NAME)

    def clean(self):
        run(self.python, ROOT / "tests/bench/upload_by_sdk.py", "clean", *self.access, IMAGE, NAME)

    def close(self):
        self.engine.stdin.close()
        self.engine.wait()


PLATFORMS = {"libvirt": Libvirt, "openstack": OpenStack, "ovirt": OVirt}


class Ours:
    """Two clusters that use the image."""

    def __init__(self, platform, url, digest):
        self.environment = {**os.environ, "OCPDEPLOY_HOME": str(WORK / "home")}
        (WORK / "key.pub").unlink(missing_ok=True)
        (WORK / "key").unlink(missing_ok=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", WORK / "key")
        (WORK / "pull-secret.json").write_text('{"auths":{"a.example.com":{"auth":"Zm9vOmJhcg=="}}}')
        for cluster in ("upload", "upload2"):
            (WORK / f"{cluster}.sh").write_text(
                f"cluster={cluster}\ndomain=example.com\n{platform.settings}downloads_dir={WORK}/cache\n"
                # Both are the same, so that only one image is uploaded, as by the other programs.
                f"image={url}#sha256={digest}\nharvest_image={url}#sha256={digest}\n"
                "pull_secret=pull-secret.json\npub_key=key.pub\n")

    def push(self, cluster):
        run(PROGRAM, "-q", "image", "push", f"{cluster}.sh", cwd=WORK, env=self.environment)

    def clean(self):
        for cluster in ("upload", "upload2"):
            if (WORK / "home/clusters" / cluster).exists():
                run(PROGRAM, "-q", "destroy", cluster, "--yes", cwd=WORK, env=self.environment)
        for folder in ("cache", "home"):
            shutil.rmtree(WORK / folder, ignore_errors=True)


def seconds(call):
    os.sync()
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def fetched(url, then):
    shell(f"curl -sSf {url} | gunzip >{IMAGE}")
    then()


def measure(platform, ours, url, rounds):
    """Seconds of each round, by name."""
    calls = {f"curl, gunzip, {name}": functools.partial(fetched, url, call) for name, call in platform.others().items()}
    calls["ocpdeploy image push"] = lambda: ours.push("upload")
    # Last, because it reuses the upload of the first cluster.
    calls["the same for a second cluster"] = lambda: ours.push("upload2")
    times = {name: [] for name in calls}
    for number in range(rounds):
        ours.clean()
        for name, call in calls.items():
            platform.clean()
            times[name].append(seconds(call))
            print(f"round {number + 1}: {name}: {times[name][-1]:.1f} s", file=sys.stderr)
    return times


def main():
    rounds = 1 if SMALL else int(sys.argv[2]) if len(sys.argv) > 2 else 3
    WORK.mkdir(parents=True, exist_ok=True)
    if not PACKED.exists():
        make_image()
    digest, size = digest_and_size()
    with contextlib.closing(PLATFORMS[sys.argv[1]]()) as platform, served() as url:
        ours = Ours(platform, url, digest)
        try:
            times = measure(platform, ours, url, rounds)
        finally:
            ours.clean()
            platform.clean()
            IMAGE.unlink(missing_ok=True)
    median = {name: statistics.median(each) for name, each in times.items()}
    best = min(value for name, value in median.items() if name.startswith("curl"))
    notes = [f"{PACKED.stat().st_size >> 20} MiB compressed, {size >> 20} MiB of qcow2, 16 GiB virtual; median of {rounds} rounds."]
    json.dump({"columns": ["by", "seconds", "ratio to the best other"],
               "rows": [[name, value, value / best] for name, value in median.items()],
               "notes": [*notes, *filter(None, [platform.note])]}, sys.stdout)


try:
    main()
except subprocess.CalledProcessError as error:
    sys.exit(f"upload.py: {' '.join(map(str, error.cmd))}\n{error.stdout or ''}{error.stderr or ''}")
