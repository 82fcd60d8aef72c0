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
    ("? backend", ESCAPE),  # there is no question before
    ("? backend", DOWN * 4 + ENTER),  # the list begins at libvirt and ends with sim
    ("? sim_state", ENTER),
    ("? network", ENTER),
    ("? cluster", "Lab"),
    ("`Lab` is not a DNS label", CUT_BEFORE + "lab" + ENTER),  # shown before Enter
    ("? domain", "com" + BEGIN + "example." + END + " and more" + CUT_WORD * 2 + ENTER),
    ("? profile", ESCAPE),  # back
    ("? domain [example.com]", "<" + ENTER),  # and further back
    ("? cluster [lab]", ENTER),
    ("? domain", "example.com" + ENTER),
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
    ("? pull_secret", ENTER),
    ("version=okd requires none", "pull.json" + ENTER),  # asked again
    ("? optional settings", DOWN * 2 + ENTER),  # it begins at none; after harvest come the networks
    ("? extra_networks", " " + DOWN + " " + ENTER),
    ("? optional settings", "xyzzy"),
    ("(no match; Enter clears the filter)", ENTER),
    ("? optional settings", "disks"),
    ("empty disks", ENTER),
    ("? extra_disks", "100200" + LEFT * 3 + CUT + ENTER),
    ("? optional settings", ENTER),
    ("written to env.sh", ""),
]


def text(shown):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace"))


# Ends after some answers; the next run continues.
FIRST = [
    ("? backend", DOWN * 4 + ENTER),
    ("? sim_state", ENTER),
    ("? network", ENTER),
    ("? cluster", "lab" + ENTER),
    ("? domain", "\x03"),
    ("interrupted at the question `domain`; no env file was written", ""),
]
AGAIN = [
    ("continue with the 4 answers in", ENTER),
    ("? domain", "\x03"),
    ("answers are kept in", ""),
]
ANEW = [("continue with the 4 answers in", "n" + ENTER)]


def main():
    for script, code in [(FIRST, 7), (AGAIN, 7), (ANEW + SCRIPT, 0)]:
        if run(script) != code:
            sys.exit(f"it did not end with {code}")


def run(script):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.argv[1], [sys.argv[1], "init"])
    # Raw output: a piece may end within a character or a control sequence.
    shown, answered = b"", 0
    for wanted, keys in script:
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
    return os.waitstatus_to_exitcode(status)


main()
