#!/usr/bin/env bash
# build.sh OUTDIR: builds OUTDIR/node.qcow2, a guest that behaves like a CoreOS node, from Debian 12's packages and the
# programs of tests/lab/kubernetes/build.sh (KUBERNETES=FOLDER, by default OUTDIR/../kubernetes/bin). Requires root, but no
# loop devices. Uses the mirrors of the machine's apt.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
guest=node
. "$here/../common/disk.sh"
. "$here/../common/debian.sh"
kubernetes=${KUBERNETES:-$out/../kubernetes/bin}
programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet)
begin node.qcow2 "$(cd "$kubernetes" && sha256sum "${programs[@]}")"

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
trim "$root" removed.txt
# With this value, systemd recognizes the first boot and applies the presets, including those of Ignition.
echo uninitialized >"$root/etc/machine-id"

say "disk"
root_disk "$work/node.img" "$root" "$work/initrd" "$(cat "$here/cmdline" "$here/../common/cmdline" | paste -sd' ')" 8192
qemu-img convert -c -o compression_type=zstd -O qcow2 "$work/node.img" "$work/node.qcow2"
keep node.qcow2
