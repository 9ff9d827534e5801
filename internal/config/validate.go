package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/status"
)

// Validate checks each field and the rules between fields, after [Fields.FillDefaults]. Each error is an
// InvalidArgument *status.Error of one line that names the setting by its key, or by its source. source
// returns the sources of settings; nil for a program, which has none.
func (f Fields) Validate(use Use, source func(key string) Source) error {
	var errs []error
	failed := make(map[string]bool)
	for _, s := range settings {
		v, ok := f[s.Key]
		if !ok {
			continue
		}
		if err := v.check(); err != nil {
			errs = append(errs, ValueError(sourceOf(source, s.Key), s.Key, v.String(), err))
			failed[s.Key] = true
		}
	}
	return errors.Join(append(errs, f.Broken(use, failed, source)...)...)
}

func sourceOf(source func(string) Source, key string) Source {
	if source == nil {
		return Source{Kind: FromProgram}
	}
	return source(key)
}

// rule is a condition on several settings.
type rule struct {
	keys []string // of the settings that it reads; the error names the first
	use  Use      // the processes that it applies to
	// check returns the error and what to do, or "".
	check func(Fields, func(string) Source) string
}

var rules = []rule{
	{[]string{"tls.cert", "tls.key"}, both, func(f Fields, _ func(string) Source) string {
		if f.Text("tls.cert") != "" && f.Text("tls.key") == "" {
			return "it requires the private key; set tls.key, too"
		}
		return ""
	}},
	{[]string{"tls.key", "tls.cert"}, both, func(f Fields, _ func(string) Source) string {
		if f.Text("tls.key") != "" && f.Text("tls.cert") == "" {
			return "it requires the certificate; set tls.cert, too"
		}
		return ""
	}},
	{[]string{"tls.require-client-cert", "tls.cert", "tls.ca"}, ForServer, func(f Fields, _ func(string) Source) string {
		if f.Text("tls.require-client-cert") == "true" && (f.Text("tls.cert") == "" || f.Text("tls.ca") == "") {
			return "it requires tls.cert, tls.key and tls.ca; set all three"
		}
		return ""
	}},
	{[]string{"tls.ca", "tls.cert", "tls.key", "tls.require-client-cert"}, ForServer, func(f Fields, _ func(string) Source) string {
		if f.Text("tls.ca") != "" {
			return noListener(f)
		}
		return ""
	}},
	{[]string{"tls.server-name", "tls.ca", "tls.cert", "tls.key", "tls.require-client-cert"}, ForServer, func(f Fields, _ func(string) Source) string {
		if f.Text("tls.server-name") != "" && f.Text("tls.ca") == "" { // the rule above checks tls.ca
			return noListener(f)
		}
		return ""
	}},
	{[]string{TaskKey, ClusterKey}, ForServer, func(f Fields, source func(string) Source) string {
		spec, task := f.Spec(), f.Self()
		switch _, listed := spec.Address(task); {
		case spec.Len() == 0 || besideCluster(spec, task):
			return ""
		case !listed:
			return "it is not in the cluster " + Quote(spec.String()) + "; name one of its tasks"
		case source != nil && source(TaskKey).Kind == FromDefault && spec.Len() > 1:
			return "the cluster has several tasks, and task is not set; set it to the one that this process is"
		}
		return ""
	}},
	{[]string{"provider", SHMKey}, all, func(f Fields, _ func(string) Source) string {
		for _, p := range providers.All() {
			if p.Local() && f.providers().Names(p.Name) && f.Text(SHMKey) == SHMOff {
				return fmt.Sprintf("it names %s, and the setting shm is off; leave %s out of provider, or set shm to auto", p.Name, p.Name)
			}
		}
		return ""
	}},
	{[]string{"rdma.device", "provider"}, all, func(f Fields, _ func(string) Source) string {
		if f.Text("rdma.device") != "" && f.providers().FabricOnly() == "" {
			return "it names an RDMA device, and provider (" + f.Text("provider") + ") names none; leave it out, or add libibverbs or roce to provider"
		}
		return ""
	}},
	{[]string{"shm-dir"}, all, func(f Fields, _ func(string) Source) string {
		if f.Text("shm-dir") != "" && !filepath.IsAbs(f.Text("shm-dir")) {
			return "it is no absolute path, and processes that run elsewhere must find it, too"
		}
		return ""
	}},
	{[]string{"shm-dir", SHMKey}, all, func(f Fields, _ func(string) Source) string {
		if f.Text("shm-dir") != "" && f.Text(SHMKey) == SHMOff {
			return "it is for shared memory, and the setting shm is off; leave it out, or set shm to auto"
		}
		return ""
	}},
	{[]string{"arena", "arena-limit"}, both, func(f Fields, _ func(string) Source) string {
		if limit := f.size("arena-limit"); f.size("arena") > limit/2 {
			return "it must be at most half of arena-limit, which is " + FormatSize(limit) + "; lower it, or raise arena-limit"
		}
		return ""
	}},
	apart("metrics-address", ListenKey),
	apart("pprof-address", ListenKey),
	apart("pprof-address", "metrics-address"),
}

// noListener is the error of a server that dials with TLS and listens without, unless another
// rule reports the missing settings.
func noListener(f Fields) string {
	if f.Text("tls.cert") == "" && f.Text("tls.key") == "" && f.Text("tls.require-client-cert") != "true" {
		return "the server would dial with TLS and listen without it; set tls.cert and tls.key, too"
	}
	return ""
}

// besideCluster reports whether the process is an evaluator that is not in the cluster.
// TensorFlow allows that.
func besideCluster(spec *cluster.Spec, task cluster.Task) bool {
	const evaluator = "evaluator"
	return task.Job == evaluator && !slices.Contains(spec.Jobs(), evaluator)
}

// apart is the rule that two listeners have different addresses, unless the port is 0.
func apart(key, other string) rule {
	return rule{[]string{key, other}, ForServer, func(f Fields, _ func(string) Source) string {
		a := f.Text(key)
		if a == "" || a != f.Text(other) || strings.HasSuffix(a, ":0") {
			return ""
		}
		return "it is also the address of " + other + "; set another port"
	}}
}

// hasPort reports whether an address is HOST:PORT.
func hasPort(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil
}

// size returns the value of a setting in bytes.
func (f Fields) size(key string) int64 {
	n, err := ParseSize(f.Text(key))
	if err != nil {
		return 0 // its own error is reported
	}
	return n
}

// Broken returns the errors of the rules. It skips rules that read a setting in failed, or one without a
// field. source is as for Validate.
func (f Fields) Broken(use Use, failed map[string]bool, source func(key string) Source) []error {
	var errs []error
	for _, r := range rules {
		if r.use&use == 0 || slices.ContainsFunc(r.keys, func(k string) bool { return failed[k] || f.Path(k) == "" }) {
			continue
		}
		if why := r.check(f, source); why != "" {
			key := r.keys[0]
			errs = append(errs, ValueError(sourceOf(source, key), key, f.Text(key), errors.New(why)))
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
