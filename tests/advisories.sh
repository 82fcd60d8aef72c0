#!/usr/bin/env bash
# advisories.sh CARGO-DENY: checks the dependencies for known vulnerabilities. If the database cannot be downloaded,
# the script says so and succeeds. A vulnerability is a failure.
set -euo pipefail
deny=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! timeout 120 "$deny" fetch db >"$log" 2>&1; then
    echo "advisories: NOT checked, their database cannot be fetched: $(grep -m1 -iE 'error|fail' "$log" || tail -n1 "$log")" >&2
    exit 0
fi
"$deny" --offline check advisories
