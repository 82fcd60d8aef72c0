# shellcheck shell=bash disable=SC2034
# Sourced by the builds of all guests: their kernel and their boot disk.

# The newest cloud kernel whose modules are installed.
kernel=$(find /boot -name 'vmlinuz-*-cloud-amd64' -printf '%f\n' | sed 's/^vmlinuz-//' | sort -V | tail -n1)
if [ -z "$kernel" ] || [ ! -d "/lib/modules/$kernel" ]; then echo "images: no cloud kernel in /boot" >&2; exit 1; fi
epoch=1600000000                    # any fixed date: same inputs, same disk

# boot_disk IMG INITRD CMDLINE ROOT_MB: an MBR disk in the file IMG: a FAT partition with boot loader, kernel and initramfs,
# and space for a root of ROOT_MB, which begins at the byte `root_offset` (none if ROOT_MB is 0).
boot_disk() {
    local img=$1 initrd=$2 cmdline=$3 root_mb=$4 folder=$1.boot fat=$1.fat start=2048 fat_mb
    mkdir "$folder"
    cp "/boot/vmlinuz-$kernel" "$folder/vmlinuz"
    cp "$initrd" "$folder/initrd"
    printf 'DEFAULT linux\nPROMPT 0\nNOESCAPE 1\nLABEL linux\n KERNEL vmlinuz\n INITRD initrd\n APPEND %s\n' "$cmdline" >"$folder/syslinux.cfg"
    touch -d "@$epoch" "$folder"/*
    fat_mb=$((($(stat -c %s "$folder/vmlinuz") + $(stat -c %s "$folder/initrd")) / 1048576 + 4))
    mkfs.fat --invariant -F 16 -h $start -n BOOT -C "$fat" $((fat_mb * 1024)) >/dev/null
    mcopy -m -i "$fat" "$folder"/{vmlinuz,initrd,syslinux.cfg} ::
    syslinux -i "$fat"
    truncate -s $(((1 + fat_mb + root_mb) * 1048576)) "$img"
    {
        printf 'label: dos\nlabel-id: 0x6f637064\nstart=%s, size=%s, type=e, bootable\n' $start $((fat_mb * 2048))
        [ "$root_mb" = 0 ] || echo "type=83"
    } | sfdisk -q "$img"
    dd if=/usr/lib/syslinux/mbr/mbr.bin of="$img" conv=notrunc status=none
    dd if="$fat" of="$img" bs=1M seek=1 conv=notrunc,sparse status=none
    root_offset=$(((1 + fat_mb) * 1048576))
}
