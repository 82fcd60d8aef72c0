# `make help` lists the targets. Targets that need root install their packages on Debian 12.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: bench-nodes mutants docs tour reliability build test test-fast test-labs test-guests lint deny test-lab test-nodes node-lab test-kubernetes test-openstack test-openstack-ovn test-openstack-all lab-openstack node-image rehearse bench bench-ignition bench-download fuzz life install install-lab nextest clean help

# All backends, or all but libvirt if libvirt's headers are missing. Checked at each use, because a target may install them first.
WITHOUT_LIBVIRT := --no-default-features --features kubevirt,openstack,ovirt
FEATURES = $(shell pkg-config --exists libvirt 2>/dev/null || echo $(WITHOUT_LIBVIRT))
# If upstream's schemas are next to this folder, they validate the generated KubeVirt objects.
CRDS := $(wildcard ../shared/crds)
DENY := target/tools/bin/cargo-deny
MDBOOK := target/tools/bin/mdbook
MACHETE := target/tools/bin/cargo-machete
# Missing cargo tools are built into target/tools.
export PATH := $(CURDIR)/target/tools/bin:$(PATH)

build: ## build target/release/ocpdeploy (without the libvirt backend if libvirt's headers are missing)
	@[ -z "$(FEATURES)" ] || echo "make: libvirt's headers (libvirt-dev, pkg-config) are missing: building without the libvirt backend" >&2
	cargo build --release $(FEATURES)

test: export NEXTEST_PROFILE = ci
test: install ## run all checks and tests, including the rehearsal and all labs (root, about an hour)
	@# Kubernetes and the node image are built beside tests; who needs them waits for them.
	mkdir -p target; nice -n 19 $(MAKE) node-image >target/node-image.log 2>&1 & image=$$!; \
	trap 'kill $$image 2>/dev/null && wait $$image || true' EXIT; \
	OVIRT_SDK=required CSR_JUDGE=required $(MAKE) test-fast; \
	$(MAKE) test-labs; \
	wait $$image || true; \
	$(MAKE) test-nodes

test-labs: # those that wait for guests beside those that wait for servers: either leaves a processor idle
	mkdir -p target; $(MAKE) deny test-openstack test-kubernetes >target/test-servers.log 2>&1 & servers=$$!; \
	trap 'kill $$servers 2>/dev/null && wait $$servers || true' EXIT; \
	$(MAKE) test-guests; \
	wait $$servers || { cat target/test-servers.log; exit 1; }; \
	cat target/test-servers.log

test-guests: test-lab
	@# The tests' debug build is sufficient: a release build takes six minutes.
	PROGRAM=target/debug/ocpdeploy tests/lab/with.sh tests/lab/rehearse.sh

test-fast: lint nextest ## run rustfmt, clippy and the tests that need no lab (under 5 minutes when warm)
	@# Most tests wait for their child processes, so more of them run at once than there are cores.
	$(if $(CRDS),OCPDEPLOY_TEST_CRDS=$(abspath $(CRDS))) cargo nextest run $(FEATURES) --test-threads $$(($$(nproc) * 3))

lint: ## run rustfmt and clippy, without tests for builds with fewer backends
	cargo fmt --check
	cargo clippy --all-targets $(FEATURES) -- -D warnings
	cargo clippy $(WITHOUT_LIBVIRT) -- -D warnings
	cargo clippy --no-default-features -- -D warnings
	$(if $(FEATURES),,cargo clippy --no-default-features --features libvirt -- -D warnings)

mutants: ## mutate the decision modules and compare the undetected mutants with tests/mutants.txt (FILES=… to select)
	@command -v cargo-mutants >/dev/null || { cargo install cargo-mutants --locked --debug --root target/tools --target-dir target/tools/build; rm -rf target/tools/build; }
	tests/mutants.sh $(FILES)

deny: $(DENY) $(MACHETE) ## check licenses, sources, duplicate and unused crates, and advisories if their database is available
	$(MACHETE)
	$(DENY) check --hide-inclusion-graph bans licenses sources
	tests/advisories.sh $(DENY)

# Installed once; kept until `make clean`.
nextest:
	@command -v cargo-nextest >/dev/null || { cargo install cargo-nextest@0.9.143 --locked --debug --root target/tools --target-dir target/tools/build; rm -rf target/tools/build; }

$(MDBOOK):
	cargo install mdbook@0.5.4 --locked --debug --no-default-features --features search --root target/tools --target-dir target/tools/build
	rm -rf target/tools/build

$(DENY):
	cargo install cargo-deny@0.20.2 --locked --debug --no-default-features --root target/tools --target-dir target/tools/build
	rm -rf target/tools/build

$(MACHETE):
	cargo install cargo-machete@0.9.1 --locked --debug --root target/tools --target-dir target/tools/build
	rm -rf target/tools/build

test-lab: nextest ## run the tests on a real libvirt (root; LAB_TESTS=all includes the slowest, which `make test` leaves out)
	tests/lab/with.sh tests/lab/test.sh $(FEATURES)

test-nodes: install nextest node-image ## deploy a cluster of real nodes with a real Kubernetes (root, 9 minutes when the image is built)
	tests/lab/with.sh tests/lab/nodes/test.sh $(FEATURES)

node-lab: ## the same, and the longer tests of it: before a release (root, several hours)
	LAB_TESTS=all $(MAKE) test-nodes

test-openstack: install nextest ## start a real OpenStack and run the tests on it (root, 4.5 GB of memory)
	tests/lab/openstack/with.sh tests/lab/openstack/test.sh $(FEATURES)

test-openstack-ovn: install nextest ## the same on an OpenStack with ML2/OVN instead of linuxbridge; not part of `make test` (root, 4.5 GB of memory)
	LAB_TESTS=all OCPDEPLOY_OPENSTACK_SHAPE=ovn tests/lab/openstack/with.sh tests/lab/openstack/test.sh $(FEATURES)

test-openstack-all: install nextest ## all tests on an OpenStack with Cinder, Swift and Octavia, for nightly runs; OCPDEPLOY_OPENSTACK_SHAPE=ovn selects OVN (root, 8 GB of memory)
	LAB_TESTS=all OCPDEPLOY_OPENSTACK_SERVICES=all tests/lab/openstack/with.sh tests/lab/openstack/test.sh $(FEATURES)

test-kubernetes: install nextest ## run the KubeVirt backend's tests on a real API server, which is built once (root, under 10 minutes when built)
	$(if $(CRDS),OCPDEPLOY_TEST_CRDS=$(abspath $(CRDS))) tests/lab/kubernetes/test.sh $(FEATURES)

lab-openstack: install ## start that OpenStack and keep it running; for access see tests/lab/openstack/README.md
	tests/lab/openstack/lab.sh up

node-image: ## build target/images/node.qcow2, a guest that behaves like a CoreOS node with a real Kubernetes (root; 2 minutes, and 5 once for Kubernetes)
	tests/lab/install.sh images/node/packages.txt
	tests/lab/kubernetes/build.sh target/kubernetes
	nice images/node/build.sh target/images

rehearse: install-lab ## run both passes of a small cluster on a real libvirt (root; KEEP=1 keeps the cluster)
	@# Optimized code, and the other backends, take minutes to compile and no second less to rehearse.
	cargo build --no-default-features --features libvirt
	PROGRAM=target/debug/ocpdeploy tests/lab/with.sh tests/lab/rehearse.sh

life: install ## run the commands of docs/how-to/day-two.md on a real libvirt with a fake API (root)
	images/build.sh target/images
	cargo test $(FEATURES) --test lab --no-run
	OCPDEPLOY_LAB_URI=qemu:///system tests/lab/with.sh tests/lab/lab.sh exec \
		cargo test --offline $(FEATURES) --test lab life:: -- --ignored --nocapture

bench: install ## measure Ignition, then create, harvest and delete, compared with virsh and kcli (root, about 20 minutes)
	$(MAKE) build bench-ignition
	tests/lab/with.sh tests/bench/run.sh

bench-ignition: ## measure merging, checking and writing Ignition configs, compared with plain JSON
	cargo bench $(FEATURES) --bench ignition

bench-download: ## measure download, checksums and decompression of 1 GiB, compared with curl and gunzip (under 5 minutes)
	$(MAKE) build
	tests/bench/download.sh

bench-nodes: ## measure CPU time and memory of deploying 10 to 1000 nodes on the simulated platform (2 minutes)
	$(MAKE) build
	tests/bench/nodes.py target/release/ocpdeploy

reliability: install ## test every interruption, fault, hostile input and canary, and print a table (root, 40 minutes; KILLS=n on libvirt)
	FUZZ_SECONDS=$(or $(SECONDS),300) tests/reliability.sh $(FEATURES)

docs: $(MDBOOK) ## build the documentation as a site in target/book; `cargo test --test it docs::` checks its links
	$(MDBOOK) build

tour: ## capture docs/tutorials/tour.md on the simulated platform (tmux)
	cargo build --no-default-features
	tests/tour.sh

fuzz: ## fuzz env files, profiles, tables, journals, Ignition and platform responses for 5 minutes (SECONDS=n; requires a C++ compiler)
	fuzz/run.sh $(or $(SECONDS),300)

install: install-lab # packages of all tests
	tests/lab/install.sh tests/packages.txt
	tests/ovirt/install.sh

install-lab: # packages of the build, the lab and the rehearsal's guests
	@[ "$$(id -u)" = 0 ] || { echo "make: this starts libvirt and networks of its own and needs root: sudo env PATH=\"\$$PATH\" make $(MAKECMDGOALS)" >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "make: cargo is not installed; https://rustup.rs tells how" >&2; exit 1; }
	tests/lab/install.sh tests/lab/packages.txt images/packages.txt

clean: ## remove all build output
	cargo clean

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1@\2/p' $(MAKEFILE_LIST) | while IFS=@ read -r name what; do printf '  %-17s %s\n' "$$name" "$$what"; done
