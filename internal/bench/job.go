package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// The benchmark of the whole job starts commands, as a user does: tryst serve and tryst pull of a
// checkpoint into a file, beside what else copies a file between two processes.

// JobOptions are what RunJob measures. Zero fields take their defaults.
type JobOptions struct {
	// Tryst is the path of the command.
	Tryst string
	// Dir is a directory for the checkpoint and its copies, on the disk to measure.
	Dir string
	// Model is the generated checkpoint; gpt2 (548 MB) when empty.
	Model string
	// Routes are what carries the tensors: grpc, or a provider of verbs.
	Routes []string
	// Only has the names of the contests to run, of JobNames; empty: all.
	Only []string
	// Pairs is the number of pairs in a contest.
	Pairs int
	// Row and Progress are as in Options. Both may be nil.
	Row      func(Row)
	Progress func(string)

	loadFile string // file with the load average; another one in tests
}

// The baselines of the whole job.
const (
	Curl       = "curl"      // from Python's http.server, not verified and not synced
	CopyFile   = "cp, sync"  // cp --reflink=never, and sync of the copy
	CopyMemory = "copy, xxh" // one goroutine that copies all from memory, and XXH64 of the copy
)

// jobContest is one comparison of the whole job.
type jobContest struct {
	name string
	run  func(*job, context.Context, string) error
}

func jobContests() []jobContest {
	return []jobContest{
		{"pull", (*job).besideCurl},
		{"pull-first", (*job).firstBesideCurl},
		{"pull-copy", (*job).besideCopy},
		{"pull-memory", (*job).besideMemory},
	}
}

// JobNames returns the names of the contests of RunJob.
func JobNames() (names []string) {
	for _, c := range jobContests() {
		names = append(names, c.name)
	}
	return names
}

// jobTarget returns the ratio that a contest over a route should reach; 0 for a route that is only
// reported. Within a host shm is the best route, and tcp where shm may not be used.
func jobTarget(name, route string) float64 {
	switch {
	case name == "pull" && route == "tcp":
		return 1.2
	case route != "shm":
		return 0
	}
	return map[string]float64{"pull": 1, "pull-cpu": 1.2, "pull-first": 1.3, "pull-copy": 2, "pull-memory": 2}[name]
}

// job is one run of RunJob.
type job struct {
	JobOptions
	load      float64
	processor string
	model     string // path of the checkpoint
	size      int64  // of it
	rows      []Row
}

// RunJob measures the whole job and returns the rows; after an error, those measured so far. It
// returns when all processes have ended.
func RunJob(ctx context.Context, o JobOptions) ([]Row, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	j := &job{JobOptions: o, load: loadAverage(o.loadFile), processor: processorText(cpuInfo)}
	if j.load > quietLoad {
		j.say("warning: %s, above %s: stop the other work on this machine and measure again", loadText(j.load), decimals(quietLoad))
	}
	if err := j.generate(ctx); err != nil {
		return nil, err
	}
	for _, c := range jobContests() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, c.name) {
			continue
		}
		for _, route := range o.Routes {
			j.say("%s over %s", c.name, route)
			if err := c.run(j, ctx, route); err != nil {
				return j.rows, status.From(err).WithPrefix(c.name + " over " + route)
			}
		}
	}
	return j.rows, nil
}

func (o *JobOptions) complete() error {
	for _, name := range o.Only {
		if !slices.Contains(JobNames(), name) {
			return status.Errorf(status.InvalidArgument, "unknown contest %q; want one of %s", name, strings.Join(JobNames(), ", "))
		}
	}
	if len(o.Routes) == 0 {
		o.Routes = []string{"shm", "tcp", grpctransport.Name, "roce"}
	}
	if o.Pairs == 0 {
		o.Pairs = DefaultPairs
	}
	if o.Model == "" {
		o.Model = "gpt2"
	}
	if o.loadFile == "" {
		o.loadFile = loadFile
	}
	switch {
	case o.Tryst == "" || o.Dir == "":
		return status.New(status.InvalidArgument, "bench.JobOptions needs Tryst, the path of the command, and Dir, where the files are")
	case o.Pairs < 1:
		return status.Errorf(status.InvalidArgument, "%d pairs: at least 1 is needed", o.Pairs)
	}
	return nil
}

// generate makes the checkpoint, unless an earlier run has.
func (j *job) generate(ctx context.Context) error {
	if err := os.MkdirAll(j.Dir, 0o755); err != nil {
		return status.Errorf(status.Unavailable, "cannot make the directory of the files: %w", err)
	}
	j.model = filepath.Join(j.Dir, j.Model+".safetensors")
	if _, err := os.Stat(j.model); err != nil {
		if _, err := j.command(ctx, j.Tryst, "gen", "--model", j.Model, "--out", j.model); err != nil {
			return err
		}
	}
	info, err := os.Stat(j.model)
	if err != nil {
		return status.Errorf(status.Unavailable, "the checkpoint: %w", err)
	}
	j.size = info.Size()
	return nil
}

// sample is one run of a side: the time until the command has ended, and the processor time of all
// processes that took part.
type sample struct{ time, cpu time.Duration }

// samples are those of one side.
type samples []sample

func (all samples) times(of func(sample) time.Duration) (d []float64) {
	for _, s := range all {
		d = append(d, of(s).Seconds())
	}
	return d
}

func timeOf(s sample) time.Duration { return s.time }
func cpuOf(s sample) time.Duration  { return s.cpu }

// jobSide does the whole job once.
type jobSide func(context.Context) (sample, error)

// turns runs both sides in turn.
func (j *job) turns(ctx context.Context, ours, baseline jobSide) (o, first, second samples, err error) {
	return turns[sample](ctx, j.Pairs, ours, baseline)
}

// compare adds the rows of a contest: of ours, and of the baseline itself. what is the time that is
// compared.
func (j *job) compare(name, route, baseline string, what func(sample) time.Duration, ours, first, second samples) {
	o, a, b := ours.times(what), first.times(what), second.times(what)
	pairs, again := make([]float64, len(o)), make([]float64, len(o))
	for i := range o {
		pairs[i], again[i] = o[i]/b[i], a[i]/b[i] // they ran one after the other
	}
	own := spreadOf(again)
	r := j.row(name, o, spreadOf(pairs))
	r.Transport, r.Baseline = route, baseline
	r.judge(Lower, jobTarget(name, route), own.deviation())
	j.add(r)
	r = j.row(name, slices.Concat(a, b), own)
	r.Baseline, r.itself = baseline, true
	j.add(r)
}

func (j *job) row(name string, seconds []float64, ratio spread) Row {
	o := outcome{run: run{count: int64(len(seconds))}, ratio: ratio}
	for _, s := range seconds {
		d := time.Duration(s * float64(time.Second))
		o.time += d
		o.latencies.add(d, 1)
	}
	r := rowOf(name, &o)
	r.Inflight, r.Better = 1, Lower
	r.moved(j.size)
	return r
}

func (j *job) add(r Row) {
	r.file, r.Load, r.Processor = "pull", j.load, j.processor
	j.rows = append(j.rows, r)
	if j.Row != nil {
		j.Row(r)
	}
}

// leaveOut adds a row that is not ok, so that nothing is left out unseen.
func (j *job) leaveOut(name, route, baseline string, why error) {
	j.say("%s over %s is left out: %v", name, route, why)
	r := rowOf(name, new(outcome))
	r.Transport, r.Baseline, r.OK = route, baseline, false
	j.add(r)
}

func (j *job) say(format string, args ...any) {
	if j.Progress != nil {
		j.Progress(fmt.Sprintf(format, args...))
	}
}

// besideCurl compares pulls from a server that has served before with curl, by time and by processor
// time of both processes.
func (j *job) besideCurl(ctx context.Context, route string) (err error) {
	web, err := j.startWeb(ctx)
	if err != nil {
		j.leaveOut("pull", route, Curl, err)
		return nil
	}
	s, err := j.startServe(ctx, route)
	if err != nil {
		web.stop()
		return err
	}
	defer web.stop()
	defer s.stop()
	o, first, second, err := j.turns(ctx,
		func(ctx context.Context) (sample, error) { return j.pull(ctx, s, route) },
		func(ctx context.Context) (sample, error) { return j.curl(ctx, web) })
	if err != nil {
		return err
	}
	j.compare("pull", route, Curl, timeOf, o, first, second)
	if slices.ContainsFunc(o, func(s sample) bool { return s.cpu > 0 }) {
		j.compare("pull-cpu", route, Curl, cpuOf, o, first, second)
	}
	return nil
}

// firstBesideCurl compares the first pulls of fresh servers with curl. The start of the server is not
// in the time.
func (j *job) firstBesideCurl(ctx context.Context, route string) (err error) {
	web, err := j.startWeb(ctx)
	if err != nil {
		j.leaveOut("pull-first", route, Curl, err)
		return nil
	}
	defer web.stop()
	first := func(ctx context.Context) (sample, error) {
		s, err := j.startServe(ctx, route)
		if err != nil {
			return sample{}, err
		}
		defer s.stop()
		return j.pull(ctx, s, route)
	}
	o, a, b, err := j.turns(ctx, first, func(ctx context.Context) (sample, error) { return j.curl(ctx, web) })
	if err != nil {
		return err
	}
	j.compare("pull-first", route, Curl, timeOf, o, a, b)
	return nil
}

// besideCopy compares pulls with a copy of the file that is synced.
func (j *job) besideCopy(ctx context.Context, route string) (err error) {
	s, err := j.startServe(ctx, route)
	if err != nil {
		return err
	}
	defer s.stop()
	o, a, b, err := j.turns(ctx,
		func(ctx context.Context) (sample, error) { return j.pull(ctx, s, route) },
		func(ctx context.Context) (sample, error) {
			return j.timed(nil, func(out string) error {
				if _, err := j.command(ctx, "cp", "--reflink=never", j.model, out); err != nil {
					return err
				}
				_, err := j.command(ctx, "sync", out)
				return err
			})
		})
	if _, missing := errors.AsType[*exec.Error](err); missing {
		j.leaveOut("pull-copy", route, CopyFile, err)
		return nil
	}
	if err != nil {
		return err
	}
	j.compare("pull-copy", route, CopyFile, timeOf, o, a, b)
	return nil
}
