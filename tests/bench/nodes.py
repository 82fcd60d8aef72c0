#!/usr/bin/env python3
"""Measures CPU time and memory of ocpdeploy itself for a complete deployment, by number of nodes.

Uses the simulated platform, so no machine runs. Prints the result as JSON, for record.py.
Usage: nodes.py PROGRAM [NODES...]
"""

import json
import os
import sys
import tempfile
import time

MASTERS = 3
WORLD = {
    "v": 1,
    "script": {"boot_ms": 0},
    "networks": {
        "default": {"cidr": "10.0.0.0/16", "gateway": "10.0.0.1", "dhcp_from": "10.0.1.0", "dhcp_to": "10.0.250.0"}
    },
}


def deploy(program, nodes):
    """CPU seconds (user and system), elapsed seconds, and peak memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/sim.json", "w") as state:
            json.dump(WORLD, state)
        with open(f"{folder}/lab.sh", "w") as env:
            env.write(f"cluster=lab\ndomain=example.com\nbackend=sim\nsim_state={folder}/sim.json\n")
            env.write(f"masters={MASTERS}\nworkers={nodes - MASTERS}\nimage=coreos\nharvest_image=helper\n")
            # A /14 has only 512 networks of the usual size /23.
            env.write("cluster_host_prefix=25\n")
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            quiet = os.open("/dev/null", os.O_WRONLY)
            os.dup2(quiet, 1)
            surroundings = {"HOME": folder, "OCPDEPLOY_HOME": f"{folder}/home"}
            os.execve(program, [program, "-q", "deploy", "lab.sh", "--rehearse"], surroundings)
        _, status, used = os.wait4(child, 0)
        if status != 0:
            sys.exit(f"deploying {nodes} nodes ended with {status}")
        return used.ru_utime + used.ru_stime, time.monotonic() - begun, used.ru_maxrss / 1024


def main():
    program = os.path.abspath(sys.argv[1])
    counts = [int(count) for count in sys.argv[2:]] or [10, 100, 300, 1000]
    rows = [(nodes, *deploy(program, nodes)) for nodes in counts]
    columns = ["nodes", "CPU time, s", "elapsed, s", "memory, MiB", "CPU time for each node, ms"]
    rows = [[nodes, cpu, clock, memory, 1000 * cpu / nodes] for nodes, cpu, clock, memory in rows]
    json.dump({"columns": columns, "rows": rows}, sys.stdout)


main()
