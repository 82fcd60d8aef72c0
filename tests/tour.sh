#!/bin/bash
# Writes docs/tutorials/tour.md: tmux captures a terminal of 100 columns on the simulated platform.
#   tests/tour.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-target/debug/ocpdeploy}")
page=$PWD/docs/tutorials/tour.md
place=$(mktemp -d)
socket=ocpdeploy-tour-$$
trap 'tmux -L "$socket" kill-server 2>/dev/null || true; sleep 0.5; rm -rf "$place"' EXIT
mkdir "$place/me" "$place/bin"
ln -s "$program" "$place/bin/ocpdeploy"
echo '{"auths": {"registry.example.com": {"auth": "bWU6bWU="}}}' > "$place/me/pull.json"
mkdir "$place/me/.ssh"
echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEvcXnxkmAPOhJhN4+N0gSDCSSJ2hzcnWGa2Kmqsukjk me@example.com' > "$place/me/.ssh/id_ed25519.pub"
mkdir -p "$place/me/.local/share/ocpdeploy"
# Two networks to choose from, and delays that make each state visible.
cat > "$place/me/.local/share/ocpdeploy/sim.json" <<'EOF'
{"v": 1, "limits": {"concurrency": 3}, "script": {"boot_ms": 6000, "latency_ms": {"create_machine": 700, "delete_machine": 200}},
 "networks": {
  "default": {"cidr": "192.168.122.0/24", "gateway": "192.168.122.1", "dhcp_from": "192.168.122.2", "dhcp_to": "192.168.122.254"},
  "storage": {"cidr": "10.9.0.0/24", "gateway": "10.9.0.1", "dhcp_from": "10.9.0.2", "dhcp_to": "10.9.0.254"}}}
EOF

tm() { tmux -L "$socket" "$@"; }
# window NAME: opens a terminal without this computer's environment.
window() {
    tm -f /dev/null new-session -d -s "$1" -x 100 -y "${2:-44}" env -i HOME="$place/me" PATH="$place/bin:/usr/bin:/bin" \
        TERM=xterm-256color LANG=C.UTF-8 HISTFILE= PS1='$ ' bash --norc --noprofile -i
    tm send-keys -t "$1" "cd; clear" Enter
    sleep 0.5
}
# see NAME: prints the window's content, without empty lines at its end.
see() { tm capture-pane -p -t "$1" | sed -e "s|$place/me|/home/me|g" -e 's/[[:space:]]*$//' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'; }
await() {
    for _ in $(seq 600); do
        if see "$1" | grep -qF -- "$2"; then return 0; fi
        sleep 0.1
    done
    echo "tour: this text did not appear: $2" >&2
    see "$1" >&2
    exit 1
}
# asks NAME: prints the prompt at the end of the window.
asks() { see "$1" | tac | sed '/^? /q' | tac; }
keys() { tm send-keys -t "$1" "${@:2}"; }
type() { tm send-keys -t "$1" -l -- "$2"; tm send-keys -t "$1" Enter; }
block() { printf '\n```text\n%s\n```\n' "$1"; }

window init 60
type init 'ocpdeploy init'
await init '? backend'
keys init Down Down Down Down # from libvirt to sim
await init '> sim'
backend=$(asks init)
keys init Enter
for answer in 'sim_state|' 'network|'; do
    await init "? ${answer%%|*}"
    type init "${answer#*|}"
done
await init '? cluster'
keys init -l 'Lab'
await init 'is not a DNS label'
wrong_name=$(asks init)
keys init C-u
type init 'lab'
await init '? domain'
type init 'example.com'
await init '? profile'
await init '> standard'
profile=$(asks init)
keys init Enter
for answer in 'masters|' 'workers|' 'api_ip|' 'ingress_ip|' 'numcpus|' 'master_memory|' 'worker_memory|' 'disk_size|' \
    'version|' 'pub_key|' 'pull_secret|pull.json'; do
    await init "? ${answer%%|*}"
    type init "${answer#*|}"
done
await init '? optional settings'
keys init -l 'netw' # narrows the list
await init '? optional settings: netw'
await init '> extra_networks'
optional=$(asks init)
keys init Enter
await init '? extra_networks'
keys init Space
await init '[x] storage'
networks=$(asks init)
keys init Enter
await init '? optional settings'
keys init Enter
await init 'written to env.sh'
init=$(see init)

window check 50
type check 'ocpdeploy check --rehearse; echo "exit code $?"'
await check 'exit code 0'
check=$(see check)

window plan 44
type plan 'ocpdeploy plan'
await plan 'worker-1'
sleep 0.5
plan=$(see plan)

window run 44
window watch 30
type run 'ocpdeploy deploy --rehearse; echo "exit code $?"'
await run 'worker-1 '
sleep 1
deploy=$(see run)
type watch 'clear; ocpdeploy status lab --watch; echo "exit code $?"'
await watch 'pass-two/create/worker-1'
await watch 'running'
watching=$(see watch)
await watch 'exit code 0'
ended=$(see watch)
await run 'exit code 0'
done=$(see run)

window many 16
type many "sed 's/^cluster=.*/cluster=large/; s/^# workers=.*/workers=17/' env.sh > large.sh; clear; ocpdeploy deploy large.sh --rehearse"
await many 'more, '
sleep 4
many=$(see many)
await many 'rehearsal of cluster large'
type many 'ocpdeploy destroy large --yes; echo "exit code $?"'
await many 'exit code 0'

window scale 24
type scale 'ocpdeploy scale lab --workers 3; ocpdeploy report lab -o report.html; echo "exit code $?"'
await scale 'exit code 0'
scale=$(see scale)

window wrong 100
type wrong "sed 's/^network=.*/network=defualt/; s/^cluster=.*/cluster=other/' env.sh > other.sh; printf 'cluster=\$(lab)\nmasters 3\nworkers=\"2\n' > broken.sh; clear"
sleep 0.5
mistakes=0
# mistake COMMAND: runs an incorrect command and waits for its message.
mistake() {
    type wrong "$1; echo \"exit code \$?\"; echo"
    mistakes=$((mistakes + 1))
    for _ in $(seq 600); do
        [ "$(see wrong | grep -c '^exit code [0-9]')" -lt "$mistakes" ] || return 0
        sleep 0.1
    done
    see wrong >&2
    exit 1
}
mistake 'ocpdeploy deploy other.sh --rehearse'
for arguments in 'plan --backend simm' 'status lba' 'node show lab worker-9' 'scale lab --worker 3' 'list --format xml' \
    'destroy --yes' 'plan broken.sh'; do
    mistake "ocpdeploy $arguments"
done
wrong=$(see wrong | sed -e 's/^\$ \(ocpdeploy [^;]*\);.*/$ \1/' -e '$d')

window list 24
type list 'ocpdeploy list'
await list 'VRID'
sleep 0.3
list=$(see list)

window destroy 50
type destroy 'ocpdeploy destroy lab --dry-run'
await destroy 'KIND'
sleep 0.5
type destroy 'ocpdeploy destroy lab --yes; echo "exit code $?"'
await destroy 'exit code 0'
destroy=$(see destroy)

{
    cat <<'EOF'
# Tour

This page shows a cluster from the first question to its removal, on a terminal with 100 columns.

`make tour` captures it on the simulated platform, so you can repeat all of it with nothing but the
program. Nothing boots. It takes a minute, because the simulated machines are slowed down. A second
network was added in `sim.json` before.

## 1. `init` prompts for settings, offering the platform's choices

Choose with the arrow keys.
EOF
    block "\$ ocpdeploy init
$backend"
    printf '\nAn invalid value is reported while you type.\n'
    block "$wrong_name"
    printf '\nEach profile is a set of defaults.\n'
    block "$profile"
    printf '\nThe last question is for settings that few clusters need. Type to filter a long list. Here each node\ngets a second NIC.\n'
    block "$optional"
    block "$networks"
    printf '\nThe complete dialog. The resulting file has comments, and you can edit it.\n'
    block "$init"
    printf '\n## 2. `check` checks everything that a deployment needs\n'
    block "$check"
    printf '\n## 3. `plan` shows what would be created\n\nThe MACs are known in advance. Pass one learns the addresses.\n'
    block "$plan"
    printf '\n## 4. `deploy --rehearse`, in the middle of pass one\n\nWithout `--rehearse` the same two passes install OpenShift.\n'
    block "$deploy"
    printf '\nWith 20 nodes on a terminal of 16 rows, those that wait are shown first. The estimate is from earlier\ndeployments of similar size, so here there is none yet.\n'
    block "$many"
    printf '\n## 5. `status --watch` on another terminal, in pass two\n\nThe table is updated in place. The phase names the process that works on the cluster.\n'
    block "$watching"
    printf '\nIt ends when no process works on the cluster any more.\n'
    block "$ended"
    printf '\n## 6. The result of the deployment\n\nEach node has the same address in both passes.\n'
    block "$done"
    printf '\n## 7. `scale` and `report`\n\nThe report is one HTML page, with topology and timeline.\n'
    block "$scale"
    # Taken with tests/support/browser.py.
    printf '\n![Top of the report: the virtual IPs and their nodes, and the timeline of both passes](report.png)\n'
    printf '\n## 8. An error has a hint\n\nThe network of `other.sh` is misspelled; `broken.sh` has three errors.\n'
    block "$wrong"
    printf '\n## 9. `list` shows all clusters by network\n'
    block "$list"
    printf '\n## 10. `destroy` removes what carries the cluster'\''s tag\n\n`--dry-run` lists these objects. Without `--yes`, `destroy` asks for a confirmation.\n'
    block "$destroy"
} > "$page"
echo "written to docs/tutorials/tour.md"
