# `make help` lists the targets. Targets that need root install their packages on Debian 12.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: bench-upload bench-page bench-small dist test-dist run-tests compile install-all install-build prepare-labs root bench-nodes mutants docs tour reliability build test test-fast test-labs test-rehearsal test-libvirt test-nodes test-cloud test-openstack test-kubernetes test-rest lint deny lab-openstack node-image cloud-image rehearse bench bench-ignition bench-download fuzz life install nextest clean help

# All backends, or all except libvirt if libvirt's headers are missing. Evaluated at each use: a target may install them first.
WITHOUT_LIBVIRT := --no-default-features --features kubevirt,openpgp,openstack,ovirt
FEATURES = $(shell pkg-config --exists libvirt 2>/dev/null || echo $(WITHOUT_LIBVIRT))
# If upstream's schemas are next to this directory, they validate the generated KubeVirt objects.
CRDS := $(wildcard ../shared/crds)
LAB_PACKAGES := tests/packages-build.txt tests/lab/packages.txt images/packages.txt
TEST_PACKAGES := $(LAB_PACKAGES) tests/packages.txt
ALL_PACKAGES := $(TEST_PACKAGES) $(addsuffix /packages-foreign.txt,images tests/lab) $(addsuffix /packages.txt,tests/lab/kubernetes tests/lab/openstack images/node packaging)
DENY := target/tools/bin/cargo-deny
MDBOOK := target/tools/bin/mdbook
MACHETE := target/tools/bin/cargo-machete
# Missing cargo tools are built into target/tools, without optimization to save time. If two targets need the same tool at
# the same time, the second waits for the lock and then finds it installed.
export PATH := $(CURDIR)/target/tools/bin:$(PATH)
cargo_tool = mkdir -p target/tools && flock target/tools/lock sh -c 'CARGO_PROFILE_DEV_DEBUG=0 cargo install $(1) --locked --debug --root target/tools --target-dir target/tools/build && rm -rf target/tools/build'

# phase CMD...: runs CMD and prints its duration.
phase = phase() { local begun=$$SECONDS; "$$@"; echo "make: $${*:2}: $$((SECONDS - begun)) s"; }

build: ## build target/release/ocpdeploy (without the libvirt backend if libvirt's headers are missing)
	@[ -z "$(FEATURES)" ] || echo "make: libvirt's headers (libvirt-dev, pkg-config) are missing: building without the libvirt backend" >&2
	cargo build --release $(FEATURES)

# Tests list the parts that they leave out in this file; `print_left_out` prints it at the end.
export TEST_LEFT_OUT ?= $(CURDIR)/target/left-out
begin = mkdir -p target; : >$(TEST_LEFT_OUT); $(phase)
print_left_out = sort -u $(TEST_LEFT_OUT); echo "make: $@: $$(sort -u $(TEST_LEFT_OUT) | wc -l) parts left out"

test: export NEXTEST_PROFILE = ci
test: ## check the format, run clippy, all tests without a lab and a rehearsal on a real libvirt (15 to 25 minutes on two cores, 8 to 15 when warm; as root it installs packages and leaves nothing out)
	@$(begin); packages=; is_root=$$([ "$$(id -u)" != 0 ] || echo yes); trap wait EXIT; \
	if [ $$is_root ]; then $(MAKE) install-build; $(MAKE) install >target/install.log 2>&1 & packages=$$!; \
	else echo "LEFT OUT: only root can install packages and rehearse on a libvirt of its own" >>$(TEST_LEFT_OUT); fi; \
	phase $(MAKE) lint; \
	[ -z "$$packages" ] || wait $$packages || { cat target/install.log; exit 1; }; \
	JUDGES=$${is_root:+required} phase $(MAKE) run-tests; \
	[ -z "$$is_root" ] || phase $(MAKE) test-rehearsal; \
	$(print_left_out)

LABS := libvirt nodes cloud openstack kubernetes rest
LAB ?= $(LABS)
# Duration of each lab on a slow computer while another lab runs.
libvirt_seconds := 1500
nodes_seconds := 1500
cloud_seconds := 900
openstack_seconds := 1800
kubernetes_seconds := 1000
rest_seconds := 600
# lab SECONDS NAME: runs a lab, unless it might not finish before TEST_DEADLINE (seconds since the epoch).
lab = lab() { \
	if [ $$(($${TEST_DEADLINE:-9999999999} - $$(date +%s))) -ge "$$1" ]; then phase $(MAKE) "test-$$2"; \
	else echo "LEFT OUT: lab $$2: it might not finish by TEST_DEADLINE" >>$(TEST_LEFT_OUT); fi; }

test-labs: install-all ## run the tests on real platforms (root, 30 to 60 minutes; LAB=libvirt, nodes, cloud, openstack, kubernetes or rest selects; LAB_TESTS=all adds the slowest)
	@# Two labs at once: a single lab leaves a processor idle while its guests and servers start one after the other.
	@$(begin); $(lab); \
	{ $(foreach lab,$(filter openstack kubernetes cloud,$(LAB)),lab $($(lab)_seconds) $(lab);) :; } >target/test-servers.log 2>&1 & servers=$$!; \
	trap wait EXIT; \
	$(foreach lab,$(filter libvirt nodes rest,$(LAB)),lab $($(lab)_seconds) $(lab);) \
	wait $$servers || { cat target/test-servers.log; exit 1; }; \
	cat target/test-servers.log; \
	$(print_left_out)

test-rehearsal: # in its own lab, so that it can run alongside other labs
	@# The tests' debug build is sufficient: a release build takes six minutes.
	OCPDEPLOY_LAB=rehearsal PROGRAM=target/debug/ocpdeploy tests/lab/with.sh tests/lab/rehearse.sh

test-libvirt: nextest
	tests/lab/with.sh tests/lab/test.sh $(FEATURES)

test-nodes: export OCPDEPLOY_LAB = nodes
test-nodes: nextest node-image # OCPDEPLOY_LAB: can run alongside another lab
	tests/lab/with.sh tests/lab/nodes/test.sh $(FEATURES)

test-cloud: export OCPDEPLOY_LAB = cloud
test-cloud: nextest cloud-image # OCPDEPLOY_LAB: can run alongside another lab
	tests/lab/with.sh tests/lab/cloud.sh $(FEATURES)

test-openstack: nextest # OCPDEPLOY_OPENSTACK_SHAPE=ovn: with ML2/OVN; OCPDEPLOY_OPENSTACK_SERVICES=all: with Cinder, Swift and Octavia
	tests/lab/openstack/with.sh tests/lab/openstack/test.sh $(FEATURES)

test-kubernetes: nextest
	$(if $(CRDS),OCPDEPLOY_TEST_CRDS=$(abspath $(CRDS))) tests/lab/kubernetes/test.sh $(FEATURES)

test-rest: export OCPDEPLOY_LAB = rest
test-rest: compile test-dist bench-small # packages, each benchmark in its smallest size, and whether the mutants can be built
	SMALL=1 PROGRAM=target/debug/ocpdeploy tests/lab/with.sh tests/bench/run.sh
	SMALL=1 PROGRAM=target/debug/ocpdeploy tests/lab/with.sh tests/bench/upload.sh libvirt
	tests/mutants.sh --check
	$(clippy) --lib --no-default-features --features libvirt # the features of `make rehearse`
	sha256sum --quiet --check tests/deny.sum || $(MAKE) deny # only if needed: its tools take minutes to build

test-fast: export NEXTEST_PROFILE = fast
test-fast: lint run-tests ## run rustfmt, clippy and the tests that need no lab, without the longest (under 3 minutes on two cores when warm)

run-tests: nextest
	@# Most tests wait for their child processes, so more of them run at once than there are cores.
	$(if $(CRDS),OCPDEPLOY_TEST_CRDS=$(abspath $(CRDS))) cargo nextest run $(FEATURES) --test-threads $$(($$(nproc) * 8))

compile: nextest # all tests, including those of the labs, and a benchmark
	cargo nextest run $(FEATURES) --no-run
	cargo test $(FEATURES) --bench ignition --no-run

clippy = RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tests/clippy_only.sh CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ cargo build
lint: ## run rustfmt, and clippy on everything and on a build without libvirt
	cargo fmt --check
	$(clippy) --all-targets $(FEATURES)
	$(clippy) --lib $(WITHOUT_LIBVIRT)

mutants: ## mutate the decision modules and compare the undetected mutants with tests/mutants.txt (FILES=… to select)
	@command -v cargo-mutants >/dev/null || { $(call cargo_tool,cargo-mutants); }
	tests/mutants.sh $(FILES)

deny: $(DENY) $(MACHETE) ## check licenses, sources, duplicate and unused crates, and advisories if their database is available
	$(MACHETE)
	$(DENY) check --hide-inclusion-graph bans licenses sources
	tests/advisories.sh $(DENY)
	sha256sum Cargo.toml Cargo.lock deny.toml >tests/deny.sum

# Installed once; kept until `make clean`.
nextest:
	@command -v cargo-nextest >/dev/null || { $(call cargo_tool,cargo-nextest@0.9.143); }

$(MDBOOK):
	$(call cargo_tool,mdbook@0.5.4 --no-default-features --features search)

$(DENY):
	$(call cargo_tool,cargo-deny@0.20.2 --no-default-features)

$(MACHETE):
	$(call cargo_tool,cargo-machete@0.9.1)

lab-openstack: install ## start the OpenStack lab and keep it running; for access see tests/lab/openstack/README.md
	tests/lab/openstack/lab.sh up

node-image: ## build target/images/node.qcow2, a guest that behaves like a CoreOS node with a real Kubernetes (root; 2 minutes, and 5 once for Kubernetes)
	tests/lab/install.sh images/node/packages.txt
	tests/lab/kubernetes/build.sh target/kubernetes
	images/node/build.sh target/images

cloud-image: ## build target/images/cloud-*.qcow2, Debian 12 with the real cloud-init, for each of its renderers (root, 3 minutes)
	tests/lab/install.sh images/node/packages.txt
	images/cloud/build.sh target/images

rehearse: install-build ## run both passes of a small cluster on a real libvirt (root; KEEP=1 keeps the cluster)
	@# Packages and guests are prepared while the compiler runs. Optimization and the other backends would only cost time.
	mkdir -p target; { tests/lab/install.sh $(LAB_PACKAGES) && images/build.sh target/images; } >target/install.log 2>&1 & lab=$$!; \
	trap wait EXIT; \
	CARGO_INCREMENTAL=0 cargo build --no-default-features --features libvirt; \
	wait $$lab || { cat target/install.log; exit 1; }
	PROGRAM=target/debug/ocpdeploy tests/lab/with.sh tests/lab/rehearse.sh

life: install ## run the commands of docs/how-to/day-two.md on a real libvirt with a fake API (root)
	images/build.sh target/images
	cargo test $(FEATURES) --test lab --no-run
	OCPDEPLOY_LAB_URI=qemu:///system tests/lab/with.sh tests/lab/lab.sh exec \
		cargo test --offline $(FEATURES) --test lab life:: -- --ignored --nocapture

dist: build ## build the release in target/dist: tar, .deb, .rpm, the same of the guests of rehearsals, container image (root), bill of materials, sums (Debian 12)
	tests/lab/install.sh packaging/packages.txt images/packages.txt
	images/build.sh target/images
	FEATURES="$(FEATURES)" packaging/build.sh target/release/ocpdeploy target/dist target/images
	if [ "$$(id -u)" = 0 ]; then packaging/image.sh target/dist; else echo "make: the container image needs root" >&2; fi

test-dist: root compile ## build packages of the debug program, and run a rehearsal in a bare Debian and in the container image (root, 3 minutes)
	tests/lab/install.sh packaging/packages.txt images/packages.txt
	images/build.sh target/images
	FEATURES="$(FEATURES)" LEVEL=1 packaging/build.sh target/debug/ocpdeploy target/test-dist target/images
	packaging/image.sh target/test-dist
	packaging/test.sh target/test-dist

bench: install ## measure Ignition, then create, harvest and delete, compared with virsh and kcli (root, about 20 minutes)
	$(MAKE) build bench-ignition
	tests/lab/with.sh tests/bench/run.sh

bench-ignition: ## measure merging, checking and writing Ignition configs, compared with plain JSON
	cargo bench $(FEATURES) --bench ignition | tests/bench/record.py ignition

bench-download: ## measure download, checksums and decompression of 1 GiB, compared with curl and gunzip (under 5 minutes)
	$(MAKE) build
	tests/bench/download.sh

bench-upload: install ## measure the upload of an image as large as CoreOS', compared with the platforms' own programs (root, 15 minutes)
	$(MAKE) build
	images/build.sh target/images
	tests/lab/with.sh tests/bench/upload.sh libvirt
	tests/bench/upload.sh ovirt
	tests/lab/openstack/with.sh tests/bench/upload.sh openstack

bench-nodes: ## measure CPU time and memory of deploying 10 to 1000 nodes on the simulated platform (2 minutes)
	$(MAKE) build
	tests/bench/nodes.py target/release/ocpdeploy | tests/bench/record.py nodes

bench-page: ## import the results in target/bench, and write docs/reference/benchmarks.md from all results
	tests/bench/report.py adopt

bench-small: export SMALL = 1
bench-small: compile # each benchmark in its smallest size, except on libvirt, to show that it still works
	tests/bench/report.py check
	PROGRAM=target/debug/ocpdeploy tests/bench/download.sh
	tests/bench/nodes.py target/debug/ocpdeploy 10 | tests/bench/record.py nodes
	cargo test $(FEATURES) --bench ignition | tests/bench/record.py ignition
	tests/ovirt/install.sh
	images/build.sh target/images
	PROGRAM=target/debug/ocpdeploy tests/bench/upload.sh ovirt

reliability: install ## test every interruption, fault, hostile input and canary, and print a table (root, 40 minutes; KILLS=n on libvirt)
	FUZZ_SECONDS=$(or $(SECONDS),300) tests/reliability.sh $(FEATURES)

docs: $(MDBOOK) ## build the documentation as a site in target/book; `cargo test --test it docs::` checks its links
	$(MDBOOK) build

tour: ## capture docs/tutorials/tour.md on the simulated platform (tmux)
	cargo build --no-default-features
	tests/tour.sh

fuzz: ## fuzz env files, profiles, tables, journals, Ignition and platform responses for 5 minutes (SECONDS=n; requires a C++ compiler)
	fuzz/run.sh $(or $(SECONDS),300)

install: root # packages of the tests
	tests/lab/install.sh $(TEST_PACKAGES)
	tests/ovirt/install.sh
	tests/openstacksdk/install.sh
	tests/nmcli.sh

install-all: root # packages of all labs at once
	tests/lab/install.sh $(ALL_PACKAGES)
	tests/lab/openstack/install.sh target/openstack/packages & \
	tests/ovirt/install.sh && tests/openstacksdk/install.sh && tests/nmcli.sh && wait $$!

prepare-labs: install-all node-image cloud-image # network-bound tasks and Go builds, run in the background while the tests run

install-build: root # packages of the build
	tests/lab/install.sh tests/packages-build.txt

root:
	@[ "$$(id -u)" = 0 ] || { echo "make: this target starts its own libvirt and networks and needs root: sudo env PATH=\"\$$PATH\" make $(MAKECMDGOALS)" >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "make: cargo is not installed; see https://rustup.rs" >&2; exit 1; }

clean: ## remove all build output
	cargo clean

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1@\2/p' $(MAKEFILE_LIST) | while IFS=@ read -r name what; do printf '  %-17s %s\n' "$$name" "$$what"; done
