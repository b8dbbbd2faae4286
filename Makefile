# SPDX-License-Identifier: GPL-2.0-only
# The verbs. What each does is in mk/ (toolbox, kernel, module) and tests/runner (guests).

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test bench shell modules install unit scenarios lint fmt clean toolbox runner

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
run-guests = $(in-toolbox) build/cargo-toolbox/release/runner --kernel "$$(mk/kernel path)"

help:
	@echo 'PF_ENET: Ethernet sockets for Linux. Debian host, root; everything else is fetched.'
	@echo
	@echo '  make demo       two guests on an emulated wire, netgauge over tcp, udp, raw, edp and esp'
	@echo '  make test       everything: crates, module, scenarios in a stock kernel, lints; ends with its count'
	@echo '  make bench      instructions per half round trip and per byte, by protocol'
	@echo '  make modules    build/module/enet.ko for Debian'\''s stock kernel;'
	@echo '                  KDIR=TREE builds for any kernel tree with Rust metadata, with the host'\''s tools'
	@echo '  make install    build it for the running kernel (or KDIR) and install it, with depmod'
	@echo
	@echo '  make unit       the crates'\'' tests alone'
	@echo '  make scenarios  the scenarios alone; ONLY="name ..." runs those'
	@echo '  make shell      a guest with the module and the programs, for trying things'
	@echo '  make lint, fmt  check, or mend, format and warnings'
	@echo '  make clean      remove build/; what was fetched stays in $${ENET_CACHE:-~/.cache/enet}'

toolbox:
	@mk/toolbox

runner: toolbox
	@mk/build-runner

demo test bench shell: runner
	@$(run-guests) $@

scenarios: runner
	@$(run-guests) scenarios $(ONLY)

modules:
	@mk/module

install:
	@mk/module install

unit: toolbox
	@$(in-toolbox) cargo test --workspace --locked

lint:
	@mk/lint

fmt: toolbox
	@$(in-toolbox) cargo fmt --all

clean:
	@rm -rf build
