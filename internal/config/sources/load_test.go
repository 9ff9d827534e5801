package sources

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// world is what Load looks at, in a test.
type world struct {
	args    []string
	environ []string
	yaml    string // what every file holds; settings.yaml is read when it is not ""
	use     Use    // 0: no rules between settings hold
}

func (w world) load(t testing.TB) (*Loaded, error) {
	t.Helper()
	flags := pflag.NewFlagSet("tryst", pflag.ContinueOnError)
	RegisterFlags(flags, both)
	flags.Bool("other", false, "a flag that is no setting")
	args := w.args
	if w.yaml != "" {
		args = append([]string{"--config=settings.yaml"}, args...)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	environ := append([]string{}, w.environ...) // not nil, which means the process's own
	return Load(Options{
		Flags: flags, Environ: environ, Use: w.use,
		ReadFile: func(string) ([]byte, error) { return []byte(w.yaml), nil },
	})
}

// wantErrors checks that err is made of as many errors as there are texts, and
// that each of them is one line that has a text's parts.
func wantErrors(t *testing.T, err error, texts ...[]string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", texts)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not joined: %v", err)
	}
	errs := joined.Unwrap()
	if len(errs) != len(texts) {
		t.Errorf("got %d errors, want %d:\n%v", len(errs), len(texts), err)
		return
	}
	for i, err := range errs {
		if one := (*status.Error)(nil); !errors.As(err, &one) || status.CodeOf(err) != status.InvalidArgument || strings.Contains(err.Error(), "\n") {
			t.Errorf("not an InvalidArgument of one line: %q", err)
		}
		for _, text := range texts[i] {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("error %q does not say %q", err, text)
			}
		}
	}
}

// samples are values by kind or by key of a setting, four that differ from
// their neighbours, one for each source but the default.
var samples = map[string][]string{
	"path":               {"a", "b", "c", "d"},
	"name":               {"a.example", "b.example", "c.example", "d.example"},
	"host:port":          {"127.0.0.1:1", "[::1]:2", "host:3", ":0"},
	"bool":               {"true", "false", "true", "false"},
	"number":             {"1", "2", "3", "4"},
	"size":               {"1MiB", "2MiB", "3MiB", "4MiB"},
	"duration":           {"11s", "12s", "13s", "14s"},
	"level":              {"debug", "info", "warn", "error"},
	"task":               {"/job:a/replica:0/task:1", "/job:b/replica:0/task:2", "/job:c/replica:0/task:3", "/job:d/replica:0/task:4"},
	"cluster":            {"a=h:1", "b=h:2", "c=h:3", "d=h:4"},
	"transport":          {"grpc", "verbs", "grpc", "verbs"},
	"log.format":         {"json", "text", "json", "text"},
	"digest":             {"sha256", "xxh64", "sha256", "xxh64"},
	"deltas":             {"none", "auto", "none", "auto"},
	"otel.sample-ratio":  {"0.1", "0.2", "0.3", "0.4"},
	"fallback":           {"none", "grpc", "none", "grpc"},
	"provider":           {"roce", "libibverbs", "tcp,shm", "libibverbs"},
	"shm":                {"off", "auto", "off", "auto"},
	"shm-dir":            {"/a", "/b", "/c", "/d"},
	"rdma.traffic-class": {"4", "8", "104", "106"},
	"rdma.mtu":           {"256", "512", "1024", "2048"},
	"rdma.queue-depth":   {"16", "17", "18", "19"},
	"eager-limit":        {"1KiB", "2KiB", "3KiB", "4KiB"},
	"arena-limit":        {"2MiB", "3MiB", "4MiB", "5MiB"},
	"kernels":            {"none", "tensorflow", "none", "go"},
	"poll":               {"event", "busy", "event", "busy"},
}

func sample(s Setting, source SourceKind) string {
	values, ok := samples[s.Key]
	if !ok {
		values = samples[s.Type()]
	}
	if source == FromTensorFlow {
		if s.Key == "rdma.timeout" {
			return "67.108864ms"
		}
		return values[0]
	}
	return values[max(source, FromTensorFlow)-FromTensorFlow]
}

// tfConfigs gives the samples of the settings that TF_CONFIG can.
var tfConfigs = map[string]string{
	config.ClusterKey: `TF_CONFIG={"cluster":{"a":["h:1"]}}`,
	config.TaskKey:    `TF_CONFIG={"task":{"type":"a","index":1}}`,
}

// give adds a source that gives the setting, if it can.
func (w *world) give(s Setting, source SourceKind) bool {
	text := sample(s, source)
	switch source {
	case FromTFConfig:
		variable, ok := tfConfigs[s.Key]
		w.environ = append(w.environ, variable)
		return ok
	case FromTensorFlow:
		names := s.Inherited()
		if len(names) == 0 {
			return false
		}
		if s.Key == timeoutKey {
			text = "14"
		}
		w.environ = append(w.environ, names[0]+"="+text, "TRYST_TRANSPORT=verbs")
	case FromFile:
		if !s.InFile() {
			return false
		}
		w.yaml = fmt.Sprintf("# a comment\n%s: %q\n", strings.Replace(s.Key, ".", ":\n  ", 1), text)
	case FromEnv:
		w.environ = append(w.environ, s.Env()+"="+text)
	case FromFlag:
		w.args = append(w.args, "--"+s.Flag()+"="+text)
	}
	return true
}

// TestPrecedence gives every setting by every subset of the sources, and wants
// the value of the highest of them.
func TestPrecedence(t *testing.T) {
	sources := []SourceKind{FromTFConfig, FromTensorFlow, FromFile, FromEnv, FromFlag}
	for _, s := range config.Settings() {
		t.Run(s.Key, func(t *testing.T) {
			for subset := range 1 << len(sources) {
				var w world
				want, from := s.Default, FromDefault
				for i, source := range sources {
					if subset>>i&1 == 1 && w.give(s, source) {
						want, from = sample(s, source), source
					}
				}
				c, err := w.load(t)
				if err != nil {
					t.Fatalf("%+v: %v", w, err)
				}
				if got := c.fields().Text(s.Key); got != want {
					t.Errorf("%+v: got %q, want %q", w, got, want)
				}
				got := c.Source(s.Key)
				if got.Kind != from {
					t.Errorf("%+v: got the value from %q, want it from %q", w, got, Source{Kind: from})
				}
				if last := strings.Count(w.yaml, "\n"); from == FromFile && got.Line != last {
					t.Errorf("%q: got the value from %q, want it from line %d", w.yaml, got, last)
				}
			}
		})
	}
}

func TestSourceString(t *testing.T) {
	for want, s := range map[string]Source{
		"flag --listen":      {Kind: FromFlag, Name: "--listen"},
		"env TRYST_LISTEN":   {Kind: FromEnv, Name: "TRYST_LISTEN"},
		"file /etc/t.yaml:3": {Kind: FromFile, Name: "/etc/t.yaml", Line: 3},
		"file /etc/t.yaml":   {Kind: FromFile, Name: "/etc/t.yaml"},
		"TF_CONFIG":          {Kind: FromTFConfig, Name: "TF_CONFIG"},
		"env RDMA_PKEY":      {Kind: FromTensorFlow, Name: "RDMA_PKEY"},
		"default":            {},
		"program":            {Kind: config.FromProgram},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestEmptyVariablesAreUnset, all of them, whatever kind of value they have: Compose sets them so for
// ${VAR:-}. The file counts then, and TensorFlow's name of the setting. A flag may be empty.
func TestEmptyVariablesAreUnset(t *testing.T) {
	w := world{yaml: "metrics-address: 'h:1'\nkeepalive: {time: 20s}\n", args: []string{"--config", "settings.yaml"}}
	for _, s := range config.Settings() {
		w.environ = append(w.environ, s.Env()+"=")
	}
	c, err := w.load(t)
	if err != nil {
		t.Fatal(err)
	}
	if c.MetricsAddress != "h:1" || c.GRPC.KeepaliveTime != 20*time.Second {
		t.Errorf("metrics-address %q, keepalive.time %v: the file does not count", c.MetricsAddress, c.GRPC.KeepaliveTime)
	}
	for _, s := range config.Settings() {
		if got := c.Source(s.Key); got.Kind == FromEnv {
			t.Errorf("%s is from %v", s.Key, got)
		}
	}
}

// TestQuantitiesOfKubernetes are sizes.
func TestQuantitiesOfKubernetes(t *testing.T) {
	c, err := world{environ: []string{"TRYST_ARENA_LIMIT=2Gi", "TRYST_FILE_CACHE=512Mi"}}.load(t)
	if err != nil || c.RDMA.ArenaLimit != 2<<30 || c.Publications.FileCache != 512<<20 {
		t.Errorf("arena-limit %d, file-cache %d, %v", c.RDMA.ArenaLimit, c.Publications.FileCache, err)
	}
}

// TestBareBool takes --flag for --flag=true.
func TestBareBool(t *testing.T) {
	c, err := world{args: []string{"--cache-rpc-response", "--other"}, yaml: "publish-mmap: true\n"}.load(t)
	if err != nil || !c.GRPC.CacheRPCResponse || !c.Publications.MMap {
		t.Errorf("got %v, %v, %v", c.GRPC.CacheRPCResponse, c.Publications.MMap, err)
	}
}

// TestFlagsOfAUse gives a client none of the server's flags.
func TestFlagsOfAUse(t *testing.T) {
	flags := pflag.NewFlagSet("pull", pflag.ContinueOnError)
	RegisterFlags(flags, ForClient)
	for _, s := range config.Settings() {
		if got, want := flags.Lookup(s.Flag()) != nil, s.Use&ForClient != 0; got != want {
			t.Errorf("--%s: got %v, want %v", s.Flag(), got, want)
		}
	}
	// The variables are those of all, so that one environment serves both.
	if _, err := Load(Options{Flags: flags, Environ: []string{"TRYST_LISTEN=:1"}, Use: ForClient}); err != nil {
		t.Error(err)
	}
}

// TestHelpTellsDefaultsAndLimits: whoever reads --help need not try.
func TestHelpTellsDefaultsAndLimits(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	RegisterFlags(flags, both)
	for _, s := range config.Settings() {
		one := pflag.NewFlagSet("one", pflag.ContinueOnError)
		one.AddFlag(flags.Lookup(s.Flag()))
		help := one.FlagUsages()
		if limits := s.Limits(); !strings.Contains(help, limits) {
			t.Errorf("%q lacks the limits %q", help, limits)
		}
		if s.Default != "" && s.Type() != "bool" && strings.Count(help, "(default "+s.Default+")") != 1 {
			t.Errorf("%q lacks the default %q", help, s.Default)
		}
	}
}

// TestNoSources is a process that was told nothing.
func TestNoSources(t *testing.T) {
	c, err := Load(Options{Environ: []string{"HOME=/", "TRYST"}, Use: both})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:2222" || c.Task != "/job:worker/replica:0/task:0" || c.Cluster != nil || c.Transport != "auto" {
		t.Errorf("got %+v", c)
	}
	for _, e := range c.Describe() {
		if e.Source.Kind != FromDefault {
			t.Errorf("%s is from %v, want the default", e.Key, e.Source)
		}
	}
}

// TestDescribeChanged tells a field that was changed after Load apart.
func TestDescribeChanged(t *testing.T) {
	c, err := world{args: []string{"--listen=:1", "--max-waiting=7"}}.load(t)
	if err != nil {
		t.Fatal(err)
	}
	c.Listen, c.Publications.Digest = ":2", "sha256"
	want := map[string]SourceKind{"listen": config.FromProgram, "digest": config.FromProgram, "max-waiting": FromFlag}
	for _, e := range c.Describe() {
		if e.Source.Kind != want[e.Key] {
			t.Errorf("%s: got %v, want %v", e.Key, e.Source, Source{Kind: want[e.Key]})
		}
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, err := world{
		args: []string{"--listen=nowhere", "--transport=carrier-pigeon"},
		environ: []string{
			"TRYST_KEEPALIVE_TIME=9", "TRYST_LISTN=:1", "TRYST_TEST_DEVICE=rxe0", "TRYSTING=1", `TF_CONFIG={"cluster":`,
		},
		yaml: "log:\n  level: loud\n  colour: red\nunary-limit: 3GiB\n",
		use:  both,
	}.load(t)
	wantErrors(t, err,
		[]string{`variable "TRYST_LISTN"`, "nearest is TRYST_LISTEN"},
		[]string{"TF_CONFIG"},
		[]string{`settings.yaml:3: key "log.colour"`, "nearest is log."},
		[]string{`--transport "carrier-pigeon"`, "want one of auto, grpc"},
		[]string{`--listen "nowhere"`, "want HOST:PORT"},
		[]string{`settings.yaml:2: log.level "loud"`, "debug, info, warn, error"},
		[]string{`TRYST_KEEPALIVE_TIME "9"`, "30s"},
		[]string{`settings.yaml:4: unary-limit "3GiB"`, "1KiB to 2047MiB"},
	)
}

func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "none.yaml")
	_, err := Load(Options{Environ: []string{"TRYST_CONFIG=" + missing}})
	wantErrors(t, err, []string{"TRYST_CONFIG", missing, "no such file"})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	_, err = Load(Options{Environ: []string{"TRYST_CONFIG=" + dir}})
	wantErrors(t, err, []string{"TRYST_CONFIG", dir, "is a directory"})

	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#\n"), maxFile), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Load(Options{Environ: []string{"TRYST_CONFIG=" + large}})
	wantErrors(t, err, []string{large, "larger than 256KiB"})
}

// FuzzEnv gives any variable: an unknown one with the prefix is refused, unless it
// describes a Service, and a known one sets its setting or is refused by name.
func FuzzEnv(f *testing.F) {
	for _, s := range config.Settings() {
		f.Add(s.Env(), s.Default)
	}
	for _, v := range [][2]string{{"TRYST_SERVICE_HOST", "::1"}, {"TRYST_RDMA_PORT", "tcp://10.0.0.1:1"}, {"TRYST_PORT_1_TCP_ADDR", "h"}, {"TRYST_", ""}, {"TRYST_LISTN", "x"}, {"TRYST_TEST_", "x"}, {"TRYST_listen", ":1"}, {"TRYST_LOG", "info"}, {"PATH", "/"},
		{"TF_CONFIG", `{"cluster":{"a":["h:1"]},"task":{"type":"a","index":0}}`}, {"TRYST_LISTEN", "a\x00b"}, {"TRYST_TLS.CERT", "a"}} {
		f.Add(v[0], v[1])
	}
	known := make(map[string]Setting)
	for _, s := range config.Settings() {
		known[s.Env()] = s
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if strings.ContainsAny(name, "=") {
			return
		}
		c, err := world{environ: []string{name + "=" + value}}.load(t)
		s, isKnown := known[name]
		switch {
		case strings.HasPrefix(name, "TRYST_") && isServiceLink(name, value):
			if err != nil || len(c.PassedOver()) != 1 {
				t.Errorf("%s=%q: passed over %q, %v", name, value, c.PassedOver(), err)
			}
		case !isKnown && strings.HasPrefix(name, "TRYST_") && !strings.HasPrefix(name, "TRYST_TEST_"):
			wantErrors(t, err, []string{"variable", "nearest is TRYST_"})
		case err != nil && isKnown:
			wantErrors(t, err, []string{name})
		case err != nil && name != "TF_CONFIG":
			t.Error(err)
		case err == nil && isKnown:
			if got := c.Source(s.Key); (got.Kind == FromEnv) != (value != "") {
				t.Errorf("%s=%q: the value is from %v", name, value, got)
			}
			text := c.fields().Text(s.Key)
			if err := c.fields().SetText(s.Key, text); err != nil || c.fields().Text(s.Key) != text {
				t.Errorf("%s=%q reads back as %q: %v", name, value, text, err)
			}
		}
	})
}

// TestTFConfig gives the cluster and the own task, whose address is the one to listen on.
func TestTFConfig(t *testing.T) {
	const tf = `TF_CONFIG={"cluster":{"chief":["h0:1"],"worker":{"5":"h5:2"}},"task":{"type":"worker","index":5}}`
	c, err := world{environ: []string{tf}, use: ForServer}.load(t)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Spec().String(), "chief=h0:1;worker=5@h5:2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := (cluster.Task{Job: "worker", Index: 5}); c.Self() != want {
		t.Errorf("got %v, want %v", c.Task, want)
	}
	if want := "h5:2"; c.Listen != want {
		t.Errorf("got %q, want %q", c.Listen, want)
	}
	_, err = world{environ: []string{`TF_CONFIG={"cluster":{"a":["nowhere"]}}`}}.load(t)
	wantErrors(t, err, []string{"TF_CONFIG: cluster.a[0]", "HOST:PORT"})
}

// TestX9UnknownTransport: wherever it is said, an unknown transport is refused
// with the names of the known ones.
func TestX9UnknownTransport(t *testing.T) {
	refused := func(t *testing.T, err error, name string) {
		wantErrors(t, err, []string{name + ` "carrier-pigeon": `, "want one of " + strings.Join(config.Transports(), ", ")})
	}
	for name, w := range map[string]world{
		"--transport":     {args: []string{"--transport=carrier-pigeon"}},
		"TRYST_TRANSPORT": {environ: []string{"TRYST_TRANSPORT=carrier-pigeon"}},
		"transport":       {yaml: "transport: carrier-pigeon\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.load(t)
			refused(t, err, name)
		})
	}
	c, err := world{}.load(t)
	if err != nil {
		t.Fatal(err)
	}
	c.Transport = "carrier-pigeon"
	refused(t, c.fields().Validate(both, nil), "transport")
}
