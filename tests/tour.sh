#!/bin/bash
# Writes docs/tour.md: what a terminal of 100 columns shows, captured by tmux on the pretend platform.
#   tests/tour.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-target/debug/ocpdeploy}")
page=$PWD/docs/tour.md
place=$(mktemp -d)
socket=ocpdeploy-tour-$$
trap 'tmux -L "$socket" kill-server 2>/dev/null || true; sleep 0.5; rm -rf "$place"' EXIT
mkdir "$place/me" "$place/bin"
ln -s "$program" "$place/bin/ocpdeploy"
echo '{"auths": {"registry.example.com": {"auth": "bWU6bWU="}}}' > "$place/me/pull.json"
mkdir "$place/me/.ssh"
echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEvcXnxkmAPOhJhN4+N0gSDCSSJ2hzcnWGa2Kmqsukjk me@example.com' > "$place/me/.ssh/id_ed25519.pub"
mkdir -p "$place/me/.local/share/ocpdeploy"
# Two networks to choose from, and slow enough to be looked at.
cat > "$place/me/.local/share/ocpdeploy/sim.json" <<'EOF'
{"v": 1, "limits": {"concurrency": 3}, "script": {"boot_ms": 6000, "latency_ms": {"create_machine": 700, "delete_machine": 200}},
 "networks": {
  "default": {"cidr": "192.168.122.0/24", "gateway": "192.168.122.1", "dhcp_from": "192.168.122.2", "dhcp_to": "192.168.122.254"},
  "storage": {"cidr": "10.9.0.0/24", "gateway": "10.9.0.1", "dhcp_from": "10.9.0.2", "dhcp_to": "10.9.0.254"}}}
EOF

tm() { tmux -L "$socket" "$@"; }
# window NAME: a terminal in which nothing of this computer's is known.
window() {
    tm -f /dev/null new-session -d -s "$1" -x 100 -y "${2:-44}" env -i HOME="$place/me" PATH="$place/bin:/usr/bin:/bin" \
        TERM=xterm-256color LANG=C.UTF-8 HISTFILE= PS1='$ ' bash --norc --noprofile -i
    tm send-keys -t "$1" "cd; clear" Enter
    sleep 0.5
}
# see NAME: what the window shows, without empty lines at its end.
see() { tm capture-pane -p -t "$1" | sed -e "s|$place/me|/home/me|g" -e 's/[[:space:]]*$//' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'; }
await() {
    for _ in $(seq 600); do
        if see "$1" | grep -qF -- "$2"; then return 0; fi
        sleep 0.1
    done
    echo "tour: waited in vain for: $2" >&2
    see "$1" >&2
    exit 1
}
# asks NAME: the question that stands at the window's end.
asks() { see "$1" | tac | sed '/^? /q' | tac; }
keys() { tm send-keys -t "$1" "${@:2}"; }
type() { tm send-keys -t "$1" -l -- "$2"; tm send-keys -t "$1" Enter; }
block() { printf '\n```text\n%s\n```\n' "$1"; }

window init 60
type init 'ocpdeploy init'
await init '? backend:'
keys init Down # from libvirt to sim
await init '> sim'
backend=$(asks init)
keys init Enter
for answer in 'sim_state:|' 'network:|'; do
    await init "? ${answer%%|*}"
    type init "${answer#*|}"
done
await init '? cluster:'
keys init -l 'Lab'
await init 'is not a DNS name'
wrong_name=$(asks init)
keys init BSpace BSpace BSpace
type init 'lab'
await init '? domain:'
type init 'example.com'
await init '? profile:'
keys init -l 'comp' # narrows the list
await init '? profile: comp'
sleep 0.3
profile=$(asks init)
keys init BSpace BSpace BSpace BSpace
await init 'laptop'
keys init -l 'standard'
await init '? profile: standard'
type init ''
for answer in 'masters:|' 'workers:|' 'api_ip:|' 'ingress_ip:|' 'numcpus:|' 'master_memory:|' 'worker_memory:|' 'disk_size:|' \
    'version:|' 'pub_key:|' 'pull_secret:|pull.json'; do
    await init "? ${answer%%|*}"
    type init "${answer#*|}"
done
await init '? further settings:'
keys init Down Down
await init '> extra_networks'
further=$(asks init)
keys init Enter
await init '? extra_networks:'
keys init Space
await init '[x] storage'
networks=$(asks init)
keys init Enter
await init '? further settings:'
keys init Enter
await init 'written to env.sh'
init=$(see init)

window plan 44
type plan 'ocpdeploy plan'
await plan 'worker-1'
sleep 0.5
plan=$(see plan)

window run 44
window watch 30
type run 'ocpdeploy deploy --rehearse'
await run 'lab-harvest-worker-1'
sleep 1
deploy=$(see run)
type watch 'clear; ocpdeploy status lab --watch; echo "exit code $?"'
await watch 'pass-two/create'
await watch 'running  runs'
watching=$(see watch)
await watch 'exit code 0'
ended=$(see watch)
await run 'succeeded'
done=$(see run)

window wrong 24
type wrong "sed -i 's/^network=.*/network=defualt/; s/^cluster=.*/cluster=other/' env.sh; clear"
sleep 0.5
type wrong 'ocpdeploy deploy --rehearse; echo "exit code $?"'
await wrong 'exit code 4'
wrong=$(see wrong)

window list 24
type list 'ocpdeploy list'
await list 'VRID'
sleep 0.3
list=$(see list)

window destroy 50
type destroy 'ocpdeploy destroy lab --dry-run'
await destroy 'KIND'
sleep 0.5
destroy=$(see destroy)

{
    cat <<'EOF'
# What a person sees

A cluster from its first question to its end, captured from a terminal of 100 columns by `tests/tour.sh` (`make tour`). It is on the pretend platform, so that you can type all of it yourself, with nothing but the program:
nothing is booted, and it takes a minute because the pretend machines were made slow enough to be looked at. (A second network was put there beforehand, in `sim.json`.)

## 1. `init` asks, with what the platform has

The arrow keys choose.
EOF
    block "\$ ocpdeploy init
$backend"
    printf '\nA line is judged while it is typed, before Enter.\n'
    block "$wrong_name"
    printf '\nTyping narrows a list.\n'
    block "$profile"
    printf '\nThe last question is for what few clusters need; here each node shall have a second NIC.\n'
    block "$further"
    block "$networks"
    printf '\nAll of it, when the last question is answered. The file is commented, and yours to change.\n'
    block "$init"
    printf '\n## 2. `plan` shows what would be made\n\nThe MACs are known before any machine is; the addresses are what pass one is for.\n'
    block "$plan"
    printf '\n## 3. `deploy --rehearse`, in the middle of pass one\n\nWithout `--rehearse` the same two passes make an OpenShift.\n'
    block "$deploy"
    printf '\n## 4. `status --watch` beside it, in pass two\n\nThe table stands in its place and changes. The phase names the process that works.\n'
    block "$watching"
    printf '\nIt ends by itself when nobody works on the cluster any more.\n'
    block "$ended"
    printf '\n## 5. … and how the deployment ends\n\nEach node has in pass two what pass one found.\n'
    block "$done"
    printf '\n`ocpdeploy report` puts all of this on one page: who is where, how long each step took, and what was planned beside what is.\n'
    printf '\n## 6. An error says what to do\n\nThe network of another cluster is misspelt.\n'
    block "$wrong"
    printf '\n## 7. `list` knows all clusters by their network\n'
    block "$list"
    printf '\n## 8. `destroy --dry-run` shows what carries the mark of the cluster\n\nWithout `--dry-run` all of this goes, after a question, and nothing else.\n'
    block "$destroy"
} > "$page"
echo "written to docs/tour.md"
