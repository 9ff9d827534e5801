package config

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
)

// LoadOptions has the sources for [Load].
type LoadOptions struct {
	// Flags are parsed flags, which include those of [RegisterFlags]. Only flags
	// that were set count. Nil: none.
	Flags *pflag.FlagSet
	// Environ is the environment as NAME=VALUE. Nil: the environment of the process.
	Environ []string
	// ReadFile reads the YAML file. Nil: from the file system.
	ReadFile func(path string) ([]byte, error)
	// Use selects the rules between settings that are checked.
	Use Use
}

// given is the value of a setting in one source. koanf merges these; it copies exported
// fields only.
type given struct {
	Text   string
	Source Source
}

// maxFile bounds the YAML file, in bytes. A cluster of some thousand tasks fits.
const maxFile = 1 << 18

// Load reads all sources and returns the settings. The error joins all errors. Each is an
// InvalidArgument *status.Error of one line with the source, the value, and what to write
// instead.
func Load(o LoadOptions) (Config, error) {
	if o.Environ == nil {
		o.Environ = os.Environ()
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
	l.load(merged, confmap.Provider(defaults(), "."))
	l.load(merged, confmap.Provider(l.tfConfig(environ), "."))
	var file map[string]any
	if path, ok := above.Get(configKey).(given); ok && path.Text != "" {
		file = l.file(path, o.ReadFile)
	}
	if usesVerbs(above, file) {
		l.load(merged, confmap.Provider(l.inherited(environ), "."))
	}
	l.load(merged, confmap.Provider(file, "."))
	l.add(merged.Merge(above))

	c := Config{sources: make(map[string]given, len(settings)), passedOver: passedOver}
	failed := make(map[string]bool)
	for _, s := range settings {
		g, ok := merged.Get(s.Key).(given)
		if !ok { // unreachable: every setting has a default
			continue
		}
		if err := s.value(&c).Set(g.Text); err != nil {
			l.add(valueError(g.Source, s.Key, g.Text, err))
			failed[s.Key] = true
			mustSet(s.value(&c), s.Default) // so that the rules between settings can be checked
		}
		c.sources[s.Key] = given{s.value(&c).String(), g.Source}
	}
	if c.sources[listenKey].Source.Kind == FromDefault && !failed[taskKey] {
		c.takeOwnAddress(c.sources[taskKey].Source.Kind != FromDefault)
	}
	for _, err := range c.broken(o.Use, failed) {
		l.add(err)
	}
	if len(l.errs) > 0 {
		return Config{}, errors.Join(l.errs...)
	}
	return c, nil
}

// usesVerbs reports whether the transport is verbs. With another transport TensorFlow's RDMA_
// variables are ignored: other programs may use such short names, and an invalid value must
// not prevent the start.
func usesVerbs(above *koanf.Koanf, file map[string]any) bool {
	g, ok := above.Get(transportKey).(given)
	if !ok {
		g, _ = file[transportKey].(given)
	}
	return g.Text == Verbs
}

// loader collects the errors, in the order of the sources.
type loader struct{ errs []error }

func (l *loader) add(err error) {
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

func (l *loader) load(k *koanf.Koanf, p koanf.Provider) { l.add(k.Load(p, nil)) }

func defaults() map[string]any {
	values := make(map[string]any, len(settings))
	for _, s := range settings {
		values[s.Key] = given{Text: s.Default}
	}
	return values
}

// environment provides the TRYST_ variables.
func (l *loader) environment(environ []string) koanf.Provider {
	keys := make(map[string]string, len(settings))
	for _, s := range settings {
		keys[s.Env()] = s.Key
	}
	return env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, text string) (string, any) {
			key, known := keys[name]
			switch {
			case known:
				return key, given{text, Source{Kind: FromEnv, Name: name}}
			case !strings.HasPrefix(name, testPrefix):
				l.add(unknown("variable", quote(name), nearest(name, keys)))
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
		if name, value, _ := strings.Cut(variable, "="); name == tfConfigVariable {
			text = value
		}
	}
	tf, err := cluster.ParseTFConfig(text)
	if err != nil {
		l.add(err)
		return values
	}
	source := Source{Kind: FromTFConfig, Name: tfConfigVariable}
	if tf.Spec.Len() > 0 {
		values[clusterKey] = given{tf.Spec.String(), source}
	}
	if tf.HasTask {
		values[taskKey] = given{tf.Task.String(), source}
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
