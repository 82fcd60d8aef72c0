#!/usr/bin/env bash
# build.sh PROGRAM OUTDIR IMAGES: a .tar.gz, a .deb and a .rpm of PROGRAM in OUTDIR, with a bill of materials and
# SHA256SUMS, and the same three with the guests of rehearsals that images/build.sh has written to IMAGES.
# FEATURES are the Cargo flags that PROGRAM was built with; LEVEL=1 compresses quickly.
# Debian's own tools create them: compiling cargo-deb and cargo-generate-rpm takes longer than this whole script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1") images=$(realpath "$3")
for tool in dpkg-shlibdeps rpmbuild strip; do
    command -v $tool >/dev/null || { echo "packaging: $tool is missing; packages.txt lists the required packages" >&2; exit 1; }
done
rm -rf "$2"
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$here/.."
# The same sources produce the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
export SOURCE_DATE_EPOCH
level=${LEVEL:-9}
work=$(mktemp -d "$out/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
field() { sed -nE "s/^$1 = \"(.*)\"/\\1/p" Cargo.toml | head -n 1; }
name=ocpdeploy version=$(field version) summary=$(field description)
umask 022

# The files of every package, below usr. The program generates completions and man pages.
tree=$work/tree share=$work/tree/usr/share
doc=$share/doc/$name
install -D -m 755 "$program" "$tree/usr/bin/$name"
strip "$tree/usr/bin/$name"
completion() { install -d "$share/$(dirname "$2")"; "$program" util completion "$1" >"$share/$2"; }
completion bash bash-completion/completions/$name
completion fish fish/vendor_completions.d/$name.fish
completion zsh zsh/vendor-completions/_$name
"$program" -q util man "$share/man/man1"
gzip -9n "$share"/man/man1/*.1
install -d "$doc/examples"
# README has links to the other pages.
cp -r --parents README.{md,svg} ARCHITECTURE.md CONTRIBUTING.md docs tests/lab/nodes/README.md LICENSE env.sh.sample "$doc/"
cp -r profiles "$doc/examples/"
# shellcheck disable=SC2086
python3 "$here/sbom.py" ${FEATURES-} >"$doc/sbom.cdx.json"
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
cp -p "$doc/sbom.cdx.json" "$out/$name-$version.cdx.json"
made=("$name-$version.cdx.json")

# tar_ NAME-VERSION-ARCH TREE: its files, below NAME-VERSION.
tar_() {
    made+=("$1.tar.gz")
    tar -C "$2" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
        --transform="s,^\.,${1%"-$(uname -m)"}," -c . | gzip -n "-$level" >"$out/${made[-1]}"
}

# deb NAME ARCH ROOT: a package of the files in ROOT; further fields of its control file are read from stdin.
deb() {
    local root=$3
    mv "$root/usr/share/doc/$1/LICENSE" "$root/usr/share/doc/$1/copyright"
    mkdir "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<EOF
Package: $1
Version: $version
Architecture: $2
Maintainer: the authors of $name
Section: admin
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
EOF
    cat >>"$root/DEBIAN/control"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    made+=("$1_${version}_$2.deb")
    dpkg-deb --root-owner-group -Zxz -z"$level" --build "$root" "$out/${made[-1]}" >/dev/null
}

# rpm NAME ARCH ROOT: a package of the files in ROOT; tags of its spec file, and its description, are read from stdin.
rpm() {
    local root=$3
    # Directories of other programs belong to their packages.
    { (cd "$root" && find usr -path "usr/share/doc/$1" -prune -o -path "usr/share/$name" -prune -o -type f -printf '/%p\n')
      for own in "usr/share/doc/$1" "usr/share/$name"; do [ ! -d "$root/$own" ] || echo "/$own"; done; } >"$work/files"
    # rpmbuild finds the libraries itself.
    { printf '%s\n' "Name: $1" "Version: $version" 'Release: 1' 'License: Apache-2.0'
      cat
      printf '%s\n' %install "cp -a $root/. %{buildroot}/" "%files -f $work/files" '%defattr(-,root,root)'; } >"$work/$1.spec"
    rpmbuild --quiet -bb --define "_topdir $work/rpmbuild" --define "_build_id_links none" --define "debug_package %{nil}" \
        --define "_binary_payload w$level.xzdio" --define "use_source_date_epoch_as_buildtime 1" --define "_buildhost localhost" \
        --define "__os_install_post %{nil}" --define "clamp_mtime_to_source_date_epoch 1" --target "$2" "$work/$1.spec" >/dev/null
    made+=("$1-$version-1.$2.rpm")
    mv "$work/rpmbuild/RPMS/$2/${made[-1]}" "$out/"
}

tar_ "$name-$version-$(uname -m)" "$tree"
cp -a "$tree" "$work/deb"
# The required libraries with their minimum versions.
mkdir -p "$work/debian"
echo "Source: $name" >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "deb/usr/bin/$name" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
deb "$name" "$(dpkg --print-architecture)" "$work/deb" <<EOF
Depends: $depends, ca-certificates
Recommends: libvirt0, openssh-client
Suggests: bash-completion, qemu-utils, $name-rehearsal
Description: $summary
EOF
cp -a "$tree" "$work/rpm"
mkdir "$work/rpm/usr/share/zsh/site-functions"
mv "$work"/rpm/usr/share/zsh/vendor-completions/_$name "$work/rpm/usr/share/zsh/site-functions/"
rmdir "$work/rpm/usr/share/zsh/vendor-completions"
rpm "$name" "$(uname -m)" "$work/rpm" <<EOF
Summary: Deploys OpenShift 4 in two passes
Requires: ca-certificates
Recommends: libvirt-libs
Recommends: openssh-clients
Suggests: $name-rehearsal
%description
$summary
EOF

# The guests of rehearsals, of all architectures that were built.
guests=$work/guests summary="Guests for rehearsals of $name"
for image in "$images"/{coreos,helper}{,-aarch64,-ppc64le,-s390x}.qcow2; do
    [ ! -e "$image" ] || install -D -m 644 "$image" "$guests/usr/share/$name/rehearsal/$(basename "$image")"
done
[ -d "$guests" ] || { echo "packaging: $images has no guests; images/build.sh builds them" >&2; exit 1; }
install -D -m 644 LICENSE "$guests/usr/share/doc/$name-rehearsal/LICENSE"
install -D -m 644 images/README.md "$guests/usr/share/doc/$name-rehearsal/README.md"
find "$guests" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
tar_ "$name-rehearsal-$version" "$guests"
cp -a "$guests" "$work/guests-deb"
deb "$name-rehearsal" all "$work/guests-deb" <<<"Description: $summary"
rpm "$name-rehearsal" noarch "$guests" <<EOF
Summary: $summary
%description
$summary, built from packages of Debian 12
EOF
(cd "$out" && sha256sum "${made[@]}" | tee SHA256SUMS)
