#!/usr/bin/env python3
"""operator_files.py CLONE: writes src/node/operator_files/table.rs from a clone of openshift/machine-config-operator.

The clone needs its release branches. The table has what a new cluster on platform `none` gets: the templates of `_base` and
`sno` (`pkg/controller/template/render.go`), and what the machine config server adds (`pkg/server`).
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "src/node/operator_files/table.rs"
FIRST = (4, 6)
ROLES = ("master", "arbiter", "worker")
# What a whole template is conditioned on. Neither holds for a new cluster: OpenShiftSDN is not supported since 4.15.
NEVER = (".Network.MTUMigration", '"OpenShiftSDN"')
# Of the server alone: the other paths of its source are folders on the bootstrap or in the pod.
NOT_ON_NODES = ("/etc/mcs/", "/etc/docker/certs.d")


def git(*command):
    return subprocess.run(["git", "-C", sys.argv[1], *command], check=True, capture_output=True, text=True).stdout


def releases():
    """The release branches, oldest first. Later branches of the same commit are the same release under another name."""
    found = re.findall(r"release-(\d+)\.(\d+)$", git("for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes"), re.M)
    return [release for release in sorted({(int(major), int(minor)) for major, minor in found}) if release >= FIRST]


def branch(release):
    name = "release-%d.%d" % release
    return next(ref for ref in (name, "origin/" + name) if git("for-each-ref", "refs/heads/" + ref, "refs/remotes/" + ref))


def entries(text, kind, constants):
    """The file of a template, or its unit and drop-ins."""
    first = text.lstrip().split("\n", 1)[0]
    if not text.strip() or first.startswith("{{") and any(word in first for word in NEVER):
        return
    key = "path" if kind == "files" else "name"
    name = re.search(rf'^{key}: *"?([^"\s]+)"?\s*$', text, re.M)[1]
    name = re.sub(r"{{\.Constants\.(\w+)}}", lambda constant: constants[constant[1]], name)
    if kind == "files" or re.search(r"^(contents|enabled|mask):", text, re.M):
        yield name
    _, _, dropins = text.partition("\ndropins:")
    for dropin in re.findall(r'^ *- name: *"?([^"\s]+)"?', dropins, re.M):
        yield f"{name}/{dropin}"


def of_templates(ref):
    """`(role, only with one master, name)` of each template. With one master there is no arbiter."""
    constants = {}
    if "pkg/constants/" in git("ls-tree", "-r", "--name-only", ref, "pkg/constants"):
        constants = dict(re.findall(r'(\w+) *[:=]+ *"([^"]+)"', git("show", f"{ref}:pkg/constants/constants.go")))
    for path in git("ls-tree", "-r", "--name-only", ref, "templates").split():
        match = re.fullmatch(r"templates/(common|(\w+)/[^/]+)/(_base|sno)/(files|units)/.+", path)
        if not match or path.endswith("OWNERS"):
            continue
        _, role, platform, kind = match.groups()
        roles = [role] if role else ROLES
        for name in entries(git("show", f"{ref}:{path}"), kind, constants):
            for one in roles:
                if (one, platform) != ("arbiter", "sno"):
                    yield one, platform == "sno", name


def of_server(ref):
    """The same of what the server adds to the config that it serves."""
    sources = [path for path in git("ls-tree", "--name-only", ref, "pkg/server/").split() if path.endswith(".go")]
    text = "".join(git("show", f"{ref}:{path}") for path in sources if not path.endswith("_test.go"))
    paths = re.findall(r'"(/etc/[^"]+)"', text)
    constants = git("show", f"{ref}:pkg/daemon/constants/constants.go")
    for name in re.findall(r"appendFileToIgnition\(conf, daemonconsts\.(\w+)", text):
        paths.append(re.search(rf'\b{name}\s*=\s*"([^"]+)"', constants)[1])
    for path in paths:
        if not path.startswith(NOT_ON_NODES):
            for role in ROLES:
                yield role, False, path


def main():
    known, sources, where = [], [], defaultdict(set)
    for release in releases():
        ref = branch(release)
        commit, date = git("log", "-1", "--format=%h %cs", "--abbrev=10", ref).split()
        sources.append((release, commit, date))
        known.append(release)
        for role, single, name in {*of_templates(ref), *of_server(ref)}:
            where[name, role, single].add(release)
    ranges = defaultdict(lambda: defaultdict(list))
    for (name, role, single), of_name in where.items():
        if single and where.get((name, role, False), set()) >= of_name:
            continue
        run = []
        for release in [*known, None]:
            if release in of_name:
                run.append(release)
            elif run:
                until = None if run[-1] == known[-1] else run[-1]
                ranges[single, run[0], until][name].append(role)
                run = []
    groups = defaultdict(list)
    for (single, since, until), names in ranges.items():
        for name, roles in names.items():
            groups[since, until or (999,), single, tuple(role for role in ROLES if role in roles)].append(name)
    lines = [
        "//! Written by `tests/operator_files.py`; do not edit.",
        "//!",
        "//! Source: openshift/machine-config-operator, `templates` and `pkg/server` of these branches:",
        *(f"//! release-{major}.{minor} at {commit} ({date})," for (major, minor), commit, date in sources[:-1]),
        "//! release-%d.%d at %s (%s)." % (*sources[-1][0], *sources[-1][1:]),
        "",
        "use crate::cluster::Role::{self, Arbiter, Master, Worker};",
        "",
        "/// Names with the same releases and roles.",
        "pub(super) struct Group {",
        "    /// The first and the last release that sets them; `None` if no known release follows.",
        "    pub since: (u32, u32),",
        "    pub until: Option<(u32, u32)>,",
        "    pub roles: &'static [Role],",
        "    /// Only on clusters with one master.",
        "    pub single: bool,",
        "    /// Paths of files, names of units, and drop-ins as `unit/drop-in`.",
        "    pub names: &'static [&'static str],",
        "}",
        "",
        "#[rustfmt::skip]",
        "pub(super) const ALL: &[Group] = &[",
    ]
    for (since, until, single, roles), names in sorted(groups.items()):
        last = "None" if until == (999,) else f"Some({until})"
        of = ", ".join(role.capitalize() for role in roles)
        lines.append(f"    Group {{ since: {since}, until: {last}, roles: &[{of}], single: {str(single).lower()}, names: &[")
        lines += [f'        "{name}",' for name in sorted(names)]
        lines.append("    ] },")
    lines += ["];", ""]
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines), encoding="utf-8")


main()
