# `make help` lists the targets. Those that need root install what they need on Debian 12.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: bench-nodes mutants docs tour reliability build test test-fast lint deny test-lab test-kubernetes test-openstack lab-openstack rehearse bench bench-ignition bench-download fuzz life install install-lab nextest clean help

# The binding to libvirt needs libvirt's headers; without them every other backend still builds. Looked for at each use: a target may install them first.
FEATURES = $(shell pkg-config --exists libvirt 2>/dev/null || echo --no-default-features)
# Upstream's own schemas, where they lie beside this folder, judge what we make on KubeVirt.
CRDS := $(wildcard ../shared/crds)
DENY := target/tools/bin/cargo-deny
MDBOOK := target/tools/bin/mdbook
MACHETE := target/tools/bin/cargo-machete
# Tools of cargo's that are not on this machine are built into target/tools.
export PATH := $(CURDIR)/target/tools/bin:$(PATH)

build: ## build target/release/ocpdeploy (without libvirt where its headers are missing)
	@[ -z "$(FEATURES)" ] || echo "make: libvirt's headers (libvirt-dev, pkg-config) are missing: building without the libvirt backend" >&2
	cargo build --release $(FEATURES)

test: export NEXTEST_PROFILE = ci
test: install ## all checks and tests, rehearsal and both labs included (root, about 40 minutes)
	OVIRT_SDK=required CSR_JUDGE=required $(MAKE) test-fast deny
	tests/lab/with.sh $(MAKE) test-lab
	@# The tests' program will do: a release build takes six minutes.
	PROGRAM=target/debug/ocpdeploy tests/lab/with.sh tests/lab/rehearse.sh
	$(MAKE) test-openstack test-kubernetes

test-fast: lint nextest ## format, clippy and the tests that need no lab (under 5 minutes when warm)
	@# Most tests wait for what they started: more of them at once than there are cores.
	$(if $(CRDS),OCPDEPLOY_TEST_CRDS=$(abspath $(CRDS))) cargo nextest run $(FEATURES) --test-threads $$(($$(nproc) * 3))

lint: ## rustfmt and clippy
	cargo fmt --check
	cargo clippy --all-targets $(FEATURES) -- -D warnings
	cargo clippy --all-targets --no-default-features -- -D warnings

mutants: ## change the modules that decide, one place at a time, and list the changes no test notices (hours; FILES=… for some)
	@command -v cargo-mutants >/dev/null || { cargo install cargo-mutants --locked --debug --root target/tools --target-dir target/tools/build; rm -rf target/tools/build; }
	tests/mutants.sh $(FILES)

deny: $(DENY) $(MACHETE) ## licences, sources, double and unused crates; advisories where their database can be had
	$(MACHETE)
	$(DENY) check --hide-inclusion-graph bans licenses sources
	tests/advisories.sh $(DENY)

# These once; they stay until `make clean`.
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

test-lab: nextest ## the tests on a real libvirt (root)
	tests/lab/with.sh tests/lab/test.sh $(FEATURES)

test-openstack: install nextest ## the tests on a real OpenStack, which is started for them (root, 4.5 GB of memory)
	tests/lab/openstack/with.sh tests/lab/openstack/test.sh $(FEATURES)

test-kubernetes: install nextest ## the KubeVirt backend on a real API server, which is built once and started for it (root, under 10 minutes when built)
	$(if $(CRDS),OCPDEPLOY_TEST_CRDS=$(abspath $(CRDS))) tests/lab/kubernetes/test.sh $(FEATURES)

lab-openstack: install ## start that OpenStack and leave it running; tests/lab/openstack/README.md tells how to reach and stop it
	tests/lab/openstack/lab.sh up

rehearse: install-lab ## both passes of a small cluster on a real libvirt (root; KEEP=1 keeps the cluster)
	$(MAKE) build
	tests/lab/with.sh tests/lab/rehearse.sh

life: install ## the commands of docs/how-to/day-two.md on a real libvirt with a fake API (root)
	images/build.sh target/images
	cargo test $(FEATURES) --test lab --no-run
	OCPDEPLOY_LAB_URI=qemu:///system tests/lab/with.sh tests/lab/lab.sh exec \
		cargo test --offline $(FEATURES) --test lab life:: -- --ignored --nocapture

bench: install ## Ignition, then create, harvest and delete against plain virsh and kcli (root, about 20 minutes)
	$(MAKE) build bench-ignition
	tests/lab/with.sh tests/bench/run.sh

bench-ignition: ## merging, checking and writing Ignition configs against plain JSON
	cargo bench $(FEATURES) --bench ignition

bench-download: ## download, sums and decompression of 1 GiB against curl | gunzip (under 5 minutes)
	$(MAKE) build
	tests/bench/download.sh

bench-nodes: ## what deploying 10 to 1000 nodes costs this computer by itself, on the pretend platform (2 minutes)
	$(MAKE) build
	tests/bench/nodes.py target/release/ocpdeploy

reliability: install ## every cut, fault, hostile input and canary, and a table of them (root, 40 minutes; KILLS=n on libvirt)
	FUZZ_SECONDS=$(or $(SECONDS),300) tests/reliability.sh $(FEATURES)

docs: $(MDBOOK) ## the documentation as a site in target/book; `cargo test --test it docs::` checks its links
	$(MDBOOK) build

tour: ## write docs/tutorials/tour.md from a terminal on the simulated platform (tmux)
	cargo build --no-default-features
	tests/tour.sh

fuzz: ## hostile env files, profiles, tables, journals, Ignition and platforms' answers, 5 minutes (SECONDS=n); wants a C++ compiler
	fuzz/run.sh $(or $(SECONDS),300)

install: install-lab # what all tests need
	tests/lab/install.sh tests/packages.txt
	tests/ovirt/install.sh

install-lab: # what the build, the lab and the rehearsal's guests need
	@[ "$$(id -u)" = 0 ] || { echo "make: this starts libvirt and networks of its own and needs root: sudo env PATH=\"\$$PATH\" make $(MAKECMDGOALS)" >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "make: cargo is not installed; https://rustup.rs tells how" >&2; exit 1; }
	tests/lab/install.sh tests/lab/packages.txt images/packages.txt

clean: ## remove all that was built
	cargo clean

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1@\2/p' $(MAKEFILE_LIST) | while IFS=@ read -r name what; do printf '  %-17s %s\n' "$$name" "$$what"; done
