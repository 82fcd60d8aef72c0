#!/usr/bin/env bash
# build.sh OUTDIR: builds OUTDIR/node.qcow2, a guest that behaves like a CoreOS node, from Debian 12's packages and the
# programs of tests/lab/kubernetes/build.sh (KUBERNETES=FOLDER, by default OUTDIR/../kubernetes/bin). Requires root, but no
# loop devices. Uses the mirrors of the machine's apt.
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: build.sh OUTDIR" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "node image: needs root" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
kubernetes=${KUBERNETES:-$out/../kubernetes/bin}
programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet)
guest=node
. "$here/../common/disk.sh"
. "$here/../common/debian.sh"
# One build at a time: a second one waits, then finds the result.
exec 8>"$out/.node-lock"
flock 8

# Nothing to do if recipe and inputs have not changed since the last build.
stamp=$({ echo "$kernel"; cd "$here"; find . -printf '%m %p\n' | sort; find . ../common/{cmdline,disk.sh,debian.sh,removed.txt} -type f -print0 | sort -z | xargs -0 sha256sum
          cd "$kubernetes"; sha256sum "${programs[@]}"; } | sha256sum | cut -d' ' -f1)
if [ -s "$out/node.qcow2" ] && [ "$(cat "$out/.node-stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "node image: up to date in $out"
    exit 0
fi
work=$(mktemp -d "$out/.node.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

say "container image"
mkdir "$work/image"
bootstrap extract packages-tools.txt "$work/image/layer.tar" --extract-hook="$here/tools.sh"
cd "$work/image"
# The image is also the pod sandbox, whose process only waits: containerd ends it with SIGKILL.
# Source: containerd/containerd: pkg/cri/server/sandbox_stop.go
cat >config.json <<EOF
{"architecture": "amd64", "os": "linux",
 "config": {"Entrypoint": ["/bin/sleep", "infinity"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum layer.tar | cut -d' ' -f1)"]}}
EOF
echo '[{"Config": "config.json", "RepoTags": ["lab.invalid/tools:1"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf "$work/tools.tar" manifest.json config.json layer.tar

say "guest"
cd "$kubernetes"
root=$work/root
KERNEL=$kernel IMAGE=$work/tools.tar PROGRAMS=$(realpath "${programs[@]}") \
    bootstrap essential packages-guest.txt "$root" --customize-hook="$here/guest.sh"
mv "$root/boot/initrd" "$work/initrd"
remove "$root" ../common/removed.txt
remove "$root" removed.txt
: >"$root/etc/resolv.conf"
# With this value, systemd recognizes the first boot and applies the presets, including those of Ignition.
echo uninitialized >"$root/etc/machine-id"
find "$root/usr/lib/systemd/system" -xtype l ! -lname /dev/null -delete

say "disk"
root_disk "$work/node.img" "$root" "$work/initrd" "$(cat "$here/cmdline" "$here/../common/cmdline" | paste -sd' ')" 8192
qemu-img convert -c -o compression_type=zstd -O qcow2 "$work/node.img" "$work/node.qcow2"

rm -f "$out/.node-stamp"
mv "$work/node.qcow2" "$out/node.qcow2"
echo "$stamp" >"$out/.node-stamp"
say "node.qcow2, $(($(stat -c %s "$out/node.qcow2") / 1048576)) MiB"
