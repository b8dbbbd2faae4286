# SPDX-License-Identifier: GPL-2.0-only
# The verbs. What each does is in mk/ (toolbox, kernel, module) and tests/runner (guests).

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test test-debug bench engine-bench profile incast params performance scale faults dos endurance fuzz fuzz-calls fuzz-frames fuzz-corpus \
	fuzz-coverage shell modules install unit scenarios manual misuses dissector model simulation lint fmt clean toolbox runner

# 'make KDIR=...' reaches the scripts through the environment
export KDIR INSTALL_MOD_PATH ENET_CACHE
ifeq ($(strip $(KDIR)),)
unexport KDIR
endif
ifeq ($(strip $(INSTALL_MOD_PATH)),)
unexport INSTALL_MOD_PATH
endif
ifeq ($(strip $(ENET_CACHE)),)
unexport ENET_CACHE
endif

# the scripts tell how long everything has taken so far
export ENET_STARTED := $(shell date +%s)

in-toolbox := mk/toolbox run
runner-program := build/cargo-toolbox/release/runner
run-guests = kernel=$$(mk/kernel path) && $(in-toolbox) $(runner-program) --kernel "$$kernel"
run-debug-guests = kernel=$$(mk/debug-kernel path) && $(in-toolbox) $(runner-program) --kernel "$$kernel" --debug

help:
	@echo 'PF_ENET: Ethernet sockets for Linux. Debian host, root; everything else is fetched.'
	@echo
	@echo '  make demo       two guests on an emulated wire, netgauge over tcp, udp, raw, edp and esp'
	@echo '  make test       everything: crates, module, scenarios in a stock kernel, lints; ends with its count'
	@echo '  make test-debug the scenarios in a kernel that looks for faults: KASAN, lock proving, leaks, and more;'
	@echo '                  builds that kernel first (a quarter of an hour, once); ONLY="name ..." runs those'
	@echo '  make bench      instructions per half round trip and per byte, by protocol, beside their budgets in'
	@echo '                  netgauge/budgets.toml; fails if one is exceeded'
	@echo '  make engine-bench  what the engines edp/ and esp/ take alone, by this machine'\''s clock (criterion);'
	@echo '                  OPTIONS="--save-baseline NAME" and "--baseline NAME" compare'
	@echo '  make profile    the same by function: where a message'\''s instructions go; PROTOCOL="esp tcp" compares these'
	@echo '  make incast     many senders to one receiver on a switch with small buffers: goodput, drops, fairness;'
	@echo '                  OPTIONS="--protocols esp --senders 32" measures less, OPTIONS=--help lists all'
	@echo '  make params     goodput of one ESP stream over burst_length and packets_to_ack, and build/esp-params.svg'
	@echo '  make performance  the theses'\'' figures for this kernel: docs/performance.md and its pictures, in some minutes;'
	@echo '                  OPTIONS=--redraw writes them from what was measured last'
	@echo '  make scale      10,000 connections and 1,000 per second, beside TCP: memory, instructions, ports'
	@echo '  make dos        attacks by a host on the same Ethernet: what each costs, and what a stream beside it keeps'
	@echo '  make fuzz-calls random calls by processes killed at random; SECONDS=300, SEED=... makes the same ones again;'
	@echo '                  DEBUG=1 in the kernel of test-debug'
	@echo '  make endurance  MINUTES=60 SEED=...: two guests and every kind of traffic while the link is cut and restored;'
	@echo '                  DEBUG=1 in the kernel of test-debug'
	@echo '  make faults     five kinds of traffic over bad wires of every kind: the table of docs/faults.md, anew;'
	@echo '                  OPTIONS="--only loss_30*" runs some cells, --free without counted clocks'
	@echo '  make model      explore every placement of some losses in small configurations; OPTIONS=--deep does more'
	@echo '  make simulation OPTIONS=scale: up to 1,000 senders without a kernel; OPTIONS=--help lists the studies'
	@echo '  make fuzz       libFuzzer on edp/ and esp/, TIME=60 seconds per target; fuzz-coverage prints what the corpus reaches,'
	@echo '                  fuzz-corpus takes what was found into it'
	@echo '  make fuzz-frames  FRAMES=1000000 SEED=1: hostile frames against all kinds of sockets, in a guest;'
	@echo '                  DEBUG=1 in the kernel of test-debug'
	@echo '  make modules    build/module/enet.ko for Debian'\''s stock kernel;'
	@echo '                  KDIR=TREE builds for any kernel tree with Rust metadata, with the host'\''s tools'
	@echo '  make install    build it for the running kernel (or KDIR) and install it, with depmod'
	@echo
	@echo '  make unit       the crates'\'' tests alone'
	@echo '  make scenarios  the scenarios alone; ONLY="name ..." runs those'
	@echo '  make manual     the manual pages alone; make dissector: the Wireshark dissector alone'
	@echo '  make misuses    the snippets of tests/misuse alone, which must not compile'
	@echo '  make shell      a guest with the module and the programs, for trying things'
	@echo '  make lint, fmt  check, or mend, format and warnings'
	@echo '  make clean      remove build/; what was fetched stays in $${ENET_CACHE:-~/.cache/enet}'

toolbox:
	@mk/toolbox

runner: toolbox
	@mk/build-runner

demo test bench dos shell manual misuses dissector: runner
	@$(run-guests) $@

profile: runner
	@$(run-guests) $@ $(PROTOCOL) $(OPTIONS)

engine-bench: toolbox
	@$(in-toolbox) cargo bench --quiet --locked -p edp -p esp -- $(OPTIONS)

incast params performance scale faults: runner
	@$(run-guests) $@ $(OPTIONS)

fuzz-calls: runner
	@$(if $(DEBUG),$(run-debug-guests),$(run-guests)) $@ --seconds $(or $(SECONDS),300) $(addprefix --seed ,$(SEED))

endurance: runner
	@$(if $(DEBUG),$(run-debug-guests),$(run-guests)) $@ $(addprefix --minutes ,$(MINUTES)) $(addprefix --seed ,$(SEED))

model: toolbox
	@$(in-toolbox) cargo run --quiet --release --locked -p esp-model -- $(OPTIONS)

simulation: toolbox
	@$(in-toolbox) cargo run --quiet --release --locked -p esp-simulation -- $(OPTIONS)

# libFuzzer comes as a crate; the flags that feed it are in mk/fuzz
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

unit: toolbox
	@$(in-toolbox) cargo test --workspace --all-features --locked

lint:
	@mk/lint

fmt: toolbox
	@$(in-toolbox) cargo fmt --all

clean:
	@rm -rf build
