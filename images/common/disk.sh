# shellcheck shell=bash disable=SC2034
# Sourced by the builds of all guests: their kernel and their boot disk. $arch is the guest's architecture; $packages is the
# directory with its packages, by default this computer's root.
: "${arch:=x86_64}" "${packages:=}"

# The newest kernel whose modules are installed; on this computer, only the cloud kernel.
kernel='vmlinuz-*-cloud-amd64'
[ -z "$packages" ] || kernel='vmlinu[xz]-*'
kernel=$(find "$packages/boot" -name "$kernel" -printf '%f\n' | sort -V | tail -n1)
vmlinuz=$packages/boot/$kernel kernel=${kernel#*-}
if [ -z "$kernel" ] || [ ! -d "$packages/lib/modules/$kernel" ]; then echo "images: no cloud kernel in $packages/boot" >&2; exit 1; fi
epoch=1600000000                    # any fixed date: same inputs, same disk

# boot_disk IMG INITRD CMDLINE ROOT_MB: an MBR disk in the file IMG: a partition with boot loader, kernel and initramfs, and
# space for a root of ROOT_MB, which begins at the byte `root_offset` (none if ROOT_MB is 0).
boot_disk() {
    local img=$1 initrd=$2 cmdline=$3 root_mb=$4 folder=$1.boot boot=$1.part start=2048 boot_mb type=e
    mkdir "$folder"
    cp "$vmlinuz" "$folder/vmlinuz"
    cp "$initrd" "$folder/initrd"
    case $arch in
    x86_64) printf 'DEFAULT linux\nPROMPT 0\nNOESCAPE 1\nLABEL linux\n KERNEL vmlinuz\n INITRD initrd\n APPEND %s\n' "$cmdline" >"$folder/syslinux.cfg" ;;
    aarch64)
        type=ef
        mkdir -p "$folder/EFI/BOOT"
        grub "$cmdline" -O arm64-efi -o "$folder/EFI/BOOT/BOOTAA64.EFI"
        ;;
    ppc64le) grub "$cmdline" -O powerpc-ieee1275 -n -o "$1.prep" ;;
    s390x) type=da ;;
    esac
    find "$folder" -exec touch -d "@$epoch" {} +
    boot_mb=$((($(stat -c %s "$folder/vmlinuz") + $(stat -c %s "$folder/initrd")) / 1048576 + 4))
    if [ "$arch" != s390x ]; then
        mkfs.fat --invariant -F 16 -h $start -n BOOT -C "$boot" $((boot_mb * 1024)) >/dev/null
        mcopy -s -m -i "$boot" "$folder"/* ::
    fi
    [ "$arch" != x86_64 ] || syslinux -i "$boot"
    truncate -s $(((1 + boot_mb + root_mb) * 1048576)) "$img"
    {
        printf 'label: dos\nlabel-id: 0x6f637064\nstart=%s, size=%s, type=%s, bootable\n' $start $((boot_mb * 2048)) $type
        [ "$root_mb" = 0 ] || echo "type=83"
    } | sfdisk -q "$img"
    case $arch in
    x86_64) dd if=/usr/lib/syslinux/mbr/mbr.bin of="$img" conv=notrunc status=none ;;
    ppc64le)
        # Open Firmware loads the active partition of type 41 as a program (aik/SLOF: slof/fs/packages/disk-label.fs). sfdisk
        # creates none before block 2048.
        put "$img" 478 800000004100000040000000c0070000
        dd if="$1.prep" of="$img" seek=64 conv=notrunc status=none
        ;;
    s390x) zipl "$img" "$boot" "$folder" "$cmdline" ;;
    esac
    dd if="$boot" of="$img" bs=1M seek=1 conv=notrunc,sparse status=none
    root_offset=$(((1 + boot_mb) * 1048576))
}

# grub CMDLINE OPTION...: a GRUB that contains all modules that it needs and boots the kernel of the partition BOOT.
grub() {
    printf 'search.fs_label BOOT root\nlinux /vmlinuz %s\ninitrd /initrd\nboot\n' "$1" >"$work/grub.cfg"
    grub-mkimage -d "$packages/usr/lib/grub/$3" -p / -c "$work/grub.cfg" "${@:2}" part_msdos fat search_label linux boot
}

# zipl IMG PARTITION FOLDER CMDLINE: the kernel and initramfs of FOLDER in the file PARTITION, and in the first blocks of IMG
# the records by which QEMU's firmware boots them from a virtio disk (qemu/qemu: pc-bios/s390-ccw/bootmap.h and bootmap.c,
# `ipl_scsi`). All numbers are big-endian.
zipl() {
    local img=$1 boot=$2 folder=$3 cmdline=$4 at=$((0x2000000)) bytes initrd
    bytes=$(stat -c %s "$folder/vmlinuz") initrd=$(((bytes + 1048575) / 1048576))
    # The kernel's parameters are in its own image (torvalds/linux: arch/s390/include/asm/setup.h, `struct parmarea`).
    cp "$folder/vmlinuz" "$boot"
    put "$boot" $((0x10408)) "$(number 8 $at)$(number 8 "$(stat -c %s "$folder/initrd")")"
    put "$boot" $((0x10480)) "$(printf '%s' "$cmdline" | od -An -v -tx1 | tr -d ' \n')00"
    dd if="$folder/initrd" of="$boot" bs=1M seek=$initrd conv=notrunc status=none
    # "zIPL", version 1, the block of the program table; the table; the header of the program and its components: kernel
    # (2: load), initramfs, and the address to execute (1).
    local magic=7a49504c
    put "$img" 0 "$magic$(number 4 1)$(number 8 0)$(pointer 1 0)"
    put "$img" 512 "$magic$(number 12 0)$(pointer 2 0)"
    put "$img" 1024 "$magic$(number 28 0)$(pointer 3 0)$(number 8 2)$(number 8 0)$(pointer 4 0)$(number 8 2)$(number 8 $at)$(pointer 0 0)$(number 8 1)$(number 8 $((0x10000)))"
    put "$img" 1536 "$(pointer 2048 "$bytes")"
    put "$img" 2048 "$(pointer $((2048 + initrd * 2048)) "$(stat -c %s "$folder/initrd")")"
}
# number BYTES VALUE and pointer BLOCK BYTES: in hex; a pointer has the number of its last block.
number() { printf "%0$(($1 * 2))x" "$2"; }
pointer() { number 8 "$1"; number 2 512; number 2 $((($2 + 511) / 512 - ($2 > 0))); number 4 0; }
# put FILE OFFSET HEX
put() { printf "%b" "$(sed 's/../\\x&/g' <<<"$3")" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
