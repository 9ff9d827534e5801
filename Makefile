# Everything that is made goes under build/. `make help` prints the targets from their ## comments.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

export GO ?= go
export CGO_CPPFLAGS := $(strip $(filter-out -DSHIM_HEADERS,$(CGO_CPPFLAGS)) $(shell scripts/verbs-header.sh))
# The packages to test, fuzz and vet.
PKG ?= ./...
# How long the tests of one package may take, as go test has it: a bound for what hangs.
TEST_TIMEOUT ?= 15m
# Further arguments of go test, e.g. TESTARGS='-run TestAbort -count=5'.
TESTARGS ?=
# Files that list the tests that may be skipped: with them, any other skip is a failure. See CONTRIBUTING.md.
ALLOWED_SKIPS ?=
# Further arguments of tryst-bench in make bench-rxe, e.g. BENCHARGS='--only verbs-recv --size 1MiB'.
BENCHARGS ?= --only verbs-recv,verbs-latency,verbs-idle --size 64KiB,1MiB,16MiB --inflight 4
# How long each fuzz target runs.
FUZZTIME ?= 10s

# Where the tests that need the kernel's Soft-RoCE run: auto (the VM if one is possible), vm, native (this kernel, as root), off.
export TRYST_TEST_RXE ?= auto
# The VM's processors: kvm, tcg (emulation), or auto, which finds out what works here and remembers it in build/rxe-vm.
TRYST_VM_ACCEL ?= auto
# The VM is killed when a command, or all tests together, take longer.
TRYST_VM_TIMEOUT ?= 30m
# And for make bench-rxe, whose pairs take some minutes for each row on an emulated processor.
TRYST_BENCH_TIMEOUT ?= 2h
# The command for make rxe-vm, by the environment so that its quotes and dollars stay as they were typed.
export RXE_VM_CMD = $(value CMD)

TRYST := build/tryst
bench := build/tryst-bench
softroce := build/bin/soft-roce
# What a device in software reaches is measured as who may do nothing sees it: root without a capability.
unprivileged := $(shell test "$$(id -u)" != 0 || echo setpriv --inh-caps=-all --bounding-set=-all --no-new-privs)
rxeflags := -accel $(TRYST_VM_ACCEL) -timeout $(TRYST_VM_TIMEOUT)
report := build/bin/testreport $(addprefix -allow-skips=,$(ALLOWED_SKIPS))
testreport := $(report) -- $(GO) test -json
# Most tests that may run in parallel wait for timers, so there may be more of them than processors.
testflags := -shuffle=on -parallel=8 -timeout=$(TEST_TIMEOUT) $(TESTARGS)
golangci := $(GO) tool -modfile=tools/lint/go.mod golangci-lint

##
## The two that matter
##

.PHONY: run
run: go-ready ## Publish a generated checkpoint, pull it from other processes over gRPC and over verbs, check every tensor
	@echo "building $(TRYST) (the first time, this downloads Go modules and takes about a minute)"
	@$(MAKE) --no-print-directory build
	@scripts/run.sh $(TRYST) build/run

.PHONY: test
test: build/bin/testreport ## Every package and transport, in some minutes: without a VM, root, a C compiler or a network
	@$(report) -budget=1m -- $(GO) test -json -short $(testflags) $(PKG)

##
## Building
##

.PHONY: build
build: go-ready ## Build build/tryst
	@$(GO) build -o $(TRYST) ./cmd/tryst

.PHONY: generate
generate: go-ready ## Regenerate the code that is generated from proto/
	@$(GO) generate $(PKG)

.PHONY: clean
clean: ## Remove build/
	@rm -rf build

##
## Testing
##

# Under the race detector tests compute more than they wait, so fewer run at once. Packages that search or measure less under it run once more
# without it, and whole. Rates are judged last, with nothing beside them.
long := ./transport/... ./verbs/roce/... ./tensor ./integration
.PHONY: test-race
test-race: build/bin/testreport ## The race detector, long searches and soaks; needs a C compiler
	@scripts/race-ready.sh
	@$(testreport) -race $(testflags) -parallel=4 $(PKG)
ifeq ($(PKG)$(TESTARGS),./...)
	@$(testreport) $(testflags) $(long)
	@$(testreport) -run=TestNative ./verbs/roce -judge
endif

.PHONY: test-rxe
test-rxe: build/bin/testreport $(softroce) ## What needs the kernel's Soft-RoCE, in a VM that it installs (TRYST_TEST_RXE=auto|vm|native|off)
	@REPORT='$(report) --' REQUIRED='$(ALLOWED_SKIPS)' scripts/test-rxe.sh $(softroce) '$(PKG)' $(rxeflags) -- -shuffle=on $(TESTARGS)

.PHONY: test-all
test-all: $(softroce) ## test, test-race, test-rxe, check-capture and interop; prints first what they will install
	@scripts/will-install.sh $(softroce)
	@for part in test test-race test-rxe check-capture interop; do echo "=== make $$part"; $(MAKE) --no-print-directory $$part; done

.PHONY: check-capture
check-capture: build/scapy/installed ## Have tshark and scapy check the packets between the kernel and us that make test-rxe captured
	@build/scapy/bin/python integration/roce/together/check_capture.py build/together.pcap

build/scapy/installed: integration/roce/together/requirements.txt
	@python3 -m venv build/scapy || { echo "make check-capture needs Python 3 with venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@build/scapy/bin/pip install --quiet --disable-pip-version-check -r $<
	@cp $< $@

.PHONY: fuzz
fuzz: go-ready ## Every fuzz target for FUZZTIME (10s) each
	@scripts/fuzz.sh $(FUZZTIME) $(PKG)

.PHONY: interop
interop: build/venv/installed build/bin/testreport ## Tests against a real TensorFlow, put into build/venv by pip (300 MB)
	@TENSORFLOW_PYTHON=$(CURDIR)/build/venv/bin/python $(testreport) -tags interop -count=1 ./integration/tensorflow $(testflags)

# The file says which requirements are installed; pip is asked again when they have changed.
build/venv/installed: integration/tensorflow/requirements.txt
	@python3 -m venv build/venv || { echo "make interop needs Python 3 with venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@build/venv/bin/pip install --quiet --disable-pip-version-check -r $<
	@cp $< $@

.PHONY: bench
bench: $(bench) ## Each benchmark beside its baseline, into build/bench/; a missed target fails
	@$(bench) --check --json-dir build/bench

.PHONY: bench-roce
bench-roce: $(bench) ## Verbs with the device in software beside gRPC and a bare UDP loop, into build/bench-roce/; a missed target fails
	@$(unprivileged) $(bench) --transport verbs --provider roce --only verbs-beside-grpc,verbs-small,verbs-udp-loop,verbs-idle --size 1MiB,16MiB --inflight 4 \
		--check --json-dir build/bench-roce

.PHONY: bench-rxe
bench-rxe: vm-ready ## Verbs beside perftest in the VM with Soft-RoCE, into build/bench-rxe/; a missed target fails
	@CGO_ENABLED=1 CGO_CPPFLAGS='$(CGO_CPPFLAGS) -DSHIM_HEADERS' $(GO) build -o $(bench)-rxe ./internal/bench/cmd/tryst-bench
	@$(softroce) vm $(rxeflags) -timeout $(TRYST_BENCH_TIMEOUT) -- $(bench)-rxe --transport verbs --rdma-device rxe0 --peer-rdma-device rxe1 \
		--pairs 7 --pair-time 1s --pin --check --json-dir build/bench-rxe $(BENCHARGS)

##
## Soft-RoCE: the kernel's RDMA devices without RDMA hardware
##

# What the VM needs is installed, and its kernel downloaded.
.PHONY: vm-ready
vm-ready: $(softroce)
	@$(softroce) where $(rxeflags) -go '$(GO)' -mode $(TRYST_TEST_RXE) >/dev/null

.PHONY: rxe-vm
rxe-vm: $(softroce) ## Run CMD='...' in a VM that has them, by bash; without CMD a shell
	@$(softroce) vm $(rxeflags) $${RXE_VM_CMD:+-- bash -c "$$RXE_VM_CMD"}

.PHONY: soft-roce
soft-roce: $(softroce) ## Make them on this machine (root): LINKS='rxe0=eth0 ...', default a pair rxe0, rxe1
	@$(softroce) up $(LINKS)

.PHONY: soft-roce-down
soft-roce-down: $(softroce) ## Remove them: LINKS='rxe0 ...', default the pair
	@$(softroce) down $(LINKS)

# Static: the same program is the init of the VM.
$(softroce): go-ready FORCE
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o $@ ./soft-roce/cmd/soft-roce

##
## Checking
##

.PHONY: vet
vet: go-ready ## go vet, for this machine and for darwin/arm64
	@$(GO) vet -tags rxe $(PKG)
	@CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet $(PKG)

.PHONY: lint
lint: go-ready ## golangci-lint, at the version of tools/lint
	@$(golangci) run $(PKG)

.PHONY: fmt
fmt: go-ready ## Format the code as lint wants it
	@$(golangci) fmt

.PHONY: check-generated
check-generated: go-ready ## Regenerate, and fail when that changes a file
	@scripts/check-generated.sh

.PHONY: ci
ci: ## What the CI machine runs
	@.ci/run

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^## ./ { printf "\n%s\n", substr($$0, 4) } \
		/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# One clear line when Go is missing or too old for go.mod; what else keeps go from working it says itself. A Go that can fetch a newer one
# itself does so here.
.PHONY: go-ready
go-ready:
	@need=$$(awk '$$1 == "go" { print $$2 }' go.mod); \
	have=$$(GOTOOLCHAIN=local $(GO) env GOVERSION 2>/dev/null) || have="no Go"; \
	said=$$($(GO) list -m 2>&1) || { \
		if [[ $$have == go* ]] && printf '%s\n' "go$$need" "$$have" | sort -VC; then echo "$$said"; \
		else echo "Go $$need or newer is needed and this machine has $$have: see https://go.dev/doc/install"; fi >&2; exit 1; }

$(bench): go-ready FORCE
	@$(GO) build -o $@ ./internal/bench/cmd/tryst-bench

build/bin/testreport: go-ready FORCE
	@$(GO) build -o $@ ./internal/testreport

.PHONY: FORCE
FORCE:
