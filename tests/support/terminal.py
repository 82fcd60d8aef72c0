"""Answers `ocpdeploy init` on a pseudoterminal, with arrow keys, and checks what is shown during typing."""

import os
import pty
import re
import select
import sys

UP, DOWN, LEFT, ENTER, ESCAPE = "\x1b[A", "\x1b[B", "\x1b[D", "\r", "\x1b"
BEGIN, END, CUT, CUT_WORD, CUT_BEFORE = "\x01", "\x05", "\x0b", "\x17", "\x15"  # Ctrl-A, E, K, W, U
WHERE = b"\x1b[6n"
# The text to wait for, and the keys to type then.
SCRIPT = [
    ("? backend", ESCAPE),  # asked again
    ("? backend", DOWN * 4 + ENTER),  # the list begins at libvirt and ends with sim
    ("? sim_state", ENTER),
    ("? network", ENTER),
    ("? cluster", "Lab"),
    ("`Lab` is not a DNS label", CUT_BEFORE + "lab" + ENTER),  # shown before Enter
    ("? domain", "com" + BEGIN + "example." + END + " and more" + CUT_WORD * 2 + ENTER),
    ("? profile", BEGIN + END + CUT_BEFORE + DOWN),  # this list takes no letters
    ("> (other)", UP),
    ("> standard", ENTER),
    ("? masters", ENTER),
    ("? workers", ENTER),
    ("? api_ip", ENTER),
    ("? ingress_ip", ENTER),
    ("? numcpus", ENTER),
    ("? master_memory", ENTER),
    ("? worker_memory", ENTER),
    ("? disk_size", ENTER),
    ("? version", ENTER),
    ("? pub_key", ENTER),
    ("? pull_secret", "pull.json" + ENTER),
    ("? optional settings", DOWN * 2 + ENTER),  # it begins at none; after harvest come the networks
    ("? extra_networks", " " + DOWN + " " + ENTER),
    ("? optional settings", "disks"),
    ("empty disks", ENTER),
    ("? extra_disks", "100200" + LEFT * 3 + CUT + ENTER),
    ("? optional settings", ENTER),
    ("written to env.sh", ""),
]


def text(shown):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace"))


def main():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.argv[1], [sys.argv[1], "init"])
    # Raw output: a piece may end within a character or a control sequence.
    shown, answered = b"", 0
    for wanted, keys in SCRIPT:
        while wanted not in (seen := text(shown)):
            ready, _, _ = select.select([terminal], [], [], 60)
            if not ready:
                sys.exit(f"timeout waiting for {wanted!r}; output since the last answer:\n{seen}")
            try:
                shown += os.read(terminal, 4096)
            except OSError:
                sys.exit(f"it ended before {wanted!r}:\n{seen}")
            # The program may query the position of the cursor.
            while shown.count(WHERE) > answered:
                os.write(terminal, b"\x1b[1;1R")
                answered += 1
        print(f"{wanted:30} seen")
        shown, answered = b"", 0
        os.write(terminal, keys.encode())
    _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


main()
