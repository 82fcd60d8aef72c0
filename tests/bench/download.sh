#!/bin/bash
# download.sh [ROUNDS]: measures download, verification and decompression of 1 GiB (MIB=1024), alternating with
# `curl | gunzip`, which verifies nothing. Uses only the loopback and target/bench.
# SMALL=1 transfers 1 MiB once, to show that the benchmark works.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -z "${SMALL-}" ] || { MIB=1; set -- 1; }
record=$PWD/tests/bench/record.py
rounds=${1:-5} mib=${MIB:-1024}
program=$(realpath "${PROGRAM:-target/release/ocpdeploy}")
dir=target/bench/download
mkdir -p $dir/www
cd $dir
rm -f port
if [ "$(stat -c %s content-$mib 2>/dev/null || echo 0)" != $((mib << 20)) ]; then
  # Typical content of a system image.
  { tar c /usr/lib /usr/bin /usr/share 2>/dev/null; cat /dev/urandom; } | head -c $((mib << 20)) > content-$mib || true
  gzip -6 < content-$mib > www/$mib.img.gz
fi
sum=$(sha256sum < content-$mib | cut -d' ' -f1)
python3 -c '
import http.server, os
os.chdir("www")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("H", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *a: None}))
print(server.server_address[1], flush=True)
server.serve_forever()' > port &
server=$!
trap 'kill $server; rm -rf out cache rounds.$$' EXIT
until [ -s port ]; do sleep 0.1; done
url=http://127.0.0.1:$(cat port)/$mib.img.gz
seconds() { # prints the duration of a command
  local begun ended
  begun=$(date +%s.%N); "$@" > /dev/null; ended=$(date +%s.%N)
  echo "$ended - $begun" | bc
}
plain() { curl -sf "$url" | gunzip > out; }
ours() { HOME=$PWD "$program" -q image pull --downloads-dir cache --image "$url#sha256=$sum"; }
for ((round = 1; round <= rounds; round++)); do
  # Sync the previous round's data, so that neither command overwrites old blocks.
  rm -rf out cache; sync
  a=$(seconds plain)
  rm -rf out cache; sync
  b=$(seconds ours)
  echo "round $round: curl | gunzip $a s, ocpdeploy $b s" >&2
  echo "$a $b" >> rounds.$$
done
[ "$(find cache/files -type f -size "$((mib << 20))c" | wc -l)" = 1 ]
python3 - rounds.$$ "$mib" <<'P' | "$record" download
import json, os, statistics, sys
pairs = [tuple(map(float, line.split())) for line in open(sys.argv[1])]
a, b = (statistics.median(column) for column in zip(*pairs))
rows = [["curl | gunzip", a, 1.0], ["ocpdeploy image pull", b, b / a]]
json.dump({"columns": ["program", "median, s", "ratio"], "rows": rows, "notes": [f"{sys.argv[2]} MiB, {len(pairs)} rounds."]}, sys.stdout)
sys.stdout.flush()
if b > 1.15 * a and not os.environ.get("SMALL"):
    sys.exit("bench: ocpdeploy takes more than 1.15 times as long as curl | gunzip")
P
