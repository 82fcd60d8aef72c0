# shellcheck shell=bash disable=SC2154
# Sourced by the builds of the guests with Debian's packages, after disk.sh. They set `here`, `work` (a directory) and `guest`.
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C
umask 022
say() { echo "$guest image: $* (after $SECONDS s)"; }
# list FILE: prints its lines without comments.
list() { sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$here/$1"; }

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
