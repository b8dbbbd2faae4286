# SPDX-License-Identifier: GPL-2.0-only
# The targets. Their scripts are in mk/ (toolbox, kernel, module) and tests/runner (guests).

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test test-debug bench engine-bench profile incast params performance scale faults dos endurance fuzz fuzz-calls fuzz-frames fuzz-corpus \
	fuzz-coverage shell shell-walk modules install uninstall releases kernels unit scenarios manual python misuses dissector model simulation lint fmt clean toolbox runner \
	packages package-test package-test-dkms mpi-test mpi-hosts programs storage

# 'make KDIR=...' reaches the scripts through the environment
export KDIR RELEASE ONLY KERNELS LAST INSTALL_MOD_PATH ENET_CACHE COUNTED
ifeq ($(strip $(KDIR)),)
unexport KDIR
endif
ifeq ($(strip $(RELEASE)),)
unexport RELEASE
endif
ifeq ($(strip $(INSTALL_MOD_PATH)),)
unexport INSTALL_MOD_PATH
endif
ifeq ($(strip $(ENET_CACHE)),)
unexport ENET_CACHE
endif

# the scripts print the time since the start
export ENET_STARTED := $(shell date +%s)

in-toolbox := mk/toolbox run
runner-program := build/cargo-toolbox/release/runner
run-guests = kernel=$$(mk/kernel path) && $(in-toolbox) $(runner-program) --kernel "$$kernel" $(if $(RELEASE),--other)
run-debug-guests = kernel=$$(mk/debug-kernel path) && $(in-toolbox) $(runner-program) --kernel "$$kernel" --debug

help:
	@echo 'enet: Ethernet sockets (PF_ENET) for Linux. Needs a Debian host and root; fetches everything else.'
	@echo
	@echo '  make demo       show in a minute, in an emulated guest, what a message costs by tcp, udp, raw, edp and esp, how long questions'
	@echo '                  take beside streams, what 32 senders to one get, and redis as it is and by enet run; draws build/demo.svg'
	@echo '  make test       run every test: crates, module, scenarios in a stock kernel, lints; prints the count at the end'
	@echo '  make test-debug run the scenarios in a debug kernel: KASAN, lockdep, kmemleak, and more;'
	@echo '                  builds that kernel first (a quarter of an hour, once); ONLY="name ..." selects scenarios'
	@echo '  make modules    build build/module/enet.ko for Debian'\''s stock kernel;'
	@echo '                  RELEASE=7.3.4+deb13-amd64 builds build/module-RELEASE/enet.ko for that kernel of Debian'\''s,'
	@echo '                  and most other verbs boot it then; 7.3.4+deb13-arm64 is cross-built and emulated;'
	@echo '                  make releases lists the kernels of the mirror;'
	@echo '                  KDIR=TREE builds for any kernel tree with Rust metadata, with the host'\''s tools'
	@echo '  make kernels    build for every supported kernel, run the scenarios in each; rewrites the table of docs/kernels.md;'
	@echo '                  KERNELS="release ..." selects kernels, ONLY="name ..." selects scenarios'
	@echo '  make install    build for the running kernel (or KDIR or RELEASE) and install, with depmod, headers and manual pages;'
	@echo '                  make uninstall removes all that it installed'
	@echo '  make packages   build Debian packages in build/packages: enet-modules-RELEASE, enet-dkms, enet-tools, netgauge,'
	@echo '                  openmpi-btl-esp, libsockaddr-en-dev, python3-sockaddr-en; MODULE_KEY=FILE MODULE_CERT=FILE sign the module,'
	@echo '                  REPO_KEY=KEY the index for apt by gpg. make package-test installs them by apt in a fresh system and boots it,'
	@echo '                  then upgrades the last version'\''s with connections open, rolls back and purges;'
	@echo '                  LAST=COMMIT names that version; make package-test-dkms installs with DKMS and the newest kernel'
	@echo '  make mpi-test   build the Open MPI component of mpi/, and run four ranks over its test mode; needs no module;'
	@echo '                  make mpi-hosts runs Open MPI over ESP between hosts in a guest, ONLY="name ..." selects tests'
	@echo '  make programs   run iperf3, redis, nginx, postgres and others of Debian, unchanged, over mapped sockets between hosts in a'
	@echo '                  guest, ONLY="name ..." selects some; ONLY=measure COUNTED=1 prints instructions per request over ESP and TCP;'
	@echo '                  DEBUG=1 uses the kernel of test-debug'
	@echo '  make storage    replicate a device between two guests by DRBD over sockets of the family ssocks, and use'
	@echo '                  one by iSCSI (ONLY=drbd, ONLY=iscsi); COUNTED=1 prints instructions of a write, over ESP and TCP'
	@echo '  make shell      open a shell in a guest with two hosts, a and b, the module, the programs, redis, strace, tcpdump, gcc and more;'
	@echo '                  HOST=b opens one on b from another terminal; build/share is its /share;'
	@echo '                  make shell-walk types there what README and docs/using.md tell to type, and fails where it does not work'
	@echo
	@echo ' Parts of make test:'
	@echo '  make unit       test the crates'
	@echo '  make scenarios  run the scenarios; ONLY="name ..." selects some'
	@echo '  make manual     check the manual pages; make dissector checks the Wireshark dissector, make python the Python package'
	@echo '  make misuses    check that the snippets of tests/misuse do not compile'
	@echo '  make model      explore every placement of some losses in small configurations; OPTIONS=--deep explores more'
	@echo '  make lint, fmt  check format and warnings; correct the format'
	@echo
	@echo ' Measurements, in guests whose clock counts instructions:'
	@echo '  make bench      instructions per half round trip and per byte, by protocol; fails if one exceeds its budget in'
	@echo '                  netgauge/budgets.toml; OPTIONS="--only *byte*" measures less; OPTIONS=--memory counts loads, stores,'
	@echo '                  locked instructions and misses of modelled caches instead'
	@echo '  make profile    the instructions of a message by function; PROTOCOL="esp tcp" compares, OPTIONS="--block 1048576" is of a stream, "--flood" of a flood'
	@echo '  make incast     many senders to one receiver on a switch with small buffers: goodput, drops, fairness;'
	@echo '                  OPTIONS="--protocols esp --senders 32" measures less, OPTIONS=--help lists all'
	@echo '  make params     goodput of one ESP stream over burst_length and packets_to_ack; draws build/esp-params.svg'
	@echo '  make scale      10,000 connections, and 1,000 per second, beside TCP: memory, instructions, ports'
	@echo '  make faults     five kinds of traffic on all kinds of bad links; rewrites the table of docs/faults.md;'
	@echo '                  OPTIONS="--only loss_30*" runs some cells, OPTIONS=--free uses wall time'
	@echo '  make dos        attacks by a host on the same Ethernet: cost of a frame, and goodput of a stream beside it'
	@echo '  make performance  the theses'\'' figures for this kernel: writes docs/performance.md and its pictures in some minutes;'
	@echo '                  OPTIONS=--redraw writes them from the last results'
	@echo
	@echo ' Measurements on the host:'
	@echo '  make engine-bench  the engines edp/ and esp/ alone, in wall time (criterion);'
	@echo '                  OPTIONS="--save-baseline NAME" and "--baseline NAME" compare'
	@echo '  make simulation OPTIONS=scale: up to 1,000 simulated senders; OPTIONS=--help lists the studies'
	@echo
	@echo ' Fuzzing; SEED=... repeats a run, DEBUG=1 uses the kernel of test-debug:'
	@echo '  make fuzz       libFuzzer on edp/ and esp/, TIME=60 seconds per target; fuzz-coverage prints what the corpus reaches,'
	@echo '                  fuzz-corpus adds new inputs to it'
	@echo '  make fuzz-frames  FRAMES=1000000 hostile frames to sockets in every state, in a guest'
	@echo '  make fuzz-calls SECONDS=300 of random calls by processes that are killed at random'
	@echo '  make endurance  MINUTES=60 of all traffic between two guests while their link is cut and restored;'
	@echo '                  SERVER=7.3.4+deb13-arm64 gives the server another kernel, and here another architecture than the client'
	@echo
	@echo '  make clean      remove build/; fetched files stay in $${ENET_CACHE:-~/.cache/enet}'

toolbox:
	@mk/toolbox

runner: toolbox
	@mk/build-runner

demo:
	@mk/demo

shell:
	@mk/shell $(HOST)

shell-walk:
	@mk/shell walk

test: runner
	@mk/lint kernel
	@$(run-guests) $@

dos manual python misuses dissector: runner
	@$(run-guests) $@

bench: runner
	@set -f; $(run-guests) $@ $(OPTIONS)

profile: runner
	@$(run-guests) $@ $(PROTOCOL) $(OPTIONS)

engine-bench: toolbox
	@$(in-toolbox) cargo bench --quiet --locked -p edp -p esp -- $(OPTIONS)

incast params scale faults: runner
	@$(run-guests) $@ $(OPTIONS)

# with --redraw, only writes the page, from the last results
performance: runner
	@$(if $(filter --redraw,$(OPTIONS)),:,$(run-guests) $@ $(OPTIONS))
	@$(in-toolbox) cargo run --quiet --release --locked -p performance -- build/performance.json docs

fuzz-calls: runner
	@$(if $(DEBUG),$(run-debug-guests),$(run-guests)) $@ --seconds $(or $(SECONDS),300) $(addprefix --seed ,$(SEED))

# one toolbox has both architectures' emulators
ifneq ($(filter %-arm64,$(SERVER)),)
endurance: export ENET_TOOLBOX := arm64
endif
endurance: runner
	@$(if $(SERVER),server=$$(RELEASE=$(SERVER) mk/kernel path) &&) \
		$(if $(DEBUG),$(run-debug-guests),$(run-guests)) $@ $(addprefix --minutes ,$(MINUTES)) $(addprefix --seed ,$(SEED)) \
		$(if $(SERVER),--server-kernel "$$server")

model: toolbox
	@$(in-toolbox) cargo run --quiet --release --locked -p esp-model -- $(OPTIONS)

simulation: toolbox
	@$(in-toolbox) cargo run --quiet --release --locked -p esp-simulation -- $(OPTIONS)

# libFuzzer is a crate; its flags are in mk/fuzz
export TIME
fuzz:
	@mk/fuzz

fuzz-corpus:
	@mk/fuzz merge

fuzz-coverage:
	@mk/fuzz coverage

fuzz-frames: runner
	@$(if $(DEBUG),$(run-debug-guests),$(run-guests)) fuzz-frames $(if $(FRAMES),--frames $(FRAMES)) $(if $(SEED),--seed $(SEED))

scenarios: runner
	@set -f; $(run-guests) scenarios $(ONLY)

test-debug: runner
	@set -f; $(run-debug-guests) scenarios $(ONLY)

modules:
	@mk/module

install:
	@mk/module install

uninstall:
	@mk/module uninstall

packages:
	@mk/packages

package-test: packages
	@mk/package-test
	@mk/package-test upgrade
	@mk/package-test image

# RELEASE is the kernel that DKMS builds for, not the one that enet-modules is for
package-test-dkms:
	@RELEASE= mk/packages
	@mk/package-test dkms

kernels: toolbox
	@mk/kernels

mpi-test:
	@mk/mpi test

mpi-hosts:
	@set -f; mk/mpi hosts $(ONLY)

programs:
	@set -f; mk/programs $(ONLY)

storage:
	@set -f; mk/storage $(ONLY)

releases:
	@mk/kernel list

unit: toolbox
	@$(in-toolbox) cargo test --workspace --all-features --locked

lint:
	@mk/lint

fmt: toolbox
	@$(in-toolbox) cargo fmt --all

clean:
	@rm -rf build
