# All output goes to build/. `make help` prints the targets from their ## comments.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

export GO ?= go
export CGO_CPPFLAGS := $(strip $(filter-out -DSHIM_HEADERS,$(CGO_CPPFLAGS)) $(shell scripts/verbs-header.sh))
# The packages to test, fuzz and vet.
PKG ?= ./...
# go test ends the tests of a package that take longer: they hang.
TEST_TIMEOUT ?= 25m
# More arguments for go test, e.g. TESTARGS='-run TestAbort -count=5'.
TESTARGS ?=
# More arguments for go test in make test-race, under the race detector alone.
RACEARGS ?=
# Files that list the tests that may be skipped. When it is set, any other skip is a failure. See CONTRIBUTING.md.
ALLOWED_SKIPS ?=
# More arguments for tryst-bench in make bench-rxe, e.g. BENCHARGS='--only verbs-recv --size 1MiB'.
BENCHARGS ?= --only verbs-recv,verbs-latency,verbs-idle --size 64KiB,1MiB,16MiB --inflight 4
# The same for make bench-routes and make bench-peers.
ROUTESARGS ?=
# The same for make bench-versions, e.g. VERSIONSARGS='--only versions-bytes --pairs 5'.
VERSIONSARGS ?=
# A Python that has torch, for the rows of make bench-peers beside gloo; build/peers's when empty.
TORCH_PYTHON ?=
# The Python of make interop-old.
OLD_PYTHON ?= python3.11
# How long each fuzz target runs.
FUZZTIME ?= 10s

# How long make storm takes, its seed (default: by chance), and which of its parts it runs (grpc, roce, tcp, shm or all; default: each).
export STORM_TIME ?= 60s
export STORM_SEED ?=
STORM_TEST ?=
# Where the logs of its processes are.
export STORM_DIR = $(CURDIR)/build/storm

# Where the tests that need the kernel's Soft-RoCE run: auto (the VM if possible), vm, native (this kernel, as root), off.
export TRYST_TEST_RXE ?= auto
# The VM's processors: kvm, tcg (emulation), or auto, which tries what works here and stores the result in build/rxe-vm.
TRYST_VM_ACCEL ?= auto
# How many VMs run the packages of make test-rxe. Each takes up to 4 GiB of memory, and about one processor when it emulates.
TRYST_VMS ?= 2
# The VM is killed when a command, or all tests together, take longer than this.
TRYST_VM_TIMEOUT ?= 30m
# The same for make bench-rxe: on an emulated processor each row takes some minutes.
TRYST_BENCH_TIMEOUT ?= 2h
# The command for make rxe-vm. It goes through the environment, so that the shell does not change its quotes and dollars.
export RXE_VM_CMD = $(value CMD)

TRYST := build/tryst
bench := build/tryst-bench
plot := build/tryst-plot
softroce := build/bin/soft-roce
# The endpoint in Go is measured without privileges: as root, drop all capabilities.
unprivileged := $(shell test "$$(id -u)" != 0 || echo setpriv --inh-caps=-all --bounding-set=-all --no-new-privs)
rxeflags := -accel $(TRYST_VM_ACCEL) -timeout $(TRYST_VM_TIMEOUT)
report := build/bin/testreport $(addprefix -allow-skips=,$(ALLOWED_SKIPS))
testreport := $(report) -- $(GO) test -json
# Parallel tests mostly wait for timers, so more of them run than there are processors.
testflags := -shuffle=on -parallel=8 -timeout=$(TEST_TIMEOUT) $(TESTARGS)
golangci := $(GO) tool -modfile=tools/lint/go.mod golangci-lint

##
## Start here
##

.PHONY: run
run: go-ready ## Publish a generated checkpoint, pull it over gRPC, TCP, shared memory and RDMA, verify every tensor
	@echo "building $(TRYST) (the first time, this downloads Go modules and takes about a minute)"
	@$(MAKE) --no-print-directory build
	@scripts/run.sh $(TRYST) build/run

.PHONY: test
test: build/bin/testreport ## Test every package and transport in some minutes; needs no VM, root, C compiler or network
	@$(report) -budget=1m -- $(GO) test -json -short $(testflags) $(PKG)

##
## Building
##

.PHONY: build
build: go-ready ## Build build/tryst
	@$(GO) build -o $(TRYST) ./cmd/tryst

.PHONY: man
man: go-ready ## Write the man pages of the commands into build/man1
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || date +%s) $(GO) -C tools/man run . $(CURDIR)/build/man1

.PHONY: completions
completions: build ## Write the completions for bash, zsh and fish into build/completions
	@mkdir -p build/completions
	@$(TRYST) completion bash >build/completions/tryst
	@$(TRYST) completion zsh >build/completions/_tryst
	@$(TRYST) completion fish >build/completions/tryst.fish

.PHONY: generate
generate: go-ready ## Regenerate the code that comes from proto/
	@$(GO) generate $(PKG)

.PHONY: clean
clean: ## Remove build/
	@rm -rf build

##
## Testing
##

# Tests that run without the race detector. It finds nothing where one goroutine runs pure machines, parsers or kernels, in the growth of
# costs and memory, in shares of a link, in programs that are built without it, or in mistakes that are planted to test the tests.
searches := \
	Search SearchWithoutRuleA SearchWithoutReached SearchWithoutConfirmation SearchWithoutRuleB SearchWithoutRuleC SearchWithoutChange \
	SearchWithoutRuleD SearchWithoutRuleE SearchWithoutClose SearchOfWaits SearchFindsEachRuleOfWaits \
	SimulationSearch SimulationWalk SimulationEachRuleMatters RandomWorlds FlowInRandomWorlds TokenInEveryOrder
planted := PlantedMistakes PlantedMistakesOfVersions
raceless := $(searches) $(planted) SuiteFindsFaults \
	EventCostDoesNotGrow QuadraticWorkIsFound AnswersOfAHostileServerAreBounded CompressedRequestsAreBounded CompressedResponsesAreBounded \
	CompressedRequestIsRefused LegitimateGraphs FunctionsWithGrowingAttributesAreBounded BytesBesideZstdAndTheWhole \
	TurnsAreFairWithReverseTraffic QueuePairsShareADevice TwoSendersIntoOneReceiver \
	KernelsComputeWhatTensorFlowComputes SmallServerLives PeakMemoryOfOneGibibyte RunScript \
	DeltasStayWithinTheirShare MemoryOfDeltasComesBack UnreadOpensHoldNoDeltas MemoryIsFreeWhenTheDeliveryIsDone \
	ManyPullsShareTheMemoryForSending CacheOfFilesLeavesRoomInTheMemoryForSending \
	EachContestOfVersions BenchmarksOfRoutes BenchmarksOfTheDeviceInSoftware AllReduceBesideGloo AllReduceWithoutTorch
# Tests that are shorter with -short or under the race detector. They run again at full length, and so do the parts of the suites that differ.
# The planted mistakes take ten minutes, so RACEARGS=-short leaves it at those of make test.
long := $(searches) \
	RoceSizes RoceLarge RoceSuiteIPv6 SuiteRequired SuiteBlocking SuiteTwoQueuePairs SuiteSideBySide \
	TCPSuite SharedSuite SharedAndTCPSuite TCPWithTLSSuite SuitesUnderTheFilterOfContainers MemoryOfOneGibibyte PeakMemoryOfOneGibibyte \
	MemoryOfAStoppedPullerComesBack PullerThatReadsOnASecondConnectionIsCut CacheRaces RequesterStress \
	RequesterTenThousandAtOnce KernelsEndWithAnErrorForWhatDoesNotFit ChangedGraphsDoNoHarm ChangedGraphsAreCutOrRefused SearchOfVersions \
	BytesBesideZstdAndTheWhole WatchersFollowATrainerByDeltas PullSurvivesAResetAtAnyByte ProducerStaysWithinItsBound
longparts := Suite/^(Cut|Size)$$|Suite//^(Cut|Size)$$
longpackages := . ./transport/... ./server ./internal/channel ./internal/checkpoint ./internal/collective ./internal/delivery ./internal/delta \
	./internal/handshake ./verbs/roce ./verbs/tcp ./tensorflow/... ./integration ./integration/storm
# names LIST: the pattern of the tests of these names.
names = ^Test($(subst $(eval) ,|,$(strip $(1))))$$

# Under the race detector tests compute more than they wait, so fewer run at once. Rates are checked last, when nothing else runs.
.PHONY: test-race
test-race: build/bin/testreport ## Test with the race detector, full searches and soak tests; needs a C compiler
	@scripts/race-ready.sh
	@$(testreport) -race $(testflags) -parallel=4 -skip='$(call names,$(raceless))' $(RACEARGS) $(PKG)
ifeq ($(PKG)$(TESTARGS),./...)
	@$(testreport) $(testflags) -run='$(call names,$(long) $(if $(filter -short,$(RACEARGS)),,$(planted)))|$(longparts)' $(longpackages)
	@$(testreport) -run=TestNative ./verbs/roce -judge
endif

.PHONY: test-rxe
test-rxe: build/bin/testreport $(softroce) ## Test what needs the kernel's Soft-RoCE, in a VM that it installs (TRYST_TEST_RXE=auto|vm|native|off)
	@REPORT='$(report) --' REQUIRED='$(ALLOWED_SKIPS)' scripts/test-rxe.sh $(softroce) '$(PKG)' $(rxeflags) -vms $(TRYST_VMS) -- -shuffle=on $(TESTARGS)

.PHONY: test-all
test-all: $(softroce) ## Run test, test-race, test-rxe, check-capture, storm, test-page and interop; prints first what it will install
	@scripts/will-install.sh $(softroce)
	@scripts/seccomp-profile.sh || echo "the tests under the seccomp filter of containers will be skipped"
	@for part in test test-race test-rxe check-capture storm test-page interop; do echo "=== make $$part"; $(MAKE) --no-print-directory $$part; done

.PHONY: check-capture
check-capture: build/scapy/installed ## Check the packets that make test-rxe captured with tshark and scapy
	@build/scapy/bin/python integration/roce/together/check_capture.py build/together.pcap

build/scapy/installed: integration/roce/together/requirements.txt
	@python3 -m venv build/scapy || { echo "make check-capture needs Python 3 with venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@build/scapy/bin/pip install --quiet --disable-pip-version-check -r $<
	@cp $< $@

.PHONY: test-page
test-page: build build/browse ## Test the page of the metrics address in headless Chromium and tryst top in tmux, pictures in build/page/
	@BROWSE=$(CURDIR)/build/browse TRYST=$(CURDIR)/$(TRYST) PICTURES=$(CURDIR)/build/page $(GO) test -tags page -count=1 -timeout=10m ./integration/page -v $(TESTARGS)

build/browse: go-ready FORCE
	@cd tools/browse && $(GO) build -o ../../build/browse .

.PHONY: storm
storm: go-ready ## Kill, stop and cut processes at random for STORM_TIME (60s), and check that no value is lost, doubled or wrong
	@$(GO) test -v -tags storm -count=1 -timeout=60m -run 'TestStorm$$/^$(STORM_TEST)' ./integration/storm

.PHONY: fuzz
fuzz: go-ready ## Run every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh $(FUZZTIME) $(PKG)

.PHONY: interop
interop: build/venv/installed build/bin/testreport ## Test against a real TensorFlow, which pip installs into build/venv (300 MB)
	@$(call interop,build/venv)

.PHONY: interop-old
interop-old: build/venv-old/installed build/bin/testreport ## The same against TensorFlow 2.13.1, in build/venv-old; needs Python 3.9 to 3.11 (OLD_PYTHON)
	@$(call interop,build/venv-old)

# The tests find the library of TensorFlow by the Python on PATH.
interop = TENSORFLOW_PYTHON=$(CURDIR)/$(1)/bin/python PATH="$(CURDIR)/$(1)/bin:$$PATH" \
	$(testreport) -tags interop -count=1 ./integration/tensorflow ./tensorflow/ops/... ./tensorflow/library $(testflags)

.PHONY: golden
golden: build/venv/installed ## Write again what TensorFlow's kernels compute and save, with which the kernels in Go are compared
	@build/venv/bin/python integration/tensorflow/op_golden.py tensorflow/ops/testdata/golden.json
	@build/venv/bin/python integration/tensorflow/bundles.py write tensorflow/ops/internal/bundle/testdata

# The files record which requirements are installed; pip runs again when they change.
build/venv/installed: integration/tensorflow/requirements.txt
	@python3 -m venv build/venv || { echo "make interop needs Python 3 with venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@build/venv/bin/pip install --quiet --disable-pip-version-check -r $<
	@cp $< $@

build/venv-old/installed: integration/tensorflow/requirements-old.txt
	@$(OLD_PYTHON) -m venv build/venv-old || { echo "make interop-old needs Python 3.9 to 3.11 with venv, by OLD_PYTHON=path: TensorFlow 2.13 has no wheel for a newer one" >&2; exit 1; }
	@build/venv-old/bin/pip install --quiet --disable-pip-version-check -r $<
	@cp $< $@

.PHONY: bench
bench: $(bench) $(plot) ## Run each benchmark and its baseline, results and pictures in build/bench/; fails when a target is missed
	@$(bench) --check --json-dir build/bench --plot

.PHONY: bench-roce
bench-roce: $(bench) $(plot) ## Compare verbs over the RoCEv2 endpoint in Go with gRPC, a UDP loop and sockets, results in build/bench-roce/; fails like bench
	@$(unprivileged) $(bench) --transport verbs --provider roce --only verbs-beside-grpc,verbs-small,verbs-udp-loop,verbs-step-recv,verbs-step-recvinto,verbs-step-reply,verbs-step-sendwait,verbs-idle --size 1MiB,16MiB --inflight 4 \
		--check --json-dir build/bench-roce --plot

.PHONY: bench-tensorflow
bench-tensorflow: build/venv/installed $(plot) ## Compare the steps of a TensorFlow client with a task of Tryst and with one of TensorFlow, results in build/bench-tensorflow/
	@mkdir -p build/bench-tensorflow
	@TENSORFLOW_PYTHON=$(CURDIR)/build/venv/bin/python PATH="$(CURDIR)/build/venv/bin:$$PATH" $(GO) test -tags interop -count=1 -timeout=1h \
		-run TestBenchTensorFlow ./integration/tensorflow -bench-tensorflow=$(CURDIR)/build/bench-tensorflow/table.md -bench-plot=$(CURDIR)/$(plot) -v | grep '^|\|FAIL\|^ok'

.PHONY: bench-routes
bench-routes: $(bench) $(plot) ## Compare shm, tcp and tcp with TLS with bare copies, sockets and gRPC, results in build/bench-routes/, then bench-pull; fails like bench
	@status=0; $(unprivileged) $(bench) --routes --size 1MiB,16MiB --inflight 4 --check --json-dir build/bench-routes --plot $(ROUTESARGS) || status=$$?; \
		$(MAKE) --no-print-directory bench-pull && exit $$status

.PHONY: bench-peers
bench-peers: $(bench) $(plot) build/peers/installed ## Compare shm and tcp with UCX and NIXL, which pip installs into build/peers (500 MB), and with gloo if that Python, or TORCH_PYTHON, has torch; results in build/bench-peers/; fails like bench
	@$(unprivileged) $(bench) --peers build/peers --torch-python '$(TORCH_PYTHON)' --size 1MiB,16MiB --inflight 4 --check --json-dir build/bench-peers --plot $(ROUTESARGS)

build/peers/installed: internal/bench/peers/requirements.txt
	@python3 -m venv build/peers || { echo "make bench-peers needs Python 3.10 to 3.13 with venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@build/peers/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: -r $<
	@cp $< $@

# The result of a run with other work on the machine, or on another disk than that of build/, says little.
.PHONY: bench-pull
bench-pull: build $(plot) ## Compare tryst pull of 548 MB with curl, cp and a copy in memory, results in build/bench-pull/; fails like bench
	@$(GO) build -o $(bench)-pull ./internal/bench/cmd/tryst-bench-pull
	@$(unprivileged) $(bench)-pull --tryst $(TRYST) --dir build/bench-pull/files --check --json-dir build/bench-pull --plot

.PHONY: bench-versions
bench-versions: $(plot) ## Compare weights that change with the whole, with zstd and with a publication that is pulled, results in build/bench-versions/; fails like bench
	@$(GO) build -o $(bench)-versions ./internal/bench/cmd/tryst-bench-versions
	@$(unprivileged) $(bench)-versions --check --json-dir build/bench-versions --plot $(VERSIONSARGS)

.PHONY: bench-rxe
bench-rxe: vm-ready $(plot) ## Compare verbs with perftest in the VM with Soft-RoCE, results in build/bench-rxe/; fails like bench
	@CGO_ENABLED=1 CGO_CPPFLAGS='$(CGO_CPPFLAGS) -DSHIM_HEADERS' $(GO) build -o $(bench)-rxe ./internal/bench/cmd/tryst-bench
	@$(softroce) vm $(rxeflags) -timeout $(TRYST_BENCH_TIMEOUT) -- $(bench)-rxe --transport verbs --rdma-device rxe0 --peer-rdma-device rxe1 \
		--pairs 7 --pair-time 1s --pin --check --json-dir build/bench-rxe --plot $(BENCHARGS)

##
## Soft-RoCE: the kernel's RDMA devices without RDMA hardware
##

# Installs what the VM needs, and downloads its kernel.
.PHONY: vm-ready
vm-ready: $(softroce)
	@$(softroce) where $(rxeflags) -go '$(GO)' -mode $(TRYST_TEST_RXE) >/dev/null

.PHONY: rxe-vm
rxe-vm: $(softroce) ## Run CMD='...' in a VM that has such devices; without CMD a shell
	@$(softroce) vm $(rxeflags) $${RXE_VM_CMD:+-- bash -c "$$RXE_VM_CMD"}

.PHONY: soft-roce
soft-roce: $(softroce) ## Make such devices on this machine (root): LINKS='rxe0=eth0 ...', default a pair rxe0, rxe1
	@$(softroce) up $(LINKS)

.PHONY: soft-roce-down
soft-roce-down: $(softroce) ## Remove these devices: LINKS='rxe0 ...', default the pair
	@$(softroce) down $(LINKS)

# Static, because the same program is the init of the VM.
$(softroce): go-ready FORCE
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o $@ ./soft-roce/cmd/soft-roce

##
## Checking
##

.PHONY: vet
vet: go-ready ## Run go vet, for this machine and for darwin/arm64
	@$(GO) vet -tags rxe,storm $(PKG)
	@CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet $(PKG)

.PHONY: lint
lint: go-ready ## Run golangci-lint, in the version of tools/lint
	@$(golangci) run $(PKG)

.PHONY: fmt
fmt: go-ready ## Format the code as lint requires
	@$(golangci) fmt

.PHONY: check-deploy
check-deploy: go-ready build/check-deploy/installed ## Check the Containerfile, the Kubernetes manifests, the dashboard and the systemd unit in deploy/, and the workflows
	@REQUIRED='$(ALLOWED_SKIPS)' scripts/check-deploy.sh build/check-deploy

build/check-deploy/installed: deploy/requirements.txt
	@python3 -m venv build/check-deploy || { echo "make check-deploy needs Python 3 with venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@build/check-deploy/bin/pip install --quiet --disable-pip-version-check -r $<
	@cp $< $@

.PHONY: check-generated
check-generated: go-ready ## Regenerate, and fail if that changes a file; check that the pictures of docs/ show their rows
	@scripts/check-generated.sh
	@cd tools/plot && $(GO) test -count=1 .

.PHONY: ci
ci: ## Run what the CI machine runs
	@.ci/run

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^## ./ { printf "\n%s\n", substr($$0, 4) } \
		/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Prints one clear line when Go is missing or too old for go.mod. Other errors of go are printed as they are. A Go that can download a newer
# toolchain does so here.
.PHONY: go-ready
go-ready:
	@need=$$(awk '$$1 == "go" { print $$2 }' go.mod); \
	have=$$(GOTOOLCHAIN=local $(GO) env GOVERSION 2>/dev/null) || have="no Go"; \
	said=$$($(GO) list -m 2>&1) || { \
		if [[ $$have == go* ]] && printf '%s\n' "go$$need" "$$have" | sort -VC; then echo "$$said"; \
		else echo "Go $$need or newer is needed and this machine has $$have: see https://go.dev/doc/install"; fi >&2; exit 1; }

$(bench): go-ready FORCE
	@$(GO) build -o $@ ./internal/bench/cmd/tryst-bench

# Static, because make bench-rxe runs it in the VM.
$(plot): go-ready FORCE
	@cd tools/plot && CGO_ENABLED=0 $(GO) build -o $(CURDIR)/$@ .

.PHONY: plots
plots: $(plot) ## Draw the pictures of docs/performance.md from the rows beside them, docs/plots/*.jsonl
	@$(plot) docs/plots/*.jsonl

build/bin/testreport: go-ready FORCE
	@$(GO) build -o $@ ./internal/testreport

.PHONY: FORCE
FORCE:
