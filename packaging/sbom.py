#!/usr/bin/env python3
"""sbom.py [CARGO FLAGS]: writes the software bill of materials of a build with these flags, as CycloneDX 1.5.

It lists the crates that are linked into the program, with their licenses and the checksums of Cargo.lock. It excludes crates
of build scripts and tests, and procedural macros.
"""

import datetime
import json
import os
import subprocess
import sys
import tomllib


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, text=True, capture_output=True).stdout


def main():
    host = next(line.split()[1] for line in subprocess.run(
        ["rustc", "-vV"], check=True, text=True, capture_output=True).stdout.splitlines() if line.startswith("host:"))
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--locked", "--filter-platform", host, *sys.argv[1:]))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    with open("Cargo.lock", "rb") as file:
        sums = {(lock["name"], lock["version"]): lock.get("checksum") for lock in tomllib.load(file)["package"]}

    def linked(identity):
        """The crates that a crate links."""
        found = []
        for dependency in nodes[identity]["deps"]:
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            macro = any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])
            if normal and not macro:
                found.append(dependency["pkg"])
        return sorted(set(found))

    def url(identity):
        package = packages[identity]
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(identity):
        package = packages[identity]
        entry = {
            "type": "library" if identity != root else "application",
            "bom-ref": url(identity),
            "name": package["name"],
            "version": package["version"],
            "purl": url(identity),
        }
        if package.get("license"):
            # Cargo once allowed `/` for `OR`, which SPDX does not.
            entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        checksum = sums.get((package["name"], package["version"]))
        if checksum:
            entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return entry

    reached, waiting = {root}, [root]
    while waiting:
        for identity in linked(waiting.pop()):
            if identity not in reached:
                reached.add(identity)
                waiting.append(identity)
    moment = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    others = sorted(reached - {root}, key=url)
    json.dump({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": component(root)},
        "components": [component(identity) for identity in others],
        "dependencies": [{"ref": url(identity), "dependsOn": [url(one) for one in linked(identity)]}
                         for identity in [root, *others]],
    }, sys.stdout, indent=1)
    print()


main()
