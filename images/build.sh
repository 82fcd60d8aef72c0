#!/usr/bin/env bash
# Builds the rehearsal guests: OUTDIR/helper.qcow2 and OUTDIR/coreos.qcow2; for another architecture than x86_64, for example
# helper-aarch64.qcow2, from packages that it downloads. No loop devices or mounts: everything is written into plain files.
set -euo pipefail

arch=${2-x86_64}
case $#:$arch in [12]:x86_64 | 2:aarch64 | 2:ppc64le | 2:s390x) ;; *) echo "usage: build.sh OUTDIR [x86_64|aarch64|ppc64le|s390x]" >&2; exit 2 ;; esac
# File owners in the images must be 0; a user namespace makes this possible without root.
[ "$(id -u)" = 0 ] || exec unshare -r "$0" "$@"

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
suffix=
[ "$arch" = x86_64 ] || suffix=-$arch
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C
umask 022

lists=("$here/packages.txt")
[ "$arch" = x86_64 ] || lists+=("$here/packages-foreign.txt")
mapfile -t needed < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "${lists[@]}")
versions=$(dpkg-query -W -f='${Package} ${Version} ${db:Status-Status}\n' "${needed[@]}" 2>&1) || {
    echo "images: packages are missing (tests/lab/install.sh ${lists[*]} installs them):" >&2
    grep -v ' installed$' <<<"$versions" >&2
    exit 1
}
# The guest's own packages: those of this computer, or those in a directory.
packages=
# One build at a time: a second one waits, then finds the result.
exec 8>"$out/.lock$suffix"
flock 8

# Nothing to do if recipe and inputs have not changed since the last build.
stamp=$({ echo "$arch $versions"; cd "$here"; find . \( -path ./node -o -path ./cloud \) -prune -o -type f ! -name README.md -printf '%m %p\n' | sort
          find . \( -path ./node -o -path ./cloud \) -prune -o -type f ! -name README.md -print0 | sort -z | xargs -0 sha256sum; } | sha256sum | cut -d' ' -f1)
if [ -s "$out/helper$suffix.qcow2" ] && [ -s "$out/coreos$suffix.qcow2" ] && [ "$(cat "$out/.stamp$suffix" 2>/dev/null)" = "$stamp" ]; then
    echo "images: of $arch up to date in $out"
    exit 0
fi

work=$(mktemp -d "$out/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ "$arch" != x86_64 ]; then
    packages=$work/packages
    "$here/common/packages.sh" "$arch" "$out/.packages$suffix" "$packages"
fi
. "$here/common/disk.sh"
# The package's own script would do this.
[ -z "$packages" ] || depmod -b "$packages" "$kernel"
triplet=${arch/ppc64le/powerpc64le}-linux-gnu
loader=$(readelf -l "$packages/usr/bin/jq" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
case $arch in aarch64) console=ttyAMA0 ;; ppc64le) console=hvc0 ;; s390x) console=ttysclp0 ;; *) console=ttyS0 ;; esac
export SOURCE_DATE_EPOCH=$epoch E2FSPROGS_FAKE_TIME=$epoch

# busybox_into DIR: installs busybox and a link for each of its tools, which are the same in all architectures.
busybox_into() {
    mkdir -p "$1"
    cp "$packages/bin/busybox" "$1/busybox"
    local tool
    for tool in $(/bin/busybox --list); do [ "$tool" = busybox ] || ln -s busybox "$1/$tool"; done
}

# libraries PROGRAM...: lists the libraries that the programs load, without the loader.
libraries() {
    local found=() before=-1
    while [ ${#found[@]} != "$before" ]; do
        before=${#found[@]}
        mapfile -t found < <(readelf -d "$@" "${found[@]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u | sed -e '/^ld/d' -e "s|^|$packages/usr/lib/$triplet/|")
    done
    printf '%s\n' "${found[@]}"
}

# Writes the initramfs of guest $1 to the file $2.
initramfs() {
    local dir=$work/$1.initramfs m f
    mkdir -p "$dir"/{dev,proc,sys,run,sysroot,tmp,etc,sbin,lib/modules/"$kernel"}
    busybox_into "$dir/bin"
    ln -s ../bin/modprobe "$dir/sbin/modprobe"      # the kernel calls it by this path
    local modules='virtio_pci virtio_net virtio_blk virtio_scsi sd_mod ata_piix sr_mod evdev vfat nls_cp437 nls_ascii isofs'
    [ "$1" != coreos ] || modules+=' ext4 bonding 8021q bridge'
    # The others have no fw_cfg and no ACPI.
    case $arch in x86_64 | aarch64) modules+=' qemu_fw_cfg button' ;; esac
    for m in $modules; do
        modprobe ${packages:+-d "$packages"} -S "$kernel" --show-depends "$m" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | sort -u | while read -r f; do
        install -D -m 644 "$f" "$dir/lib/modules/$kernel/${f#*/"$kernel"/}"
    done
    cp "$packages/lib/modules/$kernel"/modules.{builtin,builtin.modinfo,order} "$dir/lib/modules/$kernel/"
    depmod -b "$dir" "$kernel"
    # busybox's modprobe reads only two lists.
    find "$dir/lib/modules/$kernel" -maxdepth 1 -name 'modules.*' ! -name modules.dep ! -name modules.alias -delete
    cp "$here/common/net.sh" "$here/common/dhcp.sh" "$dir/lib/"
    cp -r "$here/common/acpi" "$dir/etc/acpi"
    cp "$here/common/init" "$here/$1/guest" "$dir/"
    ln -s /run/resolv.conf "$dir/etc/resolv.conf"
    if [ "$1" = coreos ]; then                      # engine, useradd ... live in the root
        ln -s /sysroot/usr "$dir/usr"
        ln -s "/sysroot/usr/lib/$triplet" "$dir/lib/$triplet"
        mkdir -p "$dir${loader%/*}"
        ln -s "/sysroot/usr$loader" "$dir$loader"
    fi
    find "$dir" -exec touch -h -d "@$epoch" {} +
    (cd "$dir" && find . -print0 | sort -z | cpio -0 -o -H newc -R 0:0 --reproducible --quiet) >"$2"
}

# The root of the coreos guest: busybox, the engine, the programs that it calls, and their libraries.
coreos_root() {
    local dir=$1 l programs=(lib/dracut/modules.d/30ignition/ignition bin/jq sbin/{useradd,usermod,userdel,groupadd,groupdel})
    mkdir -p "$dir"/{dev,proc,sys,run,tmp,mnt,root,home,opt,etc/{systemd/system,selinux/targeted/contexts/files}} \
        "$dir"/usr/{bin,sbin,"lib/$triplet",lib64} "$dir"/var/{lib/rehearsal,log,home}
    chmod 700 "$dir/root"
    for l in bin sbin lib lib64; do ln -s "usr/$l" "$dir/$l"; done
    busybox_into "$dir/usr/bin"
    programs=("${programs[@]/#/$packages/usr/}")
    cp "${programs[@]}" "$dir/usr/sbin/"
    libraries "${programs[@]}" | xargs -d '\n' cp -L -t "$dir/usr/lib/$triplet/"
    cp -L "$packages/usr/lib/$triplet/${loader##*/}" "$dir/usr$loader"
    cp "$here/common/net.sh" "$here/common/dhcp.sh" "$dir/usr/lib/"
    cp -r "$here/common/acpi" "$dir/etc/acpi"
    cp -r "$here/coreos/root/." "$dir/"
    chmod 600 "$dir/etc/shadow"
    ln -s /run/resolv.conf "$dir/etc/resolv.conf"
    # Ignition ends with an SELinux relabelling; this policy has no rules and setfiles is a stub.
    echo SELINUXTYPE=targeted >"$dir/etc/selinux/config"
    : >"$dir/etc/selinux/targeted/contexts/files/file_contexts"
    find "$dir" -exec touch -h -d "@$epoch" {} +
}

# disk NAME [TREE]: creates the guest's disk, with TREE as its root.
# no_timer_check (in common/cmdline): on a busy host the kernel's timer check fails under emulation, with a panic.
disk() {
    local name=$1 root=${2-} img=$work/$1.img initrd=$work/$1.initrd root_mb=0
    [ -z "$root" ] || root_mb=192
    initramfs "$name" "$initrd"
    boot_disk "$img" "$initrd" "$(sed "s/ttyS0/$console/" "$here/common/cmdline" | paste -sd' ')" $root_mb
    if [ -n "$root" ]; then
        # No journal: guests run for minutes, and are rebuilt instead of repaired.
        mke2fs -q -t ext4 -O ^has_journal,^metadata_csum -m 0 -U 6f637064-0000-4000-8000-000000000001 \
            -E "offset=$root_offset,hash_seed=6f637064-0000-4000-8000-000000000002,lazy_itable_init=1,nodiscard" \
            -d "$root" "$img" "${root_mb}M"
    fi
    # Not compressed: the BIOS reads small pieces, and QEMU would decompress a whole cluster for each.
    qemu-img convert -q -O qcow2 "$img" "$work/$name.qcow2"
}

disk helper
coreos_root "$work/root"
disk coreos "$work/root"

rm -f "$out/.stamp$suffix"
for name in helper coreos; do
    mv "$work/$name.qcow2" "$out/$name$suffix.qcow2"
    echo "images: $name$suffix.qcow2, $(($(stat -c %s "$out/$name$suffix.qcow2") / 1024)) KiB"
done
echo "$stamp" >"$out/.stamp$suffix"
