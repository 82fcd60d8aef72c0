#!/usr/bin/env python3
"""record.py NAME: reads the result of a benchmark from stdin, stores it, and prints it as a table.

The result is {"columns": [...], "rows": [[...]], "notes": [...]}. Date, version and machine are added. The file is
target/bench/NAME.json, or target/bench/small/NAME.json if SMALL is set: those figures only show that the benchmark works.
"""

import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def first(pattern, path):
    match = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    return match[1].strip() if match else "unknown"


def machine():
    return {
        "cpu": first(r"^model name\s*: (.*)", "/proc/cpuinfo"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(first(r"^MemTotal:\s*(\d+)", "/proc/meminfo")) / 2**20),
        "system": first(r'^PRETTY_NAME="?([^"\n]*)', "/etc/os-release"),
        "kernel": platform.release().split("-")[0],
        # Load average: shows whether the machine had other work in the last minutes.
        "load": round(os.getloadavg()[1], 1),
    }


def version():
    with open(ROOT / "Cargo.toml", "rb") as file:
        number = tomllib.load(file)["package"]["version"]
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True, check=False)
    return f"{number}-{commit.stdout.strip()}" if commit.returncode == 0 else number


def cell(value):
    return f"{value:.3g}" if isinstance(value, float) and value < 100 else f"{value:.0f}" if isinstance(value, float) else str(value)


def table(columns, rows):
    lines = [columns, *[[cell(value) for value in row] for row in rows]]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths)))


def main():
    name, printed = sys.argv[1], sys.stdin.read()
    if not printed.strip():
        sys.exit(f"record.py: benchmark {name} failed: it printed no result")
    result = json.loads(printed)
    folder = ROOT / "target/bench" / ("small" if os.environ.get("SMALL") else "")
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"v": 1, "bench": name, "date": datetime.date.today().isoformat(), "version": version(), "machine": machine(), **result}
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    table(result["columns"], result["rows"])
    for note in result.get("notes", []):
        print(note)


if __name__ == "__main__":
    main()
