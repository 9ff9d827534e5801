// Package envconfig reads the settings of package tryst from the environment, as the command tryst
// does. Programs that fill in a tryst.Config themselves do not need it, and do not depend on what it
// imports.
//
// The sources, each of which overrides the next one, are the TRYST_ variables, the YAML file that
// TRYST_CONFIG names, and TF_CONFIG. docs/settings.md lists every setting. Those of the command
// alone (kernels, log.level, log.format, otel.*) are checked and then ignored: a program passes
// tryst.WithKernels, tryst.WithLogger and tryst.WithStatsHandlers.
package envconfig

import (
	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
)

// Load returns the settings for tryst.Serve. A field that no source sets has its zero value, which
// stands for the default. Several errors are joined; each is an InvalidArgument of one line that
// names the source of the value.
func Load() (tryst.Config, error) {
	c, _, err := load(config.ForServer)
	return c, err
}

// LoadClient returns the settings for tryst.Dial: those of Load that a
// client uses.
func LoadClient() (tryst.Config, error) {
	c, _, err := load(config.ForClient)
	return c, err
}

// LoadGraphLimits returns the settings for tryst.WithGraphLimits, with the errors of Load.
func LoadGraphLimits() (tryst.GraphLimits, error) {
	_, l, err := load(config.ForServer)
	return l, err
}

func load(use config.Use) (c tryst.Config, l tryst.GraphLimits, err error) {
	all, err := sources.Load(sources.Options{Use: use})
	if err != nil {
		return c, l, err
	}
	c, l = all.Given(use)
	return c, l, nil
}
