#!/usr/bin/env bash
# build.sh OUTDIR: OUTDIR/node.qcow2, a guest that behaves like a CoreOS node, from Debian 12's packages and the programs
# that tests/lab/kubernetes/build.sh built (KUBERNETES=FOLDER, by default OUTDIR/../kubernetes/bin). Needs root, but no
# loop devices. The mirrors are those of the machine's own apt.
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: build.sh OUTDIR" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "node image: needs root" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
kubernetes=${KUBERNETES:-$out/../kubernetes/bin}
programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet)
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C
umask 022
say() { echo "node image: $* (after $SECONDS s)"; }
# list FILE: its lines without comments.
list() { sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$here/$1"; }

# The newest cloud kernel whose modules are here too.
kernel=$(find /boot -name 'vmlinuz-*-cloud-amd64' -printf '%f\n' | sed 's/^vmlinuz-//' | sort -V | tail -n1)
if [ -z "$kernel" ] || [ ! -d "/lib/modules/$kernel" ]; then echo "node image: no cloud kernel in /boot" >&2; exit 1; fi

# Nothing to do when recipe and inputs are those of the last build.
stamp=$({ echo "$kernel"; cd "$here"; find . -printf '%m %p\n' | sort; find . ../common/cmdline -type f -print0 | sort -z | xargs -0 sha256sum
          cd "$kubernetes"; sha256sum "${programs[@]}"; } | sha256sum | cut -d' ' -f1)
if [ -s "$out/node.qcow2" ] && [ "$(cat "$out/.node-stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "node image: up to date in $out"
    exit 0
fi
work=$(mktemp -d "$out/.node.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

# The mirrors of this machine's apt as one-line entries, and what it is told about the way to them.
mirrors() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)|$(ORIGIN)' 'Created-By: Packages' |
        sed -n 's/|Debian$//p' | sort -u | while read -r uri suite component key; do
            case $key in /*) key="[signed-by=$key] " ;; *) key= ;; esac
            echo "deb $key$uri $suite $component"
        done
}
[ -n "$(mirrors)" ] || apt-get -q -q update
mirrors >"$work/sources.list"
mapfile -t options < <(apt-config dump | sed -nE 's/^Acquire::(https?|Check|Retries)[^ ]* "[^"]+";$/--aptopt=&/p')
for path in doc man info locale bug lintian; do options+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
# bootstrap VARIANT LIST TARGET OPTION...: the packages of LIST in TARGET, a folder or a tar file.
bootstrap() {
    mmdebstrap --quiet --mode=root --variant="$1" --include="$(list "$2" | paste -sd,)" --dpkgopt=force-unsafe-io \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' "${options[@]}" "${@:4}" \
        bookworm "$3" "$work/sources.list"
}

say "container image"
mkdir "$work/image"
bootstrap extract packages-tools.txt "$work/image/layer.tar" --extract-hook="$here/tools.sh"
cd "$work/image"
# It is the pods' sandbox too, whose process only waits: containerd ends it by SIGKILL.
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
while read -r pattern; do
    eval "rm -rf -- $(printf %q "$root")/$pattern"
done < <(list removed.txt)
: >"$root/etc/resolv.conf"
# So systemd takes the first boot for the first one, and enables what the presets name: Ignition's among them.
echo uninitialized >"$root/etc/machine-id"
find "$root/usr/lib/systemd/system" -xtype l ! -lname /dev/null -delete

# An MBR disk: a FAT partition with boot loader, kernel and initramfs, and the root.
say "disk"
img=$work/node.img fat=$work/boot.fat start=2048 root_mb=8192
cat >"$work/syslinux.cfg" <<EOF
DEFAULT linux
PROMPT 0
NOESCAPE 1
LABEL linux
 KERNEL vmlinuz
 INITRD initrd
 APPEND $(cat "$here/cmdline" "$here/../common/cmdline" | paste -sd' ')
EOF
fat_mb=$((($(stat -c %s "/boot/vmlinuz-$kernel") + $(stat -c %s "$work/initrd")) / 1048576 + 4))
mkfs.fat -F 16 -h $start -n BOOT -C "$fat" $((fat_mb * 1024)) >/dev/null
mcopy -i "$fat" "/boot/vmlinuz-$kernel" ::vmlinuz
mcopy -i "$fat" "$work/initrd" ::initrd
mcopy -i "$fat" "$work/syslinux.cfg" ::syslinux.cfg
syslinux -i "$fat"
truncate -s $(((1 + fat_mb + root_mb) * 1048576)) "$img"
printf 'label: dos\nstart=%s, size=%s, type=e, bootable\ntype=83\n' $start $((fat_mb * 2048)) | sfdisk -q "$img"
dd if=/usr/lib/syslinux/mbr/mbr.bin of="$img" conv=notrunc status=none
dd if="$fat" of="$img" bs=1M seek=1 conv=notrunc,sparse status=none
mke2fs -q -t ext4 -L root -O ^metadata_csum -m 0 -J size=16 \
    -E "offset=$(((1 + fat_mb) * 1048576)),lazy_itable_init=1,lazy_journal_init=1,nodiscard" -d "$root" "$img" "${root_mb}M"
say "initramfs $(($(stat -c %s "$work/initrd") / 1048576)) MiB, root $(du -sm --apparent-size "$root" | cut -f1) MiB"
qemu-img convert -c -O qcow2 "$img" "$work/node.qcow2"

rm -f "$out/.node-stamp"
mv "$work/node.qcow2" "$out/node.qcow2"
echo "$stamp" >"$out/.node-stamp"
say "node.qcow2, $(($(stat -c %s "$out/node.qcow2") / 1048576)) MiB"
