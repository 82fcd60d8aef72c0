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
# Slow enough to be looked at.
cat > "$place/me/.local/share/ocpdeploy/sim.json" <<'EOF'
{"v": 1, "limits": {"concurrency": 3}, "script": {"boot_ms": 6000, "latency_ms": {"create_machine": 700, "delete_machine": 200}}}
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
type() { tm send-keys -t "$1" -l -- "$2"; tm send-keys -t "$1" Enter; }
block() { printf '\n```text\n%s\n```\n' "$1"; }

window init 60
type init 'ocpdeploy init --backend sim'
for answer in 'sim_state:|' 'network:|' 'cluster:|lab' 'domain:|example.com' 'profile:|' 'masters:|' 'workers:|' \
    'api_ip:|' 'ingress_ip:|' 'numcpus:|' 'master_memory:|' 'worker_memory:|' 'disk_size:|' 'version:|' 'pub_key:|' 'pull_secret:|pull.json'; do
    await init "? ${answer%%|*}"
    type init "${answer#*|}"
done
await init 'written to env.sh'
init=$(see init)

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
await run 'ended well'
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

Captured from a terminal by `tests/tour.sh`, on the pretend platform, which needs nothing: `backend=sim`. It was made slow enough to be looked at.

## `init` asks, with what the platform has
EOF
    block "$init"
    printf '\n## `deploy --rehearse`, in the middle of pass one\n'
    block "$deploy"
    printf '\n## `status --watch` beside it, in pass two\n\nThe table stands in its place and changes. The phase names the process that works.\n'
    block "$watching"
    printf '\nIt ends by itself when nobody works on the cluster any more.\n'
    block "$ended"
    printf '\n## … and how the deployment ends\n'
    block "$done"
    printf '\n## An error says what to do\n'
    block "$wrong"
    printf '\n## `list`\n'
    block "$list"
    printf '\n## `destroy --dry-run` shows what carries the mark of the cluster\n'
    block "$destroy"
} > "$page"
echo "written to docs/tour.md"
