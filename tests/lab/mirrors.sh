#!/usr/bin/env bash
# mirrors.sh deb|deb-src: the Debian mirrors of this machine's apt as one-line entries.
set -euo pipefail
apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)|$(ORIGIN)' 'Created-By: Packages' |
    sed -n 's/|Debian$//p' | sort -u | while read -r uri suite component key; do
        case $key in /*) key="[signed-by=$key] " ;; *) key= ;; esac
        echo "$1 $key$uri $suite $component"
    done
