package server

import (
	"errors"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// complete is settings that are checked, with the defaults, and what follows from them.
type complete struct {
	Config
	Graphs GraphLimits

	set map[string]bool // the keys of the settings that the caller has set: the others fit the memory

	spec         *cluster.Spec // of Cluster; nil without tasks
	task, leader cluster.Task  // of Task and CollectiveLeader
	inCluster    bool          // Listen was not set, and is the address of task in the cluster
}

// check returns the complete settings of a process. The errors name the fields.
func (c Config) check(use config.Use, graphs GraphLimits) (complete, error) {
	all := complete{Config: c, Graphs: graphs}
	f := config.Bind(&all.Config, &all.Graphs)
	if idle := f.WithoutEffect(use); use == config.ForClient && len(idle) > 0 {
		return complete{}, status.Errorf(status.InvalidArgument, "%s is set, and has no effect in a client: it is a setting of servers; leave it out", f.Path(idle[0]))
	}
	if err := all.parse(); err != nil {
		return complete{}, err
	}
	all.set = f.Set()
	all.inCluster = f.FillDefaults()
	if err := byField(f.Validate(use, nil), f); err != nil {
		return complete{}, err
	}
	return all, all.parse() // Task has its default now
}

// parse reads the names and addresses.
func (c *complete) parse() error {
	spec, err := cluster.ParseLists(c.Cluster)
	if err != nil {
		return status.From(err).WithPrefix("Config.Cluster")
	}
	if c.spec = nil; spec.Len() > 0 {
		c.spec = spec
	}
	for _, t := range []struct {
		field, text string
		task        *cluster.Task
	}{{"Task", c.Task, &c.task}, {"CollectiveLeader", c.CollectiveLeader, &c.leader}} {
		if t.text == "" {
			continue
		}
		if *t.task, err = cluster.ParseTask(t.text); err != nil {
			return status.From(err).WithPrefix("Config." + t.field)
		}
	}
	return nil
}

// providers returns the providers that the settings allow.
func (c *complete) providers() config.ProviderSet {
	return config.NewProviderSet(c.Provider, c.SHM).ForTransport(c.Transport, c.RDMA.Device, c.TLS != TLS{})
}

// byField replaces keys in errors by the fields.
func byField(err error, f config.Fields) error {
	if err == nil {
		return nil
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	named := make([]error, len(all))
	for i, e := range all {
		was := status.From(e).Message()
		if text := withFields(was, f); text != was {
			e = status.New(status.CodeOf(e), text)
		}
		named[i] = e
	}
	return errors.Join(named...)
}

// withFields replaces the key at the beginning of a text, and those in its advice that are no words of
// English: with a dot or a hyphen.
func withFields(text string, f config.Fields) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		key := strings.Trim(w, ",;:.()")
		if field := f.Path(key); field != "" && (i == 0 || strings.ContainsAny(key, ".-")) {
			words[i] = strings.Replace(w, key, field, 1)
		}
	}
	return strings.Join(words, " ")
}
