# The cluster of `make rehearse`.
cluster=rehearsal
domain=example.com
backend=libvirt
libvirt_uri=qemu:///system
pool=default
network=default
# Emulation works everywhere; a KVM that is offered may still be broken.
virt_type=qemu
masters=3
workers=2
# Where `images/build.sh` puts the guests.
images_dir=../../target/images
