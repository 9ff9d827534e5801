package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// Validate checks each field and what must hold between them. It is for a
// Config that a program filled in, after [Config.FillDefaults]; what [Load]
// returns has passed it. The error joins all that is wrong, each an
// InvalidArgument *status.Error of one line that names the setting by its key.
func (c *Config) Validate(use Use) error {
	var errs []error
	failed := make(map[string]bool)
	for _, s := range settings {
		v := s.value(c)
		if err := v.check(); err != nil {
			errs = append(errs, valueError(c.source(s.Key), s.Key, v.String(), err))
			failed[s.Key] = true
		}
	}
	return errors.Join(append(errs, c.broken(use, failed)...)...)
}

// rule is something that must hold between settings.
type rule struct {
	keys []string // the settings it looks at; the error is about the first
	use  Use      // whom it binds
	// check returns what is wrong and what to do, or "".
	check func(*Config) string
}

var rules = []rule{
	{[]string{"tls.cert", "tls.key"}, both, func(c *Config) string {
		if c.TLS.Cert != "" && c.TLS.Key == "" {
			return "a certificate without its private key; give tls.key, too"
		}
		return ""
	}},
	{[]string{"tls.key", "tls.cert"}, both, func(c *Config) string {
		if c.TLS.Key != "" && c.TLS.Cert == "" {
			return "a private key without its certificate; give tls.cert, too"
		}
		return ""
	}},
	{[]string{"tls.require-client-cert", "tls.cert", "tls.ca"}, ForServer, func(c *Config) string {
		if c.TLS.RequireClientCert && (c.TLS.Cert == "" || c.TLS.CA == "") {
			return "clients cannot be asked for certificates without tls.cert, tls.key and tls.ca; give all three"
		}
		return ""
	}},
	{[]string{"tls.ca", "tls.cert", "tls.key", "tls.require-client-cert"}, ForServer, func(c *Config) string {
		if c.TLS.CA != "" {
			return noListener(c.TLS)
		}
		return ""
	}},
	{[]string{"tls.server-name", "tls.ca", "tls.cert", "tls.key", "tls.require-client-cert"}, ForServer, func(c *Config) string {
		if c.TLS.ServerName != "" && c.TLS.CA == "" { // with tls.ca it is that rule's
			return noListener(c.TLS)
		}
		return ""
	}},
	{[]string{"task", "cluster"}, ForServer, func(c *Config) string {
		switch _, listed := c.Cluster.Address(c.Task); {
		case c.Cluster.Len() == 0 || besideCluster(c):
			return ""
		case !listed:
			return "it is not in the cluster " + quote(c.Cluster.String()) + "; name one of its tasks"
		case c.sources != nil && c.source(taskKey).Kind == FromDefault && c.Cluster.Len() > 1:
			return "the cluster has several tasks and nothing says which one this process is; give the task"
		}
		return ""
	}},
	{[]string{"arena", "arena-limit"}, both, func(c *Config) string {
		if c.Arena > c.ArenaLimit/2 {
			return "two of them do not fit the arena-limit of " + FormatSize(c.ArenaLimit) + "; lower it, or raise arena-limit"
		}
		return ""
	}},
	apart("metrics-address", "listen", func(c *Config) (string, string) { return c.MetricsAddress, c.Listen }),
	apart("pprof-address", "listen", func(c *Config) (string, string) { return c.PprofAddress, c.Listen }),
	apart("pprof-address", "metrics-address", func(c *Config) (string, string) { return c.PprofAddress, c.MetricsAddress }),
}

// noListener says what is wrong with a server that dials with TLS where it does
// not listen with it, unless another rule tells what is missing for that.
func noListener(t TLS) string {
	if t.Cert == "" && t.Key == "" && !t.RequireClientCert {
		return "the server would dial with TLS and listen without; give tls.cert and tls.key, too"
	}
	return ""
}

// besideCluster reports whether the process is an evaluator, which TensorFlow
// lets run beside a cluster that has none.
func besideCluster(c *Config) bool {
	const evaluator = "evaluator"
	return c.Task.Job == evaluator && !slices.Contains(c.Cluster.Jobs(), evaluator)
}

// apart is the rule that two listeners have two addresses, port 0 apart.
func apart(key, other string, addresses func(*Config) (string, string)) rule {
	return rule{[]string{key, other}, ForServer, func(c *Config) string {
		a, b := addresses(c)
		if a == "" || a != b || strings.HasSuffix(a, ":0") {
			return ""
		}
		return "it is the address of " + other + ", too; give another port"
	}}
}

// broken returns what is wrong between settings, the failed ones apart.
func (c *Config) broken(use Use, failed map[string]bool) []error {
	var errs []error
	for _, r := range rules {
		if r.use&use == 0 || slices.ContainsFunc(r.keys, func(k string) bool { return failed[k] }) {
			continue
		}
		if why := r.check(c); why != "" {
			s, _ := byKey(r.keys[0])
			errs = append(errs, valueError(c.source(s.Key), s.Key, s.value(c).String(), errors.New(why)))
		}
	}
	return errs
}

// reason is an error of package cluster about a text as one of a value: without
// its code, which is InvalidArgument for all of them here, and without the
// text, which the caller shows.
func reason(err error, text string) error {
	if err == nil {
		return nil
	}
	message := status.From(err).Message()
	if _, why, ok := strings.Cut(message, quote(text)+": "); ok {
		message = why
	}
	return errors.New(message)
}
