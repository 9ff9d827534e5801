package sources

import (
	"strings"
	"testing"
)

// TestRules tries what must hold between settings: each line breaks one rule
// of a server, or none.
func TestRules(t *testing.T) {
	for name, test := range map[string]struct {
		args   string
		server []string // what a server says of it; nil: nothing
		client bool     // whether a client says it, too
	}{
		"nothing":               {"", nil, false},
		"TLS":                   {"--tls-cert=c --tls-key=k", nil, false},
		"mutual TLS":            {"--tls-cert=c --tls-key=k --tls-ca=a --tls-require-client-cert", nil, false},
		"certificate alone":     {"--tls-cert=c", []string{`--tls-cert "c"`, "set tls.key"}, true},
		"key alone":             {"--tls-key=k", []string{`--tls-key "k"`, "set tls.cert"}, true},
		"CA alone":              {"--tls-ca=a", []string{`--tls-ca "a"`, "set tls.cert and tls.key"}, false},
		"server name alone":     {"--tls-server-name=n", []string{`--tls-server-name "n"`, "set tls.cert and tls.key"}, false},
		"server name and CA":    {"--tls-server-name=n --tls-ca=a", []string{`--tls-ca "a"`, "set tls.cert and tls.key"}, false},
		"server name, no CA":    {"--tls-server-name=n --tls-cert=c --tls-key=k", nil, false},
		"required, nothing":     {"--tls-require-client-cert", []string{`--tls-require-client-cert "true"`, "set all three"}, false},
		"required, no CA":       {"--tls-require-client-cert --tls-cert=c --tls-key=k", []string{`--tls-require-client-cert "true"`, "set all three"}, false},
		"task of the cluster":   {"--cluster=a=h:1,h:2 --task=/job:a/task:1", nil, false},
		"task of another":       {"--cluster=a=h:1 --task=/job:b/task:1", []string{`--task "/job:b/replica:0/task:1"`, `not in the cluster "a=h:1"`}, false},
		"default not there":     {"--cluster=a=h:1", []string{`task "/job:worker/replica:0/task:0"`, `not in the cluster "a=h:1"`}, false},
		"default of one":        {"--cluster=worker=h:1", nil, false},
		"default of two":        {"--cluster=worker=h:1,h:2", []string{`task "/job:worker/replica:0/task:0"`, "set it to the one that this process is"}, false},
		"evaluator":             {"--cluster=worker=h:1,h:2 --task=/job:evaluator/task:0", nil, false},
		"evaluator in it":       {"--cluster=evaluator=h:1 --task=/job:evaluator/task:3", []string{"--task", "not in the cluster"}, false},
		"metrics on listen":     {"--metrics-address=127.0.0.1:2222", []string{`--metrics-address "127.0.0.1:2222"`, "address of listen"}, false},
		"pprof on listen":       {"--pprof-address=:7 --listen=:7", []string{`--pprof-address ":7"`, "address of listen"}, false},
		"pprof on metrics":      {"--pprof-address=:7 --metrics-address=:7", []string{`--pprof-address ":7"`, "address of metrics-address"}, false},
		"all on free ports":     {"--pprof-address=:0 --metrics-address=:0 --listen=:0", nil, false},
		"arena too large":       {"--arena=1GiB", []string{`--arena "1GiB"`, "half of arena-limit, which is 1GiB"}, true},
		"task wrong, not twice": {"--cluster=a=h:1 --task=nobody", []string{`--task "nobody"`}, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := world{args: strings.Fields(test.args), use: ForServer}.load(t)
			if test.server == nil {
				if err != nil {
					t.Error(err)
				}
			} else {
				wantErrors(t, err, test.server)
			}
			_, err = world{args: strings.Fields(test.args), use: ForClient}.load(t)
			if test.client {
				wantErrors(t, err, test.server)
			} else if err != nil {
				t.Errorf("as a client: %v", err)
			}
		})
	}
}
