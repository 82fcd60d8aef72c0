#!/usr/bin/env bash
# tools.sh ROOT: turns the unpacked packages into the root of a container image. mmdebstrap calls it before its own cleanup.
set -euo pipefail
cd "$1"
rm -rf usr/share/{bash-completion,gcc,gdb,mibs,perl,perl5,zoneinfo} usr/lib/x86_64-linux-gnu/{perl,perl-base,gconv} \
    usr/lib/{init,systemd,udev} lib/systemd etc/{init.d,cron.daily,logrotate.d} boot home media mnt opt srv
ln -sf gawk usr/bin/awk
[ -e bin/sh ] || ln -s dash bin/sh
printf 'root:x:0:0:root:/root:/bin/bash\nhaproxy:x:99:99::/:/bin/false\n' >etc/passwd
printf 'root:x:0:\nhaproxy:x:99:\n' >etc/group
mkdir -p root run tmp var/run
chmod 1777 tmp
