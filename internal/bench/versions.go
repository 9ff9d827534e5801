package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// The benchmark of versions has a publisher that updates its weights and watchers that follow, each a process of its
// own. What is compared is when a version has come, how many bytes that took, and how much memory.

// VersionsOptions are what RunVersions measures. Zero fields take their defaults.
type VersionsOptions struct {
	// Command starts this program as the second process, which calls Serve.
	Command func(context.Context) *exec.Cmd
	// Bytes and Tensors are the model, of bfloat16. SlowBytes is the smaller one for the slow network, of SlowBits bits a
	// second.
	Bytes     int64
	Tensors   int
	SlowBytes int64
	SlowBits  float64
	// Only has the names of the contests to run, of VersionsNames; empty: all.
	Only []string
	// Routes restricts the contests to these; empty: those that each has.
	Routes []string
	// Shares are the shares of changed elements of the plot, from 0 to 1.
	Shares []float64
	// Pairs is the number of pairs in a contest. Contests whose pairs take many seconds have fewer.
	Pairs int
	// Stop is how long the rollout is stopped that the others do not wait for, and Every how often a version comes meanwhile.
	Stop, Every time.Duration
	// Row and Progress are as in Options. Both may be nil.
	Row      func(Row)
	Progress func(string)

	loadFile string // file with the load average; another one in tests
}

// The baselines of versions.
const (
	PublishPull   = "publish, pull" // PublishTensors, and Pull into memory of the same process
	WholeVersion  = "whole"         // the bytes of the model, or the same without deltas
	TheModel      = "the model"     // its bytes
	WithoutIt     = "without it"    // the same without the rollout that is stopped
	TheBound      = "its bound"     // of docs/versions.md
	versionsFile  = "versions"      // where the rows are saved
	routeProxy    = "link"          // gRPC over the slow network
	versionsBytes = 548_000_000
	versionsParts = 160
)

// versionsContest is one comparison, over each of its routes.
type versionsContest struct {
	name   string
	routes []string
	run    func(*versionsRun, context.Context, string) error
}

func versionsContests() []versionsContest {
	within := []string{"shm", "tcp"}
	all := []string{"shm", "tcp", "grpc"}
	contests := []versionsContest{
		{"versions-whole", within, (*versionsRun).besidePublish},
		{"versions-random", all, (*versionsRun).randomBesideWhole},
		{"versions-bytes", []string{routeProxy}, (*versionsRun).bytes},
		{"versions-memory", within, (*versionsRun).memory},
		{"versions-stopped", []string{"shm", "grpc"}, (*versionsRun).stopped},
		{"versions-back", all, (*versionsRun).back},
		{"versions-share", []string{"shm", "tcp", routeProxy}, (*versionsRun).shares},
	}
	for _, how := range []string{changeLow, changeMantissa, changeRandom} {
		contests = append(contests, versionsContest{"versions-link-" + how, []string{routeProxy}, func(r *versionsRun, ctx context.Context, route string) error {
			return r.besideWhole(ctx, "versions-link-"+how, route, change{Share: onePercent, How: how}, versionsTarget("versions-link", ""))
		}})
	}
	return contests
}

// VersionsNames returns the names of the contests of RunVersions.
func VersionsNames() (names []string) {
	for _, c := range versionsContests() {
		names = append(names, c.name)
	}
	return names
}

// onePercent is the share of the elements that one step of reinforcement learning changes.
const onePercent = 0.01

// versionsTarget returns the ratio that a contest should reach, at most.
func versionsTarget(name, of string) float64 {
	return map[string]float64{
		"versions-whole":                                  1.1,
		"versions-random":                                 1.02,
		"versions-link":                                   1. / 12,
		"versions-memory":                                 2.2,
		"versions-stopped":                                1.1,
		"versions-back":                                   1,
		"versions-unchanged":                              0.01,
		"versions-bytes-" + changeLow + ZstdGo:            0.85,
		"versions-bytes-" + changeLow + ZstdC:             0.85,
		"versions-bytes-" + changeLow + WholeVersion:      1. / 50,
		"versions-bytes-" + changeMantissa + ZstdGo:       0.85,
		"versions-bytes-" + changeMantissa + ZstdC:        0.85,
		"versions-bytes-" + changeMantissa + WholeVersion: 1. / 50,
		"versions-bytes-" + changeRandom + ZstdGo:         0.85,
		"versions-bytes-" + changeRandom + ZstdC:          0.85,
		"versions-bytes-" + changeRandom + WholeVersion:   1. / 35,
	}[name+of]
}

// versionsRun is one run of RunVersions.
type versionsRun struct {
	VersionsOptions
	load      float64
	processor string
	rows      []Row
}

// RunVersions measures versions and returns the rows; after an error, those measured so far. It returns when all
// processes have ended.
func RunVersions(ctx context.Context, o VersionsOptions) ([]Row, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	r := &versionsRun{VersionsOptions: o, load: loadAverage(o.loadFile), processor: processorText(cpuInfo)}
	r.say("%s", loadText(r.load))
	if r.load > quietLoad {
		r.say("warning: it is above %s: stop the other work on this machine and measure again", decimals(quietLoad))
	}
	for _, c := range versionsContests() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, c.name) {
			continue
		}
		for _, route := range c.routes {
			if len(o.Routes) > 0 && !slices.Contains(o.Routes, route) {
				continue
			}
			r.say("%s over %s", c.name, route)
			if err := c.run(r, ctx, route); err != nil {
				return r.rows, status.From(err).WithPrefix(c.name + " over " + route)
			}
		}
	}
	return r.rows, nil
}

// Validate checks the options. An error is InvalidArgument.
func (o VersionsOptions) Validate() error { return o.complete() }

// complete sets the defaults and checks the options.
func (o *VersionsOptions) complete() error {
	for _, name := range o.Only {
		if !slices.Contains(VersionsNames(), name) {
			return status.Errorf(status.InvalidArgument, "unknown contest %q; want one of %s", name, strings.Join(VersionsNames(), ", "))
		}
	}
	known := []string{"shm", "tcp", "grpc", routeProxy}
	for _, name := range o.Routes {
		if !slices.Contains(known, name) {
			return status.Errorf(status.InvalidArgument, "unknown route %q; want one of %s", name, strings.Join(known, ", "))
		}
	}
	o.defaults()
	switch {
	case o.Command == nil:
		return status.New(status.InvalidArgument, "bench.VersionsOptions needs Command, which starts the second process")
	case o.Pairs < 1:
		return status.Errorf(status.InvalidArgument, "%d pairs: at least 1 is needed", o.Pairs)
	case o.Tensors < 2 || min(o.Bytes, o.SlowBytes) < 2*int64(o.Tensors):
		return status.Errorf(status.InvalidArgument, "%d and %d bytes in %d tensors: at least two are needed, each with an element of 2 bytes", o.Bytes, o.SlowBytes, o.Tensors)
	case o.SlowBits <= 0 || o.Stop <= 0 || o.Every <= 0:
		return status.New(status.InvalidArgument, "the rate of the slow network and all times must be positive")
	case slices.ContainsFunc(o.Shares, func(s float64) bool { return !(s >= 0 && s <= 1) }):
		return status.Errorf(status.InvalidArgument, "shares %v: they are from 0 to 1", o.Shares)
	}
	return nil
}

func (o *VersionsOptions) defaults() {
	if o.Bytes == 0 {
		o.Bytes = versionsBytes
	}
	if o.Tensors == 0 {
		o.Tensors = versionsParts
	}
	if o.SlowBytes == 0 {
		o.SlowBytes = max(o.Bytes/slowPart, 2*int64(o.Tensors))
	}
	if o.SlowBits == 0 {
		o.SlowBits = slowBits
	}
	if o.Pairs == 0 {
		o.Pairs = DefaultPairs
	}
	if o.Stop == 0 {
		o.Stop = stoppedTime
	}
	if o.Every == 0 {
		o.Every = updateEvery
	}
	if len(o.Shares) == 0 {
		o.Shares = plotShares
	}
	if o.loadFile == "" {
		o.loadFile = loadFile
	}
}

func (r *versionsRun) say(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// model returns the bytes of the model over a route.
func (r *versionsRun) model(route string) int64 {
	n := r.Bytes
	if route == routeProxy {
		n = r.SlowBytes
	}
	return n / int64(r.Tensors) / 2 * 2 * int64(r.Tensors)
}
