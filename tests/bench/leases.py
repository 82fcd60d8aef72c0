"""Watches the lease file of a libvirt network and records when each MAC got its address."""

import json
import os
import threading
import time

LOOK_EVERY = 0.01


def read_leases(path):
    """MAC -> (expiry, address); None while the file is being written."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        leases = json.loads(text) if text.strip() else []
    except FileNotFoundError:
        return {}
    except ValueError:
        return None
    return {lease["mac-address"]: (lease["expiry-time"], lease["ip-address"]) for lease in leases}


class Watch:
    """Polls every 10 ms from its creation until `stop`. A MAC with an earlier lease counts when its lease changes."""

    def __init__(self, path):
        self.path = path
        self.before = read_leases(self.path) or {}
        # MAC -> (time of day in seconds, address)
        self.seen = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _stamp(self):
        try:
            stat = os.stat(self.path)
            return stat.st_ino, stat.st_mtime_ns, stat.st_size
        except FileNotFoundError:
            return None

    def _run(self):
        stamp = None
        while not self._stopped:
            now, new = time.time(), self._stamp()
            if new != stamp:
                leases = read_leases(self.path)
                if leases is not None:
                    stamp = new
                    with self._changed:
                        for mac, lease in leases.items():
                            if self.before.get(mac) != lease:
                                self.seen.setdefault(mac, (now, lease[1]))
                        self._changed.notify_all()
            time.sleep(LOOK_EVERY)

    def wait_for(self, count, seconds):
        """Blocks until `count` machines have a lease; false if this takes longer than `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= count, seconds)

    def stop(self):
        self._stopped = True
        self._thread.join()
        return self.seen
