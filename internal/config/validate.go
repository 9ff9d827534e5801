package config

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// Validate checks each field and the rules between fields. It is for a Config that a program
// made, after [Config.FillDefaults]; sources.Load has checked what it returns. The error joins all
// errors. Each is an InvalidArgument *status.Error of one line that names the setting by its key.
func (c *Config) Validate(use Use) error {
	var errs []error
	failed := make(map[string]bool)
	for _, s := range settings {
		v := s.value(c)
		if err := v.check(); err != nil {
			errs = append(errs, ValueError(c.Source(s.Key), s.Key, v.String(), err))
			failed[s.Key] = true
		}
	}
	return errors.Join(append(errs, c.broken(use, failed)...)...)
}

// rule is a condition on several settings.
type rule struct {
	keys []string // of the settings that it reads; the error names the first
	use  Use      // the processes that it applies to
	// check returns the error and what to do, or "".
	check func(*Config) string
}

var rules = []rule{
	{[]string{"tls.cert", "tls.key"}, both, func(c *Config) string {
		if c.TLS.Cert != "" && c.TLS.Key == "" {
			return "it requires the private key; set tls.key, too"
		}
		return ""
	}},
	{[]string{"tls.key", "tls.cert"}, both, func(c *Config) string {
		if c.TLS.Key != "" && c.TLS.Cert == "" {
			return "it requires the certificate; set tls.cert, too"
		}
		return ""
	}},
	{[]string{"tls.require-client-cert", "tls.cert", "tls.ca"}, ForServer, func(c *Config) string {
		if c.TLS.RequireClientCert && (c.TLS.Cert == "" || c.TLS.CA == "") {
			return "it requires tls.cert, tls.key and tls.ca; set all three"
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
		if c.TLS.ServerName != "" && c.TLS.CA == "" { // the rule above checks tls.ca
			return noListener(c.TLS)
		}
		return ""
	}},
	{[]string{"task", "cluster"}, ForServer, func(c *Config) string {
		switch _, listed := c.Cluster.Address(c.Task); {
		case c.Cluster.Len() == 0 || besideCluster(c):
			return ""
		case !listed:
			return "it is not in the cluster " + Quote(c.Cluster.String()) + "; name one of its tasks"
		case c.sources != nil && c.Source(TaskKey).Kind == FromDefault && c.Cluster.Len() > 1:
			return "the cluster has several tasks, and task is not set; set it to the one that this process is"
		}
		return ""
	}},
	{[]string{"provider", "shm"}, all, func(c *Config) string {
		if c.Names(ProviderShm) && c.SHM == SHMOff {
			return "it names shm, and the setting shm is off; leave shm out of provider, or set shm to auto"
		}
		return ""
	}},
	{[]string{"rdma.device", "provider"}, all, func(c *Config) string {
		if c.RDMA.Device != "" && c.FabricOnly() == "" {
			return "it names an RDMA device, and provider (" + c.Provider + ") names none; leave it out, or add libibverbs or roce to provider"
		}
		return ""
	}},
	{[]string{"shm-dir"}, all, func(c *Config) string {
		if c.SHMDir != "" && !filepath.IsAbs(c.SHMDir) {
			return "it is no absolute path, and processes that run elsewhere must find it, too"
		}
		return ""
	}},
	{[]string{"shm-dir", "shm"}, all, func(c *Config) string {
		if c.SHMDir != "" && c.SHM == SHMOff {
			return "it is for shared memory, and the setting shm is off; leave it out, or set shm to auto"
		}
		return ""
	}},
	{[]string{"arena", "arena-limit"}, both, func(c *Config) string {
		if c.Arena > c.ArenaLimit/2 {
			return "it must be at most half of arena-limit, which is " + FormatSize(c.ArenaLimit) + "; lower it, or raise arena-limit"
		}
		return ""
	}},
	apart("metrics-address", ListenKey, func(c *Config) (string, string) { return c.MetricsAddress, c.Listen }),
	apart("pprof-address", ListenKey, func(c *Config) (string, string) { return c.PprofAddress, c.Listen }),
	apart("pprof-address", "metrics-address", func(c *Config) (string, string) { return c.PprofAddress, c.MetricsAddress }),
}

// noListener is the error of a server that dials with TLS and listens without, unless another
// rule reports the missing settings.
func noListener(t TLS) string {
	if t.Cert == "" && t.Key == "" && !t.RequireClientCert {
		return "the server would dial with TLS and listen without it; set tls.cert and tls.key, too"
	}
	return ""
}

// besideCluster reports whether the process is an evaluator that is not in the cluster.
// TensorFlow allows that.
func besideCluster(c *Config) bool {
	const evaluator = "evaluator"
	return c.Task.Job == evaluator && !slices.Contains(c.Cluster.Jobs(), evaluator)
}

// apart is the rule that two listeners have different addresses, unless the port is 0.
func apart(key, other string, addresses func(*Config) (string, string)) rule {
	return rule{[]string{key, other}, ForServer, func(c *Config) string {
		a, b := addresses(c)
		if a == "" || a != b || strings.HasSuffix(a, ":0") {
			return ""
		}
		return "it is also the address of " + other + "; set another port"
	}}
}

// broken returns the errors of the rules. It skips rules that read a setting in failed.
func (c *Config) broken(use Use, failed map[string]bool) []error {
	var errs []error
	for _, r := range rules {
		if r.use&use == 0 || slices.ContainsFunc(r.keys, func(k string) bool { return failed[k] }) {
			continue
		}
		if why := r.check(c); why != "" {
			s, _ := byKey(r.keys[0])
			errs = append(errs, ValueError(c.Source(s.Key), s.Key, s.value(c).String(), errors.New(why)))
		}
	}
	return errs
}

// Reason converts an error of package cluster about a text to the error of a value: without the
// status code and without the text, which the caller adds.
func Reason(err error, text string) error {
	if err == nil {
		return nil
	}
	message := status.From(err).Message()
	if _, why, ok := strings.Cut(message, Quote(text)+": "); ok {
		message = why
	}
	return errors.New(message)
}
