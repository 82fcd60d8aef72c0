# shellcheck shell=bash disable=SC2154
# Sourced by the builds of the guests with Debian's packages, after disk.sh. They have one argument, OUTDIR, and set `here` and
# `guest`.
[ $# -eq 1 ] || { echo "usage: build.sh OUTDIR" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "$guest image: needs root" >&2; exit 1; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C
umask 022
say() { echo "$guest image: $* (after $SECONDS s)"; }
# list FILE: prints its lines without comments.
list() { sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$here/$1"; }

# begin RESULT [INPUT]: ends the build if RESULT in OUTDIR is of this recipe, kernel and INPUT. Otherwise sets `work`, a directory,
# for the build, which ends with `keep`. A second build waits, then finds the result of the first.
begin() {
    exec 8>"$out/.$guest-lock"
    flock 8
    stamp=$({ echo "$kernel ${2-}"; cd "$here"; find . -printf '%m %p\n' | sort
              find . ../common/{cmdline,disk.sh,debian.sh,removed.txt} -type f -print0 | sort -z | xargs -0 sha256sum; } | sha256sum | cut -d' ' -f1)
    if [ -s "$out/$1" ] && [ "$(cat "$out/.$guest-stamp" 2>/dev/null)" = "$stamp" ]; then
        echo "$guest image: up to date in $out"
        exit 0
    fi
    work=$(mktemp -d "$out/.$guest.XXXXXX")
    trap 'rm -rf --one-file-system "$work"' EXIT
}

# keep FILE...: replaces these files of OUTDIR by those in `work`.
keep() {
    local file
    rm -f "$out/.$guest-stamp"
    for file; do rm -rf "${out:?}/$file"; mv "$work/$file" "$out/"; done
    echo "$stamp" >"$out/.$guest-stamp"
    say "$1, $(($(stat -c %s "$out/$1") / 1048576)) MiB"
}

# bootstrap VARIANT LIST TARGET OPTION...: installs the packages of LIST into TARGET, a directory or a tar file, from the mirrors
# of this machine's apt.
bootstrap() {
    local mirrors=$here/../../tests/lab/mirrors.sh options path
    [ -n "$("$mirrors" deb)" ] || apt-get -q -q update
    "$mirrors" deb >"$work/sources.list"
    # This machine's apt options for connections to the mirrors, such as proxies.
    mapfile -t options < <(apt-config dump | sed -nE 's/^Acquire::(https?|Check|Retries)[^ ]* "[^"]+";$/--aptopt=&/p')
    for path in doc man info locale bug lintian; do options+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
    mmdebstrap --quiet --mode=root --variant="$1" --include="$(list "$2" | paste -sd,)" --dpkgopt=force-unsafe-io \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' "${options[@]}" "${@:4}" \
        bookworm "$3" "$work/sources.list"
}

# trim ROOT [LIST]: moves the initramfs out of ROOT to `work`, and removes what no guest needs, and what LIST contains.
trim() {
    local list
    mv "$1/boot/initrd" "$work/initrd"
    for list in ../common/removed.txt "${@:2}"; do remove "$1" "$list"; done
    rm -f "$1/etc/resolv.conf"
    : >"$1/etc/resolv.conf"
    find "$1/usr/lib/systemd/system" -xtype l ! -lname /dev/null -delete
}

# remove ROOT LIST: removes the files that match the patterns of LIST.
remove() {
    local pattern
    while read -r pattern; do
        eval "rm -rf -- $(printf %q "$1")/$pattern"
    done < <(list "$2")
}

# root_disk IMG ROOT INITRD CMDLINE ROOT_MB: writes a boot disk with the tree ROOT as its root into the file IMG.
root_disk() {
    boot_disk "$1" "$3" "$4" "$5"
    mke2fs -q -t ext4 -L root -O ^metadata_csum -m 0 -J size=16 \
        -E "offset=$root_offset,lazy_itable_init=1,lazy_journal_init=1,nodiscard" -d "$2" "$1" "${5}M"
    say "initramfs $(($(stat -c %s "$3") / 1048576)) MiB, root $(du -sm --apparent-size "$2" | cut -f1) MiB"
}
