# The cluster of `make rehearse`.
cluster=rehearsal
domain=example.com
backend=libvirt
libvirt_uri=qemu:///system
libvirt_storage_pool=default
network=default
# Emulation works everywhere; an available KVM may still be broken.
libvirt_virt_type=qemu
masters=3
workers=2
# The output folder of `images/build.sh`.
images_dir=../../target/images
