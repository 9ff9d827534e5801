# Everything that is made goes under build/. `make help` prints the targets from their ## comments.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

export GO ?= go
export CGO_CPPFLAGS := $(strip $(filter-out -DSHIM_HEADERS,$(CGO_CPPFLAGS)) $(shell scripts/verbs-header.sh))
# The packages to test, fuzz and vet.
PKG ?= ./...
# How long one package's tests may take, all together. Generous: a slow machine under the race detector.
TEST_TIMEOUT ?= 15m
# Further arguments of go test, e.g. TESTARGS='-run TestAbort -count=5'.
TESTARGS ?=
# A file that lists the tests that may be skipped: with it, any other skip is a failure. See CONTRIBUTING.md.
ALLOWED_SKIPS ?=
# Further arguments of tryst bench in make bench-rxe, e.g. BENCHARGS='--only verbs-recv --size 1MiB'.
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
softroce := build/bin/soft-roce
# What a device in software reaches is measured as who may do nothing sees it: root without a capability.
unprivileged := $(shell test "$$(id -u)" != 0 || echo setpriv --inh-caps=-all --bounding-set=-all --no-new-privs)
rxeflags := -accel $(TRYST_VM_ACCEL) -timeout $(TRYST_VM_TIMEOUT)
report := build/bin/testreport $(if $(ALLOWED_SKIPS),-allow-skips $(ALLOWED_SKIPS)) --
testreport := $(report) $(GO) test -json
testflags := -shuffle=on -timeout=$(TEST_TIMEOUT) $(TESTARGS)
golangci := $(GO) tool -modfile=tools/lint/go.mod golangci-lint

##
## The two that matter
##

.PHONY: run
run: build ## Publish a generated checkpoint, pull it from other processes over gRPC and over verbs, check every tensor
	@scripts/run.sh $(TRYST) build/run

.PHONY: test
test: prepare ## All tests: test-unit, then test-rxe
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-rxe

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

.PHONY: test-unit
test-unit: build/bin/testreport ## What needs no RDMA, with the race detector where a C compiler is
	@race=$$(scripts/race-flag.sh) && $(testreport) $$race $(testflags) $(PKG)
ifeq ($(PKG)$(TESTARGS),./...)
	@$(MAKE) --no-print-directory test-plain
endif

# The race detector allocates, and makes a search ten times as long for nothing: it has one goroutine.
.PHONY: test-plain
test-plain: build/bin/testreport ## Of these what the race detector cuts short, without it: whole searches, allocations of packets, memory, large tensors, rates
	@$(testreport) $(testflags) -run 'Search|AllocateNothing|AllocatesNothing|NoAllocation|AllocationsOf|CostNothing|TestRoceSizes|TestWorlds' ./transport ./transport/verbs ./verbs/roce ./verbs/roce/udp
	@$(testreport) $(testflags) -run 'TestPoolPeakMemory|TestMemoryOfOneGibibyte|TestATensorOfMoreThan4GiB' ./tensor ./transport/grpc ./transport/verbs/mem
	@$(testreport) $(testflags) -run TestNative ./verbs/roce -judge

.PHONY: prepare
prepare: $(softroce) ## Install and download what test-rxe and bench-rxe need, where they can run in a VM
	@$(softroce) where $(rxeflags) -go '$(GO)' -pkg '$(PKG)' -mode $(TRYST_TEST_RXE) >/dev/null

.PHONY: test-rxe
test-rxe: build/bin/testreport $(softroce) ## What needs the kernel's Soft-RoCE, in a VM (TRYST_TEST_RXE=auto|vm|native|off)
	@REPORT='$(report)' REQUIRED='$(ALLOWED_SKIPS)' scripts/test-rxe.sh $(softroce) '$(PKG)' $(rxeflags) -- -shuffle=on $(TESTARGS)

.PHONY: check-capture
check-capture: build/scapy/installed ## Have tshark and scapy check the packets between the kernel and us that make test-rxe captured
	@build/scapy/bin/python integration/roce/together/check_capture.py build/together.pcap

build/scapy/installed: integration/roce/together/requirements.txt
	@python3 -m venv build/scapy || { echo "make check-capture needs Python 3 with venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@build/scapy/bin/pip install --quiet --disable-pip-version-check -r $<
	@cp $< $@

.PHONY: test-short
test-short: build/bin/testreport ## The quick tests (-short), without the race detector
	@$(testreport) -short $(testflags) $(PKG)

.PHONY: race
race: build/bin/testreport ## All tests with the race detector; fails where it cannot run
	@$(testreport) -race $(testflags) $(PKG)

.PHONY: fuzz
fuzz: go-ready ## Every fuzz target for FUZZTIME (10s) each
	@scripts/fuzz.sh $(FUZZTIME) $(PKG)

.PHONY: interop
interop: build/venv/installed go-ready ## Tests against a real TensorFlow, put into build/venv by pip (300 MB); no part of make test
	@TENSORFLOW_PYTHON=$(CURDIR)/build/venv/bin/python \
		$(GO) test -tags interop -count=1 ./integration/tensorflow $(testflags)

# The file says which requirements are installed; pip is asked again when they have changed.
build/venv/installed: integration/tensorflow/requirements.txt
	@python3 -m venv build/venv || { echo "make interop needs Python 3 with venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@build/venv/bin/pip install --quiet --disable-pip-version-check -r $<
	@cp $< $@

.PHONY: bench
bench: build ## Each benchmark beside its yardstick, into build/bench/; a missed target fails
	@$(TRYST) bench --check --json-dir build/bench

.PHONY: bench-roce
bench-roce: build ## Verbs with the device in software beside gRPC and a bare UDP loop, into build/bench-roce/; a missed target fails
	@$(unprivileged) $(TRYST) bench --transport verbs --provider roce --only verbs-beside-grpc,verbs-small,verbs-udp-loop,verbs-idle --size 1MiB,16MiB --inflight 4 \
		--check --json-dir build/bench-roce

.PHONY: bench-rxe
bench-rxe: prepare ## Verbs beside perftest in the VM with Soft-RoCE, into build/bench-rxe/; a missed target fails
	@CGO_ENABLED=1 CGO_CPPFLAGS='$(CGO_CPPFLAGS) -DSHIM_HEADERS' $(GO) build -o build/tryst-rxe ./cmd/tryst
	@$(softroce) vm $(rxeflags) -timeout $(TRYST_BENCH_TIMEOUT) -- build/tryst-rxe bench --transport verbs --rdma-device rxe0 --peer-rdma-device rxe1 \
		--pairs 7 --pair-time 1s --pin --check --json-dir build/bench-rxe $(BENCHARGS)

##
## Soft-RoCE: the kernel's RDMA devices without RDMA hardware
##

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

build/bin/testreport: go-ready FORCE
	@$(GO) build -o $@ ./internal/testreport

.PHONY: FORCE
FORCE:
