#!/usr/bin/env bash
# packages.sh ARCH CACHE DIR: unpacks the packages of a guest of another architecture into DIR. They are downloaded from the
# mirrors of this computer's apt into CACHE, by an apt with a state of its own. No package is installed, and no program of
# the other architecture runs.
set -euo pipefail
arch=$1 cache=$2 dir=$3
packages=(busybox-static ignition jq passwd)
case $arch in
aarch64) debian=arm64 packages+=(linux-image-cloud-arm64) loader=grub-efi-arm64-bin ;;
ppc64le) debian=ppc64el packages+=(linux-image-powerpc64le) loader=grub-ieee1275-bin ;;
s390x) debian=s390x packages+=(linux-image-s390x) loader= ;;
*) echo "images: no packages for architecture $arch" >&2; exit 2 ;;
esac

mkdir -p "$cache"/{lists,archives}/partial
# Without security updates: the release is sufficient for these guests, and it rarely changes.
mirrors() { "$(dirname "$0")/../../tests/lab/mirrors.sh" deb | grep -v -e -security; }
[ -n "$(mirrors)" ] || apt-get -q -q update
mirrors >"$cache/sources.list" || { echo "images: the apt of this computer has no Debian mirror" >&2; exit 1; }
# What these packages depend on and no guest needs is installed, as far as this apt knows.
for name in coreutils debconf initramfs-tools kmod linux-base; do
    printf 'Package: %s\nStatus: install ok installed\nArchitecture: %s\nVersion: 999\n\n' $name $debian
done >"$cache/status"
cat >"$cache/apt.conf" <<EOF
APT::Architecture "$debian";
APT::Architectures { "$debian"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::State "$cache";
Dir::State::status "$cache/status";
Dir::Cache "$cache";
Dir::Etc::SourceList "$cache/sources.list";
Dir::Etc::SourceParts "-";
EOF
export APT_CONFIG=$cache/apt.conf
apt-get -q -q update
apt-get -q -q -y --download-only install "${packages[@]}" >/dev/null
cd "$cache/archives"
[ -z "$loader" ] || apt-get -q -q download "$loader"
apt-get -q -q autoclean >/dev/null

mkdir -p "$dir"/usr/{bin,lib,lib64,sbin}
for name in bin lib lib64 sbin; do ln -s usr/$name "$dir/$name"; done
for file in *.deb; do dpkg-deb --fsys-tarfile "$file" | tar -x -C "$dir" --keep-directory-symlink --no-same-owner --exclude='./usr/share/*'; done
