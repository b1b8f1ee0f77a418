# The entry point for all work on taut. `make help` lists the targets.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CARGO    ?= cargo
TARGET   ?= target
TRIPLE   := x86_64-unknown-linux-gnu
# Profile of the programs. Those that the tests run may have `dev`, like the tests: `.ci/run` builds
# all dependencies once in this way.
PROFILE  ?= release
OUT      := $(PROFILE:dev=debug)
BIN      := $(TARGET)/$(OUT)
IMAGES   := $(TARGET)/images
GUEST    := $(TARGET)/$(TRIPLE)/$(OUT)/taut-guest
# Each selection of packages builds their dependencies with features of its own, so there are few.
# With the profile of the tests, the programs have the tests' selection.
NOT_INSTALLED := $(if $(filter dev,$(PROFILE)),,--exclude taut-tests --exclude taut-fuzz-targets --exclude taut-goals)
INSTALLED := --workspace --exclude taut-guest $(NOT_INSTALLED)
# Programs that the host and guest tiers run: what is installed, and examples.
TESTED    := $(INSTALLED) --bins --lib --example tcp_program --example queue_pair_probe --example seqpacket --example datagrams
TIERS     := --workspace --test launch --test host --test guest --test hidden
# Tests of the guest tier that `make test` leaves to `make test-slow`.
SLOW      := nested::frames_of_a_virtual_function nested::uplinks_on_debian_12s_kernel
# Tests of the guest tier that `make test` runs beside the host tier: each mostly waits for the CPUs
# of one emulated host.
NESTED    := nested::
# Tests of the host tier that `make test` runs beside the others of this tier: they wait for timers
# most of the time, and allow for a busy host.
TIMERS    := hanging::
# Tests that leave themselves out add a line here.
SKIPS    := $(abspath $(TARGET))/skips.txt
SCRIPTS   = $(shell git ls-files '*.sh' .ci/run)
SUDO     := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env PATH="$$PATH")
# The host and guest tiers, up to the arguments that choose tests. HOST_TIER has to be run as root;
# GUEST_TIER becomes root itself.
HOST_TIER  := env TAUT_BIN=$(abspath $(BIN)) $(CARGO) test --workspace --test host -- --test-threads=1
GUEST_TIER := $(SUDO) env TAUT_BIN=$(abspath $(BIN)) TAUT_IMAGES=$(abspath $(IMAGES)) $(CARGO) test --workspace --test guest -- --test-threads=1
export CARGO_TARGET_DIR := $(abspath $(TARGET))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup-run build images ## Boot two Debian VMs on a taut vSwitch, measure them, print the table
	@$(SUDO) tools/demo.sh $(abspath $(BIN)) $(abspath $(IMAGES)) $(abspath $(TARGET))/demo

.PHONY: build
build: guest ## Build everything that is installed
	$(CARGO) build --profile $(PROFILE) $(INSTALLED) --bins --lib

# The host tier runs the static binary for VMs, too, as the agent of namespaces.
.PHONY: build-tested
build-tested: guest
	$(CARGO) build --profile $(PROFILE) $(TESTED)
	$(CARGO) build --workspace --example forbidden_acts
	$(CARGO) test $(TIERS) --no-run

# Guests unpack this binary into their memory. Without symbols it is a tenth as large.
# Images may be made of it just now, so it is replaced only by another one, and at once.
.PHONY: guest
guest: ## Build the static binary for inside a VM
	RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" $(CARGO) build --profile $(PROFILE) -p taut-guest --target $(TRIPLE)
	@mkdir -p $(BIN) && { cmp -s $(GUEST) $(BIN)/taut-guest || { cp -p $(GUEST) $(BIN)/taut-guest.new && mv $(BIN)/taut-guest.new $(BIN)/taut-guest; }; }

# Where `make install` puts the programs, libraries, manual pages and the unit of the daemon. With
# DESTDIR it fills a folder, for packages, and does not become root.
PREFIX   ?= /usr/local
UNITS    ?= /etc/systemd/system
PROGRAMS := taut tautd taut-fabric taut-console taut-guest taut-image taut-inspect taut-launch taut-micro
LIBRARIES := libtaut_vmci.so libtaut_vmci_c.so libtaut_vmci_c.a
INSTALL  := $(if $(DESTDIR),,$(SUDO) )install

# install(1) writes new files, which a program that runs needs.
.PHONY: install
install: build ## Install everything to PREFIX (/usr/local), and a unit of systemd
	$(INSTALL) -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib include share/man/man1) $(DESTDIR)$(UNITS)
	$(INSTALL) -m 755 $(addprefix $(BIN)/,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin
	$(INSTALL) -m 644 $(addprefix $(BIN)/,$(LIBRARIES)) $(DESTDIR)$(PREFIX)/lib
	$(INSTALL) -m 644 crates/vmci_c/include/taut_vmci.h $(DESTDIR)$(PREFIX)/include
	$(BIN)/taut man $(BIN)/man && $(INSTALL) -m 644 $(BIN)/man/* $(DESTDIR)$(PREFIX)/share/man/man1
	sed 's|/usr/local|$(PREFIX)|' dist/tautd.service >$(BIN)/tautd.service
	$(INSTALL) -m 644 $(BIN)/tautd.service $(DESTDIR)$(UNITS)

.PHONY: pump
pump: ## Build qp_pump, which measures queue pairs inside VMs: target/release/qp_pump
	RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" $(CARGO) build --profile $(PROFILE) -p taut-vmci-client --example qp_pump --target $(TRIPLE)
	@mkdir -p $(BIN) && rm -f $(BIN)/qp_pump && cp -p $(TARGET)/$(TRIPLE)/$(OUT)/examples/qp_pump $(BIN)/qp_pump

.PHONY: images
images: build ## Make the guest images (Debian's kernels with taut's guest as init)
	@tools/images.sh $(BIN) $(IMAGES)

.PHONY: test
test: setup-test forget-skips lint-text build-tested build-crates ## Run everything that CI runs
	@tools/beside.sh "models" $(MAKE) --no-print-directory test-models -- \
	  $(MAKE) --no-print-directory test-crates
	@tools/beside.sh "nested hosts, checks, the build for guests and examples" $(MAKE) --no-print-directory beside-host -- \
	  $(MAKE) --no-print-directory test-host-in-two
	@$(MAKE) --no-print-directory test-guest LEFT_OUT=$(NESTED)
	@if [ -s $(SKIPS) ]; then echo "left out, as TAUT_ALLOW_SKIP=$$TAUT_ALLOW_SKIP allows:"; \
	  LC_ALL=C sort -u $(SKIPS) | sed 's/^/  /'; else echo "no test was left out"; fi

# Many tests of crates and most of the host tier wait. What they need not is built and checked
# meanwhile. Models have target folders of their own, and checks come when the host tier runs, so
# that no tests wait for a lock. The programs are not built again, since the host tier runs them.
.PHONY: beside-host
beside-host:
	@tools/images.sh $(BIN) $(IMAGES)
	$(GUEST_TIER) $(addprefix --skip ,$(SLOW)) $(NESTED)
	@$(MAKE) --no-print-directory clippy deny pump test-docs

.PHONY: forget-skips
forget-skips:
	@rm -f $(SKIPS)

.PHONY: test-unit build-crates test-crates test-docs test-models
test-unit: test-crates test-docs test-models ## Tests that need nothing of the host

# Tests of the crates run the two examples of TCP programs and load the preload library.
build-crates:
	$(CARGO) build --workspace --lib --example tcp_program --example tcp_transfer
	$(CARGO) test --workspace --tests --no-run

test-crates: build-crates
	$(CARGO) test --workspace --tests

# Examples in the documentation.
test-docs:
	$(CARGO) test --workspace --doc

# Models of threads' steps; and the fuzz programs compile.
test-models:
	$(CARGO) check --locked --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz/check
	$(CARGO) test --locked --manifest-path tests/loom/Cargo.toml --target-dir $(TARGET)/loom

.PHONY: test-host
test-host: build-tested ## Tests that need root and network namespaces
	$(SUDO) $(CARGO) test --workspace --test launch
	$(SUDO) $(HOST_TIER) $(addprefix --skip ,$(LEFT_OUT))

.PHONY: test-host-in-two test-timers
test-host-in-two:
	@tools/beside.sh "tests that wait for timers" $(MAKE) --no-print-directory test-timers -- \
	  $(MAKE) --no-print-directory test-host LEFT_OUT=$(TIMERS)

# Tests that wait for timers would be late in the class that `beside.sh` chooses.
test-timers:
	$(SUDO) chrt --other 0 $(HOST_TIER) $(TIMERS)

.PHONY: test-guest
test-guest: build-tested pump ## Tests that boot VMs in QEMU
	@tools/images.sh $(BIN) $(IMAGES)
	$(GUEST_TIER) $(addprefix --skip ,$(SLOW) $(LEFT_OUT))

.PHONY: test-slow
test-slow: setup-test build-tested ## Tests that take many minutes, in nested hosts
	@tools/images.sh $(BIN) $(IMAGES)
	$(GUEST_TIER) $(SLOW)

.PHONY: test-hidden
test-hidden: setup-test build-tested pump ## Show that tests fail without a prerequisite
	@tools/images.sh $(BIN) $(IMAGES)
	$(SUDO) env TAUT_BIN=$(abspath $(BIN)) TAUT_IMAGES=$(abspath $(IMAGES)) $(CARGO) test --workspace --test hidden -- --test-threads=1 --nocapture

.PHONY: lint lint-text clippy deny
lint: lint-text clippy deny ## Format, clippy, shellcheck, licences and sources of dependencies

lint-text:
	$(CARGO) fmt --all --check
	shellcheck $(SCRIPTS)

# With --all-targets, cargo leaves the tiers out.
clippy:
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(TIERS) -- -D warnings

deny:
	@tools/deny.sh

.PHONY: bench
bench: setup-test build images ## Microguests and VMs side by side with TAP + Linux bridge
	$(CARGO) build --release -p taut-goals
	@$(SUDO) $(BIN)/taut-goals run SK --rows SK3,SK4 $(FOLDERS) --out $(TARGET)/bench

.PHONY: bench-switch
bench-switch: setup-rivals
bench-switch: setup-test build ## taut's switch beside OVS-DPDK, DPDK's vhost and a Linux bridge
	$(CARGO) build --release -p taut-goals
	$(CARGO) build --release -p taut-bench --example switch_report
	@$(SUDO) $(TOOLS) NOTE="$(NOTE)" $(BIN)/taut-goals run SW $(if $(QUICK),--quick) $(FOLDERS) --out $(TARGET)/bench-switch
	@if [ -n "$(QUICK)" ]; then \
	  $(BIN)/examples/switch_report $(TARGET)/performance.md $(TARGET)/performance.svg $(SWITCHES)/20*.json; \
	else \
	  cp $(SWITCHES)/20*.json bench/results/ \
	  && $(BIN)/examples/switch_report docs/performance.md docs/performance.svg $$(ls -r bench/results/*.json); \
	fi

# Results of the last bench-switch.
SWITCHES = $(TARGET)/bench-switch/SW-latest/SW1

# Folders that the rows of goals need, and where setup.sh puts rivals.
FOLDERS = --programs $(BIN) --images $(IMAGES)
TOOLS = env TAUT_RIVALS="$(TAUT_RIVALS)" PATH="$$PATH:$(abspath $(TARGET))/tools/bin"

.PHONY: goals
goals: setup-rivals $(if $(filter PG,$(SET)),setup-clients)
goals: setup-test build images ## Measure goals: make goals SET=SK [ROWS="SK3 SK4"] [QUICK=1]
	$(CARGO) build --release -p taut-goals
	@$(SUDO) $(TOOLS) $(BIN)/taut-goals run $(or $(SET),SK) --rows "$(ROWS)" $(if $(QUICK),--quick) $(FOLDERS) --out $(TARGET)/goals

.PHONY: fuzz
fuzz: setup-fuzz ## Fuzz every border with hostile bytes for 10 minutes: make fuzz [SECONDS=600]
	@tools/fuzz.sh $(or $(SECONDS),600)

.PHONY: setup-run setup-test setup-rivals setup-clients setup-fuzz
setup-run: ## Install what running needs (QEMU, iproute2 …)
	@tools/setup.sh run
setup-test: ## Install what the tests need besides
	@tools/setup.sh run test
setup-rivals: ## Install what rows are measured beside; without it they are not measured
	-@tools/setup.sh rivals
setup-clients: ## Install a browser and schemathesis, with which the page and the API are tried
	@tools/setup.sh clients
setup-fuzz: ## Install what fuzzing needs (a C++ compiler for libFuzzer)
	@tools/setup.sh fuzz

.PHONY: clean
clean: ## Remove everything built
	$(CARGO) clean
