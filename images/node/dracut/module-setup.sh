#!/bin/bash
# Parts that Debian's module `ignition` leaves to the distribution: a network for the stage `fetch`, and a base config.
check() { return 255; }
depends() { echo ignition network-manager; }
install() {
    inst_multiple ip rm
    inst_simple /etc/ssl/certs/ca-certificates.crt
    inst_simple /usr/lib/ignition/base.d/00-core.ign
    inst_script "$moddir/network.sh" /usr/libexec/lab-network
    inst_simple "$moddir/lab-network.service" "$systemdsystemunitdir/lab-network.service"
    mkdir -p "$initdir/$systemdsystemunitdir/ignition-complete.target.requires"
    ln_r "$systemdsystemunitdir/lab-network.service" "$systemdsystemunitdir/ignition-complete.target.requires/lab-network.service"
}
