package sources

import (
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
)

// Loaded is all settings of a process of the command, with the defaults in those that no source set. For
// what the process starts, [Loaded.Given] returns the settings that a source set.
type Loaded struct {
	server.Config
	server.GraphLimits
	config.Own

	given      map[string]config.Given // what Load returned, by key
	inCluster  bool                    // Listen comes from the cluster
	passedOver []string
}

// fields returns the fields of l.
func (l *Loaded) fields() config.Fields { return config.Bind(&l.Config, &l.GraphLimits, &l.Own) }

// Source returns the source of a setting's value. A value of listen that comes from the cluster has
// the source of the cluster. A value that was changed after Load comes from the program.
func (l *Loaded) Source(key string) config.Source { return l.source(l.fields(), key) }

func (l *Loaded) source(f config.Fields, key string) config.Source {
	g := l.given[key]
	switch {
	case f.Text(key) != g.Text:
		return config.Source{Kind: config.FromProgram}
	case key == config.ListenKey && l.inCluster:
		return l.source(f, config.ClusterKey)
	}
	return g.Source
}

// Describe lists all settings in the order of the table. No setting is a
// secret: keys and certificates are given by path.
func (l *Loaded) Describe() []config.Entry {
	f := l.fields()
	var entries []config.Entry
	for _, s := range config.Settings() {
		entries = append(entries, config.Entry{Key: s.Key, Value: f.Text(s.Key), Source: l.source(f, s.Key)})
	}
	return entries
}

// PassedOver returns the names of the environment variables that Load passed over: they begin as
// those of settings do, and describe a Service of Kubernetes. The caller must not change them.
func (l *Loaded) PassedOver() []string { return l.passedOver }

// Spec returns the cluster; nil if there is none.
func (l *Loaded) Spec() *cluster.Spec { return l.fields().Spec() }

// Self returns the name of this process in the cluster.
func (l *Loaded) Self() cluster.Task { return l.fields().Self() }

// IsMember reports whether the process is a task of the cluster because a source names the task.
func (l *Loaded) IsMember() bool {
	return l.inCluster && l.Source(config.TaskKey).Kind != config.FromDefault
}

// Given returns the settings that a source has set and that have an effect in processes of the given use.
// The others have their zero value.
func (l *Loaded) Given(use config.Use) (server.Config, server.GraphLimits) {
	c, limits, all := l.Config, l.GraphLimits, l.fields()
	f := config.Bind(&c, &limits)
	f.Restrict(use)
	for _, s := range config.Settings() {
		own := s.Key == config.ListenKey && l.inCluster && all.Text(s.Key) == l.given[s.Key].Text
		if own || l.source(all, s.Key).Kind == config.FromDefault {
			f.Clear(s.Key)
		}
	}
	return c, limits
}

// fromGiven returns the settings of which each is given once, by key. The errors are those of the
// values, and of the rules between settings for a use.
func fromGiven(all map[string]config.Given, use config.Use) (*Loaded, []error) {
	l := &Loaded{given: make(map[string]config.Given)}
	f := l.fields()
	var errs []error
	failed := make(map[string]bool)
	for _, s := range config.Settings() {
		f.Reset(s.Key) // of one with an error, so that the rules between settings can be checked
		if g, ok := all[s.Key]; ok {
			if err := f.SetText(s.Key, g.Text); err != nil {
				errs = append(errs, config.ValueError(g.Source, s.Key, g.Text, err))
				failed[s.Key] = true
			}
		}
	}
	if all[config.ListenKey].Source.Kind == config.FromDefault && !failed[config.TaskKey] {
		l.inCluster = f.TakeOwnAddress()
	}
	for _, s := range config.Settings() {
		l.given[s.Key] = config.Given{Text: f.Text(s.Key), Source: all[s.Key].Source}
	}
	return l, append(errs, f.Broken(use, failed, l.Source)...)
}
