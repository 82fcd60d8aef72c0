"""Answers `ocpdeploy init` on a terminal of its own, with arrow keys, and sees what is shown while one types."""

import os
import pty
import re
import select
import sys
import time

DOWN, ENTER, ERASE = "\x1b[B", "\r", "\x7f"
# What is waited for, and what is typed then.
SCRIPT = [
    ("backend:", DOWN + ENTER),  # the list begins at libvirt, sim is next
    ("sim_state:", ENTER),
    ("network:", ENTER),
    ("cluster:", "Lab"),
    ("`Lab` is not a DNS name", ERASE * 3 + "lab" + ENTER),  # shown before Enter
    ("domain:", "example.com" + ENTER),
    ("profile:", "comp"),  # a list is narrowed by typing
    ("compact", ENTER),
    ("masters:", ENTER),
    ("workers:", ENTER),
    ("api_ip:", ENTER),
    ("ingress_ip:", ENTER),
    ("numcpus:", ENTER),
    ("master_memory:", ENTER),
    ("worker_memory:", ENTER),
    ("disk_size:", ENTER),
    ("version:", ENTER),
    ("pub_key:", ENTER),
    ("pull_secret:", "pull.json" + ENTER),
    ("further settings:", DOWN * 2 + ENTER),  # it begins at none; after harvest come the networks
    ("extra_networks:", " " + DOWN + " " + ENTER),
    ("further settings:", "disks"),
    ("empty disks", ENTER),
    ("extra_disks:", "100" + ENTER),
    ("further settings:", ENTER),
    ("written to env.sh", ""),
]


def main():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.argv[1], [sys.argv[1], "init"])
    seen, deadline = "", time.monotonic() + 60
    for wanted, keys in SCRIPT:
        while wanted not in seen:
            ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                sys.exit(f"waited in vain for {wanted!r}; since the last answer was shown:\n{seen}")
            try:
                piece = os.read(terminal, 4096).decode(errors="replace")
            except OSError:
                sys.exit(f"it ended before {wanted!r}:\n{seen}")
            # The program may ask where the cursor is.
            if "\x1b[6n" in piece:
                os.write(terminal, b"\x1b[1;1R")
            seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", piece)
        print(f"{wanted:30} seen")
        seen = ""
        os.write(terminal, keys.encode())
    _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


main()
