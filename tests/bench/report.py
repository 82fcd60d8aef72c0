#!/usr/bin/env python3
"""Writes docs/reference/benchmarks.md from tests/bench/results/*.json.

report.py            writes the page
report.py adopt      first imports the results in target/bench
report.py check      fails if the page does not match the results
"""

import json
import shutil
import sys
import textwrap
from pathlib import Path

from record import ROOT, cell

RESULTS = ROOT / "tests/bench/results"
PAGE = ROOT / "docs/reference/benchmarks.md"

INTRODUCTION = """\
# Benchmarks

This page shows how fast `ocpdeploy` is, compared with other programs that do the same. Each table
is the result of one run on one machine. Results of different machines cannot be compared.

The page is generated: `make bench`, `make bench-download` and the other benchmarks write their
results to `target/bench`, and `make bench-page` imports them.
"""

# In the page's order: title and introduction of each bench.
BENCHES = {
    "libvirt": ("Create and delete machines on libvirt", """\
`make bench` creates machines of the same image on one libvirt, waits until each has an address, and
deletes them: with a parallel loop of virsh processes (the lower bound), with `ocpdeploy harvest`
and with kcli."""),
    "ignition": ("Merge and check Ignition configs", """\
`make bench-ignition` compares merging, checking and writing configs with reading and writing the
same JSON and the same bytes."""),
    "download": ("Download an image", """\
`make bench-download` downloads a gzip-compressed image from the same machine, verifies the digests
of the compressed and the decompressed file, and stores it. `curl | gunzip` verifies nothing."""),
    "upload-libvirt": ("Upload an image to libvirt", """\
`make bench-upload` transfers a compressed CoreOS image from a server on the same machine to a
platform. `ocpdeploy image push` verifies it; the other programs do not."""),
    "upload-openstack": ("Upload an image to OpenStack", """\
The same benchmark, with Glance in the OpenStack lab."""),
    "upload-ovirt": ("Upload an image to oVirt", """\
The same benchmark, with a real ovirt-imageio behind the fake engine. `ocpdeploy` also creates a
template."""),
    "nodes": ("Large clusters", """\
`make bench-nodes` deploys clusters on the simulated platform. The table shows the resources that
the program itself needs, without the time of machines."""),
}


def markdown(value):
    return cell(value).replace("|", "\\|")


def section(name, title, introduction):
    path = RESULTS / f"{name}.json"
    lines = [f"## {title}", "", introduction, ""]
    if not path.exists():
        return [*lines, "Not measured yet.", ""]
    result = json.loads(path.read_text(encoding="utf-8"))
    columns, rows = result["columns"], result["rows"]
    numbers = [all(isinstance(row[index], (int, float)) for row in rows) for index in range(len(columns))]
    lines.append(f"| {' | '.join(columns)} |")
    lines.append(f"|{'|'.join('--:' if number else '---' for number in numbers)}|")
    lines += [f"| {' | '.join(markdown(value) for value in row)} |" for row in rows]
    machine = result["machine"]
    notes = [
        *result.get("notes", []),
        f"Version {result['version']}, {result['date']}.",
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, {machine['system']}, Linux {machine['kernel']}.",
        f"Load of the machine at the end of the run: {machine['load']}.",
    ]
    wrapped = [textwrap.fill(f"* {note}", 100, subsequent_indent="  ", break_on_hyphens=False) for note in notes]
    return [*lines, "", *wrapped, ""]


def page():
    lines = [INTRODUCTION]
    for name, (title, introduction) in BENCHES.items():
        lines += section(name, title, introduction)
    return "\n".join(lines).rstrip() + "\n"


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "write"
    if what == "adopt":
        RESULTS.mkdir(exist_ok=True)
        for name in BENCHES:
            measured = ROOT / f"target/bench/{name}.json"
            if measured.exists():
                shutil.copy(measured, RESULTS)
    if what == "check":
        if PAGE.read_text(encoding="utf-8") != page():
            sys.exit(f"bench: {PAGE.relative_to(ROOT)} is outdated: run tests/bench/report.py")
        return
    PAGE.write_text(page(), encoding="utf-8")


main()
