package sources

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
)

// Options has the sources for [Load].
type Options struct {
	// Flags are parsed flags, which include those of [RegisterFlags]. Only flags
	// that were set count. Nil: none.
	Flags *pflag.FlagSet
	// Environ is the environment as NAME=VALUE. Nil: the environment of the process.
	Environ []string
	// ReadFile reads the YAML file. Nil: from the file system.
	ReadFile func(path string) ([]byte, error)
	// Use selects the rules between settings that are checked.
	Use config.Use
}

// testPrefix begins the variables of tests. They are not settings.
const testPrefix = config.EnvPrefix + "TEST_"

// Load reads all sources and returns the settings. The error joins all errors. Each is an
// InvalidArgument *status.Error of one line with the source, the value, and what to write
// instead.
func Load(o Options) (*Loaded, error) {
	if o.Environ == nil {
		o.Environ = Environ(nil)
	}
	if o.ReadFile == nil {
		o.ReadFile = readFile
	}
	var l loader
	environ, passedOver := withoutServiceLinks(o.Environ)
	above := koanf.New(".") // the sources above the file; they name the file
	l.load(above, l.environment(environ))
	if o.Flags != nil {
		l.load(above, posflag.ProviderWithFlag(o.Flags, ".", nil, flagValue))
	}
	merged := koanf.New(".")
	l.load(merged, confmap.Provider(l.tfConfig(environ), "."))
	var file map[string]any
	if path, ok := above.Get(config.ConfigKey).(config.Given); ok && path.Text != "" {
		file = l.file(path, o.ReadFile)
	}
	if usesVerbs(above, file) {
		l.load(merged, confmap.Provider(l.inherited(environ), "."))
	}
	l.load(merged, confmap.Provider(file, "."))
	l.add(merged.Merge(above))

	all := make(map[string]config.Given)
	for _, s := range config.Settings() {
		if g, ok := merged.Get(s.Key).(config.Given); ok {
			all[s.Key] = g
		}
	}
	c, errs := fromGiven(all, o.Use)
	c.passedOver = passedOver
	if l.errs = append(l.errs, errs...); len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	return c, nil
}

// usesVerbs reports whether the transport is verbs. With another transport TensorFlow's RDMA_
// variables are ignored: other programs may use such short names, and an invalid value must
// not prevent the start.
func usesVerbs(above *koanf.Koanf, file map[string]any) bool {
	g, ok := above.Get(config.TransportKey).(config.Given)
	if !ok {
		g, _ = file[config.TransportKey].(config.Given)
	}
	return g.Text == config.Verbs
}

// loader collects the errors, in the order of the sources.
type loader struct{ errs []error }

func (l *loader) add(err error) {
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

func (l *loader) load(k *koanf.Koanf, p koanf.Provider) { l.add(k.Load(p, nil)) }

// environment provides the TRYST_ variables.
func (l *loader) environment(environ []string) koanf.Provider {
	keys := make(map[string]string, len(config.Settings()))
	for _, s := range config.Settings() {
		keys[s.Env()] = s.Key
	}
	return env.Provider(".", env.Opt{
		Prefix:      config.EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, text string) (string, any) {
			key, known := keys[name]
			switch {
			case known && text == "":
				// Unset, as Compose's ${VAR:-} means it. An empty value is set by the flag or the file.
			case known:
				return key, config.Given{Text: text, Source: config.Source{Kind: config.FromEnv, Name: name}}
			case !strings.HasPrefix(name, testPrefix):
				l.add(unknown("variable", config.Quote(name), nearest(name, keys)))
			}
			return "", nil
		},
	})
}

// tfConfig returns the settings in TF_CONFIG.
func (l *loader) tfConfig(environ []string) map[string]any {
	values := make(map[string]any)
	text := ""
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); name == config.TFConfig {
			text = value
		}
	}
	tf, err := cluster.ParseTFConfig(text)
	if err != nil {
		l.add(err)
		return values
	}
	source := config.Source{Kind: config.FromTFConfig, Name: config.TFConfig}
	if tf.Spec.Len() > 0 {
		values[config.ClusterKey] = config.Given{Text: tf.Spec.String(), Source: source}
	}
	if tf.HasTask {
		values[config.TaskKey] = config.Given{Text: tf.Task.String(), Source: source}
	}
	return values
}

// readFile reads a file up to one byte above maxFile, which is enough to see that it is too large.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}
