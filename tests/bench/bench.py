"""The benchmark itself; `run.sh` prepares it and starts it where it can reach the guests.

Prints the result as JSON, for record.py.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from leases import Watch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "target/bench"
IMAGE = ROOT / "target/images/helper.qcow2"
BINARY = ROOT / os.environ.get("PROGRAM", "target/release/ocpdeploy")
KCLI = WORK / "venv/bin/kcli"
VIRSH = ["virsh", "-q", "-c", "qemu:///system"]
BASE = "bench-base.qcow2"
NETWORK = "ocpd-bench"
STATUS = f"/var/lib/libvirt/dnsmasq/{NETWORK}.status"
MEMORY_MIB = 192
PARALLEL = 8
# Time limit for one guest under emulation on two busy cores, in seconds.
PATIENCE = 60


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, capture_output=True, **options).stdout


def timed(*command, **options):
    begun = time.time()
    run(*command, **options)
    return time.time() - begun


def pool_path():
    return Path(run(*VIRSH, "vol-path", "--pool", "default", BASE).strip())


def upload_base():
    """Uploads the image as a separate volume; its time counts neither for virsh nor for kcli."""
    run(*VIRSH, "vol-create-as", "default", BASE, IMAGE.stat().st_size, "--format", "qcow2")
    run(*VIRSH, "vol-upload", "--pool", "default", BASE, IMAGE)
    return pool_path()


def sweep():
    """Removes what a failed program left behind."""
    for name in run(*VIRSH, "list", "--all", "--name").split():
        if name.startswith(("bench-floor-", "benchkcli-")):
            subprocess.run([*VIRSH, "destroy", name], capture_output=True, check=False)
            run(*VIRSH, "undefine", name)
    for line in run(*VIRSH, "vol-list", "default").splitlines():
        volume = line.split()[0] if line.split() else ""
        if volume.startswith(("bench-floor-", "benchkcli-", BASE)):
            run(*VIRSH, "vol-delete", "--pool", "default", volume)
    subprocess.run([*VIRSH, "net-destroy", NETWORK], capture_output=True, check=False)


@contextmanager
def network():
    """A network without old leases: dnsmasq pings addresses before it offers them, so guests wait if many are in use."""
    path = WORK / "network.xml"
    path.write_text(f"""<network><name>{NETWORK}</name><bridge name='{NETWORK}'/><forward/>
<ip address='192.168.148.1' netmask='255.255.255.0'><dhcp><range start='192.168.148.2' end='192.168.148.254'/></dhcp></ip>
</network>""")
    run(*VIRSH, "net-create", path)
    try:
        yield
    finally:
        run(*VIRSH, "net-destroy", NETWORK)
        # dnsmasq's child process still reports leases, which libvirt would assign to the next network with this name.
        deadline = time.time() + PATIENCE
        while is_served():
            if time.time() > deadline:
                sys.exit(f"bench: dnsmasq of {NETWORK} still runs after {PATIENCE} s")
            time.sleep(0.1)
        Path(STATUS).unlink(missing_ok=True)


def is_served():
    """Whether a process of the network's DHCP server runs."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            # Bytes: the arguments of another program may not be text.
            if f"/{NETWORK}.conf".encode() in process.read_bytes():
                return True
        except OSError:
            continue
    return False


def fresh_macs(count):
    return [f"52:54:00:be:{random.randrange(256):02x}:{random.randrange(256):02x}" for _ in range(count)]


DOMAIN = """<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/><apic/></features>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='{disk}'/><target dev='vda' bus='virtio'/>
    </disk>
    <interface type='network'>
      <mac address='{mac}'/><source network='{network}'/><model type='virtio'/><rom enabled='no'/>
    </interface>
    <serial type='pty'/>
    <console type='pty'/>
  </devices>
</domain>
"""
VOLUME = """<volume>
  <name>{name}.qcow2</name>
  <capacity unit='GiB'>10</capacity>
  <target><format type='qcow2'/></target>
  <backingStore><path>{base}</path><format type='qcow2'/></backingStore>
</volume>
"""


RESERVATION = "<host mac='{mac}' ip='192.168.148.{last}'/>"


def floor(count, base, reserve=False):
    """Plain virsh: overlay, define, start; destroy, undefine, delete the volume. With `reserve`, first reserves an address."""
    folder = WORK / "floor"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for index, mac in enumerate(fresh_macs(count)):
        name = f"bench-floor-{index}"
        disk = base.parent / f"{name}.qcow2"
        (folder / f"{name}.xml").write_text(DOMAIN.format(name=name, network=NETWORK, memory=MEMORY_MIB, disk=disk, mac=mac))
        (folder / f"{name}.vol.xml").write_text(VOLUME.format(name=name, base=base))
        if reserve:
            (folder / f"{name}.host.xml").write_text(RESERVATION.format(mac=mac, last=index + 2))
    script = HERE / "floor.sh"
    watch, begun = Watch(STATUS), time.time()
    create = timed(script, "create", PARALLEL, folder, NETWORK)
    addresses = all_addresses(watch, count, begun)
    delete = timed(script, "delete", PARALLEL, folder, NETWORK)
    return {"create": create, "addresses": addresses, "delete": delete, "total": time.time() - begun}


def reserving_floor(count, base):
    """virsh which also reserves the addresses, as `ocpdeploy` does."""
    return floor(count, base, reserve=True)


def kcli(count, _base):
    """kcli, with one command for all machines of a step, as users run it."""
    home = WORK / "home"
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(home)}
    environment.pop("XDG_CONFIG_HOME", None)
    create = [KCLI, "create", "vm", "-i", BASE, "-c", count]
    for parameter in (f"memory={MEMORY_MIB}", "numcpus=1", f"nets=[{NETWORK}]", "disks=[10]", "cloudinit=false",
                      "virttype=qemu", "nested=false"):
        create += ["-P", parameter]
    watch, begun = Watch(STATUS), time.time()
    created = timed(*create, "benchkcli", env=environment)
    addresses = all_addresses(watch, count, begun)
    names = run(*VIRSH, "list", "--all", "--name").split()
    names = [name for name in names if name.startswith("benchkcli")]
    delete = timed(KCLI, "delete", "vm", "-y", *names, env=environment)
    return {"create": created, "addresses": addresses, "delete": delete, "total": time.time() - begun}


def all_addresses(watch, count, begun):
    """Seconds from the start until the last machine has its lease, according to the DHCP server's file."""
    if not watch.wait_for(count, PATIENCE * count):
        sys.exit(f"bench: {len(watch.seen)} of {count} machines have a lease after {PATIENCE * count} s")
    return max(when for when, _ in watch.stop().values()) - begun


def ours(count, _base):
    """`ocpdeploy harvest`: the times of its steps come from its journal."""
    name = f"bench{random.randrange(10**6)}"
    home = WORK / "state"
    shutil.rmtree(home, ignore_errors=True)
    masters = 3 if count >= 6 else 1
    env = WORK / "env.sh"
    env.write_text(f"""cluster={name}
domain=example.com
backend=libvirt
libvirt_virt_type=qemu
network={NETWORK}
libvirt_storage_pool=default
masters={masters}
workers={count - masters - 1}
harvest_memory={MEMORY_MIB}
images_dir={IMAGE.parent}
""")
    environment = {**os.environ, "OCPDEPLOY_HOME": str(home)}
    watch, begun = Watch(STATUS), time.time()
    try:
        run(BINARY, "harvest", "--rehearse", env, env=environment)
        total = time.time() - begun
        seen = watch.stop()
        folder = home / "clusters" / name
        steps = journal_times(folder / "journal.jsonl")
        late = noticed_after(folder, seen)
    finally:
        run(BINARY, "destroy", name, "--yes", env=environment)
    created, known = steps["pass-one/create"], steps["pass-one/leases"][1]
    return {
        "create": created[1] - created[0],
        "addresses": known - created[0],
        # A machine is deleted as soon as its own address is reserved.
        "delete": steps["pass-one/gone"][1] - known,
        "total": total,
        "noticed": late,
    }


def moment(text):
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()


def journal_times(path):
    """Step -> (begun, done), in seconds since the epoch."""
    begun, steps = {}, {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == "begun":
            begun[entry["step"]] = moment(entry["time"])
        # A note has no start.
        elif entry["event"] == "done" and entry["step"] in begun:
            steps[entry["step"]] = (begun[entry["step"]], moment(entry["time"]))
    return steps


def noticed_after(folder, seen):
    """For each machine, seconds from its lease until ocpdeploy accepted the address."""
    leases = {ip: when for when, ip in seen.values()}
    late = []
    for line in (folder / "log/ocpdeploy.jsonl").read_text().splitlines():
        event = json.loads(line)
        fields = event.get("fields", {})
        if fields.get("state") != "address":
            continue
        for ip, when in leases.items():
            # The source of the address may follow it.
            if fields.get("message", "").split(",")[0] == ip:
                late.append(moment(event["timestamp"]) - when)
    return late


def milliseconds(rounds, *command, **options):
    """The mean of many runs, without the first."""
    command = [str(part) for part in command]
    times = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        times.append(time.perf_counter() - begun)
    return statistics.mean(times[1:]) * 1000


def speed_of_the_program():
    env = WORK / "plan.sh"
    env.write_text(f"cluster=plan\ndomain=example.com\nworkers=497\nmasters=3\nimages_dir={IMAGE.parent}\n")
    environment = {**os.environ, "OCPDEPLOY_HOME": str(WORK / "state")}
    return {
        "help_ms": milliseconds(100, BINARY, "--help"),
        # For comparison: virsh spends most of this time loading libvirt's libraries.
        "virsh_version_ms": milliseconds(100, "virsh", "--version"),
        "plan_500_nodes_ms": milliseconds(20, BINARY, "plan", "--rehearse", env, env=environment),
    }


def median(rounds):
    keys = [key for key in rounds[0] if key != "noticed"]
    result = {key: statistics.median(one[key] for one in rounds) for key in keys}
    late = [seconds for one in rounds for seconds in one.get("noticed", [])]
    return {**result, "noticed": late} if late else result


def as_result(results, rounds, program):
    """The table, and notes on it."""
    rows = []
    for count, by in results.items():
        for name, times in by.items():
            row = [times[key] for key in ("create", "addresses", "delete", "total")]
            rows.append([count, name, *row, times["total"] / by.get("virsh", times)["total"]])
    columns = ["machines", "by", "create, s", "addresses, s", "delete, s", "total, s", "ratio to virsh"]
    notes = [f"Median of {rounds} rounds, each with all programs in turn."] if rounds > 1 else []
    late = [seconds for by in results.values() for seconds in by.get("ocpdeploy", {}).get("noticed", [])]
    if late:
        notes.append(f"ocpdeploy knew an address {statistics.median(late) * 1000:.0f} ms after its lease (median of "
                     f"{len(late)} machines), {max(late) * 1000:.0f} ms at most.")
    if any("virsh+net-update" in by for by in results.values()):
        notes.append("virsh+net-update is the same loop, which reserves each machine's address first.")
    notes.append("ocpdeploy also uploads the image, and reserves each address and two virtual IPs, after it has looked for 1.5 s "
                 "whether a machine uses them. It reserves a machine's address before it creates the machine: libvirt's DHCP "
                 "server pings an address for 3 s before it leases it, up to six times, but not a reserved one.")
    if program:
        notes.append(f"`ocpdeploy --help`: {program['help_ms']:.1f} ms (`virsh --version`: {program['virsh_version_ms']:.1f} ms); "
                     f"plan of 500 nodes: {program['plan_500_nodes_ms']:.0f} ms.")
    return {"columns": columns, "rows": rows, "notes": notes}


def main():
    sizes = [int(size) for size in sys.argv[1:]] or [3, 6, 12]
    rounds = int(os.environ.get("ROUNDS", "1"))
    without = os.environ.get("WITHOUT", "").split()
    contenders = {"virsh": floor, "virsh+net-update": reserving_floor, "ocpdeploy": ours, "kcli": kcli}
    if not KCLI.exists():
        without.append("kcli")
    contenders = {name: call for name, call in contenders.items() if name not in without}
    program = {} if "ocpdeploy" in without else speed_of_the_program()
    sweep()
    base = upload_base()
    results = {}
    try:
        for count in sizes:
            present = {name: call for name, call in contenders.items() if f"{name}:{count}" not in without}
            times = {name: [] for name in present}
            # The programs alternate, because a machine's speed varies over time.
            for _ in range(rounds):
                for name, call in present.items():
                    print(f"bench: {count} machines by {name}", file=sys.stderr)
                    with network():
                        times[name].append(call(count, base))
            results[count] = {name: median(of_rounds) for name, of_rounds in times.items()}
    finally:
        sweep()
        # Print the results even if a size failed.
        if results:
            json.dump(as_result(results, rounds, program), sys.stdout)


try:
    main()
except subprocess.CalledProcessError as error:
    sys.exit(f"bench: {' '.join(error.cmd)}\n{error.stdout or ''}{error.stderr or ''}")
