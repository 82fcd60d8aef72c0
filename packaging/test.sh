#!/usr/bin/env bash
# test.sh OUTDIR: compares the packages that build.sh created in OUTDIR, tests the container image, then installs the .debs
# into a bare Debian 12 and tests them there: rehearsal on the simulated platform, man page, completion, guests of
# rehearsals, removal. Requires root.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "packaging: needs root" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
sha256sum --quiet --check SHA256SUMS
deb=$(realpath ./ocpdeploy_*.deb)
guests=$(realpath ./ocpdeploy-rehearsal_*.deb)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# All packages have the same files, except for three that are in other places.
mkdir "$work"/{tar,rpm,deb}{,-guests}
tar -C "$work/tar" --strip-components=1 -xzf ./ocpdeploy-[0-9]*.tar.gz
rpm2cpio ./ocpdeploy-[0-9]*.rpm | (cd "$work/rpm" && cpio -idm --quiet)
dpkg-deb -x "$deb" "$work/deb"
mv "$work/rpm/usr/share/zsh/site-functions" "$work/rpm/usr/share/zsh/vendor-completions"
mv "$work/deb/usr/share/doc/ocpdeploy/copyright" "$work/deb/usr/share/doc/ocpdeploy/LICENSE"
diff -r "$work/tar" "$work/rpm"
diff -r "$work/tar" "$work/deb"
tar -C "$work/tar-guests" --strip-components=1 -xzf ./ocpdeploy-rehearsal-*.tar.gz
rpm2cpio ./ocpdeploy-rehearsal-*.rpm | (cd "$work/rpm-guests" && cpio -idm --quiet)
dpkg-deb -x "$guests" "$work/deb-guests"
mv "$work/deb-guests/usr/share/doc/ocpdeploy-rehearsal/copyright" "$work/deb-guests/usr/share/doc/ocpdeploy-rehearsal/LICENSE"
diff -r "$work/tar-guests" "$work/rpm-guests"
diff -r "$work/tar-guests" "$work/deb-guests"

# The container image: its configuration, and a rehearsal in its root file system.
archive=oci-archive:$(echo ./*.oci.tar)
skopeo inspect --config "$archive" | python3 -c '
import json, sys
config = json.load(sys.stdin)["config"]
assert config["Entrypoint"] == ["ocpdeploy"] and "/state" in config["Volumes"], config'
skopeo --insecure-policy copy -q "$archive" "oci:$work/layout:latest"
umoci raw unpack --image "$work/layout:latest" "$work/image"
chroot "$work/image" env -i OCPDEPLOY_HOME=/state HOME=/state ocpdeploy -q deploy --rehearse --backend sim >/dev/null
chroot "$work/image" env -i HOME=/root ocpdeploy init --backend libvirt >"$work/asked" 2>&1 <<<test:///default || true
grep -q 'ok: connected to libvirt' "$work/asked"
echo "packaging: the container image works"

cat >"$work/inside" <<'EOF'
#!/bin/bash
set -euo pipefail
fail() { echo "packaging: $*" >&2; exit 1; }
export HOME=/root LANG=C.UTF-8
cd
ocpdeploy deploy --rehearse --backend sim | tee rehearsal
grep -q 'rehearsal of cluster rehearsal.example.com succeeded' rehearsal
ocpdeploy destroy rehearsal --yes
# Only connections to a libvirt host need libvirt's library.
! ocpdeploy init --backend libvirt >libvirt 2>&1 <<<qemu:///system || fail "connected to libvirt without its library"
grep -q 'hint: install it: `sudo apt install libvirt0`' libvirt || fail "$(<libvirt)"
[ "$(man -w ocpdeploy)" = /usr/share/man/man1/ocpdeploy.1.gz ] || fail "no man page"
man ocpdeploy-deploy | grep -q -- --rehearse || fail "the man page of deploy does not mention --rehearse"
. /usr/share/bash-completion/bash_completion
_completion_loader ocpdeploy || [ $? = 124 ]
read -r _ _ function _ < <(complete -p ocpdeploy | grep -o -- '-F .*' | sed 's/^/x /')
COMP_WORDS=(ocpdeploy dep) COMP_CWORD=1 COMP_TYPE=9
"$function" ocpdeploy dep ocpdeploy
[ "${COMPREPLY[*]}" = deploy ] || fail "dep is completed to '${COMPREPLY[*]}'"
cd /usr/share/doc/ocpdeploy
links=$(grep -oE '\]\([^):#]+[)#]' README.md | tr -d '](#)')
for file in README.md $links copyright env.sh.sample sbom.cdx.json examples/profiles; do
    [ -s "$file" ] || fail "no $file"
done
cd
# Without the package of the guests, the error names it.
plan() { ocpdeploy plan --rehearse --backend libvirt --set libvirt_uri=test:///default >planned 2>&1 || true; }
plan
grep -q 'help: install the package ocpdeploy-rehearsal' planned || fail "$(<planned)"
dpkg -i guests.deb
plan
! grep -q 'does not exist' planned || fail "$(<planned)"
dpkg --verify ocpdeploy ocpdeploy-rehearsal
dpkg --purge ocpdeploy ocpdeploy-rehearsal
[ -z "$(find / -xdev -name '*ocpdeploy*' ! -path '/root/*' ! -path '/var/cache/man/*')" ] || fail "files remain after the removal"
EOF
chmod +x "$work/inside"
"$here/root.sh" "$work/root" "$deb" --include=man-db,bash-completion \
    --customize-hook="cp '$work/inside' \"\$1/root/inside\" && cp '$guests' \"\$1/root/guests.deb\" && chroot \"\$1\" /root/inside"
echo "packaging: $(basename "$deb") and $(basename "$guests") work in a bare Debian"
