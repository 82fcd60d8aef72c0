#!/usr/bin/env bash
# build.sh PROGRAM OUTDIR: a .tar.gz, a .deb and a .rpm of PROGRAM in OUTDIR, with a bill of materials and SHA256SUMS.
# FEATURES are the Cargo flags that PROGRAM was built with; LEVEL=1 compresses quickly.
# Debian's own tools create them: compiling cargo-deb and cargo-generate-rpm takes longer than this whole script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
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

tar_() {
    made+=("$name-$version-$(uname -m).tar.gz")
    tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
        --transform="s,^\.,$name-$version," -c . | gzip -n "-$level" >"$out/${made[-1]}"
}

deb() {
    local arch root=$work/deb depends
    arch=$(dpkg --print-architecture)
    cp -a "$tree" "$root"
    mv "$root/usr/share/doc/$name/LICENSE" "$root/usr/share/doc/$name/copyright"
    # The required libraries with their minimum versions.
    mkdir -p "$work/debian"
    echo "Source: $name" >"$work/debian/control"
    depends=$(cd "$work" && dpkg-shlibdeps -O "deb/usr/bin/$name" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
    mkdir "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<EOF
Package: $name
Version: $version
Architecture: $arch
Maintainer: the authors of $name
Section: admin
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $depends, ca-certificates
Recommends: libvirt0, openssh-client
Suggests: bash-completion, qemu-utils
Description: $summary
EOF
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    made+=("${name}_${version}_$arch.deb")
    dpkg-deb --root-owner-group -Zxz -z"$level" --build "$root" "$out/${made[-1]}" >/dev/null
}

rpm() {
    local arch root=$work/rpm
    arch=$(uname -m)
    cp -a "$tree" "$root"
    mkdir "$root/usr/share/zsh/site-functions"
    mv "$root"/usr/share/zsh/vendor-completions/_$name "$root/usr/share/zsh/site-functions/"
    rmdir "$root/usr/share/zsh/vendor-completions"
    # Directories belong to the packages of other programs.
    { (cd "$root" && find usr -path "usr/share/doc/$name" -prune -o -type f -printf '/%p\n'); echo "/usr/share/doc/$name"; } >"$work/files"
    # rpmbuild finds the libraries itself.
    cat >"$work/$name.spec" <<EOF
Name: $name
Version: $version
Release: 1
Summary: Deploys OpenShift 4 in two passes
License: Apache-2.0
Requires: ca-certificates
Recommends: libvirt-libs
Recommends: openssh-clients
%description
$summary
%install
cp -a $root/. %{buildroot}/
%files -f $work/files
%defattr(-,root,root)
EOF
    rpmbuild --quiet -bb --define "_topdir $work/rpmbuild" --define "_build_id_links none" --define "debug_package %{nil}" \
        --define "_binary_payload w$level.xzdio" --define "use_source_date_epoch_as_buildtime 1" --define "_buildhost localhost" \
        --define "__os_install_post %{nil}" --define "clamp_mtime_to_source_date_epoch 1" --target "$arch" "$work/$name.spec" >/dev/null
    made+=("$name-$version-1.$arch.rpm")
    mv "$work/rpmbuild/RPMS/$arch/${made[-1]}" "$out/"
}

tar_
deb
rpm
(cd "$out" && sha256sum "${made[@]}" | tee SHA256SUMS)
